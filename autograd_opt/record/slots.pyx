"""The operators' slots, written into the class: what Python calls for `a + b` itself, also where `a` is a plain tensor.

CustomTensor is a subclass of the plain tensor's class, so Python asks its slots first.
"""

from cpython.object cimport PyObject

from autograd_opt.abi.ctorch cimport ao_use_reads
from autograd_opt.abi.tensor_info import reads_address
from autograd_opt.graph.node cimport CustomTensor, ordinary
from autograd_opt.record.arguments cimport is_tensor, overridden
from autograd_opt.record.entries cimport PAST, getitem, item_of
from autograd_opt.record.hot_operators cimport KERNELS, Kernel, fast_binary, fast_unary

ao_use_reads(reads_address())
cdef extern from "Python.h":
    ctypedef struct PyNumberMethods:
        void *nb_power
        void *nb_add
        void *nb_subtract
        void *nb_multiply
        void *nb_true_divide
        void *nb_negative
    ctypedef struct PyMappingMethods:
        void *mp_subscript
    ctypedef struct PyTypeObject:
        PyNumberMethods *tp_as_number
        PyMappingMethods *tp_as_mapping

cdef Kernel ADD, SUB, MUL, DIV, POW, NEG


cdef inline object operator(Kernel k, object a, object b, str reflected):
    """`a op b` for an operator's slot; `reflected` is the method of `b` for an `a` that is no tensor."""
    if ordinary(a) and not overridden():
        r = fast_binary(k, a, b)
        if r is not None:
            return r
    try:
        if is_tensor(a):
            return k.descr(a, b)
        if (type(a) is float or type(a) is int) and type(b) is CustomTensor and (k is ADD or k is MUL):
            return operator(k, b, a, reflected)  # as `reflected` would
        return getattr(b, reflected)(a)
    except TypeError:
        return NotImplemented                # as torch's operators: the other class may know what to do


cdef object slot_add(object a, object b):
    return operator(ADD, a, b, "__radd__")


cdef object slot_sub(object a, object b):
    return operator(SUB, a, b, "__rsub__")


cdef object slot_mul(object a, object b):
    return operator(MUL, a, b, "__rmul__")


cdef object slot_div(object a, object b):
    return operator(DIV, a, b, "__rtruediv__")


cdef object slot_pow(object a, object b, object modulus):
    return NotImplemented if modulus is not None else operator(POW, a, b, "__rpow__")


cdef object slot_neg(object a):
    r = None if overridden() else fast_unary(NEG, a)
    return NEG.descr(a) if r is None else r


cdef object slot_subscript(object self, object index):
    cdef object r = item_of(<PyObject *>self, <PyObject *>index)
    return getitem(self, index) if r is PAST else r


def install_slots(custom):
    """Write the slots; last, since giving a class a method rewrites its slot."""
    global ADD, SUB, MUL, DIV, POW, NEG
    cdef PyTypeObject *kind = <PyTypeObject *><PyObject *>custom
    ADD, SUB, MUL, DIV, POW, NEG = [KERNELS[name] for name in ("add", "sub", "mul", "div", "pow", "neg")]
    kind.tp_as_number.nb_add = <void *>slot_add
    kind.tp_as_number.nb_subtract = <void *>slot_sub
    kind.tp_as_number.nb_multiply = <void *>slot_mul
    kind.tp_as_number.nb_true_divide = <void *>slot_div
    kind.tp_as_number.nb_power = <void *>slot_pow
    kind.tp_as_number.nb_negative = <void *>slot_neg
    kind.tp_as_mapping.mp_subscript = <void *>slot_subscript
