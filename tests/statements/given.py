"""Write runs with given cotangents, and hooks that replace, run, or hang on nodes."""

from __future__ import annotations

from tests.programs import Writer
from tests.statements.runs import total
from tests.statements.table import choices, statement


@statement(7)
def given(p: Writer) -> bool:
    """Cotangents of the user's."""
    a, b = p.tracked(), p.tracked()
    if a is None or b is None:
        return True
    g = p.one(choices("torch.ones_like({0}) | {0}.detach() | torch.full_like({0}, 0.5) | {0} * 2")).format(a)
    keep = p.one((", retain_graph=True", ", retain_graph=True", ""))
    u = p.new()
    text = p.one(choices("""
        {a}.backward({g}{k}) | torch.autograd.backward([{a}, {b}.abs().sum()], [{g}, None]{k}) |
        {u}, = torch.autograd.grad({a}, [{b}], {g}, allow_unused=True{k}) |
        {u}, = torch.autograd.grad({a}, [{b}], {g}, allow_unused=True, create_graph=True) |
        {u}, = torch.autograd.grad({a}, [{b}], torch.stack([{g}, {g}]), allow_unused=True, is_grads_batched=True{k}) |
        {u}, = torch.autograd.grad([{a}, {a}.abs().sum()], [{b}], [{g}, None], materialize_grads=True{k})
    """)).format(a=a, b=b, g=g, k=keep, u=u)
    return p.add(text, [u] if text.startswith(u) else [])


@statement(6)
def hooked(p: Writer) -> bool:
    """Hooks that replace, that run, that hang on nodes, or on several tensors.

    torch's process ends at a hook on a view whose memory has been written since, unless its history was looked at.
    """
    a, b = p.tracked(), p.tracked()
    if a is None or b is None:
        return True
    label = f"{a}:{len(p.statements)}"
    return p.add(f"{a}.grad_fn; " + p.one(choices("""
        {a}.register_hook(lambda g: g.clone().mul_(2)) | {a}.register_hook(lambda g: g * g) |
        {a}.register_hook(lambda g: see('{l}')(torch.autograd.grad(({a} * 2).sum(), [{a}])[0])) |
        {a}.register_hook(lambda g: ({b} * 3).sum().backward() if {b}.is_leaf else None) |
        {a}.register_hook(lambda g: torch.zeros_like(g)) |
        {a}.grad_fn.register_hook(lambda i, o: see_all('{l}')(o)) |
        {a}.grad_fn.register_prehook(lambda o: tuple(None if g is None else g * 2 for g in o)) |
        handles.append({a}.grad_fn.register_hook(lambda i, o: tuple(None if g is None else g * 2 for g in i))) |
        {b}.grad_fn; graph.register_multi_grad_hook([{a}, {b}], see_all('{l}')) |
        {b}.grad_fn; graph.register_multi_grad_hook([{a}, {b}], see('{l}'), mode='any') |
        {a}.register_post_accumulate_grad_hook(lambda t: t.grad.mul_(0.5) and None) |
        {a}.register_hook(lambda g: handles and handles.pop().remove())
    """)).format(a=a, b=b, l=label))


@statement(2)
def total_of_several(p: Writer) -> bool:
    root = total(p, 2)
    return True if root is None else p.add(f"with torch.no_grad(): ({root}).backward()")
