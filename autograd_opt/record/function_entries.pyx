"""Give torch's built-in functions an entry of their own, which is asked before torch packs the arguments for a mode.

A built-in function of torch's calling convention has no vectorcall entry (PEP 590), and the
interpreter packs a tuple and calls it.  The functions of the operator table are given one, once,
at the first graph.  It packs the same tuple and asks whether a graph records here: if so, the
call takes the route that the mode would have sent it on; if not, it goes on into torch.  The
function objects stay what they are, whoever has imported them under whatever name.
"""

from cpython.object cimport PyObject

from autograd_opt.graph.node cimport PlainTensor as Tensor
from autograd_opt.graph.tape cimport Tape, active_tape
from autograd_opt.graph.thread_state cimport recording
from autograd_opt.record.arguments cimport foreigners, mode_innermost
from autograd_opt.record.reads cimport escaped
from autograd_opt.record.routes cimport Route
from autograd_opt.record.torch_function cimport handler_of

cdef extern from *:
    """
    static PyObject *(*ao_route)(PyObject *, PyObject *, PyObject *);
    static CYTHON_INLINE PyObject *ao_enter_torch(PyObject *f, PyObject *args, PyObject *kwargs) {
        PyCFunctionWithKeywords entry = (PyCFunctionWithKeywords)(void (*)(void))PyCFunction_GET_FUNCTION(f);
        return entry(PyCFunction_GET_SELF(f), args, kwargs);
    }
    static PyObject *ao_vectorcall(PyObject *f, PyObject *const *a, size_t nf, PyObject *names) {
        Py_ssize_t i, n = PyVectorcall_NARGS(nf), m = names == NULL ? 0 : PyTuple_GET_SIZE(names);
        PyObject *args = PyTuple_New(n), *kwargs = NULL, *r = NULL;
        if (args == NULL) return NULL;
        for (i = 0; i < n; i++) {
            Py_INCREF(a[i]);
            PyTuple_SET_ITEM(args, i, a[i]);
        }
        if (m) {
            kwargs = PyDict_New();
            if (kwargs == NULL) goto done;
            for (i = 0; i < m; i++)
                if (PyDict_SetItem(kwargs, PyTuple_GET_ITEM(names, i), a[n + i]) < 0) goto done;
        }
        if (Py_EnterRecursiveCall(" in a torch function")) goto done;
        r = ao_route(f, args, kwargs);
        Py_LeaveRecursiveCall();
    done:
        Py_DECREF(args);
        Py_XDECREF(kwargs);
        return r;
    }
    static int ao_take(PyObject *f) {
        PyCFunctionObject *c = (PyCFunctionObject *)f;
        if (!PyCFunction_CheckExact(f) || c->vectorcall != NULL) return 0;
        if ((PyCFunction_GET_FLAGS(f) & ~METH_STATIC) != (METH_VARARGS | METH_KEYWORDS)) return 0;
        c->vectorcall = (vectorcallfunc)ao_vectorcall;
        return 1;
    }
    static int (*ao_export)(PyObject *);
    static PyObject *ao_export_entry(PyObject *f, PyObject *const *a, size_t nf, PyObject *names) {
        if ((PyVectorcall_NARGS(nf) > 0 || names != NULL) && ao_export(a[0]) < 0) return NULL;
        return ao_vectorcall(f, a, nf, names);
    }
    static void ao_take_export(PyObject *f) {
        if (ao_take(f)) ((PyCFunctionObject *)f)->vectorcall = (vectorcallfunc)ao_export_entry;
    }
    """
    object ao_enter_torch(object f, PyObject *args, PyObject *kwargs)
    object (*ao_route)(PyObject *, PyObject *, PyObject *)
    int ao_take(object f)
    int (*ao_export)(PyObject *) except -1
    void ao_take_export(object f)


cdef object route(PyObject *function, PyObject *args, PyObject *kwargs):
    """The call of a built-in function that was taken."""
    cdef PyObject *tp = recording()
    cdef object func = <object>function, handler
    if tp != NULL and not (<Tape>tp).guarded and mode_innermost() \
            and not foreigners(<tuple>args, <dict>kwargs if kwargs != NULL else None):
        handler = handler_of(func)
        if isinstance(handler, Route):
            return (<Route>handler).run(func, <tuple>args, <dict>kwargs if kwargs != NULL else {})
    return ao_enter_torch(func, args, kwargs)


cdef int export(PyObject *t) except -1:
    """`t` is about to be given to a function that hands its memory out, and that no mode of torch functions sees."""
    cdef Tape tape = active_tape()
    if tape is not None and not tape.guarded and isinstance(<object>t, Tensor):
        escaped(<object>t)
    return 0


def take_exports(functions):
    """Let each of these functions note first that memory leaves torch."""
    global ao_route, ao_export
    ao_route, ao_export = route, export
    for f in functions:
        ao_take_export(f)


def take(functions):
    """Give built-in functions the entry above; how many were taken.

    A function of another form (another convention, one that has an entry) is left alone: its
    calls go the way of the mode.
    """
    global ao_route
    ao_route = route
    return sum([ao_take(f) for f in functions])
