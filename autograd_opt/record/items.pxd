"""Indexing, as Python's slots ask for it."""

from cpython.object cimport PyObject

cdef object PAST                         # what says that torch has to be asked
cdef set numbers                         # the classes of Python's numbers
cdef object getitem                      # torch's
cdef object item_of(PyObject *tensor, PyObject *key)
cdef Py_ssize_t take_items() except -1
