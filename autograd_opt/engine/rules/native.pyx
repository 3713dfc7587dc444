"""Choose the rule in C for an operator of hot loops (`Op.hot`), in numeric runs over real dense tensors.

Each has a line in the operator table that says what it computes; `tests/engine/test_native.py`
runs both and compares.  A rule decides before it sends anything whether it applies (1) or
the line of the table has to run (0).  What it gains: no interpreter between the kernels, and sums
made in place, of a product too (`addcmul_`, `addmm_`), where the waiting cotangent is the run's own.
"""

import torch

from autograd_opt.abi import torch_private as private
from autograd_opt.abi.ctorch cimport ao_direct_nll_back, ao_nll_back, ao_use_reads
from autograd_opt.abi.tensor_info import reads_address
from autograd_opt.engine.hot cimport (
    ADDMM, DIV, LINEAR, MATMUL, MM, NLL, SIGMOID_BACK, SPLIT, STACK, SUM, TANH_BACK, UNBIND, WHERE,
)
from autograd_opt.engine.kernels cimport Tensor
from autograd_opt.engine.rules.arithmetic cimport native_arithmetic, native_bend, native_function
from autograd_opt.engine.rules.joining cimport native_cat, native_parts, native_stack, native_where
from autograd_opt.engine.rules.passing cimport dense, pass_on, tensor_like
from autograd_opt.engine.rules.products cimport native_addmm, native_linear, native_matmul
from autograd_opt.engine.rules.views cimport native_shape
from autograd_opt.engine.saved_values cimport saved
from autograd_opt.engine.task cimport GraphTask
from autograd_opt.graph.node cimport Node, Op, attribute
from autograd_opt.graph.plain_values cimport is_float

ao_use_reads(reads_address())
cdef object nll_backward = private.direct(torch.ops.aten.nll_loss_backward.default)


cdef int native(GraphTask task, Node node, Op op, object g) except -1:
    """Run the rule of `node` here if there is one for this case: 1, else 0."""
    cdef int hot = op.hot
    if hot == UNBIND or hot == SPLIT:
        return native_parts(task, node, hot, g)
    # what rules in C have made of a dense cotangent is dense
    if not is_float(node.dtype) or not (type(g) is Tensor if task.fresh else dense(g)):
        return 0
    if hot > SPLIT:
        return native_loss(task, node, node.more, g) if hot == NLL else 0
    if hot >= LINEAR:
        return 0 if node.more is None else native_several(task, node, hot, node.more, g)
    if node.more is not None:
        return 0
    if not task.wants(node.in0) and not task.wants(node.in1):
        return 1
    if hot <= DIV:
        return native_arithmetic(task, node, hot, g)
    if hot == MATMUL or hot == MM:
        return native_matmul(task, node, g)
    if hot == TANH_BACK or hot == SIGMOID_BACK:
        return native_bend(task, node, hot, g)
    if not task.wants(node.in0):
        return 0
    if hot < SUM:
        return native_function(task, node, hot, g)
    return native_shape(task, node, hot, g)


cdef int native_several(GraphTask task, Node node, int hot, tuple operands, object g) except -1:
    """Operators of three operands or more."""
    if hot == LINEAR:
        return native_linear(task, node, operands, g)
    if hot == ADDMM:
        return native_addmm(task, node, operands, g)
    if hot == WHERE:
        return native_where(task, node, operands, g)
    if hot == STACK:
        return native_stack(task, node, operands, g)
    return native_cat(task, node, operands, g)


cdef int native_loss(GraphTask task, Node node, tuple operands, object g) except -1:
    """The loss of a classifier, by torch's kernel with what its forward kernel has kept."""
    cdef object x, target, weight, reduction, ignored, total
    if operands is None or node.saved_more is None or type(node.saved_more[2]) is not Tensor or not task.wants(operands[0]):
        return 0
    x, target, weight, total = saved(node, 0), saved(node, 1), saved(node, 2), node.saved_more[2]
    reduction, ignored = attribute(node, "reduction"), attribute(node, "ignore_index")
    if type(reduction) is int and type(ignored) is int and tensor_like(x) and tensor_like(target) \
            and (weight is None or tensor_like(weight)) and ao_direct_nll_back(g, x, target, weight, total):
        x = ao_nll_back(g, x, target, weight, reduction, ignored, total)
    else:
        x = nll_backward(g, x, target, weight, reduction, ignored, total)
    pass_on(task, node, operands[0], x, 0, True)
    return 1
