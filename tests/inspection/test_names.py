"""Names of backward nodes are torch's, in `grad_fn.name()`, in what is printed, and in messages."""

from __future__ import annotations

import warnings

import pytest
import torch

import autograd_opt as ao
from tests.opinfo_compare import copies
from tests.opinfo_runner import tensors
from tests.opinfo_sweep import entries, samples_of

F = torch.nn.functional
I2 = torch.tensor([0, 1])


def written(x):
    y = x * 1
    y[0] = 0
    return y


CALLS = """
x * 2; x + w; 1 - x; -x; x / 2; x ** 2; x.abs() ** w; 2 ** x; x @ w; x @ b; b @ b; b @ x; x[None] @ w
x.sum(); x.sum(0); x.mean(); x.mean(1); x.max(); x.max(0).values; x.prod(1); x.std(0); x.norm(); x.sort().values
x.t(); x.T; x.view(9); x[0]; x[:, 1:]; x[I2]; x[x > 0]; x[None]; x.squeeze(); x.squeeze(0); x.permute(1, 0)
x.expand(2, 3, 3); x.clone(); x.double(); torch.cat([x, w]); torch.stack([x, w]); x.split(1)[1]
x.relu(); F.gelu(x); x.softmax(0); x.clamp(0, 1); x.clamp(w); torch.where(x > 0, x, w); x.round(decimals=1)
F.linear(x, w, b); F.linear(x, w); F.linear(x[None], w, b); F.cross_entropy(x, torch.tensor([0, 1, 2]))
F.mse_loss(x, w); F.layer_norm(x, (3,)); F.conv1d(x[None], w[None]); F.conv1d(x, w[None]); F.embedding(I2, w)
torch.linalg.det(x); torch.linalg.qr(x)[0]; (x * 1).add_(1); written(x); torch.lerp(x, w, 0.5); torch.lerp(x, w, w)
(x * 1).grad_fn.next_functions[0][0]
"""


def three():
    torch.manual_seed(0)
    return [torch.randn(n, requires_grad=True) for n in ((3, 3), (3, 3), (3,))]


def name_of(call):
    found = eval(call, globals(), dict(zip("xwb", three(), strict=True)))
    return (found.grad_fn if isinstance(found, torch.Tensor) else found).name()


@pytest.mark.parametrize("call", [c.strip() for line in CALLS.strip().splitlines() for c in line.split(";")])
def test_a_call_has_torchs_name(call):
    theirs = name_of(call)
    with ao.AutogradGraph():
        assert name_of(call) == theirs


def test_printed_tensors_have_it():
    x, _, _ = three()
    theirs = repr((x * 2).sum())
    with ao.AutogradGraph():
        y = (x * 2).sum()
        assert repr(y) == theirs
        assert "SumBackward0" in repr(y.grad_fn)


def test_custom_functions_keep_their_own():
    class Twice(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return 2 * x

        @staticmethod
        def backward(ctx, g):
            return 2 * g

    x, _, _ = three()
    theirs = Twice.apply(x).grad_fn.name()
    with ao.AutogradGraph():
        assert Twice.apply(x).grad_fn.name() == theirs == "TwiceBackward"


def names(out):
    for t in tensors(out):
        assert t.grad_fn is None or type(t.grad_fn).__name__ == t.grad_fn.name().rpartition("::")[2]
    return [t.grad_fn and t.grad_fn.name() for t in tensors(out)]


@pytest.mark.slow
def test_of_torchs_database_all_but_few():
    """Where torch makes several nodes of a call, or has overloads that look alike here, another may be the last."""
    same = other = 0
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for op in entries()[::4]:
            for sample in samples_of(op, torch.float64, 2):
                try:
                    theirs = names(op(sample.input, *sample.args, **sample.kwargs))
                except Exception:            # a call that has to fail
                    continue
                x, args = copies((sample.input, sample.args))
                with ao.AutogradGraph():
                    mine = names(op(x, *args, **sample.kwargs))
                pairs = [(a, b) for a, b in zip(mine, theirs, strict=True) if a and b]
                same += sum(a == b for a, b in pairs)
                other += sum(a != b for a, b in pairs)
    assert same > 200
    assert same > 24 * other
