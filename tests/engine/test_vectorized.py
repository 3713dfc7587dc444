"""Many cotangents in one run: `is_grads_batched` and `vectorize=True` give what torch's loop gives."""

from __future__ import annotations

import contextlib
import warnings
from typing import Any

import pytest
import torch
from torch.autograd import Function
from torch.autograd.graph import saved_tensors_hooks
from torch.utils.checkpoint import checkpoint

import autograd_opt as ao
from autograd_opt import errors
from autograd_opt.engine import batched
from autograd_opt.engine.task import GraphTask
from autograd_opt.graph.tape import Tape
from autograd_opt.ops.table import OPS
from tests.engine.behaviour import caught, frozen, same
from tests.engine.functions import Square
from tests.programs import CONSTANTS, LEAVES, environment, from_seed

Tensor = torch.Tensor
OPTIMIZE = pytest.mark.parametrize("optimize", [False, True])


class Looks(Function):
    """Its backward asks for a value, which a batch does not have."""

    @staticmethod
    def forward(ctx, x):
        return x * 2

    @staticmethod
    def backward(ctx, g):
        return 2 * g if g.sum().item() > 0 else g


def hooked(x: Tensor, y: Tensor) -> Tensor:
    a = x.sin()
    a.register_hook(lambda g: g * 2)
    return a @ y


def written(x: Tensor, y: Tensor) -> Tensor:
    a = x * 2
    a[0].mul_(y)
    a[:, 1] = y[:2]
    a.relu_()
    return a * a


def drawn(x: Tensor, y: Tensor) -> Tensor:
    return checkpoint(lambda t: torch.nn.functional.dropout(t.exp(), 0.5) * t, x, use_reentrant=False)


def packed(x: Tensor, y: Tensor) -> Tensor:
    with saved_tensors_hooks(lambda t: t.numpy(force=True), torch.from_numpy):
        return x.exp() * y


PROGRAMS = {
    "products": lambda x, y: (x * y * 2).sin().sum(1) * y[:2],
    "repeated work": lambda x, y: ((x * y).exp() + (x * y).exp() * y).tanh(),
    "a matrix product": lambda x, y: torch.nn.functional.linear(x, x) @ x,
    "indexing with repeats": lambda x, y: x[:, torch.tensor([0, 0, 2])] * y,
    "parts": lambda x, y: x.unbind(1)[1] * x.max(1)[0] + x.sort(1)[0][:, 0],
    "views and writes": written,
    "hooks": hooked,
    "a function": lambda x, y: Square.apply(x * y).cumsum(1),
    "a checkpoint with dropout": drawn,
    "saved tensor hooks": packed,
    "without a rule": lambda x, y: torch.special.bessel_j0(x * 1).cumprod(1) + torch.linalg.svdvals(x)[0],
    "a wrong batching rule of torch's": lambda x, y: torch.as_strided_scatter(x * 1, y[:2] * 2, (2,), (1,), 1),
    "as_strided": lambda x, y: (x * y).as_strided((2, 2), (1, 2), 1).cos(),
    "normalized": lambda x, y: torch.nn.functional.layer_norm(x, (3,), y).log_softmax(1),
    "mixed types": lambda x, y: (x.float() * y).double() + x.to(torch.complex128).abs(),
    "nothing for one operand": lambda x, y: (y * 3).prod(),
    "selection": lambda x, y: torch.where(x > 0, x * y, y.expand(2, 3)),
    "an overlap": lambda x, y: (x * y).unfold(1, 2, 1).mul(2).sum(2),
}


def leaves(kind: str = "plain") -> list[Tensor]:
    values = [torch.tensor([[0.5, -1.0, 2.0], [1.5, 0.25, -0.75]]).double(), torch.tensor([0.3, -0.6, 0.9]).double()]
    return [ao.tensor(v, requires_grad=True) if kind == "custom" else v.requires_grad_() for v in values]


def batch_for(out: Tensor) -> Tensor:
    return torch.randn(5, *out.shape, dtype=out.dtype, generator=torch.Generator().manual_seed(7))


@OPTIMIZE
@pytest.mark.parametrize("kind", ["plain", "custom"])
@pytest.mark.parametrize("name", PROGRAMS)
def test_a_batch_is_its_slices(name: str, kind: str, optimize: bool) -> None:
    xs = leaves()
    torch.manual_seed(3)
    out = PROGRAMS[name](*xs)
    expected = [torch.autograd.grad(out, xs, g, retain_graph=True, allow_unused=True) for g in batch_for(out)]
    xs = leaves(kind)
    with warnings.catch_warnings(), ao.AutogradGraph(optimize=optimize):
        warnings.simplefilter("error")
        torch.manual_seed(3)
        out = PROGRAMS[name](*xs)
        for retain in (True, False):
            mine = torch.autograd.grad(out, xs, batch_for(out), is_grads_batched=True, allow_unused=True,
                                       retain_graph=retain)
            for a, b in zip(mine, zip(*expected, strict=True), strict=True):
                if a is None:
                    assert b[0] is None
                else:
                    torch.testing.assert_close(a, torch.stack(b))
                    assert type(a) is Tensor


def twice(out: Tensor, xs: list[Tensor], rows: list[Any]) -> list[Any]:
    """First and second derivatives of the rows' squares, None where there is none."""
    total = sum(g.square().sum() for g in rows if g is not None)
    if not isinstance(total, Tensor) or not total.requires_grad:
        return [*rows]
    return [*rows, *torch.autograd.grad(total, xs, allow_unused=True)]


@OPTIMIZE
@pytest.mark.parametrize("kind", ["plain", "custom"])
@pytest.mark.parametrize("name", PROGRAMS)
def test_a_recorded_batch_is_its_slices(name: str, kind: str, optimize: bool, monkeypatch: Any) -> None:
    """With create_graph the batch is one run, too, and can be differentiated again."""
    monkeypatch.setattr("autograd_opt.engine.backward.FEW", 0)
    xs = leaves()
    torch.manual_seed(3)
    out = PROGRAMS[name](*xs)
    rows = zip(*(torch.autograd.grad(out, xs, g, allow_unused=True, create_graph=True) for g in batch_for(out)),
               strict=True)
    expected = twice(out, xs, [None if row[0] is None else torch.stack(row) for row in rows])
    xs = leaves(kind)
    with warnings.catch_warnings(), ao.AutogradGraph(optimize=optimize):
        warnings.simplefilter("error")
        warnings.filterwarnings("ignore", ".*batching rule for aten::unfold_backward")      # torch has none since 2.15
        torch.manual_seed(3)
        out = PROGRAMS[name](*xs)
        mine = twice(out, xs, list(torch.autograd.grad(out, xs, batch_for(out), is_grads_batched=True,
                                                       allow_unused=True, create_graph=True)))
        assert len(mine) == len(expected)
        for a, b in zip(mine, expected, strict=True):
            assert (a is None) == (b is None)
            if a is not None:
                torch.testing.assert_close(a.detach().as_subclass(Tensor), b.detach())


@OPTIMIZE
def test_cotangents_of_a_recorded_batch_are_operands(optimize: bool, monkeypatch: Any) -> None:
    """The stacked cotangents may carry gradients themselves, and rows are counted as torch counts them."""
    monkeypatch.setattr("autograd_opt.engine.backward.FEW", 0)

    def program(x: Tensor, v: Tensor) -> list[Tensor]:
        y = x.sin() * x.sum()
        (rows,) = torch.autograd.grad(y, x, v * v, is_grads_batched=True, create_graph=True)
        return [rows.detach(), *torch.autograd.grad(rows.exp().sum(), [x, v])]

    def leaves_() -> list[Tensor]:
        return [torch.tensor([0.3, -0.5, 0.7]).double().requires_grad_(),
                torch.linspace(-1, 1, 12).double().reshape(4, 3).requires_grad_()]

    expected = program(*leaves_())
    with ao.AutogradGraph(optimize=optimize):
        for a, b in zip(program(*leaves_()), expected, strict=True):
            torch.testing.assert_close(a.detach().as_subclass(Tensor), b)


@OPTIMIZE
def test_a_hook_that_takes_no_batch_sees_slices(optimize: bool, monkeypatch: Any) -> None:
    """Hooks that ask for a value, write, or multiply from the left with a tensor of the graph."""
    monkeypatch.setattr("autograd_opt.engine.backward.FEW", 0)
    hooks = (lambda g, y: g * 2 if g.sum().item() > 0 else g, lambda g, y: [g.mul_(2)][1:] or None, lambda g, y: y * g)
    for hook in hooks:
        seen = []
        for context in (contextlib.nullcontext(), ao.AutogradGraph(optimize=optimize)):
            x = torch.tensor([0.3, -0.5, 0.7]).double().requires_grad_()
            with context:
                y = x.exp()
                y.register_hook(lambda g, hook=hook, y=y: hook(g, y))
                rows = torch.eye(3).double()[[0, 2, 1, 1]]
                if not isinstance(context, ao.AutogradGraph):
                    got = torch.stack([torch.autograd.grad(y * y, x, row, create_graph=True)[0] for row in rows])
                else:
                    (got,) = torch.autograd.grad(y * y, x, rows, is_grads_batched=True, create_graph=True)
                seen.append((got.detach().as_subclass(Tensor), *torch.autograd.grad(got.square().sum(), x)))
        for a, b in zip(*seen, strict=True):
            torch.testing.assert_close(a, b)


def test_one_recorded_run_for_many_slices(monkeypatch: Any) -> None:
    """Counted in runs and rules called slice by slice, not in seconds; a few slices are a run each."""
    runs: list[Any] = []
    monkeypatch.setattr("autograd_opt.engine.backward.GraphTask", lambda *a: runs.append(GraphTask(*a)) or runs[-1])
    monkeypatch.setattr(batched.Batch, "by_slices", lambda *a: pytest.fail("slice by slice"))
    x, w = torch.randn(20, requires_grad=True), torch.randn(20, 20)
    with ao.AutogradGraph():
        y = torch.tanh(torch.tanh(x @ w) @ w)
        torch.autograd.grad(y, x, torch.eye(20), is_grads_batched=True, create_graph=True)
        assert len(runs) == 1
        torch.autograd.grad(y, x, torch.eye(20)[:3], is_grads_batched=True, create_graph=True)
        assert len(runs) == 4


def run_forward(seed: int) -> tuple[list[Tensor], list[Tensor]]:
    """Leaves and last results of a random program, without its own backward runs and hooks."""
    env = environment({**{n: t.clone().requires_grad_() for n, t in LEAVES.items()},
                       **{n: t.clone() for n, t in CONSTANTS.items()}})
    for code, text in zip((program := from_seed(seed)).code, program.statements, strict=True):
        if not any(word in text for word in ("backward", "grad(", "hook")):
            with contextlib.suppress(Exception):
                exec(code, env)
    tensors = [t for n, t in env.items() if isinstance(t, Tensor)]
    outs = [t for t in tensors if t.requires_grad and not t.is_leaf and t.numel()][-3:]
    return [env[n] for n in LEAVES if env[n].requires_grad], outs


@OPTIMIZE
def test_random_programs(optimize: bool) -> None:
    checked = 0
    for seed in range(80):
        with ao.AutogradGraph(optimize=optimize), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            xs, outs = run_forward(seed)
            gs = [batch_for(out) for out in outs]
            if not outs:
                continue
            try:
                rows = [torch.autograd.grad(outs, xs, [g[k] for g in gs], retain_graph=True, allow_unused=True)
                        for k in range(5)]
            except RuntimeError:         # saved values that the program has overwritten
                continue
            mine = torch.autograd.grad(outs, xs, gs, retain_graph=True, allow_unused=True, is_grads_batched=True)
            for a, b in zip(mine, zip(*rows, strict=True), strict=True):
                assert (a is None) == (b[0] is None), seed
                if a is not None:
                    torch.testing.assert_close(a, torch.stack(b), equal_nan=True)
            checked += 1
    assert checked > 40


def test_one_run_for_all_slices(monkeypatch: Any) -> None:
    """Counted in nodes executed and rules called slice by slice, not in seconds."""
    def runs_so_far() -> int:
        return GraphTask(Tape(), False, False, False).id

    monkeypatch.setattr(batched.Batch, "by_slices", lambda *a: pytest.fail("slice by slice"))
    begin = runs_so_far()
    ao.jacobian(lambda x: torch.linspace(0, 1, 64)[:, None] @ x[None].sin() @ x.exp(), torch.randn(8), vectorize=True)
    assert (middle := runs_so_far()) - begin == 1 + 1
    ao.jacobian(lambda x: x.sin(), torch.randn(8))
    assert runs_so_far() - middle == 8 + 1


def test_a_rule_that_cannot_be_batched_is_called_for_each_slice() -> None:
    def ask(g: Tensor, x: Tensor) -> Tensor:
        return g * x if float(g.sum()) > 0 else g - x

    @ao.register_op("x", name="asks_for_a_value", x=ask)
    def asking(x: Tensor) -> Tensor:
        return x * 1

    try:
        _, x = leaves()
        with ao.AutogradGraph():
            y = asking(x * 2)
            (mine,) = torch.autograd.grad(y, x, batch_for(y), is_grads_batched=True)
        expected = [2 * (g * 2 * x if g.sum() > 0 else g - 2 * x) for g in batch_for(y)]
        torch.testing.assert_close(mine, torch.stack(expected))
    finally:
        del OPS["asks_for_a_value"]


ERRORS = {
    "no cotangent": lambda y, x: torch.autograd.grad(y, x, is_grads_batched=True),
    "sizes differ": lambda y, x: torch.autograd.grad([y, y], x, [torch.ones(2, 3).double(), torch.ones(4, 3).double()],
                                                     is_grads_batched=True),
    "no slices": lambda y, x: torch.autograd.grad(y, x, torch.ones(0, 3).double(), is_grads_batched=True),
    "wrong shape": lambda y, x: torch.autograd.grad(y, x, torch.ones(2, 2).double(), is_grads_batched=True),
    "unused": lambda y, x: torch.autograd.grad(y, x * 2, torch.ones(2, 3).double(), is_grads_batched=True),
    "a function that asks": lambda y, x: torch.autograd.grad(Looks.apply(y), x, torch.ones(2, 3).double(),
                                                             is_grads_batched=True),
    "a hook that asks": lambda y, x: (y.register_hook(lambda g: g if g.sum() > 0 else None),
                                      torch.autograd.grad(y, x, torch.ones(2, 3).double(), is_grads_batched=True)),
}


@OPTIMIZE
@pytest.mark.parametrize("name", ERRORS)
def test_errors_are_torchs_and_leave_nothing_behind(name: str, optimize: bool) -> None:
    def program(x: Tensor) -> Any:
        y = (x * x).sin()
        error = caught(lambda: ERRORS[name](y, x), 20)
        assert torch._C._functorch.maybe_current_level() is None
        z = (x * 3).exp()
        return error, torch.autograd.grad(z, x, torch.eye(3).double(), is_grads_batched=True)

    _, x = leaves()
    expected = program(x)
    with ao.AutogradGraph(optimize=optimize):
        mine = program(x)
    assert issubclass(mine[0].type, expected[0].type), (mine, expected)
    same(frozen(mine[1]), frozen(expected[1]), name, 1e-6)


def test_a_freed_graph_stays_freed() -> None:
    _, x = leaves()
    with ao.AutogradGraph():
        y = x.exp()
        torch.autograd.grad(y, x, torch.eye(3).double(), is_grads_batched=True)
        with pytest.raises(errors.FreedGraphError):
            torch.autograd.grad(y, x, torch.eye(3).double(), is_grads_batched=True)


def test_anomaly_mode_names_the_operation() -> None:
    x = ao.tensor([0.0, 1.0])
    with ao.AutogradGraph(anomaly=True), pytest.raises(RuntimeError, match="Sqrt"), \
            pytest.warns(UserWarning, match="Error detected"):
        torch.autograd.grad((x * 0).sqrt() * 0, x, torch.eye(2), is_grads_batched=True)


@OPTIMIZE
def test_a_recorded_run_can_be_differentiated(optimize: bool) -> None:
    x, _ = leaves()
    expected = torch.autograd.functional.jacobian(lambda t: (t ** 3).sum(1), x, create_graph=True, vectorize=True)
    (second,) = torch.autograd.grad(expected.sin().sum(), x)
    with ao.AutogradGraph(optimize=optimize):
        mine = ao.jacobian(lambda t: (t ** 3).sum(1), x, create_graph=True, vectorize=True)
        torch.testing.assert_close(torch.autograd.grad(mine.sin().sum(), x)[0], second)


CHECKED = {
    "a sum and a sine": lambda x: (x.sin(), x.sum(0)),
    "a write through a view": lambda x: (lambda c: (c[0].mul_(2), c)[1])(x.clone()),
    "a write at an index": lambda x: (lambda c: (c.__setitem__((slice(None), 0), x[:, 1]), c)[1])(x.clone()),
    "as_strided": lambda x: (x * 1).as_strided((2, 2), (1, 2)),
    "repeated work": lambda x: x.exp() * x.exp() + x.exp(),
    "a deviation": lambda x: x.std(1),
}


@OPTIMIZE
@pytest.mark.parametrize("fast", [False, True])
@pytest.mark.parametrize("name", CHECKED)
def test_torchs_gradcheck_of_batches(name: str, fast: bool, optimize: bool) -> None:
    """Its cotangents are batches of torch's older kind."""
    x, _ = leaves()
    with ao.AutogradGraph(optimize=optimize):
        assert torch.autograd.gradcheck(CHECKED[name], x, check_batched_grad=True, fast_mode=fast)
        assert torch.autograd.gradgradcheck(CHECKED[name], x, check_batched_grad=True, fast_mode=fast)


@OPTIMIZE
def test_gradients_of_a_batch_lie_slice_after_slice(optimize: bool) -> None:
    """So that they can be flattened by a view, as torch's can."""
    w, x = torch.randn(3, 4), torch.randn(4, requires_grad=True)

    def strides() -> list[tuple[int, ...]]:
        (jacobian,) = torch.autograd.grad((w @ x).softmax(0), x, torch.eye(3), is_grads_batched=True)
        hessian = torch.autograd.functional.hessian(lambda z: (w @ z).tanh().sum(), x.detach(), vectorize=True)
        jacobian.view(-1), hessian.view(-1)
        return [jacobian.stride(), hessian.stride()]

    wanted = strides()
    with ao.AutogradGraph(optimize=optimize):
        assert strides() == wanted
