"""Write calls of `torch.autograd.functional`, `torch.func` and vmap."""

from __future__ import annotations

from tests.programs import Writer
from tests.statements.table import assign, choices, statement

FUNCTIONS = choices("""
    (t * t).sum() | t.sin().sum() * 2 | (t.exp() * t.detach()).sum() | (t * s).tanh().sum() | t.prod() |
    (t.relu() + t ** 3).sum()
""")


@statement(5)
def functional(p: Writer) -> bool:
    a = p.pick(lambda t: t.is_floating_point() and t.numel() < 10 and t.dim() > 0) or "y"
    body = p.one(FUNCTIONS)
    create = p.one(("", ", create_graph=True"))
    if p.maybe(45):
        u, v = p.new(), p.new()
        call = p.one(choices("functional.vjp | functional.hvp | functional.vhp | functional.jvp"))
        given = f", torch.ones_like({a}.detach())" if call != "functional.vjp" else ""
        return p.add(f"{u}, {v} = {call}(lambda t: {body}, {a}{given}{create})", [u, v])
    call = p.one(choices("""
        functional.jacobian(lambda t: {b}, {a}{c}) | functional.hessian(lambda t: {b}, {a}{c}) |
        functional.jacobian(lambda t: t * t.sin(), {a}{c}) | func.grad(lambda t: {b})({a}) |
        func.jacrev(lambda t: t * t.sin())({a}) | func.vmap(lambda t: (t * t).sum())({a}) |
        functional.jacobian(lambda t: t * t.sin(), {a}, vectorize=True)
    """))
    name = p.new()
    return p.add(f"{name} = {call.format(a=a, b=body, c=create)}", [name])


@statement(4)
def mapped_gradient(p: Writer) -> bool:
    """A Jacobian by vmap over `torch.autograd.grad` of what is recorded."""
    a, b = p.tracked(), p.tracked()
    if a is None or b is None:
        return True
    g = p.one(choices("""
        torch.stack([torch.ones_like({0}), {0}.detach()]) | torch.ones_like({0})[None].expand(3, *{0}.shape)
    """))
    options = p.one(choices("""
        allow_unused=True, materialize_grads=True | retain_graph=True | create_graph=True, materialize_grads=True
    """))
    return assign(p, f"torch.vmap(lambda v: torch.autograd.grad({a}, {b}, v, {options}"
                     f"{'' if 'retain' in options else ', retain_graph=True'})[0])({g.format(a)})")


@statement(5)
def closed_over(p: Writer) -> bool:
    """Transforms of functions that read recorded tensors from outside."""
    a = p.pick(lambda t: t.is_floating_point() and t.dim() > 0 and t.numel() < 10) or "y"
    b = p.tracked() or "s"
    return assign(p, p.one(choices("""
        func.grad(lambda t: (t * {b}).abs().sum())({a}) | func.jacrev(lambda t: t * t.sin() * s)({a}) |
        func.jacfwd(lambda t: t * t.sin() * s)({a}) | func.vmap(func.grad(lambda t: (t * t).sum() * s))({a}) |
        func.hessian(lambda t: (t ** 3).sum() * s)({a}) |
        func.jvp(lambda t: t.sin() * s, ({a},), ({a}.detach(),))[1] |
        func.vjp(lambda t: t * t, {a})[1]({a}.detach())[0] | torch.vmap(lambda t: t.sin() * s)({a}) |
        torch.vmap(lambda t: (t * {b}.sum()).tanh())({a}) |
        func.vmap(lambda t, u: t * u, in_dims=(0, None))({a}, {b}) |
        func.functional_call(torch.nn.Linear(3, 2, dtype=torch.float64), {{'weight': x, 'bias': y[:2]}}, (w,)) |
        func.grad_and_value(lambda t: (t * t).sum() * s)({a})[0] | func.linearize(lambda t: t * t, {a})[1]({a}) |
        functional.jacobian(lambda t: (t * {b}.sum()).sin(), {a}, vectorize=True) |
        func.jacrev(lambda t: (t * {b}).sum(0))({a}) |
        func.vmap(func.grad(lambda t, u: (t * u).sum() ** 2), in_dims=(0, None))({a}, s) |
        func.grad(lambda t: function('setup').apply(t).sum())({a}) | func.vmap(lambda t: Square.apply(t))({a})
    """)).format(a=a, b=b))
