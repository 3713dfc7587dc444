cpdef bint sole_owner(object t) except -1
cpdef bint resizable(object t) except -1
