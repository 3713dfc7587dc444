"""Write calls of the user's own Functions: of every style, nested, differentiating inside, with dirty operands."""

from __future__ import annotations

from tests.programs import Writer
from tests.statements.table import assign, choices, statement

STYLES = ("inside", "within", "runs", "setup", "attribute", "output", "dirty", "unreturned", "several",
          "unmaterialized", "once", "nested", "checkpoint")


def words(p: Writer) -> str:
    """Choose the words of a Function, which may go together or not."""
    found = {p.one(STYLES) for _ in range(p.choices.integer(1, 3))}
    return " ".join(sorted(found - {"setup"} if found & {"dirty", "unreturned", "several"} else found))


@statement(7)
def custom(p: Writer) -> bool:
    a = p.real()
    if p.maybe(40):
        b = p.operand(a)
        u, v = p.new(), p.new()
        made = f"Ranked.apply({a})" if p.maybe(30) else f"Both.apply({a}, {b if b[0].isalpha() else 's'})"
        return p.add(f"{u}, {v} = {made}", [u, v])
    patterns = choices("Square.apply({}) | Grown.apply({}) | Doubled.apply({}) | Square.apply({} * 1)")
    return assign(p, p.one(patterns).format(a))


@statement(9)
def made(p: Writer) -> bool:
    a, style = p.real(), words(p)
    b = p.operand(a)
    given = p.one(("", f", {b if b[0].isalpha() else 's'}", f", {b if b[0].isalpha() else 's'}", ", None, 'text', 3"))
    operand = f"{a} * 1" if {"dirty", "unreturned"} & set(style.split()) or p.maybe(20) else a
    call = f"function('{style}').apply({operand}{given})"
    if "several" in style:
        u, v, n = p.new(), p.new(), p.new()
        return p.add(f"{u}, {v}, {n} = {call}", [u, v])
    return assign(p, call)


@statement(3)
def chained(p: Writer) -> bool:
    """Functions of Functions, with temporaries that nobody holds."""
    a = p.real()
    inner = f"function('{words(p)}').apply({a} * 1)"
    if "several" in inner:
        inner += "[0]"
    return assign(p, p.one(choices("""
        Square.apply({0}) * 1.01 * 1.01 | function('within').apply({0}, s) | ({0} * 1.01).sin() * {1} |
        Grown.apply(-Square.apply({0})) | function('inside').apply({0}, {1}) + {0} | solved({0}) + {0} |
        slope({0}) * {1}
    """)).format(inner, a))


@statement(3)
def dirtied(p: Writer) -> bool:
    """A variable written by a Function, which may also have views and users."""
    a = p.pick(lambda t: t.is_floating_point() and not (t.is_leaf and t.requires_grad)) or "c"
    return assign(p, p.one(choices("""
        function('dirty').apply({0}) | function('unreturned').apply({0}) + {0} | function('dirty').apply({0}, s) |
        function('unreturned').apply({0}, s) * 2 | function('dirty').apply({0}[..., :1]) | Doubled.apply({0}.view(-1))
    """)).format(a))
