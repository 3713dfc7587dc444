"""The order in which leaves get their gradients."""

from __future__ import annotations

import pytest
import torch

import autograd_opt as ao
from tests.engine.behaviour import caught, group

F = torch.nn.functional
order = group("order of leaves")


def listed(g):
    """A cotangent as numbers, None where there is none."""
    return None if g is None else g.detach().reshape(-1).tolist()


def writer(new, order):
    """Makes leaves that write down when they have got their gradient."""
    def leaf(name, *size):
        t = new(torch.ones(size or (2,), dtype=torch.double))
        t.register_post_accumulate_grad_hook(lambda t: order.append(name))
        return t
    return leaf


@order("test_post_accumulate_grad_hook_ordering")
def order_of_two_and_three(new):
    """Leaves of one operation get their gradients first to last."""
    order = []
    leaf = writer(new, order)
    (leaf("a") * leaf("b")).sum().backward()
    torch.addcmul(leaf("c"), leaf("d"), leaf("e")).sum().backward()
    (leaf("f") / leaf("g") + leaf("h") * leaf("i")).sum().backward()
    torch.where(leaf("j") > 0, leaf("k"), leaf("l")).sum().backward()
    return order


@order("test_post_accumulate_grad_hook_ordering")
def order_of_many(new):
    """More than three leaves wait in a heap."""
    order = []
    leaf = writer(new, order)
    for n in range(4, 10):
        torch.stack([leaf(k) for k in range(n)]).sum().backward()
        order.append("|")
    return order


@order("test_post_accumulate_grad_hook_ordering")
def order_in_products(new):
    """An operand that a product transposes or folds first gets its gradient last."""
    order = []
    leaf = writer(new, order)
    (leaf("x", 2, 3) @ leaf("w", 3, 2) + leaf("b", 2)).sum().backward()
    torch.addmm(leaf("b"), leaf("x", 2, 3), leaf("w", 3, 2)).sum().backward()
    (leaf("z", 2, 2, 3) @ leaf("w", 3, 2)).sum().backward()
    F.linear(leaf("x", 2, 3), leaf("w", 4, 3), leaf("b", 4)).sum().backward()
    F.linear(leaf("x", 2, 3), leaf("w", 4, 3)).sum().backward()
    return order


@order("test_post_accumulate_grad_hook_ordering")
def order_of_leaves_used_before(new):
    """A leaf gets its gradient when its last cotangent has arrived, no matter when the graph used the leaf first."""
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


@order("test_post_accumulate_grad_hook_ordering")
def a_hook_frees_gradients_in_time(new):
    """Gradients that hooks free one by one are never all alive at the same time."""
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


test_order_of_leaves = order.check()


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


@pytest.mark.parametrize("optimize", [False, True])
@pytest.mark.parametrize("kind", [ao.tensor, torch.Tensor.requires_grad_], ids=["custom", "plain"])
@pytest.mark.parametrize("register", ["register_hook", "register_post_accumulate_grad_hook"])
@pytest.mark.parametrize("where", ["outside", "in an earlier graph"])
def test_hooks_from_before_the_graph_see_the_order(where, register, kind, optimize):
    """A leaf that is used first, without effect, gets its gradient where torch writes it, not at its record's turn."""
    order = []

    def leaves(kind):
        order.clear()
        found = [kind(torch.ones(2)) for _ in range(2)]
        for name, t in zip("ab", found, strict=True):
            getattr(t, register)(lambda _, name=name: order.append(name))
        return found

    def step(a, b):
        b * 2
        (a.sum() * 3 + b.sum() * 4).backward()
        return list(order)

    expected = step(*leaves(torch.Tensor.requires_grad_))
    if where == "outside":
        a, b = leaves(kind)
    else:
        with ao.AutogradGraph(optimize=optimize):
            a, b = leaves(kind)
    with ao.AutogradGraph(optimize=optimize):
        assert step(a, b) == expected == ["b", "a"]


@pytest.mark.parametrize("optimize", [False, True])
def test_a_leaf_that_views_were_merged_into(optimize):
    """Its turn comes where the view would have sent it its gradient, not where what reads the view does."""
    def program():
        seen = []
        x, y = torch.tensor(0.75, requires_grad=True), torch.ones(3, requires_grad=True)
        view = x.view(x.shape).view(x.shape)
        for name, leaf in (("x", x), ("y", y)):
            leaf.register_hook(lambda g, name=name: seen.append(name))
        repeated = (y + 1).sin() * (y + 1).sin()
        (y.sum() + (view / y.exp()).sum() + x * 5 + repeated.sum()).backward()
        return seen

    expected = program()
    with ao.AutogradGraph(optimize=optimize):
        assert program() == expected
