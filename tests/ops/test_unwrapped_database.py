"""Samples of torch's database whose check of derivatives changes the operands first: here they are called as they are.

A matrix made Hermitian on the way, say, hides what the derivative is of a part that is none.
"""

from __future__ import annotations

import warnings
from contextlib import AbstractContextManager, nullcontext
from itertools import islice
from typing import Any

import pytest
import torch
from torch.testing._internal.common_methods_invocations import op_db
from torch.utils._pytree import tree_flatten, tree_unflatten

import autograd_opt as ao

Tensor = torch.Tensor
WRAPPED = [op for op in op_db if op.supports_autograd and op.gradcheck_wrapper.__name__ != "<lambda>"]


def gradients(op: Any, sample: Any, context: AbstractContextManager[Any]) -> list[Tensor | None]:
    flat, structure = tree_flatten((sample.input, sample.args, sample.kwargs))
    given = [t.detach().clone().requires_grad_() if isinstance(t, Tensor) and t.requires_grad else t for t in flat]
    first, args, kwargs = tree_unflatten(given, structure)
    with context:
        torch.manual_seed(0)
        results = tree_flatten(op.op(first, *args, **kwargs))[0]
        roots = [t for t in results if isinstance(t, Tensor) and t.requires_grad]
        torch.autograd.backward(roots, [torch.randn_like(t) for t in roots])
    return [t.grad for t in given if isinstance(t, Tensor) and t.requires_grad]


@pytest.mark.slow
@pytest.mark.parametrize("dtype", [torch.float64, torch.complex128], ids=str)
def test_gradients_as_in_torch(dtype: torch.dtype) -> None:
    seen = 0
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for op in WRAPPED:
            if dtype not in op.supported_backward_dtypes("cpu"):
                continue
            for number, sample in enumerate(islice(op.sample_inputs("cpu", dtype, requires_grad=True), 6)):
                try:
                    wanted = gradients(op, sample, nullcontext())
                except RuntimeError:
                    continue                # a sample that wants its operands changed
                found = gradients(op, sample, ao.AutogradGraph())
                torch.testing.assert_close(found, wanted, equal_nan=True, msg=f"{op.name}, sample {number}")
                seen += 1
    assert seen > 60
