"""The functional API: values and argument checks of torch.autograd.functional, and transformations."""

from __future__ import annotations

from contextlib import nullcontext

import pytest
import torch
from torch.autograd import functional as reference
from torch.autograd.gradcheck import GradcheckError as TorchGradcheckError

import autograd_opt as ao
from autograd_opt.api.gradcheck import GradcheckError
from autograd_opt.graph import thread_state
from tests.engine.behaviour import Caught, caught, frozen, group, same

inside = group("functional API (torch's own, inside a context)")
OPTIMIZE = pytest.mark.parametrize("optimize", [False, True])
X = torch.tensor([[0.5, -1.0], [2.0, 0.25]], dtype=torch.float64)
Y = torch.tensor([1.5, -0.5], dtype=torch.float64)
Z = torch.tensor(0.75, dtype=torch.float64)


def many(x, y, z):
    return (x @ y * z).sin(), (x.exp() * z).sum(), y * 3


def single(x, y, z):
    return ((x @ y).tanh() * z * y).sum() + (x ** 3).sum()


CASES = {
    "vjp": (lambda F, **k: F.vjp(lambda x: (x ** 2).sum(1), X, torch.ones(2).double(), **k)),
    "vjp of a scalar": (lambda F, **k: F.vjp(lambda x: x.exp().sum(), X, **k)),
    "vjp of several": (lambda F, **k: F.vjp(many, (X, Y, Z), (Y, Z, Y), **k)),
    "jvp": (lambda F, **k: F.jvp(lambda x: x @ Y, X, X.sin(), **k)),
    "jvp of several": (lambda F, **k: F.jvp(many, (X, Y, Z), (X.cos(), Y.cos(), Z.cos()), **k)),
    "jvp of one number": (lambda F, **k: F.jvp(lambda z: z * Y, Z, **k)),
    "hvp": (lambda F, **k: F.hvp(lambda x: (x ** 3).sum(), X, X.sin(), **k)),
    "hvp of several": (lambda F, **k: F.hvp(single, (X, Y, Z), (X.cos(), Y.cos(), Z.cos()), **k)),
    "vhp": (lambda F, **k: F.vhp(lambda x: (x ** 3).sum(), X, X.sin(), **k)),
    "vhp of several": (lambda F, **k: F.vhp(single, (X, Y, Z), (X.cos(), Y.cos(), Z.cos()), **k)),
    "jacobian": (lambda F, **k: F.jacobian(lambda x: x.exp().sum(1), X, **k)),
    "jacobian of several": (lambda F, **k: F.jacobian(many, (X, Y, Z), **k)),
    "jacobian of one number": (lambda F, **k: F.jacobian(lambda z: z ** 3, Z, **k)),
    "jacobian of a constant": (lambda F, **k: F.jacobian(lambda x: Y * 2, X, **k)),
    "hessian": (lambda F, **k: F.hessian(lambda x: (x ** 3).sum(), X, **k)),
    "hessian of several": (lambda F, **k: F.hessian(single, (X, Y, Z), **k)),
    "hessian of a linear function": (lambda F, **k: F.hessian(lambda x: x.sum() * 3, X, **k)),
}
ERRORS = {
    "vjp without v": lambda F: F.vjp(lambda x: x * 2, Y),
    "vjp with a wrong v": lambda F: F.vjp(lambda x: x * 2, Y, torch.ones(3)),
    "vjp with v of another structure": lambda F: F.vjp(lambda x: x * 2, Y, (Y, Y)),
    "vjp of a number": lambda F: F.vjp(lambda x: 3, Y),
    "vjp at a number": lambda F: F.vjp(lambda x: x, 3),
    "jvp without v": lambda F: F.jvp(lambda x: x * 2, Y),
    "jvp with a wrong v": lambda F: F.jvp(lambda x: x * 2, Y, torch.ones(3)),
    "hvp of a vector": lambda F: F.hvp(lambda x: x * 2, Y, Y),
    "hvp without v": lambda F: F.hvp(lambda x: x.sum(), Y),
    "vhp of a vector": lambda F: F.vhp(lambda x: x * 2, Y, Y),
    "hessian of a vector": lambda F: F.hessian(lambda x: x * 2, Y),
    "hessian of two": lambda F: F.hessian(lambda x: (x.sum(), x.sum()), Y),
    "jacobian of a number": lambda F: F.jacobian(lambda x: 3, Y),
    "jacobian at a number": lambda F: F.jacobian(lambda x: x, 3),
    "jacobian, strict": lambda F: F.jacobian(lambda x: Y * 2, X, strict=True),
    "jacobian, strict, one input": lambda F: F.jacobian(lambda x, y: x * 2, (Y, Y), strict=True),
    "vjp, strict": lambda F: F.vjp(lambda x: Y.sum() * 2, X, strict=True),
    "jvp, strict": lambda F: F.jvp(lambda x: Y * 2, X, X, strict=True),
    "hvp, strict": lambda F: F.hvp(lambda x: x.sum() * 2, X, X, strict=True),
    "vhp, strict": lambda F: F.vhp(lambda x: x.sum() * 2, X, X, strict=True),
    "hessian, strict": lambda F: F.hessian(lambda x: Y.sum(), X, strict=True),
    "jacobian, strict and vectorized": lambda F: F.jacobian(lambda x: x, Y, strict=True, vectorize=True),
    "hessian, strict and vectorized": lambda F: F.hessian(lambda x: (x ** 2).sum(), Y, strict=True, vectorize=True),
    "jacobian, unknown strategy": lambda F: F.jacobian(lambda x: x, Y, strategy="sideways", vectorize=True),
}


@OPTIMIZE
@pytest.mark.parametrize("name", CASES)
def test_values_are_torchs(name, optimize):
    same(frozen(CASES[name](ao, optimize=optimize)), frozen(CASES[name](reference)), name, 1e-6)


@OPTIMIZE
@pytest.mark.parametrize("name", [n for n in CASES if n.startswith(("jacobian", "hessian"))])
def test_vectorized_values_are_the_same(name, optimize):
    same(frozen(CASES[name](ao, optimize=optimize, vectorize=True)), frozen(CASES[name](reference)), name, 1e-6)


@pytest.mark.parametrize("name", CASES)
def test_values_under_no_grad(name):
    with torch.no_grad():
        same(frozen(CASES[name](ao)), frozen(CASES[name](reference)), name, 1e-6)
        assert not torch.is_grad_enabled()


@OPTIMIZE
@pytest.mark.parametrize("name", CASES)
def test_values_with_create_graph(name, optimize):
    with ao.AutogradGraph(optimize=optimize):
        mine = without_flags(CASES[name](ao, create_graph=True))
    same(mine, without_flags(CASES[name](reference, create_graph=True)), name, 1e-6)


def without_flags(x):
    """Values alone: constants may differ in whether they carry a graph."""
    if isinstance(x, torch.Tensor):
        return x.detach().clone()
    return [without_flags(e) for e in x]


def test_two_dtypes():
    def f(x, y):
        return (x.double() * y).sum() + x.float(), y * 2

    x, y = torch.randn(2), torch.randn(2, dtype=torch.float64)
    same(frozen(ao.jacobian(f, (x, y), vectorize=True)), frozen(reference.jacobian(f, (x, y))), "dtypes", 1e-6)


@pytest.mark.parametrize("name", ERRORS)
def test_errors_are_torchs(name):
    if name == "jacobian, unknown strategy":
        with pytest.raises(ValueError, match="sideways"):
            ERRORS[name](ao)
        return
    expected = caught(lambda: ERRORS[name](reference), 40)
    assert isinstance(expected, Caught)
    same(caught(lambda: ERRORS[name](ao), 40), expected, name, 0)


@inside("test_jacobian_output")
def jacobian_inside(new):
    """torch.autograd.functional.jacobian inside a context."""
    return reference.jacobian(lambda x: x.exp().sum(1), X)


@inside("test_hessian_match_vhp_hvp")
def hessian_inside(new):
    """Hessian, hvp and vhp agree."""
    h = reference.hessian(lambda x: (x ** 3).sum(), Y)
    return h, reference.hvp(lambda x: (x ** 3).sum(), Y, Y), reference.vhp(lambda x: (x ** 3).sum(), Y, Y), h @ Y


@inside("test_jacobian_match_vjp_jvp")
def jacobian_and_products(new):
    """A Jacobian and its products agree."""
    def f(x):
        return (x ** 3).cumsum(0)

    j = reference.jacobian(f, Y)
    return j, j @ Y, reference.jvp(f, Y, Y), Y @ j, reference.vjp(f, Y, Y)


@inside("test_jacobian_create_graph")
def differentiating_a_jacobian(new):
    """create_graph connects the result to the inputs."""
    x = new(0.5, 1.5)
    j = reference.jacobian(lambda t: t ** 3, x, create_graph=True)
    j.sum().backward()
    return j, x.grad


@inside("test_vjp_no_grad")
def products_under_no_grad(new):
    """Under no_grad the products are computed all the same."""
    x = new(0.5, 1.5)
    with torch.no_grad():
        out = reference.vjp(lambda t: (t ** 2).sum(), x)
    return out, torch.is_grad_enabled()


@inside("test_hvp_create_graph")
def differentiating_a_product(new):
    """create_graph through hvp."""
    x, v = new(0.5, 1.5), new(1.0, -1.0)
    _, p = reference.hvp(lambda t: (t ** 3).sum(), x, v, create_graph=True)
    p.sum().backward()
    return p, x.grad, v.grad


test_inside_a_context = inside.check()


@OPTIMIZE
def test_grad_nests(optimize):
    def f(x):
        return (x ** 4).sum() * 0.5

    third = ao.grad(lambda x: ao.grad(lambda y: ao.grad(f)(y).sum())(x).sum(), optimize=optimize)
    x = torch.tensor([1.0, 2.0])
    assert torch.allclose(third(x), 12 * x)
    assert torch.func.grad(f)(x).allclose(ao.grad(f, optimize=optimize)(x))


@OPTIMIZE
def test_grad_options(optimize):
    def f(x, y, *, k=1.0):
        return (x * y * k).sum(), {"note": 3}

    x, y = torch.tensor([1.0, 2.0]), torch.tensor([3.0, 4.0])
    (gx, gy), aux = ao.grad(f, (0, 1), has_aux=True, optimize=optimize)(x, y, k=2.0)
    assert torch.equal(gx, 2 * y)
    assert torch.equal(gy, 2 * x)
    assert aux == {"note": 3}
    (value, aux), g = ao.value_and_grad(f, 1, True, optimize=optimize)(x, y)
    assert float(value) == 11.0
    assert torch.equal(g, x)
    assert not value.requires_grad
    assert type(g) is torch.Tensor


def test_grad_of_an_unused_argument_is_zeros():
    assert ao.grad(lambda x, y: x.sum(), 1)(X, Y).tolist() == [0.0, 0.0]
    assert ao.grad(lambda x: Y.sum())(X).tolist() == [[0.0, 0.0], [0.0, 0.0]]


def test_grad_refuses():
    with pytest.raises(RuntimeError, match="one element"):
        ao.grad(lambda x: x * 2)(Y)
    with pytest.raises(RuntimeError, match="one element"):
        ao.grad(lambda x: 3)(Y)
    with pytest.raises(ValueError, match="argnums"):
        ao.grad(lambda x: x.sum(), 1)(Y)
    with pytest.raises(TypeError, match="not a tensor"):
        ao.grad(lambda x: x.sum())(3)


MISUSE = {
    "no function": (TypeError, "takes a function of tensors", lambda: ao.grad(3)),
    "positions as text": (TypeError, "a tuple of positions", lambda: ao.grad(torch.sum, "x")),
    "no positions": (ValueError, "argnums is empty", lambda: ao.grad(torch.sum, ())),
    "no pair": (RuntimeError, "must return two things", lambda: ao.grad(torch.sum, has_aux=True)(Y)),
    "whole numbers": (RuntimeError, "argument 0 is of torch.int64", lambda: ao.grad(torch.sum)(torch.tensor([1, 2]))),
    "no function of a Jacobian": (TypeError, "jacobian takes a function", lambda: ao.jacobian(Y, torch.sum)),
    "an option": (TypeError, "did you mean 'optimize'", lambda: ao.jacobian(torch.sum, Y, optimise=True)),
    "inputs in a list": (TypeError, "tuple of Tensors", lambda: ao.jacobian(torch.sum, [Y])),
    "a number": (TypeError, "must be either a Tensor", lambda: ao.hessian(lambda x: 1.0, Y)),
    "several values": (RuntimeError, "single element", lambda: ao.hessian(torch.sin, Y)),
    "a product without its vector": (RuntimeError, "v can only be None", lambda: ao.vjp(torch.sin, Y)),
    "a vector of another shape": (RuntimeError, "invalid size", lambda: ao.hvp(torch.sum, Y, torch.ones(3))),
    "nothing to check": (TypeError, "inputs of the function", lambda: ao.gradcheck(torch.sin, 3.0)),
    "no check": (TypeError, "gradcheck takes a function", lambda: ao.gradcheck(3, Y)),
    "a checked number": (TypeError, "not a value of type float",
                         lambda: ao.gradcheck(lambda x: 1.0, ao.tensor([1.0], dtype=torch.float64))),
    "a second check of nothing": (ValueError, "at least one input", lambda: ao.gradgradcheck(torch.sin, torch.ones(2))),
    "no checkpoint": (TypeError, "checkpoint takes a function", lambda: ao.checkpoint(3, Y)),
    "an option of a checkpoint": (ValueError, "'none'", lambda: ao.checkpoint(torch.sin, Y, determinism_check="non")),
    "the other checkpoint": (TypeError, "leave it out", lambda: ao.checkpoint(torch.sin, Y, use_reentrant=False)),
}


@pytest.mark.parametrize("case", MISUSE)
@pytest.mark.parametrize("within", [False, True])
def test_misuse_is_named_and_harms_nothing(case, within):
    error, text, call = MISUSE[case]
    x = ao.tensor([1.0, 2.0])
    with ao.AutogradGraph() if within else nullcontext():
        with pytest.raises(error, match=text) as caught:
            call()
        assert (thread_state.get_active() is not None) is within
        assert ao.grad(lambda t: (t * t).sum())(x).tolist() == [2.0, 4.0]
    assert isinstance(caught.value, ao.AutogradOptError)
    assert "test_functional.py:" in str(caught.value)


def test_errors_of_the_function_itself_stay_as_they_are():
    def fails(x):
        raise TypeError("mine")

    with pytest.raises(TypeError, match=r"^mine$") as caught:
        ao.jacobian(fails, Y)
    assert not isinstance(caught.value, ao.AutogradOptError)


@OPTIMIZE
def test_grad_leaves_arguments_and_their_grad_alone(optimize):
    x = torch.tensor([1.0, 2.0], requires_grad=True)
    ao.grad(lambda t: (t * t).sum(), optimize=optimize)(x)
    ao.jacobian(lambda t: t * t, x, optimize=optimize)
    assert x.grad is None
    assert x.requires_grad


def test_create_graph_needs_an_open_graph():
    with pytest.raises(ao.OutsideGraphError, match="create_graph"):
        ao.jacobian(lambda x: x ** 2, Y, create_graph=True)
    x = ao.tensor([1.0, 2.0])
    with ao.AutogradGraph():
        ao.jacobian(lambda t: t ** 3, x, create_graph=True).sum().backward()
    assert x.grad.tolist() == [6.0, 12.0]


@OPTIMIZE
def test_modules_inside(optimize):
    torch.manual_seed(0)
    net = torch.nn.Sequential(torch.nn.Linear(2, 3), torch.nn.Tanh(), torch.nn.Linear(3, 1)).double()
    mine = ao.hessian(lambda x: net(x).sum(), Y, optimize=optimize)
    assert torch.allclose(mine, reference.hessian(lambda x: net(x).sum(), Y))
    assert all(p.grad is None for p in net.parameters())


# ----- gradcheck -----
@OPTIMIZE
def test_gradcheck_accepts_what_is_right(optimize):
    x = ao.tensor([[0.3, -0.7], [1.1, 0.4]], dtype=torch.float64)
    y = ao.tensor([0.5, 1.5], dtype=torch.float64)
    assert ao.gradcheck(lambda a, b: ((a @ b).sin(), a.exp().sum()), (x, y), optimize=optimize)
    assert ao.gradgradcheck(lambda a, b: ((a @ b).sin(), a.exp().sum()), (x, y), optimize=optimize)


class SlightlyWrong(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x ** 2

    @staticmethod
    def backward(ctx, g):
        (x,) = ctx.saved_tensors
        return g * 2 * x * 1.002


def test_gradcheck_names_the_wrong_entry():
    x = ao.tensor([1.0, 3.0], dtype=torch.float64)
    with pytest.raises(GradcheckError, match=r"d output 0 / d input 0: at \[1, 1\] the graph gives 6\.01\d*, the finite "  # noqa: E501
                                             r"difference (6\.0|5\.9)\d*"):
        ao.gradcheck(SlightlyWrong.apply, x)
    assert not ao.gradcheck(SlightlyWrong.apply, x, raise_exception=False)
    assert ao.gradcheck(SlightlyWrong.apply, x, rtol=0.01)


def test_gradcheck_asks_for_doubles():
    with pytest.raises(GradcheckError, match=r"is torch\.float32, and finite differences need torch\.float64"):
        ao.gradcheck(torch.sin, torch.ones(2, requires_grad=True))


def test_gradcheck_sees_nan():
    with pytest.raises(GradcheckError, match="nan"):
        ao.gradcheck(lambda x: (x - x) / (x - x) * x, ao.tensor([1.0], dtype=torch.float64))


def test_gradcheck_refuses_complex_numbers():
    z = torch.tensor([1 + 2j, 0.5 - 1j], dtype=torch.complex128, requires_grad=True)
    x = ao.tensor([1.0, 2.0], dtype=torch.float64)
    with pytest.raises(ao.UnsupportedError, match="complex"):
        ao.gradcheck(lambda t: (t * t.conj()).real.sum(), z)
    with pytest.raises(ao.UnsupportedError, match="complex"):
        ao.gradcheck(lambda t: torch.complex(t, t * 2), x)
    with ao.AutogradGraph():
        assert torch.autograd.gradcheck(lambda t: (t * t.conj()).real.sum(), (z,))


def test_gradcheck_needs_an_input():
    with pytest.raises(ValueError, match="at least one input"):
        ao.gradcheck(lambda x: x, torch.ones(2))


@OPTIMIZE
def test_torchs_gradcheck_works_inside(optimize):
    x = torch.tensor([0.3, -0.7], dtype=torch.float64, requires_grad=True)
    with ao.AutogradGraph(optimize=optimize):
        assert torch.autograd.gradcheck(lambda t: t.sin() * t, (x,), fast_mode=True)
        assert torch.autograd.gradgradcheck(lambda t: t.sin() * t, (x,))
        with pytest.raises(TorchGradcheckError):
            torch.autograd.gradcheck(SlightlyWrong.apply, (x,))
