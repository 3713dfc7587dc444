"""Every rule of algebra is proved, hunted for counterexamples, and needs each of its conditions."""

from __future__ import annotations

from dataclasses import replace
from itertools import permutations

import pytest

from autograd_opt.passes.algebra_py import STEPS, Terms
from autograd_opt.passes.rules import BITS, REALS, RULES, SYMBOLS, Rule
from tests.optimizer.meanings import counterexample, prove

ORDER = ("before", "nested", "single")
"""Conditions that put sums and products in order; what they forbid is true, but has no end."""
BIT_TRUE = {"sum before permute", "sum before reshape"}
"""Claimed for real numbers only, since they look through two operands; they keep bits all the same."""
by_name = pytest.mark.parametrize("rule", RULES, ids=lambda r: r.name)


@by_name
def test_sympy_proves_it(rule: Rule) -> None:
    assert prove(rule) >= 1


@by_name
def test_no_counterexample_is_found(rule: Rule) -> None:
    found = counterexample(rule)
    assert found is None, f"{rule.name}: {found}"


@pytest.mark.parametrize("rule", [r for r in RULES if r.strength == REALS], ids=lambda r: r.name)
def test_a_wrong_claim_of_bits_is_caught(rule: Rule) -> None:
    found = counterexample(replace(rule, strength=BITS))
    assert (found is None) == (rule.name in BIT_TRUE), f"{rule.name}: {found}"


@pytest.mark.parametrize("symbol", ["add", "mul"])
def test_sums_and_products_have_one_form(symbol: str) -> None:
    assert ordered(RULES, symbol)


CONDITIONS = [(rule, k) for rule in RULES for k in range(len(rule.conditions))]


def without(rule: Rule, k: int) -> Rule:
    parts = [c for i, c in enumerate(rule.conditions) if i != k]
    return replace(rule, when="; ".join(f"{c.question}({', '.join(c.names)})" for c in parts))


@pytest.mark.parametrize(("rule", "k"), CONDITIONS, ids=[f"{r.name}-{r.conditions[k].question}" for r, k in CONDITIONS])
def test_each_condition_is_needed(rule: Rule, k: int) -> None:
    broken = without(rule, k)
    if rule.conditions[k].question in ORDER:
        mutated = [broken if r is rule else r for r in RULES]
        assert not ordered(mutated, rule.left.symbol)
    else:
        assert counterexample(broken) is not None


def ordered(rules: list[Rule] | tuple[Rule, ...], symbol: str) -> bool:
    """Are all ways to write a sum of five one value, found in few steps?"""
    terms = Terms(rules)
    leaves = [terms.atom(0) for _ in range(5)]
    number = SYMBOLS[symbol]

    def joined(a: int, b: int) -> int:
        terms.steps = 0
        value = terms.value(number, 0, 0, (a, b))
        steps.append(terms.steps)
        return value

    steps: list[int] = []
    found = set()
    for a, b, c, d, e in permutations(leaves):
        found.add(joined(joined(joined(joined(a, b), c), d), e))
        found.add(joined(joined(a, b), joined(c, joined(d, e))))
        if len(found) > 1:
            return False
    return len(found) == 1 and max(steps) < STEPS


def test_names_are_unique_and_few_enough() -> None:
    assert len({rule.name for rule in RULES}) == len(RULES) <= 64
    assert list(RULES) == sorted(RULES, key=lambda rule: rule.strength == REALS), "bits first"
