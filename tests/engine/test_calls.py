"""Calls of torch's modules without the interpreter: the same results, and torch's own way where anything is special."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

import autograd_opt as ao


class Frames(nn.Module):
    """Remembers which functions of Python's lie between it and the test."""

    def forward(self, x: Tensor) -> Tensor:
        self.seen = []
        frame: Any = sys._getframe(1)
        while frame is not None and not frame.f_code.co_name.startswith("test_"):
            self.seen.append(frame.f_code.co_name)
            frame = frame.f_back
        return x


@pytest.fixture(autouse=True)
def _first_graph() -> None:
    with ao.AutogradGraph():
        pass


def gradients(model: nn.Module, x: Tensor, graph: bool) -> list[Tensor | None]:
    model.zero_grad()
    if graph:
        with ao.AutogradGraph(optimize=True):
            model(x).square().sum().backward()
    else:
        model(x).square().sum().backward()
    return [p.grad for p in model.parameters()]


def compare(model: nn.Module, x: Tensor) -> None:
    expected, found = gradients(model, x, False), gradients(model, x, True)
    for a, b in zip(expected, found, strict=True):
        assert (a is None) == (b is None)
        assert a is None or torch.equal(a, b)


def test_torchs_modules_are_called_without_frames() -> None:
    inner = Frames()
    model = nn.Sequential(nn.Identity(), nn.Sequential(inner))
    model(torch.ones(2))
    assert inner.seen.count("_call_impl") == 3
    with ao.AutogradGraph():
        model(torch.ones(2))
    assert inner.seen.count("_call_impl") == 1           # its own, which is not a class of torch's
    model(torch.ones(2))
    assert inner.seen.count("_call_impl") == 3


def test_gradients_are_torchs() -> None:
    torch.manual_seed(0)
    compare(nn.Sequential(
        nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 8, bias=False), nn.Tanh(),
        nn.Sequential(nn.Linear(8, 3), nn.Sigmoid()), nn.LayerNorm(3),
        nn.Dropout(0.0), nn.Flatten(), nn.ReLU(inplace=True), nn.GELU()), torch.randn(5, 4))
    compare(nn.TransformerEncoderLayer(8, 2, 16, dropout=0.0, batch_first=True), torch.randn(2, 3, 8))


def test_hooks_of_a_module_are_called() -> None:
    seen: list[str] = []
    layer = nn.Linear(2, 2)
    model = nn.Sequential(layer, nn.ReLU())
    with ao.AutogradGraph():
        model(torch.ones(1, 2))
        handles = [
            layer.register_forward_pre_hook(lambda m, a: seen.append("before")),
            layer.register_forward_hook(lambda m, a, r: seen.append("after")),
            layer.register_full_backward_hook(lambda m, gi, go: seen.append("backward")),
            model.register_full_backward_pre_hook(lambda m, go: seen.append("first")),
        ]
        model(torch.ones(1, 2, requires_grad=True)).sum().backward()
        assert seen == ["before", "after", "first", "backward"]
        for handle in handles:
            handle.remove()
        model(torch.ones(1, 2))
    assert len(seen) == 4


def test_global_hooks_are_called() -> None:
    seen: list[str] = []
    model = nn.Sequential(nn.Linear(2, 2), nn.ReLU())
    with ao.AutogradGraph():
        model(torch.ones(1, 2))
        handle = nn.modules.module.register_module_forward_hook(lambda m, a, r: seen.append(type(m).__name__))
        try:
            model(torch.ones(1, 2))
        finally:
            handle.remove()
        model(torch.ones(1, 2))
    assert seen == ["Linear", "ReLU", "Sequential"]


def test_a_forward_of_the_objects_own_is_called() -> None:
    layer = nn.Linear(2, 2)
    with ao.AutogradGraph():
        layer(torch.ones(1, 2))
        layer.forward = lambda x: x * 3  # type: ignore[method-assign]
        assert torch.equal(layer(torch.ones(1, 2)), torch.full((1, 2), 3.0))
        del layer.forward
        assert torch.equal(layer(torch.ones(1, 2)), F.linear(torch.ones(1, 2), layer.weight, layer.bias))


def patched(owner: Any, name: str, value: Any) -> Iterator[None]:
    former = owner.__dict__[name]
    setattr(owner, name, value)
    try:
        yield
    finally:
        setattr(owner, name, former)


@pytest.mark.parametrize(("owner", "name", "make"), [
    (nn.Linear, "forward", lambda former: lambda self, x: former(self, x) + 1),
    (nn.Module, "_call_impl", lambda former: lambda self, *a, **k: former(self, *a, **k) + 1),
    (nn.Module, "__call__", lambda former: lambda self, *a, **k: former(self, *a, **k) + 1),
    (F, "linear", lambda former: lambda *a: former(*a) + 1),
])
def test_what_is_replaced_is_called(owner: Any, name: str, make: Callable[[Any], Any]) -> None:
    layer, x = nn.Linear(2, 2), torch.ones(1, 2)
    with ao.AutogradGraph():
        expected = layer(x)
        replacing = patched(owner, name, make(owner.__dict__[name]))
        next(replacing)
        try:
            assert torch.equal(layer(x), expected + 1)
        finally:
            next(replacing, None)
        assert torch.equal(layer(x), expected)


@contextmanager
def added(owner: Any, name: str, value: Any) -> Iterator[None]:
    """`owner.name` is `value` for the while, whether it had one or inherited it."""
    former = owner.__dict__.get(name)
    setattr(owner, name, value)
    try:
        yield
    finally:
        if former is None:
            delattr(owner, name)
        else:
            setattr(owner, name, former)


def of_zeros(name: str, ask: Callable[[Any, str], Any]) -> Callable[[Any, str], Any]:
    return lambda self, n: torch.zeros(2, 2) if n == name else ask(self, n)


def linear() -> nn.Module:
    return nn.Linear(2, 2)


CHANGES: dict[str, tuple[Callable[[], nn.Module], Any, str, Any]] = {
    "call": (linear, nn.Linear, "__call__", lambda self, *a: nn.Module.__call__(self, *a) + 1),
    "call_impl": (linear, nn.Linear, "_call_impl", lambda self, *a: nn.Module._call_impl(self, *a) + 1),
    "compiled": (linear, nn.Linear, "_compiled_call_impl", staticmethod(lambda x: x + 1)),
    "missing attributes": (linear, nn.Linear, "__getattr__", of_zeros("weight", nn.Module.__getattr__)),
    "attributes": (linear, nn.Linear, "__getattribute__", of_zeros("weight", object.__getattribute__)),
    "weight": (linear, nn.Linear, "weight", torch.zeros(2, 2)),
    "bias": (linear, nn.Linear, "bias", torch.full((2,), 7.0)),
    "iteration": (lambda: nn.Sequential(nn.Linear(2, 2), nn.Tanh()), nn.Sequential, "__iter__",
                  lambda self: reversed(self._modules.values())),
    "relu": (nn.ReLU, F, "relu", lambda x, inplace=False: x + 1),
    "tanh": (nn.Tanh, torch, "tanh", lambda x: x + 1),
}


@pytest.mark.parametrize("name", CHANGES)
def test_classes_that_were_changed_do_what_they_say_now(name: str) -> None:
    make, owner, attribute, value = CHANGES[name]
    model, x = make(), torch.ones(1, 2)
    with ao.AutogradGraph():
        plain = model(x)
        with added(owner, attribute, value):
            inside = model(x)
        assert torch.equal(model(x), plain)
    with added(owner, attribute, value):
        expected = model(x)
        with ao.AutogradGraph():
            opened_later = model(x)
    assert not torch.equal(expected, plain)
    assert torch.equal(inside, expected)
    assert torch.equal(opened_later, expected)


def test_attributes_of_an_object_come_before_its_parameters() -> None:
    layer, x = nn.Linear(2, 2), torch.ones(1, 2)
    with ao.AutogradGraph():
        layer(x)
        layer.__dict__["weight"] = torch.zeros(2, 2)
        assert torch.equal(layer(x), layer.bias.reshape(1, 2))
        layer.__dict__["bias"] = torch.full((2,), 3.0)
        assert torch.equal(layer(x), torch.full((1, 2), 3.0))
        del layer.__dict__["weight"]
        assert torch.equal(layer(x), F.linear(x, layer.weight, layer.__dict__["bias"]))


def test_calls_are_short_again_when_torchs_call_is_back() -> None:
    inner = Frames()
    model = nn.Sequential(inner)
    replacing = patched(nn.Module, "__call__", lambda self, *a: nn.Module._call_impl(self, *a))
    next(replacing)
    with ao.AutogradGraph():
        model(torch.ones(2))
    assert inner.seen.count("_call_impl") == 2
    next(replacing, None)
    with ao.AutogradGraph():
        model(torch.ones(2))
    assert inner.seen.count("_call_impl") == 1


def test_an_iteration_of_the_users_is_used() -> None:
    class Backwards(nn.Sequential):
        def __iter__(self) -> Iterator[nn.Module]:
            return reversed(list(self._modules.values()))  # type: ignore[arg-type]

    model = Backwards(nn.Linear(2, 2), nn.Linear(2, 2))
    compare(model, torch.randn(3, 2))


def test_parameters_are_looked_up_each_time() -> None:
    layer, x = nn.Linear(2, 2), torch.ones(1, 2)
    with ao.AutogradGraph(optimize=True):
        layer(x)
        layer.weight = nn.Parameter(torch.zeros(2, 2))
        assert torch.equal(layer(x), layer.bias.reshape(1, 2))
        layer.bias = None
        assert torch.equal(layer(x), torch.zeros(1, 2))
        layer._parameters["weight"] = nn.Parameter(torch.ones(2, 2))
        assert torch.equal(layer(x), torch.full((1, 2), 2.0))
        del layer.weight
        layer.weight = torch.full((2, 2), 4.0)
        assert torch.equal(layer(x), torch.full((1, 2), 8.0))
        del layer.weight
        with pytest.raises(AttributeError, match="weight"):
            layer(x)


def test_parametrized_and_swapped_parameters() -> None:
    layer = torch.nn.utils.parametrizations.weight_norm(nn.Linear(3, 2))
    compare(layer, torch.randn(4, 3))
    model, x = nn.Sequential(nn.Linear(2, 2)), torch.ones(1, 2)
    with ao.AutogradGraph():
        swapped = {"0.weight": torch.zeros(2, 2), "0.bias": torch.full((2,), 5.0)}
        assert torch.equal(torch.func.functional_call(model, swapped, (x,)), torch.full((1, 2), 5.0))


def test_other_ways_to_call() -> None:
    layer, x = nn.Linear(2, 2), torch.ones(1, 2)
    with ao.AutogradGraph():
        assert torch.equal(layer(input=x), layer(x))
        for args in ((), (x, x), ("x",)):
            with pytest.raises(TypeError):
                layer(*args)
        with pytest.raises(TypeError, match="other"):
            layer(x, other=x)
        with pytest.raises(RuntimeError, match="mat1 and mat2"):
            layer(torch.ones(1, 3))
        assert nn.Sequential()("as it is") == "as it is"  # type: ignore[arg-type]
        assert nn.ReLU()(x) is not x
        changed = x.clone()
        assert nn.ReLU(inplace=True)(changed) is changed


def test_a_module_that_changes_its_container() -> None:
    class Grows(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            model.add_module("more", nn.Identity())
            return x

    model = nn.Sequential(Grows(), nn.Identity())
    with ao.AutogradGraph(), pytest.raises(RuntimeError, match="changed size"):
        model(torch.ones(1))


def test_profilers_and_modes_see_the_calls() -> None:
    layer, x = nn.Linear(2, 2), torch.ones(1, 2)
    names: list[str] = []

    class Sees(TorchFunctionMode):
        def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            names.append(func.__name__)
            return func(*args, **(kwargs or {}))

    with ao.AutogradGraph() as graph:
        layer(x)
        sys.setprofile(lambda frame, event, argument: names.append(frame.f_code.co_name))
        try:
            layer(x)
        finally:
            sys.setprofile(None)
        assert {"_wrapped_call_impl", "_call_impl", "forward"} <= set(names)
        names.clear()
        with Sees():
            layer(x)
        assert names == ["linear"]
        assert [n.op.name for n in graph.tape.snapshot() if not n.is_leaf] == ["linear"] * 3


def test_nodes_know_their_line() -> None:
    model, x = nn.Sequential(nn.Linear(2, 2), nn.ReLU()), torch.ones(1, 2)
    with ao.AutogradGraph() as graph:
        model(x)
        sources = {n.source for n in graph.tape.snapshot() if not n.is_leaf}
    assert len(sources) == 1
    assert __file__ in next(iter(sources))


def scopes(traced: Any) -> str:
    return re.sub(r"___torch_mangle_\d+\.", "", str(traced.graph))


def test_while_a_trace_maps_modules_torch_calls_them(monkeypatch: pytest.MonkeyPatch) -> None:
    inner = Frames()
    model = nn.Sequential(nn.Identity(), nn.Sequential(inner))
    with ao.AutogradGraph():
        for mapping, calls in ((None, 1), ({}, 3), (None, 1)):
            monkeypatch.setattr(torch.jit._trace, "_trace_module_map", mapping)
            model(torch.ones(2))
            assert inner.seen.count("_call_impl") == calls


def test_a_trace_records_scopes() -> None:
    model, x = nn.Sequential(nn.Linear(2, 2), nn.ReLU()), torch.ones(1, 2)
    expected = scopes(torch.jit.trace(model, x))
    with torch.no_grad(), ao.AutogradGraph():
        model(x)
        assert scopes(torch.jit.trace(model, x)) == expected
    assert scopes(torch.jit.trace(model, x)) == expected
