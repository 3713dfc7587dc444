"""What the passes decided for structures seen before, so that a training loop runs them once.

Shared by all graphs and threads of the process, bounded in plans and in nodes; the longest
unused goes first.  Structures are compared in full, never by a hash alone: first with the one
that was met last at the same place in the program, then with those of the same hash.
"""

from __future__ import annotations

from itertools import count
from typing import Any

import numpy as np

from autograd_opt.locks import lasting_lock
from autograd_opt.passes import Optimized, Pipeline
from autograd_opt.structure import Known, Place, place_of, structure_of

MOST_PLANS = 64
MOST_NODES = 1 << 20
"""In all plans together."""
LOCK = lasting_lock()
"""Held while a table of plans is read or changed."""

MOST_PLACES = 4096
CHANGING = 3
"""So many new structures in a row at one place in a program say that the next will be new, too."""

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
    >>> plans.keep((1,), "a structure of 3 nodes", 3, "a result").result
    'a result'
    >>> plans.find((1,), "a structure of 3 nodes"), plans.find((2,), "a structure of 3 nodes")
    ('a result', None)
    """

    def __init__(self, most_plans: int = MOST_PLANS, most_nodes: int = MOST_NODES) -> None:
        self.most_plans, self.most_nodes = most_plans, most_nodes
        self._known: dict[tuple[Key, Any], Known] = {}
        self._clock = count(1)
        self.nodes = 0

    def __len__(self) -> int:
        return len(self._known)

    def find(self, key: Key, structure: Any) -> Any:
        """The result kept for this structure, or None."""
        known = self.known(key, structure)
        return None if known is None else known.result

    def known(self, key: Key, structure: Any) -> Known | None:
        """What is kept for this structure, or None."""
        with LOCK:
            known = self._known.get((key, structure))
            if known is not None:
                self.use(known)
            return known

    def use(self, known: Known) -> None:
        """It was found once more, and is forgotten later."""
        known.used = next(self._clock)

    def keep(self, key: Key, structure: Any, nodes: int, result: Any) -> Known | None:
        """Remember a result, and forget the longest unused beyond the bounds."""
        if nodes > self.most_nodes:
            return None
        made = Known(key, structure, nodes, result, leads_of(result))
        with LOCK:
            known = self._known.setdefault((key, structure), made)
            self.use(known)
            if known is made:
                self.nodes += nodes
            while len(self._known) > self.most_plans or self.nodes > self.most_nodes:
                entry, oldest = min(list(self._known.items()), key=lambda item: item[1].used)
                del self._known[entry]
                self.nodes -= oldest.nodes
                oldest.forget()
            return known

    def clear(self) -> None:
        """Forget everything."""
        with LOCK:
            for known in list(self._known.values()):
                known.forget()
            self._known.clear()
            self.nodes = 0


def leads_of(result: Any) -> bytes | None:
    """The leaders of a result, as `Known` takes them."""
    if not isinstance(result, Optimized):
        return None
    own = result.leader == np.arange(len(result.leader))
    return np.where(own, 0, result.leader + 1).astype(np.int32).tobytes()


PLANS = Plans()


def place_in_program(root: Any) -> Place:
    """Where in the user's code the node was recorded whose value is differentiated.

    It counts the structures not known before that runs from there have met in a row.
    """
    return place_of(root, MOST_PLACES)


def plan(place: Place, tape: Any, roots: list[int], captured: list[int], key: Key | None, run: Any,
         structure: Any = None) -> tuple[Optimized, bool, bool]:
    """The passes' result for this graph, whether it was known, and whether its leaders are in place already.

    `run()` works it out.  `structure` is a row of all that passes see, and perhaps of more, where one was made already.
    """
    if structure is None and key is not None:
        latest = place.latest
        expected = latest.result if latest is not None and latest.key == key else None
        if latest is None or expected is None:
            structure = structure_of(tape, roots, captured)
        else:
            structure = latest.again(tape, roots, captured)
            if structure is True or structure is False:
                PLANS.use(latest)
                place.new = 0
                return expected, True, structure
    if key is None or structure is None:
        place.new += 1
        return run(), False, False
    known: Known | None = PLANS.known(key, structure)
    result = None if known is None else known.result
    place.new = place.new + 1 if result is None else 0
    if result is not None:
        place.latest = known
        return result, True, False
    result = run()
    place.latest = PLANS.keep(key, structure, structure.nodes, result)
    return result, False, False
