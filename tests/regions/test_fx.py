"""The passes on FX graphs, and as a backend of torch.compile: equal results, and no merge that would be wrong."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from importlib.metadata import entry_points
from typing import Any

import pytest
import torch
from torch.fx.experimental.proxy_tensor import make_fx

import autograd_opt as ao
from autograd_opt.api.fx import fx_backend

pytestmark = pytest.mark.filterwarnings("ignore")
Tensor = torch.Tensor


@pytest.fixture(autouse=True)
def _forgotten() -> Iterator[None]:
    yield
    torch.compiler.reset()


def calls(module: torch.fx.GraphModule) -> int:
    return sum(n.op == "call_function" for n in module.graph.nodes)


def test_equal_calls_merge_and_unused_ones_go() -> None:
    def f(x: Tensor) -> Tensor:
        x.cos()
        return x.sin() * x.sin().exp() + x.sin()

    traced = make_fx(f)(torch.ones(3))
    made, report = ao.optimize_fx(traced)
    assert (calls(traced), calls(made)) == (7, 4)
    assert len(report.merged) == len(report.certificate) == 2
    assert report.pruned == ("cos",)
    x = torch.randn(3)
    assert torch.equal(made(x), f(x))
    assert torch.equal(traced(x), f(x))


@pytest.mark.parametrize("f", [
    lambda x: torch.stack([x / 0.0, x / -0.0]),
    lambda x: torch.stack([x * float("nan"), x * float("nan")]),
    lambda x: torch.stack([torch.rand_like(x) + x, torch.rand_like(x) + x]),
    lambda x: torch.stack([torch.dropout(x, 0.5, True), torch.dropout(x, 0.5, True)]),
    lambda x: torch.stack([x.bernoulli(0.5), x.bernoulli(0.5)]),
    lambda x: torch.stack([torch.full_like(x, 1), torch.full_like(x, True)]),
    lambda x: torch.stack([x.sin(), x.sin().add_(1), x.sin()]),
    lambda x: torch.stack([x.sin(), x.add_(1).sin()]),
    lambda x: (x.sin(), x.sin()),
    lambda x: (x.sin().view(-1), x.sin().view(-1)),
], ids=["zeros", "nan", "rand", "dropout", "bernoulli", "types", "written", "argument", "results", "views"])
def test_what_is_not_equal_stays(f: Callable[[Tensor], Any]) -> None:
    x = torch.tensor([1.0, -2.0, 0.0])
    made = ao.optimize_fx(make_fx(f)(x.clone())).graph_module
    torch.manual_seed(0)
    expected = f(x.clone())
    torch.manual_seed(0)
    found = made(x.clone())
    torch.testing.assert_close(found, expected, rtol=0, atol=0, equal_nan=True)
    if isinstance(found, (tuple, list)):
        assert found[0].untyped_storage().data_ptr() != found[1].untyped_storage().data_ptr()


def test_calls_without_a_schema_stay() -> None:
    seen: list[int] = []

    class Counts(torch.nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            seen.append(1)
            return x.add_(1)

    class Net(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.counts = Counts()

        def forward(self, x: Tensor) -> Tensor:
            return self.counts(x) + self.counts(x)

    class Whole(torch.fx.Tracer):
        def is_leaf_module(self, m: torch.nn.Module, name: str) -> bool:
            return isinstance(m, Counts)

    net = Net()
    made = ao.optimize_fx(torch.fx.GraphModule(net, Whole().trace(net))).graph_module
    assert made(torch.zeros(1)).item() == 4
    assert len(seen) == 2


def test_something_else_is_refused() -> None:
    with pytest.raises(TypeError, match="GraphModule"):
        ao.optimize_fx(torch.nn.Linear(2, 2))  # type: ignore[arg-type]


UNARY = (torch.sin, torch.tanh, torch.exp, torch.sigmoid, lambda t: t * 0.5, lambda t: t.t().contiguous(),
         lambda t: t / 3, lambda t: t.clone().mul_(2), lambda t: t.sum(0, keepdim=True).expand(3, 3),
         lambda t: t.softmax(-1), torch.relu)
BINARY = (torch.add, torch.mul, torch.sub, torch.matmul, torch.maximum, lambda a, b: a + torch.rand_like(a) * b)


def drawn(seed: int) -> Callable[[Tensor, Tensor], Tensor]:
    """A random function, half of whose calls repeat an earlier one."""
    draw = random.Random(seed)
    plan: list[tuple[Any, ...]] = []
    for i in range(12):
        if plan and draw.random() < 0.5:
            plan.append(draw.choice(plan))
        elif draw.random() < 0.6:
            plan.append((draw.choice(UNARY), draw.randrange(i + 2)))
        else:
            plan.append((draw.choice(BINARY), draw.randrange(i + 2), draw.randrange(i + 2)))

    def f(x: Tensor, y: Tensor) -> Tensor:
        values = [x, y]
        for function, *operands in plan:
            values.append(function(*(values[i] for i in operands)))
        # all of them: AOTAutograd leaves out draws that nothing reads, and later ones differ then
        return sum((v.tanh().sum() for v in values), torch.zeros(()))

    return f


def check_backend(seed: int) -> None:
    f = drawn(seed)
    compiled = torch.compile(f, backend=fx_backend, dynamic=False)
    torch.manual_seed(seed)
    x, y = torch.randn(3, 3, requires_grad=True), torch.randn(3, 3, requires_grad=True)
    results = []
    for function in (f, compiled):
        torch.manual_seed(1)
        out = function(x, y)
        grads = torch.autograd.grad(out, [x, y], allow_unused=True) if out.requires_grad else ()
        with torch.no_grad():
            results.append((out, *grads, function(x, y)))
    for a, b in zip(*results, strict=True):
        assert (a is None) == (b is None)
        if a is not None:
            torch.testing.assert_close(b, a, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("seed", range(8))
def test_the_backend_on_random_functions(seed: int) -> None:
    check_backend(seed)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(8, 100))
def test_the_backend_on_more_random_functions(seed: int) -> None:
    check_backend(seed)


def test_a_backward_finds_what_the_forward_has_computed() -> None:
    counts: list[int] = []

    def f(x: Tensor) -> Tensor:
        return (x.sin() * x.cos()).sum()

    from autograd_opt.api import fx
    original = fx.merge
    fx.merge = lambda module: counts.append(len(original(module).merged))  # type: ignore[assignment, func-returns-value]
    try:
        x = torch.randn(3, requires_grad=True)
        torch.compile(f, backend=fx_backend)(x).backward()
    finally:
        fx.merge = original
    assert counts[0] >= 2
    torch.testing.assert_close(x.grad, (2 * x.detach()).cos())


@pytest.mark.skipif(not entry_points(group="torch_dynamo_backends", name="autograd_opt"),
                    reason="the package was installed before it named its backend: pip install again")
def test_the_backend_by_its_name() -> None:
    x = torch.randn(3)
    assert torch.equal(torch.compile(lambda t: t.sin() * t.sin(), backend="autograd_opt")(x), x.sin() * x.sin())


def test_a_region_in_a_compiled_function() -> None:
    net = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.Tanh())
    region, f = ao.optimize(net), ao.optimize(lambda t: t.sin() * t)

    @torch.compile(backend="aot_eager")
    def g(x: Tensor) -> Tensor:
        return f(x * 2) + region(x).sum()

    x = torch.randn(5, 3, requires_grad=True)
    found = torch.autograd.grad(g(x).sum(), [x, net[0].weight])
    h = x * 2
    expected = torch.autograd.grad((h.sin() * h + torch.nn.Sequential(*net)(x).sum()).sum(), [x, net[0].weight])
    torch.testing.assert_close(found, expected)
