"""Hazard 8: what torch says is random is never taken for a value that was met before."""

from __future__ import annotations

from typing import Any

import pytest
import torch

import autograd_opt as ao
from autograd_opt.ops.table import CALLS, INPLACE, OPS, PURE

A = torch.ops.aten
NAMESPACES = (torch, torch.Tensor, torch.nn.functional, torch._C._nn)


def random_names() -> list[str]:
    """Operators of torch that carry the tag of random ones."""
    packets = [(n, getattr(A, n)) for n in dir(A) if not n.startswith("__")]
    return [n for n, p in packets if isinstance(p, torch._ops.OpOverloadPacket)
            and any(torch.Tag.nondeterministic_seeded in getattr(p, o).tags for o in p.overloads())]


def test_no_random_operator_claims_to_be_pure() -> None:
    names = random_names()
    assert {"bernoulli", "dropout", "randn_like", "normal_", "multinomial"} <= set(names)
    for name in names:
        for function in (getattr(space, name, None) for space in NAMESPACES):
            for table in (CALLS, INPLACE):
                found = table.get(function)
                assert not isinstance(found, str) or not OPS[found].flags & PURE, f"{name} is recorded as {found}"


@pytest.mark.parametrize("kind", [torch.nn.LSTM, torch.nn.GRU, torch.nn.RNN])
def test_layers_with_dropout_between_draw_anew(kind: Any) -> None:
    layer = kind(3, 4, num_layers=2, dropout=0.5)
    x = torch.ones(5, 2, 3)
    with ao.AutogradGraph(optimize=True):
        first, second = layer(x)[0], layer(x)[0]
        assert not torch.equal(first, second)
        layer.eval()
        assert torch.equal(layer(x)[0], layer(x)[0])
