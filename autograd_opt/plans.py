"""What the passes decided for structures seen before, so that a training loop runs them once.

Shared by all graphs and threads of the process, bounded in plans and in nodes; the longest
unused goes first.  Structures are compared in full, never by a hash alone.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import Any

from autograd_opt.locks import lasting_lock
from autograd_opt.passes import Optimized, Pipeline
from autograd_opt.structure import structure_of

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
    >>> plans.keep((1,), "a structure of 3 nodes", 3, "a result")
    >>> plans.find((1,), "a structure of 3 nodes"), plans.find((2,), "a structure of 3 nodes")
    ('a result', None)
    """

    def __init__(self, most_plans: int = MOST_PLANS, most_nodes: int = MOST_NODES) -> None:
        self.most_plans, self.most_nodes = most_plans, most_nodes
        self._known: OrderedDict[tuple[Key, Any], tuple[Any, int, Any]] = OrderedDict()
        self.nodes = 0

    def __len__(self) -> int:
        return len(self._known)

    def find(self, key: Key, structure: Any) -> Any:
        """The result kept for this structure, or None."""
        with LOCK:
            found = self._known.get((key, structure))
            if found is None:
                return None
            if found[2] in self._known:          # a comparison may have run code that used this table
                self._known.move_to_end(found[2])
            return found[0]

    def keep(self, key: Key, structure: Any, nodes: int, result: Any) -> None:
        """Remember a result, and forget the longest unused beyond the bounds."""
        if nodes > self.most_nodes:
            return
        with LOCK:
            if (key, structure) in self._known:
                return
            entry = key, structure
            self._known[entry] = result, nodes, entry
            self.nodes += nodes
            while len(self._known) > self.most_plans or self.nodes > self.most_nodes:
                self.nodes -= self._known.popitem(last=False)[1][1]

    def clear(self) -> None:
        """Forget everything."""
        with LOCK:
            self._known.clear()
            self.nodes = 0


PLANS = Plans()
_new: dict[Any, int] = {}
"""Place in the user's code whose result is differentiated -> new structures in a row."""


def changing(place: Any) -> bool:
    """Has each of the latest runs from `place` met a structure that was not known?

    >>> changing("a place that nothing has run from")
    False
    """
    return _new.get(place, 0) >= CHANGING


def note(place: Any, known: bool) -> None:
    """A run from `place` has met a structure that was known, or not."""
    if len(_new) >= MOST_PLACES:
        _new.clear()
    _new[place] = 0 if known else _new.get(place, 0) + 1


def plan(tape: Any, roots: list[int], captured: list[int], key: Key | None, run: Any, structure: Any = None
         ) -> tuple[Optimized, bool]:
    """The passes' result for this graph, and whether it was known; `run()` works it out.

    `structure` is a row of all that passes see, and perhaps of more, where one was made already.
    """
    if key is not None and structure is None:
        structure = structure_of(tape, roots, captured)
    if key is None or structure is None:
        return run(), False
    known = PLANS.find(key, structure)
    if known is not None:
        return known, True
    result = run()
    PLANS.keep(key, structure, structure.nodes, result)
    return result, False
