"""Write looks at what is alive: weak references, the collector, cycles through a Function's ctx, versions."""

from __future__ import annotations

from tests.programs import Writer
from tests.statements.table import assign, choices, statement


@statement(4)
def watched(p: Writer) -> bool:
    """A weak reference to a variable, or to a temporary."""
    a = p.pick()
    return True if a is None else p.add(f"watch({a})" if p.maybe(70) else f"watch({a} * 1)")


@statement(4)
def dead_or_alive(p: Writer) -> bool:
    return p.add("collected(); alive()" if p.maybe(60) else "alive()")


@statement(3)
def dropped(p: Writer) -> bool:
    """A name that goes after it was watched."""
    names = [n for n in p.names if n[0] == "v" and n in p.env]
    if not names:
        return True
    name = p.one(names)
    goes_on = p.add(f"watch({name}); del {name}; alive()") if p.maybe(70) else p.add(f"del {name}")
    if name not in p.env:
        p.names.remove(name)
    return goes_on


@statement(2)
def cycle(p: Writer) -> bool:
    a = p.real()
    if p.maybe(50):
        return p.add(f"watch(tied('{p.one(('', 'within', 'attribute'))}', {a})); collected(); alive()")
    return assign(p, f"tied('{p.one(('', 'output', 'attribute'))}', {a})")


@statement(2)
def version(p: Writer) -> bool:
    a = p.pick() or "x"
    return p.add(p.one(choices("""
        tell({0}._version) | tell({0}.clone()._version) | tell({0}.view({0}.shape)._version) |
        tell(({0} * 1)._version) | tell({0}.detach()._version) | tell({0}.contiguous()._version)
    """)).format(a))
