"""A recorded graph as plain data: enough to build both programs again, in another process.

What the file says is checked against the operator table here: which operators are pure, and that every
effect and every leaf is a value of its own.
"""

from __future__ import annotations

import struct
from types import SimpleNamespace
from typing import Any

import torch

from autograd_opt.graph.node import PINNED
from autograd_opt.ops.table import OPS
from autograd_opt.verification.program.attribute_encoding import decode
from autograd_opt.verification.program.instructions import PURE, VIEW, Head, Malformed, Type, Vocabulary
from autograd_opt.verification.program.reading import Recorded
from autograd_opt.verification.result.parse_verdict import numbers, of_type, texts

DAMAGE = (LookupError, TypeError, ValueError, AttributeError, ArithmeticError, RuntimeError, AssertionError,
          struct.error)
"""What reading a damaged graph raises, here or where its programs are made."""
SMALL = 4096
"""Integers are written out up to so many elements: a point may need them."""


def freeze(recorded: Recorded) -> dict[str, Any]:
    """The graph as lists, numbers and text."""
    vocabulary, nodes = recorded.vocabulary, recorded.nodes
    used = {h: k for k, h in enumerate(dict.fromkeys(recorded.heads))}
    return {
        "types": [list(t) for t in vocabulary.types],
        "heads": [list(vocabulary.heads[h]) for h in used],
        "nodes": [used[h] for h in recorded.heads],
        "operands": [list(o) for o in recorded.operands],
        "leaves": [i for i, n in enumerate(nodes) if n.is_leaf],
        "hooked": [i for i, n in enumerate(nodes) if n.hooks is not None],
        "pinned": [i for i, n in enumerate(nodes) if n.flags & PINNED],
        "sources": [n.source or "" for n in nodes],
        "integers": {str(i): n.tensor.tolist() for i, n in enumerate(nodes) if n.is_leaf and spelled_out(n)},
    }


def spelled_out(node: Any) -> bool:
    t = node.tensor
    return t is not None and not (t.is_floating_point() or t.is_complex()) and t.numel() <= SMALL


def thaw(raw: dict[str, Any]) -> Recorded:
    """The recorded graph that `freeze` wrote.

    Raises
    ------
    Malformed : the data contradict the operator table, or themselves.
    DAMAGE : they are damaged.
    """
    vocabulary = Vocabulary()
    for s, d, v, p in raw["types"]:
        kind = type_of(s, d, v, p, len(vocabulary.types))
        vocabulary._types[kind] = len(vocabulary.types)
        vocabulary.types.append(kind)
    for op, attributes, kind, grad, effect in raw["heads"]:
        for _, attribute in attributes:
            decode(of_type(attribute, (str,), "attributes"))
        head = Head(of_type(op, (str,), "heads"), tuple((str(k), str(t)) for k, t in attributes),
                    numbers([kind], "heads", len(vocabulary.types))[0], of_type(grad, (bool,), "heads"),
                    numbers([effect], "heads")[0])
        known = len(vocabulary.heads)
        if vocabulary.head(*head) != known:
            raise ValueError("a head is there twice")
    heads = numbers(raw["nodes"], "nodes", len(vocabulary.heads))
    operands = [places(o, k) for k, o in enumerate(raw["operands"])]
    sources = texts(raw["sources"], "sources")
    if not len(heads) == len(operands) == len(sources):
        raise ValueError("heads and operands do not fit")
    leaves, hooked, pinned = (set(numbers(raw[k], k, len(heads))) for k in ("leaves", "hooked", "pinned"))
    nodes, pure = [], bytearray(len(heads))
    for i, h in enumerate(heads):
        head = vocabulary.heads[h]
        if head.op not in OPS:
            raise Malformed(f"the operator {head.op!r} is not registered here: import what registers it")
        op = OPS[head.op]
        pure[i] = head.effect == 0
        of_its_own = i in leaves or not (op.flags & (PURE | VIEW) or op.name == "output")
        if head.effect != i + 1 and (head.effect or of_its_own):
            raise Malformed(f"%{i} {op.name} is a value of its own, which the file denies")
        if i in leaves and operands[i]:
            raise Malformed(f"%{i} is a leaf with operands")
        nodes.append(SimpleNamespace(
            op=op, is_leaf=i in leaves, requires_grad=head.grad, flags=PINNED if i in pinned else 0,
            hooks=True if i in hooked else None, source=sources[i], leader=None,
            tensor=integers(raw["integers"].get(str(i)), vocabulary.types[head.type])))
    grad = bytearray(n.requires_grad for n in nodes)
    return Recorded(vocabulary, nodes, list(heads), operands, pure, grad)


def type_of(shape: Any, dtype: Any, device: Any, parts: Any, known: int) -> Type:
    """A type as `freeze` wrote it, of parts among the `known` ones before it."""
    for name in (dtype, device):
        of_type(name, (str,), "types")
    if dtype and not isinstance(getattr(torch, dtype, None), torch.dtype):
        raise ValueError(f"{dtype!r} is no dtype")
    numbers([p for p in of_type(parts, (list,), "types") if p is not None], "types", known)
    return Type(None if shape is None else numbers(shape, "types"), dtype, device, tuple(parts))


def places(operands: Any, k: int) -> tuple[int | None, ...]:
    """Operands of node `k`, each before it, or absent."""
    numbers([o for o in operands if o is not None], "operands", k)
    return tuple(operands)


def integers(values: Any, kind: Type) -> torch.Tensor | None:
    return None if values is None else torch.tensor(values, dtype=getattr(torch, kind.dtype)).reshape(kind.shape or ())
