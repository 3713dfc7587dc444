"""What the executor calls to record a rule: the recorder's routes for hot operators and for everything else."""

from autograd_opt.graph.node cimport Op
from autograd_opt.graph.tape cimport Tape

cdef class Kernel:
    cdef object descr
    cdef Op op
    cdef int arity
    cdef int direct              # its place among the kernels called by their C++ entry, or -1
    cdef bint numbers            # is a number beside the tensor the same as a tensor of one?

cdef dict KERNELS                        # operator name -> Kernel
cdef object fast_unary(Kernel k, object a, bint asked=*)
cdef object fast_binary(Kernel k, object a, object b)
cdef object record(Tape tape, Op op, object func, tuple args, tuple operands, dict attrs)
cdef object inner_view(Tape tape, Op op, object func, object t)

cdef class Route:
    cdef object run(self, object func, tuple args, dict kwargs)

cdef bint is_tensor(object t) except -1
cdef object binding_of(object func)
cdef bint none_follows(Tape tape, tuple args, dict kwargs, bint grad) except -1
cdef bint plain_argument(object x) except -1
cdef object unrecorded(Tape tape, object func, tuple args, dict kwargs)
cpdef lent(args, kwargs)
