"""Processes forked while a graph records, or while another thread is in the middle of something."""

from __future__ import annotations

import os
import signal
import threading
import time

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

import autograd_opt as ao
from autograd_opt.optimizer.plan_cache import Plans
from tests.engine.test_shared_state import Key


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


class Rows(torch.utils.data.Dataset):
    def __len__(self):
        return 6

    def __getitem__(self, i):
        return (torch.arange(3.0) * i).exp().log()


@needs_fork
def test_workers_of_a_data_loader_that_are_forked_inside_a_graph():
    weight = torch.ones(3, requires_grad=True)
    with ao.AutogradGraph(optimize=True):
        loader = torch.utils.data.DataLoader(Rows(), batch_size=3, num_workers=1, multiprocessing_context="fork",
                                             timeout=120)
        for rows in loader:
            assert type(rows) is torch.Tensor
            (rows * weight).sum().backward()
    assert torch.allclose(weight.grad, torch.tensor([0.0, 15.0, 30.0]))
