"""Hooks where no cotangent comes."""

from __future__ import annotations

import torch
from torch.autograd import Function

import autograd_opt as ao
from tests.engine.behaviour import caught, group

undefined = group("hooks without a cotangent")


def listed(g):
    """A cotangent as numbers, None where there is none."""
    return None if g is None else g.detach().reshape(-1).tolist()


def watch(t, name, seen):
    """Every hook of `t` and of its node writes down what it sees."""
    t.register_hook(lambda g: seen.append((name, listed(g))))
    if t.is_leaf:
        t.register_post_accumulate_grad_hook(lambda t: seen.append((name, "post", listed(t.grad))))
    else:
        t.grad_fn.register_prehook(lambda gs: seen.append((name, "pre", [listed(g) for g in gs])))
        t.grad_fn.register_hook(
            lambda gi, go: seen.append((name, "post", [listed(g) for g in gi], [listed(g) for g in go])))


class First(Function):
    """A product that sends nothing to its first operand."""

    @staticmethod
    def forward(ctx, x, y):
        return x * y

    @staticmethod
    def backward(ctx, g):
        return None, g * 2


def recorder(seen, materialize=True):
    """A Function that writes down its cotangents."""
    class Twice(Function):
        @staticmethod
        def forward(ctx, x):
            ctx.set_materialize_grads(materialize)
            return x * 2

        @staticmethod
        def backward(ctx, g):
            seen.append(("Twice", listed(g)))
            return None if g is None else g * 2
    return Twice


@undefined("test_grad_nonleaf_register_hook")
def nothing_comes(new):
    """A Function returns None: the hooks below it are called with None, and no .grad is made."""
    x, y, seen = new(1.0, 2.0), new(3.0, 4.0), []
    a = x * 2
    watch(a, "a", seen)
    watch(x, "x", seen)
    a.retain_grad()
    First.apply(a, y).sum().backward()
    return seen, a.grad, x.grad, y.grad


@undefined("test_gradcheck_undefined_grad")
def nothing_comes_to_a_function(new):
    """A Function that receives no cotangent is called with zeros, or with None on request."""
    x, y, seen = new(1.0, 2.0), new(3.0, 4.0), []
    First.apply(recorder(seen).apply(x * 3), y).sum().backward()
    z = new(1.0, 2.0)
    First.apply(recorder(seen, False).apply(z * 3), y).sum().backward()
    return seen, x.grad, z.grad


@undefined("test_gradcheck_undefined_grad")
def nothing_beside_something(new):
    """If one path carries no cotangent and another path carries one, the sum is that one cotangent."""
    x, y, seen = new(1.0, 2.0), new(3.0, 4.0), []
    a = x * 2
    watch(a, "a", seen)
    (First.apply(a, y) + a * 5).sum().backward()
    b = x * 2
    (b * 5 + First.apply(b, y)).sum().backward()
    return seen, x.grad, y.grad


@undefined("test_hook_none")
def nothing_cannot_be_replaced(new):
    """A hook that is called with None and returns a gradient is refused."""
    x, y = new(1.0, 2.0), new(3.0, 4.0)
    a = x * 2
    a.register_hook(lambda g: torch.ones(2).double())
    before = caught(lambda: First.apply(a, y).sum().backward())
    b = x * 2
    b.grad_fn.register_prehook(lambda gs: (torch.ones(2).double(),))
    return before, caught(lambda: First.apply(b, y).sum().backward()), x.grad


@undefined("test_grad_nonleaf_register_hook")
def nothing_in_second_order(new):
    """Hooks without a cotangent in a run with create_graph, and in grad() of a tensor without a cotangent."""
    x, y, seen = new(1.0, 2.0), new(3.0, 4.0), []
    a = x * 2
    watch(a, "a", seen)
    out = First.apply(a, y).sum()
    got = torch.autograd.grad(out, [x, y, a], create_graph=True, allow_unused=True)
    return seen, got[0] is None, got[1], got[2] is None


@undefined("test_grad_nonleaf_register_hook")
def outputs_without_a_cotangent(new):
    """Hooks of all outputs are called where the operation runs, in order of registration."""
    x, seen = new(1.0, 2.0, 3.0), []
    a, b, c = x.unbind()
    for name, t in (("c", c), ("a", a), ("b", b)):
        t.register_hook(lambda g, name=name: seen.append((name, listed(g))))
    a.retain_grad()
    b.retain_grad()
    (a * 2 + c).backward(retain_graph=True)
    between = b.grad
    b.backward()
    return seen, between, a.grad, b.grad, x.grad


@undefined("test_grad_nonleaf_register_hook")
def outputs_and_grad(new):
    """grad() of one part of a split calls the hooks of all parts."""
    x, seen = new(1.0, 2.0, 3.0), []
    parts = x.split(1)
    for k, t in enumerate(parts):
        t.register_hook(lambda g, k=k: seen.append((k, listed(g))))
    got = torch.autograd.grad(parts[0].sum() * 3, parts[0], retain_graph=True)
    (parts[0].sum() + parts[2].sum()).backward()
    return seen, got, x.grad


@undefined("test_backward_with_nonleaf_inputs")
def a_retained_sibling_of_an_input(new):
    """An output that retains its gradient gets it when another output of its operation is asked for."""
    x = new(1.0, 2.0, 3.0)
    v, m = torch.var_mean(x, dim=0)
    m.retain_grad()
    (x.sum() * 2 + m * 3).backward(inputs=[v], retain_graph=True)
    got = torch.autograd.grad(x.sum() + m * 5, [v], allow_unused=True)
    return v.grad, m.grad, x.grad, got[0] is None


@undefined("test_grad_fn_prehooks_multiple_outputs")
def node_hooks_see_every_output(new):
    """Hooks of a Function's node see its non-differentiable outputs, too, and may replace the others."""
    seen = []

    class Three(Function):
        @staticmethod
        def forward(ctx, x):
            a, b, c = x > 1, x * 2, x.clone()
            ctx.mark_non_differentiable(a, c)
            return a, b, c

        @staticmethod
        def backward(ctx, ga, gb, gc):
            seen.append([listed(ga), listed(gb), listed(gc)])
            return gb * 2

    x = new(1.0, 2.0)
    _, b, _ = Three.apply(x * 1)
    b.grad_fn.register_prehook(lambda gs: (gs[0], gs[1] * 10, gs[2]))
    watch(b, "b", seen)
    b.sum().backward()
    return seen, x.grad


@undefined("test_grad_fn_prehooks_multiple_outputs")
def node_hooks_see_no_indices(new):
    """Node hooks of an operation with indices among its outputs see the cotangents of the others."""
    x, seen = new([[1.0, 3.0, 2.0], [4.0, 0.0, 5.0]]), []
    for values in (x.max(1)[0], x.sort()[0], x.topk(2)[0], x.cummax(0)[0]):
        values.grad_fn.register_prehook(lambda gs: (gs[0] * 2,))
        values.grad_fn.register_prehook(lambda gs: seen.append([listed(g) for g in gs]))
        values.grad_fn.register_hook(lambda gi, go: seen.append([listed(g) for g in go]))
        values.sum().backward()
    return seen, x.grad


@undefined("test_grad_nonleaf_register_hook")
def outputs_with_nodes_of_their_own(new):
    """An operation that torch composes from several calls runs the hooks of the calls that are reached."""
    x, seen = new.randn(3, 1, 2), []
    layer = torch.nn.LSTM(2, 3).double()
    out, (h, c) = layer(x)
    for name, t in (("out", out), ("h", h), ("c", c)):
        t.register_hook(lambda g, name=name: seen.append((name, g is None)))
    for k, t in enumerate(torch.tensor_split(out, 3)):
        t.register_hook(lambda g, k=k: seen.append((k, g is None)))
        if k != 1:
            t.sum().backward(retain_graph=True)
    return seen, x.grad


@undefined("test_multi_grad_all_hooks")
def multi_grad_hooks_in_grad(new):
    """A hook of several tensors, a leaf among them, in runs of grad() that do not ask for that leaf."""
    x, y, z, seen = new.scalar(1.0), new.scalar(2.0), new.scalar(3.0), []
    a, b = x * y, y * z
    torch.autograd.graph.register_multi_grad_hook([a, b, x], lambda gs: seen.append([listed(g) for g in gs]))
    torch.autograd.graph.register_multi_grad_hook([a, b], lambda g: seen.append(listed(g)), mode="any")
    torch.autograd.grad(b.sum(), y, retain_graph=True)
    refused = caught(lambda: torch.autograd.grad(a.sum(), [x, y], retain_graph=True))
    return seen, refused, torch.autograd.grad((a * b).sum(), z)


@undefined("test_custom_function_saved_tensors")
def saved_tensors_of_a_function_node(new):
    """grad_fn of a Function shows what it has saved; other nodes have no such attribute."""
    x = new(1.0, 2.0)

    class Keeps(Function):
        @staticmethod
        def forward(ctx, x, n):
            y = x * n
            ctx.save_for_backward(x, y)
            ctx.n = n
            return y

        @staticmethod
        def backward(ctx, g):
            return g * ctx.n, None

    y = Keeps.apply(x, 3)
    node = y.grad_fn
    before = [*node.saved_tensors, node.n]
    y.sum().backward()
    return list(before), caught(lambda: node.saved_tensors), hasattr((x * 2).grad_fn, "saved_tensors")


test_hooks_without_cotangent = undefined.check()


def test_what_merges_with_a_view_that_leads_nowhere_sends_it_nothing():
    s, seen = torch.tensor([0.5], requires_grad=True), []
    with ao.AutogradGraph(optimize=True):
        hidden = s.cos()
        hidden.register_hook(seen.append)
        with torch.no_grad():
            v = hidden.view(-1)
        ((v + 1) @ (v + 1) + (v * 1 * s).sum()).backward()      # v * 1 is v
    assert seen == []
