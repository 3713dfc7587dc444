"""Tasks of one thread have graphs of their own, and nothing else of the thread is recorded while they wait."""

from __future__ import annotations

import asyncio
import gc
from typing import Any

import pytest
import torch

import autograd_opt as ao
from autograd_opt.record import tasks


async def graph_of(number: float, optimize: bool) -> list[float]:
    w = torch.full((3,), number, requires_grad=True)
    with ao.AutogradGraph(optimize=optimize) as graph:
        y = w * 2
        await asyncio.sleep(0)
        z = (y * y).sum() + (w * 2).sum()
        await asyncio.sleep(0.001)
        assert len(graph) in (5, 6, 7)
        z.backward()
    await asyncio.sleep(0)
    assert type(w * 2) is torch.Tensor
    assert w.grad is not None
    return w.grad.tolist()


async def plain() -> list[float]:
    x = torch.ones(3, requires_grad=True)
    for _ in range(3):
        y = x * 2
        assert type(y) is torch.Tensor
        await asyncio.sleep(0)
        y.sum().backward()
    assert x.grad is not None
    return x.grad.tolist()


def gathered(*coroutines: Any) -> list[Any]:
    async def all_of_them() -> list[Any]:
        return await asyncio.gather(*coroutines)

    return asyncio.run(all_of_them())


@pytest.mark.parametrize("optimize", [False, True])
def test_tasks_side_by_side(optimize: bool) -> None:
    found = gathered(graph_of(1.0, optimize), plain(), graph_of(2.0, optimize), plain(), graph_of(3.0, optimize))
    assert found == [[10.0] * 3, [6.0] * 3, [18.0] * 3, [6.0] * 3, [26.0] * 3]
    assert not tasks.waiting


def test_nested_graphs_and_a_graph_around_the_loop() -> None:
    async def nested(k: float) -> list[float]:
        x = torch.full((2,), k, requires_grad=True)
        with ao.AutogradGraph():
            y = x * 3
            await asyncio.sleep(0)
            with ao.AutogradGraph():
                inner = torch.full((2,), k, requires_grad=True)
                z = inner.square()
                await asyncio.sleep(0)
                z.sum().backward()
            await asyncio.sleep(0)
            y.sum().backward()
        return [*x.grad.tolist(), *inner.grad.tolist()]

    assert gathered(nested(1.0), plain(), nested(2.0)) == [[3.0, 3.0, 2.0, 2.0], [6.0] * 3, [3.0, 3.0, 4.0, 4.0]]
    x = torch.ones(2, requires_grad=True)
    with ao.AutogradGraph() as graph:
        y = x * 2
        assert gathered(nested(1.0)) == [[3.0, 3.0, 2.0, 2.0]]
        assert len(graph) == 2
        y.sum().backward()
    assert x.grad.tolist() == [2.0, 2.0]


def test_a_failing_and_a_cancelled_task() -> None:
    async def failing() -> None:
        with ao.AutogradGraph():
            y = torch.ones(2, requires_grad=True) * 2
            await asyncio.sleep(0)
            raise ValueError(str(y.shape))

    async def endless() -> None:
        with ao.AutogradGraph():
            torch.ones(2, requires_grad=True) * 2
            await asyncio.sleep(1000)

    async def main() -> list[Any]:
        task = asyncio.create_task(endless())
        await asyncio.sleep(0)
        assert tasks.waiting
        task.cancel()
        return await asyncio.gather(failing(), task, plain(), return_exceptions=True)

    first, second, third = asyncio.run(main())
    assert isinstance(first, ValueError)
    assert isinstance(second, asyncio.CancelledError)
    assert third == [6.0] * 3
    assert not tasks.waiting


def test_a_task_that_never_goes_on_leaves_nothing() -> None:
    async def waits(event: asyncio.Event) -> None:
        with ao.AutogradGraph():
            torch.ones(2, requires_grad=True) * 2
            await event.wait()

    loop = asyncio.new_event_loop()
    task = loop.create_task(waits(asyncio.Event()))
    loop.run_until_complete(asyncio.sleep(0))
    assert tasks.waiting
    task._log_destroy_pending = False       # type: ignore[attr-defined]
    loop.close()
    del task, loop
    gc.collect()
    assert not tasks.waiting
    assert type(torch.ones(2, requires_grad=True) * 2) is torch.Tensor
