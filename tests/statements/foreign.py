"""Write operands of classes that are the user's: reflected operators, torch functions of their own, subclasses."""

from __future__ import annotations

from tests.programs import Writer
from tests.statements.table import assign, choices, statement


@statement(4)
def with_reflected(p: Writer) -> bool:
    """A tensor on the left of an object that has the operator: the object's answer."""
    a, b = p.pick() or "x", p.real()
    name, u, v = p.new(), p.new(), p.new()
    operator = p.one(("+", "-", "*", "/", "//", "%", "**", "@", "&", "^", "<<", "<", "<=", ">", ">=", "==", "!="))
    return p.add(f"{name}, {u}, {v} = {a} {operator} Held({b}); tell({name})", [u, v])


@statement(2)
def refused_operand(p: Writer) -> bool:
    """What no tensor can be combined with; what both sides refuse has Python's error."""
    a = p.pick() or "x"
    other = p.one(("'text'", "None", "object()", "[1, 2]", "(1.0, 2.0)", "{1}", "Duck(1)", "(lambda: 0)", "range(3)"))
    operator = p.one(("+", "-", "*", "/", "//", "**", "@", "==", "!=", "<", "%"))
    text = f"{a} {operator} {other}" if p.maybe(60) else f"{other} {operator} {a}"
    return p.add(f"tell(isinstance({text}, torch.Tensor))")


@statement(3)
def with_duck(p: Writer) -> bool:
    a = p.real()
    b = p.operand(a)
    return assign(p, p.one(choices("""
        torch.add({a}, Duck({b})) | torch.mul(Duck({a}), {b}) | torch.stack([{a}, Duck({a})]) |
        F.linear({a}, Duck(w)) | {a}.mul(Duck({b})) | {a} * Duck({b}) | torch.where({a} > 0, Duck({a}), {b}) |
        {a}.clone().add_(Duck({b})) | {a} - Duck({b})
    """)).format(a=a, b=b))


@statement(2)
def of_subclass(p: Writer) -> bool:
    a = p.real()
    return assign(p, p.one(choices("""
        {0}.as_subclass(torch.Tensor) | ({0} * torch.nn.Parameter(y.detach().clone())) |
        torch.nn.Parameter({0}.detach().clone()) * s | torch.nn.Buffer({0}.detach().clone()) * s
    """)).format(a))


@statement(3)
def numpy_like(p: Writer) -> bool:
    """NumPy's functions and arrays beside tensors."""
    a = p.real()
    return assign(p, p.one(choices("""
        {0} * np.array(2.0) | {0} + np.ones(3) | torch.from_numpy(np.asarray({0}.detach()) * 2) | np.float64(2) * {0} |
        torch.as_tensor(np.asarray({0})) | {0} * float(np.mean({0}.tolist())) | np.array(2.0) * {0}.detach() |
        torch.tensor(np.array({0}.detach())) * s
    """)).format(a))
