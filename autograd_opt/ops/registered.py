"""Operators of the user's: what they are registered with, and what their functions and rules return, is looked at.

A rule is called through a function that asks for the operand's shape as well and holds the
cotangent against it, as torch does after every backward.  The library's own rules are not.
"""

from __future__ import annotations

import functools
import inspect
import keyword
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import torch

from autograd_opt import errors
from autograd_opt._common.arguments import hint
from autograd_opt.abi import torch_private as private
from autograd_opt.ops.table import FIXED, signature_of

Tensor = torch.Tensor
Rule = Callable[..., Any]
OWN = ("signature", "name", "pure", "elementwise", "commutative", "meaning", "joint")
"""The keywords of `register_op` itself."""
KEPT = "kept"
"""Of a rule that holds tensors without data, on which a proof ran it: what is said where it uses them."""
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
            rest = hint(name, known) or ("" if rules.keys() & set(operands) else
                                         f": the signature comes first, and the operator's name is name=: {EXAMPLE}")
            raise refused(f"{label}: {name!r} is neither an operand of the signature ({', '.join(operands)}) nor an "
                          f"option{rest}")
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


def asking(rule: Rule, words: Sequence[str], judge: Callable[..., Any]) -> Rule:
    """`rule`, whose result goes through `judge(result, g, *words)`: it asks for those words as well."""
    parameters = list(inspect.signature(rule).parameters.values())
    names = [p.name for p in parameters if p.kind is not p.KEYWORD_ONLY]
    count = len(names) - 1
    asked = names + [word for word in words if word not in names[1:]]
    places = [asked.index(word, 1) - 1 for word in words]

    @functools.wraps(rule)
    def judged(g: Any, *reads: Any, **attributes: Any) -> Any:
        try:
            result = rule(g, *reads[:count], **attributes)
        except RuntimeError as error:
            if KEPT in judged.__dict__ and "meta" in str(error):
                raise errors.GraphError(judged.__dict__[KEPT]) from error
            raise
        if KEPT in judged.__dict__ and without_data(result) and not without_data(g):
            raise errors.GraphError(judged.__dict__[KEPT])
        return judge(result, g, *[reads[i] for i in places]) if isinstance(g, Tensor) else result

    judged.__signature__ = inspect.Signature([          # type: ignore[attr-defined]
        *[inspect.Parameter(name, inspect.Parameter.POSITIONAL_ONLY) for name in asked],
        *[p for p in parameters if p.kind is p.KEYWORD_ONLY]])
    return judged


def without_data(result: Any) -> bool:
    """Is one of these a tensor without data?"""
    return any(isinstance(t, Tensor) and t.device.type == "meta"
               for t in (result if isinstance(result, (tuple, list)) else (result,)))


def expandable(shape: Sequence[int], to: Sequence[int]) -> bool:
    """Does `shape` broadcast to this shape?"""
    return len(shape) <= len(to) and all(s in (1, t) for s, t in zip(reversed(shape), reversed(to), strict=False))


def fitted(label: str, operand: str, index: int, later: bool, g: Any, cotangent: Any, shape: Any) -> Any:
    """A cotangent that a rule returned, brought to its operand's shape where torch would.

    `later`: one of the output's shape is summed by the engine, on the edge.
    """
    if cotangent is None:
        return None
    if not isinstance(cotangent, Tensor):
        raise errors.GraphError(
            f"expected Variable or None (got {type(cotangent).__name__}): the rule of {label} for the operand "
            f"{operand!r} returns a tensor of the operand's shape, or None")
    found = cotangent.shape
    if found == shape or (later and found == g.shape and expandable(shape, found)):
        return cotangent
    if not expandable(shape, found):
        raise errors.GraphError(
            f"Function {label}Backward returned an invalid gradient at index {index} - got {list(found)} but expected "
            f"shape compatible with {list(shape)}: it came from the rule for the operand {operand!r}")
    return cotangent.sum_to_size(tuple(shape))


def rule_for(label: str, operand: str, index: int, elementwise: bool, rule: Rule | None) -> Rule | None:
    """The rule of one operand, with its result looked at."""
    if rule is None:
        return None

    def judge(cotangent: Any, g: Any, shape: Any) -> Any:
        return fitted(label, operand, index, elementwise, g, cotangent, shape)

    return asking(rule, [f"{operand}_shape"], judge)


def joint_rule(label: str, operands: Sequence[str], elementwise: bool, rule: Rule) -> Rule:
    """The rule of all operands, with its results counted and looked at."""
    def judge(results: Any, g: Any, needs: Any, shapes: Any) -> Any:
        results = tuple(results) if isinstance(results, (tuple, list)) else (results,)
        n = len(operands)
        if len(results) < n or any(r is not None for r in results[n:]):
            raise errors.GraphError(
                f"function {label}Backward returned an incorrect number of gradients (expected {n}, got "
                f"{len(results)}): joint= returns a tuple with one for each of {', '.join(operands)}, None where none "
                "flows")
        return tuple([fitted(label, name, k, elementwise, g, r, shape) if need else None
                      for k, (name, r, need, shape) in enumerate(zip(operands, results, needs, shapes, strict=False))])

    return asking(rule, ["needs", "shapes"], judge)


def followed(value: Any, levels: int = 3) -> bool:
    """Is this a tensor that requires a gradient, or does it hold one?"""
    if isinstance(value, Tensor):
        return value.requires_grad
    inside = value.values() if isinstance(value, dict) else value if isinstance(value, (list, tuple)) else ()
    return levels > 0 and any(followed(v, levels - 1) for v in inside)


def require_no_gradient(label: str, operands: Sequence[str], attributes: Sequence[str], args: Sequence[Any],
                        kwargs: Mapping[str, Any]) -> None:
    """Refuse attributes that a gradient would have to flow to."""
    named = [*zip(attributes, args[len(operands):], strict=False), *kwargs.items()]
    wrong = [name for name, value in named if name in attributes and followed(value)]
    if wrong and torch.is_grad_enabled():
        raise refused(f"{label}: the attribute {wrong[0]} holds a tensor that requires a gradient, and none flows to "
                      "attributes: make it an operand, before the * of the signature, or detach() it")


def one_tensor(label: str, operands: Sequence[str], function: Callable[..., Any]) -> Callable[..., Any]:
    """`function` as the operator's own, by which it is known: another may be made of the same one."""
    @functools.wraps(function)
    def forward(*args: Any, **kwargs: Any) -> Any:
        given = {name: t for name, t in [*zip(operands, args, strict=False), *kwargs.items()]
                 if name in operands and isinstance(t, Tensor) and not t.is_inference()}
        before = list(map(private.version_of, given.values()))
        result = function(*args, **kwargs)
        for (name, t), version in zip(given.items(), before, strict=True):
            if private.version_of(t) != version:
                raise errors.GraphError(errors.at(
                    f"{label} writes to its operand {name} in place, which no rule can follow: write to a clone() "
                    "in its function, and return that"))
        if not isinstance(result, Tensor):
            raise errors.ArgumentTypeError(errors.at(
                f"{label} returned a value of type {type(result).__name__}: an operator of register_op gives one "
                "tensor; for several results use ao.CustomFunction"))
        return result

    return forward
