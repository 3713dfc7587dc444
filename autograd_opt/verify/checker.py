"""The checker: is every optimized cotangent the sum of the original ones?

One pass over the original program, one over the optimized one, with a shared table of
value numbers.  A value is a linear combination of value numbers; sums of two terms and
more get a name and are expanded only on demand.  At the whole cotangent of a merged node
the optimizer's claim `optimized = sum of the members' original cotangents` is checked and
then used: an operator that is linear in a slot is distributed over it, which meets the
original's value numbers again.  A claim that fails is dropped; the goals decide.

Trusted: this file, the table `LINEAR` (each line proved by `lemmas`), `COMMUTATIVE`, and the
programs' construction in `trace`.  Not trusted: leaders, claims, passes, executor, kernels.
"""

from __future__ import annotations

import heapq
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any

from autograd_opt.verify.ir import Head, Program, Vocabulary, decode
from autograd_opt.verify.trace import ADDS_TO, FULL, MERGED, PULLBACK

Combo = dict[int, Any]
"""value number -> coefficient (int or Fraction), never zero; all of one type."""

COMMUTATIVE = frozenset({"add", "mul"})
"""a op b = b op a bit for bit, when there is no attribute."""

FIRST, BOTH = (0,), (0, 1)
LINEAR: dict[str, tuple[int, ...]] = {
    **dict.fromkeys(
        [
            "neg",
            "positive",
            "deg2rad",
            "rad2deg",
            "clone",
            "contiguous",
            "to",
            "conj",
            "conj_physical",
            "resolve_conj",
            "resolve_neg",
            "real",
            "sum",
            "mean",
            "sum_to_size",
            "cumsum",
            "view",
            "reshape",
            "flatten",
            "ravel",
            "squeeze",
            "unsqueeze",
            "unflatten",
            "unsafe_view",
            "reshape_alias",
            "view_as",
            "reshape_as",
            "permute",
            "transpose",
            "t",
            "T",
            "mT",
            "H",
            "mH",
            "movedim",
            "expand",
            "broadcast_to",
            "expand_as",
            "narrow",
            "select",
            "diagonal",
            "diagonal_backward",
            "diag_embed",
            "tril",
            "triu",
            "trace",
            "flip",
            "fliplr",
            "flipud",
            "rot90",
            "roll",
            "repeat",
            "tile",
            "slice",
            "index",
            "place",
            "place_add",
            "gather",
            "take",
            "index_select",
            "output",
            "split",
            "split_with_sizes",
            "chunk",
            "unbind",
            "tanh_backward",
            "sigmoid_backward",
            "threshold_backward",
            "leaky_relu_backward",
            "elu_backward",
            "gelu_backward",
            "silu_backward",
            "softplus_backward",
            "softmax_backward",
            "log_softmax_backward",
            "mse_loss_backward",
        ],
        FIRST,
    ),
    **dict.fromkeys(["mul", "matmul", "mm", "bmm", "mv", "dot", "outer"], BOTH),
    "div": FIRST,
    "where": BOTH,
    "masked_fill": FIRST,
    "index_add": (1,),
    "scatter_add": (1,),
    "linear": BOTH,
    "pad": FIRST,
    "constant_pad_nd": FIRST,
    **dict.fromkeys(("conv1d", "conv2d", "conv3d"), BOTH),
}
"""Operator -> the operands in which it is linear, the others fixed; conditions in `slots`."""
JOINTLY: dict[str, tuple[int, ...] | None] = {
    "add": BOTH,
    "sub": BOTH,
    "rsub": BOTH,
    "where": (1, 2),
    "where_method": (0, 2),
    "lerp": BOTH,
    "index_add": (0, 2),
    "scatter_add": (0, 2),
    "cat": None,
    "stack": None,
}
"""Operator -> the operands (None: all) in which it is linear taken together: f(x, y) = f(x, 0) + f(0, y)."""
EXACT_BITS = 8
"""A number m * 2**e with m below 2**8 and small e is itself in every floating dtype."""


def is_kernel(op: str) -> bool:
    """A derivative that torch computes: linear in its cotangent, which is trusted and stated as a condition."""
    return op == PULLBACK or (op.startswith("aten::") and op.endswith("_backward"))


def slots(head: Head, floating: Sequence[bool]) -> tuple[int, ...]:
    """The operands in which an instruction is linear over the reals.

    A Python number among the operands stands in the attributes: then the tensor operands
    that remain are counted from 0, and the operator may no longer be linear (`x - 1`).
    """
    return tuple([k for k in _slots(head, len(floating)) if k < len(floating) and floating[k]])


def _slots(head: Head, count: int) -> tuple[int, ...]:
    op, values = head.op, dict(head.attributes)
    if is_kernel(op):
        return FIRST
    if op == "einsum":
        return tuple(range(count))
    found = LINEAR.get(op)
    if found is None:
        return ()
    if op in ("mul", "div"):
        if "x" in values:  # number op tensor
            return FIRST if op == "mul" else ()
        return FIRST if "y" in values else found
    if op == "masked_fill":
        return FIRST if values.get("value") in ZEROS and count == 2 else ()
    if op == "where":
        return (1,) if count == 2 and (values.get("x") in ZEROS or values.get("y") in ZEROS) else ()
    if op in ADDS_TO:
        return found if "x" in values else ()
    if op in ("linear", "conv1d", "conv2d", "conv3d") and count > 2:
        return ()
    if op in ("pad", "constant_pad_nd"):
        return (
            FIRST
            if values.get("value", "N") in (*ZEROS, "N") and values.get("mode", "s'constant'") == "s'constant'"
            else ()
        )
    return found


def joint_slots(head: Head, floating: Sequence[bool]) -> tuple[int, ...]:
    """The operands in which an instruction is linear together, with no number among its operands."""
    if head.op not in JOINTLY or any(
        k in ("x", "y", "condition", "weight", "src", "source") for k, _ in head.attributes
    ):
        return ()
    found = JOINTLY[head.op] or tuple(range(len(floating)))
    return found if found and found[-1] < len(floating) and all(floating[k] for k in found) else ()


ZERO = "f" + "00" * 8
ZEROS = ("i0", ZERO, "F")


def exact(text: str) -> Fraction | None:
    """The value of a number attribute that every floating dtype holds exactly, else None."""
    value = decode(text)
    if type(value) not in (int, float) or value != value or value in (float("inf"), float("-inf")):
        return None
    number = Fraction(value)
    m, e = abs(number.numerator), number.denominator
    if number == 0 or (m % 2 == 0 and e > 1):
        return None
    return number if m < 1 << EXACT_BITS and e <= 1 << EXACT_BITS else None


@dataclass
class Outcome:
    """What a check found; `equal[k]` and `bitwise[k]` belong to goal k."""

    equal: list[bool]
    bitwise: list[bool]
    failed: list[tuple[int, str]] = field(default_factory=list)
    budget: bool = False
    stats: dict[str, Any] = field(default_factory=dict)


class OutOfBudget(Exception):
    """More expansions than allowed, or no time left."""


# ----- structural: the same operations on the same operands, bit for bit -----
def numbering(programs: Sequence[Program]) -> list[list[int]]:
    """Value numbers by hash-consing alone, one list per program, from one table."""
    table: dict[Any, int] = {}
    out = []
    commutes = commutative(programs[0].vocabulary)
    merged = merged_heads(programs[0].vocabulary)
    for program in programs:
        numbers: list[int] = []
        push = numbers.append
        for head, operands in zip(program.heads, program.operands, strict=True):
            if head in merged:
                push(numbers[operands[0]])
                continue
            if len(operands) == 1:
                key: Any = (head, numbers[operands[0]])
            elif len(operands) == 2:
                a, b = numbers[operands[0]], numbers[operands[1]]
                key = (head, b, a) if b < a and head in commutes else (head, a, b)
            else:
                key = (head, *[numbers[o] for o in operands])
            found = table.get(key)
            if found is None:
                found = table[key] = len(table)
            push(found)
        out.append(numbers)
    return out


def commutative(vocabulary: Vocabulary) -> set[int]:
    return {k for k, h in enumerate(vocabulary.heads) if h.op in COMMUTATIVE and not h.attributes}


def merged_heads(vocabulary: Vocabulary) -> set[int]:
    return {k for k, h in enumerate(vocabulary.heads) if h.op == MERGED}


# ----- linear simulation -----
PLAIN, PLUS, SCALE, LINEARLY, TOGETHER, NOTHING = range(6)


class Checker:
    """Value numbers, named sums and the two passes."""

    def __init__(self, vocabulary: Vocabulary, expansions: int = 1_000_000, deadline: float | None = None):
        self.vocabulary = vocabulary
        self.table: dict[Any, int] = {}
        self.sums: dict[int, tuple[tuple[int, Any], ...]] = {}
        self.linear: dict[int, tuple[Any, tuple[int, ...], int]] = {}
        self.expansions, self.deadline = expansions, deadline
        self.spent = 0
        self.count = 0
        self.kinds: dict[Any, tuple[int, Any]] = {}
        self.commutes = commutative(vocabulary)

    # --- value numbers ---
    def number(self, key: Any) -> int:
        found = self.table.get(key)
        if found is None:
            found = self.table[key] = self.count
            self.count += 1
        return found

    def apply(self, head: Any, operands: tuple[int, ...], linear_in: tuple[int, ...]) -> int:
        """The value number of an operation on value numbers; `linear` keeps where it can be opened."""
        if len(operands) == 2 and head in self.commutes and operands[1] < operands[0]:
            operands = operands[::-1]
            linear_in = tuple([1 - s for s in linear_in])
        key = (head, operands)
        found = self.table.get(key)
        if found is None:
            found = self.table[key] = self.count
            self.count += 1
            for slot in linear_in:
                if operands[slot] in self.sums or operands[slot] in self.linear:
                    self.linear[found] = (head, operands, slot)
                    break
        return found

    def name(self, combo: Combo, type: int) -> int:
        """One value number for a combination."""
        if len(combo) == 1:
            ((vn, k),) = combo.items()
            if k == 1:
                return vn
        items = tuple(sorted(combo.items()))
        key = ("sum", type, items)
        found = self.table.get(key)
        if found is None:
            found = self.table[key] = self.count
            self.count += 1
            self.sums[found] = items
        return found

    # --- what an instruction is ---
    def kind(self, head_number: int, types: tuple[int, ...]) -> tuple[int, Any]:
        """How to combine operands of these types under this head."""
        key = (head_number, types)
        found = self.kinds.get(key)
        if found is None:
            head = self.vocabulary.heads[head_number]
            floating = [self.floating(t) for t in types]
            same = all(t == head.type for t in types) and self.floating(head.type)
            names = [k for k, _ in head.attributes]
            if head.op == "add" and same and not names and len(types) == 2:
                found = PLUS, 1
            elif head.op == "sub" and same and not names and len(types) == 2:
                found = PLUS, -1
            elif head.op == "neg" and same:
                found = SCALE, -1
            elif (
                head.op == "mul"
                and same
                and len(types) == 1
                and names in (["x"], ["y"])
                and exact(head.attributes[0][1]) is not None
            ):
                found = SCALE, exact(head.attributes[0][1])
            elif head.op == FULL and head.attributes[0][1] in ZEROS:
                found = NOTHING, ()
            elif head.effect or not self.floating(head.type):
                found = PLAIN, ()
            else:
                found = LINEARLY, slots(head, floating)
                if not found[1]:
                    together = joint_slots(head, floating)
                    found = (TOGETHER, together) if len(together) > 1 else (PLAIN, ())
            self.kinds[key] = found
        return found

    def floating(self, type: int) -> bool:
        t = self.vocabulary.types[type]
        if t.parts:
            return all(p is None or self.floating(p) for p in t.parts)
        return t.dtype.startswith(("float", "bfloat", "complex"))

    # --- one pass ---
    def run(
        self, program: Program, claims: dict[int, Combo] | None = None, failed: list[tuple[int, str]] | None = None
    ) -> list[Any]:
        """The state (value number, or combination) of every instruction.

        `claims` maps positions to combinations of value numbers that are checked there and
        taken over when they hold.
        """
        types = [h.type for h in self.vocabulary.heads]
        merged = merged_heads(self.vocabulary)
        states: list[Any] = []
        push = states.append
        kinds, table, heads = self.kinds, self.table, program.heads
        claims = claims or {}
        for position, (head, operands) in enumerate(zip(heads, program.operands, strict=True)):
            if head in merged:
                push(states[operands[0]])
                continue
            key = (head, tuple([types[heads[o]] for o in operands]))
            found = kinds.get(key)
            kind, detail = self.kind(*key) if found is None else found
            args = tuple([states[o] for o in operands])
            if kind == PLUS:
                state = self.plus(args[0], args[1], detail, types[head])
            elif kind == SCALE:
                a = args[0]
                state = {a: detail} if type(a) is int else {v: k * detail for v, k in a.items()}
                if len(state) == 1 and 1 in state.values():
                    state = next(iter(state))
            elif kind == NOTHING:
                state = {}
            elif kind == TOGETHER:
                state = self.apart(head, key[1], args, detail, types[head])
            elif dict not in map(type, args):
                if len(args) == 2 and args[1] < args[0] and head in self.commutes:
                    args = args[::-1]
                state = table.get((head, args))
                if state is None:
                    state = self.apply(head, args, detail)
            else:
                state = self.distribute(head, key[1], args, detail)
            if position in claims:
                claimed = claims[position]
                if self.same(state, claimed):
                    state = claimed if len(claimed) != 1 or next(iter(claimed.values())) != 1 else next(iter(claimed))
                elif failed is not None:
                    failed.append((position, "the cotangent is not the sum of its members'"))
            if not position & 4095 and self.deadline is not None and time.monotonic() > self.deadline:
                raise OutOfBudget("seconds")
            push(state)
        return states

    def plus(self, a: Any, b: Any, sign: int, type_: int) -> Any:
        """a + sign*b, named at once so that long sums cost no copying."""
        if type(a) is dict and len(a) != 1:
            a = self.name(a, type_)
        if type(b) is dict and len(b) != 1:
            b = self.name(b, type_)
        combo: Combo = {a: 1} if type(a) is int else dict(a)
        for vn, k in ((b, sign),) if type(b) is int else ((v, sign * c) for v, c in b.items()):
            total = combo.get(vn, 0) + k
            if total:
                combo[vn] = total
            else:
                del combo[vn]
        return self.name(combo, type_)

    def apart(
        self, head: Any, types: tuple[int, ...], args: tuple[Any, ...], together: tuple[int, ...], type_: int
    ) -> Any:
        """f(x, y, ...) as f(x, 0, ...) + f(0, y, ...) + ...: each part is linear in one operand."""
        fixed = [self.name(a, t) if type(a) is dict else a for a, t in zip(args, types, strict=True)]
        rest = tuple([a for k, a in enumerate(fixed) if k not in together])
        kinds = tuple([t for k, t in enumerate(types) if k not in together])
        total: Any = None
        for slot in together:
            label = ("of", types[slot]) if head in self.commutes else slot
            part = self.distribute((head, label), (*kinds, types[slot]), (*rest, args[slot]), (len(rest),))
            total = part if total is None else self.plus(total, part, 1, type_)
        return total

    def distribute(self, head: Any, types: tuple[int, ...], args: tuple[Any, ...], linear_in: tuple[int, ...]) -> Any:
        """An operator on combinations: coefficients out, terms apart in one linear slot, the rest by name."""
        factor: Any = 1
        places: list[Any] = list(args)
        spread = None
        for slot in linear_in:
            value = places[slot]
            if type(value) is dict:
                if len(value) == 1:
                    ((vn, k),) = value.items()
                    places[slot] = vn
                    factor = factor * k
                elif spread is None:
                    spread = slot
        for k, value in enumerate(places):
            if type(value) is dict and k != spread:
                places[k] = self.name(value, types[k])
        if spread is None:
            vn = self.apply(head, tuple(places), linear_in)
            return vn if factor == 1 else {vn: factor}
        out: Combo = {}
        for term, k in places[spread].items():
            places_k = places.copy()
            places_k[spread] = term
            vn = self.apply(head, tuple(places_k), linear_in)
            total = out.get(vn, 0) + k * factor
            if total:
                out[vn] = total
            else:
                del out[vn]
        return out

    # --- equality ---
    def same(self, a: Any, b: Any) -> bool:
        """Are two states of one type equal over the reals?"""
        if type(a) is int:
            if type(b) is int and a == b:
                return True
            a = {a: 1}
        if type(b) is int:
            b = {b: 1}
        difference = dict(a)
        for vn, k in b.items():
            total = difference.get(vn, 0) - k
            if total:
                difference[vn] = total
            else:
                difference.pop(vn, None)
        return not difference or self.vanishes(difference)

    def vanishes(self, difference: Combo) -> bool:
        """Expand named sums, youngest first, then linear operators over sums, until nothing is left."""
        sums: list[int] = []
        later: list[int] = []
        for vn in difference:
            self.enqueue(vn, sums, later)
        while difference:
            if sums:
                vn = -heapq.heappop(sums)
                factor = difference.pop(vn, 0)
                if not factor:
                    continue
                terms: Any = self.sums[vn]
            elif later:
                vn = -heapq.heappop(later)
                factor = difference.pop(vn, 0)
                if not factor:
                    continue
                terms = self.opened(vn)
            else:
                return False
            self.spent += len(terms)
            if self.spent > self.expansions:
                raise OutOfBudget("expansions")
            for term, k in terms:
                total = difference.get(term, 0) + k * factor
                if total:
                    if term not in difference:
                        self.enqueue(term, sums, later)
                    difference[term] = total
                else:
                    difference.pop(term, None)
        return True

    def enqueue(self, vn: int, sums: list[int], later: list[int]) -> None:
        if vn in self.sums:
            heapq.heappush(sums, -vn)
        elif vn in self.linear:
            heapq.heappush(later, -vn)

    def opened(self, vn: int) -> Sequence[tuple[int, Any]]:
        """Linear operators over a named sum, however deep it lies, term by term."""
        path = []
        while vn not in self.sums:
            path.append(self.linear[vn])
            vn = path[-1][1][path[-1][2]]
        self.spent += len(path) * len(self.sums[vn])
        terms: Sequence[tuple[int, Any]] = self.sums[vn]
        for head, operands, slot in reversed(path):
            terms = [
                (self.apply(head, (*operands[:slot], term, *operands[slot + 1 :]), (slot,)), k) for term, k in terms
            ]
        return terms


def check(
    original: Program,
    optimized: Program,
    leader: Sequence[int],
    *,
    expansions: int = 1_000_000,
    deadline: float | None = None,
) -> Outcome:
    """Compare all goals of two programs: gradients of leaves, then values of outputs.

    Returns
    -------
    Outcome : per goal whether it is equal over the reals and bit for bit; where a claim or
        a merge failed (record number of the node, what was expected), earliest first.
    """
    vocabulary = original.vocabulary
    a, b = numbering((original, optimized))
    pairs = list(zip(original.gradients, optimized.gradients, strict=True))
    pairs += list(zip(original.values, optimized.values, strict=True))
    bitwise = [x is y is None or (x is not None and y is not None and a[x] == b[y]) for x, y in pairs]
    stats: dict[str, Any] = {"original": len(a), "optimized": len(b), "numbers": len(set(a) | set(b))}
    if all(bitwise):
        return Outcome(list(bitwise), bitwise, stats=stats)
    failed = [
        (i, "its value is not that of its leader")
        for i in range(original.forward)
        if leader[i] != i and a[i] != b[leader[i]]
    ]
    checker = Checker(vocabulary, expansions, deadline)
    outcome = Outcome([False] * len(pairs), bitwise, failed, stats=stats)
    try:
        first = checker.run(original)
        claims = claims_of(original, optimized, leader, first, checker)
        rejected: list[tuple[int, str]] = []
        second = checker.run(optimized, claims, rejected)
        outcome.failed += [(optimized.origin[p], text) for p, text in rejected]
        for k, (x, y) in enumerate(pairs):
            if x is None and y is None:
                outcome.equal[k] = True
            elif x is not None and y is not None:  # one missing gradient is a difference, whatever the other is
                outcome.equal[k] = checker.same(first[x], second[y])
        stats["claims"] = len(claims)
    except OutOfBudget as error:
        outcome.budget = True
        stats["budget"] = str(error)
    stats["expansions"] = checker.spent
    return outcome


def claims_of(
    original: Program, optimized: Program, leader: Sequence[int], states: list[Any], checker: Checker
) -> dict[int, Combo]:
    """For every whole cotangent of the optimized sweep: the sum of the members' original ones."""
    members: dict[int, list[int]] = {}
    for i in original.cotangents:
        members.setdefault(leader[i], []).append(i)
    types = [h.type for h in checker.vocabulary.heads]
    claims: dict[int, Combo] = {}
    for node, position in optimized.cotangents.items():
        combo: Combo = {}
        for i in members.get(node, ()):
            where = original.cotangents[i]
            state = states[where]
            if type(state) is dict and len(state) > 1:
                state = checker.name(state, types[original.heads[where]])
            for vn, k in ((state, 1),) if type(state) is int else state.items():
                total = combo.get(vn, 0) + k
                if total:
                    combo[vn] = total
                else:
                    del combo[vn]
        if combo:
            claims[position] = combo
    return claims
