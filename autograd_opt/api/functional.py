"""Derivatives of functions: gradients, products with Jacobians and Hessians, whole Jacobians.

`vjp`, `jvp`, `jacobian`, `hessian`, `hvp` and `vhp` take and return what the functions of
the same names in `torch.autograd.functional` do, and check their arguments with the same
words; `grad` and `value_and_grad` are function transformations as in `torch.func`.  Each
runs in the open graph where there is one, else in a graph of its own, which `optimize=`
configures.  With `create_graph=True` the result belongs to a graph, so one must be open.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Literal, Protocol, TypeVar, cast, overload

import torch
from torch.autograd import functional as reference

from autograd_opt import errors
from autograd_opt._common.arguments import function_of_tensors, named
from autograd_opt.abi import torch_private as private
from autograd_opt.abi.original_functions import GRAD
from autograd_opt.api.graph import AutogradGraph
from autograd_opt.graph import thread_state

Tensor = torch.Tensor
Function = Callable[..., Any]
F = TypeVar("F", bound=Callable[..., Any])
Nested = Tensor | tuple["Nested", ...]
"""A tensor, or tuples of them in the structure of the arguments."""


@contextmanager
def recording(optimize: bool, create_graph: bool = False, name: str = "") -> Iterator[None]:
    """The open graph, or one for this call."""
    if thread_state.get_active() is not None:
        yield
        return
    if create_graph:
        raise errors.OutsideGraphError(errors.at(
            f"{name}(create_graph=True) was called outside any AutogradGraph: its result would belong to a graph that "
            "has been left; call it inside `with AutogradGraph(): ...`"
        ))
    graph = AutogradGraph(optimize)
    graph.numbered = True                    # all callers of these functions open their graphs here
    with graph:
        yield


def released(x: Any) -> Any:
    """Results without a handle on a graph that has been left."""
    if thread_state.get_active() is not None:
        return x
    if isinstance(x, Tensor):
        with private.DisableTorchFunction():
            return x.detach().as_subclass(Tensor)
    return type(x)(released(e) for e in x) if isinstance(x, (tuple, list)) else x


def worded(function: F) -> F:
    """`function` with torch's refusals of its arguments in the classes of this library."""
    @functools.wraps(function)
    def call(func: Any, *args: Any, **kwargs: Any) -> Any:
        function_of_tensors(function.__name__, func)
        try:
            return function(func, *args, **kwargs)
        except (TypeError, RuntimeError) as error:
            if raised_in(error) != reference.__file__:
                raise
            raise errors.worded(error) from error

    return cast(F, call)


def raised_in(error: Exception) -> str:
    """The file that raised an error."""
    place = error.__traceback__
    while place is not None and place.tb_next is not None:
        place = place.tb_next
    return "" if place is None else place.tb_frame.f_code.co_filename


class Product(Protocol):
    """The call of `vjp`, `jvp`, `hvp` and `vhp`: the value of the function, and the product."""

    @overload
    def __call__(self, func: Function, inputs: Tensor, v: Tensor | None = ..., create_graph: bool = ...,
                 strict: bool = ..., *, optimize: bool = ...) -> tuple[Tensor, Tensor]: ...
    @overload
    def __call__(self, func: Function, inputs: tuple[Tensor, ...], v: Nested | None = ..., create_graph: bool = ...,
                 strict: bool = ..., *, optimize: bool = ...) -> tuple[Nested, Nested]: ...


def product(name: str) -> Product:
    """`vjp`, `jvp`, `hvp` or `vhp` of torch, computed by this library's graph."""
    function = getattr(reference, name)

    def call(func: Function, inputs: Any, v: Any = None, create_graph: bool = False, strict: bool = False, *,
             optimize: bool = False) -> Any:
        with recording(optimize, create_graph, name):
            result = function(func, inputs, v, create_graph, strict)
        return released(result)

    call.__name__ = call.__qualname__ = name
    call.__doc__ = DOCS[name] + PARAMETERS
    return cast(Product, worded(named(call)))


DOCS = {
    "vjp": """(f(inputs), v · J): the vector-Jacobian product.

    >>> import torch, autograd_opt as ao
    >>> ao.vjp(lambda x: x * x, torch.tensor([1.0, 2.0]), torch.ones(2))
    (tensor([1., 4.]), tensor([2., 4.]))
    """,
    "jvp": """(f(inputs), J · v): the Jacobian-vector product, by two reverse runs.

    >>> import torch, autograd_opt as ao
    >>> ao.jvp(lambda x: x.sum() * x, torch.tensor([1.0, 2.0]), torch.tensor([1.0, 0.0]))
    (tensor([3., 6.]), tensor([4., 2.]))
    """,
    "hvp": """(f(inputs), H · v) of a function with one value.

    >>> import torch, autograd_opt as ao
    >>> ao.hvp(lambda x: (x ** 3).sum(), torch.tensor([1.0, 2.0]), torch.ones(2))
    (tensor(9.), tensor([ 6., 12.]))
    """,
    "vhp": """(f(inputs), v · H) of a function with one value; cheaper than `hvp`.

    >>> import torch, autograd_opt as ao
    >>> ao.vhp(lambda x: (x ** 3).sum(), torch.tensor([1.0, 2.0]), torch.ones(2))
    (tensor(9.), tensor([ 6., 12.]))
    """,
}

PARAMETERS = """
    Parameters
    ----------
    func : takes tensors, returns a tensor or a tuple of them; for `hvp` and `vhp` one element.
    inputs : a tensor or a tuple of tensors, of a floating dtype.
    v : of the shape of what it is multiplied with: the outputs for `vjp`, the inputs else; may be left
        out where that has one element.
    create_graph : whether the results can be differentiated; needs an open graph.
    strict : raise where an output does not depend on an input, instead of zeros.
    optimize : merge repeated work, in a graph of this call's own.

    Raises
    ------
    OutsideGraphError : `create_graph` outside any graph.
    GraphError, ArgumentTypeError : torch refuses an argument: `v` is missing, say, or has another shape.
    """

vjp, jvp, hvp, vhp = product("vjp"), product("jvp"), product("hvp"), product("vhp")


@overload
def jacobian(func: Function, inputs: Tensor, create_graph: bool = ..., strict: bool = ..., vectorize: bool = ...,
             strategy: str = ..., *, optimize: bool = ...) -> Tensor: ...
@overload
def jacobian(func: Function, inputs: tuple[Tensor, ...], create_graph: bool = ..., strict: bool = ...,
             vectorize: bool = ..., strategy: str = ..., *, optimize: bool = ...) -> tuple[Nested, ...]: ...
@worded
@named
def jacobian(func: Function, inputs: Any, create_graph: bool = False, strict: bool = False, vectorize: bool = False,
             strategy: str = "reverse-mode", *, optimize: bool = False) -> Any:
    """The Jacobian of `func` at `inputs`, in the structure that torch gives it.

    Parameters
    ----------
    func : takes tensors, returns a tensor or a tuple of them.
    inputs : a tensor or a tuple of tensors.
    create_graph : whether the result can be differentiated; needs an open graph.
    strict : raise where an output does not depend on an input, instead of zeros.
    vectorize : all rows in one backward run instead of one run each: many times faster, for the
        memory of all rows' intermediates.
    strategy : "reverse-mode"; "forward-mode" gives the same numbers by the same means.
    optimize : merge repeated work, in a graph of this call's own.

    Returns
    -------
    A tensor of the output's shape followed by the input's: (3, 2) for an output of 3 and an input of 2 elements.
    A tuple of inputs, or of outputs, gives a tuple of them; both give a tuple, by outputs, of tuples.

    Raises
    ------
    ArgumentError, ArgumentTypeError : wrong options, or inputs that are no tensors.
    GraphError : `strict` and an output that does not depend on an input.
    OutsideGraphError : `create_graph` outside any graph.

    >>> import torch, autograd_opt as ao
    >>> ao.jacobian(lambda x: x * x.sum(), torch.tensor([1.0, 2.0]))
    tensor([[4., 1.],
            [2., 5.]])
    """
    check_strategy("jacobian", strategy, create_graph)
    with recording(optimize, create_graph, "jacobian"):
        if strict and (vectorize or strategy == "forward-mode"):     # refused by torch, after its other checks
            return reference.jacobian(func, inputs, create_graph, strict, vectorize, strategy)
        result = reference.jacobian(func, inputs, create_graph, strict, vectorize)
    return released(result)


@overload
def hessian(func: Function, inputs: Tensor, create_graph: bool = ..., strict: bool = ..., vectorize: bool = ...,
            outer_jacobian_strategy: str = ..., *, optimize: bool = ...) -> Tensor: ...
@overload
def hessian(func: Function, inputs: tuple[Tensor, ...], create_graph: bool = ..., strict: bool = ...,
            vectorize: bool = ..., outer_jacobian_strategy: str = ..., *,
            optimize: bool = ...) -> tuple[tuple[Tensor, ...], ...]: ...
@worded
@named
def hessian(func: Function, inputs: Any, create_graph: bool = False, strict: bool = False, vectorize: bool = False,
            outer_jacobian_strategy: str = "reverse-mode", *, optimize: bool = False) -> Any:
    """The Hessian of a function with one value, in the structure that torch gives it.

    The parameters and errors are those of `jacobian`; its `strategy` is called `outer_jacobian_strategy` here, as in
    torch.  The result has the input's shape twice: (2, 3, 2, 3) for an input of shape (2, 3).  A tuple of inputs gives
    a tuple of tuples.

    >>> import torch, autograd_opt as ao
    >>> ao.hessian(lambda x: (x ** 3).sum(), torch.tensor([1.0, 2.0]), optimize=True)
    tensor([[ 6.,  0.],
            [ 0., 12.]])
    """
    check_strategy("hessian", outer_jacobian_strategy, create_graph)
    with recording(optimize, create_graph, "hessian"):
        if strict and (vectorize or outer_jacobian_strategy == "forward-mode"):
            return reference.hessian(func, inputs, create_graph, strict, vectorize, outer_jacobian_strategy)
        result = reference.hessian(func, inputs, create_graph, strict, vectorize)
    return released(result)


def check_strategy(name: str, strategy: str, create_graph: bool) -> None:
    """Refuse the strategies that torch refuses before it looks at the function."""
    if strategy not in ("forward-mode", "reverse-mode"):
        raise errors.ArgumentError(errors.at(
            f'{name}: expected strategy to be either "forward-mode" or "reverse-mode", got {strategy!r}. Hint: if your '
            'function has more outputs than inputs, "forward-mode" tends to be more performant. Otherwise, prefer to '
            'use "reverse-mode".'
        ))
    if strategy == "forward-mode" and create_graph:
        raise errors.UnsupportedError(errors.at(
            f'torch.autograd.functional.{name}: `create_graph=True` and `strategy="forward-mode"` are not supported '
            'together (yet). Please either set `create_graph=False` or `strategy="reverse-mode"`.'
        ))


@overload
def value_and_grad(func: Function, argnums: int = ..., has_aux: Literal[False] = ..., *,
                   optimize: bool = ...) -> Callable[..., tuple[Tensor, Tensor]]: ...
@overload
def value_and_grad(func: Function, argnums: tuple[int, ...], has_aux: Literal[False] = ..., *,
                   optimize: bool = ...) -> Callable[..., tuple[Tensor, tuple[Tensor, ...]]]: ...
@overload
def value_and_grad(func: Function, argnums: int | tuple[int, ...] = ..., has_aux: bool = ..., *,
                   optimize: bool = ...) -> Function: ...
@named
def value_and_grad(func: Function, argnums: int | tuple[int, ...] = 0, has_aux: bool = False, *,
                   optimize: bool = False) -> Function:
    """A function that returns the value of `func` and its gradient.

    Parameters
    ----------
    func : returns a tensor with one element, or (tensor, auxiliary) with `has_aux`.
    argnums : the positions of the arguments to differentiate.
    has_aux : whether `func` returns something besides.
    optimize : merge repeated work, in a graph of each call's own.

    Raises
    ------
    ArgumentTypeError : `func` cannot be called, `argnums` holds other things than numbers, an argument is no tensor.
    ArgumentError : `argnums` is empty, or names an argument that is not there.
    GraphError : the value is not one number, an argument cannot require a gradient, or `has_aux` finds no pair.

    >>> import torch, autograd_opt as ao
    >>> ao.value_and_grad(lambda x, y: (x * y).sum())(torch.tensor([1.0, 2.0]), torch.tensor([3.0, 4.0]))
    (tensor(11.), tensor([3., 4.]))
    """
    function_of_tensors("grad", func)
    places = positions(argnums)

    @functools.wraps(func)
    def call(*args: Any, **kwargs: Any) -> Any:
        nested = thread_state.get_active() is not None
        with recording(optimize), torch.enable_grad():
            given = list(args)
            for k in places:
                given[k] = fresh(args, k, nested)
            out = func(*given, **kwargs)
            value, aux = pair(out) if has_aux else (out, None)
            if not isinstance(value, Tensor) or value.numel() != 1:
                raise errors.GraphError(errors.at(
                    f"the function to differentiate must return a tensor with one element, not {describe(value)}"
                ))
            wanted = [given[k] for k in places]
            gradients = GRAD(value, wanted, create_graph=nested, allow_unused=True, materialize_grads=True) \
                if value.requires_grad else tuple(torch.zeros_like(t) for t in wanted)
            result: Any = gradients[0] if isinstance(argnums, int) else gradients
            value = value if nested else value.detach()
        result, value = released(result), released(value)
        return ((value, aux), result) if has_aux else (value, result)

    return call


@overload
def grad(func: Function, argnums: int = ..., has_aux: Literal[False] = ..., *,
         optimize: bool = ...) -> Callable[..., Tensor]: ...
@overload
def grad(func: Function, argnums: tuple[int, ...], has_aux: Literal[False] = ..., *,
         optimize: bool = ...) -> Callable[..., tuple[Tensor, ...]]: ...
@overload
def grad(func: Function, argnums: int | tuple[int, ...] = ..., has_aux: bool = ..., *,
         optimize: bool = ...) -> Function: ...
@named
def grad(func: Function, argnums: int | tuple[int, ...] = 0, has_aux: bool = False, *,
         optimize: bool = False) -> Function:
    """A function that returns the gradient of `func`; nests for higher orders.

    The parameters and errors are those of `value_and_grad`.  The gradient has the shape and dtype of the argument; a
    tuple of `argnums` gives a tuple of gradients.

    >>> import torch, autograd_opt as ao
    >>> f = lambda x: x ** 3
    >>> ao.grad(ao.grad(f))(torch.tensor(2.0))
    tensor(12.)
    """
    transformed = value_and_grad(func, argnums, has_aux, optimize=optimize)

    @functools.wraps(func)
    def call(*args: Any, **kwargs: Any) -> Any:
        value, result = transformed(*args, **kwargs)
        return (result, value[1]) if has_aux else result

    return call


def positions(argnums: Any) -> tuple[int, ...]:
    """The positions that `argnums` names."""
    places = tuple(argnums) if isinstance(argnums, (tuple, list)) else (argnums,)
    if not all(isinstance(k, int) for k in places):
        raise errors.ArgumentTypeError(errors.at(
            f"argnums={argnums!r}: choose the position of an argument, or a tuple of positions"))
    if not places:
        raise errors.ArgumentError(errors.at("argnums is empty: name at least one argument"))
    return places


def pair(out: Any) -> tuple[Any, Any]:
    """The value and what a function returns besides."""
    if not isinstance(out, (tuple, list)) or len(out) != 2:
        raise errors.GraphError(errors.at(
            f"with has_aux=True the function must return two things, the value and another, not {describe(out)}"))
    return out[0], out[1]


def fresh(args: tuple[Any, ...], k: int, nested: bool) -> Tensor:
    """Argument `k` as a tensor to differentiate with respect to; connected to the graph that is open around."""
    if not -len(args) <= k < len(args):
        raise errors.ArgumentError(errors.at(f"argnums names argument {k}, but there are {len(args)}"))
    x = args[k]
    if not isinstance(x, Tensor):
        raise errors.ArgumentTypeError(errors.at(f"argument {k} to differentiate is {describe(x)}, not a tensor"))
    if not (x.is_floating_point() or x.is_complex()):
        raise errors.GraphError(errors.at(
            f"only Tensors of floating point and complex dtype can require gradients, and argument {k} is of "
            f"{x.dtype}: give it as floats"
        ))
    if nested and x.requires_grad:
        return x.view_as(x)
    return x.detach().requires_grad_()


def describe(x: Any) -> str:
    """How messages call a value."""
    if isinstance(x, Tensor):
        return f"a tensor of shape {list(x.shape)}"
    return f"a {type(x).__name__}" + (f" of {len(x)}" if isinstance(x, (tuple, list)) else "")
