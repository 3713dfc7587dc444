"""Numbers of other classes where torch takes one: NumPy's, subclasses of int, tensors without axes changed later."""

from __future__ import annotations

import functools
import warnings
from collections.abc import Callable
from contextlib import nullcontext
from itertools import islice
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch.testing._internal.common_methods_invocations import op_db
from torch.utils._pytree import tree_flatten, tree_unflatten

import autograd_opt as ao

Tensor = torch.Tensor
SAMPLES = 2


class Whole(int):
    """A subclass of int, as enumerations are."""


KINDS: dict[str, dict[type, Callable[[Any], Any]]] = {
    "numpy 64": {int: np.int64, float: np.float64},
    "numpy 32": {int: np.int32, float: np.float32},
    "numpy 8": {int: lambda n: np.int8(n) if -128 <= n < 128 else n},
    "subclass": {int: Whole},
    "tensor": {int: torch.tensor, float: torch.tensor},
}
LOOSER = {"split", "tensordot", *(f"nn.functional.max_unpool{d}d" for d in (1, 2, 3))}
"""torch's Python code asks here for a plain int; what it refuses is taken as a number."""
SEQUENCES_ONLY = {"fft.fftshift", "fft.ifftshift"}
"""Their `dim` may be a tensor in torch."""
ENTRIES = [op for op in op_db if op.supports_autograd and torch.float64 in op.supported_backward_dtypes("cpu")]


def outcome(function: Callable[..., Any], given: list[Any], structure: Any, graph: Any) -> Any:
    """Results and gradients, or the error."""
    leaves = [t.detach().clone().requires_grad_(t.requires_grad) if isinstance(t, Tensor) else t for t in given]
    first, args, kwargs = tree_unflatten(leaves, structure)
    torch.manual_seed(0)
    try:
        with graph():
            found = [t for t in tree_flatten(function(first, *args, **kwargs))[0] if isinstance(t, Tensor)]
            roots = [t for t in found if t.requires_grad]
            for t in leaves:
                if isinstance(t, Tensor) and not t.requires_grad and not t.ndim and any(t is k for k in leaves[1:]):
                    t.add_(1)                   # what a number was is read at the call
            if roots:
                torch.autograd.backward(roots, [torch.randn_like(t) for t in roots])
    except Exception as error:
        return error
    return [t.detach() for t in found], [t.grad for t in leaves if isinstance(t, Tensor) and t.requires_grad]


@functools.cache
def samples() -> list[tuple[Any, list[tuple[list[Any], Any]]]]:
    """Each entry of the database with the arguments of its first samples; made once, since torch takes long."""
    return [(op, [tree_flatten((s.input, s.args, s.kwargs))
                  for s in islice(op.sample_inputs("cpu", torch.float64, requires_grad=True), SAMPLES)])
            for op in ENTRIES]


@pytest.mark.slow
@pytest.mark.xdist_group("numbers of the database")
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("inplace", [False, True], ids=["", "in place"])
def test_the_database(kind: str, inplace: bool) -> None:
    of, seen = KINDS[kind], 0
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for op, found_samples in samples():
            if (inplace and op.inplace_variant is None) or (kind == "tensor" and op.name in SEQUENCES_ONLY):
                continue
            write = op.inplace_variant
            function = (lambda x, *args, write=write, **kwargs: write(x * 1, *args, **kwargs)) if inplace else op.op
            for number, (plain, structure) in enumerate(found_samples):
                given = [of.get(type(v), lambda v: v)(v) for v in plain]
                if all(a is b for a, b in zip(plain, given, strict=True)):
                    continue
                wanted = outcome(function, given, structure, nullcontext)
                if isinstance(wanted, Exception):
                    if op.name not in LOOSER:
                        found = outcome(function, given, structure, ao.AutogradGraph)
                        assert isinstance(found, Exception), f"{op.name}, sample {number}: torch raises {wanted!r}"
                    continue
                graph = functools.partial(ao.AutogradGraph, optimize=number % 2 == 0)
                found = outcome(function, given, structure, graph)
                assert not isinstance(found, Exception), f"{op.name}, sample {number}: {found!r}"
                torch.testing.assert_close(found, wanted, equal_nan=True, msg=f"{op.name}, sample {number}")
                seen += 1
    assert seen > 10


CHANGED: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "alpha": lambda x, t: torch.add(x, x, alpha=t), "alpha in place": lambda x, t: (x * 1).add_(x, alpha=t),
    "beta": lambda x, t: torch.addmm(x, x, x, beta=t), "value": lambda x, t: torch.addcmul(x, x, x, value=t),
    "ord": lambda x, t: x.norm(t), "correction": lambda x, t: x.std(correction=t),
    "delta": lambda x, t: F.huber_loss(x, x * 0, delta=t), "eps": lambda x, t: F.rms_norm(x, (3,), eps=t),
    "scale": lambda x, t: F.scaled_dot_product_attention(x[None], x[None], x[None], scale=t),
    "dim": lambda x, t: x.cumsum(t.long()), "bounds": lambda x, t: x[t.long():], "window": lambda x,
    t: x[:, t.long():t.long() + 1],
    "select": lambda x, t: x.select(0, t.long()), "narrow": lambda x, t: x.narrow(0, t.long(), 1),
    "diagonal": lambda x, t: x.diagonal(t.long()), "pad": lambda x, t: F.pad(x, (t.long(), t.long())),
    "view": lambda x, t: x.reshape(t.long() * 9), "roll": lambda x, t: x.roll(t.long()),
    "place": lambda x, t: torch.zeros(3, 3).index_put((t.long(),), x[0]),
}


@pytest.mark.parametrize("name", CHANGED)
def test_a_number_is_what_it_was_at_the_call(name: str) -> None:
    seen = []
    for graph in (nullcontext, lambda: ao.AutogradGraph(optimize=False), lambda: ao.AutogradGraph(optimize=True)):
        x, number = torch.arange(9.0).reshape(3, 3).requires_grad_(), torch.tensor(1.0)
        with graph():
            y = CHANGED[name](x, number)
            number.add_(1)
            (y * torch.arange(1.0, y.numel() + 1).reshape(y.shape)).sum().backward()
        seen.append(x.grad)
    torch.testing.assert_close(seen[1:], seen[:1] * 2)
