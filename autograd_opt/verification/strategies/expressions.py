"""Gradients of small graphs as sympy expressions, before and after optimization.

What the graph computes once and reads several times has a name, so the text shows what the
graph does: as written, a repeated operation is a line of its own each time; optimized, it is one line.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import sympy
from numpy.typing import NDArray

from autograd_opt.errors import ArgumentError
from autograd_opt.verification.program.instruction_names import MERGED
from autograd_opt.verification.program.instructions import Malformed, Program
from autograd_opt.verification.semantics.domain import Outside, TooLarge
from autograd_opt.verification.semantics.evaluate import evaluate, needed_for
from autograd_opt.verification.semantics.spelling import abbreviations, latex, latex_name, leaf_names, symbols_of
from autograd_opt.verification.semantics.symbols import NeedCase, Symbols
from autograd_opt.verification.strategies.sympy_engine import free_symbols
from autograd_opt.verification.strategies.task import Task

LIMIT = 600
"""Scalar operations above which a gradient is not spelled out, unless the caller says otherwise."""


@dataclass(frozen=True)
class GradientExpression:
    """A gradient as sympy expressions.

    Attributes
    ----------
    leaf : the name of the leaf.
    elements : object array of expressions, of the leaf's shape, nothing abbreviated.
    named : (name, expression) of every value that the graph computes once and reads several times, in order.
    results : the elements in terms of those names.
    """

    leaf: str
    elements: NDArray[np.object_]
    named: tuple[tuple[Any, Any], ...]
    results: tuple[Any, ...]

    @property
    def operations(self) -> int:
        """Scalar operations that the graph takes for it, each line counted once."""
        return int(sum(sympy.count_ops(e) for _, e in self.named) + sum(sympy.count_ops(e) for e in self.results))

    def compact(self) -> GradientExpression:
        """The same gradient with the common subexpressions that `sympy.cse` finds, whatever the graph shares."""
        elements = list(self.elements.reshape(-1))
        taken = {s.name for e in elements for s in e.free_symbols}
        named, results = sympy.cse(elements, symbols=map(sympy.Symbol, abbreviations(taken)))
        return GradientExpression(self.leaf, self.elements, tuple(named), tuple(results))

    def lines(self) -> list[tuple[str, Any]]:
        """(name, expression), named values first."""
        out = [(str(s), e) for s, e in self.named]
        if self.elements.size == 1:
            return [*out, (f"d/d{self.leaf}", self.results[0])]
        places = [",".join(map(str, i)) for i in np.ndindex(self.elements.shape)]
        return [*out, *((f"d/d{self.leaf}[{p}]", e) for p, e in zip(places, self.results, strict=True))]

    def __str__(self) -> str:
        return "\n".join(f"{name} = {e}" for name, e in self.lines())

    def latex(self) -> str:
        """A LaTeX `align*` environment; an element of the leaf is called there as in the expressions."""
        symbols = symbols_of(self.leaf, self.elements.size)
        left = [latex_name(str(s)) for s, _ in self.named]
        left += [rf"\frac{{\partial L}}{{\partial {latex_name(symbol)}}}" for symbol in symbols]
        rows = [f"{name} &= {latex(e)}" for name, (_, e) in zip(left, self.lines(), strict=True)]
        return "\\begin{align*}\n" + " \\\\\n".join(rows) + "\n\\end{align*}"

    def _repr_latex_(self) -> str:
        return self.latex()


def expression(
    nodes: Sequence[Any],
    roots: Sequence[Any],
    leaf: Any,
    leader: Sequence[int] | None = None,
    *,
    optimized: bool = True,
    names: Mapping[int, str] | None = None,
    limit: int = LIMIT,
) -> GradientExpression:
    """The gradient of `leaf` as sympy expressions, before or after optimization.

    Parameters
    ----------
    nodes, roots, leader : as for `verify`; leaf : a node or its position.
    optimized : of the optimized sweep; False: of the graph as written.
    names : record number of a leaf to the name of its symbols; x0, x1, ... by default (leaf0 where x0 is taken).
    limit : scalar operations above which it refuses.

    Raises
    ------
    ArgumentError : too large, branches on values, without meaning, or no output depends on the leaf; two leaves
        would be written alike.
    """
    try:
        task = Task(nodes, roots, [leaf], leader, None)
    except Malformed as error:
        raise ArgumentError(f"no gradient expression: {error}") from error
    sizes = {i: size_of(task, i) for i, n in enumerate(task.nodes) if n.is_leaf or i == task.leaves[0]}
    named = leaf_names(sizes, names or {}, {k: size_of(task, r) for k, r in enumerate(task.roots)})
    name = named[task.leaves[0]]
    program = task.optimized if optimized else task.original
    position = program.gradients[0]
    if position is None:
        raise ArgumentError(f"no output depends on {name}: its gradient is zero everywhere")
    free = free_symbols(named)
    try:
        elements = evaluate(Symbols(budget=limit, named=False), program, [position], free)[position]
        taken = {s for i, size in sizes.items() for s in symbols_of(named[i], size)}
        lines, results = as_computed(Symbols(budget=limit, named=False), program, position, free, taken)
    except TooLarge as error:
        raise ArgumentError(
            f"the gradient of {name} takes {error}: pass limit= with a larger number, or take smaller tensors"
        ) from error
    except NeedCase as need:
        raise ArgumentError(
            f"the gradient of {name} branches on the sign of {need.difference}, so it has no single expression"
        ) from need
    except Outside as error:
        raise ArgumentError(f"the gradient of {name} has no expression: {error}") from error
    return GradientExpression(name, np.asarray(elements, dtype=object), tuple(lines), tuple(results.reshape(-1)))


def size_of(task: Task, i: int) -> int:
    """How many elements node `i` has."""
    return math.prod(task.vocabulary.types[task.vocabulary.heads[task.recorded.heads[i]].type].shape or ())


def as_computed(
    D: Symbols, program: Program, position: int, free: Any, taken: Collection[str]
) -> tuple[list[tuple[Any, Any]], Any]:
    """The value at `position`, with a name that is not `taken` for whatever is read more than once."""
    names = abbreviations(taken)
    vocabulary = program.vocabulary
    needed = needed_for(program, [position])
    readers = [0] * len(needed)
    for k, there in enumerate(needed):
        if there and vocabulary.heads[program.heads[k]].op != MERGED:
            for o in program.operands[k]:
                readers[leader_of(program, o)] += 1
    lines: list[tuple[Any, Any]] = []

    def named(k: int, value: Any) -> Any:
        return renamed(value, lines, names) if readers[k] > 1 and not isinstance(value, tuple) else value

    values = evaluate(D, program, [position], free, named)
    return lines, np.asarray(values[position], dtype=object)


def leader_of(program: Program, k: int) -> int:
    """The instruction that a merged one stands for."""
    while program.vocabulary.heads[program.heads[k]].op == MERGED:
        k = program.operands[k][0]
    return k


def renamed(value: Any, lines: list[tuple[Any, Any]], names: Iterator[str]) -> Any:
    """The array with a fresh name for every element that is more than a symbol or a number."""
    value = np.asarray(value)
    if value.dtype != object:
        return value
    known = {e: s for s, e in lines[-value.size :]}
    out = np.empty(value.shape, dtype=object)
    flat = out.reshape(-1)
    for k, e in enumerate(value.reshape(-1)):
        if not isinstance(e, sympy.Expr) or e.is_Atom or (-e).is_Atom:
            flat[k] = e
        elif e in known:  # a broadcast value
            flat[k] = known[e]
        else:
            flat[k] = known[e] = sympy.Symbol(next(names), real=True)
            lines.append((flat[k], e))
    return out
