# The loss of a classifier, which torch composes of two operators of the table.

cdef object get_dimensions = ao_own(base.__dict__["ndim"])
cdef object log_softmax_method = base.__dict__["log_softmax"]
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
    cdef Op log_softmax, nll
    cdef dict attributes, reductions
    cdef object whole

    def __init__(self, Op log_softmax, Op nll, dict attributes, dict reductions, whole):
        self.log_softmax, self.nll, self.attributes, self.reductions = log_softmax, nll, attributes, reductions
        self.whole = whole

    def __call__(self, func, args, kwargs):
        cdef object r = self.record(args, kwargs)
        return self.whole(func, args, kwargs) if r is None else r

    cdef object record(self, tuple args, dict kwargs):
        """The recorded loss; None where the call is another one, or spelled another way than torch spells it."""
        cdef PyObject *tp = recording()
        cdef Tape tape
        cdef object x, target, weight, reduction, ignored, log_p, switch
        if tp == NULL or len(args) != 2 or len(kwargs) != 6 or kwargs.get("label_smoothing") != 0 \
                or kwargs.get("size_average") is not None or kwargs.get("reduce") is not None \
                or ao_casts(any_autocast):
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
