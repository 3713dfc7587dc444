"""Values beside tensors: attributes as bytes, Python numbers as tensors, devices as one object each."""

cdef object CPU
cdef object same_device(object device)
cdef bint is_float(object dtype) except -1
cdef int deeper() except -1
cdef void shallower() noexcept
cdef object encode(object v, bint typed=*)
cdef object encode_attributes(object attrs, bint typed)
cdef tuple number_arguments(object number, object t, object dtype)
cdef bint takes_all(object entry, object length) except -1
