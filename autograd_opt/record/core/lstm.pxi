# The long short-term memory (`ops/recurrent.py`): which calls are torch's fused layers, and one such layer.

cdef object get_count = base.__dict__["numel"]
cdef object onednn_enabled = torch._C._get_mkldnn_enabled
cdef bint has_onednn = torch._C._has_mkldnn
cdef object lstm_layer = torch._C._VariableFunctions.mkldnn_rnn_layer
cdef object transpose_method = base.__dict__["transpose"]
cdef object contiguous_method = base.__dict__["contiguous"]
cdef object select_method = base.__dict__["select"]
cdef object unsqueeze_method = base.__dict__["unsqueeze"]
cdef tuple TURNED = (0, 1)
cdef tuple FIRST = (0, 0)
cdef tuple IN_FRONT = (0,)
cdef int LSTM_CELL = 2                   # what torch calls this kind of cell


cdef bint fused(object t) except -1:
    """Does oneDNN take this tensor?"""
    return is_tensor(t) and ao_dtype(t) is FLOAT32 and ao_on_cpu(t) and ao_strided(t)


def pick_lstm(input, hx, params, has_biases=None, num_layers=None, *rest, **kwargs):
    """The operator's name where torch takes the fused layers."""
    if kwargs or len(rest) != 4 or not isinstance(hx, (tuple, list)) or len(hx) != 2 or not has_onednn \
            or not fused(input) or ao_get(get_ndim, input) != 3 or onednn_enabled() is not True:
        return None
    if len(params) != (4 if has_biases else 2) * num_layers * (2 if rest[2] else 1) or ao_method0(get_count, input) == 0:
        return None
    for t in hx:
        if not fused(t):
            return None
    for t in params:
        if not fused(t):
            return None
    return "lstm"


def bind_lstm(input, hx, params, has_biases, num_layers, dropout, train, bidirectional, batch_first):
    """Operands and attributes."""
    return (input, *hx, *params), {"has_biases": has_biases, "num_layers": num_layers, "dropout": dropout,
                                   "train": train, "bidirectional": bidirectional, "batch_first": batch_first}


cdef class OneLayer:
    """The kernel of `lstm`: one layer in one direction, with biases; every other network by `whole`."""
    cdef object whole

    def __init__(self, whole):
        self.whole = whole

    def __call__(self, *operands, **attributes):
        cdef object input, h, c, w, u, b, d, x, y, h_out, c_out, workspace, batch_first = attributes["batch_first"]
        if attributes["num_layers"] != 1 or attributes["bidirectional"] or not attributes["has_biases"]:
            return self.whole(*operands, **attributes)
        input, h, c, w, u, b, d = operands
        x = ao_method(contiguous_method, ao_method(transpose_method, input, TURNED) if batch_first else input, EMPTY)
        h = ao_method(select_method, ao_method(contiguous_method, h, EMPTY), FIRST)
        c = ao_method(select_method, ao_method(contiguous_method, c, EMPTY), FIRST)
        y, h_out, c_out, workspace = ao_call(lstm_layer, (
            x, w, u, b, d, h, c, False, [], LSTM_CELL, shape_of(h)[1], 1, True, False, batch_first, attributes["train"]), None)
        out = ao_method(transpose_method, y, TURNED) if batch_first else y
        return (out, own_state(h_out), own_state(c_out)), ([(x, w, u, b, d, h, c, y, h_out, c_out, workspace), None], y, version_of(y))


cdef object own_state(object state):
    """The state of the one layer as torch stacks it: a clone that is copied when it is written."""
    return ao_method0(lazy_clone, ao_method(unsqueeze_method, state, IN_FRONT))
