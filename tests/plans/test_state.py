"""State that a function reaches: a plan is for one state, and what cannot be compared is recorded each time."""

from __future__ import annotations

import array
import collections
import contextlib
import contextvars
import functools
import random
import threading
import types
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
import torch

import autograd_opt as ao

Tensor = torch.Tensor
FACTOR = 2.0
Case = tuple[Callable[[Tensor], Tensor], Callable[[], Any]]
"""A function, and a change of what it reaches."""


class Settings:
    scale = 2.0

    @property
    def double(self) -> float:
        return 2 * self.scale


class Slots:
    __slots__ = ("__hidden", "scale")

    def __init__(self, scale: Any) -> None:
        self.scale = self.__hidden = scale


class Helped(torch.nn.Module):
    share = 2.0

    def forward(self, x: Tensor) -> Tensor:
        return self.helper(x)

    def helper(self, x: Tensor) -> Tensor:
        return x * FACTOR * self.share


class Called:
    def __call__(self, x: Tensor) -> Tensor:
        return x * FACTOR


class Attributes(collections.OrderedDict[str, float]):
    pass


def scaled(x: Tensor, by: float = 2.0, *, more: float = 1.0) -> Tensor:
    return x * by * more * getattr(scaled, "factor", 1.0)


def class_attribute() -> Case:
    kind = type("Kind", (Settings,), {})
    one = kind()
    return lambda x: x * one.scale, lambda: setattr(kind, "scale", 5.0)


def class_itself() -> Case:
    kind = type("Kind", (), {"scale": 2.0})
    return lambda x: x * kind.scale, lambda: setattr(kind, "scale", 5.0)


def class_property() -> Case:
    kind = type("Kind", (Settings,), {})
    one = kind()
    return lambda x: x * one.double, lambda: setattr(kind, "double", property(lambda self: 5.0))


def module_of_python() -> Case:
    config = types.ModuleType("config")
    config.SCALE = 2.0  # type: ignore[attr-defined]
    return lambda x: x * config.SCALE, lambda: setattr(config, "SCALE", 5.0)


def function_in_a_module() -> Case:
    config = types.ModuleType("config")
    scope: dict[str, Any] = {"SCALE": 2.0, "__name__": "config"}
    exec("def scale(x): return x * SCALE", scope)
    config.scale = scope["scale"]  # type: ignore[attr-defined]
    return lambda x: config.scale(x), lambda: scope.update(SCALE=5.0)


def slot(value: Any, other: Any) -> Case:
    slots = Slots(value)
    return lambda x: x * slots.scale, lambda: setattr(slots, "scale", other)


def helper(change: Callable[[type], Any]) -> Case:
    kind = type("Kind", (Helped,), {**Helped.__dict__})
    net = kind()
    return lambda x: net(x), lambda: change(kind)


def own_global(change: Callable[[dict[str, Any]], Any]) -> Case:
    """The helper method names a global of its own."""
    scope: dict[str, Any] = {"FACTOR": 2.0, "__name__": "program"}
    exec("class Kind:\n    def helper(self, x): return x * FACTOR\n    __call__ = helper", scope)
    one = scope["Kind"]()
    return lambda x: one.helper(x) + one(x), lambda: change(scope)


def copied(change: Callable[[Any], Any]) -> Case:
    other: Any = types.FunctionType(scaled.__code__, {"scaled": scaled, **globals()}, argdefs=(2.0,))
    other.__kwdefaults__, other.factor = {"more": 1.0}, 1.0
    other.__globals__["scaled"] = other
    return lambda x: other(x), lambda: change(other)


def partial() -> Case:
    part = functools.partial(scaled, by=2.0)
    return lambda x: part(x), lambda: part.keywords.update(by=5.0)


def container(one: Any, read: Callable[[Any], float], change: Callable[[Any], Any]) -> Case:
    return lambda x: x * read(one), lambda: change(one)


def tensor_attribute() -> Case:
    w: Any = torch.ones(1)
    w.scale = 2.0
    return lambda x: x * w.scale, lambda: setattr(w, "scale", 5.0)


def distribution() -> Case:
    one = torch.distributions.Normal(torch.zeros(1), 1.0, validate_args=False)
    return lambda x: one.log_prob(x), lambda: setattr(one, "loc", torch.full((1,), 5.0))


def held_distribution() -> Case:
    """An object of torch's that is an attribute which code names."""
    one = types.SimpleNamespace(prior=torch.distributions.Normal(torch.zeros(1), 1.0, validate_args=False))
    return lambda x: one.prior.log_prob(x), lambda: setattr(one.prior, "loc", torch.full((1,), 5.0))


def compiled_inside() -> Case:
    box = [2.0]
    inner = ao.compile(lambda x: x * box[0])
    return lambda x: inner(x), lambda: box.__setitem__(0, 5.0)


def context() -> Case:
    one = contextvars.ContextVar("one", default=2.0)
    return lambda x: x * one.get(), lambda: one.set(5.0)


def turned(one: Any) -> None:
    one.move_to_end("a")


def another_key(one: Any) -> None:
    one.pop("a")
    one.update(c=5.0)


def difference(one: Any) -> float:
    first, second = one.values()
    return float(first - second)


CASES: dict[str, Callable[[], Case]] = {
    "attribute of a class": class_attribute,
    "class": class_itself,
    "property": class_property,
    "module of Python's": module_of_python,
    "function in a module of Python's": function_in_a_module,
    "slot": lambda: slot(2.0, 5.0),
    "tensor in a slot": lambda: slot(torch.ones(1), torch.full((1,), 5.0)),
    "attribute of a module's class": lambda: helper(lambda kind: setattr(kind, "share", 7.0)),
    "method of a module's class": lambda: helper(lambda kind: setattr(kind, "helper", lambda self, x: x * 9)),
    "forward of a module's class": lambda: helper(lambda kind: setattr(kind, "forward", lambda self, x: x * 8)),
    "global of a helper method": lambda: own_global(lambda scope: scope.update(FACTOR=5.0)),
    "attribute of a function": lambda: copied(lambda f: setattr(f, "factor", 3.0)),
    "default value": lambda: copied(lambda f: setattr(f, "__defaults__", (4.0,))),
    "default value of a keyword": lambda: copied(lambda f: f.__kwdefaults__.update(more=4.0)),
    "code": lambda: copied(lambda f: setattr(f, "__code__", (lambda x, by, *, more: x * 9).__code__)),
    "keyword of a partial": partial,
    "set": lambda: container({1}, len, lambda s: s.add(2)),
    "deque": lambda: container(collections.deque([2.0]), lambda q: q[0], lambda q: q.appendleft(5.0)),
    "attribute of a tensor": tensor_attribute,
    "numpy array": lambda: container(np.full(1, 2.0), lambda a: float(a[0]), lambda a: a.fill(5.0)),
    "array": lambda: container(array.array("d", [2.0]), lambda a: a[0], lambda a: a.__setitem__(0, 5.0)),
    "bytearray": lambda: container(bytearray(b"a"), lambda a: a[0], lambda a: a.__setitem__(0, 5)),
    "object of a class of torch's": distribution,
    "attribute of a class of torch's": held_distribution,
    "another key": lambda: container({"a": 2.0, "b": 1.0}, difference, another_key),
    "another key of an OrderedDict": lambda: container(
        collections.OrderedDict(a=2.0, b=1.0), difference, another_key),
    "another key of a defaultdict": lambda: container(
        collections.defaultdict(float, a=2.0, b=1.0), difference, another_key),
    "order of an OrderedDict": lambda: container(collections.OrderedDict(a=2.0, b=1.0), difference, turned),
    "attribute of a dictionary": lambda: container(
        Attributes(), lambda d: getattr(d, "scale", 2.0), lambda d: setattr(d, "scale", 5.0)),
    "inner compiled function": compiled_inside,
    "context variable": context,
}


@pytest.mark.parametrize("name", CASES)
def test_state_that_was_changed(name: str) -> None:
    """A plan is made for one state, and another state has its own."""
    function, change = CASES[name]()
    f = ao.compile(function)
    x = torch.full((1,), 3.0)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for _ in range(3):
            before = f(x)
            assert torch.equal(before, function(x))
    change()
    assert not torch.equal(function(x), before)
    for _ in range(4):
        assert torch.equal(f(x), function(x))
    assert all(kind.operations for kind in f.report().kinds)


def test_a_global_of_a_called_object() -> None:
    f = ao.compile(Called())
    for factor in (2.0, 2.0, 2.0, 5.0, 5.0, 5.0):
        globals()["FACTOR"] = factor
        assert f(torch.ones(1)).item() == factor


def test_a_set_as_argument() -> None:
    f, flags = ao.compile(lambda x, s: x * len(s)), {1}
    for k in range(2, 10):
        assert f(torch.ones(1), flags).item() == len(flags)
        if k % 3 == 0:
            flags.add(k)


def test_a_comparison_adds_no_key() -> None:
    table = collections.defaultdict(float, a=2.0)
    f = ao.compile(lambda x: x * sum(table.values()))
    for _ in range(3):
        f(torch.ones(1))
    table.pop("a")
    f(torch.ones(1))
    assert not table


def generator() -> Iterator[int]:
    yield from range(99)


OPAQUE: dict[str, tuple[Callable[[], Any], Callable[[Any], float], str]] = {
    "iterator": (lambda: iter(range(99)), next, "an iterator"),
    "generator": (generator, next, "an iterator"),
    "objects": (lambda: np.array([2.0, None]), lambda a: a[0], "an array of Python objects"),
    "large": (lambda: np.ones(100_000), lambda a: float(a[0]), "a large array"),
    "numpy Generator": (lambda: np.random.default_rng(0), lambda r: float(r.normal()), "random numbers outside torch"),
    "RandomState": (lambda: np.random.RandomState(0), lambda r: r.randn(), "random numbers outside torch"),
    "Random": (lambda: random.Random(0), lambda r: r.random(), "random numbers outside torch"),
    "method": (lambda: random.Random(0).random, lambda draw: draw(), "random numbers outside torch"),
    "SystemRandom": (random.SystemRandom, lambda r: 1.0 + 0 * r.random(), "without a state"),
}


@pytest.mark.parametrize("held", [False, True])
@pytest.mark.parametrize("name", OPAQUE)
def test_state_that_nobody_can_compare(name: str, held: bool) -> None:
    make, read, reason = OPAQUE[name]
    one, other = types.SimpleNamespace(source=make()), types.SimpleNamespace(source=make())
    direct = one.source
    f = ao.compile((lambda x: x * read(one.source)) if held else (lambda x: x * read(direct)))
    with pytest.warns(UserWarning, match=reason):
        f(torch.ones(1))
    read(other.source)
    for _ in range(5):
        assert f(torch.ones(1)).item() == torch.tensor([read(other.source)]).float().item()
    assert reason in f.report().kinds[0].reason


def test_what_each_thread_has_for_itself_is_compared_in_the_thread_that_calls() -> None:
    own = threading.local()
    own.scale, own.weights = 2.0, [1.0]
    f = ao.compile(lambda x: x * own.scale * sum(own.weights))
    found: list[float] = []

    def call(scale: float | None = None) -> None:
        if scale is not None:
            own.scale, own.weights = scale, [1.0]
        found.append(f(torch.ones(1)).item())

    for _ in range(3):
        call()
    own.scale = 3.0
    call()
    own.weights.append(1.0)
    call()
    for scale in (5.0, 3.0):
        thread = threading.Thread(target=call, args=[scale])
        thread.start()
        thread.join()
    call()
    assert found == [2.0, 2.0, 2.0, 3.0, 6.0, 5.0, 3.0, 6.0]
    assert any("repeated" in str(kind) for kind in f.report().kinds)


SCALES = {"now": 2.0}


@contextlib.contextmanager
def doubled(key: str) -> Iterator[None]:
    """Twice the scale of `key` inside."""
    SCALES[key] *= 2
    yield
    SCALES[key] /= 2


def test_a_function_decorated_by_a_context() -> None:
    @doubled("now")
    def product(x: Tensor) -> Tensor:
        return x * SCALES["now"]

    f = ao.compile(lambda x: product(x))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for scale in (2.0, 2.0, 2.0, 3.0, 3.0, 3.0):
            SCALES["now"] = scale
            assert f(torch.ones(1)).item() == 2 * scale
    assert all(kind.operations for kind in f.report().kinds)


def test_what_no_code_names_is_in_nobodys_way() -> None:
    """A program's object may hold what cannot be compared, where the function does not read it."""
    one = types.SimpleNamespace(scale=2.0, lines=iter(range(9)), data=np.ones(100_000), lock=threading.Lock())
    f = ao.compile(lambda x: x * one.scale)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for scale in (2.0, 2.0, 2.0, 3.0, 3.0, 3.0):
            one.scale = scale
            assert f(torch.ones(1)).item() == scale
    assert [kind.calls for kind in f.report().kinds] == [2, 2]


def test_attributes_of_an_argument_are_recorded_each_time() -> None:
    def function(x: Any) -> Any:
        return x * x.scale

    f = ao.compile(function)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for k in range(5):
            x: Any = torch.ones(1)
            x.scale = k
            assert f(x).item() == k
    assert "attributes of a tensor" in f.report().kinds[0].reason


class Odd(tuple):
    """A tuple whose length is another thing, as e3nn's irreducible representations are."""

    def __len__(self) -> int:
        raise NotImplementedError


class OddList(list):
    def __iter__(self) -> Any:
        raise NotImplementedError


@pytest.mark.parametrize("held", [Odd((3, 4)), OddList([3, 4])], ids=["tuple", "list"])
def test_containers_whose_class_says_something_else_of_their_elements(held: Any) -> None:
    kind = type(held).__mro__[1]
    compiled = ao.compile(lambda x: x * kind.__getitem__(held, 0))
    for _ in range(3):
        assert compiled(torch.ones(1)).item() == 3
    if kind is list:
        list.__setitem__(held, 0, 5)
        assert compiled(torch.ones(1)).item() == 5
