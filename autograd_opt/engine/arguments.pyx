"""Call a rule of the operator table with the arguments that it names."""

from cpython.object cimport PyObject_Call

from autograd_opt.engine.kernels cimport Tensor
from autograd_opt.engine.saved_values cimport answer, saved, stale
from autograd_opt.engine.task cimport GraphTask
from autograd_opt.engine.transposes cimport turned_view
from autograd_opt.graph import refusals
from autograd_opt.graph.node cimport NO_MERGE, Node, Vjp, version_of
from autograd_opt.record.new_nodes import results_of
from autograd_opt.record.saved_tensors import unpack_extra


cdef object call_rule(GraphTask task, Vjp vjp, Node node, object g):
    """Call one rule with what it names."""
    cdef list args = [g]
    cdef dict kwargs
    cdef int code
    for c in vjp.codes:
        code = c
        args.append(argument(task, node, code))
    if vjp.attributes:
        attrs = node.attrs or {}
        defaults = node.op.attributes
        kwargs = {a: attrs[a] if a in attrs else defaults[a] for a in vjp.attributes}
    else:
        kwargs = {}
    if task.batch is not None:
        return task.batch.call(vjp.fn, args, kwargs)
    return PyObject_Call(vjp.fn, tuple(args), kwargs) if kwargs else vjp.fn(*args)


cdef object argument(GraphTask task, Node node, int code):
    """Return what one code of an argument stands for."""
    cdef Node other
    if code >= 64:                       # of operand code-64, code-128 or code-192
        operands = node.more if node.more is not None else (node.in0, node.in1)
        if code >= 192:
            other = operands[code - 192]
            return other is not None and turned_view(other)
        if code >= 128:
            other = operands[code - 128]
            return None if other is None else other.dtype
        other = operands[code - 64]
        return () if other is None else other.shape
    if code >= 16:
        return read(task, node, code - 16)
    if code == 1:
        return answer(node, task.create_graph)
    if code == 2:
        return node.shape
    if code == 3:
        operands = node.more if node.more is not None else (node.in0, node.in1)
        return tuple([task.wants(n) for n in operands])
    if code == 4:
        return [() if n is None else (<Node>n).shape for n in node.operands]
    if code == 5:
        return [read(task, node, k) for k in range(len(node.operands))]
    if code == 10:
        return [None if k == 0 else read(task, node, k) for k in range(len(node.operands))]
    if code == 11:
        return [None if k < 2 else read(task, node, k) for k in range(len(node.operands))]
    if code == 6:
        return node.dtype
    if code == 7:
        return task
    if code == 8:
        return node
    if code == 9:
        return kept(node)
    if code == 12:
        made = kept(node)[-len(node.shape):]
        return results_of(node, made) if task.create_graph else made
    raise AssertionError(code)


cdef object kept(Node node):
    """What the kernel of an operator has kept for its rules."""
    if node.saved_more is None:
        raise refusals.freed(node)
    if node.saved_more[3] is not None:
        for t, version in node.saved_more[3]:
            if version_of(t) != version:
                return stale(node, -1)
    return unpack_extra(node.saved_more[2]) if node.flags & NO_MERGE else node.saved_more[2]


cdef object traced(GraphTask task, object t):
    """In a recorded run, a copy made before a write in place belongs to the value before it."""
    if not task.create_graph or not isinstance(t, Tensor):
        return t
    origin = t.__dict__.get("_copy_of")
    if origin is None:
        return t
    from autograd_opt.graph.tensor import connected
    return connected(t, origin)


cdef object read(GraphTask task, Node node, int i):
    """Return the saved value of operand `i` as a rule of this run reads it."""
    return traced(task, saved(node, i))
