"""Hazard 6, in time: a list given as an attribute is what it was at the call, whatever is written into it later."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F

import autograd_opt as ao
from autograd_opt.verify import Status

Tensor = torch.Tensor


def scaled(x: Tensor, *, k: Any = None) -> Tensor:
    return x * sum(k)


SCALED = ao.register_op("x, *, k=None", pure=True, name="changed_list_scale", x=lambda g, *, k: g * sum(k))(scaled)
INSIDE = ao.register_op("x, *, k=None", pure=True, name="changed_inner_scale", x=lambda g, *, k: g * k["a"][0][0])(
    lambda x, *, k=None: x * k["a"][0][0])

CALLS: dict[str, tuple[Callable[[Tensor, Any], Any], Any, Any]] = {
    "sum": (lambda x, k: x.sum(k), [0], [1]),
    "mean": (lambda x, k: x.mean(dim=k), [0], [1]),
    "amax": (lambda x, k: x.amax(k), [0], [1]),
    "logsumexp": (lambda x, k: x.logsumexp(k), [0], [1]),
    "norm": (lambda x, k: torch.linalg.vector_norm(x, dim=k), [0], [1]),
    "var": (lambda x, k: x.var(k), [0], [1]),
    "flip": (lambda x, k: x.flip(k), [0], [1]),
    "roll": (lambda x, k: torch.roll(x, k, [0, 1]), [1, 1], [0, 2]),
    "permute": (lambda x, k: x.permute(k), [0, 1], [1, 0]),
    "movedim": (lambda x, k: torch.movedim(x, k, [1, 0]), [0, 1], [1, 0]),
    "reshape": (lambda x, k: x.reshape(k), [2, 6], [6, 2]),
    "as_strided": (lambda x, k: x.as_strided(k, (1, 1)), [2, 2], [3, 1]),
    "split": (lambda x, k: torch.split(x, k)[0], [1, 2], [2, 1]),
    "repeat": (lambda x, k: x.repeat(k), [1, 2], [2, 1]),
    "pad": (lambda x, k: F.pad(x, k), [1, 0], [0, 1]),
    "rows": (lambda x, k: x[k], [0, 1], [1, 2]),
    "tensordot": (lambda x, k: torch.tensordot(x, x, k), [[0], [0]], [[1], [1]]),
    "layer_norm": (lambda x, k: F.layer_norm(x, k), [4], [3, 4]),
    "conv2d": (lambda x, k: F.conv2d(x[None, None], x[None, None, :2, :2], padding=k), [1, 0], [0, 1]),
    "avg_pool2d": (lambda x, k: F.avg_pool2d(x[None], k), [1, 2], [2, 1]),
    "fftn": (lambda x, k: torch.fft.fftn(x, dim=k).real, [0], [1]),
}


def run(call: Callable[[Tensor, Any], Any], before: Any, after: Any, first: Tensor, graph: Any = None) -> Tensor:
    """Two calls with one list, which is written between them and again before backward."""
    x, k = first.clone().requires_grad_(), list(before)
    a = call(x, k)
    k[:] = after
    b = call(x, k)
    k[:] = before
    loss = sum((y.sin() * torch.arange(1.0, y.numel() + 1, dtype=y.dtype).reshape(y.shape)).sum() for y in (a, b))
    if graph is not None:
        verdict = graph.verify(loss)
        assert verdict.status is not Status.REFUTED, verdict
    loss.backward()
    assert x.grad is not None
    return x.grad


@pytest.mark.parametrize("options", [{"optimize": False}, {"optimize": True}, {"optimize": True, "verify": True}],
                         ids=lambda o: "-".join(o) + f"-{o['optimize']}")
@pytest.mark.parametrize("name", CALLS)
def test_a_list_that_is_written_after_the_call(name: str, options: Any) -> None:
    first = torch.rand(3, 4, dtype=torch.float64)
    wanted = run(*CALLS[name], first)
    with ao.AutogradGraph(**options) as graph:
        found = run(*CALLS[name], first, graph)
    torch.testing.assert_close(found, wanted)


@pytest.mark.parametrize("optimize", [False, True])
def test_a_list_of_a_registered_operator(optimize: bool) -> None:
    x, k = ao.tensor([1.0, 2.0]), [1.0]
    with ao.AutogradGraph(optimize=optimize) as graph:
        a = SCALED(x, k=k)
        k.append(5.0)
        b = SCALED(x, k=k)
        assert not graph.explain(a, b).same
        (a * 2 + b * 3).sum().backward()
    assert x.grad.tolist() == [20.0, 20.0]
    assert b.tolist() == [6.0, 12.0]


@pytest.mark.parametrize("optimize", [False, True])
def test_a_container_within_containers(optimize: bool) -> None:
    x, k = ao.tensor([1.0, 2.0]), {"a": ([3.0],)}
    with ao.AutogradGraph(optimize=optimize) as graph:
        a = INSIDE(x, k=k)
        again = INSIDE(x, k={"a": ([3.0],)})
        k["a"][0][0] = 7.0
        b = INSIDE(x, k=k)
        assert not graph.explain(a, b).same
        (a + again * 10 + b * 100).sum().backward()
    assert x.grad.tolist() == [733.0, 733.0]
