"""What all threads of a process share: kept numbers, plans, operators, hooks of shared leaves, locks at a fork."""

from __future__ import annotations

import os
import signal
import sys
import threading
import time

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

import autograd_opt as ao
from autograd_opt.ops.table import BINDERS, CALLS, OPS
from autograd_opt.passes import unregister_pass
from autograd_opt.plans import Plans
from autograd_opt.verify import world


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


def test_an_operator_is_registered_while_the_table_is_read(monkeypatch):
    """As by a thread that loads a model while another takes the hash that proofs rest on."""
    before, read = world.taken().told, world.Reader.operator

    def operator(self, name, op):
        if "late" not in OPS:
            elsewhere(lambda: ao.register_op("a", name="late", a=lambda g: g)(lambda a: a.clone()))
        return read(self, name, op)

    monkeypatch.setattr(world.Reader, "operator", operator)
    try:
        assert isinstance(world.taken(), world.World)
        assert "late" in OPS
    finally:
        forget_operator("late")
    monkeypatch.undo()
    assert world.taken().told == before


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


def in_child(work):
    """Call `work` in a forked process; whether it returned."""
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            work()
            code = 0
        finally:
            os._exit(code)
    for _ in range(6000):
        done, status = os.waitpid(pid, os.WNOHANG)
        if done:
            return status == 0
        time.sleep(0.01)
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)
    return False


def fork_while_held(hold, work):
    """Fork while another thread is inside `hold(entered)`."""
    entered = threading.Event()
    thread = threading.Thread(target=hold, args=(entered,))
    thread.start()
    entered.wait()
    try:
        return in_child(work)
    finally:
        thread.join()


needs_fork = pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork")


@needs_fork
def test_a_fork_while_another_thread_adds_to_a_gradient():
    shared = torch.ones(3, requires_grad=True)
    shared.grad = torch.zeros(3)

    class Slow(TorchDispatchMode):
        def __torch_dispatch__(self, func, types, args=(), kwargs=None):
            if func is torch.ops.aten.add_.Tensor and args[0] is shared.grad:
                entered.set()
                time.sleep(0.3)
            return func(*args, **(kwargs or {}))

    def hold(event):
        nonlocal entered
        entered = event
        with Slow(), ao.AutogradGraph():
            (shared * 2).sum().backward()

    def work():
        assert shared.grad.tolist() == [2.0] * 3
        with ao.AutogradGraph():
            (shared * 3).sum().backward()
        assert shared.grad.tolist() == [5.0] * 3

    entered = None
    assert fork_while_held(hold, work)


@needs_fork
def test_a_fork_while_another_thread_looks_for_a_plan():
    plans = Plans()

    def compared():
        entered.set()
        time.sleep(0.3)

    def hold(event):
        nonlocal entered
        entered = event
        plans.find((1,), Key())

    def work():
        plans.keep((2,), "another", 1, "result")
        assert plans.find((2,), "another") == "result"

    entered = None
    plans.keep((1,), Key(compared), 1, "result")
    assert fork_while_held(hold, work)


@needs_fork
@pytest.mark.parametrize("optimize", [False, True])
def test_a_fork_inside_a_graph(optimize):
    """The child goes on with what was recorded, and so does the parent."""
    x = torch.tensor([1.0, 2.0], requires_grad=True)
    with ao.AutogradGraph(optimize=optimize):
        y = (x * x * x + x * x).sum()

        def work():
            (y + x.sum()).backward()
            assert x.grad.tolist() == [6.0, 17.0]

        assert in_child(work)
        assert x.grad is None
        y.backward()
    assert x.grad.tolist() == [5.0, 16.0]
