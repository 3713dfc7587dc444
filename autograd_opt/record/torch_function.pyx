"""The torch-function mode of a context, and which route a callable takes."""

from cpython.object cimport PyObject, PyObject_GenericGetAttr
from cpython.ref cimport Py_DECREF, Py_INCREF

from autograd_opt.abi import torch_private as private
from autograd_opt.abi.ctorch cimport ao_all_off, ao_get, ao_held, ao_use_reads
from autograd_opt.abi.function_switch cimport functions_off, functions_on
from autograd_opt.abi.tensor_info import reads_address
from autograd_opt.graph.node cimport NODE, CustomTensor, PlainTensor as Tensor, ordinary
from autograd_opt.graph.thread_state cimport recording
from autograd_opt.ops.binding cimport placed
from autograd_opt.record.arguments cimport MODE, Uninitialized, foreign_kind, install_mode, lent
from autograd_opt.record.autocast cimport install_casts
from autograd_opt.record.routes cimport Route
from autograd_opt.record.unrecorded cimport OPERATOR_KINDS

ao_use_reads(reads_address())
cdef object base = private.TensorBase
cdef object all_disabled = private.is_torch_function_all_disabled
cdef object functions_enabled = private.is_torch_function_enabled
cdef object MethodDescriptor = type(base.__dict__["add"])
cdef object BuiltinFunction = type(len)
cdef object push = private.push_on_torch_function_stack
cdef object pop = private.pop_torch_function_stack
cdef dict handlers = {}
cdef object classify = None
cdef set kinds_met = set()               # classes of tensors, as torch names them to a mode, that need no word
cdef object note_kind = None
cdef object equals = Tensor.__eq__        # the one operator whose second operand torch does not look at before a mode
cdef object Wrapper = type(Tensor.dtype.__get__)
cdef set plain_reads = {base.__dict__[name] for name in "shape dtype device ndim layout is_nested is_sparse is_cuda is_cpu is_meta \
is_quantized is_mkldnn is_mps is_xpu itemsize nbytes names".split() if name in base.__dict__}


cdef object gradient = base.__dict__["grad"]      # of what nothing has recorded it is no operation, either


cdef dict known_operators = {}           # id of an operator of `torch.ops` -> its handler
cdef list kept_operators = []            # these operators, so that an address stays one object's


cdef object read(object descr, object t):
    """A property of a CustomTensor, without asking any torch-function mode."""
    cdef size_t before
    if ao_all_off(all_disabled):
        return ao_get(descr, t)
    before = functions_off()
    try:
        return ao_get(descr, t)
    finally:
        functions_on(before)

cdef bint stranger(object types) except -1:
    """Is one of the classes that come here for the first time no tensor, and may answer itself?

    A class of the user's that is one computes as a tensor does.
    """
    if type(types) is not tuple:
        return False
    for kind in types:
        if not issubclass(kind, Tensor) or issubclass(kind, Uninitialized):
            return functions_enabled()
    for kind in types:
        note_kind(kind)
    if len(kinds_met) > 1000:
        kinds_met.clear()
    kinds_met.add(types)
    return False


cdef object ask_strangers(object func, tuple types, tuple args, dict kwargs):
    """What the classes that are no tensors, or none yet, say of the call; what they compute is recorded."""
    push(MODE)
    try:
        for kind in types:
            if not issubclass(kind, Tensor) or issubclass(kind, Uninitialized):
                r = kind.__torch_function__(func, types, args, kwargs or {})
                if r is not NotImplemented:
                    return r
    finally:
        pop()
    return NotImplemented                # torch says that nobody takes the call


cdef extern from *:
    """
    static int ao_lasting(PyObject *f) {
        /* a method of a class or a function of a module or class, which holds nothing that a program makes */
        PyObject *self;
        if (Py_IS_TYPE(f, &PyMethodDescr_Type)) return 1;
        if (!PyCFunction_CheckExact(f)) return 0;
        self = PyCFunction_GET_SELF(f);
        return self == NULL || PyModule_Check(self) || PyType_Check(self);
    }
    """
    bint ao_lasting(object f)

cdef struct Known:
    PyObject *func                       # held, so that its address stays its own
    PyObject *handler                    # which `handlers` holds

cdef enum:
    REMAINDERS = 512

cdef Known known_handlers[REMAINDERS]    # the latest of each remainder of addresses


cdef object handler_of(object func):
    """The route of a callable; those of `torch.ops` are hashed in Python, and found by what they are."""
    cdef Known *known = &known_handlers[<size_t><PyObject *>func // 16 % REMAINDERS]
    if known.func == <PyObject *>func:
        return <object>known.handler
    cdef object handler, kind = type(func)
    cdef bint known_by_place = kind is not MethodDescriptor and kind is not BuiltinFunction and kind in OPERATOR_KINDS
    if known_by_place:
        handler = known_operators.get(<size_t><PyObject *>func)
        if handler is not None:
            return handler
    handler = handlers.get(func)
    if handler is None:
        handler = handlers[func] = classify(func)
    if known_by_place:
        kept_operators.append(func)
        known_operators[<size_t><PyObject *>func] = handler
    elif ao_lasting(func):
        Py_INCREF(func)
        if known.func != NULL:
            Py_DECREF(<object>known.func)
        known.func, known.handler = <PyObject *>func, <PyObject *>handler
    return handler


def forget_routes():
    """Look routes up again: `handlers` was changed."""
    cdef Py_ssize_t i
    for i in range(REMAINDERS):
        if known_handlers[i].func != NULL:
            Py_DECREF(<object>known_handlers[i].func)
            known_handlers[i].func = NULL


cdef object torch_function(object func, types, tuple args, dict kwargs):
    """What the mode does of a call: one dictionary look-up, then the callable's route."""
    if type(func) is Wrapper and len(args) == 1 and ordinary(args[0]) and not kwargs and func.__name__ == "__get__":
        owner = func.__self__
        if owner in plain_reads or owner is gradient and ao_held(args[0], NODE) == NULL:
            return read(owner, args[0])                  # a property that is no operation
    if types and (len(types) > 1 or types[0] is not CustomTensor) and types not in kinds_met and recording() != NULL \
            and stranger(types):
        return ask_strangers(func, types, args, kwargs)
    if func is equals and len(args) == 2 and foreign_kind(args[1]) and type(args[1]) is not tuple \
            and type(args[1]) is not list and recording() != NULL and functions_enabled():
        return ask_strangers(Tensor.eq, (type(args[1]),), args, kwargs)
    handler = handler_of(func)
    if kwargs is None:
        kwargs = {}
    if isinstance(handler, Route):
        return (<Route>handler).run(func, args, kwargs)
    lent(args, kwargs)
    return handler(func, args, placed(func, kwargs))


cdef extern from *:
    """
    static PyObject *ao_named_of_mode(PyObject *self, char *name) {
        PyObject *word, *r;
        if (!strcmp(name, "__torch_function__") || !strcmp(name, "__self__")) return Py_NewRef(self);
        if ((word = PyUnicode_FromString(name)) == NULL) return NULL;
        r = PyObject_GenericGetAttr(self, word);
        Py_DECREF(word);
        return r;
    }
    static void ao_take_names(PyObject *mode) { Py_TYPE(mode)->tp_getattr = ao_named_of_mode; }
    """
    void ao_take_names(object mode)


cdef class Mode:
    """A torch-function mode that is its own `__torch_function__`.

    torch looks that name up for each call, asks what it finds for its `__self__`, and looks it up again, past Python's
    cache of names that classes have: a third of what calling a mode costs.  It has the names in C, and C's slot for
    attributes, where a class has it, is asked without a string that is made for it.
    """

    def __getattribute__(self, name):
        return self if name == "__torch_function__" or name == "__self__" else PyObject_GenericGetAttr(self, name)

    def __call__(self, func, types, args=(), kwargs=None):
        return torch_function(func, types, args, kwargs)


def install_routes(dict table, classifier, mode, note):
    """The dictionary of routes, what fills it on a callable's first sight, the mode, what says a word of a class."""
    global handlers, classify, note_kind
    handlers, classify, note_kind = table, classifier, note
    ao_take_names(mode)
    install_mode(mode)
    install_casts(mode)
