"""Send a call on its route: recorded, decomposed, or run as it is."""

from autograd_opt.graph.node cimport Op
from autograd_opt.graph.tape cimport Tape
from autograd_opt.ops.binding cimport Plan
from autograd_opt.record.hot_operators cimport Kernel

cdef class Route:
    cdef object run(self, object func, tuple args, dict kwargs)

cdef class Recorded(Route):
    cdef Op op
    cdef object bind, rename, fallback, whole
    cdef Kernel kernel
    cdef Plan plan
    cdef Py_ssize_t n
    cdef object hot(self, tuple args, dict kwargs)
    cdef object follow(self, Tape tape, object func, tuple args, dict kwargs)
    cdef object bound(self, tuple args, dict kwargs)

cdef class Chosen(Route):
    cdef object pick, route, fallback
    cdef bint carries
    cdef dict routes
    cdef object picked(self, Tape tape, tuple args, dict kwargs)

cdef class Decomposed(Route):
    cdef object body, mode, whole
    cdef list running
    cdef bint cast                       # it stands for one call of torch's, for which autocast casts as a whole
    cdef bint replaced                   # the body is not the function's own
    cdef object uncast(self, object func, tuple args, dict kwargs)
    cdef object decomposed(self, object func, tuple args, dict kwargs)
    cdef object computed(self, tuple args, dict kwargs)

cdef class Raw(Route):
    pass

cdef class Fill(Route):
    pass

cdef class Write(Route):
    cdef object handler, bind, rename
    cdef Op op
    cdef bint reshapes
    cdef bint turns(self, object t) except -1

cdef bint usual_target(Tape tape, object t) except -1
