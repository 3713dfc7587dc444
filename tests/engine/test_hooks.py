"""Hooks: order, replacement, removal, what each sees; also on merged tensors."""

from __future__ import annotations

import gc
import warnings
import weakref
from contextlib import nullcontext

import pytest
import torch
from torch.autograd import backward, grad

import autograd_opt as ao
from tests.engine.behaviour import caught, group
from tests.engine.functions import Two

hooks = group("hooks: tensor, node, post-accumulate, multi-grad")
retained = group("retain_grad")
modules = group("module hooks")


@hooks("test_hooks")
def tensor_hook_sees_the_sum(new):
    """A tensor hook sees the sum of all uses, once."""
    x, y = new(1.0, 2.0), new(3.0, 4.0)
    seen = []
    z = x ** 2 + x * 2 + x * y + y
    x.register_hook(lambda g: seen.append(g))
    z.backward(torch.ones(2).double(), retain_graph=True)
    z.backward(torch.ones(2).double())
    return seen, x.grad


@hooks("test_hooks")
def tensor_hook_replaces(new):
    """What a hook returns replaces the gradient for everything below."""
    x = new(1.0, 2.0)
    y = x * 2
    y.register_hook(lambda g: g * 10)
    y.register_hook(lambda g: g + 1)
    (y * 3).sum().backward()
    return x.grad


@hooks("test_hooks")
def removing_a_hook(new):
    """A removed hook is not called; handles are context managers."""
    x = new(1.0, 2.0)
    seen = []
    handle = x.register_hook(lambda g: seen.append("a"))
    with x.register_hook(lambda g: seen.append("b")):
        (x * 2).sum().backward()
    handle.remove()
    (x * 2).sum().backward()
    return seen, x.grad


@hooks("test_hooks")
def removal_during_backward(new):
    """A hook may remove itself while the run is under way."""
    x = new(1.0)
    seen = []

    def once(g):
        seen.append(float(g))
        handle.remove()

    y = x * 2
    handle = y.register_hook(once)
    z = (y * 3).sum()
    z.backward(retain_graph=True)
    z.backward()
    return seen, x.grad


@hooks("test_hook_none")
def hook_after_a_missing_gradient(new):
    """A Function that returns None for one argument."""
    class Some(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x, y):
            return x + y

        @staticmethod
        def backward(ctx, g):
            return None, g

    x, y = new.randn(3), new.randn(3)
    seen = []
    y.register_hook(lambda g: seen.append(g))
    Some.apply(x, y).sum().backward()
    return seen, x.grad, y.grad


@hooks("test_hook_with_no_name")
def callable_object_as_hook(new):
    """Any callable may be a hook."""
    class Counter:
        def __init__(self):
            self.calls = 0

        def __call__(self, g):
            self.calls += 1

    x, c = new(1.0), Counter()
    x.register_hook(c)
    (x * 2).backward()
    return c.calls


@hooks("test_grad_fn_prehooks")
def node_prehook_replaces(new):
    """A node's pre-hook may replace the tuple of cotangents."""
    x = new(1.0, 2.0)
    y = x.exp()
    seen = []
    y.grad_fn.register_prehook(lambda gs: seen.append(gs[0].clone()))
    y.grad_fn.register_prehook(lambda gs: (gs[0] * 2,))
    y.sum().backward()
    return seen, x.grad


@hooks("test_grad_fn_prehooks_remove_hooks")
def node_prehook_removed(new):
    """Removed pre-hooks are not called, also when removed by another one."""
    x = new(1.0)
    y = x * 3
    seen = []
    h1 = y.grad_fn.register_prehook(lambda gs: seen.append(1))

    def remover(gs):
        seen.append(2)
        h1.remove()

    h2 = y.grad_fn.register_prehook(remover)
    y.backward(retain_graph=True)
    h2.remove()
    y.backward()
    return seen


@hooks("test_hooks_cpp")
def node_posthook_sees_both_sides(new):
    """A node's post-hook sees the cotangents of operands and outputs, and may replace the former."""
    x = new(1.0, 2.0)
    y = x.exp()
    seen = []
    y.grad_fn.register_hook(lambda gi, go: seen.append((gi[0].clone(), go[0].clone())))
    y.grad_fn.register_hook(lambda gi, go: (gi[0] * 2,))
    y.sum().backward()
    return seen, x.grad


@hooks("test_prehook_ordering")
def order_of_hooks(new):
    """Tensor pre-hooks come before node pre-hooks, whatever was registered first."""
    log = []

    def one(g):
        log.append(1)
        return g * 3

    def two(gs):
        log.append(2)
        return tuple(g * 2 for g in gs)

    a = new.scalar(1.0)
    b = a * 1
    b.grad_fn.register_prehook(two)
    b.register_hook(one)
    b.grad_fn.register_prehook(two)
    acc = b.grad_fn.next_functions[0][0]
    a.register_hook(one)
    acc.register_prehook(two)
    a.register_hook(one)
    b.sum().backward(retain_graph=True)
    full, log = log[:], log.clear() or log
    grad(b.sum(), a, retain_graph=True)
    captured, log = log[:], log.clear() or log
    b.sum().backward(inputs=(b,))
    return full, captured, log, b.grad


@hooks("test_hook_edge_case_when_called_with_grad")
def hooks_that_run_for_grad(new):
    """grad() runs the tensor hooks of captured inputs, which change what it returns, not the hooks of their nodes."""
    counts = [0, 0, 0]
    a = new.scalar(2.0)
    b = a * 2
    c = b * 3

    def count(k):
        def hook(*args):
            counts[k] += 1
        return hook

    def scaled(g):
        counts[0] += 1
        return g * 10

    b.register_hook(scaled)
    a.register_hook(scaled)
    b.grad_fn.register_hook(count(1))
    b.grad_fn.register_prehook(count(2))
    out = []
    for run in (lambda: grad(c, b, retain_graph=True), lambda: grad(c, (a, b), retain_graph=True),
                lambda: c.backward(retain_graph=True), lambda: c.backward(inputs=(a, b), retain_graph=True)):
        found = run()
        out.append((counts[:], found))
        counts[:] = [0, 0, 0]
    return out, a.grad


@hooks("test_tensor_hooks_inplace")
def hook_stays_with_the_old_version(new):
    """A hook set before an in-place write belongs to the value before it."""
    seen = []
    x = new.randn(3)
    y = x * 2
    y.register_hook(lambda g: seen.append(("old", g)))
    y.mul_(5)
    y.register_hook(lambda g: seen.append(("new", g)))
    (y * 3).sum().backward()
    return seen, x.grad


@hooks("test_tensor_hooks_inplace_multiple_outputs")
def hook_on_one_of_many_outputs(new):
    """Hooks on the parts of a multi-output Function, one of them written."""
    seen = []
    x = new(2.0)
    a, b = Two.apply(x)
    a.register_hook(lambda g: seen.append(("a", g)))
    b.register_hook(lambda g: seen.append(("b", g)))
    a.mul_(2)
    a.register_hook(lambda g: seen.append(("a2", g)))
    (a + b * 3).sum().backward()
    return sorted(k for k, _ in seen), [g for _, g in sorted(seen, key=lambda p: p[0])], x.grad


@hooks("test_post_accumulate_grad_hook_on_non_leaf")
def post_accumulate_on_nonleaf(new):
    """Post-accumulate hooks belong to leaves."""
    x = new.randn(3)
    y = x * 1
    return caught(lambda: y.register_post_accumulate_grad_hook(lambda t: None))


@hooks("test_post_accumulate_grad_hook_multiple_hooks")
def post_accumulate_hooks(new):
    """They run after .grad is written and may write it."""
    x = new.randn(3)
    handle = x.register_post_accumulate_grad_hook(double)
    x.register_post_accumulate_grad_hook(add_one)
    (x * 3).sum().backward()
    first = x.grad.clone()
    handle.remove()
    (x * 3).sum().backward()
    return first, x.grad


def double(t):
    t.grad.mul_(2)


def add_one(t):
    t.grad.add_(1)


@hooks("test_post_accumulate_grad_hook_multiple_tensors")
def post_accumulate_on_two_leaves(new):
    """Each leaf has its own."""
    x, y = new.randn(3), new.randn(3)
    x.register_post_accumulate_grad_hook(double)
    y.register_post_accumulate_grad_hook(add_one)
    (x * y).sum().backward()
    return x.grad, y.grad


@hooks("test_post_accumulate_grad_hook_returns_not_None")
def post_accumulate_must_return_none(new):
    """A value returned by a post-accumulate hook is an error."""
    x = new.randn(3)
    x.register_post_accumulate_grad_hook(lambda t: t.grad)
    return caught(lambda: x.sum().backward())


@hooks("test_post_accumulate_grad_hook_e2e")
def optimizer_in_backward(new):
    """An optimizer stepped by post-accumulate hooks."""
    model = torch.nn.Linear(3, 2).double()
    opts = {p: torch.optim.SGD([p], lr=0.1) for p in model.parameters()}

    def step(p):
        opts[p].step()
        opts[p].zero_grad()

    for p in model.parameters():
        p.register_post_accumulate_grad_hook(step)
    for _ in range(3):
        model(new.randn(4, 3, grad=False)).pow(2).sum().backward()
    return [p.detach() for p in model.parameters()], [p.grad for p in model.parameters()]


@hooks("test_post_accumulate_grad_hook_ordering")
def tensor_hook_before_post_accumulate(new):
    """Tensor hook, accumulation, post-accumulate hook."""
    log = []
    x = new.randn(2)
    x.register_post_accumulate_grad_hook(lambda t: log.append(("post", t.grad.clone())))
    x.register_hook(lambda g: log.append(("pre", g.clone())) or g * 2)
    (x * 3).sum().backward()
    return log


@hooks("test_multi_grad_all_hooks")
def multi_grad_all(new):
    """One call with all gradients of a run; None where a tensor took no part."""
    xs = [new.randn(2) for _ in range(4)]
    seen = []
    handle = torch.autograd.graph.register_multi_grad_hook(xs, lambda gs: seen.append(list(gs)))
    out = xs[1] * xs[2]
    out.sum().backward(inputs=(xs[1], xs[2]), retain_graph=True)
    out.sum().backward(inputs=(xs[0], xs[3]), retain_graph=True)
    out.sum().backward(inputs=(xs[0], xs[2]), retain_graph=True)
    out.sum().backward(retain_graph=True)
    handle.remove()
    out.sum().backward()
    return seen


@hooks("test_multi_grad_any_hooks")
def multi_grad_any(new):
    """One call with the first gradient of a run."""
    xs = [new.randn(2) for _ in range(3)]
    seen = []
    torch.autograd.graph.register_multi_grad_hook(xs, lambda g: seen.append(g.shape), mode="any")
    out = (xs[1] * xs[2]).sum()
    out.backward(retain_graph=True)
    out.backward()
    return [list(s) for s in seen]


@hooks("test_multi_grad_hooks_invalid_mode")
def multi_grad_mode(new):
    """Only two modes exist."""
    return caught(lambda: torch.autograd.graph.register_multi_grad_hook([new(1.0)], print, mode="foo"))


@hooks("test_multi_grad_all_hooks")
def multi_grad_on_intermediates(new):
    """Multi-grad hooks on non-leaves."""
    x = new.randn(3)
    a, b = x * 2, x.exp()
    seen = []
    torch.autograd.graph.register_multi_grad_hook((a, b), lambda gs: seen.append([g.clone() for g in gs]))
    (a * b).sum().backward()
    return seen, x.grad


@hooks("test_hooks")
def hook_on_a_constant(new):
    """A hook needs a tensor that requires grad."""
    return caught(lambda: torch.ones(2).register_hook(print)), caught(lambda: torch.ones(2).retain_grad())


@hooks("test_hooks")
def hook_changes_the_shape(new):
    """A hook may not change shape or type."""
    x = new.randn(2)
    y = x * 2
    handle = y.register_hook(lambda g: torch.ones(3).double())
    first = caught(lambda: y.sum().backward(retain_graph=True), 20)
    handle.remove()
    y.register_hook(lambda g: 3)
    return first, caught(lambda: y.sum().backward()), x.grad


@hooks("test_hooks")
def hook_raises(new):
    """An exception of a hook reaches the caller; the next run is right."""
    class Stop(Exception):
        pass

    def boom(g):
        raise Stop("here")

    x = new.randn(2)
    y = x * x
    handle = y.register_hook(boom)
    first = caught(lambda: y.sum().backward(retain_graph=True)).text
    handle.remove()
    y.sum().backward()
    return first, x.grad, torch.is_grad_enabled()


@hooks("test_hooks")
def hook_runs_without_grad(new):
    """In a hook grad mode is off, unless the run creates a graph."""
    seen = []
    x = new(2.0)
    y = x * x
    y.register_hook(lambda g: seen.append((torch.is_grad_enabled(), (g * 2).requires_grad)))
    y.backward(retain_graph=True)
    grad(y, x, create_graph=True)
    return seen


@hooks("test_hooks")
def hook_under_create_graph(new):
    """What a hook computes under create_graph is differentiated."""
    x = new(2.0, 3.0)
    y = x * x
    y.register_hook(lambda g: g * x)
    g, = grad(y.sum(), x, create_graph=True)
    h, = grad(g.sum(), x)
    return g, h


@hooks("test_backward_hook_relative_ordering")
def hooks_of_several_tensors_in_order(new):
    """Later operations first."""
    log = []
    x = new(1.0)
    y = x * 2
    z = y.exp()
    w = z + y
    for name, t in (("x", x), ("y", y), ("z", z), ("w", w)):
        t.register_hook(lambda g, name=name: log.append(name))
    w.backward()
    return log


@hooks("test_hooks")
def hook_uses_a_plain_tensor(new):
    """A hook computes with plain leaves too."""
    x, k = new(1.0, 2.0), new(3.0, 5.0)
    y = x * 2
    y.register_hook(lambda g: g * k.detach())
    y.sum().backward()
    return x.grad, k.grad


# ----- retain_grad -----
@retained("test_retain_grad")
def retained_gradient(new):
    """retain_grad is idempotent, a no-op on leaves, accumulates."""
    x = new(torch.rand(1, 3).double())
    h1 = x * 3
    out = (h1 * h1).sum()
    h1.retain_grad()
    h1.retain_grad()
    x.retain_grad()
    out.backward(retain_graph=True)
    first = h1.grad.clone()
    out.backward(retain_graph=True)
    second = h1.grad.clone()
    x.grad = None
    return first, second, h1.retains_grad, x.retains_grad


@retained("test_retain_grad_inplace")
def follows_the_newest_version(new):
    """After a write in place, .grad is that of the new value."""
    a = new.scalar(1.0) * 1
    a.retain_grad()
    a.mul_(2)
    a.sum().backward()
    b = new.scalar(1.0) * 1
    b.retain_grad()
    b.mul_(2)
    b.retain_grad()
    b.mul_(3)
    b.sum().backward()
    return a.grad, b.grad


@retained("test_retain_grad_inplace_over_view")
def follows_through_views(new):
    """A write through a view: both views keep retaining."""
    base = new(1.0) * 1
    view, view2 = base[:], base[:]
    view.retain_grad()
    view2.retain_grad()
    view.mul_(2)
    (view + view2).sum().backward()
    return view.grad, view2.grad


@retained("test_retains_grad_inplace_multiple_outputs")
def retained_outputs_of_a_function(new):
    """retain_grad on the outputs of a Function, one written in place."""
    a, b = Two.apply(new.scalar(2.0))
    a.retain_grad()
    b.retain_grad()
    a.mul_(2)
    (a + b).backward()
    return a.grad, b.grad


@retained("test_retains_grad_can_always_observe_tensor_prehook")
def sees_what_the_hooks_made(new):
    """.grad is the gradient after every tensor hook, whatever was registered first."""
    a = new.scalar(1.0) * 1
    a.register_hook(lambda g: g * 2)
    a.retain_grad()
    a.register_hook(lambda g: g * 2)
    a.sum().backward()
    return a.grad


# ----- module hooks -----
@modules("test_full_backward_hook_double_backward")
def full_backward_hook(new):
    """Full backward hooks see cotangents of outputs and inputs."""
    seen = []
    model = torch.nn.Linear(3, 2).double()
    model.register_full_backward_hook(lambda m, gi, go: seen.append((gi[0], go[0])))
    x = new.randn(4, 3)
    model(x).pow(2).sum().backward()
    return seen, x.grad, model.weight.grad


@modules("test_full_backward_hook_double_backward")
def full_backward_hook_not_run_again(new):
    """A full backward hook is not run for the second order."""
    count = [0]
    model = torch.nn.MSELoss()

    def hook(m, gi, go):
        count[0] += 1

    model.register_full_backward_hook(hook)
    x = new(torch.rand(2).double())
    y = new(torch.rand(2).double(), grad=False)
    loss = model(x, y)
    g, = grad(loss, x, create_graph=True)
    h, = grad(g.sum(), x)
    return g, h, count[0]


@modules("test_full_backward_hook_double_backward")
def backward_pre_hook(new):
    """Backward pre-hooks may replace the cotangent."""
    model = torch.nn.Tanh()
    model.register_full_backward_pre_hook(lambda m, go: (go[0] * 3,))
    x = new.randn(3)
    model(x).sum().backward()
    return x.grad


@modules("test_hooks")
def forward_hooks(new):
    """Forward hooks may replace inputs and outputs."""
    model = torch.nn.Linear(2, 2).double()
    model.register_forward_pre_hook(lambda m, args: (args[0] * 2,))
    model.register_forward_hook(lambda m, args, out: out + 1)
    x = new.randn(2, 2)
    model(x).sum().backward()
    return x.grad, model.weight.grad


@modules("test_hooks")
def hooked_sequence(new):
    """Hooks on several modules of a network in their order."""
    log = []
    model = torch.nn.Sequential(torch.nn.Linear(2, 3), torch.nn.Tanh(), torch.nn.Linear(3, 1)).double()
    for i, m in enumerate(model):
        m.register_full_backward_hook(lambda m, gi, go, i=i: log.append((i, [None if g is None else g for g in gi])))
    model(new.randn(4, 2)).sum().backward()
    return log, [p.grad for p in model.parameters()]


test_hooks = hooks.check()
test_retain_grad = retained.check()
test_module_hooks = modules.check()


# ----- what has no counterpart in torch: merged tensors -----
def twins():
    """Two equal results of one leaf; torch's eager cotangents differ."""
    x = ao.tensor([1.0, 2.0], dtype=torch.float64)
    return x, x * 3, x * 3


@pytest.mark.parametrize("when", ["before", "after"])
def test_a_merged_tensors_hook_sees_its_own_cotangent(when):
    seen = {}

    def hook(name):
        return lambda g: seen.__setitem__(name, g.clone())

    with ao.AutogradGraph(optimize=True):
        x, a, b = twins()
        if when == "before":
            a.register_hook(hook("a"))
            b.register_hook(hook("b"))
        out = (a * 5 + b * 7).sum()
        if when == "after":
            a.register_hook(hook("a"))
            b.register_hook(hook("b"))
        out.backward()
    assert seen["a"].tolist() == [5.0, 5.0]
    assert seen["b"].tolist() == [7.0, 7.0]
    assert x.grad.tolist() == [36.0, 36.0]


@pytest.mark.parametrize("hooked", ["a", "b"])
def test_a_hook_on_one_twin_alone(hooked):
    seen = []
    with ao.AutogradGraph(optimize=True):
        x, a, b = twins()
        {"a": a, "b": b}[hooked].register_hook(lambda g: seen.append(g.clone()) or g * 0)
        (a * 5 + b * 7).sum().backward()
    assert [g.tolist() for g in seen] == [[5.0, 5.0] if hooked == "a" else [7.0, 7.0]]
    assert x.grad.tolist() == ([21.0, 21.0] if hooked == "a" else [15.0, 15.0])


def test_merged_tensors_retain_their_own_gradients():
    with ao.AutogradGraph(optimize=True):
        x, a, b = twins()
        a.retain_grad()
        b.retain_grad()
        (a * 5 + b * 7).sum().backward()
        assert a.grad.tolist() == [5.0, 5.0]
        assert b.grad.tolist() == [7.0, 7.0]
    assert x.grad.tolist() == [36.0, 36.0]


def test_gradients_with_respect_to_merged_tensors():
    with ao.AutogradGraph(optimize=True):
        x, a, b = twins()
        ga, gb, gx = grad((a * 5 + b * 7).sum(), [a, b, x])
    assert (ga.tolist(), gb.tolist(), gx.tolist()) == ([5.0, 5.0], [7.0, 7.0], [36.0, 36.0])


def test_consumers_of_merged_tensors_keep_hooks_apart():
    seen = []
    with ao.AutogradGraph(optimize=True):
        x, a, b = twins()
        c, d = a.exp(), b.exp()
        d.register_hook(lambda g: seen.append(g.clone()))
        (c * 2 + d * 3).sum().backward()
    assert [g.tolist() for g in seen] == [[3.0, 3.0]]
    assert torch.allclose(x.grad, 15 * (3 * x.detach()).exp())


def test_a_hook_keeps_no_tensor_alive_after_its_removal():
    with warnings.catch_warnings(), ao.AutogradGraph():
        x = ao.tensor([1.0])
        handle = x.register_hook(lambda g: g)
        backward((x * 2).sum())
        handle.remove()
        handle.remove()
    assert x.grad.tolist() == [2.0]


@pytest.mark.parametrize("optimize", [False, True, "exact"])
def test_a_parameter_written_without_a_record_is_found_by_its_node(optimize):
    """A hook on several parameters, and code that looks for accumulators, ask the graph below a view of each."""
    seen = []
    with ao.AutogradGraph(optimize=optimize):
        model = torch.nn.Sequential(torch.nn.Linear(3, 2), torch.nn.Linear(2, 1)).double()
        with torch.no_grad():
            model[1].weight.mul_(2)
        for p in model.parameters():
            (below, number), = p.expand_as(p).grad_fn.next_functions
            assert below.variable is p
            assert number == 0
        torch.autograd.graph.register_multi_grad_hook(
            list(model.parameters()), lambda gs: seen.append([g is not None for g in gs]))
        model(torch.ones(2, 3).double()).sum().backward()
        model[1](torch.ones(2, 2).double()).sum().backward()
    assert seen == [[True] * 4, [False, False, True, True]]


@pytest.mark.parametrize("optimize", [False, True])
@pytest.mark.parametrize("make", [torch.tensor, ao.tensor], ids=["plain", "custom"])
@pytest.mark.parametrize("mode", ["all", "any"])
@pytest.mark.parametrize("where", ["before", "inside", "between"])
def test_a_hook_of_several_leaves_outlives_graphs(where, mode, make, optimize):
    """Registered outside a context or in one, called in its runs, in those of the next and in torch's own."""
    def program(context, make):
        w, v, u = (make([1.0, 2.0], requires_grad=True) for _ in range(3))
        seen = []

        def register():
            return torch.autograd.graph.register_multi_grad_hook([w, v, u], lambda gs: seen.append(
                gs.tolist() if mode == "any" else [None if g is None else g.tolist() for g in gs]), mode=mode)

        def run(others):
            sum((u.detach().sum() for _ in range(others)), (w * v * 3).sum()).backward()
            (w * u).sum().backward()
            (w * w).sum().backward(inputs=[w])
            refused = caught(lambda: grad((w * v).sum(), [v]))
            seen.append(getattr(refused, "text", "nothing refused")[:60])
            (w * v * u).sum().backward()

        handle = register() if where == "before" else None
        with context():
            handle = register() if where == "inside" else handle
            run(0)
        handle = register() if where == "between" else handle
        with context():
            run(3)                           # in which the leaves' nodes have other numbers
        if make is torch.tensor:             # the other leaves are for contexts only
            run(0)
        handle.remove()
        with context():
            run(1)
        return seen

    def torchs(data, requires_grad):
        return torch.tensor(data, requires_grad=requires_grad)

    wanted = program(nullcontext, torch.tensor if make is torch.tensor else torchs)
    assert len(wanted) > 5
    assert program(lambda: ao.AutogradGraph(optimize=optimize), make) == wanted


def test_a_hook_of_leaves_and_of_a_result_of_a_graph_that_is_left():
    """The result takes part in no later run; None is passed for it."""
    x, seen = torch.tensor([1.0, 2.0], requires_grad=True), []
    with ao.AutogradGraph():
        y = x * 2
        torch.autograd.graph.register_multi_grad_hook([x, y], lambda gs: seen.append([g is not None for g in gs]))
        y.sum().backward()
    with ao.AutogradGraph():
        (x * 3).sum().backward()
    (x * 3).sum().backward()
    assert seen == [[True, True], [True, False], [True, False]]


@pytest.mark.parametrize(("inside", "make"), [(True, torch.tensor), (True, ao.tensor), (False, ao.tensor)])
def test_a_hook_of_several_leaves_keeps_none_alive(inside, make):
    """torch's own does, and a plain tensor gets that outside a context."""
    x = make([1.0], requires_grad=True)
    with ao.AutogradGraph() if inside else nullcontext():
        torch.autograd.graph.register_multi_grad_hook([x], lambda gs: None)
    with ao.AutogradGraph():
        (x * 2).sum().backward()
    alive = weakref.ref(x)
    del x
    gc.collect()
    assert alive() is None
