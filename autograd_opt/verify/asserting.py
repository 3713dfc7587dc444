"""For tests: a function whose optimization must be proved."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

from autograd_opt.verify.budget import ENGINES, Budget
from autograd_opt.verify.verdict import Status, Verification
from autograd_opt.verify.verifier import verify


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
    fn : returns a tensor or a tuple of tensors.
    inputs : leaves (tensors that require grad are compared).

    Raises
    ------
    AssertionError : with the whole report, unless proved.

    Examples
    --------
    >>> import autograd_opt as ao
    >>> v = assert_optimization_proved(lambda x: ((x * x).exp() + x * x).sum(), ao.tensor([1.0, 2.0]))
    >>> v.stats["merged"]
    1
    """
    import autograd_opt as ao

    with ao.AutogradGraph(optimize=True) as graph:
        out = fn(*inputs)
        outs = [o for o in (out if isinstance(out, (tuple, list)) else (out,)) if isinstance(o, torch.Tensor)]
        found = verify(
            graph.tape.snapshot(), [o.grad_fn for o in outs], None, engines=engines, budget=budget, exact=exact
        )
    if found.status is not Status.PROVED:
        raise AssertionError(str(found))
    return found
