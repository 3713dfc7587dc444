"""Structural value numbers: the same operations on the same operands, bit for bit."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from autograd_opt.verification.program.instruction_names import MERGED
from autograd_opt.verification.program.instructions import Program, Vocabulary
from autograd_opt.verification.program.linear import COMMUTATIVE
from autograd_opt.verification.rewrites.identities import unchanging


def numbering(programs: Sequence[Program]) -> list[list[int]]:
    """Value numbers by hash-consing alone, one list per program, from one table."""
    table: dict[Any, int] = {}
    out = []
    commutes = bit_for_bit(programs[0].vocabulary)
    merged, same = merged_heads(programs[0].vocabulary), unchanging(programs[0].vocabulary)
    types = [h.type for h in programs[0].vocabulary.heads]
    for program in programs:
        numbers: list[int] = []
        push = numbers.append
        heads = program.heads
        for head, operands in zip(heads, program.operands, strict=True):
            if head in merged or (head in same and len(operands) == 1 and types[heads[operands[0]]] == types[head]):
                push(numbers[operands[0]])
                continue
            if len(operands) == 1:
                key: Any = (head, numbers[operands[0]])
            elif len(operands) == 2:
                a, b = numbers[operands[0]], numbers[operands[1]]
                key = (head, b, a) if b < a and head in commutes else (head, a, b)
            else:
                key = (head, *[numbers[o] for o in operands])
            found = table.get(key)
            if found is None:
                found = table[key] = len(table)
            push(found)
        out.append(numbers)
    return out


def commutative(vocabulary: Vocabulary) -> set[int]:
    return {k for k, h in enumerate(vocabulary.heads) if h.op in COMMUTATIVE and not h.attributes}


def bit_for_bit(vocabulary: Vocabulary) -> set[int]:
    """As `commutative`, but for products of complex numbers: with fused multiply-adds a*b and b*a round differently."""
    return {
        k
        for k in commutative(vocabulary)
        if vocabulary.heads[k].op != "mul" or "complex" not in vocabulary.types[vocabulary.heads[k].type].dtype
    }


def merged_heads(vocabulary: Vocabulary) -> set[int]:
    return {k for k, h in enumerate(vocabulary.heads) if h.op == MERGED}
