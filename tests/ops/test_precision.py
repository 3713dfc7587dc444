"""Every operator form of the table of rows in lower precision: gradients of the dtypes of their leaves."""

from __future__ import annotations

import warnings
from typing import Any

import pytest
import torch

import autograd_opt as ao
from tests.ops.checker import cotangents, differentiable
from tests.ops.rows import ROWS

LEAST = {torch.bfloat16: 510, torch.float16: 510, torch.float32: 535}
"""How many rows torch itself can compute."""


def lowered(inputs: list[Any], dtype: torch.dtype) -> list[Any]:
    """Leaves in `dtype`; complex ones and what is no leaf as they are."""
    def lower(t: Any) -> Any:
        if not isinstance(t, torch.Tensor) or not t.is_floating_point():
            return t
        return t.detach().to(dtype).requires_grad_(t.requires_grad)
    return [lower(t) for t in inputs]


def gradients(function: Any, inputs: list[Any], grad: Any) -> list[Any]:
    roots = differentiable(function(*inputs))
    leaves = [t for t in inputs if isinstance(t, torch.Tensor) and t.requires_grad]
    return list(grad(roots, leaves, cotangents(roots, 1), allow_unused=True))


@pytest.mark.parametrize("dtype", LEAST, ids=str)
def test_gradients_have_the_dtype_of_their_leaves(dtype: torch.dtype) -> None:
    compared, wrong = 0, []
    for row in ROWS:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            torch.manual_seed(0)
            try:
                wanted = gradients(row.function, lowered(row.make(), dtype), torch.autograd.grad)
            except RuntimeError:
                continue                     # torch has no such kernel
            torch.manual_seed(0)
            with ao.AutogradGraph() as graph:
                found = gradients(row.function, lowered(row.make(), dtype), graph.grad)
        compared += 1
        for k, (mine, theirs) in enumerate(zip(found, wanted, strict=True)):
            if mine is not None and theirs is not None and (mine.dtype, mine.shape) != (theirs.dtype, theirs.shape):
                wrong.append(f"{row.name}, input {k}: {mine.dtype} {tuple(mine.shape)}, torch has {theirs.dtype}")
    assert not wrong, "\n".join(wrong)
    assert compared >= LEAST[dtype]
