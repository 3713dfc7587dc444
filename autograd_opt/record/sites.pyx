"""Learn at which places of a program values are found again, and numbering calls is worth while."""

from cpython.object cimport PyObject
from cpython.ref cimport Py_DECREF, Py_INCREF
from libc.stdint cimport uint32_t

from autograd_opt.abi.ctorch cimport ao_frame, ao_frame_code, ao_frame_done, ao_frame_lasti, ao_frame_t
from autograd_opt.graph.node cimport ELEMENTWISE, MULTI, REDUCES, REQUIRES_GRAD, VIEW, Node
from autograd_opt.graph.tape cimport Tape, active_tape

cdef enum:
    WAYS = 4                         # places in the program that share a part of the table
cdef Site sites[4096]
cdef uint32_t MISSES = 32            # after so many a call that no gradient follows is not worth a node
MORE_MISSES = 256                    # after so many a recorded call is not worth a key
cdef Py_ssize_t FEW = 2048           # elements below which a kernel costs about as much as some numbers
cdef uint32_t MARGIN = 8             # beyond MISSES: so many values of a few elements, found again, make a place worth while
cdef uint32_t replaced = 0           # places that the table had to be told of
cdef uint32_t skipped = 0            # calls at settled places
cdef uint32_t asked_for = 0          # who wants every call numbered, whatever was learned
cdef uint32_t PERIOD = 8192, LOOK = 128  # of so many skipped calls in a row, so many are numbered all the same


cdef inline Site *site_here(bint add) noexcept:
    """What is known of the place in the program that runs now; NULL where nothing is."""
    global replaced
    cdef ao_frame_t frame = ao_frame()
    cdef PyObject *code
    cdef Site *s
    cdef Site *found = NULL
    cdef int lasti, i
    if frame == NULL:
        return NULL
    code = ao_frame_code(frame)
    lasti = ao_frame_lasti(frame)
    s = &sites[((<size_t>code >> 4) * 31 + <size_t>lasti * 0x9E3779B1ULL) >> 3 & (4096 - WAYS)]
    for i in range(WAYS):
        if s[i].code == code and s[i].lasti == lasti:
            found = &s[i]
            break
    if add and found == NULL:
        replaced += 1
        found = &s[replaced & (WAYS - 1)]    # whichever: of those that run now none goes each time
        for i in range(WAYS):
            if s[i].code == NULL:
                found = &s[i]
                break
        Py_INCREF(<object>code)
        if found.code != NULL:
            Py_DECREF(<object>found.code)
        found.code, found.lasti, found.misses = code, lasti, 0
    ao_frame_done(frame)
    return found


cdef bint settled() noexcept:
    """True if numbering has saved nothing for long at the place in the program that runs now."""
    return settled_after(MISSES)


cdef bint settled_after(uint32_t misses) noexcept:
    """True after so many calls that found no value."""
    global skipped
    cdef Site *s = site_here(False)
    if s == NULL or s.misses < misses or asked_for:
        return False
    skipped += 1
    return skipped % PERIOD >= LOOK


cdef Site *missed_here(bint req) noexcept:
    """A call at the place that runs now has found no value; what is known of the place."""
    return counted(req, 1)


cdef Site *counted(bint req, uint32_t misses) noexcept:
    """Count what a call at the place that runs now has missed."""
    cdef Site *s = site_here(True)
    cdef uint32_t most = MORE_MISSES if req else MISSES + MARGIN
    if s != NULL and s.misses < most:
        s.misses = min(s.misses + misses, most)
    return s


cdef uint32_t price(Node node) except 0:
    """How many misses a call counts for that found no value: more of the kernels on a few elements, which save little.

    Not so in a backward run: calls of many rules stand at one place there, that of the user's call.
    """
    cdef Tape tape = active_tape()
    if tape is None or tape.running or work(node) >= FEW:
        return 1
    return 8 if node.flags & REQUIRES_GRAD else 4


cdef int learn(Node node, Node first) except -1:
    """A call has got a number: that of `first`, or a new one where this is None.

    A view is made whether its number is known or not: it is worth one where a value computed from it is found.
    """
    cdef Site *s
    cdef uint32_t saved
    if first is None or node.op.flags & VIEW:
        s = counted(node.flags & REQUIRES_GRAD != 0, price(node))
        if s != NULL:
            node.site = <uint32_t>(s - sites) + 1
        return 0
    saved = worth(first)
    s = site_here(True)
    if s != NULL:
        forgive(s, node, saved)
        node.site = <uint32_t>(s - sites) + 1
    if first.site != node.site:
        credit(first, saved)
    credit_views(node.in0, saved)
    credit_views(node.in1, saved)
    credit_views(first.in0, saved)
    credit_views(first.in1, saved)
    return 0


cdef inline int forgive(Site *s, Node node, uint32_t saved) except -1:
    """A number has saved something: at least what one miss counts for, until the place is settled."""
    if saved < s.misses < MISSES:
        saved = max(saved, price(node))
    s.misses -= min(s.misses, saved)
    return 0


cdef inline int credit(Node node, uint32_t saved) except -1:
    """Numbering where `node` was recorded has saved something."""
    return forgive(&sites[node.site - 1], node, saved) if node.site else 0


cdef int credit_views(Node node, uint32_t saved) except -1:
    """So has numbering the views that lead to `node`, an operand: more than each view has counted as missed."""
    while node is not None and node.op.flags & VIEW:
        credit(node, saved + price(node))
        node = node.in0
    return 0


cdef uint32_t worth(Node first) except 0:
    """How many calls may be numbered in vain for one that has found the value of `first`.

    A number costs about as much as a kernel on a few elements.  Where a gradient follows, the merged node's rule is saved, too.
    """
    return MORE_MISSES if first.flags & REQUIRES_GRAD else <uint32_t>min(1 + (work(first) >> 9), MORE_MISSES)


cdef Py_ssize_t work(Node node) except -1:
    """About how many elements the kernel of `node` reads or writes; those of a product, say, count more than once."""
    cdef Py_ssize_t elements = size(node)
    cdef Node other
    if node.op.flags & (ELEMENTWISE | VIEW):
        return elements
    for other in node.more if node.more is not None else (node.in0, node.in1):
        elements = max(elements, size(other))
    return elements if node.op.flags & REDUCES else 8 * elements


cdef inline Py_ssize_t size(Node node) except -1:
    """The elements of a value; 1 where there are several values, or none."""
    cdef Py_ssize_t elements = 1
    if node is not None and node.shape is not None and not node.op.flags & MULTI:
        for d in <tuple>node.shape:
            elements *= <Py_ssize_t>d
    return elements


cdef int learn_function(bint found) noexcept:
    """`learn` for a function of torch's that is recorded as several calls: has one of them found a value?"""
    cdef Site *s = site_here(True) if found else missed_here(False)
    if s != NULL and found:
        s.misses = 0
    return 0


def skipped_calls():
    """How many calls stood where nothing was ever found, since places were forgotten: all but a few were not numbered."""
    return skipped


cdef int forget_sites() except -1:
    """Forget what was learned of all places."""
    global skipped
    cdef Py_ssize_t i
    skipped = 0
    for i in range(4096):
        sites[i].misses = 0
    return 0


cdef bint all_numbered() noexcept:
    """Does anybody want every call numbered?"""
    return asked_for != 0


class Numbered:
    """`with` this every call is numbered, whatever was learned of its place: what is recorded will run many times."""

    def __enter__(self):
        global asked_for
        asked_for += 1

    def __exit__(self, *exc):
        global asked_for
        asked_for -= 1
