"""Run one program under torch eager and in every graph mode, and compare all that a user can see."""

from __future__ import annotations

import contextlib
import json
import os
import re
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch

import autograd_opt as ao
from tests.programs import CONSTANTS, LEAVES, Program, environment

Tensor = torch.Tensor
Mode = dict[str, Any]
Differs = Callable[..., Exception | None]
MODES: tuple[Mode, ...] = (
    {"kind": "custom", "optimize": False},
    {"kind": "plain", "optimize": False},
    {"kind": "custom", "optimize": True},
    {"kind": "plain", "optimize": True},
    {"kind": "custom", "optimize": True, "allowance": 0},
)


QUIRKS = (
    "ZeroTensors are immutable",
    "saved tensor that has been detached in-place",
    "a batched tensor has left its transform",
    "INTERNAL ASSERT FAILED",  # torch asks for a report of such an error
)
"""Refusals of torch that speak of its own inner workings: nothing is compared after them."""


@dataclass
class Sight:
    """One variable as a user sees it."""

    value: Tensor
    requires_grad: bool | None
    is_leaf: bool | None
    grad: Tensor | None
    stride: tuple[int, ...]


@dataclass
class Outcome:
    """All that a run left behind."""

    error: Exception | None = None
    stopped: int = -1
    sights: dict[str, Sight] = field(default_factory=dict)
    seen: dict[str, list[Tensor]] = field(default_factory=dict)
    state: Tensor = field(default_factory=lambda: torch.empty(0))
    shared: list[tuple[str, ...]] = field(default_factory=list)
    same: list[tuple[str, str]] = field(default_factory=list)
    memo: dict[str, Any] = field(default_factory=dict)


def plain(t: Tensor) -> Tensor:
    """The values of `t` now, in memory of their own."""
    with torch._C.DisableTorchFunction():
        return (
            torch._C.TensorBase.detach(t)
            .as_subclass(Tensor)
            .resolve_conj()
            .clone(memory_format=torch.contiguous_format)
        )


def make_inputs(kind: str) -> dict[str, Tensor]:
    """Fresh leaves and constants."""
    if kind == "custom":
        made = {k: ao.tensor(v) for k, v in LEAVES.items()}
        return {
            **made,
            **{k: ao.tensor(v, requires_grad=False) if k == "d" else v.clone() for k, v in CONSTANTS.items()},
        }
    return {
        **{k: v.clone().requires_grad_() for k, v in LEAVES.items()},
        **{k: v.clone() for k, v in CONSTANTS.items()},
    }


def execute(program: Program, inputs: dict[str, Tensor],
            after: Callable[[int, dict[str, Any]], None] = lambda k, env: None) -> Outcome:
    """Run the statements until one raises, then look at everything; `after` each, its number and the variables."""
    env = environment(dict(inputs))
    out = Outcome()
    torch.manual_seed(0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for k, code in enumerate(program.code):
            try:
                exec(code, env)
            except Exception as error:
                out.error, out.stopped = error, k
                break
            after(k, env)
        names = [n for n, t in env.items() if isinstance(t, Tensor)]
        out.state = torch.get_rng_state()
        try:
            out.sights = {name: look(env[name]) for name in names}
        except RuntimeError as error:
            if "Batching rule" not in str(error) and "vmapped" not in str(error):
                raise
            return Outcome(RuntimeError("a batched tensor has left its transform"), len(program.statements) - 1)
        out.seen = {k: [plain(g) for g in v] for k, v in env["seen"].items()}
        exact = [n for n in names if n not in program.loose]
        out.same = [(a, b) for a in exact for b in exact if a < b and env[a] is env[b]]
        out.shared = aliases({n: env[n] for n in exact})
    return out


def look(t: Tensor) -> Sight:
    """What a user can see of one tensor."""
    try:
        leaf = t.is_leaf
    except RuntimeError:  # a view that a write has made ambiguous
        return Sight(plain(t), None, None, None, t.stride())
    grad = t.grad if leaf or t.retains_grad else None
    return Sight(plain(t), t.requires_grad, leaf, None if grad is None else plain(grad), t.stride())


def aliases(tensors: dict[str, Tensor]) -> list[tuple[str, ...]]:
    """For each variable, those that change with a write to it."""
    found = []
    with torch._C.DisableTorchFunction(), torch.no_grad():
        values = {n: t.detach() for n, t in tensors.items()}
        memory: dict[int, list[str]] = {}
        for name, t in values.items():
            memory.setdefault(start(t), []).append(name)
        shared = {n: names for names in memory.values() for n in names}     # writes only ever separate them
        for name, t in values.items():
            if (
                any(k == 0 and n > 1 for k, n in zip(t.stride(), t.shape, strict=True))
                or not t.numel()
                or t.is_inference()
                or t._is_zerotensor()
            ):
                continue
            near = shared[name]
            if near == [name]:
                found.append((name, name))
                continue
            before = {n: values[n].clone() for n in near}
            t.bitwise_not_() if t.dtype in (torch.bool, torch.int64) else t.fill_(1234.5)
            found.append((name, *[n for n in near if bits(values[n]) != bits(before[n])]))
            t.copy_(before[name])
    return found


def start(t: Tensor) -> int:
    """The address where the memory of `t` begins; a copy-on-write clone has that of its original."""
    return int(torch._C._data_address(t)) - t.storage_offset() * t.element_size()


def bits(t: Tensor) -> bytes:
    """The bytes of a tensor's values, every NaN the same."""
    if t.is_meta:
        return b""
    t = t.detach().resolve_conj().resolve_neg().contiguous()
    if t.is_complex():
        t = torch.view_as_real(t)
    if t.is_floating_point() and bool((nan := t.isnan()).any()):
        t = t.masked_fill(nan, float("nan"))
    return (t.float() if t.dtype is torch.bfloat16 else t).numpy().tobytes()


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
    if not same_end(reference, mine):
        fail(
            f"torch raises {reference.error!r} in statement {reference.stopped}, "
            f"this library {mine.error!r} in {mine.stopped}"
        )
    unseen = any(".data" in s or ".numpy()" in s for s in program.statements)
    derived = (
        unseen
        or (reference.error is not None
        and any(word in program.statements[reference.stopped] for word in ("backward(", "autograd.grad(")))
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


def eager(program: Program) -> Outcome:
    """The reference."""
    return execute(program, make_inputs("plain"))


def compare(program: Program, modes: Sequence[Mode] = MODES) -> None:
    """Assert that a program does in every mode what it does in torch eager."""
    reference = eager(program)
    for mode in modes:
        options = {k: v for k, v in mode.items() if k != "kind"}
        inputs = make_inputs(mode["kind"])
        with ao.AutogradGraph(**options):
            mine = execute(program, inputs)
        check(reference, mine, program, ", ".join(f"{k}={v}" for k, v in mode.items()))


def shared_gradients(program: Program) -> frozenset[str]:
    """The variables whose `.grad` is, in torch eager, in the memory of another tensor's `.grad` at the end."""
    env = environment(make_inputs("plain"))
    torch.manual_seed(0)
    with warnings.catch_warnings(), contextlib.suppress(Exception):
        warnings.simplefilter("ignore")
        for code in program.code:
            exec(code, env)
    owners: dict[int, set[int]] = {}
    found: dict[str, int] = {}
    for name, t in env.items():
        if isinstance(t, Tensor) and (t.is_leaf or t.retains_grad) and t.grad is not None:
            found[name] = t.grad.untyped_storage()._cdata
            owners.setdefault(found[name], set()).add(id(t))
    return frozenset(f"{name}.grad" for name, memory in found.items() if len(owners[memory]) > 1)


EPSILON = {torch.float32: 2.0**-22, torch.float64: 2.0**-50, torch.complex128: 2.0**-50}
"""A few units in the last place."""


def chaotic(program: Program) -> frozenset[str]:
    """What is nothing but rounding: eager mode's own numbers differ, beyond all tolerance, between inputs that do not.

    All inputs grow, or shrink, by one factor, so that equal ones stay equal.  Changes of one sign are compared with
    each other: a threshold that an input meets exactly is crossed by all of them, and no reason to look away.
    """
    reference = eager(program)
    scale, digits = scale_of(reference), digits_of(reference, program)

    def moved(units: int) -> Outcome:
        inputs = {k: t.detach().requires_grad_(k in LEAVES) for k, t in make_inputs("plain").items()}
        with torch.no_grad():
            for t in inputs.values():
                if t.dtype in EPSILON:
                    t.mul_(1 + units * EPSILON[t.dtype])
        return execute(program, inputs)

    found = set()
    for sign in (1, -1):
        first, *others = [numbers(moved(sign * units)) for units in range(1, 7)]
        for other in others:
            found.update(k for k in first.keys() & other.keys() if not close(first[k], other[k], scale, digits))
    return frozenset(found)


def fed(program: Program, mode: Mode) -> Exception | None:
    """The difference that is left when torch eager goes on with this library's gradients, where they equal its own.

    They do within the tolerance; a quotient by a gradient that is 0, or 1e-16, has none.
    """
    given: list[dict[str, Tensor]] = []

    def gradients(env: dict[str, Any], k: int) -> dict[str, Tensor]:
        words = re.findall(r"\w+", program.statements[k].partition("=")[0])
        found = {n: env[n] for n in words if n in program.loose and isinstance(env.get(n), Tensor)}
        with torch._C.DisableTorchFunction():
            found.update((f"{n}.grad", t.grad) for n, t in env.items() if n in LEAVES and t.grad is not None)
        return found

    def read(k: int, env: dict[str, Any]) -> None:
        given.append({n: plain(t) for n, t in gradients(env, k).items()} if derives(k) else {})

    def write(k: int, env: dict[str, Any]) -> None:
        for name, t in gradients(env, k).items() if k < len(given) and derives(k) else ():
            if name in given[k] and close(given[k][name], plain(t), scale, digits):
                with contextlib.suppress(RuntimeError):      # one number in the memory of many, or none
                    t.data.copy_(given[k][name])

    def derives(k: int) -> bool:
        return ".backward(" in program.statements[k] or "autograd.grad(" in program.statements[k]

    first = eager(program)
    scale, digits = scale_of(first), digits_of(first, program)
    inputs = make_inputs(mode["kind"])
    with ao.AutogradGraph(**{k: v for k, v in mode.items() if k != "kind"}):
        mine = execute(program, inputs, read)
    try:
        check(execute(program, make_inputs("plain"), write), mine, program, "with the same gradients")
    except Difference as error:
        return error
    return None


def numbers(outcome: Outcome) -> dict[str, Tensor]:
    """Every tensor of an outcome, by what a difference in it is called."""
    found = {name: s.value for name, s in outcome.sights.items()}
    found.update((f"{name}.grad", s.grad) for name, s in outcome.sights.items() if s.grad is not None)
    found.update((f"hook {key}", torch.cat([g.flatten() for g in seen])) for key, seen in outcome.seen.items())
    return found


def differs(program: Program, modes: Sequence[Mode] = MODES) -> Exception | None:
    """The difference, or any other failure, of a program; None where there is none."""
    try:
        compare(program, modes)
    except Exception as error:
        return error
    return None


def isolated(program: Program, modes: Sequence[Mode] = MODES) -> Exception | None:
    """`differs` in a process of its own, so that a crash is a difference too."""
    (error,) = isolated_all([program], modes)
    return error


def isolated_all(programs: Sequence[Program], modes: Sequence[Mode] = MODES) -> Iterator[Exception | None]:
    """`isolated` for each program; those up to a crash share one process."""
    k = 0
    while k < len(programs):
        reading, writing = os.pipe()
        child = os.fork()
        if child == 0:
            os.close(reading)
            with os.fdopen(writing, "w") as out:
                for program in programs[k:]:
                    error = differs(program, modes)
                    out.write(json.dumps("" if error is None else f"{type(error).__name__}: {error}") + "\n")
                    out.flush()
            os._exit(0)
        os.close(writing)
        with os.fdopen(reading) as answers:
            for answer in answers:
                text = json.loads(answer)
                yield Difference(text.partition(": ")[2]) if text else None
                k += 1
        status = os.waitpid(child, 0)[1]
        if status:
            yield Difference(f"the process ends with signal {status & 127}\n--- program ---\n{programs[k]}")
            k += 1


def kind_of(error: Exception) -> str:
    """What differences of one cause have in common: the message without names and numbers."""
    first = f"{type(error).__name__}: {error}".splitlines()[0]
    return re.sub(r"kind=.*?: |<.*?>|\bv?\d+(\.\d+)?\b|\b[xywsfzcdim]\b|in statement .*?, |in \d+$", "·", first)[:110]


def shrink(program: Program, modes: Sequence[Mode] = MODES, differs: Differs = differs) -> Program:
    """A shorter program with a difference of the same kind: statements go while it stays valid and differs."""
    reference, kind = eager(program), kind_of(differs(program, modes) or AssertionError())

    def bad(candidate: Program) -> bool:
        outcome = eager(candidate)
        if isinstance(outcome.error, (NameError, SyntaxError, IndentationError)):
            return False
        if (outcome.error is None) != (reference.error is None):
            return False
        found = differs(candidate, modes)
        return found is not None and kind_of(found) == kind

    step = max(1, len(program.statements) // 2)
    while True:
        k, before = 0, len(program.statements)
        while k < len(program.statements):
            candidate = program.without(k, k + step)
            if candidate.statements and bad(candidate):
                program = candidate
            else:
                k += step
        if step == 1 and len(program.statements) == before:
            return program
        step = max(1, step // 2)
