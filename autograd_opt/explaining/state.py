"""What an expression of the program changes beside its tensors, read from the source of the functions that it calls.

Operations on tensors are seen while they run. Attributes, variables and containers of the program are not: a counter
that a method counts up is found in the method's text only. Functions are followed by their names, in the files of what
ran below the expression, so that one which runs no operation of torch's is read, too.
"""

from __future__ import annotations

import ast
import functools
import linecache
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from types import CodeType
from typing import Any

import torch

from autograd_opt.explaining.sites import EXPRESSION, OPERATION, Site

FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)
BEGINNINGS = frozenset({"__init__", "__post_init__", "__new__"})
"""Methods whose first argument is new."""
CHANGING = frozenset("""append appendleft extend insert pop popleft popitem remove discard add update setdefault clear
    sort reverse write writelines send put put_nowait next __next__ __setitem__ train eval zero_grad requires_grad_
    manual_seed seed shuffle setattr delattr exec""".split())
"""Names of functions and methods that change what they are called on, or hidden state."""
MOST_FUNCTIONS = 400
"""Functions that are read for one expression; where there are more, it counts as changing something."""


@dataclass(frozen=True)
class Facts:
    """What a piece of the program does by itself: attributes have a dot before their names."""

    writes: tuple[tuple[str, str], ...]
    """Variables and attributes beyond its own that it changes, as written, each with the method that does, if any."""
    changed: frozenset[str]
    """Their last names."""
    reads: frozenset[str]
    """Variables that are not its own, and attributes."""
    leaves: tuple[str, ...] = ()
    """Calls that make a leaf, which collects gradients of its own, as written."""


@functools.lru_cache(maxsize=256)
def tree_of(file: str) -> ast.Module | None:
    """The parsed file, or None where it cannot be read."""
    try:
        return ast.parse("".join(linecache.getlines(file)))
    except (SyntaxError, ValueError):
        return None


@functools.lru_cache(maxsize=256)
def functions_of(file: str) -> dict[str, list[Any]]:
    """The functions of a file by name; a class is what makes an object of it."""
    found: dict[str, list[Any]] = {}
    tree = tree_of(file)
    for node in ast.walk(tree) if tree is not None else ():
        if isinstance(node, FUNCTIONS[:2]):
            found.setdefault(node.name, []).append(node)
        elif isinstance(node, ast.ClassDef):
            found.setdefault(node.name, []).extend(
                part for part in node.body if isinstance(part, ast.FunctionDef) and part.name in BEGINNINGS)
    return found


def definitions(code: CodeType) -> Iterator[Any]:
    """The functions in the source that a code object may be: a line can hold several lambdas."""
    tree = tree_of(code.co_filename)
    for node in ast.walk(tree) if tree is not None else ():
        if isinstance(node, FUNCTIONS):
            decorators = [] if isinstance(node, ast.Lambda) else node.decorator_list
            first = min(part.lineno for part in (node, *decorators))
            if first == code.co_firstlineno and isinstance(node, ast.Lambda) == (code.co_name == "<lambda>"):
                yield node


def root(node: ast.AST) -> ast.AST:
    """What a chain of attributes and indices begins with."""
    while isinstance(node, (ast.Attribute, ast.Subscript, ast.Starred)):
        node = node.value
    return node


def last_name(node: ast.AST) -> str:
    """The name that a change of `node` concerns: of an attribute with a dot, of an element that of its container."""
    while isinstance(node, (ast.Subscript, ast.Starred)):
        node = node.value
    return f".{node.attr}" if isinstance(node, ast.Attribute) else node.id if isinstance(node, ast.Name) else ""


def new(value: ast.AST) -> bool:
    """True if an expression makes an object that nothing else holds, as far as its text says."""
    if isinstance(value, ast.Call):
        start: ast.AST = value.func
        while isinstance(start, (ast.Attribute, ast.Subscript, ast.Call)):
            start = start.func if isinstance(start, ast.Call) else start.value
        return getattr(start, "id", "") not in ("self", "cls")
    return isinstance(value, (ast.Constant, ast.BinOp, ast.UnaryOp, ast.Compare, ast.List, ast.Tuple, ast.Dict, ast.Set,
                              ast.ListComp, ast.DictComp, ast.SetComp))


def made_here(node: Any) -> set[str]:
    """Local names that only ever hold what the function has made, and the first argument of what begins an object."""
    values: dict[str, list[ast.AST]] = {}
    for part in ast.walk(node):
        if isinstance(part, ast.Assign):
            for target in part.targets:
                if isinstance(target, ast.Name):
                    values.setdefault(target.id, []).append(part.value)
        elif isinstance(part, ast.AnnAssign) and isinstance(part.target, ast.Name) and part.value is not None:
            values.setdefault(part.target.id, []).append(part.value)
    stored = [part.id for part in ast.walk(node) if isinstance(part, ast.Name) and isinstance(part.ctx, ast.Store)]
    found = {name for name, made in values.items() if len(made) == stored.count(name) and all(map(new, made))}
    arguments = [a.arg for a in (*node.args.posonlyargs, *node.args.args)] if isinstance(node, FUNCTIONS) else []
    if arguments and (arguments[0] == "ctx" or getattr(node, "name", "") in BEGINNINGS):
        found.add(arguments[0])
    return found - set(arguments[1:])


@functools.lru_cache(maxsize=4096)
def facts(node: Any) -> Facts:
    """What a function, a loop or an expression changes and reads by itself."""
    function = isinstance(node, FUNCTIONS)
    outer = {name for part in ast.walk(node) if isinstance(part, (ast.Global, ast.Nonlocal)) for name in part.names}
    own = made_here(node) - outer
    local: set[str] = set()
    if function:
        local = {a.arg for a in ast.walk(node.args) if isinstance(a, ast.arg)}
        local |= {part.id for part in ast.walk(node)
                  if isinstance(part, ast.Name) and isinstance(part.ctx, ast.Store)} - outer
    writes: list[tuple[ast.AST, str]] = []
    leaves: list[str] = []
    reads = set[str]()
    for part in ast.walk(node):
        if isinstance(part, (ast.Attribute, ast.Subscript)) and isinstance(part.ctx, (ast.Store, ast.Del)):
            writes.append((part, ""))
        elif isinstance(part, ast.Attribute):
            reads.add(f".{part.attr}")
        elif isinstance(part, ast.Name):
            if isinstance(part.ctx, ast.Load):
                reads |= {part.id} - local
            elif part.id in outer:
                writes.append((part, ""))
        elif isinstance(part, ast.NamedExpr) and isinstance(node, ast.expr) and not function:
            writes.append((part.target, ""))
        elif isinstance(part, ast.Call):
            method = isinstance(part.func, ast.Attribute)
            name = getattr(part.func, "attr", getattr(part.func, "id", ""))
            if name == "Parameter" or any(k.arg == "requires_grad" and getattr(k.value, "value", True) is not False
                                          for k in part.keywords):
                leaves.append(ast.unparse(part))
            if name in CHANGING or "random" in ast.unparse(part.func).split(".")[:-1]:
                on = part.func.value if isinstance(part.func, ast.Attribute) else (*part.args, part.func)[0]
                writes.append((on, name if method else ""))
    beyond = [(part, method) for part, method in writes
              if not isinstance(start := root(part), ast.Call) and getattr(start, "id", None) not in own]
    return Facts(tuple(dict.fromkeys((ast.unparse(part), method) for part, method in beyond)),
                 frozenset(filter(None, (last_name(part) for part, _ in beyond))), frozenset(reads), tuple(leaves))


def closure(start: Iterable[Any], files: Iterable[str]) -> list[Any]:
    """Pieces of the program, and the functions of `files` that they name, and that these name, and so on."""
    known: dict[str, list[Any]] = {}
    for file in files:
        for name, nodes in functions_of(file).items():
            known.setdefault(name, []).extend(nodes)
    found = dict.fromkeys(start)
    waiting = list(found)
    while waiting and len(found) <= MOST_FUNCTIONS:
        for name in facts(waiting.pop()).reads:
            for node in known.get(name.lstrip("."), ()):
                if node not in found:
                    found[node] = None
                    waiting.append(node)
    return list(found)


def below(site: Site) -> tuple[set[CodeType], set[str]]:
    """The functions of the program that ran below an expression, and the operators that did."""
    codes, operators = set[CodeType](), set[str]()
    waiting = list(site.children.values())
    while waiting:
        inner = waiting.pop()
        waiting += inner.children.values()
        if inner.kind == EXPRESSION and inner.code is not None:
            codes.add(inner.code)
        elif inner.kind == OPERATION:
            operators.add(inner.name)
    return codes, operators


def of_expression(site: Site, expression: ast.expr, codes: set[CodeType]) -> list[Facts]:
    """What an expression does, by itself and in each function below it, of `codes`."""
    files = {code.co_filename for code in codes} | ({site.spot.file} if site.spot is not None else set())
    start = [expression, *(node for code in codes for node in definitions(code))]
    return [facts(node) for node in closure(start, files)]


def changes(site: Site, expression: ast.expr) -> str:
    """What an expression does beside its value, for a sentence: "changes `self.count`"; empty where that is nothing."""
    codes, operators = below(site)
    found = of_expression(site, expression, codes)
    for each in found:
        for text, method in each.writes:
            if not (method in operators and hasattr(torch.Tensor, method)):      # else torch's: `x.add(y)`, `x.sort()`
                return f"changes `{text}`"
        for text in each.leaves:
            return f"makes `{text}`, which has gradients of its own"
    return "changes more than could be read" if len(found) > MOST_FUNCTIONS else ""


def reads(site: Site, expression: ast.expr) -> set[str]:
    """The variables and attributes that an expression reads, also in the functions below it."""
    return set().union(*(each.reads for each in of_expression(site, expression, below(site)[0])))


def changed_in(loop: ast.AST, file: str) -> frozenset[str]:
    """The attributes and containers that a loop changes, and the variables that functions change which it calls."""
    return frozenset().union(*(facts(node).changed for node in closure([loop], [file])))
