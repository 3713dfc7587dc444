"""Switch torch functions off and on again, for modes and classes of tensors alike.

torch's own switch is an object with `__enter__` and `__exit__`.  Where `tensor_info.install_functions` has found the
number behind it, that is written instead, which costs a twentieth.
"""

from cpython.object cimport PyObject

from autograd_opt.abi.ctorch cimport ao_knows_functions, ao_loud, ao_quiet, ao_switch_functions

cdef enum:
    KNOWN = 64                           # `functions_off` returns less than this where no object of torch's is used
    UNCHANGED = KNOWN - 2                # they were off already

cdef inline size_t functions_off() except 0:
    """Switch them off; return what `functions_on` needs, whose lowest bit is free."""
    cdef PyObject *guard
    if ao_knows_functions():
        return <size_t>(2 * ao_switch_functions(-1) + 2)
    ao_quiet(&guard)
    return UNCHANGED if guard == NULL else <size_t>guard

cdef inline int functions_on(size_t before) except -1:
    """Let them be as they were before `functions_off`."""
    if before >= KNOWN:
        ao_loud(<PyObject *>before)
    elif before != UNCHANGED:
        ao_switch_functions(<int>(before // 2 - 1))
    return 0
