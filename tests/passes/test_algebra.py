"""The pass of the rules: compiled and readable alike, on random graphs and on graphs made for it."""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction
from itertools import product
from types import SimpleNamespace

import numpy as np
import pytest
from graphs import random_graph

from autograd_opt.passes import (
    BITS,
    EFFECT,
    LEAF,
    NOMERGE,
    PINNED,
    REALS,
    Effort,
    NodeTable,
    PassResult,
    PassResultError,
    Pipeline,
    first_bad_merge,
    register_pass,
    rules_of,
    unregister_pass,
)
from autograd_opt.passes.algebra import algebra
from autograd_opt.passes.algebra_py import algebra as algebra_py
from autograd_opt.passes.data import packed
from autograd_opt.passes.rules import RULES, SYMBOLS
from autograd_opt.passes.terms import bits_of

S = SYMBOLS
FORMS = {"compiled": algebra, "twin": algebra_py}


@pytest.fixture(params=FORMS.values(), ids=FORMS.keys())
def numbering(request: pytest.FixtureRequest) -> Callable[..., tuple[np.ndarray, np.ndarray]]:
    return request.param


def table(*rows: tuple[object, ...], flags: list[int] | None = None, meta: list[int] | None = None) -> NodeTable:
    """Each row is (symbol, operands...) or (symbol, datum, (operands...)); ``leaf`` for a leaf."""
    symbols, data, operands, bits = [], [], [], []
    for name, *rest in rows:
        datum, below = rest if len(rest) == 2 and isinstance(rest[1], tuple) else (0, tuple(rest))
        symbols.append(S.get(str(name), 0))
        data.append(datum)
        operands.append(below)
        bits.append(LEAF if name == "leaf" else 0)
    keys: dict[object, int] = {}
    numbers = [keys.setdefault((r[0], d, k if r[0] == "leaf" else -1), len(keys))
               for k, (r, d) in enumerate(zip(rows, data, strict=True))]
    if flags is not None:
        bits = [a | b for a, b in zip(bits, flags, strict=True)]
    return NodeTable.from_operands(numbers, operands, bits, meta or [0] * len(rows), symbols, data)


@pytest.mark.parametrize("strength", [BITS, REALS])
@pytest.mark.parametrize("chunk", range(8))
def test_both_forms_are_one(strength: str, chunk: int) -> None:
    rules, merged = rules_of(strength), 0
    for seed in range(60 * chunk, 60 * (chunk + 1)):
        graph = random_graph(seed, 20 + seed % 60)
        leader, fired = algebra(graph, rules)
        for other, marks in (algebra_py(graph, rules), algebra(graph, rules, degenerate_hash=True)):
            assert (leader.tolist(), fired.tolist()) == (other.tolist(), marks.tolist()), f"seed {seed}"
        again, marks = algebra(graph, rules, leader=leader)
        assert np.array_equal(again, leader), f"seed {seed}: a second run changes something"
        assert not marks.any()
        assert ((leader != np.arange(len(graph))) == (fired != 0)).all()
        merged += np.count_nonzero(fired)
    assert merged > 100


@pytest.mark.parametrize("seed", range(40))
def test_every_result_is_derived_again_when_checked(seed: int) -> None:
    graph = random_graph(seed)
    for names in (["algebraic", "cse", "prune"], ["cse", "algebraic-real", "cse", "prune"]):
        Pipeline(names, check=True).run(graph, [len(graph) - 1])


def test_a_transpose_of_a_transpose_is_the_leaf(numbering: Callable[..., tuple[np.ndarray, np.ndarray]]) -> None:
    swap = packed([1, 0])
    graph = table(("leaf",), ("permute", swap, (0,)), ("permute", swap, (1,)), ("other", 2), ("other", 0))
    leader, fired = numbering(graph, rules_of(BITS))
    assert leader.tolist() == [0, 1, 0, 3, 4]
    assert [RULES[k].name for k in range(len(RULES)) if int(fired[2]) >> k & 1] == [
        "permute of permute", "identity permute"]
    optimized = Pipeline(["algebraic", "cse", "prune"]).run(graph, [3, 4])
    assert optimized.leader.tolist() == [0, 1, 0, 3, 3], "what stands on it merges by cse"
    assert optimized.rewrites == ((2, "permute of permute + identity permute", 0, (0,)),)
    assert optimized.alive.tolist() == [1, 0, 0, 1, 0]


def test_a_cousin_is_found(numbering: Callable[..., tuple[np.ndarray, np.ndarray]]) -> None:
    graph = table(("leaf",), ("reshape", 0), ("reshape", 0), ("reshape", 2), meta=[0, 1, 2, 1])
    assert numbering(graph, rules_of(BITS))[0].tolist() == [0, 1, 2, 1]
    assert Pipeline(["algebraic"]).run(graph, [1, 3]).rewrites == ((3, "reshape of reshape", 1, (0,)),)


@pytest.mark.parametrize("flag", [PINNED, EFFECT, NOMERGE])
def test_nothing_is_looked_through_that_may_not_merge(
    numbering: Callable[..., tuple[np.ndarray, np.ndarray]], flag: int
) -> None:
    graph = table(("leaf",), ("negate", 0), ("negate", 1), flags=[0, flag, 0])
    assert numbering(graph, rules_of(REALS))[0].tolist() == [0, 1, 2]
    graph = table(("leaf",), ("negate", 0), ("negate", 1), flags=[0, 0, flag])
    assert numbering(graph, rules_of(REALS))[0].tolist() == [0, 1, 2]


def test_a_pinned_node_can_be_what_another_equals(numbering: Callable[..., tuple[np.ndarray, np.ndarray]]) -> None:
    graph = table(("leaf",), ("other", 0), ("negate", 1), ("negate", 2), flags=[0, PINNED, 0, 0])
    assert numbering(graph, rules_of(BITS))[0].tolist() == [0, 1, 2, 1]
    Pipeline(["algebraic", "prune"], check=True).run(graph, [3])


def test_signed_zeros_are_told_apart(numbering: Callable[..., tuple[np.ndarray, np.ndarray]]) -> None:
    rows = [("leaf",), ("plus", bits_of(0.0), (0,)), ("plus", bits_of(-0.0), (0,)), ("minus", bits_of(0.0), (0,)),
            ("minus", bits_of(-0.0), (0,))]
    assert numbering(table(*rows), rules_of(BITS))[0].tolist() == [0, 1, 0, 0, 1]
    assert numbering(table(*rows), rules_of(REALS))[0].tolist() == [0, 0, 0, 0, 0]


NUMBERS = [0.0, -0.0, 1.0, 0.5, 2.0, 3.0, -7.0, 0.1, 0.2, 1 / 3, 2.0**53, 2.0**53 + 2, 2.0**-500, 3 * 2.0**-480,
           2.0**-959, 0.1 * 2.0**-400, 5e-324, 2.0**-1022, 2.0**500, 2.0**700, 2.0**959, 2.0**960, 1.7e308, 1e16, 1e-16,
           math.inf, -math.inf, math.nan]


@pytest.mark.parametrize("word", ["times", "plus"])
def test_numbers_are_put_together_where_nothing_is_rounded(
    numbering: Callable[..., tuple[np.ndarray, np.ndarray]], word: str
) -> None:
    folded = 0
    for a, b in product(NUMBERS, NUMBERS):
        whole = a * b if word == "times" else a + b
        rows = [("leaf",), (word, bits_of(a), (0,)), (word, bits_of(b), (1,)), (word, bits_of(whole), (0,))]
        rules = tuple(rule for rule in RULES if rule.name in ("two factors", "two summands"))
        merged = bool(numbering(table(*rows), rules)[1].any())
        if not all(map(math.isfinite, (a, b, whole))):
            assert not merged, (a, b)
        else:
            exact = Fraction(a) * Fraction(b) if word == "times" else Fraction(a) + Fraction(b)
            plain = all(n == 0 or 2.0**-960 <= abs(n) < 2.0**960 for n in (a, b, whole))
            assert merged <= (exact == whole), (a, b)
            assert merged or exact != whole or not plain, (a, b)
        folded += merged
    assert folded > 100


def test_without_words_nothing_happens(numbering: Callable[..., tuple[np.ndarray, np.ndarray]]) -> None:
    bare = NodeTable.from_operands([0, 1, 1], [(), (0,), (1,)])
    leader, fired = numbering(bare, RULES)
    assert leader.tolist() == [0, 1, 2]
    assert not fired.any()


def test_limit_and_bisection() -> None:
    graph = table(("leaf",), ("negate", 0), ("negate", 1), ("copy", 0), ("times", bits_of(1.0), (0,)))
    run = Pipeline(["algebraic"]).run(graph, [2])
    assert run.merged == 3
    for k in range(4):
        cut = Pipeline(["algebraic"], limit=k, check=True).run(graph, [2])
        assert [r.node for r in cut.rewrites] == [2, 3, 4][:k]
    bad = first_bad_merge(lambda limit: limit < 2, run.certificate())
    assert bad == (3, 0, "algebraic")


def test_a_merge_that_no_rule_derives_is_refused() -> None:
    graph = table(("leaf",), ("leaf",), ("negate", 0), ("negate", 2))

    def wrong(table, state):  # type: ignore[no-untyped-def]
        leader, fired = state.leader.copy(), np.zeros(4, np.uint64)
        leader[3], fired[3] = 1, 1
        return PassResult(leader=leader, fired=fired)

    register_pass("wrong", wrong, rules=RULES)
    try:
        with pytest.raises(PassResultError, match=r"pass 'wrong', node 3: by 'double negation' it was merged into 1"):
            Pipeline(["wrong"]).run(graph, [3])
    finally:
        unregister_pass("wrong")


@pytest.mark.parametrize("shape", ["wide", "deep", "fan", "half"])
@pytest.mark.parametrize("n", [3_000, 300_000])
def test_work_is_linear(shapes: SimpleNamespace, shape: str, n: int) -> None:
    given = getattr(shapes, shape)(n)
    node = np.arange(n)
    symbol = np.where(given.arity() == 2, np.where(node % 3 == 0, S["add"], S["mul"]), 0)
    graph = NodeTable(given.key, given.offsets, given.operands, given.flags, node * 0, symbol=symbol, datum=node * 0)
    for strength in (BITS, REALS):
        effort = Effort()
        algebra(graph, rules_of(strength), effort=effort, degenerate_hash=False)
        assert effort.probes <= 100 * n
        assert not effort.refined


def test_a_chain_of_100_000_negations_needs_no_recursion() -> None:
    n = 100_000
    node = np.arange(n)
    graph = NodeTable(node * 0, np.r_[0, node], node[:-1], np.where(node == 0, LEAF, 0), node * 0,
                      symbol=np.where(node == 0, 0, S["negate"]), datum=node * 0)
    assert np.array_equal(algebra(graph, rules_of(BITS))[0], np.where(node % 2 == 0, 0, node))
    assert np.array_equal(Pipeline(["algebraic", "cse"]).run(graph, [n - 1]).leader, node % 2)
