"""Names of modules in pictures: which part of a model recorded which nodes.

`graph.follow(model)` puts hooks on the model's modules until the graph is left.  A hook only
notes how many nodes there were when its module was entered and left; nothing else is slowed.
"""

from __future__ import annotations

import weakref
from bisect import bisect_right
from collections.abc import Callable
from typing import Any

from torch import nn

from autograd_opt import errors

_followed: weakref.WeakKeyDictionary[Any, Trail] = weakref.WeakKeyDictionary()


class Trail:
    """Where the current module changed: record numbers and the name from there on."""

    def __init__(self, epoch: int) -> None:
        self.epoch = epoch
        self.starts: list[int] = [0]
        self.names: list[str] = [""]
        self.stack: list[str] = []
        self.handles: list[Any] = []
        self.leaves: dict[int, tuple[Any, str]] = {}
        """`id` of a parameter or buffer -> weak reference to it, and its name."""

    def note(self, n: int) -> None:
        """From node `n` on, the innermost module is the top of the stack."""
        name = self.stack[-1] if self.stack else ""
        if self.starts[-1] == n:
            self.names[-1] = name
        else:
            self.starts.append(n)
            self.names.append(name)

    def know(self, tensor: Any, name: str) -> None:
        """Remember the name of a parameter or buffer."""
        self.leaves.setdefault(id(tensor), (weakref.ref(tensor), name))

    def leaf_name(self, tensor: Any) -> str:
        """The name of a parameter or buffer, nothing for another tensor."""
        known, name = self.leaves.get(id(tensor), (None, ""))
        return name if known is not None and known() is tensor else ""

    def name(self, i: int) -> str:
        """The innermost module when node `i` was recorded."""
        return self.names[bisect_right(self.starts, i) - 1]


def follow(graph: Any, *models: nn.Module) -> None:
    """Remember which module of `models` records which node, until the graph is left.

    >>> import autograd_opt as ao, torch
    >>> model = torch.nn.Sequential(torch.nn.Linear(2, 2), torch.nn.Tanh())
    >>> with ao.AutogradGraph() as graph:
    ...     follow(graph, model)
    ...     y = model(torch.ones(1, 2))
    ...     [node["module"] for node in graph.to_dict()["nodes"] if node["op"] == "tanh"]
    ['Sequential.1']
    """
    for model in models:
        if not isinstance(model, nn.Module):
            raise errors.ArgumentTypeError(errors.at(
                f"expected a torch.nn.Module to follow, got {type(model).__name__}"
            ))
    trail = _followed.get(graph)
    if trail is None:
        trail = _followed[graph] = Trail(graph.tape.epoch)
    for model in models:
        for name, tensor in [*model.named_parameters(), *model.named_buffers()]:
            trail.know(tensor, name)
        for name, module in model.named_modules():
            label = f"{type(model).__name__}.{name}" if name else type(model).__name__
            _hook(trail, weakref.ref(graph), module, label)


def _hook(trail: Trail, graph: Callable[[], Any], module: nn.Module, label: str) -> None:
    def enter(module: nn.Module, args: Any) -> None:
        trail.stack.append(label)
        _mark(trail, graph())

    def leave(module: nn.Module, args: Any, result: Any) -> None:
        if trail.stack:
            trail.stack.pop()
        _mark(trail, graph())

    trail.handles += [
        module.register_forward_pre_hook(enter),
        module.register_forward_hook(leave, always_call=True),
    ]


def _mark(trail: Trail, graph: Any) -> None:
    if graph is None or graph.tape is None or graph.thread is None:
        for handle in trail.handles:
            handle.remove()
        trail.handles.clear()
    elif graph.tape.epoch == trail.epoch:
        trail.note(len(graph.tape))


def leaf_names_of(graph: Any) -> Callable[[Any], str]:
    """Tensor -> its name in a followed model."""
    trail = _followed.get(graph)
    return (lambda tensor: "") if trail is None else trail.leaf_name


def names_of(graph: Any) -> Callable[[int], str]:
    """Record number -> module name; empty names where nothing is followed or records were renumbered."""
    trail = _followed.get(graph)
    if trail is None or graph.tape is None or graph.tape.epoch != trail.epoch:
        return lambda i: ""
    return trail.name
