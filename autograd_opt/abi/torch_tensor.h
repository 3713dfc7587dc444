/* Questions to tensors and calls of kernels through the functions that libtorch exports, each beside the way in Python. */
#ifndef AO_TORCH_TENSOR_H
#define AO_TORCH_TENSOR_H
#include "cpython.h"

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
    return AO_PLAIN(t) || (ao_r->plain == NULL && ao_asked_plain(t));
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

#endif
