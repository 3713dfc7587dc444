"""Which operators are linear in which operands: what the checker may distribute.

Each line is proved by `lemmas`, but for casts, copies, the choice of one output and complex numbers seen as pairs.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from fractions import Fraction

import torch

from autograd_opt.verification.program.attribute_encoding import decode
from autograd_opt.verification.program.instruction_names import ADDS_TO, PULLBACK
from autograd_opt.verification.program.instructions import Head

COMMUTATIVE = frozenset({"add", "mul"})
"""a op b = b op a bit for bit, when there is no attribute."""

FIRST, BOTH = (0,), (0, 1)
LINEAR: dict[str, tuple[int, ...]] = {
    **dict.fromkeys(
        """neg positive deg2rad rad2deg clone contiguous to cast to_float to_double to_half to_bfloat16 conj
        conj_physical resolve_conj resolve_neg real sum mean sum_to_size cumsum view reshape flatten ravel
        squeeze unsqueeze unflatten unsafe_view reshape_alias view_as reshape_as permute transpose t T mT H mH
        movedim expand broadcast_to expand_as narrow select diagonal diagonal_backward select_backward
        slice_backward diag_embed tril triu trace flip fliplr flipud rot90 roll repeat tile slice index place
        place_add erase_index as_strided view_region view_erase view_embed gather take index_select output split
        split_with_sizes chunk unbind tanh_backward sigmoid_backward threshold_backward leaky_relu_backward
        elu_backward gelu_backward silu_backward mish_backward softplus_backward softmax_backward log_softmax_backward
        hardswish_backward logit_backward glu_backward mse_loss_backward smooth_l1_loss_backward
        huber_loss_backward soft_margin_loss_backward binary_cross_entropy_backward""".split(), FIRST),
    **dict.fromkeys(["mul", "matmul", "mm", "bmm", "mv", "dot", "outer"], BOTH),
    "div": FIRST,
    "where": BOTH,
    "masked_fill": FIRST,
    "index_add": (1,),
    "scatter_add": (1,),
    "linear": BOTH,
    "pad": FIRST,
    "constant_pad_nd": FIRST,
    **dict.fromkeys(("conv1d", "conv2d", "conv3d"), BOTH),
}
"""Operator -> the operands in which it is linear, the others fixed; conditions in `slots`."""
JOINTLY: dict[str, tuple[int, ...] | None] = {
    "add": BOTH,
    "sub": BOTH,
    "rsub": BOTH,
    "where": (1, 2),
    "where_method": (0, 2),
    "lerp": BOTH,
    "index_add": (0, 2),
    "scatter_add": (0, 2),
    "cat": None,
    "stack": None,
}
"""Operator -> the operands (None: all) in which it is linear taken together: f(x, y) = f(x, 0) + f(0, y)."""
FOR_ALL_SIZES = frozenset(
    """H T add bmm broadcast_to cat chunk conj conj_physical deg2rad diagonal div dot elu_backward expand expand_as
    flatten flip fliplr flipud gather gelu_backward index index_select leaky_relu_backward lerp linear
    log_softmax_backward mH mT masked_fill matmul mean mm movedim mse_loss_backward mul mv narrow neg outer permute
    positive rad2deg ravel real repeat reshape reshape_alias reshape_as resolve_conj resolve_neg roll rot90 rsub
    select sigmoid_backward silu_backward slice softmax_backward softplus_backward split split_with_sizes squeeze
    stack sub sum sum_to_size t take tanh_backward threshold_backward tile transpose unbind unflatten unsafe_view
    unsqueeze view view_as where where_method""".split()
)
"""Operators whose linearity is proved for all sizes; a proof that meets another one says so."""
CASTS = frozenset("to cast to_float to_double to_half to_bfloat16".split())
"""A cast rounds, which real arithmetic allows, and overflows, which it does not know."""
TRUSTED = CASTS | frozenset("clone contiguous output imag view_as_real view_as_complex".split())
"""Copies, casts, choices of an output and complex numbers as pairs: linear without a lemma."""
VIEWED = frozenset({"as_strided", "view_region", "view_erase", "view_embed"})
EXACT_BITS = 8
"""A number m * 2**e with m below 2**8 and small e is itself in every floating dtype."""


def is_kernel(op: str) -> bool:
    """A derivative that torch computes: linear in its cotangents, which is trusted and stated as a condition."""
    return op == PULLBACK or derives(op)


@functools.cache
def derives(op: str) -> bool:
    """Is this one of torch's backward kernels, with one cotangent, which comes first?"""
    if not (op.startswith("aten::") and op.endswith("_backward")):
        return False
    packet = getattr(torch.ops.aten, op.removeprefix("aten::"), None)
    if packet is None:
        return False
    names = [a.name for a in getattr(packet, packet.overloads()[0])._schema.arguments]
    return [n for n in names if n.startswith("grad") and not n.startswith("grad_input")] == names[:1]


def slots(head: Head, floating: Sequence[bool]) -> tuple[int, ...]:
    """The operands in which an instruction is linear over the reals.

    A Python number among the operands stands in the attributes: then the tensor operands
    that remain are counted from 0, and the operator may no longer be linear (`x - 1`).
    """
    return tuple([k for k in _slots(head, len(floating)) if k < len(floating) and floating[k]])


def _slots(head: Head, count: int) -> tuple[int, ...]:
    op, values = head.op, dict(head.attributes)
    if is_kernel(op):
        return FIRST if parts_of(head) == 1 else ()
    if op == "einsum":
        return tuple(range(count))
    found = LINEAR.get(op)
    if found is None:
        return ()
    if op in ("mul", "div"):
        if "x" in values:  # number op tensor
            return FIRST if op == "mul" else ()
        return FIRST if "y" in values else found
    if op in VIEWED:
        return FIRST if same_numbers(values.get("dtype", "N"), values.get("base_dtype", "N")) else ()
    if op == "logit_backward":           # without a bound it is NaN outside of [0, 1]
        return FIRST if values.get("eps", "N") != "N" else ()
    if op == "masked_fill":
        return FIRST if values.get("value") in ZEROS and count == 2 else ()
    if op == "where":
        return (1,) if count == 2 and (values.get("x") in ZEROS or values.get("y") in ZEROS) else ()
    if op in ADDS_TO:
        return found if "x" in values else ()
    if op in ("linear", "conv1d", "conv2d", "conv3d") and count > 2:
        return ()
    if op in ("pad", "constant_pad_nd"):
        return (
            FIRST
            if values.get("value", "N") in (*ZEROS, "N") and values.get("mode", "s'constant'") == "s'constant'"
            else ()
        )
    return found


def parts_of(head: Head) -> int:
    """How many cotangents a derivative reads, of an operation with several outputs: they are its first operands."""
    return int(head.value("#parts", 1))


def same_numbers(dtype: str, base: str) -> bool:
    """Does a view of this dtype show the numbers of its base, be it complex ones as pairs?"""
    return dtype == base or {dtype, base} in ({"dtorch.float32", "dtorch.complex64"},
                                              {"dtorch.float64", "dtorch.complex128"})


def joint_slots(head: Head, floating: Sequence[bool]) -> tuple[int, ...]:
    """The operands in which an instruction is linear together, with no number among its operands."""
    if head.op == PULLBACK:
        return tuple(range(parts_of(head))) if all(floating[: parts_of(head)]) else ()
    if head.op not in JOINTLY or any(
        k in ("x", "y", "condition", "weight", "src", "source") for k, _ in head.attributes
    ):
        return ()
    found = JOINTLY[head.op] or tuple(range(len(floating)))
    return found if found and found[-1] < len(floating) and all(floating[k] for k in found) else ()


ZERO = "f" + "00" * 8
ZEROS = ("i0", ZERO, "F")


def exact(text: str) -> Fraction | int | None:
    """The value of a number attribute that every floating dtype holds exactly, else None; an int where it is whole."""
    value = decode(text)
    if type(value) not in (int, float) or value != value or value in (float("inf"), float("-inf")):
        return None
    number = Fraction(value)
    m, e = abs(number.numerator), number.denominator
    if number == 0 or (m % 2 == 0 and e > 1):
        return None
    if m >= 1 << EXACT_BITS or e > 1 << EXACT_BITS:
        return None
    return number if e > 1 else number.numerator
