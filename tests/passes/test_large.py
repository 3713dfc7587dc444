"""What only graphs of hundreds of thousands of nodes use: hashes made ahead, blocks that stay."""

from __future__ import annotations

import numpy as np
import pytest

from autograd_opt.passes import NEVER_MERGES, NodeTable, cse, heap, refine

N = 300_000


def local(reach: int) -> NodeTable:
    """Operands at most `reach` nodes back, so few kinds that most nodes repeat one; every tenth never merges."""
    rng = np.random.default_rng(20260101)
    node = np.arange(2, N)
    operands = np.stack([node - 1 - (rng.integers(0, reach, N - 2) % node) % node for _ in range(2)], 1)
    operands = np.maximum(operands, 0).astype(np.int32)
    offsets = np.concatenate([[0, 0], 2 * np.arange(N - 1)])
    flags = np.where(rng.integers(0, 10, N) == 0, 1, 0).astype(np.uint8)
    return NodeTable(rng.integers(0, 2, N), offsets, operands.reshape(-1), flags)


@pytest.mark.parametrize("reach", [1, 5, 15, 16, 17, 40, 10**6])
def test_a_hash_made_ahead_is_made_again_where_a_leader_changed(reach: int) -> None:
    table = local(reach)
    assert NEVER_MERGES & 1
    leader = cse(table, degenerate_hash=False)
    assert np.array_equal(leader, refine(table))
    assert (leader != np.arange(N)).any() == (reach > 1)     # a chain repeats nothing


def test_leaders_given_before_count_in_hashes_made_ahead() -> None:
    table = local(8)
    start = cse(table, limit=1000, degenerate_hash=False)
    assert np.array_equal(cse(table, leader=start, degenerate_hash=False), refine(table, leader=start))


def test_small_graphs_leave_the_allocator_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[tuple[int, int]] = []
    monkeypatch.setattr(heap, "_mallopt", lambda: lambda *call: calls.append(call))
    monkeypatch.setattr(heap, "_kept", 0)
    with heap.blocks_kept(heap.LARGE - 1):
        pass
    assert calls == []
    with heap.blocks_kept(10**6):
        assert calls == [(heap.TRIM_THRESHOLD, 256 * 10**6), (heap.MMAP_THRESHOLD, 256 * 10**6)]
    assert calls[2:] == [(heap.MMAP_THRESHOLD, heap.USUAL_MMAP_THRESHOLD)]


def test_what_is_kept_follows_the_largest_graph_and_can_be_switched_off(monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[tuple[int, int]] = []
    monkeypatch.setattr(heap, "_mallopt", lambda: lambda *call: calls.append(call))
    monkeypatch.setattr(heap, "_kept", 0)
    for nodes in (10**6, 300_000, 10**8):
        with heap.blocks_kept(nodes):
            pass
    assert [kept for which, kept in calls if which == heap.TRIM_THRESHOLD] == [256 * 10**6, 256 * 10**6, heap.MOST]
    calls.clear()
    monkeypatch.setenv("AUTOGRAD_OPT_KEEP_HEAP", "0")
    with heap.blocks_kept(10**6):
        pass
    assert calls == []
