"""Tensors that came to require grad by a write, whose views are older than that."""

import weakref

from cpython.object cimport PyObject

from autograd_opt.abi import torch_private as private
from autograd_opt.abi.ctorch cimport ao_strided, ao_use_reads
from autograd_opt.abi.tensor_info cimport sole_owner
from autograd_opt.abi.tensor_info import reads_address
from autograd_opt.graph.node cimport TapeBase, tapes

ao_use_reads(reads_address())
cdef dict late_bases = {}                # id -> weak reference to such a tensor


def base_became_late(base):
    """Let every graph, also those to come, look at the history of views that are older than that of their `base`."""
    if not ao_strided(base) or sole_owner(base):     # there are none, or none that gets a history later
        return
    cdef size_t key = <size_t><PyObject *>base
    late_bases[key] = weakref.ref(base, lambda _: late_bases.pop(key, None))
    for address in tapes.values():
        (<TapeBase><PyObject *><size_t>address).late = True


cdef bint any_late() except -1:
    """True if such a tensor has a view that is alive, as far as the count of its memory tells."""
    cdef object key, reference, base, storage
    for key in list(late_bases):             # its items are pairs, whose making may let bases end
        reference = late_bases.get(key)
        base = None if reference is None else reference()
        if base is not None:
            storage = base.untyped_storage()
            if private.storage_use_count(private.storage_id(storage)) > 2:           # `base` and `storage`
                return True
        late_bases.pop(key, None)
    return False
