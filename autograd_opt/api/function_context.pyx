"""The `ctx` of a Function's forward and backward."""

import warnings

import torch

from autograd_opt import errors
from autograd_opt.abi import torch_private as private
from autograd_opt.abi.ctorch cimport ao_is_inference, ao_plain, ao_use_reads
from autograd_opt.abi.tensor_info import reads_address
from autograd_opt.graph import refusals
from autograd_opt.graph.handles import handle_of
from autograd_opt.graph.node cimport version_of
from autograd_opt.graph.thread_state cimport recording
from autograd_opt.graph.thread_state import saving_hooks
from autograd_opt.graph.tensor import revive
from autograd_opt.record.saved_tensors cimport Packed, pack

ao_use_reads(reads_address())
cdef object Tensor = torch.Tensor
cdef object Guard = private.DisableTorchFunction
cdef object is_inference = private.TensorBase.__dict__["is_inference"]


cdef Py_ssize_t place_of(object t, object several) except -2:
    """Where `t` itself is in a list or a tuple; -1 where it is not."""
    cdef Py_ssize_t i = 0
    for other in several:
        if other is t:
            return i
        i += 1
    return -1


cdef object counted(object t):
    """How many writes to `t` torch has counted; of a tensor that has a behaviour of its own with that switched off."""
    if ao_plain(t):
        return version_of(t)
    with Guard():
        return version_of(t)


cdef object written(Py_ssize_t i, object t, object version):
    """The error of a saved tensor that was written since."""
    with Guard():
        return errors.InplaceError(
            "one of the variables needed for gradient computation has been modified by an inplace operation: saved tensor "
            f"{i} is at version {private.version_of(t)}; expected version {version} instead"
        )


@torch.autograd.graph.Node.register
class Context:
    """The `ctx` of a forward and its backward: torch's `FunctionCtx`, for this engine."""

    _to_save = ()
    _dirty = ()
    _non_differentiable = ()
    _materialize = True
    _clear_on_access = False
    _places = (), 0

    def __init__(self, needs_input_grad):
        self.needs_input_grad = needs_input_grad
        self._saved = []
        self._slots = {}
        self._output_nodes = {}
        self.metadata = {}

    def save_for_backward(self, *tensors):
        """Tensors (or None) for `saved_tensors`: inputs, outputs or intermediates."""
        self._to_save = tensors

    save_for_forward = save_for_backward

    def mark_dirty(self, *tensors):
        """Inputs that the forward wrote in place; they must be outputs too."""
        self._dirty = tensors

    def mark_non_differentiable(self, *tensors):
        """Outputs that carry no gradient."""
        self._non_differentiable = tensors

    def set_materialize_grads(self, value):
        """Whether missing cotangents reach backward as zeros (the default) or as None."""
        self._materialize = value

    @property
    def to_save(self):
        """What `save_for_backward` was given; only inside forward."""
        return self._to_save

    @property
    def saved_variables(self):
        """torch's old name of `saved_tensors`."""
        warnings.warn("'saved_variables' is deprecated; use 'saved_tensors'", DeprecationWarning, stacklevel=1)
        return self.saved_tensors

    @property
    def saved_tensors(self):
        """What `save_for_backward` was given, checked to be unwritten since."""
        if self._saved is None:
            raise errors.FreedGraphError(
                "Trying to backward through the graph a second time (or directly access saved tensors after they "
                "have already been freed). Saved intermediate values of the graph are freed when you call "
                ".backward() or autograd.grad(). Specify retain_graph=True if you need to backward through the graph "
                "a second time or if you need to access saved tensors after calling backward."
            )
        cdef bint seen = recording() != NULL
        cdef list out = []
        for i, (t, version) in enumerate(self._saved):
            if type(t) is Packed:
                t = t.seen_by_user() if seen else t.value()
            elif t is not None:
                if counted(t) != version:
                    raise written(i, t, version)
                if seen and i in self._output_nodes:
                    t = revive(self._output_nodes[i], t)
            out.append(t)
        if self._clear_on_access:
            self._saved = None
        return tuple(out)

    def _finish(self, list outputs, bint grad):
        """After forward: remember what was saved, outputs as aliases without their handles.

        `outputs` has None for an operand returned as it is: it is saved as an operand, its alias is the output.
        """
        cdef list saved = []
        cdef bint hooked = grad and saving_hooks() > 0
        cdef Py_ssize_t slot
        for t in self._to_save:
            if t is None or not grad and not isinstance(t, Tensor):
                saved.append((None, 0))         # torch asks only where there is something to save for
                continue
            if not isinstance(t, Tensor):
                raise errors.ArgumentTypeError(errors.at(
                    f"save_for_backward can only save variables, but argument {len(saved)} is of type "
                    f"{type(t).__name__}"
                ))
            if grad and ao_is_inference(is_inference, t):
                raise refusals.inference_saved()
            slot = place_of(t, outputs)
            if slot >= 0:
                self._slots[len(saved)] = slot
                t = t.detach()
            version = version_of(t)
            saved.append((pack(t, None if slot >= 0 else handle_of(t, False)) if hooked else t, version))
        self._saved = saved
        self._to_save = ()

    def _connect(self, dict found):
        """Tell the saved outputs their nodes, which keep derivatives of any order connected."""
        self._output_nodes = {k: found[i] for k, i in self._slots.items() if i in found}
        for k, node in self._output_nodes.items():
            t = self._saved[k][0] if self._saved is not None else None
            if type(t) is Packed:
                t.node = node


setattr(Context, private.NON_DIFFERENTIABLE_GRADS, True)
