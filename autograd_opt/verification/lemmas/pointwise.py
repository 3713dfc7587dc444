"""Which operators act on each element alone: shown by what their meaning cannot see.

A meaning is run on tokens that have no shape, no elements and no arithmetic, in a domain that
only knows operations on single elements.  A meaning that finishes so uses nothing else: it is
the same function at every element, whatever the shape.  With it, a lemma about scalars is one
for all sizes; broadcasting is `expand`, whose lemma is proved for all sizes itself.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

from autograd_opt.ops.table import OPS
from autograd_opt.verification.lemmas.cases import Case
from autograd_opt.verification.lemmas.claims import coded, wanted
from autograd_opt.verification.program.instruction_names import CONSTANT, FULL
from autograd_opt.verification.program.instructions import Head, Vocabulary
from autograd_opt.verification.program.rule_traces import trace_rule
from autograd_opt.verification.semantics.domain import Domain, Outside
from autograd_opt.verification.semantics.evaluate import placed, traced_formula
from autograd_opt.verification.semantics.operators import MEANING

LOGICAL = frozenset({"logical_and", "logical_or", "logical_not", "logical_xor", "isnan", "isinf", "isfinite", "clone",
                     "contiguous", "to", "bitwise_and", "bitwise_or", "bitwise_not"})
"""Words about single elements whose meaning is numpy's own."""


class Token:
    """An element of an unknown array; it can only be compared, which gives a token."""

    def __gt__(self, other: Any) -> Token:
        return self

    __ge__ = __lt__ = __le__ = __gt__

    def __eq__(self, other: object) -> Any:
        return self

    __ne__ = __eq__
    __hash__ = object.__hash__


TOKEN = Token()


class Elements(Domain):
    """Operations on single elements; everything else is outside."""

    def only(self, *values: Any, **_: Any) -> Any:
        """The result of an operation on elements."""
        for v in values:
            if not isinstance(v, Token):
                raise Outside("something that is no element")
        return TOKEN

    lift = neg = signs = add = sub = mul = div = power = compare = select = only

    def number(self, value: Any) -> Any:
        return TOKEN

    def scale(self, k: Any, x: Any) -> Any:
        return self.only(x)

    def call(self, name: str, x: Any) -> Any:
        return self.only(x)

    def branch(self, d: Any, above: Any, below: Any, share: Any) -> Any:
        return self.only(d, above, below)

    def of_arrays(self, *_: Any, **__: Any) -> Any:
        raise Outside("an operation on whole arrays")

    array = sum = matmul = of_arrays


def acts_on_elements(vocabulary: Vocabulary, head: Head, types: Sequence[int]) -> bool:
    """Is this instruction the same function at every element of its (broadcast) operands?"""
    if head.op in LOGICAL or head.op == FULL:
        return True
    if head.op == CONSTANT:
        return vocabulary.types[head.type].shape == ()
    if head.op in MEANING:
        return meaning_acts(head.op, len(types), head.attributes)
    table = OPS.get(head.op)
    if table is None or table.meaning is None:
        return False
    steps, kinds, _ = traced_formula(vocabulary, table.meaning, head, table, types)
    return all(acts_on_elements(vocabulary, vocabulary.heads[n], [kinds[r] for r in refs]) for n, refs in steps)


@functools.cache
def meaning_acts(op: str, count: int, attributes: tuple[tuple[str, str], ...]) -> bool:
    """Does the meaning finish on tokens?"""
    operands, values = placed(Head(op, attributes, 0, False, 0), [TOKEN] * count, lambda value: TOKEN)
    try:
        return isinstance(MEANING[op](Elements(), *operands, **values), Token)
    except Exception:  # whatever a meaning does with a token that elements do not allow
        return False


def everywhere(op: str, case: Case) -> str:
    """Are value and rule the same at every element, whatever the shape?  Why not, or an empty string."""
    try:
        return differing(op, case)
    except Exception as error:  # a rule or a formula that other shapes do not suit
        return f"it cannot be traced at other sizes: {error}"


def differing(op: str, case: Case) -> str:
    """What is no function of single elements."""
    programs = []
    for size in (101, 131):
        vocabulary = Vocabulary()
        types = [
            None if shape is None else vocabulary.type((size,), dtype_of(case.values.get(k)), "cpu")
            for k, shape in enumerate(case.shapes)
        ]
        kinds = [t for t in types if t is not None]
        number = vocabulary.head(op, coded(op, case.attributes), vocabulary.type((size,), "float64", "cpu"), True, 0)
        head = vocabulary.heads[number]
        if not acts_on_elements(vocabulary, head, kinds):
            return f"{op} is no function of single elements"
        if not any(OPS[op].vjps) and OPS[op].joint is None:
            return ""
        template = trace_rule(vocabulary, OPS[op], head, types, wanted(case, types))
        kinds_of: list[Any] = [head.type, head.type, *types]
        for n, refs in template.steps:
            inner = vocabulary.heads[n]
            if not acts_on_elements(vocabulary, inner, [kinds_of[r] for r in refs]):
                return f"the rule uses {inner.op}"
            kinds_of.append(inner.type)
        programs.append(([(vocabulary.heads[n][:2], r) for n, r in template.steps], template.results))
    return "" if programs[0] == programs[1] else "the rule looks at sizes"


def dtype_of(value: Any) -> str:
    return "float64" if value is None else "bool" if value.dtype == bool else "int64"
