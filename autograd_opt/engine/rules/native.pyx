"""Choose the rule in C for an operator of hot loops (`Op.hot`), in numeric runs over real dense tensors.

Each has a line in the operator table that says what it computes; `tests/engine/test_native.py`
runs both and compares.  A rule decides before it sends anything whether it applies (1) or
the line of the table has to run (0).  What it gains: no interpreter between the kernels, and sums
made in place, of a product too (`addcmul_`, `addmm_`), where the waiting cotangent is the run's own.
"""

from autograd_opt.engine.hot cimport (
    ADDMM, DIV, LINEAR, LSTM, MATMUL, MM, SIGMOID_BACK, SPLIT, STACK, SUM, TANH_BACK, UNBIND, WHERE,
)
from autograd_opt.engine.rules.arithmetic cimport native_arithmetic, native_bend, native_function
from autograd_opt.engine.rules.joining cimport native_cat, native_parts, native_stack, native_where
from autograd_opt.engine.rules.layers cimport native_layer
from autograd_opt.engine.rules.lstm cimport native_lstm
from autograd_opt.engine.rules.passing cimport dense
from autograd_opt.engine.rules.products cimport native_addmm, native_linear, native_matmul
from autograd_opt.engine.rules.views cimport native_shape
from autograd_opt.engine.task cimport GraphTask
from autograd_opt.graph.node cimport Node, Op
from autograd_opt.graph.plain_values cimport is_float


cdef int native(GraphTask task, Node node, Op op, object g) except -1:
    """Run the rule of `node` here if there is one for this case: 1, else 0."""
    cdef int hot = op.hot
    if hot == UNBIND or hot == SPLIT:
        return native_parts(task, node, hot, g)
    if hot == LSTM:
        return native_lstm(task, node, g)
    if not is_float(node.dtype) or not dense(g):
        return 0
    if hot > SPLIT:
        return native_layer(task, node, hot, g)
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
