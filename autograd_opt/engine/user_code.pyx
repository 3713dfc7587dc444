"""Inside a backward run: the state that user code expects, for hooks and for the backward of a Function."""

cimport cython

from autograd_opt.abi import torch_private as private
from autograd_opt.abi.ctorch cimport ao_builtin0, ao_call
from autograd_opt.graph.runs import _local as running
from autograd_opt.graph.tape cimport set_paused
from autograd_opt.record.arguments cimport MODE
from autograd_opt.record.saved_tensors import ENTERED

cdef object Enabled = private.EnableTorchFunction
cdef object push = private.push_on_torch_function_stack
cdef object pop = private.pop_torch_function_stack
cdef object grad_enabled = private.is_grad_enabled
cdef object set_grad = private.set_grad_enabled


@cython.final
cdef class user_code:
    """Inside a run, the state that user code expects: torch functions seen, recording possible."""
    cdef object task, node, run, before, enabled, grad_mode
    cdef list pairs

    def __init__(self, task, node=None):
        self.task, self.node = task, node

    def __enter__(self):
        cdef list runs = getattr(running, "stack", None)
        self.run = runs[len(runs) - 1] if runs else None
        self.pairs = list(ENTERED.pairs)
        if self.run is not None:
            self.before = self.run.node
            self.run.node = self.node
        if self.task.create_graph:
            return
        set_paused(0)
        self.grad_mode = ao_builtin0(grad_enabled)
        self.enabled = Enabled()
        self.enabled.__enter__()
        push(MODE)

    def __exit__(self, *exc):
        try:
            if self.enabled is not None:
                pop()
                self.enabled.__exit__(*exc)
                set_paused(1)
                ao_call(set_grad, (self.grad_mode,), None)
        finally:
            if self.pairs or ENTERED.pairs:
                ENTERED.changed(self.pairs, self.task)
            if self.run is not None:
                self.run.node = self.before
