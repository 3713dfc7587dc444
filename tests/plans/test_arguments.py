"""Tensors that a plan is given: which of them share memory, and kinds of tensors for which no plan is made."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode

import autograd_opt as ao

Tensor = torch.Tensor


def difference(x: Tensor, y: Tensor) -> Tensor:
    return ((x - 2 * y) ** 2).sum()


def write_between(x: Tensor, y: Tensor) -> Tensor:
    a = x * 2
    b = a + 1
    y.zero_()
    return a.sin() + b


OTHERS: dict[str, Callable[[Tensor], Tensor]] = {
    "separate": torch.ones_like,
    "detached": lambda x: x.detach(),
    "view": lambda x: x.detach()[:],
    "reversed overlap": lambda x: x.detach().as_strided((3,), (1,), 1),
    "overlap": lambda x: x.detach().as_strided((3,), (1,), 0),
}


@pytest.mark.parametrize("function", [difference, write_between])
@pytest.mark.parametrize("first", OTHERS)
def test_operands_that_share_memory_are_another_kind(function: Any, first: str) -> None:
    """A plan for operands in one memory is not for separate ones, and the other way round."""
    f = ao.compile(function)
    for name in [first] * 4 + [*OTHERS] * 2:
        found, expected = (torch.arange(8.0)[2:5] for _ in range(2))
        for _ in range(2):
            result = f(found, OTHERS[name](found))
            torch.testing.assert_close(result, function(expected, OTHERS[name](expected)))
            assert torch.equal(found, expected)
    assert len(f.report().kinds) == 4          # a detached operand lies as a view does
    assert not any(kind.reason for kind in f.report().kinds)


def test_parameters_that_share_memory_are_another_kind() -> None:
    net, twin = torch.nn.Linear(2, 2), torch.nn.Linear(2, 2)
    twin.weight.data, twin.bias.data = net.weight.data, net.bias.data
    f = ao.compile(lambda x: net(x) - 2 * twin(x))
    x = torch.ones(1, 2)
    for k in range(6):
        if k == 3:
            twin.weight.data = torch.zeros(2, 2)
        torch.testing.assert_close(f(x), net(x) - 2 * twin(x))


def test_a_gradient_that_shares_memory_is_another_kind() -> None:
    def function(x: Tensor, y: Tensor) -> None:
        (x * x).sum().backward()
        y.mul_(2)

    f = ao.compile(function)
    for shared in (False, False, False, True, True, True):
        seen = []
        for call in (f, function):
            x = torch.tensor([1.0, 2.0], requires_grad=True)
            x.grad = torch.ones(2)
            y = x.grad.view(2) if shared else torch.ones(2)
            call(x, y)
            assert x.grad is not None
            seen.append((x.grad.tolist(), y.tolist()))
        assert seen[0] == seen[1]


def test_two_storages_in_one_memory_are_not_planned() -> None:
    f = ao.compile(write_between)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for _ in range(4):
            results = []
            for call in (f, write_between):
                array = np.arange(3.0)
                results.append(call(torch.from_numpy(array), torch.from_numpy(array)))
            torch.testing.assert_close(*results)
    assert "same memory" in f.report().kinds[0].reason


class Fake:
    """Tensors without memory, of a class that computes shapes alone."""

    mode = FakeTensorMode()

    def __new__(cls) -> Any:
        return cls.mode.from_tensor(torch.ones(3))


def test_tensors_with_kernels_of_their_own_are_recorded_each_time() -> None:
    f = ao.compile(lambda x: (x * 2).sin())
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for _ in range(4):
            assert f(Fake()).shape == (3,)
    assert "in its own way" in f.report().kinds[0].reason


def test_a_lazy_module_is_planned_once_it_has_shapes() -> None:
    net = torch.nn.LazyLinear(2)
    f = ao.compile(lambda x: net(x) + (0 if weight is None else weight.numel()))
    weight: Any = None
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for _ in range(6):
            assert torch.equal(f(torch.ones(1, 3)), net(torch.ones(1, 3)))
    assert any(kind.operations for kind in f.report().kinds)
    weight = torch.nn.parameter.UninitializedParameter()
    with pytest.raises(ValueError, match="uninitialized"):
        f(torch.ones(1, 3))


def test_lazy_conjugates_are_recorded_each_time() -> None:
    f = ao.compile(lambda x: x * 2)
    z = torch.tensor([1 + 2j])
    with pytest.warns(UserWarning, match="lazy conjugate"):
        f(z.conj())
    for given in (z.conj(), z.conj(), z, z, z, z.conj(), z):
        assert torch.equal(f(given), given * 2)
    assert sorted(kind.calls for kind in f.report().kinds) == [3, 3]


def nested() -> Tensor:
    return torch.nested.nested_tensor([torch.ones(2, 3), torch.ones(1, 3)])


UNUSUAL: dict[str, tuple[Callable[[], Tensor], Callable[[Tensor], Tensor]]] = {
    "csr": (lambda: torch.eye(2).to_sparse_csr(), lambda s: s @ torch.ones(2, 1)),
    "csc": (lambda: torch.eye(2).to_sparse_csc(), lambda s: s @ torch.ones(2, 1)),
    "coo": (lambda: torch.eye(2).to_sparse(), lambda s: s @ torch.ones(2, 1)),
    "nested": (nested, lambda n: n.to_padded_tensor(0.0) * 2),
}


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("reached", [False, True])
@pytest.mark.parametrize("name", UNUSUAL)
def test_sparse_and_nested_tensors_are_recorded_each_time(name: str, reached: bool) -> None:
    make, function = UNUSUAL[name]
    t = make()
    f = ao.compile((lambda: function(t)) if reached else function)
    given = () if reached else (t,)
    for _ in range(6):
        assert torch.equal(f(*given), function(t))
    (kind,) = f.report().kinds
    assert "sparse or nested or quantized" in kind.reason
    assert kind.calls == 5
    assert "sparse or nested or quantized" in str(f.report())


@pytest.mark.filterwarnings("ignore")
def test_a_plan_for_a_plain_tensor_is_not_for_a_sparse_one() -> None:
    f = ao.compile(lambda x: x @ torch.ones(2, 1))
    for t in (torch.eye(2), torch.eye(2), torch.eye(2), torch.eye(2).to_sparse_csr(), torch.eye(2)):
        assert f(t).tolist() == [[1.0], [1.0]]
    assert [bool(kind.reason) for kind in f.report().kinds] == [False, True]


def test_calls_are_planned_again_when_what_forbade_it_is_gone() -> None:
    net = torch.nn.Linear(2, 1)
    f = ao.compile(net)
    handle = net.register_forward_hook(lambda module, args, out: out * 2)
    with pytest.warns(UserWarning, match="has hooks"):
        assert torch.equal(f(torch.ones(2)), net(torch.ones(2)))
    assert "has hooks" in f.report().kinds[0].reason
    handle.remove()
    for _ in range(5):
        assert torch.equal(f(torch.ones(2)), net(torch.ones(2)))
    (kind,) = f.report().kinds
    assert not kind.reason
    assert kind.operations


def add_key(d: Any) -> Any:
    d["y"] = d["x"] * 2
    return d["y"]


def replace_key(d: Any) -> Any:
    d["x"] = d["x"] * 2
    return d["x"] + 1


def append(d: Any) -> Any:
    d["list"].append(d["x"] * 2)
    return d["x"] * 3


def reshape(d: Any) -> Any:
    d["x"].unsqueeze_(0)
    return d["x"] * 2


def transpose(d: Any) -> Any:
    d["matrix"].t_()
    return d["matrix"] * 2


def follow(d: Any) -> Any:
    d["x"].requires_grad_()
    return (d["x"] ** 2).sum().detach()


def replace_data(d: Any) -> Any:
    d["x"].data = d["x"].data * 2
    return d["x"] + 1


@pytest.mark.parametrize(
    "function", [add_key, replace_key, append, reshape, transpose, follow, replace_data], ids=lambda f: f.__name__
)
def test_what_else_is_changed_of_arguments(function: Callable[[Any], Any]) -> None:
    """Lists, dictionaries, shapes, `requires_grad` and memory: such a call is recorded each time."""
    def seen(call: Any) -> Any:
        given = {"x": torch.ones(2), "matrix": torch.arange(4.0).view(2, 2), "list": []}
        result = call(given)
        x = given["x"]
        assert isinstance(x, Tensor)
        return result.tolist(), x.tolist(), x.requires_grad, given["matrix"].tolist(), len(given["list"]), [*given]

    f = ao.compile(function)
    with pytest.warns(UserWarning, match="it (changes a list|gives a tensor)"):
        assert seen(f) == seen(function)
    for _ in range(4):
        assert seen(f) == seen(function)
    assert len(f.report().kinds) == 1


def test_memory_of_a_parameter_that_the_function_replaces() -> None:
    p, q = torch.nn.Parameter(torch.ones(2)), torch.nn.Parameter(torch.ones(2))

    def step(x: Tensor, p: Any) -> Any:
        p.data = p.data * 2
        return (x * p).detach()

    f = ao.compile(lambda x: step(x, p))
    with pytest.warns(UserWarning, match="gives a tensor from outside"):
        f(torch.ones(2))
    step(torch.ones(2), q)
    for _ in range(4):
        assert torch.equal(f(torch.ones(2)), step(torch.ones(2), q))
        assert torch.equal(p, q)


def test_an_unknown_option_names_those_of_compile() -> None:
    for wrong, known in (("exactt", "exact"), ("patiense", "patience"), ("verfy", "verify")):
        with pytest.raises(TypeError, match=rf"compile\(\) has no option '{wrong}', did you mean '{known}'"):
            ao.compile(**{wrong: True})  # type: ignore[call-overload]
        with pytest.raises(TypeError, match=f"did you mean '{known}'"):
            ao.compile(torch.sin, **{wrong: True})  # type: ignore[call-overload]
