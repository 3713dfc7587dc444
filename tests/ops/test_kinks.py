"""Derivatives where functions have kinks: at bounds and ties, at zeros, infinite and NaN, beside torch eager.

`python -m tests.opinfo_sweep --kinks finite` (or `special`, with `--order 2`) does this with all samples.
"""

from __future__ import annotations

import warnings
from dataclasses import replace
from typing import Any

import pytest
import torch

from autograd_opt.ops import arithmetic
from tests import opinfo_runner
from tests.kinks import CASES, Case
from tests.opinfo_compare import Setting, run_sample
from tests.opinfo_kinks import FILLS, LEFT_OUT, Fill, kinked
from tests.opinfo_sweep import entries
from tests.ops.test_opinfo import some_samples

pytest.importorskip("expecttest", reason="torch's OpInfo database needs it")

OPTIMIZED, SECOND = Setting(), Setting(order=2, optimize=False, twice=False)
NAMED = [(OPTIMIZED, FILLS["finite"][k]) for k in (0, 1, 3)] + [
    (OPTIMIZED, FILLS["special"][0]), (SECOND, FILLS["finite"][0]), (SECOND, FILLS["special"][0])]


@pytest.fixture(autouse=True)
def quiet() -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


@pytest.mark.slow
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.full_name)
def test_named_cases(case: Case, monkeypatch: pytest.MonkeyPatch) -> None:
    found = []
    for setting, fill in NAMED:
        monkeypatch.setattr(opinfo_runner, "OPTIMIZE", setting.optimize)
        found.append(run_sample(case, case.sample(fill), replace(setting, cotangents=fill.cotangents)))
    assert {outcome.kind for outcome in found} <= {"passed", "skipped"}, found


@pytest.mark.slow
@pytest.mark.parametrize("kind", FILLS)
@pytest.mark.parametrize("op", entries(), ids=lambda op: op.full_name)
def test_entries_of_the_database(op: Any, kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    if (op.full_name, kind) in LEFT_OUT:
        pytest.skip(LEFT_OUT[op.full_name, kind])
    monkeypatch.setattr(opinfo_runner, "OPTIMIZE", True)
    torch.manual_seed(0)
    sample = next(some_samples(op))
    found = [run_sample(op, changed, replace(OPTIMIZED, cotangents=cotangents))
             for changed, cotangents in kinked(sample, kind, most=1)]
    assert {outcome.kind for outcome in found} <= {"passed", "skipped"}, found


def test_each_named_case_is_differentiable() -> None:
    """What torch refuses would be skipped, and show nothing."""
    plain = Fill((0.5, 1.0, 2.0), "ones")
    for case in CASES:
        sample = case.sample(plain)
        out = case.function(sample.input, *sample.args)
        torch.autograd.grad(out, (sample.input, *sample.args), torch.ones_like(out), allow_unused=True)


def test_a_wrong_share_at_a_tie_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    """The comparison notices a bound that keeps the cotangent where torch's does not, or the other way round."""
    monkeypatch.setattr(opinfo_runner, "OPTIMIZE", True)
    (case,) = (case for case in CASES if case.full_name == "clamp 0 1")
    sample = case.sample(Fill((0.0, 1.0), "ones"))
    assert run_sample(case, sample, OPTIMIZED).kind == "passed"
    monkeypatch.setattr(arithmetic, "TIES_SHARE", not arithmetic.TIES_SHARE)
    assert run_sample(case, sample, OPTIMIZED).kind == "failed"
