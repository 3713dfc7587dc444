"""Graphs of tasks of asyncio: one that is open where a task awaits is left, and entered again when the task goes on.

So tasks of one thread have graphs of their own, and other code of the thread is not recorded meanwhile. A step of a
task runs in the task's own `contextvars.Context`, by which its graphs are found again.
"""

from __future__ import annotations

import contextvars
from typing import Any

from autograd_opt.abi import interpreter
from autograd_opt.abi import torch_private as private
from autograd_opt.record.context import innermost_graph
from autograd_opt.record.dispatch import MODE

waiting: dict[int, tuple[contextvars.Context, list[Any]]] = {}
"""id of a task's context -> the context, and its graphs, outermost first."""
original: Any = interpreter.loop_step()


def install() -> None:
    """Look after the steps of event loops; done once at import."""
    interpreter.replace_loop_step(run_step)


def run_step(handle: Any) -> Any:
    """Run one step of an event loop with the graphs of its task entered, and leave those open after it."""
    around = innermost_graph()
    if waiting:
        for graph in waiting.pop(id(interpreter.context_of(handle)), (None, []))[1]:
            graph.resume()
    try:
        return original(handle)
    finally:
        if innermost_graph() is not around:
            leave(around, interpreter.context_of(handle))


def leave(around: Any, context: contextvars.Context) -> None:
    """Leave the graphs above `around`; a mode of the user's that lies above them keeps them where they are."""
    graphs = []
    graph: Any = innermost_graph()
    while graph is not None and graph is not around and own_mode_is_innermost():
        graphs.append(graph)
        graph.suspend()
        graph = innermost_graph()
    if graphs:
        waiting[id(context)] = context, graphs[::-1]


def own_mode_is_innermost() -> bool:
    """True if the mode that was entered last in this thread is that of the graphs."""
    depth = private.len_torch_function_stack()
    return depth > 0 and private.get_function_stack_at(depth - 1) is MODE


def forget(graph: Any) -> bool:
    """Drop a graph that waits for its task, which ends without going on; False for any other."""
    for key, (_, graphs) in list(waiting.items()):
        if any(graph is g for g in graphs):
            graphs.remove(graph)
            if not graphs:
                del waiting[key]
            return True
    return False
