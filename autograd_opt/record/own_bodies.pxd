"""Let torch's functions in Python run their own body, where its calls are what is recorded."""

from autograd_opt.record.routes cimport Decomposed

cdef int learn_body(object function, Decomposed handler) except -1
cdef int answer_questions(bint here) except -1
