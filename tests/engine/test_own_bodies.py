"""Functions of torch's in Python, called in turn with tensors that a gradient follows and with others."""

from __future__ import annotations

import random
import warnings
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch.overrides import TorchFunctionMode

import autograd_opt as ao

Tensor = torch.Tensor
TARGET = torch.tensor([1, 0, 2])
CALLS: dict[str, Callable[[Tensor], Tensor]] = {
    "relu": F.relu,
    "silu": F.silu,
    "mish": F.mish,
    "softmax": lambda x: F.softmax(x, -1),
    "log_softmax": lambda x: F.log_softmax(x, 1),
    "layer_norm": lambda x: F.layer_norm(x, (4,)),
    "layer_norm of weights": lambda x: F.layer_norm(torch.ones(3, 4), (4,), x[0], x[1]),
    "batch_norm": lambda x: F.batch_norm(x, None, None, training=True),
    "max_pool2d": lambda x: F.max_pool2d(x.expand(1, 1, 3, 4), 2),
    "pad": lambda x: F.pad(x, (1, 2), value=0.5),
    "cross_entropy": lambda x: F.cross_entropy(x, TARGET),
    "cross_entropy of probabilities": lambda x: F.cross_entropy(torch.ones(3, 4), x),
    "dropout": lambda x: F.dropout(x, 0.0),
    "embedding": lambda x: F.embedding(TARGET, x),
    "normalize": lambda x: F.normalize(x),
    "rsub": lambda x: 2 - x,
    "rdiv": lambda x: 2 / x,
    "rpow": lambda x: 2**x,
    "broadcast": lambda x: torch.broadcast_tensors(x, torch.ones(2, 3, 4))[0],
}


def outcome(call: Callable[[Tensor], Tensor], x: Tensor, follow: str) -> tuple[Any, ...]:
    """The value, whether it requires grad (a view of a leaf does, under no_grad, too), and the gradient of `x`."""
    if follow == "no_grad":
        with torch.no_grad():
            y = call(x)
    else:
        y = call(x)
    if y.requires_grad:
        x.grad = None
        y.square().sum().backward()
    return y.detach().clone(), y.requires_grad, x.grad


@pytest.mark.parametrize("optimize", [False, True])
@pytest.mark.parametrize("name", CALLS)
def test_a_function_is_recorded_where_a_gradient_follows_and_only_there(name: str, optimize: bool) -> None:
    """Whatever its former arguments were."""
    order = random.Random(name)
    for _ in range(12):
        follow = order.choice(["grad", "no_grad", "constant"])
        x = torch.rand(3, 4).add_(0.5).requires_grad_(follow != "constant")
        expected = outcome(CALLS[name], x, follow)
        with ao.AutogradGraph(optimize=optimize):
            found = outcome(CALLS[name], x, follow)
        assert found[1] == expected[1]
        torch.testing.assert_close(found[0], expected[0])
        assert (found[2] is None) == (expected[2] is None)
        if expected[2] is not None:
            torch.testing.assert_close(found[2], expected[2])


class Names(TorchFunctionMode):
    """What is called while it is on."""

    def __init__(self) -> None:
        self.names: list[str] = []

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.names.append(getattr(func, "__name__", ""))
        return func(*args, **(kwargs or {}))


@pytest.mark.parametrize("call", [F.softmax, F.log_softmax], ids=["softmax", "log_softmax"])
def test_a_mode_of_the_users_sees_the_function_itself(call: Any) -> None:
    with Names() as eager:
        call(torch.ones(2, 3), 1)
    with ao.AutogradGraph(optimize=True):
        for _ in range(3):
            call(torch.ones(2, 3), 1)
        with Names() as inside:
            call(torch.ones(2, 3), 1)
    assert inside.names == eager.names


def test_its_warning_names_the_line_of_the_call() -> None:
    with ao.AutogradGraph(optimize=True):
        F.softmax(torch.ones(2, 3), 1)
        with warnings.catch_warnings(record=True) as met:
            warnings.simplefilter("always")
            F.softmax(torch.ones(2, 3))
    assert [w.filename for w in met] == [__file__]
