"""What a proof over the reals takes for granted where one side computes what the other does not.

exp(log x) is x where it is defined at all, and overflows where x need not; x.float().double()
is x but for its rounding; 0 and -0.0 are one real number.
"""

from __future__ import annotations

from typing import Any

from autograd_opt.verification.program.attribute_encoding import encode
from autograd_opt.verification.program.instruction_names import MERGED
from autograd_opt.verification.program.instructions import Head, Program

RISKY = frozenset(
    """div reciprocal log log2 log10 log1p sqrt rsqrt pow float_power addcdiv atan2 xlogy xlog1py logit asin acos atanh
    acosh tan exp exp2 expm1 sinh cosh entr hypot logaddexp logsumexp prod erfinv digamma lgamma polygamma softplus
    isnan isinf isfinite nansum nanmean nan_to_num""".split()
)
"""Operators that, or whose rules, are not defined everywhere, overflow where a rewrite need not, or ask for NaN."""
NEGATIVE_ZERO = encode(-0.0)


def undischarged(left: Program, right: Program, partial: bool = True) -> tuple[str, ...]:
    """What only one side computes: partial functions, casts, zeros with a sign.

    `partial=False` leaves the partial functions out.
    """
    numbers: dict[Any, int] = {}
    met: list[set[int]] = []
    named_by: dict[int, str] = {}
    for program in (left, right):
        mine: list[int] = []
        risky = set()
        for k in range(program.forward):
            head = program.vocabulary.heads[program.heads[k]]
            if head.op == MERGED:
                mine.append(mine[program.operands[k][0]])
                continue
            number = numbers.setdefault((head, tuple([mine[o] for o in program.operands[k]])), len(numbers))
            mine.append(number)
            dtype = program.type_of(k).dtype
            if partial and head.op in RISKY and not harmless(head):
                named_by[number] = head.op
            elif any(program.type_of(o).dtype != dtype for o in program.operands[k]):
                named_by[number] = f"a cast to {dtype}"
            elif any(text == NEGATIVE_ZERO for _, text in head.attributes):
                named_by[number] = "a zero with its sign"
            if number in named_by:
                risky.add(number)
        met.append(risky)
    ops = sorted({named_by[n] for n in met[0] ^ met[1]})
    return (f"defined and finite: {', '.join(ops)}",) if ops else ()


def harmless(head: Head) -> bool:
    """A division by a number that is not 0, a natural power."""
    y = head.value("y")
    if head.op == "div":
        return isinstance(y, (int, float)) and y != 0
    return head.op == "pow" and isinstance(y, (int, float)) and y >= 0 and y == int(y)
