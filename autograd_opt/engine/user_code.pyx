"""Inside a backward run: the state that user code expects, for hooks and for the backward of a Function."""

cimport cython

from autograd_opt.abi import torch_private as private
from autograd_opt.abi.ctorch cimport ao_grad_on, ao_use_reads
from autograd_opt.abi.tensor_info import reads_address
from autograd_opt.graph.runs import _local as running
from autograd_opt.graph.thread_state cimport set_paused
from autograd_opt.record.arguments cimport MODE
from autograd_opt.record.guard cimport set_grad_mode
from autograd_opt.record.saved_tensors import ENTERED

ao_use_reads(reads_address())
cdef object Enabled = private.EnableTorchFunction
cdef object push = private.push_on_torch_function_stack
cdef object pop = private.pop_torch_function_stack
cdef object grad_enabled = private.is_grad_enabled


@cython.final
cdef class user_code:
    """Inside a run, the state that user code expects: torch functions seen, recording possible."""
    cdef object task, node, run, before, enabled
    cdef list pairs
    cdef bint grad_mode

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
        self.grad_mode = ao_grad_on(grad_enabled)
        self.enabled = Enabled()
        self.enabled.__enter__()
        push(MODE)

    def __exit__(self, *exc):
        try:
            if self.enabled is not None:
                pop()
                self.enabled.__exit__(*exc)
                set_paused(1)
                set_grad_mode(self.grad_mode)
        finally:
            if self.pairs or ENTERED.pairs:
                ENTERED.changed(self.pairs, self.task)
            if self.run is not None:
                self.run.node = self.before
