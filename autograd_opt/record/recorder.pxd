"""What the executor calls to record a rule: the recorder's routes for hot operators and for everything else."""

from autograd_opt.graph.node cimport Op, Tape

cdef class Kernel:
    cdef object descr
    cdef Op op
    cdef object slow
    cdef int arity
    cdef int direct              # its place among the kernels called by their C++ entry, or -1
    cdef bint numbers            # is a number beside the tensor the same as a tensor of one?

cdef dict KERNELS                        # operator name -> Kernel
cdef object fast_unary(Kernel k, object a, bint asked=*)
cdef object fast_binary(Kernel k, object a, object b)
cdef object record(Tape tape, Op op, object func, tuple args, tuple operands, dict attrs)
cdef object inner_view(Tape tape, Op op, object func, object t)
