"""Proofs of this process, by everything that they have read: a training loop proves its step once.

A key is a row of all that a proof reads of the recorded nodes (`graph/proof_key.pyx`), the operators with their rules
and meanings, what the passes decided, and how it was asked.  Keys are compared in full, a hash only says where
to look; equal keys make equal programs, so the hashes in a verdict are those of the graph that it is handed out
for.  What looked at values of tensors is not kept: a refutation, and whatever comes after the search for one.
A proof by premises (`checker/congruence.py`) reads the number of a node that is alone in its class as little: it is
kept without from the second time on, so that a step whose coefficient changes each time is proved twice.
A proof that a user's rule had a part in is kept with what that rule reads (`rule_state`), and holds while it is that.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import torch

from autograd_opt.graph.proof_key import loose_numbers, seen_by_proofs
from autograd_opt.graph.structure import Structure
from autograd_opt.optimizer.plan_cache import Plans
from autograd_opt.verification.cache.rule_state import state_of
from autograd_opt.verification.program import reading
from autograd_opt.verification.result.budget import How
from autograd_opt.verification.result.verdict import Status, Verification

PROOFS = Plans(most_plans=1024, most_nodes=1 << 19)
"""Shared by all graphs and threads; the longest unused goes first."""

Seen = tuple[Structure, tuple[Any, ...]]
"""What a proof reads of nodes, outputs and leaves; the operators with their rules and meanings."""
Key = tuple[tuple[Any, ...], Structure]
MET: set[int] = set()
"""Hashes of keys without numbers that were asked for once: a proof is kept under such a key from the second time on."""
USUAL = How()
"""How a proof is asked for where nothing is said."""


def seen(nodes: Sequence[Any], roots: Any, leaves: Any, led: bool = False) -> Seen | None:
    """What a proof about these nodes reads, `led`: their leaders as well; None where a row cannot hold it all."""
    return seen_by_proofs(list(nodes), roots, leaves, led, reading) if len(nodes) else None


def loosely(nodes: Sequence[Any], roots: Any, leaves: Any, leader: Any, alive: Any, asked: tuple[Any, ...]
            ) -> Key | None:
    """The key without the numbers that a proof by premises does not read; None where there are none."""
    loose = loose_numbers(list(nodes), leader)
    if loose is None:
        return None
    return key_of(seen_by_proofs(list(nodes), roots, leaves, True, reading, loose), leader, alive, asked)


def met(key: Key | None) -> bool:
    """True if this key has been here before."""
    if key is None:
        return False
    known = hash(key) in MET
    if not known:
        if len(MET) >= 4096:
            MET.clear()
        MET.add(hash(key))
    return known


def key_of(what: Seen | None, leader: Any, alive: Any, asked: tuple[Any, ...]) -> Key | None:
    """What the answer to a question follows from; None where nothing is known of that."""
    if what is None:
        return None
    try:
        hash(asked)
        return (what[1], as_bytes(leader), as_bytes(alive), asked, torch.get_default_dtype()), what[0]
    except (TypeError, ValueError, OverflowError):  # what does not fit the graph is said by who verifies it
        return None


def as_bytes(numbers: Any) -> bytes | None:
    if numbers is None:
        return None
    found = np.asarray(numbers)
    if found.dtype.kind not in "iub" and found.size:
        raise TypeError(f"{found.dtype} is no type of whole numbers")
    return found.astype(np.int64, copy=False).tobytes()


def find(key: Key | None) -> Verification | None:
    """The verdict that was kept; `stats["seconds"]` is what its proof took."""
    kept = None if key is None else PROOFS.find(*key)
    if key is None or kept is None:
        return None
    found: Verification = kept[0]
    rules: list[tuple[Any, Any]] = kept[1]
    if any(state_of(op) != state for op, state in rules):
        PROOFS.drop(*key)
        return None
    return found


def keep(key: Key | None, found: Verification, rows: int = 1, users: Iterable[Any] = ()) -> None:
    """Remember an answer that no value of a tensor has decided.

    `rows`: what it takes of memory, in rows of its key; `users`: the operators of the user's whose rules it is about.
    """
    if key is None or found.status is not Status.PROVED or "searched" in found.stats:
        return
    rules = [(op, state_of(op)) for op in users]
    if all(state is not None for _, state in rules):
        PROOFS.keep(*key, rows * key[1].nodes, (found.with_stats(known=True), rules))


def forget() -> None:
    """Prove everything anew: for who changes the verifier's own tables."""
    PROOFS.clear()
    MET.clear()
