"""Bounds of functions: they hold the value, and are narrow."""

from __future__ import annotations

import mpmath
import pytest
import torch
from mpmath import iv

import autograd_opt as ao
from autograd_opt.verify import Budget, Status, balls, verify
from autograd_opt.verify.domain import Outside

POINTS = {
    "erf": ["-7", "-3.5", "-0.25", "0", "0.125", "1", "5.5", "9"], "erfc": ["-1", "0.5", "4"],
    "atan": ["-20", "-0.5", "0", "3"], "asin": ["-0.875", "0.25"], "acos": ["-0.875", "0.25"],
    "acosh": ["1.5", "8"], "atanh": ["-0.75", "0.5"], "lgamma": ["0.25", "2.5", "30"],
}
CASES = [(name, point) for name, points in POINTS.items() for point in points]
REFERENCE = {"lgamma": mpmath.loggamma}


@pytest.fixture(params=["formulas", "flint"])
def means(request, monkeypatch):
    if request.param == "formulas":
        monkeypatch.setattr(balls, "flint", None)
    elif balls.flint is None:
        pytest.skip("python-flint is not installed: pip install autograd-opt[verify]")
    monkeypatch.setattr(iv, "prec", 120)
    return request.param


@pytest.mark.parametrize(("name", "point"), CASES)
def test_bounds_hold_the_value(means, name, point):
    x = iv.mpf([point, point])
    found = balls.bounded(name, x)
    with mpmath.workprec(300):
        exact = REFERENCE.get(name, getattr(mpmath, name, None))(mpmath.mpf(point))
        low, high = (mpmath.mpf(e._mpi_[0]) for e in (found.a, found.b))
        assert low <= exact <= high
        assert high - low < (1e-15 if name.startswith("erf") and abs(float(point)) > 5 else 1e-25)


def test_bounds_over_an_interval(means):
    found = balls.bounded("erf", iv.mpf([-1, 2]))
    with mpmath.workprec(300):
        low, high = (mpmath.mpf(e._mpi_[0]) for e in (found.a, found.b))
        assert low <= mpmath.erf(-1) <= mpmath.erf(2) <= high


@pytest.mark.parametrize(("name", "point"), [("asin", "1.5"), ("atanh", "1"), ("acosh", "0.5"), ("nothing", "1")])
def test_outside_its_domain_there_are_none(means, name, point):
    with pytest.raises(Outside):
        balls.bounded(name, iv.mpf([point, point]))


@pytest.mark.parametrize("fn", [torch.erf, torch.atan, torch.lgamma, torch.nn.functional.gelu])
def test_wrong_merges_behind_them_are_refuted(means, fn):
    with ao.AutogradGraph() as graph:
        x = ao.tensor(torch.rand(2, dtype=torch.float64) + 0.5)
        a, b = fn(x * 2), fn(x * 3)
        loss = (a * 2 + b).sum()
        nodes = graph.tape.snapshot()
        leader = list(range(len(nodes)))
        leader[nodes.index(b._node)] = nodes.index(a._node)
        v = verify(nodes, [loss._node], None, leader, budget=Budget(seconds=5), engines=("linear", "points"))
    assert v.status is Status.REFUTED, v
