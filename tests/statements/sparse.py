"""Write sparse tensors, as constants in products that are used again and again, and as leaves."""

from __future__ import annotations

import torch

from tests.programs import Writer
from tests.statements.table import assign, choices, statement


def sparse(p: Writer) -> str | None:
    """Choose a variable that is sparse."""
    return p.pick(lambda t: True, strided=False)


@statement(4)
def sparse_constant(p: Writer) -> bool:
    name = p.new()
    a = p.one(("c", "w", "x", "y", "torch.eye(3, dtype=torch.float64)", "m.double()"))
    how = p.one(choices("to_sparse() | to_sparse_csr() | to_sparse() | to_sparse_csc() | to_sparse().coalesce()"))
    return p.add(f"{name} = {a}.detach().{how}{p.one(('', '', '', '.requires_grad_()'))}", [name])


@statement(6)
def sparse_product(p: Writer) -> bool:
    a = sparse(p)
    if a is None:
        return sparse_constant(p)
    n = p.env[a].shape[-1]
    b = p.pick(lambda t: t.dtype == torch.float64 and t.dim() == 2 and t.shape[0] == n) or "w"
    return assign(p, p.one(choices("""
        {0} @ {1} | torch.sparse.mm({0}, {1}) | torch.mm({0}, {1}) | {0} @ ({0} @ {1}).relu() | {0}.matmul({1}) * 2 |
        ({1}.t() @ {0}.t()).t() | torch.addmm({0} @ {1}, {0}, {1}) | {0} @ y | torch.mv({0}, y)
    """)).format(a, b))


@statement(2)
def sparse_other(p: Writer) -> bool:
    """What else is done with them."""
    a = sparse(p)
    if a is None:
        return sparse_constant(p)
    return assign(p, p.one(choices("""
        {0}.to_dense() | {0}.to_dense() * s | {0}.clone() | {0} * 2 | {0}.clone().values() | {0}.values() * 2 |
        {0}.t() | torch.sparse.sum({0}) | {0} + {0} | {0}.coalesce().values() * y[0] | {0}.detach() | x * {0} |
        {0}.sum() | {0}.to_sparse_coo() | -{0} | {0}.transpose(0, 1) @ x
    """)).format(a))


@statement(2)
def sparse_gradient(p: Writer) -> bool:
    """Leaves that get sparse gradients, and dense ones besides."""
    name = p.new()
    return assign(p, p.one(choices("""
        F.embedding(i, w, sparse=True) | F.embedding(i, w, sparse=True) + w |
        F.embedding_bag(i[None], w, sparse=True, mode='sum') | torch.gather(w, 0, i[None] * 0, sparse_grad=True) |
        F.embedding(i[:1], w, sparse=True).sin() * w
    """))) if p.maybe(60) else p.add(
        f"{name} = (w.grad.to_dense() if w.grad is not None and w.grad.is_sparse else w.detach()) * 1", [name])
