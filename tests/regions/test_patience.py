"""A region that saves less than recording takes runs as written, and looks again from time to time."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

import autograd_opt as ao
from autograd_opt.graph import tensor as leaves

Tensor = torch.Tensor
REGION = "OptimizedRegionBackward"


@pytest.fixture(autouse=True)
def _no_leaf_of_ours(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(leaves, "made", False)


def plain(t: Tensor) -> Tensor:
    return (t * 2).tanh().sum()


def repeats(t: Tensor) -> Tensor:
    return torch.stack([(t.sin() * t.cos()).exp().sum() for _ in range(12)]).sum()


Function = Callable[[Tensor], Tensor]


def recorded(f: Function, calls: int, original: Function | None = None) -> list[bool]:
    """Which calls, each with its backward run, were recorded; gradients are those of `original`."""
    found = []
    for k in range(calls):
        x, y = (torch.full((3,), 0.1 * k + 1, requires_grad=True) for _ in range(2))
        result = f(x)
        assert result.grad_fn is not None
        found.append(result.grad_fn.name() == REGION)
        result.backward()
        del result                       # what was counted is known when the node of the call has gone
        if original is not None:
            original(y).backward()
            torch.testing.assert_close(x.grad, y.grad)
    return found


def test_after_32_calls_without_a_gain_a_call_runs_as_written() -> None:
    found = recorded(ao.optimize(plain, patience=32), 400, plain)
    assert all(found[:32])
    # one is recorded after 64 of these, the next after 128
    assert [k for k, r in enumerate(found) if r and k >= 32] == [32 + 64, 32 + 64 + 1 + 128]


def test_results_that_live_on_are_counted_when_the_next_call_is_recorded() -> None:
    f, g = ao.optimize(plain, patience=4), ao.optimize(repeats, patience=4)
    x = torch.ones(3, requires_grad=True)
    kept, merging = [f(x) for _ in range(10)], [g(x) for _ in range(10)]
    assert [r.grad_fn.name() == REGION for r in kept] == [True] * 5 + [False] * 5
    assert all(r.grad_fn.name() == REGION for r in merging)


def test_what_saves_time_is_always_recorded() -> None:
    assert all(recorded(ao.optimize(repeats, patience=4), 100, repeats))


def test_many_elementwise_operations_and_runs_over_one_graph_are_recorded() -> None:
    def chain(t: Tensor) -> Tensor:
        for k in range(60):
            t = (t * 0.9 + k / 100).sin() - 0.1
        return t.sum()

    def slope(t: Tensor) -> Tensor:
        return torch.autograd.grad((t * 2).tanh().sum(), t, create_graph=True)[0].sum()

    def hessian(t: Tensor) -> Tensor:
        return torch.stack([torch.autograd.grad(s, t, retain_graph=True)[0] for s in [slope(t)] * 40])

    assert all(recorded(ao.optimize(chain, patience=4), 20, chain))
    assert recorded(ao.optimize(slope, patience=4), 20, slope) == [True] * 4 + [False] * 16
    region, rows = ao.optimize(lambda t: hessian(t).sum() + t.sum(), patience=4), torch.ones(3, requires_grad=True)
    assert all(region(rows).grad_fn.name() == REGION for _ in range(20))


def test_a_whole_training_step_steps_back() -> None:
    net = torch.nn.Sequential(torch.nn.Linear(3, 3), torch.nn.Tanh(), torch.nn.Linear(3, 1))
    optimizer = torch.optim.SGD(net.parameters(), 0.1)
    opened: list[bool] = []

    def step() -> float:
        optimizer.zero_grad()
        loss = net(torch.ones(2, 3)).square().mean()
        opened.append(isinstance(loss, ao.CustomTensor))
        loss.backward()
        optimizer.step()
        return float(loss.detach())

    region = ao.optimize(step, patience=4)
    losses = [region() for _ in range(20)]
    assert opened == [True] * 4 + [False] * 16
    assert losses == sorted(losses, reverse=True)


def test_a_region_that_comes_to_save_time_is_recorded_again() -> None:
    now = [plain]
    f = ao.optimize(lambda t: now[0](t), patience=4)
    assert recorded(f, 50) == [True] * 4 + [False] * 46
    now[0] = repeats
    assert recorded(f, 50, repeats) == [False] * 18 + [True] * 32
    now[0] = plain
    assert recorded(f, 50, plain) == [True] * 4 + [False] * 46


@pytest.mark.parametrize("options", [
    {"patience": None}, {"patience": 2, "verify": True}, {"patience": 2, "anomaly": True},
    {"patience": 2, "optimize": False}, {"patience": 2, "passes": ["cse"]},
], ids=str)
def test_what_was_asked_for_is_done_at_each_call(options: dict[str, Any]) -> None:
    assert all(recorded(ao.optimize(plain, **options), 20, plain))


def test_a_leaf_of_this_library_keeps_its_gradient() -> None:
    """torch's graph knows nothing of such a leaf: a region refuses it, and must go on doing so."""
    w = [torch.ones(3)]
    f = ao.optimize(lambda t: (t * w[0]).sum(), patience=2)
    assert recorded(f, 5) == [True] * 2 + [False] * 3
    w[0] = ao.tensor(torch.ones(3))
    with pytest.raises(ao.UnsupportedError, match=r"autograd_opt\.tensor"):
        f(torch.ones(3, requires_grad=True))


def test_a_module_and_its_copy() -> None:
    net = ao.optimize(torch.nn.Linear(3, 2), patience=3)
    found = []
    for _ in range(6):
        result = net(torch.ones(3))
        found.append(result.grad_fn.name() == REGION)
        result.sum().backward()
        del result
    assert found == [True] * 3 + [False] * 3
    assert net.weight.grad is not None
    assert torch.equal(net.weight.grad, torch.full((2, 3), 6.0))


@pytest.mark.parametrize(("patience", "error"), [
    (0, ao.errors.ArgumentError), (-1, ao.errors.ArgumentError), (1.5, ao.errors.ArgumentTypeError),
    (True, ao.errors.ArgumentTypeError), ("8", ao.errors.ArgumentTypeError),
])
def test_bad_values_are_refused(patience: Any, error: type[Exception]) -> None:
    with pytest.raises(error, match="patience"):
        ao.optimize(plain, patience=patience)
