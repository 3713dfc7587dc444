"""Record `cross_entropy` as the two operators that it is made of."""

import torch

from cpython.object cimport PyObject

from autograd_opt.abi import torch_private as private
from autograd_opt.abi.ctorch cimport ao_casts, ao_dtype, ao_get, ao_own, ao_strided, ao_use_reads
from autograd_opt.abi.tensor_info import reads_address
from autograd_opt.graph.node cimport Op, shape_of
from autograd_opt.graph.tape cimport Tape
from autograd_opt.graph.thread_state cimport recording
from autograd_opt.record.arguments cimport is_tensor
from autograd_opt.record.autocast cimport autocast_off, lowered
from autograd_opt.record.guard cimport enter, leave
from autograd_opt.record.recorder cimport recorded

ao_use_reads(reads_address())
cdef object any_autocast = private.is_any_autocast_enabled
cdef object get_dimensions = ao_own(private.TensorBase.__dict__["ndim"])
cdef object log_softmax_method = private.TensorBase.__dict__["log_softmax"]
cdef object nll_function = private.nn.nll_loss
cdef object INT64 = torch.int64


cdef class CrossEntropy:
    """`cross_entropy` of one class for each row of a matrix: logarithms of the softmax, then one of each row.

    Parameters
    ----------
    log_softmax, nll : the two operators.
    attributes : those of the first.
    reductions : name of a reduction -> torch's number for it.
    whole : the route of every other call.
    """
    def __init__(self, Op log_softmax, Op nll, dict attributes, dict reductions, whole):
        self.log_softmax, self.nll, self.attributes, self.reductions = log_softmax, nll, attributes, reductions
        self.whole = whole

    def __call__(self, func, args, kwargs):
        cdef object r = self.record(args, kwargs)
        return self.whole(func, args, kwargs) if r is None else r

    cdef object record(self, tuple args, dict kwargs):
        """The recorded loss; None where the call is another one, or spelled another way than torch spells it."""
        cdef autocast_off off
        cdef object cast
        if not ao_casts(any_autocast):
            return self.uncast(args, kwargs)
        cast = lowered("cross_entropy_loss", args, kwargs)
        if cast is None:
            return None
        args, kwargs = cast
        off = autocast_off.__new__(autocast_off)
        if off.leave_on(args, kwargs):
            return self.uncast(args, kwargs)
        try:
            return self.uncast(args, kwargs)
        finally:
            off.back()

    cdef object uncast(self, tuple args, dict kwargs):
        cdef PyObject *tp = recording()
        cdef Tape tape
        cdef object x, target, weight, reduction, ignored, log_p
        cdef size_t switch
        if tp == NULL or len(args) != 2 or len(kwargs) != 6 or kwargs.get("label_smoothing") != 0 \
                or kwargs.get("size_average") is not None or kwargs.get("reduce") is not None:
            return None
        reduction, ignored, weight = self.reductions.get(kwargs.get("reduction")), kwargs.get("ignore_index"), kwargs.get("weight")
        x, target = args
        if reduction is None or ignored is None or not is_tensor(x) or not is_tensor(target):
            return None
        tape = <Tape>tp
        switch = enter(tape)
        try:
            if not ao_strided(x) or ao_dtype(target) is not INT64 or ao_get(get_dimensions, target) != 1 or ao_get(get_dimensions, x) != 2 \
                    or shape_of(x)[0] != shape_of(target)[0]:
                return None
            log_p = recorded(tape, self.log_softmax, log_softmax_method, (x, 1), {}, (x,), self.attributes.copy(), True)
            return recorded(tape, self.nll, nll_function, (log_p, target, weight, reduction, ignored), {},
                            (log_p, target, weight), {"reduction": reduction, "ignore_index": ignored}, True)
        finally:
            leave(tape, switch)
