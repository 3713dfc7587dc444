"""Stretches of elementwise steps, run block by block without tensors between them.

The functions and the loop are in `blocks.h`.  A `Stretch` is made once for a plan: its steps name places, which are
operands, results, or scratch.  `run` is given the addresses of operands and results.
"""

from cpython.mem cimport PyMem_Free, PyMem_Malloc
from libc.stdint cimport int64_t, uintptr_t
from libc.stdlib cimport free
from libc.string cimport memset

cdef extern from *:
    """
    static char *scratch_memory(size_t bytes) {
        void *made = NULL;
    #if defined(_WIN32)
        made = _aligned_malloc(bytes, 64);
    #else
        if (posix_memalign(&made, 64, bytes) != 0) made = NULL;
    #endif
        return (char *)made;
    }
    static void scratch_free(char *memory) {
    #if defined(_WIN32)
        _aligned_free(memory);
    #else
        free(memory);
    #endif
    }
    """
    char *scratch_memory(size_t bytes)
    void scratch_free(char *memory)

NAMES = {code_names[i].decode(): i for i in range(CODES)}
"""Function -> its code."""
SOURCES = {"scratch": SCRATCH, "number": NUMBER, "whole": WHOLE, "single": SINGLE, "strided": STRIDED, "whole_bool": WHOLE_BOOL,
           "single_bool": SINGLE_BOOL, "strided_bool": STRIDED_BOOL, "result": RESULT, "result_bool": RESULT_BOOL}
"""Kind of a place -> its code."""
AXES = MOST_AXES


def install(dict floats, dict doubles):
    """Bind functions of a vector mathematics library by name to their addresses in float32 and float64."""
    for name, address in floats.items():
        vector_floats[<int>NAMES[name]] = <vector_float><uintptr_t>address
    for name, address in doubles.items():
        vector_doubles[<int>NAMES[name]] = <vector_double><uintptr_t>address


def available(str name):
    """True if there is code for this function."""
    return found(NAMES[name])


cdef bint found(int code) noexcept:
    """True if there is a function in both widths."""
    return float_functions[code] != NULL or vector_floats[code] != NULL and vector_doubles[code] != NULL


cdef class Stretch:
    """Elementwise steps over `total` elements of `width` bytes."""
    def __cinit__(self, list steps, list places, int64_t total, int width):
        """`steps`: (code, to, a, b, c, value); `places`: (kind, sizes, strides), operands and results among them."""
        cdef int k, i
        cdef size_t step
        self.step_count, self.place_count = len(steps), len(places)
        self.total, self.width = total, width
        self.steps = <Step *>PyMem_Malloc(max(1, self.step_count) * sizeof(Step))
        self.places = <Place *>PyMem_Malloc(max(1, self.place_count) * sizeof(Place))
        if self.steps == NULL or self.places == NULL:
            raise MemoryError()
        memset(self.places, 0, max(1, self.place_count) * sizeof(Place))
        for k, (code, to, a, b, c, value) in enumerate(steps):
            if not 0 <= code < CODES or not all([-1 <= p < self.place_count for p in (to, a, b, c)]) or to < 0:
                raise ValueError(f"step {k} names what there is not: {steps[k]}")
            if not found(code):
                raise ValueError(f"step {k} wants a function that was not found: {code_names[<int>code].decode()}")
            self.steps[k].code, self.steps[k].to = code, to
            self.steps[k].a, self.steps[k].b, self.steps[k].c = a, b, c
            self.steps[k].value = value
        step = <size_t>width * BLOCK
        self.scratch = scratch_memory(max(1, self.place_count) * step)
        if self.scratch == NULL:
            raise MemoryError()
        operands, results = [], []
        for k, (kind, sizes, strides) in enumerate(places):
            self.places[k].source = SOURCES[kind]
            self.places[k].block = self.scratch + k * step
            if len(sizes) > MOST_AXES:
                raise ValueError(f"at most {MOST_AXES} axes, not {len(sizes)}")
            self.places[k].axes = len(sizes)
            for i in range(len(sizes)):
                self.places[k].size[i], self.places[k].stride[i] = sizes[i], strides[i]
            if self.places[k].source in (RESULT, RESULT_BOOL):
                results.append(k)
            elif self.places[k].source not in (SCRATCH, NUMBER):
                operands.append(k)
        self.operands, self.results = tuple(operands), tuple(results)

    def __dealloc__(self):
        PyMem_Free(self.steps)
        PyMem_Free(self.places)
        if self.scratch != NULL:
            scratch_free(self.scratch)

    cpdef int point(self, int place, uintptr_t address) except -1:
        """Say where the memory of an operand or a result begins."""
        self.places[place].data = <char *>address
        return 0

    cpdef int set_number(self, int place, double value) except -1:
        """Say which number a place of the kind `number` holds, in every run."""
        fill(self.places[place].block, value, BLOCK, self.width)
        return 0

    cpdef int run(self) except -1:
        """Run the steps over all blocks."""
        with nogil:
            run_blocks(self.steps, self.step_count, self.places, self.place_count, self.total, self.width)
        return 0
