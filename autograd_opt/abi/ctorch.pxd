"""Direct C entry points into torch's Python bindings, without compiling against torch.

A `getset_descriptor`, a `method_descriptor` and a built-in function each hold a C
function pointer in a public CPython structure.  Calling through it skips attribute
lookup and argument packing, which for one small kernel is a tenth of the whole cost.
"""

from cpython.object cimport PyObject
from libc.stdint cimport int64_t, uint16_t

cdef extern from *:
    """
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
        if (!method && !slot || PyTuple_GET_SIZE(args) == 0) return NULL;
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
        if (kwargs == Py_None || kwargs != NULL && PyDict_GET_SIZE(kwargs) == 0) kwargs = NULL;
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
    typedef struct {
        int32_t off;                             /* which torch functions are switched off */
        struct { PyObject **object; void *owner; } *first, *end;         /* the modes, from the outermost to behind the innermost */
    } ao_functions;
    /* What a tensor is, asked of torch's C interface instead of its Python one, which takes 15 times as long
       (`tensor_info.pyx`).  The `at::Tensor` lies in the Python object, right behind its head. */
    typedef struct {
        void *plain;                             /* the class of ordinary tensors; NULL where Python is asked about all */
        int (*dtype)(void *, int32_t *);
        int (*layout)(void *, int32_t *);
        int (*device)(void *, int32_t *);
        int (*dim)(void *, int64_t *);
        int (*sizes)(void *, int64_t **);
        int (*contiguous)(void *, _Bool *);
        void **(*version)(void *);               /* where the pointer to the version counter is */
        _Bool (*leaf)(void *);
        _Bool (*view)(void *);
        _Bool (*grad)(void *);                   /* of the implementation, not the tensor */
        int counter;                             /* where in the counter the number is */
        ao_functions *(*functions)(void);        /* this thread's torch functions; NULL where Python is asked */
        int32_t all_off;                         /* what `off` is while torch functions are switched off */
        _Bool (*recording)(void);                /* torch's grad mode; NULL where Python is asked */
        _Bool (*excluded)(uint64_t);             /* are these dispatch keys off in this thread?  NULL where Python is asked */
        uint64_t casting;                        /* autocast's dispatch keys, of all devices */
        _Bool (*key_off)(uint16_t);              /* is this dispatch key off in this thread?  NULL where Python is asked */
        void (*set_key_off)(uint16_t, _Bool);
        int keys;                                /* where in the implementation its dispatch keys are; 0 where Python is asked */
        uint64_t negative, zero, tracked;        /* dispatch keys: a lazy minus, zeros without memory, not made in inference mode */
        int storage;                             /* where in the implementation its memory is; 0 where Python is asked */
        int resizable;                           /* where the memory says whether torch may make it larger */
        int32_t strided, cpu;
        PyObject *kinds[64];                     /* torch's number of a dtype -> the dtype */
        struct { int64_t n, d[4]; PyObject *size; } shapes[256];     /* torch.Size objects that were asked for */
        PyObject *get_dtype, *get_layout, *get_cpu, *get_shape, *is_contiguous, *get_leaf, *is_view, *get_grad, *STRIDED;
        /* Kernels by their C++ entry (kernels.pyx), for the addresses of tensors; NULL where torch's bindings are called. */
        PyObject *(*mm)(void *, void *);
        PyObject *(*turned_mm)(void *, void *);  /* x.t() @ y */
        PyObject *(*sum_first)(void *);
        PyObject *(*linear)(void *, void *, void *);
        PyObject *(*threshold)(void *, void *);
        int (*threshold_into)(void *, void *);
        PyObject *(*nll)(void *, void *, void *, int64_t, int64_t, PyObject **);
        PyObject *(*nll_back)(void *, void *, void *, void *, int64_t, int64_t, void *);
        PyObject *(*convolution_back)(void *, void *, void *, const int64_t *, size_t, _Bool, int);
        PyObject *(*singles[16])(void *);        /* elementwise, by their places in the lists of `kernel_names.py` */
        PyObject *(*pairs[16])(void *, void *);
        int (*into[16])(void *, void *);         /* in the memory of the first */
        int (*products[4])(void *, void *, void *);
        PyObject *kinds_of_tensors[3];           /* the classes without a behaviour of their own */
        PyObject *start;                         /* `ao_start` where Python is asked about all */
        PyObject *is_nested, *is_quantized, *transforms, *is_wrapped;    /* what else it is asked about then */
        PyObject *disabled, *guard, *enter, *leave;      /* are torch functions off?  What switches them off, and its methods */
        PyObject *spare, *nothing;               /* one of these that is not in use, or NULL; () */
        PyObject *get_version;
    } ao_reads;
    static ao_reads *ao_r;                       /* one for all modules; each sets it when it is imported */

    #define AO_TENSOR(t) ((void *)((char *)(t) + sizeof(PyObject)))
    #define AO_PLAIN(t) (*(void **)*(void **)AO_TENSOR(t) == ao_r->plain)      /* not nested, sparse, batched ... */

    static int ao_quiet(PyObject **guard) {
        /* torch functions are off from here to `ao_loud`, which is given `guard` */
        PyObject *r = ao_builtin0(ao_r->disabled);
        *guard = NULL;
        if (r == NULL) return -1;
        Py_DECREF(r);
        if (r == Py_True) return 0;
        if ((*guard = ao_r->spare) != NULL) ao_r->spare = NULL;
        else if ((*guard = PyObject_CallNoArgs(ao_r->guard)) == NULL) return -1;
        if ((r = ao_method0(ao_r->enter, *guard)) != NULL) { Py_DECREF(r); return 0; }
        Py_CLEAR(*guard);
        return -1;
    }
    static void ao_loud(PyObject *guard) {
        if (guard == NULL) return;
        Py_XDECREF(ao_method(ao_r->leave, guard, ao_r->nothing));
        if (ao_r->spare == NULL) ao_r->spare = guard;
        else Py_DECREF(guard);
    }
    static PyObject *ao_said(PyObject *descr, PyObject *t) {
        return Py_IS_TYPE(descr, &PyMethodDescr_Type) ? ao_method(descr, t, ao_r->nothing) : ao_get(descr, t);
    }
    static PyObject *ao_ask(PyObject *descr, PyObject *t) {
        /* what Python's property or method says of `t`, without the torch-function modes that it would ask first:
           that takes 8 us, and the call is none of the program's */
        PyObject *r, *guard;
        if (ao_quiet(&guard) < 0) return NULL;
        r = ao_said(descr, t);
        ao_loud(guard);
        return r;
    }
    static CYTHON_INLINE PyObject *ao_dtype(PyObject *t) {
        int32_t k;
        if (AO_PLAIN(t) && ao_r->dtype(AO_TENSOR(t), &k) == 0 && (uint32_t)k < 64 && ao_r->kinds[k] != NULL) {
            Py_INCREF(ao_r->kinds[k]);
            return ao_r->kinds[k];
        }
        return ao_ask(ao_r->get_dtype, t);
    }
    static CYTHON_INLINE PyObject *ao_shape(PyObject *t) {
        int64_t n, *d, k;
        uint64_t h;
        PyObject *size;
        if (!AO_PLAIN(t) || ao_r->dim(AO_TENSOR(t), &n) != 0 || n > 4 || ao_r->sizes(AO_TENSOR(t), &d) != 0)
            return ao_ask(ao_r->get_shape, t);
        h = (uint64_t)n;
        for (k = 0; k < n; k++) h = (h ^ (uint64_t)d[k]) * 0x9E3779B97F4A7C15ULL;
        h >>= 56;
        if (ao_r->shapes[h].size != NULL && ao_r->shapes[h].n == n) {
            for (k = 0; k < n && ao_r->shapes[h].d[k] == d[k]; k++);
            if (k == n) {
                Py_INCREF(ao_r->shapes[h].size);
                return ao_r->shapes[h].size;
            }
        }
        size = ao_get(ao_r->get_shape, t);
        if (size != NULL) {
            PyObject *old = ao_r->shapes[h].size;
            ao_r->shapes[h].n = n;
            for (k = 0; k < n; k++) ao_r->shapes[h].d[k] = d[k];
            Py_INCREF(size);
            ao_r->shapes[h].size = size;
            Py_XDECREF(old);
        }
        return size;
    }
    static CYTHON_INLINE int ao_truth(PyObject *r) {
        int yes = r == Py_True;
        Py_XDECREF(r);
        return r == NULL ? -1 : yes;
    }
    static int ao_asked_plain(PyObject *t) {
        /* Python knows no classes of implementations, but what each of the unusual ones is for */
        int raised = PyErr_Occurred() != NULL, yes;
        PyObject *layout, *guard;
        if (ao_quiet(&guard) < 0) return 0;
        layout = ao_said(ao_r->get_layout, t);
        yes = layout == ao_r->STRIDED && ao_truth(ao_said(ao_r->is_nested, t)) == 0
            && ao_truth(ao_said(ao_r->is_quantized, t)) == 0
            && (ao_truth(PyObject_CallNoArgs(ao_r->transforms)) == 0 || ao_truth(PyObject_CallOneArg(ao_r->is_wrapped, t)) == 0);
        Py_XDECREF(layout);
        ao_loud(guard);
        if (!raised && PyErr_Occurred()) PyErr_Clear();
        return yes;
    }
    static CYTHON_INLINE int ao_plain(PyObject *t) {
        return AO_PLAIN(t) || ao_r->plain == NULL && ao_asked_plain(t);
    }
    static CYTHON_INLINE int ao_strided(PyObject *t) {
        int32_t k;
        PyObject *r;
        if (AO_PLAIN(t) && ao_r->layout(AO_TENSOR(t), &k) == 0) return k == ao_r->strided;
        r = ao_ask(ao_r->get_layout, t);
        if (r == NULL) return -1;
        Py_DECREF(r);
        return r == ao_r->STRIDED;
    }
    static CYTHON_INLINE int ao_contiguous(PyObject *t) {
        _Bool yes;
        if (AO_PLAIN(t) && ao_r->contiguous(AO_TENSOR(t), &yes) == 0) return yes;
        return ao_truth(ao_ask(ao_r->is_contiguous, t));
    }
    static CYTHON_INLINE int ao_on_cpu(PyObject *t) {
        int32_t k;
        if (AO_PLAIN(t) && ao_r->device(AO_TENSOR(t), &k) == 0) return k == ao_r->cpu;
        return ao_truth(ao_ask(ao_r->get_cpu, t));
    }
    static CYTHON_INLINE int ao_is_leaf(PyObject *t) {
        return AO_PLAIN(t) ? ao_r->leaf(AO_TENSOR(t)) : ao_truth(ao_ask(ao_r->get_leaf, t));
    }
    static CYTHON_INLINE int ao_is_view(PyObject *t) {
        return AO_PLAIN(t) ? ao_r->view(AO_TENSOR(t)) : ao_truth(ao_ask(ao_r->is_view, t));
    }
    static CYTHON_INLINE int ao_needs_grad(PyObject *t) {
        return AO_PLAIN(t) ? ao_r->grad(*(void **)AO_TENSOR(t)) : ao_truth(ao_ask(ao_r->get_grad, t));
    }
    static CYTHON_INLINE long long ao_version(PyObject *t) {
        /* -1 where Python has to be asked: an inference tensor has no counter */
        void *counter;
        if (!AO_PLAIN(t)) return -1;
        counter = *ao_r->version(AO_TENSOR(t));
        return counter == NULL ? -1 : (long long)*(volatile uint32_t *)((char *)counter + ao_r->counter);
    }
    #define AO_KEYS(t) (*(volatile uint64_t *)(*(char **)AO_TENSOR(t) + ao_r->keys))
    static CYTHON_INLINE int ao_unwritten(PyObject *t, uint64_t key, PyObject *question) {
        /* has `t` one of the keys that stand for a lazy operation? */
        return ao_r->keys && AO_PLAIN(t) ? (AO_KEYS(t) & key) != 0 : ao_truth(ao_ask(question, t));
    }
    static CYTHON_INLINE int ao_is_neg(PyObject *question, PyObject *t) { return ao_unwritten(t, ao_r->negative, question); }
    static CYTHON_INLINE int ao_is_zero(PyObject *question, PyObject *t) { return ao_unwritten(t, ao_r->zero, question); }
    static int ao_is_inference_slow(PyObject *question, PyObject *t) {
        /* an inference tensor has no version: that property takes a third of the time of the method */
        PyObject *guard, *version;
        int yes = 0;
        if (ao_quiet(&guard) < 0) return -1;
        if ((version = ao_get(ao_r->get_version, t)) == NULL) { PyErr_Clear(); yes = ao_truth(ao_said(question, t)); }
        Py_XDECREF(version);
        ao_loud(guard);
        return yes;
    }
    static CYTHON_INLINE int ao_is_inference(PyObject *question, PyObject *t) {
        return ao_r->keys && AO_PLAIN(t) && AO_KEYS(t) & ao_r->tracked ? 0 : ao_is_inference_slow(question, t);
    }
    #define AO_OWNERS 8                          /* where both kinds of objects say how many own them */
    #define AO_PYTHONS 63                        /* the bit beside that number: one of these is a Python object, kept for good */
    static CYTHON_INLINE char *ao_memory(PyObject *t) {
        /* NULL where Python has to be asked */
        return ao_r->storage && AO_PLAIN(t) ? *(char **)(*(char **)AO_TENSOR(t) + ao_r->storage) : NULL;
    }
    static CYTHON_INLINE long long ao_tensors_over(PyObject *t) {
        /* how many tensors, and others in C++, share the memory of `t`; -1 where Python has to be asked */
        char *memory = ao_memory(t);
        uint64_t owners;
        if (memory == NULL) return -1;
        owners = *(volatile uint64_t *)(memory + AO_OWNERS);
        return (long long)(uint32_t)owners - (long long)(owners >> AO_PYTHONS);
    }
    static CYTHON_INLINE long long ao_uses(PyObject *question, PyObject *t) {
        /* how many own the implementation: its Python object, and others in C++ */
        if (ao_r->storage && AO_PLAIN(t)) return (long long)*(volatile uint32_t *)(*(char **)AO_TENSOR(t) + AO_OWNERS);
        return ao_number(ao_ask(question, t));
    }
    static CYTHON_INLINE int ao_start(PyObject *t, Py_ssize_t holders, Py_ssize_t copies) {
        /* a result that torch's kernel has written in place is unwritten to the user: version 0, if only `holders` know it,
           and no tensors but `copies` lie in its memory */
        void *counter;
        volatile uint32_t *version;
        if (!AO_PLAIN(t)) {
            if (ao_r->plain == NULL && ao_r->start != NULL && Py_REFCNT(t) <= holders) {
                if (ao_number(ao_ask(ao_r->get_version, t)) > 0) {
                    PyObject *done = PyObject_CallFunction(ao_r->start, "On", t, copies);
                    Py_XDECREF(done);
                }
                if (PyErr_Occurred()) PyErr_Clear();         /* an inference tensor, say, which has no version */
            }
            return 0;
        }
        if ((counter = *ao_r->version(AO_TENSOR(t))) == NULL) return 0;
        version = (volatile uint32_t *)((char *)counter + ao_r->counter);
        if (*version != 0 && Py_REFCNT(t) <= holders && ao_tensors_over(t) == 1 + copies
                && *(volatile uint32_t *)(*(char **)AO_TENSOR(t) + AO_OWNERS) == 1) *version = 0;
        return 0;
    }
    static CYTHON_INLINE int ao_is_resizable(PyObject *t) {
        /* -1 without an exception where Python has to be asked */
        char *memory = ao_memory(t);
        return memory == NULL ? -1 : *(memory + ao_r->resizable) != 0;
    }
    static CYTHON_INLINE int ao_grad_on(PyObject *question) {
        return ao_r->recording != NULL ? ao_r->recording() : ao_truth(ao_builtin0(question));
    }
    static CYTHON_INLINE int ao_casts(PyObject *question) {
        /* does autocast take part, on any device? */
        return ao_r->excluded != NULL && ao_r->excluded(ao_r->casting) ? 0 : ao_truth(ao_builtin0(question));
    }
    static CYTHON_INLINE int ao_key_off(PyObject *question, PyObject *args, uint16_t key) {
        return ao_r->key_off != NULL ? ao_r->key_off(key) : ao_truth(ao_call(question, args, NULL));
    }
    static CYTHON_INLINE int ao_knows_keys(void) { return ao_r->key_off != NULL; }
    static CYTHON_INLINE int ao_set_key_off(PyObject *setter, PyObject *args, uint16_t key, int off) {
        PyObject *r;
        if (ao_r->key_off != NULL) { ao_r->set_key_off(key, off != 0); return 0; }
        r = ao_call(setter, args, NULL);
        Py_XDECREF(r);
        return r == NULL ? -1 : 0;
    }
    static CYTHON_INLINE int ao_knows_functions(void) { return ao_r->functions != NULL; }
    static CYTHON_INLINE int ao_all_off(PyObject *question) {
        /* are torch functions switched off, for modes and classes? */
        return ao_r->functions != NULL ? ao_r->functions()->off == ao_r->all_off : ao_truth(ao_builtin0(question));
    }
    static CYTHON_INLINE int ao_switch_functions(int off) {
        /* which torch functions are off from now on; returns which were.  Only where they are known, as below */
        ao_functions *known = ao_r->functions();
        int before = known->off;
        known->off = off < 0 ? ao_r->all_off : off;
        return before;
    }
    static CYTHON_INLINE int ao_is_innermost(PyObject *mode) {
        /* is torch's next question to a mode one to this? */
        ao_functions *known = ao_r->functions();
        return known->off != ao_r->all_off && known->end != known->first && *known->end[-1].object == mode;
    }
    /* Is there a kernel, and are these ordinary tensors? */
    #define AO_DIRECT1(k, a) (ao_r->k != NULL && AO_PLAIN(a))
    #define AO_DIRECT2(k, a, b) (AO_DIRECT1(k, a) && AO_PLAIN(b))
    #define AO_DIRECT3(k, a, b, c) (AO_DIRECT2(k, a, b) && AO_PLAIN(c))
    static CYTHON_INLINE PyObject *ao_bound2(PyObject *f, PyObject *x, PyObject *y) {
        PyObject *args = PyTuple_Pack(1, y), *r = args == NULL ? NULL : ao_method(f, x, args);
        Py_XDECREF(args);
        return r;
    }
    static CYTHON_INLINE PyObject *ao_mm(PyObject *descr, PyObject *x, PyObject *y) {
        return AO_DIRECT2(mm, x, y) ? ao_r->mm(AO_TENSOR(x), AO_TENSOR(y)) : ao_bound2(descr, x, y);
    }
    static CYTHON_INLINE PyObject *ao_turned_mm(PyObject *descr, PyObject *turn, PyObject *x, PyObject *y) {
        PyObject *t, *r;
        if (AO_DIRECT2(turned_mm, x, y)) return ao_r->turned_mm(AO_TENSOR(x), AO_TENSOR(y));
        t = ao_method0(turn, x);
        r = t == NULL ? NULL : ao_bound2(descr, t, y);
        Py_XDECREF(t);
        return r;
    }
    static CYTHON_INLINE PyObject *ao_sum_first(PyObject *descr, PyObject *x, PyObject *first) {
        return AO_DIRECT1(sum_first, x) ? ao_r->sum_first(AO_TENSOR(x)) : ao_method(descr, x, first);
    }
    static CYTHON_INLINE PyObject *ao_threshold(PyObject *bound, PyObject *g, PyObject *y) {
        static PyObject *zero = NULL;
        if (AO_DIRECT2(threshold, g, y)) return ao_r->threshold(AO_TENSOR(g), AO_TENSOR(y));
        if (zero == NULL) zero = PyLong_FromLong(0);
        return PyObject_CallFunctionObjArgs(bound, g, y, zero, NULL);
    }
    static CYTHON_INLINE int ao_threshold_into(PyObject *g, PyObject *y) {
        /* in the memory of `g`; 0 where the binding has to be called */
        if (!AO_DIRECT2(threshold_into, g, y)) return 0;
        return ao_r->threshold_into(AO_TENSOR(g), AO_TENSOR(y)) == 0 ? 1 : -1;
    }
    static CYTHON_INLINE int ao_direct_linear(PyObject *x, PyObject *w, PyObject *b) {
        return AO_DIRECT3(linear, x, w, b);
    }
    static CYTHON_INLINE PyObject *ao_linear(PyObject *x, PyObject *w, PyObject *b) {
        return ao_r->linear(AO_TENSOR(x), AO_TENSOR(w), AO_TENSOR(b));
    }
    static CYTHON_INLINE int ao_direct_nll(PyObject *x, PyObject *target, PyObject *weight) {
        return AO_DIRECT2(nll, x, target) && (weight == Py_None || AO_PLAIN(weight));
    }
    static CYTHON_INLINE PyObject *ao_nll(PyObject *x, PyObject *target, PyObject *weight, int64_t reduction, int64_t ignored) {
        /* (loss, the weights' sum) */
        PyObject *total = NULL, *both = NULL, *loss = ao_r->nll(
            AO_TENSOR(x), AO_TENSOR(target), weight == Py_None ? NULL : AO_TENSOR(weight), reduction, ignored, &total);
        if (loss != NULL) both = PyTuple_Pack(2, loss, total);
        Py_XDECREF(loss);
        Py_XDECREF(total);
        return both;
    }
    static CYTHON_INLINE int ao_direct_nll_back(PyObject *g, PyObject *x, PyObject *target, PyObject *weight, PyObject *total) {
        return AO_DIRECT3(nll_back, x, target, g) && AO_PLAIN(total) && (weight == Py_None || AO_PLAIN(weight));
    }
    static CYTHON_INLINE PyObject *ao_nll_back(PyObject *g, PyObject *x, PyObject *target, PyObject *weight,
                                               int64_t reduction, int64_t ignored, PyObject *total) {
        return ao_r->nll_back(AO_TENSOR(g), AO_TENSOR(x), AO_TENSOR(target), weight == Py_None ? NULL : AO_TENSOR(weight),
                              reduction, ignored, AO_TENSOR(total));
    }
    static CYTHON_INLINE int ao_direct_convolution_back(PyObject *g, PyObject *x, PyObject *w) {
        return AO_DIRECT3(convolution_back, x, w, g);
    }
    static CYTHON_INLINE PyObject *ao_convolution_back(PyObject *g, PyObject *x, PyObject *w, const int64_t *n, size_t axes,
                                                       int transposed, int needs) {
        return ao_r->convolution_back(AO_TENSOR(g), AO_TENSOR(x), AO_TENSOR(w), n, axes, transposed, needs);
    }
    static CYTHON_INLINE int ao_ordinary(PyObject *t) {
        PyObject **kinds = ao_r->kinds_of_tensors, *kind = (PyObject *)Py_TYPE(t);
        return kind == kinds[0] || kind == kinds[1] || kind == kinds[2];
    }
    static CYTHON_INLINE PyObject *ao_single(int k, PyObject *descr, PyObject *x) {
        PyObject *none, *r;
        if (k >= 0 && AO_DIRECT1(singles[k], x)) return ao_r->singles[k](AO_TENSOR(x));
        none = PyTuple_New(0);
        r = none == NULL ? NULL : ao_method(descr, x, none);
        Py_XDECREF(none);
        return r;
    }
    static CYTHON_INLINE PyObject *ao_pair(int k, PyObject *descr, PyObject *x, PyObject *args) {
        /* `args` holds one operand, a tensor or a number */
        PyObject *y = PyTuple_GET_ITEM(args, 0);
        if (k >= 0 && ao_r->pairs[k] != NULL && ao_ordinary(y) && AO_PLAIN(x) && AO_PLAIN(y))
            return ao_r->pairs[k](AO_TENSOR(x), AO_TENSOR(y));
        return ao_method(descr, x, args);
    }
    static CYTHON_INLINE PyObject *ao_into(int k, PyObject *descr, PyObject *x, PyObject *args) {
        /* the same in the memory of `x` */
        PyObject *y = PyTuple_GET_ITEM(args, 0);
        if (ao_r->into[k] == NULL || !ao_ordinary(y) || !AO_PLAIN(x) || !AO_PLAIN(y)) return ao_method(descr, x, args);
        if (ao_r->into[k](AO_TENSOR(x), AO_TENSOR(y)) != 0) return NULL;
        Py_INCREF(x);
        return x;
    }
    static CYTHON_INLINE PyObject *ao_product(int k, PyObject *descr, PyObject *x, PyObject *args) {
        /* the product or quotient of two tensors, added in the memory of `x` */
        PyObject *y = PyTuple_GET_ITEM(args, 0), *z = PyTuple_GET_ITEM(args, 1);
        if (ao_r->products[k] == NULL || !ao_ordinary(y) || !ao_ordinary(z) || !AO_PLAIN(x) || !AO_PLAIN(y) || !AO_PLAIN(z))
            return ao_method(descr, x, args);
        if (ao_r->products[k](AO_TENSOR(x), AO_TENSOR(y), AO_TENSOR(z)) != 0) return NULL;
        Py_INCREF(x);
        return x;
    }
    static CYTHON_INLINE PyObject *ao_bend(int k, PyObject *bound, PyObject *g, PyObject *y) {
        /* a kernel that only `torch.ops` reaches otherwise */
        if (ao_r->pairs[k] != NULL && ao_ordinary(g) && ao_ordinary(y) && AO_PLAIN(g) && AO_PLAIN(y))
            return ao_r->pairs[k](AO_TENSOR(g), AO_TENSOR(y));
        return PyObject_CallFunctionObjArgs(bound, g, y, NULL);
    }
    static CYTHON_INLINE PyObject *ao_mode_at(int64_t i) { return *ao_r->functions()->first[i].object; }
    static CYTHON_INLINE int64_t ao_mode_count(void) {         /* -1: not known */
        ao_functions *known = ao_r->functions != NULL ? ao_r->functions() : NULL;
        return known == NULL ? -1 : known->end - known->first;
    }
    static CYTHON_INLINE void ao_use_reads(size_t address) { ao_r = (ao_reads *)address; }
    """
    object ao_get(object descr, object self)
    object ao_own(object descr)
    int ao_set(object descr, object self, object value) except -1
    long long ao_get_int(object descr, object self)
    object ao_method0(object descr, object self)
    object ao_method(object descr, object self, tuple args)
    bint ao_knows_keys()
    object ao_call(object func, tuple args, object kwargs)
    object ao_builtin0(object func)
    int ao_set_type(object o, object type) except -1
    int ao_strip(object o) except -1
    int ao_forget(object o, object name) except -1
    PyObject *ao_try_attr(object o, object name)
    PyObject *ao_held(object o, object name) except? NULL
    int ao_hold(object o, object name, object value) except -1
    PyObject *ao_silent_attr(PyObject *o, PyObject *name)
    PyObject *ao_referent(object reference)
    ctypedef struct ao_raised:
        PyObject *value
    ao_raised ao_put_aside()
    void ao_raise_again(ao_raised raised)
    ctypedef struct ao_frame_struct:
        pass
    ctypedef ao_frame_struct *ao_frame_t
    ao_frame_t ao_frame()
    PyObject *ao_frame_code(ao_frame_t frame)
    ao_frame_t ao_frame_back(ao_frame_t frame)
    int ao_frame_lasti(ao_frame_t frame)
    void ao_frame_done(ao_frame_t frame)
    bint ao_again(object o)
    bint ao_has_weakrefs(object o)
    object ao_ask(object descr, object t)
    object ao_dtype(object t)
    object ao_shape(object t)
    int ao_strided(object t) except -1
    int ao_contiguous(object t) except -1
    int ao_on_cpu(object t) except -1
    int ao_is_leaf(object t) except -1
    int ao_is_view(object t) except -1
    int ao_needs_grad(object t) except -1
    long long ao_version(object t)
    bint ao_is_neg(object question, object t) except -1
    bint ao_is_zero(object question, object t) except -1
    bint ao_plain(object t)
    bint ao_is_inference(object question, object t) except -1
    long long ao_tensors_over(object t)
    int ao_start(object t, Py_ssize_t holders, Py_ssize_t copies)
    char *ao_memory(object t)
    long long ao_uses(object question, object t) except -1
    int ao_is_resizable(object t)
    bint ao_grad_on(object question) except -1
    int ao_quiet(PyObject **guard) except -1
    void ao_loud(PyObject *guard)
    bint ao_key_off(object question, tuple args, uint16_t key) except -1
    int ao_set_key_off(object setter, tuple args, uint16_t key, bint off) except -1
    bint ao_casts(object question) except -1
    bint ao_knows_functions()
    bint ao_all_off(object question) except -1
    int ao_switch_functions(int off)
    bint ao_is_innermost(PyObject *mode)
    PyObject *ao_mode_at(long long i)
    long long ao_mode_count()
    void ao_use_reads(size_t address)
    object ao_single(int k, object descr, object x)
    object ao_pair(int k, object descr, object x, tuple args)
    object ao_into(int k, object descr, object x, tuple args)
    object ao_product(int k, object descr, object x, tuple args)
    object ao_bend(int k, object bound, object g, object y)
    object ao_mm(object descr, object x, object y)
    object ao_turned_mm(object descr, object turn, object x, object y)
    object ao_sum_first(object descr, object x, tuple first)
    object ao_threshold(object bound, object g, object y)
    bint ao_threshold_into(object g, object y) except -1
    bint ao_direct_linear(object x, object w, object b)
    object ao_linear(object x, object w, object b)
    bint ao_direct_nll(object x, object target, object weight)
    object ao_nll(object x, object target, object weight, long long reduction, long long ignored)
    bint ao_direct_convolution_back(object g, object x, object w)
    object ao_convolution_back(object g, object x, object w, const int64_t *n, size_t axes, bint transposed, int needs)
    bint ao_direct_nll_back(object g, object x, object target, object weight, object total)
    object ao_nll_back(object g, object x, object target, object weight, long long reduction, long long ignored, object total)
