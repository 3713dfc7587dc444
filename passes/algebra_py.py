"""The twin of `algebra.pyx`: values numbered modulo the rules, in plain Python."""

from collections.abc import Iterator, Sequence
from itertools import permutations

import numpy as np
from numpy.typing import NDArray

from autograd_opt.passes.data import FUNCTIONS, is_exact_product, is_exact_sum, is_identity, is_small_power_of_two
from autograd_opt.passes.effort import Effort
from autograd_opt.passes.flags import COMMUTATIVE, NEVER_MERGES
from autograd_opt.passes.leaders import Leaders, first_merges, identity_leaders
from autograd_opt.passes.rules import COMMUTES, SYMBOLS, Rule
from autograd_opt.passes.table import NodeTable
from autograd_opt.passes.terms import Condition, Datum, Term

__all__ = ["Terms", "algebra"]

STEPS = 32
"""Rules applied to one node and to what its replacements are made of, at most."""
NAMES = {number: name for name, number in SYMBOLS.items()}

Content = tuple[int, int, int, tuple[int, ...]]
"""Symbol, datum, type, operands: equal contents are one value."""
Bindings = dict[str, int]


class Terms:
    """Values by number, and for those that are terms, what they are made of.

    Examples
    --------
    >>> from autograd_opt.passes.rules import RULES
    >>> terms = Terms(RULES)
    >>> x = terms.atom(type=0)
    >>> minus = terms.value(SYMBOLS["negate"], 0, 0, (x,))
    >>> terms.value(SYMBOLS["negate"], 0, 0, (minus,)) == x, terms.fired
    (True, 1)
    """

    def __init__(self, rules: Sequence[Rule]) -> None:
        self.rules: dict[int, list[tuple[int, Rule]]] = {}
        for number, rule in enumerate(rules):
            self.rules.setdefault(SYMBOLS[rule.left.symbol], []).append((number, rule))
        self.content: list[Content] = []
        self.numbers: dict[Content, int] = {}
        self.fired = 0
        """Bit k: rule k was applied since this was last set to 0."""
        self.steps = 0

    def atom(self, type: int) -> int:
        """Return the number of a new value of which nothing is known but its type."""
        self.content.append((0, 0, type, ()))
        return len(self.content) - 1

    def type_of(self, value: int) -> int:
        """Return the type of a value."""
        return self.content[value][2]

    def value(self, symbol: int, datum: int, type: int, operands: tuple[int, ...]) -> int:
        """Return the number of a term's value, after every rule that applies."""
        while True:
            if NAMES[symbol] in COMMUTES:
                operands = tuple(sorted(operands))
            found = self._rewritten(symbol, datum, type, operands)
            if found is None:
                break
            if isinstance(found, int):
                return found
            symbol, datum, type, operands = found
        content = (symbol, datum, type, operands)
        number = self.numbers.setdefault(content, len(self.content))
        if number == len(self.content):
            self.content.append(content)
        return number

    def _rewritten(self, symbol: int, datum: int, type: int, operands: tuple[int, ...]) -> int | Content | None:
        """Apply the first rule that matches: a value, a content, or None."""
        for number, rule in self.rules.get(symbol, ()) if self.steps < STEPS else ():
            for values, data in self._matches(rule.left, symbol, datum, operands):
                if all(self._holds(c, symbol, type, values, data) for c in rule.conditions):
                    self.steps += 1
                    self.fired |= 1 << number
                    return self._built(rule.right, type, values, data)
        return None

    def _matches(
        self, term: Term, symbol: int, datum: int, operands: tuple[int, ...]
    ) -> Iterator[tuple[Bindings, Bindings]]:
        """Yield the ways in which a term matches a symbol, datum and operands."""
        if SYMBOLS[term.symbol] != symbol or len(term.operands) != len(operands):
            return
        data = _datum_matches(term.datum, datum)
        if data is None:
            return
        for order in permutations(operands) if term.symbol in COMMUTES else (operands,):
            found: list[tuple[Bindings, Bindings]] = [({}, data)]
            for inner, value in zip(term.operands, order, strict=True):
                found = [both for before in found for both in self._extended(before, inner, value)]
            yield from found

    def _extended(
        self, before: tuple[Bindings, Bindings], term: Term, value: int
    ) -> Iterator[tuple[Bindings, Bindings]]:
        if term.is_variable:
            ways: Iterator[tuple[Bindings, Bindings]] = iter([({term.name: value}, {})])
        else:
            symbol, datum, _, operands = self.content[value]
            ways = self._matches(term, symbol, datum, operands)
        for values, data in ways:
            if all(before[0].get(k, v) == v for k, v in values.items()) and all(
                before[1].get(k, v) == v for k, v in data.items()
            ):
                yield {**before[0], **values}, {**before[1], **data}

    def _holds(self, condition: Condition, symbol: int, type: int, values: Bindings, data: Bindings) -> bool:
        names = condition.names
        if condition.question == "typed":
            return self.type_of(values[names[0]]) == type
        if condition.question == "alike":
            return self.type_of(values[names[0]]) == self.type_of(values[names[1]])
        if condition.question == "before":
            return values[names[0]] < values[names[1]]
        if condition.question in ("nested", "single"):
            return (self.content[values[names[0]]][0] == symbol) == (condition.question == "nested")
        if condition.question == "identity":
            return is_identity(data[names[0]])
        if condition.question == "power_of_two":
            return is_small_power_of_two(data[names[0]])
        if condition.question == "exact_product":
            return is_exact_product(data[names[0]], data[names[1]])
        if condition.question == "exact_sum":
            return is_exact_sum(data[names[0]], data[names[1]])
        raise ValueError(f"no condition is called {condition.question!r}")

    def _built(self, term: Term, type: int, values: Bindings, data: Bindings) -> int | Content:
        if term.is_variable:
            return values[term.name]
        operands = tuple(
            values[o.name] if o.is_variable else self._inner(o, values, data) for o in term.operands
        )
        return SYMBOLS[term.symbol], _datum_of(term.datum, data), type, operands

    def _inner(self, term: Term, values: Bindings, data: Bindings) -> int:
        """Return the value of a term inside a replacement: of the type of its first operand."""
        operands = tuple(values[o.name] for o in term.operands)
        return self.value(SYMBOLS[term.symbol], _datum_of(term.datum, data), self.type_of(operands[0]), operands)


def _datum_matches(pattern: Datum, datum: int) -> Bindings | None:
    if pattern.kind == "variable":
        return {pattern.names[0]: datum}
    return {} if not pattern.kind or pattern.bits == datum else None


def _datum_of(pattern: Datum, data: Bindings) -> int:
    if pattern.kind == "variable":
        return data[pattern.names[0]]
    if pattern.kind in FUNCTIONS:
        return FUNCTIONS[pattern.kind](*(data[name] for name in pattern.names))
    return pattern.bits


def algebra(
    table: NodeTable,
    rules: Sequence[Rule],
    *,
    leader: Leaders | None = None,
    limit: int | None = None,
    degenerate_hash: bool | None = None,
    effort: Effort | None = None,
) -> tuple[Leaders, NDArray[np.uint64]]:
    """Merge nodes that are one value by the rules of algebra.

    Values are numbered as :func:`~autograd_opt.passes.cse` numbers them, but
    the term that a node computes is rewritten first, until no rule applies.
    Nodes merge only where a rule was applied to one of them; what is equal as
    written is left to ``cse``. Nothing is looked through that may not merge:
    leaves, effects, pinned and NOMERGE nodes are values without parts, though
    a node can turn out to equal one, ``x.t().t()`` the leaf x.

    Parameters
    ----------
    table : NodeTable
        With `symbol` and `datum`, and `meta`; without them nothing happens.
    rules : sequence of Rule
        At most 64.
    leader : int32[n], optional
        Merges made before, which are kept.
    limit : int, optional
        Make at most this many merges, the first in node order.
    degenerate_hash, effort
        As for ``cse``.

    Returns
    -------
    leader : int32[n]
    fired : uint64[n]
        Bit k of a node that was merged here: rule k took part.

    Examples
    --------
    ``a = -x; b = -a; c = sin(b)``:

    >>> from autograd_opt.passes import LEAF
    >>> from autograd_opt.passes.rules import RULES, SYMBOLS
    >>> table = NodeTable.from_operands([0, 1, 1, 2], [(), (0,), (1,), (2,)], [LEAF, 0, 0, 0],
    ...                                 meta=[0] * 4, symbol=[0, SYMBOLS["negate"], SYMBOLS["negate"], 0])
    >>> leaders, fired = algebra(table, RULES)
    >>> leaders, RULES[0].name
    (array([0, 1, 0, 3], dtype=int32), 'double negation')
    """
    start = identity_leaders(len(table)) if leader is None else leader
    fired = np.zeros(len(table), np.uint64)
    if table.symbol is None or table.datum is None or table.meta is None:
        return start, fired
    result = start.copy()
    terms = Terms(rules)
    values: list[int] = []
    ordinary: dict[tuple[int, ...], int] = {}
    first: dict[int, int] = {}
    for node in range(len(table)):
        operands = tuple(values[operand] for operand in table.operands_of(node))
        symbol, meta = int(table.symbol[node]), int(table.meta[node])
        terms.fired = terms.steps = 0
        if start[node] != node:
            value = values[start[node]]
        elif table.flags[node] & NEVER_MERGES:
            value = terms.atom(meta)
        elif symbol and operands:
            value = terms.value(symbol, int(table.datum[node]), meta, operands)
        else:
            if table.flags[node] & COMMUTATIVE and len(operands) == 2:
                operands = tuple(sorted(operands))
            content = (int(table.key[node]), *operands)
            value = ordinary[content] = ordinary[content] if content in ordinary else terms.atom(meta)
        values.append(value)
        fired[node] = terms.fired
        other = first.setdefault(value, node)
        if start[node] != node:
            result[node] = result[start[node]]
        elif fired[node] or fired[other]:
            result[node] = other
    result = result if limit is None else first_merges(result, start, limit)
    fired |= fired[result] | fired[start]
    fired[result == start] = 0
    if effort is not None:
        effort.probes += len(table)
    return result, fired
