"""How the arguments of a call become operands and attributes, where their names and places say it all.

Also the kernels of `lstm` and `nll_loss`, which are called too often for Python.
"""

import inspect

import torch

from cpython.object cimport PyObject
from libc.stdint cimport int64_t

from autograd_opt.abi import torch_private as private
from autograd_opt.abi.ctorch cimport (
    ao_all_off, ao_builtin0, ao_call, ao_convolution_back, ao_direct_convolution_back, ao_direct_nll, ao_dtype, ao_get,
    ao_grad_on, ao_knows_functions, ao_method, ao_method0, ao_mode_at, ao_mode_count, ao_nll, ao_on_cpu, ao_own, ao_plain,
    ao_strided, ao_use_reads,
)
from autograd_opt.abi.tensor_info import reads_address
from autograd_opt.graph.node cimport is_custom, ordinary, shape_of, version_of
from autograd_opt.graph.plain_values cimport is_float, same_device

ao_use_reads(reads_address())
cdef object base = private.TensorBase
cdef object lazy_clone = private.lazy_clone
cdef object get_dtype = ao_own(base.__dict__["dtype"])
cdef object get_is_cuda = ao_own(base.__dict__["is_cuda"])
cdef object get_ndim = ao_own(base.__dict__["ndim"])
cdef object all_disabled = private.is_torch_function_all_disabled
cdef object stack_size = private.len_torch_function_stack
cdef object stack_at = private.get_function_stack_at
cdef object DeviceContext = private.DeviceContext
cdef object grad_enabled = private.is_grad_enabled
cdef object convolution_back = private.direct(torch.ops.aten.convolution_backward.default)
cdef object nll_forward = private.direct(torch.ops.aten.nll_loss_forward.default)
cdef object CPU = same_device(torch.device("cpu"))
cdef object FLOAT32 = torch.float32
cdef object Size = torch.Size
cdef object Tensor = torch.Tensor
cdef object Parameter = torch.nn.Parameter
cdef tuple EMPTY = ()


cdef inline bint is_tensor(object t) except -1:
    cdef object kind = type(t)
    return is_custom(t) or kind is Tensor or kind is Parameter or \
        not (t is None or kind is float or kind is int or kind is bool) and isinstance(t, Tensor)


cdef object read(object descr, object t):
    """A property of a tensor, without asking any torch-function mode."""
    if ao_all_off(all_disabled):
        return ao_get(descr, t)
    with private.DisableTorchFunction():
        return ao_get(descr, t)


cdef object REQUIRED = inspect.Parameter.empty
cdef int LIST = -1                       # the target of a parameter whose elements are all operands


cdef class Plan:
    """What each parameter of a callable is.

    Parameters
    ----------
    parameters : (name, target, default) each, the default `inspect.Parameter.empty` where there is
        none.  The target is the number of an operand, -1 for the list of all operands, the name of an
        attribute, None for a parameter that must have its default, or Ellipsis for one that counts for nothing.
    positional : how many of them may be given by position.
    collects : are the integers after the operands collected into the one attribute?
    fixed : attributes that no argument decides.
    lists : attributes that are kept as lists.
    width : how long each of them is, and how often one number stands there; any length where it is 0.
    real : is the first operand to be of a real floating type?
    host : is the first operand to be in memory of the host?
    """
    def __init__(self, parameters, positional, collects=False, fixed=None, lists=(), host=False, width=0, real=False):
        self.targets = tuple([target for _, target, _ in parameters])
        self.defaults = tuple([default for _, _, default in parameters])
        self.count, self.positional, self.collects, self.host = len(parameters), positional, collects, host
        self.fixed, self.lists, self.width, self.real = fixed or {}, tuple(lists), width, real
        self.operands = sum([type(t) is int for t in self.targets])
        self.where = {name: i for i, (name, _, _) in enumerate(parameters)}
        first, second = [[n for n, t, _ in parameters if t is k and type(t) is int] for k in (0, 1)]
        words = {"axis": "dim", "keepdims": "keepdim", **dict.fromkeys(("input", "self"), first[0] if first else ""),
                 **dict.fromkeys(("other", "mat2", "vec2", "tensor2"), second[0] if second else "")}
        for word, name in words.items():
            if name in self.where:
                self.where.setdefault(word, self.where[name])

    cdef tuple bind(self, tuple args, dict kwargs):
        """(operands, attributes); None where a binder in Python has to look."""
        cdef Py_ssize_t i, place, n = len(args)
        cdef list values, operands
        cdef dict attrs
        if self.collects:
            return None if kwargs or n <= self.operands else self.collected(args)
        if n > self.positional:
            return None
        values = list(args)
        if n < self.count:
            values.extend(self.defaults[n:])
        if kwargs:
            for name, value in kwargs.items():
                found = self.where.get(name)
                if found is None or <Py_ssize_t>found < n:
                    return None
                values[<Py_ssize_t>found] = value
        operands = [None] * self.operands
        attrs = self.fixed.copy() if self.fixed else {}
        for i in range(self.count):
            value, target = values[i], self.targets[i]
            if value is REQUIRED:
                return None
            if type(target) is int:
                if <Py_ssize_t>target == LIST:
                    if type(value) is not tuple and type(value) is not list:
                        return None
                    operands = list(value)
                else:
                    operands[<Py_ssize_t>target] = value
            elif target is None:
                if value is not self.defaults[i]:
                    return None
            elif target is not Ellipsis:
                attrs[target] = value
        for name in self.lists:
            value = attrs[name]
            if type(value) is int and self.width:
                attrs[name] = [value] * self.width
                continue
            if type(value) is not tuple and type(value) is not list and type(value) is not Size \
                    or self.width and len(value) != self.width:
                return None
            attrs[name] = list(value)
        if self.real and not (is_tensor(operands[0]) and is_float(read(get_dtype, operands[0]))):
            return None
        if self.host and (not is_tensor(operands[0]) or read(get_is_cuda, operands[0]) is True):
            return None
        return tuple(operands), attrs

    cdef tuple collected(self, tuple args):
        cdef tuple rest = args[self.operands:]
        if len(rest) == 1 and type(rest[0]) is not int:
            if type(rest[0]) is not Size and type(rest[0]) is not tuple and type(rest[0]) is not list:
                return None
            rest = tuple(rest[0])
        return args[:self.operands], {self.targets[self.operands]: rest}


# Constants from numbers alone (`torch.eye(3)`): made anew in a function called twice, they are one value.
cdef object default_dtype = torch.get_default_dtype
cdef object constructors = None


cdef object placeless = None             # a mode that was met alone, and chooses no device


cdef object chosen_device():
    """The device that `torch.device` as a context, or `set_default_device`, has chosen; None for none.

    Each is a mode of torch's, which would be asked after the one of this library.
    """
    global placeless
    cdef bint known = ao_knows_functions()
    cdef Py_ssize_t k, n = ao_mode_count() if known else ao_builtin0(stack_size)
    if known and n == 1 and ao_mode_at(0) == <PyObject *>placeless:
        return None
    for k in range(n - 1, -1, -1):
        mode = <object>ao_mode_at(k) if known else stack_at(k)
        if isinstance(mode, DeviceContext):
            return mode.device
    if n == 1:
        placeless = mode
    return None


cdef object placed(object func, object kwargs):
    """The arguments with the chosen device, for a function that makes a tensor from none."""
    global constructors
    cdef object device = chosen_device()
    if device is None:
        return kwargs
    if constructors is None:
        constructors = frozenset(private.device_constructors())
    if func not in constructors or kwargs and kwargs.get("device") is not None:
        return kwargs
    return {**(kwargs or {}), "device": device}


def of_one_shape(tensors):
    """True if these are ordinary tensors of the same shape."""
    cdef object shape = None
    for t in tensors:
        if not ordinary(t) or not ao_plain(t):
            return False
        if shape is None:
            shape = shape_of(t)
        elif shape_of(t) != shape:
            return False
    return True


cdef class Constant:
    """The binder of such a function: its numbers by name, and the dtype that torch would choose now."""
    def __init__(self, *names):
        self.names = names

    def __call__(self, *args, **kwargs):
        cdef dict numbers = {}
        cdef object dtype = None, device = None
        if len(args) > len(self.names):
            raise TypeError("too many numbers")
        for name, value in zip(self.names, args):
            numbers[name] = value
        for name, value in kwargs.items():
            if name == "dtype":
                dtype = value
            elif name == "device":
                device = value
            elif name in self.names and name not in numbers:
                numbers[name] = value
            else:
                raise TypeError(name)
        for value in numbers.values():
            if type(value) is not int and type(value) is not float and value is not None:
                raise TypeError("not made from numbers alone")
        if device is None and chosen_device() is not None:
            raise TypeError("the device is part of the call")
        numbers["dtype"] = dtype or default_dtype()
        numbers["device"] = device or CPU
        return (), numbers


def convolution_backward(g, x, weight, bias_shape, stride, padding, dilation, bint transposed, output_padding, groups, needs):
    """`aten.convolution_backward`, which takes as long by `torch.ops` as a small convolution."""
    cdef int64_t[14] n                   # as `ao_convolution_back` has it
    cdef Py_ssize_t axes = len(stride), at = 2
    cdef int mask = 0
    if axes <= 3 and not ao_grad_on(grad_enabled) and ordinary(g) and ordinary(x) and ordinary(weight) \
            and ao_direct_convolution_back(g, x, weight):
        n[0], n[1] = groups, bias_shape[0] if len(bias_shape) else -1
        for row in (stride, padding, dilation, output_padding):
            if len(row) != axes:
                break
            for number in row:
                n[at] = number
                at += 1
        else:
            for k, need in enumerate(needs):
                mask |= bool(need) << k
            return ao_convolution_back(g, x, weight, n, axes, transposed, mask)
    return convolution_back(g, x, weight, list(bias_shape) or None, stride, padding, dilation, transposed, output_padding,
                            groups, list(needs))


def nll_loss_forward(x, target, weight, *, reduction, ignore_index):
    """The loss, and the sum of the weights, which its backward reads."""
    if type(reduction) is int and type(ignore_index) is int and ordinary(x) and ordinary(target) \
            and (weight is None or ordinary(weight)) and ao_direct_nll(x, target, weight):
        return ao_nll(x, target, weight, reduction, ignore_index)
    return nll_forward(x, target, weight, reduction, ignore_index)


# The long short-term memory (`recurrent.py`): which calls are torch's fused layers, and one such layer.
cdef object get_count = base.__dict__["numel"]
cdef object onednn_enabled = private.get_mkldnn_enabled
cdef bint has_onednn = private.has_mkldnn
cdef object lstm_layer = private.VariableFunctions.mkldnn_rnn_layer
cdef object transpose_method = base.__dict__["transpose"]
cdef object contiguous_method = base.__dict__["contiguous"]
cdef object select_method = base.__dict__["select"]
cdef object unsqueeze_method = base.__dict__["unsqueeze"]
cdef tuple TURNED = (0, 1)
cdef tuple FIRST = (0, 0)
cdef tuple IN_FRONT = (0,)
cdef int LSTM_CELL = 2                   # what torch calls this kind of cell


cdef bint fused(object t) except -1:
    """Does oneDNN take this tensor?"""
    return is_tensor(t) and ao_dtype(t) is FLOAT32 and ao_on_cpu(t) and ao_strided(t)


def pick_lstm(input, hx, params, has_biases=None, num_layers=None, *rest, **kwargs):
    """The operator's name where torch takes the fused layers."""
    if kwargs or len(rest) != 4 or not isinstance(hx, (tuple, list)) or len(hx) != 2 or not has_onednn \
            or not fused(input) or ao_get(get_ndim, input) != 3 or onednn_enabled() is not True:
        return None
    if len(params) != (4 if has_biases else 2) * num_layers * (2 if rest[2] else 1) or ao_method0(get_count, input) == 0:
        return None
    for t in hx:
        if not fused(t):
            return None
    for t in params:
        if not fused(t):
            return None
    return "lstm"


def bind_lstm(input, hx, params, has_biases, num_layers, dropout, train, bidirectional, batch_first):
    """Operands and attributes."""
    return (input, *hx, *params), {"has_biases": has_biases, "num_layers": num_layers, "dropout": dropout,
                                   "train": train, "bidirectional": bidirectional, "batch_first": batch_first}


cdef class OneLayer:
    """The kernel of `lstm`: one layer in one direction, with biases; every other network by `whole`."""
    cdef object whole

    def __init__(self, whole):
        self.whole = whole

    def __call__(self, *operands, **attributes):
        cdef object input, h, c, w, u, b, d, x, y, h_out, c_out, workspace, batch_first = attributes["batch_first"]
        if attributes["num_layers"] != 1 or attributes["bidirectional"] or not attributes["has_biases"]:
            return self.whole(*operands, **attributes)
        input, h, c, w, u, b, d = operands
        x = ao_method(contiguous_method, ao_method(transpose_method, input, TURNED) if batch_first else input, EMPTY)
        h = ao_method(select_method, ao_method(contiguous_method, h, EMPTY), FIRST)
        c = ao_method(select_method, ao_method(contiguous_method, c, EMPTY), FIRST)
        y, h_out, c_out, workspace = ao_call(lstm_layer, (
            x, w, u, b, d, h, c, False, [], LSTM_CELL, shape_of(h)[1], 1, True, False, batch_first, attributes["train"]), None)
        out = ao_method(transpose_method, y, TURNED) if batch_first else y
        return (out, own_state(h_out), own_state(c_out)), ([(x, w, u, b, d, h, c, y, h_out, c_out, workspace), None], y, version_of(y))


cdef object own_state(object state):
    """The state of the one layer as torch stacks it: a clone that is copied when it is written."""
    return ao_method0(lazy_clone, ao_method(unsqueeze_method, state, IN_FRONT))
