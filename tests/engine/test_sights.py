"""What hooks see where no cotangent comes, in which order leaves get theirs, and edges in every position."""

from __future__ import annotations

import torch
from torch.autograd.graph import GradientEdge, get_gradient_edge

import autograd_opt as ao
from tests.engine.behaviour import caught, group

Function = torch.autograd.Function
F = torch.nn.functional
sights = group("hooks without a cotangent, the order of leaves, edges")


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


@sights("test_grad_nonleaf_register_hook")
def nothing_comes(new):
    """A Function that sends nothing: the hooks below are called with None, and no .grad is made."""
    x, y, seen = new(1.0, 2.0), new(3.0, 4.0), []
    a = x * 2
    watch(a, "a", seen)
    watch(x, "x", seen)
    a.retain_grad()
    First.apply(a, y).sum().backward()
    return seen, a.grad, x.grad, y.grad


@sights("test_gradcheck_undefined_grad")
def nothing_comes_to_a_function(new):
    """A Function that is sent nothing is called with zeros, or with None on request."""
    x, y, seen = new(1.0, 2.0), new(3.0, 4.0), []
    First.apply(recorder(seen).apply(x * 3), y).sum().backward()
    z = new(1.0, 2.0)
    First.apply(recorder(seen, False).apply(z * 3), y).sum().backward()
    return seen, x.grad, z.grad


@sights("test_gradcheck_undefined_grad")
def nothing_beside_something(new):
    """Nothing on one way and something on another: what comes is what is there."""
    x, y, seen = new(1.0, 2.0), new(3.0, 4.0), []
    a = x * 2
    watch(a, "a", seen)
    (First.apply(a, y) + a * 5).sum().backward()
    b = x * 2
    (b * 5 + First.apply(b, y)).sum().backward()
    return seen, x.grad, y.grad


@sights("test_hook_none")
def nothing_cannot_be_replaced(new):
    """A hook that returns a gradient where none has come is refused."""
    x, y = new(1.0, 2.0), new(3.0, 4.0)
    a = x * 2
    a.register_hook(lambda g: torch.ones(2).double())
    before = caught(lambda: First.apply(a, y).sum().backward())
    b = x * 2
    b.grad_fn.register_prehook(lambda gs: (torch.ones(2).double(),))
    return before, caught(lambda: First.apply(b, y).sum().backward()), x.grad


@sights("test_grad_nonleaf_register_hook")
def nothing_in_second_order(new):
    """The same in a run that creates a graph, and in grad() of what got nothing."""
    x, y, seen = new(1.0, 2.0), new(3.0, 4.0), []
    a = x * 2
    watch(a, "a", seen)
    out = First.apply(a, y).sum()
    got = torch.autograd.grad(out, [x, y, a], create_graph=True, allow_unused=True)
    return seen, got[0] is None, got[1], got[2] is None


@sights("test_grad_nonleaf_register_hook")
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


@sights("test_grad_nonleaf_register_hook")
def outputs_and_grad(new):
    """grad() of one part of a split calls the hooks of all parts."""
    x, seen = new(1.0, 2.0, 3.0), []
    parts = x.split(1)
    for k, t in enumerate(parts):
        t.register_hook(lambda g, k=k: seen.append((k, listed(g))))
    got = torch.autograd.grad(parts[0].sum() * 3, parts[0], retain_graph=True)
    (parts[0].sum() + parts[2].sum()).backward()
    return seen, got, x.grad


@sights("test_backward_with_nonleaf_inputs")
def a_retained_sibling_of_an_input(new):
    """An output that retains its gradient gets it when another output of its operation is asked for."""
    x = new(1.0, 2.0, 3.0)
    v, m = torch.var_mean(x, dim=0)
    m.retain_grad()
    (x.sum() * 2 + m * 3).backward(inputs=[v], retain_graph=True)
    got = torch.autograd.grad(x.sum() + m * 5, [v], allow_unused=True)
    return v.grad, m.grad, x.grad, got[0] is None


@sights("test_grad_fn_prehooks_multiple_outputs")
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


@sights("test_grad_fn_prehooks_multiple_outputs")
def node_hooks_see_no_indices(new):
    """Node hooks of an operation with indices among its outputs see the cotangents of the others."""
    x, seen = new([[1.0, 3.0, 2.0], [4.0, 0.0, 5.0]]), []
    for values in (x.max(1)[0], x.sort()[0], x.topk(2)[0], x.cummax(0)[0]):
        values.grad_fn.register_prehook(lambda gs: (gs[0] * 2,))
        values.grad_fn.register_prehook(lambda gs: seen.append([listed(g) for g in gs]))
        values.grad_fn.register_hook(lambda gi, go: seen.append([listed(g) for g in go]))
        values.sum().backward()
    return seen, x.grad


@sights("test_grad_nonleaf_register_hook")
def outputs_with_nodes_of_their_own(new):
    """What torch computes piece by piece calls the hooks of the pieces that are reached."""
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


@sights("test_multi_grad_all_hooks")
def multi_grad_hooks_in_grad(new):
    """A hook of several tensors, a leaf among them, in runs of grad() that do not ask for that leaf."""
    x, y, z, seen = new.scalar(1.0), new.scalar(2.0), new.scalar(3.0), []
    a, b = x * y, y * z
    torch.autograd.graph.register_multi_grad_hook([a, b, x], lambda gs: seen.append([listed(g) for g in gs]))
    torch.autograd.graph.register_multi_grad_hook([a, b], lambda g: seen.append(listed(g)), mode="any")
    torch.autograd.grad(b.sum(), y, retain_graph=True)
    refused = caught(lambda: torch.autograd.grad(a.sum(), [x, y], retain_graph=True))
    return seen, refused, torch.autograd.grad((a * b).sum(), z)


@sights("test_custom_function_saved_tensors")
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


def writer(new, order):
    """Makes leaves that write down when they have got their gradient."""
    def leaf(name, *size):
        t = new(torch.ones(size or (2,), dtype=torch.double))
        t.register_post_accumulate_grad_hook(lambda t: order.append(name))
        return t
    return leaf


@sights("test_post_accumulate_grad_hook_ordering")
def order_of_two_and_three(new):
    """Leaves of one operation get their gradients first to last."""
    order = []
    leaf = writer(new, order)
    (leaf("a") * leaf("b")).sum().backward()
    torch.addcmul(leaf("c"), leaf("d"), leaf("e")).sum().backward()
    (leaf("f") / leaf("g") + leaf("h") * leaf("i")).sum().backward()
    torch.where(leaf("j") > 0, leaf("k"), leaf("l")).sum().backward()
    return order


@sights("test_post_accumulate_grad_hook_ordering")
def order_of_many(new):
    """More than three wait in a heap."""
    order = []
    leaf = writer(new, order)
    for n in range(4, 10):
        torch.stack([leaf(k) for k in range(n)]).sum().backward()
        order.append("|")
    return order


@sights("test_post_accumulate_grad_hook_ordering")
def order_in_products(new):
    """What a product transposes or folds first comes last."""
    order = []
    leaf = writer(new, order)
    (leaf("x", 2, 3) @ leaf("w", 3, 2) + leaf("b", 2)).sum().backward()
    torch.addmm(leaf("b"), leaf("x", 2, 3), leaf("w", 3, 2)).sum().backward()
    (leaf("z", 2, 2, 3) @ leaf("w", 3, 2)).sum().backward()
    F.linear(leaf("x", 2, 3), leaf("w", 4, 3), leaf("b", 4)).sum().backward()
    F.linear(leaf("x", 2, 3), leaf("w", 4, 3)).sum().backward()
    return order


@sights("test_post_accumulate_grad_hook_ordering")
def order_of_leaves_used_before(new):
    """A leaf gets its gradient when its last cotangent has come, whenever the graph has met it first."""
    order = []
    leaf = writer(new, order)
    a, b, c = leaf("a"), leaf("b"), leaf("c")
    (a * b * c).sum().backward()
    for product in (lambda: c * b * a, lambda: (b * 2) + (a * c), lambda: (a * b).sin() * (a * 3),
                    lambda: b + a + c * b):
        order.append("|")
        product().sum().backward()
    order.append("|")
    torch.stack([c, a, b, leaf("d"), leaf("e")]).sum().backward()
    return order


@sights("test_post_accumulate_grad_hook_ordering")
def a_hook_frees_gradients_in_time(new):
    """Gradients that hooks free as they come are never all there at once."""
    alive, most = set(), [0]

    def freed(t):
        alive.add(id(t))
        most[0] = max(most[0], sum(p.grad is not None for p in params))
        t.grad = None

    params = [new(torch.ones(2, dtype=torch.double)) for _ in range(4)]
    for p in params:
        p.register_post_accumulate_grad_hook(freed)
    for _ in range(3):
        x = torch.ones(2, dtype=torch.double)
        for p in params:
            x = (x * p).sin()
        x.sum().backward()
    return most


def test_order_in_a_network() -> None:
    """A hook that steps and frees each gradient sees the Parameters in torch's order."""
    net = torch.nn.Sequential(torch.nn.Linear(3, 3), torch.nn.LayerNorm(3), torch.nn.Linear(3, 3, bias=False),
                              torch.nn.PReLU(), torch.nn.BatchNorm1d(3), torch.nn.Linear(3, 2))
    x = torch.randn(4, 3, requires_grad=True)
    order: list[str] = []
    for name, p in [*net.named_parameters(), ("x", x)]:
        p.register_post_accumulate_grad_hook(lambda t, name=name: order.append(name))
    net(x).sum().backward()
    expected = list(order)
    for optimize in (False, True):
        order.clear()
        with ao.AutogradGraph(optimize):
            net(x).sum().backward()
        assert order == expected


def test_a_leaf_that_fails_leaves_nothing_waiting() -> None:
    """An error in the hook of one leaf of several: those before it have their gradient, the next run is right."""
    a, b, c = (torch.tensor([float(k)], requires_grad=True) for k in (1, 2, 3))

    def fail(t: torch.Tensor) -> None:
        raise RuntimeError("stop")

    handle = b.register_post_accumulate_grad_hook(fail)
    with ao.AutogradGraph():
        out = torch.addcmul(a, b, c).sum()
        assert caught(lambda: out.backward(retain_graph=True)).text == "stop"
        assert a.grad is not None
        assert c.grad is None
        handle.remove()
        a.grad = b.grad = None
        out.backward()
    assert [t.grad.item() for t in (a, b, c)] == [1.0, 3.0, 2.0]


# ----- edges in every position -----
@sights("test_gradient_edge_output")
def an_edge_alone(new):
    """A GradientEdge is the only root of backward, and root and input of grad."""
    x = new(1.0, 2.0)
    y = x * x
    torch.autograd.backward(get_gradient_edge(y.sum()), retain_graph=True)
    torch.autograd.backward([get_gradient_edge(y)], [torch.tensor([1.0, 5.0]).double()], retain_graph=True)
    torch.autograd.backward((get_gradient_edge(y.sum()), get_gradient_edge(x)), (None, y.detach()), retain_graph=True)
    edge = get_gradient_edge(x)
    got = torch.autograd.grad(get_gradient_edge((y * y).sum()), (edge, get_gradient_edge(y)), retain_graph=True)
    return x.grad, got


@sights("test_gradient_edge_output")
def an_edge_alone_and_inputs(new):
    """backward(edge, inputs=edge), and create_graph from an edge to an edge."""
    x, w = new(1.0, 2.0), new(3.0, 4.0)
    y = x * w
    torch.autograd.backward(get_gradient_edge(y.exp().sum()), inputs=[get_gradient_edge(w)], retain_graph=True)
    g, = torch.autograd.grad(get_gradient_edge((y * y).sum()), get_gradient_edge(x), create_graph=True)
    h = torch.autograd.grad(get_gradient_edge(g.sum()), get_gradient_edge(w))
    return x.grad, w.grad, g, h


@sights("test_gradient_edge_output")
def what_an_edge_refuses(new):
    """No implicit cotangent for more than one number; shapes and counts are checked."""
    x = new(1.0, 2.0)
    y = get_gradient_edge(x * x)
    backward, grad = torch.autograd.backward, torch.autograd.grad
    return (caught(lambda: backward(y)), caught(lambda: backward(y, torch.ones(3).double()), 20),
            caught(lambda: grad(y, get_gradient_edge(x), torch.ones(3).double()), 20),
            caught(lambda: grad(y, get_gradient_edge(new(1.0)), torch.ones(2).double())),
            grad(y, get_gradient_edge(new(1.0)), torch.ones(2).double(), allow_unused=True)[0] is None)


@sights("test_gradient_edge_output")
def an_edge_of_one_of_several(new):
    """Edges of the outputs of a split."""
    x = new(1.0, 2.0, 3.0)
    a, b, c = x.unbind()
    torch.autograd.backward(get_gradient_edge(b), retain_graph=True)
    e = [get_gradient_edge(t) for t in (a, b, c)]
    torch.autograd.backward(e, [torch.tensor(k).double() for k in (1.0, 2.0, 3.0)], retain_graph=True)
    z = (a * b + c).exp()
    return x.grad, torch.autograd.grad(get_gradient_edge(z), e), [edge.output_nr for edge in e]


@sights("test_gradient_edge_output")
def batched_edges(new):
    """is_grads_batched from an edge to an edge."""
    x = new(1.0, 2.0)
    y = x * x
    rows = torch.tensor([[1.0, 0.0], [0.0, 1.0], [1.0, 1.0]]).double()
    return torch.autograd.grad(get_gradient_edge(y), get_gradient_edge(x), rows, is_grads_batched=True)


@sights("test_input_metadata")
def metadata_of_edges(new):
    """What a node says of its outputs."""
    x = new(1.0, 2.0, 3.0)
    a = x.unbind()[0]
    nodes = [(x * 2).grad_fn, (x.sum()).grad_fn, a.grad_fn, x.reshape(3, 1).float().grad_fn]
    return [[(tuple(m.shape), str(m.dtype), str(m.device), m.is_nested_tensor) for m in n._input_metadata]
            for n in nodes]


def test_an_edge_of_a_leaf_from_outside() -> None:
    """An edge of a leaf may be made anywhere."""
    x = torch.tensor([1.0, 2.0], requires_grad=True)
    edge = get_gradient_edge(x)
    with ao.AutogradGraph():
        y = (x * x).sum()
        assert torch.autograd.grad(y, edge, retain_graph=True)[0].tolist() == [2.0, 4.0]
        torch.autograd.backward(get_gradient_edge(y), inputs=edge)
    assert x.grad.tolist() == [2.0, 4.0]


def test_an_edge_after_its_graph() -> None:
    """An edge that outlives its graph is refused in words; torch's own edges go on working."""
    x = torch.tensor([1.0, 2.0], requires_grad=True)
    with ao.AutogradGraph():
        edge = get_gradient_edge((x * x).sum())
        of_leaf = get_gradient_edge(x)
    assert caught(lambda: torch.autograd.backward(edge)).type is ao.OutsideGraphError
    assert caught(lambda: torch.autograd.grad(edge, of_leaf)).type is ao.OutsideGraphError
    assert x.grad is None
    own = get_gradient_edge((x * x).sum())
    assert isinstance(own, GradientEdge)
    torch.autograd.backward(own)
    assert x.grad.tolist() == [2.0, 4.0]


def test_an_edge_in_another_graph() -> None:
    x = torch.tensor([1.0, 2.0], requires_grad=True)
    with ao.AutogradGraph():
        edge = get_gradient_edge((x * x).sum())
        with ao.AutogradGraph():
            assert caught(lambda: torch.autograd.backward(edge)).type is ao.GraphMismatchError
        torch.autograd.backward(edge)
    assert x.grad.tolist() == [2.0, 4.0]


test_sights = sights.check()


def test_only_what_accumulates_into_a_leaf_has_a_variable() -> None:
    """Programs that draw a graph tell leaves by it."""
    x = torch.ones(2, requires_grad=True)

    class Scaled(Function):
        @staticmethod
        def forward(ctx, x):
            ctx.variable = "the function's own"
            return x * 2

        @staticmethod
        def backward(ctx, g):
            return g * 2

    for context in (None, ao.AutogradGraph(), ao.AutogradGraph(optimize=True)):
        if context is not None:
            context.__enter__()
        y = x * 3
        assert not hasattr(y.grad_fn, "variable")
        assert y.grad_fn.next_functions[0][0].variable is x
        assert Scaled.apply(x).grad_fn.variable == "the function's own"
        if context is not None:
            context.__exit__(None, None, None)
