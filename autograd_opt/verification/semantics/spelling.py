"""Names of symbols in formulas: one for each value, whoever has chosen it, and how LaTeX writes it."""

from __future__ import annotations

import itertools
import re
from collections.abc import Collection, Iterator, Mapping
from typing import Any

from autograd_opt.errors import ArgumentError

NAME = re.compile(r"[^\W\d][\w.]*")
"""What a leaf may be called: as a variable, or as a parameter of a module."""
SUBSCRIPT = re.compile(r"_\{([^{}]*)\}")


def symbols_of(name: str, size: int) -> list[str]:
    """The symbols of a tensor with so many elements."""
    return [name] if size == 1 else [f"{name}_{k}" for k in range(size)]


def leaf_names(sizes: Mapping[int, int], given: Mapping[int, Any], seeds: Mapping[int, int]) -> dict[int, str]:
    """The name of each leaf: the one given, else x0, x1, ... by its number, or where that is taken leaf0, leaf1, ...

    `sizes` are the elements of each leaf, `seeds` those of each output, whose cotangents have symbols as well.

    Raises
    ------
    ArgumentError : a given name is none, or would be written like another.

    >>> leaf_names({0: 1, 1: 1}, {1: "x0"}, {0: 1})
    {1: 'x0', 0: 'leaf0'}
    """
    owners = {s: f"the cotangent of output {k}" for k, n in seeds.items() if n > 1 for s in symbols_of(f"g{k}", n)}
    names: dict[int, str] = {}
    for i, name in given.items():
        if not isinstance(name, str) or not NAME.fullmatch(name):
            raise ArgumentError(f"{name!r} is no name for a leaf: choose one that could be a variable's")
        for symbol in symbols_of(name, sizes.get(i, 0)):
            if symbol in owners:
                raise ArgumentError(f"{symbol} would be a symbol of {owners[symbol]} and of the leaf {name!r}: "
                                    "choose another name")
            owners[symbol] = f"the leaf {name!r}"
        names[i] = name
    for i, size in sizes.items():
        if i not in names:
            names[i] = next(n for n in usual(i) if not any(s in owners for s in symbols_of(n, size)))
            owners |= dict.fromkeys(symbols_of(names[i], size), f"the leaf {names[i]!r}")
    return names


def usual(i: int) -> Iterator[str]:
    """Names for the leaf with this number, the usual one first."""
    return itertools.chain([f"x{i}"], (f"leaf{i}{'_' * k}" for k in itertools.count()))


def abbreviations(taken: Collection[str]) -> Iterator[str]:
    """t0, t1, ..., but those that are taken."""
    return (name for name in (f"t{k}" for k in itertools.count()) if name not in taken)


# ----- LaTeX -----
def latex(expression: Any) -> str:
    """An expression, its symbols with one subscript each."""
    import sympy
    return str(sympy.latex(expression, symbol_names={s: latex_name(s.name) for s in expression.free_symbols}))


def latex_name(name: str) -> str:
    r"""A symbol's name.

    >>> latex_name("x_1_2"), latex_name("alpha_3")
    ('x_{1,2}', '\\alpha_{3}')
    """
    import sympy
    return SUBSCRIPT.sub(lambda found: "_{" + found[1].replace(" ", ",") + "}", str(sympy.latex(sympy.Symbol(name))))
