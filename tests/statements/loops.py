"""Write loops of many steps in one context, and records that make the tape grow in between."""

from __future__ import annotations

from tests.programs import Writer
from tests.statements.table import assign, choices, statement

BODIES = choices("""
    Square.apply(p) * 1.01 * 1.01 * q.sum() | (p.sin() * 1.01).exp() * q.sum() |
    function('inside').apply(p) * q.mean() | checkpoint(lambda t: t * t * q.sum(), p, use_reentrant={r}) * 1.01 |
    solved(p * 1.01) * q.sum() | function('within').apply(p, q.sum()) * 1.01 | Both.apply(p, q.sum())[1] * 1.01 |
    F.softplus(p * q.mean()).cumsum(-1) |
    checkpoint(lambda t: Square.apply(t) * 1.01, p, use_reentrant={r}) * q.sum() * 1.01 |
    (p * p).tanh() + (p * p) * q.sum() | Grown.apply(p * 0.1) * Grown.apply(p * 0.1) * q.sum() |
    function('runs once').apply(p, q.sum()) | (p.clone().mul_(2) * q.sum())
""")


@statement(3)
def trained(p: Writer) -> bool:
    a = p.pick(lambda t: t.is_floating_point() and t.dim() > 0 and t.numel() < 10) or "x"
    b = p.pick(lambda t: t.is_floating_point() and t.numel() < 10) or "s"
    u, v, n = p.new(), p.new(), p.new()
    body = p.one(BODIES).format(r=p.one(("False", "True"))) + " * 1.01" * p.choices.integer(0, 5)
    how = p.one(("data", "numpy", "detach", "no_grad", "copy", "sgd", "adam"))
    entry = p.one(("backward", "inputs", "materialize", "grad", "twice"))
    return p.add(f"{n}, {u}, {v} = train(lambda p, q: {body}, {a}, {b}, steps={p.one((12, 60, 150))}, how='{how}', "
                 f"entry='{entry}'); tell({n})", [u, v])


@statement(2)
def recurrent(p: Writer) -> bool:
    a = p.pick(lambda t: t.is_floating_point() and t.dim() > 0 and t.numel() < 10) or "y"
    cell = p.one(choices("""
        (h * s).tanh() | Square.apply(h).sin() * s | (h + 0.1 * s).sigmoid() * 1.01 | h.lerp(s.expand_as(h), 0.1)
    """))
    return assign(p, f"carried(lambda h: {cell}, {a}, {p.one((10, 40, 120))}, {p.one((1, 4, 15))})")


@statement(5)
def grown(p: Writer) -> bool:
    return p.add(f"{p.one(('spin', 'spent'))}({p.one((3, 31, 32, 33, 70, 150))})")


@statement(3)
def stepped(p: Writer) -> bool:
    """What a training loop does to its leaves."""
    return p.add(p.one(choices("""
        torch.optim.SGD([x, y, w], lr=0.1).step() | torch.optim.Adam([x, s], lr=0.1).step() |
        torch.nn.utils.clip_grad_norm_([x, y, w, s], 1.0) | torch.optim.SGD([x, y], lr=0.1, momentum=0.9).zero_grad()
    """)))
