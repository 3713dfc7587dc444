# How the arguments of a call become operands and attributes, where their names and places say it all.

cdef object REQUIRED = inspect.Parameter.empty


cdef class Plan:
    """What each parameter of a callable is.

    Parameters
    ----------
    parameters : (name, target, default) each, the default `inspect.Parameter.empty` where there is
        none.  The target is the number of an operand, the name of an attribute, None for a parameter
        that must have its default, or Ellipsis for one that counts for nothing.
    positional : how many of them may be given by position.
    collects : are the integers after the operands collected into the one attribute?
    fixed : attributes that no argument decides.
    lists : attributes that are kept as lists.
    width : how long each of them is; any length where it is 0.
    real : is the first operand to be of a real floating type?
    host : is the first operand to be in memory of the host?
    """
    cdef dict where, fixed
    cdef tuple targets, defaults, lists
    cdef Py_ssize_t count, positional, operands, width
    cdef bint collects, host, real

    def __init__(self, parameters, positional, collects=False, fixed=None, lists=(), host=False, width=0, real=False):
        self.targets = tuple([target for _, target, _ in parameters])
        self.defaults = tuple([default for _, _, default in parameters])
        self.count, self.positional, self.collects, self.host = len(parameters), positional, collects, host
        self.fixed, self.lists, self.width, self.real = fixed or {}, tuple(lists), width, real
        self.operands = sum([type(t) is int for t in self.targets])
        self.where = {name: i for i, (name, _, _) in enumerate(parameters)}
        first, second = [[n for n, t, _ in parameters if t is k and type(t) is int] for k in (0, 1)]
        words = {"axis": "dim", "keepdims": "keepdim", **dict.fromkeys(("input", "self"), first[0] if first else ""),
                 **dict.fromkeys(("other", "mat2", "vec2", "tensor2"), second[0] if second else "")}
        for word, name in words.items():
            if name in self.where:
                self.where.setdefault(word, self.where[name])

    cdef tuple bind(self, tuple args, dict kwargs):
        """(operands, attributes); None where a binder in Python has to look."""
        cdef Py_ssize_t i, place, n = len(args)
        cdef list values, operands
        cdef dict attrs
        if self.collects:
            return None if kwargs or n <= self.operands else self.collected(args)
        if n > self.positional:
            return None
        values = list(args)
        if n < self.count:
            values.extend(self.defaults[n:])
        if kwargs:
            for name, value in kwargs.items():
                found = self.where.get(name)
                if found is None or <Py_ssize_t>found < n:
                    return None
                values[<Py_ssize_t>found] = value
        operands = [None] * self.operands
        attrs = self.fixed.copy() if self.fixed else {}
        for i in range(self.count):
            value, target = values[i], self.targets[i]
            if value is REQUIRED:
                return None
            if type(target) is int:
                operands[<Py_ssize_t>target] = value
            elif target is None:
                if value is not self.defaults[i]:
                    return None
            elif target is not Ellipsis:
                attrs[target] = value
        for name in self.lists:
            value = attrs[name]
            if type(value) is not tuple and type(value) is not list and type(value) is not Size \
                    or self.width and len(value) != self.width:
                return None
            attrs[name] = list(value)
        if self.real and not (is_tensor(operands[0]) and is_float(read(get_dtype, operands[0]))):
            return None
        if self.host and (not is_tensor(operands[0]) or read(get_is_cuda, operands[0]) is True):
            return None
        return tuple(operands), attrs

    cdef tuple collected(self, tuple args):
        cdef tuple rest = args[self.operands:]
        if len(rest) == 1 and type(rest[0]) is not int:
            if type(rest[0]) is not Size and type(rest[0]) is not tuple and type(rest[0]) is not list:
                return None
            rest = tuple(rest[0])
        return args[:self.operands], {self.targets[self.operands]: rest}
