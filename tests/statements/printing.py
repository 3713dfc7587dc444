"""Write looks at tensors and their history: printing, formatting, nodes, versions."""

from __future__ import annotations

from tests.programs import Writer
from tests.statements.table import choices, statement


@statement(6)
def looked(p: Writer) -> bool:
    a = p.pick()
    if a is None:
        return True
    exactly = a not in p.loose
    return p.add(p.one(choices("""
        tell(printed({a}, {e})) | tell(printed({a}, {e})) | tell({a}._version) |
        tell([isinstance({a}, torch.Tensor), {a}.is_leaf]) | tell(type({a}.grad_fn).__name__) |
        tell({a}.grad_fn is None or {a}.grad_fn.name()) | tell([{a}.output_nr, {a}.retains_grad, {a}._is_view()]) |
        tell({a}.grad_fn is {a}.grad_fn) | tell(printed({a}.detach(), {e})) |
        tell(len({a}.grad_fn.next_functions) if {a}.grad_fn else 0) | tell(dir({a}) and 1) |
        tell({a}.grad_fn and [None if n is None else n.name() for n, _ in {a}.grad_fn.next_functions]) |
        tell([{a}.layout, {a}.is_contiguous(), {a}.storage_offset(), {a}.is_conj()]) | tell(hash({a}) and 1) |
        tell({a}.detach()._version) | tell(type({a}).__module__.split('.')[0])
    """)).format(a=a, e=exactly))


@statement(2)
def printed_gradient(p: Writer) -> bool:
    a = p.one(("x", "y", "w", "s"))
    return p.add(f"tell({a}.grad is None or printed({a}.grad, False))")
