"""A part of torch's own database of operators: two samples of each entry, each called twice in one optimized graph.

The whole of it, with second derivatives, methods, writes in place and other types, takes the better part of an
hour: `make opinfo`, see `tests/opinfo_sweep.py`.
"""

from __future__ import annotations

import itertools
import warnings
from collections.abc import Iterator
from typing import Any

import pytest
import torch

from tests import opinfo_runner
from tests.opinfo_compare import Setting, run_sample
from tests.opinfo_sweep import entries

pytest.importorskip("expecttest", reason="torch's OpInfo database needs it")

MOST, SMALL, LOOK = 2, 200, 40
SETTING = Setting()


def some_samples(op: Any) -> Iterator[Any]:
    """The first samples with leaves of a few elements; where there is none, whatever comes first."""
    found = 0
    samples = list(itertools.islice(op.sample_inputs("cpu", torch.float64, requires_grad=True), LOOK))
    for sample in samples:
        leaves = opinfo_runner.leaves_of((sample.input, *sample.args), sample.kwargs)
        if leaves and all(0 < t.numel() <= SMALL for t in leaves):
            found += 1
            yield sample
        if found == MOST:
            return
    if not found:
        yield from samples[:MOST]


@pytest.fixture(autouse=True)
def optimized(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(opinfo_runner, "OPTIMIZE", SETTING.optimize)


@pytest.mark.slow
@pytest.mark.parametrize("op", entries(), ids=lambda op: op.full_name)
def test_opinfo(op: Any) -> None:
    torch.manual_seed(0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        results = [run_sample(op, sample, SETTING) for sample in some_samples(op)]
    compared = [outcome for outcome in results if outcome.kind != "skipped"]
    assert compared, "no sample was compared"
    assert {outcome.kind for outcome in compared} == {"passed"}, compared


def test_the_database_has_as_many_entries_as_the_documentation_says() -> None:
    assert len(entries()) == 540


def test_a_wrong_rule_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    """The comparison notices a gradient that is wrong by a millionth."""
    right = opinfo_runner.grads

    def wrong(*args: Any) -> Any:
        out, found = right(*args)
        return out, [None if g is None else g * (1 + 1e-6) for g in found]

    (op,) = (op for op in entries() if op.full_name == "sin")
    sample = next(some_samples(op))
    assert run_sample(op, sample, SETTING).kind == "passed"
    monkeypatch.setattr(opinfo_runner, "grads", wrong)
    outcome = run_sample(op, sample, SETTING)
    assert outcome.kind == "failed"
    assert "gradient 0" in outcome.why


@pytest.mark.parametrize(("name", "dtype", "wrong"), [("matmul", "bfloat16", 1.05), ("matmul", "float32", 1.0002),
                                                       ("logcumsumexp", "float32", 1.05)])
def test_what_counts_as_rounding_is_not_a_wrong_rule(name: str, dtype: str, wrong: float,
                                                     monkeypatch: pytest.MonkeyPatch) -> None:
    """A tensor of lower precision may be as far from float64 as torch's, and no further."""
    right = opinfo_runner.grads
    setting = Setting(dtype=dtype)
    (op,) = (op for op in entries(getattr(torch, dtype)) if op.full_name == name)
    samples = [s for s in op.sample_inputs("cpu", getattr(torch, dtype), requires_grad=True) if s.input.numel()]
    assert {run_sample(op, sample, setting).kind for sample in samples} <= {"passed", "rounding"}
    monkeypatch.setattr(opinfo_runner, "grads", lambda *args: (lambda out, found: (out, [g * wrong for g in found]))(
        *right(*args)))
    assert {run_sample(op, sample, setting).kind for sample in samples} == {"failed"}
