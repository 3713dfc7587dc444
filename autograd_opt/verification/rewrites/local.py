"""Are two small programs over the same leaves equal, values and gradients?

Four ways, the first that applies: entries with symbolic indices, for all sizes; one scalar in
place of every tensor, where every instruction is a function of single elements, for all sizes
again; entries whose sizes coincide as those here do, and single elements, for these shapes.  Kinks are shown by cases.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import sympy

from autograd_opt.verification.lemmas.all_shapes import Instance, named
from autograd_opt.verification.lemmas.pointwise import acts_on_elements
from autograd_opt.verification.program.instruction_names import MERGED
from autograd_opt.verification.program.instructions import Program, Type, Vocabulary
from autograd_opt.verification.rewrites.conditions import undischarged
from autograd_opt.verification.rewrites.rewrites import Answer, of_users
from autograd_opt.verification.semantics.domain import Outside
from autograd_opt.verification.semantics.indexed_sums import Entry
from autograd_opt.verification.semantics.symbolic_shapes import Forced, is_zero, leaf, require_same
from autograd_opt.verification.strategies.sympy_engine import differ
from autograd_opt.verification.strategies.task import Goal


def compare(left: Program, right: Program, limit: int) -> Answer:
    """Compare all goals of two programs whose first instructions are the same leaves.

    A user's rule may look at sizes: through one, a proof is for the shapes at hand.
    """
    conditions = undischarged(left, right)
    messages = []
    anywhere = not any(map(of_users, (left, right)))
    for way, everywhere in ((by_indices, True), (by_one_scalar, True), (by_equal_indices, False), (by_elements, False)):
        try:
            wrong = way(left, right, limit)
        except Exception as error:  # whatever keeps one way from an answer is said, and the next is tried
            messages.append(f"{way.__name__}: {error}")
            continue
        if not wrong:
            return Answer(True, "", everywhere and anywhere, conditions)
        messages.append(f"{way.__name__}: {wrong} differs")
        break
    return Answer(False, "; ".join(messages))


def goals_of(left: Program, right: Program) -> list[Goal]:
    pairs = enumerate(zip(left.gradients, right.gradients, strict=True))
    return [("value", left.values[0], right.values[0]), *[(f"pullback to operand {k}", a, b) for k, (a, b) in pairs]]


# ----- entries with symbolic indices -----
class Labels:
    """Sizes as symbols: one for each dimension, those that a shape forces to be equal being one.

    With `alike`, one for each size that occurs: a proof is of shapes whose sizes coincide where these do.
    """

    def __init__(self, alike: bool = False) -> None:
        self.alike = alike
        self.count = 0
        self.same: dict[Any, Any] = {}

    def dim(self, size: int) -> tuple[Any, ...]:
        if size == 1:
            return ()
        self.count += 1
        name = f"n{size}" if self.alike else f"n{size}_{self.count}"
        return (self.found(sympy.Symbol(name, integer=True, positive=True)),)

    def found(self, symbol: Any) -> Any:
        """The symbol that stands for all which have to be equal to this one."""
        while symbol in self.same:
            symbol = self.same[symbol]
        return symbol

    def unite(self, one: Any, other: Any) -> None:
        """Let two symbols of one number be one.

        Raises
        ------
        Outside : they are of two numbers.
        """
        if one == other or self.alike or one.name.partition("_")[0] != other.name.partition("_")[0]:
            raise Outside(f"sizes that do not fit: {one} and {other}")
        self.same[other] = one

    def shape(self, sizes: Sequence[int]) -> tuple[Any, ...]:
        return tuple([self.dim(int(s)) for s in sizes])

    def value(self, k: Any) -> Any:
        if isinstance(k, bool) or not isinstance(k, (int, float)) or k != k or k in (float("inf"), -float("inf")):
            raise Outside(f"the number {k!r}")
        if isinstance(k, float):
            n, d = k.as_integer_ratio()
            return sympy.Rational(n, d)
        return sympy.Integer(k)


class Evaluator(Instance):
    """Instructions of a program over tensors of symbolic sizes."""

    def __init__(self, vocabulary: Vocabulary, sizes: Labels):
        self.vocabulary = vocabulary
        self.sizes = sizes  # type: ignore[assignment]
        self.named: dict[str, Any] = {}

    def values(self, program: Program) -> list[Any]:
        """All values of the program."""
        out: list[Any] = []
        types = [self.vocabulary.heads[h].type for h in program.heads]
        for number, refs in zip(program.heads, program.operands, strict=True):
            head = self.vocabulary.heads[number]
            if head.op == MERGED:
                out.append(out[refs[0]])
            elif head.effect:
                shape = self.vocabulary.types[head.type].shape
                if shape is None:
                    raise Outside("several outputs")
                name = f"{head.op}{head.effect}"
                if name not in self.named:
                    self.named[name] = leaf(name, self.sizes.shape(shape))
                out.append(self.named[name])
            else:
                out.append(self.apply(head, [out[r] for r in refs], [types[r] for r in refs]))
        return out


def by_indices(left: Program, right: Program, limit: int) -> str:
    """The first goal that differs, in the normal form of indexed sums, whatever the sizes."""
    sizes = Labels()
    while True:
        sizes.count = 0
        try:
            return in_normal_form(left, right, sizes)
        except Forced as forced:
            sizes.unite(*map(sizes.found, forced.pair))


def by_equal_indices(left: Program, right: Program, limit: int) -> str:
    """The same where sizes that coincide here do."""
    return in_normal_form(left, right, Labels(alike=True))


def in_normal_form(left: Program, right: Program, sizes: Labels) -> str:
    """The first goal that differs."""
    evaluator = Evaluator(left.vocabulary, sizes)
    a, b = evaluator.values(left), evaluator.values(right)
    for name, x, y in goals_of(left, right):
        there = a[x] if x is not None else b[y] if y is not None else None
        if there is None:
            continue
        if x is not None and y is not None:
            for one, other in zip(a[x].shape, b[y].shape, strict=True):
                require_same(one, other)
        place = named("pqrstuvw", there)
        entries = [Entry() if k is None else side[k].at(place) for side, k in ((a, x), (b, y))]
        if not is_zero(entries[0] - entries[1]):
            raise Outside(f"{name} has two normal forms")
    return ""


# ----- one scalar for every tensor -----
def by_one_scalar(left: Program, right: Program, limit: int) -> str:
    """The first goal that differs when every tensor is one number."""
    vocabulary = left.vocabulary
    shapes = set()
    for program in (left, right):
        types = [vocabulary.heads[h].type for h in program.heads]
        for number, refs in zip(program.heads, program.operands, strict=True):
            head = vocabulary.heads[number]
            shape = vocabulary.types[head.type].shape
            shapes.add(shape)
            computed = not head.effect and head.op != MERGED
            if computed and not acts_on_elements(vocabulary, head, [types[r] for r in refs]):
                raise Outside(f"{head.op} is no function of single elements")
    if len(shapes) > 1 or None in shapes:
        raise Outside("tensors of several shapes")
    scalars = Vocabulary()
    return differ(as_scalars(left, scalars), as_scalars(right, scalars), goals_of(left, right), limit)


def as_scalars(program: Program, scalars: Vocabulary) -> Program:
    """The same instructions on numbers."""
    heads = []
    for number in program.heads:
        head = program.vocabulary.heads[number]
        t = program.vocabulary.types[head.type]
        kind = scalars.intern(Type((), t.dtype, t.device))
        heads.append(scalars.head(head.op, head.attributes, kind, head.grad, head.effect))
    return replace(program, vocabulary=scalars, heads=heads)


# ----- element by element -----
def by_elements(left: Program, right: Program, limit: int) -> str:
    """The first goal that differs, with a symbol for every element."""
    return differ(left, right, goals_of(left, right), limit)
