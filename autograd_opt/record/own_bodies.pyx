"""Let torch's functions in Python run their own body, where its calls are what is recorded.

Such a function begins by asking whether somebody wants it whole, and hands itself over.  The mode of this library takes
the functions that have no operator apart: it calls the same body with the question answered no.  Once it has done so
for a function, the question is answered no in its own body, and the detour is gone.  A function that has an operator
is asked for whole, but not by arguments that nothing follows: its own body's calls record nothing either.
"""

import types

import torch.overrides
from torch.nn import Parameter
from torch.overrides import has_torch_function as any_asked

from cpython.dict cimport PyDict_GetItem, PyDict_SetItem
from cpython.object cimport PyObject
from cpython.ref cimport Py_INCREF

from autograd_opt.abi.ctorch cimport ao_frame, ao_frame_code, ao_frame_done, ao_frame_t, ao_use_reads
from autograd_opt.abi.tensor_info import reads_address
from autograd_opt.graph.node cimport CustomTensor, PlainTensor as Tensor
from autograd_opt.graph.tape cimport Tape
from autograd_opt.graph.thread_state cimport recording
from autograd_opt.record.arguments cimport follows, grad_on, mode_innermost
from autograd_opt.record.cross_entropy cimport CrossEntropy
from autograd_opt.record.routes cimport Chosen, Decomposed, Recorded
from autograd_opt.record.torch_function cimport handlers

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
        note_body(function, function.__code__, i)


cdef int note_body(object function, object code, Py_ssize_t i) except -1:
    """Enter code in which `function` hands itself over, for good: an address stays one object's."""
    global count
    Py_INCREF(code)
    Py_INCREF(function)
    codes[i], functions[i] = <PyObject *>code, <PyObject *>function
    count += 1
    return 0


cdef int learn_body(object function, object handler) except -1:
    """`function` was handed over, from the code that runs now, and may be taken apart by running that to its end."""
    cdef ao_frame_t frame
    cdef Py_ssize_t i
    if count >= ROOM // 4 or type(function) is not FunctionType \
            or type(handler) is not Decomposed and not by_operator(type(handler)):
        return 0
    if type(handler) is Decomposed:          # code with a closure is that of several functions
        if function.__closure__ is not None or (<Decomposed>handler).cast:
            return 0
        body = (<Decomposed>handler).body
        if type(body) is not FunctionType or body.__code__ is not function.__code__:
            return 0
    frame = ao_frame()
    if frame != NULL:
        i = place_of(ao_frame_code(frame))
        if codes[i] == NULL and (type(handler) is not Decomposed or ao_frame_code(frame) == <PyObject *>function.__code__):
            note_body(function, <object>ao_frame_code(frame), i)
        ao_frame_done(frame)
    return 0


cdef enum:
    WHOLE, IF_NONE_FOLLOWS, APART            # how a graph takes the function whose body asks the question


cdef int taken() except -1:
    """How the function that runs now is taken, where the mode of a graph would be the first to be asked."""
    cdef PyObject *tp = recording()
    cdef ao_frame_t frame
    cdef Py_ssize_t i
    cdef object kind
    if tp == NULL or (<Tape>tp).guarded:
        return WHOLE
    frame = ao_frame()
    if frame == NULL:
        return WHOLE
    i = place_of(ao_frame_code(frame))
    ao_frame_done(frame)
    if codes[i] == NULL or not mode_innermost():
        return WHOLE
    kind = type(handlers.get(<object>functions[i]))
    return APART if kind is Decomposed else IF_NONE_FOLLOWS if by_operator(kind) else WHOLE


cdef inline bint by_operator(object kind) noexcept:
    """Is this a route of a function that has an operator?"""
    return kind is Recorded or kind is Chosen or kind is CrossEntropy


cdef bint apart(object relevant_args) except -1:
    """Is the question asked, with these arguments, in a body that a graph takes apart?"""
    cdef int how = taken()
    return how == APART or how == IF_NONE_FOLLOWS and not follows(<Tape>recording(), relevant_args, grad_on())


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


# The questions ----------------------------------------------------------------------------
# torch's functions ask by three built-in functions, which every module has under a name of its own. While a graph is
# open these objects have another definition (`PyMethodDef`), whoever has imported them; outside they have torch's.
cdef extern from *:
    """
    typedef struct {
        PyCFunctionObject *function;
        PyMethodDef *theirs;
        PyMethodDef ours;
    } ao_question;
    static ao_question ao_questions[3];
    static int ao_learn_question(int i, PyObject *f, int flags, void *entry) {
        ao_question *q = ao_questions + i;
        if (!PyCFunction_CheckExact(f) || PyCFunction_GET_FLAGS(f) != flags) return 0;
        Py_INCREF(f);
        q->function = (PyCFunctionObject *)f;
        q->theirs = q->function->m_ml;
        q->ours = *q->theirs;
        q->ours.ml_meth = (PyCFunction)entry;
        return 1;
    }
    static void ao_let_answer(int by_ours) {
        for (int i = 0; i < 3; i++) {
            ao_question *q = ao_questions + i;
            if (q->function != NULL) q->function->m_ml = by_ours ? &q->ours : q->theirs;
        }
    }
    static CYTHON_INLINE PyObject *ao_torch_answers(int i, PyObject *self, PyObject *x) {
        return ao_questions[i].theirs->ml_meth(self, x);
    }
    typedef PyObject *const *ao_several;
    static CYTHON_INLINE PyObject *ao_torch_answers_of(int i, PyObject *self, ao_several a, Py_ssize_t n) {
        return ((PyObject *(*)(PyObject *, ao_several, Py_ssize_t))(void (*)(void))ao_questions[i].theirs->ml_meth)(self, a, n);
    }
    """
    ctypedef PyObject **ao_several
    int METH_O, METH_FASTCALL
    int ao_learn_question(int i, object f, int flags, void *entry)
    void ao_let_answer(bint by_ours)
    object ao_torch_answers(int i, PyObject *self, PyObject *x)
    object ao_torch_answers_of(int i, PyObject *self, ao_several a, Py_ssize_t n)

cdef extern from "Python.h":
    PyObject *PyEval_GetGlobals()

cdef enum:
    ANY, ONE, EACH
cdef object theirs = torch.overrides.handle_torch_function
cdef object ours_instead = None          # context.handle_torch_function
cdef list handed = []                    # namespaces in which ours stands
cdef PyObject *latest = NULL             # the last of them


cdef object any_has_torch_function(PyObject *self, PyObject *relevant_args):
    """`torch.overrides.has_torch_function`, which answers no in such a body."""
    return False if ours(<object>relevant_args) and apart(<object>relevant_args) else handing_over(ao_torch_answers(ANY, self, relevant_args))


cdef object one_has_torch_function(PyObject *self, PyObject *argument):
    """`torch.overrides.has_torch_function_unary`, likewise."""
    return False if ours(<object>argument) and apart(<object>argument) else handing_over(ao_torch_answers(ONE, self, argument))


cdef object each_has_torch_function(PyObject *self, ao_several arguments, Py_ssize_t n):
    """`torch.overrides.has_torch_function_variadic`, likewise."""
    cdef Py_ssize_t i
    cdef int how
    for i in range(n):
        if not ours(<object>arguments[i]):
            break
    else:
        how = taken()
        for i in range(n if how == IF_NONE_FOLLOWS else 0):
            if follows(<Tape>recording(), <object>arguments[i], grad_on()):
                how = WHOLE
                break
        if how:
            return False
    return handing_over(ao_torch_answers_of(EACH, self, arguments, n))


cdef object handing_over(object answer):
    """Put the shorter way into the module of the function that hands itself over, if it will; return the answer."""
    global latest
    cdef PyObject *names = NULL
    if answer is True and recording() != NULL:
        names = PyEval_GetGlobals()
        if names != latest and names != NULL \
                and PyDict_GetItem(<dict>names, "handle_torch_function") == <PyObject *>theirs:
            PyDict_SetItem(<dict>names, "handle_torch_function", ours_instead)
            handed.append(<dict>names)
            latest = names
    return answer


def layer_has_torch_function(relevant_args):
    """`torch.overrides.has_torch_function` as layers ask it, by the name of its module: also no where gradients are off."""
    return False if ours(relevant_args) and (apart(relevant_args) or nothing_follows()) else any_asked(relevant_args)


cdef int answer_questions(bint here) except -1:
    """From now on the questions are answered here, or by torch again, and torch's functions hand themselves to torch."""
    global latest
    cdef dict names
    ao_let_answer(here)
    if handed and not here:
        for names in handed:
            if names.get("handle_torch_function") is ours_instead:
                names["handle_torch_function"] = theirs
        handed.clear()
        latest = NULL
    return 0


def install_questions(handler):
    """Learn torch's questions, and what takes the place of `torch.overrides.handle_torch_function`; True if all are known."""
    global ours_instead
    ours_instead = handler
    return bool(ao_learn_question(ANY, torch.overrides.has_torch_function, METH_O, <void *>any_has_torch_function)
                & ao_learn_question(ONE, torch.overrides.has_torch_function_unary, METH_O, <void *>one_has_torch_function)
                & ao_learn_question(EACH, torch.overrides.has_torch_function_variadic, METH_FASTCALL,
                                    <void *>each_has_torch_function))
