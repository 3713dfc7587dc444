"""Programs on a CUDA device: training steps, values found again, and operators, beside torch eager there."""

from __future__ import annotations

import contextlib
import itertools
import warnings
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_map

import autograd_opt as ao
from tests.opinfo_runner import leaves_of, tensors
from tests.opinfo_sweep import entries

pytestmark = [pytest.mark.gpu, pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no CUDA device")]
NETWORKS: dict[str, tuple[Callable[[], nn.Module], tuple[int, ...]]] = {
    "mlp": (lambda: nn.Sequential(nn.Linear(32, 64), nn.ReLU(), nn.LayerNorm(64), nn.Linear(64, 10)), (16, 32)),
    "cnn": (lambda: nn.Sequential(nn.Conv2d(3, 16, 3), nn.BatchNorm2d(16), nn.ReLU(), nn.AdaptiveAvgPool2d(1),
                                  nn.Flatten(), nn.Linear(16, 10)), (8, 3, 16, 16)),
    "transformer": (lambda: nn.Sequential(nn.TransformerEncoderLayer(32, 4, 64, dropout=0.0, batch_first=True),
                                          nn.Flatten(), nn.Linear(8 * 32, 10)), (4, 8, 32)),
}
OPTIMIZERS: dict[str, Callable[[Any], torch.optim.Optimizer]] = {
    "default": lambda p: torch.optim.Adam(p, 1e-3),
    "one by one": lambda p: torch.optim.AdamW(p, 1e-3, foreach=False),
    "lists": lambda p: torch.optim.Adam(p, 1e-3, foreach=True, amsgrad=True),
    "fused": lambda p: torch.optim.Adam(p, 1e-3, fused=True),
    "momentum": lambda p: torch.optim.SGD(p, 0.1, momentum=0.9, foreach=True),
}


def train(context: Callable[[], Any], network: str, optimizer: str, half: bool) -> list[Tensor]:
    """The parameters after six steps."""
    torch.manual_seed(0)
    make, shape = NETWORKS[network]
    net = make().cuda()
    x, y = torch.randn(shape, device="cuda"), torch.randint(0, 10, shape[:1], device="cuda")
    step = OPTIMIZERS[optimizer](net.parameters())
    scaler = torch.amp.GradScaler("cuda", enabled=half)
    for _ in range(6):
        with context():
            with torch.autocast("cuda", torch.float16, enabled=half):
                loss = nn.functional.cross_entropy(net(x), y)
            step.zero_grad()
            scaler.scale(loss).backward()
            scaler.step(step)
            scaler.update()
    return [p.detach().clone() for p in net.parameters()]


@pytest.mark.parametrize("optimize", [False, True])
@pytest.mark.parametrize("half", [False, True])
@pytest.mark.parametrize("optimizer", OPTIMIZERS)
@pytest.mark.parametrize("network", NETWORKS)
def test_training(network: str, optimizer: str, half: bool, optimize: bool) -> None:
    with torch.backends.cudnn.flags(deterministic=True, allow_tf32=False):
        expected = train(contextlib.nullcontext, network, optimizer, half)
        found = train(lambda: ao.AutogradGraph(optimize=optimize), network, optimizer, half)
    for one, other in zip(expected, found, strict=True):
        torch.testing.assert_close(other, one, rtol=1e-3, atol=1e-4 if half else 1e-6)


def test_equal_constants_have_memory_of_their_own() -> None:
    """A kernel for lists of tensors writes one of two that began equal."""
    with ao.AutogradGraph(optimize=True), torch.no_grad():
        for _ in range(3):
            p = torch.ones(4, device="cuda")
            one, other = torch.zeros_like(p), torch.zeros_like(p)
            torch._foreach_add_([one], 1.0)
            assert (one.tolist(), other.tolist()) == ([1.0] * 4, [0.0] * 4)


@pytest.mark.slow
def test_operators() -> None:
    """The first samples of each entry of torch's database, forward and backward."""
    pytest.importorskip("expecttest", reason="torch's OpInfo database needs it")

    def run(context: Any, op: Any, sample: Any) -> list[Tensor | None]:
        torch.manual_seed(0)
        x, args, kwargs = tree_map(
            lambda t: t.detach().clone().requires_grad_(t.requires_grad) if isinstance(t, Tensor) else t,
            (sample.input, sample.args, sample.kwargs))
        leaves = leaves_of((x, *args), kwargs)
        with context:
            results = [t for t in tensors(op.op(x, *args, **kwargs)) if t.requires_grad]
            if not results or not leaves:
                return []
            total = sum((t.abs() if t.is_complex() else t * t.detach().cos()).sum() for t in results)
            return [*(t.detach() for t in results), *torch.autograd.grad(total, leaves, allow_unused=True)]

    compared, wrong = 0, []
    for op in entries():
        if torch.float64 not in op.supported_dtypes("cuda") & op.supported_backward_dtypes("cuda"):
            continue
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            for sample in itertools.islice(op.sample_inputs("cuda", torch.float64, requires_grad=True), 2):
                try:
                    expected = run(contextlib.nullcontext(), op, sample)
                except RuntimeError:
                    continue
                for optimize in (False, True):
                    found = run(ao.AutogradGraph(optimize=optimize), op, sample)
                    compared += 1
                    same = len(found) == len(expected) and all(
                        a is b is None or (a is not None and b is not None and torch.allclose(
                            a.to_dense(), b.to_dense(), rtol=1e-6, atol=1e-8, equal_nan=True))
                        for a, b in zip(expected, found, strict=True))
                    if not same:
                        wrong.append(f"{op.full_name}, optimize={optimize}")
    assert not wrong, "\n".join(wrong)
    assert compared > 1500
