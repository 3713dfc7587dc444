"""One pass over a program: each value as a linear combination of value numbers.

An operator that is linear in a slot is distributed over a claimed sum, which meets the original's value numbers again.
"""

from __future__ import annotations

from typing import Any

from autograd_opt.verification.checker.linear_combinations import LOOK, Combo, Sums, add
from autograd_opt.verification.checker.numbering import merged_heads
from autograd_opt.verification.program.instruction_names import FULL
from autograd_opt.verification.program.instructions import Program, Vocabulary
from autograd_opt.verification.program.linear import ZEROS, exact, joint_slots, slots
from autograd_opt.verification.rewrites.identities import OF_ONE, may_be_operand

PLAIN, PLUS, SCALE, LINEARLY, TOGETHER, NOTHING, OPERAND = range(7)


class Simulation(Sums):
    """The pass, with a table that the programs compared share."""

    def __init__(self, vocabulary: Vocabulary, expansions: int = 1_000_000, deadline: float | None = None):
        super().__init__(vocabulary, expansions, deadline)
        self.kinds: dict[Any, tuple[int, Any]] = {}

    # --- what an instruction is ---
    def kind(self, head_number: int, types: tuple[int, ...]) -> tuple[int, Any]:
        """How to combine operands of these types under this head."""
        key = (head_number, types)
        found = self.kinds.get(key)
        if found is None:
            head = self.vocabulary.heads[head_number]
            floating = [self.vocabulary.floating(t) for t in types]
            same = all(t == head.type for t in types) and self.vocabulary.floating(head.type)
            names = [k for k, _ in head.attributes]
            if head.effect:
                found = PLAIN, ()
            elif types == (head.type,) and (head.op in OF_ONE or may_be_operand(self.vocabulary, head)):
                found = OPERAND, ()
            elif head.op == "add" and same and not names and len(types) == 2:
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
            elif not self.vocabulary.floating(head.type):
                found = PLAIN, ()
            else:
                found = LINEARLY, slots(head, floating)
                if not found[1]:
                    together = joint_slots(head, floating)
                    found = (TOGETHER, together) if len(together) > 1 else (PLAIN, ())
            self.kinds[key] = found
        return found

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
            elif kind == OPERAND:
                state = args[0]
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
            if not position & 4095:
                self.work(LOOK)
            push(state)
        return states

    def combined(
        self, original: Program, optimized: Program, sums: dict[int, list[int]], states: list[Any]
    ) -> dict[int, Combo]:
        """The claims: by position of an optimized cotangent, the combination of original values that it is to be.

        One original value is taken as it stands: what follows makes the same of it, even where that is not linear.
        """
        types = [h.type for h in self.vocabulary.heads]
        claims: dict[int, Combo] = {}
        for node, position in optimized.cotangents.items():
            combo: Combo = {}
            for where in sums[node]:
                state = states[where]
                if type(state) is dict and len(state) > 1 and len(sums[node]) > 1:
                    state = self.name(state, types[original.heads[where]])
                add(combo, ((state, 1),) if type(state) is int else state.items())
            if combo:
                claims[position] = combo
        return claims

    def plus(self, a: Any, b: Any, sign: int, type_: int) -> Any:
        """a + sign*b, named at once so that long sums cost no copying."""
        if type(a) is dict and len(a) != 1:
            a = self.name(a, type_)
        if type(b) is dict and len(b) != 1:
            b = self.name(b, type_)
        combo: Combo = {a: 1} if type(a) is int else dict(a)
        add(combo, ((b, 1),) if type(b) is int else b.items(), sign)
        return self.name(combo, type_)

    def apart(
        self, head: Any, types: tuple[int, ...], args: tuple[Any, ...], together: tuple[int, ...], type_: int
    ) -> Any:
        """f(x, y, ...) as f(x, 0, ...) + f(0, y, ...) + ...: each part is linear in one operand."""
        fixed = [self.name(a, t) if type(a) is dict else a for a, t in zip(args, types, strict=True)]
        rest = tuple([a for k, a in enumerate(fixed) if k not in together])
        kinds = tuple([t for k, t in enumerate(types) if k not in together])
        whole = tuple([types[k] for k in together])  # where a part of `cat` lands depends on the sizes of the others
        total: Any = None
        for slot in together:
            label = ("of", types[slot]) if head in self.commutes else (slot, whole)
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
        self.work(len(places[spread]))
        left, right = places[:spread], places[spread + 1 :]
        terms = [(self.apply(head, (*left, term, *right), linear_in), k) for term, k in places[spread].items()]
        add(out, terms, factor)
        return out
