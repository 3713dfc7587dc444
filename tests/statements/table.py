"""Keep the table of what writes statements: kinds with a weight each, by the subject of their file.

A writer takes the program so far, appends one statement, and returns whether the program
goes on (it ends where torch raises and the statement is kept).
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tests.programs import Choices, Writer

PLAIN = ("values", "writes", "repeats", "runs")
"""Subjects of every program."""


@dataclass(frozen=True)
class Kind:
    """A kind of statement: how it is called, the file that has it, how often it comes, and what writes it."""

    name: str
    subject: str
    weight: int
    write: Callable[[Writer], bool]


KINDS: list[Kind] = []


def statement(weight: int) -> Callable[[Callable[[Writer], bool]], Callable[[Writer], bool]]:
    """Enter the function below it in the table."""

    def register(function: Callable[[Writer], bool]) -> Callable[[Writer], bool]:
        KINDS.append(Kind(function.__name__, function.__module__.rpartition(".")[2], weight, function))
        return function

    return register


def select(choices: Choices, wide: bool, named: Collection[str]) -> list[Kind]:
    """Choose the kinds of one program: the plain ones, what is `named`, and of a `wide` program some subjects.

    Few subjects with much of each meet more often than all with little.
    """
    for name in named:
        if not any(name in (kind.name, kind.subject) for kind in KINDS):
            raise ValueError(f"no kind or subject of statements is called {name!r}; "
                             f"subjects are {', '.join(sorted({kind.subject for kind in KINDS}))}")
    subjects = {kind.subject: wide and kind.subject not in PLAIN and choices.integer(0, 99) < 40 for kind in KINDS}
    return [
        Kind(kind.name, kind.subject, kind.weight * (1 if kind.subject in PLAIN else 3), kind.write)
        for kind in KINDS
        if kind.subject in PLAIN or subjects[kind.subject] or {kind.name, kind.subject} & set(named)
    ]


def choose(choices: Choices, kinds: list[Kind]) -> Callable[[Writer], bool]:
    """Choose what writes the next statement, by the weights."""
    k = choices.integer(0, sum(kind.weight for kind in kinds) - 1)
    for kind in kinds:
        k -= kind.weight
        if k < 0:
            return kind.write
    raise AssertionError("unreachable")


def choices(table: str) -> tuple[str, ...]:
    """Split a table of entries written with bars between them."""
    return tuple(entry.strip() for entry in table.split("|"))


def assign(p: Writer, expression: str | None) -> bool:
    """Write `v = expression`, sometimes under a mode."""
    if expression is None:
        return True
    name = p.new()
    text = f"{name} = {expression}"
    if p.maybe(7):
        mode = p.one(["torch.no_grad()", "torch.enable_grad()", "torch.set_grad_enabled(False)"])
        text = f"with {mode}: {text}"
    return p.add(text, [name], expression)
