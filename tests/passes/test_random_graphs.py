"""Random graphs against oracles that share nothing with the passes."""

from collections.abc import Callable
from hashlib import sha256
from itertools import count

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from autograd_opt.passes import (
    COMMUTATIVE,
    EFFECT,
    KEEP,
    LEAF,
    NEVER_MERGES,
    NEVER_PRUNED,
    NOMERGE,
    PINNED,
    NodeTable,
    Pipeline,
    check,
    cse,
    prune,
)
from autograd_opt.passes.cse import cse as cse_py
from autograd_opt.passes.prune import prune as prune_py

FLAGS = st.sampled_from(
    [0] * 6 + [COMMUTATIVE] * 6 + [LEAF, EFFECT, PINNED, KEEP, NOMERGE, COMMUTATIVE | PINNED, KEEP | PINNED]
)


@st.composite
def tables(draw: st.DrawFn) -> NodeTable:
    n = draw(st.integers(0, 40))
    rows = [draw(st.lists(st.integers(0, i - 1), max_size=3)) if i else [] for i in range(n)]
    flags = draw(st.lists(FLAGS, min_size=n, max_size=n))
    key = draw(st.lists(st.integers(0, 2), min_size=n, max_size=n))
    # one key, one operation: commutative or not is a matter of the key
    key = [4 * k + bool(f & COMMUTATIVE) for k, f in zip(key, flags, strict=True)]
    return NodeTable.from_operands(key, rows, flags)


@st.composite
def merged_before(draw: st.DrawFn) -> tuple[NodeTable, np.ndarray]:
    """A table and the leaders that some other pass may have left."""
    table = draw(tables())
    start = np.arange(len(table), dtype=np.int32)
    for node in range(1, len(table)):
        if not table.flags[node] & NEVER_MERGES and draw(st.integers(0, 4)) == 0:
            start[node] = start[draw(st.integers(0, node - 1))]
    return table, start


def leaders_by_digest(table: NodeTable, start: np.ndarray | None = None) -> list[int]:
    """Number values by a digest of all that they are computed from."""
    salt = count()
    digests: list[bytes] = []
    for node in range(len(table)):
        parts = [digests[operand] for operand in table.operands_of(node)]
        if table.flags[node] & COMMUTATIVE and len(parts) == 2:
            parts.sort()
        unique = next(salt) if table.flags[node] & NEVER_MERGES else ""
        text = f"{table.key[node]} {unique} ".encode() + b"".join(parts)
        own = start is None or start[node] == node
        digests.append(sha256(text).digest() if own else digests[start[node]])
    return [digests.index(digest) for digest in digests]


def reachable(table: NodeTable, outputs: list[int], leader: np.ndarray) -> set[int]:
    """Breadth first from outputs and effects, over leaders."""
    roots = [*outputs, *np.flatnonzero(table.flags & NEVER_PRUNED)]
    found: set[int] = set()
    queue = [int(leader[root]) for root in roots]
    while queue:
        node = queue.pop(0)
        if node not in found:
            found.add(node)
            queue += [int(leader[o]) for o in table.operands_of(node)]
    return found


@given(tables())
def test_all_forms_agree_with_the_oracle(table: NodeTable) -> None:
    expected = leaders_by_digest(table)
    assert cse(table).tolist() == expected
    assert cse_py(table).tolist() == expected
    assert cse(table, degenerate_hash=True).tolist() == expected
    assert cse_py(table, degenerate_hash=True).tolist() == expected


@given(merged_before())
def test_merges_made_before_are_built_upon(given: tuple[NodeTable, np.ndarray]) -> None:
    table, start = given
    expected = leaders_by_digest(table, start)
    for form in (cse, cse_py):
        assert form(table, leader=start).tolist() == expected


@given(tables(), st.data())
def test_prune_is_reachability(table: NodeTable, data: st.DataObject) -> None:
    outputs = data.draw(st.lists(st.integers(0, len(table) - 1))) if len(table) else []
    leader = cse(table) if data.draw(st.booleans()) else np.arange(len(table))
    leader = leader.astype(np.int32)
    expected = reachable(table, outputs, leader)
    for form in (prune, prune_py):
        alive = form(table, outputs, leader)
        assert set(np.flatnonzero(alive)) == expected


@given(tables(), st.integers(0, 10))
def test_any_prefix_of_the_merges_is_sound(table: NodeTable, limit: int) -> None:
    leader = cse(table, limit=limit)
    alive = (leader == np.arange(len(table))).astype(np.uint8)
    check(table, [], leader, alive, exact=True)
    merged = np.flatnonzero(leader != np.arange(len(table)))
    assert merged.tolist() == np.flatnonzero(cse(table) != np.arange(len(table)))[:limit].tolist()
    assert np.array_equal(leader, cse_py(table, limit=limit))


@given(tables(), st.permutations(["cse", "prune", "cse", "prune"]))
def test_pipelines_in_any_order_pass_the_check(table: NodeTable, names: list[str]) -> None:
    outputs = [len(table) - 1] if len(table) else []
    optimized = Pipeline(names, check=True).run(table, outputs)
    assert optimized.merged + optimized.pruned + optimized.alive.sum() == len(table)
    assert len(optimized.certificate()) == optimized.merged


def _through_a_dag(table: NodeTable, form: Callable[..., np.ndarray]) -> NodeTable:
    leader = form(table)
    alive = prune(table, range(len(table)), leader)
    dag, position = table.to_dag(range(len(table)), leader, alive)
    key, flags = table.key, table.flags
    read = NodeTable.from_dag(dag, key=lambda i: b"%d" % key[i], flags=flags.__getitem__)
    assert [dag[p] for p in position] == leader.tolist()
    return read


@given(tables())
def test_the_optimized_dag_is_the_optimized_graph(table: NodeTable) -> None:
    read = _through_a_dag(table, cse)
    assert np.array_equal(cse(read), np.arange(len(read)))
    leader = cse(table)
    position = np.cumsum(leader == np.arange(len(table))) - 1
    kept = np.flatnonzero(leader == np.arange(len(table)))
    expected = [position[leader[table.operands_of(i)]].tolist() for i in kept]
    assert [read.operands_of(i) for i in range(len(read))] == expected
