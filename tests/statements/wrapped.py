"""Write runs through torch's entry points as users have wrapped, kept or replaced them."""

from __future__ import annotations

from tests.programs import Writer
from tests.statements.runs import total
from tests.statements.table import choices, statement


@statement(6)
def through_wrappers(p: Writer) -> bool:
    root, a = total(p, p.choices.integer(1, 3)), p.tracked()
    if root is None or a is None:
        return True
    u = p.new()
    keep = p.one((", retain_graph=True", ", retain_graph=True", ", create_graph=True", ""))
    how = p.one(("lambda", "partial", "wraps"))
    text = p.one(choices("""
        with wrapped('{h}'): {u}, = torch.autograd.grad({r}, [{a}], allow_unused=True{k}) |
        with wrapped('{h}'): ({r}).backward(retain_graph=True) |
        with wrapped('{h}'): torch.autograd.backward({r}, retain_graph=True) |
        with wrapped('{h}'): {u} = checkpoint(lambda t: function('within').apply(t * s), {a}, use_reentrant=False) |
        {u}, = functools.partial(torch.autograd.grad, allow_unused=True{k})({r}, {a}) |
        {u}, = imported_grad({r}, [{a}], allow_unused=True{k}) | imported_backward([{r}], retain_graph=True) |
        {u}, = (lambda *a, **k: torch.autograd.grad(*a, **k))({r}, [{a}], materialize_grads=True{k}) |
        torch.Tensor.backward({r}, retain_graph=True) |
        functools.partial(torch.autograd.backward, retain_graph=True)({r}) |
        list(map(functools.partial(torch.Tensor.backward, retain_graph=True), [{r}])) |
        {u}, = next(map(lambda t: torch.autograd.grad(t, [{a}], allow_unused=True{k}), [{r}])) |
        torch.autograd.backward(tensors={r}, grad_tensors=None, retain_graph=True, inputs=[{a}])
    """)).format(r=root, a=a, u=u, k=keep, h=how)
    return p.add(text, [u] if u in text else [])


@statement(3)
def of_edges(p: Writer) -> bool:
    """Runs from edges of the graph, or to them."""
    a, b = p.tracked(), p.tracked()
    if a is None or b is None:
        return True
    u, keep = p.new(), ", retain_graph=True"
    text = p.one(choices("""
        {u}, = torch.autograd.grad(edge({a}), [{b}], torch.ones_like({a}), allow_unused=True{k}) |
        {u}, = torch.autograd.grad({a}.abs().sum(), [edge({b})], allow_unused=True{k}) |
        {u}, = torch.autograd.grad(edge({a}), [{b}], torch.ones(7), allow_unused=True{k}) |
        {u}, = torch.autograd.grad(edge({a}), [{b}], torch.ones_like({a}).float(), allow_unused=True) |
        torch.autograd.backward([edge({a})], [torch.ones_like({a})], retain_graph=True)
    """)).format(a=a, b=b, u=u, k=keep)
    return p.add(text, [u] if text.startswith(u) else [])
