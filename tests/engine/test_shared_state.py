"""What all threads of a process share: kept numbers, plans, operators, names."""

from __future__ import annotations

import sys
import threading

import pytest
import torch

import autograd_opt as ao
from autograd_opt.ops.table import BINDERS, CALLS, OPS
from autograd_opt.optimizer.plan_cache import Plans
from autograd_opt.passes import unregister_pass


def elsewhere(work):
    """Run `work` in a thread of its own, to its end."""
    thread = threading.Thread(target=work)
    thread.start()
    thread.join()


def plus(number):
    x = torch.ones(1, requires_grad=True)
    with ao.AutogradGraph():
        return (x + number).item()


def test_a_number_that_is_being_kept_gives_its_place_to_another(monkeypatch):
    """While one thread makes the tensor of 7.125, another fills every place of the table with other numbers."""
    others, make = [1000.25 + i for i in range(4000)], torch.tensor

    def interrupted(*args, **kwargs):
        monkeypatch.setattr(torch, "tensor", make)
        elsewhere(lambda: [plus(n) for n in others])
        return make(*args, **kwargs)

    assert plus(7.125) == 8.125          # met once
    monkeypatch.setattr(torch, "tensor", interrupted)
    assert plus(7.125) == 8.125          # met again: kept
    assert torch.tensor is make
    assert [plus(n) for n in reversed(others)] == [1.0 + n for n in reversed(others)]


def forget_operator(name):
    OPS.pop(name)
    BINDERS.pop(name)
    for called in [c for c, to in CALLS.items() if to == name]:
        del CALLS[called]


@pytest.mark.parametrize("register", [
    lambda name: ao.register_op("a", name=name, a=lambda g: g)(lambda a: a.clone()),
    lambda name: ao.register_pass(name, lambda table, state: None),
], ids=["operator", "pass"])
def test_a_name_is_given_once(register):
    """Two threads that register one name at once: one of them is refused."""
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        for _ in range(50):
            done, barrier = [], threading.Barrier(2)

            def work(done=done, barrier=barrier):
                barrier.wait()
                try:
                    register("twice")
                    done.append("given")
                except ValueError:
                    done.append("refused")

            threads = [threading.Thread(target=work) for _ in range(2)]
            for t in threads:
                t.start()
            for t in threads:
                t.join()
            if "twice" in OPS:
                forget_operator("twice")
            else:
                unregister_pass("twice")
            assert sorted(done) == ["given", "refused"]
    finally:
        sys.setswitchinterval(interval)


class Key:
    """Equal to every other; `compared` is called when that is asked."""

    def __init__(self, compared=lambda: None):
        self.compared = compared

    def __hash__(self):
        return 1

    def __eq__(self, other):
        self.compared()
        return True


def test_plans_are_asked_in_the_middle_of_being_asked():
    """As by a finalizer or a signal's handler that runs a graph just then."""
    plans, answers = Plans(), []
    plans.keep((1,), Key(lambda: plans.clear()), 3, "result")

    def ask():
        answers.append(plans.find((1,), Key()))
        answers.append(plans.find((1,), Key()))

    thread = threading.Thread(target=ask, daemon=True)
    thread.start()
    thread.join(60)
    assert not thread.is_alive()
    assert answers == ["result", None] or answers == [None, None]
