"""Operators of the user's: what they are registered with, and what their functions return, is looked at."""

from __future__ import annotations

import functools
import inspect
import keyword
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import torch

from autograd_opt import errors
from autograd_opt.ops.table import FIXED, signature_of
from autograd_opt.options import hint

Tensor = torch.Tensor
Rule = Callable[..., Any]
OWN = ("signature", "name", "pure", "elementwise", "commutative", "meaning", "joint")
"""The keywords of `register_op` itself."""
EXAMPLE = '@register_op("x, y, *, scale=1.0", x=rule, y=rule)'


def refused(message: str) -> errors.ArgumentError:
    return errors.ArgumentError(errors.at(message))


def words_of(signature: Any) -> tuple[tuple[str, ...], dict[str, Any]]:
    """Operands, and attributes with their defaults, of a signature.

    Raises
    ------
    ArgumentError : it cannot be read, or names something twice.
    ArgumentTypeError : it is no text.
    """
    if not isinstance(signature, str):
        raise errors.ArgumentTypeError(errors.at(
            f"the signature is of type {type(signature).__name__}, and comes first, as text: {EXAMPLE}"))
    parts = [part.strip() for part in signature.split(",") if part.strip()]
    names = [part.split("=")[0].strip().lstrip("*") for part in parts if part != "*"]
    for k, name in enumerate(names):
        if not name.isidentifier() or keyword.iskeyword(name):
            raise refused(f"the signature {signature!r}: {name!r} is no name; names are separated by commas, and a "
                          "default holds none")
        if name in names[:k]:
            raise refused(f"the signature {signature!r} names {name!r} twice")
        if name in FIXED or name in OWN or name == "g":
            raise refused(f"the signature {signature!r}: {name!r} is a word of rules or of register_op, "
                          "choose another name")
    bare = [part for part in parts[parts.index("*"):] if part != "*" and "=" not in part] if "*" in parts else []
    if bare:
        raise refused(f"the signature {signature!r}: the attribute {bare[0]!r} needs a default, as in '{bare[0]}=1.0'; "
                      "operands stand before the *")
    try:
        operands, attributes, _ = signature_of(signature)
    except Exception as error:           # a default is any expression
        raise refused(f"the signature {signature!r} cannot be read ({type(error).__name__}: {error}): operands first, "
                      f"then attributes with defaults, as in {EXAMPLE}") from error
    if not operands:
        raise refused(f"the signature {signature!r} names no operand: those have no default, as in {EXAMPLE}")
    return operands, attributes


def require_rules(label: str, operands: Sequence[str], attributes: Iterable[str], joint: Rule | None,
                  rules: Mapping[str, Any]) -> None:
    """Refuse rules that are none, or are not one for each operand."""
    for name in rules:
        if name in attributes:
            raise refused(f"{label}: {name!r} is an attribute, and a rule is for an operand: {', '.join(operands)}")
        if name not in operands:
            known = [*OWN, *operands]
            raise refused(f"{label}: {name!r} is neither an operand of the signature ({', '.join(operands)}) nor an "
                          f"option{hint(name, known)}")
    for name, rule in {**rules, "joint": joint}.items():
        if rule is not None and not callable(rule):
            raise errors.ArgumentTypeError(errors.at(
                f"{label}: {name}={rule!r} is of type {type(rule).__name__}: a rule is a function of the cotangent g, "
                "as in x=lambda g, x: g * x"))
    if joint is not None and rules:
        raise refused(f"{label}: joint= is the rule of all operands, and there is one for {', '.join(rules)} besides: "
                      "give either")
    missing = [name for name in operands if name not in rules] if joint is None else []
    if missing:
        raise refused(f"{label}: no rule for {', '.join(missing)}: give {missing[0]}=lambda g: ..., or "
                      f"{missing[0]}=None where no gradient is to flow")
    for name, rule in {**rules, "joint": joint}.items():
        if rule is None:
            continue
        try:
            first = next(iter(inspect.signature(rule).parameters.values()), None)
        except ValueError as error:
            raise refused(f"{label}: what the rule {name}={rule!r} reads cannot be told, for Python does not know its "
                          f"parameters: write {name}=lambda g: ...") from error
        if first is None or first.kind is first.KEYWORD_ONLY or first.name in operands or first.name in attributes \
                or first.name in FIXED:
            got = f"not {first.name!r}" if first is not None else "and there is none"
            raise refused(f"{label}: the first parameter of the rule {name}= is the cotangent g, {got}")


def one_tensor(label: str, function: Callable[..., Any]) -> Callable[..., Any]:
    """`function` as the operator's own, by which it is known: another may be made of the same one."""
    @functools.wraps(function)
    def forward(*args: Any, **kwargs: Any) -> Any:
        result = function(*args, **kwargs)
        if not isinstance(result, Tensor):
            raise errors.ArgumentTypeError(errors.at(
                f"{label} returned a value of type {type(result).__name__}: an operator of register_op gives one "
                "tensor; for several results use ao.CustomFunction"))
        return result

    return forward
