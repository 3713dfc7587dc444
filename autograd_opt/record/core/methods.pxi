# Methods and properties of CustomTensor that do not need the torch-function protocol.

# The operators of CustomTensor. --------------------------------------------------------
KERNELS = {}                             # operator name -> Kernel
UNARY = tuple("""abs acos acosh asin asinh atan atanh ceil cos cosh digamma erf erfc exp exp2 expm1 floor lgamma log
    log10 log1p log2 neg reciprocal relu round rsqrt sigmoid sin sinh sqrt square tan tanh trunc""".split())
BINARY = tuple("add sub mul div pow atan2 maximum minimum hypot".split())
DUNDER = {"add": "__add__", "sub": "__sub__", "mul": "__mul__", "div": "__truediv__", "neg": "__neg__",
          "pow": "__pow__", "abs": "__abs__"}


cdef inline bint overridden() except -1:
    """Does a torch-function mode of the user's lie further inside than this library's?  It sees the call first."""
    cdef PyObject *tp = recording()
    cdef int64_t n
    if tp == NULL or (<Tape>tp).guarded:
        return False
    n = ao_mode_count()
    return (n < 0 or n > (<Tape>tp).modes) and mode_further_inside()


cdef bint mode_further_inside() except -1:
    cdef Py_ssize_t i, n = ao_builtin0(stack_size)
    if n < 2 or ao_builtin0(all_disabled) is True or mode_innermost():
        return False
    for i in range(n - 1):
        if ao_call(stack_at, (i,), None) is MODE:
            return True
    return False


def unary_method(Kernel k):
    """The method of CustomTensor for one operand."""
    def method(self):
        return k.descr(self) if overridden() else unary(k, self)
    return method


def binary_method(Kernel k):
    """The method of CustomTensor for two operands."""
    def method(self, other):
        try:
            return k.descr(self, other) if overridden() else binary(k, self, other)
        except TypeError:
            return NotImplemented            # as torch's operators: the other class may know what to do
    return method


def reflected_method(Kernel k):
    """The method for `other op self`, where `self` is of the more special class."""
    theirs = getattr(Tensor, f"__r{k.op.name}__")

    def method(self, other):
        if overridden():
            return theirs(self, other)
        try:
            if type(other) is Tensor or type(other) is Parameter:
                return binary(k, other, self)     # the first operand decides about the layout
            return binary(k, self, other)
        except TypeError:
            return NotImplemented
    return method


cdef object read(object descr, object t):
    """A property of a CustomTensor, without asking any torch-function mode."""
    if ao_builtin0(all_disabled) is True:
        return ao_get(descr, t)
    guard = private.DisableTorchFunction()
    ao_method0(guard_enter, guard)
    try:
        return ao_get(descr, t)
    finally:
        ao_method(guard_exit, guard, NOTHING)


cdef object get_shape = ao_own(base.__dict__["shape"])
cdef object get_ndim = ao_own(base.__dict__["ndim"])


def p_shape(self):
    return read(get_shape, self)


def p_dtype(self):
    return read(get_dtype, self)


def p_device(self):
    return read(get_device, self)


def p_ndim(self):
    return read(get_ndim, self)


def plain_property(descr):
    """A property that is no operation, as `shape` is."""
    return property(lambda self: read(descr, self))


PROPERTIES = tuple("layout is_nested is_sparse is_quantized is_mkldnn is_cpu is_cuda is_meta itemsize nbytes".split())


def t_dim(self):
    return read(get_ndim, self)


def t_size(self, dim=None):
    shape = read(get_shape, self)
    return shape if dim is None else shape[dim]


METHODS = tuple("""view reshape transpose permute unsqueeze squeeze contiguous flatten t sum mean matmul softmax
    log_softmax expand masked_fill clone unflatten amax logsumexp var std prod""".split())


def routed_method(func):
    """A method of CustomTensor that goes straight to its route, past the mode."""
    def method(*args, **kwargs):
        if recording() == NULL or (<Tape>recording()).guarded or overridden() or foreigners(args, kwargs):
            return func(*args, **kwargs)
        handler = handlers.get(func)
        if type(handler) is Recorded:
            return (<Recorded>handler).run(func, args, kwargs)
        return func(*args, **kwargs)
    method.__name__ = func.__name__
    method.__doc__ = func.__doc__
    return method


def matmul_operator(self, other):
    """`self @ other`, which torch knows by the name of the method."""
    try:
        return matmul_method(self, other)
    except TypeError:
        return NotImplemented


cdef object matmul_method = routed_method(Tensor.matmul)
