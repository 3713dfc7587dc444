"""Write operations, whose values are to be those of torch to the bit."""

from __future__ import annotations

import torch

from tests.programs import Writer
from tests.statements.table import assign, choices, statement

UNARY = choices("""
    {}.sin() | {}.cos() | -{} | {}.tanh() | {}.sigmoid() | {}.abs() | {}.relu() | {}.square() | {} ** 2 |
    {}.exp() | ({}.abs() + 0.5).log() | ({}.square() + 1).sqrt() | {}.sign() | {}.clone() | {}.atan() |
    torch.exp(-{}) | {}.sgn() | 1 / {} | F.silu({}) | F.gelu({}) | {}.erf() | {}.reciprocal() | +{}
""")
BINARY = choices("""
    {} + {} | {} - {} | {} * {} | {} / {} | {} + {} | {} * {} | torch.add({}, {}, alpha=2) |
    torch.sub({}, {}, alpha=3) | torch.add({}, {}, alpha=1) | torch.mul({}, {})
""")
TENSOR_PAIR = choices("""
    torch.maximum({}, {}) | torch.minimum({}, {}) | torch.atan2({}, {}) | torch.copysign({}, {}) |
    torch.hypot({}, {}) | torch.where({0} > {1}, {0}, {1}) | torch.where({0} == {1}, {0}, 0.0) |
    {0} * ({1} > 0) | torch.lerp({}, {}, 0.3) | torch.addcmul({0}, {0}, {1}, value=2) |
    torch.stack(torch.broadcast_tensors({}, {})).sum(0) | F.mse_loss(*torch.broadcast_tensors({}, {})) |
    torch.fmod({}, {}) | {}.abs() ** {}
""")
ATTRIBUTED = choices("""
    {}.sum() | {}.sum(0) | {}.sum(-1) | {}.sum(0, keepdim=True) | {}.sum(-1, keepdim=True) | {}.mean() |
    {}.mean(0) | {}.mean(0, keepdim=True) | {}.amax(0) | {}.amax(-1) | {}.prod() | {}.prod(0) | {}.cumsum(0) |
    {}.cumsum(-1) | {}.softmax(0) | {}.softmax(-1) | {}.log_softmax(-1) | {}.logsumexp(0) | {}.logsumexp(-1) |
    {}.var(0) | {}.var(0, correction=0) | {}.std(-1) | {}.norm() | {}.norm(p=1) | {}.norm(p=2, dim=0) |
    {}.clamp(-0.5, 0.5) | {}.clamp(min=0) | {}.clamp(min=0.0) | {}.clamp(max=0) | F.leaky_relu({}, 0.1) |
    F.leaky_relu({}, 0.2) | F.softplus({}) | F.softplus({}, beta=2) | F.gelu({}, approximate='tanh') |
    F.elu({}) | F.elu({}, 0.5) | torch.round({}, decimals=1) | {}.roll(1, 0) | {}.roll(1, -1) | {}.flip(0) |
    {}.flip(-1) | F.pad({}, (1, 1)) | F.pad({}, (1, 1), value=2.0) | F.layer_norm({}, {}.shape[-1:]) |
    {}.tril() | {}.tril(1) | {}.triu(-1) | {}.repeat(2, 1) | {}.to(torch.float32) | {}.to(torch.float64) |
    {}.double() | {}.float() | {}.logcumsumexp(0) | {}.diff(dim=0) | {}.masked_fill({} > 0, 2.0) |
    F.normalize({}, dim=-1) | {}.nan_to_num(0.0) | {}.nan_to_num(1.0) | F.hardtanh({}) | F.logsigmoid({})
""")


@statement(12)
def unary(p: Writer) -> bool:
    return assign(p, p.one(UNARY).format(p.real()))


@statement(22)
def binary(p: Writer) -> bool:
    a = p.real()
    b = p.operand(a)
    if b[0] not in "abcdefghijklmnopqrstuvwxyz" or b in ("nan", "inf") or p.maybe(75):
        pattern = p.one(BINARY)
    else:
        pattern = p.one(TENSOR_PAIR)
    if p.maybe(30):
        a, b = b, a
    return assign(p, pattern.format(a, b))


@statement(10)
def nested(p: Writer) -> bool:
    """An expression whose intermediate values nobody holds."""
    a = p.real()
    inner = f"({p.one(BINARY).format(a, p.operand(a))})"
    middle = f"({p.one(BINARY).format(inner, p.operand(a))})" if p.maybe(50) else inner
    return assign(p, p.one(UNARY).format(middle))


@statement(14)
def attributed(p: Writer) -> bool:
    a = p.real()
    pattern = p.one(ATTRIBUTED)
    return assign(p, pattern.format(*[a] * pattern.count("{}")))


@statement(5)
def product(p: Writer) -> bool:
    a = p.pick(lambda t: t.is_floating_point() and 0 < t.dim() <= 2) or "x"
    t = p.env[a]
    b = p.pick(lambda u: u.dtype == t.dtype and 0 < u.dim() <= 2 and u.shape[0] == t.shape[-1]) or "w"
    return assign(
        p, p.one(choices("{} @ {} | torch.matmul({}, {}) | F.linear({}, {}.t()) | ({0} @ {1}).t()")).format(a, b)
    )


@statement(5)
def integers(p: Writer) -> bool:
    a = p.pick(lambda t: t.dtype in (torch.int64, torch.bool)) or "i"
    pattern = p.one(
        choices("""
            {} + {lit} | {lit} * {} | {} - {lit} | {} / {lit} | {}.double() | {}.sum() | {} * {v} | {v} + {} |
            {}.sin() | {}.float() | ({} > 0) | {}.to(torch.float64) * 2
        """)
    )
    return assign(p, pattern.format(a, lit=p.literal(), v=p.one(("s", "y", "f"))))


@statement(4)
def complex_value(p: Writer) -> bool:
    a = p.pick(lambda t: t.is_complex()) or "z"
    pattern = p.one(
        choices("""
            {} * {} | {} + 1j | {} * (1 + 0j) | {}.conj() | {}.abs() | {}.real | {}.imag | {} * 2.0 | {}.exp() |
            torch.view_as_real({}) | {} * y | -{} | {}.angle() | {} / (2 - 1j)
        """)
    )
    return assign(p, pattern.format(*[a] * pattern.count("{}")))


@statement(6)
def indexed(p: Writer) -> bool:
    a = p.real()
    pattern = p.one(
        choices("""
            {0}[{0} > 0] | {0}[i % {0}.shape[0]] | {0}.index_select(0, i % {0}.shape[0]) |
            torch.where({0} > 0, {0}, 0.0) | torch.where({0} > 0, 1.0, {0}) | {0}[..., None] |
            torch.where(m, {0}, c) | {0}.take(i % {0}.numel()) | {0}[i[:1] % {0}.shape[0]] |
            {0}.masked_select({0} < 1) | {0} * m | torch.gather({0}, 0, i[:1].expand_as({0}[:1]) * 0)
        """)
    )
    return assign(p, pattern.format(a))


@statement(4)
def joined(p: Writer) -> bool:
    a = p.real()
    shape = p.env[a].shape
    b = p.pick(lambda t: t.is_floating_point() and t.shape == shape) or a
    return assign(
        p,
        p.one(
            choices("""
                torch.cat([{0}, {1}]) | torch.stack([{0}, {1}]) | torch.stack([{0}, {1}, {0}], -1) |
                torch.cat([{1}, {0}], -1) | torch.stack([{0}, {1}]).sum(0)
            """)
        ).format(a, b),
    )


@statement(4)
def several(p: Writer) -> bool:
    """Calls with several outputs."""
    a = p.pick(lambda t: t.is_floating_point() and t.dim() > 0 and t.shape[0] == 2) or "x"
    u, v = p.new(), p.new()
    expression = p.one(
        choices("""
            {}.max(0) | {}.min(dim=0) | {}.unbind(0) | {}.split(1) | {}.chunk(2) | {}.sort(0) |
            torch.var_mean({}, dim=0) | {}.topk(1, 0) | torch.tensor_split({}, 2) | torch.frexp({}) |
            torch.meshgrid({0}.flatten(), y, indexing='ij') | torch.std_mean({})
        """)
    ).format(a)
    return p.add(f"{u}, {v} = {expression}", [u, v])
