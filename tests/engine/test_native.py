"""The rules written in C do what their lines in the operator table say."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
import torch.nn.functional as F

import autograd_opt as ao
from autograd_opt.engine.executor import use_native
from autograd_opt.ops.table import HOT
from tests.differential import compare

Tensor = torch.Tensor
Program = Callable[..., Tensor]

A, B = (5, 4), (4, 3)
CLASSES = torch.tensor([0, 3, 3, 1, 2])
VIEWS = {
    "reshape": lambda x: torch.reshape(x, (2, 10)), "flatten": torch.flatten, "ravel": torch.ravel,
    "squeeze": lambda x: x[:, None].squeeze(1), "unsqueeze": lambda x: torch.unsqueeze(x, 1),
    "unflatten": lambda x: x.unflatten(1, (2, 2)), "view": lambda x: x.view(2, 10),
    "unsafe_view": lambda x: torch.ops.aten._unsafe_view(x, (2, 10)),
    "reshape_alias": lambda x: torch.ops.aten.view(x, (2, 10)),
    "transpose": lambda x: x.transpose(0, -1), "t": lambda x: x.t(), "mT": lambda x: x.mT,
    "expand": lambda x: x.expand(3, 5, 4), "broadcast_to": lambda x: torch.broadcast_to(x, (3, 5, 4)),
    "expand_as": lambda x: x[:1].expand_as(x), "contiguous": lambda x: x.t().contiguous(),
    "clone": lambda x: x.clone(), "cast": lambda x: x.to(torch.float32), "to_float": lambda x: x.float(),
    "to_double": lambda x: x.float().double(), "to_half": lambda x: x.half(), "to_bfloat16": lambda x: x.bfloat16(),
}
JOINED = {
    "unbind": lambda x: torch.stack(x.unbind(1)[1:3]), "unbind_copy": lambda x: torch.unbind_copy(x, 1)[2],
    "split": lambda x: x.split(2)[1], "split_with_sizes": lambda x: torch.cat(x.split([1, 3, 1])[:2]),
    "chunk": lambda x: x.chunk(3)[-1] * 2, "tensor_split": lambda x: x.tensor_split(3)[1],
    "unsafe_split": lambda x: torch.unsafe_split(x, 2)[0], "unsafe_chunk": lambda x: torch.unsafe_chunk(x, 2)[1],
    "split_with_sizes_copy": lambda x: torch.split_with_sizes_copy(x, [2, 3])[1],
}


def layer(x: Tensor, y: Tensor, batch_first: bool) -> tuple[Tensor, ...]:
    """A fused layer of five steps, one sequence and one unit, all of whose operands require grad."""
    (x, y), kind = (t.float() for t in (x, y)), x.dtype
    outs = torch.lstm(x[None] if batch_first else x[:, None], (y[None, :1, :1] * 1.0, x[None, 1:2, :1] * 1.0),
                      (y[:4], x[1:, :1], y[0], x[1]), True, 1, 0.0, True, False, batch_first)
    return tuple(t.reshape(-1, 1).to(kind) for t in outs)


def lstm(x: Tensor, y: Tensor) -> Tensor:
    """With cotangents of the output, of one state, and of all three."""
    (out, h, c), (_, last, _), (_, _, cell) = layer(x, y, False), layer(x, y, True), layer(y, x, True)
    return out * h + c + last * y + cell


def written(x: Tensor, y: Tensor) -> Tensor:
    """Of a value that was written without a record, and read after that."""
    with torch.no_grad():
        x.mul_(1.5)
    return x + y


PROGRAMS: dict[str, Program] = {
    "add": lambda x, y: x + y[0] + 1.5 + torch.add(x, y[:1, :1]), "sub": lambda x, y: x[0] - y - 2 - (3 - x),
    "mul": lambda x, y: x * y[:, :1] * 1.5 + x * x, "neg": lambda x, y: -x * y,
    "output": lambda x, y: x.chunk(2)[0] * 2, "written": written,
    "div": lambda x, y: x / y + y[0] / x / 3.0 + 2.0 / x, "pow": lambda x, y: x**2 + x**3 + x**0.5 + 2**x + x**0 + x**y,
    "where": lambda x, y: torch.where(x > y, x, y[0]) + torch.where(x > 1, x, 0.5),
    "softmax": lambda x, y: torch.softmax(x, 0) * y, "log_softmax": lambda x, y: F.log_softmax(x, 1) * y,
    "sum": lambda x, y: x.sum() + x.sum(0) + x.sum((0, -1), keepdim=True) + y.sum(1)[:4] + x[0, 0].sum(),
    "mean": lambda x, y: x.mean() + x.mean(0) + x.mean((0, -1), keepdim=True) + y.mean(1)[:4] + x[0, 0].mean(),
    "matmul": lambda x, y: x @ y.t() @ x + (x.t() @ x[None]).sum(0)[:1] + x @ y[0] @ y + x[0] @ y[1],
    "mm": lambda x, y: torch.mm(x, y.t()), "linear": lambda x, y: F.linear(x, y, y[:, 0])
    + F.linear(x[None], y) + F.linear(x.transpose(0, 1), y.T).sum() + torch.addmm(y[0], x.permute(1, 0), y).sum(),
    "addmm": lambda x, y: torch.addmm(y[:, 0], x, y.t()) + torch.addmm(x[:, :1], x, y.t(), beta=2, alpha=3),
    "slice": lambda x, y: x[1:4, ::2] * y[1:4, None, 0] + x[-2, 1] + x[..., None, 1:3][:3, 0] + y[2:2].sum(),
    "select": lambda x, y: x.select(1, -1) * y.select(0, 2)[0] + torch.select(x, 0, 1).sum(),
    "narrow": lambda x, y: x.narrow(0, 1, 3) * y.narrow(0, 0, 3) + x.narrow(1, -2, 1)[:3],
    "cat": lambda x, y: torch.cat([x, y[:2], x], 0), "stack": lambda x, y: torch.stack([x, y, x], -1),
    **{f.__name__: lambda x, y, f=f: f(x.abs() + 0.1) * y for f in (
        torch.exp, torch.log, torch.sin, torch.cos, torch.sqrt, torch.square, torch.reciprocal, torch.tanh,
        torch.sigmoid)},
    "tanh_backward": lambda x, y: torch.ops.aten.tanh_backward(x, y) * y + torch.ops.aten.tanh_backward(x[:1], y),
    "sigmoid_backward": lambda x, y: torch.ops.aten.sigmoid_backward(x, y) * y + torch.ops.aten.sigmoid_backward(x, y),
    "abs": lambda x, y: x.abs() * y, "relu": lambda x, y: torch.relu(x - y) * y,
    **{name: lambda x, y, f=f: (f(x) * f(y)).double().sin() for name, f in VIEWS.items()},
    **{name: lambda x, y, f=f: f(x) * f(y) + f(x) for name, f in JOINED.items()},
    "dropout": lambda x, y: F.dropout(x, 0.4) * y,
    "permute": lambda x, y: x[None].permute(2, 0, -2) * y.permute(1, 0)[:, None],
    "conv1d": lambda x, y: F.conv1d(x[None], y[:, :2].reshape(2, 5, 1), y[0, :2])
        + F.conv1d(x, y[:, 1:3].reshape(2, 5, 1)),
    "conv2d": lambda x, y: F.conv2d(x[None, None], y[None, None, :2, :2], y[0, :1], stride=2, padding=1).sum()
        + F.conv2d(x[None].contiguous(), y[None, None, :3, :2], dilation=2, padding=2),
    "conv3d": lambda x, y: F.conv3d(x[None, None, None], y[None, None, None, :3, :3], padding=(0, 1, 1)) * x,
    "batch_norm_train": lambda x, y: F.batch_norm(x, None, None, y[0], y[1], True)
        + F.batch_norm(y, None, None, None, None, True),
    "layer_norm": lambda x, y: F.layer_norm(x, (4,), y[0], y[1]) * F.layer_norm(y, (5, 4))
        * F.layer_norm(x, (4,), y[0]),
    "max_pool2d": lambda x, y: F.max_pool2d(x[None, None], 2) * y[:2, :2]
        + F.max_pool2d(x[None], (2, 1), 1, (1, 0)).sum(),
    "nll_loss": lambda x, y: F.nll_loss(x.log(), CLASSES)
        + F.nll_loss(y, CLASSES, CLASSES[:4] + torch.ones(4, dtype=x.dtype), reduction="sum")
        + F.nll_loss(x, CLASSES, ignore_index=1, reduction="none") * F.nll_loss(x[0], CLASSES[0]),
    "lstm": lstm,
    "embedding": lambda x, y: F.embedding(CLASSES[:4], x) * F.embedding(CLASSES[1:], y, padding_idx=2),
}


@pytest.fixture
def table_only() -> Iterator[None]:
    before = use_native(False)
    yield
    use_native(before)


def test_every_rule_in_c_has_a_program() -> None:
    assert set(HOT) <= set(PROGRAMS)


def inputs(dtype: torch.dtype = torch.float64) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(0)
    return tuple((torch.rand(5, 4, generator=generator, dtype=torch.float64) + 0.5).to(dtype) for _ in range(2))  # type: ignore[return-value]


def gradients(program: Program, *given: Tensor) -> list[Tensor]:
    """Gradients of a program whose every operation is used twice, so that sums are made."""
    leaves = [ao.tensor(x) for x in given]
    torch.manual_seed(0)
    with ao.AutogradGraph():
        x, y = (t * 1.25 for t in leaves)
        loss = (program(x, y) * program(y, x)).sum() + program(x, y).sum()
        loss.backward()
        return [x.grad for x in leaves]


@pytest.mark.parametrize("name", PROGRAMS)
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16], ids=str)
def test_same_as_the_table(name: str, dtype: torch.dtype) -> None:
    given = inputs(dtype)
    found = gradients(PROGRAMS[name], *given)
    before = use_native(False)
    try:
        expected = gradients(PROGRAMS[name], *given)
    finally:
        use_native(before)
    for a, b in zip(found, expected, strict=True):
        assert (a.shape, a.dtype) == (b.shape, b.dtype)
        coarse = {"rtol": 0.06, "atol": 0.06} if dtype is torch.bfloat16 else {}   # sums round after each term, or not
        torch.testing.assert_close(a, b, **coarse)


@pytest.mark.parametrize("name", PROGRAMS)
def test_same_as_torch(name: str) -> None:
    if name not in ("to_half", "to_bfloat16"):      # sums in another order show in the few bits of these
        compare(PROGRAMS[name], *inputs(), rtol=1e-5)


@pytest.mark.parametrize("name", ["mul", "div", "pow", "exp", "matmul", "sum", "slice", "linear"])
def test_complex_operands_take_the_table(name: str) -> None:
    compare(PROGRAMS[name], *(torch.complex(t, t.flip(0)) for t in inputs()))


def test_the_table_alone(table_only: None) -> None:
    compare(PROGRAMS["mul"], *inputs())


SUMS: dict[str, Program] = {
    "product": lambda x, y: (x * y + x * y.sin() + x * y.cos() + x * 3.0).sum(),
    "matrices": lambda x, y: (x @ y.t() + (x * 2) @ y.t() + x @ y.t().sin()).sum(),
    "places": lambda x, y: (x[1:] * y[:-1] + x[:-1] * y[1:] + x[0] + x[:, 1:2]).sum(),
    "the same cotangent twice": lambda x, y: (lambda z: (z + z.sin()).sum() + z.sum())(x + y),
    "views of one cotangent": lambda x, y: (lambda z: (z.t() + z.t().exp()).sum() + (z * 2).sum())(x + y),
    "expanded": lambda x, y: x.sum() + x.sum(0).exp().sum() + (x * y).sum() + x.mean(),
}


@pytest.mark.parametrize("name", SUMS)
def test_sums_in_place(name: str) -> None:
    compare(SUMS[name], *inputs())


def test_a_hook_keeps_what_it_was_given() -> None:
    seen: list[tuple[Tensor, Tensor]] = []

    def keep(g: Tensor) -> None:
        seen.append((g, g.clone()))

    x = ao.tensor(inputs()[0])
    with ao.AutogradGraph():
        y = x * 2.0
        z = y * 3.0
        z.register_hook(keep)
        y.register_hook(keep)
        x.register_hook(keep)
        (z.exp() * 1e-9 + z * y + z.sin()).sum().backward()
    assert len(seen) == 3
    for g, copy in seen:
        assert torch.equal(g, copy)


def test_captured_cotangents_are_the_users() -> None:
    x = ao.tensor(inputs()[0])
    with ao.AutogradGraph():
        y = x * 2.0
        z = y + 1.0
        w = (z * y + z.exp() * y).sum()
        gz, gy, gx = torch.autograd.grad(w, [z, y, x], retain_graph=True)
        before = [g.clone() for g in (gz, gy, gx)]
        gz.mul_(5)
        again = torch.autograd.grad(w, [z, y, x])
    assert torch.equal(gy, before[1])
    assert torch.equal(gx, before[2])
    for a, b in zip(again, before, strict=True):
        assert torch.equal(a, b)


def test_a_gradient_shares_no_memory_with_another() -> None:
    a, b = ao.tensor(inputs()[0]), ao.tensor(inputs()[1])
    with ao.AutogradGraph():
        ((a + b).t() * 2.0).sum().backward()
    a.grad.add_(1)
    assert float(b.grad.max()) == 2.0


def test_only_what_is_asked_for_is_computed() -> None:
    """`grad` with respect to one operand runs no kernel for the other."""
    from benchmarks.counting import KernelCounter
    x, y = ao.tensor(inputs()[0]), ao.tensor(inputs()[1])

    def kernels(*targets: Any) -> int:
        with ao.AutogradGraph():
            z = x * y / (y * 2.0)
            with KernelCounter() as counter:
                torch.autograd.grad(z, targets, torch.ones_like(x))
        return counter.count

    assert kernels(x) < kernels(y) < kernels(x, y)


LARGE: dict[str, Program] = {
    "alone": lambda x, y: (torch.relu(x * y) * y).sum(),
    "expanded": lambda x, y: torch.relu(x).sum() + torch.relu(y).mean(),
    "one cotangent for two": lambda x, y: ((torch.relu(x) + torch.relu(y)) * y).sum(),
    "a view waits": lambda x, y: (lambda z: ((z.t() + torch.relu(x - 1)).sin() * y).sum())(torch.relu(x)),
    "noise": lambda x, y: (F.dropout(torch.relu(x - 1) * y, 0.5) * x).sum(),
    "axes in another order": lambda x, y: (torch.relu(x.t() - 1) * y).sum() + (torch.relu(x - 1).t() * y).sum(),
    "a kernel's result": lambda x, y: (F.max_pool2d(torch.relu(x - 1)[None], 2)[0] * y[:128, :128]).sum(),
}
"""Cotangents that are worth to be written where nobody else sees them."""


@pytest.mark.parametrize("name", LARGE)
def test_large_cotangents_in_place(name: str) -> None:
    generator = torch.Generator().manual_seed(0)
    compare(LARGE[name], *(2 * torch.rand(256, 256, generator=generator) for _ in range(2)), rtol=1e-5)


def test_a_large_cotangent_that_somebody_holds_is_not_written() -> None:
    x, given = (torch.rand(256, 256) - 0.5 for _ in range(2))
    leaf, seen = ao.tensor(x), []
    with ao.AutogradGraph():
        y = leaf * 2
        z = torch.relu(y)
        z.register_hook(lambda g: seen.append((g, g.clone())))
        z.retain_grad()
        before = given.clone()
        z.backward(given)
        assert torch.equal(given, before)
        assert torch.equal(z.grad, before)
    assert all(torch.equal(g, copy) for g, copy in seen)
    assert torch.equal(leaf.grad, before * 2 * (x > 0))


LAYERS: dict[str, Callable[[torch.Tensor, torch.Tensor], torch.Tensor]] = {
    "layer_norm": lambda v, w: F.layer_norm(v, v.shape),
    "layer_norm, its last axis": lambda v, w: F.layer_norm(v, v.shape[1:]),
    "layer_norm with a weight": lambda v, w: F.layer_norm(v, v.shape[1:], w),
    "batch_norm": lambda v, w: F.batch_norm(v, None, None, training=True),
    "batch_norm with a weight": lambda v, w: F.batch_norm(v, None, None, w, training=True),
    "group_norm": lambda v, w: F.group_norm(v, 3, w),
    "linear": lambda v, w: F.linear(v, w[None]),
    "conv": lambda v, w: F.conv1d(v[None], w[:, None, None].expand(3, 3, 1)),
    "max_pool": lambda v, w: F.max_pool1d(v[None], 2),
    "dropout": lambda v, w: F.dropout(v, 0.5),
    "softmax": lambda v, w: v.softmax(1),
    "matmul": lambda v, w: v @ v,
}


@pytest.mark.parametrize("optimize", [False, True])
@pytest.mark.parametrize("layer", LAYERS)
def test_layers_over_views_made_without_gradients(layer: str, optimize: bool) -> None:
    """Such a view says that it requires grad, and leads nowhere: nothing is saved for its gradient."""
    def gradients(graph: Any) -> list[torch.Tensor | None]:
        torch.manual_seed(0)
        x, w = torch.randn(3, 3, requires_grad=True), torch.ones(3, requires_grad=True)
        with graph:
            with torch.no_grad():
                view = x.view(3, 3)
            assert view.requires_grad
            torch.manual_seed(1)
            (x.sum() + LAYERS[layer](view, w).pow(2).sum()).backward()
        return [x.grad, w.grad]

    torch.testing.assert_close(gradients(ao.AutogradGraph(optimize=optimize)), gradients(contextlib.nullcontext()))
