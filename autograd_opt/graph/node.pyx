"""Node and Tape: what is recorded, who keeps it alive, and how values are numbered.

A `Tape` owns its nodes in record order; a tensor owns only its own node.  How long saved
tensors live is decided by a count in each node (alive consumers, plus one while the
node's tensor is alive), so a branch that the user drops is released at once, without
recursion and without a reference cycle, while the graph as written stays readable.
"""

from array import array
from collections import deque, namedtuple
import struct
import os
import sys
import weakref

import torch

from cpython.mem cimport PyMem_Calloc, PyMem_Free, PyMem_Malloc, PyMem_Realloc
from cpython.object cimport PyObject
from cpython.ref cimport Py_INCREF, Py_DECREF, Py_XDECREF
from libc.string cimport memcpy, memset

from autograd_opt.abi.ctorch cimport (
    ao_again, ao_builtin0, ao_dtype, ao_forget, ao_frame, ao_frame_back, ao_frame_code, ao_frame_done,
    ao_frame_lasti, ao_frame_t, ao_get, ao_get_int, ao_has_weakrefs, ao_is_inference, ao_is_leaf, ao_is_view,
    ao_needs_grad, ao_on_cpu, ao_own, ao_put_aside, ao_raise_again, ao_raised, ao_referent, ao_set_type, ao_shape,
    ao_silent_attr, ao_strided, ao_strip, ao_tensors_over, ao_try_attr, ao_use_reads, ao_uses, ao_version,
)
from autograd_opt.abi.tensor_info cimport resizable, sole_owner
from autograd_opt.abi.tensor_info import reads_address, use_kinds
cimport cython

cdef extern from *:
    """
    static AO_THREAD PyObject *ao_active = NULL;   /* the Tape recording in this thread */
    static AO_THREAD int ao_paused = 0;
    static AO_THREAD int ao_saving_hooks = 0;      /* 1 while a pair of saved-tensor hooks is in place */
    """
    PyObject *ao_active
    int ao_paused
    int ao_saving_hooks

cdef extern from "Python.h":
    int PyObject_GenericSetAttr(object o, object name, object value) except -1
    Py_ssize_t Py_REFCNT(object o)
    Py_ssize_t references "Py_REFCNT"(PyObject *o)
    bint is_weak "PyWeakref_CheckRefExact"(object o)
    bint PyErr_ExceptionMatches(PyObject *kind)
    void PyErr_Clear()
    ctypedef void (*destructor)(PyObject *)
    ctypedef int (*visitproc)(PyObject *, void *) noexcept
    ctypedef int (*traverseproc)(PyObject *, visitproc, void *) noexcept
    ctypedef struct PyTypeObject:
        destructor tp_finalize
        traverseproc tp_traverse
        unsigned long tp_flags
    int PyType_Modified(PyTypeObject *t)

ao_use_reads(reads_address())
cdef object _base = torch._C.TensorBase
cdef object get_version = ao_own(_base.__dict__["_version"])
cdef object get_device = ao_own(_base.__dict__["device"])
cdef object get_inference = _base.__dict__["is_inference"]
cdef object is_neg = _base.__dict__["is_neg"]
cdef object use_count = _base.__dict__["_use_count"]
cdef object get_meta = ao_own(_base.__dict__["is_meta"])
cdef object STRIDED_LAYOUT = torch.strided
cdef object PlainTensor = torch.Tensor
cdef object Parameter = torch.nn.Parameter
cdef object CustomTensor = None          # set by install()
cdef object NODE = "_node"
cdef object MARK = "_requires_grad"
cdef int64_t _vn = 0
cdef int64_t _tape_ids = 0
cdef dict _tapes = {}                    # id -> address of the Tape, while it lives
cdef Py_ssize_t SMALL = 1 << 20          # bytes alive below which a peak is not worth a kernel
cdef Op LEAF_OP = None
cdef Op OUTPUT_OP = None
cdef Op WRITTEN_OP = None
cdef Op ELSEWHERE_OP = None

# Python code reads these flags by the same names.
globals().update(EXPOSED=EXPOSED, NO_MERGE=NO_MERGE, NOWHERE=NOWHERE, OVERWRITTEN=OVERWRITTEN, PINNED=PINNED)

include "core/node.pxi"
include "core/active.pxi"
include "core/handles.pxi"
include "core/leads.pxi"
include "core/tape.pxi"
include "core/attributes.pxi"
include "core/numbers.pxi"
include "core/arrays.pxi"
include "core/settled.pxi"
include "core/values.pxi"
include "core/boundary.pxi"
