"""Run one program, and look at all that a user can see of it."""

from __future__ import annotations

import gc
import re
import warnings
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch

import autograd_opt as ao
from tests.programs import CONSTANTS, LEAVES, Program
from tests.scene import Session, environment

Tensor = torch.Tensor


@dataclass
class Sight:
    """One variable as a user sees it."""

    value: Tensor
    requires_grad: bool | None
    is_leaf: bool | None
    grad: Tensor | None
    stride: tuple[Any, ...]


@dataclass
class Outcome:
    """All that a run left behind."""

    error: Exception | None = None
    stopped: int = -1
    sights: dict[str, Sight] = field(default_factory=dict)
    seen: dict[str, list[Tensor]] = field(default_factory=dict)
    told: list[tuple[int, str]] = field(default_factory=list)
    state: Tensor = field(default_factory=lambda: torch.empty(0))
    shared: list[tuple[str, ...]] = field(default_factory=list)
    same: list[tuple[str, str]] = field(default_factory=list)
    memo: dict[str, Any] = field(default_factory=dict)


def plain(t: Tensor) -> Tensor:
    """The values of `t` now, in memory of their own."""
    with torch._C.DisableTorchFunction():
        sparse = t.layout is not torch.strided
    if sparse:                          # below torch functions, the kernels of sparse layouts count writes of their own
        with torch.no_grad():
            t = t.detach().to_dense()
    with torch._C.DisableTorchFunction():
        t = torch._C.TensorBase.detach(t)
        t = t if type(t) is Tensor else t.as_subclass(Tensor)      # which an inference tensor with other data refuses
        return t.resolve_conj().clone(memory_format=torch.contiguous_format)


def comparable(thing: Any) -> str:
    """What was told, in words."""
    with torch._C.DisableTorchFunction():
        return re.sub(r"0x[0-9a-f]+", "0x", repr(thing))


def strides(t: Tensor) -> tuple[Any, ...]:
    return t.stride() if t.layout is torch.strided else (t.layout,)


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
            after: Callable[[int, dict[str, Any]], None] = lambda k, env: None,
            session: Session | None = None) -> Outcome:
    """Run the statements until one raises, then look at everything; `after` each, its number and the variables."""
    collects = gc.isenabled()
    gc.disable()                        # what is alive depends on the program alone, which calls the collector itself
    try:
        return executed(program, environment(dict(inputs), session), after)
    finally:
        if collects:
            gc.enable()


def executed(program: Program, env: dict[str, Any], after: Callable[[int, dict[str, Any]], None]) -> Outcome:
    """`execute`, with the collector switched off."""
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
            out.told.extend((k, comparable(thing)) for thing in env["told"][len(out.told):])
            after(k, env)
        names = [n for n, t in env.items() if isinstance(t, Tensor)]
        out.state = torch.get_rng_state()
        try:
            out.sights = {name: look(env[name]) for name in names}
            out.seen = {k: [plain(g) for g in v] for k, v in env["seen"].items()}
        except RuntimeError as error:
            if not any(word in str(error) for word in ("Batching rule", "vmapped", "escaped from inside a function")):
                raise
            return Outcome(RuntimeError("a batched tensor has left its transform"), len(program.statements) - 1)
        exact = [n for n in names if n not in program.loose]
        out.same = [(a, b) for a in exact for b in exact if a < b and env[a] is env[b]]
        out.shared = aliases({n: env[n] for n in exact})
    return out


def look(t: Tensor) -> Sight:
    """What a user can see of one tensor."""
    try:
        leaf = t.is_leaf
    except RuntimeError:  # a view that a write has made ambiguous
        return Sight(plain(t), None, None, None, strides(t))
    grad = t.grad if leaf or t.retains_grad else None
    return Sight(plain(t), t.requires_grad, leaf, None if grad is None else plain(grad), strides(t))


def aliases(tensors: dict[str, Tensor]) -> list[tuple[str, ...]]:
    """For each variable, those that change with a write to it."""
    found = []
    with torch._C.DisableTorchFunction(), torch.no_grad():
        values = {n: t.detach() for n, t in tensors.items() if t.layout is torch.strided}
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
            try:
                t.bitwise_not_() if t.dtype in (torch.bool, torch.int64) else t.fill_(1234.5)
            except RuntimeError:        # memory of inference tensors that `data =` has given to another
                continue
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
