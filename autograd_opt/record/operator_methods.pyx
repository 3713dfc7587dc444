"""Operators of recorded tensors, as methods of their class: what Python calls for `a + b`, also where `a` is a plain tensor.

CustomTensor is a subclass of the plain tensor's class, so Python asks its methods first, and no mode is asked on the way.
"""

import dis

from cpython.object cimport Py_EQ, Py_GE, Py_GT, Py_LE, Py_LT, Py_NE, PyObject

from autograd_opt.abi import torch_private as private
from autograd_opt.abi.ctorch cimport ao_use_reads
from autograd_opt.abi.tensor_info import reads_address
from autograd_opt.graph.node cimport CustomTensor, Parameter, PlainTensor, ordinary
from autograd_opt.record.arguments cimport is_tensor, overridden
from autograd_opt.record.items cimport PAST, getitem, item_of
from autograd_opt.record.hot_operators cimport KERNELS, Kernel, fast_binary, fast_unary

ao_use_reads(reads_address())
cdef extern from *:
    """
    static int ao_compare_code = -1;               /* the number of the instruction that compares */
    static signed char ao_signs[256];              /* what its argument says: Py_LT, ..., or -1 */
    static int ao_written_sign(void) {
        /* which comparison the source says that the interpreter is at, -1 where it is at a call or knows no source */
        PyFrameObject *frame = PyEval_GetFrame();
        if (frame == NULL) return -1;
        int at = PyFrame_GetLasti(frame), sign = -1;
        PyCodeObject *code = PyFrame_GetCode(frame);
        PyObject *bytes = PyCode_GetCode(code);
        Py_DECREF(code);
        if (bytes == NULL) { PyErr_Clear(); return -1; }
        if (at >= 0 && at + 1 < PyBytes_GET_SIZE(bytes)) {
            unsigned char *step = (unsigned char *)PyBytes_AS_STRING(bytes) + at;
            if (step[0] == ao_compare_code) sign = ao_signs[step[1]];
        }
        Py_DECREF(bytes);
        return sign;
    }
    static void ao_no_sequence(PyObject *type) {
        /* `__getitem__` in a class makes its objects sequences, which torch's tensors are not: a list of them is no matrix */
        ((PyTypeObject *)type)->tp_as_sequence->sq_item = NULL;
    }
    """
    int ao_compare_code
    void ao_no_sequence(object type)
    signed char *ao_signs
    int ao_written_sign()

cdef Kernel ADD, SUB, MUL, DIV, POW, NEG


cdef inline object operator(Kernel k, object a, object b, object reflected):
    """`a op b`; `reflected` is torch's method of `b` for an `a` that is no tensor."""
    if ordinary(a) and not overridden():
        r = fast_binary(k, a, b)
        if r is not None:
            return r
    try:
        if is_tensor(a):
            return k.descr(a, b)
        if (type(a) is float or type(a) is int) and type(b) is CustomTensor and (k is ADD or k is MUL):
            return operator(k, b, a, reflected)  # as `reflected` would
        return reflected(b, a)
    except TypeError:
        return NotImplemented                # as torch's operators: the other class may know what to do


def of_two(Kernel k, reflected):
    """The methods for `a op b`, asked of `a` and of `b`."""
    def straight(a, b):
        return operator(k, a, b, reflected)

    def turned(b, a):
        return operator(k, a, b, reflected)
    return straight, turned


def negative(a):
    """`-a`."""
    r = None if overridden() else fast_unary(NEG, a)
    return NEG.descr(a) if r is None else r


def subscript(self, index):
    """`self[index]`."""
    cdef object r = item_of(<PyObject *>self, <PyObject *>index)
    return getitem(self, index) if r is PAST else r


cdef tuple TURNED = (Py_GT, Py_GE, Py_EQ, Py_NE, Py_LT, Py_LE)           # for each sign, which Python numbers from 0
cdef tuple METHODS = tuple([getattr(private.TensorBase, f"__{name}__") for name in ("lt", "le", "eq", "ne", "gt", "ge")])


def comparison(int sign):
    """The method for `self < other`, for any sign; axes of what torch computes lie as those of the operand it is given first.

    Python asks the more special class first: for `c < r` of a plain `c` it asks a recorded `r` whether `r > c`.  And
    where torch computes with a plain tensor in the place of `r`, Python asks a parameter `p` first, for `r < p`.
    """
    cdef int turned = TURNED[sign]

    def compare(self, other):
        if type(other) is Parameter or type(other) is PlainTensor and turned != sign and ao_written_sign() == turned:
            try:
                return METHODS[turned](other, self)
            except TypeError:
                return NotImplemented
        return METHODS[sign](self, other)
    return compare


cdef know_instructions():
    """Read from what Python compiles how its instruction for comparisons says which one it is."""
    global ao_compare_code
    ao_compare_code = dis.opmap["COMPARE_OP"]
    for k in range(256):
        ao_signs[k] = -1
    for sign, text in ((Py_LT, "<"), (Py_LE, "<="), (Py_EQ, "=="), (Py_NE, "!="), (Py_GT, ">"), (Py_GE, ">=")):
        for source in (f"a {text} b", f"if a {text} b: c"):
            for step in dis.get_instructions(compile(source, "", "exec")):
                if step.opcode == ao_compare_code:
                    ao_signs[step.arg] = sign


def install(custom):
    """Give the class its operators."""
    global ADD, SUB, MUL, DIV, POW, NEG
    ADD, SUB, MUL, DIV, POW, NEG = [KERNELS[name] for name in ("add", "sub", "mul", "div", "pow", "neg")]
    for name, k in (("add", ADD), ("sub", SUB), ("mul", MUL), ("truediv", DIV), ("pow", POW)):
        straight, turned = of_two(k, getattr(PlainTensor, f"__r{name}__"))
        setattr(custom, f"__{name}__", straight)
        setattr(custom, f"__r{name}__", turned)
    custom.__neg__, custom.__getitem__ = negative, subscript
    know_instructions()
    for sign, method in enumerate(METHODS):
        setattr(custom, method.__name__, comparison(sign))
    ao_no_sequence(custom)
