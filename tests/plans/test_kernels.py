"""How a plan calls kernels: composite operators as what they are made of, each by the shortest way that calls it."""

from __future__ import annotations

from typing import Any

import pytest
import torch

import autograd_opt as ao
from autograd_opt.abi import torch_private as private
from autograd_opt.plans.bindings import binding_of

Tensor = torch.Tensor
aten = torch.ops.aten


def test_composite_operators_are_seen_as_what_they_are_made_of() -> None:
    weight, bias = torch.randn(4, 3), torch.randn(4)
    f = ao.compile(lambda x: torch.nn.functional.linear(x, weight, bias).reshape(-1).contiguous())
    for _ in range(3):
        x = torch.randn(2, 5, 3)
        torch.testing.assert_close(f(x), torch.nn.functional.linear(x, weight, bias).reshape(-1))
    (kind,) = f.report().kinds
    assert not any(private.is_composite(getattr(getattr(aten, name.split(".")[0]), name.split(".")[1]))
                   for name in kind.kernels)


@pytest.mark.parametrize(
    ("operator", "args", "kwargs"),
    [
        (aten.transpose.int, (torch.ones(2, 3), 0, 1), {}),
        (aten.sum.dim_IntList, (torch.ones(2, 3), [0], True), {}),
        (aten.addmm.default, (torch.ones(2), torch.ones(2, 3), torch.ones(3, 2)), {}),
        (aten.add_.Tensor, (torch.ones(2), torch.ones(2)), {"alpha": 2}),
        (aten.empty_like.default, (torch.ones(2),), {"pin_memory": False}),
        (aten.native_layer_norm.default, (torch.ones(2, 3), [3], None, None, 1e-5), {}),
        (aten.bernoulli_.float, (torch.ones(2), 0.25), {}),
    ],
)
def test_a_binding_calls_the_operator_itself(operator: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    """It is found without running anything, also not what writes or draws."""
    before = torch.default_generator.get_state()
    found = binding_of(operator, args, kwargs)
    assert found is not private.direct(operator)
    assert torch.equal(before, torch.default_generator.get_state())
    assert all(bool((t == 1).all()) for t in args if isinstance(t, Tensor))


def test_an_operator_that_no_binding_calls_is_called_by_its_schema() -> None:
    operator = aten.native_layer_norm_backward.default
    x, one = torch.randn(2, 3), torch.ones(2, 1)
    args = (x, x, [3], one, one, None, None, [True, False, False])
    assert binding_of(operator, args, {}) is private.direct(operator)


def test_a_binding_that_would_call_another_overload_is_not_taken() -> None:
    """`x.add(1)` is `add.Tensor` with a number made a tensor: `add.Scalar` has no binding."""
    assert binding_of(aten.add.Scalar, (torch.ones(2), 1), {}) is private.direct(aten.add.Scalar)


DRAWS: dict[str, Any] = {
    "dropout": lambda x: torch.dropout(x, 0.3, True),
    "dropout of a transposed tensor": lambda x: torch.dropout(x.t(), 0.5, True),
    "noise": lambda x: x + torch.empty_like(x).normal_(),
    "new memory": lambda x: x * x.new_empty(4, 3).uniform_(-1, 1),
    "seen in two shapes": lambda x: x * torch.empty(12).exponential_().view(4, 3),
    "drawn twice": lambda x: x + torch.empty_like(x).normal_().uniform_(),
    "in the memory of a value": lambda x: (y := x * 2, y.sin(), y.bernoulli_(0.5))[1] + y,
    "handed out": lambda x: torch.empty_like(x).random_(0, 9),
}


@pytest.mark.parametrize("draw", DRAWS)
def test_random_numbers_are_drawn_into_memory_of_the_plan(draw: str) -> None:
    """They are torch's numbers, the generator is left as torch leaves it, and what is computed of them is fused."""
    function = DRAWS[draw]
    compiled = ao.compile(lambda x: function(x.sin()).exp())
    for k in range(5):
        x = torch.randn(4, 3)
        torch.manual_seed(k)
        expected, state = function(x.sin()).exp(), torch.get_rng_state()
        torch.manual_seed(k)
        torch.testing.assert_close(compiled(x), expected)
        assert torch.equal(torch.get_rng_state(), state)
    assert not compiled.report().kinds[0].reason


def test_a_dropout_is_one_draw_and_elements_of_a_stretch() -> None:
    compiled = ao.compile(lambda x: torch.dropout(x.sin(), 0.3, True).exp())
    for _ in range(3):
        compiled(torch.randn(4, 3))
    (kind,) = compiled.report().kinds
    assert {name for name in kind.kernels if "empty" not in name} == {"bernoulli_.float"}
