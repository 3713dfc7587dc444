"""Graphs in several threads, leaves shared by threads, graphs handed on."""

from __future__ import annotations

import sys
import threading
import time

import pytest
import torch
from torch.overrides import BaseTorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode

import autograd_opt as ao
from tests.engine.functions import Square

OPTIMIZE = pytest.mark.parametrize("optimize", [False, True])


@pytest.fixture(autouse=True)
def _switch_often():
    """Let the interpreter change threads after a few instructions."""
    old = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    yield
    sys.setswitchinterval(old)


def in_threads(work, count=4):
    """Run `work(i)` in `count` threads at once; raise what any of them raised."""
    errors = []

    def body(i):
        try:
            work(i)
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=body, args=(i,)) for i in range(count)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    if errors:
        raise errors[0]


@OPTIMIZE
def test_independent_graphs_in_parallel(optimize):
    results = {}

    def work(i):
        torch.manual_seed(i)
        x = ao.tensor([float(i + 1), 2.0])
        for _ in range(50):
            x.grad = None
            with ao.AutogradGraph(optimize=optimize):
                y = x * x
                ((y * y).sum() + (x * x).exp().log().sum()).backward()
        results[i] = x.grad.tolist()

    in_threads(work)
    assert results == {i: [4.0 * (i + 1) ** 3 + 2 * (i + 1), 36.0] for i in range(4)}


@OPTIMIZE
def test_a_leaf_shared_by_threads_gets_every_gradient(optimize):
    """Hogwild: all contributions arrive."""
    x = ao.tensor(torch.ones(1000), dtype=torch.float64)
    plain = torch.ones(1000, dtype=torch.float64, requires_grad=True)
    rounds = 25

    def work(i):
        for _ in range(rounds):
            with ao.AutogradGraph(optimize=optimize):
                (x * plain * 2).sum().backward()

    in_threads(work)
    assert torch.equal(x.grad, torch.full((1000,), 2.0 * 4 * rounds, dtype=torch.float64))
    assert torch.equal(plain.grad, torch.full((1000,), 2.0 * 4 * rounds, dtype=torch.float64))


def test_grad_mode_is_of_the_thread():
    seen = {}
    ready, leave = threading.Event(), threading.Event()

    def other():
        with ao.AutogradGraph(), torch.no_grad():
            ready.set()
            leave.wait()
            seen["other"] = torch.is_grad_enabled()

    thread = threading.Thread(target=other)
    thread.start()
    ready.wait()
    with ao.AutogradGraph():
        x = ao.tensor([1.0])
        seen["here"] = torch.is_grad_enabled(), (x * 2).requires_grad
    leave.set()
    thread.join()
    assert seen == {"here": (True, True), "other": False}


def test_a_context_is_of_its_thread():
    """Other threads compute as plain torch while a graph is open here."""
    seen = {}
    x = ao.tensor([1.0])
    with ao.AutogradGraph() as graph:
        before = len(graph)

        def other(i):
            y = torch.ones(2, requires_grad=True)
            (y * y).sum().backward()
            seen[i] = y.grad.tolist()

        in_threads(other, 2)
        assert len(graph) == before
        (x * 2).backward()
    assert seen == {0: [2.0, 2.0], 1: [2.0, 2.0]}
    assert x.grad.tolist() == [2.0]


@OPTIMIZE
def test_a_graph_of_another_thread_raises_and_is_unharmed(optimize):
    x = ao.tensor([3.0])
    caught = []
    with ao.AutogradGraph(optimize=optimize) as graph:
        y = x * x

        def other():
            for action in (lambda: graph.backward(y), y.backward, lambda: graph.__enter__()):
                try:
                    action()
                except ao.GraphError as error:
                    caught.append(error)
            with ao.AutogradGraph():
                try:
                    (y * 2).backward()
                except ao.GraphMismatchError as error:
                    caught.append(error)

        thread = threading.Thread(target=other)
        thread.start()
        thread.join()
        y.backward()
    assert len(caught) == 4
    assert x.grad.tolist() == [6.0]


def test_values_made_in_another_thread():
    """A detached value crosses; a graph that was never opened can be opened anywhere."""
    made = {}

    def other():
        with ao.AutogradGraph():
            made["value"] = (ao.tensor([2.0]) * 3).detach()
            made["tensor"] = ao.tensor([2.0]) * 3

    thread = threading.Thread(target=other)
    thread.start()
    thread.join()
    x = ao.tensor([1.0])
    with ao.AutogradGraph():
        (x * made["value"]).backward()
        with pytest.raises(ao.GraphMismatchError):
            (x * made["tensor"]).backward()
    assert x.grad.tolist() == [6.0]


def test_a_graph_handed_to_another_thread_before_it_is_opened():
    graph = ao.AutogradGraph(optimize=True)
    x = ao.tensor([2.0])

    def other(i):
        with graph:
            (x * x).backward()

    in_threads(other, 1)
    assert x.grad.tolist() == [4.0]


@OPTIMIZE
def test_tensors_die_in_any_thread(optimize):
    """The last reference to a result is dropped by another thread, while its graph records."""
    x = ao.tensor(torch.ones(10))
    box = []
    stop = threading.Event()

    def reaper():
        while not stop.is_set():
            if box:
                box.pop()

    thread = threading.Thread(target=reaper)
    thread.start()
    try:
        with ao.AutogradGraph(optimize=optimize):
            for _ in range(2000):
                box.append((x * 2).exp())
            (x * x).sum().backward()
    finally:
        stop.set()
        thread.join()
    assert x.grad.tolist() == [2.0] * 10


@OPTIMIZE
def test_exceptions_of_a_thread_stay_there(optimize):
    x = ao.tensor([1.0])

    def work(i):
        with ao.AutogradGraph(optimize=optimize):
            y = x * 2
            if i == 1:
                y.register_hook(lambda g: 1 / 0)
            y.backward()

    with pytest.raises(ZeroDivisionError):
        in_threads(work)
    assert x.grad.tolist() == [6.0]


def test_saved_tensor_hooks_are_of_the_thread():
    counts = {0: 0, 1: 0}

    def work(i):
        def pack(t):
            counts[i] += 1
            return t

        x = ao.tensor([1.0])
        with ao.AutogradGraph():
            if i == 0:
                with torch.autograd.graph.saved_tensors_hooks(pack, lambda t: t):
                    y = x.exp() * x
            else:
                y = x.exp() * x
            y.backward()

    in_threads(work, 2)
    assert counts[0] > 0
    assert counts[1] == 0


def test_functions_in_parallel():
    results = {}

    def work(i):
        x = ao.tensor([float(i)])
        for _ in range(30):
            x.grad = None
            with ao.AutogradGraph():
                Square.apply(x).backward()
        results[i] = x.grad.tolist()

    in_threads(work)
    assert results == {i: [2.0 * i] for i in range(4)}


@pytest.mark.parametrize("modes", [0, 1])
def test_a_thread_that_ends_with_an_open_graph(modes):
    """Graphs that a thread leaves open are left when it ends, also below a mode of the user's; nobody is harmed."""
    graphs = []

    def work(i):
        for _ in range(2):
            graph = ao.AutogradGraph()
            graph.__enter__()
            graphs.append(graph)
        for _ in range(modes):
            BaseTorchFunctionMode().__enter__()
        ao.tensor([1.0]) * 2

    for _ in range(100):                 # where the process ended, it did so in one of hundreds of threads
        in_threads(work, 2)
        x = ao.tensor([1.0])
        with ao.AutogradGraph():
            (x * 2).backward()
        assert x.grad.tolist() == [2.0]
    assert all(graph.thread is None for graph in graphs)


MODE_FLAGS = ("_is_in_torch_dispatch_mode", "_is_in_non_infra_torch_dispatch_mode",
              "_is_in_any_mode_without_ignore_compile_internals")


class Yielding(TorchDispatchMode):
    """Lets another thread run in the middle of every write, between its read and its result."""

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        if func is torch.ops.aten.add_.Tensor and args[0].numel() == 3:
            value = args[0] + args[1]
            time.sleep(0.0005)
            return args[0].copy_(value)
        return func(*args, **(kwargs or {}))


@pytest.mark.parametrize("kind", ["parameter", "custom", "hooked"])
def test_no_gradient_of_a_shared_leaf_is_lost(kind, monkeypatch):
    """Kernels let other threads run: two of them adding to one .grad at once must not lose a summand."""
    for flag in MODE_FLAGS:  # torch keeps them for all threads together: modes left in another order leave them set
        monkeypatch.setattr(torch.utils._python_dispatch, flag, getattr(torch.utils._python_dispatch, flag))
    shared = ao.tensor(torch.ones(3)) if kind == "custom" else torch.nn.Parameter(torch.ones(3))
    if kind == "hooked":
        shared.register_hook(lambda g: g * 1)
    steps, count = 20, 4

    def work(i):
        with Yielding():
            for _ in range(steps):
                with ao.AutogradGraph():
                    (shared * 2).sum().backward()

    in_threads(work, count)
    assert shared.grad.tolist() == [2.0 * steps * count] * 3


@OPTIMIZE
@pytest.mark.parametrize("make", [lambda: ao.tensor([1.0]), lambda: torch.nn.Parameter(torch.ones(1))],
                         ids=["custom", "parameter"])
def test_first_gradients_of_a_shared_leaf_are_summed(make, optimize):
    """Two threads that both find no `.grad` must not both write the first one."""
    barrier = threading.Barrier(3)
    for _ in range(400):
        x = make()

        def work(i, x=x):
            with ao.AutogradGraph(optimize=optimize):
                y = x * 2
                barrier.wait()
                y.backward()

        in_threads(work, 3)
        assert x.grad.tolist() == [6.0]


def test_a_graph_is_left_once():
    """A second leaving, in the thread that opened it or in another, is refused and harms nothing."""
    seen = []

    def leave(graph):
        with pytest.raises(RuntimeError, match="not open"):
            graph.__exit__(None, None, None)
        seen.append(True)

    with ao.AutogradGraph() as graph:
        pass
    leave(graph)
    other = threading.Thread(target=leave, args=(graph,))
    other.start()
    other.join()
    x = torch.ones(2, requires_grad=True)
    with ao.AutogradGraph():
        leave(graph)
        (x * 3).sum().backward()
    assert seen == [True] * 3
    assert torch.equal(x.grad, torch.full((2,), 3.0))


@OPTIMIZE
def test_another_thread_runs_during_a_long_kernel(optimize):
    """Kernels of small operands keep the interpreter's lock; one that takes long lets others have it."""
    x = torch.randn(1500, 1500, dtype=torch.float64, requires_grad=True)
    times, ended = [], threading.Event()

    def note():
        while not ended.is_set():
            times.append(time.perf_counter())
            time.sleep(1e-3)

    other = threading.Thread(target=note)
    with ao.AutogradGraph(optimize=optimize):
        x @ x                                # what is loaded and compared at the first call is there
        other.start()
        start = time.perf_counter()
        x @ x
        end = time.perf_counter()
        ended.set()
        other.join()
    within = [t for t in times if start <= t <= end]
    assert max(b - a for a, b in zip([start, *within], [*within, end], strict=True)) < (end - start) / 2


@OPTIMIZE
def test_leaves_at_addresses_used_before(optimize):
    """A tensor at the address of one that is gone is a leaf of its own."""
    p, seen = torch.ones(3, requires_grad=True), set()
    with ao.AutogradGraph(optimize=optimize):
        y = p.sum()
        for i in range(200):
            t = torch.full((3,), float(i))
            seen.add(id(t))
            y = y + (p + t).sum()
            del t
        y.backward()
    assert len(seen) < 200
    assert y.item() == 3 + sum(3 + 3 * i for i in range(200))
    assert torch.equal(p.grad, torch.full((3,), 201.0))
