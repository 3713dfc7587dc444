"""Tensors of other kinds than the ordinary: sparse layouts work; what cannot be recorded is refused by name."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch.utils._pytree import tree_map

import autograd_opt as ao
from tests.differential import compare

Tensor = torch.Tensor
EYE = torch.eye(3, dtype=torch.float64) * 2
X = torch.tensor([1.0, -2.0, 3.0], dtype=torch.float64)


# Sparse -----------------------------------------------------------------------------------
SPARSE: dict[str, Callable[[Tensor], Tensor]] = {
    "to_sparse and back": lambda w: (w.to_sparse() * 3).to_dense() * w,
    "to_sparse_csr and back": lambda w: w.to_sparse_csr().to_dense() * w,
    "to_sparse_bsr and back": lambda w: w[:2, :2].to_sparse_bsr((1, 1)).to_dense(),
    "values of a coalesced tensor": lambda w: w.to_sparse().coalesce().values().sin(),
    "product of two": lambda w: (w.to_sparse() * w.to_sparse()).to_dense(),
    "sum of two": lambda w: (w.to_sparse() + w.to_sparse()).to_dense(),
    "sparse.mm": lambda w: torch.sparse.mm(EYE.to_sparse(), w) * w,
    "csr @": lambda w: (EYE.to_sparse_csr() @ w).sin(),
    "sparse.mm of csr, reduced": lambda w: torch.sparse.mm(EYE.to_sparse_csr(), w, "sum"),
    "sampled_addmm": lambda w: torch.sparse.sampled_addmm(EYE.to_sparse_csr(), w, w).to_dense(),
    "sparse.sum": lambda w: torch.sparse.sum(w.to_sparse() * 2),
    "sparse.softmax": lambda w: torch.sparse.softmax(w.to_sparse(), 1).to_dense(),
    "sparse_mask": lambda w: w.sparse_mask(EYE.to_sparse().coalesce()).to_dense(),
    "built of values": lambda w: torch.sparse_coo_tensor(torch.arange(3).repeat(2, 1), w[0], (3, 3)).to_dense(),
    "csr built of values": lambda w: torch.sparse_csr_tensor(torch.arange(4), torch.arange(3), w[0], (3, 3)) @ EYE,
}


@pytest.mark.filterwarnings("ignore:Sparse (CSR|BSR|invariant)")
@pytest.mark.parametrize("name", SPARSE)
def test_sparse_results(name: str) -> None:
    compare(SPARSE[name], EYE + 0.5)


@pytest.mark.parametrize("again", [1, 2])
@pytest.mark.parametrize("kind", ["custom", "plain"])
@pytest.mark.parametrize("optimize", [False, True])
def test_a_sparse_leaf_has_a_sparse_gradient(optimize: bool, kind: str, again: int) -> None:
    s = EYE.to_sparse()
    expected, leaf = s.clone().requires_grad_(), ao.tensor(s) if kind == "custom" else s.clone().requires_grad_()
    for _ in range(again):
        torch.sparse.mm(expected * 2, EYE).sum().backward()
    with ao.AutogradGraph(optimize=optimize):
        for _ in range(again):
            torch.sparse.mm(leaf * 2, EYE).sum().backward()
        assert "sparse_coo" in repr(leaf)
        assert "sparse_coo" in repr(leaf.grad)
    assert leaf.grad.layout is expected.grad.layout
    assert torch.equal(leaf.grad.to_dense(), expected.grad.to_dense())


@pytest.mark.parametrize("dense_too", [False, True])
@pytest.mark.parametrize("optimize", [False, True])
def test_a_sparse_embedding(optimize: bool, dense_too: bool) -> None:
    layer = torch.nn.Embedding(4, 2, sparse=True)
    index = torch.tensor([0, 1, 1])

    def step() -> Tensor:
        layer.weight.grad = None
        for _ in range(2):
            loss = (layer(index) * layer(index)).sum()
            (loss + layer.weight.sum() if dense_too else loss).backward()
        assert layer.weight.grad is not None
        return layer.weight.grad

    expected = step()
    with ao.AutogradGraph(optimize=optimize):
        mine = step()
    assert mine.layout is expected.layout
    assert torch.equal(mine.to_dense(), expected.to_dense())


@pytest.mark.parametrize("padding", [None, 1, -4])
@pytest.mark.parametrize("optimize", [False, True])
def test_derivatives_of_a_sparse_embedding(optimize: bool, padding: int | None) -> None:
    """First and second derivatives as in torch, in layout and values; a repeated call is one node, and is proved."""
    weight = torch.arange(8.0, dtype=torch.float64).reshape(4, 2).requires_grad_()
    index = torch.tensor([[0, 1], [1, 3]])

    def derivatives() -> list[Tensor]:
        rows, again = (F.embedding(index, weight, padding, sparse=True) for _ in range(2))
        (first,) = torch.autograd.grad((rows * again).sum(), weight, create_graph=True)
        (second,) = torch.autograd.grad(first.to_dense().sin().sum(), weight)
        return [first.detach(), second]

    expected = derivatives()
    with ao.AutogradGraph(optimize=optimize) as graph:
        mine = derivatives()
        loss = (F.embedding(index, weight, padding, sparse=True) ** 2).sum()
        assert graph.verify(loss).status == "proved"
    for a, b in zip(mine, expected, strict=True):
        assert a.layout is b.layout is torch.sparse_coo
        assert torch.equal(a.coalesce().indices(), b.coalesce().indices())
        assert torch.equal(a.to_dense(), b.to_dense())


def test_frequencies_of_a_sparse_embedding_are_refused_as_by_torch() -> None:
    weight = torch.ones(3, 2, requires_grad=True)

    def step() -> None:
        torch.embedding(weight, torch.tensor([0, 1]), -1, True, True).sum().backward()

    with pytest.raises(RuntimeError) as wanted:
        step()
    with ao.AutogradGraph(), pytest.raises(RuntimeError) as found:
        step()
    assert str(found.value).splitlines()[0] == str(wanted.value).splitlines()[0]


# Classes with a dispatch of their own, nested tensors -------------------------------------
class Wrapped(torch.Tensor):
    """A wrapper subclass: what it computes happens in `__torch_dispatch__`."""

    inner: Tensor
    __torch_function__ = torch._C._disabled_torch_function_impl

    @staticmethod
    def __new__(cls, inner: Tensor) -> Any:
        made = torch.Tensor._make_wrapper_subclass(cls, inner.size(), dtype=inner.dtype, device=inner.device)
        made.inner = inner
        return made

    def __init__(self, inner: Tensor) -> None:
        pass

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        out = func(*tree_map(unwrap, args), **tree_map(unwrap, kwargs or {}))
        return tree_map(lambda t: Wrapped(t) if isinstance(t, Tensor) else t, out)


def unwrap(t: Any) -> Any:
    return t.inner if isinstance(t, Wrapped) else t


class Named(torch.Tensor):
    """A subclass without a dispatch of its own."""


REFUSED: dict[str, Callable[[Tensor], Any]] = {
    "mul": lambda w: w * Wrapped(X),
    "mul, wrapped first": lambda w: Wrapped(X) * w,
    "dot": lambda w: torch.dot(Wrapped(X), w),
    "an opaque call": lambda w: torch.special.i1(torch.stack([Wrapped(X), w])),
    "copy_": lambda w: (w * 1).copy_(Wrapped(X)),
    "in place": lambda w: (w * 1).mul_(Wrapped(X)),
    "setitem": lambda w: (w * 1).__setitem__(0, Wrapped(X)[0]),
    "a leaf of the class": lambda w: (Wrapped(X).requires_grad_() * 2).sum(),
    "module": lambda w: torch.nn.functional.linear(Wrapped(X), w[None]),
    "as_subclass": lambda w: (w * 1).as_subclass(Named),
    "nested_tensor": lambda w: torch.nested.as_nested_tensor([w, w * 2]),
    "nested_tensor, jagged": lambda w: torch.nested.as_nested_tensor([w, w * 2], layout=torch.jagged) * 2,
    "nested operand": lambda w: torch.nested.nested_tensor([X, X]) * w,
    "jagged operand": lambda w: torch.nested.nested_tensor([X[:, None], X[:, None]], layout=torch.jagged) * w[:1],
    "masked": lambda w: torch.masked.masked_tensor(X, X > 0) * w,
}


@pytest.mark.filterwarnings("ignore:The PyTorch API of (nested tensors|MaskedTensors) is in prototype")
@pytest.mark.parametrize("kind", ["custom", "plain"])
@pytest.mark.parametrize("optimize", [False, True])
@pytest.mark.parametrize("name", REFUSED)
def test_refused_where_a_gradient_would_be_lost(name: str, optimize: bool, kind: str) -> None:
    w = ao.tensor(X) if kind == "custom" else X.clone().requires_grad_()
    with ao.AutogradGraph(optimize=optimize):
        a = w * 2
        with pytest.raises(ao.UnsupportedError, match=r"(Wrapped|nested|Masked|Named).*\.detach\(\).*test_kinds") as e:
            REFUSED[name](w)
        assert len(str(e.value)) < 500
        (a * w).sum().backward()                # the graph goes on
    assert torch.equal(w.grad, 4 * X)


@pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors is in prototype")
@pytest.mark.parametrize("optimize", [False, True])
@pytest.mark.parametrize("late", [False, True])
def test_without_gradients_other_kinds_compute_as_in_torch(late: bool, optimize: bool) -> None:
    """`late`: while a view lives whose base came to require grad after it was made."""
    w = ao.tensor(X)
    if late:
        base = ao.CustomTensor(X.clone(), requires_grad=False)
        view = base[:1]
        with ao.AutogradGraph():
            base.requires_grad_()
        assert view.shape == (1,)
    with ao.AutogradGraph(optimize=optimize):
        assert type(Wrapped(X) * 2) is Wrapped
        assert type(torch.dot(Wrapped(X), Wrapped(X))) is Wrapped
        with torch.no_grad():
            assert type(w.detach() * Wrapped(X)) is Wrapped
            assert type(Wrapped(X) + w) is Wrapped
        nested = torch.nested.nested_tensor([X, X[:2]])
        assert (nested * nested).is_nested
        assert torch.nested.nested_tensor([X[:, None], X[:2, None]], layout=torch.jagged).sin().is_nested


def test_a_leaf_cannot_be_made_of_other_kinds() -> None:
    with pytest.raises(ao.UnsupportedError, match="Wrapped"):
        ao.tensor(Wrapped(X))


@pytest.mark.parametrize("optimize", [False, True])
def test_to_the_plain_class_is_an_alias_in_the_graph(optimize: bool) -> None:
    compare(lambda x: (x * 2).as_subclass(torch.Tensor) * x, X)


def test_subclasses_without_a_dispatch_give_ordinary_results() -> None:
    compare(lambda x: x * X.as_subclass(Named), X)


# Indices ----------------------------------------------------------------------------------
INDICES = [
    [slice(None), [2, 3]], [[0, 2], [1, 1]], [None, [1, 1]], [Ellipsis, 1], [torch.tensor([0, 1]), [1, 2]],
    [0, 2], [[0, 2]], [torch.tensor([True, False, True])], [True, False, True], [[True, False, True], 1],
    (slice(1, 3), [0, 1]),
]


@pytest.mark.filterwarnings("ignore:Using a non-tuple sequence for multidimensional indexing")
@pytest.mark.parametrize("index", INDICES, ids=str)
def test_lists_as_indices(index: Any) -> None:
    table = torch.arange(12.0, dtype=torch.float64).view(3, 4)

    def write(x: Tensor) -> Tensor:
        y = x * 2
        y[index] = x[index].sum()
        return y * x

    compare(lambda x: x[index].sin(), table)
    compare(write, table)


# Powers -----------------------------------------------------------------------------------
@pytest.mark.parametrize("base", [[-2.0, 3.0, 0.0], [-2.0 + 1j, 0.0, 1j]])
@pytest.mark.parametrize("exponent", [[1 + 1j, 2 - 1j, 1 + 1j], [1.0, 2.0, 0.5], [2 + 0j, -1j, 3 + 0j]])
def test_powers_of_negative_and_complex_numbers(base: list[Any], exponent: list[Any]) -> None:
    def total(x: Tensor, y: Tensor) -> Tensor:
        return (x**y).abs()

    compare(total, torch.tensor(base), torch.tensor(exponent), rtol=1e-5, atol=1e-6)
    compare(lambda y: (base[0] ** y).abs(), torch.tensor(exponent), rtol=1e-5, atol=1e-6)


# Classes of the user's ---------------------------------------------------------------------
def scaled() -> type[Tensor]:
    """A new class whose `torch.add` is another."""
    class Scaled(Tensor):
        @classmethod
        def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            result = super().__torch_function__(func, types, args, kwargs or {})
            return result * 10 if func is torch.add else result

    return Scaled


@pytest.mark.parametrize("use", [lambda x, w: x + w, lambda x, w: w * x, lambda x, w: torch.add(w, x),
                                 lambda x, w: x.exp() * w, lambda x, w: torch.stack([w, x])])
@pytest.mark.parametrize("optimize", [False, True])
def test_a_torch_function_that_is_not_asked_is_said_once(optimize: bool, use: Any) -> None:
    x, w = torch.ones(3).as_subclass(scaled()), torch.ones(3, requires_grad=True)
    with ao.AutogradGraph(optimize=optimize):
        with pytest.warns(UserWarning, match="__torch_function__ of .*Scaled.*as_subclass.*test_kinds"):
            use(x, w)
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            use(x, w).sum().backward()
    assert w.grad is not None


def test_other_classes_need_no_word() -> None:
    class Named(Tensor):
        pass

    class Own(torch.nn.Parameter):
        pass

    w = torch.ones(3, requires_grad=True)
    with warnings.catch_warnings(), ao.AutogradGraph():
        warnings.simplefilter("error")
        for x in (torch.ones(3).as_subclass(Named), Own(torch.ones(3)), torch.nn.Buffer(torch.ones(3)),
                  ao.tensor([1.0])):
            assert ((x * w).sum() + torch.add(x, w).sum()).requires_grad
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert type(torch.ones(3).as_subclass(scaled()) + 1).__name__ == "Scaled"       # outside, nothing is lost


def test_a_word_that_is_an_error_changes_nothing() -> None:
    x, w = torch.ones(3).as_subclass(scaled()), torch.ones(3, requires_grad=True)
    with warnings.catch_warnings(), ao.AutogradGraph(optimize=True) as graph:
        warnings.simplefilter("error")
        y = w * 2
        before = len(graph)
        with pytest.raises(UserWarning):
            y * x
        assert len(graph) == before
        y.sum().backward()
    assert w.grad is not None
    assert w.grad.tolist() == [2.0] * 3
