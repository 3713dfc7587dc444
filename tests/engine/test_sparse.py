"""Sparse layouts: programs give torch eager's values, layouts and gradients; some that torch refuses work."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from contextlib import nullcontext
from typing import Any

import pytest
import torch

import autograd_opt as ao

Tensor = torch.Tensor
pytestmark = pytest.mark.filterwarnings("ignore:Sparse")
LAYOUTS: dict[str, Callable[[Tensor], Tensor]] = {
    "coo": lambda t: t.to_sparse(), "csr": lambda t: t.to_sparse_csr(), "csc": lambda t: t.to_sparse_csc(),
    "bsr": lambda t: t.to_sparse_bsr((2, 2)), "bsc": lambda t: t.to_sparse_bsc((2, 2)),
}


def matrix() -> Tensor:
    return torch.tensor([[1.0, 0, 2, 0], [0, 3, 0, 0], [4, 0, 0, 5], [0, 6, 0, 7]], dtype=torch.float64)


def shown(t: Any) -> Any:
    """What a user sees of a result: layout, whether it requires grad and its values."""
    if not isinstance(t, Tensor):
        return t
    t, seen = t.detach(), (t.layout, t.requires_grad)
    with torch._C.DisableTorchFunction():
        return *seen, t.to_dense().tolist() if t.layout is not torch.strided else t.tolist()


def observed(program: Callable[..., Any], *args: Any) -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            return [shown(t) for t in program(*args)]
        except Exception as error:
            return error


def compare(program: Callable[..., Any], *make: Callable[[], Any]) -> None:
    expected = observed(program, *(m() for m in make))
    for optimize in (False, True):
        with ao.AutogradGraph(optimize=optimize):
            seen = observed(program, *(m() for m in make))
        if not isinstance(expected, Exception):
            assert seen == expected, optimize


# Constants beside dense leaves --------------------------------------------------------------
def backward(y: Tensor, *leaves: Tensor) -> list[Any]:
    (y if y.layout is torch.strided else y.to_dense()).sum().backward()
    return [y, *(x.grad for x in leaves)]


BESIDE: dict[str, Callable[[Tensor, Tensor], Any]] = {
    "used twice": lambda a, w: backward(a @ torch.relu(a @ w), w),
    "used twice by mm": lambda a, w: backward(torch.sparse.mm(a, torch.sparse.mm(a, w)), w),
    "a clone": lambda a, w: backward(a.clone() @ w, w),
    "clones are values": lambda a, w: [a.clone(), a.clone(), *backward(a.clone() @ w + a.clone() @ w, w)],
    "the transpose": lambda a, w: backward(a.t() @ w, w),
    "transposed and not": lambda a, w: backward(a.t() @ (a @ w), w),
    "a vector": lambda a, w: backward(a @ w[:, 0], w),
    "addmm": lambda a, w: backward(torch.addmm(w, a, w), w),
    "sparse.addmm": lambda a, w: backward(torch.sparse.addmm(w, a, w, beta=2, alpha=3), w),
    "a sum": lambda a, w: backward(w + a, w),
    "a product": lambda a, w: backward(w * a, w),
    "a scaled constant": lambda a, w: backward((a * 2) @ w, w),
    "dense @ sparse": lambda a, w: backward(w @ a, w),
    "linear": lambda a, w: backward(torch.nn.functional.linear(w, a), w),
    "sparse_mask": lambda a, w: backward(w.sparse_mask(a), w),
    "written between": lambda a, w: [h := a @ w, a.values().mul_(2), *backward(h + a @ w, w)],
    "second order": lambda a, w: [torch.autograd.grad(
        (torch.autograd.grad(((a @ w) ** 3).sum(), w, create_graph=True)[0] ** 2).sum(), w)[0]],
    "without gradients": lambda a, w: [a @ w.detach(), a @ w.detach(), a.to_dense(), a.sum()],
    "in place": lambda a, w: backward((w * 1).add_(a), w),
    "matmul reduced": lambda a, w: backward(torch.sparse.mm(a, w, "amax"), w),
    "mean reduced": lambda a, w: backward(torch.sparse.mm(a, w, "mean"), w),
}


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("name", BESIDE)
def test_constants(name: str, layout: str) -> None:
    compare(BESIDE[name], lambda: LAYOUTS[layout](matrix()),
            lambda: torch.arange(16.0, dtype=torch.float64).view(4, 4).requires_grad_())


WITHOUT: dict[str, Callable[[Tensor, Tensor], Any]] = {
    "a product": lambda a, w: a @ w, "a vector": lambda a, w: torch.mv(a, w[:, 0]), "scaled": lambda a, w: a * 2,
    "a sum of both": lambda a, w: w + a, "twice": lambda a, w: a + a, "a sum": lambda a, w: a.sum(),
    "dense": lambda a, w: a.to_dense(), "a norm": lambda a, w: a.norm(), "a clone": lambda a, w: a.clone(),
    "detached": lambda a, w: a.detach(), "values": lambda a, w: a.values(),
    "indices": lambda a, w: a.indices() if a.layout is torch.sparse_coo else a.values(),
    "inner values": lambda a, w: a._values() if a.layout is torch.sparse_coo else a.values(),
    "a transpose": lambda a, w: a.t(), "coalesced": lambda a, w: a.coalesce() if a.layout is torch.sparse_coo else a,
    "a mask": lambda a, w: w.sparse_mask(a), "another layout": lambda a, w: a.to_sparse_coo().to_sparse(),
    "a root": lambda a, w: torch.sqrt(a), "zeros": lambda a, w: torch.zeros_like(a),
    "into": lambda a, w: w.clone().add_(a), "by keyword": lambda a, w: torch.mul(input=a, other=2),
    "a part": lambda a, w: a.to_sparse_coo().narrow(0, 0, 2), "pieces": lambda a, w: torch.unbind(a.to_sparse_coo()),
    "an index": lambda a, w: torch.index_select(a.to_sparse_coo(), 0, torch.tensor([1, 0])),
    "joined": lambda a, w: torch.cat([a.to_sparse_coo(), a.to_sparse_coo()]),
    "of another dtype": lambda a, w: a.float(),
}


def told(a: Tensor, w: Tensor, r: Any) -> list[Any]:
    results = r if isinstance(r, (tuple, list)) else [r]
    versions = [(t._version, t._is_view(), t.requires_grad, t.is_leaf) for t in (a, w, *results)]
    return [versions, [shown(t) for t in results]]


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("operand", ["constant", "leaf", "computed", "constant beside constants"])
@pytest.mark.parametrize("name", WITHOUT)
def test_calls_that_no_gradient_follows(name: str, operand: str, layout: str) -> None:
    """They differ in nothing that torch tells of their results: also the last, with gradients on."""
    def program() -> list[Any]:
        on = operand == "constant beside constants"
        w = torch.arange(16.0, dtype=torch.float64).view(4, 4).requires_grad_(not on)
        a = LAYOUTS[layout](matrix())
        if operand == "computed":
            a = (a * w.sum()).detach().requires_grad_() * 3
        else:
            a = a.requires_grad_(operand == "leaf")
        with torch.set_grad_enabled(on):
            return told(a, w, WITHOUT[name](a, w))

    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            expected = program()
    except Exception as error:
        expected = type(error)
    for optimize in (False, True):
        with ao.AutogradGraph(optimize=optimize):
            for _ in range(3):
                if isinstance(expected, list):
                    assert program() == expected, optimize
                else:
                    with pytest.raises(expected):
                        program()


def test_a_constant_in_a_loop() -> None:
    results = []
    for context in (nullcontext(), ao.AutogradGraph(optimize=False), ao.AutogradGraph()):
        with context:
            a = matrix().to_sparse_csr()
            w = torch.arange(4.0, dtype=torch.float64).view(4, 1).requires_grad_()
            for _ in range(20):
                h = w
                for _ in range(3):
                    h = torch.tanh(a @ h)
                h.sum().backward()
                with torch.no_grad():
                    w -= 0.1 * w.grad
                    w.grad = None
            results.append(w.tolist())
    assert results[1] == results[2] == results[0]


# Sparse leaves --------------------------------------------------------------------------------
DENSE = torch.arange(16.0, dtype=torch.float64).view(4, 4)
OF_A_LEAF: dict[str, Callable[[Tensor], Any]] = {
    "@ dense": lambda s: backward(s @ DENSE, s),
    "sparse.mm": lambda s: backward(torch.sparse.mm(s, DENSE), s),
    "@ dense twice": lambda s: [*backward(s @ DENSE, s), *backward(s @ DENSE, s)],
    "@ itself": lambda s: backward(s @ s, s),
    "to_dense": lambda s: backward(s.to_dense(), s),
    "to_dense, not masked": lambda s: backward(s.to_dense(masked_grad=False), s),
    "dense, then sparse gradient": lambda s: [*backward(s @ DENSE, s), *backward(s.to_dense(), s)],
    "sparse, then dense gradient": lambda s: [*backward(s.to_dense(), s), *backward(s @ DENSE, s)],
    "sparse and sparse": lambda s: backward(s.to_dense() + (s * 2).to_dense(), s),
    "sparse and dense in one run": lambda s: backward(s.to_dense() + s @ DENSE, s),
    "a scaled sum": lambda s: backward(s * 2 + s, s),
    "neg": lambda s: backward(-s, s),
    "sin": lambda s: backward(s.sin(), s),
    "square": lambda s: backward(s * s, s),
    "transposes": lambda s: backward(s.t() + s.transpose(0, 1), s),
    "coalesce": lambda s: backward(s.coalesce(), s),
    "values": lambda s: [s.coalesce().values().sin().sum().backward(), s.grad],
    "values of compressed": lambda s: [s.values().sin().sum().backward(), s.grad],
    "indices": lambda s: [s.coalesce().indices()],
    "sum": lambda s: [s.sum().backward(), s.grad],
    "sparse.sum": lambda s: [torch.sparse.sum(s).backward(), s.grad],
    "sparse.sum over an axis": lambda s: backward(torch.sparse.sum(s, 0), s),
    "clone": lambda s: backward(s.clone(), s),
    "clone, written": lambda s: [e := s.clone(), e.mul_(2), *backward(e, s)],
    "copy_ into a clone": lambda s: [e := s.clone(), e.copy_(e * 2), *backward(e, s)],
    "detach": lambda s: [s.detach(), s.detach() * 2],
    "a write to a leaf": lambda s: [s.mul_(2)],
    "zero_ of a clone": lambda s: [e := s.clone(), e.zero_(), *backward(e, s)],
    "a hook": lambda s: [seen := [], s.register_hook(seen.append) and None, *backward(s.to_dense(), s), *seen][1:],
    "a hook on a result": lambda s: [
        seen := [], e := s * 2, e.register_hook(seen.append) and None, *backward(e, s), *seen][1:],
    "retain_grad": lambda s: [e := s * 2, e.retain_grad(), *backward(e, s), e.grad],
    "retain_grad of what gets a dense one": lambda s: [e := s * 2, e.retain_grad(), *backward(e @ DENSE, s), e.grad],
    "grad": lambda s: torch.autograd.grad((s @ DENSE).sum(), s),
    "grad of a result": lambda s: [e := s * 2, *torch.autograd.grad(e.to_dense().sum(), [s, e])],
    "softmax": lambda s: backward(torch.sparse.softmax(s, 1), s),
    "add to dense": lambda s: backward(DENSE + s, s),
    "add_ to dense": lambda s: backward(DENSE.clone().add_(s), s),
    "mul by dense": lambda s: backward(s * DENSE, s),
    "narrow": lambda s: backward(s.narrow(0, 0, 2), s),
    "index_select": lambda s: backward(s.index_select(0, torch.tensor([0, 2])), s),
    "select": lambda s: backward(s[0], s),
    "cat": lambda s: backward(torch.cat([s, s]), s),
    "unsqueeze": lambda s: backward(s.unsqueeze(0), s),
    "converted": lambda s: backward(s.to_sparse_csr().to_dense(), s),
    "cast": lambda s: backward(s.to(torch.float32), s),
    "second order": lambda s: [torch.autograd.grad(
        torch.autograd.grad((s.to_dense() ** 3).sum(), s, create_graph=True)[0].to_dense().sum(), s)[0]],
    "flags": lambda s: [(s * 2).is_leaf, s.is_leaf, (s * 2).grad_fn is None, (s * 2).is_coalesced()],
}


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("name", OF_A_LEAF)
def test_leaves(name: str, layout: str) -> None:
    compare(OF_A_LEAF[name], lambda: LAYOUTS[layout](matrix()).requires_grad_())


@pytest.mark.parametrize("name", OF_A_LEAF)
def test_custom_leaves(name: str) -> None:
    expected = observed(OF_A_LEAF[name], matrix().to_sparse().requires_grad_())
    for optimize in (False, True):
        s = ao.tensor(matrix().to_sparse(), requires_grad=True)
        with ao.AutogradGraph(optimize=optimize):
            seen = observed(OF_A_LEAF[name], s)
        if not isinstance(expected, Exception):
            assert seen == expected


@pytest.mark.parametrize("optimize", [False, True])
def test_gradcheck(optimize: bool) -> None:
    with ao.AutogradGraph(optimize=optimize):
        s = matrix().to_sparse().requires_grad_()
        assert torch.autograd.gradcheck(lambda s: s.to_dense(masked_grad=False), s, masked=False, fast_mode=True)


@pytest.mark.parametrize("optimize", [False, True])
@pytest.mark.parametrize("layout", LAYOUTS)
def test_results_are_printed(layout: str, optimize: bool) -> None:
    with ao.AutogradGraph(optimize=optimize):
        s = LAYOUTS[layout](matrix()).requires_grad_()
        assert layout in repr(s.clone())
        assert str(s.to_dense())


def dense_gradient(w: Tensor) -> list[Any]:
    x = torch.sparse_coo_tensor(torch.tensor([[0, 1], [0, 1]]), w.new_tensor([1.0, 2.0]), (2, 2)).requires_grad_()
    seen = []
    for _ in range(2):
        (w + x).mul(w).sum().backward(create_graph=True)
        w.grad = None
        x.grad.square().sum().backward(inputs=[w], retain_graph=True)  # type: ignore[union-attr]
        seen += [x.grad, w.grad]
    return seen


def test_a_dense_gradient_of_a_sparse_leaf_has_a_history_under_create_graph() -> None:
    compare(dense_gradient, lambda: torch.tensor([[1.0, 2], [3, 4]], dtype=torch.float64, requires_grad=True))


@pytest.mark.parametrize("computed", [False, True])
@pytest.mark.parametrize("layout", ["coo", "csr", "csc"])
def test_a_parameter_of_a_sparse_result(layout: str, computed: bool) -> None:
    def program() -> list[Any]:
        source = matrix().requires_grad_(computed)
        p = torch.nn.Parameter(LAYOUTS[layout](source * 2))
        y = torch.nn.functional.linear(torch.ones(2, 4, dtype=torch.float64), p)
        y.sum().backward()
        return [*shown(y), shown(p.grad), p.requires_grad, type(p), source.grad]

    wanted = program()
    for optimize in (False, True):
        with ao.AutogradGraph(optimize=optimize):
            assert program() == wanted


def test_a_sparse_result_into_a_sparse_tensor() -> None:
    for context in (nullcontext(), ao.AutogradGraph(), ao.AutogradGraph(optimize=True)):
        with context:
            a, out = matrix().to_sparse(), torch.zeros(4, 4, dtype=torch.float64).to_sparse()
            assert torch.add(a, a, out=out) is out
            assert torch.equal(out.to_dense(), matrix() * 2)


@pytest.mark.parametrize("create_graph", [False, True])
@pytest.mark.parametrize("optimize", [False, True])
def test_only_what_is_asked_for_is_differentiated(optimize: bool, create_graph: bool) -> None:
    """torch has no second derivative by the matrix of such a product, and the run does not ask for its first."""
    w = torch.ones(4, 4, dtype=torch.float64, requires_grad=True)
    with ao.AutogradGraph(optimize=optimize):
        sparse = matrix().to_sparse_csr().requires_grad_()
        g, = torch.autograd.grad(torch.sparse.mm(sparse, w).sum(), w, create_graph=create_graph)
    assert torch.equal(g.detach(), matrix().sum(0)[:, None].expand(4, 4))


WRITES: dict[str, Callable[[torch.Tensor, torch.Tensor], Any]] = {
    "assigned": lambda values, w: values.__setitem__(0, w[0, 0]), "multiplied": lambda values, w: values.mul_(2),
    "a part": lambda values, w: values[1:].add_(w[0, 0]),
}


@pytest.mark.parametrize("optimize", [False, True])
@pytest.mark.parametrize("layout", ["coo", "csr"])
@pytest.mark.parametrize("write", WRITES)
def test_the_values_of_a_result_are_not_written(write: str, layout: str, optimize: bool) -> None:
    """torch fails there, or in backward; without the write the gradient is as it was."""
    def program() -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        w = matrix().requires_grad_()
        result = LAYOUTS[layout](w) * 2
        return w, result, result.values()

    w, result, values = program()

    def written() -> None:
        WRITES[write](values, w)
        result.to_dense().sum().backward()

    with pytest.raises(RuntimeError):
        written()
    with ao.AutogradGraph(optimize=optimize):
        w, result, values = program()
        with pytest.raises(ao.InplaceError, match="values of a sparse tensor"):
            WRITES[write](values, w)
        result.to_dense().sum().backward()
        assert torch.equal(w.grad, torch.where(matrix() != 0, 2.0, 0.0))
