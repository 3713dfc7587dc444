"""What a user sees of a node: a class with the name that torch's would have, and what torch has below it.

Programs that draw a graph or tell operations apart read the class.  A node is of its class from the moment it is handed
out, and so keeps its name when its operands are released; those that nobody asks for stay what they are.
"""

from autograd_opt.graph.node cimport ELSEWHERE_OP, OUTPUT_OP, REQUIRES_GRAD, WRITTEN_OP, Node
from autograd_opt.graph.torch_names import SEPARATE, output_number, shown_operands

cdef extern from *:
    """
    static int ao_allow_bases(PyObject *type, int allowed) {
        if (allowed) ((PyTypeObject *)type)->tp_flags |= Py_TPFLAGS_BASETYPE;
        else ((PyTypeObject *)type)->tp_flags &= ~Py_TPFLAGS_BASETYPE;
        PyType_Modified((PyTypeObject *)type);
        return 0;
    }
    /* A class made in Python expects objects that the collector knows, and that own their class: nodes do neither. */
    static int ao_live_as(PyObject *type, PyObject *base) {
        PyTypeObject *t = (PyTypeObject *)type, *b = (PyTypeObject *)base;
        t->tp_flags &= ~(Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_BASETYPE);
        t->tp_traverse = NULL;
        t->tp_clear = NULL;
        t->tp_new = NULL;
        t->tp_alloc = b->tp_alloc;
        t->tp_free = b->tp_free;
        t->tp_dealloc = b->tp_dealloc;
        t->tp_getattro = b->tp_getattro;
        PyType_Modified(t);
        return 0;
    }
    static int ao_be(PyObject *o, PyObject *type) {
        Py_SET_TYPE(o, (PyTypeObject *)type);
        return 0;
    }
    """
    int ao_allow_bases(object type, int allowed)
    int ao_live_as(object type, object base)
    int ao_be(object o, object type)

cdef dict _kinds = {}                    # (name, module) -> class, which lives as long as this module


cdef Node shown(Node node):
    """`node`, from now on of the class that has its name."""
    cdef object kind
    if type(node) is not Node:
        return node
    name = node.name()
    module = "torch.autograd.function" if node.attrs is not None and "function" in node.attrs else "builtins"
    kind = _kinds.get((name, module))
    if kind is None:
        ao_allow_bases(Node, True)
        try:
            kind = type(Node)(name.rpartition("::")[2], (Node,), {"__slots__": (), "__module__": module, "shown_name": name})
        finally:
            ao_allow_bases(Node, False)
        ao_live_as(kind, Node)
        kind = _kinds.setdefault((name, module), kind)
    ao_be(node, kind)
    return node


def show(Node node):
    """The `grad_fn` of the result of `node` as the user sees it: of a class that has the name of torch's."""
    return None if node is None else shown(function_of(node))


cdef tuple edge(Node node):
    """(function, number of its output), as torch shows an operand; a write without a record has none in torch."""
    while node.op is WRITTEN_OP and node.in0 is not None:
        node = node.in0
    if node.op is ELSEWHERE_OP and node.saved_more is not None and node.attrs is None:
        node = <Node>node.saved_more[2]
    if node.op is OUTPUT_OP and node.in0 is not None:
        return (shown(function_of(node)), output_number(node))
    return (shown(node), 0)


cdef Node function_of(Node node):
    """The node that torch has as the `grad_fn` of this result: the call's, or the result's own where each has one."""
    if node.op is not OUTPUT_OP or node.in0 is None:
        return node
    several = node.in0.op.name in SEPARATE or node.in0.attrs is not None and "numbers" in node.in0.attrs
    return node if several else node.in0


def functions_below(Node node):
    """(node, output) for each operand that requires grad, (None, 0) for the others that torch shows."""
    if node.op is ELSEWHERE_OP and node.saved_more is not None:
        return (edge(<Node>node.saved_more[2]),)
    if node.op.name == "opaque" and not node.operands and node.saved_more is not None:
        return node.saved_more[2][0].edges[0].node.next_functions      # leaves that the call itself has made
    if node.op is OUTPUT_OP and node.in0 is not None:
        return node.in0.next_functions
    return tuple([
        edge(n) if n is not None and (<Node>n).flags & REQUIRES_GRAD and (<Node>n).op != "view_apart" else (None, 0)
        for n in shown_operands(node)
    ])
