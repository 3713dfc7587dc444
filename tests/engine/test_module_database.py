"""torch's own databases of modules and optimizers: three training steps of every sample, as torch eager makes them."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch.utils._pytree import tree_leaves, tree_map

import autograd_opt as ao

pytest.importorskip("expecttest", reason="torch's databases need it")
with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    from torch.testing._internal.common_modules import module_db

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
