"""Differentiate views, copies and sums by rules in C: the cotangent itself, lying another way."""

from autograd_opt.abi.ctorch cimport ao_get, ao_method, ao_method0, ao_pair, ao_use_reads
from autograd_opt.abi.tensor_info import reads_address
from autograd_opt.engine.hot cimport COPY, INDEX, MEAN, MIRROR, NARROW, RESHAPE, SELECT, SQUEEZE, SUM, TRANSPOSE, TURN
from autograd_opt.engine.kernels cimport DIV_K, div, expand, get_mT, reshape, sizes, t_method, transpose, unsqueeze
from autograd_opt.engine.rules.passing cimport beside, pass_on, share
from autograd_opt.engine.rules.placing cimport parts_taken, pass_place
from autograd_opt.engine.task cimport GraphTask
from autograd_opt.graph.node cimport LEAF, REDUCES, UNBROADCAST0, WRITTEN_OP, Node, attribute, shape_of

ao_use_reads(reads_address())


cdef int native_shape(GraphTask task, Node node, int hot, object g) except -1:
    """Views, copies and sums: the cotangent itself, lying another way."""
    cdef Node a = node.in0
    cdef bint fresh = task.fresh, own = True
    if hot == SQUEEZE:
        hot = COPY if len(<tuple>shape_of(g)) == len(<tuple>a.shape) else RESHAPE
    if hot == RESHAPE:
        g = ao_method(reshape, g, sizes(a.shape))
    elif hot == TRANSPOSE:
        g = ao_method(transpose, g, (attribute(node, "dim0"), attribute(node, "dim1")))
    elif hot == TURN:
        g = ao_method0(t_method, g)
    elif hot == MIRROR:
        g = ao_get(get_mT, g)
    elif hot == SUM or hot == MEAN:
        dim, keepdim = attribute(node, "dim"), attribute(node, "keepdim")
        n = count(a.shape, dim) if hot == MEAN else None
        if n is not None and n > 1 and task.captures is None and not a.flags & LEAF:     # memory that nobody can write
            g, fresh, n = share(task, node, g, n), False, None
        if len(<tuple>a.shape):
            g, fresh = ao_method(expand, restored(g, a.shape, dim, keepdim), sizes(a.shape)), False
        elif hot == SUM:
            g, fresh = ao_method(expand, g, ((),)), False        # a tensor of its own, as for any other shape
        if n is not None:                        # as the table has it: the result may be the user's
            g, fresh = ao_pair(DIV_K, div, g, beside(node, g, n)), True
    elif hot == COPY:
        if node.op.flags & REDUCES and not len(<tuple>node.shape):
            return 0                     # an expanded number: torch sums its gradient, over no axes
        if node.op is WRITTEN_OP and node.shape != a.shape:
            return 0                     # memory of another size
    else:
        if hot == INDEX:
            index = attribute(node, "index")
            own = parts_taken(index, a.shape)
            if own and None in index:
                return 0
        else:
            start = attribute(node, "index" if hot == SELECT else "start")
            if type(start) is not int:
                return 0
            if hot == NARROW:
                if start < 0:
                    return 0
                start = slice(start, start + attribute(node, "length"))
            index = (slice(None),) * (attribute(node, "dim") % len(<tuple>a.shape)) + (start,)
        pass_place(task, node, a, g, index, own)
        return 1
    pass_on(task, node, a, g, UNBROADCAST0, fresh)
    return 1


cdef object count(object shape, object dim):
    """How many elements a reduction over `dim` takes together."""
    cdef Py_ssize_t i, n = 1, rank = len(shape)
    if dim is None or dim == () or dim == []:
        for i in range(rank):
            n *= shape[i]
    elif isinstance(dim, int):
        n = shape[dim % rank] if rank else 1
    else:
        for d in dim:
            n *= shape[d % rank] if rank else 1
    return n


cdef object restored(object g, object shape, object dim, bint keepdim):
    """`g` with the axes that a reduction over `dim` removed, ready to expand to `shape`."""
    cdef Py_ssize_t rank = len(shape)
    if keepdim:
        return g
    if dim is None or dim == () or dim == []:
        return g
    if isinstance(dim, int):
        return ao_method(unsqueeze, g, (dim % rank,))
    for d in sorted([d % rank for d in dim]):
        g = ao_method(unsqueeze, g, (d,))
    return g
