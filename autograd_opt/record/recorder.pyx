"""The recorder's hot path: operators of CustomTensor, and `apply` for everything else."""

import sys
from collections import deque
from weakref import ref as weakref

import torch
import torch.autograd.forward_ad as forward_ad

from cpython.object cimport PyObject
from cpython.ref cimport Py_DECREF
from libc.stdint cimport int64_t, uint32_t, uint64_t
from libc.string cimport memcpy

from autograd_opt.abi import torch_private as private
from autograd_opt.abi.ctorch cimport (
    ao_builtin0, ao_call, ao_casts, ao_dtype, ao_frame, ao_frame_code, ao_frame_done, ao_frame_lasti, ao_frame_t,
    ao_get, ao_grad_on, ao_innermost_mode, ao_is_inference, ao_is_view, ao_is_zero, ao_direct_linear,
    ao_knows_modes, ao_linear, ao_method, ao_method0, ao_mode_count, ao_needs_grad, ao_own,
    ao_pair, ao_plain, ao_single, ao_strided, ao_set_type, ao_memory, ao_start, ao_try_attr, ao_use_reads,
)
from autograd_opt.graph.node cimport (
    CLONE, COMMUTATIVE, DEAD, ELEMENTWISE, EXPOSED, FREED, HIDES, INNER, LEAF, MOVES, MULTI, NEEDS_ANS, NO_MERGE,
    OUTPUT_OP, OVERWRITTEN, PINNED, PURE, REDUCES, REQUIRES_GRAD, SCALAR0, SCALAR1, SPARSE, UNBROADCAST0,
    UNBROADCAST1, UNBROADCASTN, VARIADIC, VIEW, WROTE, CustomTensor, Node, Op, awaits, current_source, fresh_vn, new_node,
    ordinary, shape_of, version_of,
)
from autograd_opt.graph.handles cimport attach, handle, held_node, wrote
from autograd_opt.graph.plain_values cimport deeper, is_float, number_arguments, same_device, shallower
from autograd_opt.graph.tape cimport Tape, active_tape, recording, set_paused, tape_here
from autograd_opt.graph.value_table cimport Entry, find
from autograd_opt.graph.values cimport known_value, left_over
from autograd_opt.ops.binding cimport Plan, placed
from autograd_opt.record.autocast cimport install_casts, lowered
from autograd_opt.record.guard cimport enter, leave
from autograd_opt.record.keys cimport key_of, key_of_all
from autograd_opt.record.new_nodes cimport device_of, fill, own_attributes, owned, pack_saved, record_outputs, saved_version
from autograd_opt.record.sites cimport (
    MORE_MISSES, forget_sites, learn, learn_function, missed_here, settled, settled_after,
)

from autograd_opt.abi.kernel_names import PAIRS, SINGLES
from autograd_opt.abi.tensor_info import reads_address
from autograd_opt.graph.structure import forget_roots
from autograd_opt.graph.tape import saving_hooks, set_active_tape, unusual
from autograd_opt.record.new_nodes import record_write

ao_use_reads(reads_address())
cdef object base = private.TensorBase
cdef object lazy_clone = base.__dict__["_lazy_clone"]
cdef object is_inference = base.__dict__["is_inference"]
cdef object DType = torch.dtype
cdef object Size = torch.Size
cdef object is_zero = base.__dict__["_is_zerotensor"]
cdef object NODE = "_node"
cdef object MARK = "_requires_grad"
cdef object MethodDescriptor = type(base.__dict__["add"])
cdef object get_data = base.__dict__["data"]
cdef object get_device = ao_own(base.__dict__["device"])
cdef object guard_enter = private.DisableTorchFunction.__dict__["__enter__"]
cdef object guard_exit = private.DisableTorchFunction.__dict__["__exit__"]
cdef object grad_enabled = private.is_grad_enabled
cdef object all_disabled = private.is_torch_function_all_disabled
cdef object any_autocast = private.is_any_autocast_enabled
cdef object CPU = same_device(torch.device("cpu"))
cdef tuple NOTHING = (None, None, None)
cdef tuple EMPTY = ()
cdef object Tensor = torch.Tensor
cdef object Parameter = torch.nn.Parameter

include "core/fast.pxi"
include "core/apply.pxi"
include "core/guarded.pxi"
include "core/routes.pxi"
include "core/writes.pxi"
include "core/composed.pxi"
include "core/methods.pxi"
include "core/slots.pxi"

def install(custom, dict ops):
    """Know the operators of hot loops, and write the slots of `custom`."""
    global SLICE, INDEX, SLOT
    from autograd_opt.ops.indexing import SLOT
    SLICE, INDEX = ops["slice"], ops["index"]
    for name in UNARY + BINARY:
        if name in ops:
            KERNELS[name] = Kernel(name, ops[name])
    if "number_slots" not in parts_off:
        install_slots(custom)


include "core/direct.pxi"
include "core/reads.pxi"
include "core/unrecorded.pxi"
include "core/calls.pxi"
include "core/shortcut.pxi"
include "core/context.pxi"
