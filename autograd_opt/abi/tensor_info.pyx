"""What a tensor is, and whose memory it lies in, asked of torch's C interface.

torch's Python properties (`shape`, `dtype`, `_version`) ask for modes, prepare for warnings and make
an object, 0.1 microseconds each; recording one operation and running its rule needs a dozen of them.
torch exports the same answers as C functions (`aoti_torch_get_dtype`, stable by torch's word) and as
methods of C++ classes that take nothing but the tensor.  `symbols.py` looks them up; they are used
for ordinary tensors (by their C++ class: no nested, sparse or batched ones) where every one of them is
there and says of many kinds of tensors what Python says; the properties are asked of everything else.

torch tells whose memory a tensor lies in through a Python object for the memory, which is made for the question and then
kept beside it.  The numbers themselves stand in the C++ objects; `install_memory` finds out where, and compares.

The functions stand in one table, which every compiled module reads (`ao_r` in `torch_tensor.h`).
"""

import torch

from cpython.object cimport PyObject
from libc.stdint cimport int32_t, uint16_t, uint32_t, uint64_t

from autograd_opt.abi.ctorch cimport (
    ao_all_off, ao_ask, ao_contiguous, ao_dtype, ao_grad_on, ao_is_innermost, ao_is_inference, ao_is_leaf, ao_is_neg,
    ao_is_resizable, ao_is_view, ao_is_zero, ao_memory, ao_method0, ao_mode_at, ao_mode_count, ao_needs_grad, ao_on_cpu, ao_own,
    ao_shape, ao_strided, ao_switch_functions, ao_tensors_over, ao_use_reads, ao_uses, ao_version,
)
from autograd_opt.abi.kernel_names import INTO, PAIRS, PRODUCTS, SINGLES

cdef extern from "stdbool.h":
    ctypedef bint c_bool "bool"

cdef extern from *:
    """
    static ao_reads ao_reads_here;
    """
    ctypedef struct ao_functions:
        int32_t off
    ctypedef struct ao_reads:
        void *plain
        void *dtype
        void *layout
        void *device
        void *dim
        void *sizes
        void *contiguous
        void *version
        void *leaf
        void *view
        void *grad
        int counter
        ao_functions *(*functions)() noexcept
        int32_t all_off
        c_bool (*recording)() noexcept
        c_bool (*excluded)(uint64_t) noexcept
        uint64_t casting
        c_bool (*key_off)(uint16_t) noexcept
        void (*set_key_off)(uint16_t, c_bool) noexcept
        int keys
        uint64_t negative, zero, tracked
        int storage
        int resizable
        int32_t strided, cpu
        PyObject **kinds
        PyObject *get_dtype
        PyObject *get_layout
        PyObject *get_cpu
        PyObject *get_shape
        PyObject *is_contiguous
        PyObject *get_leaf
        PyObject *is_view
        PyObject *get_grad
        PyObject *STRIDED
        void *mm
        void *turned_mm
        void *sum_first
        void *linear
        void *threshold
        void *threshold_into
        void *nll
        void *nll_back
        void *convolution_back
        void *singles[16]
        void *pairs[16]
        void *into[16]
        void *products[4]
        PyObject *kinds_of_tensors[3]
        PyObject *start
        PyObject *is_nested
        PyObject *is_quantized
        PyObject *transforms
        PyObject *is_wrapped
        PyObject *disabled
        PyObject *guard
        PyObject *enter
        PyObject *leave
        PyObject *nothing
        PyObject *get_version
    ao_reads ao_reads_here

ctypedef int (*int32_read)(void *, int32_t *)
ctypedef PyObject **(*counter_read)(void *)

cdef object base = torch._C.TensorBase
cdef object get_version = ao_own(base.__dict__["_version"])
cdef object get_shape = ao_own(base.__dict__["shape"])
cdef object get_dtype = ao_own(base.__dict__["dtype"])
cdef object get_requires_grad = ao_own(base.__dict__["requires_grad"])
cdef object get_is_leaf = ao_own(base.__dict__["is_leaf"])
cdef object get_inference = base.__dict__["is_inference"]
cdef object get_contiguous = base.__dict__["is_contiguous"]
cdef object is_neg = base.__dict__["is_neg"]
cdef object is_zero = base.__dict__["_is_zerotensor"]
cdef object is_nested = ao_own(base.__dict__["is_nested"])
cdef object is_quantized = ao_own(base.__dict__["is_quantized"])
cdef object transforms = torch._C._are_functorch_transforms_active
cdef object is_wrapped = torch._C._functorch.is_functorch_wrapped_tensor
cdef object get_layout = ao_own(base.__dict__["layout"])
cdef object get_storage = base.__dict__["untyped_storage"]
cdef object use_count = base.__dict__["_use_count"]
cdef object is_view = base.__dict__["_is_view"]
cdef object get_cpu = ao_own(base.__dict__["is_cpu"])
cdef object get_resizable = torch._C.StorageBase.__dict__["resizable"]
cdef object kinds_of_tensors = ()        # kept alive here
cdef object STRIDED_LAYOUT = torch.strided
cdef object set_version = torch._C._autograd._unsafe_set_version_counter
cdef object all_disabled = torch._C._is_torch_function_all_disabled
cdef object Disabled = torch._C.DisableTorchFunction
cdef object guard_enter = Disabled.__dict__["__enter__"]
cdef object guard_exit = Disabled.__dict__["__exit__"]
cdef tuple NOTHING = ()
cdef void *_plain = NULL

ao_use_reads(<size_t>&ao_reads_here)
ao_reads_here.get_dtype, ao_reads_here.get_layout = <PyObject *>get_dtype, <PyObject *>get_layout
ao_reads_here.get_cpu, ao_reads_here.get_shape = <PyObject *>get_cpu, <PyObject *>get_shape
ao_reads_here.is_contiguous, ao_reads_here.get_leaf = <PyObject *>get_contiguous, <PyObject *>get_is_leaf
ao_reads_here.is_view, ao_reads_here.get_grad = <PyObject *>is_view, <PyObject *>get_requires_grad
ao_reads_here.STRIDED = <PyObject *>STRIDED_LAYOUT
ao_reads_here.is_nested, ao_reads_here.is_quantized = <PyObject *>is_nested, <PyObject *>is_quantized
ao_reads_here.transforms = <PyObject *>transforms
ao_reads_here.is_wrapped = <PyObject *>is_wrapped
ao_reads_here.disabled, ao_reads_here.guard = <PyObject *>all_disabled, <PyObject *>Disabled
ao_reads_here.enter, ao_reads_here.leave = <PyObject *>guard_enter, <PyObject *>guard_exit
ao_reads_here.nothing, ao_reads_here.get_version = <PyObject *>NOTHING, <PyObject *>get_version


def reads_address():
    """Where the table of functions is, for the other compiled modules."""
    return <size_t>&ao_reads_here


def use_kinds(*kinds):
    """Take tensors of these three classes for ordinary ones, without a behaviour of their own."""
    global kinds_of_tensors
    kinds_of_tensors = kinds
    for i, kind in enumerate(kinds):
        ao_reads_here.kinds_of_tensors[i] = <PyObject *>kind


def use_reads(bint ready):
    """Ask torch's C interface from now on, or (for tests) its Python one; returns what was so before."""
    cdef bint before = ao_reads_here.plain != NULL
    ao_reads_here.plain = _plain if ready else NULL
    return before


def install_reads(dict addresses, dict dtypes, samples):
    """Take the functions at `addresses`, if they say of all `samples` what torch's properties say.

    `dtypes`: dtype -> a tensor of it.  Returns whether they are used.
    """
    global _plain
    cdef int32_t k
    ao_reads_here.dtype = <void *><size_t>addresses["dtype"]
    ao_reads_here.layout = <void *><size_t>addresses["layout"]
    ao_reads_here.device = <void *><size_t>addresses["device"]
    ao_reads_here.dim = <void *><size_t>addresses["dim"]
    ao_reads_here.sizes = <void *><size_t>addresses["sizes"]
    ao_reads_here.contiguous = <void *><size_t>addresses["contiguous"]
    ao_reads_here.version = <void *><size_t>addresses["version"]
    ao_reads_here.leaf = <void *><size_t>addresses["leaf"]
    ao_reads_here.view = <void *><size_t>addresses["view"]
    ao_reads_here.grad = <void *><size_t>addresses["grad"]
    for t in (*dtypes.values(), *samples):
        if (<size_t *>(<char *><PyObject *>t + sizeof(PyObject)))[0] != <size_t>t._cdata:
            return False                 # the tensor lies elsewhere in its Python object
    for dtype, t in dtypes.items():
        if (<int32_read>ao_reads_here.dtype)(tensor_in(t), &k) != 0 or not 0 <= k < 64:
            return False
        ao_reads_here.kinds[k] = <PyObject *>dtype               # which lives as long as torch
    t = samples[0]
    if (<int32_read>ao_reads_here.layout)(tensor_in(t), &ao_reads_here.strided) != 0 \
            or (<int32_read>ao_reads_here.device)(tensor_in(t), &ao_reads_here.cpu) != 0 or not find_counter(t):
        return False
    _plain = (<void ***>tensor_in(t))[0][0]          # where its methods are, which begins every object of its class
    ao_reads_here.plain = _plain
    if not all([agrees(t) for t in samples]):
        ao_reads_here.plain = _plain = NULL
    return _plain != NULL


cdef bint tells_functions(list modes) except -1:
    """Does the table say what torch says of the torch functions of this thread?"""
    return ao_mode_count() == torch._C._len_torch_function_stack() == len(modes) \
        and all([ao_mode_at(i) == <PyObject *>mode for i, mode in enumerate(modes)]) \
        and ao_all_off(all_disabled) == torch._C._is_torch_function_all_disabled()


def install_functions(size_t address, modes):
    """Take the function at this address, which tells where a thread's torch functions are, if what stands there is right.

    `modes`: some to be pushed for the comparison.
    """
    cdef list stack = list(torch.overrides._get_current_function_mode_stack())
    cdef Py_ssize_t i
    cdef int before
    ao_reads_here.functions = <ao_functions *(*)() noexcept>address
    with torch._C.DisableTorchFunction():
        ao_reads_here.all_off = ao_reads_here.functions().off
    right = tells_functions(stack)
    for mode in modes:
        torch._C._push_on_torch_function_stack(mode)
        stack.append(mode)
        right = right and tells_functions(stack) and ao_is_innermost(<PyObject *>mode)
    with torch._C.DisableTorchFunctionSubclass():
        right = right and tells_functions(stack)
    with torch._C.DisableTorchFunction():
        right = right and tells_functions(stack) and not ao_is_innermost(<PyObject *>stack[len(stack) - 1])
    if right:
        before = ao_switch_functions(-1)
        right = torch._C._is_torch_function_all_disabled() and not torch._C._is_torch_function_enabled()
        ao_switch_functions(before)
    for mode in modes:
        torch._C._pop_torch_function_stack()
        stack.pop()
    if not right or not tells_functions(stack):
        ao_reads_here.functions = NULL
    return ao_reads_here.functions != NULL


def install_switches(size_t recording, size_t excluded, uint64_t casting, devices):
    """Take the functions at these addresses that tell torch's grad mode and what is off in a thread, if they tell it rightly.

    `casting`: the dispatch keys of autocast on any device; it is switched on and off on each of `devices` to see it.
    """
    ao_reads_here.recording, ao_reads_here.excluded = <c_bool (*)() noexcept>recording, \
        <c_bool (*)(uint64_t) noexcept>excluded
    ao_reads_here.casting = casting
    before = torch.is_grad_enabled()
    right = True
    for mode in (not before, before):
        torch._C._set_grad_enabled(mode)
        right = right and ao_grad_on(torch._C.is_grad_enabled) == mode
    if not right:
        ao_reads_here.recording = NULL
    right = ao_reads_here.excluded(casting) or torch._C._is_any_autocast_enabled()
    for device in devices:
        before = torch.is_autocast_enabled(device)
        torch.set_autocast_enabled(device, True)
        right = right and not ao_reads_here.excluded(casting)
        torch.set_autocast_enabled(device, before)
    if not right:
        ao_reads_here.excluded = NULL
    return ao_reads_here.recording != NULL and ao_reads_here.excluded != NULL


def install_exclusion(size_t key_off, size_t set_key_off, keys):
    """Take the functions at these addresses that exclude a dispatch key in a thread, if torch says the same of `keys`."""
    cdef uint16_t number
    cdef bint before, right = True
    ao_reads_here.key_off = <c_bool (*)(uint16_t) noexcept>key_off
    ao_reads_here.set_key_off = <void (*)(uint16_t, c_bool) noexcept>set_key_off
    for key in keys:
        number = int(key)
        before = torch._C._dispatch_tls_is_dispatch_key_excluded(key)
        for off in (not before, before):
            ao_reads_here.set_key_off(number, off)
            right = right and torch._C._dispatch_tls_is_dispatch_key_excluded(key) == off
            torch._C._dispatch_tls_set_dispatch_key_excluded(key, off)
            right = right and ao_reads_here.key_off(number) == off
    if not right:
        ao_reads_here.key_off = NULL
    return bool(right)


cdef enum:
    WORDS = 22                           # of an implementation that are looked through: no object of its class is smaller

def install_keys(uint64_t negative, uint64_t zero, uint64_t tracked, samples):
    """Find where in a tensor its dispatch keys are: the first word that is what torch says, of all `samples`.

    The keys are those of a lazy minus, of zeros without memory, and of what was not made in inference mode.  They end
    the object: nothing behind it is read.
    """
    cdef int place, found = 0
    cdef uint64_t word
    ao_reads_here.keys = 0
    ao_reads_here.negative, ao_reads_here.zero, ao_reads_here.tracked = negative, zero, tracked
    for place in range(1, WORDS + 1):
        for t in samples:
            word = (<uint64_t *>(<void **>tensor_in(t))[0])[place]
            if word != <uint64_t>torch._C._dispatch_keys(t).raw_repr():
                break
        else:
            found = 8 * place
            break
    ao_reads_here.keys = found
    for t in samples:
        if not (ao_is_neg(is_neg, t) == t.is_neg() and ao_is_zero(is_zero, t) == t._is_zerotensor()
                and ao_is_inference(get_inference, t) == t.is_inference()):
            ao_reads_here.keys = 0
            return False
    return found != 0


cdef int put_all(void **entries, tuple names, dict functions) except -1:
    cdef Py_ssize_t i
    for i in range(len(names)):
        entries[i] = <void *><size_t>functions.get(names[i], 0)
    return 0


def install_kernels(dict functions):
    """Call torch's kernels through these (see `kernels.pyx`); through its bindings where there are none."""
    ao_reads_here.mm = <void *><size_t>functions.get("mm", 0)
    ao_reads_here.turned_mm = <void *><size_t>functions.get("turned_mm", 0)
    ao_reads_here.sum_first = <void *><size_t>functions.get("sum_first", 0)
    ao_reads_here.linear = <void *><size_t>functions.get("linear", 0)
    ao_reads_here.threshold = <void *><size_t>functions.get("threshold", 0)
    ao_reads_here.threshold_into = <void *><size_t>functions.get("threshold_into", 0)
    ao_reads_here.nll = <void *><size_t>functions.get("nll", 0)
    ao_reads_here.nll_back = <void *><size_t>functions.get("nll_back", 0)
    ao_reads_here.convolution_back = <void *><size_t>functions.get("convolution_back", 0)
    put_all(<void **>ao_reads_here.singles, SINGLES, functions)
    put_all(<void **>ao_reads_here.pairs, PAIRS, functions)
    put_all(<void **>ao_reads_here.into, INTO, functions)
    put_all(<void **>ao_reads_here.products, PRODUCTS, functions)


cdef void *tensor_in(object t):
    return <void *>(<char *><PyObject *>t + sizeof(PyObject))


cdef bint find_counter(object t) except -1:
    """Where in the version counter the number stands: the place that follows what the version is set to."""
    cdef int place
    cdef void *counter = (<counter_read>ao_reads_here.version)(tensor_in(t))[0]
    write = torch._C._autograd._unsafe_set_version_counter
    if counter == NULL:
        return False
    for place in (8, 12, 16, 20, 24):
        for version in (0x5A17C3, 7, 0x31E0F2D5, 0):
            write((t,), (version,))
            if (<uint32_t *>(<char *>counter + place))[0] != <uint32_t>version:
                break
        else:
            ao_reads_here.counter = place
            return True
    return False


cdef bint agrees(object t) except -1:
    """Do both interfaces say the same of `t`?"""
    version = None if t.is_inference() else t._version
    return ao_dtype(t) is t.dtype and ao_shape(t) == t.shape and type(ao_shape(t)) is torch.Size \
        and ao_strided(t) == (t.layout is torch.strided) and ao_on_cpu(t) == t.is_cpu \
        and (t.layout is not torch.strided or ao_contiguous(t) == t.is_contiguous()) \
        and ao_is_leaf(t) == t.is_leaf and ao_is_view(t) == t._is_view() and ao_needs_grad(t) == t.requires_grad \
        and ao_version(t) == (-1 if version is None or t.layout is not torch.strided else version)


# Whose memory a tensor lies in. -----------------------------------------------------------
cdef object storage_uses = torch._C._storage_Use_Count
cdef object _one = torch.zeros(1)
cdef object SOLE = storage_uses(_one.untyped_storage()._cdata)
"""What torch says of memory under a single tensor: it keeps the Python object for the memory once made, and counts it."""


cpdef bint sole_owner(object t, Py_ssize_t copies=0) except -1:
    """Is the strided `t`, with so many copies of it that are known, the only tensor over its memory?"""
    cdef long long owners = ao_tensors_over(t)
    return owners == 1 + copies if owners >= 0 else storage_uses(ao_ask(get_storage, t)._cdata) == <long long>SOLE + copies


cpdef bint same_memory(object a, object b) except -1:
    """Are these two strided tensors over one memory?"""
    if ao_memory(a) != NULL and ao_memory(b) != NULL:
        return ao_memory(a) == ao_memory(b)
    return ao_strided(a) and ao_strided(b) and ao_ask(get_storage, a)._cdata == ao_ask(get_storage, b)._cdata


cpdef bint resizable(object t) except -1:
    """Is the memory of `t` torch's own?  numpy's, say, cannot grow."""
    cdef int known = ao_is_resizable(t)
    return known != 0 if known >= 0 else ao_method0(get_resizable, ao_ask(get_storage, t)) is True


def _start(t, Py_ssize_t copies):
    """`ao_start` by torch's Python interface, for a tensor that is not at version 0."""
    if ao_strided(t) and ao_uses(use_count, t) == 1 and sole_owner(t, copies):
        set_version((t,), (0,))


cdef object start_asked = _start
ao_reads_here.start = <PyObject *>start_asked


cdef enum:
    MEMORY = 72                          # bytes of the object for a piece of memory that are looked through: it is no smaller


cdef bint all_say(list memories, list answers, int place) except -1:
    """Is this byte of each object the answer?"""
    for memory, answer in zip(memories, answers):
        if (<unsigned char *><size_t>memory)[place] != <unsigned char>answer:
            return False
    return True


cdef bint counts(object t) except -1:
    """Are tensors over the memory of `t` and owners of `t` itself counted rightly, whatever Python has asked before?"""
    cdef list views = []
    for asked in (False, True):
        for more in range(3):
            n = ao_tensors_over(t)
            if n != 1 + len(views) or ao_uses(use_count, t) != t._use_count():
                return False
            if asked and storage_uses(ao_ask(get_storage, t)._cdata) != <long long>SOLE + len(views):
                return False
            views.append(t.detach())
    del views[:]
    return ao_tensors_over(t) == 1 and ao_uses(use_count, t) == t._use_count()


def install_memory(samples):
    """Find where torch's objects tell whose memory is whose; whether that is right for all `samples`.

    `samples`: strided tensors that nobody else shares, some in memory of others.
    """
    cdef int place
    cdef list memories = [t.untyped_storage()._cdata for t in samples]
    cdef list answers = [t.untyped_storage().resizable() for t in samples]
    ao_reads_here.storage = ao_reads_here.resizable = 0
    places = [8 * place for place in range(2, WORDS) if all(
        [(<size_t *>(<void **>tensor_in(t))[0])[place] == <size_t>memory for t, memory in zip(samples, memories)])]
    bytes_of = [place for place in range(16, MEMORY) if all_say(memories, answers, place)]
    if ao_reads_here.plain == NULL or len(places) != 1 or len(bytes_of) != 1 or len(set(answers)) != 2:
        return False
    ao_reads_here.storage, ao_reads_here.resizable = places[0], bytes_of[0]
    for size in (1, 5, 1000):
        if not counts(torch.empty(size, device="cpu")):
            ao_reads_here.storage = 0
            return False
    return True
