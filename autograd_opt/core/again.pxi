# A structure met again, where the latest one at its place in the program is the one to expect: a single walk compares.

cdef enum:
    TOGETHER = 32                        # nodes whose words are made before they are compared


@cython.final
cdef class Known:
    """A structure, and what the passes decided for it.

    `leads` has an int32 for each node: 0 where it is its own leader, else its leader's number after the first.
    """
    cdef readonly object key, structure, result
    cdef bytes leads
    cdef readonly Py_ssize_t nodes
    cdef public int64_t used             # when it was found last

    def __init__(self, key, structure, Py_ssize_t nodes, result, bytes leads=None):
        self.key, self.structure, self.result, self.nodes, self.leads = key, structure, result, nodes, leads

    def forget(self):
        """Let go of all that is large: places in programs may still lead here."""
        self.key = self.structure = self.result = self.leads = None

    def again(self, Tape tape, list roots, list captured):
        """What `structure_of` gives: a structure, or None; but for this very one whether its leaders are in place already."""
        if not isinstance(self.structure, Structure) or self.leads is None \
                or len(self.leads) != self.nodes * <Py_ssize_t>sizeof(int32_t):
            return structure_of(tape, roots, captured)
        return compared(self.structure, self.leads, tape, roots, captured)


cdef inline bint led(Tape tape, Node node, int32_t word) noexcept:
    """Would `set_leaders` leave this node as it is?"""
    cdef Node target
    if word == 0:
        return node.leader is None
    target = <Node>tape.nodes[word - 1]
    return node.leader is target and not target.flags & (DEAD | SPENT)


cdef object compared(Structure like, bytes leads, Tape tape, list roots, list captured):
    """See `Known.again`.  The words in common are taken from `like` where another structure turns out."""
    cdef Structure s = Structure(tape.n)
    cdef const int32_t *lead = <const int32_t *><const char *>leads
    cdef Py_ssize_t i, at = 0, first, stop = min(tape.n, like.nodes)
    cdef Node node, last = None
    cdef bint all_led = tape.n == like.nodes
    try:
        i = 0
        while i < stop:
            first = i
            while i < stop and i < first + TOGETHER:
                node = <Node>tape.nodes[i]
                s.node(node, last)
                all_led = all_led and led(tape, node, lead[i])
                last = node
                i += 1
            if at + s.n > like.n or memcmp(s.row, like.row + at, s.n * sizeof(int64_t)) != 0:
                break
            at += s.n
            s.n = 0
        if i == tape.n == like.nodes and s.n == 0:
            s.end(roots, captured)
            if at + s.n == like.n and memcmp(s.row, like.row + at, s.n * sizeof(int64_t)) == 0:
                return all_led
            s.n = 0
        s.begin_with(like, at)
        while i < tape.n:
            node = <Node>tape.nodes[i]
            s.node(node, last)
            last = node
            i += 1
    except (TypeError, RecursionError):
        return None
    s.end(roots, captured)
    return s


@cython.final
cdef class Place:
    """A place in the user's program whose result is differentiated."""
    cdef object code
    cdef int lasti
    cdef public int new                  # runs in a row, up to the latest, that met a structure not known before
    cdef public Known latest             # the structure of the latest run with a plan


cdef dict _places = {}


def place_of(Node root, Py_ssize_t most):
    """The place where `root` was recorded; where there are `most` of them, the others are forgotten."""
    cdef int lasti = 0 if root.code is None else root.lasti
    cdef uint64_t mixture = mixed(<uint64_t><size_t><PyObject *>root.code, lasti)
    cdef object found = _places.get(mixture)
    cdef Place place
    if found is not None and (<Place>found).code is root.code and (<Place>found).lasti == lasti:
        return found
    place = Place.__new__(Place)
    place.code, place.lasti = root.code, lasti
    if len(_places) >= most:
        _places.clear()
    _places[mixture] = place
    return place
