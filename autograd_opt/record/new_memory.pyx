"""Call kernels whose results are new memory as torch's own nodes call them: without the key for views and writes.

A context excludes autograd's dispatch keys and leaves that key in, since views and writes need it.  A kernel that
torch composes of others would make views, and count writes, that nobody sees.
"""

from autograd_opt.abi import torch_private as private
from autograd_opt.abi.ctorch cimport ao_builtin0, ao_call, ao_knows_keys, ao_use_reads
from autograd_opt.abi.tensor_info import reads_address
from autograd_opt.graph.thread_state cimport exclude_views, include_views

ao_use_reads(reads_address())
cdef object dispatch_modes = private.len_torch_dispatch_stack
cdef dict known = {}                     # function or method -> are its results new memory?


cdef bint alone(object func, object kwargs) except -1:
    """Exclude the key for a call whose results are new memory; if True, `include_views` has to follow the call.

    These results are no views, and begin at version 0.  A dispatch mode would run its own code under the exclusion.
    """
    if not ao_knows_keys() or kwargs is not None and "out" in <dict>kwargs:
        return False
    found = known.get(func)
    if found is None:
        found = known[func] = private.makes_memory(func)
    return found and ao_builtin0(dispatch_modes) == 0 and exclude_views()


cdef object call_alone(object func, tuple args, object kwargs, bint *new):
    """`func(*args, **kwargs)` below autograd; `new` is set where its results are new memory, at version 0."""
    new[0] = alone(func, kwargs)
    try:
        return ao_call(func, args, kwargs)
    finally:
        if new[0]:
            include_views()
