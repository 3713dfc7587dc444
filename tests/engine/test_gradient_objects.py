"""What kind of tensor a gradient is: the same object as another, a view and of what, whose memory, as in torch eager.

Each call of the table is differentiated with `torch.autograd.grad` for its result and its operand at once.  Numbers
are compared elsewhere.
"""

from __future__ import annotations

import contextlib
from typing import Any

import pytest
import torch

import autograd_opt as ao

Tensor = torch.Tensor
X = torch.tensor([[0.5, -1.0, 2.0], [1.5, 0.25, -0.75]], dtype=torch.float64)
W = torch.tensor([[0.2, -0.4, 0.7], [1.1, 0.3, -0.2], [0.6, -0.9, 0.3]], dtype=torch.float64)
OPERANDS = {"matrix": X, "row": X[:1], "vector": X[0], "one": X[0, :1], "number": X[0, 0]}
COMPLEX = {"complex": torch.complex(X, X + 1)}
ZEROS = torch.zeros(2, 2, 3, dtype=torch.float64)

REAL_CALLS = """
    x.squeeze() | x.squeeze(-1) | x.squeeze((0,)) | x.reshape(x.shape) | x.reshape(-1) | x.view(x.shape)
    x.view(-1) | x.view_as(x) | x.reshape_as(x) | x.flatten() | x.flatten(0, 0) | x.ravel() | x.unsqueeze(0)
    x.unsqueeze(-1).squeeze(-1) | x[:] | x[...] | x[:, ...] | x[:, :] | x[None] | x[..., None] | x[0:] | x[::1]
    x[::2] | x[0:1] | x[0] | x[-1] | x[:, 0] | x[:, 0:3] | x[0:9, ...] | x[None, 0] | x[0, None] | x[None, :1]
    x[:1, None] | x[x > -99] | x[torch.tensor([0])] | x.expand(x.shape) | x.expand_as(x) | x.broadcast_to(x.shape)
    x.expand(2, *x.shape) | x.expand(2, 3) | x.permute(*range(x.dim())) | x.permute(*range(x.dim() - 1, -1, -1))
    x.transpose(0, 0) | x.transpose(0, -1) | x.t() | x.mT | x.movedim(0, 0) | x.movedim(0, -1) | x.swapdims(0, -1)
    x.narrow(0, 0, x.shape[0]) | x.narrow(0, 0, 1) | x.select(0, 0) | x.unflatten(0, (1, x.shape[0]))
    x.unflatten(0, (x.shape[0],)) | x.as_strided(x.shape, x.stride()) | x.unfold(0, 1, 1) | x.diagonal() | x.trace()
    x.diag_embed() | x.clone() | x.contiguous() | x + 0 | x + 1 | +x | -x | x * 1 | x / 1 | 1 - x
    x.repeat(*[1] * x.dim()) | x.repeat(2, *[1] * x.dim()) | x.repeat(1, *[1] * x.dim()) | x.tile(()) | x.tile((1,))
    x.tile((2,)) | x.repeat_interleave(1, 0) | x.repeat_interleave(2, 0) | x.repeat_interleave(2) | x.flip(0)
    x.roll(0) | x.roll(1) | x.roll(1, 0) | x.cumsum(0) | x.tril() | x.float() | x.double() | x.sum() | x.sum(0)
    x.sum(-1, keepdim=True) | x.sum(()) | x.mean() | x.mean(0) | x.prod() | x.amax() | x.max() | x.var()
    x.max(0)[0] | x.sort(0)[0] | x.cummax(0)[0] | x.topk(1, 0)[0] | x.median(0)[0] | x.kthvalue(1, 0)[0]
    x.logsumexp(0) | x.sum_to_size(x.shape) | x.sum_to_size([1] * x.dim()) | x.sum_to_size(()) | torch.atleast_2d(x)
    torch.atleast_3d(x) | torch.cat([x]) | torch.cat([x, x * 2]) | torch.stack([x]) | torch.stack([x, x * 2])
    torch.stack([x, x * 2])[0] | torch.stack([x, x * 2]).sum(0) | torch.stack([x, x * 2], -1).sum(-1)
    torch.cat([x, x * 2])[:x.shape[0]] | torch.stack(x.unbind(0)) | torch.cat(x.split(1)) | torch.cat(x.chunk(2), 0)
    x.unbind(0)[0] | x.unbind(-1)[-1] | x.chunk(1)[0] | x.chunk(2)[0] | x.split(x.shape[0])[0]
    x.split([x.shape[0]])[0] | x.tensor_split(1)[0] | x.hsplit(1)[0] | torch.unsafe_chunk(x, 1)[0]
    torch.unbind_copy(x)[0] | torch.split_with_sizes_copy(x, [x.shape[0]])[0] | torch.squeeze_copy(x)
    torch.expand_copy(x, x.shape) | torch.view_copy(x, x.shape) | torch.alias_copy(x)
    x.index_select(0, torch.tensor([0])) | x.take(torch.tensor([0]))
    x.gather(0, torch.zeros_like(x, dtype=torch.long)) | x.masked_fill(x > 9, 0.0) | torch.where(x > 0, x, 0.0)
    x.relu() | x.clamp(-9, 9) | x.abs() | x.exp() | x ** 2 | x ** 1 | x + ZEROS | x - ZEROS | ZEROS * x
    torch.where(torch.tensor(True), x, ZEROS) | torch.broadcast_tensors(x, ZEROS[0, 0, 0])[0]
    torch.broadcast_tensors(x, ZEROS)[0] | x.lerp(x, 0.5) | x.add(x.sum()) | x.softmax(0) | F.dropout(x, 0.0)
    F.pad(x, (1, 1)) | F.linear(x, W) | x @ W | W @ x | x.mm(W) | x.mv(W[0]) | x.dot(x) | torch.addmm(x, x, W)
    F.layer_norm(x, x.shape[-1:])
"""
COMPLEX_CALLS = """
    x.real | x.imag | x.conj() | x.conj_physical() | x.abs() | torch.view_as_real(x) | x.squeeze() | x[:] | x[...]
    x * 1j | x.resolve_conj() | x.unbind(0)[0] | torch.stack([x, x * 2]).sum(0) | x.mH | x.sgn() | x.sum(0) | x[0]
"""


def calls_of(text: str) -> list[str]:
    return [call.strip() for line in text.strip().splitlines() for call in line.split(" | ")]


def facts(t: Tensor | None, others: dict[str, Tensor | None]) -> Any:
    """What can be seen of `t` besides its numbers; the base of a view that nobody else has is no more than that."""
    if t is None:
        return None
    strides = [s for s, n in zip(t.stride(), t.shape, strict=True) if n > 1]
    known = {k: o for k, o in others.items() if o is not None}
    memory = t.untyped_storage().data_ptr() if t.numel() else None
    seen = {
        "is": [k for k, o in known.items() if o is t], "view": t._is_view(), "conj": t.is_conj(), "strides": strides,
        "memory of": [k for k, o in known.items() if o.untyped_storage().data_ptr() == memory],
        "requires_grad": t.requires_grad, "is_leaf": t.is_leaf,
    }
    if t._is_view():
        seen["base"] = [k for k, o in known.items() if o is t._base] or "hidden"
        seen["making"] = torch._C._autograd._get_creation_meta(t)
    return seen


def look(call: str, operand: Tensor, way: str, create_graph: bool) -> Any:
    """The gradients of a call: for its operand, or the leaf below; of its result, or of its sum."""
    leaf = operand.clone().requires_grad_()
    x = leaf * 1
    try:
        result = eval(call, {"torch": torch, "F": torch.nn.functional, "x": x, "W": W, "ZEROS": ZEROS})
    except (RuntimeError, IndexError, TypeError, ValueError) as error:
        return type(error).__mro__[-4:]
    root = result
    if way == "of the sum":
        root = result.abs().sum() if result.is_complex() else result.sum()
    given = torch.full(root.shape, 1.5, dtype=root.dtype)
    wanted = leaf if way == "for the leaf" else x
    a, b = torch.autograd.grad([root], [result, wanted], [given], create_graph=create_graph)
    return facts(a, {"given": given}), facts(b, {"given": given, "that of the result": a})


@pytest.mark.filterwarnings("ignore:Tensor.mT is deprecated", "ignore:var\\(\\)")
@pytest.mark.parametrize(("call", "operands"), [
    *[(call, OPERANDS) for call in calls_of(REAL_CALLS)], *[(call, COMPLEX) for call in calls_of(COMPLEX_CALLS)]])
def test_as_in_eager(call: str, operands: dict[str, Tensor]) -> None:
    for name, operand in operands.items():
        for way in ("of the result", "for the leaf", "of the sum"):
            for create_graph in (False, True):
                theirs = look(call, operand, way, create_graph)
                for optimize in (False, True):
                    with ao.AutogradGraph(optimize=optimize):
                        ours = look(call, operand, way, create_graph)
                    if isinstance(theirs, tuple) and isinstance(theirs[0], type):
                        assert not isinstance(ours[0], dict)
                    else:
                        assert ours == theirs, (call, name, way, create_graph, optimize)


def test_every_call_applies_to_something() -> None:
    """A misspelled call would be skipped in silence."""
    for operands, text in ((OPERANDS, REAL_CALLS), (COMPLEX, COMPLEX_CALLS)):
        for call in calls_of(text):
            assert any(isinstance(look(call, t, "of the result", False)[0], dict) for t in operands.values()), call


@pytest.mark.parametrize("optimize", [False, True])
def test_a_gradient_that_is_a_view_is_not_written_with_a_history(optimize: bool) -> None:
    """torch refuses what would lead through a view that was made in the run, and takes it where it is none."""
    def write(make: Any) -> None:
        v, s = torch.ones(3, requires_grad=True) * 2, torch.ones((), requires_grad=True)
        (g,) = torch.autograd.grad(make(v), [v], [torch.ones(make(v).shape)])
        g -= s

    for make, refused in (
        (lambda v: v.flip(0)[None], False), (lambda v: (v * 2)[None].flip(0), False), (lambda v: v[None].flip(0), True),
        (lambda v: torch.stack([v, v.detach()]).sum(0).exp(), True),
    ):
        for context in (contextlib.nullcontext(), ao.AutogradGraph(optimize=optimize)):
            with context, pytest.raises(RuntimeError) if refused else contextlib.nullcontext():
                write(make)
