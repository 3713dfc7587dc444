"""The backward runs that are under way in a thread, innermost last."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

from autograd_opt.graph import accumulators
from autograd_opt.graph import node as nodes
from autograd_opt.graph.accumulators import Accumulator
from autograd_opt.graph.hooks import common_node

_local = threading.local()


class Run:
    """One backward run: what it started from, what it was asked for, what comes at its end."""

    __slots__ = ("_leaves", "_reached", "accumulates", "callbacks", "handed_on", "inputs", "node", "onward", "roots",
                 "targets", "task")

    def __init__(self, task: Any, roots: list[Any], targets: list[Any] | None, accumulates: bool):
        self.task, self.roots, self.targets, self.accumulates = task, roots, targets, accumulates
        self.callbacks: list[Callable[[], Any]] = []
        self.node: Any = None
        self.handed_on = False              # is it part of a run of torch's engine, to which its results go?
        self.onward: list[tuple[Any, Any]] = []
        """Tensors that torch has computed, and their cotangents, which go on in torch's engine at the end."""
        self.inputs: Any = None
        """What `backward(inputs=)` was given."""
        self._reached: set[int] | None = None
        self._leaves: dict[int, Any] | None = None

    def executes(self, node: Any) -> bool:
        """Does this run execute `node`?"""
        if self._reached is None:
            self._reached = self.reached()
        return node.index in self._reached

    def asked_for(self, node: Any) -> bool:
        """Is `node`, or a result of the call it stands for, a target, and is it on a path from a root?"""
        found = any(n is not None and (n is node or (n.op == "output" and n.operands[0] is node))
                    for n in self.targets or ())
        return found and self.comes_to(node)

    def leads(self, node: Any) -> bool:
        """Is `node` executed on the way to another target?"""
        wanted = {n.index for n in self.targets or () if n is not None}
        return any(n is not None and (n.index in wanted or self.executes(n)) for n in node.operands)

    def comes_to(self, node: Any) -> bool:
        """Is there a path from a root to `node`?"""
        return node.index in self.below()

    def own(self, node: Any) -> Any:
        """The node of this run that `node` is, or that stands here for the leaf of another graph's, or of torch's."""
        shown = node.node if type(node) is Accumulator else node
        if isinstance(shown, nodes.Node) and shown.tape is self.roots[0].tape:
            return shown
        if self._leaves is None:
            self._leaves = {id(n.tensor): n for n in self.below().values() if n.is_leaf}
        leaf = accumulators.leaf_of(node)
        found = self._leaves.get(id(leaf))
        return found if found is not None and found.tensor is leaf else None

    def below(self) -> dict[int, Any]:
        """The nodes on a path from a root, by record number."""
        seen: dict[int, Any] = {}
        stack = list(self.roots)
        while stack:
            node = stack.pop()
            if node.index in seen or node.index < 0:
                continue
            seen[node.index] = node
            if node.op != "view_apart":                 # whose operand no gradient comes to
                stack += [n for n in node.operands if n is not None and n.requires_grad]
        return seen

    def reached(self) -> set[int]:
        """Record numbers on a path from a root, and to a target where there are any."""
        seen = self.below()
        if self.targets is None:
            return set(seen)
        wanted = {n.index for n in self.targets if n is not None}
        leading: set[int] = set()
        for index in sorted(seen):
            if any(n is not None and (n.index in wanted or n.index in leading) for n in seen[index].operands):
                leading.add(index)
        if not self.accumulates:
            return leading
        called = {index: common_node(n) for index, n in seen.items()}
        calls = {called[index].index for index in wanted & seen.keys() if called[index] is not None}
        siblings = {index for index, call in called.items() if call is not None and call.index in calls}
        return leading | (wanted & seen.keys()) | calls | siblings


def stack() -> list[Run]:
    """The runs of this thread."""
    return _local.__dict__.setdefault("stack", [])


def current() -> Run | None:
    """The innermost run of this thread."""
    runs = _local.__dict__.get("stack")
    return runs[-1] if runs else None


def finish(run: Run) -> None:
    """Call the callbacks, also those that callbacks add."""
    done = 0
    while done < len(run.callbacks):
        run.callbacks[done]()
        done += 1
