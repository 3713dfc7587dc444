"""From a recorded graph to the program of its values and gradients.

The backward sweep is the templates of the rules, one after the other, in the executor's order.
"""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch

from autograd_opt.ops.table import USERS
from autograd_opt.verification.program.attribute_encoding import encode
from autograd_opt.verification.program.instruction_names import CONSTANT, FULL, HOOK, MERGED, PULLBACK, RULE, SEED
from autograd_opt.verification.program.instructions import ADD, MULTI, Malformed, Program
from autograd_opt.verification.program.linear import JOINTLY, LINEAR, is_kernel
from autograd_opt.verification.program.reading import Recorded
from autograd_opt.verification.program.rule_traces import Template, trace_rule
from autograd_opt.verification.program.tracer import Draws
from autograd_opt.verification.program.user_rule_variants import users_rule
from autograd_opt.verification.semantics.evaluate import known

TRACED: dict[Any, Any] = {}
"""What rules were traced to, by rule and signature, in words that every vocabulary understands."""
TRACED_LIMIT = 20_000


@dataclass(frozen=True, slots=True)
class Refused:
    """Why a rule cannot be traced; `draws`: it draws random numbers."""

    reason: str
    draws: bool


def understood(op: str) -> bool:
    """Can the operator be evaluated, or distributed over a sum?"""
    return op in (FULL, CONSTANT) or known(op) or op in LINEAR or op in JOINTLY or is_kernel(op)


def torchs(op: str) -> bool:
    """Is a function without a meaning one of torch's: the same wherever it has this name?"""
    return "::" not in op or op.startswith("aten::")


class Differentiator:
    """Builds joint programs of one recorded graph; templates are shared between them."""

    def __init__(self, recorded: Recorded):
        self.recorded = recorded
        self.templates: dict[Any, Template | None] = {}
        self.users: dict[Any, Any] = {}      # as TRACED: what a rule of the user's reads may be another thing later
        self.read_rules: dict[Any, None] = {}
        """Operators of the user's whose rules were traced."""
        self.unsupported: dict[str, str] = {}
        self.drawing: set[str] = set()

    def program(self, leader: Sequence[int], roots: Sequence[int], leaves: Sequence[int]) -> Program:
        """Values of all nodes (merged ones by reference to their leader), then the reverse sweep."""
        recorded, vocabulary = self.recorded, self.recorded.vocabulary
        n = len(recorded.heads)
        heads, operands = list(recorded.heads), []
        present = recorded.operands
        identity = range(n)
        merged = [i for i in identity if leader[i] != i]
        for i in merged:
            if leader[i] > i:
                raise Malformed(f"node {i} is merged into {leader[i]}, which comes after it")
            heads[i] = vocabulary.head(MERGED, (), vocabulary.heads[heads[i]].type)
        if merged:
            operands = [
                tuple([leader[o] for o in places if o is not None]) if leader[i] == i else (leader[i],)
                for i, places in enumerate(present)
            ]
        else:
            operands = [
                places if None not in places else tuple([o for o in places if o is not None])  # type: ignore[misc]
                for places in present
            ]
        program = Program(vocabulary, heads, operands, array("q", identity), n)
        program.values = [leader[r] for r in roots]
        self.sweep(program, leader, roots)
        program.gradients = [program.cotangents.get(leader[i]) for i in leaves]
        return program

    def sweep(self, program: Program, leader: Sequence[int], roots: Sequence[int]) -> None:
        """The reverse sweep, in the order of the executor: descending record number."""
        recorded, vocabulary = self.recorded, self.recorded.vocabulary
        heads, grad, nodes = recorded.heads, recorded.grad, recorded.nodes
        vocabulary_heads = vocabulary.heads
        n = program.forward
        waiting: list[Any] = [None] * n
        append = program.append
        cotangents, sent = program.cotangents, program.sent
        adders: dict[int, int] = {}

        def send(target: int, g: int, origin: int) -> None:
            old = waiting[target]
            if old is None:
                waiting[target] = g
                return
            kind = vocabulary_heads[heads[target]].type
            head = adders.get(kind)
            if head is None:
                head = adders[kind] = vocabulary.head(ADD, (), kind)
            waiting[target] = append(head, (old, g), origin)

        for k, r in enumerate(roots):
            kind = vocabulary_heads[heads[r]].type
            seed = append(vocabulary.head(SEED, (), kind, False, k + 1), (), r)
            sent.append((-1, r, seed))
            send(leader[r], seed, r)
        for i in range(n - 1, -1, -1):
            g = waiting[i]
            if g is None:
                continue
            node = nodes[i]
            if node.hooks is not None:
                g = self.hooked(program, g, i)
            if type(g) is int:
                cotangents[i] = g
            places = recorded.operands[i]
            if not places:
                continue
            targets = [None if o is None else leader[o] for o in places]
            kinds = [None if o is None else vocabulary_heads[heads[o]].type for o in targets]
            needs = [o is not None and grad[o] == 1 for o in targets]
            if True not in needs:
                continue
            head_number = heads[i]
            parts = g if type(g) is list else None
            key = (
                head_number,
                tuple(kinds),
                tuple(needs),
                None if parts is None else tuple([p is not None for p in parts]),
            )
            if key in self.templates:
                template = self.templates[key]
            else:
                template = self.templates[key] = self.template(node.op, head_number, kinds, needs, parts)
            environment = list(parts) if parts is not None else [g]
            environment.append(i)
            environment += targets
            if template is None:
                several = 1 if parts is None else sum(p is not None for p in parts)
                self.opaque(program, environment, i, kinds, needs, several, send)
                continue
            for head, refs in template.steps:
                environment.append(append(head, tuple([environment[r] for r in refs]), i))
            for k, position in template.results:
                target = targets[k]
                if node.op.name == "output":
                    self.send_part(
                        waiting,
                        send_into=target,
                        part=vocabulary_heads[heads[i]].value("i", 0),
                        g=environment[position],
                        origin=i,
                        program=program,
                    )
                else:
                    sent.append((i, k - places[:k].count(None), environment[position]))
                    send(target, environment[position], i)  # type: ignore[arg-type]

    def hooked(self, program: Program, g: Any, i: int) -> Any:
        """A cotangent after the user's hooks: some function of it."""
        vocabulary = program.vocabulary
        together = g if type(g) is list else [g]
        reads = tuple([p for p in together if p is not None])
        out = []
        for k, p in enumerate(together):
            part = (("#part", encode(k)),) if type(g) is list else ()
            type_ = None if p is None else vocabulary.heads[program.heads[p]].type
            head = None if type_ is None else vocabulary.head(HOOK, part, type_, False, i + 1)
            out.append(None if head is None else program.append(head, reads, i))
        return out if type(g) is list else out[0]

    def send_part(
        self, waiting: list[Any], send_into: int | None, part: int, g: int, origin: int, program: Program
    ) -> None:
        """Add to one output's cotangent of a node with several."""
        assert send_into is not None
        vocabulary = program.vocabulary
        kinds = vocabulary.types[vocabulary.heads[self.recorded.heads[send_into]].type].parts
        if waiting[send_into] is None:
            waiting[send_into] = [None] * len(kinds)
        old = waiting[send_into][part]
        waiting[send_into][part] = (
            g if old is None else program.append(vocabulary.head(ADD, (), kinds[part]), (old, g), origin)
        )

    def template(self, op: Any, head_number: int, kinds: Sequence[Any], needs: Sequence[bool],
                 parts: Any = None) -> Template | None:
        """The template of a signature; None where the rule cannot be traced."""
        vocabulary = self.recorded.vocabulary
        head = vocabulary.heads[head_number]
        if op.name == "output":
            return Template((), ((0, 0),))
        if op.joint is None and not any(
            k < len(op.vjps) and op.vjps[k] is not None for k, need in enumerate(needs) if need
        ):
            return Template((), ())
        if op.flags & MULTI and parts is None:
            return None
        if head.unread:
            self.unsupported[op.name] = "an attribute cannot be read"
            return None
        present = None if parts is None else tuple([p is not None for p in parts])
        spelled = (head.op, head.attributes, vocabulary.spelled(head.type), tuple(map(vocabulary.spelled, kinds)))
        key = (op, tuple(op.vjps), op.joint, spelled, tuple(needs), present, torch.get_default_dtype())
        users = op in USERS
        table = self.users if users else TRACED
        traced, made = table.get(key), None
        if traced is None:
            try:
                made = (users_rule if users else trace_rule)(vocabulary, op, head, kinds, needs, present)
            except Exception as error:  # whatever a rule raises on traces means that it cannot be traced
                traced = Refused(str(error), isinstance(error, Draws))
            else:
                traced = (
                    [(vocabulary.heads[h], vocabulary.spelled(vocabulary.heads[h].type), r) for h, r in made.steps],
                    made.results,
                )
            if len(table) >= TRACED_LIMIT:
                table.clear()
            table[key] = traced
        if isinstance(traced, Refused):
            self.unsupported[op.name] = traced.reason
            if traced.draws:
                self.drawing.add(op.name)
            return None
        if users:
            self.read_rules[op] = None
        steps, results = traced
        strange = [h.op for h, _, _ in steps if not understood(h.op)]
        if strange:
            self.unsupported[op.name] = f"its rule uses {strange[0]}, which has no meaning"
            if op not in USERS or not all(map(torchs, strange)):  # of the library's it is linear still, as a whole
                return None
        return made or Template(
            tuple((vocabulary.head(h.op, h.attributes, vocabulary.intern(t)), refs) for h, t, refs in steps), results
        )

    def opaque(self, program: Program, environment: list[Any], i: int, kinds: list[Any], needs: list[bool],
               several: int, send: Any) -> None:
        """Cotangents of an untraceable rule: functions, otherwise unknown, of all it may read.

        `several` cotangents stand first where the operation has several outputs.  Those that torch computes are
        linear in them; of the user's rules nothing is known.
        """
        recorded, vocabulary = self.recorded, self.recorded.vocabulary
        op, places, head = recorded.nodes[i].op, recorded.operands[i], vocabulary.heads[recorded.heads[i]]
        kind = RULE if op in USERS else PULLBACK
        effect = 0 if recorded.pure[i] and op.name not in self.drawing else i + 1
        parts = () if several == 1 else (("#parts", encode(several)),)
        reads = tuple([e for e in environment if e is not None])
        absent = encode(tuple([e is None for e in environment]))
        targets = environment[-len(places) :]
        for k in range(len(places) - 1, -1, -1):
            if needs[k]:
                attributes = (("#of", encode(op.name)), ("#operand", encode(k)), ("#absent", absent),
                              *parts, *head.attributes)
                number = vocabulary.head(kind, attributes, kinds[k], False, effect)
                part = program.append(number, reads, i)
                program.sent.append((i, k - places[:k].count(None), part))
                send(targets[k], part, i)
