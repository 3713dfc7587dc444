"""torch's own databases of modules and optimizers: three training steps of every sample, as torch eager makes them."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn import functional as F
from torch.utils._pytree import tree_leaves, tree_map

import autograd_opt as ao

pytest.importorskip("expecttest", reason="torch's databases need it")
with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    from torch.testing._internal.common_modules import module_db
    from torch.testing._internal.common_optimizers import optim_db

OPTIMIZE = pytest.mark.parametrize("optimize", [False, True], ids=["plain", "optimize"])
STEPS = 3
Seen = dict[str, Any]


def under(context: Any, run: Callable[[], Seen]) -> Seen:
    torch.manual_seed(0)
    with warnings.catch_warnings(), context:
        warnings.simplefilter("ignore")
        return run()


def eagerly(run: Callable[[], Seen]) -> Seen | str:
    """What torch makes of it, or its error."""
    torch.manual_seed(0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            return run()
        except Exception as error:
            return type(error).__name__


def assert_same(found: Seen, wanted: Seen, what: str, rtol: float = 1e-7, atol: float = 1e-9) -> None:
    assert found.keys() == wanted.keys(), what
    for name, value in wanted.items():
        mine = found[name]
        if not isinstance(value, torch.Tensor):
            assert mine == value, f"{what}, {name}: {mine!r}, torch has {value!r}"
            continue
        torch.testing.assert_close(mine.detach().as_subclass(torch.Tensor), value, rtol=rtol, atol=atol,
                                   equal_nan=True, msg=lambda m, name=name: f"{what}, {name}: {m}")


def copied(tree: Any) -> Any:
    return tree_map(lambda t: t.detach().clone().requires_grad_(t.requires_grad) if isinstance(t, torch.Tensor) else t,
                    tree)


def samples(info: Any) -> Iterator[tuple[str, Any, bool]]:
    for training in (True, False) if info.train_and_eval_differ else (True,):
        torch.manual_seed(0)
        made = info.module_inputs_func(info, device="cpu", dtype=torch.float64, requires_grad=True, training=training)
        for k, sample in enumerate(made):
            yield f"sample {k} {sample.desc} {'training' if training else 'eval'}", sample, training


def trained(info: Any, sample: Any, training: bool) -> Seen:
    """Losses, outputs, gradients, parameters and buffers of some steps of SGD."""
    torch.manual_seed(1)
    net = info.module_cls(*sample.constructor_input.args, **sample.constructor_input.kwargs)
    net = net.to(torch.float64).train(training)
    args, kwargs = copied((sample.forward_input.args, sample.forward_input.kwargs))
    parameters = list(net.parameters())
    optimizer = torch.optim.SGD(parameters, lr=0.01, momentum=0.9) if parameters else None
    seen: Seen = {}
    for step in range(STEPS):
        outs = [t for t in tree_leaves(net(*args, **kwargs)) if isinstance(t, torch.Tensor)]
        seen |= {f"output {k} of step {step}": t.detach().clone() for k, t in enumerate(outs)}
        losses = [(t * torch.linspace(0.5, 1.5, t.numel(), dtype=t.dtype).reshape(t.shape)).sum().abs()
                  for t in outs if t.requires_grad]
        if not losses:
            break
        torch.stack(losses).sum().backward()
        if optimizer is not None:
            optimizer.step()
    for k, t in enumerate(tree_leaves((args, kwargs))):
        if isinstance(t, torch.Tensor):
            seen[f"gradient of input {k}"] = None if t.grad is None else t.grad.clone()
    for name, p in net.named_parameters():
        seen |= {name: p.detach().clone(), f"gradient of {name}": None if p.grad is None else p.grad.clone()}
    return seen | {name: b.clone() for name, b in net.named_buffers()}


@pytest.mark.slow
@OPTIMIZE
@pytest.mark.parametrize("info", module_db, ids=lambda info: info.name)
def test_module(info: Any, optimize: bool) -> None:
    compared = 0
    for what, sample, training in samples(info):
        wanted = eagerly(lambda sample=sample, training=training: trained(info, sample, training))
        if isinstance(wanted, str):
            continue
        found = under(ao.AutogradGraph(optimize=optimize),
                      lambda sample=sample, training=training: trained(info, sample, training))
        assert_same(found, wanted, what)
        compared += 1
    assert compared


# ----- optimizers and schedules -----
def steps(optimizer_of: Callable[..., Any], schedule_of: Callable[..., Any] | None, count: int,
          sparse: bool = False) -> Seen:
    """Losses, learning rates, parameters and the optimizer's state of a small net."""
    torch.manual_seed(1)
    dense = nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.Linear(8, 3))
    net = (nn.Embedding(9, 3, sparse=True) if sparse else dense).to(torch.float64)
    x, y = torch.randn(7, 6, dtype=torch.float64), torch.randint(0, 3, (7,))
    x = torch.arange(7) if sparse else x
    optimizer = optimizer_of(net)
    schedule = None if schedule_of is None else schedule_of(optimizer)
    seen: Seen = {}

    def closure() -> torch.Tensor:
        optimizer.zero_grad()
        loss = F.cross_entropy(net(x), y)
        loss.backward()
        return loss

    for step in range(count):
        loss = optimizer.step(closure)
        seen[f"loss {step}"] = loss.detach().clone()
        if schedule is not None:
            schedule.step(*([loss.item()] if isinstance(schedule, torch.optim.lr_scheduler.ReduceLROnPlateau) else []))
            seen[f"rate {step}"] = [float(group["lr"]) for group in optimizer.param_groups]
    for k, t in enumerate(tree_leaves(optimizer.state_dict()["state"])):
        seen[f"state {k}"] = t.detach().clone() if isinstance(t, torch.Tensor) else t
    return seen | {name: p.detach().clone() for name, p in net.named_parameters()}


def matrices(info: Any, net: nn.Module) -> list[nn.Parameter]:
    """What an optimizer takes: Muon wants matrices."""
    return [p for p in net.parameters() if p.ndim == 2 or info.optim_cls.__name__ != "Muon"]


@OPTIMIZE
@pytest.mark.parametrize("info", optim_db, ids=lambda info: info.optim_cls.__name__)
def test_optimizer(info: Any, optimize: bool) -> None:
    compared = 0
    for given in info.optim_inputs_func(device="cpu"):
        if given.kwargs.get("differentiable"):
            continue                         # steps that are themselves differentiated are no training
        def run(kwargs: dict[str, Any] = given.kwargs) -> Seen:
            return steps(lambda net: info.optim_cls(matrices(info, net), **kwargs), None, 4,
                         info.only_supports_sparse_grads)
        wanted = eagerly(run)
        if isinstance(wanted, str):
            continue                         # not for these parameters on this device
        assert_same(under(ao.AutogradGraph(optimize=optimize), run), wanted, given.desc, rtol=1e-6, atol=1e-8)
        compared += 1
    assert compared


L = torch.optim.lr_scheduler
SCHEDULES: dict[str, Callable[[Any], Any]] = {
    "LambdaLR": lambda o: L.LambdaLR(o, lambda k: 0.9 ** k),
    "MultiplicativeLR": lambda o: L.MultiplicativeLR(o, lambda k: 0.9),
    "StepLR": lambda o: L.StepLR(o, 2, 0.5),
    "MultiStepLR": lambda o: L.MultiStepLR(o, [1, 3], 0.5),
    "ConstantLR": lambda o: L.ConstantLR(o, 0.5, 2),
    "LinearLR": lambda o: L.LinearLR(o, 0.3, total_iters=4),
    "ExponentialLR": lambda o: L.ExponentialLR(o, 0.8),
    "SequentialLR": lambda o: L.SequentialLR(o, [L.ConstantLR(o, 0.1, 2), L.ExponentialLR(o, 0.8)], [2]),
    "PolynomialLR": lambda o: L.PolynomialLR(o, 5, 2.0),
    "CosineAnnealingLR": lambda o: L.CosineAnnealingLR(o, 5),
    "ChainedScheduler": lambda o: L.ChainedScheduler([L.ConstantLR(o, 0.1, 2), L.ExponentialLR(o, 0.8)]),
    "ReduceLROnPlateau": lambda o: L.ReduceLROnPlateau(o, patience=0, threshold=0.5),
    "CyclicLR": lambda o: L.CyclicLR(o, 0.01, 0.1, 2),
    "CosineAnnealingWarmRestarts": lambda o: L.CosineAnnealingWarmRestarts(o, 2),
    "OneCycleLR": lambda o: L.OneCycleLR(o, 0.2, total_steps=8),
    "SWALR": lambda o: torch.optim.swa_utils.SWALR(o, 0.02, anneal_epochs=3),
}


@OPTIMIZE
@pytest.mark.parametrize("name", SCHEDULES)
def test_schedule(name: str, optimize: bool) -> None:
    def run() -> Seen:
        return steps(lambda net: torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9), SCHEDULES[name], 6)
    wanted = eagerly(run)
    assert isinstance(wanted, dict)
    assert_same(under(ao.AutogradGraph(optimize=optimize), run), wanted, name)


def test_every_schedule_of_torch_is_there() -> None:
    classes = {name for name, value in vars(L).items() if isinstance(value, type) and issubclass(value, L.LRScheduler)}
    assert {name for name in classes if not name.startswith("_")} - {"LRScheduler"} <= set(SCHEDULES)
