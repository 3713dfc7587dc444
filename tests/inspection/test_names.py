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
torch.einsum('ij,jk->ik', x, w); torch.einsum('ij,kl->ijkl', x, w); torch.einsum('ij,kj->ki', x, w)
torch.einsum('ij->ji', x); torch.einsum('ij->', x); torch.einsum('ij->j', x); torch.einsum('i,j->ij', b, b)
torch.einsum('i,i->i', b, b); torch.einsum('i,i->', b, b); torch.einsum('ij,k->k', x, b)
F.linear(b, w, b); F.linear(b, w); F.linear(x.t()[None], w, b)
x.t().reshape(9); x.t().reshape(3, 3); x.t().flatten(); x[:, ::2].reshape(1, 3, 2); x.reshape(9); x.reshape_as(w)
torch.einsum('ij,jk,kl->il', x, w, x); torch.einsum('i,j,k->kji', b, b, b); torch.einsum('ij', x)
"""


EDGES = """
x + 1; 1 - x; x * 2; x ** 2; 2 ** x; x ** w; x % 2; x.fmod(w); x.clamp(0, 1); x.clamp(w); x.clamp_min(0); x.copysign(2.)
x.lerp(w, 0.5); x.lerp(w, w); x.xlogy(2.); torch.xlogy(2., x); torch.where(x > 0, x, 0.); torch.where(x > 0, x, w)
x.masked_fill(x > 0, 1.); x.masked_fill(x > 0, b[0]); x.masked_select(x > 0); x.masked_scatter(x > 0, w)
x[I2]; x[I2, I2]; x.take(I2); x.index_select(0, I2); x.gather(0, I2[None]); x.index_fill(0, I2, 1.); x.put(I2, b[:2])
x.scatter(0, I2[None], 2.); x.scatter(0, I2[None], w); x.index_add(0, I2, w[:2]); x.index_put((I2,), b)
F.embedding(I2, w)
F.nll_loss(x, torch.tensor([0, 1, 2])); F.batch_norm(x, None, None, b, b, True); F.dropout(x, 0.5); F.prelu(x, b[:1])
F.binary_cross_entropy(x.sigmoid(), w.detach().sigmoid()); x.tensor_split(3)[1]; x.split(1)[1]; x.max(0)[1]; x.sort()[1]
(x * 1).zero_(); (x * 1).fill_(2.); (x * 1).fill_(b[0]); (x * 1).copy_(w); (x * 1).t_(); (x * 1).unsqueeze_(0)
(x * 1).clamp_(0, 1); (x * 1).normal_(); (x * 1).bernoulli_(0.5); part(x, lambda y: y[0].mul_(2))
part(x, lambda y: y.view(9).zero_()); part(x, lambda y: y.t().add_(w)); part(x, lambda y: y.__setitem__(..., 0.))
x @ b; x.mv(b); part(x, lambda y: y.__setitem__(0, b))
"""


def part(x, write):
    y = x * 1
    write(y)
    return y


def sight_of(call):
    torch.manual_seed(1)
    found = eval(call, {**globals(), **dict(zip("xwb", three(), strict=True))})
    function = found.grad_fn
    edges = function and [(below and below.name(), number) for below, number in function.next_functions]
    return function and function.name(), edges, found.output_nr


@pytest.mark.parametrize("call", [c.strip() for line in EDGES.strip().splitlines() for c in line.split(";")])
def test_a_call_has_torchs_edges(call):
    theirs = sight_of(call)
    for optimize in (False, True):
        with ao.AutogradGraph(optimize=optimize):
            assert sight_of(call) == theirs


@pytest.mark.parametrize("call", ["z.real", "z.imag", "torch.imag(z)", "F.linear(z.real.expand(2, 3), z.imag)"])
def test_parts_of_complex_numbers_have_torchs_names(call):
    z = torch.randn(3, dtype=torch.complex64, requires_grad=True)
    theirs = eval(call, globals(), {"z": z}).grad_fn.name()
    with ao.AutogradGraph():
        assert eval(call, globals(), {"z": z}).grad_fn.name() == theirs


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
