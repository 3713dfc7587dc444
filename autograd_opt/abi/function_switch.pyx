"""Switch torch functions off and on again, for modes and classes of tensors alike.

torch's own switch is an object with `__enter__` and `__exit__`.  Where `tensor_info.install_functions` has found the
number behind it, that is written instead, which costs a twentieth.
"""

from cpython.object cimport PyObject
from cpython.ref cimport Py_DECREF, Py_INCREF

from autograd_opt.abi import torch_private as private
from autograd_opt.abi.ctorch cimport ao_method, ao_method0, ao_use_reads
from autograd_opt.abi.tensor_info import reads_address

ao_use_reads(reads_address())
cdef object Switch = private.DisableTorchFunction
cdef object switch_enter = Switch.__dict__["__enter__"]
cdef object switch_exit = Switch.__dict__["__exit__"]
cdef tuple NOTHING = (None, None, None)
cdef object spare = None                 # one that no region uses


cdef size_t asked_off() except 0:
    """By torch's own switch, which is held until `asked_on`."""
    global spare
    cdef object switch = spare
    spare = None
    if switch is None:
        switch = Switch()
    ao_method0(switch_enter, switch)
    Py_INCREF(switch)
    return <size_t><PyObject *>switch


cdef int asked_on(size_t before) except -1:
    """The end of `asked_off`."""
    global spare
    cdef object switch = <object><PyObject *>before
    Py_DECREF(switch)
    ao_method(switch_exit, switch, NOTHING)
    spare = switch
    return 0
