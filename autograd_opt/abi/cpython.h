/* Calls, attributes and frames through structures of CPython, and what a Python that has others does instead. */
#ifndef AO_CPYTHON_H
#define AO_CPYTHON_H
#include <Python.h>
#include <stdint.h>
#if defined(_MSC_VER)
#define AO_THREAD __declspec(thread)
#else
#define AO_THREAD __thread
#endif

static CYTHON_INLINE PyObject *ao_get(PyObject *descr, PyObject *self) {
    PyGetSetDef *g = ((PyGetSetDescrObject *)descr)->d_getset;
    return g->get(self, g->closure);
}
static CYTHON_INLINE PyObject *ao_own(PyObject *descr) {
    /* the property as torch has it, whatever `record/reads.pyx` makes of the class's */
    PyGetSetDescrObject *d = (PyGetSetDescrObject *)descr;
    return PyDescr_NewGetSet(PyDescr_TYPE(d), d->d_getset);
}
static CYTHON_INLINE int ao_set(PyObject *descr, PyObject *self, PyObject *value) {
    PyGetSetDef *g = ((PyGetSetDescrObject *)descr)->d_getset;
    return g->set(self, value, g->closure);
}
static CYTHON_INLINE long long ao_number(PyObject *r) {
    long long n;
    if (r == NULL) return -1;
    n = PyLong_AsLongLong(r);
    Py_DECREF(r);
    return n;
}
static CYTHON_INLINE long long ao_get_int(PyObject *descr, PyObject *self) {
    /* a property that is a number, not negative; -1 with an exception set */
    return ao_number(ao_get(descr, self));
}
static CYTHON_INLINE PyObject *ao_method0(PyObject *descr, PyObject *self) {
    return ((PyMethodDescrObject *)descr)->d_method->ml_meth(self, NULL);
}
static CYTHON_INLINE PyObject *ao_method(PyObject *descr, PyObject *self, PyObject *args) {
    /* METH_VARARGS and METH_VARARGS|METH_KEYWORDS: both accept (self, args[, NULL]) */
    PyMethodDef *m = ((PyMethodDescrObject *)descr)->d_method;
    if (m->ml_flags & METH_KEYWORDS)
        return ((PyCFunctionWithKeywords)(void (*)(void))m->ml_meth)(self, args, NULL);
    if (m->ml_flags & METH_NOARGS) return m->ml_meth(self, NULL);
    if (m->ml_flags & METH_O) return m->ml_meth(self, PyTuple_GET_ITEM(args, 0));
    return m->ml_meth(self, args);
}
static PyObject *ao_call_bound(PyObject *f, PyObject *args, PyObject *kwargs) {
    /* a method of a C class, or the function of one of its slots; NULL without an exception for another callable */
    PyObject *self, *rest, *r = NULL;
    int method = Py_IS_TYPE(f, &PyMethodDescr_Type), slot = Py_IS_TYPE(f, &PyWrapperDescr_Type);
    if ((!method && !slot) || PyTuple_GET_SIZE(args) == 0) return NULL;
    self = PyTuple_GET_ITEM(args, 0);
    if (!PyObject_TypeCheck(self, PyDescr_TYPE(f))) return NULL;
    if (method) {
        PyMethodDef *m = ((PyMethodDescrObject *)f)->d_method;
        if (m->ml_flags == METH_NOARGS) return PyTuple_GET_SIZE(args) == 1 && kwargs == NULL ? m->ml_meth(self, NULL) : NULL;
        if (m->ml_flags != (METH_VARARGS | METH_KEYWORDS)) return NULL;
        rest = PyTuple_GetSlice(args, 1, PyTuple_GET_SIZE(args));
        if (rest != NULL) r = ((PyCFunctionWithKeywords)(void (*)(void))m->ml_meth)(self, rest, kwargs);
    }
    else {
        PyWrapperDescrObject *w = (PyWrapperDescrObject *)f;
        if (kwargs != NULL || w->d_base->flags & PyWrapperFlag_KEYWORDS) return NULL;
        rest = PyTuple_GetSlice(args, 1, PyTuple_GET_SIZE(args));
        if (rest != NULL) r = w->d_base->wrapper(self, rest, w->d_wrapped);
    }
    Py_XDECREF(rest);
    return r;
}
static CYTHON_INLINE PyObject *ao_call(PyObject *f, PyObject *args, PyObject *kwargs) {
    /* a built-in function or method of torch's straight away, past the entry that record/ gives it */
    PyObject *r;
    if (kwargs == Py_None || (kwargs != NULL && PyDict_GET_SIZE(kwargs) == 0)) kwargs = NULL;
    if (Py_EnterRecursiveCall(" in a torch function")) return NULL;
    if (PyCFunction_CheckExact(f) && (PyCFunction_GET_FLAGS(f) & ~METH_STATIC) == (METH_VARARGS | METH_KEYWORDS))
        r = ((PyCFunctionWithKeywords)(void (*)(void))PyCFunction_GET_FUNCTION(f))(PyCFunction_GET_SELF(f), args, kwargs);
    else {
        r = ao_call_bound(f, args, kwargs);
        if (r == NULL && !PyErr_Occurred()) r = PyObject_Call(f, args, kwargs);
    }
    Py_LeaveRecursiveCall();
    return r;
}
static CYTHON_INLINE PyObject *ao_builtin0(PyObject *func) {
    return PyCFunction_GET_FUNCTION(func)(PyCFunction_GET_SELF(func), NULL);
}
/* Pythons whose `_PyObject_GetDictPtr` makes an object's attributes a dict of their own, and shows its place */
#if PY_VERSION_HEX >= 0x030B0000 && PY_VERSION_HEX < 0x030E0000 && !defined(PYPY_VERSION) && !defined(Py_GIL_DISABLED)
#define AO_SHOWS_DICTS
#endif
#ifdef Py_TPFLAGS_INLINE_VALUES
#define AO_INLINE_VALUES(o) PyType_HasFeature(Py_TYPE(o), Py_TPFLAGS_INLINE_VALUES)
#else
#define AO_INLINE_VALUES(o) 0
#endif
static CYTHON_INLINE int ao_set_type(PyObject *o, PyObject *type) {
#ifdef AO_SHOWS_DICTS
    /* the names of attributes stored inside the object belong to its class: a dict instead,
       which asking for its place makes where there is any attribute */
    PyTypeObject *old = Py_TYPE(o);
    (void)_PyObject_GetDictPtr(o);
    Py_INCREF(type);
    Py_SET_TYPE(o, (PyTypeObject *)type);
    Py_DECREF((PyObject *)old);
    return 0;
#else
    /* the setter of `object.__class__` itself: finding it by its name costs several times what it does */
    static setter set_class = NULL;
    PyGetSetDef *g = set_class == NULL ? PyBaseObject_Type.tp_getset : NULL;
    for (; g != NULL && g->name != NULL; g++)
        if (strcmp(g->name, "__class__") == 0) set_class = g->set;
    return set_class == NULL ? PyObject_SetAttrString(o, "__class__", type) : set_class(o, type, NULL);
#endif
}
#if PY_VERSION_HEX >= 0x030D0000
#define AO_CLEAR_MANAGED_DICT PyObject_ClearManagedDict
#elif PY_VERSION_HEX >= 0x030C0000
#define AO_CLEAR_MANAGED_DICT _PyObject_ClearManagedDict
#endif
static CYTHON_INLINE int ao_strip(PyObject *o) {
    /* drop the attributes of an object that only its memory is wanted of */
    PyObject **place;
#if PY_VERSION_HEX >= 0x030C0000 && !defined(PYPY_VERSION)
    if (PyType_HasFeature(Py_TYPE(o), Py_TPFLAGS_MANAGED_DICT)) {     /* they may lie in the object, without a dict */
        AO_CLEAR_MANAGED_DICT(o);
        return 0;
    }
#endif
    place = _PyObject_GetDictPtr(o);
    if (place != NULL) Py_CLEAR(*place);
    return 0;
}
static CYTHON_INLINE int ao_forget(PyObject *o, PyObject *name) {
    /* `ao_strip` for an object that gets the attribute `name` again soon: the place stays */
    PyObject **place = _PyObject_GetDictPtr(o);
    if (place == NULL || *place == NULL) return 0;
    if (PyDict_GET_SIZE(*place) == 1 && Py_REFCNT(*place) == 1 && PyDict_GetItem(*place, name) != NULL)
        return PyDict_SetItem(*place, name, Py_None);
    return ao_strip(o);
}
static CYTHON_INLINE PyObject *ao_silent_attr(PyObject *o, PyObject *name) {
    /* a plain instance attribute or NULL: nothing is allocated, no exception made, also for the
       collector of cycles; torch.Tensor uses the generic lookup, which is what this calls directly */
#if PY_VERSION_HEX >= 0x030D0000
    PyObject *r = NULL;
    if (Py_TYPE(o)->tp_getattro == PyObject_GenericGetAttr && PyObject_GetOptionalAttr(o, name, &r) < 0) PyErr_Clear();
    return r;
#else
    return _PyObject_GenericGetAttrWithDict(o, name, NULL, 1);
#endif
}
static CYTHON_INLINE PyObject *ao_try_attr(PyObject *o, PyObject *name) {
    PyObject *r = ao_silent_attr(o, name);
    if (r == NULL && PyErr_Occurred()) PyErr_Clear();
    return r;
}
static CYTHON_INLINE PyObject *ao_held(PyObject *o, PyObject *name) {
    /* borrowed: an attribute that lies in the dict of `o` itself; NULL without an exception where there is none.
       Where an object's attributes can lie elsewhere, the class is asked as well. */
#ifdef AO_SHOWS_DICTS
    PyObject **place = _PyObject_GetDictPtr(o);
    return place == NULL || *place == NULL ? NULL : PyDict_GetItemWithError(*place, name);
#else
    PyObject *r = ao_try_attr(o, name);
    Py_XDECREF(r);
    return r;
#endif
}
static CYTHON_INLINE int ao_hold(PyObject *o, PyObject *name, PyObject *value) {
    /* set an attribute that `ao_held` finds, and that no class has by that name */
#ifdef AO_SHOWS_DICTS
    PyObject **place = _PyObject_GetDictPtr(o);
    if (place != NULL && (*place != NULL || !AO_INLINE_VALUES(o))) {
        if (*place == NULL && (*place = PyDict_New()) == NULL) return -1;
        return PyDict_SetItem(*place, name, value);
    }
#endif
    return PyObject_GenericSetAttr(o, name, value);
}
static CYTHON_INLINE PyObject *ao_referent(PyObject *reference) {
    /* what a weak reference leads to, borrowed from whoever owns it; NULL where it is gone */
#if PY_VERSION_HEX >= 0x030D0000
    PyObject *found = NULL;
    if (PyWeakref_GetRef(reference, &found) < 0) PyErr_Clear();
    Py_XDECREF(found);
    return found;
#else
    PyObject *found = PyWeakref_GetObject(reference);
    return found == Py_None ? NULL : found;
#endif
}
/* The exception that is being raised, put aside while a finalizer works. */
#if PY_VERSION_HEX >= 0x030C0000
typedef struct { PyObject *value; } ao_raised;
static CYTHON_INLINE ao_raised ao_put_aside(void) {
    ao_raised r = { PyErr_GetRaisedException() };
    return r;
}
static CYTHON_INLINE void ao_raise_again(ao_raised r) { PyErr_SetRaisedException(r.value); }
static CYTHON_INLINE void ao_drop_raised(ao_raised r) { Py_XDECREF(r.value); }
#else
typedef struct { PyObject *type, *value, *traceback; } ao_raised;
static CYTHON_INLINE ao_raised ao_put_aside(void) {
    ao_raised r;
    PyErr_Fetch(&r.type, &r.value, &r.traceback);
    return r;
}
static CYTHON_INLINE void ao_raise_again(ao_raised r) { PyErr_Restore(r.type, r.value, r.traceback); }
static CYTHON_INLINE void ao_drop_raised(ao_raised r) { Py_XDECREF(r.type); Py_XDECREF(r.value); Py_XDECREF(r.traceback); }
#endif
/* Frames.  Asking for frame objects makes one for every caller, which costs more than a
   small kernel in deep modules; where the interpreter's own frames are known they are read
   directly, elsewhere through the public functions. */
#if PY_VERSION_HEX >= 0x030B0000 && PY_VERSION_HEX < 0x030C0000 && !defined(PYPY_VERSION)
typedef struct ao_iframe {
    PyObject *f_func, *f_globals, *f_builtins, *f_locals;
    PyCodeObject *f_code;
    PyFrameObject *frame_obj;
    struct ao_iframe *previous;
    _Py_CODEUNIT *prev_instr;
} ao_iframe;
typedef ao_iframe *ao_frame_t;
static CYTHON_INLINE ao_frame_t ao_frame(void) {
    return (ao_frame_t)PyThreadState_Get()->cframe->current_frame;
}
static CYTHON_INLINE PyObject *ao_frame_code(ao_frame_t f) { return (PyObject *)f->f_code; }
static CYTHON_INLINE ao_frame_t ao_frame_back(ao_frame_t f) { return f->previous; }
static CYTHON_INLINE int ao_frame_lasti(ao_frame_t f) {
    int i = (int)(f->prev_instr - (_Py_CODEUNIT *)f->f_code->co_code_adaptive) * (int)sizeof(_Py_CODEUNIT);
    return i < 0 ? 0 : i;
}
static CYTHON_INLINE void ao_frame_done(ao_frame_t f) {}
#else
typedef PyFrameObject *ao_frame_t;
static CYTHON_INLINE ao_frame_t ao_frame(void) {
    PyFrameObject *f = PyEval_GetFrame();
    Py_XINCREF(f);
    return f;
}
static CYTHON_INLINE PyObject *ao_frame_code(ao_frame_t f) {
    PyCodeObject *c = PyFrame_GetCode(f);
    Py_DECREF(c);                    /* the frame holds it */
    return (PyObject *)c;
}
static CYTHON_INLINE ao_frame_t ao_frame_back(ao_frame_t f) {
    PyFrameObject *back = PyFrame_GetBack(f);
    Py_DECREF(f);
    return back;
}
static CYTHON_INLINE int ao_frame_lasti(ao_frame_t f) { return PyFrame_GetLasti(f); }
static CYTHON_INLINE void ao_frame_done(ao_frame_t f) { Py_XDECREF(f); }
#endif
static CYTHON_INLINE int ao_again(PyObject *o) {
    /* let the finalizer of an object that it has saved be called when the object dies again;
       0 where this interpreter keeps that note in another place */
#if PY_VERSION_HEX < 0x030E0000 && !defined(PYPY_VERSION) && !defined(Py_GIL_DISABLED)
    uintptr_t *prev;
    if (!PyObject_GC_IsFinalized(o)) return 1;
    prev = (uintptr_t *)o - 1;
    if (!(*prev & 1)) return 0;
    *prev ^= 1;
    if (!PyObject_GC_IsFinalized(o)) return 1;
    *prev ^= 1;
#endif
    return 0;
}
static CYTHON_INLINE int ao_has_weakrefs(PyObject *o) {
    /* where the list of them is has changed with Python's versions, so its own function says */
    return PyType_SUPPORTS_WEAKREFS(Py_TYPE(o)) && *PyObject_GET_WEAKREFS_LISTPTR(o) != NULL;
}

#endif
