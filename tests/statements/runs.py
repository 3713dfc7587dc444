"""Write runs with and without `retain_graph`, `create_graph` and `inputs=`, and simple hooks."""

from __future__ import annotations

from tests.programs import Writer
from tests.statements.table import choices, statement


@statement(5)
def hook(p: Writer) -> bool:
    a = p.tracked()
    if a is None:
        return True
    label = f"{a}:{len(p.statements)}"
    # reading grad_fn first: torch crashes on a hook on a view whose base was written
    pattern = p.one(
        choices("""
            {a}.register_hook(see('{l}')) | {a}.register_hook(see('{l}')) | {a}.register_hook(lambda g: g * 2) |
            handles.append({a}.register_hook(see('{l}'))) |
            {a}.register_post_accumulate_grad_hook(see_grad('{l}'))
        """)
    )
    return p.add(f"{a}.grad_fn; " + pattern.format(a=a, l=label))


@statement(1)
def unhook(p: Writer) -> bool:
    return p.add("handles and handles.pop().remove()")


@statement(4)
def retain(p: Writer) -> bool:
    a = p.tracked()
    return True if a is None else p.add(f"{a}.grad_fn; {a}.retain_grad()")


def total(p: Writer, count: int) -> str | None:
    """A scalar of several variables with different weights."""
    terms = []
    for k in range(count):
        a = p.pick(lambda t: t.requires_grad)
        if a is not None:
            t = p.env[a]
            term = f"{a}.abs().sum()" if t.is_complex() else f"{a}.sum()" if t.dim() else a
            terms.append(f"{term} * {k + 2}")
    return " + ".join(terms) if terms else None


@statement(7)
def backward(p: Writer) -> bool:
    root = total(p, p.choices.integer(1, 3))
    if root is None:
        return True
    retain = p.one(("", "retain_graph=True", "retain_graph=True", "retain_graph=True"))
    return p.add(f"({root}).backward({retain})")


@statement(3)
def backward_inputs(p: Writer) -> bool:
    root, a = total(p, 2), p.tracked()
    if root is None or a is None:
        return True
    return p.add(
        f"{a}.retain_grad(); ({root}).backward(inputs=[{a}], retain_graph=True)"
        if p.maybe(50)
        else f"({root}).backward(inputs=[{a}], retain_graph=True)"
    )


@statement(8)
def gradient(p: Writer) -> bool:
    root, a, b = total(p, p.choices.integer(1, 3)), p.tracked(), p.tracked()
    if root is None or a is None:
        return True
    u, v = p.new(), p.new()
    how = p.one(("create_graph=True", "create_graph=True", "retain_graph=True", "retain_graph=True", ""))
    materialize = p.one(("allow_unused=True", "allow_unused=True", "materialize_grads=True"))
    return p.add(
        f"{u}, {v} = torch.autograd.grad({root}, [{a}, {b}], {materialize}{', ' + how if how else ''})", [u, v]
    )


@statement(2)
def leaf_grad(p: Writer) -> bool:
    a = p.one(choices("x | y | w | s"))
    text = p.one(
        choices("""
            {a}.grad = None | {a}.grad is None or {a}.grad.zero_() | {n} = {a}.grad * 1 |
            with torch.no_grad(): {a} -= 0.1 * {a}.grad | {n} = {a}.grad
        """)
    )
    name = p.new()
    return p.add(text.format(a=a, n=name), [name] if "{n}" in text else [])


@statement(2)
def mark(p: Writer) -> bool:
    a = p.pick(lambda t: t.is_leaf and t.is_floating_point() and not t.requires_grad)
    return True if a is None else p.add(f"{a}.requires_grad_()")


def FINAL(p: Writer) -> bool:
    """The last backward, over several variables."""
    root = total(p, 4)
    return True if root is None else p.add(f"({root}).backward()")
