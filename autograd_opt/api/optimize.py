"""optimize: one line that lets a function or a module of any torch program be recorded and optimized."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar, Unpack, overload

import torch

from autograd_opt import errors
from autograd_opt._common.arguments import parameters_of, refuse_others
from autograd_opt.api.graph import AutogradGraph
from autograd_opt.api.region_modules import optimized_module, through
from autograd_opt.api.regions import Region

if TYPE_CHECKING:
    from autograd_opt.api.options import CallOptions

F = TypeVar("F")


@overload
def optimize(function: F, /, *, optimize: bool | str = True, **options: Unpack[CallOptions]) -> F: ...
@overload
def optimize(function: None = None, /, *, optimize: bool | str = True,
             **options: Unpack[CallOptions]) -> Callable[[F], F]: ...
def optimize(function: Any = None, /, **options: Any) -> Any:
    """Make every call of a function or module a region: recorded, optimized, one node of torch's own graph.

    Parameters
    ----------
    function : a function, or a `torch.nn.Module`, which stays the same object; without it a decorator is returned.
    options : those of `AutogradGraph`, with `optimize=True` by default, and `patience`: after so many calls in a row
        (8) in which the optimizer saved less than recording takes, calls run as written, and one of 64, later of up to
        1024, is recorded to look again. With None every call is recorded; so it is with `verify`, `anomaly`, `passes`,
        without `optimize`, and in a program that makes leaves by `ao.tensor`.

    Returns
    -------
    The function that goes through the region, or the module given. Results are ordinary tensors: gradients go on in
    torch's own graph, to the histories of arguments and to parameters. Under `no_grad`, inside an `AutogradGraph` or
    another region, under saved-tensor hooks and inside transforms the function runs as written.

    Raises
    ------
    ArgumentTypeError : something that cannot be called, a class, or an async function; an unknown option.
    ArgumentError : `patience` is not positive.
    UnsupportedError : a TorchScript module.

    >>> import torch, autograd_opt as ao
    >>> net = ao.optimize(torch.nn.Linear(2, 1))
    >>> loss = net(torch.ones(3, 2)).sum()
    >>> loss.backward()
    >>> net.weight.grad
    tensor([[3., 3.]])
    """
    refuse_others("optimize", options, ["patience", *parameters_of(AutogradGraph.__init__)])
    if function is None:
        Region({"optimize": True, **options})
        return functools.partial(optimize, **options)
    region = Region({"optimize": True, **options})
    if isinstance(function, torch.nn.Module):
        return optimized_module(function, region)
    require_computing("ao.optimize", function)
    return through(region, function)


def require_computing(what: str, function: Any) -> None:
    """Refuse what computes nothing when it is called."""
    if not callable(function) or isinstance(function, type) or inspect.iscoroutinefunction(function) \
            or inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function):
        raise errors.ArgumentTypeError(errors.at(
            f"{what} takes a function or a torch.nn.Module, not {kind(function)}: give it a function that "
            "computes tensors when it is called"
        ))


def kind(function: Any) -> str:
    """How messages call what cannot be optimized."""
    if isinstance(function, type):
        return f"the class {function.__name__}"
    if callable(function):
        return f"{function.__qualname__}, which computes when it is awaited or iterated over"
    return f"a value of type {type(function).__name__}"
