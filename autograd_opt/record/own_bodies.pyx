"""Let torch's functions in Python run their own body, where its calls are what is recorded.

Such a function begins by asking whether somebody wants it whole, and hands itself over.  The mode of this library takes
the functions that have no operator apart: it calls the same body with the question answered no.  Once it has done so
for a function, the question is answered no in its own body, and the detour is gone.
"""

import types

from torch.nn import Parameter
from torch.overrides import has_torch_function as any_asked
from torch.overrides import has_torch_function_unary as one_asked
from torch.overrides import has_torch_function_variadic as each_asked

from cpython.object cimport PyObject
from cpython.ref cimport Py_INCREF

from autograd_opt.abi.ctorch cimport ao_frame, ao_frame_code, ao_frame_done, ao_frame_t, ao_use_reads
from autograd_opt.abi.tensor_info import reads_address
from autograd_opt.graph.node cimport CustomTensor, PlainTensor as Tensor
from autograd_opt.graph.tape cimport Tape, recording
from autograd_opt.record.arguments cimport grad_on, mode_innermost
from autograd_opt.record.routes cimport Decomposed, handlers

ao_use_reads(reads_address())
cdef enum:
    ROOM = 1024                          # places; a power of two, of which a quarter is used at most
cdef PyObject *codes[ROOM]
cdef PyObject *functions[ROOM]           # whose code it is
cdef Py_ssize_t count = 0
cdef object FunctionType = types.FunctionType


cdef inline Py_ssize_t place_of(PyObject *code) noexcept:
    """Where a code object is, or would be put."""
    cdef size_t i = <size_t>code >> 4 & (ROOM - 1)
    while codes[i] != NULL and codes[i] != code:
        i = i + 1 & (ROOM - 1)
    return <Py_ssize_t>i


def take_apart(function, handler):
    """Let `function` run its own body from the first call on."""
    cdef Py_ssize_t i = place_of(<PyObject *>function.__code__)
    if type(handler) is Decomposed and codes[i] == NULL:
        note_body(function, i)


cdef int note_body(object function, Py_ssize_t i) except -1:
    """Enter the code of `function`, for good: an address stays one object's."""
    global count
    code = function.__code__
    Py_INCREF(code)
    Py_INCREF(function)
    codes[i], functions[i] = <PyObject *>code, <PyObject *>function
    count += 1
    return 0


cdef int learn_body(object function, Decomposed handler) except -1:
    """`function` was handed over, from its own body, and is taken apart by calling that."""
    cdef ao_frame_t frame
    cdef object code
    cdef Py_ssize_t i
    if type(function) is not FunctionType or function.__closure__ is not None or handler.cast or count >= ROOM // 4:
        return 0                         # code with a closure is that of several functions
    code = function.__code__
    frame, i = ao_frame(), place_of(<PyObject *>code)
    if frame != NULL:
        if ao_frame_code(frame) == <PyObject *>code and type(handler.body) is FunctionType and handler.body.__code__ is code \
                and codes[i] == NULL:
            note_body(function, i)
        ao_frame_done(frame)
    return 0


cdef bint apart() except -1:
    """Is the question asked in a body that a graph takes apart, and would it be the first to be asked?"""
    cdef PyObject *tp = recording()
    cdef ao_frame_t frame
    cdef Py_ssize_t i
    if tp == NULL or (<Tape>tp).guarded:
        return False
    frame = ao_frame()
    if frame == NULL:
        return False
    i = place_of(ao_frame_code(frame))
    ao_frame_done(frame)
    return codes[i] != NULL and type(handlers.get(<object>functions[i])) is Decomposed and mode_innermost()


cdef inline bint ours(object x) except -1:
    """Has `x` no torch function of its own?"""
    cdef object kind = type(x)
    if kind is tuple or kind is list:
        for y in x:
            if not ours(y):
                return False
        return True
    return kind is Tensor or kind is CustomTensor or kind is Parameter or x is None or kind is float or kind is int


cdef bint nothing_follows() except -1:
    """True if gradients are off: torch may then compute a whole layer in one kernel, as a transformer's in eval mode."""
    cdef PyObject *tp = recording()
    return tp != NULL and not (<Tape>tp).guarded and not grad_on() and mode_innermost()


def has_torch_function(relevant_args):
    """`torch.overrides.has_torch_function`, which answers no in such a body."""
    return False if ours(relevant_args) and apart() else any_asked(relevant_args)


def layer_has_torch_function(relevant_args):
    """`torch.overrides.has_torch_function` as layers ask it, by the name of its module: also no where gradients are off."""
    return False if ours(relevant_args) and (apart() or nothing_follows()) else any_asked(relevant_args)


def has_torch_function_unary(argument):
    """`torch.overrides.has_torch_function_unary`, likewise."""
    return False if ours(argument) and apart() else one_asked(argument)


def has_torch_function_variadic(*arguments):
    """`torch.overrides.has_torch_function_variadic`, likewise."""
    return False if ours(arguments) and apart() else each_asked(*arguments)
