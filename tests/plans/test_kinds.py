"""Which calls a plan is for: whatever else differs, the function is recorded anew, and no plan is stale."""

from __future__ import annotations

import random
import sys
import types
import warnings
from collections.abc import Callable
from typing import Any

import pytest
import torch

import autograd_opt as ao
import autograd_opt.api.compiled as compiled_module
from autograd_opt.plans.recording import Before

Tensor = torch.Tensor


def kinds(compiled: Any) -> int:
    return len(compiled.report().kinds)


def repeats(compiled: Any) -> int:
    return sum(max(0, kind.calls - 1) for kind in compiled.report().kinds if not kind.reason)


CHANGES: dict[str, Callable[[Tensor], Tensor]] = {
    "shape": lambda x: x[:2].clone(),
    "stride": lambda x: x.t(),
    "dtype": lambda x: x.float(),
    "gradient": lambda x: x.clone().requires_grad_(),
    "parameter": lambda x: torch.nn.Parameter(x.clone()),
    "offset": lambda x: torch.cat([x, x])[3:],
}


@pytest.mark.parametrize("change", CHANGES)
def test_another_tensor(change: str) -> None:
    f = ao.compile(lambda x: (x * x + 1).sum(0) * 2)
    x = torch.randn(3, 3, dtype=torch.float64)
    other = CHANGES[change](x)
    for t in (x, other, x, other):
        found = f(t)
        torch.testing.assert_close(found, (t * t + 1).sum(0) * 2)
        assert found.requires_grad is t.requires_grad
    assert kinds(f) == (1 if change == "offset" else 2)


@pytest.mark.parametrize(
    ("one", "other"), [(1, 1.0), (1, True), (0.0, -0.0), (2, 3), ("a", "b"), (None, 0), ((1, 2), [1, 2])]
)
def test_another_value(one: Any, other: Any) -> None:
    def function(x: Tensor, value: Any) -> Any:
        number = float(value) if isinstance(value, (int, float)) else len(str(value))
        return x / number, repr(value)

    f = ao.compile(function)
    x = torch.ones(3)
    for value in (one, other, one, other):
        assert f(x, value)[1] == repr(value)
        assert torch.equal(f(x, value)[0], function(x, value)[0])


def test_one_tensor_in_two_places() -> None:
    def function(x: Tensor, y: Tensor) -> Tensor:
        (x * y).sum().backward()
        return x.detach() + y.detach()

    f = ao.compile(function)
    for same in (False, True, False, True):
        x = torch.tensor([2.0, 3.0], requires_grad=True)
        y = x if same else torch.tensor([5.0, 7.0], requires_grad=True)
        f(x, y)
        assert x.grad is not None
        assert x.grad.tolist() == ([4.0, 6.0] if same else [5.0, 7.0])


def test_a_gradient_that_is_there_is_added_to() -> None:
    def function(x: Tensor) -> None:
        (x * x).sum().backward()

    f = ao.compile(function)
    x = torch.tensor([1.0, 2.0], requires_grad=True)
    for expected in ([2.0, 4.0], [4.0, 8.0], [6.0, 12.0], [8.0, 16.0]):
        f(x)
        assert x.grad is not None
        assert x.grad.tolist() == expected
    x.grad = None
    f(x)
    assert x.grad is not None
    assert x.grad.tolist() == [2.0, 4.0]


def test_closures_globals_and_attributes() -> None:
    class Settings:
        scale = 1.0

        def __init__(self) -> None:
            self.factor = 2.0

    settings, numbers = Settings(), {"shift": 1.0}
    power = 2

    def inner(x: Tensor) -> Tensor:
        return x**power + numbers["shift"]

    f = ao.compile(lambda x: inner(x) * settings.factor)
    x = torch.tensor([1.0, 2.0])
    assert f(x).tolist() == f(x).tolist() == [4.0, 10.0]
    settings.factor = 3.0
    assert f(x).tolist() == [6.0, 15.0]
    numbers["shift"] = 0.0
    assert f(x).tolist() == [3.0, 12.0]
    power = 3
    assert f(x).tolist() == [3.0, 24.0]
    assert kinds(f) == 4


def test_a_plan_is_made_of_a_recorded_call_also_where_regions_step_back() -> None:
    weight = torch.randn(2, 3, requires_grad=True)
    f = ao.compile(lambda x, k: torch.nn.functional.linear(x, weight).tanh().sum() * k, check_every=3)
    for k in range(12):                         # twelve kinds; after eight recorded calls the region steps back
        for _ in range(4):
            weight.grad = None
            f(torch.ones(4, 3), float(k)).backward()
            expected = torch.autograd.grad((torch.ones(4, 3) @ weight.t()).tanh().sum() * k, weight)[0]
            torch.testing.assert_close(weight.grad, expected)
    assert kinds(f) == 12
    assert all(not kind.reason for kind in f.report().kinds)


def test_a_plan_is_as_good_where_its_function_has_been_recorded_often() -> None:
    """What a graph has learned not to number, because it seldom pays there, is numbered for a plan."""
    first, second = torch.randn(1, 6, requires_grad=True), torch.randn(6, 1, requires_grad=True)

    def step(x: Tensor) -> Tensor:
        u = (x @ first).tanh() @ second
        (u_x,) = torch.autograd.grad(u.sum(), x, create_graph=True)
        (u_xx,) = torch.autograd.grad(u_x.sum(), x, create_graph=True)
        loss = ((u_x * u - u_xx) ** 2).mean()
        loss.backward()
        return loss.detach()

    def operations(function: Callable[[Tensor], Tensor], recorded: int) -> int:
        compiled = ao.compile(function)
        x = torch.randn(5, 1, requires_grad=True)
        for _ in range(recorded):
            with ao.AutogradGraph(optimize=True):
                function(x)
        for _ in range(3):
            x.grad = first.grad = second.grad = None
            compiled(x)
        return sum(kind.operations for kind in compiled.report().kinds)

    another = types.FunctionType(step.__code__.replace(co_name="another"), step.__globals__, closure=step.__closure__)
    assert operations(step, 0) == operations(another, 300)


class Net(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = torch.nn.Linear(3, 4), torch.nn.Linear(4, 2)
        self.norm, self.drop = torch.nn.BatchNorm1d(4), torch.nn.Dropout(0.5)
        self.sharp = 1.0

    def forward(self, x: Tensor) -> Tensor:
        return self.second(self.drop(torch.tanh(self.norm(self.first(x)) * self.sharp)))


def test_a_module_in_all_its_states() -> None:
    torch.manual_seed(0)
    net, copy = Net(), Net()
    copy.load_state_dict(net.state_dict())
    f = ao.compile(net)

    def same() -> None:
        x = torch.randn(5, 3)
        for _ in range(2):
            torch.manual_seed(1)
            found = f(x)
            torch.manual_seed(1)
            torch.testing.assert_close(found, copy(x))
        for (name, b), c in zip(net.named_buffers(), copy.buffers(), strict=True):
            torch.testing.assert_close(b, c, msg=name)

    same()
    for one in (net, copy):
        one.eval()
    same()
    for one in (net, copy):
        one.train()
        one.sharp = 0.5
    same()
    for one in (net, copy):
        one.drop.p = 0.0
    same()
    for one in (net, copy):
        one.first.weight = torch.nn.Parameter(torch.ones(4, 3))
    same()
    with torch.no_grad():
        for one in (net, copy):
            one.second.bias.fill_(3.0)
    same()
    for one in (net, copy):
        one.second.weight.data = torch.full((2, 4), 0.25)
    same()
    for one in (net, copy):
        one.requires_grad_(False)
    same()
    for one in (net, copy):
        one.first.register_forward_hook(lambda module, args, out: out * 2)
    with pytest.warns(UserWarning, match="has hooks"):
        same()


@pytest.mark.parametrize("mode", [torch.no_grad, torch.inference_mode, lambda: torch.autocast("cpu", torch.bfloat16)])
def test_modes(mode: Any) -> None:
    f = ao.compile(lambda x, w: torch.tanh(x @ w))
    x, w = torch.randn(3, 4), torch.randn(4, 5, requires_grad=True)
    for _ in range(2):
        assert f(x, w).requires_grad
        with mode():
            found, expected = f(x, w), torch.tanh(x @ w)
        torch.testing.assert_close(found, expected)
        assert (found.requires_grad, found.is_inference()) == (expected.requires_grad, expected.is_inference())


@pytest.mark.parametrize("kind", ["forward", "forward_pre", "full_backward", "full_backward_pre"])
def test_hooks_of_all_modules(kind: str) -> None:
    """A hook that is called for every module is seen, also one that is registered after the plan was made."""
    net, calls = torch.nn.Linear(2, 1), []
    f = ao.compile(lambda x: net(x).sum())

    def called(count: int) -> None:
        x = torch.ones(1, 2, requires_grad=True)
        before = len(calls)
        f(x).backward()
        assert x.grad is not None
        assert torch.equal(x.grad, net.weight)
        assert len(calls) - before == count

    for _ in range(3):
        called(0)
    handle = getattr(torch.nn.modules.module, f"register_module_{kind}_hook")(lambda *given: calls.append(given))
    try:
        with pytest.warns(UserWarning, match="all modules have hooks"):
            called(1)
        for _ in range(3):
            called(1)
    finally:
        handle.remove()
    called(0)
    assert "all modules have hooks" in str(f.report())


def test_inside_a_graph_the_function_is_recorded() -> None:
    f = ao.compile(lambda x: (x * x).sum())
    x = ao.tensor([1.0, 2.0])
    f(torch.ones(2))
    with ao.AutogradGraph() as graph:
        loss = f(x)
        loss.backward()
        assert len(graph) > 1
    assert x.grad is not None
    assert x.grad.tolist() == [2.0, 4.0]


def mutate(rng: random.Random, state: dict[str, Any]) -> None:
    """Change one thing that a call may depend on."""
    what = rng.randrange(10)
    if what == 0:
        state["shape"] = rng.choice([(2, 3), (3, 3), (3,), (1, 3)])
    elif what == 1:
        state["dtype"] = rng.choice([torch.float32, torch.float64])
    elif what == 2:
        state["gradient"] = not state["gradient"]
    elif what == 3:
        state["value"] = rng.choice([0, 1, 1.0, True, -0.0, 0.0, 2])
    elif what == 4:
        state["net"].train(not state["net"].training)
    elif what == 5:
        state["net"].weight = torch.nn.Parameter(torch.full((3, 3), float(rng.randrange(5))))
    elif what == 6:
        state["net"].weight.requires_grad_(not state["net"].weight.requires_grad)
    elif what == 7:
        state["same"] = not state["same"]
    elif what == 8:
        state["no_grad"] = not state["no_grad"]
    else:
        state["box"][0] = rng.choice([0.5, 1.5, 2.5])


class Scaled(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.weight = torch.nn.Parameter(torch.eye(3))

    def forward(self, x: Tensor) -> Tensor:
        return (x @ self.weight.to(x.dtype)) * (2.0 if self.training else 3.0)


def never_stale(seed: int, calls: int) -> int:
    """Calls with random changes between them, beside the function itself; how many were repeated."""
    rng = random.Random(seed)
    net, box = Scaled(), [1.0]
    state: dict[str, Any] = {
        "shape": (2, 3),
        "dtype": torch.float32,
        "gradient": False,
        "value": 1,
        "net": net,
        "same": False,
        "no_grad": False,
        "box": box,
    }

    def function(x: Tensor, y: Tensor, value: Any) -> Any:
        return {"out": net(x) + y * box[0], "kind": repr(value), "number": x / (value + 2)}

    f = ao.compile(function)
    for _ in range(calls):
        if rng.random() < 0.6:
            mutate(rng, state)
        x = torch.randn(state["shape"], dtype=state["dtype"]).requires_grad_(state["gradient"])
        y = x if state["same"] else torch.randn(state["shape"], dtype=state["dtype"])
        with torch.set_grad_enabled(not state["no_grad"]):
            found, expected = f(x, y, state["value"]), function(x, y, state["value"])
        assert found["kind"] == expected["kind"], state
        for key in ("out", "number"):
            assert found[key].requires_grad == expected[key].requires_grad, state
            torch.testing.assert_close(found[key], expected[key])
    return repeats(f)


def test_no_plan_is_stale() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert sum(never_stale(seed, 60) for seed in range(5)) > 30


@pytest.mark.long
def test_no_plan_is_stale_in_many_calls() -> None:
    assert sum(never_stale(seed, 400) for seed in range(100, 190)) > 3000


def seeded(t: Tensor) -> Tensor:
    torch.manual_seed(3)
    return t + torch.rand(3)


def forked(t: Tensor) -> Tensor:
    with torch.random.fork_rng():
        torch.manual_seed(3)
        return t + torch.rand(3)


OWN = torch.Generator()
DRAWS: dict[str, tuple[Callable[[Tensor], Tensor], bool]] = {
    "seeded": (seeded, False), "forked": (forked, False),
    "own, seeded": (lambda t: t + torch.rand(3, generator=OWN.manual_seed(3)), False),
    "new": (lambda t: t + torch.rand(3, generator=torch.Generator().manual_seed(3)), False),
    "asks": (lambda t: t * torch.initial_seed(), False),
    "drawn": (lambda t: t * torch.rand(3), True),
    "checkpoint without draws": (
        lambda t: torch.utils.checkpoint.checkpoint(lambda u: (u * 2).sin(), t, use_reentrant=False), True),
}


@pytest.mark.parametrize("profiled", [False, True])
@pytest.mark.parametrize("name", DRAWS)
def test_a_function_that_seeds_a_generator_is_not_repeated(name: str, profiled: bool) -> None:
    function, repeated = DRAWS[name]
    calls: list[str] = []

    def observed(call: Any, seed: int) -> tuple[list[float], float]:
        torch.manual_seed(seed)
        return call(torch.ones(3, requires_grad=True)).tolist(), torch.rand(()).item()

    compiled, before = ao.compile(function), sys.getprofile()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        if profiled:
            sys.setprofile(lambda frame, event, arg: calls.append(event))
        try:
            for seed in range(5):
                assert observed(compiled, seed) == observed(function, seed)
        finally:
            sys.setprofile(before)
    assert (repeats(compiled) > 0) is repeated
    assert bool(calls) is profiled


def test_a_function_that_changes_what_it_sees_at_each_call_is_looked_at_seldom(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its calls are right each time; once it changes nothing any more, it is repeated."""
    looks = []
    monkeypatch.setattr(compiled_module, "Before", lambda *a: looks.append(a) or Before(*a))
    counts = {"steps": 0, "limit": 100}

    def step(x: Tensor) -> Tensor:
        counts["steps"] = min(counts["steps"] + 1, counts["limit"])
        return x * counts["steps"]

    compiled = ao.compile(step)
    with pytest.warns(UserWarning, match="changes what it sees"):
        found = [compiled(torch.ones(1)).item() for _ in range(100)]
    assert found == [*range(1, 101)]
    assert len(looks) < 20
    assert len(compiled.kinds) < 12
    for _ in range(40):
        assert compiled(torch.ones(1)).item() == 100
    assert any("repeated" in str(kind) for kind in compiled.report().kinds)


def test_calls_without_a_guard_stand_in_no_plans_way() -> None:
    """A plan of the same function, for arguments of the same classes, goes on."""
    seen: list[float] = []

    def step(x: Tensor, keep: bool) -> Tensor:
        if keep:
            seen.append(float(len(seen)))
        return x * 2

    compiled = ao.compile(step)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for _ in range(40):
            compiled(torch.ones(2), True)
    assert len(seen) == 40
    still = list(seen)
    for _ in range(40):
        assert compiled(torch.ones(2), False).tolist() == [2.0, 2.0]
    assert seen == still
    assert any("repeated" in str(kind) for kind in compiled.report().kinds)


def test_calls_that_cannot_be_repeated_are_compared_seldom_with_what_they_see() -> None:
    """A flag that was another one makes another kind, as ever."""
    state = [torch.ones(2) for _ in range(50)]

    def step(x: Tensor, look: bool) -> Tensor:
        y = sum(state, x)
        return y * 2 if look and float(y.sum()) > 0 else y

    compiled = ao.compile(step)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for _ in range(20):
            assert compiled(torch.ones(2), True).tolist() == [102.0, 102.0]
    assert [type(known.guard).__name__ for known in compiled.kinds] == ["Unguarded"]
    for _ in range(4):
        assert compiled(torch.ones(2), False).tolist() == [51.0, 51.0]
    state.append(torch.ones(2))
    for look, value in [(True, 104.0), (False, 52.0)] * 3:
        assert compiled(torch.ones(2), look).tolist() == [value, value]
    assert sum("repeated" in str(kind) for kind in compiled.report().kinds) == 2


def test_kinds_that_give_way_are_of_the_sort_that_is_too_many(monkeypatch: pytest.MonkeyPatch) -> None:
    """Calls that cannot be repeated stay known, however many kinds of others are met."""
    monkeypatch.setattr(compiled_module, "MOST_KINDS", 3)

    def step(x: Tensor, look: bool) -> Tensor:
        return x * 2 if look and float(x.sum()) > 0 else x + 1

    compiled = ao.compile(step)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for _ in range(20):
            compiled(torch.ones(2), True)
    for n in range(1, 9):
        assert compiled(torch.ones(n), False).tolist() == [2.0] * n
    assert [type(known.guard).__name__ for known in compiled.kinds] == ["Guard"] * 3 + ["Unguarded"]
