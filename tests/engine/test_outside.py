"""After a context: what a graph has computed without gradient is a constant to torch's own autograd."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

import autograd_opt as ao

Tensor = torch.Tensor


def detached() -> Tensor:
    with ao.AutogradGraph():
        return (torch.ones(3, requires_grad=True) * 3).detach()


CONSTANTS = {
    "detached": detached,
    "without gradient": lambda: ao.tensor([3.0, 3.0, 3.0], requires_grad=False),
}
USES: dict[str, Any] = {
    "mul": lambda w, c: w * c,
    "constant first": lambda w, c: c * w,
    "power": lambda w, c: c ** w,
    "in place": lambda w, c: (w * 1).add_(c).mul_(c),
    "row": lambda w, c: (w * 2).index_put((torch.tensor([0]),), c[0]),
    "stack": lambda w, c: torch.stack([w * 1, c]),
    "linear": lambda w, c: nn.functional.linear(w, c[None]),
    "where": lambda w, c: torch.where(c > 1, w * c, c),
    "loss": lambda w, c: nn.functional.mse_loss(w, c),
    "checkpoint": lambda w, c: checkpoint(lambda a: (a * c).sin(), w, use_reentrant=False),
}


def written(w: Tensor, c: Tensor) -> Tensor:
    z = w * 2
    z[0] = c[0]
    return z


USES["setitem"] = written


@pytest.fixture(params=CONSTANTS)
def constant(request: Any) -> Tensor:
    return CONSTANTS[request.param]()


@pytest.mark.parametrize("use", USES.values(), ids=USES)
def test_torch_differentiates_around_a_constant(use: Any, constant: Tensor) -> None:
    w = torch.tensor([1.0, 2.0, 3.0], requires_grad=True)
    use(w, constant).sum().backward()
    v = torch.tensor([1.0, 2.0, 3.0], requires_grad=True)
    use(v, torch.full((3,), 3.0)).sum().backward()
    assert w.grad is not None
    assert torch.equal(w.grad, v.grad)


@pytest.mark.parametrize("transform", [
    lambda f, x: torch.func.grad(f)(x),
    lambda f, x: torch.func.jacrev(f)(x),
    lambda f, x: torch.func.jacfwd(f)(x),
    lambda f, x: torch.func.hessian(f)(x),
    lambda f, x: torch.func.vmap(torch.func.grad(f))(torch.stack([x, x + 1])),
    lambda f, x: torch.func.jvp(f, (x,), (x,))[1],
    lambda f, x: torch.autograd.functional.jacobian(f, x),
    lambda f, x: torch.autograd.functional.hessian(f, x),
], ids=["grad", "jacrev", "jacfwd", "hessian", "vmap", "jvp", "jacobian", "functional hessian"])
def test_transforms_go_past_a_constant(transform: Any, constant: Tensor) -> None:
    x = torch.tensor([1.0, 2.0, 3.0])
    found = transform(lambda v: (v * v * constant * v).sum(), x)
    wanted = transform(lambda v: (v * v * torch.full((3,), 3.0) * v).sum(), x)
    torch.testing.assert_close(found.as_subclass(Tensor), wanted)


def test_training_goes_on_after_a_context() -> None:
    """A state that a context computed enters plain training."""
    torch.manual_seed(0)
    rnn, x = nn.GRU(3, 4), torch.randn(5, 2, 3)
    with ao.AutogradGraph(optimize=True):
        out, state = rnn(x)
        out.sum().backward()
        state = state.detach()
    rnn.zero_grad()
    rnn(x, state)[0].sum().backward()
    found = [p.grad.clone() for p in rnn.parameters()]
    rnn.zero_grad()
    rnn(x, torch.tensor(state.tolist()))[0].sum().backward()
    for f, p in zip(found, rnn.parameters(), strict=True):
        torch.testing.assert_close(f, p.grad)


def test_a_hook_of_torchs_is_called(constant: Tensor) -> None:
    w, seen = torch.ones(3, requires_grad=True), []
    y = w * constant
    y.register_hook(lambda g: seen.append(g.tolist()))
    y.sum().backward()
    assert seen == [[1.0, 1.0, 1.0]]


@pytest.mark.parametrize("demand", [lambda t: t.requires_grad_(), lambda t: setattr(t, "requires_grad", True)],
                         ids=["method", "attribute"])
def test_a_constant_that_is_made_a_leaf_outside_is_torchs(demand: Any) -> None:
    t = detached()
    demand(t)
    assert t.is_leaf
    assert type(t) is Tensor
    (t * t).sum().backward()
    assert torch.equal(t.grad, torch.full((3,), 6.0))
    with ao.AutogradGraph():
        (t * 2).sum().backward()
    assert torch.equal(t.grad, torch.full((3,), 8.0))


@pytest.mark.parametrize("use", [
    lambda leaf, w: leaf * w, lambda leaf, w: w * leaf, lambda leaf, w: leaf * 2, lambda leaf, w: (leaf * 2).sin(),
    lambda leaf, w: torch.stack([w, leaf])])
def test_what_would_need_a_graph_says_so(use: Any) -> None:
    leaf, w = ao.tensor([1.0, 2.0, 3.0]), torch.ones(3, requires_grad=True)
    with pytest.raises(ao.OutsideGraphError, match="outside"):
        use(leaf, w).sum().backward()
    assert leaf.grad is None
    assert w.grad is None


def test_without_gradients_nothing_is_marked() -> None:
    leaf = ao.tensor([1.0, 2.0])
    with torch.no_grad():
        y = leaf * 2
    w = torch.ones(2, requires_grad=True)
    (w * y).sum().backward()
    assert w.grad.tolist() == [2.0, 4.0]


@pytest.mark.parametrize("write", [
    lambda x: x.add_(1), lambda x: x.__iadd__(1), lambda x: x.__setitem__(0, 7.0), torch.relu_,
    lambda x: x.__imul__(2.0)], ids=["add_", "+=", "setitem", "torch.relu_", "*="])
def test_a_leaf_is_written_without_gradients_only(write: Any) -> None:
    """As in torch, and as inside a context."""
    for x in (ao.tensor([1.0, -2.0]), torch.tensor([1.0, -2.0], requires_grad=True)):
        with pytest.raises(RuntimeError, match="a leaf Variable that requires grad is being used in an in-place op"):
            write(x)
        with torch.no_grad():
            write(x)
        assert x.tolist() != [1.0, -2.0]
        with torch.no_grad():
            write(x.detach())
    x = ao.tensor([1.0, -2.0], requires_grad=False)
    write(x)
    assert x.tolist() != [1.0, -2.0]


def test_an_element_of_what_a_left_graph_made_is_written() -> None:
    with ao.AutogradGraph():
        z = ao.tensor([1.0, 2.0]) * 1
    z[0] = 5.0
    assert z.tolist() == [5.0, 2.0]
