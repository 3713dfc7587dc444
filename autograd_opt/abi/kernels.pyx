# distutils: language = c++
"""Kernels of torch's called by their C++ entry, past its Python bindings.

What a binding does for a call that is known to be an ordinary one, parsing arguments by name and type, costs
1,000 to 2,000 instructions, and `torch.ops`, which alone reaches `nll_loss_backward`, 10,000.  The functions
below call what the binding ends in, `at::_ops::…::call`, the dispatcher's own entry, so that whoever listens there (dispatch
modes, profilers, tracers) hears what it has always heard.  Like a binding they let other threads run meanwhile, but for
operands so small that the kernel is done before another thread would have begun, and make torch's exceptions Python's.

torch's types are named nowhere: an `at::Tensor` is passed by its address and returned as one pointer that it
consists of.  Where a symbol is missing, a result is another than the binding's, or this module was not built for want of
a C++ compiler, the bindings are called (`symbols.py`, `tensor_info.pyx`).
"""

from cpython.object cimport PyObject
from cpython.ref cimport Py_DECREF
from libc.stdint cimport int64_t

from autograd_opt.abi.kernel_names import INTO, PAIRS, PRODUCTS, SINGLES

cdef extern from *:
    """
    #include <array>
    #include <exception>
    #include <optional>
    #include <tuple>

    namespace {
    struct Value {                           /* an at::Tensor: copied and dropped without being counted */
        void *impl = nullptr;
        Value() {}
        Value(const Value &other) : impl(other.impl) {}
        Value &operator=(const Value &other) { impl = other.impl; return *this; }
        ~Value() {}
    };
    struct Number {                          /* room for a c10::Scalar */
        alignas(16) unsigned char bytes[64];
        Number() {}
        Number(const Number &) = delete;
        ~Number() {}
    };
    struct Row { const int64_t *data; size_t size; };
    struct Axes { std::optional<Row> axes; };
    typedef std::optional<Value> Maybe;
    typedef std::optional<signed char> Kind;

    PyObject *(*wrap)(Value *);
    void (*translate)(const std::exception_ptr &);
    int (*drop)(void *);
    int32_t (*count)(const void *, int64_t *);
    int32_t (*device)(const void *, int32_t *);
    int32_t cpu = 0;
    const int64_t SMALL = 1024;              /* the product of two has a million entries at most, half a millisecond's work */
    Value (*call_mm)(const void *, const void *);
    Value (*call_t)(const void *);
    Value (*call_sum)(const void *, Axes, bool, Kind);
    Value (*call_linear)(const void *, const void *, const Maybe &);
    Value (*call_threshold)(const void *, const void *, const Number &);
    void *(*call_threshold_into)(const void *, const void *, const Number &, void *);
    std::tuple<Value, Value> (*call_nll)(const void *, const void *, const Maybe &, int64_t, const int64_t &);
    Value (*call_nll_back)(const void *, const void *, const void *, const Maybe &, int64_t, const int64_t &, const void *);
    typedef std::tuple<Value, Value, Value> Three;
    Three (*call_convolution_back)(const void *, const void *, const void *, Axes, Row, Row, Row, bool, Row, const int64_t &,
                                   std::array<bool, 3>);
    Number (*call_number)(const void *);
    Number *zero = nullptr, *one = nullptr;
    void *elementwise[24];                   /* addresses by place, see `PLACES` */

    bool small(const void *x) {
        int32_t kind;
        int64_t n;
        return !device(x, &kind) && kind == cpu && !count(x, &n) && n <= SMALL;
    }
    template <typename F, typename... Operands> bool done(F f, Operands... operands) {
        /* call `f`, while other threads may run unless all operands are small; false with Python's exception for torch's */
        std::exception_ptr failed;
        PyThreadState *state = (small(operands) && ...) ? nullptr : PyEval_SaveThread();
        try { f(); } catch (...) { failed = std::current_exception(); }
        if (state != nullptr) PyEval_RestoreThread(state);
        if (!failed) return true;
        translate(failed);
        return false;
    }
    PyObject *wrapped(Value *v) {
        /* the Python object of a result, which may have one already: a dispatch mode's */
        PyObject *found = wrap(v);
        drop(v);
        return found;
    }
    template <typename F, typename... Operands> PyObject *made(F f, Operands... operands) {
        Value *v = nullptr;
        return done([&] { v = new Value(f()); }, operands...) ? wrapped(v) : nullptr;
    }
    Maybe maybe(void *t) {
        Maybe found;
        if (t != nullptr) { found.emplace(); found->impl = *(void **)t; }
        return found;
    }

    PyObject *ao_mm(void *x, void *y) { return made([&] { return call_mm(x, y); }, x, y); }
    PyObject *ao_turned_mm(void *x, void *y) {
        return made([&] {
            struct Held {
                Value *t;
                ~Held() { drop(t); }
            } held{new Value(call_t(x))};
            return call_mm(held.t, y);
        }, x, y);
    }
    PyObject *ao_sum_first(void *x) {
        static const int64_t first = 0;
        return made([&] { return call_sum(x, Axes{Row{&first, 1}}, false, Kind()); }, x);
    }
    PyObject *ao_linear(void *x, void *w, void *b) { return made([&] { return call_linear(x, w, maybe(b)); }, x, w); }
    PyObject *ao_threshold(void *g, void *y) { return made([&] { return call_threshold(g, y, *zero); }, g); }
    int ao_threshold_into(void *g, void *y) {
        return done([&] { call_threshold_into(g, y, *zero, g); }, g) ? 0 : -1;
    }
    PyObject *ao_nll(void *x, void *target, void *weight, int64_t reduction, int64_t ignored, PyObject **total) {
        std::tuple<Value, Value> both;
        PyObject *loss;
        if (!done([&] { both = call_nll(x, target, maybe(weight), reduction, ignored); }, x)) return nullptr;
        loss = wrapped(new Value(std::get<0>(both)));
        *total = wrapped(new Value(std::get<1>(both)));
        if (loss != nullptr && *total != nullptr) return loss;
        Py_XDECREF(loss);
        Py_CLEAR(*total);
        return nullptr;
    }
    PyObject *ao_nll_back(void *g, void *x, void *target, void *weight, int64_t reduction, int64_t ignored, void *total) {
        return made([&] { return call_nll_back(g, x, target, maybe(weight), reduction, ignored, total); }, x);
    }
    PyObject *ao_convolution_back(void *g, void *x, void *w, const int64_t *n, size_t axes, bool transposed, int needs) {
        /* `n`: groups, the bias's size or -1, then strides, paddings, dilations, output paddings by axis */
        Three three;
        PyObject *parts[3], *found = nullptr;
        Axes bias = n[1] < 0 ? Axes() : Axes{Row{n + 1, 1}};
        const int64_t *rows = n + 2;
        if (!done([&] {
            three = call_convolution_back(g, x, w, bias, Row{rows, axes}, Row{rows + axes, axes}, Row{rows + 2 * axes, axes},
                                          transposed, Row{rows + 3 * axes, axes}, n[0],
                                          {(needs & 1) != 0, (needs & 2) != 0, (needs & 4) != 0});
        }, x, w)) return nullptr;
        parts[0] = wrapped(new Value(std::get<0>(three)));
        parts[1] = wrapped(new Value(std::get<1>(three)));
        parts[2] = wrapped(new Value(std::get<2>(three)));
        if (parts[0] != nullptr && parts[1] != nullptr && parts[2] != nullptr)
            found = PyTuple_Pack(3, parts[0], parts[1], parts[2]);
        for (PyObject *part : parts) Py_XDECREF(part);
        return found;
    }
    /* Elementwise kernels, by their places in `elementwise`. */
    template <int k> PyObject *ao_single(void *x) {
        return made([&] { return ((Value (*)(const void *))elementwise[k])(x); }, x);
    }
    template <int k> PyObject *ao_pair(void *x, void *y) {
        return made([&] { return ((Value (*)(const void *, const void *))elementwise[k])(x, y); }, x, y);
    }
    template <int k> PyObject *ao_sum(void *x, void *y) {
        return made([&] { return ((Value (*)(const void *, const void *, const Number &))elementwise[k])(x, y, *one); }, x, y);
    }
    template <int k> int ao_into(void *x, void *y) {
        return done([&] { ((void *(*)(void *, const void *))elementwise[k])(x, y); }, x) ? 0 : -1;
    }
    template <int k> int ao_sum_into(void *x, void *y) {
        return done([&] { ((void *(*)(void *, const void *, const Number &))elementwise[k])(x, y, *one); }, x) ? 0 : -1;
    }
    template <int k> int ao_product(void *x, void *y, void *z) {
        return done([&] {
            ((void *(*)(void *, const void *, const void *, const Number &))elementwise[k])(x, y, z, *one);
        }, x) ? 0 : -1;
    }
    #define AO_PLACES(f, k) (size_t)&f<k>, (size_t)&f<k + 1>, (size_t)&f<k + 2>, (size_t)&f<k + 3>
    #define AO_PAIR_OF_PLACES(f, k) (size_t)&f<k>, (size_t)&f<k + 1>
    size_t callers[] = {
        AO_PLACES(ao_single, 0), AO_PLACES(ao_single, 4), AO_PLACES(ao_single, 8),
        AO_PLACES(ao_pair, 12), AO_PAIR_OF_PLACES(ao_sum, 16),
        AO_PAIR_OF_PLACES(ao_into, 18), AO_PAIR_OF_PLACES(ao_sum_into, 20), AO_PAIR_OF_PLACES(ao_product, 22),
    };
    size_t ao_caller(int k, size_t address) {
        elementwise[k] = (void *)address;
        return callers[k];
    }
    bool ao_keep(void *nought, void *unit) {
        /* the numbers in these tensors, for good, as torch itself lays them out */
        return done([&] {
            if (zero == nullptr) zero = new Number(call_number(nought));
            if (one == nullptr) one = new Number(call_number(unit));
            device(nought, &cpu);
        });
    }
    template <typename F> void take(F &f, size_t address) { f = reinterpret_cast<F>(address); }
    void ao_take(size_t a_wrap, size_t a_translate, size_t a_drop, size_t mm, size_t t, size_t sum, size_t linear,
                 size_t threshold, size_t threshold_into, size_t nll, size_t nll_back, size_t convolution_back, size_t number,
                 size_t a_count, size_t a_device) {
        take(count, a_count), take(device, a_device), take(wrap, a_wrap), take(translate, a_translate), take(drop, a_drop), take(call_mm, mm), take(call_t, t);
        take(call_sum, sum), take(call_linear, linear), take(call_threshold, threshold);
        take(call_threshold_into, threshold_into), take(call_nll, nll), take(call_nll_back, nll_back);
        take(call_convolution_back, convolution_back), take(call_number, number);
    }
    }
    """
    object ao_mm(void *x, void *y)
    object ao_turned_mm(void *x, void *y)
    object ao_sum_first(void *x)
    object ao_linear(void *x, void *w, void *b)
    object ao_threshold(void *g, void *y)
    int ao_threshold_into(void *g, void *y) except -1
    object ao_nll(void *x, void *target, void *weight, int64_t reduction, int64_t ignored, void *total)
    object ao_nll_back(void *g, void *x, void *target, void *weight, int64_t reduction, int64_t ignored, void *total)
    object ao_convolution_back(void *g, void *x, void *w, const int64_t *n, size_t axes, bint transposed, int needs)
    bint ao_keep(void *nought, void *unit) except False
    size_t ao_caller(int k, size_t address)
    void ao_take(size_t wrap, size_t translate, size_t drop, size_t mm, size_t t, size_t sum, size_t linear,
                 size_t threshold, size_t threshold_into, size_t nll, size_t nll_back, size_t convolution_back,
                 size_t number, size_t count, size_t device)


ctypedef object (*one_read)(void *)
ctypedef object (*two_read)(void *, void *)
ctypedef int (*two_write)(void *, void *) except -1
ctypedef int (*three_write)(void *, void *, void *) except -1

cdef dict PLACES = {name: first + i for first, names in ((0, SINGLES), (12, PAIRS), (18, INTO), (22, PRODUCTS))
                    for i, name in enumerate(names)}
"""In `callers`."""


cdef void *tensor_in(object t):
    return <char *><void *>t + <size_t>object.__basicsize__


def probe(x, w, b, target):
    """What each function says of small matrices, in the order of `take`'s answer, for comparing with torch's bindings.

    The loss is of one row: torch's kernel starts threads for two, and a process that is forked later would wait for them.
    """
    y = ao_linear(tensor_in(x), tensor_in(w), tensor_in(b))
    row = y[:1]
    cdef PyObject *p = NULL
    loss = ao_nll(tensor_in(row), tensor_in(target), NULL, 1, -100, &p)
    total = <object>p
    Py_DECREF(total)
    back = [ao_nll_back(tensor_in(loss), tensor_in(row), tensor_in(target), tensor_in(b), 1, ignored, tensor_in(total))
            for ignored in (0, 1)]
    into = y + 1
    ao_threshold_into(tensor_in(into), tensor_in(y))
    return [ao_mm(tensor_in(y), tensor_in(w)), ao_turned_mm(tensor_in(y), tensor_in(x)), ao_sum_first(tensor_in(y)), y,
            ao_threshold(tensor_in(x), tensor_in(x)), into, loss, total, *back]


def probe_convolution(g, x, w):
    """The cotangents of the three operands of a convolution of two axes, and those of its weight alone, likewise."""
    cdef int64_t[10] n
    n[0], n[1], n[2], n[3], n[4], n[5], n[6], n[7], n[8], n[9] = 1, 1, 2, 1, 1, 0, 1, 2, 0, 0
    every = ao_convolution_back(tensor_in(g), tensor_in(x), tensor_in(w), n, 2, False, 7)
    n[1] = -1
    return every, ao_convolution_back(tensor_in(g), tensor_in(x), tensor_in(w), n, 2, False, 2)


def probe_elementwise(dict functions, x, y):
    """What each function says of two tensors of positive numbers, by name."""
    found = {}
    for name, address in functions.items():
        into = x + 0
        if name in SINGLES:
            into = (<one_read><size_t>address)(tensor_in(x))
        elif name in PAIRS:
            into = (<two_read><size_t>address)(tensor_in(x), tensor_in(y))
        elif name in INTO:
            (<two_write><size_t>address)(tensor_in(into), tensor_in(y))
        elif name in PRODUCTS:
            (<three_write><size_t>address)(tensor_in(into), tensor_in(x), tensor_in(y))
        else:
            continue
        found[name] = into
    return found


def take(dict found, dict elementwise, zero, one):
    """Call the functions at these addresses; `zero` and `one` are tensors that hold these integers.

    Returns the addresses of the functions above, by name.
    """
    ao_take(found["wrap"], found["translate"], found["drop"], found["mm"], found["t"], found["sum"], found["linear"],
            found["threshold"], found["threshold_into"], found["nll"], found["nll_back"], found["convolution_back"],
            found["number"], found["count"], found["device"])
    ao_keep(tensor_in(zero), tensor_in(one))
    return {
        **{name: ao_caller(PLACES[name], address) for name, address in elementwise.items()},
        "mm": <size_t>&ao_mm, "turned_mm": <size_t>&ao_turned_mm, "sum_first": <size_t>&ao_sum_first,
        "linear": <size_t>&ao_linear, "threshold": <size_t>&ao_threshold, "threshold_into": <size_t>&ao_threshold_into,
        "nll": <size_t>&ao_nll, "nll_back": <size_t>&ao_nll_back, "convolution_back": <size_t>&ao_convolution_back,
    }
