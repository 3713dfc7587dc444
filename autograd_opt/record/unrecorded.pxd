"""Run calls that record nothing: torch's own call, and a note of the views that it has made."""

from autograd_opt.graph.node cimport Op
from autograd_opt.graph.tape cimport Tape

cdef set OPERATOR_KINDS

cpdef object run_raw(object func, object args, object kwargs)
cpdef object detached(t)
cdef object binding_of(object func)
cpdef int own_memory(object t) except -1
cdef int started(object r, object kept=*) except -1
cdef int fresh(object r) except -1
cdef object shown(object r)
cdef object as_view(object base, object r)
cdef int note_view(object r) except -1
cpdef int handed_out(list gradients) except -1
cdef bint set_apart(object r, object source) except -1
cdef object unrecorded(Tape tape, object func, tuple args, dict kwargs)
cdef object FOLLOWED
cdef object by_itself(Tape tape, object func, tuple args, dict kwargs, bint carries, bint numbers)
cdef object shown_views(object r, tuple args, dict kwargs)
cdef object noted_view(object r, object first, tuple args, dict kwargs)
cpdef object written(object func, tuple args, object kwargs)
cdef bint unfollowed(Tape tape, tuple args, dict kwargs) except -1
cdef object into(Tape tape, object func, tuple args, dict kwargs)
cdef bint without_history(Op op, tuple operands) except -1
