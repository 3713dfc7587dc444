"""Write leaves, operands and cotangents in other layouts than torch's factories give."""

from __future__ import annotations

from tests.programs import Writer
from tests.statements.table import assign, choices, statement

HOW = ("steps", "permuted", "expanded", "offset", "channels")


@statement(4)
def laid_leaf(p: Writer) -> bool:
    a, how = p.one(("x", "y", "w", "s", "f")), p.one(HOW)
    name = p.one((a, p.new()))
    leaf = f"laid({a}.detach(), '{how}').requires_grad_()"
    return p.add(f"{name} = {leaf}", [name])


@statement(3)
def image(p: Writer) -> bool:
    """A leaf of four dimensions."""
    name = p.new()
    return p.add(f"{name} = laid(ramp({p.one(('2, 4, 3, 2', '1, 2, 4, 4', '2, 2, 3, 3'))}), '{p.one(HOW)}')"
                 f"{p.one(('.requires_grad_()', '.requires_grad_()', ''))}", [name])


# torch's group_norm ends the process where channels-last operands need no gradient and weights do: they do here
IMAGES = choices("""
    F.group_norm({0}, 2) | F.group_norm({0} * s, 2, {1}) | F.group_norm({0} * s, 1, {1}, {1}) |
    F.conv2d({0}, laid(ramp({c}, {c}, 2, 1), '{h}') * s) |
    F.conv_transpose2d({0}, laid(ramp({c}, {c}, 1, 2), '{h}') * s) |
    F.batch_norm({0}, None, None, {1}, {1}, training=True) | F.instance_norm({0}, weight={1}) |
    F.avg_pool2d({0}, 2, 1) | F.max_pool2d({0}, 2, 1) | F.adaptive_avg_pool2d({0}, 1) |
    F.adaptive_max_pool2d({0}, 2) | F.interpolate({0}, scale_factor=2) |
    F.interpolate({0}, scale_factor=2, mode='bilinear') | F.pixel_unshuffle({0}, 1) |
    F.pad({0}, (1, 1, 0, 0), mode='replicate') | F.layer_norm({0}, {0}.shape[1:]) | F.prelu({0}, {1}) |
    F.lp_pool2d({0}, 2, 1) | F.unfold({0}, 2) | F.local_response_norm({0}, 2) | {0}.softmax(1) | {0}.mean((2, 3)) |
    F.channel_shuffle({0}, 1) | torch.einsum('nchw,nchw->nc', {0}, {0}) | {0}.permute(0, 2, 3, 1) * 2 |
    {0}.flatten(1)
""")


@statement(6)
def of_image(p: Writer) -> bool:
    a = p.pick(lambda t: t.is_floating_point() and t.dim() == 4)
    if a is None:
        return image(p)
    c, how = p.env[a].shape[1], p.one(HOW)
    weight = f"laid(ramp({c}), '{how}')" + p.one(("", " * s", ".requires_grad_()"))
    return assign(p, p.one(IMAGES).format(a, weight, c=c, h=how))


@statement(6)
def of_laid(p: Writer) -> bool:
    """Operations with one or both operands laid out otherwise."""
    a = p.pick(lambda t: t.is_floating_point() and t.dim() > 0) or "x"
    b, how = p.operand(a), p.one(HOW)
    return assign(p, p.one(choices("""
        laid({a}, '{h}') * {b} | laid({a}, '{h}').sin() | F.layer_norm(laid({a}, '{h}'), {a}.shape[-1:]) |
        laid({a}, '{h}').cumsum(-1) | laid({a}, '{h}').softmax(-1) | laid({a}, '{h}') @ laid(y, '{h}') |
        laid({a}, '{h}').sum(0) | F.linear({a}, laid(w, '{h}'), laid(y, '{h}')) | laid({a}, '{h}').logsumexp(0) |
        torch.where(laid({a}, '{h}') > 0, {b}, {a}) | laid({a}, '{h}').prod(-1) | laid({a}, '{h}').std(-1) |
        F.layer_norm({a}, {a}.shape[-1:], laid({a}[0], '{h}') if {a}.dim() == 2 else None) |
        laid({a}, '{h}').sort(-1)[0] | F.embedding(i, laid({a}, '{h}').reshape(-1, 1).expand(-1, 3)) |
        laid({a}, '{h}').norm(dim=-1) | laid({a}, '{h}').clone() * {a} | laid({a}, '{h}').reshape(-1) |
        laid({a}, '{h}').gather(0, i[:1].expand_as({a}[:1]) * 0)
    """)).format(a=a, b=b, h=how))


@statement(5)
def laid_cotangent(p: Writer) -> bool:
    a, b, how = p.tracked(), p.tracked(), p.one(HOW)
    if a is None or b is None:
        return True
    g = p.one(choices("""
        laid({0}.detach(), '{1}') | torch.ones(()).to({0}).expand({0}.shape) | laid(torch.ones_like({0}), '{1}')
    """))
    u = p.new()
    text = p.one(choices("""
        {a}.backward({g}, retain_graph=True) | torch.autograd.backward([{a}], [{g}], retain_graph=True) |
        {u}, = torch.autograd.grad({a}, [{b}], {g}, allow_unused=True, retain_graph=True) |
        {u}, = torch.autograd.grad({a}, [{b}], {g}, allow_unused=True, create_graph=True) |
        ({a} * {g}).abs().sum().backward(retain_graph=True)
    """)).format(a=a, b=b, g=g.format(a, how), u=u)
    return p.add(text, [u] if text.startswith(u) else [])
