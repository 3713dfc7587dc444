"""Adding operators from outside: a function, its rules, and what may be done with it."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, TypeVar

from autograd_opt import dispatch, passes
from autograd_opt.errors import ArgumentError, at
from autograd_opt.node import get_recording
from autograd_opt.ops.table import CALLS, COMMUTATIVE, ELEMENTWISE, OPS, PURE, define
from autograd_opt.options import named

F = TypeVar("F", bound=Callable[..., Any])

register_pass = named(passes.register_pass)


def register_op(signature: str, *, name: str | None = None, pure: bool = False, elementwise: bool = False,
                commutative: bool = False, meaning: Callable[..., Any] | None = None,
                joint: Callable[..., Any] | None = None, **rules: Callable[..., Any] | None) -> Callable[[F], F]:
    """Make a function an operator of every graph: recorded as one node, differentiated by your rules.

    Parameters
    ----------
    signature : operands and attributes, `"x, y, *, scale=1.0"`; those without a default are operands.
    name : the operator's name; by default the function's.
    pure : equal operands and attributes give equal bits: calls may be merged and values reused.
    elementwise : element i of the output depends on element i of each operand; operands broadcast.
    commutative : two operands in either order give the same bits.
    meaning : the same value by elementary operations, for proofs through this operator.
    joint : one rule for all operands, returning a tuple of cotangents.
    rules : one for each operand by its name: a function of the cotangent `g` and, by name, of what
        it reads: operands, `ans`, `x_shape`, and attributes as keyword-only arguments.

    Returns
    -------
    A decorator.  Outside a graph the function runs as it is, differentiated by torch.

    Raises
    ------
    ArgumentError : the name is taken, or a rule names what the signature lacks.

    >>> import torch, autograd_opt as ao
    >>> @register_op("x, *, slope=1.0", pure=True, elementwise=True, name="doc_ramp",
    ...              x=lambda g, x, *, slope: g * slope * (x > 0))
    ... def ramp(x, *, slope=1.0):
    ...     return slope * x.clamp(min=0)
    >>> x = ao.tensor([-1.0, 2.0])
    >>> with ao.AutogradGraph(optimize=True) as graph:
    ...     (ramp(x, slope=3.0) + ramp(x, slope=3.0)).sum().backward()
    ...     print(graph.report().reused, x.grad)
    1 tensor([0., 6.])
    """
    flags = PURE * pure | ELEMENTWISE * elementwise | COMMUTATIVE * commutative

    def register(function: F) -> F:
        label = name or function.__name__
        if label in OPS:
            raise ArgumentError(at(f"an operator named {label!r} exists already: choose another name"))
        try:
            define(label, signature, flags, "", joint=joint, forward=function, meaning=meaning, **rules)  # type: ignore[arg-type]
        except ValueError as error:
            raise ArgumentError(at(str(error))) from error
        CALLS[function] = label

        @functools.wraps(function)
        def recorded(*args: Any, **kwargs: Any) -> Any:
            if get_recording() is None:
                return function(*args, **kwargs)
            return dispatch.call(function, args, kwargs)

        return recorded  # type: ignore[return-value]

    return register
