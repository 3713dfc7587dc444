"""Call torch's own modules without the interpreter between `module(x)` and what it computes.

`Module.__call__` asks for hooks through two Python functions, and every attribute of a module is
looked up through `__getattr__`: 3 microseconds for a `Linear`, as long as its kernel on a small batch.
While a graph records in this thread, the classes of `torch.nn` do the same here.  What takes part in a call is looked at
each time: hooks, of the module and global; `forward` and `__call__`, of the object and of the class,
which a version number of CPython's stands for; tracers and profilers, which want to see the functions.
Where anything is not as torch has made it, the call goes on to torch.

It is the class's C slot that changes, so that `Module.__call__` stays what it is; whoever writes to
that attribute gets CPython's slot back, for all classes, until a graph opens when it is torch's again.
"""

import sys

import torch

from cpython.object cimport PyObject

from autograd_opt.abi import torch_private as private
from autograd_opt.abi.ctorch cimport ao_call
from autograd_opt.graph.tape cimport Tape
from autograd_opt.graph.thread_state cimport recording
from autograd_opt.record.arguments cimport foreign, mode_innermost
from autograd_opt.record.hot_operators cimport KERNELS, Kernel, fast_unary
from autograd_opt.record.routes cimport Recorded
from autograd_opt.record.torch_function cimport handlers

cdef extern from *:
    """
    static ternaryfunc ao_slot_call;     /* CPython's, which looks up __call__ */
    static PyObject *(*ao_module_call)(PyObject *, PyObject *, PyObject *);
    static PyObject *ao_call_entry(PyObject *self, PyObject *args, PyObject *kwargs) {
        PyObject *r = ao_module_call(self, args, kwargs);
        if (r != Py_NotImplemented) return r;
        Py_DECREF(r);
        return ao_slot_call(self, args, kwargs);
    }
    static int ao_take_call(PyObject *type) {
        PyTypeObject *t = (PyTypeObject *)type;
        if (ao_slot_call == NULL) ao_slot_call = t->tp_call;
        if (t->tp_call != ao_slot_call || t->tp_call == NULL) return 0;
        t->tp_call = ao_call_entry;
        return 1;
    }
    static CYTHON_INLINE int ao_call_taken(PyObject *type) {
        return ((PyTypeObject *)type)->tp_call == ao_call_entry;
    }
    static CYTHON_INLINE unsigned int ao_type_version(PyObject *type) {
        return ((PyTypeObject *)type)->tp_version_tag;
    }
    static CYTHON_INLINE PyObject *ao_attributes(PyObject *o) {
        /* borrowed, NULL where there are none */
        PyObject **place = _PyObject_GetDictPtr(o);
        return place == NULL ? NULL : *place;
    }
    static CYTHON_INLINE unsigned long long ao_dict_version(PyObject *d) {
        /* another number after each change, the same for no two dictionaries (PEP 509); 0 where there is none */
    #if PY_VERSION_HEX < 0x030C0000 && !defined(PYPY_VERSION)
        return ((PyDictObject *)d)->ma_version_tag;
    #else
        return 0;
    #endif
    }
    static CYTHON_INLINE int ao_traced(void) {
        PyThreadState *s = PyThreadState_Get();
        return s->c_tracefunc != NULL || s->c_profilefunc != NULL;
    }
    """
    unsigned long long ao_dict_version(PyObject *d)
    object (*ao_module_call)(PyObject *, PyObject *, PyObject *)
    int ao_take_call(object type)
    bint ao_call_taken(object type)
    unsigned int ao_type_version(object type)
    PyObject *ao_attributes(object o)
    bint ao_traced()

cdef extern from "Python.h":
    PyObject *PyDict_GetItemWithError(object d, object key) except? NULL
    Py_ssize_t PyDict_Size(object d) except -1
    bint PyDict_Check(object d)

cdef enum How:
    FORWARD, LINEAR, ACTIVATION, SEQUENTIAL

cdef object Module = torch.nn.Module
cdef object Linear = torch.nn.Linear
cdef object linear_function = private.nn.linear
cdef dict functional_names = torch.nn.functional.__dict__
cdef dict torch_names = torch.__dict__
cdef dict module_names = torch.nn.modules.module.__dict__
cdef dict trace_names = private.jit_trace.__dict__
cdef tuple GLOBAL_HOOKS = private.GLOBAL_MODULE_HOOKS
cdef tuple HOOKS = private.MODULE_HOOKS
cdef tuple OVERRIDES = ("forward", *private.MODULE_CALLS)
cdef str PARAMETERS = private.MODULE_PARAMETERS
cdef str CHILDREN = private.MODULE_CHILDREN
cdef str TRACED_MODULES = private.TRACED_MODULES
cdef dict layers = {}                    # class of torch.nn -> its Layer
cdef object call_impl = private.module_call
cdef object wrapped_call_impl = Module.__call__
cdef object module_getattr = Module.__getattr__
cdef object sequential_iter = torch.nn.Sequential.__iter__


cdef class Layer:
    """A class of torch's modules: how its objects are called.

    Parameters
    ----------
    kind : the class.
    how : what `forward` does, where it is done here.
    names, name, function : the dictionary, the name and the function that an activation's `forward` looks up.
    op : its operator.
    """
    cdef object kind, forward, function
    cdef dict names
    cdef str name, op
    cdef int how
    cdef unsigned int version            # of the class, when it was found to be as torch has made it

    def __init__(self, kind, int how, dict names, str name, str op):
        self.kind, self.how, self.names, self.name, self.op = kind, how, names, name, op
        self.forward = kind.forward
        self.function = None if names is None else names[name]

    cdef bint intact(self) except -1:
        """Is the class as torch has made it?"""
        kind = self.kind
        if self.version != 0 and ao_type_version(kind) == self.version:
            return True
        if kind.__call__ is not wrapped_call_impl or private.call_of(kind) is not call_impl or kind.forward is not self.forward \
                or kind.__getattr__ is not module_getattr or private.has_compiled_call(kind) \
                or kind.__getattribute__ is not object.__getattribute__:
            return False
        if self.how == SEQUENTIAL and kind.__iter__ is not sequential_iter:
            return False
        if self.how == LINEAR and (hasattr(kind, "weight") or hasattr(kind, "bias")):
            return False
        self.version = ao_type_version(kind)
        return True


cdef struct Found:                        # what a dictionary of attributes holds, all of it borrowed
    unsigned long long version           # of the dictionary; 0 for none
    PyObject *hooks[4]
    PyObject *parameters                 # NULL where it is no dictionary
    PyObject *modules
    bint plain                           # a weight and a bias are not attributes of their own
    unsigned long long changed           # version of `parameters` when these were found there:
    PyObject *weight
    PyObject *bias

cdef Found _found[256]                   # by version
cdef Found _globals                      # the hooks for all modules
cdef object tool_at = getattr(getattr(sys, "monitoring", None), "get_tool", None)     # Python 3.12 and later
cdef bint _monitored = False             # had a tool registered for events of the interpreter when the latest graph opened?
cdef unsigned long long _traces = 0      # version of the dictionary that says that nothing is being traced


cdef bint hooks_in(PyObject *names, tuple words, Found *found) except -1:
    """Look up the dictionaries of hooks; False where one is missing."""
    cdef Py_ssize_t i
    for i in range(4):
        found.hooks[i] = PyDict_GetItemWithError(<object>names, words[i])
        if found.hooks[i] == NULL or not PyDict_Check(<object>found.hooks[i]):
            return False
    return True


cdef PyObject *dictionary_in(PyObject *names, str word) except? NULL:
    cdef PyObject *found = PyDict_GetItemWithError(<object>names, word)
    return found if found != NULL and type(<object>found) is dict else NULL


cdef Found *found_in(PyObject *own) except? NULL:
    """What the attributes of a module are; NULL where something of its own takes part in its call."""
    cdef unsigned long long version = ao_dict_version(own)
    cdef Found *found = &_found[(version * 0x9E3779B97F4A7C15ULL) >> 56]
    if version != 0 and found.version == version:
        return found
    found.version = found.changed = 0
    if not hooks_in(own, HOOKS, found):
        return NULL
    for name in OVERRIDES:
        if PyDict_GetItemWithError(<object>own, name) != NULL:
            return NULL
    found.plain = PyDict_GetItemWithError(<object>own, "weight") == NULL and PyDict_GetItemWithError(<object>own, "bias") == NULL
    found.parameters, found.modules = dictionary_in(own, PARAMETERS), dictionary_in(own, CHILDREN)
    found.version = version
    return found


cdef inline bint empty(Found *found) except -1:
    """Are there no hooks?"""
    return PyDict_Size(<object>found.hooks[0]) == 0 and PyDict_Size(<object>found.hooks[1]) == 0 \
        and PyDict_Size(<object>found.hooks[2]) == 0 and PyDict_Size(<object>found.hooks[3]) == 0


cdef bint unwatched() except -1:
    """Does nothing see all calls of modules: no global hook, no trace, no tracer or profiler of Python's?"""
    global _traces
    cdef unsigned long long version = ao_dict_version(<PyObject *>module_names)
    if version == 0 or _globals.version != version:
        _globals.version = 0
        if not hooks_in(<PyObject *>module_names, GLOBAL_HOOKS, &_globals):
            return False
        _globals.version = version
    version = ao_dict_version(<PyObject *>trace_names)
    if version == 0 or _traces != version:
        _traces = 0
        if PyDict_GetItemWithError(trace_names, TRACED_MODULES) != <PyObject *>None:
            return False
        _traces = version
    return empty(&_globals) and not ao_traced() and not _monitored


cdef int look_for_tools() except -1:
    """Note whether a debugger or profiler listens through `sys.monitoring`, which the thread's state does not show."""
    global _monitored
    _monitored = False
    if tool_at is not None:
        for number in range(6):          # all that there can be
            if tool_at(number) is not None:
                _monitored = True
    return 0


cdef object call_module(PyObject *self, PyObject *arguments, PyObject *named):
    """`module(*args, **kwargs)` for a module of torch's own; NotImplemented where torch has to do it."""
    cdef PyObject *tp = recording()
    cdef object module = <object>self, args = <object>arguments
    cdef Layer layer
    cdef Found *found
    cdef PyObject *own
    if tp == NULL or (<Tape>tp).guarded:
        return NotImplemented
    layer = <Layer>layers.get(type(module))
    own = ao_attributes(module)
    if layer is None or own == NULL or not layer.intact() or not unwatched():
        return NotImplemented
    found = found_in(own)
    if found == NULL or not empty(found):
        return NotImplemented
    if layer.how != FORWARD and len(<tuple>args) == 1 and (named == NULL or PyDict_Size(<object>named) == 0):
        r = NotImplemented
        if layer.how == SEQUENTIAL:
            r = NotImplemented if found.modules == NULL else call_in_turn(<dict>found.modules, (<tuple>args)[0])
        elif mode_innermost():
            if layer.how == LINEAR:
                r = call_linear(found, (<tuple>args)[0])
            else:
                r = call_activation(layer, <dict>own, (<tuple>args)[0])
        if r is not NotImplemented:
            return r
    return ao_call(layer.forward, (module, *args), None if named == NULL else <object>named)


cdef object call_in_turn(dict modules, object x):
    """What `Sequential.forward` returns."""
    for module in modules.values():
        x = module(x)
    return x


cdef object call_linear(Found *found, object x):
    """What `Linear.forward` returns."""
    cdef object route
    cdef unsigned long long version
    if not found.plain or found.parameters == NULL or foreign(x) \
            or PyDict_GetItemWithError(functional_names, "linear") != <PyObject *>linear_function:
        return NotImplemented
    version = ao_dict_version(found.parameters)
    if version == 0 or version != found.changed:
        found.weight = PyDict_GetItemWithError(<object>found.parameters, "weight")
        found.bias = PyDict_GetItemWithError(<object>found.parameters, "bias")
        found.changed = version
    if found.weight == NULL or found.bias == NULL:
        return NotImplemented
    route = handlers.get(linear_function)
    if type(route) is not Recorded:
        return NotImplemented
    return (<Recorded>route).run(linear_function, (x, <object>found.weight, <object>found.bias), {})


cdef object call_activation(Layer layer, dict own, object x):
    """What `forward` returns of a module that is one function without parameters."""
    cdef object r
    if layer.names.get(layer.name) is not layer.function or own.get("inplace", False) is not False:
        return NotImplemented
    r = fast_unary(<Kernel>KERNELS[layer.op], x)
    return NotImplemented if r is None else r


cdef bint calls_lost() except -1:
    """Was `Module.__call__` written to, and is torch's again?"""
    return not ao_call_taken(Linear) and Module.__call__ is wrapped_call_impl


def take_calls():
    """Give the classes of `torch.nn` the entry above; how many were taken."""
    global ao_module_call
    cdef dict ways = {torch.nn.Linear: (LINEAR, None, "", ""), torch.nn.Sequential: (SEQUENTIAL, None, "", ""),
                      torch.nn.ReLU: (ACTIVATION, functional_names, "relu", "relu"),
                      torch.nn.Tanh: (ACTIVATION, torch_names, "tanh", "tanh"),
                      torch.nn.Sigmoid: (ACTIVATION, torch_names, "sigmoid", "sigmoid")}
    cdef list waiting = Module.__subclasses__()
    ao_module_call = call_module
    while waiting:
        kind = waiting.pop()
        if not kind.__module__.startswith("torch.nn.modules."):
            continue
        waiting.extend(kind.__subclasses__())
        if kind in layers:
            ao_take_call(kind)
        elif kind.__call__ is wrapped_call_impl and type(kind.forward) is type(wrapped_call_impl) and ao_take_call(kind):
            way = ways.get(kind) if kind.forward.__code__.co_filename == sys.modules[kind.__module__].__file__ else None
            layers[kind] = Layer(kind, *(way or (FORWARD, None, "", "")))
    return len(layers)
