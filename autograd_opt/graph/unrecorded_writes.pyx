"""Which line of the user's has last written a memory without a record."""

import torch

cimport cython
from cpython.dict cimport PyDict_GetItemWithError
from cpython.object cimport PyObject

from autograd_opt.abi import torch_private as private
from autograd_opt.abi.ctorch cimport ao_memory, ao_use_reads
from autograd_opt.abi.tensor_info import reads_address
from autograd_opt.graph.node cimport Node, user_code

ao_use_reads(reads_address())
cdef object STRIDED_LAYOUT = torch.strided
cdef object free_weak_ref = private.storage_free_weak_ref
cdef object expired = private.storage_expired


@cython.final
cdef class Memory:
    """A weak reference to the storage of a tensor, as `StorageWeakRef` is one, and where it was last written."""
    cdef size_t address
    cdef PyObject *code                  # as `user_code` has it
    cdef int lasti

    def __init__(self, t):
        self.address = private.storage_new_weak_ref(t.untyped_storage())

    def __dealloc__(self):
        if self.address:
            free_weak_ref(self.address)


@cython.final
cdef class UnrecordedWrites:
    """The latest unrecorded write to each memory, while that is there."""

    def __cinit__(self):
        self.known = {}

    cdef int note(self, object t) except -1:
        """Remember which line of the user's has written the memory of `t` without a record."""
        cdef size_t address = <size_t>ao_memory(t)
        cdef PyObject *found = PyDict_GetItemWithError(self.known, address) if address else NULL
        cdef Memory memory
        if found == NULL:
            try:
                memory = Memory(t)           # held, it keeps the address from being given away
            except NotImplementedError:      # a slice inside vmap, whose memory has no name
                return 0
            if len(self.known) >= self.due:
                self.forget()
            self.known[memory.address] = memory
        else:
            memory = <Memory>found
        memory.code = user_code(&memory.lasti)
        return 0

    cdef int forget(self) except -1:
        """Forget the writes of memory that is gone: a few bytes kept for each would come to lie
        between what is freed, and keep the memory of the process growing."""
        for address in list(self.known):
            if expired(address):
                del self.known[address]
        self.due = 2 * len(self.known) + 8
        return 0

    cpdef int locate(self, Node node, object t) except -1:
        """Give a `written` node the line of the write; none where the write was not seen."""
        cdef size_t address = <size_t>ao_memory(t)
        cdef PyObject *found
        if not address and t.layout is STRIDED_LAYOUT:
            address = private.storage_id(t.untyped_storage())
        found = PyDict_GetItemWithError(self.known, address) if address else NULL
        node.code = None
        if found != NULL and (<Memory>found).code != NULL:
            node.code, node.lasti = <object>(<Memory>found).code, (<Memory>found).lasti
        return 0

    cdef int clear(self) except -1:
        self.known.clear()
        return 0
