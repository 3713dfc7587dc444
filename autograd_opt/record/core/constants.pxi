# Constants from numbers alone (`torch.eye(3)`): made anew in a function called twice, they are one value.

cdef object default_dtype = torch.get_default_dtype
cdef object constructors = None


cdef object chosen_device():
    """The device that `torch.device` as a context, or `set_default_device`, has chosen; None for none.

    Each is a mode of torch's, which would be asked after the one of this library.
    """
    cdef Py_ssize_t n = ao_builtin0(stack_size)
    if n == 0 or n == 1 and ao_call(stack_at, BOTTOM, None) is MODE:
        return None
    while n > 0:
        n -= 1
        mode = stack_at(n)
        if isinstance(mode, DeviceContext):
            return mode.device
    return None


cdef object placed(object func, object kwargs):
    """The arguments with the chosen device, for a function that makes a tensor from none."""
    global constructors
    cdef object device = chosen_device()
    if device is None:
        return kwargs
    if constructors is None:
        constructors = frozenset(_device_constructors())
    if func not in constructors or kwargs and kwargs.get("device") is not None:
        return kwargs
    return {**(kwargs or {}), "device": device}


cdef class Constant:
    """The binder of such a function: its numbers by name, and the dtype that torch would choose now."""
    cdef tuple names

    def __init__(self, *names):
        self.names = names

    def __call__(self, *args, **kwargs):
        cdef dict numbers = {}
        cdef object dtype = None, device = None
        if len(args) > len(self.names):
            raise TypeError("too many numbers")
        for name, value in zip(self.names, args):
            numbers[name] = value
        for name, value in kwargs.items():
            if name == "dtype":
                dtype = value
            elif name == "device":
                device = value
            elif name in self.names and name not in numbers:
                numbers[name] = value
            else:
                raise TypeError(name)
        for value in numbers.values():
            if type(value) is not int and type(value) is not float and value is not None:
                raise TypeError("not made from numbers alone")
        if device is None and chosen_device() is not None:
            raise TypeError("the device is part of the call")
        numbers["dtype"] = dtype or default_dtype()
        numbers["device"] = device or CPU
        return (), numbers
