"""Corners of torch.autograd's behaviour: small programs that were written to find differences."""

from __future__ import annotations

import gc
import threading
import warnings
import weakref
from typing import Any

import torch
from torch.autograd import Function, grad
from torch.autograd.graph import saved_tensors_hooks
from torch.utils.checkpoint import checkpoint, checkpoint_sequential, set_checkpoint_early_stop

from tests.engine.behaviour import caught, group, messages

Tensor = torch.Tensor
runs = group("corners: backward and grad")
hooks = group("corners: hooks")
saved = group("corners: saved tensors")
checkpoints = group("corners: checkpoint")
anomalies = group("corners: anomaly mode and introspection")


# ----- backward and grad -----
@runs("")
def inputs_as_a_dict(new):
    """grad with a dict of inputs returns a dict."""
    x, y = new(1.0, 2.0), new(3.0, 4.0)
    return grad((x * y).sum(), {"a": x, "b": y})


@runs("")
def only_inputs_is_deprecated(new):
    """only_inputs=False warns."""
    x = new(1.0, 2.0)
    return messages(lambda: grad((x * x).sum(), x, only_inputs=False))


@runs("")
def the_same_input_twice(new):
    """One input named twice, in grad and in backward(inputs=)."""
    x = new(1.0, 2.0)
    a, b = grad((x * x).sum(), [x, x])
    y = x * 3
    (y * y).sum().backward(inputs=[x, x])
    (x * 2).sum().backward(inputs=[x, x, x])
    return a, b, x.grad


@runs("")
def a_root_as_its_own_input(new):
    """The gradient of a root with respect to itself, and of a leaf root."""
    x = new.scalar(2.0)
    y = x * x
    first = grad(y, [y, x], retain_graph=True)
    x.backward()
    (y * 1).backward(inputs=[y, x])
    return first, grad(x, x), x.grad, y.grad


@runs("")
def cotangents_of_other_types(new):
    """A cotangent of another precision; an expanded and a transposed one; none is written."""
    x = new([[1.0, 2.0], [3.0, 4.0]])
    narrow, wide = torch.ones(2, 2), torch.ones(1, dtype=torch.float64).expand(2, 2)
    turned = torch.tensor([[1.0, 2.0], [3.0, 4.0]], dtype=torch.float64).t()
    y = x * 2
    out = [grad(y, x, g, retain_graph=True)[0] for g in (narrow, wide, turned)]
    (y + x).backward(turned)
    x.grad.add_(1)
    return out, x.grad, narrow, wide, turned, x.grad.stride()


@runs("")
def an_integer_root(new):
    """Integer and boolean roots, and roots without a graph."""
    x = new(1.0, 2.0)
    return [caught(lambda t=t: t.backward(torch.ones_like(t)), 40)
            for t in (x.long(), x > 0, x.detach(), (x * 2).argmax(), (x * 2).round().detach())]


@runs("")
def none_among_the_cotangents(new):
    """None beside a tensor, and a list of the wrong length."""
    x = new(1.0, 2.0)
    y, z = x.exp(), (x * x).sum()
    first = grad([y, z], x, [torch.ones(2).double(), None], retain_graph=True)
    return (first, caught(lambda: grad([y, z], x, [None, None], retain_graph=True), 40),
            caught(lambda: grad([y, z], x, [torch.ones(2).double()], retain_graph=True), 20),
            caught(lambda: torch.autograd.backward([z], [None, None]), 20))


@runs("")
def materialized_zeros(new):
    """Zeros for unused inputs: shape, type, layout and whether they require grad."""
    x, y = new(1.0, 2.0), new([[1.0, 2.0], [3.0, 4.0]], dtype=torch.float32)
    first = grad((x * x).sum(), [x, y], materialize_grads=True, retain_graph=True)
    second = grad((x * x).sum(), [x, y], materialize_grads=True, create_graph=True)
    return first, second, [g.requires_grad for g in (*first, *second)]


@runs("")
def a_grad_of_the_users(new):
    """Gradients assigned by the user: shared with another tensor, expanded, or not contiguous."""
    x = new([[1.0, 2.0], [3.0, 4.0]])
    mine = torch.zeros(2, 2, dtype=torch.float64).t()
    x.grad = mine
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")                      # torch warns of the layout, once
        (x * x).sum().backward()
    y = new(1.0, 2.0)
    y.grad = torch.zeros(1, dtype=torch.float64).expand(2)
    expanded = caught(lambda: (y * y).sum().backward(), 30)
    return x.grad is mine, mine, x.grad.stride(), expanded, y.grad


@runs("")
def identity_of_grad(new):
    """.grad stays the same object, except with create_graph."""
    x = new(1.0, 2.0)
    (x * x).sum().backward()
    first = x.grad
    (x * x).sum().backward()
    same = x.grad is first
    version = first._version
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        (x * x).sum().backward(create_graph=True)
    return same, version > 0, x.grad is first, x.grad.requires_grad, first, x.grad.detach()


@runs("")
def one_cotangent_for_two_leaves(new):
    """Two leaves of one sum do not share a buffer."""
    x, y = new(1.0, 2.0), new(3.0, 4.0)
    (x + y).sum().backward()
    x.grad.mul_(5)
    a, b = new(1.0, 2.0), new(3.0, 4.0)
    g = torch.ones(2, dtype=torch.float64)
    (a + b).backward(g)
    a.grad.mul_(7)
    return x.grad, y.grad, a.grad, b.grad, g


@runs("")
def layout_of_grad(new):
    """Strides of .grad for a transposed and for an expanded leaf."""
    x = new.wrap(torch.arange(6.0, dtype=torch.float64).reshape(2, 3).t())
    y = torch.zeros(3, dtype=torch.float64).expand(2, 3).requires_grad_()
    (x * 2).sum().backward()
    (y * torch.arange(6.0).reshape(2, 3)).sum().backward()
    return x.grad, x.grad.is_contiguous() or x.stride() == x.grad.stride(), y.grad, y.grad.stride()


@runs("")
def retained_by_default_with_create_graph(new):
    """retain_graph follows create_graph, and can be told otherwise."""
    x = new(1.0, 2.0)
    y = x.exp().sum()
    grad(y, x, create_graph=True)
    grad(y, x, create_graph=True, retain_graph=False)
    return caught(lambda: grad(y, x), 30)


@runs("")
def grad_mode_inside_a_run(new):
    """Gradients are off inside hooks of a plain run and on with create_graph; the mode outside stays."""
    x, seen = new(1.0, 2.0), []
    y = x * x
    y.register_hook(lambda g: seen.append((torch.is_grad_enabled(), g.requires_grad)))
    with torch.no_grad():
        grad(y, x, torch.ones(2).double(), retain_graph=True)
        inner = torch.is_grad_enabled()
    grad(y, x, torch.ones(2).double(), create_graph=True)
    return seen, inner, torch.is_grad_enabled()


@runs("")
def backward_under_no_grad_with_create_graph(new):
    """create_graph inside no_grad still records."""
    x = new(1.0, 2.0)
    y = (x ** 3).sum()
    with torch.no_grad():
        (g,) = grad(y, x, create_graph=True)
    return g.requires_grad, grad(g.sum(), x)


@runs("")
def nested_no_grad_parts(new):
    """A part without grad inside a loss, and the other way round."""
    x = new(1.0, 2.0)
    with torch.no_grad():
        scale = x.exp()
        with torch.enable_grad():
            y = x * scale
    y.sum().backward()
    return x.grad, y.requires_grad, scale.requires_grad


@runs("")
def order_of_execution(new):
    """Later forward first, also over branches."""
    x, seen = new(1.0, 2.0), []
    a, b = x * 2, x * 3
    c, d = b.exp(), a.sin()
    for name, t in {"a": a, "b": b, "c": c, "d": d}.items():
        t.register_hook(lambda g, name=name: seen.append(name))
    (c * d).sum().backward()
    return seen


@runs("")
def only_what_is_needed_runs(new):
    """Hooks of branches that the inputs do not need stay silent."""
    x, y, seen = new(1.0, 2.0), new(3.0, 4.0), []
    a, b = x * 2, y.exp()
    a.register_hook(lambda g: seen.append("a"))
    b.register_hook(lambda g: seen.append("b"))
    loss = (a * b).sum()
    grad(loss, y, retain_graph=True)
    loss.backward(inputs=[x], retain_graph=True)
    middle = grad(loss, b)
    return seen, x.grad, y.grad, middle


@runs("")
def an_error_in_the_middle(new):
    """A hook fails; what ran before it is accumulated, the next run is right."""
    x, y = new(1.0, 2.0), new(3.0, 4.0)
    a = x.exp()
    b = a * y
    handle = a.register_hook(lambda g: 1 / 0)
    error = caught(lambda: b.sum().backward(retain_graph=True), 20)
    handle.remove()
    first = y.grad.clone() if y.grad is not None else None
    b.sum().backward()
    return error, first, x.grad, y.grad


@runs("")
def callbacks_of_the_engine(new):
    """queue_callback runs after everything else, once."""
    x, seen = new(1.0, 2.0), []

    def hook(g: Tensor) -> None:
        torch.autograd.Variable._execution_engine.queue_callback(lambda: seen.append(x.grad is not None))
        seen.append("hook")

    y = x * 2
    y.register_hook(hook)
    y.sum().backward()
    return seen


@runs("")
def backward_inside_a_function(new):
    """A Function whose backward runs backward over a graph of its own."""
    class Inner(Function):
        @staticmethod
        def forward(ctx, x):
            with torch.enable_grad():
                ctx.x = x.detach().requires_grad_()
                ctx.y = (ctx.x ** 3).sum()
            return ctx.y.detach()

        @staticmethod
        def backward(ctx, g):
            with torch.enable_grad():
                ctx.y.backward(g)
            return ctx.x.grad

    x = new(1.0, 2.0)
    (Inner.apply(x * 2) * 3).backward()
    return x.grad


@runs("")
def complex_leaves(new):
    """Gradients of complex leaves, a real loss and a complex root."""
    z = new([1 + 2j, 3 - 1j], dtype=torch.complex128)
    (z * z.conj()).real.sum().backward()
    w = z * (2 + 1j)
    return z.grad, grad(w, z, torch.tensor([1j, 1.0], dtype=torch.complex128)), caught(lambda: (z * z).sum().backward())


@runs("")
def views_of_leaves_as_inputs(new):
    """A view made before is not the leaf, and not used by its later uses."""
    x = new([[1.0, 2.0], [3.0, 4.0]])
    v = x[0]
    loss = (x * x).sum() + v.sum()
    return grad(loss, [x, v], retain_graph=True), caught(lambda: grad((x * x).sum(), v), 30)


@runs("")
def requires_grad_switched_after_use(new):
    """A leaf that stops requiring grad after its use still gets the gradient of that use."""
    x = new(1.0, 2.0)
    y = x * x
    x.requires_grad_(False)
    z = x * 3
    caught_error = caught(lambda: y.sum().backward(), 30)
    return caught_error, z.requires_grad, x.grad


@runs("")
def grad_set_to_none_inside(new):
    """A hook that drops .grad between two contributions of one run's leaf."""
    x = new(1.0, 2.0)
    x.register_post_accumulate_grad_hook(lambda t: setattr(t, "grad", None))
    (x * x).sum().backward()
    return [x.grad]


@runs("")
def zero_sized(new):
    """Tensors without elements."""
    x = new.wrap(torch.zeros(0, 3, dtype=torch.float64))
    y = (x * 2).sum(0)
    y.sum().backward()
    return x.grad, grad((x.exp() + 1).mean(), x), y


@runs("")
def deleted_between(new):
    """Everything but the loss is deleted before backward."""
    x = new(1.0, 2.0)
    a = x.exp()
    b = a.tanh()
    c = (b * a).sum()
    del a, b
    gc.collect()
    c.backward()
    return x.grad


@runs("")
def leaf_deleted_before_backward(new):
    """A leaf that nobody else holds any more."""
    x, y = new(1.0, 2.0), new(3.0, 4.0)
    loss = (x * y).sum()
    del y
    loss.backward()
    return x.grad


# ----- hooks -----
@hooks("")
def a_hook_that_writes(new):
    """A hook that writes its gradient in place changes what flows on."""
    x = new(1.0, 2.0)
    a = x * 2

    def write(g: Tensor) -> None:
        g.mul_(3)

    a.register_hook(write)
    (a * torch.tensor([1.0, 5.0]).double()).sum().backward()
    return x.grad


@hooks("")
def a_hook_that_writes_what_is_shared(new):
    """Two operands of a sum receive one cotangent; a write to it is seen by the one that comes later."""
    x, y = new(1.0, 2.0), new(3.0, 4.0)
    a, b = x * 2, y * 2
    b.register_hook(lambda g: g * 3)
    (a + b).sum().backward()
    return x.grad, y.grad


@hooks("")
def hooks_in_order_and_removed(new):
    """Hooks replace one after the other; one removes another while it runs."""
    x, seen = new(1.0, 2.0), []
    a = x * 2
    handles = []

    def first(g: Tensor) -> Tensor:
        seen.append("first")
        handles[1].remove()
        return g + 1

    handles.append(a.register_hook(first))
    handles.append(a.register_hook(lambda g: seen.append("second")))
    handles.append(a.register_hook(lambda g: g * 10))
    a.sum().backward(retain_graph=True)
    a.sum().backward()
    return seen, x.grad


@hooks("")
def a_hook_added_during_the_run(new):
    """A hook that adds a hook to an earlier tensor of the same run."""
    x, seen = new(1.0, 2.0), []
    a = x * 2
    b = a.exp()
    b.register_hook(lambda g: a.register_hook(lambda h: seen.append(h.clone())) and None)
    b.sum().backward()
    return seen, x.grad


@hooks("")
def retained_with_a_graph(new):
    """retain_grad with create_graph gives a gradient that has a graph; repeated runs add."""
    x = new(1.0, 2.0)
    a = x * x
    a.retain_grad()
    a.retain_grad()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        (a ** 2).sum().backward(create_graph=True)
    first = a.grad
    grads = grad(a.grad.sum(), x, retain_graph=True)
    (a ** 2).sum().backward()
    return first.requires_grad, grads, a.grad, a.grad.requires_grad, a.retains_grad, a.is_leaf


@hooks("")
def retained_under_hooks(new):
    """retain_grad sees what the hooks made, whatever the order of registration."""
    x = new(1.0, 2.0)
    a = x * 2
    a.register_hook(lambda g: g * 2)
    a.retain_grad()
    a.register_hook(lambda g: g + 1)
    a.sum().backward()
    return a.grad, x.grad


@hooks("")
def hook_of_the_root(new):
    """Hooks of the root itself, of a leaf root too."""
    x, seen = new.scalar(2.0), []
    y = x * 3
    y.register_hook(lambda g: seen.append(g.clone()) or g * 2)
    x.register_hook(lambda g: seen.append(g.clone()) or g * 5)
    y.backward()
    x.backward()
    return seen, x.grad


@hooks("")
def node_hooks(new):
    """Node hooks: a pre-hook that replaces, a post-hook that sees both sides."""
    x, seen = new(1.0, 2.0), []
    a = x.exp()
    a.grad_fn.register_prehook(lambda gs: (gs[0] * 2,))
    a.grad_fn.register_hook(lambda ins, outs: seen.append((ins[0].clone(), outs[0].clone())))
    a.sum().backward()
    return seen, x.grad


@hooks("")
def a_node_hook_that_replaces(new):
    """A post-hook replaces what goes to the operands; None leaves it."""
    x, y = new(1.0, 2.0), new(3.0, 4.0)
    a = x * y
    a.grad_fn.register_hook(lambda ins, outs: (ins[0] * 10, ins[1]))
    a.sum().backward()
    return x.grad, y.grad


@hooks("")
def multi_grad_hooks(new):
    """All and any, one of the tensors unused, twice."""
    x, y, z, seen = new(1.0, 2.0), new(3.0, 4.0), new(5.0, 6.0), []
    torch.autograd.graph.register_multi_grad_hook(
        (x, y, z), lambda gs: seen.append([None if g is None else g.clone() for g in gs]))
    torch.autograd.graph.register_multi_grad_hook(
        (x, y), lambda g: seen.append("any"), mode="any")
    (x * y).sum().backward()
    (x * z).sum().backward()
    return seen.count("any"), [s for s in seen if s != "any"]


@hooks("")
def module_hooks_on_equal_modules(new):
    """Full backward hooks of a module called twice on one input."""
    torch.manual_seed(0)
    net, seen = torch.nn.Linear(2, 2).double(), []
    net.register_full_backward_hook(lambda m, gi, go: seen.append((gi[0].clone(), go[0].clone())))
    net.register_full_backward_pre_hook(lambda m, go: (go[0] * 2,))
    x = new([[1.0, 2.0]])
    (net(x) + net(x) * 3).sum().backward()
    return seen, x.grad, net.weight.grad


@hooks("")
def hook_on_a_view_before_a_write(new):
    """A hook stays with the version of the tensor that it was registered on."""
    x, seen = new(1.0, 2.0), []
    a = x * 2
    a.register_hook(lambda g: seen.append(("old", g.clone())))
    a.mul_(3)
    a.register_hook(lambda g: seen.append(("new", g.clone())))
    a.sum().backward()
    return seen, x.grad


@hooks("")
def post_accumulate_hooks(new):
    """Post-accumulate hooks run in order, see the written .grad, and may be removed."""
    x, seen = new(1.0, 2.0), []
    h = x.register_post_accumulate_grad_hook(lambda t: seen.append(("first", t.grad.clone())))
    x.register_post_accumulate_grad_hook(lambda t: seen.append(("second", t is x)))
    (x * x).sum().backward()
    h.remove()
    (x * 2).sum().backward()
    grad((x * 2).sum(), x)
    return seen


# ----- saved tensors -----
@saved("")
def a_pack_hook_that_raises(new):
    """An error while packing reaches the caller; the next operation works."""
    x = new(1.0, 2.0)

    def pack(t: Tensor) -> Any:
        raise KeyError("full")

    def program() -> Any:
        with saved_tensors_hooks(pack, lambda t: t):
            return x * x

    error = caught(program)
    (x * x).sum().backward()
    return error, x.grad


@saved("")
def an_unpack_hook_that_raises(new):
    """An error while unpacking reaches the caller; a second try with a hook that works is right."""
    x, fails = new(1.0, 2.0), [True]

    def unpack(t: Tensor) -> Tensor:
        if fails[0]:
            raise KeyError("lost")
        return t

    with saved_tensors_hooks(lambda t: t.clone(), unpack):
        y = (x * x * 2).sum()
    error = caught(lambda: y.backward(retain_graph=True))
    fails[0] = False
    x.grad = None
    y.backward()
    return error, x.grad


@saved("")
def nested_pairs(new):
    """The innermost pair alone is asked."""
    x, seen = new(1.0, 2.0), []
    with saved_tensors_hooks(lambda t: seen.append("outer") or t, lambda t: t), \
            saved_tensors_hooks(lambda t: seen.append("inner") or t, lambda t: t * 1):
        y = x.exp()
    z = y * 3
    z.sum().backward()
    return sorted(seen), x.grad


@saved("")
def hooks_switched_off(new):
    """disable_saved_tensors_hooks refuses a pair and lets everything else work."""
    x = new(1.0, 2.0)

    def program() -> Any:
        with torch.autograd.graph.disable_saved_tensors_hooks("not here"), \
                saved_tensors_hooks(lambda t: t, lambda t: t):
            return x * x

    error = caught(program)
    with torch.autograd.graph.disable_saved_tensors_hooks("not here"):
        (x * x).sum().backward()
    return error, x.grad


@saved("")
def saved_on_the_cpu(new):
    """save_on_cpu, with second order."""
    x = new(1.0, 2.0)
    with torch.autograd.graph.save_on_cpu():
        y = (x.exp() * x).sum()
    (g,) = grad(y, x, create_graph=True)
    return g, grad(g.sum(), x)


@saved("")
def allowed_mutation(new):
    """allow_mutation_on_saved_tensors: values written after they were saved."""
    x = new(1.0, 2.0)
    with torch.autograd.graph.allow_mutation_on_saved_tensors():
        a = x.clone()
        b = (a * a).sum()
        a.add_(1)
        c = (a * a).sum()
        a.zero_()
        (b + c).backward()
    return x.grad


@saved("")
def what_is_released(new):
    """Saved values die with backward, and with the graph."""
    x = new(1.0, 2.0)

    class Marked(Function):
        @staticmethod
        def forward(ctx, x):
            extra = x * 2
            refs.append(weakref.ref(extra))
            ctx.save_for_backward(extra)
            return x.clone()

        @staticmethod
        def backward(ctx, g):
            return g * ctx.saved_tensors[0]

    refs: list[Any] = []
    y, z = Marked.apply(x), Marked.apply(x * 1)
    y.sum().backward(retain_graph=True)
    kept = refs[0]() is not None
    y.sum().backward()
    after = refs[0]() is not None
    before = refs[1]() is not None
    del z
    return kept, after, before, refs[1]() is not None


# ----- checkpoint -----
def block(t: Tensor, scale: float = 1.0, *, shift: Any = 0.0) -> Tensor:
    return torch.nn.functional.dropout((t * scale + shift).exp(), 0.5).tanh()


def both(program: Any) -> list[Any]:
    """What a program gives with each variant."""
    out = []
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "None of the inputs have requires_grad")
        for reentrant in (True, False):
            torch.manual_seed(0)
            out.append(program(reentrant))
    return out


@checkpoints("")
def one_inside_the_other(new):
    """Checkpoints of each variant inside each variant."""
    def program(outer: bool) -> Any:
        out = []
        for inner in (True, False):
            x = new(1.0, 2.0)
            y = checkpoint(lambda t, inner=inner: checkpoint(block, t.sin(), 0.5, use_reentrant=inner) * t, x,
                           use_reentrant=outer)
            y.sum().backward()
            out += [y, x.grad]
        return out
    return both(program)


@checkpoints("")
def keyword_arguments(new):
    """Keyword arguments, tensors among them, and nested outputs."""
    x, s = new(1.0, 2.0), new(0.5, 0.25)
    torch.manual_seed(0)
    y, (z, n) = checkpoint(lambda t, *, shift: (block(t, shift=shift), (t * shift, 5)), x, shift=s, use_reentrant=False)
    (y + z).sum().backward()
    return y, z, n, x.grad, s.grad


@checkpoints("")
def without_the_generator(new):
    """preserve_rng_state=False draws anew."""
    def program(reentrant: bool) -> Any:
        x = new(1.0, 2.0)
        y = checkpoint(block, x, use_reentrant=reentrant, preserve_rng_state=False)
        y.sum().backward()
        return y, x.grad, torch.rand(1)
    return both(program)


@checkpoints("")
def under_autocast(new):
    """The recomputation happens under the autocast of the forward."""
    def program(reentrant: bool) -> Any:
        x, w = new([[1.0, 2.0]], dtype=torch.float32), new([[0.5, 0.25], [1.0, 2.0]], dtype=torch.float32)
        seen: list[Any] = []

        def f(a: Tensor, b: Tensor) -> Tensor:
            out = a @ b
            seen.append(out.dtype)
            return out.float().exp()

        with torch.autocast("cpu", torch.bfloat16):
            y = checkpoint(f, x, w, use_reentrant=reentrant)
        y.sum().backward()
        return seen, x.grad, w.grad
    return both(program)


@checkpoints("")
def sequential(new):
    """checkpoint_sequential over modules."""
    def program(reentrant: bool) -> Any:
        net = torch.nn.Sequential(*[torch.nn.Sequential(torch.nn.Linear(2, 2), torch.nn.Tanh()) for _ in range(4)])
        net = net.double()
        x = new([[1.0, 2.0]])
        y = checkpoint_sequential(net, 2, x, use_reentrant=reentrant)
        y.sum().backward()
        return y, x.grad, [p.grad for p in net.parameters()]
    return both(program)


@checkpoints("")
def no_early_stop(new):
    """Without early stop the whole function runs again."""
    x, calls = new(1.0, 2.0), []

    def f(t: Tensor) -> Tensor:
        calls.append("start")
        y = t.exp().sin()
        calls.append("end")
        return y

    with set_checkpoint_early_stop(False):
        checkpoint(f, x, use_reentrant=False).sum().backward()
    checkpoint(f, x, use_reentrant=False).sum().backward()
    return calls, x.grad


@checkpoints("")
def with_grad_and_second_order(new):
    """grad() through the variant that allows it, twice differentiated."""
    x = new(1.0, 2.0)
    y = checkpoint(lambda t: t.exp() * t, x, use_reentrant=False).sum()
    (g,) = grad(y, x, create_graph=True)
    (h,) = grad(g.sum(), x)
    z = checkpoint(lambda t: t.exp(), x, use_reentrant=True).sum()
    return g, h, caught(lambda: grad(z, x), 40), caught(lambda: z.backward(inputs=[x]), 40)


@checkpoints("")
def an_error_while_recomputing(new):
    """The recomputation raises; the next step is right."""
    x, fails = new(1.0, 2.0), [False]

    def f(t: Tensor) -> Tensor:
        if fails[0]:
            raise KeyError("again")
        return t.exp() * t

    y = checkpoint(f, x, use_reentrant=False).sum()
    fails[0] = True
    error = caught(y.backward)
    fails[0] = False
    x.grad = None
    checkpoint(f, x, use_reentrant=False).sum().backward()
    return error, x.grad


@checkpoints("")
def another_recomputation(new):
    """A recomputation of another shape is noticed."""
    x, n = new(1.0, 2.0), [0]

    def f(t: Tensor) -> Tensor:
        n[0] += 1
        return (t.exp() * t).sin() if n[0] == 1 else (torch.cat([t, t]).exp() * torch.cat([t, t])).sin()[:2]

    y = checkpoint(f, x, use_reentrant=False).sum()
    return caught(y.backward, 40)


@checkpoints("")
def nothing_requires_grad(new):
    """Inputs that do not require grad."""
    x, w = new(1.0, 2.0, grad=False), new(0.5, 0.25)

    def program(reentrant: bool) -> Any:
        y = checkpoint(lambda t: t * w, x, use_reentrant=reentrant)
        return y, y.requires_grad, caught(lambda: y.sum().backward(), 40)

    return both(program), w.grad


# ----- anomaly mode and introspection -----
@anomalies("")
def a_nan_named(new):
    """The operation is named, and the line of its forward warned of."""
    x = new(0.0, 1.0)

    def program() -> Any:
        with torch.autograd.set_detect_anomaly(True):
            return ((x * 0).sqrt() * 0).sum().backward()

    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        error = caught(program, 20)
    return error, ["Error detected in" in str(w.message) for w in seen if "Anomaly" not in str(w.message)]


@anomalies("")
def no_check_for_nan(new):
    """check_nan=False lets a NaN pass."""
    x = new(0.0, 1.0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        with torch.autograd.detect_anomaly(check_nan=False):
            ((x * 0).sqrt() * 0).sum().backward()
    return x.grad


@anomalies("")
def an_error_of_a_function(new):
    """An error of any kind is reported with its forward, and keeps its type."""
    class Fails(Function):
        @staticmethod
        def forward(ctx, x):
            return x * 2

        @staticmethod
        def backward(ctx, g):
            raise KeyError("wrong")

    x = new(0.0, 1.0)

    def program() -> Any:
        with torch.autograd.set_detect_anomaly(True):
            return Fails.apply(x).sum().backward()

    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        error = caught(program)
    return error, any("Error detected in FailsBackward" in str(w.message) for w in seen)


@anomalies("")
def walking_the_graph(new):
    """next_functions down to the leaves, and whose they are."""
    x, y = new(1.0, 2.0), new(3.0, 4.0)
    z = (x * y).exp()
    product = z.grad_fn.next_functions[0][0]
    ends = [f for f, _ in product.next_functions]
    return ([e.variable is t for e, t in zip(ends, (x, y), strict=True)], [e.name().split("::")[-1] for e in ends],
            len(z.grad_fn.next_functions), (x * 2).grad_fn.next_functions[0][1], x.grad_fn is None, z.is_leaf)


@anomalies("test_custom_function_saved_tensors")
def the_context_of_a_function(new):
    """grad_fn of a Function shows what its forward has left on ctx."""
    class Noted(Function):
        @staticmethod
        def forward(ctx, x, k):
            ctx.save_for_backward(x)
            ctx.k = k
            return x * k

        @staticmethod
        def backward(ctx, g):
            return g * ctx.k, None

    x = new(1.0, 2.0)
    y = Noted.apply(x, 5)
    fn = y.grad_fn
    return fn.k, fn.needs_input_grad[0], caught(lambda: fn.nothing).type, hasattr((x * 2).grad_fn, "k"), y


@anomalies("")
def metadata_of_a_node(new):
    """A node's dict of the user's own lives as long as the node."""
    x = new(1.0, 2.0)
    y = x.exp()
    y.grad_fn.metadata["k"] = 5
    z = y * 2
    return z.grad_fn.next_functions[0][0].metadata, "metadata" in dir(y.grad_fn)


@anomalies("")
def printed(new):
    """What a result's text says of its history."""
    x = new(1.0, 2.0)
    return ["grad_fn" in repr(x * 2), "requires_grad=True" in repr(x), "grad" in repr((x * 2).detach()),
            "grad_fn" in str(x.exp()), f"{(x * 2).sum().item():.1f}"]


# ----- threads -----
@runs("")
def grad_mode_of_a_thread(new):
    """Grad mode is of the thread."""
    seen: list[Any] = []
    with torch.no_grad():
        t = threading.Thread(target=lambda: seen.append(torch.is_grad_enabled()))
        t.start()
        t.join()
        seen.append(torch.is_grad_enabled())
    return seen


test_runs, test_hooks, test_saved = runs.check(), hooks.check(), saved.check()
test_checkpoints, test_anomalies = checkpoints.check(), anomalies.check()
