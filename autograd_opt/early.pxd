"""Nodes asked for before they are read: a walk over all nodes of a graph otherwise waits for memory at each."""

from cpython.object cimport PyObject

cdef extern from *:
    """
    #if defined(__GNUC__)
    #define AO_PREFETCH(p) __builtin_prefetch(p)
    #else
    #define AO_PREFETCH(p) ((void)(p))
    #endif
    static CYTHON_INLINE void ao_ask_early(PyObject **nodes, Py_ssize_t i, Py_ssize_t n) {
        if (i + 8 < n) {
            const char *p = (const char *)nodes[i + 8];
            AO_PREFETCH(p);
            AO_PREFETCH(p + 64);
            AO_PREFETCH(p + 128);
        }
    }
    """
    void ao_ask_early(PyObject **nodes, Py_ssize_t i, Py_ssize_t n)
