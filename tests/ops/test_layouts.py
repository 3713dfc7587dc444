"""Operands and cotangents that lie otherwise in memory: kernels get the layouts that torch's functions give them.

One sample of each entry of torch's operator database here; the whole of it, also with second derivatives and in
bfloat16, is `make layouts`.
"""

from __future__ import annotations

import contextlib
import itertools
import warnings
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F

import autograd_opt as ao
from tests import opinfo_runner
from tests.opinfo_compare import Setting, run_sample
from tests.opinfo_layouts import KINDS, cases, laid
from tests.opinfo_sweep import entries

LOOK, SMALL = 20, 200
SETTING = Setting(twice=False, layouts=0)
CONTEXTS: list[Callable[[], Any]] = [
    contextlib.nullcontext, lambda: ao.AutogradGraph(optimize=False), lambda: ao.AutogradGraph(optimize=True)]


# ----- torch's database -----
def telling_sample(op: Any) -> Any:
    """Of the first samples with leaves of a few elements the one whose leaves have most axes."""
    def told(sample: Any) -> tuple[bool, int]:
        leaves = opinfo_runner.leaves_of((sample.input, *sample.args), sample.kwargs)
        return bool(leaves) and all(1 < t.numel() <= SMALL for t in leaves), sum(min(t.ndim, 4) for t in leaves)
    return max(itertools.islice(op.sample_inputs("cpu", torch.float64, requires_grad=True), LOOK), key=told)


@pytest.mark.slow
@pytest.mark.parametrize("op", entries(), ids=lambda op: op.full_name)
def test_an_entry_of_the_database(op: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("expecttest", reason="torch's OpInfo database needs it")
    monkeypatch.setattr(opinfo_runner, "OPTIMIZE", SETTING.optimize)
    torch.manual_seed(0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for name, sample, kind in cases([telling_sample(op)], 0):
            outcome = run_sample(op, sample, SETTING, kind)
            assert outcome.kind in ("passed", "skipped"), f"{name}: {outcome.why}"


# ----- kernels that need copies of their operands -----
def same_as_torch(run: Callable[[], list[torch.Tensor]], exactly: bool = True) -> None:
    """The same numbers in the same layout."""
    results, bounds = [], {"rtol": 0, "atol": 0} if exactly else {}
    for context in CONTEXTS:
        torch.manual_seed(0)
        with context():
            results.append([(t.detach().clone(memory_format=torch.preserve_format), t.stride()) for t in run()])
    for found in results[1:]:
        for (t, stride), (wanted, lies) in zip(found, results[0], strict=True):
            assert stride == lies
            torch.testing.assert_close(t.as_subclass(torch.Tensor), wanted, **bounds)


def leaf(*shape: int, kind: str = "") -> torch.Tensor:
    return laid(torch.randn(shape, dtype=torch.float64), kind).requires_grad_()


@pytest.mark.parametrize("weight", ["", *KINDS])
@pytest.mark.parametrize("kind", ["", *KINDS])
@pytest.mark.parametrize("shape", [(3, 4), (3, 4, 5), (3, 4, 5, 2), (3, 4, 2, 3, 2)], ids=str)
def test_group_norm(shape: tuple[int, ...], kind: str, weight: str) -> None:
    def run() -> list[torch.Tensor]:
        x, w, b = leaf(*shape, kind=kind), leaf(4, kind=weight), leaf(4, kind=weight)
        y = F.group_norm(x, 2, w, b)
        return [y, *torch.autograd.grad(y, [x, w, b], laid(torch.randn_like(y.detach()), "stepped"))]
    same_as_torch(run)


@pytest.mark.parametrize("kind", KINDS)
def test_group_norm_twice_differentiated(kind: str) -> None:
    def run() -> list[torch.Tensor]:
        x, w = leaf(2, 4, 3, 5, kind=kind), leaf(4, kind="expanded")
        first = torch.autograd.grad(F.group_norm(x, 2, w).square().sum(), [x, w], create_graph=True)
        second = torch.autograd.grad(first[0].sin().sum() + first[1].square().sum(), [x, w])
        return [t.contiguous() for t in (*first, *second)]
    same_as_torch(run, exactly=False)


@pytest.mark.parametrize("optimize", [False, True])
@pytest.mark.parametrize("names", ["w", "b", "wb"])
def test_group_norm_of_an_operand_without_gradient(names: str, optimize: bool) -> None:
    """torch ends the process here: what is wanted are the gradients that it gives beside the operand's."""
    x, w, b = leaf(2, 4, 3, 5, kind="channels"), leaf(4), leaf(4)
    asked = [w if name == "w" else b for name in names]
    _, *wanted = torch.autograd.grad(F.group_norm(x, 2, w, b).square().sum(), [x, *asked])
    with ao.AutogradGraph(optimize=optimize):
        y = F.group_norm(x.detach(), 2, *(t if any(t is a for a in asked) else t.detach() for t in (w, b)))
        found = torch.autograd.grad(y.square().sum(), asked)
    for mine, theirs in zip(found, wanted, strict=True):
        torch.testing.assert_close(mine.as_subclass(torch.Tensor), theirs, rtol=0, atol=0)


def test_what_group_norm_has_copied_may_be_written() -> None:
    def run() -> list[torch.Tensor]:
        x = leaf(2, 5, 4)
        between = x * 2
        y = F.group_norm(between.transpose(1, 2), 2)
        between.mul_(3)
        return list(torch.autograd.grad(y.square().sum() + between.sum(), x))
    same_as_torch(run)


def test_group_norm_of_a_vector_is_refused_as_by_torch() -> None:
    x, found = torch.ones(4, requires_grad=True), []
    for context in CONTEXTS:
        with context(), pytest.raises(IndexError) as error:
            torch.group_norm(x, 2)
        found.append(str(error.value))
    assert all(found[0] in mine for mine in found[1:])


# ----- channels last -----
@pytest.mark.parametrize("shape", [(2, 2, 3, 3), (1, 2, 3, 3), (2, 1, 3, 3), (2, 2, 3, 3, 3)])
def test_the_average_of_channels_has_channels_last(shape: tuple[int, ...]) -> None:
    form, pool = (torch.channels_last, F.adaptive_avg_pool2d) if len(shape) == 4 else (
        torch.channels_last_3d, F.adaptive_avg_pool3d)
    seen = []
    for context in CONTEXTS:
        with context():
            x = torch.ones(shape).contiguous(memory_format=form).requires_grad_()
            y = pool(x * 1, 1)
            y.square().sum().backward()
            assert x.grad is not None
            seen.append((y.stride(), x.grad.stride(), x.grad.tolist()))
    assert seen[1:] == [seen[0]] * 2


def test_as_subclass_keeps_the_strides_of_axes_of_size_one() -> None:
    seen = []
    for context in CONTEXTS:
        with context():
            x = torch.empty_strided((1, 2, 4, 4), (32, 1, 8, 2)).fill_(2).requires_grad_()
            y = x.as_subclass(torch.Tensor)
            y.square().sum().backward()
            assert x.grad is not None
            seen.append((y.stride(), y._is_view(), x.grad.stride(), x.grad.tolist()))
    assert seen[1:] == [seen[0]] * 2
