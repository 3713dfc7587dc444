"""Send a call on its route: recorded, decomposed, or run as it is."""

from cpython.object cimport PyObject
from libc.stdint cimport uint32_t

from autograd_opt.abi import torch_private as private
from autograd_opt.abi.ctorch cimport ao_call, ao_casts, ao_dtype, ao_is_inference, ao_is_view, ao_needs_grad, ao_plain, ao_use_reads
from autograd_opt.abi.tensor_info import reads_address
from autograd_opt.errors import InplaceError
from autograd_opt.graph.handles cimport handle
from autograd_opt.graph.node cimport (
    OUTPUT_OP, REQUIRES_GRAD, VARIADIC, CustomTensor, Node, Op, PlainTensor as Tensor, ordinary, shape_of,
    version_of,
)
from autograd_opt.graph.plain_values cimport is_float
from autograd_opt.graph.tape cimport Tape
from autograd_opt.graph.thread_state cimport recording
from autograd_opt.graph.view_history import OF_SPARSE
from autograd_opt.graph.late_bases import base_became_late
from autograd_opt.record.arguments cimport (
    computed, grad_on, is_tensor, lent, mode_innermost, none_follows, plain_attributes, plain_numbers, tracked,
    unusual_numbers,
)
from autograd_opt.record.autocast cimport autocast_off, lowered
from autograd_opt.record.guard cimport enter, leave
from autograd_opt.record.hot_operators cimport KERNELS, fast_binary, fast_unary
from autograd_opt.record.judged_calls cimport judge, own_words
from autograd_opt.record.new_nodes import record_write
from autograd_opt.record.recorder cimport recorded
from autograd_opt.record.sites cimport learn_function, settled
from autograd_opt.record.unrecorded cimport (
    FOLLOWED, OPERATOR_KINDS, by_itself, into, run_raw, unfollowed, unrecorded, written,
)

ao_use_reads(reads_address())
cdef object base = private.TensorBase
cdef object any_autocast = private.is_any_autocast_enabled
cdef object is_inference = base.__dict__["is_inference"]
cdef object MethodDescriptor = type(base.__dict__["add"])
cdef object BuiltinFunction = type(len), FunctionType = type(lambda: None)
cdef object push = private.push_on_torch_function_stack
cdef object pop = private.pop_torch_function_stack


cdef class Route:
    """How a callable is run inside a context."""

    def __call__(self, func, args, kwargs):
        return self.run(func, args, kwargs)

    cdef object run(self, object func, tuple args, dict kwargs):
        raise NotImplementedError


cdef class Recorded(Route):
    """How one operator is run: bound to operands and attributes, then recorded."""
    def __init__(self, Op op, bind, rename, fallback):
        from autograd_opt.record.torch_fallback import handler
        self.kernel = KERNELS.get(op.name)
        self.whole = handler             # where autocast does what the table cannot say
        self.op, self.bind, self.rename, self.fallback = op, bind, rename, fallback
        # where every positional argument is an operand there is nothing to bind
        self.n = 0 if op.attributes or op.flags & VARIADIC else len(op.operands)
        self.plan = getattr(bind, "plan", None)
        if op.flags & VARIADIC and self.plan is not None and -1 not in self.plan.targets:
            self.plan = None

    cdef object run(self, object func, tuple args, dict kwargs):
        cdef PyObject *tp
        cdef Tape tape
        cdef object r
        if ao_casts(any_autocast):
            cast = lowered(self.op.name, args, kwargs)
            if cast is None:
                lent(args, kwargs)
                return self.whole(func, args, kwargs)
            args, kwargs = cast
        r = self.hot(args, kwargs)
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
        r = by_itself(tape, func, args, kwargs, self.op.differentiable, True)
        if r is not FOLLOWED:
            return r
        if not self.op.typed and unusual_numbers(args, kwargs):
            if type(func) in OPERATOR_KINDS:     # of which torch takes fewer kinds
                lent(args, kwargs)
                return self.fallback(func, args, kwargs)
            args, kwargs = plain_numbers(args, kwargs)
        return self.follow(tape, func, args, kwargs)

    cdef object hot(self, tuple args, dict kwargs):
        """The result of one or two operands by the hot path; None where the general one is needed."""
        if self.kernel is None or kwargs or len(args) != self.kernel.arity:
            return None
        return fast_unary(self.kernel, args[0], True) if self.kernel.arity == 1 \
            else fast_binary(self.kernel, args[0], args[1])

    cdef object follow(self, Tape tape, object func, tuple args, dict kwargs):
        """Record a call; its numbers are Python's own, and autocast casts nothing of it any more."""
        cdef tuple operands
        cdef dict attrs
        cdef object r, bound = None
        cdef size_t switch
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
                if attrs and not self.op.typed:      # a function of the user's is given what it was called with
                    attrs = plain_attributes(attrs)
                return recorded(tape, self.op, func, args, kwargs, operands, attrs, True)
        finally:
            leave(tape, switch)
        lent(args, kwargs)
        return self.fallback(func, args, kwargs)

    cdef object bound(self, tuple args, dict kwargs):
        """Operands and attributes; None for a spelling that the table does not know."""
        try:
            return self.bind(*args, **self.rename(kwargs, self.op.operands)) if kwargs else self.bind(*args)
        except Exception as error:
            if type(error) not in UNBOUND:
                raise
            return None


cdef class Chosen(Route):
    """How an overloaded callable is run: its arguments say which operator it is.

    Parameters
    ----------
    pick, route : what names the operator for a call's arguments, and what makes its route.
    fallback : what any other call is given to.
    carries : may a gradient go through a result?
    """
    def __init__(self, pick, route, fallback, bint carries=True):
        self.pick, self.route, self.fallback, self.carries = pick, route, fallback, carries
        self.routes = {}

    cdef object run(self, object func, tuple args, dict kwargs):
        cdef PyObject *tp = recording()
        cdef Tape tape
        cdef object name, found, r, cast
        cdef Recorded route
        cdef bint casts
        if tp == NULL:
            return func(*args, **kwargs)
        tape = <Tape>tp
        casts = ao_casts(any_autocast)
        if not casts:
            if kwargs and kwargs.get("out") is not None:
                r = into(tape, func, args, kwargs)
                if r is not None:
                    return r
            else:
                r = by_itself(tape, func, args, kwargs, self.carries, True)
                if r is not FOLLOWED:
                    return r
        if unusual_numbers(args, kwargs):
            args, kwargs = plain_numbers(args, kwargs)
        name = self.picked(tape, args, kwargs)
        if name is not None and casts:
            cast = lowered(<str>name, args, kwargs)
            if cast is not None and (<tuple>cast)[0] is not args:
                args, kwargs = cast
                name = self.picked(tape, args, kwargs)
        if name is None:
            lent(args, kwargs)
            return self.fallback(func, args, kwargs)
        found = self.routes.get(name)
        if found is None:
            found = self.routes[name] = self.route(name)
        route = <Recorded>found
        if casts or kwargs and kwargs.get("out") is not None:
            return route.run(func, args, kwargs)
        r = route.hot(args, kwargs)
        return route.follow(tape, func, args, kwargs) if r is None else r

    cdef object picked(self, Tape tape, tuple args, dict kwargs):
        cdef size_t switch = enter(tape)
        try:
            return self.pick(*args, **kwargs)
        except Exception as error:
            if type(error) not in UNBOUND:
                raise
            return None                      # torch decides whether it is valid
        finally:
            leave(tape, switch)


cdef tuple UNBOUND = (TypeError, AttributeError, IndexError, ValueError)      # what a binder raises for arguments of other kinds


cdef class Decomposed(Route):
    """Python code of torch's own, run with the mode on so that its calls are recorded one by one."""
    def __init__(self, body, mode, whole, bint cast=False, bint replaced=False):
        self.body, self.mode, self.whole, self.cast, self.replaced = body, mode, whole, cast, replaced
        self.running = []

    cdef object run(self, object func, tuple args, dict kwargs):
        cdef autocast_off off
        cdef object cast
        if kwargs and kwargs.get("out") is not None and type(func) is BuiltinFunction:
            from autograd_opt.record.inplace import out_handler
            return out_handler(func, args, kwargs)
        if not ao_casts(any_autocast):
            return self.uncast(func, args, kwargs)
        if not self.cast:
            return self.decomposed(func, args, kwargs)
        cast = lowered(getattr(func, "__name__", ""), args, kwargs)
        if cast is None:
            return self.whole(func, args, kwargs)
        args, kwargs = cast
        off = autocast_off.__new__(autocast_off)
        if off.leave_on(args, kwargs):
            return self.uncast(func, args, kwargs)
        try:
            return self.uncast(func, args, kwargs)
        finally:
            off.back()

    cdef object uncast(self, object func, tuple args, dict kwargs):
        cdef PyObject *tp = recording()
        cdef Tape tape
        cdef Py_ssize_t found
        # what Python code does one by one is looked at one by one: only so are its views and versions those of eager mode
        if tp == NULL or not self.replaced and type(func) is not BuiltinFunction and type(func) is not MethodDescriptor \
                or not none_follows(<Tape>tp, args, kwargs, grad_on()):
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
        if type(func) is not FunctionType and unusual_numbers(args, kwargs):
            args, kwargs = plain_numbers(args, kwargs)
        # a body that hands its own arguments back to the mode under the same name is taken whole
        for before in self.running:
            if len(before) == len(args) and all([a is b for a, b in zip(before, args)]):
                lent(args, kwargs)
                return self.whole(func, args, kwargs)
        if self.replaced:
            judge(func, args, kwargs)
        try:
            return self.computed(args, kwargs)
        except Exception:
            if self.replaced:
                own_words(func, args, kwargs)
            raise

    cdef object computed(self, tuple args, dict kwargs):
        cdef bint on = mode_innermost()      # not where torch has handed the call to the mode
        self.running.append(args)
        if not on:
            push(self.mode)
        try:
            return self.body(*args, **kwargs)
        finally:
            if not on:
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
        judge_numbers(func, args, kwargs, 1)
        return written(func, args, kwargs)


cdef int judge_numbers(object func, tuple args, dict kwargs, Py_ssize_t first) except -1:
    """Raise torch's error where an argument from the `first` on is a tensor that is no number, since it requires grad."""
    cdef PyObject *tp = recording()
    if tp == NULL:
        return 0
    for x in args[first:] if not kwargs else (*args[first:], *kwargs.values()):
        if type(x) is CustomTensor and shape_of(x) == () and tracked(<Tape>tp, x):
            from autograd_opt.record.inplace import ask_torch
            ask_torch(func, args, kwargs)
            return 0
    return 0


cdef class Numbers(Route):
    """A call that takes numbers, the first of them as its argument `first`; `route` runs it."""
    cdef Route route
    cdef Py_ssize_t first

    def __init__(self, Route route, Py_ssize_t first):
        self.route, self.first = route, first

    cdef object run(self, object func, tuple args, dict kwargs):
        judge_numbers(func, args, kwargs, self.first)
        return self.route.run(func, args, kwargs)


cdef class Write(Route):
    """The route of an in-place form: `handler` records it where gradients are on.

    Parameters
    ----------
    handler : what any write can be given to.
    op, bind, rename : the operator that computes the new value, and how it is bound, where it has a line in the table.
    reshapes : is the tensor given another shape, or are its axes exchanged?
    """
    def __init__(self, handler, Op op=None, bind=None, rename=None, bint reshapes=False):
        self.handler, self.op, self.bind, self.rename, self.reshapes = handler, op, bind, rename, reshapes

    cdef bint turns(self, object t) except -1:
        """Is this another shape for a view, whose history may be read off its base anew?"""
        return self.reshapes and is_tensor(t) and ao_is_view(t)

    cdef object run(self, object func, tuple args, dict kwargs):
        cdef PyObject *tp = recording()
        cdef size_t switch
        if tp != NULL and not (args and self.turns(args[0])) and (not grad_on() or (type(func) is MethodDescriptor or type(func) is BuiltinFunction)
                           and unfollowed(<Tape>tp, args, kwargs)):
            return written(func, args, kwargs)
        lent(args, kwargs)
        if tp != NULL and self.op is not None and args and (
                usual_target(<Tape>tp, args[0]) or constant_target(args[0])):
            if unusual_numbers(args, kwargs):
                args, kwargs = plain_numbers(args, kwargs)
            switch = enter(<Tape>tp)
            try:
                if write_result(<Tape>tp, self, func, args, kwargs):
                    return args[0]
            finally:
                leave(<Tape>tp, switch)
        try:
            return self.handler(func, args, kwargs)
        except InplaceError:
            from autograd_opt.record.inplace import read_arguments
            read_arguments(func, args, kwargs)
            raise


cdef bint usual_target(Tape tape, object t) except -1:
    """Is `t` a result that requires grad, no view, and without hooks?  Then nothing is to be refused, nor to move with a write."""
    cdef Node node
    if type(t) is not CustomTensor or not ao_plain(t) or ao_is_view(t):
        return False
    node = computed(t)
    return node is not None and node.tape_id == tape.id and node.index >= 0 and node.hooks is None and node.view is None \
        and node.flags & REQUIRES_GRAD != 0 and node.op is not OUTPUT_OP and node.op.name != "written" \
        and (node.attrs is None or OF_SPARSE not in <dict>node.attrs)


cdef bint constant_target(object t) except -1:
    """Is `t` a tensor with memory of its own that does not require grad, as those that calls of a model make and fill?"""
    return (type(t) is Tensor or type(t) is CustomTensor) and ao_plain(t) and not ao_is_view(t) \
        and is_float(ao_dtype(t)) and not ao_needs_grad(t) and grad_on()


cdef bint write_result(Tape tape, Write route, object func, tuple args, dict kwargs) except -1:
    """Write a usual target, or a constant, and move it to its new node.

    False, with nothing done, where the old value has to be copied, or the general way has to look at the call.
    """
    cdef Op op = route.op
    cdef Node n
    cdef tuple operands
    cdef dict attrs
    cdef list nodes = [], versions = []
    cdef uint32_t mask = 0
    cdef Py_ssize_t i
    cdef bint constant = False, follows = False
    try:
        operands, attrs = route.bind(*args, **route.rename(kwargs, op.operands)) if kwargs else route.bind(*args)
    except TypeError:
        return False
    attrs = plain_attributes(attrs)
    for i in range(len(operands)):
        t = operands[i]
        if not is_tensor(t):
            nodes.append(None)
            versions.append(0)
            continue
        if not ordinary(t) or not ao_plain(t) or ao_is_inference(is_inference, t):
            return False
        n = handle(tape, t)
        if n.op.name == "view_apart":
            return False
        if n.flags & REQUIRES_GRAD:
            if i == 0 and (n is not computed(t) or not usual_target(tape, t)):
                return False
            mask |= op.needs(<int>i)
            follows = True
        elif i == 0:
            if n.hooks is not None or n.view is not None:
                return False
            constant = True
        nodes.append(n)
        versions.append(version_of(t))
    if mask & 1 or not follows:
        return False
    ao_call(func, args, kwargs if kwargs else None)
    record_write(op, nodes, operands, attrs, operands[0], None, versions)
    if constant:
        base_became_late(operands[0])
    return True
