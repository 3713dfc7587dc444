"""Whether numbering values pays in the graphs that are opened at one place of a program.

Where graph after graph finds nothing worth what its numbers cost, the next ones are recorded as with `optimize=False`;
now and then one is numbered to look again.  Counts decide, with fixed estimates of what each costs or saves, and no
clock: a program computes the same bits in each of its runs.
"""

cimport cython

from autograd_opt.graph.tape cimport Tape
from autograd_opt.record.sites cimport all_numbered

cdef enum:
    SHORTEST = 32                        # rested graphs before one looks again
    LONGEST = 512                        # the same after many looks
    MOST = 4096                          # places that are remembered
    # Nanoseconds, fitted to 65 programs on small operands.
    GRAPH = 15000                        # what a graph costs whose calls may be numbered
    RECORD = 150                         # what each of its records costs
    LOOKED_UP = 1000                     # what a record costs whose value is looked up, and may be kept for others
    PLANNED = 700                        # what a record costs of which a run asks for a plan
    SAVED = 5000                         # what is saved by a call that is not run, and its rule
    SAVED_PLAIN = 600                    # what is saved by a call that no gradient follows
    SAVED_RULE = 1500                    # what is saved by a rule whose call was run

cdef dict places = {}
cdef Py_ssize_t patience = 8             # graphs in a row whose numbers do not pay, before graphs rest; 0: for ever


def set_patience(Py_ssize_t n):
    """Let graphs rest after `n` others whose numbers did not pay, with 0 never; returns what was set before.  For tests."""
    global patience
    before, patience = patience, n
    return before


cdef class Rests:
    """When work that has not paid is left out: after some losses in a row, for twice as long after each further one."""

    cdef void last_for(self, Py_ssize_t shortest, Py_ssize_t longest) noexcept:
        """Set how many turns rest, first and at most."""
        self.shortest, self.rest, self.longest = shortest, shortest, longest

    cdef bint take(self) noexcept:
        """True for a turn without the work, which is counted."""
        if self.resting == 0:
            return False
        self.resting -= 1
        return True

    cdef void win(self) noexcept:
        """Take a turn into account in which the work paid."""
        self.losses, self.rest = 0, self.shortest

    cdef void lose(self, Py_ssize_t patience) noexcept:
        """Take a turn into account in which it did not; the turns after `patience` of them rest, never with 0."""
        self.losses += 1
        if 0 < patience <= self.losses and self.resting == 0:
            self.resting = self.rest
            self.rest = min(2 * self.rest, self.longest)


@cython.final
cdef class Place(Rests):
    """What the graphs that were opened at one place have shown."""
    cdef Py_ssize_t largest              # the most records of one whose numbers did not pay


cdef bint rests(object place) except -1:
    """Is the graph that is being opened here recorded without numbers?"""
    cdef Place known = places.get(place)
    return known is not None and not all_numbered() and known.take()


cdef int learn_graph(object place, Tape tape) except -1:
    """A graph that was opened here is left.

    One that has rested and is larger than those that were numbered is another program's: the next one is numbered.
    """
    cdef Place known = places.get(place)
    cdef Py_ssize_t n = tape.n + tape.dropped
    if not tape.optimize:
        if known is not None and n > 2 * known.largest:
            del places[place]
        return 0
    if saved(tape) >= GRAPH + RECORD * n + LOOKED_UP * tape.keyed + PLANNED * tape.planned:
        if known is not None:
            del places[place]
        return 0
    if known is None:
        if len(places) >= MOST:
            places.clear()
        known = places[place] = Place.__new__(Place)
        known.last_for(SHORTEST, LONGEST)
    known.largest = max(known.largest, n)
    known.lose(patience)
    return 0


cdef Py_ssize_t saved(Tape tape) noexcept:
    """About how many nanoseconds numbers have saved: a nanosecond for each element that was not read or written, too."""
    cdef Py_ssize_t hits = tape.hits - tape.plain_hits
    return SAVED * hits + SAVED_PLAIN * tape.plain_hits + SAVED_RULE * max(tape.merges.handed - hits, 0) + tape.saved_work


cdef int forget_graphs() except -1:
    """Forget what was learned of all places."""
    places.clear()
    return 0
