"""torch's own gradcheck inside a context."""

from __future__ import annotations

import warnings

import torch
from torch.autograd import Function, gradcheck
from torch.autograd.gradcheck import GradcheckError

from tests.engine.behaviour import caught, group

checks = group("gradcheck / gradgradcheck (torch's own, inside a context)")


@checks("test_gradcheck_single_input")
def single_input(new):
    """A single tensor instead of a tuple, fast and slow."""
    x = new.randn(3)
    return [gradcheck(lambda t: t.mul(5) * t, x, fast_mode=fast) for fast in (False, True)]


@checks("test_gradcheck_nondeterministic")
def not_deterministic(new):
    """A backward that is not reproducible is found."""
    class Jitter(Function):
        @staticmethod
        def forward(ctx, x, jitter=0.0):
            ctx.jitter = jitter
            return x * 2

        @staticmethod
        def backward(ctx, g):
            return g * 2 + ctx.jitter * torch.randn_like(g), None

    x = new.randn(3)
    return caught(lambda: gradcheck(lambda t: Jitter.apply(t, 1e-2), (x,)), 5)


@checks("test_gradcheck_jacobian_mismatch")
def wrong_gradient(new):
    """A wrong gradient is found, with the type of error."""
    class Wrong(Function):
        @staticmethod
        def forward(ctx, x):
            return x * 2

        @staticmethod
        def backward(ctx, g):
            return g * 3

    x = new.randn(3)
    return (caught(lambda: gradcheck(Wrong.apply, (x,)), 8), gradcheck(Wrong.apply, (x,), raise_exception=False),
            issubclass(GradcheckError, RuntimeError))


@checks("test_gradcheck_output_shape_or_dtype_depend_on_values")
def output_that_depends_on_values(new):
    """A function whose output's shape depends on its input's values."""
    x = new(torch.ones(3))

    def f(t):
        return torch.cat([t, t]) if bool((t >= 1).all()) else t

    return caught(lambda: gradcheck(f, (x,), fast_mode=False), 20)


@checks("test_gradcheck_get_numerical_jacobian")
def numerical_jacobian(new):
    """The numerical Jacobian of a function of two inputs."""
    from torch.autograd.gradcheck import get_numerical_jacobian
    x, y = new.randn(2), new.randn(2)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found = caught(lambda: get_numerical_jacobian(lambda i: (2 * i[0] + i[1],), (x, y)))
        return found if not isinstance(found, tuple) else [j.round(decimals=4) for j in found]


@checks("test_gradcheck_adjusted_atol_complex_inputs")
def complex_inputs(new):
    """gradcheck of a complex function in fast mode."""
    z = new([1.0 + 2.0j, -0.5 + 0.3j], dtype=torch.complex128)
    return gradcheck(lambda t: t.exp() * t.conj(), (z,), fast_mode=True)


@checks("test_gradcheck_check_no_differentiable_outputs")
def no_differentiable_output(new):
    """A function without a differentiable output has numerical derivative zero."""
    x = new.randn(3)
    return gradcheck(lambda t: torch.tensor([1.0]), (x,)), caught(lambda: gradcheck(lambda t: t.detach() * 2, (x,)), 10)


@checks("test_gradcheck_backward_mul_by_grad_output")
def backward_that_forgets_its_cotangent(new):
    """A backward that does not multiply by its cotangent is found out"""
    class Forgets(Function):
        @staticmethod
        def forward(ctx, x):
            return x.clone()

        @staticmethod
        def backward(ctx, g):
            return torch.ones_like(g) * 3

    x = new.randn(3)
    return gradcheck(Forgets.apply, (x,), raise_exception=False), caught(lambda: gradcheck(Forgets.apply, (x,)), 20)


@checks("test_gradcheck_check_forward_or_backward_only")
def neither_direction(new):
    """A check of neither direction is refused"""
    x = new.randn(2)
    return caught(lambda: gradcheck(torch.sin, (x,), check_forward_ad=False, check_backward_ad=False), 30)


@checks("test_gradcheck_test_outputs")
def outputs_without_gradient(new):
    """Complex and integer outputs beside a differentiable one"""
    x = new.randn(3)
    integers = gradcheck(lambda v: (v * 2, (v > 0).to(torch.int64)), (x,))
    return integers, gradcheck(lambda v: torch.complex(v, v * 3), (x,))


@checks("test_gradcheck_get_analytical_jacobian")
def analytical_and_numerical(new):
    """A random backward is reported differently from a wrong one"""
    class Chance(Function):
        @staticmethod
        def forward(ctx, x):
            return x.clone()

        @staticmethod
        def backward(ctx, g):
            return g * (1 + torch.rand_like(g))

    x = new.randn(2)
    return caught(lambda: gradcheck(Chance.apply, (x,)), 0)


test_gradchecks = checks.check()
