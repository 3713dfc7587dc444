"""Contexts that are entered and left in turns: asyncio tasks of one thread, generators that wait inside a context."""

from __future__ import annotations

import asyncio
import threading

import pytest
import torch

import autograd_opt as ao
from autograd_opt.graph import thread_state

OPTIMIZE = pytest.mark.parametrize("optimize", [False, True])


@pytest.fixture(autouse=True)
def _nothing_left_over():
    """Afterwards no context is open, and the next one is as ever."""
    yield
    assert thread_state.get_active() is None
    assert torch._C._len_torch_function_stack() == 0
    assert torch.is_grad_enabled()
    x = torch.tensor([3.0], requires_grad=True)
    with ao.AutogradGraph():
        (x * x).backward()
    assert x.grad.tolist() == [6.0]


def in_turns(tasks, turns):
    """Run tasks, which are async functions of a `turn`, each until its next `await turn()`; `turns` says whose."""
    async def main():
        ready = {name: asyncio.Event() for name in tasks}
        resting = asyncio.Event()

        async def turn(name):
            ready[name].clear()
            resting.set()
            await ready[name].wait()

        async def body(name, task):
            await turn(name)
            try:
                return await task(lambda: turn(name))
            except RuntimeError as error:
                return error
            finally:
                resting.set()

        running = {name: asyncio.create_task(body(name, task)) for name, task in tasks.items()}
        await asyncio.sleep(0)
        for name in turns:
            resting.clear()
            ready[name].set()
            await resting.wait()
        return {name: await task for name, task in running.items()}

    return asyncio.run(main())


def step(name, optimize):
    """Two turns: record; differentiate and leave."""
    async def task(turn):
        x = torch.tensor([2.0], requires_grad=True)
        with ao.AutogradGraph(optimize=optimize, name=name):
            y = x * x
            await turn()
            (y * y).backward()
        return x.grad.tolist()

    return task


@OPTIMIZE
def test_the_task_that_entered_last_goes_on_first(optimize):
    tasks = {"a": step("a", optimize), "b": step("b", optimize)}
    assert in_turns(tasks, "abba") == {"a": [32.0], "b": [32.0]}


@OPTIMIZE
def test_the_task_that_entered_first_goes_on_first(optimize):
    """Each finds its own graph again, and leaves it, in either order."""
    tasks = {"a": step("a", optimize), "b": step("b", optimize)}
    assert in_turns(tasks, "abab") == {"a": [32.0], "b": [32.0]}


@OPTIMIZE
def test_a_context_is_left_below_another(optimize):
    async def early(turn):
        x = torch.tensor([2.0], requires_grad=True)
        with ao.AutogradGraph(optimize=optimize):
            (x * x).backward()
            await turn()
        return x.grad.tolist()

    assert in_turns({"a": early, "b": step("b", optimize)}, "abab") == {"a": [4.0], "b": [32.0]}


def waiting():
    """A generator that waits inside a context."""
    x = torch.tensor([2.0], requires_grad=True)
    with ao.AutogradGraph(name="waiting") as graph:
        y = x * x
        yield graph
        y.backward()
        yield x.grad.tolist()


def test_a_generator_goes_on():
    steps = waiting()
    next(steps)
    assert next(steps) == [4.0]
    steps.close()


def test_a_generator_is_dropped():
    steps = waiting()
    assert next(steps).thread == threading.get_ident()
    del steps


def test_a_generator_is_closed_in_another_thread():
    """Which cannot leave the context; its own thread can."""
    steps, caught = waiting(), []
    graph = next(steps)

    def close():
        with pytest.raises(ao.GraphError, match="'waiting' was entered in another thread and cannot be left"):
            steps.close()
        caught.append(True)

    thread = threading.Thread(target=close)
    thread.start()
    thread.join()
    assert caught == [True]
    assert thread_state.get_recording() is graph.tape
    graph.__exit__(None, None, None)
