"""Whether numbering values pays in the graphs that are opened at one place of a program.

Where graph after graph finds nothing worth what its numbers cost, the next ones are recorded as with `optimize=False`;
now and then one is numbered to look again.  Counts decide, with fixed estimates of what each costs or saves, and no
clock: a program computes the same bits in each of its runs.
"""

cimport cython

from autograd_opt.graph.tape cimport Tape
from autograd_opt.record.sites cimport all_numbered

cdef enum:
    SHORTEST = 32                        # graphs without numbers before one looks again
    LONGEST = 512                        # the same after many looks
    MOST = 4096                          # places that are remembered
    # Nanoseconds, with small operands.
    NUMBER = 200                         # what the numbers of a recorded call cost, and what follows from them
    SAVED = 4000                         # what is saved by a call that is not run, or a rule that is not
    BYTES = 5                            # so many of a result that is not computed again are a nanosecond

cdef dict places = {}
cdef Py_ssize_t patience = 8             # graphs in a row whose numbers do not pay, before graphs rest; 0: for ever


def set_patience(Py_ssize_t n):
    """Let graphs rest after `n` others whose numbers did not pay, with 0 never; returns what was set before.  For tests."""
    global patience
    before, patience = patience, n
    return before


@cython.final
cdef class Place:
    """What the graphs that were opened at one place have shown."""
    cdef Py_ssize_t losses               # graphs in a row whose numbers did not pay
    cdef Py_ssize_t largest              # the most records of one of them
    cdef Py_ssize_t resting, rest        # graphs until one looks again, of so many


cdef bint rests(object place) except -1:
    """Is the graph that is being opened here recorded without numbers?"""
    cdef Place known = places.get(place)
    if known is None or known.resting == 0 or all_numbered():
        return False
    known.resting -= 1
    return True


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
    if SAVED * (tape.hits + tape.merges.handed) + tape.reused_bytes // BYTES >= NUMBER * n:
        if known is not None:
            del places[place]
        return 0
    if known is None:
        if len(places) >= MOST:
            places.clear()
        known = places[place] = Place.__new__(Place)
        known.rest = SHORTEST
    known.losses += 1
    known.largest = max(known.largest, n)
    if 0 < patience <= known.losses and known.resting == 0:
        known.resting = known.rest
        known.rest = min(2 * known.rest, LONGEST)
    return 0


cdef int forget_graphs() except -1:
    """Forget what was learned of all places."""
    places.clear()
    return 0
