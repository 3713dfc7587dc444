"""Stretches of elementwise steps, for compiled callers."""

from libc.stdint cimport int64_t, uintptr_t

cdef extern from "blocks.h" nogil:
    enum:
        BLOCK, CODES, MOST_AXES
    enum Source:
        SCRATCH, NUMBER, WHOLE, SINGLE, STRIDED, WHOLE_BOOL, SINGLE_BOOL, STRIDED_BOOL, RESULT, RESULT_BOOL
    ctypedef struct Step:
        int code, to, a, b, c
        double value
    ctypedef struct Place:
        int source, axes
        int64_t size[8]
        int64_t stride[8]
        char *data
        char *block
    ctypedef void (*vector_float)(int, const float *, float *, long long)
    ctypedef void (*vector_double)(int, const double *, double *, long long)
    const char *code_names[]
    vector_float vector_floats[]
    vector_double vector_doubles[]
    const void *float_functions[]
    void fill(char *, double, ptrdiff_t, int)
    void run_blocks(const Step *, int, Place *, int, int64_t, int)


cdef class Stretch:
    cdef Step *steps
    cdef Place *places
    cdef int step_count, place_count, width
    cdef int64_t total
    cdef char *scratch
    cdef readonly tuple operands, results
    cpdef int point(self, int place, uintptr_t address) except -1
    cpdef int set_number(self, int place, double value) except -1
    cpdef int run(self) except -1
