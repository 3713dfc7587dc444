"""Write checkpoints of both kinds, and hooks on saved tensors."""

from __future__ import annotations

from tests.programs import Writer
from tests.statements.table import assign, choices, statement

BODIES = choices("""
    t.sin() * t | (t * t).exp().sum() | F.dropout(t, 0.5) * t.cos() | t.clone().mul_(2).tanh() |
    torch.softmax(t, -1) * s | (t + y.sum()).sigmoid() ** 2 | t.reshape(-1)[:1] * t | t.square().mean() + t |
    Square.apply(t) * 1.01 | function('within').apply(t, s) | function('runs').apply(t * 1) | solved(t) + t |
    slope(t) * t | laid(t, 'steps') * t | (spent(20), t * t)[1] | function('dirty').apply(t * 1)
""")
REENTRANT = choices("""
    function('inside').apply(t * 1) | solved(t, 40) + t | function('inside nested').apply(t, s) | (spent(70), t * s)[1]
""")
"""Many runs inside; a checkpoint of the other kind is computed again for each of them."""


def nested(p: Writer, depth: int = 0) -> str:
    """Write the body of a checkpoint, which may be a checkpoint of another kind around a Function."""
    body = str(p.one(BODIES))
    if depth < 2 and p.maybe(30):
        inner, reentrant = nested(p, depth + 1), p.one(("False", "True"))
        return f"checkpoint(lambda t: {inner}, t * 1.01, use_reentrant={reentrant}) + {body}"
    return body


@statement(6)
def checkpointed(p: Writer) -> bool:
    a = p.pick(lambda t: t.is_floating_point() and t.dim() > 0) or "x"
    reentrant = p.one(("False", "False", "True"))
    body = p.one(REENTRANT) if reentrant == "True" and p.maybe(40) else nested(p)
    return assign(p, f"checkpoint(lambda t: {body}, {a}, use_reentrant={reentrant})")


@statement(3)
def several_operands(p: Writer) -> bool:
    """Operands that are no tensors, operands closed over, several results."""
    a, b = p.real(), p.tracked() or "s"
    u, v = p.new(), p.new()
    reentrant = p.one(("False", "True"))
    body = p.one(choices("""
        (t * n, (t * q).sum()) | (t.sin(), q * 1) | (q.exp() * t, 3) | (t, q) | (Square.apply(t) * q, None)
    """))
    return p.add(f"{u}, {v} = checkpoint(lambda t, n, q: {body}, {a}, {p.one(('2', '0.5'))}, {b}, "
                 f"use_reentrant={reentrant})", [u, v])


@statement(6)
def packed(p: Writer) -> bool:
    a = p.real()
    hooks = p.one(choices("""
        graph.saved_tensors_hooks(lambda t: t, lambda t: t) | graph.save_on_cpu() |
        graph.saved_tensors_hooks(lambda t: t.detach().clone(), lambda t: t) |
        graph.saved_tensors_hooks(lambda t: t.detach().numpy().copy(), lambda t: torch.from_numpy(t)) |
        graph.saved_tensors_hooks(lambda t: t * 2, lambda t: t / 2) |
        graph.disable_saved_tensors_hooks('no') | graph.saved_tensors_hooks(lambda t: (t, t._version), lambda t: t[0])
    """))
    inner = p.one(choices("""
        {0} * {0} | {0}.exp() | ({0} * {1}).sin() | {0}.softmax(-1) | {0}.prod() | {0}.std() | {0} / {1} |
        F.layer_norm({0}, {0}.shape[-1:]) | Square.apply({0}) | {0}.clone().pow_(2)
    """)).format(a, p.operand(a))
    name = p.new()
    return p.add(f"with {hooks}: {name} = {inner}", [name])
