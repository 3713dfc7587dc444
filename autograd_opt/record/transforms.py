"""torch.func transforms, forward mode and TorchScript inside a context: each call recorded whole.

A transform differentiates by machinery below torch functions, so the recorder cannot see
inside it.  The call therefore runs under torch's own autograd, and becomes one opaque node.
The operands are the leaves that torch's graph of the call leads to: leaves of the user's, and
stand-ins, one for each tensor of the graph that the function is given or closes over.
"""

from __future__ import annotations

import functools
import threading
import weakref
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch.autograd import forward_ad
from torch.overrides import TorchFunctionMode

from autograd_opt import errors
from autograd_opt.abi import torch_private as private
from autograd_opt.abi.original_functions import REGISTER_HOOK, REGISTER_POST_ACCUMULATE, RETAIN_GRAD
from autograd_opt.graph import handles, references, refusals, thread_state, view_history
from autograd_opt.graph.tensor import CustomTensor, connected
from autograd_opt.graph.thread_state import excluded_autograd, torch_autograd
from autograd_opt.record import dispatch
from autograd_opt.record.guard import user_state, without_modes
from autograd_opt.record.nested_values import mapped
from autograd_opt.record.outside import marked
from autograd_opt.record.torch_fallback import (
    Pair,
    Result,
    Script,
    differentiated,
    handler,
    record,
    record_call,
    variables_of,
)
from autograd_opt.record.unrecorded import detached

Tensor = torch.Tensor
_local = threading.local()
FIELD: Any = Tensor.grad
OF_THE_GRAPH = frozenset([
    FIELD.__get__, FIELD.__set__, FIELD.__delete__, REGISTER_HOOK, REGISTER_POST_ACCUMULATE, RETAIN_GRAD,
])
"""What is asked of a tensor of the graph itself, not of what stands in for it."""
LEAF_WRITTEN = "a leaf Variable that requires grad is being used in an in-place operation"
"""What torch says of a write to a stand-in."""
STANDS_FOR = "_stands_for"
"""The attribute of a stand-in: the node of the tensor of the graph."""
KEEPS = "_keeps"
"""The attribute of a stand-in for a constant: the constant."""


class Capture(TorchFunctionMode):
    """One call that torch differentiates whole; a tensor that the graph has computed has a stand-in in it.

    Leaves of torch's own class stand for themselves.  What a call inside does with a tensor of the graph is told by the
    tensor's class, so that every other operation costs what it costs in torch; a mode asks about every operation only
    where views have come to require grad unseen (`late`).

    Parameters
    ----------
    name : what the node is called.
    goes_on : whether a result is a function that goes on with the computation.
    """

    def __init__(self, name: str, goes_on: bool = False):
        self.name, self.goes_on = name, goes_on
        self.pairs: dict[int, tuple[Tensor, Tensor]] = {}
        self.made: list[Pair] = []        # what is recorded of it already, by where torch's engine stops

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if enclosing() is not self:                         # what records again inside the call
            return func(*args, **(kwargs or {}))
        func = dispatch.meant(func)
        if func in OF_THE_GRAPH and args and self.replaces(args[0]):
            with recording_again():
                return dispatch.call(func, args, kwargs or {})
        try:
            return func(*self.swap(args), **self.swap(kwargs or {}))
        except RuntimeError as refused:
            if LEAF_WRITTEN not in str(refused) or not args or not self.replaces(args[0]):
                raise
            raise errors.UnsupportedError(errors.at(
                f"{getattr(func, '__name__', func)} writes, inside {self.name}, a tensor that the graph has computed "
                "outside it: the graph records the call as a whole, without such a write; write before the call, or "
                "write to a clone()"
            )) from None

    def swap(self, arguments: Any, entering: bool = False) -> Any:
        """The arguments with a stand-in for every tensor of the graph."""
        with private.DisableTorchFunction():
            return mapped(functools.partial(self.stand_in, entering=entering), arguments)

    def stand_in(self, t: Tensor, entering: bool = False) -> Tensor:
        """What torch's autograd sees in the place of `t`: itself where the graph has not computed it.

        `entering`: the call begins with `t`, whose history, if it is torch's, does not belong to the call.
        """
        known = self.pairs.get(id(t))
        if known is not None:
            return known[1]
        if type(t) is not CustomTensor and (STANDS_FOR in t.__dict__
                                            or not ((entering and references.has_history(t)) or late(t))):
            return t
        with private.temporarily_clear_interpreter_stack():     # the stand-in belongs to no transform
            paused = thread_state.resume(0)                    # its memory may have been written: that is recorded
            try:
                node = handles.handle_of(t)
            finally:
                thread_state.resume(paused)
            other = detached(t).requires_grad_(bool(node.requires_grad))
            setattr(other, STANDS_FOR, node)
            if not node.requires_grad:
                setattr(other, KEEPS, t)            # as long as torch saves the stand-in: it is no operand of the call
            if (tape := thread_state.get_active()) is not None:
                tape.stands = True
            return self.pair(t, other)

    def replaces(self, t: Any) -> bool:
        """Is `t` a tensor of the graph, which torch's autograd may not see?"""
        with private.DisableTorchFunction():
            return isinstance(t, Tensor) and self.stand_in(t) is not t

    def recorded(self, tensors: list[Tensor]) -> list[Tensor]:
        """What torch has computed inside this call so far, as tensors of the graph around it."""
        origins = {id(s): t for t, s in self.pairs.values()}
        found = {id(t): t for t in tensors if computed(t) and id(t) not in origins}
        if not found:
            return [origins.get(id(t), t) for t in tensors]
        with recording_again():
            results = record_call(self.name, self.below, [*found.values()], False, self.made)
        origins.update(zip(found, results, strict=True))
        return [origins.get(id(t), t) for t in tensors]

    def below(self, results: list[Tensor], earlier: list[Pair]) -> list[Pair]:
        """What derivatives of `results` lead to: leaves of torch's, each with the tensor of the graph it stands for."""
        leaves = leaves_below(results, [x for x, _ in earlier])
        found = [(s, t) for t, s in self.pairs.values() if leaves.pop(id(s), None) is not None]
        found += [(x, t) for x, t in earlier if leaves.pop(id(x), None) is not None]
        return found + [(t, t) for t in leaves.values()]

    def pair(self, original: Tensor, other: Tensor) -> Tensor:
        """Let `other` stand in for `original`."""
        self.pairs[id(original)] = (original, other)
        return other

    def adopt(self, earlier: Capture) -> None:
        """Go on with the stand-ins of an earlier part of the same computation."""
        self.pairs.update(earlier.pairs)

    def run(self, function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Call `function` and record the call."""
        with torch_autograd(private.is_grad_enabled(), functions=True), without_mode(self):
            stack = captures()
            stack.append(self)
            try:
                out = function(*self.swap(args, True), **self.swap(kwargs, True))
            finally:
                stack.pop()
            with private.DisableTorchFunction():
                back = {id(other): original for original, other in self.pairs.values()}
                made: dict[int, Tensor] = {}
                mapped(lambda o: o if id(o) in back else made.setdefault(id(o), o), out)
                found = [o for o in made.values() if computed(o)]
                keep_making([o for o in made.values() if not o.requires_grad])
        if found:
            earlier = self.made if self.made or self.goes_on else None
            results = record_call(self.name, self.below, found, True, earlier)
            back.update((id(o), r) for o, r in zip(found, results, strict=True))
        if self.pairs and (tape := thread_state.get_active()) is not None:
            tape.let_go_unread([other.__dict__[STANDS_FOR] for _, other in self.pairs.values()])
        return mapped(lambda x: back.get(id(x), x), out) if back else out

    def later(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """`function`, which goes on with this computation: a `vjp_fn`, say."""
        @functools.wraps(function)
        def call(*args: Any, **kwargs: Any) -> Any:
            outer = enclosing()
            if outer is None and thread_state.get_recording() is None:
                return function(*args, **kwargs)
            capture = Capture(self.name, True) if outer is None else outer
            capture.adopt(self)
            if outer is None:
                return capture.run(function, args, kwargs)
            return function(*capture.swap(args), **capture.swap(kwargs))
        return call


def without_mode(capture: Capture) -> without_modes:
    """Take the library's mode out for a call that torch differentiates; put `capture` in where views are late."""
    tape = thread_state.get_active()
    return without_modes(True, capture if tape is not None and tape.late else None)


def computed(t: Tensor) -> bool:
    """Has torch followed `t`, or is it a view of what the graph knows?"""
    if not private.is_view(t):
        return t.requires_grad and not t.is_leaf
    base: Any = private.base_of(t)
    return t.requires_grad or base.requires_grad or STANDS_FOR in base.__dict__


def keep_making(results: list[Tensor]) -> None:
    """Say of results without a history how torch made them, where that decides who may write them."""
    for o in results:
        if private.is_view(o) and (how := view_history.making_of(o)) != view_history.Making.DEFAULT:
            setattr(o, view_history.BY_FUNCTION, int(how))


def leaves_below(results: list[Tensor], last: Sequence[Result] = ()) -> dict[int, Any]:
    """The leaves, those of transforms aside, that derivatives of `results` lead to in torch's own graph, by id.

    `last`: results of earlier calls, which are ends as leaves are.
    """
    found = variables_of([(r.grad_fn, r.output_nr) for r in results if r.grad_fn is not None], last)
    found.update((id(r), r) for r in results if r.grad_fn is None and r.requires_grad)
    return {k: t for k, t in found.items() if isinstance(t, Result) or not private.is_functorch_wrapped_tensor(t)}


def graphs_own(inner: Tensor, only_stand_ins: bool = False) -> Tensor:
    """A tensor of the graph for one that the user has kept from inside a transform, which has ended since.

    `only_stand_ins`: `inner` itself where its history leads to leaves of torch's alone.
    """
    with torch_autograd():
        if not inner.requires_grad:
            return inner
        leaves = [*leaves_below([inner]).values()]
        if not leaves or (only_stand_ins and not any(STANDS_FOR in t.__dict__ for t in leaves)):
            return inner
        call = differentiated("transform", leaves, [inner]) if inner.grad_fn is not None else None
    with private.DisableTorchFunction():
        operands = [original(s) for s in leaves]
        return operands[0] if call is None else record(call, operands, [inner])[0]


def original(leaf: Tensor) -> Tensor:
    """The tensor of the graph that a leaf of torch's stands for."""
    node = leaf.__dict__.get(STANDS_FOR)
    if node is None:
        return leaf
    return connected(leaf.detach(), node) if node.tensor is None else node.tensor


def late(t: Tensor) -> bool:
    """Is `t` a view that nothing has read since its base, a tensor of the graph, came to require grad?"""
    base = private.base_of(t) if private.is_view(t) else None
    return type(base) is CustomTensor and references.requires_grad(base)


def captures() -> list[Capture | None]:
    """The calls under way in this thread that torch differentiates whole, innermost last; None where one records."""
    return _local.__dict__.setdefault("stack", [])


def enclosing() -> Capture | None:
    """The innermost such call, unless user code inside it records again."""
    stack = _local.__dict__.get("stack")
    return stack[-1] if stack and thread_state.get_recording() is None else None


@contextmanager
def recording_again() -> Iterator[None]:
    """Inside a transform: the state in which the graph records, with the transform's call out of the way."""
    captures().append(None)
    try:
        with excluded_autograd(), user_state():
            yield
    finally:
        captures().pop()


def swapped(args: tuple[Any, ...]) -> Any:
    """Arguments of a call that no mode sees, with stand-ins where torch differentiates the whole."""
    capture = enclosing()
    return args if capture is None else capture.swap(args)


def whole(name: str, original: Callable[..., Any], goes_on: bool = False) -> Any:
    """`original`, recorded whole inside a context; `goes_on`: its second result is a function that does."""
    @functools.wraps(original)
    def call(*args: Any, **kwargs: Any) -> Any:
        if torch.compiler.is_compiling():
            return original(*args, **kwargs)
        outer = enclosing()
        if outer is not None:
            return original(*outer.swap(args), **outer.swap(kwargs))
        if thread_state.get_recording() is None:
            return marked(original, args, kwargs)
        capture = Capture(name, goes_on)
        result = capture.run(original, args, kwargs)
        return (result[0], capture.later(result[1]), *result[2:]) if goes_on else result
    return call


def taken(original: Callable[..., Any]) -> Callable[..., Any]:
    """`torch.cond`: where a graph records, the branch that is taken runs as it stands; torch would compile both."""
    @functools.wraps(original)
    def cond(pred: Any, true_fn: Callable[..., Any], false_fn: Callable[..., Any], operands: Any = ()) -> Any:
        if torch.compiler.is_compiling() or thread_state.get_recording() is None or enclosing() is not None:
            return original(pred, true_fn, false_fn, operands)
        return (true_fn if pred else false_fn)(*operands)
    return cond


# Forward mode ---------------------------------------------------------------------------
def refuse_dual_level(original: Callable[[], int]) -> Callable[[], int]:
    """`forward_ad.enter_dual_level`, refused where a graph records: it would lose the tangents."""
    @functools.wraps(original)
    def enter() -> int:
        if thread_state.get_recording() is not None and not torch.compiler.is_compiling():
            raise errors.UnsupportedError(errors.at(
                "forward-mode differentiation with dual numbers (torch.autograd.forward_ad) cannot be recorded by an "
                "AutogradGraph: use torch.func.jvp, torch.func.jacfwd or autograd_opt.jvp, or leave the context first"
            ))
        return original()
    return enter


def refuse_opening(graph: Any) -> None:
    """Refuse to open `graph` in a compiled function, a transform or a dual level, whose tensors it would not follow."""
    if private.get_frame_callback():
        raise refusals.seen_by_compiler()
    if private.forward_level() >= 0:
        raise errors.UnsupportedError(errors.at(
            f"{graph.label} was opened inside a forward-mode level (torch.autograd.forward_ad or torch.func.jvp): a "
            "graph does not record tangents; open it outside, and call the transform inside the graph"
        ))
    if private.transforms_active():
        raise errors.UnsupportedError(errors.at(
            f"{graph.label} was opened inside a torch.func transform: a graph does not record the transform's tensors; "
            "open it outside, and call the transform inside the graph"
        ))


# TorchScript ----------------------------------------------------------------------------
def require_no_gradients(script: Any) -> None:
    """Refuse TorchScript that differentiates: it asks torch's engine, to which tensors of a graph are leaves."""
    if thread_state.get_active() is not None and contains(script.inlined_graph, "aten::grad", "aten::backward"):
        refuse_gradients(script)


def refuse_gradients(script: Any) -> None:
    raise errors.UnsupportedError(errors.at(
        f"the TorchScript code of {script.name!r} calls torch.autograd.grad or backward, which know nothing of "
        "an AutogradGraph: call the function from before scripting, or leave the context first"
    ))


def contains(graph: Any, *names: str) -> bool:
    """True if one of these operations is in a graph of TorchScript's."""
    return any(graph.findNode(name, True) for name in names)


_scripts: weakref.WeakKeyDictionary[Any, tuple[bool, Script | None]] = weakref.WeakKeyDictionary()


def looked_at(original: Callable[..., Any], script: Any) -> tuple[bool, Script | None]:
    """(does a compiled function differentiate?, its call where it runs no Python)."""
    found = _scripts.get(script)
    if found is None:
        graph = script.inlined_graph
        python = contains(graph, "prim::PythonOp")
        found = _scripts[script] = contains(graph, "aten::grad", "aten::backward"), \
            None if python else Script(original, script)
    return found


def scripted_function(original: Callable[..., Any]) -> Callable[..., Any]:
    """`ScriptFunction.__call__`, recorded whole."""
    def __call__(self: Any, *args: Any, **kwargs: Any) -> Any:
        differentiates, call = looked_at(original, self)
        if differentiates and thread_state.get_active() is not None:
            refuse_gradients(self)
        if thread_state.get_recording() is None:
            return original(self, *swapped(args), **kwargs)
        if call is not None:
            return handler(call, args, kwargs)
        return Capture(f"scripted_{self.name}").run(functools.partial(original, self), args, kwargs)
    return __call__


def scripted_method(original: Callable[..., Any]) -> Callable[..., Any]:
    """`ScriptMethod.__call__`, recorded whole."""
    def __call__(self: Any, *args: Any, **kwargs: Any) -> Any:
        require_no_gradients(self)
        if thread_state.get_recording() is None:
            return original(self, *swapped(args), **kwargs)
        return Capture(f"scripted_{self.name}").run(functools.partial(original, self), args, kwargs)
    return __call__


def install() -> None:
    """Put the entry points in place; done once at import."""
    references.install(graphs_own)
    eager = private.transforms
    eager.grad_impl = whole("func_grad", eager.grad_impl)
    eager.grad_and_value_impl = whole("func_grad_and_value", eager.grad_and_value_impl)
    for name, entry in (
        ("vmap", "vmap"), ("func_vjp", "vjp"), ("func_jvp", "jvp"), ("forward_jacobian", "forward_jacobian"),
    ):
        private.replace(entry, whole(name, private.entry_point(entry), entry == "vjp"))
    public: Any = torch.func
    eager.linearize = public.linearize = whole("linearize", eager.linearize, True)
    for name in ("functionalize", "jacrev", "jacfwd", "hessian"):
        transform = transformed(name, getattr(eager, name))
        setattr(eager, name, transform)
        setattr(public, name, transform)
    torch.cond = taken(torch.cond)
    forward_ad.enter_dual_level = refuse_dual_level(forward_ad.enter_dual_level)
    private.ScriptFunction.__call__ = scripted_function(private.ScriptFunction.__call__)
    private.ScriptMethod.__call__ = scripted_method(private.ScriptMethod.__call__)


def transformed(name: str, original: Callable[..., Any]) -> Callable[..., Any]:
    """A transform of `torch.func` made of several, whose result is recorded whole."""
    @functools.wraps(original)
    def transform(func: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        return whole(name, original(func, *args, **kwargs))
    return transform
