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
    # Nanoseconds, with small operands.
    NUMBER = 200                         # what the numbers of a recorded call cost, and what follows from them
    SAVED = 4000                         # what is saved by a call that is not run, its rule, or a rule alone
    SAVED_PLAIN = 600                    # what is saved by a call that no gradient follows
    BYTES = 5                            # so many of a result that is not computed again are a nanosecond

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
    if SAVED * (tape.hits - tape.plain_hits + tape.merges.handed) + SAVED_PLAIN * tape.plain_hits + tape.reused_bytes // BYTES >= NUMBER * n:
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


cdef int forget_graphs() except -1:
    """Forget what was learned of all places."""
    places.clear()
    return 0
