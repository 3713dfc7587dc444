"""Views that torch has made of a leaf outside any context, used inside: the gradient goes to the leaf, as in torch."""

from __future__ import annotations

import contextlib
import gc
import random

import pytest
import torch

import autograd_opt as ao

MAKE = {
    "unbind": lambda w: w.unbind()[1], "iter": lambda w: list(w)[2], "select": lambda w: w[1],
    "split": lambda w: w.split(2)[0], "chunk": lambda w: w.chunk(2, 1)[1],
    "tensor_split": lambda w: w.tensor_split(2)[1], "hsplit": lambda w: w.hsplit(2)[0],
    "a view of one of several": lambda w: w.unbind()[1][:1],
}


def outcome(make, write, context):
    w = torch.arange(6.0).reshape(3, 2).clone().requires_grad_()
    view = make(w)
    with torch.no_grad():
        if write == "base written":
            w.add_(1)
        if write == "view written":
            view.add_(1)
    try:
        with context:
            (view * view).sum().backward()
    except RuntimeError:
        return "refused"
    return w.grad.tolist()


@pytest.mark.parametrize("optimize", [False, True])
@pytest.mark.parametrize("write", ["unwritten", "base written", "view written"])
@pytest.mark.parametrize("name", MAKE)
def test_as_in_torch(name, write, optimize):
    expected = outcome(MAKE[name], write, contextlib.nullcontext())
    assert expected != "refused" or write != "unwritten"
    assert outcome(MAKE[name], write, ao.AutogradGraph(optimize=optimize)) == expected


def views_of_a_leaf(context):
    """What is said of views made under no_grad, and before their base required grad, after and outside a context."""
    seen = []
    for late in (False, True):
        w = torch.arange(6.0)
        if late:
            view = w[:4]
            w.requires_grad_()
        else:
            w.requires_grad_()
            with torch.no_grad():
                view = w[:4]
        seen.append((view.requires_grad, view.is_leaf, view.grad_fn, repr(view)))
        with context():
            result = view * 2
            made = torch.arange(6.0).requires_grad_() if not late else w
            with torch.no_grad():
                other = made[1:]
        for t in (view, other):
            seen.append((t.requires_grad, t.is_leaf, t.grad_fn, repr(t)))
        seen.append((result.requires_grad, result.is_leaf))
        w.requires_grad_(False)
        seen.append((view.requires_grad, view.is_leaf, repr(view)))
    return seen


@pytest.mark.parametrize("optimize", [False, True])
def test_a_view_requires_grad_with_its_base_after_the_context(optimize):
    assert views_of_a_leaf(lambda: ao.AutogradGraph(optimize=optimize)) == views_of_a_leaf(contextlib.nullcontext)


def views_of_a_written_base(context, write):
    """What views of a constant are in the next graph, where a graph has written their base by way of a leaf."""
    base, s = torch.zeros(4), torch.tensor(2.0, requires_grad=True)
    before = base[2:]
    with context():
        view, read, copy = base[1:], base[:3], base.clone()[1:]
        read * 2
        write(base, s)
    del copy
    seen = []
    with context():
        for t in (before, view, read):
            with torch.no_grad():
                seen.append((t * 2).requires_grad)
            seen += [(t * 2).requires_grad, t.requires_grad, t.is_leaf, t[1:].requires_grad, t.detach().requires_grad]
            seen.append((torch.zeros(1).add_(t.sum()).requires_grad, (t > 1).tolist(), t.grad_fn.name()))
    return seen


@pytest.mark.parametrize("optimize", [False, True, "exact"])
@pytest.mark.parametrize("write", [
    lambda base, s: base.add_(s), lambda base, s: base[3:].mul_(s), lambda base, s: base.__setitem__(0, s)])
def test_a_write_is_seen_by_views_in_the_next_graph(write, optimize):
    expected = views_of_a_written_base(contextlib.nullcontext, write)
    assert views_of_a_written_base(lambda: ao.AutogradGraph(optimize=optimize), write) == expected


def test_views_that_torch_refuses_in_the_next_graph():
    base, s = torch.zeros(4), torch.tensor(2.0, requires_grad=True)
    with ao.AutogradGraph():
        half, _ = base.split(2)
        with torch.no_grad():
            view = base[1:]
        base.add_(s)
    with ao.AutogradGraph():
        for t in (half, view):
            with pytest.raises(RuntimeError, match="has been modified inplace"):
                t * 2


@pytest.mark.parametrize("optimize", [False, True])
@pytest.mark.parametrize("made", ["outside", "in a graph before", "in the same graph"])
@pytest.mark.parametrize("create", [
    ao.tensor, torch.tensor, lambda values: ao.CustomTensor(torch.tensor(values), requires_grad=False),
], ids=["tensor", "torch", "CustomTensor"])
def test_a_view_requires_grad_with_its_base_in_every_graph_to_come(create, made, optimize):
    def view_of_a_base():
        base = create([[1.0, 2.0], [3.0, 4.0]])
        view = base[:, 0]
        base.requires_grad_()
        return base, view

    if made == "outside":
        base, view = view_of_a_base()
    elif made == "in a graph before":
        with ao.AutogradGraph(optimize=optimize):
            base, view = view_of_a_base()
    with ao.AutogradGraph(optimize=optimize):
        if made == "in the same graph":
            base, view = view_of_a_base()
        result = view * 2
        assert base.requires_grad
        assert view.requires_grad
        assert result.requires_grad


def test_a_view_requires_grad_with_its_base_where_nothing_was_found_for_long():
    """A place at which values are not looked for any more asks whether gradients are followed, all the same."""
    def doubled(t):
        return t * 2

    with ao.AutogradGraph(optimize=True):
        for _ in range(300):
            doubled(torch.randn(1, 3))
    for _ in range(20):
        with ao.AutogradGraph(optimize=True):
            base = torch.randn(3)
            view = base.unsqueeze(0)
            base.requires_grad_()
            assert doubled(view).requires_grad


@pytest.mark.filterwarnings("ignore:Sparse invariant checks")          # torch 2.12's, of `to_sparse`
def test_a_sparse_tensor_that_was_written_does_not_disturb_the_next_graph():
    base = torch.sparse_coo_tensor([[0, 1], [1, 0]], [1.0, 2.0], (2, 2), check_invariants=False)
    view = base.detach()
    with ao.AutogradGraph():
        weight = torch.ones(2, 2, requires_grad=True)
        base.add_((weight * 2).to_sparse())
        assert base.requires_grad
    assert not view.requires_grad
    with ao.AutogradGraph():
        leaf = torch.ones(2, requires_grad=True)
        (leaf * 3).sum().backward()
    assert leaf.grad.tolist() == [3.0, 3.0]


def test_bases_that_end_while_a_graph_opens():
    """Garbage collection may run wherever Python makes an object, and end bases of views that came to require grad."""
    kept = []
    with ao.AutogradGraph():
        for _ in range(2000):
            base = torch.zeros(3)
            kept.append((base, base[:2]))
            base.requires_grad_()
    del base

    def end_one(phase, info):
        if phase == "start" and kept:
            kept.pop()

    threshold = gc.get_threshold()
    gc.callbacks.append(end_one)
    gc.set_threshold(1, 1, 1)
    try:
        with ao.AutogradGraph():
            pass
    finally:
        gc.set_threshold(*threshold)
        gc.callbacks.remove(end_one)
    assert kept


@pytest.mark.parametrize("optimize", [False, True])
@pytest.mark.parametrize("held", [False, True])
def test_a_view_of_a_leaf_that_is_a_view(held, optimize):
    """torch reads what was written without a record off the base, which does not require grad."""
    def program():
        base = torch.arange(3.0)
        leaf = (base if held else base.clone()).view(3, 1).requires_grad_()
        view = leaf.squeeze()
        with torch.no_grad():
            view.mul_(0.5)
        name = type(view.grad_fn).__name__
        (view.sum() * 2 + leaf.sum() * 4).backward()
        return view.requires_grad, name, leaf.grad.tolist()

    expected = program()
    with ao.AutogradGraph(optimize=optimize):
        assert program() == expected


@pytest.mark.parametrize("optimize", [False, True])
@pytest.mark.parametrize("asked", [False, True])
@pytest.mark.parametrize("make", [lambda t: t.t(), lambda t: t.t().select(0, 0), lambda t: t.expand(2, *t.shape)[0]])
def test_printing_a_view_of_what_was_written(make, asked, optimize):
    """Whoever looks first: a view whose base follows a gradient by now, or nobody."""
    def program():
        x = torch.ones(3, requires_grad=True)
        view = make(torch.ones(2, 3))
        view.select(0, 0).mul_(x.sum())
        seen = [view.requires_grad] if asked else []
        return [*seen, repr(view), view.grad_fn is None]

    expected = program()
    with ao.AutogradGraph(optimize=optimize):
        assert program() == expected


ACTS = {
    "v * 2": lambda p, v, u: v * 2, "u * 2": lambda p, v, u: (u * 2).sum(), "v * p": lambda p, v, u: (v * p).sum(),
    "write p": lambda p, v, u: p.mul_(2), "write v": lambda p, v, u: v.add_(1), "write u": lambda p, v, u: u.add_(1),
    "flag": lambda p, v, u: (v.requires_grad, u.requires_grad), "leaf": lambda p, v, u: (v.is_leaf, u.is_leaf),
    "history": lambda p, v, u: (v.grad_fn, u.grad_fn),
    "backward of v": lambda p, v, u: ((v * p).sum().backward(), p.grad, v.grad, u.grad),
    "backward of u": lambda p, v, u: ((u * p[:, 1:]).sum().backward(), p.grad, v.grad, u.grad),
    "freeze": lambda p, v, u: p.requires_grad_(False).requires_grad,
    "part": lambda p, v, u: (v[1:].requires_grad, u[:1].is_leaf), "detach": lambda p, v, u: v.detach().add_(1),
}


def played(acts, inside, context):
    """What each of (name, grad mode) gives for views of a parameter made under no_grad, in a context or before it."""
    p, seen = torch.nn.Parameter(torch.arange(1.0, 13).reshape(3, 4)), []

    def views():
        with torch.no_grad():
            v = p[0]
            return v, v[1:]

    made = None if inside else views()
    with context:
        v, u = made or views()
        for name, grad in acts:
            with torch.set_grad_enabled(grad):
                try:
                    given = ACTS[name](p, v, u)
                except RuntimeError:
                    given = "refused"
            given = given if isinstance(given, tuple) else (given,)
            seen.append([x.tolist() if isinstance(x, torch.Tensor) else x for x in given])
    return [*seen, v.tolist(), u.tolist(), p.tolist(), v.requires_grad]


@pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor that is not a leaf")
@pytest.mark.parametrize("optimize", [False, True])
@pytest.mark.parametrize("inside", [False, True])
@pytest.mark.parametrize("seed", range(40))
def test_a_view_made_under_no_grad_of_a_parameter(seed, inside, optimize):
    chosen = random.Random(seed)
    acts = [(chosen.choice(list(ACTS)), chosen.random() < 0.5) for _ in range(6)]
    acts.insert(chosen.randrange(6), ("freeze", True) if seed % 10 == 9 else ("write p", False))
    expected = played(acts, inside, contextlib.nullcontext())
    assert played(acts, inside, ao.AutogradGraph(optimize=optimize)) == expected, acts
