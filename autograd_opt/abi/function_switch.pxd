"""Switch torch functions off and on again, for modes and classes of tensors alike."""

from autograd_opt.abi.ctorch cimport ao_knows_functions, ao_switch_functions

cdef size_t asked_off() except 0
cdef int asked_on(size_t before) except -1

cdef enum:
    KNOWN = 64                           # `functions_off` returns less than this where no object of torch's is used

cdef inline size_t functions_off() except 0:
    """Switch them off; return what `functions_on` needs, whose lowest bit is free."""
    return <size_t>(2 * ao_switch_functions(-1) + 2) if ao_knows_functions() else asked_off()

cdef inline int functions_on(size_t before) except -1:
    """Let them be as they were before `functions_off`."""
    if before >= KNOWN:
        return asked_on(before)
    ao_switch_functions(<int>(before // 2 - 1))
    return 0
