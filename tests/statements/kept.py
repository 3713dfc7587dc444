"""Write ends of contexts: tensors outlive their graph and are used in the next one, where no gradient is asked."""

from __future__ import annotations

import torch

from tests.programs import Writer
from tests.statements.table import assign, choices, statement


@statement(3)
def another_graph(p: Writer) -> bool:
    goes_on = p.add("fresh()")
    p.leave()
    return goes_on


@statement(2)
def between_graphs(p: Writer) -> bool:
    """Something done where no graph is open."""
    a, name = p.real(), p.new()
    text = p.one(choices("""
        with outside(): tell(printed({a})) | with outside(): {n} = {a}.detach() * 2 |
        with outside(): tell(torch.is_tensor({a} * 2)); {a}.tolist() | with outside(): {n} = torch.zeros_like({a}) |
        with outside(): {n} = {a}.detach().clone().requires_grad_() |
        with outside(): tell([{a}.requires_grad, {a}.is_leaf]) | with outside(): collected()
    """)).format(a=a, n=name)
    goes_on = p.add(text, [name] if name in text else [])
    p.leave()
    return goes_on


@statement(8)
def of_left(p: Writer) -> bool:
    """What a tensor of a left graph is still good for."""
    a = p.pick_left()
    if a is None:
        return True
    return assign(p, p.one(choices("""
        {0}.detach() * s | {0}.detach() | torch.zeros_like({0}) | torch.empty_like({0}).fill_(1) | {0}.data * 2 |
        {0}.long() | torch.full({0}.shape, {0}.reshape(-1)[0].item()) * s | {0} > 0 | torch.ones_like({0}) * s |
        {0}.isnan() | torch.tensor({0}.tolist()) | {0}.detach().clone().requires_grad_() | {0}.new_zeros(3) + y |
        ({0} == {0}) * s | {0}.argsort(-1) | {0}.sign().detach() | torch.from_numpy({0}.detach().numpy()) |
        {0}.shape[0:1].numel() * y | {0}.requires_grad * y |
        torch.zeros_like({0}, requires_grad=True) * {0}.detach() | torch.rand_like({0})
    """)).format(a)) if p.maybe(60) else seen(p, a)


def seen(p: Writer, a: str) -> bool:
    name = p.new()
    text = p.one(choices("""
        with torch.no_grad(): {n} = {a} * 2 | with torch.no_grad(): {n} = {a}.mean() | tell(printed({a}, {e})) |
        tell([{a}.shape, {a}.dtype, {a}.is_leaf, {a}.requires_grad, {a}.dim()]) | {n} = {a}.detach(); {n} *= 2 |
        tell(len({a}) if {a}.dim() else 0) | with torch.no_grad(): {a}.mul_(2) | tell({a}.grad_fn is None) | del {a} |
        with torch.no_grad(): {n} = {a}.sum().item() * y
    """)).format(a=a, n=name, e=a not in p.loose)
    goes_on = p.add(text, [name] if text.startswith(name) or f": {name} =" in text else [])
    if text.startswith("del"):
        p.left.discard(a)
    return goes_on


@statement(2)
def left_leaf(p: Writer) -> bool:
    """Gradients of the leaves of several graphs add up."""
    a = p.pick(lambda t: t.is_leaf and t.requires_grad and t.dtype == torch.float64)
    return True if a is None else p.add(f"({a} * {p.literal()}).sum().backward()")
