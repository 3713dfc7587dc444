"""Options: an unknown one names the nearest known, a number out of its range says what is in it.

Nothing here is on the way of a call that is right: a wrapped function is called as it is, and only
the error that Python raises for its arguments is looked at.
"""

from __future__ import annotations

import difflib
import functools
import inspect
import math
import operator
import sys
from collections.abc import Callable, Iterable
from typing import Any, TypeVar

import numpy as np

from autograd_opt import errors

F = TypeVar("F", bound=Callable[..., Any])


def hint(name: object, known: Iterable[str]) -> str:
    """Ask for the nearest of the known names; nothing where none is near.

    >>> hint("optmize", ["optimize", "passes"])
    ", did you mean 'optimize'?"
    """
    lower = {k.lower(): k for k in known}
    nearest = difflib.get_close_matches(str(name).lower(), lower, n=1)
    return f", did you mean {lower[nearest[0]]!r}?" if nearest else ""


def function_of_tensors(what: str, value: Any) -> None:
    """Refuse what cannot be called."""
    if not callable(value):
        raise errors.ArgumentTypeError(errors.at(
            f"{what} takes a function of tensors, not a value of type {type(value).__name__}"))


def refuse_unknown(what: str, given: Iterable[str], function: Callable[..., Any], inner: Iterable[str] = ()) -> None:
    """Raise for the first keyword in `given` that `function` lacks; `inner` are parameters that are not the user's."""
    kinds = inspect.Parameter
    parameters = list(inspect.signature(function).parameters.values())
    if any(p.kind is kinds.VAR_KEYWORD for p in parameters):
        return
    names = [p.name for p in parameters if p.kind in (kinds.POSITIONAL_OR_KEYWORD, kinds.KEYWORD_ONLY)]
    known = [name for name in names if name != "self" and name not in inner]
    refuse_others(what, given, known)


def refuse_others(what: str, given: Iterable[str], known: Iterable[str]) -> None:
    """Raise for the first keyword in `given` that is not `known`."""
    known = list(known)
    for name in given:
        if name not in known:
            raise errors.ArgumentTypeError(errors.at(
                f"{what}() has no option {name!r}{hint(name, known) or '.'} Options: {', '.join(known)}"
            )) from None


def parameters_of(function: Callable[..., Any]) -> list[str]:
    """The names of parameters, `self` left out."""
    return [name for name in inspect.signature(function).parameters if name != "self"]


def named(function: F) -> F:
    """`function`, which names the nearest of its options where it is given an unknown one."""
    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        try:
            return function(*args, **kwargs)
        except TypeError as refused:
            if refused.__traceback__ is not None and refused.__traceback__.tb_next is None:    # it was never entered
                refuse_unknown(called(function, args), kwargs, function)
            raise

    return call  # type: ignore[return-value]


def called(function: Callable[..., Any], args: tuple[Any, ...]) -> str:
    """How the user has called a function: a method by the class of the object, not by the class that defines it."""
    method = "." in function.__qualname__ and args
    return f"{type(args[0]).__name__}.{function.__name__}" if method else function.__qualname__


def refuse_options(cls: type, kwargs: dict[str, Any]) -> None:
    """`refuse_unknown` for a constructor that has failed."""
    refuse_unknown(cls.__name__, kwargs, cls.__init__)  # type: ignore[misc]


def whole(what: str, value: Any, least: int = 0) -> int:
    """An integer of `least` or more that fits a machine word; booleans, floats and text are none."""
    if not isinstance(value, bool):
        try:
            number = operator.index(value)
        except TypeError:
            pass
        else:
            if least <= number <= sys.maxsize:
                return number
            raise errors.ArgumentError(errors.at(
                f"{what}={value!r}: choose a whole number from {least} to {sys.maxsize}"))
    raise errors.ArgumentTypeError(errors.at(
        f"{what}={value!r} is of type {type(value).__name__}: choose a whole number, {least} or more"))


def real(what: str, value: Any, above: bool = False, infinite: bool = True) -> float:
    """A number of 0 or more, or `above` it; NaN, booleans and text are none."""
    if isinstance(value, bool) or not hasattr(value, "__float__"):
        raise errors.ArgumentTypeError(errors.at(
            f"{what}={value!r} is of type {type(value).__name__}: choose a number"))
    number = float(value)
    if math.isnan(number) or number < 0 or (above and number == 0) or (math.isinf(number) and not infinite):
        range_ = "a number above 0" if above else "a number, 0 or more"
        raise errors.ArgumentError(errors.at(f"{what}={value!r}: choose {range_}{'' if infinite else ', and finite'}"))
    return number


def yes_or_no(what: str, value: Any) -> bool:
    """True or False, as bool, as 0 or 1, or as None; text would always be true."""
    if value is False or value is True:
        return value
    if value is None or (isinstance(value, (int, np.bool_)) and value in (0, 1)):
        return bool(value)
    raise errors.ArgumentTypeError(errors.at(f"{what}={value!r}: choose True or False"))


def choice(what: str, value: Any, known: Iterable[str]) -> str:
    """One of the known words; the message names the nearest."""
    known = list(known)
    if isinstance(value, str) and value in known:
        return str(value)
    raise errors.ArgumentError(errors.at(
        f"{what}={value!r}{hint(value, known) or ':'} choose from {', '.join(map(repr, known))}"))


def checked(given: tuple[Any, ...]) -> tuple[bool, bool, Any, int | None, bool]:
    """The options of a graph that are not what they are by default, each looked at."""
    verify, anomaly, name, allowance, sources = given
    if name is not None and not isinstance(name, str):
        raise errors.ArgumentTypeError(errors.at(
            f"name={name!r} is of type {type(name).__name__}: choose text, or None"))
    return (yes_or_no("verify", verify), yes_or_no("anomaly", anomaly), name,
            None if allowance is None else whole("allowance", allowance), yes_or_no("sources", sources))
