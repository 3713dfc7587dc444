"""Calls that no gradient follows are torch's own; those that are worth a node are told by what was found before."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import pytest
import torch

import autograd_opt as ao
from autograd_opt.record import sites

X = torch.arange(6.0).view(2, 3).clone()
"""No view: those are asked more where a base elsewhere in the process came to require grad."""
ROWS = torch.tensor([1, 0])


def into(out, make):
    make(out)
    return out


CALLS = {
    "method": lambda x: x.exp(),
    "method with keywords": lambda x: x.sum(dim=1, keepdim=True),
    "function": lambda x: torch.add(x, 2.0, alpha=3.0),
    "choice of overload": lambda x: x.max(1).values,
    "view": lambda x: x.t()[0],
    "several views": lambda x: torch.stack(x.unbind(1)[:2]),
    "tensor index": lambda x: x[ROWS, :2],
    "mask": lambda x: x[x > 2],
    "assignment": lambda x: into(x.clone(), lambda o: o.__setitem__((slice(None), 1), 5.0)),
    "assignment by mask": lambda x: into(x.clone(), lambda o: o.__setitem__(x > 2, 0.0)),
    "in place": lambda x: x.clone().zero_().add_(x),
    "out": lambda x: into(torch.empty(2, 3), lambda o: torch.mul(x, x, out=o)),
    "out of another size": lambda x: into(torch.empty(0), lambda o: torch.mul(x, x, out=o)),
    "list": lambda x: torch._foreach_add([x], 1.0)[0],
    "Python function": lambda x: torch.nn.functional.mse_loss(x, x + 1, reduction="none"),
    "no rule": lambda x: torch.cdist(x, x),
    "broadcast": lambda x: sum(torch.broadcast_tensors(x, x[0])),
    "initializer": lambda x: torch.nn.init.constant_(x.clone(), 2.0),
    "detach": lambda x: x.detach().mul_(1.0),
}


@pytest.mark.parametrize("optimize", [False, True])
@pytest.mark.parametrize("grad", [False, True])
@pytest.mark.parametrize("name", CALLS)
def test_same_as_outside(name: str, grad: bool, optimize: bool) -> None:
    """Values, versions, views and flags are those of eager mode, the first time and after many."""
    def look(t: torch.Tensor) -> tuple[object, ...]:
        return (t.tolist(), t.stride(), t._version, t.requires_grad, t.is_leaf, t.grad_fn, t._is_view(), t.retains_grad)

    with torch.set_grad_enabled(grad):
        expected = look(CALLS[name](X.clone()))
        with ao.AutogradGraph(optimize=optimize):
            for _ in range(70):
                assert look(CALLS[name](X.clone())) == expected


@pytest.mark.parametrize("optimize", [False, True])
def test_values_used_by_recorded_calls(optimize: bool) -> None:
    """What was computed at a place that is not numbered any more is a constant of the graph."""
    for _ in range(3):
        w = torch.ones(2, 3, requires_grad=True)
        with ao.AutogradGraph(optimize=optimize):
            loss = sum(((X + i).sin()[:1] * w).sum() for i in range(40))
            loss.backward()
        expected = sum((X + i).sin()[:1] for i in range(40)).expand(2, 3)
        torch.testing.assert_close(w.grad, expected)


def test_a_view_of_a_constant_that_comes_to_require_grad() -> None:
    """A view made without a record leads to its base once this requires grad."""
    with ao.AutogradGraph():
        base = X.clone()
        view = base[0]
        base.requires_grad_()
        (base[0] * view.detach()).sum().backward()
        assert base.grad.tolist() == [[0.0, 1.0, 2.0], [0.0, 0.0, 0.0]]


def test_a_place_without_hits_is_skipped_and_one_with_hits_is_not() -> None:
    """Constants are numbered only where an equal one is ever asked for."""
    before = sites.skipped_calls()
    with ao.AutogradGraph(optimize=True) as graph:
        for i in range(400):
            (X * (i + 0.5)).exp()
        skipped = sites.skipped_calls() - before
        assert skipped > 400
        found = graph.tape.hits
        for _ in range(200):
            X.cos()
        assert graph.tape.hits >= found + 190
        assert sites.skipped_calls() - before == skipped


def test_a_twin_elsewhere_keeps_a_place_numbered() -> None:
    """A value found by a call in another line counts for the line that computed it."""
    with ao.AutogradGraph(optimize=True) as graph:
        for i in range(200):
            a = (X * (i + 0.5)).exp()
            b = (X * (i + 0.5)).exp()
            assert torch.equal(a, b)
        assert graph.tape.hits > 390


def test_writes_are_seen() -> None:
    """A value that was found is computed anew after a write without a record."""
    for optimize in (False, True):
        with ao.AutogradGraph(optimize=optimize):
            x = X.clone()
            w = torch.ones(3, requires_grad=True)
            first = (x * w).sum()
            x[0] = 7.0
            second = (x * w).sum()
            assert (first.item(), second.item()) == (15.0, 33.0)


def test_a_class_of_the_users_is_asked() -> None:
    """An argument with a torch function of its own answers inside a context as outside."""
    class Lazy:
        @classmethod
        def __torch_function__(cls, func, types, args=(), kwargs=None):
            return func.__name__

    with ao.AutogradGraph():
        assert [X.add(Lazy()), torch.add(X, Lazy()), X.where(X > 0, Lazy())] == ["add", "add", "where"]


NUMBERS = itertools.count()


def skips(step: Callable[[], Any], times: int = 300) -> int:
    """How many of `times` calls of `step`, after as many to learn from, were not numbered in one of their places."""
    with ao.AutogradGraph(optimize=True):
        while not 128 <= sites.skipped_calls() % 8192 < 6000:      # where skipped calls are looked at all the same
            X + next(NUMBERS)
        for _ in range(times):
            step()
        before = sites.skipped_calls()
        for _ in range(times):
            step()
        return sites.skipped_calls() - before


def test_a_place_that_rarely_finds_a_few_elements_is_skipped() -> None:
    """One in eight saves less than the numbers of the others cost."""
    numbers = itertools.count()

    def step() -> None:
        i = next(numbers)
        (X * (0.5 if i % 8 == 0 else i)).exp()

    assert skips(step) > 400


def test_a_place_that_rarely_finds_many_elements_is_not_skipped() -> None:
    """One kernel on 100,000 elements pays for many numbers."""
    large, numbers = torch.ones(100_000), itertools.count()

    def step() -> None:
        i = next(numbers)
        factor = 0.5 if i % 8 == 0 else float(i)     # in a line of its own: Python 3.12 makes a product for each branch
        large * factor

    assert skips(step, 100) == 0


@pytest.mark.parametrize(("elements", "calls"), [(3, 32), (100_000, 256)])
def test_a_recorded_place_on_few_elements_is_skipped_sooner(elements: int, calls: int) -> None:
    """A value of a few elements that is found saves so little that fewer numbers may be given in vain for it."""
    numbers, x = itertools.count(), torch.ones(elements, requires_grad=True)

    def step() -> None:
        x * next(numbers)

    with ao.AutogradGraph(optimize=True):
        for _ in range(calls):
            step()
        before = sites.skipped_calls()
        assert before % 8192 >= 128 or not before    # outside of these, skipped calls are looked at all the same
        step()
        assert sites.skipped_calls() == before + 1


def test_views_are_numbered_where_a_value_computed_from_them_is_found() -> None:
    """A view is made in any case: its place goes with the places that read it."""
    def found() -> None:
        X[0].exp()
        X[0].exp()

    def lost() -> None:
        X[0].tolist()

    assert skips(found) == 0
    assert skips(lost) > 250


def test_a_call_whose_result_no_gradient_follows_is_skipped_whatever_its_operand() -> None:
    """A tensor like a parameter, say."""
    w, numbers = torch.ones(3, requires_grad=True), itertools.count()
    assert skips(lambda: torch.full_like(w, next(numbers))) > 250


def test_a_call_that_returns_its_operand_is_skipped() -> None:
    """`x.to(dtype)` that has nothing to convert finds no value."""
    assert skips(lambda: X.to(torch.float32)) > 250


@pytest.mark.filterwarnings("ignore:.*Profiler clears events:UserWarning")       # of torch 2.12
@pytest.mark.parametrize("optimize", [False, True])
def test_the_profiler_sees_where_user_code_and_optimizers_begin(optimize: bool) -> None:
    weight = torch.nn.Parameter(torch.ones(2))
    optimizer = torch.optim.SGD([weight], lr=0.1)
    cpu = [torch.profiler.ProfilerActivity.CPU]
    with torch.profiler.profile(activities=cpu) as profile, ao.AutogradGraph(optimize=optimize), \
            torch.profiler.record_function("forward"):
        (weight * 2).sum().backward()
        optimizer.step()
    names = {event.key for event in profile.key_averages()}
    assert {"forward", "Optimizer.step#SGD.step"} <= names
    assert torch.allclose(weight.detach(), torch.full((2,), 0.8))
