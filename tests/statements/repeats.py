"""Write lines that the program already has, and ends of tensors."""

from __future__ import annotations

from tests.programs import Writer
from tests.statements.table import assign, statement


@statement(26)
def twin(p: Writer) -> bool:
    """A line that the program already has."""
    return assign(p, p.one(p.expressions)) if p.expressions else True


@statement(4)
def rebind(p: Writer) -> bool:
    """An old name for a new value: what it named may die."""
    name = p.pick(lambda t: True) or "v1"
    if name[0] != "v" or not p.expressions:
        return True
    expression = p.one(p.expressions)
    return p.add(f"{name} = {expression}", [name], expression)


@statement(5)
def delete(p: Writer) -> bool:
    names = [n for n in p.names if n[0] == "v" and n in p.env]
    if not names:
        return True
    name = p.one(names)
    goes_on = p.add(f"del {name}")
    p.names.remove(name)
    return goes_on
