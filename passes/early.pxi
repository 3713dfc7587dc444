# Memory asked for before it is read.

cdef extern from *:
    """
    #if defined(__GNUC__) || defined(__clang__)
    #define AUTOGRAD_OPT_PREFETCH(address) __builtin_prefetch(address)
    #else
    #define AUTOGRAD_OPT_PREFETCH(address) ((void)(address))
    #endif
    """
    void prefetch "AUTOGRAD_OPT_PREFETCH"(const void *address) noexcept nogil
