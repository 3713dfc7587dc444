"""torch.func transforms, forward mode and TorchScript inside a context: as in torch eager, or a clear refusal."""

from __future__ import annotations

import weakref
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import func
from torch.autograd import forward_ad

import autograd_opt as ao

Tensor = torch.Tensor
Program = Callable[[dict[str, Tensor]], Any]
X = torch.tensor([0.5, -1.0, 2.0], dtype=torch.float64)
BATCH = torch.tensor([[1.0, -2.0, 0.5], [0.25, 3.0, -1.5]], dtype=torch.float64)


class Net(torch.nn.Module):
    """Parameters that a transformed function meets as attributes."""

    def __init__(self, weight: Tensor) -> None:
        super().__init__()
        self.weight = weight if isinstance(weight, torch.nn.Parameter) else torch.nn.Parameter(weight.detach())

    def forward(self, x: Tensor) -> Tensor:
        return torch.nn.functional.linear(x, self.weight[None]).tanh().sum()


class Cube(torch.autograd.Function):
    """A custom function that knows transforms."""

    generate_vmap_rule = True

    @staticmethod
    def forward(x: Tensor, w: Tensor) -> Tensor:
        return x**3 * w

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        ctx.save_for_backward(*inputs)

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> Any:
        x, w = ctx.saved_tensors
        return g * 3 * x * x * w, g * x**3


def leaves(kind: str) -> dict[str, Tensor]:
    make = ao.tensor if kind == "custom" else lambda t: t.clone().requires_grad_()
    return {"x": make(X), "w": make(X.exp()), "c": X * 2}


def totals(value: Any) -> Tensor | None:
    """A scalar of everything in the result that requires grad, weighted."""
    flat = [t for t in torch.utils._pytree.tree_leaves(value) if isinstance(t, Tensor) and t.requires_grad]
    return sum(((k + 1) * (t * t).sum() for k, t in enumerate(flat)), torch.zeros((), dtype=X.dtype)) if flat else None


def outcome(program: Program, kind: str, order: int) -> tuple[Any, list[bool], list[Tensor | None]]:
    env = leaves(kind)
    value = program(env)
    flat = [t for t in torch.utils._pytree.tree_leaves(value) if isinstance(t, Tensor)]
    root = totals(value)
    wanted = [env["x"], env["w"]]
    grads: list[Tensor | None] = [None, None]
    if root is not None:
        grads = list(torch.autograd.grad(root, wanted, create_graph=order == 2, allow_unused=True))
        inner = totals(grads) if order == 2 else None
        if inner is not None:
            grads += torch.autograd.grad(inner, wanted, allow_unused=True)
    return [t.detach().clone() for t in flat], [t.requires_grad for t in flat], grads


def vjp_program(e: dict[str, Tensor]) -> Any:
    out, pull = func.vjp(lambda x: x.sin() * e["w"], e["x"] * 2)
    return out, pull(e["c"]), pull(out)


def batched_vjp(e: dict[str, Tensor]) -> Any:
    _, pull = func.vjp(lambda x: (x * e["w"]).sin(), e["x"])
    return func.vmap(pull)(torch.eye(3, dtype=X.dtype))


def recorded_around(e: dict[str, Tensor]) -> Any:
    """Results of a transform go on in the graph, and its inputs come from it."""
    a = e["x"] * e["w"]
    g = func.grad(lambda v: (v * a).sin().sum())(a)
    return g * a + func.vmap(lambda r: r * g)(BATCH)


def functional_call(e: dict[str, Tensor]) -> Any:
    net = Net(e["w"])
    return func.grad(lambda p, x: func.functional_call(net, p, (x,)))({"weight": e["w"] * 2}, e["x"])


def per_sample(e: dict[str, Tensor]) -> Any:
    net = Net(e["w"])
    each = func.vmap(func.grad(lambda p, x: func.functional_call(net, p, (x,)) * e["x"].sum()), (None, 0))
    return each({"weight": e["w"]}, BATCH)


PROGRAMS: dict[str, Program] = {
    "vmap over constants, closing over a leaf": lambda e: func.vmap(lambda r: (r * e["w"]).sin())(BATCH),
    "vmap over recorded values": lambda e: func.vmap(torch.sin)(e["x"] * e["w"]),
    "vmap, closing over recorded values": lambda e: func.vmap(lambda r, a=e["x"] * e["w"]: (r @ a).exp())(BATCH),
    "vmap of views": lambda e: func.vmap(lambda r: r.unsqueeze(0))(e["x"]) * e["w"],
    "vmap in chunks": lambda e: func.vmap(lambda r: r * e["w"], chunk_size=1)(BATCH),
    "vmap of a sum into a dict": lambda e: func.vmap(lambda r: {"a": r.sum(), "b": r * e["x"]})(BATCH),
    "vmap twice": lambda e: func.vmap(lambda a: func.vmap(lambda b: a * b * e["x"].sum())(e["w"]))(e["x"]),
    "vmap of a custom function": lambda e: func.vmap(lambda r: Cube.apply(r, e["w"]))(BATCH),
    "vmap of the identity": lambda e: func.vmap(lambda r: r)(e["x"]),
    "grad": lambda e: func.grad(lambda x: (x * x * e["w"]).sum())(e["x"]),
    "grad of constants": lambda e: func.grad(lambda x: (x * x * e["w"]).sum())(e["c"]),
    "grad of a constant function": lambda e: func.grad(lambda x: (x * e["c"]).sum())(e["c"]),
    "grad, two arguments": lambda e: func.grad(lambda x, y: (x * y).sin().sum(), (0, 1))(e["x"], e["w"]),
    "grad with aux": lambda e: func.grad(lambda x: ((x * e["w"]).sum(), x * 2), has_aux=True)(e["x"]),
    "grad of grad": lambda e: func.grad(lambda x: func.grad(lambda y: (y * x).sin().sum())(e["w"]).sum())(e["x"]),
    "grad and value": lambda e: func.grad_and_value(lambda x: (x * x * e["w"]).sum())(e["x"]),
    "grad of a custom function": lambda e: func.grad(lambda x: Cube.apply(x, e["w"]).sum())(e["x"]),
    "grad inside vmap": lambda e: func.vmap(func.grad(lambda r: (r * e["w"]).sin().sum()))(BATCH),
    "vjp": vjp_program,
    "vjp in a batch": batched_vjp,
    "jvp": lambda e: func.jvp(lambda x: (x * e["w"]).sin(), (e["x"],), (e["c"],)),
    "jvp with recorded tangents": lambda e: func.jvp(lambda x: x.sin(), (e["c"],), (e["x"] * 2,)),
    "jacrev": lambda e: func.jacrev(lambda x: (x * e["w"]).sin())(e["x"]),
    "jacfwd": lambda e: func.jacfwd(lambda x: (x * e["w"]).sin())(e["x"]),
    "hessian": lambda e: func.hessian(lambda x: (x * e["w"]).sin().sum())(e["x"]),
    "linearize": lambda e: func.linearize(lambda x: x.sin() * 2, e["c"])[1](e["x"]),
    "functionalize": lambda e: func.functionalize(lambda x: x.clone().mul_(2) * e["w"])(e["x"]),
    "functional call": functional_call,
    "gradients for each sample": per_sample,
    "around": recorded_around,
    "forward-mode jacobian": lambda e: torch.autograd.functional.jacobian(
        lambda x: x * e["w"], e["x"].detach(), vectorize=True, strategy="forward-mode"
    ),
    "forward-mode hessian": lambda e: torch.autograd.functional.hessian(
        lambda x: (x.sin() * e["c"]).sum(), e["c"], vectorize=True, outer_jacobian_strategy="forward-mode"
    ),
    "vectorized jacobian": lambda e: torch.autograd.functional.jacobian(lambda x: x * x, e["c"], vectorize=True),
    "batched cotangents": lambda e: torch.autograd.grad(
        (e["x"] * e["w"]).sin(), e["x"], torch.eye(3, dtype=X.dtype), is_grads_batched=True, create_graph=True
    ),
    "scripted function": lambda e: scaled(e["x"] * 2, e["w"]),
    "scripted function of constants": lambda e: scaled(e["x"].detach(), X) * e["w"],
    "scripted function of several results": lambda e: (lambda a, b: a * b[0])(*both(e["x"], e["w"])),
    "scripted function that hands back": lambda e: handed(e["x"] * 1, True) + handed(e["w"], False),
    "scripted view of its own memory": lambda e: halves(e["x"] * e["w"]).exp(),
    "scripted function that calls Python": lambda e: with_python(e["x"], e["w"]),
    "traced function": lambda e: TRACED(e["x"] * e["w"]),
    "vmap of a traced function": lambda e: func.vmap(lambda r: r + TRACED(e["w"]))(BATCH),
}


@torch.jit.script
def scaled(x: Tensor, y: Tensor) -> Tensor:
    return (x * y).sin() * 2.0


@torch.jit.script
def both(x: Tensor, y: Tensor) -> tuple[Tensor, list[Tensor]]:
    return x * y, [x.sin(), y]


@torch.jit.script
def handed(x: Tensor, same: bool) -> Tensor:
    return x if same else x * 2


@torch.jit.script
def halves(x: Tensor) -> Tensor:
    return (x * 2)[1:]


@torch.jit.ignore
def squared(x):                             # an annotation would be text, which TorchScript does not read here
    return x * x


@torch.jit.script
def with_python(x: Tensor, y: Tensor) -> Tensor:
    return squared(x) * y


TRACED = torch.jit.trace(lambda x: x.sin() * 2, (X,))


@pytest.mark.filterwarnings("ignore:Attempted to insert a get_attr")     # torch's own, in linearize
@pytest.mark.parametrize("order", [1, 2])
@pytest.mark.parametrize("kind", ["custom", "plain"])
@pytest.mark.parametrize("optimize", [False, True])
@pytest.mark.parametrize("name", PROGRAMS)
def test_as_in_eager(name: str, optimize: bool, kind: str, order: int) -> None:
    values, flags, grads = outcome(PROGRAMS[name], "plain", order)
    with ao.AutogradGraph(optimize=optimize):
        mine, my_flags, my_grads = outcome(PROGRAMS[name], kind, order)
    assert all(torch.equal(a, b) for a, b in zip(mine, values, strict=True))
    assert my_flags == flags
    for a, b in zip(my_grads, grads, strict=True):
        assert (a is None) == (b is None)
        assert a is None or torch.allclose(a, b, 1e-12, 1e-12), (a, b)


@pytest.mark.parametrize("optimize", [False, True])
def test_parameters_in_a_transformed_module(optimize: bool) -> None:
    net = Net(X)
    with ao.AutogradGraph(optimize=optimize):
        func.vmap(net)(BATCH).sum().backward()
    mine, net.weight.grad = net.weight.grad, None
    func.vmap(net)(BATCH).sum().backward()
    assert mine is not None
    assert torch.allclose(mine, net.weight.grad)


@pytest.mark.parametrize("optimize", [False, True])
def test_without_grad_mode_nothing_is_connected(optimize: bool) -> None:
    w = ao.tensor(X)
    with ao.AutogradGraph(optimize=optimize), torch.no_grad():
        g = func.grad(lambda x: (x * x * w).sum())(w * 1)
        assert not g.requires_grad
        assert torch.allclose(g.as_subclass(Tensor), 2 * X * X)


@pytest.mark.parametrize("optimize", [False, True])
def test_random_draws_of_vmap_advance_the_generator(optimize: bool) -> None:
    def draw() -> Tensor:
        torch.manual_seed(3)
        return func.vmap(lambda r: r * torch.rand(()), randomness="different")(BATCH) + torch.rand(())

    with ao.AutogradGraph(optimize=optimize):
        mine = draw()
    assert torch.equal(mine.as_subclass(Tensor), draw())


@pytest.mark.parametrize("optimize", [False, True])
def test_an_exception_in_a_transform_leaves_the_graph_usable(optimize: bool) -> None:
    w = ao.tensor(X)

    def fail(x: Tensor) -> Tensor:
        raise ValueError("in the user's function")

    with ao.AutogradGraph(optimize=optimize):
        a = w * 2
        with pytest.raises(ValueError, match="in the user's function"):
            func.vmap(fail)(a)
        (a * a).sum().backward()
    assert torch.allclose(w.grad, 8 * X)


# Refusals ---------------------------------------------------------------------------------
@pytest.mark.parametrize("optimize", [False, True])
def test_dual_numbers_are_refused(optimize: bool) -> None:
    w = ao.tensor(X)
    with ao.AutogradGraph(optimize=optimize):
        with pytest.raises(ao.UnsupportedError, match=r"forward-mode .* use torch\.func\.jvp.*test_transforms\.py"):
            forward_ad.dual_level().__enter__()
        (w * 2).sum().backward()
    assert torch.equal(w.grad, torch.full_like(X, 2.0))
    with forward_ad.dual_level():
        y = forward_ad.make_dual(X, X) * 3
        assert torch.equal(forward_ad.unpack_dual(y).tangent, 3 * X)


@pytest.mark.parametrize("optimize", [False, True])
def test_a_graph_inside_a_forward_level_is_refused(optimize: bool) -> None:
    with forward_ad.dual_level(), pytest.raises(ao.UnsupportedError, match="forward-mode level"):
        ao.AutogradGraph(optimize=optimize).__enter__()
    with ao.AutogradGraph(optimize=optimize):
        pass


@pytest.mark.parametrize("transform", [func.vmap, func.grad, func.jacrev, func.jacfwd, func.hessian])
@pytest.mark.parametrize("optimize", [False, True])
def test_a_graph_inside_a_transform_is_refused(optimize: bool, transform: Any) -> None:
    def inner(x: Tensor) -> Tensor:
        with ao.AutogradGraph(optimize=optimize):
            return (x * x).sum()

    with pytest.raises(ao.UnsupportedError, match=r"open it outside"):
        transform(inner)(X)


@pytest.mark.parametrize("optimize", [False, True])
def test_scripted_modules(optimize: bool) -> None:
    torch.manual_seed(0)
    net = torch.jit.script(torch.nn.Sequential(torch.nn.Linear(3, 2), torch.nn.Tanh()).double())
    net(X).sum().backward()
    expected = [p.grad.clone() for p in net.parameters()]
    net.zero_grad()
    w = ao.tensor(X)
    with ao.AutogradGraph(optimize=optimize):
        net(w).sum().backward()
    assert all(torch.allclose(p.grad, g) for p, g in zip(net.parameters(), expected, strict=True))
    v = X.clone().requires_grad_()
    net(v).sum().backward()
    assert torch.allclose(w.grad, v.grad)
    net.zero_grad()
    handle = next(net.parameters()).register_hook(lambda g: g * 2)
    with ao.AutogradGraph(optimize=optimize):
        net(w).sum().backward()
    handle.remove()
    assert all(torch.allclose(p.grad, g * k) for p, g, k in zip(net.parameters(), expected, (2, 1), strict=True))


# Leaves that a transformed function closes over ---------------------------------------------
def pair() -> tuple[Tensor, Tensor]:
    return X.clone().requires_grad_(), X.exp().requires_grad_()


def doubling(w: Tensor, seen: list[Any]) -> None:
    w.register_hook(lambda g: (seen.append(g.clone()), g * 2)[1])


def hooked(w: Tensor, u: Tensor) -> Any:
    """A hook sees all that comes to its leaf, by way of the transform and beside it, once."""
    seen: list[Any] = []
    doubling(w, seen)
    a, b = func.vmap(lambda r: ((r * w).sin(), r @ w))(BATCH)
    (a.sum() * b.sum() + (w * 3).sum()).backward()
    return w.grad, seen


def hooked_twice(w: Tensor, u: Tensor) -> Any:
    seen: list[Any] = []
    doubling(w, seen)
    g, = torch.autograd.grad(func.vmap(lambda r: (r * w).sin() * w)(BATCH).sum(), w, create_graph=True)
    return g, torch.autograd.grad((g * g).sum(), w), seen


def hooked_inside(w: Tensor, u: Tensor, z: Tensor | None = None) -> Any:
    """A gradient asked for inside the transform calls the hook, and so does the one outside."""
    seen: list[Any] = []
    doubling(w, seen)

    def f(r: Tensor) -> Tensor:
        inner = w * u if z is None else w * u * z
        return r * torch.autograd.grad(inner.sin().sum(), w, create_graph=True)[0]
    rows = func.vmap(f)(BATCH)
    before = len(seen)
    rows.sum().backward()
    return w.grad, u.grad, seen, before


def several_hooked(w: Tensor, u: Tensor) -> Any:
    seen: list[Any] = []
    torch.autograd.graph.register_multi_grad_hook([w, u], lambda gs: seen.append([g is None for g in gs]))
    (func.vmap(lambda r: (r * w).sin() * u)(BATCH).sum() + w.sum()).backward()
    return w.grad, u.grad, seen


def hooked_after(w: Tensor, u: Tensor) -> Any:
    seen: list[Any] = []
    w.register_post_accumulate_grad_hook(lambda p: seen.append(p.grad.clone()))
    (func.vmap(lambda r: (r * w).sin() * u)(BATCH).sum() + w.sum()).backward()
    return w.grad, seen


def frozen(w: Tensor, u: Tensor) -> Any:
    y = func.vmap(lambda r: (r * w).sin() * u)(BATCH).sum()
    w.requires_grad_(False)
    g, = torch.autograd.grad(y, u, create_graph=True)
    y.backward(retain_graph=True)
    return g, torch.autograd.grad(g.sum(), u, allow_unused=True), w.grad, w.requires_grad


def of_its_own(w: Tensor, u: Tensor) -> Any:
    """A leaf that the function makes gets its gradient, too."""
    made: list[Tensor] = []

    def f(r: Tensor) -> Tensor:
        made.append(torch.full((3,), 2.0, dtype=X.dtype, requires_grad=True))
        return r * made[0] * w
    func.vmap(f)(BATCH).sum().backward()
    return made[0].grad, w.grad


def returned(w: Tensor, u: Tensor) -> Any:
    """A leaf among the results is the leaf."""
    _, _, aux = func.vjp(lambda r: (r * 2, w), X, has_aux=True)
    _, mapped = func.vmap(lambda r: (r, w), out_dims=(0, None))(BATCH)
    (mapped * mapped).sum().backward()
    return aux is w, mapped is w, w.grad


def of_late_views(w: Tensor, u: Tensor) -> Any:
    """A view made before its base came to require grad."""
    base = torch.zeros(3, dtype=X.dtype)
    view = base[:2]
    base.add_(w)
    (func.vmap(lambda r: r[:2] * view)(BATCH).sum()
     + func.grad(lambda t: (t[:2] * view).sin().sum())(u).sum()).backward()
    return w.grad, u.grad


def written_between(w: Tensor, u: Tensor) -> Any:
    z = w * 1
    with torch.no_grad():
        w.mul_(3)
    func.vmap(lambda r: (r * w).sin() * z)(BATCH).sum().backward()
    return w.grad


def with_history(w: Tensor, u: Tensor) -> Any:
    """A tensor that torch has computed outside leads on to the leaves of torch."""
    HISTORY[0].grad = None
    (func.vmap(lambda r: (r * HISTORY[1]).sin() * u)(BATCH).sum()).backward(retain_graph=True)
    return HISTORY[0].grad, u.grad


HISTORY = [X.clone().requires_grad_()]
HISTORY.append(HISTORY[0].exp())


class Seen(torch.overrides.TorchFunctionMode):
    def __init__(self) -> None:
        super().__init__()
        self.names: list[str] = []

    def __torch_function__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.names.append(getattr(function, "__name__", ""))
        return function(*args, **(kwargs or {}))


def in_a_mode(w: Tensor, u: Tensor) -> Any:
    """A mode of the user's sees what the function calls."""
    with Seen() as mode:
        rows = func.vmap(lambda r: (r * w).sin())(BATCH)
    rows.sum().backward()
    return w.grad, [name for name in mode.names if name in ("mul", "sin")]


@pytest.mark.parametrize("optimize", [False, True])
@pytest.mark.parametrize("program", [
    hooked, hooked_twice, hooked_inside, lambda w, u: hooked_inside(w, u, w * u), several_hooked, hooked_after, frozen,
    of_its_own, returned, of_late_views, written_between, with_history, in_a_mode,
])
def test_leaves_of_torch_stand_for_themselves(program: Any, optimize: bool) -> None:
    with ao.AutogradGraph(optimize=optimize):
        mine = torch.utils._pytree.tree_leaves(program(*pair()))
    expected = torch.utils._pytree.tree_leaves(program(*pair()))
    assert len(mine) == len(expected)
    for a, b in zip(mine, expected, strict=True):
        assert torch.allclose(a, b, 1e-12, 1e-12) if isinstance(b, Tensor) else a == b


TRANSFORMS: dict[str, Callable[[Callable[..., Any]], Callable[..., Any]]] = {
    "grad": torch.func.grad,
    "jacrev": torch.func.jacrev,
    "hessian": torch.func.hessian,
    "vjp": lambda f: lambda v: torch.func.vjp(f, v),
    "vmap": lambda f: lambda v: torch.vmap(lambda u: f(u[None]))(v),
    "jacobian": lambda f: lambda v: torch.autograd.functional.jacobian(f, v),
}


@pytest.mark.parametrize("optimize", [False, True])
@pytest.mark.parametrize("name", TRANSFORMS)
def test_tensor_of_no_level_kept_from_inside_has_its_gradient(name: str, optimize: bool) -> None:
    """Computed from closed-over tensors alone: a leaf, and a result of the graph, which something stands for inside."""
    def run() -> tuple[Tensor | None, ...]:
        x, w = torch.tensor([1.0, 2.0], requires_grad=True), torch.tensor([3.0, 4.0], requires_grad=True)
        h, kept = x * 3, list[Tensor]()

        def f(v: Tensor) -> Tensor:
            kept.append(h * w + x)
            return (v * v).sum()

        TRANSFORMS[name](f)(torch.ones(2))
        k = kept[0]
        (first,) = torch.autograd.grad((k * k).sum(), w, create_graph=True)
        (first.sum() + (k * h).sum()).backward()
        return first, x.grad, w.grad

    expected = run()
    with ao.AutogradGraph(optimize=optimize):
        found = run()
    for a, b in zip(found, expected, strict=True):
        torch.testing.assert_close(a, b)


@pytest.mark.parametrize("optimize", [False, True])
def test_a_write_inside_to_what_the_graph_has_computed_says_so(optimize: bool) -> None:
    x = torch.ones(2, requires_grad=True)
    with ao.AutogradGraph(optimize=optimize):
        y = x * 3
        with pytest.raises(ao.UnsupportedError, match=r"mul_ writes, inside .*, a tensor that the graph has computed"):
            torch.vmap(lambda t: (t * y.mul_(2)).sum())(torch.ones(3, 2))
        z = torch.vmap(lambda t: t * y.clone().mul_(2))(torch.ones(3, 2))
        z.sum().backward()
    assert x.grad is not None
    assert x.grad.tolist() == [18, 18]


@pytest.mark.parametrize("optimize", [False, True])
def test_what_a_transform_reads_without_derivative_is_not_held(optimize: bool) -> None:
    def beside(leaf: Tensor) -> Tensor:
        return torch.vmap(lambda row: torch.zeros_like(leaf) + row)(torch.ones(4, 3))

    with ao.AutogradGraph(optimize=optimize):
        leaf = (torch.ones(2, 3) * 2).requires_grad_()
        result = beside(leaf)
        seen = weakref.ref(leaf)
        del leaf
        assert seen() is None
        assert result.shape == (4, 2, 3)
