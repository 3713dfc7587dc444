"""Ask about the arguments of a call, and about who sees it first; lend what others may write."""

from cpython.object cimport PyObject
from libc.stdint cimport int64_t

from autograd_opt.abi.ctorch cimport ao_grad_on, ao_is_view, ao_mode_count, ao_needs_grad, ao_plain
from autograd_opt.graph.handles cimport handle, held_node
from autograd_opt.graph.node cimport LEAF, MARK, REQUIRES_GRAD, CustomTensor, Node, Parameter, PlainTensor as Tensor, ordinary
from autograd_opt.graph.tape cimport Tape
from autograd_opt.graph.thread_state cimport recording

cdef object MODE                         # the torch-function mode of this library
cdef object Uninitialized                # the class of parameters of lazy modules, which refuses itself what torch refuses
cdef object grad_enabled

cdef int install_mode(object mode) except -1
cdef bint is_tensor(object t) except -1
cdef bint foreign_kind(object x) except -1
cdef bint holds_tracked(Tape tape, object t) except -1
cdef bint foreigners(tuple args, dict kwargs) except -1
cdef bint unusual_numbers(tuple args, dict kwargs) except -1
cdef tuple plain_numbers(tuple args, dict kwargs)
cpdef dict plain_attributes(dict attrs)
cdef bint inside_follows(Tape tape, object x, bint grad) except -1
cdef bint plain_argument(object x) except -1
cdef bint none_follows(Tape tape, tuple args, dict kwargs, bint grad) except -1
cdef bint mode_innermost() except -1
cdef bint mode_further_inside() except -1
cdef int lend_held(object x) except -1
cpdef lent(args, kwargs)

cdef inline int lend(object x) except -1:
    """The tensors in `x` go to somebody who may write them: each then finds its memory its own."""
    cdef object kind = type(x)
    return lend_held(x) if kind is CustomTensor or kind is tuple or kind is list or kind is dict else 0

cdef inline bint grad_on() except -1:
    return ao_grad_on(grad_enabled)

cdef inline Node computed(object t):
    """The node that has computed `t`; None for a leaf, and for a tensor that no graph knows."""
    cdef Node node = held_node(t)
    return None if node is None or node.flags & LEAF else node

cdef bint came_late(Tape tape, object t) except -1

cdef inline bint tracked(Tape tape, object t) except -1:
    """Does `t` require grad?  Asked before anything is registered for it."""
    cdef Node node
    if type(t) is not CustomTensor:
        if ao_needs_grad(t):
            return True
        if not ao_plain(t):
            return holds_tracked(tape, t)
        return tape.late and ao_is_view(t) and came_late(tape, t)
    node = computed(t)
    if node is not None:
        return node.flags & REQUIRES_GRAD != 0 or (tape.late and node.view is not None and came_late(tape, t))
    return getattr(t, MARK, False) or (tape.late and ao_is_view(t) and came_late(tape, t))

cdef inline bint foreign(object x) except -1:
    """Is `x` no tensor, and has it, or one of those in it, a torch function to be asked?"""
    cdef object kind = type(x)
    return not (kind is CustomTensor or kind is Tensor or kind is Parameter or kind is int or kind is float or x is None
                or kind is bool) and foreign_kind(x)

cdef inline bint plain_slice(object s) except -1:
    """Bounds that are numbers already, not tensors or objects that turn into one."""
    return (s.start is None or type(s.start) is int) and (s.stop is None or type(s.stop) is int) \
        and (s.step is None or type(s.step) is int)

cdef inline bint basic(object entry) except -1:
    """An index entry that makes a view."""
    return entry is None or entry is Ellipsis or type(entry) is int or type(entry) is slice and plain_slice(entry)

cdef inline bint follows(Tape tape, object x, bint grad) except -1:
    """Is there anything in the argument `x` that a record or another class would have to be asked about?"""
    cdef object kind = type(x)
    if kind is Tensor or kind is Parameter:
        return not ao_plain(x) or grad and (ao_needs_grad(x) or tape.late and ao_is_view(x))
    if kind is CustomTensor:
        return not ao_plain(x) or grad and (tape.late and ao_is_view(x) or tracked(tape, x))
    return not (kind is int or kind is float or x is None or kind is bool) and inside_follows(tape, x, grad)

cdef inline bint own_tensor(object t) except -1:
    """An ordinary tensor that is no view: a write to it is seen by nobody else."""
    return ordinary(t) and ao_plain(t) and not ao_is_view(t)

cdef inline int lend_all(Tape tape, object args, object kwargs) except -1:
    """`lend` the arguments of a call, where values are kept for reuse."""
    if tape.optimize:
        lend(args)
        if kwargs:
            lend(kwargs)
    return 0

cdef inline bint overridden() except -1:
    """Does a torch-function mode of the user's lie further inside than this library's?  It sees the call first."""
    cdef PyObject *tp = recording()
    cdef int64_t n
    if tp == NULL or (<Tape>tp).guarded:
        return False
    n = ao_mode_count()
    return (n < 0 or n > (<Tape>tp).modes) and mode_further_inside()

cdef inline PyObject *open_to(object t) except? NULL:
    """The tape that answers for what is done to `t` itself; NULL where torch has to be asked."""
    cdef PyObject *tp = recording()
    return NULL if tp == NULL or (<Tape>tp).guarded or not ordinary(t) or not mode_innermost() else tp
