# The operators of hot loops, and who sees a call on a CustomTensor first.

KERNELS = {}                             # operator name -> Kernel
UNARY = tuple("""abs acos acosh asin asinh atan atanh ceil cos cosh digamma erf erfc exp exp2 expm1 floor lgamma log
    log10 log1p log2 neg reciprocal relu round rsqrt sigmoid sin sinh sqrt square tan tanh trunc""".split())
BINARY = tuple("add sub mul div pow atan2 maximum minimum hypot".split())


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
