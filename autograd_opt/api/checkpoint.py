"""checkpoint: save a function's inputs instead of what it computes, and compute it again in backward.

torch's own `torch.utils.checkpoint.checkpoint` works inside a context unchanged, in both
variants; this is its non-reentrant one.  What runs inside a checkpoint is neither kept for
reuse nor merged, so optimization never undoes the saving.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar, cast

from torch.utils.checkpoint import checkpoint as _checkpoint

from autograd_opt import errors
from autograd_opt._common.arguments import choice, function_of_tensors

R = TypeVar("R")


def checkpoint(function: Callable[..., R], *args: Any, preserve_rng_state: bool = True,
               determinism_check: str = "default", **kwargs: Any) -> R:
    """`function(*args, **kwargs)`, of which backward saves nothing but the arguments.

    Parameters
    ----------
    function : called now, and once more for each backward run that needs it.
    preserve_rng_state : draw the same random numbers again.
    determinism_check : "default" compares shapes, dtypes and devices of both computations; "none" nothing.

    Raises
    ------
    ArgumentTypeError, ArgumentError : `function` cannot be called; a wrong option.
    torch.utils.checkpoint.CheckpointError : the second computation saved something else.

    >>> import torch, autograd_opt as ao
    >>> x = ao.tensor([0.0, 1.0])
    >>> with ao.AutogradGraph(optimize=True):
    ...     ao.checkpoint(lambda t: t.exp() * t, x).sum().backward()
    >>> x.grad
    tensor([1.0000, 5.4366])
    """
    function_of_tensors("checkpoint", function)
    choice("determinism_check", determinism_check, ("default", "none"))
    if "use_reentrant" in kwargs:
        raise errors.ArgumentTypeError(errors.at(
            "checkpoint() has no option 'use_reentrant', and is always the one with use_reentrant=False: leave it out, "
            "or call torch.utils.checkpoint.checkpoint"
        ))
    return cast(R, _checkpoint(function, *args, use_reentrant=False, preserve_rng_state=preserve_rng_state,
                               determinism_check=determinism_check, **kwargs))
