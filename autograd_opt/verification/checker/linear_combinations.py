"""Value numbers and named sums: when are two linear combinations equal?

A value is a linear combination of value numbers; sums of two terms and more get a name and
are expanded only on demand, youngest first, so that equal names cancel unexpanded.
"""

from __future__ import annotations

import heapq
import time
from collections.abc import Iterable, Sequence
from typing import Any

from autograd_opt.verification.checker.numbering import commutative
from autograd_opt.verification.program.instructions import Vocabulary

Combo = dict[int, Any]
"""value number -> coefficient (int or Fraction), never zero; all of one type."""


LOOK = 1 << 14
"""Terms between two looks at the clock."""
PRIME, MIX = (1 << 61) - 1, 0x9E3779B97F4A7C15
"""Of the images of value numbers; what keys are spread by."""


def add(total: Combo, terms: Iterable[tuple[int, Any]], factor: Any = 1) -> None:
    """Add a multiple of a combination; what cancels goes."""
    for vn, k in terms:
        found = total.get(vn, 0) + k * factor
        if found:
            total[vn] = found
        else:
            total.pop(vn, None)


class OutOfBudget(Exception):
    """More expansions than allowed, or no time left."""


class Sums:
    """Value numbers, named sums, and equality over the reals.

    Each value number has an image modulo a prime, in which sums are sums and linear operations are products.  Equal
    combinations have equal images, so where those differ nothing is expanded.
    """

    def __init__(self, vocabulary: Vocabulary, expansions: int = 1_000_000, deadline: float | None = None):
        self.vocabulary = vocabulary
        self.table: dict[Any, int] = {}
        self.sums: dict[int, tuple[tuple[int, Any], ...]] = {}
        self.linear: dict[int, tuple[Any, tuple[int, ...], int, tuple[int, ...]]] = {}
        self.depth: dict[int, int] = {}
        self.terms: dict[int, Sequence[tuple[int, Any]]] = {}
        self.expansions, self.deadline = expansions, deadline
        self.spent = 0
        self.worked = 0
        self.count = 0
        self.images: list[int] = []
        self.commutes = commutative(vocabulary)

    def work(self, terms: int) -> None:
        """Count terms that were handled, and look at the clock now and then."""
        before, self.worked = self.worked, self.worked + terms
        if before // LOOK != self.worked // LOOK and self.deadline is not None and time.monotonic() > self.deadline:
            raise OutOfBudget("seconds")

    # --- value numbers ---
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
            self.images.append(self.image(head, operands, linear_in))
            for slot in linear_in:
                if operands[slot] in self.sums or operands[slot] in self.linear:
                    self.linear[found] = (head, operands, slot, linear_in)
                    self.depth[found] = 0 if operands[slot] in self.sums else 1 + self.depth[operands[slot]]
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
            self.images.append(self.image_of(combo))
            self.sums[found] = items
        return found

    def image(self, head: Any, operands: tuple[int, ...], linear_in: tuple[int, ...]) -> int:
        """The image of an operation: a product with those of the operands that it is linear in."""
        images = self.images
        out = hash((head, tuple([o for k, o in enumerate(operands) if k not in linear_in]))) * MIX % PRIME
        for slot in linear_in:
            out = out * images[operands[slot]] % PRIME
        return out

    def image_of(self, combo: Combo) -> int:
        """The image of a combination."""
        images, total = self.images, 0
        for vn, k in combo.items():
            k = k if type(k) is int else k.numerator * pow(k.denominator, -1, PRIME)
            total += k * images[vn]
        return total % PRIME

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
        add(difference, b.items(), -1)
        return not difference or (self.image_of(difference) == 0 and self.vanishes(difference))

    def vanishes(self, difference: Combo) -> bool:
        """Expand named sums, youngest first, then linear operators over sums, until nothing is left.

        Of those, the ones that lie closest over a sum come first: what they open into lies no closer, so nothing is
        opened that something opened later would have cancelled.
        """
        sums: list[int] = []
        later: list[tuple[int, int]] = []
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
                vn = -heapq.heappop(later)[1]
                factor = difference.pop(vn, 0)
                if not factor:
                    continue
                terms = self.opened(vn)
            else:
                return False
            self.spent += len(terms)
            self.work(len(terms))
            if self.spent > self.expansions:
                raise OutOfBudget("expansions")
            for term, _ in terms:
                if term not in difference:
                    self.enqueue(term, sums, later)
            add(difference, terms, factor)
        return True

    def enqueue(self, vn: int, sums: list[int], later: list[tuple[int, int]]) -> None:
        if vn in self.sums:
            heapq.heappush(sums, -vn)
        elif vn in self.linear:
            heapq.heappush(later, (self.depth[vn], -vn))

    def opened(self, vn: int) -> Sequence[tuple[int, Any]]:
        """Linear operators over a named sum, however deep it lies, term by term; each is worked out once."""
        path = []
        known = self.terms
        while vn not in self.sums and vn not in known:
            path.append(vn)
            _, operands, slot, _ = self.linear[vn]
            vn = operands[slot]
        terms: Sequence[tuple[int, Any]] = known[vn] if vn in known else self.sums[vn]
        self.spent += len(path) * len(terms)
        self.work(len(path) * len(terms))
        for outer in reversed(path):
            head, operands, slot, linear_in = self.linear[outer]
            left, right = operands[:slot], operands[slot + 1 :]
            terms = known[outer] = [(self.apply(head, (*left, term, *right), linear_in), k) for term, k in terms]
        return terms
