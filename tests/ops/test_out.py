"""`out=` of operations that no gradient follows gives torch's values in both modes, with gradients on and off."""

from __future__ import annotations

import contextlib
import itertools
import warnings
from typing import Any

import pytest
import torch
from torch.utils._pytree import tree_leaves, tree_map

import autograd_opt as ao
from tests.opinfo_sweep import entries

pytest.importorskip("expecttest", reason="torch's OpInfo database needs it")


def written(context: Any, op: Any, sample: Any, grad: bool) -> list[torch.Tensor]:
    """What the call returns, then what it has written."""
    def call(**out: Any) -> Any:
        torch.manual_seed(0)
        return op.op(sample.input, *sample.args, **sample.kwargs, **out)

    with torch.no_grad():
        made = call()
    out = tuple(map(torch.empty_like, made)) if isinstance(made, tuple) else tree_map(torch.empty_like, made)
    with context, torch.set_grad_enabled(grad):
        return [t.clone() for t in (*tree_leaves(call(out=out)), *tree_leaves(out)) if t is not None]


def compare(op: Any, sample: Any, grad: bool) -> bool:
    """Compare with torch; False where it refuses the call."""
    try:
        expected = written(contextlib.nullcontext(), op, sample, grad)
    except (RuntimeError, TypeError):
        return False
    for optimize in (False, True):
        for one, other in zip(expected, written(ao.AutogradGraph(optimize=optimize), op, sample, grad), strict=True):
            torch.testing.assert_close(other, one, equal_nan=True, msg=f"optimize={optimize}, grad={grad}")
    return True


def test_as_torch() -> None:
    compared, wrong = 0, []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for op in entries():
            if not op.supports_out:
                continue
            samples = itertools.islice(op.sample_inputs("cpu", torch.float64), 1)
            for sample, grad in itertools.product(samples, (True, False)):
                try:
                    compared += compare(op, sample, grad)
                except Exception as error:
                    wrong.append(f"{op.full_name}: {type(error).__name__} {error}")
    assert not wrong, "\n".join(wrong)
    assert compared > 500
