"""Programs that tell tensors and operations apart by their classes find what they find in torch."""

from __future__ import annotations

import copy
import io
import pickle
import subprocess
import sys
import typing
from typing import Any

import pytest
import torch

import autograd_opt as ao


def names(function: Any, depth: int = 4) -> Any:
    """Names of the classes below, as a program that draws a graph finds them."""
    if function is None or not depth:
        return None
    return type(function).__name__, [names(f, depth - 1) for f, _ in function.next_functions if f is not None]


class Doubled(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Any) -> Any:
        return x * 2

    @staticmethod
    def backward(ctx: Any, g: Any) -> Any:
        return g * 2


def written(x: torch.Tensor) -> torch.Tensor:
    y = x * 1
    y[0] = 0
    return y


CALLS: dict[str, Any] = {
    "product": lambda x: (x * 2).grad_fn, "leaf": lambda x: (x * 2).grad_fn.next_functions[0][0],
    "function": lambda x: Doubled.apply(x).grad_fn, "copied": lambda x: written(x).grad_fn,
    "linear": lambda x: torch.nn.functional.linear(x, x, x[0]).grad_fn, "split": lambda x: x.split(1)[1].grad_fn,
    "edge": lambda x: torch.autograd.graph.get_gradient_edge(x.exp()).node,
}


@pytest.mark.parametrize("optimize", [False, True])
@pytest.mark.parametrize("call", CALLS)
def test_functions(call: str, optimize: bool) -> None:
    x = torch.ones(3, 3, requires_grad=True)
    theirs = CALLS[call](x)
    with ao.AutogradGraph(optimize=optimize):
        mine = CALLS[call](x)
        again = CALLS[call](x)
        assert type(mine) is type(again)
        for f in (mine, again):
            assert type(f).__name__ == type(theirs).__name__
            assert type(f).__qualname__ == type(theirs).__qualname__
            assert type(f).__module__ == type(theirs).__module__
            assert f.name() == theirs.name()
            assert isinstance(f, torch.autograd.graph.Node)
            assert hash(f) == hash(f)
            assert getattr(f, "variable", None) is getattr(theirs, "variable", None)
        assert len({mine, again, mine}) == len({mine, again})
    assert type(mine).__name__ == type(theirs).__name__
    assert mine.name() == theirs.name()


@pytest.mark.parametrize("optimize", [False, True])
def test_a_walk_over_a_network(optimize: bool) -> None:
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.ReLU(), torch.nn.Linear(4, 2), torch.nn.Sigmoid())

    def loss() -> torch.Tensor:
        return torch.nn.functional.mse_loss(model(torch.ones(5, 3)), torch.zeros(5, 2)) * 2
    theirs = loss().grad_fn
    with ao.AutogradGraph(optimize=optimize):
        y = loss()
        assert names(y.grad_fn, 3) == names(theirs, 3)
        y.backward()
        assert names(y.grad_fn, 3) == names(theirs, 3)


def test_nodes_of_classes_live_and_die_as_others() -> None:
    import gc
    import weakref
    x = torch.ones(3, requires_grad=True)
    for _ in range(3):
        with ao.AutogradGraph() as graph:
            held = [torch.sin(x * k).grad_fn for k in range(5000)]
            kinds = {type(f) for f in held}
            assert len(kinds) == 1
            y = torch.exp(x)
            function = y.grad_fn
            gone = weakref.ref(y)
            del y
            assert gone() is None
            gc.collect()
            del held[::2]
            held += [torch.cos(x * k).grad_fn for k in range(100)]
            gc.collect()
            graph.clear()
        assert {type(f).__name__ for f in held} == {"SinBackward0", "CosBackward0"}
        assert type(function).__name__ == "ExpBackward0"
        del held
        gc.collect()


@pytest.mark.parametrize("optimize", [False, True])
def test_tensors_are_of_torchs_package(optimize: bool) -> None:
    with ao.AutogradGraph(optimize=optimize):
        x = torch.ones(2, requires_grad=True) * 2
        assert type(x).__module__.partition(".")[0] == "torch"
        assert getattr(sys.modules[type(x).__module__], type(x).__qualname__) is type(x) is ao.CustomTensor
        assert pickle.loads(pickle.dumps(type(x))) is type(x)
        assert typing.get_type_hints(type(x))
        assert copy.copy(x.detach()).tolist() == copy.deepcopy(x.detach()).tolist() == [2.0, 2.0]
        assert pickle.loads(pickle.dumps(x)).tolist() == [2.0, 2.0]


def test_saved_tensors_load_without_this_library() -> None:
    with ao.AutogradGraph():
        x = torch.ones(2, requires_grad=True) * 2
        file = io.BytesIO()
        torch.save({"x": x, "y": x.detach(), "z": torch.ones(1) * 3}, file)
    script = ("import io, sys, torch; d = torch.load(io.BytesIO(sys.stdin.buffer.read()));"
              "print([(type(t) is torch.Tensor, t.tolist()) for t in d.values()], 'autograd_opt' in sys.modules)")
    found = subprocess.run([sys.executable, "-c", script], input=file.getvalue(), capture_output=True, check=True)
    assert found.stdout.decode().strip() == "[(True, [2.0, 2.0]), (True, [2.0, 2.0]), (True, [3.0])] False"
