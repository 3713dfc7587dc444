"""`backward` with cotangents that the user gives, and of several tensors: the compiled way does what torch does."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

import autograd_opt as ao
from autograd_opt.engine.entry import backward_usual

X = torch.tensor([[0.5, -1.0], [2.0, 0.25]], dtype=torch.float64)
G = torch.tensor([[1.0, 2.0], [-3.0, 0.5]], dtype=torch.float64)

ROOTS: dict[str, Callable[[Tensor], tuple[list[Tensor], Any]]] = {
    "a matrix": lambda x: ([x.exp()], G.clone()),
    "the leaf's own cotangent": lambda x: ([x + 1], G.clone()),
    "turned in memory": lambda x: ([x.exp()], G.T.contiguous().T),
    "expanded": lambda x: ([x.exp()], torch.tensor(2.0, dtype=torch.float64).expand(2, 2)),
    "a view": lambda x: ([x.exp()[0]], G[0].clone()),
    "a view of the leaf": lambda x: ([x.T], G.clone()),
    "one for one": lambda x: ([x.exp()], (G.clone(),)),
    "a scalar": lambda x: ([x.sum()], torch.tensor(3.0, dtype=torch.float64)),
    "several": lambda x: ([x.exp(), x.sum(), (x * x)[1]], [G.clone(), None, G[0].clone()]),
    "several scalars": lambda x: ([x.sum(), x.exp().sum()], None),
    "one tensor for two": lambda x: ([x.exp(), x * x], [G] * 2),
    "one leads to another": lambda x: ((lambda y: ([y, y.sin()], [G.clone(), G.clone()]))(x.exp())),
    "complex": lambda x: ([torch.complex(x, x.exp())], torch.complex(G, -G)),
    "conjugated": lambda x: ([torch.complex(x, x.exp())], torch.complex(G, -G).conj()),
    "one of several results": lambda x: ([x.max(1)[0]], G[0].clone()),
    "a call without a rule": lambda x: ([torch.linalg.eigvals(x)], torch.complex(G[0], G[1])),
    "a function": lambda x: ([Twice.apply(x)], G.clone()),
    "written": lambda x: ([(x * 3).mul_(2)], G.clone()),
    "of another dtype": lambda x: ([x.exp()], G.float()),
    "requires grad": lambda x: ([x.exp()], G.clone().requires_grad_()),
    "a leaf": lambda x: ([x], G.clone()),
    "twice the same": lambda x: ((lambda y: ([y, y], [G.clone(), G.clone()]))(x.exp())),
}
WRONG: dict[str, Callable[[Tensor], tuple[list[Tensor], Any]]] = {
    "another shape": lambda x: ([x.exp()], G[0].clone()),
    "none for a matrix": lambda x: ([x.exp()], None),
    "none for a complex number": lambda x: ([torch.complex(x, x).sum()], None),
    "real for complex": lambda x: ([torch.complex(x, x)], G.clone()),
    "too few": lambda x: ([x.exp(), x.sum()], [G.clone()]),
    "a list in a list": lambda x: ([x.exp()], [[G.clone()]]),
    "no tensor": lambda x: ([x.exp()], ["g"]),
    "a constant": lambda x: ([x.detach().exp()], G.clone()),
}


class Twice(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        return x * 2

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> Tensor:  # type: ignore[override]
        return g * 2


def run(case: Callable[[Tensor], tuple[list[Tensor], Any]], method: bool, retain: bool) -> list[Any]:
    """The gradient of the leaf after one run, or two; how it lies in memory; what has become of the cotangents."""
    x = X.clone().requires_grad_()
    roots, given = case(x)
    tensors = given if isinstance(given, (list, tuple)) else [given]
    before = [g.detach().clone() if isinstance(g, Tensor) else g for g in tensors]
    for _ in range(1 + retain):
        if method:
            (g,) = tensors
            roots[0].backward(g, retain_graph=retain)
        else:
            torch.autograd.backward(roots, given, retain_graph=retain)
    for g, old in zip(tensors, before, strict=True):
        assert not isinstance(g, Tensor) or torch.equal(g, old)
        assert not isinstance(g, Tensor) or x.grad is None or x.grad.data_ptr() != g.data_ptr()
    of_given = [g.grad for g in tensors if isinstance(g, Tensor) and g.is_leaf]
    return [x.grad, None if x.grad is None else x.grad.stride(), of_given]


@pytest.mark.parametrize("retain", [False, True])
@pytest.mark.parametrize("optimize", [False, True])
@pytest.mark.parametrize("name", ROOTS)
def test_as_in_torch(name: str, optimize: bool, retain: bool) -> None:
    single = len(ROOTS[name](X.clone().requires_grad_())[0]) == 1
    for method in (False, True) if single else (False,):
        expected = run(ROOTS[name], method, retain)
        with ao.AutogradGraph(optimize=optimize):
            found = run(ROOTS[name], method, retain)
        torch.testing.assert_close(found[0], expected[0], rtol=1e-12, atol=0)
        assert found[1:] == expected[1:]


@pytest.mark.parametrize("optimize", [False, True])
@pytest.mark.parametrize("name", WRONG)
def test_refused_as_by_torch(name: str, optimize: bool) -> None:
    """And nothing has been lost: the graph can still be differentiated."""
    with pytest.raises((RuntimeError, TypeError)):
        run(WRONG[name], False, False)
    with ao.AutogradGraph(optimize=optimize):
        x = X.clone().requires_grad_()
        roots, given = WRONG[name](x)
        with pytest.raises((RuntimeError, TypeError)):
            torch.autograd.backward(roots, given)
        assert x.grad is None
        (x * roots[0].abs()).sum().backward()
        assert x.grad is not None


def test_the_compiled_way_is_taken() -> None:
    with ao.AutogradGraph(optimize=True):
        x = X.clone().requires_grad_()
        x.sum().backward()                   # the first run of a thread makes the list of its runs
        assert backward_usual(x.exp(), G)
        assert backward_usual([x.exp(), x.sum()], [G, None])
        assert backward_usual((torch.complex(x, x),), (torch.complex(G, G),))
        assert not backward_usual(x.exp(), G.float())
        assert not backward_usual(x.exp(), None)
        assert not backward_usual(x, G)


@pytest.mark.parametrize("optimize", [False, True])
def test_a_run_frees_what_it_has_used(optimize: bool) -> None:
    with ao.AutogradGraph(optimize=optimize):
        x = X.clone().requires_grad_()
        y = x.exp()
        y.backward(G)
        with pytest.raises(ao.FreedGraphError):
            y.backward(G)
