cpdef bint sole_owner(object t, Py_ssize_t copies=*) except -1
cpdef bint resizable(object t) except -1
cpdef bint same_memory(object a, object b) except -1
