"""Record the operators of hot loops: one or two operands, no attributes but a number."""

from autograd_opt.graph.node cimport Node, Op
from autograd_opt.graph.tape cimport Tape
from autograd_opt.graph.value_table cimport Entry

cdef class Kernel:
    cdef object descr
    cdef Op op
    cdef int arity
    cdef int direct              # its place among the kernels called by their C++ entry, or -1
    cdef bint numbers            # is a number beside the tensor the same as a tensor of one?
    cdef bint tensors            # does torch refuse a number there?

cdef dict KERNELS                        # operator name -> Kernel
cdef object fast_unary(Kernel k, object a, bint asked=*)
cdef object fast_binary(Kernel k, object a, object b)
cdef Node seen(Tape tape, Op op, object t)
cdef object reuse(Tape tape, Op op, Node first, bint req)
cdef object extra_of(Node node)
cdef int numbered(Tape tape, Node node, Entry *e, Py_ssize_t moves) except -1
cpdef bint denormals_survive() except -1
