# Where a call that torch sends to `__torch_function__` goes: recorded, decomposed, or run as it is.

# The routes of the torch-function mode. ------------------------------------------------
cdef class Route:
    """How a callable is run inside a context."""

    def __call__(self, func, args, kwargs):
        return self.run(func, args, kwargs)

    cdef object run(self, object func, tuple args, dict kwargs):
        raise NotImplementedError


cdef class Recorded(Route):
    """How one operator is run: bound to operands and attributes, then recorded."""
    cdef Op op
    cdef object bind, rename, fallback, whole
    cdef Kernel kernel
    cdef Plan plan
    cdef Py_ssize_t n

    def __init__(self, Op op, bind, rename, fallback):
        from autograd_opt.record.torch_fallback import handler
        self.kernel = KERNELS.get(op.name)
        self.whole = handler             # where autocast does what the table cannot say
        self.op, self.bind, self.rename, self.fallback = op, bind, rename, fallback
        # where every positional argument is an operand there is nothing to bind
        self.n = 0 if op.attributes or op.flags & VARIADIC else len(op.operands)
        self.plan = None if op.flags & VARIADIC else getattr(bind, "plan", None)

    cdef object run(self, object func, tuple args, dict kwargs):
        cdef PyObject *tp
        cdef Tape tape
        cdef tuple operands
        cdef dict attrs
        cdef object r, bound = None, switch
        if ao_casts(any_autocast):
            cast = lowered(self.op, args, kwargs)
            if cast is None:
                lent(args, kwargs)
                return self.whole(func, args, kwargs)
            args, kwargs = cast
        if self.kernel is not None and not kwargs and len(args) == self.kernel.arity:
            r = fast_unary(self.kernel, args[0], True) if self.kernel.arity == 1 \
                else fast_binary(self.kernel, args[0], args[1])
            if r is not None:
                return r
        tp = recording()
        if tp == NULL:
            return func(*args, **kwargs)
        tape = <Tape>tp
        if kwargs and kwargs.get("out") is not None:
            r = into(tape, func, args, kwargs)
            if r is not None:
                return r
            lent(args, kwargs)
            return self.fallback(func, args, kwargs)
        if idle(tape, args, kwargs):
            return unrecorded(tape, func, args, kwargs)
        if self.plan is not None and not (self.n and not kwargs and len(args) == self.n):
            bound = self.plan.bind(args, kwargs)
            if bound is not None and self.kernel is not None and self.kernel.arity == 1 and not bound[1]:
                r = fast_unary(self.kernel, bound[0][0])
                if r is not None:
                    return r
        switch = enter(tape)                 # a binder reads shapes and types
        try:
            if self.n and not kwargs and len(args) == self.n:
                return recorded(tape, self.op, func, args, kwargs, args, None, True)
            if bound is None:
                bound = self.bound(args, kwargs)
            if bound is not None:
                operands, attrs = <tuple>bound
                return recorded(tape, self.op, func, args, kwargs, operands, attrs, True)
        finally:
            leave(tape, switch)
        lent(args, kwargs)
        return self.fallback(func, args, kwargs)

    cdef object bound(self, tuple args, dict kwargs):
        """Operands and attributes; None for a spelling that the table does not know."""
        try:
            return self.bind(*args, **self.rename(kwargs, self.op.operands)) if kwargs else self.bind(*args)
        except TypeError:
            return None


cdef class Chosen(Route):
    """How an overloaded callable is run: its arguments say which operator it is."""
    cdef object pick, route, fallback
    cdef dict routes

    def __init__(self, pick, route, fallback):
        self.pick, self.route, self.fallback = pick, route, fallback
        self.routes = {}

    cdef object run(self, object func, tuple args, dict kwargs):
        cdef PyObject *tp = recording()
        cdef Tape tape
        cdef object name, route, switch, r
        if tp == NULL:
            return func(*args, **kwargs)
        tape = <Tape>tp
        if not ao_casts(any_autocast):
            if kwargs and kwargs.get("out") is not None:
                r = into(tape, func, args, kwargs)
                if r is not None:
                    return r
            elif idle(tape, args, kwargs):
                return unrecorded(tape, func, args, kwargs)
        switch = enter(tape)
        try:
            name = self.pick(*args, **kwargs)
        except TypeError:
            name = None                      # torch decides whether it is valid
        finally:
            leave(tape, switch)
        if name is None:
            lent(args, kwargs)
            return self.fallback(func, args, kwargs)
        route = self.routes.get(name)
        if route is None:
            route = self.routes[name] = self.route(name)
        return (<Recorded>route).run(func, args, kwargs)


cdef class Decomposed(Route):
    """Python code of torch's own, run with the mode on so that its calls are recorded one by one."""
    cdef object body, mode, whole
    cdef list running
    cdef bint cast                       # under autocast torch casts for the call, not for its pieces

    def __init__(self, body, mode, whole, bint cast=False):
        self.body, self.mode, self.whole, self.cast = body, mode, whole, cast
        self.running = []

    cdef object run(self, object func, tuple args, dict kwargs):
        cdef PyObject *tp = recording()
        cdef Tape tape
        cdef Py_ssize_t found
        if ao_casts(any_autocast):
            return self.whole(func, args, kwargs) if self.cast else self.decomposed(func, args, kwargs)
        # what Python code does one by one is looked at one by one: only so are its views and versions those of eager mode
        if tp == NULL or type(func) is not BuiltinFunction and type(func) is not MethodDescriptor or not none_follows(<Tape>tp, args, kwargs, grad_on()):
            return self.decomposed(func, args, kwargs)
        tape = <Tape>tp
        if not tape.optimize or settled():
            return unrecorded(tape, func, args, kwargs)
        found = tape.hits + tape.recomputed
        try:
            return self.decomposed(func, args, kwargs)
        finally:
            learn_function(tape.hits + tape.recomputed != found)

    cdef object decomposed(self, object func, tuple args, dict kwargs):
        # a body that hands its own arguments back to the mode under the same name is taken whole
        for before in self.running:
            if len(before) == len(args) and all([a is b for a, b in zip(before, args)]):
                lent(args, kwargs)
                return self.whole(func, args, kwargs)
        self.running.append(args)
        push(self.mode)
        try:
            return self.body(*args, **kwargs)
        finally:
            pop()
            for i in range(len(self.running) - 1, -1, -1):
                if self.running[i] is args:      # another thread's may be above it
                    del self.running[i]
                    break


cdef class Raw(Route):
    """Run without recording."""

    cdef object run(self, object func, tuple args, dict kwargs):
        lent(args, kwargs)
        return run_raw(func, args, kwargs)


cdef class Fill(Route):
    """An initializer of torch's, written in Python, that writes the tensor it is given under no_grad."""

    cdef object run(self, object func, tuple args, dict kwargs):
        if not args:
            kwargs = kwargs.copy()
            args = (kwargs.pop("tensor"),)
        return written(func, args, kwargs)


cdef object push = private.push_on_torch_function_stack
cdef object pop = private.pop_torch_function_stack
cdef dict handlers = {}
cdef object classify = None
cdef set kinds_met = set()               # classes of tensors, as torch names them to a mode, that need no word
cdef object note_kind = None


cdef object functions_enabled = private.is_torch_function_enabled


cdef bint stranger(object types) except -1:
    """Is one of the classes that come here for the first time no tensor, and may answer itself?

    A class of the user's that is one computes as a tensor does.
    """
    if type(types) is not tuple:
        return False
    for kind in types:
        if not issubclass(kind, Tensor):
            return functions_enabled()
    for kind in types:
        note_kind(kind)
    if len(kinds_met) > 1000:
        kinds_met.clear()
    kinds_met.add(types)
    return False


cdef object ask_strangers(object func, tuple types, tuple args, dict kwargs):
    """What the classes that are no tensors say of the call; what they compute is recorded."""
    push(MODE)
    try:
        for kind in types:
            if not issubclass(kind, Tensor):
                r = kind.__torch_function__(func, types, args, kwargs or {})
                if r is not NotImplemented:
                    return r
    finally:
        pop()
    return NotImplemented                # torch says that nobody takes the call


cdef set OPERATOR_KINDS = {private.OpOverload, private.OpOverloadPacket, private.TorchBindOpOverload}
cdef object equals = Tensor.__eq__        # the one operator whose second operand torch does not look at before a mode
cdef object Wrapper = type(Tensor.dtype.__get__)
cdef set plain_reads = {base.__dict__[name] for name in "shape dtype device ndim layout is_nested is_sparse is_cuda is_cpu is_meta \
is_quantized is_mkldnn is_mps is_xpu itemsize nbytes names".split() if name in base.__dict__}


cdef dict known_operators = {}           # id of an operator of `torch.ops` -> its handler
cdef list kept_operators = []            # these operators, so that an address stays one object's


cdef inline object handler_of(object func):
    """The route of a callable; those of `torch.ops` are hashed in Python, and found by what they are."""
    cdef object handler, kind = type(func)
    cdef bint known_by_place = kind is not MethodDescriptor and kind is not BuiltinFunction and kind in OPERATOR_KINDS
    if known_by_place:
        handler = known_operators.get(<size_t><PyObject *>func)
        if handler is not None:
            return handler
    handler = handlers.get(func)
    if handler is None:
        handler = handlers[func] = classify(func)
    if known_by_place:
        kept_operators.append(func)
        known_operators[<size_t><PyObject *>func] = handler
    return handler


def torch_function(self, func, types, args=(), kwargs=None):
    """The mode's `__torch_function__`: one dictionary look-up, then the callable's route."""
    if type(func) is Wrapper and len(args) == 1 and func.__self__ in plain_reads and func.__name__ == "__get__" \
            and ordinary(args[0]) and not kwargs:
        return read(func.__self__, args[0])              # a property that is no operation
    if types and (len(types) > 1 or types[0] is not CustomTensor) and types not in kinds_met and recording() != NULL \
            and stranger(types):
        return ask_strangers(func, types, args, kwargs)
    if func is equals and len(args) == 2 and foreign_kind(args[1]) and type(args[1]) is not tuple \
            and type(args[1]) is not list and recording() != NULL and functions_enabled():
        return ask_strangers(Tensor.eq, (type(args[1]),), args, kwargs)
    handler = handler_of(func)
    if kwargs is None:
        kwargs = {}
    if isinstance(handler, Route):
        return (<Route>handler).run(func, args, kwargs)
    lent(args, kwargs)
    return handler(func, args, placed(func, kwargs))


def install_routes(dict table, classifier, mode, note):
    """The dictionary of routes, what fills it on a callable's first sight, the mode, what says a word of a class."""
    global handlers, classify, MODE, note_kind
    handlers, classify, MODE, note_kind = table, classifier, mode, note
    install_casts(torch_function)
