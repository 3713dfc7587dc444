# Whose memory a tensor lies in: how many share it, and whether torch alone knows of it.
#
# torch answers through a Python object for the memory, which is made for the question and then kept beside it.  The numbers
# themselves stand in the C++ objects; `install_memory` finds out where, and compares.  Elsewhere Python is asked.
#
# Part of node.pyx.

cdef object storage_uses = torch._C._storage_Use_Count
cdef object _one = torch.zeros(1)
cdef object SOLE = storage_uses(_one.untyped_storage()._cdata)
"""What torch says of memory under a single tensor: it keeps the Python object for the memory once made, and counts it."""


cpdef bint sole_owner(object t) except -1:
    """Is the strided `t` the only tensor over its memory?"""
    cdef long long owners = ao_tensors_over(t)
    return owners == 1 if owners >= 0 else storage_uses(ao_method0(get_storage, t)._cdata) == SOLE


cpdef bint resizable(object t) except -1:
    """Is the memory of `t` torch's own?  numpy's, say, cannot grow."""
    cdef int known = ao_is_resizable(t)
    return known != 0 if known >= 0 else ao_method0(get_resizable, ao_method0(get_storage, t)) is True


def _start(t):
    """`ao_start` by torch's Python interface."""
    if ao_get_int(get_version, t) > 0 and ao_strided(t) and ao_uses(use_count, t) == 1 and sole_owner(t):
        torch._C._autograd._unsafe_set_version_counter((t,), (0,))


cdef object start_asked = _start
ao_reads_here.start = <PyObject *>start_asked


cdef enum:
    MEMORY = 72                          # bytes of the object for a piece of memory that are looked through: it is no smaller


cdef bint all_say(list memories, list answers, int place):
    """Is this byte of each object the answer?"""
    for memory, answer in zip(memories, answers):
        if (<unsigned char *><size_t>memory)[place] != <unsigned char>answer:
            return False
    return True


cdef bint counts(object t) except -1:
    """Are tensors over the memory of `t` and owners of `t` itself counted rightly, whatever Python has asked before?"""
    cdef list views = []
    for asked in (False, True):
        for more in range(3):
            n = ao_tensors_over(t)
            if n != 1 + len(views) or ao_uses(use_count, t) != t._use_count():
                return False
            if asked and storage_uses(ao_method0(get_storage, t)._cdata) != <long long>SOLE + len(views):
                return False
            views.append(t.detach())
    del views[:]
    return ao_tensors_over(t) == 1 and ao_uses(use_count, t) == t._use_count()


def install_memory(samples):
    """Find where torch's objects tell whose memory is whose; whether that is right for all `samples`.

    `samples`: strided tensors that nobody else shares, some in memory of others.
    """
    cdef int place
    cdef list memories = [t.untyped_storage()._cdata for t in samples]
    cdef list answers = [t.untyped_storage().resizable() for t in samples]
    ao_reads_here.storage = ao_reads_here.resizable = 0
    places = [8 * place for place in range(2, WORDS) if all(
        [(<size_t *>(<void **>tensor_in(t))[0])[place] == <size_t>memory for t, memory in zip(samples, memories)])]
    bytes_of = [place for place in range(16, MEMORY) if all_say(memories, answers, place)]
    if ao_reads_here.plain == NULL or len(places) != 1 or len(bytes_of) != 1 or len(set(answers)) != 2:
        return False
    ao_reads_here.storage, ao_reads_here.resizable = places[0], bytes_of[0]
    for size in (1, 5, 1000):
        if not counts(torch.empty(size, device="cpu")):
            ao_reads_here.storage = 0
            return False
    return True
