"""Wrong optimizations of real recorded graphs: wrong merges, wrong sweeps, wrong rewrites.

Each mutant is a function that records a small graph and returns a `Task` whose optimized
program is wrong.  `value` says that some finite real point shows it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F

import autograd_opt as ao
from autograd_opt.verification.program.attribute_encoding import encode
from autograd_opt.verification.program.instruction_names import FULL, MERGED
from autograd_opt.verification.strategies.task import Task


@dataclass(frozen=True)
class Mutant:
    number: int
    text: str
    make: Callable[[], Task]
    value: bool = True


MUTANTS: list[Mutant] = []


def mutant(number: int, text: str, value: bool = True) -> Any:
    def register(make: Callable[[], Task]) -> Callable[[], Task]:
        MUTANTS.append(Mutant(number, text, make, value))
        return make

    return register


def leaf(*shape: int, **kwargs: Any) -> Any:
    n = 1
    for d in shape:
        n *= d
    return ao.tensor(torch.arange(1.0, n + 1, dtype=torch.float64).reshape(shape) / 3, **kwargs)


def recorded(fn: Any, *leaves: Any) -> tuple[Any, list[Any], Any]:
    """Nodes of fn(*leaves), its named intermediates, and the root."""
    graph = ao.AutogradGraph(optimize=False)
    graph.__enter__()
    OPEN.append(graph)
    out = fn(*leaves)
    root, marks = (out[0], list(out[1:])) if isinstance(out, tuple) else (out, [])
    return graph.tape.snapshot(), [m._node for m in marks], root._node


OPEN: list[Any] = []
KEPT: list[Any] = []
"""Constants that must outlive the recording."""


def close() -> None:
    """Leave the graphs that mutants have opened."""
    while OPEN:
        OPEN.pop().__exit__(None, None, None)


def merge(fn: Any, *leaves: Any) -> Task:
    """fn returns (loss, a, b): b is merged into a."""
    nodes, (a, b), root = recorded(fn, *leaves)
    where = {id(n): i for i, n in enumerate(nodes)}
    leader = list(range(len(nodes)))
    leader[where[id(b)]] = where[id(a)]
    return Task(nodes, [root], None, leader, None)


class Edit:
    """Edits of the optimized program."""

    def __init__(self, fn: Any, *leaves: Any):
        self.nodes, self.marks, root = recorded(fn, *leaves)
        self.task = Task(self.nodes, [root], None, list(range(len(self.nodes))), None)
        self.p = self.task.optimized
        self.v = self.task.vocabulary

    def find(self, op: str, nth: int = 0, backward: bool = True) -> int:
        start = self.p.forward if backward else 0
        stop = len(self.p.heads) if backward else self.p.forward
        found = [k for k in range(start, stop) if self.v.heads[self.p.heads[k]].op == op]
        return found[nth]

    def head(self, k: int, op: str, **attributes: Any) -> Edit:
        coded = tuple(sorted((n, encode(v)) for n, v in attributes.items()))
        old = self.v.heads[self.p.heads[k]]
        self.p.heads[k] = self.v.head(op, coded, old.type, old.grad)
        return self

    def into(self, k: int, operand: int = 0) -> Edit:
        """The instruction becomes its own operand."""
        target = self.p.operands[k][operand]
        self.head(k, MERGED)
        self.p.operands[k] = (target,)
        return self

    def operands(self, k: int, *places: int) -> Edit:
        self.p.operands[k] = places
        return self


# ----- wrong merges -----
@mutant(1, "add(a,b) merged with add(a,c)")
def m1() -> Task:
    return merge(lambda a, b, c: ((u := a + b).sin().sum() + (v := a + c).cos().sum(), u, v), leaf(2), leaf(2), leaf(2))


@mutant(2, "mul(a,b) merged with mul(a,a)")
def m2() -> Task:
    return merge(lambda a, b: (((u := a * b) + (v := a * a)).sum(), u, v), leaf(2), leaf(2))


@mutant(3, "sub taken for commutative")
def m3() -> Task:
    return merge(lambda a, b: (((u := a - b).exp() + (v := b - a)).sum(), u, v), leaf(2), leaf(2))


@mutant(4, "div taken for commutative")
def m4() -> Task:
    return merge(lambda a, b: (((u := a / b) * 2 + (v := b / a)).sum(), u, v), leaf(2), leaf(2))


@mutant(5, "matmul taken for commutative")
def m5() -> Task:
    return merge(lambda a, b: (((u := a @ b) * 2 + (v := b @ a)).sum(), u, v), leaf(2, 2), leaf(2, 2))


@mutant(6, "(A@B)@C merged with A@(C@B)")
def m6() -> Task:
    return merge(
        lambda a, b, c: (((u := (a @ b) @ c) * 2 + (v := a @ (c @ b))).sum(), u, v), leaf(2, 2), leaf(2, 2), leaf(2, 2)
    )


@mutant(7, "sum(0) merged with sum(1)")
def m7() -> Task:
    return merge(lambda a: (((u := a.sum(0)) * 2 + (v := a.sum(1)).sin()).sum(), u, v), leaf(2, 2))


@mutant(8, "keepdim True merged with False")
def m8() -> Task:
    return merge(
        lambda a: ((((u := a.sum(1)) - a).sin() + ((v := a.sum(1, keepdim=True)) - a).cos()).sum(), u, v), leaf(2, 2)
    )


@mutant(9, "transpose dropped")
def m9() -> Task:
    return merge(lambda a: ((((u := a * 1.0) @ a) + (v := u.t()) * 2 * a).sum(), u, v), leaf(2, 2))


@mutant(10, "pow 2 merged with pow 3")
def m10() -> Task:
    return merge(lambda a: (((u := a**2) * 2 + (v := a**3)).sum(), u, v), leaf(2))


@mutant(11, "1 merged with 1 + 1e-9")
def m11() -> Task:
    return merge(lambda a: (((u := a + 1.0) * 2 + (v := a + (1 + 1e-9)) * a).sum(), u, v), leaf(2))


@mutant(12, "0.0 merged with -0.0", value=False)
def m12() -> Task:
    return merge(lambda a: ((1 / (u := a * 0.0) + 1 / (v := a * -0.0)).sum(), u, v), leaf(2))


@mutant(13, "a value merged with its float32 cast", value=False)
def m13() -> Task:
    return merge(lambda a: (((u := a * 3.0) + (v := u.to(torch.float32).to(torch.float64)) * 2).sum(), u, v), leaf(2))


@mutant(14, "x * 2 in float32 merged with x * 2 in float64", value=False)
def m14() -> Task:
    def fn(a: Any) -> Any:
        u = a.to(torch.float32) * 2
        v = a * 2
        return (u.sum() + v.sum(), u, v)

    return merge(fn, leaf(2))


@mutant(15, "two dropout draws merged")
def m15() -> Task:
    return merge(lambda a: (((u := F.dropout(a, 0.5)) * 2 + (v := F.dropout(a, 0.5)) * a).sum(), u, v), leaf(4))


@mutant(16, "merged across an in-place add_")
def m16() -> Task:
    def fn(a: Any) -> Any:
        y = a * 1.0
        u = y * 2
        y.add_(1)
        v = y * 2
        return ((u * 3 + v.sin()).sum(), u, v)

    return merge(fn, leaf(2))


@mutant(17, "a detached value merged with the live one")
def m17() -> Task:
    def fn(a: Any) -> Any:
        u = a * a
        v = ao.tensor((u.detach() * 1.0).clone(), requires_grad=False)
        out = (u * 2 + v * a).sum()
        return out, u, v

    return merge_detached(fn, leaf(2))


def merge_detached(fn: Any, *leaves: Any) -> Task:
    nodes, marks, root = recorded(lambda *xs: (lambda r: (r[0], r[1]))(fn(*xs)), *leaves)
    constant = [i for i, n in enumerate(nodes) if n.is_leaf and not n.requires_grad][-1]
    where = {id(n): i for i, n in enumerate(nodes)}
    leader = list(range(len(nodes)))
    leader[constant] = where[id(marks[0])]
    return Task(nodes, [root], None, leader, None)


# ----- wrong sweeps -----
@mutant(18, "a contribution dropped")
def m18() -> Task:
    e = Edit(lambda a: (a * a.sin()).sum(), leaf(2))
    return e.into(e.find("add")).task


@mutant(19, "a contribution counted twice")
def m19() -> Task:
    e = Edit(lambda a: (a * a.sin()).sum(), leaf(2))
    k = e.find("add")
    return e.operands(k, e.p.operands[k][0], e.p.operands[k][0]).task


@mutant(20, "sub: minus lost")
def m20() -> Task:
    e = Edit(lambda a, b: (a.exp() - b).sum(), leaf(2), leaf(2))
    return e.into(e.find("neg")).task


@mutant(21, "two leaf gradients swapped")
def m21() -> Task:
    e = Edit(lambda a, b: (a * b * b).sum(), leaf(2), leaf(2))
    e.p.gradients.reverse()
    return e.task


@mutant(22, "bias gradient over the wrong axis")
def m22() -> Task:
    e = Edit(lambda x, b: ((x + b) * x).sum(), leaf(2, 2), leaf(2))
    return e.head(e.find("sum_to_size"), "sum", dim=1).task


@mutant(23, "bias gradient: mean, not sum")
def m23() -> Task:
    e = Edit(lambda x, b: ((x + b) * x).sum(), leaf(2, 2), leaf(2))
    return e.head(e.find("sum_to_size"), "mean", dim=0).task


@mutant(24, "bias gradient: first row only")
def m24() -> Task:
    e = Edit(lambda x, b: ((x + b) * x).sum(), leaf(2, 2), leaf(2))
    return e.head(e.find("sum_to_size"), "select", dim=0, index=0).task


@mutant(25, "matmul: dA = g @ B")
def m25() -> Task:
    e = Edit(lambda a, b: ((a @ b) * a).sum(), leaf(2, 2), leaf(2, 2))
    return e.into(e.find("mT", 0)).task


@mutant(26, "matmul: dB = A @ g")
def m26() -> Task:
    e = Edit(lambda a, b: ((a @ b) * a).sum(), leaf(2, 2), leaf(2, 2))
    return e.into(e.find("mT", 1)).task


@mutant(27, "mean loses 1/n")
def m27() -> Task:
    e = Edit(lambda a: (a * a).mean(), leaf(3))
    return e.into(e.find("div")).task


@mutant(28, "relu mask from the cotangent")
def m28() -> Task:
    e = Edit(lambda a, w: (a.relu() * w).sum(), leaf(3), leaf(3))
    k = e.find("threshold_backward")
    return e.operands(k, e.p.operands[k][0], e.p.operands[k][0]).task


@mutant(29, "relu mask >= instead of >")
def m29() -> Task:
    e = Edit(lambda a: a.relu().sum(), leaf(3))
    k = e.find("threshold_backward")
    g, _ = e.p.operands[k]
    x = 0
    test = e.p.append(e.v.head("ge", (("y", "i0"),), e.v.type((3,), torch.bool, "cpu")), (x,), 1)
    e.p.append(e.v.head("where", (("y", encode(0.0)),), e.v.heads[e.p.heads[k]].type), (test, g), 1)
    e.p.gradients[0] = len(e.p.heads) - 1
    return e.task


@mutant(30, "maximum: the tie goes to one side")
def m30() -> Task:
    e = Edit(lambda a, b: torch.maximum(a, b).sum(), leaf(2), leaf(2))
    k = next(i for i in range(e.p.forward, len(e.p.heads)) if e.v.heads[e.p.heads[i]].op == "div")
    return e.into(k).task


@mutant(31, "abs: sign of |x|")
def m31() -> Task:
    e = Edit(lambda a: (a.abs() * 2).sum(), leaf(2))
    k = e.find("sgn")
    return e.operands(k, e.find("abs", backward=False)).task


@mutant(32, "tanh: 1 - x*x")
def m32() -> Task:
    e = Edit(lambda a: a.tanh().sum(), leaf(2))
    k = e.find("tanh_backward")
    return e.operands(k, e.p.operands[k][0], 0).task


@mutant(33, "softmax: the normalizer's term lost")
def m33() -> Task:
    e = Edit(lambda a, w: (torch.softmax(a, 0) * w).sum(), leaf(3), leaf(3))
    return e.head(e.find("softmax_backward"), "mul").task


@mutant(34, "layer norm by hand: the mean's term lost")
def m34() -> Task:
    e = Edit(lambda a, w: ((a - a.mean()) * w).sum(), leaf(3), leaf(3))
    first = e.find("add", -1)
    return e.into(first, 0).task


@mutant(35, "duplicate index overwritten")
def m35() -> Task:
    index = torch.tensor([1, 0, 1])
    KEPT.append(index)
    e = Edit(lambda a, w: (a.index_select(0, index) * w).sum(), leaf(2), leaf(3))
    k = e.find("index_add")
    return e.head(k, "index_copy", x="zeros").task


@mutant(36, "where: branches swapped")
def m36() -> Task:
    e = Edit(lambda a, b: torch.where(torch.tensor([True, False]), a * 2, b * b).sum(), leaf(2), leaf(2))
    k = e.find("where", backward=False)
    c, x, y = e.p.operands[k]
    return e.operands(k, c, y, x).task


@mutant(37, "a stale saved output")
def m37() -> Task:
    e = Edit(lambda a: ((a * 1.0).exp() + 1).exp().sum(), leaf(2))
    k = e.find("mul", 0)
    g, _ = e.p.operands[k]
    return e.operands(k, g, e.find("exp", 0, backward=False)).task


# ----- wrong rewrites -----
@mutant(38, "sqrt(x*x) -> x")
def m38() -> Task:
    return merge(lambda a: (((v := a * 1.0) * 0).sum() + ((w := (v * v).sqrt()) * a).sum(), v, w), leaf(2))


@mutant(39, "x/x -> 1", value=False)
def m39() -> Task:
    e = Edit(lambda a: ((a / a) * a).sum(), leaf(2))
    k = e.find("div", backward=False)
    e.head(k, FULL, value=1.0)
    return e.operands(k).task


@mutant(40, "exp(log x) -> x", value=False)
def m40() -> Task:
    return merge(lambda a: (((v := a * 1.0) * 0).sum() + ((w := v.log().exp()) * a).sum(), v, w), leaf(2))


@mutant(41, "log(exp x) -> x", value=False)
def m41() -> Task:
    return merge(lambda a: (((v := a * 1.0) * 0).sum() + ((w := v.exp().log()) * a).sum(), v, w), leaf(2))


@mutant(42, "relu(a)relu(b) -> relu(ab)")
def m42() -> Task:
    return merge(
        lambda a, b: (((u := (a * b).relu()) * 0).sum() + ((w := a.relu() * b.relu()) * a).sum(), u, w),
        leaf(2),
        leaf(2),
    )


@mutant(43, "(x+w)**2 -> x**2 + w**2")
def m43() -> Task:
    return merge(
        lambda a, b: (((u := a * a + b * b) * 0).sum() + ((w := (a + b) * (a + b)) * a).sum(), u, w), leaf(2), leaf(2)
    )


@mutant(44, "0.1 + 0.2 folded to 0.3")
def m44() -> Task:
    return merge(lambda a: (((u := a * 0.3) * 0).sum() + ((w := a * 0.1 + a * 0.2) * a).sum(), u, w), leaf(2))
