"""Run one program under torch eager and in every graph mode, and compare all that a user can see."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

import autograd_opt as ao
from tests.fuzz.run import Outcome, Session, bits, execute, make_inputs
from tests.programs import Program

__all__ = ["MODES", "Difference", "bits", "check", "compare", "differs", "eager", "execute", "graphs", "make_inputs"]

Tensor = torch.Tensor
Mode = dict[str, Any]
MODES: tuple[Mode, ...] = (
    {"kind": "custom", "optimize": False},
    {"kind": "plain", "optimize": False},
    {"kind": "custom", "optimize": True},
    {"kind": "plain", "optimize": True},
    {"kind": "custom", "optimize": True, "allowance": 0},
)


LEFT = "a batched tensor has left its transform"
QUIRKS = (
    "ZeroTensors are immutable",
    "saved tensor that has been detached in-place",
    LEFT,
    "Sparse CSC tensors do not have is_contiguous",  # as its sum of gradients asks them; those of CSR are summed
    "expand is unsupported for Sparse",  # as of the derivative of a product, in a batch
    "INTERNAL ASSERT FAILED",  # torch asks for a report of such an error
    "Expected isFloatingType(grad.scalar_type())",  # as of this one: a real operand of `where` beside a complex one
)
"""Refusals of torch that speak of its own inner workings: nothing is compared after them."""
class Difference(AssertionError):
    """A run differs from torch eager's."""


def scale_of(reference: Outcome) -> float:
    """The largest finite magnitude in the run: what rounding errors are relative to."""
    largest = 1.0
    for sight in reference.sights.values():
        for t in (sight.value, sight.grad):
            if t is not None and (t.is_floating_point() or t.is_complex()) and t.numel() and not t.is_meta:
                finite = t.abs()[torch.isfinite(t)]
                if finite.numel():
                    largest = max(largest, float(finite.max()))
    return largest


def close(a: Tensor, b: Tensor, scale: float, digits: int) -> bool:
    if a.shape != b.shape or a.dtype != b.dtype:
        return False
    tolerance = 10.0 ** -(min(digits, 4) if a.dtype in (torch.float32, torch.complex64) else digits)
    return torch.allclose(a, b, tolerance, tolerance / 100 * scale if digits > 4 else tolerance * scale, equal_nan=True)


def digits_of(reference: Outcome, program: Program) -> int:
    """Decimal digits that two orders of summation have in common, by the coarsest type on the way."""
    if "bfloat16" in str(program) or "autocast" in str(program):
        return 1
    if "half()" in str(program):
        return 2
    single = any(
        (s.value.dtype == torch.float32 and n != "f") or (s.grad is not None and n == "f")
        for n, s in reference.sights.items()
    )
    return 4 if single else 7


def same_end(reference: Outcome, mine: Outcome) -> bool:
    """Do both reach the end, or stop at one statement with an error of torch's type?"""
    if reference.error is None or mine.error is None:
        return reference.error is mine.error
    return mine.stopped == reference.stopped and isinstance(mine.error, type(reference.error))


def check(reference: Outcome, mine: Outcome, program: Program, label: str) -> None:
    """Raise `Difference` where the two runs differ."""

    def fail(what: str) -> None:
        raise Difference(f"{label}: {what}\n--- program ---\n{program}")

    if any(quirk in str(reference.error) for quirk in QUIRKS):
        return
    if LEFT in str(mine.error) and "Batching rule not implemented" in str(reference.error):
        return                           # a hook of a batched run, which torch cannot run, has kept its cotangent
    if not same_end(reference, mine):
        fail(
            f"torch raises {reference.error!r} in statement {reference.stopped}, "
            f"this library {mine.error!r} in {mine.stopped}"
        )
    unseen = any(".data" in s or ".numpy()" in s for s in program.statements)
    derived = (
        unseen
        or (reference.error is not None
        and any(word in program.statements[reference.stopped] for word in ("backward", "autograd.grad")))
    )
    if not reference.memo:
        reference.memo.update(scale=scale_of(reference), digits=digits_of(reference, program),
                              bits={n: bits(s.value) for n, s in reference.sights.items()})
    scale, digits = reference.memo["scale"], reference.memo["digits"]
    if list(reference.sights) != list(mine.sights):
        fail(f"variables {list(mine.sights)} instead of {list(reference.sights)}")
    for name, theirs in reference.sights.items():
        ours = mine.sights[name]
        if name in program.loose and unseen:
            continue  # what a rule has saved, input or output, is its own business until something unseen writes there
        if name in program.loose:
            equal = close(ours.value, theirs.value, scale, digits)
        else:
            equal = (
                ours.value.dtype == theirs.value.dtype
                and ours.value.shape == theirs.value.shape
                and bits(ours.value) == reference.memo["bits"][name]
            )
        if not equal:
            fail(f"{name} is\n{ours.value}\ninstead of\n{theirs.value}")
        if theirs.is_leaf is None:
            continue
        if ours.requires_grad != theirs.requires_grad or ours.is_leaf != theirs.is_leaf:
            fail(
                f"{name}: requires_grad {ours.requires_grad}, is_leaf {ours.is_leaf} "
                f"instead of {theirs.requires_grad}, {theirs.is_leaf}"
            )
        if ours.stride != theirs.stride and name not in program.loose:
            fail(f"{name} has strides {ours.stride} instead of {theirs.stride}")
        if derived:
            continue
        if (ours.grad is None) != (theirs.grad is None) or (
            ours.grad is not None and not close(ours.grad, theirs.grad, scale, digits)
        ):
            fail(f"{name}.grad is\n{ours.grad}\ninstead of\n{theirs.grad}")
    if mine.same != reference.same:
        fail(f"one object under two names: {mine.same} instead of {reference.same}")
    for (k, ours_told), (n, theirs_told) in zip(mine.told, reference.told, strict=False):
        if (k, ours_told) != (n, theirs_told):
            fail(f"told by {program.statements[n]!r}: {ours_told} instead of {theirs_told}")
    if mine.shared != reference.shared:
        fail(f"writes reach {mine.shared} instead of {reference.shared}")
    if not torch.equal(mine.state, reference.state):
        fail("another generator state")
    if not derived:
        if sorted(mine.seen) != sorted(reference.seen):
            fail(f"hooks called: {sorted(mine.seen)} instead of {sorted(reference.seen)}")
        for key, sights in reference.seen.items():
            ours_seen = mine.seen[key]
            if len(ours_seen) != len(sights) or not all(
                close(a, b, scale, digits) for a, b in zip(ours_seen, sights, strict=True)
            ):
                fail(f"hook {key} saw {ours_seen} instead of {sights}")


def graphs(mode: Mode) -> Session:
    """The graphs of a mode, one after another."""
    options = {k: v for k, v in mode.items() if k != "kind"}
    return Session(lambda: ao.AutogradGraph(**options))


def eager(program: Program) -> Outcome:
    """The reference."""
    return execute(program, make_inputs("plain"))


def compare(program: Program, modes: Sequence[Mode] = MODES) -> None:
    """Assert that a program does in every mode what it does in torch eager."""
    reference = eager(program)
    for mode in modes:
        inputs = make_inputs(mode["kind"])
        with graphs(mode) as session:
            mine = execute(program, inputs, session=session)
        check(reference, mine, program, ", ".join(f"{k}={v}" for k, v in mode.items()))


def differs(program: Program, modes: Sequence[Mode] = MODES) -> Exception | None:
    """The difference, or any other failure, of a program; None where there is none."""
    try:
        compare(program, modes)
    except Exception as error:
        return error
    return None
