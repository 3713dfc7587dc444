"""Results and arguments that are no ordinary tensors: None among results, quantized tensors, objects of pybind11."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

import autograd_opt as ao
from autograd_opt.record.nested_values import substitute

OPTIMIZE = pytest.mark.parametrize("optimize", [False, True])


@OPTIMIZE
def test_a_result_that_is_none(optimize: bool) -> None:
    """torch's own attention returns no weights where nobody wants them."""
    torch.manual_seed(0)
    x, inner, outer = torch.rand(2, 3, 16), torch.nn.Linear(16, 48), torch.nn.Linear(16, 16)

    def step() -> Any:
        return torch._native_multi_head_attention(
            x, x, x, 16, 4, inner.weight, inner.bias, outer.weight, outer.bias, None, False, False, 1)

    with torch.no_grad():
        theirs = step()
        with ao.AutogradGraph(optimize=optimize):
            for _ in range(3):
                ours = step()
                assert torch.equal(ours[0], theirs[0])
                assert ours[1] is theirs[1] is None


@OPTIMIZE
@pytest.mark.parametrize("call", [
    lambda q: q.flip(0), lambda q: q.clone(), lambda q: q.reshape(-1), lambda q: q.t(), lambda q: torch.relu(q),
    lambda q: torch.cat([q, q]), lambda q: q.transpose(0, 1).contiguous(), lambda q: q[0], lambda q: q.detach(),
])
@pytest.mark.filterwarnings("ignore:torch.quantize_per")
@pytest.mark.parametrize("channels", [False, True])
def test_quantized_tensors_met_again(call: Callable[[Any], Any], channels: bool, optimize: bool) -> None:
    """torch's copy-on-write clone of a quantized tensor has no quantizer: asking for one ends the process."""
    values = torch.linspace(-1, 1, 12).reshape(3, 4)
    q = torch.quantize_per_channel(values, torch.tensor([0.1, 0.2, 0.3]), torch.tensor([0, 1, 2]), 0, torch.qint8) \
        if channels else torch.quantize_per_tensor(values, 0.1, 2, torch.quint8)
    try:
        theirs = call(q)
    except (RuntimeError, NotImplementedError) as error:
        with ao.AutogradGraph(optimize=optimize), pytest.raises(type(error)):
            call(q)
        return
    with ao.AutogradGraph(optimize=optimize):
        results = [call(q) for _ in range(4)]
    for ours in results:
        assert ours.qscheme() == theirs.qscheme()
        assert torch.equal(ours.int_repr(), theirs.int_repr())


def test_arguments_of_classes_with_other_metaclasses() -> None:
    """The numbers of torch's enumerations are objects whose class is not made by `type` itself."""
    kind = torch.nn.attention.SDPBackend.MATH
    assert type(type(kind)) is not type
    t = torch.zeros(2)
    u = t + 1
    assert substitute((kind, [t, kind], {"k": kind}), {id(t): u}) == (kind, [u, kind], {"k": kind})


@OPTIMIZE
def test_a_parameter_without_a_size(optimize: bool) -> None:
    layer = torch.nn.LazyLinear(2)
    with ao.AutogradGraph(optimize=optimize):
        for call in (lambda: layer.weight + 1, lambda: layer.weight.sum(), lambda: torch.relu(layer.weight),
                     lambda: torch.empty_like(layer.weight)):
            with pytest.raises(ValueError, match="uninitialized parameter"):
                call()
        layer(torch.ones(3, 4)).sum().backward()
    assert layer.weight.grad.shape == (2, 4)
