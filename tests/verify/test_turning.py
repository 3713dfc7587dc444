"""Rewrites that only turn axes: shown without sympy, for all sizes, and only where they are right."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from test_rewrites import both, leaf, verdict

from autograd_opt.verify import Status, local, rewrites, turning
from autograd_opt.verify.meaning import MEANING
from autograd_opt.verify.moving import movement

RIGHT = {
    "t twice": lambda x: x.t().t(),
    "mT twice": lambda x: x.mT.mT,
    "T after transpose": lambda x: x.transpose(0, 1).T,
    "four times": lambda x: x.t().mT.transpose(-1, -2).permute(1, 0),
    "there and back": lambda x: x.movedim(0, 1).movedim(1, 0),
}


@pytest.fixture(autouse=True)
def _nothing_known():
    rewrites.KNOWN.clear()


@pytest.fixture
def pairs(monkeypatch):
    """What was compared, with the answer."""
    found = []
    compare = turning.compare

    def noted(left, right):
        found.append((left, right, compare(left, right)))
        return found[-1][2]

    monkeypatch.setattr(turning, "compare", noted)
    return found


@pytest.mark.parametrize("name", RIGHT)
@pytest.mark.parametrize("certificate", [True, False], ids=["named", "found"])
def test_axes_that_come_back_need_no_sympy(monkeypatch, name, certificate):
    monkeypatch.setattr(rewrites, "ask", lambda *a: pytest.fail("sympy is asked"))
    v = verdict(lambda x: (both(x, y := RIGHT[name](x)), y, x), leaf(3, 3), certificate=certificate)
    assert (v.status, v.exact) == (Status.PROVED, "real")
    assert v.scope == "all sizes with these broadcasts and branches"


@pytest.mark.parametrize("fn", [lambda x: x.t(), lambda x: x.mT.mT.mT, lambda x: x.movedim(0, 1), lambda x: x.flip(0),
                                lambda x: x.t().sin().t(), lambda x: x.reshape(9).reshape(3, 3).t()])
def test_what_is_turned_is_not_what_it_was(pairs, fn):
    v = verdict(lambda x: (both(x, y := fn(x)), y, x), leaf(3, 3))
    assert v.status is Status.REFUTED
    assert pairs
    assert all(answer is None for *_, answer in pairs)


def by_indices(left, right):
    """What sympy says."""
    try:
        return local.by_indices(left, right, 600)
    except Exception as error:
        return str(error)


def test_every_order_of_three_axes_after_every_other_is_as_sympy_says(pairs):
    """On a cube, so that shapes tell nothing."""
    orders = list(itertools.permutations(range(3)))
    answers = []
    for first, second in itertools.product(orders, orders):
        pairs.clear()
        v = verdict(lambda x, a=first, b=second: (both(x, y := x.permute(a).permute(b)), y, x), leaf(2, 2, 2),
                engines=("structural", "linear", "rewrite"))
        for left, right, answer in pairs:
            assert (answer is not None) == (by_indices(left, right) == ""), (first, second)
        answers.append(v.status is Status.PROVED)
        assert answers[-1] == (tuple(first[k] for k in second) == (0, 1, 2))
    assert sum(answers) == 6


@pytest.mark.parametrize("meaning", [
    lambda D, x: np.swapaxes(x, 0, 1),                                                          # no movement
    movement(lambda x: x), movement(lambda x: x[::-1].T), movement(lambda x: x.reshape(x.shape[::-1])),
    movement(lambda x: x.T if x.shape[0] == 2 else x), movement(lambda x: x.T[:1]), movement(lambda x: 1 / 0)])
def test_the_order_is_read_off_the_meaning(monkeypatch, pairs, meaning):
    monkeypatch.setitem(MEANING, "mT", meaning)
    verdict(lambda x: (both(x, y := x.mT.t()), y, x), leaf(3, 3), engines=("structural", "linear", "rewrite"))
    assert pairs
    assert all(answer is None for *_, answer in pairs)


def test_the_gradient_of_pullbacks_counts():
    """Equal values do not do: the pullback of a detached one is nothing."""
    v = verdict(lambda x: (both(x, y := x.detach().t().t()), y, x), leaf(3, 3),
                engines=("structural", "linear", "rewrite"))
    assert v.status is not Status.PROVED


def test_a_cast_between_is_no_turn(pairs):
    verdict(lambda x: (both(x, y := x.t().float().double().t()), y, x), leaf(2, 3),
            engines=("structural", "linear", "rewrite"))
    assert all(answer is None for *_, answer in pairs)
