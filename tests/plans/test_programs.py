"""Random functions, compiled: recorded twice and repeated three times on other values, beside torch eager."""

from __future__ import annotations

import warnings

import pytest

import autograd_opt as ao
from tests.plans.programs import agree, observed, operands, program


def check(seed: int) -> bool:
    """Compare a random function compiled and as it is; True if it was repeated."""
    function = program(seed)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        compiled = ao.compile(function)
        for draw in range(5):
            expected = observed(function, operands(seed, draw), draw)
            found = observed(compiled, operands(seed, draw), draw)
            assert agree(found, expected), f"seed {seed}, call {draw}: {compiled.report()}"
    return any(kind.calls > 1 and not kind.reason for kind in compiled.report().kinds)


@pytest.mark.parametrize("first", range(0, 200, 20))
def test_random_functions(first: int) -> None:
    repeated = [check(seed) for seed in range(first, first + 20)]
    assert sum(repeated) >= 10


@pytest.mark.long
def test_many_random_functions() -> None:
    assert sum(map(check, range(1000, 6000))) >= 2500
