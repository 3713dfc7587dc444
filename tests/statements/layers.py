"""Write functions of modules."""

from __future__ import annotations

from tests.programs import Writer
from tests.statements.table import assign, choices, statement

LAYERS = choices("""
    F.linear({0}, {0}.detach()) | F.conv1d({0}.reshape(1, 1, -1), y.reshape(1, 1, 3), padding=1) |
    F.batch_norm({0}.reshape(2, -1), None, None, training=True) | F.cross_entropy({0}.reshape(1, -1), i[:1] * 0) |
    F.embedding(i, {0}.reshape(-1, 1).repeat(3, 1)) | torch.einsum('...i,...i->...', {0}, {0}) |
    F.smooth_l1_loss({0}, {0}.detach() * 2) | F.max_pool1d({0}.reshape(1, 1, -1), 2, 1) |
    torch.cdist({0}.reshape(1, -1), y.sum().expand(1, {0}.numel())) | {0}.unfold(-1, 1, 1) | {0}.kthvalue(1)[0] |
    torch.block_diag({0}.reshape(1, -1), y) | F.scaled_dot_product_attention(*[{0}.reshape(1, 1, -1)] * 3) |
    torch.nn.functional.glu(torch.cat([{0}, {0}])) | {0}.median() | {0}.cumprod(-1) | {0}.renorm(2, 0, 1.0) |
    {0}.outer({0}) | torch.linalg.norm({0}) | torch.tensordot({0}, {0}, {0}.dim()) |
    {0}.scatter(0, i[:1].view([1] * {0}.dim()) * 0, 5.0) |
    {0}.index_add(0, i[:1] * 0, {0}[:1]) | {0}.index_copy(0, i[:1] * 0, {0}[:1] * 2) | torch.hstack([{0}, {0}]) |
    {0}.squeeze().unflatten(0, (1, -1)) | {0}.swapaxes(0, -1) | {0}.std() | torch.special.entr({0}) | {0}.logit(0.1) |
    torch.trapezoid({0}) | {0}.sinc() | {0}.amax() | {0}.aminmax()[0] | {0}.quantile(0.5) | {0}.rsqrt() |
    torch.celu({0})
""")


@statement(8)
def layer(p: Writer) -> bool:
    a = p.pick(lambda t: t.is_floating_point() and t.dim() > 0) or "x"
    return assign(p, p.one(LAYERS).format(a))
