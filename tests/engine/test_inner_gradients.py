"""Gradients of recorded tensors, asked for inside transforms and through wrappers: as in torch eager, or refused."""

from __future__ import annotations

import contextlib
import functools
import random
import subprocess
import sys
import types
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch import func
from torch.autograd import Function
from torch.autograd.graph import get_gradient_edge, saved_tensors_hooks
from torch.utils._pytree import tree_leaves
from torch.utils.checkpoint import checkpoint

import autograd_opt as ao
from tests.engine.functions import Square

Tensor = torch.Tensor
pytestmark = pytest.mark.filterwarnings("ignore:There is a performance drop")     # torch's, of batches in batches
OPTIMIZE = pytest.mark.parametrize("optimize", [False, True])
EARLY_GRAD, EARLY_BACKWARD = torch.autograd.grad, torch.autograd.backward
EYE = torch.eye(3, dtype=torch.float64)


def leaves() -> tuple[Tensor, Tensor]:
    return (torch.tensor([0.5, -1.0, 2.0], dtype=torch.float64, requires_grad=True),
            torch.tensor([0.3, 0.6, -0.9], dtype=torch.float64, requires_grad=True))


def flat(value: Any) -> list[Any]:
    """Values and flags of all tensors in a result; everything else as it is."""
    return [(t.detach().clone(), t.requires_grad) if isinstance(t, Tensor) else t
            for t in tree_leaves(value, is_leaf=lambda x: x is None)]


def outcome(program: Callable[[], Any], context: Any) -> Any:
    with context:
        try:
            return flat(program())
        except (RuntimeError, ValueError) as error:
            return error


def agree(mine: Any, torchs: Any) -> None:
    """The same values and flags, or both an error."""
    if isinstance(torchs, Exception) or isinstance(mine, Exception):
        assert isinstance(torchs, Exception) == isinstance(mine, Exception), (mine, torchs)
        return
    assert len(mine) == len(torchs)
    for a, b in zip(mine, torchs, strict=True):
        if isinstance(b, tuple):
            assert torch.allclose(a[0], b[0], 1e-12, 1e-12), (a, b)
            assert a[1] == b[1], (a, b)
        else:
            assert a == b


def as_in_eager(program: Callable[[], Any], optimize: bool) -> None:
    agree(outcome(program, ao.AutogradGraph(optimize=optimize)), outcome(program, contextlib.nullcontext()))


# What is recorded before ------------------------------------------------------------------
def hooked(w: Tensor, u: Tensor) -> Tensor:
    y = (w * u).sin()
    y.register_hook(lambda g: g * 2)
    return y * w


def written(w: Tensor, u: Tensor) -> Tensor:
    y = w * 2
    y[1:].mul_(u[:2])
    return y.view(-1).exp()


def packed(w: Tensor, u: Tensor) -> Tensor:
    with saved_tensors_hooks(lambda t: t.clone(), lambda t: t):
        return (w * u).exp() * w


GRAPHS: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "products": lambda w, u: (w * u).sin() * w,
    "of one leaf": lambda w, u: w.exp() * w,
    "repeated work": lambda w, u: (w * u).sin() * (w * u).sin() + w,
    "a matrix product": lambda w, u: torch.outer(w, u) @ w,
    "hooks": hooked,
    "writes through views": written,
    "saved tensor hooks": packed,
    "a Function": lambda w, u: Square.apply(w * u) * 3,
    "a checkpoint": lambda w, u: checkpoint(lambda t: (t * u).tanh() * t, w * 1, use_reentrant=False),
    "without a rule": lambda w, u: torch.special.bessel_j0(w * u),
    "a transform": lambda w, u: func.vmap(lambda r: (r * w).sum())(EYE * u),
    "the leaf itself": lambda w, u: w,
}
Grad = Callable[..., Any]


def second(result: Any, wanted: tuple[Tensor, ...], options: dict[str, Any]) -> Any:
    """The result, and what a further derivative gives of it where it can be differentiated."""
    total = [(t * t).sum() for t in tree_leaves(result) if isinstance(t, Tensor) and t.requires_grad]
    if not options.get("create_graph") or not total:
        return result
    return result, torch.autograd.grad(torch.stack(total).sum(), wanted, allow_unused=True)


# Who asks ---------------------------------------------------------------------------------
def in_vmap(y: Tensor, inputs: Any, options: dict[str, Any], **mapped: Any) -> Any:
    return torch.vmap(lambda v: torch.autograd.grad(y, inputs, v, **options), **mapped)(EYE)


def in_two(y: Tensor, inputs: Any, options: dict[str, Any]) -> Any:
    return torch.vmap(lambda a: torch.vmap(lambda v: torch.autograd.grad(y, inputs, v * a, **options))(EYE))(
        torch.tensor([1.0, -2.0], dtype=y.dtype))


def with_constant(y: Tensor, inputs: Any, options: dict[str, Any]) -> Any:
    """The cotangent is no batch."""
    return torch.vmap(lambda v: [v * g for g in torch.autograd.grad(y.sum(), inputs, **options) if g is not None])(EYE)


def several_roots(y: Tensor, inputs: Any, options: dict[str, Any]) -> Any:
    z = y * 2
    return torch.vmap(lambda v: torch.autograd.grad((z, y.exp()), inputs, (v, v * 3), **options), in_dims=1)(EYE)


def intermediate(y: Tensor, inputs: Any, options: dict[str, Any]) -> Any:
    z = (y * y).sin()
    return torch.vmap(lambda v: torch.autograd.grad(z, (y, *inputs), v, **options))(EYE)


def from_edge(y: Tensor, inputs: Any, options: dict[str, Any]) -> Any:
    edge = get_gradient_edge(y * 1)
    return torch.vmap(lambda v: torch.autograd.grad(edge, inputs, v, **options))(EYE)


def batched_inside(y: Tensor, inputs: Any, options: dict[str, Any]) -> Any:
    ask = functools.partial(torch.autograd.grad, is_grads_batched=True, **options)
    return torch.vmap(lambda v: ask(y, inputs, EYE * v))(EYE)


def recorded_cotangent(y: Tensor, inputs: Any, options: dict[str, Any]) -> Any:
    """The cotangents are tensors of the graph, and a leaf that only they come from is differentiated as well."""
    c = torch.ones(3, dtype=y.dtype, requires_grad=True)
    rows = torch.vmap(lambda v: torch.autograd.grad(y, inputs, v * (c * c), **options))(EYE)
    return rows, second(rows, (c,), options)[1:]


def engine(y: Tensor, inputs: Any, options: dict[str, Any]) -> Any:
    create = options.get("create_graph", False)
    run = torch.autograd.Variable._execution_engine.run_backward
    return run((y,), (torch.ones_like(y),), options.get("retain_graph", create), create, tuple(inputs),
               options.get("allow_unused", False), False)


def unseen(y: Tensor, inputs: Any, options: dict[str, Any]) -> Any:
    with torch._C.DisableTorchFunction():
        return torch.autograd.grad(y, inputs, torch.ones_like(y), **options)


def jacobian(y: Tensor, inputs: Any, options: dict[str, Any]) -> Any:
    def f(v: Tensor) -> Tensor:
        return torch.autograd.grad(y, inputs, v, create_graph=True, allow_unused=True)[0]
    return torch.autograd.functional.jacobian(f, EYE[0] + 1, bool(options.get("create_graph")), vectorize=True)


ASKED: dict[str, Callable[[Tensor, Any, dict[str, Any]], Any]] = {
    "grad": lambda y, inputs, options: torch.autograd.grad(y, inputs, torch.ones_like(y), **options),
    "grad, batched": lambda y, inputs, options: torch.autograd.grad(y, inputs, EYE, is_grads_batched=True, **options),
    "vmap": in_vmap,
    "vmap in chunks": functools.partial(in_vmap, chunk_size=2),
    "vmap, last axis": functools.partial(in_vmap, in_dims=1, out_dims=-1, randomness="different"),
    "vmap twice": in_two,
    "vmap, same cotangent": with_constant,
    "vmap, several roots": several_roots,
    "vmap, intermediate": intermediate,
    "vmap, edges": from_edge,
    "vmap, batched inside": batched_inside,
    "vmap, recorded cotangent": recorded_cotangent,
    "the engine": engine,
    "no torch functions": unseen,
    "jacobian": jacobian,
}
OPTIONS: list[dict[str, Any]] = [
    {}, {"retain_graph": True}, {"allow_unused": True}, {"create_graph": True}, {"materialize_grads": True},
    {"create_graph": True, "allow_unused": True}, {"create_graph": True, "materialize_grads": True},
]


# What users put in the place of torch's functions -----------------------------------------
class Called:
    """A callable object around a function."""

    def __init__(self, function: Callable[..., Any]) -> None:
        self.function = function

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self.function(*args, **kwargs)


WRAPPERS: dict[str, Callable[[Any], Any]] = {
    "none": lambda f: f,
    "lambda": lambda f: lambda *args, **kwargs: f(*args, **kwargs),
    "wraps": lambda f: functools.wraps(f)(lambda *args, **kwargs: f(*args, **kwargs)),
    "partial": lambda f: functools.partial(f, retain_graph=True),
    "object": Called,
    "method": lambda f: types.MethodType(lambda self, *args, **kwargs: self(*args, **kwargs), f),
    "scaled": lambda f: lambda *args, **kwargs: tuple(None if g is None else g * 2 for g in f(*args, **kwargs)),
    "twice": lambda f: WRAPPERS["wraps"](WRAPPERS["lambda"](f)),
}


@contextlib.contextmanager
def replaced(owner: Any, name: str, make: Callable[[Any], Any]) -> Iterator[None]:
    before = getattr(owner, name)
    setattr(owner, name, make(before))
    try:
        yield
    finally:
        setattr(owner, name, before)


def differentiated(graph: str, asked: str, options: dict[str, Any]) -> Any:
    w, u = leaves()
    y = GRAPHS[graph](w, u)
    return second(ASKED[asked](y, (w, u), options), (w, u), options)


@OPTIMIZE
@pytest.mark.parametrize("graph", GRAPHS)
@pytest.mark.parametrize("asked", ASKED)
def test_every_way_to_ask(asked: str, graph: str, optimize: bool) -> None:
    as_in_eager(lambda: differentiated(graph, asked, {"create_graph": True, "allow_unused": True}), optimize)
    as_in_eager(lambda: differentiated(graph, asked, {"retain_graph": True, "materialize_grads": True}), optimize)


@pytest.mark.parametrize("seed", range(150))
def test_combined_at_random(seed: int) -> None:
    draw = random.Random(seed)
    wrapper, graph, asked = draw.choice([*WRAPPERS]), draw.choice([*GRAPHS]), draw.choice([*ASKED])
    options = draw.choice(OPTIONS)

    def program() -> Any:
        with replaced(torch.autograd, "grad", WRAPPERS[wrapper]):
            return differentiated(graph, asked, dict(options))

    as_in_eager(program, draw.random() < 0.5)


# backward, hooks --------------------------------------------------------------------------
def accumulated(steps: Callable[[Tensor, Tensor], Any]) -> Callable[[], Any]:
    def program() -> Any:
        w, u = leaves()
        result = steps(w, u)
        return w.grad, u.grad, result
    return program


BACKWARD: dict[str, Callable[[Tensor, Tensor], Any]] = {
    "of a result": lambda w, u: (w * u).sin().sum().backward(),
    "of a leaf": lambda w, u: w.backward(u.detach()),
    "with a cotangent": lambda w, u: (w * u).backward(gradient=torch.ones(3, dtype=w.dtype)),
    "into one leaf": lambda w, u: (w * u).sum().backward(inputs=[u]),
    "autograd.backward": lambda w, u: torch.autograd.backward([(w * u).sum(), w.exp().sum()]),
    "imported before": lambda w, u: EARLY_BACKWARD((w * u).sum(), retain_graph=True),
}


@OPTIMIZE
@pytest.mark.parametrize("wrapper", [w for w in WRAPPERS if w not in ("object", "partial", "scaled")])
@pytest.mark.parametrize("place", ["Tensor.backward", "autograd.backward", "both"])
@pytest.mark.parametrize("asked", BACKWARD)
def test_backward_that_the_user_has_replaced(asked: str, place: str, wrapper: str, optimize: bool) -> None:
    calls: list[str] = []

    def counted(name: str, make: Callable[[Any], Any]) -> Callable[[Any], Any]:
        def around(f: Any) -> Any:
            inner = make(f)

            def call(*args: Any, **kwargs: Any) -> Any:
                calls.append(name)
                return inner(*args, **kwargs)
            return call
        return around

    def steps(w: Tensor, u: Tensor) -> Any:
        calls.clear()
        with contextlib.ExitStack() as stack:
            for owner, name in ((Tensor, "Tensor.backward"), (torch.autograd, "autograd.backward")):
                if place in (name, "both"):
                    stack.enter_context(replaced(owner, "backward", counted(name, WRAPPERS[wrapper])))
            BACKWARD[asked](w, u)
        return tuple(calls)

    if wrapper == "method" and place != "autograd.backward":
        pytest.skip("a bound method is no method of another class")
    as_in_eager(accumulated(steps), optimize)


@OPTIMIZE
@pytest.mark.parametrize("name", ["register_hook", "register_post_accumulate_grad_hook", "retain_grad"])
def test_methods_that_the_user_has_replaced(name: str, optimize: bool) -> None:
    def steps(w: Tensor, u: Tensor) -> Any:
        seen: list[Any] = []

        def make(f: Any) -> Any:
            return lambda self, *args: (seen.append("called"), f(self, *args))[1]

        with replaced(Tensor, name, make):
            y = w * u
            if name == "retain_grad":
                y.retain_grad()
            else:
                w_hook = (lambda g: g * 2) if name == "register_hook" else (lambda p: seen.append(p.grad.clone()))
                getattr(w, name)(w_hook)
                if name == "register_hook":
                    y.register_hook(lambda g: g * 5)
            y.sum().backward()
        return seen, y.grad if name == "retain_grad" else None

    as_in_eager(accumulated(steps), optimize)


@OPTIMIZE
def test_functions_imported_before_any_context(optimize: bool) -> None:
    def program() -> Any:
        w, u = leaves()
        with replaced(torch.autograd, "grad", lambda f: lambda *args, **kwargs: None):
            return EARLY_GRAD((w * u).sum(), (w, u))
    as_in_eager(program, optimize)


PATCHED = """
import torch
def wrapped(f):
    def call(*args, **kwargs):
        calls.append(f.__name__)
        return f(*args, **kwargs)
    return call
calls, originals = [], (torch.autograd.grad, torch.autograd.backward, torch.Tensor.backward)
torch.autograd.grad, torch.autograd.backward, torch.Tensor.backward = map(wrapped, originals)
import autograd_opt as ao
for later in False, True:
    if later:
        torch.autograd.grad, torch.autograd.backward, torch.Tensor.backward = originals
    for context in ao.AutogradGraph, lambda: ao.AutogradGraph(optimize=True), torch.enable_grad:
        x = torch.tensor(2.0, requires_grad=True)
        calls.clear()
        with context():
            y = x * x
            g = torch.autograd.grad(y, x, retain_graph=True, allow_unused=True)[0]
            j = torch.vmap(lambda v: torch.autograd.grad(y, x, v, retain_graph=True)[0])(torch.ones(2))
            y.backward()
            torch.autograd.backward(x * 3)
        print(g, j, x.grad, calls)
"""


def test_functions_replaced_before_the_import() -> None:
    done = subprocess.run([sys.executable, "-c", PATCHED], capture_output=True, text=True, check=True)
    lines = done.stdout.splitlines()
    assert lines[0] == lines[1] == lines[2]
    assert lines[3] == lines[4] == lines[5] == "tensor(4.) tensor([4., 4.]) tensor(7.) []"


@OPTIMIZE
def test_another_wrapper_under_the_same_name(optimize: bool) -> None:
    """One function of the user's stands in for grad first, then for backward."""
    current: list[Any] = []

    def either(*args: Any, **kwargs: Any) -> Any:
        return current[-1](*args, **kwargs)

    def program() -> Any:
        w, u = leaves()
        current.append(EARLY_GRAD)
        with replaced(torch.autograd, "grad", lambda f: either):
            first = torch.autograd.grad((w * u).sum(), w)
        current.append(EARLY_BACKWARD)
        with replaced(torch.autograd, "backward", lambda f: either):
            torch.autograd.backward((w * u).sum())
        return first, w.grad, u.grad
    as_in_eager(program, optimize)


# Inside transforms ------------------------------------------------------------------------
@OPTIMIZE
def test_backward_inside_a_transform_is_refused_as_by_torch(optimize: bool) -> None:
    def program(w: Tensor, u: Tensor) -> Any:
        y = w * u
        for ask in (lambda v: y.backward(v), lambda v: y.sum().backward(), lambda v: (w * 1).sum().backward(),
                    lambda v: torch.autograd.backward(y, v)):
            with pytest.raises(RuntimeError, match="called inside a functorch transform"):
                torch.vmap(lambda v, ask=ask: (ask(v), v)[1])(EYE)
    as_in_eager(accumulated(program), optimize)


def hooks_inside(w: Tensor, u: Tensor) -> Any:
    """Hooks set inside a transform see the whole gradient, of other uses, too."""
    seen: list[Any] = []
    y = w * u

    def f(v: Tensor) -> Tensor:
        w.register_hook(lambda g: (seen.append(g.clone()), g * 2)[1])
        y.register_hook(lambda g: (seen.append(g.clone()), g * 3)[1])
        u.register_post_accumulate_grad_hook(lambda p: seen.append(p.grad.clone()))
        return v * y + w
    (torch.vmap(f)(EYE).sum() + (w * 3).sum() + y.sum()).backward()
    return seen


def gradient_inside(w: Tensor, u: Tensor) -> Any:
    """`.grad` inside a transform is that of the tensor of the graph, to read and to write."""
    (w * u).sum().backward()

    def f(v: Tensor) -> Tensor:
        u.grad = torch.ones(3, dtype=v.dtype)
        return v * w.grad
    return torch.vmap(f)(EYE)


@OPTIMIZE
@pytest.mark.parametrize("steps", [hooks_inside, gradient_inside])
def test_what_is_asked_of_the_tensor_itself(steps: Any, optimize: bool) -> None:
    as_in_eager(accumulated(steps), optimize)


def network(create_graph: bool) -> Any:
    torch.manual_seed(0)
    net = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.Tanh(), torch.nn.Linear(4, 2)).double()
    out = net(EYE)
    rows = torch.vmap(lambda v: torch.autograd.grad(out, list(net.parameters()), v, retain_graph=True,
                                                    create_graph=create_graph))(torch.eye(6).double().view(6, 3, 2))
    return second(rows, tuple(net.parameters()), {"create_graph": create_graph})


def in_a_hook() -> Any:
    w, u = leaves()
    y, z = w.sin(), u.exp() * u
    y.register_hook(lambda g: g * torch.vmap(lambda v: torch.autograd.grad(z, u, v, retain_graph=True)[0])(EYE).sum(0))
    return torch.autograd.grad(y.sum(), w)


def in_a_function() -> Any:
    w, u = leaves()
    z = u.exp() * u

    class Weighted(Function):
        @staticmethod
        def forward(ctx: Any, x: Tensor) -> Tensor:
            return x.clone()

        @staticmethod
        def backward(ctx: Any, g: Tensor) -> Tensor:
            return g * torch.vmap(lambda v: torch.autograd.grad(z, u, v, retain_graph=True)[0])(EYE).sum(0)
    return torch.autograd.grad(Weighted.apply(w * 2).sum(), w)


def under_no_grad() -> Any:
    w, u = leaves()
    y = w * u * w
    with torch.no_grad():
        return [torch.vmap(lambda v, c=c: torch.autograd.grad(y, w, v, create_graph=c, retain_graph=True)[0])(EYE)
                for c in (False, True)]


def constants_of_a_transform() -> Any:
    """The cotangent is a constant of the transform that differentiates."""
    w, u = leaves()
    y = w * u * w

    def g() -> Tensor:
        return torch.autograd.grad(y, w, torch.ones(3, dtype=w.dtype), retain_graph=True)[0]
    x = EYE[0] + 1
    return (func.jacrev(lambda t: t * t * g())(x), func.jacfwd(lambda t: t * t * g())(x),
            func.vmap(func.grad(lambda t: (t * g()).sum()))(EYE), func.hessian(lambda t: (t**3 * g()).sum())(x))


def of_the_graph_in_the_transform() -> Any:
    """Recorded before, and gone on with inside: both parts are in the gradient."""
    w, u = leaves()
    y = w * u
    return torch.vmap(lambda v: v * torch.autograd.grad((y.exp() * w).sum(), w, retain_graph=True)[0])(EYE)


def closed_over() -> Any:
    w, u = leaves()
    y = w * u
    rows = [func.jacrev(lambda v: v * y)(w), func.jacfwd(lambda v: v * y)(w),
            func.hessian(lambda v: (v**3 * y).sum())(u)]
    return [torch.autograd.grad((r * r).sum(), (w, u), retain_graph=True) for r in rows]


def of_a_parametrized_module() -> Any:
    w, u = leaves()
    torch.manual_seed(0)
    net = torch.nn.Linear(3, 3).double()
    given = {"weight": net.weight * (w * u), "bias": w * 2}
    rows = func.vmap(func.grad(lambda p, x: func.functional_call(net, p, (x,)).exp().sum()), (None, 0))(given, EYE * u)
    return torch.autograd.grad(rows["weight"].sum() + rows["bias"].sum(), (w, u, net.weight))


@OPTIMIZE
@pytest.mark.parametrize("program", [
    functools.partial(network, False), functools.partial(network, True), in_a_hook, in_a_function, under_no_grad,
    constants_of_a_transform, of_the_graph_in_the_transform, closed_over, of_a_parametrized_module,
], ids=lambda p: getattr(p, "__name__", "network"))
def test_around_transforms(program: Callable[[], Any], optimize: bool) -> None:
    result = outcome(program, contextlib.nullcontext())
    assert not isinstance(result, Exception)
    as_in_eager(program, optimize)


@OPTIMIZE
def test_a_freed_graph_is_said_to_be_freed(optimize: bool) -> None:
    w, u = leaves()
    with ao.AutogradGraph(optimize=optimize):
        y = w * u
        torch.vmap(lambda v: torch.autograd.grad(y, w, v)[0])(EYE)
        with pytest.raises(RuntimeError, match="a second time"):
            torch.vmap(lambda v: torch.autograd.grad(y, w, v)[0])(EYE)
        y = w.sin()
        with pytest.raises(RuntimeError, match="index 0 appears to not have been used"):
            torch.vmap(lambda v: torch.autograd.grad(y, u, v)[0])(EYE)


# Refusals ---------------------------------------------------------------------------------
@OPTIMIZE
@pytest.mark.parametrize("transform", [func.jacrev, func.jacfwd, func.hessian,
                                       lambda f: func.grad(lambda v: f(v).sum())])
def test_a_cotangent_that_a_transform_differentiates_is_refused(transform: Any, optimize: bool) -> None:
    w, u = leaves()
    with ao.AutogradGraph(optimize=optimize):
        y = w * u
        with pytest.raises(ao.UnsupportedError, match="grad_outputs that an enclosing transform"):
            transform(lambda v: torch.autograd.grad(y, w, v, create_graph=True)[0])(EYE[0])
        with pytest.raises(ao.UnsupportedError, match="grad_outputs that an enclosing transform"):
            torch.autograd.functional.jacobian(lambda v: torch.autograd.grad(y, w, v, create_graph=True)[0], EYE[0],
                                               vectorize=True, strategy="forward-mode")
        y.sum().backward()
    assert torch.equal(w.grad, u)


@torch.jit.script
def scripted_grad(y: Tensor, x: Tensor):
    return torch.autograd.grad([y.sum()], [x], allow_unused=True)


@torch.jit.script
def scripted_around(y: Tensor, x: Tensor):
    return scripted_grad(y, x)


class ScriptedBackward(torch.nn.Module):
    def forward(self, y: Tensor) -> Tensor:
        y.sum().backward()
        return y


@OPTIMIZE
def test_scripted_code_that_differentiates_is_refused(optimize: bool) -> None:
    w, u = leaves()
    module = torch.jit.script(ScriptedBackward())
    with ao.AutogradGraph(optimize=optimize):
        y = w * u
        for call in (lambda: scripted_grad(y, w), lambda: scripted_around(y, w), lambda: module(y),
                     lambda: func.vmap(lambda v: v * scripted_grad(y, w)[0])(EYE)):
            with pytest.raises(ao.UnsupportedError, match=r"TorchScript code of .* calls"):
                call()
    assert scripted_grad(w.sin(), w)[0] is not None


@OPTIMIZE
def test_a_trace_keeps_no_tensor_that_requires_grad(optimize: bool) -> None:
    w, u = leaves()
    with ao.AutogradGraph(optimize=optimize):
        y = w * u
        with pytest.raises(RuntimeError, match="Cannot insert a Tensor that requires grad as a constant"):
            torch.jit.trace(lambda v: v * y, (EYE[0],))
        traced = torch.jit.trace(lambda v: v * y.detach(), (y,), check_trace=False)
        traced(w).sum().backward()
        assert torch.allclose(w.grad, (w * u).detach())
    with pytest.raises(RuntimeError, match="Cannot insert a Tensor that requires grad as a constant"):
        torch.jit.trace(lambda v: v * y, (EYE[0],))


# Tensors of a graph that has been left ----------------------------------------------------
LATER: dict[str, Callable[[Tensor, Tensor], Any]] = {
    "vmap": lambda h, x: torch.vmap(lambda r: r * h)(x.expand(2, 3)),
    "grad": lambda h, x: func.grad(lambda v: (v * v * h).sum())(x),
    "jvp": lambda h, x: func.jvp(lambda v: v * h, (x,), (x,))[1],
    "vmap of grad": lambda h, x: func.vmap(func.grad(lambda v: (v * h).exp().sum()))(x.expand(2, 3)),
    "jacrev": lambda h, x: func.jacrev(lambda v: v * v * h)(x),
    "a Function": lambda h, x: Square.apply(h),
}


@pytest.mark.parametrize("name", LATER)
def test_a_gradient_of_a_left_graph_is_refused(name: str) -> None:
    w, u = leaves()
    with ao.AutogradGraph():
        h = w * 2
    with pytest.raises(ao.OutsideGraphError):
        (LATER[name](h, u) * u).sum().backward()
    with torch.no_grad():
        mine = LATER[name](h, u)
    assert torch.equal(mine.detach().as_subclass(Tensor), LATER[name](w.detach() * 2, u.detach()))
    with pytest.raises(ao.OutsideGraphError):
        torch.vmap(lambda v: torch.autograd.grad(h, w, v, allow_unused=True)[0])(EYE)
