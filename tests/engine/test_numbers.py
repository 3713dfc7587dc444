"""Numbers beside tensors give torch's bits, the first time and each time after."""

from __future__ import annotations

import contextlib
import math
import struct
import warnings
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch.utils._python_dispatch import TorchDispatchMode

import autograd_opt as ao

Tensor = torch.Tensor
NUMBERS = [0.1, 1.5, 1 / 3, -0.0, 0.0, 1e300, -1e300, 1e-320, math.inf, math.nan, 3, -7, 0, 2**24 + 1, 2**53 - 1, 2**60,
           1, 1.0]
OPERATORS = {"+": lambda a, b: a + b, "-": lambda a, b: a - b, "*": lambda a, b: a * b, "/": lambda a, b: a / b}


def bits(t: Tensor) -> list[int]:
    return t.detach().reshape(-1).view(torch.uint8).tolist()


def same_bits(a: Tensor, b: Tensor) -> bool:
    return a.dtype is b.dtype and a.shape == b.shape and a.stride() == b.stride() and bits(a) == bits(b)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.float16, torch.bfloat16])
@pytest.mark.parametrize("shape", [(), (7,), (33, 2)])
@pytest.mark.parametrize("optimize", [False, True])
def test_bits_are_torchs(dtype: torch.dtype, shape: tuple[int, ...], optimize: bool) -> None:
    torch.manual_seed(0)
    data = torch.randn(shape).to(dtype)
    for number in NUMBERS:
        for name, op in OPERATORS.items():
            there, here = data.clone().requires_grad_(), ao.tensor(data.clone())
            expected = op(there, number)
            expected.sum().backward()
            for _ in range(3):
                here.grad = None
                with ao.AutogradGraph(optimize=optimize):
                    got = op(here * 1, number)
                    got.sum().backward()
                assert same_bits(got, op(data * 1, number)), (name, number)
                assert same_bits(here.grad, there.grad), (name, number)


def test_a_mode_below_sees_the_number() -> None:
    seen: list[Any] = []

    class Watch(TorchDispatchMode):
        def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            seen.extend(a for a in args if isinstance(a, float))
            return func(*args, **(kwargs or {}))

    x = ao.tensor(torch.rand(3))
    for _ in range(3):
        with ao.AutogradGraph():
            x * 2.625
    with ao.AutogradGraph(), Watch():
        x * 2.625
    assert seen == [2.625]


def test_numbers_met_inside_a_transform_serve_outside() -> None:
    x, batch = ao.tensor(torch.rand(3)), torch.rand(4, 3)
    with ao.AutogradGraph():
        for _ in range(3):
            inside = torch.vmap(lambda t: t * 3.875 + x)(batch)
        outside = x * 3.875
    assert torch.equal(inside, batch * 3.875 + x.detach())
    assert torch.equal(outside.detach(), x.detach() * 3.875)


def test_other_memory_than_dense_takes_the_number() -> None:
    sparse = torch.eye(3).to_sparse().requires_grad_()
    for _ in range(3):
        with ao.AutogradGraph():
            y = sparse * 4.125
        assert y.is_sparse
        assert torch.equal(y.detach().to_dense(), torch.eye(3) * 4.125)


def test_numbers_give_way_to_others() -> None:
    x = ao.tensor(torch.rand(3))
    with ao.AutogradGraph():
        for _ in range(2):
            for k in range(2000):
                y = x * (k + 0.5)
                assert k % 100 or torch.equal(y.detach(), x.detach() * (k + 0.5))


def test_a_small_number_is_flushed_or_not_as_the_thread_is_set_now() -> None:
    data = torch.full((3,), 1e10)
    x = ao.tensor(data.clone())
    expected, got = [], []
    try:
        for flush in (True, False):
            if not torch.set_flush_denormal(flush):
                pytest.skip("this processor does not flush denormal numbers")
            expected.append(data * 1e-40)
            with ao.AutogradGraph():
                got += [[(x * 1e-40).detach() for _ in range(3)]]
    finally:
        torch.set_flush_denormal(False)
    for torchs, ours in zip(expected, got, strict=True):
        assert all(same_bits(torchs, t) for t in ours)


def test_a_number_is_told_apart_by_its_type_and_by_the_type_of_the_tensor() -> None:
    """-1 has the bits of a NaN, and a number kept for float32 is rounded."""
    nan = struct.unpack("d", (-1).to_bytes(8, "little", signed=True))[0]
    data = torch.rand(3, dtype=torch.float64)
    x = ao.tensor(data.clone())
    with ao.AutogradGraph():
        for number in (-1, nan, -1, nan):
            for _ in range(3):
                assert same_bits(x * number, data * number)
    y = ao.tensor(data.float())
    with ao.AutogradGraph():
        for k in range(2000):                    # some fall on one place for both types
            for t in (y, y, x, x):
                z = t * (k + 0.3)
            if not same_bits(z, data * (k + 0.3)):
                pytest.fail(f"{k + 0.3} was rounded to float32")


@pytest.mark.parametrize("number", [2, 3, 0.5, -1, 2.0, -0.5, 2.5])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_powers_take_the_number(dtype: torch.dtype, number: float) -> None:
    data = torch.rand(1000, dtype=dtype) + 0.5
    x = ao.tensor(data.clone())
    with ao.AutogradGraph():
        for _ in range(4):
            assert same_bits(x ** number, data ** number)


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@pytest.mark.parametrize("optimize", [False, True])
def test_a_trace_sees_numbers(optimize: bool) -> None:
    """A number met again stays one for torch.jit.trace: what is made while it watches belongs to the trace."""
    x = torch.randn(3)
    with ao.AutogradGraph(optimize=optimize):
        traced = torch.jit.trace(lambda t: (t * 2.625).sin() + 2.625, x, check_trace=False)
        again = ao.tensor(x.clone()) * 2.625
    assert torch.equal(traced(x), (x * 2.625).sin() + 2.625)
    assert torch.equal(again.detach(), x * 2.625)
    assert "aten::to" not in str(traced.graph)


CALLS_WITH_A_NUMBER: dict[str, Any] = {
    "add": lambda x, s: torch.add(x, x, alpha=s), "addcmul": lambda x, s: torch.addcmul(x, x, x, value=s),
    "leaky_relu": F.leaky_relu, "elu": F.elu, "huber": lambda x, s: F.huber_loss(x, x + 1, delta=s),
    "dropout": F.dropout, "add_": lambda x, s: (x * 1).add_(x, alpha=s), "hardshrink": F.hardshrink,
}


@pytest.mark.parametrize("computed", [False, True])
@pytest.mark.parametrize("name", CALLS_WITH_A_NUMBER)
def test_a_number_that_a_gradient_would_follow_is_refused(name: str, computed: bool) -> None:
    """As in torch: its gradient would be lost."""
    x, slope = torch.ones(3, requires_grad=True), torch.tensor(0.5, requires_grad=True)
    for context in (contextlib.nullcontext(), ao.AutogradGraph(), ao.AutogradGraph(optimize=True)):
        with context, pytest.raises(TypeError, match=r"must be (Number|float), not (Tensor|Parameter)"):
            CALLS_WITH_A_NUMBER[name](x, slope * 1 if computed else slope)
        with context if isinstance(context, contextlib.nullcontext) else ao.AutogradGraph():
            assert CALLS_WITH_A_NUMBER[name](x, (slope * 1).detach()).shape in (x.shape, ())


@pytest.mark.parametrize("optimize", [False, True])
def test_lists_of_recorded_numbers_are_data(optimize: bool) -> None:
    """A tensor is no sequence, which torch.tensor would look into."""
    x, data = torch.ones(2, requires_grad=True), torch.arange(6.0).reshape(2, 3)
    with warnings.catch_warnings(), ao.AutogradGraph(optimize=optimize):
        warnings.simplefilter("ignore")
        for make in (torch.tensor, torch.as_tensor, torch.Tensor, x.new_tensor, torch.FloatTensor):
            assert make([x[0], (x * 2).sum()]).tolist() == [1, 4]
        assert torch.tensor([[x.sum(), 3.0]]).tolist() == [[2, 3]]
        assert torch.tensor([data[0, 1] * 2, data.sum()]).tolist() == [2, 15]
        for rows in ([data[0], data[1] * 2], [x, x * 2]):
            with pytest.raises(ValueError, match="only one element tensors"):
                torch.tensor(rows)
        assert np.array([data[0] * 2, data[1]]).tolist() == [[0, 2, 4], [3, 4, 5]]
