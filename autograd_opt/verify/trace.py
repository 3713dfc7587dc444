"""Rules run on traces: from a recorded graph to the program of its values and gradients.

A `Trace` is a tensor without data (on torch's meta device) that knows which instruction
made it.  A rule of the operator table runs on traces once per signature (operator,
attributes, types, which operands want a cotangent) and leaves a *template*; the backward
sweep is the templates, one after the other, in the executor's order.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch.overrides import TorchFunctionMode
from torch.utils._pytree import tree_flatten

from autograd_opt.ops.table import BINDERS, CALLS, OPS, rename, signature_of
from autograd_opt.verify.ir import ADD, MULTI, Head, Malformed, Program, Recorded, Vocabulary, encode

MERGED, SEED, HOOK, PULLBACK, CONSTANT, FULL = "merged", "seed", "hook", "pullback", "constant", "full"
PRIVATE = {7, 8, 9}
"""Argument codes of rules that read the run or the node itself: nothing here can trace those."""

WORDS = {
    name: signature_of(signature)
    for name, signature in {
        "gt": "x, y",
        "ge": "x, y",
        "lt": "x, y",
        "le": "x, y",
        "eq": "x, y",
        "ne": "x, y",
        "to": "x, dtype=None",
        "logical_and": "x, y",
        "logical_or": "x, y",
        "logical_not": "x",
        "logical_xor": "x, y",
        "isnan": "x",
        "isinf": "x",
        "isfinite": "x",
        "clone": "x",
        "contiguous": "x",
        "detach": "x",
    }.items()
}
"""Torch functions that rules use and that have no line in the operator table."""
SAME = {
    "and": "logical_and",
    "bitwise_and": "logical_and",
    "or": "logical_or",
    "bitwise_or": "logical_or",
    "invert": "logical_not",
    "bitwise_not": "logical_not",
    "type_as": "to",
    "float": "to",
    "double": "to",
}
SWAPPED = {"rdiv": "div", "rtruediv": "div", "rpow": "pow", "rmatmul": "matmul"}
BY_FORWARD = {op.forward: name for name, op in OPS.items() if op.forward is not None}
CREATORS = {"zeros": 0.0, "zeros_like": 0.0, "new_zeros": 0.0, "ones": 1.0, "ones_like": 1.0, "new_ones": 1.0}
ADDS_TO = {"index_add", "scatter_add"}
"""Operators that add into operand 0: linear in the rest where that is all zeros."""


TRACED: dict[Any, Any] = {}
"""What rules were traced to, by rule and signature, in words that every vocabulary understands."""
TRACED_LIMIT = 20_000


class Untraceable(Exception):
    """A rule does something that has no trace: it looks at values, or is private."""


class Trace(torch.Tensor):
    """A tensor without data, and the position of the instruction that makes it."""

    position: int
    __torch_function__ = torch._C._disabled_torch_function_impl  # type: ignore[assignment]


@dataclass(frozen=True, slots=True)
class Template:
    """What a rule does: steps over the environment [g or its parts, ans, operands..., earlier steps]."""

    steps: tuple[tuple[int, tuple[int, ...]], ...]
    results: tuple[tuple[int, int], ...]


class Parts:
    """The cotangents of a node with several outputs, as its rule sees them."""

    __slots__ = ("parts",)

    def __init__(self, parts: list[Any]):
        self.parts = parts


class Tracer(TorchFunctionMode):
    """Above every other mode: turns each torch call on traces into a step."""

    def __init__(self, vocabulary: Vocabulary, places: int, device: str):
        super().__init__()
        self.vocabulary = vocabulary
        self.device = device
        self.places = places
        self.steps: list[tuple[int, tuple[int, ...]]] = []

    def value(self, type: int, position: int) -> Trace:
        """A trace of this type standing for what is at `position`."""
        shape, dtype, _, _ = self.vocabulary.types[type]
        with torch._C.DisableTorchFunction():
            t = torch.empty(shape, dtype=getattr(torch, dtype), device="meta")  # type: ignore[arg-type]
        t.__class__ = Trace
        t.position = position  # type: ignore[attr-defined]
        return t  # type: ignore[return-value]

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        with torch._C.DisableTorchFunction():
            try:
                result = func(*args, **kwargs)
            except (RuntimeError, NotImplementedError) as error:
                if "meta" in str(error) or "data-dependent" in str(error):
                    raise Untraceable(str(error)) from error
                raise
            if not isinstance(result, (torch.Tensor, tuple, list)):
                return result
            short = getattr(func, "__name__", "")
            if isinstance(result, torch.Tensor) and short in CREATORS:
                return self.full(CREATORS[short], result)
            if (
                isinstance(result, torch.Tensor)
                and result.device.type == "meta"
                and "device" in kwargs
                and not any(isinstance(a, Trace) for a in tree_flatten((args, kwargs))[0])
            ):
                made = func(*args, **{**kwargs, "device": "cpu"})
                return self.known(self.constant(made), result)
            name, operands, attributes = self.canonical(func, args, kwargs)
            if isinstance(result, torch.Tensor):
                if any(result is a for a in args):
                    if name.endswith("_"):
                        raise Untraceable(f"a rule writes in place ({name})")
                    return result
                return self.step(name, operands, attributes, result)
            tensors = [r for r in result if isinstance(r, torch.Tensor)]
            if not tensors:
                return result
            metas = tuple((r.shape, r.dtype, self.device) if isinstance(r, torch.Tensor) else None for r in result)
            parent = self.append(name, operands, attributes, self.vocabulary.type(metas, None, None))
            made = [
                None if r is None else self.step("output", [parent], {"i": i} if i else {}, r)
                for i, r in enumerate(result)
            ]
            return type(result)(made)

    def canonical(self, func: Any, args: Any, kwargs: Any) -> tuple[str, list[Any], dict[str, Any]]:
        """The call in the words of the operator table, or in those of `WORDS`, or as it stands."""
        name = CALLS.get(func) or BY_FORWARD.get(func)
        if func is torch.einsum and "einsum" in OPS:
            operands, attributes = BINDERS["einsum"](args[0], args[1:])
            return "einsum", *self.split((), operands, attributes, OPS["einsum"].attributes)
        if callable(name):
            name = name(*args, **kwargs)
        if isinstance(name, str):
            try:
                operands, attributes = BINDERS[name](*args, **rename(kwargs, OPS[name].operands))
                return name, *self.split(OPS[name].operands, operands, attributes, OPS[name].attributes)
            except TypeError:
                pass
        name = getattr(func, "__name__", "?")
        if name == "__get__":
            name = func.__self__.__name__
        name = name.strip("_") if name.startswith("__") else name
        name = SAME.get(name, name)
        if name in SWAPPED:
            return SWAPPED[name], *self.split(OPS[SWAPPED[name]].operands, args[::-1], {}, {})
        if isinstance(func, (torch._ops.OpOverloadPacket, torch._ops.OpOverload)):
            name = f"aten::{name}"
        if name == "to":
            kwargs = {**kwargs, "dtype": func(*args, **kwargs).dtype}
            args = args[:1]
        if name in WORDS:
            names, defaults, binder = WORDS[name]
            operands, attributes = binder(*args, **rename(kwargs, names))
            return name, *self.split(names, operands, attributes, defaults)
        tensors, attributes = [], {}
        for key, value in [*((f"#{k}", a) for k, a in enumerate(args)), *kwargs.items()]:
            inside = [t for t in tree_flatten(value)[0] if isinstance(t, torch.Tensor)]
            tensors += inside
            if not isinstance(value, torch.Tensor):
                attributes[key] = f"{len(inside)} tensors" if inside else value
        return name, tensors, attributes

    def split(self, names: Sequence[str], operands: Any, attributes: dict[str, Any], defaults: dict[str, Any]) -> Any:
        """Tensors on one side, numbers and attributes that are not the default on the other."""
        out = {}
        tensors = []
        for k, value in enumerate(operands):
            if isinstance(value, torch.Tensor):
                tensors.append(value)
            else:
                out[names[k] if k < len(names) else f"#{k}"] = value
        for key, value in attributes.items():
            if isinstance(value, torch.Tensor):
                raise Untraceable(f"a tensor as attribute {key}")
            if key not in defaults or encode(defaults[key]) != encode(value):
                out[key] = value
        return tensors, out

    def append(self, name: str, operands: list[Any], attributes: dict[str, Any], type: int) -> int:
        places = []
        for t in operands:
            if isinstance(t, int):
                places.append(t)
            elif isinstance(t, Trace):
                places.append(t.position)
            else:
                places.append(self.constant(t))
        if name in ADDS_TO and places and self.is_zero(places[0]):
            places, attributes = places[1:], {**attributes, "x": "zeros"}
        try:
            coded = tuple(sorted((k, encode(v)) for k, v in attributes.items()))
        except TypeError as error:
            raise Untraceable(f"{name}: an attribute of unknown meaning ({error})") from error
        self.steps.append((self.vocabulary.head(name, coded, type), tuple(places)))
        return self.places + len(self.steps) - 1

    def step(self, name: str, operands: list[Any], attributes: dict[str, Any], result: torch.Tensor) -> Any:
        """Append one instruction and return the trace of its result."""
        if name != FULL and not any(isinstance(o, (Trace, int)) for o in operands):
            if result.device.type != "meta":
                return result
            raise Untraceable(f"{name} makes a tensor from nothing that is traced")
        if name in ("rand", "randn", "bernoulli", "dropout", "rand_like", "randn_like", "normal", "multinomial"):
            raise Untraceable("a rule draws random numbers")
        position = self.append(
            name, operands, attributes, self.vocabulary.type(result.shape, result.dtype, self.device)
        )
        return self.known(position, result)

    def known(self, position: int, result: torch.Tensor) -> Any:
        """The trace of a meta tensor whose instruction is at `position`."""
        with torch._C.DisableTorchFunction():
            trace = result.detach() if type(result) is Trace else result
            trace.__class__ = Trace
            trace.position = position  # type: ignore[attr-defined]
        return trace

    def full(self, value: float, result: torch.Tensor) -> Any:
        """A tensor of one number, whatever it was made like."""
        return self.step(FULL, [], {"value": value}, result.to("meta"))

    def is_zero(self, place: int) -> bool:
        if place < self.places:
            return False
        head = self.vocabulary.heads[self.steps[place - self.places][0]]
        return head.op == FULL and head.value("value") == 0.0

    def constant(self, t: torch.Tensor) -> int:
        """A small tensor that a rule makes itself, by its bits."""
        if t.device.type == "meta" or t.numel() > 4096:
            raise Untraceable("a constant without readable values")
        data = encode(t.tolist()), encode(t.dtype)
        head = self.vocabulary.head(
            CONSTANT, (("value", data[0]), ("dtype", data[1])), self.vocabulary.type(t.shape, t.dtype, self.device)
        )
        self.steps.append((head, ()))
        return self.places + len(self.steps) - 1


def arguments(
    vjp: Any,
    op: Any,
    head: Head,
    types: Sequence[int | None],
    needs: Sequence[bool],
    g: Any,
    ans: Callable[[], Any],
    operand: Callable[[int], Any],
    vocabulary: Vocabulary,
) -> tuple[list[Any], dict[str, Any]]:
    """What a rule is called with, by its argument codes."""

    def metadata(k: int) -> tuple[Any, Any]:
        t = types[k]
        if t is None:
            return (), None
        shape, dtype, _, _ = vocabulary.types[t]
        return torch.Size(shape or ()), getattr(torch, dtype) if dtype else None

    args = [g]
    shape, dtype, _, parts_of_type = vocabulary.types[head.type]
    for code in vjp.codes:
        if code in PRIVATE:
            raise Untraceable(f"the rule of {op.name} is private")
        if code >= 128:
            args.append(metadata(code - 128)[1])
        elif code >= 64:
            args.append(metadata(code - 64)[0])
        elif code >= 16:
            args.append(operand(code - 16))
        elif code == 1:
            args.append(ans())
        elif code == 2:
            args.append(
                torch.Size(shape or ())
                if not parts_of_type
                else tuple(
                    None
                    if p is None
                    else (
                        torch.Size(vocabulary.types[p].shape or ()),
                        getattr(torch, vocabulary.types[p].dtype),
                        torch.device("meta"),
                    )
                    for p in parts_of_type
                )
            )
        elif code == 3:
            args.append(tuple(needs))
        elif code == 4:
            args.append([metadata(k)[0] for k in range(len(types))])
        elif code == 5:
            args.append([operand(k) for k in range(len(types))])
        elif code == 10:
            args.append([None if k == 0 else operand(k) for k in range(len(types))])
        elif code == 6:
            args.append(getattr(torch, dtype))
        else:
            raise Untraceable(f"argument code {code}")
    values = head.values()
    return args, {a: values.get(a, op.attributes.get(a)) for a in vjp.attributes}


def trace_rule(
    vocabulary: Vocabulary,
    op: Any,
    head: Head,
    types: Sequence[int | None],
    needs: Sequence[bool],
    parts: Sequence[bool] | None = None,
) -> Template:
    """Run the rules of one signature.

    Environment of the template: the cotangent (or one place per part), the output, the
    operands in order (absent ones too), then the steps.

    Raises
    ------
    Untraceable : the rule looks at values, draws random numbers, or reads the run itself.
    """
    first = 1 if parts is None else len(parts)
    result = vocabulary.types[head.type]
    device = result.device or next(vocabulary.types[p].device for p in result.parts if p is not None)
    tracer = Tracer(vocabulary, first + 1 + len(types), device)
    numbers = head.values()

    def operand(k: int) -> Any:
        t = types[k]
        if t is None:
            return numbers.get(op.operands[k] if k < len(op.operands) else f"#{k}")
        return tracer.value(t, first + 1 + k)

    def ans() -> Any:
        if vocabulary.types[head.type].shape is None:
            raise Untraceable("the rule reads several outputs at once")
        return tracer.value(head.type, first)

    if parts is None:

        def g() -> Any:
            return tracer.value(head.type, 0)
    else:

        def g() -> Any:
            kinds = vocabulary.types[head.type].parts
            return Parts([tracer.value(kinds[k], k) if there else None for k, there in enumerate(parts)])

    results: list[tuple[int, int]] = []
    with recording_paused(), tracer:
        if op.joint is not None:
            args, kwargs = arguments(op.joint, op, head, types, needs, g(), ans, operand, vocabulary)
            found = list(op.joint.fn(*args, **kwargs) or ())
            pairs = [(k, found[k] if k < len(found) else None) for k in range(len(types) - 1, -1, -1) if needs[k]]
            for k, value in pairs:
                settle(tracer, vocabulary, results, k, types[k], value)
        else:
            for k in range(len(types) - 1, -1, -1):
                if not needs[k] or k >= len(op.vjps) or op.vjps[k] is None:
                    continue
                args, kwargs = arguments(op.vjps[k], op, head, types, needs, g(), ans, operand, vocabulary)
                settle(tracer, vocabulary, results, k, types[k], op.vjps[k].fn(*args, **kwargs))
    return Template(tuple(tracer.steps), tuple(results))


def settle(
    tracer: Tracer, vocabulary: Vocabulary, results: list[tuple[int, int]], k: int, type: Any, value: Any
) -> None:
    """The edge rule: bring a cotangent to its operand's shape and dtype."""
    if value is None:
        return
    shape, dtype, _, _ = vocabulary.types[type]
    if not isinstance(value, Trace):
        raise Untraceable("the rule returns something that is not traced")
    if shape is not None:
        if tuple(value.shape) != shape:
            value = value.sum_to_size(shape)
        wanted = getattr(torch, dtype)
        if value.dtype != wanted:
            if value.is_complex() and not wanted.is_complex:
                value = value.real
            value = value.to(wanted)
    results.append((k, value.position))


@contextmanager
def recording_paused() -> Iterator[None]:
    """No active graph sees what happens here."""
    from autograd_opt import node as nodes

    old = nodes.pause()
    try:
        yield
    finally:
        nodes.resume(old)


class Differentiator:
    """Builds joint programs of one recorded graph; templates are shared between them."""

    def __init__(self, recorded: Recorded):
        self.recorded = recorded
        self.templates: dict[Any, Template | None] = {}
        self.unsupported: dict[str, str] = {}

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
        cotangents = program.cotangents
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
            send(leader[r], append(vocabulary.head(SEED, (), kind, False, k + 1), (), r), r)
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
                template = self.templates[key] = self.template(head_number, node.op, kinds, needs, parts)
            environment = list(parts) if parts is not None else [g]
            environment.append(i)
            environment += targets
            if template is None:
                self.opaque(program, environment, i, head_number, places, kinds, needs, node.op, send)
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
                    send(target, environment[position], i)  # type: ignore[arg-type]

    def hooked(self, program: Program, g: Any, i: int) -> Any:
        """A cotangent after the user's hooks: some function of it."""
        vocabulary = program.vocabulary
        if type(g) is list:
            return [p if p is None else self.hooked(program, p, i) for p in g]
        type_ = vocabulary.heads[program.heads[g]].type
        return program.append(vocabulary.head(HOOK, (), type_, False, i + 1), (g,), i)

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

    def template(self, head_number: int, op: Any, kinds: list[Any], needs: list[bool], parts: Any) -> Template | None:
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
        present = None if parts is None else tuple([p is not None for p in parts])
        spelled = (head.op, head.attributes, vocabulary.spelled(head.type), tuple(map(vocabulary.spelled, kinds)))
        key = (op, tuple(op.vjps), op.joint, spelled, tuple(needs), present)
        known = TRACED.get(key)
        if known is None:
            try:
                made = trace_rule(vocabulary, op, head, kinds, needs, present)
            except Exception as error:  # whatever a rule raises on traces means that it cannot be traced
                known = str(error)
            else:
                known = (
                    [(vocabulary.heads[h], vocabulary.spelled(vocabulary.heads[h].type), r) for h, r in made.steps],
                    made.results,
                )
            if len(TRACED) >= TRACED_LIMIT:
                TRACED.clear()
            TRACED[key] = known
        if isinstance(known, str):
            self.unsupported[op.name] = known
            return None
        steps, results = known
        return Template(
            tuple((vocabulary.head(h.op, h.attributes, vocabulary.intern(t)), refs) for h, t, refs in steps), results
        )

    def opaque(
        self,
        program: Program,
        environment: list[Any],
        i: int,
        head_number: int,
        places: Any,
        kinds: list[Any],
        needs: list[bool],
        op: Any,
        send: Any,
    ) -> None:
        """Cotangents of an untraceable rule: functions, otherwise unknown, of all it may read."""
        vocabulary = self.recorded.vocabulary
        head = vocabulary.heads[head_number]
        effect = 0 if self.recorded.pure[i] else i + 1
        reads = tuple([e for e in environment if e is not None])
        absent = encode(tuple([e is None for e in environment]))
        targets = environment[-len(places) :]
        for k in range(len(places) - 1, -1, -1):
            if needs[k]:
                attributes = (("#of", encode(op.name)), ("#operand", encode(k)), ("#absent", absent), *head.attributes)
                number = vocabulary.head(PULLBACK, attributes, kinds[k], False, effect)
                send(targets[k], program.append(number, reads, i), i)
