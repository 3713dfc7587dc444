"""Gradient edges as roots, inputs, and after writes."""

from __future__ import annotations

import gc

import torch
from torch.autograd import Function, grad
from torch.autograd.graph import (
    GradientEdge,
    get_gradient_edge,
)

import autograd_opt as ao
from tests.engine.behaviour import caught, group

edges = group("gradient edges in every position")


@edges("test_gradient_edge_output")
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


@edges("test_gradient_edge_output")
def an_edge_alone_and_inputs(new):
    """backward(edge, inputs=edge), and create_graph from an edge to an edge."""
    x, w = new(1.0, 2.0), new(3.0, 4.0)
    y = x * w
    torch.autograd.backward(get_gradient_edge(y.exp().sum()), inputs=[get_gradient_edge(w)], retain_graph=True)
    g, = torch.autograd.grad(get_gradient_edge((y * y).sum()), get_gradient_edge(x), create_graph=True)
    h = torch.autograd.grad(get_gradient_edge(g.sum()), get_gradient_edge(w))
    return x.grad, w.grad, g, h


@edges("test_gradient_edge_output")
def what_an_edge_refuses(new):
    """No implicit cotangent for more than one number; shapes and counts are checked."""
    x = new(1.0, 2.0)
    y = get_gradient_edge(x * x)
    backward, grad = torch.autograd.backward, torch.autograd.grad
    return (caught(lambda: backward(y)), caught(lambda: backward(y, torch.ones(3).double()), 20),
            caught(lambda: grad(y, get_gradient_edge(x), torch.ones(3).double()), 20),
            caught(lambda: grad(y, get_gradient_edge(new(1.0)), torch.ones(2).double())),
            grad(y, get_gradient_edge(new(1.0)), torch.ones(2).double(), allow_unused=True)[0] is None)


@edges("test_gradient_edge_output")
def an_edge_of_one_of_several(new):
    """Edges of the outputs of a split."""
    x = new(1.0, 2.0, 3.0)
    a, b, c = x.unbind()
    torch.autograd.backward(get_gradient_edge(b), retain_graph=True)
    e = [get_gradient_edge(t) for t in (a, b, c)]
    torch.autograd.backward(e, [torch.tensor(k).double() for k in (1.0, 2.0, 3.0)], retain_graph=True)
    z = (a * b + c).exp()
    return x.grad, torch.autograd.grad(get_gradient_edge(z), e), [edge.output_nr for edge in e]


@edges("test_gradient_edge_output")
def an_edge_of_one_with_a_node_of_its_own(new):
    """Edges and node hooks of each result, for a call of which torch makes one node for each result."""
    x = new.randn(4, 2)
    seen = []
    for split in (lambda t: torch.tensor_split(t, 2), lambda t: t.vsplit(2), lambda t: t.hsplit([1]),
                  lambda t: t.unsqueeze(2).expand(4, 2, 2).dsplit(2)):
        pieces = split(x * 1)
        e = [get_gradient_edge(t) for t in pieces]
        pieces[1].grad_fn.register_prehook(lambda g: seen.append(g))
        out = sum((k + 2) * t.square().sum() for k, t in enumerate(pieces))
        seen.append(grad(out, [*e, x], retain_graph=True))
        seen.append(grad(e, x, [t.detach() for t in pieces]))
        seen.append([(node.node.name(), node.node.next_functions[0][0].name(), node.output_nr) for node in e])
    return seen


@edges("test_gradient_edge_output")
def batched_edges(new):
    """is_grads_batched from an edge to an edge."""
    x = new(1.0, 2.0)
    y = x * x
    rows = torch.tensor([[1.0, 0.0], [0.0, 1.0], [1.0, 1.0]]).double()
    return torch.autograd.grad(get_gradient_edge(y), get_gradient_edge(x), rows, is_grads_batched=True)


@edges("test_input_metadata")
def metadata_of_edges(new):
    """The metadata that a node gives about its outputs."""
    x = new(1.0, 2.0, 3.0)
    a = x.unbind()[0]
    nodes = [(x * 2).grad_fn, (x.sum()).grad_fn, a.grad_fn, x.reshape(3, 1).float().grad_fn]
    return [[(tuple(m.shape), str(m.dtype), str(m.device), m.is_nested_tensor) for m in n._input_metadata]
            for n in nodes]


@edges("test_grad_to_node_inplace")
def edges_and_writes(new):
    """An edge taken before a write belongs to the value before it."""
    x = new.randn(2)
    y = x * 2
    before = get_gradient_edge(y)
    y.mul_(3)
    after = get_gradient_edge(y)
    out = y.sum()
    return grad(out, before, retain_graph=True), grad(out, after, retain_graph=True), grad(out, y)


@edges("test_gradient_edge_graph_ownership")
def edge_keeps_the_graph(new):
    """An edge keeps what is needed to differentiate it."""
    x = new.randn(2)

    def make():
        return torch.autograd.graph.get_gradient_edge((x.exp() * x).sum())

    edge = make()
    gc.collect()
    return grad(edge, x)


test_edges_everywhere = edges.check()


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
