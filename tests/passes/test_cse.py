"""What merges, and for each reason not to merge a twin that stays two."""

from collections.abc import Callable

import numpy as np
import pytest

from autograd_opt.passes import NodeTable, cse
from autograd_opt.passes.cse import cse as cse_py


def test_equal_operations_merge(becomes: Callable[[str, str], None]) -> None:
    becomes(
        """x = leaf
           y = leaf
           a = sub x y
           b = sub x y
           c = mul a b
           return c""",
        """x = leaf
           y = leaf
           a = sub x y
           c = mul a a
           return c""",
    )


def test_merging_spreads_to_the_users(becomes: Callable[[str, str], None]) -> None:
    becomes(
        """x = leaf
           a = sin x
           b = sin x
           c = cos a
           d = cos b
           e = sub c d
           f = sub d c
           return e f""",
        """x = leaf
           a = sin x
           c = cos a
           e = sub c c
           return e e""",
    )


def test_commutative_operands_in_either_order(
    becomes: Callable[[str, str], None],
) -> None:
    becomes(
        """x = leaf
           y = leaf
           a = add x y
           b = add y x
           c = sub a b
           return c""",
        """x = leaf
           y = leaf
           a = add x y
           c = sub a a
           return c""",
    )


def test_both_operands_of_a_square_stay(becomes: Callable[[str, str], None]) -> None:
    becomes(
        """x = leaf
           a = mul x x
           b = mul x x
           c = sub a b
           return c""",
        """x = leaf
           a = mul x x
           c = sub a a
           return c""",
    )


def test_operations_without_operands_merge(
    becomes: Callable[[str, str], None],
) -> None:
    becomes(
        """a = zeros
           b = zeros
           c = sub a b
           return c""",
        """a = zeros
           c = sub a a
           return c""",
    )


@pytest.mark.parametrize(
    ("reason", "first", "second"),
    [
        ("operand order", "sub x y", "sub y x"),
        ("key", "sin x", "cos x"),
        ("operand", "sin x", "sin y"),
        ("arity", "cat x", "cat x x"),
        ("arity, prefix", "cat x y", "cat x y x"),
        ("order of three, though commutative", "add x y y", "add y x y"),
        ("effect", "draw x", "draw x"),
        ("pinned", "sin x # pinned", "sin x # pinned"),
        ("pinned first", "sin x # pinned", "sin x"),
        ("pinned second", "sin x", "sin x # pinned"),
        ("nomerge", "view x # nomerge", "view x # nomerge"),
        ("leaf", "leaf", "leaf"),
    ],
)
def test_twins_that_stay_two(stays: Callable[[str], None], reason: str, first: str, second: str) -> None:
    stays(
        f"""x = leaf
            y = leaf
            a = {first}
            b = {second}
            return a b"""
    )


def test_a_third_twin_merges_past_a_pinned_one(
    merge: Callable[..., np.ndarray],
) -> None:
    table = NodeTable.from_operands([0, 1, 1, 1], [(), (0,), (0,), (0,)], [1, 0, 4, 0])
    assert merge(table).tolist() == [0, 1, 2, 1]


def test_keep_may_merge(merge: Callable[..., np.ndarray]) -> None:
    table = NodeTable.from_operands([0, 1, 1], [(), (0,), (0,)], [1, 0, 16])
    assert merge(table).tolist() == [0, 1, 1]


def test_merges_made_before_are_kept(merge: Callable[..., np.ndarray]) -> None:
    # 2 = x + 0 was simplified to x: now sin(2) is sin(x)
    table = NodeTable.from_operands([0, 1, 2, 3, 3], [(), (), (0, 1), (0,), (2,)], [1, 1, 0, 0, 0])
    before = np.array([0, 1, 0, 3, 4], np.int32)
    assert merge(table, leader=before).tolist() == [0, 1, 0, 3, 3]
    assert before.tolist() == [0, 1, 0, 3, 4]


def test_an_old_leader_may_get_a_leader(merge: Callable[..., np.ndarray]) -> None:
    # a = sin x; b = sin x; c = b + y was simplified to b; d = cos a; e = cos c
    table = NodeTable.from_operands(
        [0, 0, 1, 1, 2, 3, 3], [(), (), (0,), (0,), (3, 1), (2,), (4,)], [1, 1, 0, 0, 0, 0, 0]
    )
    before = np.array([0, 1, 2, 3, 3, 5, 6], np.int32)
    assert merge(table, leader=before).tolist() == [0, 1, 2, 2, 2, 5, 5]


@pytest.mark.parametrize("key", [-1, 0, 7, 2**62, -(2**63)])
def test_any_key_number(merge: Callable[..., np.ndarray], key: int) -> None:
    table = NodeTable.from_operands([key, 5, key], [(), (), ()])
    assert merge(table).tolist() == [0, 1, 0]


@pytest.mark.parametrize("n", [0, 1])
def test_small_graphs(merge: Callable[..., np.ndarray], n: int) -> None:
    table = NodeTable.from_operands([0] * n, [()] * n)
    leader = merge(table)
    assert leader.dtype == np.int32
    assert leader.tolist() == [0] * n


@pytest.mark.parametrize("limit", range(5))
def test_limit_keeps_the_first_merges(sweep: Callable[..., np.ndarray], limit: int) -> None:
    rows = [(), (0,), (0,), (1,), (2,), (0,)]
    table = NodeTable.from_operands([0, 1, 1, 2, 2, 1], rows)
    expected = np.arange(6)
    for node, leader in [(2, 1), (4, 3), (5, 1)][:limit]:
        expected[node] = leader
    assert sweep(table, limit=limit).tolist() == expected.tolist()


def test_negative_limit_is_refused(sweep: Callable[..., np.ndarray]) -> None:
    table = NodeTable.from_operands([0], [()])
    with pytest.raises(ValueError, match="at least 0"):
        sweep(table, limit=-1)


def test_one_docstring_for_both_forms() -> None:
    assert cse.__doc__ == cse_py.__doc__
