"""What the source says of a site: its expression, its text, the loops around it, whether it hands its value on."""

from __future__ import annotations

import ast
import functools
import os
from typing import Any

from autograd_opt._common.callsite import TORCH
from autograd_opt.explaining.call_sites import Spot
from autograd_opt.explaining.sites import EXPRESSION, Site, loops_of
from autograd_opt.explaining.state import FUNCTIONS, changed_in, changes, definitions, facts, reads, tree_of

AUTOGRAD = os.path.join(TORCH, "autograd")
LOOPS = (ast.For, ast.While, ast.AsyncFor)
LONGEST = 60
"""Characters of an expression that is printed whole."""
CALLBACKS = frozenset({"map", "filter", "reduce", "next", "sum", "list", "tuple", "sorted", "max", "min", "zip", "any",
                       "all", "enumerate", "dict", "set"})
"""Functions of Python's own that run the program's in turns: what these compute is not their value."""
EXPRESSION_NODES = (ast.Call, ast.BinOp, ast.UnaryOp, ast.Compare, ast.Subscript, ast.Attribute, ast.ListComp)


def holding(file: str, line: int, kinds: tuple[type[ast.AST], ...]) -> list[Any]:
    """The nodes of `kinds` that hold a line, outermost first."""
    tree = tree_of(file)
    found = [node for node in (ast.walk(tree) if tree is not None else ())
             if isinstance(node, kinds) and node.lineno <= line <= (node.end_lineno or 0)]  # type: ignore[attr-defined]
    return sorted(found, key=lambda node: (node.lineno, -node.end_lineno))


def expression_of(site: Site) -> ast.expr | None:
    """The expression of a site, if sharing its value is all that leaving it out would change."""
    found = value_of(site)
    return None if found is None or changes(site, found) else found


def value_of(site: Site) -> ast.expr | None:
    """The expression of a site, if its value is what its operations compute."""
    if site.kind != EXPRESSION or site.spot is None or not site.spot.text:
        return None
    try:
        found = ast.parse(site.spot.text, mode="eval").body
    except (SyntaxError, ValueError):
        return None
    if not isinstance(found, EXPRESSION_NODES):
        return None                      # a loop's iterable, a statement
    if isinstance(found, ast.Call):
        function = found.func
        if (function.id if isinstance(function, ast.Name) else getattr(function, "attr", "")) in CALLBACKS \
                and site.callee is not None:
            return None
    called = {site.callee, *(inner.code for inner in site.children.values() if inner.kind == EXPRESSION)}
    return None if any(code is not None and passes_on(code) for code in called) else found


def makes_leaf(site: Site) -> bool:
    """True if an expression makes a leaf, as its text says: two of them collect a gradient each."""
    found = value_of(site)
    return found is not None and bool(facts(found).leaves)


@functools.lru_cache(maxsize=1024)
def passes_on(code: Any) -> bool:
    """True if a function yields, or returns one of its arguments as it is: its value is more than it computes."""
    if code.co_flags & 0x2A0:            # generators and coroutines
        return True
    arguments = set(code.co_varnames[:code.co_argcount + code.co_kwonlyargcount])
    for node in definitions(code):
        returned = [node.body] if isinstance(node, ast.Lambda) else [
            part.value for part in ast.walk(node) if isinstance(part, ast.Return) and part.value is not None]
        for value in returned:
            values = value.elts if isinstance(value, (ast.Tuple, ast.List)) else [value]
            if any(isinstance(v, ast.Name) and v.id in arguments for v in values):
                return True
    return False


def one_result(first: Site, site: Site) -> bool:
    """True if calls with equal operations return equal values, whatever else their arguments choose."""
    same = first.spot is not None and site.spot is not None and first.spot.text == site.spot.text
    codes = {code for code in (first.callee, site.callee) if code is not None
             and (not code.co_filename.startswith(TORCH) or code.co_filename.startswith(AUTOGRAD))}
    if not codes or (same and first.callee is site.callee):
        return True
    return all(returns_last(code, first.callee is not site.callee) for code in codes)


@functools.lru_cache(maxsize=1024)
def returns_last(code: Any, by_itself: bool) -> bool:
    """True if what a function returns follows from its operations: one expression, nothing chosen by an argument.

    `by_itself`: it is an operation's own result, so that it does not matter which function it is.
    """
    found = list(definitions(code))
    parts = [part for node in found for part in ast.walk(node)]
    if not found or any(isinstance(part, ast.Attribute) and part.attr == "grad" for part in parts):
        return False
    values = [part.value if isinstance(part, ast.Return) else part.body for part in parts
              if isinstance(part, (ast.Return, ast.Lambda))]
    kinds = (ast.BinOp, ast.UnaryOp, ast.Call) if by_itself else (ast.BinOp, ast.UnaryOp, ast.Call, ast.Name)
    if len(values) != 1 or not isinstance(values[0], kinds):
        return False
    return not any(isinstance(part, (ast.IfExp, ast.BoolOp)) or
                   (isinstance(part, ast.Subscript) and not isinstance(part.slice, ast.Constant))
                   for part in ast.walk(values[0]))


def text_of(spot: Spot) -> str:
    """An expression, shortened in the middle where it is long."""
    text = spot.text
    return f"`{text if len(text) <= LONGEST else text[:40] + ' … ' + text[-15:]}`"


def name_of(site: Site) -> str:
    """An expression as the name that it is assigned to, where that is its only value nearby, else as written."""
    spot = site.spot
    assert spot is not None
    for node in holding(spot.file, spot.line, (ast.Assign,)):
        if len(node.targets) == 1 and isinstance(node.targets[0], ast.Name) and ast.unparse(node.value) == normal(spot):
            name = node.targets[0].id
            scope = next(reversed(holding(spot.file, spot.line, (*LOOPS, *FUNCTIONS))), None)
            if scope is not None and sum(isinstance(n, ast.Name) and n.id == name and isinstance(n.ctx, ast.Store)
                                         for n in ast.walk(scope)) == 1:
                return f"`{name} = {spot.text}`" if len(spot.text) + len(name) < LONGEST else f"`{name}`"
    return text_of(spot)


def normal(spot: Spot) -> str:
    """An expression's text, written as Python writes it."""
    return ast.unparse(ast.parse(spot.text, mode="eval"))


Place = tuple[int, str, int, int]
"""A loop around a site: levels up, file, line and first instruction."""


def loops_to_leave(site: Site, moved: frozenset[str]) -> list[Place]:
    """The loops before which a site's value can be computed, innermost first.

    `moved` are the expressions that are computed there, too.
    """
    if not site.constant:
        return []
    levels = [s for s in site.upwards() if s.kind == EXPRESSION]
    seen = {place for place in site.constant if place in site.turned}
    expression = expression_of(site)
    free = reads(site, expression) if expression is not None else set[str]()
    found: list[Place] = []
    for level in range(1 + max((level for level, _ in seen), default=-1)):
        spot = levels[level].spot if level < len(levels) else None
        if spot is None:
            break
        for begin, source in reversed(source_loops(levels[level], spot)):      # innermost first
            if level == 0 and (not free <= known_before(source, moved, free) or free & changed_in(source, spot.file)):
                return found        # what it reads belongs to this loop, of which one turn may have been seen
            if (level, begin) not in seen:
                break
            found.append((level, spot.file, source.lineno, begin))
    return found


def known_before(source: ast.AST, moved: frozenset[str], free: set[str]) -> set[str]:
    """Those of the names `free` that have their value before a loop, or get it from what is moved there."""
    stores: dict[str, int] = {}
    for node in ast.walk(source):
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            stores[node.id] = stores.get(node.id, 0) + 1
    early = {name for name in free if name not in stores}
    for node in ast.walk(source):
        if isinstance(node, ast.Assign) and len(node.targets) == 1 and isinstance(node.targets[0], ast.Name) \
                and stores.get(node.targets[0].id) == 1 \
                and ast.unparse(node.value) in moved:
            early.add(node.targets[0].id)
    return early


def source_loops(site: Site, spot: Spot) -> list[tuple[int, Any]]:
    """The loops around a site in its own function, outermost first: first instruction and source."""
    code = site.code
    if code is None or code.co_name in ("<listcomp>", "<genexpr>", "<setcomp>", "<dictcomp>"):
        return []
    inner = [begin for begin, end in loops_of(code) if begin <= spot.instruction <= end]
    functions = holding(spot.file, spot.line, FUNCTIONS)
    first = functions[-1].lineno if functions else 0
    around = [loop for loop in holding(spot.file, spot.line, LOOPS)
              if loop.lineno >= first and not (loop.lineno == spot.line and loop.body[0].lineno > spot.line
                                               and not isinstance(loop, ast.While))]
    return list(zip(inner, around, strict=True)) if len(inner) == len(around) else []
