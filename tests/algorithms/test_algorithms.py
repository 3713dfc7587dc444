"""Every algorithm computes inside a graph what it computes under torch, and draws the same random numbers."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import AbstractContextManager, nullcontext
from functools import cache
from typing import Any

import pytest
import torch
from torch.utils._pytree import tree_flatten

import autograd_opt as ao
from benchmarks.whole_programs import ALGORITHMS, MODULES
from tests.algorithms.counted import PAGE, SURPLUS, counts

MODES = {
    "written": {"optimize": False},
    "optimized": {"optimize": True},
    "proved": {"optimize": True, "verify": True},
}


@pytest.fixture(autouse=True)
def double() -> Iterator[None]:
    before = torch.get_default_dtype()
    torch.set_default_dtype(torch.float64)
    yield
    torch.set_default_dtype(before)


def outcome(name: str, context: AbstractContextManager[Any]) -> tuple[dict[str, Any], torch.Tensor]:
    torch.manual_seed(0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        with context:
            found = ALGORITHMS[name]()
    return found, torch.get_rng_state()


@cache
def eager(name: str) -> tuple[dict[str, Any], torch.Tensor]:
    return outcome(name, nullcontext())


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("name", sorted(ALGORITHMS))
def test_as_torch(name: str, mode: str) -> None:
    wanted, drawn = eager(name)
    found, mine = outcome(name, ao.AutogradGraph(**MODES[mode]))
    assert found.keys() == wanted.keys()
    for key, value in wanted.items():
        torch.testing.assert_close(found[key], value, rtol=1e-7, atol=1e-9, equal_nan=True,
                                   msg=lambda message, key=key: f"{key}: {message}")
    assert torch.equal(mine, drawn)


@pytest.mark.parametrize("name", sorted(ALGORITHMS))
def test_something_is_learned(name: str) -> None:
    """An algorithm that returns nothing but zeros would agree with anything."""
    values = [torch.as_tensor(v) for v in tree_flatten(eager(name)[0])[0] if v is not None]
    assert values
    assert any(v.is_floating_point() and bool(v.isfinite().all()) and bool((v != 0).any()) for v in values)


@pytest.mark.parametrize("name", sorted(ALGORITHMS))
def test_no_more_kernels_than_eager(name: str) -> None:
    eager, _, optimized = counts(ALGORITHMS[name])
    assert optimized <= eager + SURPLUS.get(name, 0)


def test_the_page_has_them_all() -> None:
    listed = {line.split(" (")[0].removeprefix("| ").replace(" ", "_") for line in PAGE.read_text().splitlines()}
    assert set(ALGORITHMS) <= listed, "run: python -m tests.algorithms.counted"


def test_every_module_has_some() -> None:
    homes = {program.__module__ for program in ALGORITHMS.values()}
    assert homes == {module.__name__ for module in MODULES}
