"""Why two nodes are one value, or which part of their keys differs."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import torch

from autograd_opt import errors
from autograd_opt.abi import torch_private as private
from autograd_opt.graph import program_text
from autograd_opt.graph.node import EXPOSED, NO_MERGE, OVERWRITTEN, PINNED, Node
from autograd_opt.inspection.attributes import attribute_difference
from autograd_opt.inspection.snapshot import Scene
from autograd_opt.ops.table import COMMUTATIVE, PURE, VIEW
from autograd_opt.optimizer import merging

WRITES = frozenset({"written", "view_place", "view_region", "inplace_overwrite"})
LARGEST_COMPARED = 1 << 20
"""Elements of two leaves that are compared to find that they hold the same values."""
MOST_COMPARED = 8
"""Constants of one shape and type that each further one is compared with."""
MOST_NEAR_MISSES = 50
RANDOM = frozenset(
    "dropout alpha_dropout feature_dropout feature_alpha_dropout bernoulli normal multinomial rrelu poisson "
    "gumbel_softmax dropout1d dropout2d dropout3d rand_like randn_like native_dropout".split()
)


@dataclass(frozen=True)
class Difference:
    """One part in which two keys differ."""

    part: str
    """`operator`, `operand 0`, `attribute dim`, `dtype`, `device`, `requires_grad`, `leaf`, `hook`,
    `random`, `purity`, `escaped` or `write`."""
    text: str


@dataclass(frozen=True)
class PairExplanation:
    """The answer of `graph.explain(a, b)`; prints as a short text."""

    same: bool
    first: str
    second: str
    differences: tuple[Difference, ...]
    trail: tuple[str, ...] = ()
    """From the nodes asked for down to those that differ of themselves."""

    def __str__(self) -> str:
        lines = [self.first, self.second]
        if self.same:
            lines.append("one value: " + "; ".join(d.text for d in self.differences))
        else:
            lines.append("two values:")
            lines += [f"  {step}" for step in self.trail]
            lines += [f"  {d.text}" for d in self.differences]
        return "\n".join(lines)

    def _repr_html_(self) -> str:
        from html import escape
        return f"<pre>{escape(str(self))}</pre>"

    def to_dict(self) -> dict[str, object]:
        """For JSON."""
        return asdict(self)


def explain_pair(graph: Any, a: torch.Tensor, b: torch.Tensor) -> PairExplanation:
    """Why `a` and `b` are one value of `graph`, or what keeps them apart.

    Raises
    ------
    GraphError : one of the tensors has no node in this graph.

    >>> import autograd_opt as ao
    >>> x = ao.tensor([1.0, 2.0])
    >>> with ao.AutogradGraph(optimize=True, sources=False) as graph:
    ...     a, b = x.sum(dim=0), x.sum(dim=0, keepdim=True)
    ...     print(graph.explain(a, b))
    %1 = sum(%0, dim=0)  # f32[]
    %2 = sum(%0, dim=0, keepdim=True)  # f32[1]
    two values:
      attribute keepdim: False and True
    """
    first, second = node_of(graph, a, "first"), node_of(graph, b, "second")
    leader = merging.run_passes(graph.tape, graph.root_numbers(), graph.pipeline)[1].leader.tolist()
    if second.index < first.index:
        first, second = second, first
    heads = (program_text.line(first), program_text.line(second))
    if first is second:
        return PairExplanation(True, *heads, (Difference("node", "it is one node"),))
    if leader[first.index] == leader[second.index]:
        text = f"same operator, attributes, dtype and device, operands {operand_text(first)} of equal values"
        return PairExplanation(True, *heads, (Difference("key", text),))
    trail, differences = descend(first, second, leader)
    return PairExplanation(False, *heads, tuple(differences), tuple(trail))


def node_of(graph: Any, t: Any, which: str) -> Any:
    """The node of a tensor in this graph."""
    if not isinstance(t, torch.Tensor):
        raise errors.ArgumentTypeError(errors.at(
            f"the {which} argument of explain is a {type(t).__name__}, not a tensor"
        ))
    tape = graph.tape
    if tape is not None and len(tape):
        node = getattr(t, "_node", None)
        if node is not None and 0 <= node.index < len(tape) and tape.node(node.index) is node:
            return node
        for leaf, tensor in tape.leaf_items():
            if tensor is t:
                return leaf
    if graph.thread is None:
        raise errors.OutsideGraphError(errors.at(
            f"{graph.label} is not open, and its nodes are released when it is left: explain tensors inside its context"
        ))
    other = isinstance(getattr(t, "_node", None), Node)
    raise errors.GraphError(errors.at(
        f"the {which} tensor has no node in {graph.label}: "
        + ("another graph recorded it: ask that one" if other else "no operation of the graph has read or made it")
    ))


def operand_text(node: Any) -> str:
    """The operands of a node as `(%0, %1)`."""
    return f"({', '.join(program_text.number(o) for o in node.operands if o is not None)})"


def place(node: Any) -> str:
    """` at file.py:3`, or nothing where no source was recorded."""
    return f" at {program_text.source_text(node.source)}" if node.source else ""


# The search for the cause ---------------------------------------------------------------
def descend(a: Any, b: Any, leader: Sequence[int]) -> tuple[list[str], list[Difference]]:
    """Follow the first operands that differ until two nodes differ of themselves."""
    trail: list[str] = []
    while True:
        own = own_differences(a, b)
        if own:
            return trail, own
        pairs = differing_operands(a, b, leader)
        if not pairs:
            return trail, [Difference("pass", "equal keys: the chosen passes do not merge them")]
        i, x, y = pairs[0]
        name = a.op.operands[i] if i < len(a.op.operands) else str(i)
        write = write_between(x, y)
        if write is not None:
            text = f"operand {i} ({name}) was written between them by {write}"
            return trail, [Difference(f"operand {i}", text)]
        both = f"{program_text.number(x)} and {program_text.number(y)}"
        trail.append(f"operand {i} ({name}) of %{a.index} and %{b.index} is {both}")
        a, b = (x, y) if x.index <= y.index else (y, x)


def differing_operands(a: Any, b: Any, leader: Sequence[int]) -> list[tuple[int, Any, Any]]:
    """(position, operand of a, operand of b) where the values differ; for sums in the better of both orders."""
    def pairs(xs: Sequence[Any], ys: Sequence[Any]) -> list[tuple[int, Any, Any]]:
        return [
            (i, x, y) for i, (x, y) in enumerate(zip(xs, ys, strict=False))
            if x is not None and y is not None and leader[x.index] != leader[y.index]
        ]
    straight = pairs(a.operands, b.operands)
    if a.op.flags & COMMUTATIVE and len(b.operands) == 2 and None not in b.operands:
        crossed = pairs(a.operands, b.operands[::-1])
        return min(straight, crossed, key=len)
    return straight


def own_differences(a: Any, b: Any) -> list[Difference]:
    """What differs in the nodes themselves, operands aside."""
    found: list[Difference] = []
    if a.is_leaf or b.is_leaf:
        return [leaf_difference(a, b)]
    if program_text.operator_text(a) != program_text.operator_text(b):
        return [Difference("operator", f"operators: {program_text.operator_text(a)}{place(a)} and "
                                       f"{program_text.operator_text(b)}{place(b)}")]
    found += attribute_differences(a, b)
    if [o is None for o in a.operands] != [o is None for o in b.operands]:
        found.append(Difference("operand", "a tensor in one is a Python number, or absent, in the other"))
    for part in ("dtype", "device"):
        if getattr(a, part) != getattr(b, part):
            x, y = program_text.value_text(getattr(a, part)), program_text.value_text(getattr(b, part))
            found.append(Difference(part, f"{part}: {x} and {y}"))
    if a.requires_grad != b.requires_grad:
        without = b if a.requires_grad else a
        text = f"grad mode: %{without.index} was computed without gradient{place(without)}"
        found.append(Difference("requires_grad", text))
    found += [d for n in (a, b) for d in bars(n)]
    return found


def leaf_difference(a: Any, b: Any) -> Difference:
    """Two leaves, or a leaf and a result."""
    if not (a.is_leaf and b.is_leaf):
        leaf, other = (a, b) if a.is_leaf else (b, a)
        kind = "leaf" if leaf.requires_grad else "constant"
        result = program_text.operator_text(other)
        return Difference("leaf", f"%{leaf.index} is a {kind}, %{other.index} the result of {result}")
    text = f"%{a.index} and %{b.index} are two tensors that came from outside the graph"
    if equal_values(a.tensor, b.tensor):
        text += ", with equal values now: use one tensor for both"
    return Difference("leaf", text)


def equal_values(x: Any, y: Any) -> bool:
    """Do two tensors hold the same values (small ones are compared)?"""
    if x is None or y is None or x.shape != y.shape or x.dtype != y.dtype or x.numel() > LARGEST_COMPARED:
        return False
    with private.DisableTorchFunction():
        return bool(torch.equal(x, y))


def attribute_differences(a: Any, b: Any) -> Iterator[Difference]:
    """Attributes, and Python numbers among the operands, that differ in value or type."""
    x, y = a.attributes, b.attributes
    for name in sorted({*x, *y}):
        if name in x and name in y:
            text = attribute_difference(name, x[name], y[name], a.op.typed or b.op.typed)
        else:
            values = [program_text.shorten(program_text.value_text(v.get(name))) for v in (x, y)]
            text = f"attribute {name}: {values[0]} and {values[1]}"
        if text is not None:
            yield Difference(f"attribute {name}", text)


def bars(node: Any) -> Iterator[Difference]:
    """What keeps a node from merging with any other."""
    name = program_text.operator_text(node)
    if node.flags & PINNED:
        yield Difference("hook", f"%{node.index} is pinned by a hook or retain_grad: it keeps its own cotangent")
    if node.flags & EXPOSED:
        yield Difference("escaped", f"the memory of %{node.index} was handed out (numpy, dlpack, a pointer): "
                                    "its value is never reused")
    if node.flags & NO_MERGE:
        yield Difference("recompute", f"%{node.index} belongs to a recomputed region and runs each time")
    if node.op.name in WRITES:
        yield Difference("write", f"%{node.index} is the value after a write{place(node)}")
    elif name.removeprefix("torch.") in RANDOM:
        yield Difference("random", f"{name} draws random numbers: two calls give two values")
    elif program_text.is_opaque(node):
        yield Difference("purity", f"{name} is recorded whole: whether two calls give the same is not known")
    elif not node.op.flags & PURE and node.op.name != "output":
        yield Difference("purity", f"{name} is not marked pure")


def write_between(x: Any, y: Any) -> str | None:
    """The write that makes `y` out of `x` (or the other way), or None."""
    old, new = (x, y) if x.index <= y.index else (y, x)
    writer = None
    for current in writes_of(new):
        if current is old:
            break
        writer = current
    else:
        return None
    if writer is None:
        return None
    outside = writer.op.name == "written"
    name = "an operation outside the record" if outside else f"{program_text.operator_text(writer)}_"
    return f"{name}{place(writer)}"


def writes_of(node: Any) -> Iterator[Any]:
    """A node, and those whose values stood in its tensor before, back to the first, 64 writes at most."""
    for _ in range(64):
        yield node
        if not is_write(node) or not node.operands or node.operands[0] is None:
            return
        node = node.operands[0]
    yield node


def is_write(node: Any) -> bool:
    """Is this the value of a tensor after it was written in place?

    An in-place node moved its tensor: the node before it lost the tensor to it.
    """
    if node.op.name in WRITES:
        return True
    operands = node.operands
    return bool(operands) and operands[0] is not None and bool(operands[0].flags & OVERWRITTEN)


# All pairs of a graph -------------------------------------------------------------------
def near_misses(graph: Any, scene: Scene) -> Iterator[Any]:
    """Nodes of one operator on the same operands, or on operands that were the same before a
    write, which are two values: what keeps each pair apart, first pairs first."""
    from autograd_opt.inspection.report import NearMiss
    nodes = graph.tape.snapshot()
    leader = [item.leader for item in scene.items]
    stand = constants_alike(nodes, leader)
    seen: dict[Any, Any] = {}
    count = 0
    for node, item in zip(nodes, scene.items, strict=True):
        if node.is_leaf or leader[node.index] != node.index or node.op.name in ("output", *WRITES):
            continue
        key = loose_key(node, stand)
        first = seen.setdefault(key, node)
        if first is node:
            continue
        trail, differences = descend(first, node, leader)
        if not differences or (node.op.flags & VIEW and differences[0].part.startswith("attribute")):
            continue                     # two parts of one tensor are no near miss
        if trail and not (len(trail) == 1 and differences[0].part == "leaf"):
            continue
        yield NearMiss(first.index, node.index, item.op, differences[0].text,
                       (scene.items[first.index].source or "?", item.source or "?"))
        count += 1
        if count == MOST_NEAR_MISSES:
            return


def constants_alike(nodes: Sequence[Any], leader: Sequence[int]) -> list[int]:
    """`leader`, but constants that now hold equal values stand together."""
    stand, known = list(leader), defaultdict[Any, list[Any]](list)
    for node in nodes:
        if not node.is_leaf or node.requires_grad or node.tensor is None:
            continue
        others = known[node.shape, node.dtype, node.device]
        alike = next((n for n in others if equal_values(n.tensor, node.tensor)), None)
        if alike is not None:
            stand[node.index] = alike.index
        elif len(others) < MOST_COMPARED:
            others.append(node)
    return stand


def loose_key(node: Any, leader: Sequence[int]) -> Any:
    """The key of a node with everything left out that a near miss may differ in."""
    operands = [None if o is None else leader[before_writes(o).index] for o in node.operands]
    if node.op.flags & COMMUTATIVE and None not in operands:
        operands.sort()
    return program_text.operator_text(node), tuple(operands)


def before_writes(node: Any) -> Any:
    """The node whose value stood in the tensor before it was ever written."""
    *_, first = writes_of(node)
    return first
