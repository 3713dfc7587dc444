"""Programs around regions: each is given a `wrap`, and run with the identity and with `ao.optimize`."""

from __future__ import annotations

import itertools
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import nn
from torch.nn import functional as F

Wrap = Callable[[Any], Any]
PROGRAMS: dict[str, Callable[[Wrap], Any]] = {}


def program(function: Callable[[Wrap], Any]) -> Callable[[Wrap], Any]:
    PROGRAMS[function.__name__] = function
    return function


def leaf(*shape: int) -> torch.Tensor:
    return torch.randn(*shape, dtype=torch.float64, requires_grad=True)


def mlp() -> nn.Module:
    return nn.Sequential(nn.Linear(3, 5), nn.Tanh(), nn.Linear(5, 2)).double()


def grads(*owners: Any) -> list[Any]:
    return [p.grad for o in owners for p in (o.parameters() if isinstance(o, nn.Module) else [o])]


@program
def one_backward(wrap: Wrap) -> Any:
    net = wrap(mlp())
    x = leaf(4, 3)
    y = net(x * 2)
    y.pow(2).sum().backward()
    return y, grads(net, x)


@program
def a_decorated_function(wrap: Wrap) -> Any:
    @wrap
    def f(a: torch.Tensor, *, b: torch.Tensor, n: int = 2) -> Any:
        return {"sum": a + b, "rest": [a * b, (a * b) ** n, 3]}

    a, b = leaf(3), leaf(3)
    out = f(a, b=b)
    (out["sum"].sum() + out["rest"][0].sum() + out["rest"][1].sum()).backward()
    return out, grads(a, b)


@program
def several_runs(wrap: Wrap) -> Any:
    net = wrap(mlp())
    x = leaf(4, 3)
    y = net(x)
    for _ in range(2):
        y.sum().backward(retain_graph=True)
    y.pow(2).sum().backward()
    return grads(net, x)


@program
def a_second_run_of_a_freed_graph(wrap: Wrap) -> Any:
    net = wrap(mlp())
    y = net(leaf(4, 3))
    y.sum().backward()
    y.sum().backward()


@program
def outputs_in_runs_of_their_own(wrap: Wrap) -> Any:
    f = wrap(lambda a, b: (a.exp() * a, b.sin() * b))
    a, b = leaf(3), leaf(3)
    p, q = f(a, b)
    p.sum().backward()
    first = grads(a, b)
    q.sum().backward()
    return first, grads(a, b)


@program
def an_unused_output(wrap: Wrap) -> Any:
    f = wrap(lambda a, b: (a.exp(), b.sin(), a * b))
    a, b = leaf(3), leaf(3)
    p, _, _ = f(a, b)
    p.sum().backward()
    return grads(a, b)


@program
def partial_gradients(wrap: Wrap) -> Any:
    net = wrap(mlp())
    x = leaf(4, 3)
    h = x * 2
    loss = net(h).sum()
    first = torch.autograd.grad(loss, [net[2].weight], retain_graph=True)
    second = torch.autograd.grad(loss, [h, net[0].bias], retain_graph=True)
    loss.backward(inputs=[net[0].weight])
    return first, second, grads(net, x)


@program
def an_unreached_input(wrap: Wrap) -> Any:
    f = wrap(lambda a, b: (a.exp(), b.sin()))
    a, b = leaf(3), leaf(3)
    return torch.autograd.grad(f(a, b)[0].sum(), [a, b], allow_unused=True)


@program
def an_unreached_input_not_allowed(wrap: Wrap) -> Any:
    f = wrap(lambda a, b: (a.exp(), b.sin()))
    a, b = leaf(3), leaf(3)
    return torch.autograd.grad(f(a, b)[0].sum(), [a, b])


@program
def second_derivatives(wrap: Wrap) -> Any:
    net = wrap(mlp())
    x = leaf(4, 3)
    y = net(x * 1.5)
    g, = torch.autograd.grad(y.pow(2).sum(), x, create_graph=True)
    penalty = (g.norm(dim=1) - 1).pow(2).mean()
    penalty.backward()
    return g, grads(net, x)


@program
def third_derivatives(wrap: Wrap) -> Any:
    f = wrap(lambda t: (t.sin() * t.exp()).sum())
    x = leaf(3)
    out = [f(x)]
    for _ in range(3):
        out.append(torch.autograd.grad(out[-1].sum(), x, create_graph=True)[0])
    return out


@program
def derivatives_in_the_cotangent(wrap: Wrap) -> Any:
    f = wrap(lambda t: t.sin() * t.exp())
    x, v = leaf(3), leaf(3)
    g, = torch.autograd.grad(f(x), x, v * 2, create_graph=True)
    return torch.autograd.grad(g.pow(2).sum(), [x, v])


@program
def hooks_on_outputs(wrap: Wrap) -> Any:
    net = wrap(mlp())
    x = leaf(4, 3)
    y = net(x)
    seen: list[Any] = []
    y.register_hook(lambda g: seen.append(g) or g * 2)
    y.retain_grad()
    y.sum().backward()
    return seen, y.grad, grads(net, x)


@program
def hooks_on_parameters(wrap: Wrap) -> Any:
    net = wrap(mlp())
    x = leaf(4, 3)
    seen: dict[str, list[Any]] = {"weight": [], "bias": [], "x": []}      # torch sets no order among leaves
    net[0].weight.register_hook(lambda g: seen["weight"].append(g) or g * 3)
    net[0].bias.register_post_accumulate_grad_hook(lambda p: seen["bias"].append(p.grad.clone()))
    x.register_hook(lambda g: seen["x"].append(g) or g + 1)
    for _ in range(2):
        net(x).sum().backward()
    return seen, grads(net, x)


@program
def hooks_on_grad_fn(wrap: Wrap) -> Any:
    f = wrap(lambda t: t.sin())
    x = leaf(3)
    y = f(x * 2)
    y.grad_fn.register_prehook(lambda gs: (gs[0] * 2,))
    y.sum().backward()
    return grads(x)


@program
def hooks_inside(wrap: Wrap) -> Any:
    seen: list[Any] = []

    def f(t: torch.Tensor) -> torch.Tensor:
        h = t.sin()
        h.register_hook(lambda g: seen.append(g.tolist()) or g * 2)
        return h * h

    x = leaf(3)
    wrap(f)(x).sum().backward()
    return seen, grads(x)


@program
def hooks_of_modules(wrap: Wrap) -> Any:
    net = mlp()
    seen: list[Any] = []
    net.register_forward_pre_hook(lambda m, args: (args[0] * 2,))
    net.register_forward_hook(lambda m, args, out: out * 3)
    net.register_full_backward_hook(lambda m, gi, go: seen.append((gi[0], go[0])))
    net[0].register_full_backward_hook(lambda m, gi, go: seen.append((gi[0], go[0])))
    net = wrap(net)
    x = leaf(4, 3)
    y = net(x * 1)
    y.sum().backward()
    return y, seen, grads(net, x)


@program
def no_grad_and_inference(wrap: Wrap) -> Any:
    net = wrap(mlp())
    x = leaf(4, 3)
    with torch.no_grad():
        a = net(x)
    with torch.inference_mode():
        b = net(x)
    net.eval()
    return a, a.requires_grad, b.is_inference(), net(x)


@program
def grad_mode_inside(wrap: Wrap) -> Any:
    def f(t: torch.Tensor) -> Any:
        with torch.no_grad():
            scale = t.exp()
        with torch.enable_grad():
            return t * scale, scale, t.detach() * 2

    x = leaf(3)
    a, b, c = wrap(f)(x)
    a.sum().backward()
    return a, b, c, b.requires_grad, c.requires_grad, grads(x)


@program
def a_gradient_inside(wrap: Wrap) -> Any:
    def force(t: torch.Tensor) -> Any:
        energy = (t ** 4).sum()
        return torch.autograd.grad(energy, t, create_graph=True)[0]

    x = leaf(3)
    g = wrap(force)(x)
    g.pow(2).sum().backward()
    return g, grads(x)


@program
def a_gradient_inside_of_what_torch_has_computed(wrap: Wrap) -> Any:
    def force(t: torch.Tensor) -> Any:
        return torch.autograd.grad((t ** 4).sum(), t, create_graph=True)[0]

    x = leaf(3)
    g = wrap(force)(x * 2)
    g.pow(2).sum().backward()
    return g, grads(x)


@program
def batch_norm(wrap: Wrap) -> Any:
    net = wrap(nn.Sequential(nn.Conv1d(2, 3, 3), nn.BatchNorm1d(3), nn.ReLU(inplace=True)).double())
    x = leaf(4, 2, 6)
    out = [net(x) for _ in range(2)]
    sum(o.pow(2).sum() for o in out).backward()
    net.eval()
    return out, net(x), dict(net.state_dict()), grads(net, x)


@program
def random_numbers(wrap: Wrap) -> Any:
    net = wrap(nn.Sequential(nn.Linear(3, 5), nn.Dropout(0.5), nn.Linear(5, 2)).double())
    x = leaf(4, 3)
    a, b = net(x), net(x)
    (a + torch.rand_like(a) * b).sum().backward()
    return a, b, torch.rand(2), grads(net, x)


@program
def autocast(wrap: Wrap) -> Any:
    net = wrap(mlp().float())
    x = torch.randn(4, 3, requires_grad=True)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        y = net(x)
    y.float().sum().backward()
    return y, grads(net, x)


@program
def a_scaled_loss(wrap: Wrap) -> Any:
    net = wrap(mlp().float())
    optimizer = torch.optim.SGD(net.parameters(), 0.1)
    scaler = torch.amp.GradScaler("cpu", init_scale=1024.0)
    for _ in range(3):
        optimizer.zero_grad()
        loss = net(torch.randn(4, 3)).pow(2).sum()
        scaler.scale(loss).backward()
        scaler.unscale_(optimizer)
        nn.utils.clip_grad_norm_(net.parameters(), 1.0)
        scaler.step(optimizer)
        scaler.update()
    return list(net.parameters())


@program
def training(wrap: Wrap) -> Any:
    net = wrap(mlp())
    optimizer = torch.optim.Adam(net.parameters(), 0.01)
    x, y = torch.randn(8, 3).double(), torch.randn(8, 2).double()
    for _ in range(5):
        optimizer.zero_grad()
        F.mse_loss(net(x), y).backward()
        optimizer.step()
    return list(net.parameters())


@program
def nested(wrap: Wrap) -> Any:
    inner = wrap(mlp())
    outer = wrap(lambda t: inner(t).sum() * inner(t).prod())
    x = leaf(4, 3)
    y = outer(x)
    y.backward()
    return y, grads(inner, x)


@program
def one_after_another(wrap: Wrap) -> Any:
    first, second = wrap(mlp()), wrap(nn.Linear(2, 3).double())
    x = leaf(4, 3)
    y = first(second(first(x).relu()))
    y.pow(2).sum().backward()
    return y, grads(first, second, x)


@program
def shared_parameters(wrap: Wrap) -> Any:
    net = mlp()
    region = wrap(net)
    x = leaf(4, 3)
    (region(x).sum() * net[2](net[0](x)).sum()).backward()
    return grads(net, x)


@program
def an_input_returned(wrap: Wrap) -> Any:
    f = wrap(lambda t, u: (t, u, t * u))
    x, c = leaf(3), torch.ones(3).double()
    a, b, y = f(x, c)
    y.sum().backward()
    return a is x, b is c, grads(x)


@program
def one_result_twice(wrap: Wrap) -> Any:
    def f(t: torch.Tensor) -> Any:
        y = t.sin()
        return y, [y, {"again": y}]

    x = leaf(3)
    a, (b, c) = wrap(f)(x)
    (a * b * c["again"]).sum().backward()
    return a is b, b is c["again"], grads(x)


@program
def in_place_on_a_result(wrap: Wrap) -> Any:
    f = wrap(lambda t: t * t)
    x = leaf(3)
    y = f(x)
    y.mul_(3).add_(1)
    y.sum().backward()
    return y, grads(x)


@program
def in_place_on_a_result_that_is_saved(wrap: Wrap) -> Any:
    f = wrap(lambda t: t.exp())
    x = leaf(3)
    y = f(x)
    y.mul_(3)
    y.sum().backward()


@program
def in_place_on_a_reshaped_result(wrap: Wrap) -> Any:
    f = wrap(lambda t: (t * t).view(3, 2).t())
    x = leaf(6)
    y = f(x)
    y.mul_(3)
    y.sum().backward()
    return y, grads(x)


@program
def in_place_on_an_argument(wrap: Wrap) -> Any:
    def f(t: torch.Tensor, u: torch.Tensor) -> None:
        t.mul_(u)

    x, u = leaf(3), leaf(3)
    h = x * 2
    wrap(f)(h, u)
    h.sin().sum().backward()
    return h, grads(x, u)


@program
def in_place_on_a_constant(wrap: Wrap) -> Any:
    def f(t: torch.Tensor, u: torch.Tensor) -> torch.Tensor:
        t[1:].copy_(u)
        return t.sum()

    u, c = leaf(2), torch.zeros(3).double()
    y = wrap(f)(c, u)
    (y + c.pow(2).sum()).backward()
    return c, c.requires_grad, grads(u)


@program
def in_place_on_a_leaf(wrap: Wrap) -> Any:
    x = leaf(3)
    wrap(lambda t: t.mul_(2))(x)


@program
def a_parameter_written_between(wrap: Wrap) -> Any:
    net = wrap(nn.Linear(3, 2).double())
    x = leaf(4, 3)
    y = net(x)
    with torch.no_grad():
        net.weight.mul_(2)
    y.sum().backward()


@program
def an_exception_in_the_middle(wrap: Wrap) -> Any:
    net = mlp()

    def f(t: torch.Tensor, fail: bool) -> torch.Tensor:
        y = net[0](t)
        if fail:
            raise KeyError("in the middle")
        return net[2](y.tanh())

    f = wrap(f)
    x = leaf(4, 3)
    out: list[Any] = []
    for fail in (True, False, True, False):
        try:
            out.append(f(x, fail))
        except KeyError as error:
            out.append(str(error))
    (out[1] * out[3]).sum().backward()
    return out, grads(net, x)


@program
def an_exception_in_a_hook(wrap: Wrap) -> Any:
    net = wrap(mlp())
    x = leaf(4, 3)

    def fail(g: torch.Tensor) -> None:
        raise KeyError("in a hook")

    handle = net[0].weight.register_hook(fail)
    y = net(x)
    try:
        y.sum().backward(retain_graph=True)
    except KeyError:
        handle.remove()
    net.zero_grad()
    x.grad = None
    y.sum().backward()
    return grads(net, x)


@program
def an_exception_in_the_backward(wrap: Wrap) -> Any:
    class Failing(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, t: torch.Tensor) -> torch.Tensor:
            return t * 2

        @staticmethod
        def backward(ctx: Any, g: torch.Tensor) -> Any:
            raise KeyError("in backward")

    x = leaf(3)
    y = wrap(lambda t: Failing.apply(t.sin()))(x)
    y.sum().backward()


@program
def an_own_function_inside(wrap: Wrap) -> Any:
    class Twice(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, t: torch.Tensor) -> torch.Tensor:
            ctx.save_for_backward(t)
            return t * 2

        @staticmethod
        def backward(ctx: Any, g: torch.Tensor) -> Any:
            t, = ctx.saved_tensors
            return g * 3 * t

    x = leaf(3)
    y = wrap(lambda t: Twice.apply(t.sin()).exp())(x)
    g, = torch.autograd.grad(y.sum(), x, create_graph=True)
    g.sum().backward()
    return y, g, grads(x)


def checkpointed(wrap: Wrap, reentrant: bool, inside: bool) -> Any:
    from torch.utils.checkpoint import checkpoint
    net = mlp()
    if inside:
        region = wrap(lambda t: checkpoint(net, t * 2, use_reentrant=reentrant).sin())
    else:
        part = wrap(net)
        region = lambda t: checkpoint(lambda u: part(u * 2).sin(), t, use_reentrant=reentrant)
    x = leaf(4, 3)
    y = region(x)
    y.pow(2).sum().backward()
    return y, grads(net, x)


for _reentrant in (False, True):
    for _inside in (False, True):
        _name = f"{'reentrant_' if _reentrant else ''}checkpoint_{'inside' if _inside else 'around'}"
        PROGRAMS[_name] = lambda wrap, r=_reentrant, i=_inside: checkpointed(wrap, r, i)  # type: ignore[misc]


@program
def saved_on_the_cpu(wrap: Wrap) -> Any:
    net = wrap(mlp())
    x = leaf(4, 3)
    with torch.autograd.graph.save_on_cpu():
        y = net(x)
    y.sum().backward()
    return grads(net, x)


@program
def a_transform_around(wrap: Wrap) -> Any:
    f = wrap(lambda t: (t.sin() * t).sum())
    x = torch.randn(3).double()
    return torch.func.grad(f)(x), torch.func.vmap(f)(x.expand(2, 3)), torch.func.jvp(f, (x,), (x,))


@program
def a_transform_inside(wrap: Wrap) -> Any:
    f = wrap(lambda t: torch.func.grad(lambda u: (u.sin() * u).sum())(t) * t)
    x = leaf(3)
    y = f(x)
    y.sum().backward()
    return y, grads(x)


@program
def an_lstm(wrap: Wrap) -> Any:
    net = wrap(nn.LSTM(3, 4, batch_first=True).double())
    x = leaf(2, 5, 3)
    state = None
    for t in range(2):
        y, state = net(x * (t + 1), state)
    y.sum().backward()
    return y, state, grads(net, x)


@program
def a_transformer_layer(wrap: Wrap) -> Any:
    net = wrap(nn.TransformerEncoderLayer(4, 2, 8, dropout=0.1, batch_first=True).double())
    x = leaf(2, 3, 4)
    y = net(x)
    y.pow(2).sum().backward()
    return y, grads(net, x)


@program
def complex_numbers(wrap: Wrap) -> Any:
    f = wrap(lambda t: torch.fft.fft(t).abs() + torch.view_as_real(t.to(torch.complex128) * 1j).sum(-1))
    x = leaf(4)
    y = f(x)
    y.sum().backward()
    return y, grads(x)


@program
def views_as_results(wrap: Wrap) -> Any:
    f = wrap(lambda t: (t[1:], t.view(2, 3), (t * 2)[::2], t.exp().chunk(2)))
    x = leaf(6)
    a, b, c, (d, e) = f(x)
    (a.sum() * b.prod() + c.sum() * d.sum() + e.sum()).backward()
    return a, b, c, d, e, grads(x)


@program
def a_distribution_as_result(wrap: Wrap) -> Any:
    f = wrap(lambda t: torch.distributions.Normal(t.sin(), t.exp()))
    x = leaf(3)
    law = f(x)
    y = -law.log_prob(torch.ones(3).double()).sum() + law.rsample().sum()
    y.backward()
    return y, grads(x)


@program
def gradient_accumulation_and_freezing(wrap: Wrap) -> Any:
    net = wrap(mlp())
    net[0].weight.requires_grad_(False)
    for _ in range(3):
        net(torch.randn(4, 3).double()).sum().backward()
    net[0].weight.requires_grad_(True)
    net(torch.randn(4, 3).double()).sum().backward()
    return grads(net)


@program
def no_gradient_at_all(wrap: Wrap) -> Any:
    f = wrap(lambda t: (t * 2, t.sum(), t > 0))
    out = f(torch.randn(3))
    return out, [t.requires_grad for t in out], [t.grad_fn for t in out]


@program
def a_backward_inside(wrap: Wrap) -> Any:
    net = mlp()

    @wrap
    def step(t: torch.Tensor) -> torch.Tensor:
        loss = net(t).pow(2).sum()
        loss.backward()
        return loss.detach()

    out = [step(torch.randn(4, 3).double()) for _ in range(2)]
    return out, [t.requires_grad for t in out], grads(net)


@program
def multi_grad_hooks(wrap: Wrap) -> Any:
    net = wrap(mlp())
    x = leaf(4, 3)
    seen: list[Any] = []
    handle = torch.autograd.graph.register_multi_grad_hook(list(net.parameters()), lambda gs: seen.append(len(gs)))
    net(x).sum().backward()
    handle.remove()
    return seen, grads(net, x)


@program
def functional_jacobians(wrap: Wrap) -> Any:
    f = wrap(lambda t: t.sin() * t.sum())
    x = torch.randn(3).double()
    return torch.autograd.functional.jacobian(f, x), torch.autograd.functional.hessian(lambda t: f(t).sum(), x)


@program
def vectorized_jacobian(wrap: Wrap) -> Any:
    f = wrap(lambda t: t.sin() * t.sum())
    x = leaf(3)
    y = f(x)
    return torch.autograd.grad(y, x, torch.eye(3).double(), is_grads_batched=True)


def twice_differentiated(wrap: Wrap, ask: Callable[..., Any]) -> Any:
    """What `ask` finds for a batch of cotangents that require grad, and derivatives of it, plain and batched again."""
    f = wrap(lambda t, u: ((t.sin() * u).cumsum(0), (t * u).sum()))
    x, w = leaf(3), leaf(3)
    y, z = f(x * 2, w)
    v, rows = leaf(2, 3), torch.eye(3).double()
    first = ask([y, z], [x, w], [v, torch.ones(2).double()])
    second = torch.autograd.grad(first[0].pow(2).sum(), [x, w, v], create_graph=True)
    third = torch.autograd.grad(first[1][0], [x, w], rows, is_grads_batched=True, create_graph=True, allow_unused=True)
    sum(t.sum() for t in (*second, *third) if t is not None and t.requires_grad).backward()
    return first, second, third, grads(x, w, v)


@program
def a_recorded_vectorized_jacobian(wrap: Wrap) -> Any:
    return twice_differentiated(wrap, lambda y, x, v: torch.autograd.grad(
        y, x, v, is_grads_batched=True, create_graph=True))


@program
def recorded_functional_jacobians(wrap: Wrap) -> Any:
    f = wrap(lambda t: t.exp() * t.sum())
    found = []
    for kind, vectorize in itertools.product(("jacobian", "hessian"), (False, True)):
        x = leaf(3)
        function = f if kind == "jacobian" else lambda t: f(t).sum()
        made = getattr(torch.autograd.functional, kind)(function, x, create_graph=True, vectorize=vectorize)
        made.pow(2).sum().backward()
        found.append((made, x.grad))
    return found


def products_with_jacobian(wrap: Wrap, create_graph: bool) -> Any:
    """The product of one cotangent with a region's Jacobian, for transforms."""
    x = leaf(3)
    y = wrap(lambda t: t.sin() * t.sum())(x * 2)
    return lambda v: torch.autograd.grad(y, x, v, retain_graph=True, create_graph=create_graph)[0]


@program
def recorded_vmapped_gradients(wrap: Wrap) -> Any:
    one = products_with_jacobian(wrap, True)
    rows = torch.eye(3).double()
    return torch.func.vmap(one)(rows), torch.func.vmap(torch.func.vmap(one))(torch.stack([rows, rows * 2]))


def derivatives(y: torch.Tensor, inputs: list[torch.Tensor]) -> Iterator[Any]:
    """Three orders of them, each of the squares of what was found before."""
    found = [y]
    for _ in range(3):
        asked = sum(g.pow(2).sum() for g in found if g is not None)
        found = list(torch.autograd.grad(asked, inputs, create_graph=True, allow_unused=True))
        yield found


ARGUMENTS: dict[str, Callable[[torch.Tensor, torch.Tensor], torch.Tensor]] = {
    "exp": lambda t, u: t.exp() + u, "tanh": lambda t, u: t.tanh() * u, "sigmoid": lambda t, u: (t.sigmoid() * u).sum(),
    "softmax": lambda t, u: t.softmax(0).exp(), "sum": lambda t, u: (t + u).sum().exp(), "sin": lambda t, u: t.sin(),
    "product": lambda t, u: t * u.exp(), "view": lambda t, u: t.view(3, 1).exp() * u,
    "written": lambda t, u: t.exp_() * u, "written after it was read": lambda t, u: t.exp() + t.mul_(u).sin_() * u,
}


@program
def derivatives_past_arguments_that_are_gone(wrap: Wrap) -> Any:
    x, w = leaf(3), leaf(3)
    return [list(derivatives(wrap(f)(x * 2, w), [x, w])) for f in ARGUMENTS.values()]


@program
def derivatives_past_arguments_that_are_held(wrap: Wrap) -> Any:
    x, w = leaf(3), leaf(3)
    found = []
    for f in ARGUMENTS.values():
        argument = x * 2
        found.append(list(derivatives(wrap(f)(argument, w) * argument, [x, w])))
    return found


@program
def derivatives_past_arguments_that_are_written_later(wrap: Wrap) -> Any:
    x, w = leaf(3), leaf(3)
    found = []
    for f in (torch.exp, torch.tanh, lambda t: t.sum().exp()):
        argument = x + 1
        y = wrap(f)(argument)
        argument.mul_(w)
        found.append(list(derivatives(y * argument, [x, w])))
    return found


@program
def derivatives_with_respect_to_arguments(wrap: Wrap) -> Any:
    x, w = leaf(3), leaf(3)
    found = []
    for name, f in ARGUMENTS.items():
        if "written" not in name:
            argument = x * 2
            argument.retain_grad()
            argument.register_hook(lambda g: g * 2)
            found.append(list(derivatives(wrap(f)(argument, w), [argument])))
            sum(g.sum() for g in found[-1][0]).backward()
            found[-1].append([argument.grad])
    return found, grads(x, w)


@program
def hooks_of_what_a_derivative_does_not_reach(wrap: Wrap) -> Any:
    """A linear function, whose second derivative comes to some of its arguments only; and a branch that is dropped."""
    seen: list[Any] = []
    x, y, w, b = leaf(2, 3), leaf(2, 3), leaf(3, 3), leaf(3)
    left = x.exp()
    for name, t in {"x": x, "w": w, "b": b, "left": left}.items():
        t.register_hook(lambda g, name=name: seen.append((name, g is None)))
    for name, t in {"x": x, "w": w, "b": b}.items():
        t.register_post_accumulate_grad_hook(lambda t, name=name: seen.append(f"{name} accumulated"))

    def f(t: torch.Tensor) -> torch.Tensor:
        (t * b).exp()
        return F.linear(t, w)
    out = wrap(f)(left)
    g, = torch.autograd.grad(out.sum(), left, create_graph=True)
    (g * y).pow(2).sum().backward()
    return sorted(map(str, seen)), grads(x, y, w, b)


@program
def a_derivative_inside_with_respect_to_one_of_several(wrap: Wrap) -> Any:
    def f(t: torch.Tensor, u: torch.Tensor) -> torch.Tensor:
        return torch.autograd.grad((t * u).sin().sum(), t, create_graph=True)[0]
    x, w = leaf(3), leaf(3)
    one = x * 2
    for arguments in ((x * 2, w * 3), (x, w * 3), (x, w), (x.sin(), x * 2), (one.sin(), one), (one, one)):
        wrap(f)(*arguments).pow(2).sum().backward()
    return grads(x, w)


TRANSFORMS: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "vmap": lambda t: torch.func.vmap(lambda row: row * row.sum())(t),
    "grad": lambda t: torch.func.grad(lambda z: (z.sin() * z).sum())(t),
    "jvp": lambda t: torch.func.jvp(torch.sin, (t,), (t * 2,))[1],
    "vjp": lambda t: torch.func.vjp(torch.tanh, t)[1](t * 2)[0],
    "jacrev": lambda t: torch.func.jacrev(torch.exp)(t).sum((-1, -2)),
    "jacfwd": lambda t: torch.func.jacfwd(torch.exp)(t).sum((-1, -2)),
    "hessian": lambda t: torch.func.hessian(lambda z: z.exp().sum())(t).sum((-1, -2)),
}


@program
def transforms_of_arguments(wrap: Wrap) -> Any:
    """What comes to an argument that torch has computed comes to it, its hooks and its history."""
    found: list[Any] = []
    for f in TRANSFORMS.values():
        x = leaf(3, 2)
        argument = x.sin()
        argument.retain_grad()
        argument.register_hook(lambda g: g * 2)
        y = wrap(f)(argument)
        g, = torch.autograd.grad(y.sum(), argument, create_graph=True)
        found.append((g, torch.autograd.grad(g.pow(2).sum(), [argument, x], retain_graph=True)))
        y.pow(2).sum().backward(retain_graph=True)
        (y + argument).sum().backward()
        found.append((argument.grad, x.grad))
    return found


@program
def gradients_that_are_one_cotangent(wrap: Wrap) -> Any:
    """Each `.grad` is memory of its own, whichever leaf the function used first."""
    def dropped(t: torch.Tensor, u: torch.Tensor) -> torch.Tensor:
        t * 2
        return t + u.view(9).view(3, 3)
    found = []
    for f in (dropped, lambda t, u: dropped(u, t), lambda t, u: t + u, lambda t, u: t + u.unsqueeze(0).squeeze(0)):
        x, w = leaf(3, 3), leaf(3, 3)
        y = wrap(f)(x, w)
        for _ in range(3):
            y.pow(2).sum().backward(retain_graph=True)
        found.append(grads(x, w))
    return found


@program
def a_vmapped_gradient(wrap: Wrap) -> Any:
    return torch.func.vmap(products_with_jacobian(wrap, False))(torch.eye(3).double())


@program
def a_penalty_without_the_first_result(wrap: Wrap) -> Any:
    net = wrap(mlp())
    x = leaf(4, 3)
    y = net(x)
    for _ in range(2):
        g, = torch.autograd.grad(y.sum(), x, create_graph=True)
        g.pow(2).sum().backward()
        y = net(x)
    return grads(net, x)


@program
def a_second_run_of_a_freed_derivative(wrap: Wrap) -> Any:
    net = wrap(mlp())
    x = leaf(4, 3)
    g, = torch.autograd.grad(net(x).sum(), x, create_graph=True)
    g.pow(2).sum().backward()
    g.pow(2).sum().backward()


@program
def written_and_returned(wrap: Wrap) -> Any:
    def f(t: torch.Tensor, u: torch.Tensor) -> Any:
        t.mul_(u)
        return t, t * 2

    x, u = leaf(3), leaf(3)
    h = x * 2
    a, b = wrap(f)(h, u)
    (a * b).sum().backward()
    return a is h, b, grads(x, u)


@program
def written_views_of_an_argument(wrap: Wrap) -> Any:
    def f(t: torch.Tensor, u: torch.Tensor) -> Any:
        t[1:].mul_(u)
        return t.exp()

    x, u = leaf(3), leaf(2)
    h = x * 2
    y = wrap(f)(h, u)
    (y.sum() + h.sum()).backward()
    return h, y, grads(x, u)


class Balanced(nn.Module):
    """A layer that keeps a loss of its own beside what it returns."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(3, 4)
        self.gate = nn.Linear(3, 4)
        self.extra: Any = None

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        weights = self.gate(x).softmax(-1)
        self.extra = weights.mean(0).pow(2).sum()
        return self.linear(x) * weights


@program
def a_loss_kept_on_the_module(wrap: Wrap) -> Any:
    net, x = wrap(Balanced().double()), leaf(4, 3)
    out = []
    for _ in range(2):
        y = net(x)
        (y.sum() + net.extra).backward()
        out.append((net.extra, grads(net, x)))
    return out


@program
def a_kept_loss_alone(wrap: Wrap) -> Any:
    net, x = wrap(Balanced().double()), leaf(4, 3)
    net(x)
    net.extra.backward()
    return grads(net, x)


@program
def a_kept_loss_in_a_run_of_its_own(wrap: Wrap) -> Any:
    net, x = wrap(Balanced().double()), leaf(4, 3)
    y = net(x)
    y.sum().backward(retain_graph=True)
    first = grads(net, x)
    net.extra.backward()
    return first, grads(net, x)


@program
def features_kept_by_a_hook(wrap: Wrap) -> Any:
    inner, kept = mlp(), []
    inner[0].register_forward_hook(lambda module, args, result: kept.append(result))
    inner[1].register_forward_hook(lambda module, args, result: kept.append(result))
    net, x = wrap(inner), leaf(4, 3)
    y = net(x)
    (y.sum() + sum((h * h).sum() for h in kept)).backward()
    return [h.requires_grad for h in kept], kept, grads(inner, x)


@program
def a_result_that_is_kept_as_well(wrap: Wrap) -> Any:
    kept: list[Any] = []

    def f(t: torch.Tensor) -> torch.Tensor:
        kept.append(t.sin())
        return kept[0]

    x = leaf(3)
    y = wrap(f)(x * 2)
    (y.sum() + kept[0].exp().sum()).backward()
    return y is kept[0], y, grads(x)


@program
def kept_results_of_several_shapes(wrap: Wrap) -> Any:
    kept: dict[str, Any] = {}

    def f(t: torch.Tensor, store: dict[str, Any]) -> Any:
        h = t.sin()
        store["view"], store["parts"] = h[1:], h.exp().chunk(2)
        store["constant"] = h.detach() * 2
        return h.cos(), [h.tan()]

    x = leaf(4)
    a, (b,) = wrap(f)(x, kept)
    (a.sum() + b.sum() + kept["view"].pow(2).sum() + (kept["parts"][1] * kept["constant"][2:]).sum()).backward()
    return a, b, kept["view"], kept["parts"], grads(x)


@program
def a_state_kept_from_call_to_call(wrap: Wrap) -> Any:
    cell = nn.GRUCell(3, 4).double()
    state: list[torch.Tensor] = [torch.zeros(2, 4).double()]

    def step(x: torch.Tensor) -> torch.Tensor:
        state[0] = cell(x, state[0])
        return state[0].sum()

    f, x = wrap(step), leaf(2, 3)
    sum((f(x) for _ in range(3)), torch.zeros(()).double()).backward()
    return state[0], grads(cell, x)


@program
def a_kept_tensor_written_afterwards(wrap: Wrap) -> Any:
    net, x = wrap(Balanced().double()), leaf(4, 3)
    y = net(x)
    net.extra.mul_(2)
    (y.sum() + net.extra).backward()
    return grads(net, x)


@program
def a_hook_on_a_kept_tensor(wrap: Wrap) -> Any:
    seen: list[Any] = []

    def f(t: torch.Tensor) -> torch.Tensor:
        h = t.sin()
        h.register_hook(lambda g: seen.append(("in", g)))
        h.retain_grad()
        kept.append(h)
        return h * 2

    kept: list[Any] = []
    x = leaf(3)
    y = wrap(f)(x)
    kept[0].register_hook(lambda g: seen.append(("out", g)))
    (y.sum() + kept[0].pow(2).sum()).backward()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")             # torch does not know that the gradient was asked for
        return [(k, g) for k, g in seen if k == "in"], kept[0].grad, grads(x)


@program
def second_derivatives_of_a_kept_tensor(wrap: Wrap) -> Any:
    net, x = wrap(Balanced().double()), leaf(4, 3)
    net(x)
    g, = torch.autograd.grad(net.extra, x, create_graph=True)
    g.pow(2).sum().backward()
    return g, grads(net, x)


@program
def a_kept_view_of_a_parameter(wrap: Wrap) -> Any:
    weight, kept = leaf(1, 3), []

    def f(t: torch.Tensor) -> torch.Tensor:
        kept.append(weight.expand(4, 3))
        kept.append(t.exp())
        return kept[0] * kept[1]

    x = leaf(4, 3)
    y = wrap(f)(x)
    (y.sum() + kept[1].sum()).backward()
    return y, kept[1], grads(weight, x)
