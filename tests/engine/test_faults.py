"""A kernel that fails, for want of memory or otherwise, leaves the graph usable."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

import autograd_opt as ao

Tensor = torch.Tensor
X = torch.tensor([[0.5, -1.0, 2.0], [1.5, 0.25, -0.75]], dtype=torch.float64)


class FailingKernel(TorchDispatchMode):
    """Raise `error` in the place of kernel number `at`; count all kernels."""

    def __init__(self, at: int, error: type[BaseException]) -> None:
        super().__init__()
        self.at, self.error, self.count = at, error, 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.count += func.overloadpacket.__name__ != "_lazy_clone"     # where a clone fails, its value is computed
        if self.count == self.at:
            raise self.error(f"kernel {self.at}: {func}")
        return func(*args, **(kwargs or {}))


class FailingWrites(TorchDispatchMode):
    """Raise MemoryError in the place of every kernel that writes in place."""

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func._schema.is_mutable:
            raise MemoryError(str(func))
        return func(*args, **(kwargs or {}))


def forward(x: Tensor, w: Tensor) -> Tensor:
    """Hot operators, repeats, views, writes, indexing, several outputs, an opaque call, a transform."""
    a = x * w + x * w
    b = (a.sin() @ w.t()).relu()
    c = b.clone()
    c[0].mul_(2)
    c += b
    top, _ = c.max(0)
    d = torch.special.i1(x[:, [0, 2]]).sum() + torch.func.vmap(lambda r: (r * w[0]).sum())(x).sum()
    return (top.exp().softmax(0) * top).sum() + d + a.sin().sum()


def losses(x: Tensor, w: Tensor, create_graph: bool) -> Tensor:
    loss = forward(x, w)
    if not create_graph:
        return loss
    (g,) = torch.autograd.grad(loss, x, create_graph=True)
    return loss + (g * g).sum()


def step(x: Tensor, w: Tensor, create_graph: bool) -> None:
    losses(x, w, create_graph).backward()


@pytest.mark.parametrize("error", [torch.OutOfMemoryError, MemoryError, KeyboardInterrupt])
@pytest.mark.parametrize("create_graph", [False, True])
@pytest.mark.parametrize("optimize", [False, True])
def test_every_kernel_may_fail(optimize: bool, create_graph: bool, error: type[BaseException]) -> None:
    ex, ew = X.clone().requires_grad_(), (X * 0.5).requires_grad_()
    step(ex, ew, create_graph)
    at, failed = 1, True
    while failed:
        x, w = ao.tensor(X), ao.tensor(X * 0.5)
        with ao.AutogradGraph(optimize=optimize):
            kernels = FailingKernel(at, error)
            try:
                with kernels:
                    step(x, w, create_graph)
                failed = False
            except error:
                pass
            assert failed == (kernels.count >= at), f"the error of kernel {at} got lost"
            assert torch.is_grad_enabled()
            assert (x * 1).requires_grad
            x.grad = w.grad = None
            step(x, w, create_graph)
        assert ex.grad is not None
        assert ew.grad is not None
        assert torch.allclose(x.grad, ex.grad), f"after a failure of kernel {at}"
        assert torch.allclose(w.grad, ew.grad), f"after a failure of kernel {at}"
        at += 3 if error is torch.OutOfMemoryError else 11
    assert at > 40


@pytest.mark.parametrize("optimize", [False, True])
def test_a_failed_write_changes_nothing(optimize: bool) -> None:
    x = ao.tensor(X)
    with ao.AutogradGraph(optimize=optimize):
        a = x * 2
        for write in (lambda: a.mul_(3), lambda: a[0].exp_(), lambda: a.__setitem__(0, 1.0), lambda: a.sinc_()):
            before = a.detach().clone()
            with pytest.raises(MemoryError), FailingWrites():
                write()
            assert torch.equal(a.detach(), before)
        a.add_(x)
        (a * a).sum().backward()
    assert torch.allclose(x.grad, 18 * X)
