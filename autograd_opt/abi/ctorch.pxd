"""Direct C entry points into torch's Python bindings, without compiling against torch.

A `getset_descriptor`, a `method_descriptor` and a built-in function each hold a C
function pointer in a public CPython structure.  Calling through it skips attribute
lookup and argument packing, which for one small kernel is a tenth of the whole cost.
"""

from cpython.object cimport PyObject
from libc.stdint cimport int64_t, uint16_t

cdef extern from "torch_tensor.h":
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
