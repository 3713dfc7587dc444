"""Write writes with indices, masks, other types, or to several tensors."""

from __future__ import annotations

from tests.programs import Writer
from tests.statements.table import choices, statement


@statement(5)
def written(p: Writer) -> bool:
    """Writes with indices, masks, other types, or to several tensors."""
    a = p.pick(lambda t: t.is_floating_point() and not (t.is_leaf and t.requires_grad)) or "c"
    b = p.operand(a)
    text = p.one(choices("""
        {a}.index_add_(0, i[:1] * 0, {a}[:1].detach()) | {a}.scatter_(0, i[:1].view([1] * {a}.dim()) * 0, 5.0) |
        {a}.index_put_((i[:1] * 0,), y[0]) | {a}.masked_scatter_({a} > 0, {a}.detach() * 2) | {a}.addcdiv_({b}, {b}) |
        {a}.index_copy_(0, i[:1] * 0, {a}[:1] * 2) | {a}.clamp_(min={b}) | {a}.atan2_({b}) | {a}.copy_(i[0]) |
        {a}.add_(f[0]) | {a}.mul_(m.sum()) | {a} **= 2 | {a} /= {b} | {a}.hypot_({b}) | {a}.round_() |
        {a}.cumprod_(-1) |
        torch._foreach_mul_([{a}], 2.0) | torch._foreach_add_([{a}, d], 1.0) | {a}.squeeze_() | {a}.transpose_(0, -1) |
        {a}.unbind(0)[0].mul_(2) | {a}.split(1)[0].add_(1) | {a}.real.mul_(2) | {a}.swapaxes_(0, -1) | {a}.tril_() |
        {a}[None].squeeze(0).sub_({b}) | {a}.expand_as({a}).add_(1) | {a}[m[0, :1]] = 1.0 | {a}.data[0] = 2.0 |
        {a}.remainder_(2.0) | {a}.fmod_(1.5) | {a}.erf_() | {a}.logit_(0.2) | {a}.nan_to_num_(0.0) |
        {a}.abs_() | {a}.resize_(1)
    """)).format(a=a, b=b)
    if p.maybe(15):
        text = f"with torch.no_grad(): {text}"
    return p.add(text)
