"""Check the derivation in a file that `graph.verify(loss, save=...)` wrote, with Python's own library and sympy alone.

    python check_certificate.py proof.json
The file holds two programs, values and gradients of a graph as written and as optimized.  An instruction is a head
(operator, attributes, type, whether it requires grad, a number of its own for leaves, seeds and draws) and positions of
operands.  Equal heads of equal operands have one number; values are linear combinations of these.  Each has a rule:

    merged, unchanged     the value of the operand
    sum, scale, zero      combinations are added, multiplied by a number, empty
    plain                 some function of its operands, of which nothing else is known
    linear, together      distributed over the sum in one operand; in several operands taken together

The last two rest on lemmas: sympy finds small instances of the operator linear.  Claims, that cotangents of the
optimized program are sums of original ones, are compared and then used.  The first wrong step is named; exit code 1.
"""

from __future__ import annotations

import ast
import hashlib
import heapq
import json
import operator
import struct
import sys
from fractions import Fraction
from typing import Any

import sympy

SAME = set("view reshape flatten ravel squeeze unflatten unsafe_view expand broadcast_to clone contiguous cast".split())
"""Where the result has the operand's type, it is the operand; so are sums, of one number each."""
ZEROS = ("i0", "f" + "00" * 8, "F")
DECIDING = set("x y value mode condition weight source src eps dtype base_dtype".split())
"""Attributes that decide where an operator is linear; a number that is multiplied with may be any."""
FUNCTIONS = {name: getattr(sympy, name) for name in "exp log sqrt sin cos tan tanh erf Abs sign pi E".split()}
ARITHMETIC = {ast.Add: operator.add, ast.Sub: operator.sub, ast.Mult: operator.mul, ast.Div: operator.truediv,
              ast.Pow: operator.pow}


class Wrong(Exception):
    """A step of the derivation does not hold."""


def formula(text: str, symbols: dict[str, Any]) -> Any:
    """An arithmetic expression as sympy's, without evaluating it as Python."""
    def read(e: Any) -> Any:
        if isinstance(e, ast.BinOp) and type(e.op) in ARITHMETIC:
            return ARITHMETIC[type(e.op)](read(e.left), read(e.right))
        if isinstance(e, ast.UnaryOp) and isinstance(e.op, ast.USub):
            return -read(e.operand)
        if isinstance(e, ast.Call) and isinstance(e.func, ast.Name) and not e.keywords:
            return FUNCTIONS[e.func.id](*map(read, e.args))
        if isinstance(e, ast.Name):
            return symbols[e.id] if e.id in symbols else FUNCTIONS[e.id]
        if isinstance(e, ast.Constant) and type(e.value) is int:
            return sympy.Integer(e.value)
        raise TypeError(f"{text!r} is no formula")

    return read(ast.parse(text, mode="eval").body)


def check_lemma(lemma: dict[str, Any], slots: list[int]) -> None:
    """Ask sympy whether the operator's elements are linear in the symbols of these operands, taken together."""
    symbols = {name: sympy.Symbol(name, real=True) for names in lemma["symbols"] for name in names}
    varied = [symbols[name] for slot in slots for name in lemma["symbols"][slot]]
    one, other = ([sympy.Symbol(f"{s}_{k}", real=True) for s in varied] for k in (1, 2))
    a, b = sympy.symbols("a b", real=True)
    for text in lemma["value"] if varied else [""]:
        f = formula(text, symbols)
        mixed, left, right = (f.subs(dict(zip(varied, values, strict=True)), simultaneous=True) for values in (
            [a * u + b * v for u, v in zip(one, other, strict=True)], one, other))
        if sympy.expand(rest := mixed - a * left - b * right) != 0 and sympy.simplify(rest) != 0:
            raise Wrong(f"{lemma['op']} is not linear in its operands {slots}: {text}")


def number(text: str) -> Fraction | None:
    """A number as the file writes attributes: i3, or f and the bytes of a double; None for what is no finite one."""
    if text[:1] == "i":
        return Fraction(int(text[1:]))
    value = struct.unpack("<d", bytes.fromhex(text[1:17]))[0] if text[:1] == "f" else float("inf")
    return Fraction(value) if abs(value) < float("inf") else None


class Derivation:
    """What the file holds, its rules checked."""

    def __init__(self, data: dict[str, Any]):
        self.types, self.lemmas = data["types"], data["lemmas"]
        self.heads = [(op, tuple(map(tuple, attributes)), *rest) for op, attributes, *rest in data["heads"]]
        self.programs = [(data[name]["heads"], data[name]["operands"]) for name in ("original", "optimized")]
        self.goals = data["goals"]
        self.claims = dict(data["claims"])
        self.rules = {(head, tuple(types)): (kind, detail, lemma) for head, types, kind, detail, lemma in data["rules"]}
        self.table, self.depth = dict[Any, int](), dict[int, int]()
        self.sums, self.terms = dict[int, dict[int, Any]](), dict[int, dict[int, Any]]()
        self.over: dict[int, tuple[Any, tuple[int, ...], int, list[int]]] = {}

    def check(self) -> Derivation:
        """Check lemmas, rules, both programs, and that all goals are equal."""
        for lemma in self.lemmas:
            for slots in lemma["linear"] if lemma["kind"] != "assumed" else ():
                check_lemma(lemma, slots)
        for (head, types), rule in self.rules.items():
            self.check_rule(head, types, *rule)
        second = self.walk(1, first := self.walk(0, []))
        for name, x, y in [g for g in self.goals if g[1:] != [None, None]] or [("nothing is compared", None, 0)]:
            if (x is None) != (y is None) or (x is not None and not self.same(first[x], second[y])):
                raise Wrong(f"{name}: the optimized one (instruction {y}) is not the original one (instruction {x})")
        return self

    def check_rule(self, h: int, types: tuple[int, ...], kind: str, detail: Any, lemma: int | None) -> None:
        """Does what is known of the operator allow the rule?"""
        op, attributes, kept, _, effect = self.heads[h]
        alike = all(t == kept for t in types) and self.types[kept][1].startswith(("float", "bfloat", "complex"))
        named, value = attributes[0] if len(attributes) == 1 else ("", "")
        factor = number(value) if (op, named) in (("mul", "x"), ("mul", "y")) else -1 if op == "neg" else None
        one = alike and (factor == 1 or ((op, named) == ("div", "y") and number(value) == 1))
        dims = "(" + ",".join([f"2:i{k}" for k in range(len(self.types[kept][0] or ()))]) + ")"
        same = op in {*SAME, "sum", "mean"} or (op == "permute" and (value or "()") == dims)
        given = [[name, "" if op in ("mul", "div") else value] for name, value in attributes if name in DECIDING]
        known = self.lemmas[lemma] if lemma is not None else {}
        shown = known["linear"] if (known.get("op"), known.get("given")) == (op, given) else []
        right = kind == "plain" or (not effect and {
            "sum": alike and not attributes and len(types) == 2 and detail == {"add": 1, "sub": -1}.get(op),
            "scale": alike and len(types) == 1 and factor and detail == str(factor),
            "zero": op == "full" and value in ZEROS,
            "unchanged": types == (kept,) and (same or one),
            "linear": kind == "linear" and detail and all([k] in shown and k < len(types) for k in detail),
            "together": detail in shown and detail[-1] < len(types),
        }.get(kind))
        if not right:
            raise Wrong(f"the rule {kind} {detail} is not one for {op} {dict(attributes)}")

    def walk(self, which: int, original: list[dict[int, Any]]) -> list[dict[int, Any]]:
        """The combination at every instruction; at claims, that of the claim."""
        heads, operands = self.programs[which]
        states, own = list[dict[int, Any]](), set[int]()
        for k, (h, places) in enumerate(zip(heads, operands, strict=True)):
            where = f"{('original', 'optimized')[which]} instruction {k} ({self.heads[h][0]} of {places})"
            if any(not 0 <= p < k for p in places) or (self.heads[h][4] and h in own):
                raise Wrong(f"{where} reads what comes later, or is there twice though a value of its own")
            own.add(h)
            types = tuple([self.heads[heads[p]][2] for p in places])
            state = self.value(h, types, [states[p] for p in places], where)
            claimed: dict[int, Any] = {}
            for factor, position in (there := self.claims.get(k, ()) if which else ()):
                if position < 0 or self.heads[self.programs[0][0][position]][2] != self.heads[h][2]:
                    raise Wrong(f"{where} is claimed to be a sum of values of another type")
                terms = original[position]
                add(claimed, terms if 1 in (len(terms), len(there)) else {self.name(terms): 1}, Fraction(factor))
            if which and k in self.claims and not self.same(state, claimed):
                raise Wrong(f"{where} is not the claimed sum {self.claims[k]} of original values")
            states.append(claimed if which and k in self.claims else state)
        return states

    def value(self, h: int, types: tuple[int, ...], args: list[dict[int, Any]], where: str) -> dict[int, Any]:
        """The combination that an instruction makes of those of its operands."""
        if self.heads[h][0] == "merged" and types == (self.heads[h][2],):
            return args[0]
        if (h, types) not in self.rules:
            raise Wrong(f"{where} has no rule")
        kind, detail, _ = self.rules[h, types]
        out: dict[int, Any] = {}
        if kind in ("unchanged", "scale"):
            add(out, args[0], Fraction(detail or 1))
        elif kind == "sum":
            for factor, arg in zip((1, detail), args, strict=True):
                add(out, arg if len(arg) == 1 else {self.name(arg): 1}, factor)
            return {self.name(out): 1} if len(out) > 1 else out
        elif kind == "together":
            rest = [{self.name(a): 1} for k, a in enumerate(args) if k not in detail]
            for k in detail:     # where a part of `cat` lands depends on the sizes of the others: on all types
                part = (h, "of" if self.commutes(h) else k, tuple([types[j] for j in detail]))
                add(out, self.spread(part, [*rest, args[k]], [len(rest)]), 1)
        elif kind != "zero":
            return self.spread(h, args, detail if kind == "linear" else [])
        return out

    def spread(self, head: Any, args: list[dict[int, Any]], slots: list[int]) -> dict[int, Any]:
        """Coefficients taken out of linear operands; one that is a sum is distributed over."""
        factor: Any = 1
        chosen, places = -1, []
        for k, arg in enumerate(args):
            if k in slots and not arg:
                return {}
            if k in slots and len(arg) == 1:
                ((only, coefficient),) = arg.items()
                factor *= coefficient
                places.append(only)
            elif k in slots and chosen < 0:
                chosen = k
                places.append(-1)
            else:
                places.append(self.name(arg))
        out: dict[int, Any] = {}
        for term, coefficient in args[chosen].items() if chosen >= 0 else ((None, 1),):
            reads = tuple([term if k == chosen else p for k, p in enumerate(places)])
            add(out, {self.function(head, reads, slots): coefficient * factor}, 1)
        return out

    def function(self, head: Any, reads: tuple[Any, ...], slots: list[int]) -> int:
        """The number of an operation on numbered values; `over` keeps which named sum it can be opened at."""
        if len(reads) == 2 and self.commutes(head) and reads[1] < reads[0]:
            reads, slots = reads[::-1], [1 - s for s in slots]
        found = self.table.setdefault((head, reads), len(self.table))
        inner = next((s for s in slots if reads[s] in self.sums or reads[s] in self.over), None)
        if inner is not None and found not in self.over:
            self.over[found] = head, reads, inner, slots
            self.depth[found] = 1 + self.depth[reads[inner]]
        return found

    def commutes(self, head: Any) -> bool:
        """x + y is y + x, and x y is y x."""
        return isinstance(head, int) and self.heads[head][0] in ("add", "mul") and not self.heads[head][1]

    def name(self, combination: dict[int, Any]) -> int:
        """One number for a combination."""
        if len(combination) == 1 and next(iter(combination.values())) == 1:
            return next(iter(combination))
        found = self.table.setdefault(("sum", tuple(sorted(combination.items()))), len(self.table))
        self.sums[found], self.depth[found] = combination, 0
        return found

    def same(self, one: dict[int, Any], other: dict[int, Any]) -> bool:
        """Is the difference nothing, once named sums are written out, the youngest first, and then distributed over?"""
        rest, queue = dict[int, Any](), list[tuple[bool, int, int]]()
        for terms, factor in ((one, 1), (other, -1)):
            self.take(rest, queue, terms, factor)
        while queue:
            n = -heapq.heappop(queue)[2]
            if n in rest:
                self.take(rest, queue, self.opened(n), rest.pop(n))
        return not rest

    def take(self, rest: dict[int, Any], queue: Any, terms: dict[int, Any], factor: Any) -> None:
        """Add to the rest, and note what can be written out."""
        for n in terms:
            if n not in rest and (n in self.sums or n in self.over):
                heapq.heappush(queue, (n not in self.sums, self.depth[n], -n))
        add(rest, terms, factor)

    def opened(self, n: int) -> dict[int, Any]:
        """A named sum, or a linear operation on one however deep it lies, term by term."""
        path = []
        while n not in self.sums and n not in self.terms:
            path.append(n)
            n = self.over[n][1][self.over[n][2]]
        terms = self.sums[n] if n in self.sums else self.terms[n]
        for n in reversed(path):
            head, reads, s, slots = self.over[n]
            out: dict[int, Any] = {}
            for term, coefficient in terms.items():
                add(out, {self.function(head, (*reads[:s], term, *reads[s + 1:]), slots): coefficient}, 1)
            terms = self.terms[n] = out
        return terms


def add(total: dict[int, Any], terms: dict[int, Any], factor: Any) -> None:
    """Add a multiple of a combination; what cancels goes."""
    for n, coefficient in terms.items():
        total[n] = total.get(n, 0) + coefficient * factor
        if not total[n]:
            del total[n]


def sealed(data: dict[str, Any]) -> str:
    """A hash of the derivation, which tells a damaged file."""
    text = json.dumps({k: v for k, v in data.items() if k != "sha256"}, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()


def check(path: str) -> Derivation:
    """Check a file; raises `Wrong` with the step that fails."""
    try:
        with open(path, encoding="utf-8") as file:
            data = json.load(file)["recorded"]["derivation"]
        if not data or data["sha256"] != sealed(data):
            raise Wrong("the file has no derivation, or a damaged one")
        return Derivation(data).check()
    except (OSError, ValueError, LookupError, TypeError, AttributeError, ArithmeticError, SyntaxError) as error:
        raise Wrong(f"the file is damaged, or cannot be read ({type(error).__name__}: {error})") from error


def main(paths: list[str]) -> int:
    """Print what was found."""
    try:
        found = check(*paths)
    except Wrong as error:
        print(f"refused: {error}")
        return 1
    print(f"agreed: {len(found.goals)} values and gradients are equal over the reals; instructions: "
          f"{' and '.join(str(len(heads)) for heads, _ in found.programs)}, claims: {len(found.claims)}")
    for x in found.lemmas:
        print(f"  {x['op']} is linear in {x['linear']}:", x.get("why") or f"sympy, {x['symbols']} to {x['value']}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]) if len(sys.argv) == 2 else "usage: python check_certificate.py proof.json")
