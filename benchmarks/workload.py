"""What a workload is: leaves, and a function of them that knows nothing of this library."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn

Leaf = Callable[[Tensor], Tensor]


def torch_leaf(value: Tensor) -> Tensor:
    """A leaf of torch's own autograd; graphs of this library take it as well."""
    return value.detach().clone().requires_grad_()


@dataclass
class Workload:
    """One thing to measure.

    The same `forward` runs under torch eager and inside an `AutogradGraph`.

    Attributes
    ----------
    name : str
    leaves : sequence of Tensor
        What is differentiated with respect to.
    forward : callable
        `forward(*leaves)` returns the loss, or the results themselves where
        `backward` is false.  Modules ignore the arguments and read their own Parameters.
    module : nn.Module, optional
        Where the leaves are this module's Parameters.
    backward : bool
        Whether a step ends with `.backward()` on the loss.
    advance : callable, optional
        Called between steps, outside the context and the time: a new generation, a new batch.
    random : bool
        Whether a step draws random numbers, so that a comparison has to seed first.
    facts : dict
        What a table prints beside the times.
    data : dict
        Inputs that are not leaves, for the same step said in another library.
    """

    name: str
    leaves: Sequence[Tensor]
    forward: Callable[..., Any]
    module: nn.Module | None = None
    backward: bool = True
    advance: Callable[[], None] | None = None
    random: bool = False
    facts: dict[str, Any] = field(default_factory=dict)
    data: dict[str, Any] = field(default_factory=dict)

    def step(self) -> Any:
        """One forward and, with `backward`, one backward; gradients start at None."""
        for leaf in self.leaves:
            leaf.grad = None
        out = self.forward(*self.leaves)
        if self.backward:
            out.backward()
        return out

    def results(self, out: Any) -> list[Tensor]:
        """What two ways of running a step must agree on: gradients, or the outputs."""
        if not self.backward:
            return [t.detach() for t in (out if isinstance(out, (tuple, list)) else [out])]
        return [torch.zeros_like(leaf) if leaf.grad is None else leaf.grad.detach() for leaf in self.leaves]


def of_module(name: str, module: nn.Module, loss: Callable[[], Tensor], **more: Any) -> Workload:
    """The workload of one training step of a torch module."""
    return Workload(name, list(module.parameters()), lambda *_: loss(), module=module, **more)
