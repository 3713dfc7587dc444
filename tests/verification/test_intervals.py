"""Bounds of functions: they hold the value, and are narrow."""

from __future__ import annotations

from fractions import Fraction

import flint
import mpmath
import numpy as np
import pytest
import torch

import autograd_opt as ao
from autograd_opt.verification.counterexample.intervals import FUNCTIONS, PRECISION, Rational, bounds
from autograd_opt.verification.semantics.domain import Outside
from autograd_opt.verify import Budget, Status, verify

POINTS = {
    "erf": ["-7", "-3.5", "-0.25", "0.125", "1", "5.5", "9"], "erfc": ["-1", "0.5", "4"],
    "asin": ["-0.875", "0.25"], "acos": ["-0.875", "0.25"], "acosh": ["1.5", "8"], "atanh": ["-0.75", "0.5"],
    "lgamma": ["0.25", "2.5", "30"], "digamma": ["0.25", "2.5"], "erfinv": ["-0.5", "0.25"], "log": ["0.5", "3"],
    "sqrt": ["0.5", "3"],
}
CASES = [(name, point) for name in sorted(FUNCTIONS) for point in POINTS.get(name, ["-20", "-0.5", "3"])]
REFERENCE = {"lgamma": mpmath.loggamma}
DOMAIN = Rational(10**6, float("inf"))


@pytest.fixture(autouse=True)
def _precise(monkeypatch):
    monkeypatch.setattr(flint.ctx, "prec", PRECISION)


@pytest.mark.parametrize(("name", "point"), CASES)
def test_bounds_hold_the_value(name, point):
    found = DOMAIN.function(name, DOMAIN.scalar(Fraction(point)))
    with mpmath.workprec(300):
        exact = REFERENCE.get(name, getattr(mpmath, name, None))(mpmath.mpf(point))
        low, high = (mpmath.mpf(int(man)) * mpmath.mpf(2) ** int(e)
                     for man, e in (found.lower().man_exp(), found.upper().man_exp()))
        assert low <= exact <= high
        assert high - low < 1e-25 * max(1, abs(exact))


def test_bounds_over_an_interval():
    low, high = map(float, bounds(DOMAIN.function("erf", flint.arb(-1).union(flint.arb(2)))))
    assert low <= mpmath.erf(-1) <= mpmath.erf(2) <= high


@pytest.mark.parametrize(("name", "point"), [("asin", "1.5"), ("atanh", "1"), ("acosh", "0.5"), ("nothing", "1"),
                                             ("log", "0"), ("log", "-1"), ("sqrt", "-2"), ("mid", "1")])
def test_outside_its_domain_there_are_none(name, point):
    with pytest.raises(Outside):
        DOMAIN.function(name, DOMAIN.scalar(Fraction(point)))


def test_a_division_by_what_may_be_zero_is_refused():
    around, one = (np.array(x, dtype=object) for x in (flint.arb(-1).union(flint.arb(2)), DOMAIN.scalar(1)))
    for x in (around, one):
        with pytest.raises(Outside):
            DOMAIN.div(x, around)


@pytest.mark.parametrize("fn", [torch.erf, torch.atan, torch.lgamma, torch.nn.functional.gelu])
def test_wrong_merges_behind_them_are_refuted(fn):
    with ao.AutogradGraph() as graph:
        x = ao.tensor(torch.rand(2, dtype=torch.float64) + 0.5)
        a, b = fn(x * 2), fn(x * 3)
        loss = (a * 2 + b).sum()
        nodes = graph.tape.snapshot()
        leader = list(range(len(nodes)))
        leader[nodes.index(b._node)] = nodes.index(a._node)
        v = verify(nodes, [loss._node], None, leader, budget=Budget(seconds=5), engines=("linear", "points"))
    assert v.status is Status.REFUTED, v
