"""Run one program under torch eager and inside graphs, and compare everything a user can see."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

import autograd_opt as ao

Tensor = torch.Tensor


def leaves_like(inputs: Sequence[Any], kind: str) -> list[Any]:
    """Fresh leaves with the inputs' values: plain tensors or CustomTensors."""
    made = []
    for x in inputs:
        if not isinstance(x, Tensor):
            made.append(x)
        elif not (x.is_floating_point() or x.is_complex()):
            made.append(x.clone())
        elif kind == "custom":
            made.append(ao.tensor(x, requires_grad=True))
        else:
            made.append(x.detach().clone().requires_grad_())
    return made


def outcome(program: Callable[..., Any], leaves: list[Any]) -> tuple[Any, list[Any], Any]:
    """(value, gradients, error) of `program(*leaves)` followed by backward."""
    try:
        value = program(*leaves)
        if value is not None and value.requires_grad:
            value.sum().backward()
    except Exception as error:
        return None, [], error
    grads = [x.grad.detach().clone() if isinstance(x, Tensor) and x.grad is not None else None for x in leaves]
    return None if value is None else value.detach().clone(), grads, None


def same(a: Any, b: Any, rtol: float = 1e-7, atol: float = 1e-9) -> bool:
    """Equal structure, dtype and values, NaN equal to NaN."""
    if a is None or b is None:
        return a is None and b is None
    with torch._C.DisableTorchFunction():
        a, b = a.as_subclass(Tensor), b.as_subclass(Tensor)
        return a.shape == b.shape and a.dtype == b.dtype and torch.allclose(a, b, rtol, atol, equal_nan=True)


def compare(program: Callable[..., Any], *inputs: Any, kinds: Sequence[str] = ("custom", "plain"),
            rtol: float = 1e-7, atol: float = 1e-9) -> None:
    """Assert that `program` gives torch eager's value, gradients and error type in every graph mode."""
    torch.manual_seed(0)
    expected = outcome(program, leaves_like(inputs, "plain"))
    state = torch.get_rng_state()
    for optimize in (False, True):
        for kind in kinds:
            torch.manual_seed(0)
            leaves = leaves_like(inputs, kind)
            with ao.AutogradGraph(optimize=optimize):
                value, grads, error = outcome(program, leaves)
            label = f"optimize={optimize}, {kind} leaves"
            if expected[2] is not None:
                assert error is not None, f"{label}: torch raises {expected[2]!r}, this library does not"
                assert isinstance(error, type(expected[2])), f"{label}: {error!r} is no {type(expected[2])}"
                continue
            if error is not None:
                raise AssertionError(f"{label}: torch has no error") from error
            assert same(value, expected[0], rtol, atol), f"{label}: value {value} is not {expected[0]}"
            for i, (mine, theirs) in enumerate(zip(grads, expected[1], strict=True)):
                assert same(mine, theirs, rtol, atol), f"{label}: gradient {i}\n{mine}\nis not\n{theirs}"
            assert torch.equal(torch.get_rng_state(), state), f"{label}: another generator state"
