# Attributes as bytes: equal bytes are equal constants, bit for bit.

cdef object _f32 = torch.float32, _f64 = torch.float64, _bf16 = torch.bfloat16, _f16 = torch.float16


cdef bint is_float(object dtype):
    return dtype is _f32 or dtype is _f64 or dtype is _bf16 or dtype is _f16


cdef extern from "Python.h":
    int Py_EnterRecursiveCall(const char *) except? 1
    void Py_LeaveRecursiveCall() noexcept


cdef int deeper() except -1:
    """One container further in; RecursionError where there are too many, as in a list that holds itself."""
    Py_EnterRecursiveCall(" in an attribute")
    return 0


cdef void shallower() noexcept:
    Py_LeaveRecursiveCall()


cdef object encode(object v, bint typed=False):
    """Bytes that are equal exactly when two attribute values are the same, bit for bit.

    Type-tagged, floats by their bits, so that 1, 1.0, True, 0.0 and -0.0 all differ; lists, tuples and sizes where
    they are `typed`.  Raises TypeError for a value of unknown meaning.
    """
    t = type(v)
    if v is None:
        return b"N"
    if t is bool:
        return b"T" if v else b"F"
    if t is int:
        return b"i%x;" % v
    if t is float:
        return b"f" + struct.pack("<d", v)
    if t is complex:
        return b"c" + struct.pack("<dd", v.real, v.imag)
    if t is str:
        s = v.encode(errors="surrogatepass")
        return b"s%d:" % len(s) + s
    if t is tuple or t is list or t is torch.Size:
        deeper()
        try:
            return b"(%d%s:" % (len(v), tag_of(t) if typed else b"") + b"".join([encode(x, typed) for x in v])
        finally:
            shallower()
    if t is slice:
        return b"l" + encode(v.start, typed) + encode(v.stop, typed) + encode(v.step, typed)
    if v is Ellipsis:
        return b"E"
    if t in (torch.dtype, torch.device, torch.layout, torch.memory_format):
        return b"d" + repr(v).encode() + b";"
    raise TypeError(t)


cdef inline object tag_of(object kind):
    return b"l" if kind is list else b"t" if kind is tuple else b"z"


cdef object encode_attributes(object attrs, bint typed):
    """The key bytes of an attribute dict (order of names does not matter)."""
    return b"".join([encode(k) + encode(attrs[k], typed) for k in sorted(attrs)]) if attrs else b""


def attribute_key(attrs, bint typed=False):
    """The key bytes of an attribute dict; TypeError for a value without a key."""
    return encode_attributes(attrs, typed)


cdef object pass_key(Node node):
    """What decides, with the operands, whether two nodes compute the same."""
    cdef Op op = node.op
    if node.flags & LEAF or not op.flags & PURE and op is not OUTPUT_OP:
        return (node.index,)
    try:
        attrs = encode_attributes(node.attributes, op.typed)
    except (TypeError, RecursionError):     # an attribute without a key: equal to nothing
        return (node.index,)
    mask = [n is not None for n in (node.more if node.more is not None else (node.in0, node.in1))]
    return (op.id, node.flags & REQUIRES_GRAD, node.dtype, node.device, attrs, tuple(mask))


cdef object CPU = torch.device("cpu")
cdef dict _devices = {CPU: CPU}
