"""Values beside tensors: attributes as bytes, Python numbers as tensors, devices as one object each."""

import struct

import torch

from cpython.object cimport PyObject
from cpython.ref cimport Py_INCREF, Py_XDECREF
from libc.stdint cimport int64_t, uint64_t
from libc.string cimport memcpy

from autograd_opt.abi import torch_private as private
from autograd_opt.abi.ctorch cimport ao_builtin0, ao_strided, ao_use_reads
from autograd_opt.abi.tensor_info import reads_address

ao_use_reads(reads_address())
CPU = torch.device("cpu")
cdef dict _devices = {CPU: CPU}


cdef object same_device(object device):
    """One object per device, so that nodes compare devices by identity."""
    return _devices.setdefault(device, device)


# Attributes as bytes: equal bytes are equal constants, bit for bit. ------------------------
cdef object _f32 = torch.float32, _f64 = torch.float64, _bf16 = torch.bfloat16, _f16 = torch.float16


cdef bint is_float(object dtype) except -1:
    return dtype is _f32 or dtype is _f64 or dtype is _bf16 or dtype is _f16


cdef extern from "Python.h":
    int Py_EnterRecursiveCall(const char *) except? 1
    void Py_LeaveRecursiveCall() noexcept


cdef int deeper() except -1:
    """One container further in; RecursionError where there are too many, as in a list that holds itself."""
    Py_EnterRecursiveCall(" in an attribute")
    return 0


cdef void shallower() noexcept:
    Py_LeaveRecursiveCall()


cdef object encode(object v, bint typed=False):
    """Bytes that are equal exactly when two attribute values are the same, bit for bit.

    Type-tagged, floats by their bits, so that 1, 1.0, True, 0.0 and -0.0 all differ; lists, tuples and sizes where
    they are `typed`.  Raises TypeError for a value of unknown meaning.
    """
    t = type(v)
    if v is None:
        return b"N"
    if t is bool:
        return b"T" if v else b"F"
    if t is int:
        return b"i%x;" % v
    if t is float:
        return b"f" + struct.pack("<d", v)
    if t is complex:
        return b"c" + struct.pack("<dd", v.real, v.imag)
    if t is str:
        s = v.encode(errors="surrogatepass")
        return b"s%d:" % len(s) + s
    if t is tuple or t is list or t is torch.Size:
        deeper()
        try:
            return b"(%d%s:" % (len(v), tag_of(t) if typed else b"") + b"".join([encode(x, typed) for x in v])
        finally:
            shallower()
    if t is slice:
        return b"l" + encode(v.start, typed) + encode(v.stop, typed) + encode(v.step, typed)
    if v is Ellipsis:
        return b"E"
    if t in (torch.dtype, torch.device, torch.layout, torch.memory_format):
        return b"d" + repr(v).encode() + b";"
    raise TypeError(t)


cdef inline object tag_of(object kind):
    return b"l" if kind is list else b"t" if kind is tuple else b"z"


cdef object encode_attributes(object attrs, bint typed):
    """The key bytes of an attribute dict (order of names does not matter)."""
    return b"".join([encode(k) + encode(attrs[k], typed) for k in sorted(attrs)]) if attrs else b""


def attribute_key(attrs, bint typed=False):
    """The key bytes of an attribute dict; TypeError for a value without a key."""
    return encode_attributes(attrs, typed)


# Python numbers beside tensors: `x * 1.5` as a product of two tensors.
#
# torch makes a tensor of double (or int64) of the number, and the kernel converts it to the type of `x`.
# These two small tensors cost more than the kernel itself where `x` is small.  A number that is met a
# second time is kept in the type of `x`, converted by the same double step, so that results have the
# same bits; `+`, `-`, `*` and `/` run one kernel for both.

cdef enum:
    NUMBERS = 256

cdef double SMALLEST = torch.finfo(torch.float32).tiny

cdef struct KeptNumber:
    int64_t bits                 # of the double, or the integer itself
    PyObject *kind               # borrowed: float or int
    PyObject *dtype              # borrowed: float32 or float64
    PyObject *arguments          # owned: (tensor,), or NULL where the number was met once

cdef KeptNumber _numbers[NUMBERS]
cdef object dispatch_modes = private.len_torch_dispatch_stack
cdef object tracing_state = private.get_tracing_state
cdef object transforms = private.transforms_active


cdef tuple number_arguments(object number, object t, object dtype):
    """(number,) or (the same number as a tensor,): the arguments of `t + number`, `-`, `*` or `/` for a `t` on the CPU.

    Only for tensors of the dense float types whose kernels compute in that type; a mode below the
    recorder (`TorchDispatchMode`) sees the number itself.
    """
    cdef int64_t bits = 0
    cdef double real
    cdef size_t i
    cdef KeptNumber *n
    cdef PyObject *old
    cdef object kind = type(number)
    if dtype is not _f32 and dtype is not _f64:
        return (number,)
    if kind is float:
        real = number
        if -SMALLEST < real < SMALLEST and real != 0.0:
            return (number,)                     # what becomes of it may depend on `torch.set_flush_denormal`
        memcpy(&bits, &real, 8)
    elif kind is int and -(1 << 53) < number < (1 << 53):
        bits = number
    else:
        return (number,)
    if not ao_strided(t) or <Py_ssize_t>ao_builtin0(dispatch_modes) != 0:
        return (number,)
    i = <size_t>((<uint64_t>bits ^ (<uint64_t><size_t><PyObject *>dtype >> 4)) * 0x9E3779B97F4A7C15ULL >> 56)
    n = &_numbers[i]
    if n.bits == bits and n.kind == <PyObject *>kind and n.dtype == <PyObject *>dtype:
        if n.arguments != NULL:
            return <tuple><object>n.arguments
        kept = as_tensor(number, dtype)          # lets other threads run, which may give this place to another number
        if kept is None:
            return (number,)
        if n.bits == bits and n.kind == <PyObject *>kind and n.dtype == <PyObject *>dtype and n.arguments == NULL:
            Py_INCREF(kept)
            n.arguments = <PyObject *>kept
        return kept
    old = n.arguments
    n.bits, n.kind, n.dtype, n.arguments = bits, <PyObject *>kind, <PyObject *>dtype, NULL
    Py_XDECREF(old)
    return (number,)


cdef tuple as_tensor(object number, object dtype):
    """(the number as a tensor of its own,); None inside a transform, mode or trace that would make it theirs."""
    if transforms() or torch.is_inference_mode_enabled() or tracing_state() is not None:
        return None
    with private.DisableTorchFunction():
        return (torch.tensor(number, dtype=torch.float64 if type(number) is float else torch.int64, device=CPU).to(dtype),)


cdef bint takes_all(object entry, object length) except -1:
    """Is this a slice that torch leaves out of an index of several entries?"""
    return type(entry) is slice and (entry.start is None or entry.start == 0) and (entry.step is None or entry.step == 1) \
        and (entry.stop is None or entry.stop >= length)
