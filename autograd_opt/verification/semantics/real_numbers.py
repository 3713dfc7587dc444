"""Where the meanings hold: real numbers, truth values, and integers that are only moved, compared or counted.

Complex numbers are no real ones, a sum of truth values is a truth value, and integers wrap around.
"""

from __future__ import annotations

from collections.abc import Iterable

from autograd_opt.verification.program.instruction_names import CONSTANT, FULL
from autograd_opt.verification.program.instructions import Head, Vocabulary
from autograd_opt.verification.semantics.domain import Outside
from autograd_opt.verification.semantics.index_ops import MOVEMENTS
from autograd_opt.verification.semantics.operators import MEANING

EXACT = frozenset(
    """gt ge lt le eq ne logical_and logical_or logical_not logical_xor isnan isinf isfinite bitwise_and bitwise_or
    bitwise_xor bitwise_not where where_method masked_fill copy setitem erase_index remainder fmod""".split()
) | {FULL, CONSTANT}
"""Operators without arithmetic that wraps around or saturates, beside those that only move elements."""


def require_real(vocabulary: Vocabulary, head: Head, types: Iterable[int]) -> None:
    """Refuse an instruction whose meaning over the reals is not its meaning for these dtypes.

    Raises
    ------
    Outside : complex numbers, or arithmetic whose result is a truth value or an integer.
    """
    operands = [vocabulary.types[t].dtype for t in types]
    for dtype in (*dtypes_of(vocabulary, head.type), *operands):
        if dtype.startswith("complex"):
            raise Outside(f"{head.op} of complex numbers")
    for dtype in dtypes_of(vocabulary, head.type):
        if dtype.startswith(("float", "bfloat")) or head.op in EXACT or MEANING.get(head.op) in MOVEMENTS:
            continue
        if head.op != "sum" or set(operands) != {"bool"}:       # how many are true is a number
            raise Outside(f"{head.op} with a result in {dtype}, which is no arithmetic of real numbers")


def dtypes_of(vocabulary: Vocabulary, type: int) -> list[str]:
    """The dtypes of a value, or of the parts of one with several."""
    t = vocabulary.types[type]
    return [vocabulary.types[p].dtype for p in t.parts if p is not None] if t.parts else [t.dtype]
