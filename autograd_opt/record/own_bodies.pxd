"""Let torch's functions in Python run their own body, where its calls are what is recorded."""

cdef int learn_body(object function, object handler) except -1
cdef int answer_questions(bint here) except -1
