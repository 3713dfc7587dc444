"""One sentence on what to change, read off the source: names, loops, calls."""

from __future__ import annotations

import ast
import functools
import re
from collections.abc import Sequence
from typing import Any

from autograd_opt.explaining.call_sites import Spot


@functools.lru_cache(maxsize=256)
def tree_of(file: str) -> ast.Module | None:
    """The parsed file, or None where it cannot be read."""
    try:
        with open(file, encoding="utf-8") as stream:
            return ast.parse(stream.read())
    except (OSError, SyntaxError, ValueError):
        return None


def holding(file: str, line: int, kinds: tuple[type[ast.AST], ...]) -> list[Any]:
    """The nodes of `kinds` that hold a line, outermost first."""
    tree = tree_of(file)
    found = [node for node in (ast.walk(tree) if tree is not None else ())
             if isinstance(node, kinds) and node.lineno <= line <= (node.end_lineno or 0)]  # type: ignore[attr-defined]
    return sorted(found, key=lambda node: node.lineno)


def enclosing(file: str, line: int, kinds: tuple[type[ast.AST], ...]) -> ast.AST | None:
    """The innermost node of `kinds` that holds a line."""
    return next(reversed(holding(file, line, kinds)), None)


LOOPS = (ast.For, ast.While, ast.AsyncFor, ast.ListComp, ast.GeneratorExp, ast.SetComp, ast.DictComp)
FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)


RUNS = re.compile(r"\.backward\(|autograd\.grad\(")
"""Calls that start a backward run."""


def loop_at(spot: Spot) -> int | None:
    """Line of the innermost loop, within the spot's own function, that the spot does not depend on."""
    function = enclosing(spot.file, spot.line, FUNCTIONS)
    first = function.lineno if function is not None else 0  # type: ignore[attr-defined]
    carried = names_read(spot.text) & stored(statement_of(spot))
    for loop in reversed(holding(spot.file, spot.line, LOOPS)):
        if loop.lineno < first:
            break
        # the iterable of a loop is computed once
        if isinstance(loop, (ast.For, ast.AsyncFor)) and loop.lineno == spot.line and loop.body[0].lineno > spot.line:
            continue
        if not carried and not names_read(spot.text) & targets(loop):
            return int(loop.lineno)
        carried = carried - stored(loop, but=statement_of(spot))
    return None


def statement_of(spot: Spot) -> ast.AST | None:
    """The statement of a spot that may assign something."""
    return enclosing(spot.file, spot.line, (ast.Assign, ast.AnnAssign, ast.AugAssign, ast.Return, ast.Expr))


def names_read(text: str) -> set[str]:
    """The names that an expression reads."""
    try:
        tree = ast.parse(text.strip(), mode="eval")
    except (SyntaxError, ValueError):
        return set()
    return {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)}


def stored(node: ast.AST | None, but: ast.AST | None = None) -> set[str]:
    """The names that are assigned in a piece of the program, one statement left out."""
    found, open_nodes = set[str](), [node] if node is not None else []
    while open_nodes:
        at = open_nodes.pop()
        if at is but:
            continue
        if isinstance(at, ast.Name) and isinstance(at.ctx, ast.Store):
            found.add(at.id)
        open_nodes += ast.iter_child_nodes(at)
    return found


def targets(loop: Any) -> set[str]:
    """The names that a loop runs through."""
    heads = [g.target for g in loop.generators] if hasattr(loop, "generators") else [getattr(loop, "target", None)]
    return set().union(*(stored(head) for head in heads))


def subject(spot: Spot) -> str:
    """What a spot computes: the expression itself, or the name it is assigned to."""
    if spot.text and len(spot.text) <= 50 and spot.text.endswith(")"):
        return f"`{spot.text}`"
    return assigned(spot) or (f"`{spot.text}`" if 0 < len(spot.text) <= 50 else "this")


def assigned(spot: Spot) -> str:
    """The names that a spot's statement assigns, or nothing."""
    statement = statement_of(spot)
    if not isinstance(statement, ast.Assign):
        return ""
    names = ", ".join(ast.unparse(t).strip("()") for t in statement.targets)
    return f"`{names}`" if len(names) <= 40 else ""


def advise(chains: Sequence[tuple[Spot, ...]], loop: bool, rows: Sequence[Any], windows: int = 1) -> str:
    """The sentence for one finding; nothing is known to repeat what ran before its window."""
    spots = [chain[-1] for chain in chains if chain]
    if not spots:
        return "torch itself repeats this; nothing in the user's code asks for it"
    first = spots[0]
    derivatives = sum(row.count for row in rows if row.place.spots and row.place.spots[-1].backward)
    if 2 * derivatives >= sum(row.count for row in rows):
        return backward_advice(chains, loop)
    if loop:
        return loop_advice(chains[0], rows, windows)
    if len({(s.file, s.line) for s in spots}) == 1:
        return f"{first} asks for the same value {len(spots)} times: compute it once and use the result"
    others = ", ".join(dict.fromkeys(map(str, spots[1:])))
    return f"compute {subject(first)} once, at {first}, and use it at {others}"


def loop_advice(chain: tuple[Spot, ...], rows: Sequence[Any], windows: int) -> str:
    """Where to move what a loop repeats."""
    inner = chain[-1]
    if RUNS.search(inner.text):
        return f"the backward run at {inner} repeats this each time; nothing in the code asks for it"
    places = {id(row.place): row.place for row in rows}
    runs, repeats = sum(place.count for place in places.values()), sum(row.count for row in rows)
    if 2 * repeats < runs - len(places) * (windows - 1):         # no loop can be left behind
        what = f"`{inner.text}`" if 0 < len(inner.text) <= 50 else "this"
        return f"{inner} computes {what} on values it had before in {repeats:,} of {runs:,} runs: keep the results"
    what = assigned(inner) or subject(inner)
    line = loop_at(inner)
    if line is not None:
        return f"compute {what} once, before the loop at {str(inner).rsplit(':', 1)[0]}:{line}"
    for spot in reversed(chain[:-1]):
        line = loop_at(spot)
        if line is not None:
            outer = f"{str(spot).rsplit(':', 1)[0]}:{line}"
            return f"compute {what} once, outside the loop at {outer}, and keep it for {inner}"
    return f"compute {what} at {inner} once and keep it: it is asked for again and again with the same operands"


def backward_advice(chains: Sequence[tuple[Spot, ...]], loop: bool) -> str:
    """Work that gradients repeat."""
    lines = [next((s for s in reversed(chain) if not s.backward), chain[-1]) for chain in chains if chain]
    places = list(dict.fromkeys(map(str, lines)))
    if len(places) > 1:
        return (f"the backward runs at {', '.join(places)} share this work: ask for these gradients in one call, "
                "or run them in one AutogradGraph(optimize=True)")
    if loop:
        return f"the backward run at {places[0]} computes this anew each time, from operands that do not change"
    return (f"the backward run at {places[0]} computes the same twice for different operands: "
            "an AutogradGraph(optimize=True) around it shares it")
