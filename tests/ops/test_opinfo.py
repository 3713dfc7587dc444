"""A slice of torch's own OpInfo samples: up to two of each operator, first order.

The whole sweep, with its options for second order, in-place variants and other dtypes, is the
harness's work; this is its command (about a minute on two cores):

    AUTOGRAD_OPT_OPTIMIZE=1 python opinfo_check.py --runner tests/opinfo_runner.py:grads2 --order 2
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from typing import Any

import pytest
import torch

from tests import opinfo_runner
from tests.ops.checker import assert_same

pytest.importorskip("expecttest", reason="torch's OpInfo database needs it")

SPARSE = {"sparse.sampled_addmm", "sparse.mm.reduce", "to_sparse"}
RANDOM = {"normal", "bernoulli"}
MOST = 2


def operators() -> list[Any]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from torch.testing._internal.common_methods_invocations import op_db
    return [
        op for op in op_db
        if op.supports_autograd and op.full_name not in SPARSE and op.name not in RANDOM
        and torch.float64 in op.supported_dtypes("cpu") & op.supported_backward_dtypes("cpu")
    ]


def small_samples(op: Any) -> Iterator[Any]:
    """The first samples with a gradient, inputs of at most 200 elements."""
    found = 0
    for sample in op.sample_inputs("cpu", torch.float64, requires_grad=True):
        leaves = opinfo_runner.leaves_of((sample.input, *sample.args), sample.kwargs)
        if leaves and all(0 < t.numel() <= 200 for t in leaves):
            yield sample
            found += 1
            if found == MOST:
                return


def call(op: Any, sample: Any) -> Any:
    def function(*args: Any, **kwargs: Any) -> Any:
        return sample.output_process_fn_grad(op.gradcheck_wrapper(op.get_op(), *args, **kwargs))
    return function


def cotangents() -> Any:
    """cot(i, t): fixed numbers for output i, or None where it has no gradient."""
    made: dict[int, torch.Tensor] = {}

    def cot(i: int, t: torch.Tensor) -> torch.Tensor | None:
        if not t.requires_grad:
            return None
        if i not in made:
            with torch.no_grad():
                made[i] = torch.linspace(0.5, 1.5, t.numel(), dtype=torch.float64).reshape(t.shape).to(t.dtype)
        return made[i]
    return cot


@pytest.mark.slow
@pytest.mark.parametrize("op", operators(), ids=lambda op: op.full_name)
def test_opinfo(op: Any) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for sample in small_samples(op):
            arguments, kwargs, cot = (sample.input, *sample.args), sample.kwargs, cotangents()
            leaves = opinfo_runner.leaves_of(arguments, kwargs)
            torch.manual_seed(0)
            roots, given = opinfo_runner.wanted(call(op, sample)(*arguments, **kwargs), cot)
            if not roots:
                continue
            theirs = torch.autograd.grad(roots, leaves, given, allow_unused=True)
            torch.manual_seed(0)
            _, mine = opinfo_runner.grads(call(op, sample), arguments, kwargs, cot)
            for k, (a, b) in enumerate(zip(mine, theirs, strict=True)):
                assert_same(a, b, f"gradient {k}")
