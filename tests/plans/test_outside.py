"""What a call does to the world outside, and what it reads there besides elements: no repetition leaves it out."""

from __future__ import annotations

import contextlib
import copy
import ctypes
import importlib
import io
import multiprocessing
import queue
import random
import sys
import time
import types
import warnings
import weakref
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
import torch
from torch.autograd import forward_ad

import autograd_opt as ao
from autograd_opt.plans.capture import Watch

Tensor = torch.Tensor
OWN = torch.Generator()
SEEDS: dict[str, tuple[Callable[[], Any], Callable[[], float]]] = {
    "torch": (lambda: torch.manual_seed(7), lambda: torch.rand(()).item()),
    "torch, a state": (lambda: torch.set_rng_state(STATE), lambda: torch.rand(()).item()),
    "a generator": (lambda: OWN.manual_seed(5), lambda: torch.rand((), generator=OWN).item()),
    "python": (lambda: random.seed(3), random.random),
    "numpy": (lambda: np.random.seed(3), lambda: float(np.random.rand())),   # noqa: NPY002
}
STATE = torch.Generator().manual_seed(9).get_state()


@pytest.fixture(autouse=True)
def quietly() -> Iterator[None]:
    state = random.getstate(), np.random.get_state()    # noqa: NPY002
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield
    random.setstate(state[0])
    np.random.set_state(state[1])         # noqa: NPY002


@pytest.mark.parametrize("case", SEEDS)
def test_seeds_are_set_at_each_call(case: str) -> None:
    seed, draw = SEEDS[case]
    compiled = ao.compile(lambda x: (seed(), x * 2)[1])
    seed()
    right = draw()
    for _ in range(5):
        compiled(torch.ones(1))
        assert draw() == right


OUT = queue.SimpleQueue[int]()
EFFECTS: dict[str, Callable[[Tensor], Any]] = {
    "print": lambda x: (print("step"), x * 2)[1],
    "write": lambda x: (sys.stdout.write("step"), x * 2)[1],
    "queue": lambda x: (OUT.put(1), x * 2)[1],
    "warn": lambda x: (warnings.warn("step", stacklevel=1), x * 2)[1],
    "a mode": lambda x: (x * 2, torch.set_grad_enabled(False))[0],
    "a dtype": lambda x: (x * 2, torch.set_default_dtype(torch.float64))[0],
}


@pytest.mark.parametrize("case", EFFECTS)
def test_effects_come_at_each_call(case: str) -> None:
    def run(f: Callable[[Tensor], Any]) -> Any:
        text, seen, modes = io.StringIO(), set[float](), []
        with contextlib.redirect_stdout(text), warnings.catch_warnings(record=True) as warned:
            warnings.simplefilter("always")
            for _ in range(5):
                result = f(torch.ones(1, requires_grad=True))
                seen.add(result.item())
                modes.append((torch.is_grad_enabled(), torch.get_default_dtype()))
                torch.set_grad_enabled(True)
                torch.set_default_dtype(torch.float32)
        count = OUT.qsize()
        while not OUT.empty():
            OUT.get()
        return text.getvalue(), len(seen), modes, count, sum(str(w.message) == "step" for w in warned)

    assert run(ao.compile(EFFECTS[case])) == run(EFFECTS[case])


def test_the_time_is_read_at_each_call() -> None:
    compiled = ao.compile(lambda x: x * time.perf_counter())
    for _ in range(3):
        compiled(torch.ones(1))
    assert [kind.reason for kind in compiled.report().kinds] == ["it calls perf_counter"]


FACTOR = 1.0
TABLE = {"scale": 1.0}
NUMBER = ctypes.c_double(1.0)
SHARED = multiprocessing.Value("d", 1.0)
VIEW, VALUES = types.MappingProxyType(TABLE), TABLE.values()
NAMES = ["scale"]
MODULE = types.ModuleType("ao_plans_settings")
sys.modules["ao_plans_settings"] = MODULE


class Meta(type):
    @property
    def scale(cls) -> float:
        return FACTOR


class WithMeta(metaclass=Meta):
    pass


class Settings:
    scale = 1.0
    __match_args__ = ("scale",)

    def method(self) -> None:
        pass


class Held:
    def __init__(self, scale: float) -> None:
        self.scale = scale


SETTINGS = Settings()
HELD = Held(1.0)
WEAK = weakref.ref(HELD)
METHOD = weakref.WeakMethod(SETTINGS.method)


def loop(x: Tensor) -> Tensor:
    for name in ("scale", "__doc__"):
        x = x * (getattr(Settings, name) or 1)
    return x


def listed(x: Tensor) -> Tensor:
    for name in NAMES:
        x = x * getattr(Settings, name)
    return x


def pattern(x: Tensor) -> Tensor:
    match SETTINGS:
        case Settings(scale=s):
            return x * s
    return x


def position(x: Tensor) -> Tensor:
    match SETTINGS:
        case Settings(s):
            return x * s
    return x


def imported(x: Tensor) -> Tensor:
    import ao_plans_settings  # type: ignore[import-not-found]
    return x * ao_plans_settings.scale


def imported_from(x: Tensor) -> Tensor:
    from ao_plans_settings import scale
    return x * scale


READ: dict[str, Callable[[Tensor], Tensor]] = {
    "names in a tuple": loop,
    "names in a list": listed,
    "a pattern by names": pattern,
    "a pattern by positions": position,
    "an import": imported,
    "an import of a name": imported_from,
    "sys.modules": lambda x: x * sys.modules["ao_plans_settings"].scale,
    "a module's own getattr": lambda x: x * MODULE.other,
    "a weak reference": lambda x: x * WEAK().scale,  # type: ignore[union-attr]
    "a weak method": lambda x: x * METHOD().__self__.scale,  # type: ignore[union-attr]
    "a metaclass": lambda x: x * WithMeta.scale,
    "a proxy of a dictionary": lambda x: x * VIEW["scale"],
    "a view of a dictionary": lambda x: x * sum(VALUES),
    "a number of C's": lambda x: x * NUMBER.value,
    "a number of several processes": lambda x: x * SHARED.value,
}


def setting(value: float) -> None:
    global FACTOR
    FACTOR = TABLE["scale"] = NUMBER.value = SHARED.value = value
    MODULE.scale = Settings.scale = HELD.scale = value  # type: ignore[attr-defined]


def other(name: str) -> float:
    if name != "other":
        raise AttributeError(name)
    return FACTOR


MODULE.__getattr__ = other  # type: ignore[method-assign]


@pytest.mark.parametrize("case", READ)
def test_what_is_read_is_as_it_is(case: str) -> None:
    compiled = ao.compile(READ[case])
    for value in (1.0, 1.0, 1.0, 10.0, 10.0, 1.0, 10.0):
        setting(value)
        assert compiled(torch.ones(1)).item() == value
    setting(1.0)
    if case != "a weak method":             # `__self__` is another object's each time
        assert sum(not kind.reason and kind.calls > 1 for kind in compiled.report().kinds) == 2


def test_what_is_weakly_known_is_not_held() -> None:
    held = Held(2.0)
    weak = weakref.ref(held)
    compiled = ao.compile(lambda x: x * (1.0 if weak() is None else weak().scale))  # type: ignore[union-attr]
    assert [compiled(torch.ones(1)).item() for _ in range(3)] == [2.0] * 3
    del held
    assert [compiled(torch.ones(1)).item() for _ in range(3)] == [1.0] * 3


@pytest.mark.parametrize("there", [False, True])
def test_gradients_of_what_requires_none(there: bool) -> None:
    """A gradient that comes, goes or is another one is another kind of call."""
    p = torch.nn.Parameter(torch.ones(2), requires_grad=False)
    p.grad = torch.full((2,), 5.0) if there else None

    def function(x: Tensor) -> Tensor:
        return x * 2 if p.grad is None else x * 2 - p.grad

    compiled = ao.compile(function)
    for k in range(12):
        if k % 3 == 0 and k:
            p.grad = torch.full((2,), float(k)) if p.grad is None else None
        x = torch.ones(2)
        torch.testing.assert_close(compiled(x), function(x))
    assert any(not kind.reason and kind.calls > 1 for kind in compiled.report().kinds)


ASKED: dict[str, Callable[[Tensor], Tensor]] = {
    "_version": lambda x: x * (5 if x._version else 1),
    "storage_offset": lambda x: x * (x.storage_offset() + 1),
    "grad": lambda x: x * (1 if x.grad is None else 7),
    "_base": lambda x: x * (1 if x._base is None else x._base.numel()),
}


@pytest.mark.parametrize("case", ASKED)
@pytest.mark.parametrize("follows", [False, True])
def test_what_is_asked_of_an_operand(case: str, follows: bool) -> None:
    function = ASKED[case]
    compiled = ao.compile(function)
    for k in range(8):
        x = torch.arange(6.0)[k % 3 : k % 3 + 3]
        if k > 4:
            x.add_(1)
        x.requires_grad_(follows)
        x = x.exp() if k == 6 else x * 1 if k == 7 else x
        if k == 5:
            x.grad = torch.ones(3)
        torch.testing.assert_close(compiled(x), function(x))


def test_transforms_without_gradients() -> None:
    compiled = ao.compile(lambda x: (x * x * 3).sin())
    x = torch.ones(3)
    with torch.no_grad():
        for _ in range(3):
            compiled(x)
        torch.testing.assert_close(torch.vmap(compiled)(torch.ones(2, 3)), (torch.ones(2, 3) * 3).sin())
        torch.testing.assert_close(torch.func.jvp(compiled, (x,), (x,))[1], 6 * (3 * x).cos())
        for _ in range(2):
            with forward_ad.dual_level():
                tangent = forward_ad.unpack_dual(compiled(forward_ad.make_dual(x, x))).tangent
                torch.testing.assert_close(tangent, 6 * (3 * x).cos())


def test_a_copy_of_a_compiled_function_begins_anew() -> None:
    class Net(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.step = ao.compile(lambda x: x * 2, check_every=3)

    net = Net()
    for copied in (copy.deepcopy(net.step), copy.copy(net.step), copy.deepcopy(net).step):
        assert copied is not net.step
        assert copied.check_every == 3
        for _ in range(3):
            assert copied(torch.ones(2)).tolist() == [2.0, 2.0]


class Picky:
    """An object whose class computes its attributes, and refuses some."""

    __slots__ = ()

    def __getattr__(self, name: str) -> float:
        if name != "scale":
            raise ValueError(f"no {name}")
        return 3.0


def test_an_object_that_refuses_attributes_is_reached() -> None:
    picky = Picky()
    f = ao.compile(lambda x: x * picky.scale)
    for _ in range(4):
        assert f(torch.ones(2)).tolist() == [3.0, 3.0]


SOURCE = """
import random
OWN = random.Random(3)
DRAWN = [OWN.random() for _ in range(3)]
"""


@pytest.fixture
def folder(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> Any:
    """A folder of modules to import."""
    monkeypatch.syspath_prepend(str(tmp_path))
    return tmp_path


def test_what_a_module_draws_when_it_is_imported_is_drawn_once(folder: Any) -> None:
    """Whoever imports it: a library does, at the first call of a function of its own."""
    (folder / "drawing_once.py").write_text(SOURCE)
    with Watch() as imports:
        module = importlib.import_module("drawing_once")
    with Watch() as draws:
        module.OWN.random()
    assert (imports.reason, draws.reason) == ("", "it draws random numbers outside torch")


def test_a_function_that_is_called_while_a_module_is_imported_draws_at_each_call(folder: Any) -> None:
    (folder / "compiled_while_imported.py").write_text("""
import random
import torch
import autograd_opt as ao
OWN = random.Random(3)
compiled = ao.compile(lambda x: x * OWN.random())
found = [compiled(torch.ones(1)).item() for _ in range(4)]
""")
    found = importlib.import_module("compiled_while_imported").found
    own = random.Random(3)
    assert found == [pytest.approx(own.random()) for _ in range(4)]
