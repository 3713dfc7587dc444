"""What is needed stays, what is not goes."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from autograd_opt.passes import NodeTableError


@pytest.mark.parametrize(
    ("line", "alive"),
    [
        ("b = cos x", False),
        ("b = leaf", False),
        ("b = cos x # pinned", False),
        ("b = cos x # nomerge", False),
        ("b = cos x # keep", True),
        ("b = draw x", True),
    ],
)
def test_unused_node(
    program: Callable[[str], Any],
    prune_with: Callable[..., np.ndarray],
    line: str,
    alive: bool,
) -> None:
    before = program(f"x = leaf\na = sin x\n{line}\nreturn a")
    assert prune_with(before.table, before.outputs).tolist() == [1, 1, alive]


def test_an_effect_keeps_what_it_reads(program: Callable[[str], Any], prune_with: Callable[..., np.ndarray]) -> None:
    before = program("x = leaf\na = sin x\nb = draw a\nreturn x")
    assert prune_with(before.table, before.outputs).tolist() == [1, 1, 1]


def test_leaders_live_in_place_of_merged_nodes(
    program: Callable[[str], Any], prune_with: Callable[..., np.ndarray]
) -> None:
    before = program("x = leaf\na = sin x\nb = sin x # keep\nc = cos b\nreturn c b")
    leader = np.array([0, 1, 1, 3], np.int32)
    alive = prune_with(before.table, before.outputs, leader)
    assert alive.tolist() == [1, 1, 0, 1]


def test_no_outputs(program: Callable[[str], Any], prune_with: Callable[..., np.ndarray]) -> None:
    before = program("x = leaf\na = sin x\nreturn")
    assert prune_with(before.table, []).tolist() == [0, 0]


@pytest.mark.parametrize("output", [-1, 2])
def test_output_outside_of_the_table(
    program: Callable[[str], Any], prune_with: Callable[..., np.ndarray], output: int
) -> None:
    table = program("x = leaf\na = sin x\nreturn a").table
    with pytest.raises(NodeTableError, match=f"{output} is no node"):
        prune_with(table, [output])
