"""Random whole torch programs, as source text, for comparison with torch eager.

`generate(choices)` writes a program statement by statement and runs each statement in torch
eager at once, so that shapes fit and most programs are valid; a statement that torch refuses
is dropped, or kept as the program's last.  `choices` is hypothesis (`programs()`) or a seeded
generator (`from_seed`).  A program prints as the Python that it is.
"""

from __future__ import annotations

import random
import re
import warnings
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field
from types import CodeType
from typing import Any, Protocol

import torch
from hypothesis import strategies as st

from tests.scene import environment

Tensor = torch.Tensor

LEAVES: dict[str, Tensor] = {
    "x": torch.tensor([[0.5, -1.0, 2.0], [1.5, 0.25, -0.75]], dtype=torch.float64),
    "y": torch.tensor([0.3, -0.6, 0.9], dtype=torch.float64),
    "w": torch.tensor([[0.2, -0.4, 0.7], [1.1, 0.0, -0.0], [0.6, -0.9, 0.3]], dtype=torch.float64),
    "s": torch.tensor(0.75, dtype=torch.float64),
    "f": torch.tensor([0.25, -1.5, 3.0], dtype=torch.float32),
    "z": torch.tensor([0.5 + 1.0j, -1.0 + 0.25j, 2.0 - 0.5j], dtype=torch.complex128),
}
"""Leaves that require grad."""
CONSTANTS: dict[str, Tensor] = {
    "c": torch.tensor([[1.0, -2.0, 0.5], [0.0, 3.0, -1.5]], dtype=torch.float64),
    "d": torch.tensor([0.5, -1.0, 2.0], dtype=torch.float64),
    "i": torch.tensor([2, 0, 1]),
    "m": torch.tensor([[True, False, True], [False, True, True]]),
}
"""Tensors that do not; `d` equals a row of `x`, and no two are one value."""
LITERALS = ("1", "1.0", "True", "0.0", "-0.0", "2", "2.0", "0.5", "-3", "nan", "inf", "False", "0")


GRADIENTS = re.compile(r"\.grad\b(?! = None| is None|\.zero_)|\bfunctional\.|\bfunc\.|clip_grad|step\(\)|_grad\("
                       r"|\b(train|carried|slope)\(")
"""What makes or reads gradients."""


class Choices(Protocol):
    def integer(self, low: int, high: int) -> int: ...


class Seeded:
    """Choices from a seed."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)

    def integer(self, low: int, high: int) -> int:
        return self.random.randint(low, high)


class Drawn:
    """Choices by hypothesis, which shrinks them."""

    def __init__(self, draw: Callable[[Any], int]) -> None:
        self.draw = draw

    def integer(self, low: int, high: int) -> int:
        return low if low == high else self.draw(st.integers(low, high))


@dataclass
class Program:
    """Statements over the leaves and constants above.

    `loose` names variables that descend from a gradient: those are compared with a tolerance.
    """

    statements: list[str]
    loose: frozenset[str] = frozenset()
    _code: list[CodeType] = field(default_factory=list, repr=False)

    @property
    def code(self) -> list[CodeType]:
        """One code object for each statement."""
        if len(self._code) != len(self.statements):
            self._code = [compile(s, f"<statement {k}>", "exec") for k, s in enumerate(self.statements)]
        return self._code

    def without(self, start: int, stop: int) -> Program:
        """The program without some of its statements, for shrinking."""
        return Program(self.statements[:start] + self.statements[stop:], self.loose)

    def __str__(self) -> str:
        return "\n".join(self.statements)

    __repr__ = __str__


class Writer:
    """A program being written, and its variables as torch eager has them so far."""

    def __init__(self, choices: Choices) -> None:
        self.choices = choices
        leaves = {k: v.clone().requires_grad_() for k, v in LEAVES.items()}
        self.env = environment({**leaves, **{k: v.clone() for k, v in CONSTANTS.items()}})
        self.names = [*LEAVES, *CONSTANTS]
        self.statements: list[str] = []
        self.expressions: list[str] = []
        self.loose: set[str] = set()
        self.left: set[str] = set()          # what has a history in a graph that is closed
        self.reads_left = False              # the statement to come is about such a variable
        self.count = 0

    # Choosing --------------------------------------------------------------------------
    def one(self, options: Sequence[Any]) -> Any:
        return options[self.choices.integer(0, len(options) - 1)]

    def maybe(self, percent: int) -> bool:
        return self.choices.integer(0, 99) >= 100 - percent

    def new(self) -> str:
        self.count += 1
        return f"v{self.count}"

    def pick(self, fits: Callable[[Tensor], bool] = lambda t: True, strided: bool = True) -> str | None:
        """A variable, newer ones more often; one that is sparse where `strided` is False."""

        def usable(name: str) -> bool:
            t = self.env.get(name)
            try:
                return isinstance(t, Tensor) and (t.layout is torch.strided) is strided and fits(t)
            except RuntimeError:  # torch refuses to look at a view that a write has made ambiguous
                return False

        return self.newest([n for n in self.names if usable(n)])

    def pick_left(self) -> str | None:
        """A variable whose graph is closed."""
        self.reads_left = True
        return self.newest([n for n in sorted(self.left) if isinstance(self.env.get(n), Tensor)])

    def newest(self, names: Sequence[str]) -> str | None:
        if not names:
            return None
        k = max(self.choices.integer(0, len(names) - 1), self.choices.integer(0, len(names) - 1))
        return names[k]

    def real(self) -> str:
        return self.pick(lambda t: t.is_floating_point()) or "x"

    def tracked(self) -> str | None:
        return self.pick(lambda t: t.requires_grad)

    def literal(self) -> str:
        return str(self.one(LITERALS))

    def operand(self, other: str) -> str:
        """A second operand that broadcasts with `other`, or a number."""
        if self.maybe(25):
            return self.literal()
        shape = self.env[other].shape

        def fits(t: Tensor) -> bool:
            try:
                torch.broadcast_shapes(shape, t.shape)
            except RuntimeError:
                return False
            return t.is_floating_point()

        return self.pick(fits) or "s"

    # Running ----------------------------------------------------------------------------
    def add(self, statement: str, targets: Sequence[str] = (), expression: str = "") -> bool:
        """Run a statement in torch eager; drop it, or end the program with it, where torch refuses it.

        One that names a constant whose graph is closed, without having asked for such a variable, is dropped, too.
        Returns whether the program goes on.
        """
        reads_left, self.reads_left = self.reads_left, False
        if not reads_left and self.left & set(re.findall(r"\w+", statement)):
            return True
        try:
            with warnings.catch_warnings(action="ignore"):   # as errors, those given once would drop a statement once
                exec(compile(statement, "<program>", "exec"), self.env)
        except Exception:
            if "function('dirty" in statement:      # torch has half written it: a hook there may end the process
                return False
            if self.maybe(20):
                self.statements.append(statement)
                return False
            return True
        self.statements.append(statement)
        self.left -= set(targets)
        for name in targets:
            if name not in self.names and name in self.env:
                self.names.append(name)
        if expression:
            self.expressions.append(expression)
        self.taint(statement, targets)
        return True

    def leave(self) -> None:
        """The graph is closed: what has a history there is for `pick_left` alone, and no line names it again."""

        def recorded(t: Any) -> bool:
            try:
                return isinstance(t, Tensor) and t.grad_fn is not None
            except RuntimeError:
                return True

        self.left |= {n for n in self.names if recorded(self.env.get(n))}
        self.names = [n for n in self.names if n not in self.left]
        self.expressions = [e for e in self.expressions if not self.left & set(re.findall(r"\w+", e))]

    def taint(self, statement: str, targets: Sequence[str]) -> None:
        """Whatever reads a gradient, or a variable that did, is compared with a tolerance."""
        words = set(re.findall(r"\w+", statement))
        if not (GRADIENTS.search(statement) or words & self.loose):
            return
        self.loose.update(targets)
        if writes(statement):
            memory = {storage(self.env[w]) for w in words if isinstance(self.env.get(w), Tensor)}
            self.loose.update(
                n for n in self.names if isinstance(self.env.get(n), Tensor) and storage(self.env[n]) in memory
            )


def storage(t: Tensor) -> int:
    if t.layout is not torch.strided:
        return id(t)
    return t.untyped_storage()._cdata      # zeros without memory have no address


def writes(statement: str) -> bool:
    return any(word in statement for word in ("_(", "step()", "out=", "] =")) or (
        "= " in statement and statement.split("=")[0][-1:] in "+-*/")



def generate(choices: Choices, length: int = 20, wide: bool = False, kinds: Collection[str] = ()) -> Program:
    """Write one program of about `length` statements, its last a backward over several variables.

    `wide`: with some of the subjects of `tests.statements` that not every program has.  `kinds`: names of such
    subjects, or of single kinds of statements, that it has in any case.
    """
    from tests import statements  # noqa: F401 (its files enter their kinds in the table)
    from tests.statements.runs import FINAL
    from tests.statements.table import choose, select

    writer = Writer(choices)
    state = torch.get_rng_state()
    grad_mode = torch.is_grad_enabled()
    torch.manual_seed(0)
    try:
        table = select(choices, wide, kinds)
        for _ in range(choices.integer(4, length)):
            if not choose(choices, table)(writer):
                break
        else:
            FINAL(writer)
    finally:
        torch.set_grad_enabled(grad_mode)
        torch.set_rng_state(state)
    return Program(writer.statements, frozenset(writer.loose))


def from_seed(seed: int, length: int = 20, wide: bool = False, kinds: Collection[str] = ()) -> Program:
    """The program of one seed."""
    return generate(Seeded(seed), length, wide, kinds)


@st.composite
def programs(draw: Any, length: int = 20) -> Program:
    """Hypothesis strategy for whole programs."""
    return generate(Drawn(draw), length)
