"""For tests: a function whose optimization must be proved."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import fields, is_dataclass
from typing import Any

import torch

from autograd_opt import errors
from autograd_opt._common.arguments import named
from autograd_opt.abi.torch_private import tree_leaves
from autograd_opt.graph import references
from autograd_opt.verification.result.budget import ENGINES, Budget
from autograd_opt.verification.result.verdict import Status, Verification


@named
def assert_optimization_proved(
    fn: Callable[..., Any],
    *inputs: Any,
    engines: Sequence[str] = ENGINES,
    budget: Budget | None = None,
    exact: str = "real",
) -> Verification:
    """For tests: record `fn(*inputs)` with optimization on, and require the proof.

    Parameters
    ----------
    fn : returns a tensor, or tensors in tuples, lists, dictionaries, dataclasses, however deep; those
        that require grad are compared, each with all its gradients.
    inputs : leaves (tensors that require grad are compared).

    Raises
    ------
    AssertionError : with the whole report, unless proved.
    ArgumentError : nothing that `fn` returns requires grad.

    Examples
    --------
    >>> import autograd_opt as ao
    >>> v = assert_optimization_proved(lambda x: ((x * x).exp() + x * x).sum(), ao.tensor([1.0, 2.0]))
    >>> v.stats["merged"]
    1
    """
    import autograd_opt as ao

    if not callable(fn):
        raise errors.ArgumentTypeError(errors.at(
            f"fn is of type {type(fn).__name__}: pass the function itself, and its arguments behind it"))
    with ao.AutogradGraph(optimize=True) as graph:
        out = fn(*inputs)
        tensors = tensors_of(out)
        outputs = [t for t in tensors if references.requires_grad(t)]
        if not outputs:
            raise errors.ArgumentError(errors.at(
                f"fn returned no tensor that requires grad (type {type(out).__name__}, tensors in it: {len(tensors)}): "
                "pass inputs that require grad, such as autograd_opt.tensor(...), and return what is computed of them"))
        found: Verification = graph.verify(outputs, engines=engines, budget=budget, exact=exact)
    if found.status is not Status.PROVED:
        raise AssertionError(str(found))
    return found


def tensors_of(value: Any) -> list[torch.Tensor]:
    """All tensors in what a function returns; of a dataclass that is not registered with torch, of its fields."""
    out: list[torch.Tensor] = []
    for part in tree_leaves(value):
        if isinstance(part, torch.Tensor):
            out.append(part)
        elif is_dataclass(part) and not isinstance(part, type):
            out += tensors_of([getattr(part, f.name) for f in fields(part)])
    return out
