"""What the passes decided for structures seen before, so that a training loop runs them once.

Shared by all graphs and threads of the process, bounded in plans and in nodes; the longest
unused goes first.  Structures are compared in full, never by a hash alone.
"""

from __future__ import annotations

from typing import Any

from autograd_opt._common.locks import lasting_lock
from autograd_opt.graph.structure import Place, structure_of
from autograd_opt.passes import Optimized, Pipeline

MOST_PLANS = 64
MOST_NODES = 1 << 20
"""In all plans together."""
LOCK = lasting_lock()
"""Held while a table of plans is read or changed."""

MOST_PLACES = 4096
"""Places in the user's code where a node was recorded whose value is differentiated: each counts the structures not
known before that runs from there have met in a row."""
CHANGING = 3
"""So many new structures in a row at one place in a program say that the next will be new, too."""
KNOWN = 16
"""So many known structures in a row in which the passes found nothing more say the same of the next."""
LOOK = 64
"""Of so many runs from such a place the passes are asked before one all the same."""

Key = tuple[Any, ...]


def key_of(pipeline: Pipeline) -> Key | None:
    """What, besides the structure, a result depends on; None where it must be worked out each time.

    Only passes that are built in and say so are repeatable: a user's pass may look at the
    clock.
    """
    if pipeline.check or pipeline.check_all or not pipeline.repeatable:
        return None
    return pipeline.key, pipeline.limit


class Plans:
    """A bounded table of results by pipeline and structure.

    Examples
    --------
    >>> plans = Plans(most_plans=1)
    >>> plans.keep((1,), "a structure of 3 nodes", 3, "a result")
    >>> plans.find((1,), "a structure of 3 nodes"), plans.find((2,), "a structure of 3 nodes")
    ('a result', None)
    """

    def __init__(self, most_plans: int = MOST_PLANS, most_nodes: int = MOST_NODES) -> None:
        self.most_plans, self.most_nodes = most_plans, most_nodes
        self._known: dict[tuple[Key, Any], tuple[int, Any]] = {}
        """Nodes and result by pipeline and structure, the longest unused first."""
        self.nodes = 0

    def __len__(self) -> int:
        return len(self._known)

    def find(self, key: Key, structure: Any) -> Any:
        """The result kept for this structure, or None."""
        with LOCK:
            known = self._known.pop((key, structure), None)
            if known is None:
                return None
            self._known[key, structure] = known
            return known[1]

    def keep(self, key: Key, structure: Any, nodes: int, result: Any) -> None:
        """Remember a result, unless there is one, and forget the longest unused beyond the bounds."""
        if nodes > self.most_nodes:
            return
        with LOCK:
            known = self._known.pop((key, structure), None)
            if known is None:
                self.nodes += nodes
            self._known[key, structure] = known or (nodes, result)
            while len(self._known) > self.most_plans or self.nodes > self.most_nodes:
                self.nodes -= self._known.pop(next(iter(self._known)))[0]

    def drop(self, key: Key, structure: Any) -> None:
        """Forget one result."""
        with LOCK:
            known = self._known.pop((key, structure), None)
            self.nodes -= 0 if known is None else known[0]

    def clear(self) -> None:
        """Forget everything."""
        with LOCK:
            self._known.clear()
            self.nodes = 0


PLANS = Plans()


def passes_over(place: Place) -> bool:
    """True if no pass need be asked before a run from `place`.

    Structures there are new each time, or known for long, and the numbers given while recording have told every merge
    that passes found.
    """
    if place.found or (place.new < CHANGING and place.known < KNOWN):
        return False
    place.skipped += 1
    return place.skipped % LOOK != 0


def plan(place: Place, tape: Any, roots: list[int], captured: list[int], key: Key | None, run: Any,
         structure: Any = None) -> tuple[Optimized, bool]:
    """The passes' result for this graph, and whether it was known; `run()` works it out.

    `structure` is a row of all that passes see, and perhaps of more, where one was made already.
    """
    if structure is None and key is not None:
        structure = structure_of(tape, roots, captured)
    result: Optimized | None = None if key is None or structure is None else PLANS.find(key, structure)
    if result is not None:
        place.new = 0
        place.known += 1
        return result, True
    place.new += 1
    place.known = 0
    result = run()
    if key is not None and structure is not None:
        PLANS.keep(key, structure, structure.nodes, result)
    return result, False
