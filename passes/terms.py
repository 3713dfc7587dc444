"""Patterns as data: text such as ``permute[p](permute[q](x))``, read once.

A term is a symbol, perhaps a datum in brackets, and operands. In a pattern a
lower-case word is a variable: of values where an operand stands, of numbers
where a datum stands. A variable that stands twice must match the same twice.
"""

import re
import struct
from collections.abc import Iterator
from dataclasses import dataclass

__all__ = ["Condition", "Datum", "Term", "bits_of", "conditions_of", "number_of", "term_of", "variables_of"]


def bits_of(number: float) -> int:
    """Return the IEEE bits of a number as a signed integer: 0.0 and -0.0 differ.

    Examples
    --------
    >>> bits_of(1), bits_of(0.0), bits_of(-0.0) == -(2**63)
    (4607182418800017408, 0, True)
    """
    return int(struct.unpack("<q", struct.pack("<d", number))[0])


def number_of(bits: int) -> float:
    """Return the number that has these bits."""
    return float(struct.unpack("<d", struct.pack("<q", bits))[0])


@dataclass(frozen=True, slots=True)
class Datum:
    """What stands in brackets: a function of data variables, or a constant.

    `kind` is ``""`` (nothing there), ``constant``, ``variable``, or one of
    the functions of `passes.data`.
    """

    kind: str = ""
    names: tuple[str, ...] = ()
    bits: int = 0


@dataclass(frozen=True, slots=True)
class Term:
    """A variable (no `symbol`, its `name`) or a symbol over operands."""

    symbol: str
    datum: Datum = Datum()
    operands: tuple["Term", ...] = ()
    name: str = ""

    @property
    def is_variable(self) -> bool:
        """Whether any value matches."""
        return not self.symbol


@dataclass(frozen=True, slots=True)
class Condition:
    """A question about variables, answered by the matcher; see `passes.rules`."""

    question: str
    names: tuple[str, ...]


_FUNCTIONS = {
    "compose": re.compile(r"([a-z])\.([a-z])"),
    "negative": re.compile(r"-([a-z])"),
    "product": re.compile(r"([a-z])\*([a-z])"),
    "total": re.compile(r"([a-z])\+([a-z])"),
    "inverse": re.compile(r"1/([a-z])"),
}


def term_of(text: str) -> Term:
    """Read a term.

    Examples
    --------
    >>> term_of("times[-c](x)").datum
    Datum(kind='negative', names=('c',), bits=0)
    >>> [v.name for v in variables_of(term_of("add(mul(a, b), mul(a, c))"))]
    ['a', 'b', 'a', 'c']
    """
    term, rest = _read(text.replace(" ", ""))
    if rest:
        raise ValueError(f"{rest!r} is left over in the term {text!r}")
    return term


def variables_of(term: Term) -> Iterator[Term]:
    """Yield the variables of a term, left to right."""
    if term.is_variable:
        yield term
    for operand in term.operands:
        yield from variables_of(operand)


def conditions_of(text: str) -> tuple[Condition, ...]:
    """Read conditions, separated by semicolons.

    Examples
    --------
    >>> conditions_of("typed(x); before(y, z)")[1]
    Condition(question='before', names=('y', 'z'))
    """
    found = []
    for part in filter(None, text.replace(" ", "").split(";")):
        question, _, names = part.rstrip(")").partition("(")
        found.append(Condition(question, tuple(names.split(","))))
    return tuple(found)


def _read(text: str) -> tuple[Term, str]:
    match = re.match(r"[a-z]\w*", text)
    if match is None:
        raise ValueError(f"a term begins with a name, not {text!r}")
    name, rest = match.group(), text[match.end() :]
    if not rest.startswith(("[", "(")):
        return Term("", name=name), rest
    datum = Datum()
    if rest.startswith("["):
        inside, _, rest = rest[1:].partition("]")
        datum = _datum(inside)
    operands = []
    if rest.startswith("("):
        rest = rest[1:]
        while not rest.startswith(")"):
            operand, rest = _read(rest.removeprefix(","))
            operands.append(operand)
        rest = rest[1:]
    return Term(name, datum, tuple(operands)), rest


def _datum(text: str) -> Datum:
    try:
        return Datum("constant", (), bits_of(float(text)))
    except ValueError:
        pass
    if re.fullmatch("[a-z]", text):
        return Datum("variable", (text,))
    for kind, pattern in _FUNCTIONS.items():
        match = pattern.fullmatch(text)
        if match:
            return Datum(kind, match.groups())
    raise ValueError(f"{text!r} is no datum")
