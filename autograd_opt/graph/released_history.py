"""Histories that are not here: released by `graph.clear()` while its context stays open, or recorded by another graph.

Their tensors are no leaves: a derivative that leads to one of them would silently be a part of what was asked for, so
it is refused.
"""

from __future__ import annotations

import weakref
from collections.abc import Sequence
from typing import Any

from autograd_opt.graph import refusals, thread_state

FEW = 256
"""Nodes up to which looking for those whose tensors have died costs next to nothing."""
graphs: dict[int, weakref.ref[Any]] = {}
"""Graphs with nodes whose history is not here, by number: while there are none, no run asks."""


def innermost() -> bool:
    """Has the graph that records in this thread nodes whose history is not here?"""
    tape: Any = thread_state.get_active()
    graph = None if tape is None or tape.graph is None else tape.graph()
    return graph is not None and graph.released is not None


def holds_history(node: Any) -> bool:
    """Would a derivative go on below this node, whose tensor lives?"""
    return not node.is_leaf and node.requires_grad and node.tensor is not None


class Released:
    """The nodes that one graph has released, as long as tensors hold them, and those that stand for other graphs'."""

    __slots__ = ("limit", "nodes", "tape")

    def __init__(self, tape: int):
        self.tape = tape
        """Its number; a graph that is entered again has another."""
        self.nodes: set[Any] = set()
        self.limit = FEW

    def add(self, found: Sequence[Any]) -> None:
        """Remember what is about to be released; of many, forget the dead once they have doubled."""
        self.nodes.update(n for n in found if holds_history(n))
        if not FEW < len(self.nodes) <= self.limit:
            self.nodes = {n for n in self.nodes if n.tensor is not None}
            self.limit = 2 * len(self.nodes)

    def met(self, tape: Any) -> set[Any]:
        """Those that were read again since, and so are on the tape."""
        if len(self.nodes) <= len(tape):
            return {n for n in self.nodes if n.index >= 0}
        return {n for n in tape.snapshot() if n in self.nodes}

    def reached(self, tape: Any, roots: Sequence[Any], inputs: Sequence[Any] | None, abroad: bool) -> Any:
        """The first of them that a derivative of `roots` leads to, or None; if `abroad`, of those that were released.

        A derivative with respect to it alone ends there.
        """
        met = {n for n in self.met(tape) if not (abroad and n.op == "elsewhere")}
        if inputs is not None and len(inputs) == 1:
            met.discard(inputs[0])
        if not met:
            return None
        stack, seen = list(roots), set(roots)
        while stack:
            node = stack.pop()
            if node in met:
                return node
            if node.op == "view_apart":                     # whose operand no gradient comes to
                continue
            for n in node.operands:
                if n is not None and n.requires_grad and n not in seen:
                    seen.add(n)
                    stack.append(n)
        return None


def release(graph: Any) -> None:
    """Remember what `graph`, which is open, is about to release."""
    known = graph.released
    if known is None or known.tape != graph.tape.id:         # of an earlier entry
        known = Released(graph.tape.id)
    known.add(graph.tape.snapshot())
    if known.nodes:
        watch(graph, known)
    else:
        forget(graph)


def watch(graph: Any, known: Released) -> None:
    """Let every run of `graph` ask whether it leads to one of `known`."""
    graph.released = known
    number = graph.number
    graphs[number] = weakref.ref(graph, lambda _: graphs.pop(number, None))


def guard(tape: Any, node: Any) -> None:
    """Refuse runs over `tape` that lead to `node`, which stands for a tensor of another graph."""
    graph = None if tape.graph is None else tape.graph()
    if graph is None:
        raise refusals.graph_mismatch(node, tape)
    known = graph.released
    if known is None or known.tape != tape.id:
        known = Released(tape.id)
    known.nodes.add(node)
    if len(known.nodes) > known.limit:
        known.nodes = {n for n in known.nodes if n.index >= 0 or n.tensor is not None}
        known.limit = max(FEW, 2 * len(known.nodes))
    watch(graph, known)


def forget(graph: Any) -> None:
    """Nothing that was released is held any more, or the context is left."""
    if graph.released is not None:
        graph.released = None
        graphs.pop(graph.number, None)


def refuse(graph: Any, roots: Sequence[Any], inputs: Sequence[Any] | None = None, abroad: bool = False) -> None:
    """Raise an error where a derivative of `roots` leads to what was released or, unless `abroad`, to another graph."""
    if graph.released.tape != graph.tape.id:
        forget(graph)
        return
    node = graph.released.reached(graph.tape, roots, inputs, abroad)
    if node is not None:
        raise refusals.graph_mismatch(node, graph.tape) if node.op == "elsewhere" else refusals.cleared(graph, node)
