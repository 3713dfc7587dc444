"""Modes of torch functions that were entered before a context, and what torch does otherwise under any such mode."""

from __future__ import annotations

import warnings
from contextlib import nullcontext
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch.overrides import TorchFunctionMode

import autograd_opt as ao

CONTEXTS = [nullcontext, lambda: ao.AutogradGraph(optimize=False), lambda: ao.AutogradGraph(optimize=True)]


class Doubling(TorchFunctionMode):
    """Doubles sines."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: list[str] = []

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name = getattr(func, "__name__", "")
        self.seen.append(name)
        result = func(*args, **(kwargs or {}))
        return result * 2 if name == "sin" else result


def modes() -> list[Any]:
    return [torch.overrides._get_current_function_mode_stack()] if hasattr(
        torch.overrides, "_get_current_function_mode_stack") else []


def test_a_mode_from_before_is_asked_first() -> None:
    found = []
    for context in CONTEXTS:
        x = torch.ones(2, requires_grad=True)
        before = modes()
        with Doubling() as mode:
            with context():
                y = x.sin()
                z = torch.cos(y) + 1
                z.sum().backward()
            outside = torch.ones(1).sin()
        assert modes() == before
        found.append((y.detach(), x.grad, outside, "sin" in mode.seen and "cos" in mode.seen))
    torch.testing.assert_close(found[1:], found[:1] * 2)


def test_several_modes_and_devices() -> None:
    for context in CONTEXTS:
        x = torch.ones(2, requires_grad=True)
        with torch.device("cpu"), Doubling() as first, torch.device("cpu"), Doubling() as second:
            with context(), Doubling() as third:
                (x.sin() + torch.zeros(2)).sum().backward()
            assert all("sin" in mode.seen for mode in (first, second, third))
            assert float(torch.zeros(1).cos()) == 1
        assert x.grad is not None
        torch.testing.assert_close(x.grad, 8 * torch.ones(2).cos())


@pytest.mark.parametrize("optimize", [False, True])
def test_an_error_leaves_the_modes_as_they_were(optimize: bool) -> None:
    before = modes()
    with Doubling() as mode:
        with pytest.raises(ZeroDivisionError), ao.AutogradGraph(optimize=optimize):
            raise ZeroDivisionError
        mode.seen.clear()
        torch.ones(1).sin()
        assert "sin" in mode.seen
    assert modes() == before


def test_the_weight_of_an_absolute_loss() -> None:
    """torch's function leaves the weight out of what it hands to a mode."""
    w, t = torch.tensor([1.0, 3.0]), torch.zeros(2)
    found = []
    for context in CONTEXTS:
        x = torch.tensor([1.0, 2.0], requires_grad=True)
        with context():
            y = F.l1_loss(x, t, weight=w)
            y.backward()
        found.append((y.detach(), x.grad))
    torch.testing.assert_close(found[1:], found[:1] * 2)


@pytest.mark.parametrize("masked", [False, True])
def test_layers_that_torch_computes_in_one_kernel(masked: bool) -> None:
    """In eval mode and without gradients, torch leaves out what is padded."""
    torch.manual_seed(0)
    encoder = torch.nn.TransformerEncoder(torch.nn.TransformerEncoderLayer(8, 2, 16, batch_first=True), 2).eval()
    attention = torch.nn.MultiheadAttention(8, 2, batch_first=True).eval()
    x = torch.randn(2, 3, 8)
    mask = torch.tensor([[0, 0, 1], [0, 1, 1]]).bool() if masked else None
    found = []
    for context in CONTEXTS:
        with context(), warnings.catch_warnings():
            warnings.simplefilter("ignore")             # nested tensors are a prototype
            p = x.clone().requires_grad_() * 1
            with torch.no_grad():
                y, z = encoder(p, src_key_padding_mask=mask), attention(p, p, p, key_padding_mask=mask)[0]
            (p * y * z).sum().backward()
        found.append((y.detach(), z.detach()))
    torch.testing.assert_close(found[1:], found[:1] * 2, rtol=0, atol=0)


def test_a_tensor_with_a_history_requires_grad_already() -> None:
    x = torch.ones(2, requires_grad=True)
    h = x * 1
    with ao.AutogradGraph(), Doubling():
        assert h.requires_grad_() is h
        with pytest.raises(RuntimeError, match="leaf variables"):
            h.requires_grad_(False)
        h.sum().backward()
    assert x.grad is not None
    assert x.grad.tolist() == [1, 1]
