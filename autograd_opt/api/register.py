"""Adding operators from outside: a function, its rules, and what may be done with it."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, TypeVar

from autograd_opt import passes
from autograd_opt._common.arguments import named, yes_or_no
from autograd_opt.errors import ArgumentError, ArgumentTypeError, at
from autograd_opt.graph.thread_state import get_recording
from autograd_opt.ops import registered
from autograd_opt.ops.registered import joint_rule, one_tensor, refused, require_rules, rule_for, words_of
from autograd_opt.ops.table import CALLS, COMMUTATIVE, ELEMENTWISE, OPS, PURE, RESERVED, USERS, define
from autograd_opt.record import dispatch

F = TypeVar("F")

register_pass = named(passes.register_pass)


def register_op(signature: str, *, name: str | None = None, pure: bool = False, elementwise: bool = False,
                commutative: bool = False, meaning: Callable[..., object] | None = None,
                joint: Callable[..., object] | None = None, **rules: Callable[..., object] | None) -> Callable[[F], F]:
    """Make a function an operator of every graph: recorded as one node, differentiated by your rules.

    Parameters
    ----------
    signature : operands and attributes, `"x, y, *, scale=1.0"`; those without a default are operands.
    name : the operator's name; by default the function's.
    pure : equal operands and attributes give equal bits: calls may be merged and values reused.
    elementwise : element i of the output depends on element i of each operand; operands broadcast.
    commutative : two operands in either order give the same bits.  With `pure` and optimize=True, calls with
        exchanged operands are then one value; a proof of that needs a `meaning`.
    meaning : the same value by elementary operations, for proofs through this operator.
    joint : one rule for all operands, returning a tuple of cotangents.
    rules : one for each operand by its name, None where no gradient is to flow: a function of the
        cotangent `g` and, by name, of what it reads: operands, `ans`, `x_shape`, and attributes as
        keyword-only arguments.  What it returns is held to the operand's shape, as torch does.

    Returns
    -------
    A decorator.  Outside a graph the function runs as it is, differentiated by torch.

    Raises
    ------
    ArgumentError : the name is taken or reserved, the signature cannot be read, or the rules are not those of its
        operands.
    ArgumentTypeError : something else than text, a function, or True or False.

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
    operands, attributes = words_of(signature)
    if name is not None and not isinstance(name, str):
        raise ArgumentTypeError(at(f"name={name!r} is of type {type(name).__name__}: choose text, or None"))
    if name == "":
        raise refused("name='' is empty: choose another, or None for the function's")
    said = name or f'register_op("{signature}")'
    flags = (PURE * yes_or_no("pure", pure) | ELEMENTWISE * yes_or_no("elementwise", elementwise)
             | COMMUTATIVE * yes_or_no("commutative", commutative))
    if commutative and len(operands) != 2:
        raise refused(f"{said}: commutative=True is about two operands, and the signature has {len(operands)}")
    if meaning is not None and not callable(meaning):
        raise ArgumentTypeError(at(
            f"{said}: meaning={meaning!r} is of type {type(meaning).__name__}: choose a function of the operands"))
    require_rules(said, operands, attributes, joint, rules)

    def register(function: F) -> F:
        label = name or getattr(function, "__name__", "")
        if not callable(function) or not label:
            raise ArgumentTypeError(at(f"{said} decorates a function, not {function!r}" + (
                ", which has no name: give name=" if callable(function) else "")))
        if label in OPS:
            raise ArgumentError(at(
                f"an operator named {label!r} exists already, and stays until the process ends: choose another name="))
        if label in RESERVED or label.startswith("aten::"):
            raise ArgumentError(at(f"{label!r} is a word of proofs: choose another name"))
        forward = one_tensor(label, operands, function)
        checked = {operand: rule_for(label, operand, k, bool(elementwise), rules[operand])
                   for k, operand in enumerate(operands) if operand in rules}
        together = None if joint is None else joint_rule(label, operands, bool(elementwise), joint)
        try:
            made = define(label, signature, flags, joint=together, forward=forward, meaning=meaning, **checked)  # type: ignore[arg-type]
        except ValueError as error:
            raise ArgumentError(at(f"{label}: {error}")) from error
        made.typed = True
        USERS.add(made)
        CALLS[forward] = label

        @functools.wraps(function)
        def recorded(*args: Any, **kwargs: Any) -> Any:
            if get_recording() is None:
                return function(*args, **kwargs)
            if len(args) > len(operands) or kwargs:
                registered.require_no_gradient(label, operands, list(attributes), args, kwargs)
            return dispatch.call(forward, args, kwargs)

        return recorded  # type: ignore[return-value]

    return register
