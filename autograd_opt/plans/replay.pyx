"""Run the steps of a plan, and find out whether a call is of the kind that it was made for."""

import types

import torch

from cpython.dict cimport PyDict_GetItemWithError, PyDict_Next
from cpython.list cimport PyList_GET_ITEM
from cpython.mem cimport PyMem_Free, PyMem_Malloc
from cpython.object cimport PyObject
from cpython.ref cimport Py_INCREF
from cpython.tuple cimport PyTuple_GET_ITEM, PyTuple_New, PyTuple_SET_ITEM
from libc.math cimport copysign
from libc.stdint cimport int64_t, uintptr_t
from libc.stdlib cimport qsort

from autograd_opt.abi import torch_private as private
from autograd_opt.plans.blocks cimport Stretch
from autograd_opt.plans.capture import Unrepeatable

cdef object Tensor = torch.Tensor
cdef object Parameter = torch.nn.Parameter
cdef object data_ptr = private.TensorBase.__dict__["data_ptr"]
cdef object backward_hooks = private.backward_hooks
cdef object post_accumulate_grad_hooks = private.post_accumulate_grad_hooks
cdef object is_neg = private.TensorBase.__dict__["is_neg"]
cdef object stride = private.TensorBase.__dict__["stride"]
cdef object storage_id = private.storage_id
cdef object strided = torch.strided
cdef object no_dispatch = torch.Tensor.__torch_dispatch__
cdef object CellType = types.CellType
cdef object FunctionType = types.FunctionType
MISSING = object()
"""What an empty cell holds."""


cdef class Numbers:
    """A fixed list of numbers, in C."""
    cdef Py_ssize_t count
    cdef Py_ssize_t *at

    def __cinit__(self, numbers):
        self.count = len(numbers)
        self.at = <Py_ssize_t *>PyMem_Malloc(max(1, self.count) * sizeof(Py_ssize_t))
        if self.at == NULL:
            raise MemoryError()
        for i, number in enumerate(numbers):
            self.at[i] = number

    def __dealloc__(self):
        PyMem_Free(self.at)


cdef class Kernel:
    """A call of one operator: its arguments, with the values that go into some places of them."""
    cdef object function, build
    cdef tuple template, lists
    cdef Numbers places, values, outs, frees
    cdef dict kwargs

    def __init__(self, function, template, places, values, lists, kwargs, build, outs, frees):
        """`places`: positions in `template` of the values numbered `values`; `lists`: positions, and the values of a list.

        `build(values)` makes arguments and keywords where values are elsewhere.
        """
        self.function, self.build = function, build
        self.template, self.lists, self.kwargs = template, lists, kwargs
        self.places, self.values = Numbers(places), Numbers(values)
        self.outs, self.frees = Numbers(outs), Numbers(frees)

    cdef int run(self, list values) except -1:
        cdef tuple args
        cdef Py_ssize_t i, n = len(self.template)
        cdef object result, item
        if self.build is not None:
            args, kwargs = self.build(values)
            result = self.function(*args, **kwargs)
        else:
            args = PyTuple_New(n)
            for i in range(n):
                item = <object>PyTuple_GET_ITEM(self.template, i)
                Py_INCREF(item)
                PyTuple_SET_ITEM(args, i, item)
            for i in range(self.places.count):
                put(args, self.places.at[i], <object>PyList_GET_ITEM(values, self.values.at[i]))
            for place, numbers in self.lists:
                put(args, <Py_ssize_t>place, [values[<Py_ssize_t>k] for k in <tuple>numbers])
            result = PyObject_Call(self.function, args, <PyObject *>self.kwargs if self.kwargs is not None else NULL)
        if self.outs.count == 1 and isinstance(result, Tensor):
            keep(values, self.outs.at[0], result)
        else:
            i = 0
            for item in result if isinstance(result, (tuple, list)) else (result,):
                for t in item if isinstance(item, (tuple, list)) else (item,):
                    if isinstance(t, Tensor):
                        keep(values, self.outs.at[i], t)
                        i += 1
        for i in range(self.frees.count):
            keep(values, self.frees.at[i], None)
        return 0


cdef extern from *:
    """
    static void ao_put(PyObject *tuple, Py_ssize_t i, PyObject *item) {
        PyObject *old = PyTuple_GET_ITEM(tuple, i);
        Py_INCREF(item);
        PyTuple_SET_ITEM(tuple, i, item);
        Py_DECREF(old);
    }
    static void ao_keep(PyObject *list, Py_ssize_t i, PyObject *item) {
        PyObject *old = PyList_GET_ITEM(list, i);
        Py_INCREF(item);
        PyList_SET_ITEM(list, i, item);
        Py_DECREF(old);
    }
    """
    void put "ao_put"(object tuple, Py_ssize_t i, object item)
    void keep "ao_keep"(object list, Py_ssize_t i, object item)
    object PyObject_Call(object function, object args, PyObject *kwargs)
    PyObject *PyCell_GET(object cell)


cdef class Elementwise:
    """One stretch, and the values that are its operands and results."""
    cdef Stretch stretch
    cdef tuple makes
    cdef Numbers places, values, made_places, made, frees

    def __init__(self, Stretch stretch, operands, results, frees):
        """`operands`: {place: value}; `results`: (place, value, make) with a function that makes its memory."""
        self.stretch, self.frees = stretch, Numbers(frees)
        self.places, self.values = Numbers(operands), Numbers(operands.values())
        self.made_places = Numbers([place for place, _, _ in results])
        self.made = Numbers([value for _, value, _ in results])
        self.makes = tuple([make for _, _, make in results])

    cdef int run(self, list values) except -1:
        cdef Py_ssize_t i
        cdef object t
        for i in range(self.places.count):
            self.stretch.point(self.places.at[i], data_ptr(<object>PyList_GET_ITEM(values, self.values.at[i])))
        for i in range(self.made.count):
            t = self.makes[i]()
            self.stretch.point(self.made_places.at[i], data_ptr(t))
            keep(values, self.made.at[i], t)
        self.stretch.run()
        for i in range(self.frees.count):
            keep(values, self.frees.at[i], None)
        return 0


cdef extern from "moves.h" nogil:
    enum:
        REGION_AXES
    ctypedef struct Region:
        int to "to"
        int source "from"
        int axes
        int64_t read, write
        int64_t size[8]
        int64_t read_stride[8]
        int64_t write_stride[8]
    void move_region(const Region *, const char *, char *, int)
    void fill_memory(char *, int64_t, const char *, int)


cdef class Move:
    """Regions of values that are copied into one result, which is filled before where `fill` has an element."""
    cdef Region *regions
    cdef char **memory
    cdef int count, width
    cdef int64_t bytes
    cdef bytes fill
    cdef object make
    cdef Py_ssize_t made
    cdef Numbers places, values, frees

    def __cinit__(self, list regions, list addresses, dict operands, result, int width, int64_t size, bytes fill, frees):
        """`regions`: (number, sizes, read, strides, write, strides), all in bytes, of the memory `addresses[number]`.

        The last address is the result's, or `result` is (value, make) with a function that makes its memory;
        `operands`: {number: value} of what has another address at each call.
        """
        cdef int k, i
        self.count, self.width, self.bytes, self.fill = len(regions), width, size, fill
        self.places, self.values, self.frees = Numbers(operands), Numbers(operands.values()), Numbers(frees)
        self.made, self.make = result if result is not None else (-1, None)
        self.regions = <Region *>PyMem_Malloc(max(1, self.count) * sizeof(Region))
        self.memory = <char **>PyMem_Malloc(len(addresses) * sizeof(char *))
        if self.regions == NULL or self.memory == NULL:
            raise MemoryError()
        for i, address in enumerate(addresses):
            self.memory[i] = <char *><uintptr_t>address
        for k, (number, sizes, read, read_strides, write, write_strides) in enumerate(regions):
            if not 0 < len(sizes) <= REGION_AXES or not 0 <= number < len(addresses) - 1:
                raise ValueError(f"region {k} names what there is not: {regions[k]}")
            self.regions[k].source, self.regions[k].to = number, len(addresses) - 1
            self.regions[k].axes, self.regions[k].read, self.regions[k].write = len(sizes), read, write
            for i in range(len(sizes)):
                self.regions[k].size[i] = sizes[i]
                self.regions[k].read_stride[i], self.regions[k].write_stride[i] = read_strides[i], write_strides[i]

    def __dealloc__(self):
        PyMem_Free(self.regions)
        PyMem_Free(self.memory)

    cdef int run(self, list values) except -1:
        cdef Py_ssize_t i
        cdef object t
        cdef char *to
        for i in range(self.places.count):
            t = data_ptr(<object>PyList_GET_ITEM(values, self.values.at[i]))
            self.memory[self.places.at[i]] = <char *><uintptr_t>t
        if self.made >= 0:
            t = self.make()
            keep(values, self.made, t)
            self.memory[self.regions[0].to] = <char *><uintptr_t>data_ptr(t)
        to = self.memory[self.regions[0].to]
        if self.fill is not None:
            fill_memory(to, self.bytes, self.fill, self.width)
        for i in range(self.count):
            move_region(self.regions + i, self.memory[self.regions[i].source], to, self.width)
        for i in range(self.frees.count):
            keep(values, self.frees.at[i], None)
        return 0


def run(list steps, list values):
    """Run all steps; `values` has what is given in its places, and afterwards what is asked."""
    for step in steps:
        if type(step) is Elementwise:
            (<Elementwise>step).run(values)
        elif type(step) is Move:
            (<Move>step).run(values)
        else:
            (<Kernel>step).run(values)


cdef bint same(object x, object y) except -1:
    """True if two Python values mean the same to any operator: 1, 1.0, True, 0.0 and -0.0 differ."""
    cdef Py_ssize_t i
    if x is y:
        return True
    if type(x) is not type(y):
        return False
    if type(x) is float:
        return x == y and copysign(1.0, x) == copysign(1.0, y)
    if type(x) is tuple or type(x) is list:
        if len(x) != len(y):
            return False
        for i in range(len(x)):
            if not same(x[i], y[i]):
                return False
        return True
    if type(x) in (int, str, bytes, bool, complex, torch.Size, torch.dtype, torch.device):
        return x == y and (type(x) is not complex or repr(x) == repr(y))
    return False


cdef bint hooked(object t) except -1:
    """True if something is called with the gradient of a tensor."""
    return bool(backward_hooks(t)) or bool(post_accumulate_grad_hooks(t))


cdef class TensorGuard:
    """How a tensor must be for a plan: class, shape, strides, dtype, device, gradient."""
    cdef object kind, shape, stride, dtype, device
    cdef bint requires_grad, leaf, grad, hooked, is_complex
    cdef Py_ssize_t bytes
    cdef TensorGuard gradient

    def __init__(self, t, bint gradients=True):
        if type(t).__torch_dispatch__ is not no_dispatch:
            raise Unrepeatable("it meets a tensor of a class that runs kernels in its own way")
        if t.layout is not strided or t.is_nested or t.is_quantized:
            raise Unrepeatable("it meets a tensor that is sparse or nested or quantized")
        if t.is_conj() or t.is_neg():
            raise Unrepeatable("it meets a lazy conjugate or negative")
        self.kind, self.shape, self.stride = type(t), t.shape, t.stride()
        self.dtype, self.device, self.requires_grad = t.dtype, t.device, t.requires_grad
        self.is_complex = t.is_complex()
        self.bytes = bytes_of(t)
        self.leaf = t.is_leaf
        self.hooked = hooked(t)
        self.grad = gradients and self.leaf and self.requires_grad
        self.gradient = TensorGuard(t.grad, False) if self.grad and t.grad is not None else None

    cdef bint holds(self, object t, list met) except -1:
        """True if a tensor is so; it and its gradient are appended to `met`."""
        cdef object g
        if type(t) is not self.kind or t.requires_grad is not self.requires_grad or t.dtype is not self.dtype \
                or t.shape != self.shape or stride(t) != self.stride or t.device != self.device:
            return False
        met.append(t)
        if self.requires_grad and (t.is_leaf is not self.leaf or hooked(t) is not self.hooked):
            return False
        if self.grad:
            g = t.grad
            if (g is None) is not (self.gradient is None) or (g is not None and not self.gradient.holds(g, met)):
                return False
        return not (self.is_complex and t.is_conj()) and not is_neg(t)

    cdef int add_bytes(self, list found) except -1:
        """Append the size of each tensor that `holds` has met."""
        found.append(self.bytes)
        if self.gradient is not None:
            self.gradient.add_bytes(found)
        return 0


cdef Py_ssize_t bytes_of(object t) except -1:
    """How many bytes lie between the first element of a tensor and the end of the last one."""
    if not t.numel() or not data_ptr(t):
        return 0
    return (1 + sum([(size - 1) * step for size, step in zip(t.shape, t.stride())])) * t.element_size()


cdef struct Extent:
    uintptr_t start
    uintptr_t end
    Py_ssize_t number


cdef int earlier(const void *one, const void *other) noexcept nogil:
    """Order extents by where they begin, and of those that begin together by number."""
    cdef const Extent *x = <const Extent *>one
    cdef const Extent *y = <const Extent *>other
    if x.start != y.start:
        return 1 if x.start > y.start else -1
    return (x.number > y.number) - (x.number < y.number)


cdef class Sharing:
    """Which of some tensors lie in the same memory, and how far from each other they begin."""
    cdef Py_ssize_t count
    cdef Numbers bytes, first, distance
    cdef Extent *extents

    def __cinit__(self, list tensors, list sizes):
        self.count = len(tensors)
        self.bytes, self.first, self.distance = Numbers(sizes), Numbers(range(self.count)), Numbers([0] * self.count)
        self.extents = <Extent *>PyMem_Malloc(max(1, self.count) * sizeof(Extent))
        if self.extents == NULL:
            raise MemoryError()
        self.compared(tensors, True)
        for i in range(self.count):
            one, other = tensors[i], tensors[self.first.at[i]]
            if one is not other and storage_id(one.untyped_storage()) != storage_id(other.untyped_storage()):
                raise Unrepeatable("two storages of its operands are the same memory")

    def __dealloc__(self):
        PyMem_Free(self.extents)

    cdef bint compared(self, list tensors, bint keep) except -1:
        """True if others lie as these tensors did; with `keep`, note how they lie."""
        cdef Py_ssize_t i, number, first = 0, count = 0
        cdef uintptr_t start = 0, end = 0
        cdef Extent *one
        for i in range(self.count):
            if self.bytes.at[i]:
                one = self.extents + count
                one.start, one.number = <uintptr_t>data_ptr(<object>PyList_GET_ITEM(tensors, i)), i
                one.end = one.start + self.bytes.at[i]
                count += 1
        qsort(self.extents, count, sizeof(Extent), earlier)
        for i in range(count):
            one = self.extents + i
            if one.start >= end:
                first, start = one.number, one.start
            end = max(end, one.end)
            number = one.number
            if keep:
                self.first.at[number], self.distance.at[number] = first, one.start - start
            elif self.first.at[number] != first or self.distance.at[number] != <Py_ssize_t>(one.start - start):
                return False
        return True


cdef class Guard:
    """What of a call and of the state that its function sees decides whether a plan is for it."""
    cdef list repeats, guards
    cdef list places, plain
    cdef list held, entries
    cdef object structure
    cdef Sharing sharing

    def __init__(self, list leaves, structure, list held, list entries):
        """`leaves`: the arguments, flat; `held`: tensors that the plan holds; `entries`: of `state.Reached`."""
        cdef list met = [], sizes = []
        self.structure = structure
        self.places = [i for i, x in enumerate(leaves) if isinstance(x, Tensor)]
        self.plain = [(i, x) for i, x in enumerate(leaves) if not isinstance(x, Tensor)]
        everything = [leaves[i] for i in self.places] + held
        self.guards = [TensorGuard(t) for t in everything]
        self.held, self.entries = held, entries
        for t, guard in zip(everything, self.guards):
            (<TensorGuard>guard).holds(t, met)
            (<TensorGuard>guard).add_bytes(sizes)
        self.repeats = first_places(met)
        self.sharing = Sharing(met, sizes)

    cpdef bint holds(self, list leaves, object structure) except -1:
        """True if the plan is for a call with these arguments, now."""
        cdef Py_ssize_t i, count = len(self.places)
        cdef list met = []
        if structure != self.structure:
            return False
        for i, x in self.plain:
            if not same(leaves[i], x):
                return False
        try:
            for i in range(len(self.guards)):
                t = leaves[<Py_ssize_t>self.places[i]] if i < count else self.held[i - count]
                if not (<TensorGuard>PyList_GET_ITEM(self.guards, i)).holds(t, met):
                    return False
            if first_places(met) != self.repeats or not self.sharing.compared(met, False):
                return False
        except RuntimeError:        # of a tensor that has no strides or no memory
            return False
        return unchanged(self.entries)


cdef list first_places(list tensors):
    """For each, the first place where the same object stands."""
    cdef dict seen = {}
    return [seen.setdefault(<uintptr_t><void *>t, i) for i, t in enumerate(tensors)]


cdef bint alike(dict where, dict was) except -1:
    """True if two dictionaries have the same keys in the same order, and values that mean the same."""
    cdef Py_ssize_t i = 0, j = 0
    cdef PyObject *key
    cdef PyObject *value
    cdef PyObject *old_key
    cdef PyObject *old_value
    if len(where) != len(was):
        return False
    while PyDict_Next(was, &j, &old_key, &old_value):
        if not PyDict_Next(where, &i, &key, &value):
            return False
        if key != old_key and not same(<object>key, <object>old_key):
            return False
        if value != old_value and not same(<object>value, <object>old_value):
            return False
    return True


cdef bint stays(object where, object key, object value) except -1:
    """True if what `state.Entry` notes of one place is still so."""
    cdef PyObject *found
    if key is not None:
        found = PyDict_GetItemWithError(where, key)
        return found != NULL and same(<object>found, value)
    if isinstance(where, dict):
        return alike(<dict>where, <dict>value)
    if isinstance(where, list):
        return same(where if type(where) is list else list(list.__iter__(where)), value)
    if isinstance(where, set):
        return same(list(where if type(where) is set else set.__iter__(where)), value)
    if type(where) is CellType:
        found = PyCell_GET(where)
        return same(MISSING if found == NULL else <object>found, value)
    if type(where) is FunctionType:
        return where.__code__ is value[0] and where.__defaults__ is value[1] and where.__kwdefaults__ is value[2]
    return same(where(), value)


def unchanged(list entries):
    """True if each place that the program's state was read from has what it had: the same object, or an equal value."""
    for where, key, value in entries:
        if not stays(where, key, value):
            return False
    return True
