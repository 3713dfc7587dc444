"""Built-in torch functions with an entry of their own behave like torch's, inside and outside a graph."""

from __future__ import annotations

import contextlib
import copy
import pickle
import subprocess
import sys
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import sin as imported_before
from torch.overrides import TorchFunctionMode

import autograd_opt as ao
from autograd_opt.record.module_routes import functions

ENTERED = {torch.sin: "sin", F.linear: "linear", torch.add: "add"}
HASHES = {f: hash(f) for f in functions()}


def names(graph: ao.AutogradGraph) -> list[str]:
    return [node.op.name for node in graph.tape.snapshot() if not node.is_leaf]


@pytest.fixture(autouse=True)
def _first_graph() -> None:
    with ao.AutogradGraph():
        pass


def test_functions_stay_what_they_are() -> None:
    assert torch.sin is imported_before
    assert ENTERED[torch.sin] == "sin"
    assert ENTERED[F.linear] == "linear"
    assert {f: hash(f) for f in functions()} == HASHES
    assert pickle.loads(pickle.dumps(torch.sin)) is torch.sin
    assert copy.deepcopy(torch.sin) is torch.sin
    assert repr(torch.sin).startswith("<built-in method sin")


@pytest.mark.parametrize("optimize", [False, True])
def test_a_name_imported_before_the_graph_records(optimize: bool) -> None:
    x = torch.ones(3, requires_grad=True)
    with ao.AutogradGraph(optimize=optimize) as graph:
        imported_before(input=x).sum().backward()
        assert names(graph)[0] == "sin"
    assert torch.equal(x.grad, torch.cos(torch.ones(3)))


def test_outside_a_graph_torch_differentiates() -> None:
    x = torch.ones(3, requires_grad=True)
    y = torch.add(torch.sin(x), x, alpha=2)
    assert y.grad_fn.name() == "AddBackward0"
    y.sum().backward()
    assert torch.allclose(x.grad, torch.cos(torch.ones(3)) + 2)


@pytest.mark.parametrize("args", [(), (1, 2, 3), ("x",), (None,)])
def test_wrong_arguments_are_torchs_to_refuse(args: tuple[Any, ...]) -> None:
    with pytest.raises(TypeError) as outside:
        torch.sin(*args)
    with ao.AutogradGraph(), pytest.raises(TypeError) as inside:
        torch.sin(*args)
    assert str(inside.value).startswith(str(outside.value).split("\n")[0])


def test_a_mode_of_the_users_comes_first() -> None:
    seen = []

    class Watch(TorchFunctionMode):
        def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            seen.append(func)
            return func(*args, **(kwargs or {}))

    x = torch.ones(3, requires_grad=True)
    with ao.AutogradGraph() as graph, Watch():
        y = torch.sin(x)
        assert names(graph) == ["sin"]
    assert seen[0] is torch.sin
    assert y.shape == (3,)


def test_switched_off_torch_functions_stay_off() -> None:
    x = torch.ones(3, requires_grad=True)
    with ao.AutogradGraph() as graph, torch._C.DisableTorchFunction():
        torch.sin(x)
        assert names(graph) == []


def test_a_class_with_a_torch_function_of_its_own_reaches_the_graph_first() -> None:
    class Tagged(torch.Tensor):
        pass

    t = torch.ones(3).as_subclass(Tagged)
    x = torch.ones(3, requires_grad=True)
    with ao.AutogradGraph():
        assert torch.equal(torch.add(x, t).detach().as_subclass(torch.Tensor), torch.full((3,), 2.0))


def test_torchscript_knows_the_functions() -> None:
    def f(x: torch.Tensor) -> torch.Tensor:
        return torch.sin(x) + F.relu(x)

    scripted = torch.jit.script(f)
    with ao.AutogradGraph():
        again = torch.jit.script(f)
    x = torch.randn(3)
    assert torch.equal(scripted(x), f(x))
    assert torch.equal(again(x), f(x))


def test_symbolic_tracing_finds_the_functions() -> None:
    traced = torch.fx.symbolic_trace(lambda x: torch.sin(x) * 2)
    assert next(n.target for n in traced.graph.nodes if n.op == "call_function") is torch.sin
    x = torch.randn(3)
    assert torch.equal(traced(x), torch.sin(x) * 2)


@pytest.mark.parametrize("optimize", [False, True])
def test_operators_of_plain_tensors_record(optimize: bool) -> None:
    x = torch.rand(3, requires_grad=True)
    with ao.AutogradGraph(optimize=optimize) as graph:
        y = x * x + x / 2.0 - x
        assert names(graph) == ["mul", "div", "add", "sub"]
        assert {node.source for node in graph.tape.snapshot() if not node.is_leaf} == {f"{__file__}:{here() - 2}"}
        y.sum().backward()
    assert torch.allclose(x.grad, 2 * x.detach() - 0.5)


def here() -> int:
    return sys._getframe(1).f_lineno


def test_operators_of_plain_tensors_come_to_a_mode_of_the_users_first() -> None:
    seen = []

    class Watch(TorchFunctionMode):
        def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            seen.append(func.__name__)
            return func(*args, **(kwargs or {}))

    x = torch.ones(3, requires_grad=True)
    with ao.AutogradGraph() as graph, Watch():
        y = x * x
        assert names(graph) == ["mul"]
        assert x.size() == y.shape
    assert seen[:2] == ["mul", "size"]


def test_operators_of_plain_tensors_refuse_and_give_way_as_torchs_do() -> None:
    class Other:
        def __rmul__(self, other: Any) -> str:
            return "mine"

    x = torch.ones(3, requires_grad=True)
    with ao.AutogradGraph():
        with pytest.raises(TypeError):
            x * "a"
        assert x * Other() == "mine"
        with torch._C.DisableTorchFunction():
            assert torch.equal((x * x).detach(), torch.ones(3))
        assert x.size(0) == x.size(dim=0) == 3
        with pytest.raises(IndexError):
            x.size(1)
    z = x * x
    assert z.grad_fn.name() == "MulBackward0"


def test_operators_leave_a_subclass_to_the_mode() -> None:
    class Tagged(torch.Tensor):
        pass

    x, t = torch.full((3,), 2.0), torch.ones(3).as_subclass(Tagged)
    with ao.AutogradGraph():
        assert torch.equal((x - t).as_subclass(torch.Tensor), torch.ones(3))
        assert torch.equal((t - x).as_subclass(torch.Tensor), -torch.ones(3))


def test_factories_inside_a_graph() -> None:
    x = torch.ones(3, requires_grad=True)
    with ao.AutogradGraph():
        first, second = torch.zeros(3), torch.zeros(3)
        first.add_(1.0)
        assert torch.equal(second, torch.zeros(3))
        assert torch.zeros(2, 3, dtype=torch.float64).dtype is torch.float64
        out = torch.empty(3)
        assert torch.full((3,), 2.0, out=out) is out
        (x * torch.ones(3)).sum().backward()
    assert torch.equal(x.grad, torch.ones(3))


READS: dict[str, Any] = {
    "dtype": torch.float32, "device": torch.device("cpu"), "shape": torch.Size([3]), "ndim": 1, "is_cpu": True,
    "layout": torch.strided, "_version": 0, "is_cuda": False, "nbytes": 12,
}
QUESTIONS: dict[str, Any] = {"dim": 1, "numel": 3, "is_floating_point": True, "is_complex": False, "element_size": 4}


class Names(TorchFunctionMode):
    """Notes what it is asked, by name."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: list[str] = []

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.seen.append(getattr(getattr(func, "__self__", None), "__name__", "") or func.__name__)
        return func(*args, **(kwargs or {}))


def written_plainly(x: torch.Tensor, w: torch.Tensor) -> tuple[torch.Tensor, list[str]]:
    """Operators and methods of a recorded tensor under a mode: the sum of all results, and what the mode has seen."""
    y = x * w
    with Names() as mode:
        results = [
            y * 2, 2 * y, y + y, y - 1, 1 - y, y / 2, 2 / y, -y, y**2, 2**y, abs(y), y @ w, y[0], y[:, 1], y[0] * x[1],
            y.exp(), y.sum(), y.sum(0), y.mean(), y.view(4), y.reshape(4), y.t(), y.transpose(0, 1), y.matmul(w),
            y.softmax(0), y.clone(), y.flatten(), y.expand(3, 2, 2), y.add(1), y.unsqueeze(0), x * w, w.exp(),
            torch.sin(y), torch.nn.functional.relu(y),
        ]
    return torch.stack([r.sum() for r in results]).sum(), mode.seen


@pytest.mark.parametrize("optimize", [False, True])
@pytest.mark.parametrize("nested", [False, True])
def test_a_mode_sees_the_operators_of_recorded_tensors(optimize: bool, nested: bool) -> None:
    x, w = torch.tensor([[0.5, 1.5], [2.0, 0.25]]), torch.tensor([[1.5, 0.5], [0.75, 1.0]], requires_grad=True)
    total, expected = written_plainly(x, w)
    total.backward()
    gradient, w.grad = w.grad, None
    with ao.AutogradGraph(optimize=optimize):
        inner = ao.AutogradGraph(optimize=optimize) if nested else contextlib.nullcontext()
        with inner:
            total, seen = written_plainly(x, w)
            total.backward()
    assert seen == expected
    torch.testing.assert_close(w.grad, gradient)


def test_a_mode_between_two_graphs_sees_the_operators_of_the_inner_one() -> None:
    w = torch.ones(2, requires_grad=True)
    with ao.AutogradGraph(), Names() as mode, ao.AutogradGraph() as inner:
        y = w * 2
        mode.seen.clear()
        z = y * 3 - y
        assert mode.seen == ["mul", "sub"]
        assert len(inner) == 4
        z.sum().backward()
    assert torch.equal(w.grad, torch.full((2,), 4.0))


@pytest.mark.parametrize("make", [lambda: torch.ones(3), lambda: torch.nn.Parameter(torch.ones(3)),
                                  lambda: ao.tensor([1.0] * 3)], ids=["tensor", "parameter", "custom"])
def test_properties_are_read_past_the_mode(make: Any) -> None:
    t = make()
    with ao.AutogradGraph():
        assert {name: getattr(t, name) for name in READS} == READS
        assert {name: getattr(t, name)() for name in QUESTIONS} == QUESTIONS
        with Names() as mode:
            assert [t.dtype, t.dim()] == [torch.float32, 1]
        if type(t) is not ao.CustomTensor:       # its class answers by itself
            assert mode.seen == ["dtype", "dim"]
    assert {name: getattr(t, name) for name in READS} == READS


def test_gradients_are_cleared_past_the_mode() -> None:
    x = torch.ones(3, requires_grad=True)
    with ao.AutogradGraph():
        (x * 2).sum().backward()
        assert torch.equal(x.grad, torch.full((3,), 2.0))
        x.grad = None
        assert x.grad is None
        x.grad = torch.ones(3)
        (x * 3).sum().backward()
        assert torch.equal(x.grad, torch.full((3,), 4.0))
        with Names() as mode:
            x.grad = None
        assert mode.seen == ["grad"]
        with pytest.raises(TypeError, match="grad"):
            x.grad = 1.0
        del x.grad
    x.grad = torch.ones(3)
    x.grad = None
    assert x.grad is None


@pytest.mark.filterwarnings("ignore:Named tensors and all their associated APIs")
def test_descriptors_stay_what_they_are() -> None:
    assert type(torch.Tensor.dtype).__name__ == "getset_descriptor"
    assert torch.Tensor.dtype.__get__ in torch.overrides.get_testing_overrides()
    assert torch.Tensor.dtype.__name__ == "dtype"
    with pytest.raises(TypeError):
        torch.Tensor.dtype.__get__(1)
    with pytest.raises(AttributeError):
        torch.ones(3).dtype = torch.float64
    t = torch.ones(2, 2)
    t.names = ("a", "b")
    assert t.names == ("a", "b")


def test_a_class_with_a_torch_function_of_its_own_is_asked_for_its_properties() -> None:
    class Wide(torch.Tensor):
        @classmethod
        def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            if func == torch.Tensor.shape.__get__:
                return "wide"
            return super().__torch_function__(func, types, args, kwargs or {})

    t = torch.ones(3).as_subclass(Wide)
    assert t.shape == "wide"
    with ao.AutogradGraph(), torch._C.DisableTorchFunction():
        assert t.shape == torch.Size([3])


def test_versions_are_read_past_the_mode_where_a_recorded_run_asks() -> None:
    """A run with targets asks whether what it does not read was written, too."""
    x, y = (torch.ones(3, requires_grad=True) for _ in range(2))
    with ao.AutogradGraph():
        z = x * y
        with torch.no_grad():
            y.add_(1.0)
        with pytest.raises(RuntimeError, match="modified"):
            torch.autograd.grad(z.sum(), y, create_graph=True)


def test_assigning_grad() -> None:
    p = torch.nn.Parameter(torch.ones(2))
    for context in (contextlib.nullcontext(), ao.AutogradGraph(), ao.AutogradGraph(optimize=True)):
        with context:
            g = torch.full((2,), 3.0)
            p.grad = g
            assert p.grad is g
            p.grad = None
            assert p.grad is None
            p.grad = g
            del p.grad
            assert p.grad is None
            with pytest.raises(RuntimeError, match="size"):
                p.grad = torch.ones(3)
            with pytest.raises(TypeError, match="Tensor or None"):
                p.grad = 1.0  # type: ignore[assignment]
            with pytest.raises(RuntimeError):
                p.grad = torch.ones(2, dtype=torch.int64)


def test_assigning_a_recorded_gradient() -> None:
    p = torch.nn.Parameter(torch.ones(2))
    with ao.AutogradGraph(optimize=True):
        y = p * 2
        p.grad = y
        assert torch.equal(p.grad, torch.full((2,), 2.0))
        p.grad = None
        (y * y).sum().backward()
    assert torch.equal(p.grad, torch.full((2,), 8.0))


def test_memory_is_given_away_before_the_first_graph() -> None:
    code = ("import torch, autograd_opt; from torch.utils.dlpack import to_dlpack; t = torch.ones(2)\n"
            "assert torch.equal(torch.from_dlpack(t), t) and torch.equal(torch.from_dlpack(to_dlpack(t)), t)")
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_torchs_functions_are_torchs_while_a_region_waits_for_its_backward() -> None:
    """Between the forward and the backward run of a region no graph is open, and scripts are compiled as without it."""
    def f(x: torch.Tensor) -> torch.Tensor:
        return torch.nn.functional.relu(x)

    x = torch.tensor([-1.0, 2.0], requires_grad=True)
    result = ao.optimize(lambda x: torch.nn.functional.relu(x) * 2)(x)
    assert torch.jit.script(f)(x).tolist() == [0.0, 2.0]
    result.sum().backward()
    assert x.grad is not None
    assert x.grad.tolist() == [0.0, 2.0]
