"""Arguments that torch may refuse: those of torch's own database, and valid samples with one argument changed."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from typing import Any

import torch

import autograd_opt as ao

Tensor = torch.Tensor
ENDS = frozenset("""
    lu_unpack native_batch_norm _native_batch_norm_legit _batch_norm_with_update torch._scaled_mm torch._scaled_mm_v2
    nn.functional.embedding_bag _segment_reduce
""".split())
"""Entries of which torch itself takes some changed arguments for others, and ends the process."""
NO_DERIVATIVE = ("does not support automatic differentiation", "Autograd not support dtype", "not implemented for '")
"""What torch says where it has no derivative, or no kernel, for a dtype; a decomposition may have one."""
NOT_BOTH = "is not differentiable with respect to argument"
"""Where two things are wrong, the order in which they are looked at may be another."""


def outcome(call: Callable[[], Any]) -> tuple[Any, Exception | None]:
    """What a call returns, or raises."""
    torch.manual_seed(0)
    try:
        return call(), None
    except Exception as error:
        return None, error


def own(x: Any, tracked: bool) -> Any:
    """The argument with tensors of its own, which require grad if they can and are to."""
    if type(x) is Tensor and x.layout is torch.strided:
        copy = x.detach().clone()
        return copy.requires_grad_() if tracked and (x.is_floating_point() or x.is_complex()) else copy
    return type(x)(own(y, tracked) for y in x) if type(x) in (list, tuple) else x


def changed_tensor(x: Tensor) -> Iterator[tuple[str, Any]]:
    """The tensor in other shapes and dtypes, and with other elements."""
    yield "unsqueezed", x[None]
    yield "one axis more", x[..., None]
    if x.dim():
        yield "one axis less", x.select(0, 0) if x.shape[0] else x.sum(0)
        yield "shorter", x.narrow(0, 0, max(x.shape[0] - 1, 0))
        yield "longer", torch.cat([x, x], -1)
        yield "empty", x.new_empty((0, *x.shape[1:]))
    if x.dtype.itemsize > 1 or x.dtype is torch.bool:
        yield "one number", x.reshape(-1)[:1].sum()
    if x.is_complex():
        yield "real", x.real
    else:
        yield "long", x.long()
        yield "complex", x.to(torch.complex64)
    yield "bool", x != 0
    if x.is_floating_point():
        yield "of another precision", x.to(torch.float64 if x.dtype is torch.float32 else torch.float32)
    elif x.dtype is not torch.bool and not x.is_complex():
        yield "beyond", x + 100
        yield "below", x - 100


def changed(x: Any) -> Iterator[tuple[str, Any]]:
    """Other values in the place of an argument."""
    if isinstance(x, Tensor):
        if type(x) is Tensor and x.layout is torch.strided:
            yield from changed_tensor(x)
    elif isinstance(x, int) and not isinstance(x, bool):
        yield from ((str(v), v) for v in (-1, 0, -7, 100, x + 1))
    elif isinstance(x, float):
        yield from ((str(v), v) for v in (-1.0, 0.0, 2.5))
    elif isinstance(x, str):
        yield "nonsense", "nonsense"
    elif type(x) in (list, tuple):
        yield "one less", x[:-1]
        yield "one more", type(x)([*x, *x[-1:]])
        for name, value in changed(x[0]) if x else ():
            yield f"[{name}]", type(x)([value, *x[1:]])


def cases(op: Any, samples: int) -> Iterator[tuple[str, list[Any], dict[str, Any]]]:
    """(what was changed, arguments, keyword arguments) for some samples of an entry."""
    dtype = torch.float64 if torch.float64 in op.dtypes else next(iter(op.dtypes))
    found = list(op.sample_inputs("cpu", dtype, requires_grad=False))
    random.Random(0).shuffle(found)
    for sample in found[:samples]:
        args, kwargs = [sample.input, *sample.args], dict(sample.kwargs)
        for i, x in enumerate(args):
            for name, value in changed(x):
                yield f"argument {i} {name}", [*args[:i], value, *args[i + 1:]], kwargs
        for key, x in kwargs.items():
            for name, value in changed(x):
                yield f"{key}= {name}", args, {**kwargs, key: value}


def differs(call: Callable[[], Any], words: bool) -> str | None:
    """How what a graph says of a call differs from what torch says; `words`: also in its words."""
    _, theirs = outcome(call)
    for optimize in (False, True):
        with ao.AutogradGraph(optimize=optimize):
            _, ours = outcome(call)
        if theirs is None and ours is None:
            continue
        if ours is None:
            if not any(text in str(theirs) for text in NO_DERIVATIVE):
                return f"taken, which torch refuses: {theirs!r}"
        elif theirs is None:
            return f"refused, which torch takes: {ours!r}"
        elif not isinstance(ours, type(theirs)) and not any(NOT_BOTH in str(e) for e in (ours, theirs)):
            return f"{ours!r} instead of {theirs!r}"
        elif words and str(ours)[:30] != str(theirs)[:30]:
            return f"{ours} instead of {theirs}"
    return None
