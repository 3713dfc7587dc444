"""One graph and one optimization of it: both programs, what is compared, what a proof presupposes."""

from __future__ import annotations

import functools
import operator
import platform
import time
from collections.abc import Collection, Iterable, Mapping, Sequence
from importlib.metadata import version
from typing import Any

import numpy as np
import torch

from autograd_opt.graph.node import PINNED
from autograd_opt.verification.checker import checker
from autograd_opt.verification.program.adjoint import Differentiator
from autograd_opt.verification.program.instruction_names import PULLBACK
from autograd_opt.verification.program.instructions import DRAWS, Head, Malformed, Program, Released, Vocabulary
from autograd_opt.verification.program.kernels import KERNELS
from autograd_opt.verification.program.leaders import followed, resolve
from autograd_opt.verification.program.linear import CASTS, FOR_ALL_SIZES, JOINTLY, LINEAR, TRUSTED, is_kernel
from autograd_opt.verification.program.reading import Recorded, convert
from autograd_opt.verification.result.budget import How
from autograd_opt.verification.result.verdict import Reason, Status, Verdict, Verification, undecided

SCOPE = "all sizes with these broadcasts and branches"
BITWISE = ("kernels are deterministic",)
"""What a proof of equal bits presupposes."""
Goal = tuple[str, int | None, int | None]
"""Name, position in the original program, and in the optimized one: None where it is zero."""
VERSIONS = {"python": platform.python_version(), "torch": torch.__version__, "sympy": version("sympy")}


def goals_of(leaves: Sequence[int], roots: Sequence[int]) -> list[str]:
    """The names of what is compared, gradients first."""
    return [f"gradient of %{i}" for i in leaves] + [f"value of %{i}" for i in roots]


def trust(lemmas: Iterable[str] = ()) -> dict[str, Any]:
    """Versions, and the lemmas that a proof uses: none where bits are equal."""
    return {**VERSIONS, "lemmas": sorted(set(lemmas))}


def conditions(used: Collection[Head], bitwise: bool = False, rules: Iterable[Any] = ()) -> tuple[str, ...]:
    """What a proof presupposes that has used the linearity of these, and these operators' rules of the user's."""
    stable = sorted({op.name for op in rules})
    users = (f"rules do in each run what they did when they were traced: {', '.join(stable)}",) if stable else ()
    if bitwise:
        return (*BITWISE, *users)
    out = ["real arithmetic: sums may round differently"]
    private = sorted(
        {
            str(h.value("#of")) if h.op == PULLBACK else h.op
            for h in used
            if is_kernel(h.op) and h.value("#of") not in KERNELS
        }
    )
    linear = {h.op for h in used if h.op in LINEAR or h.op in JOINTLY}
    small = sorted(linear - FOR_ALL_SIZES - TRUSTED)
    if small:
        out.append(f"linear at all sizes, proved at small ones: {', '.join(small)}")
    if private:
        out.append(f"torch's own derivatives are linear: {', '.join(private)}")
    if not linear.isdisjoint(CASTS):
        out.append(f"casts only round, none overflows: {', '.join(sorted(linear & CASTS))}")
    return (*out, *users)


class Task:
    """One graph and one optimization of it."""

    def __init__(
        self,
        nodes: Sequence[Any],
        roots: Sequence[Any],
        leaves: Sequence[Any] | None,
        leader: Sequence[int] | None,
        alive: Sequence[int] | None,
        *,
        recorded: Recorded | None = None,
    ):
        if not len(nodes):
            raise Released("there are no nodes: the graph was cleared, or nothing was recorded")
        self.nodes = nodes
        self.where = {id(node): i for i, node in enumerate(nodes)}
        self.roots = [self.position(r, "output") for r in listed(roots, "roots")]
        if leaves is None:
            self.leaves = [i for i, n in enumerate(nodes) if n.is_leaf and n.requires_grad]
        else:
            self.leaves = [self.position(n, "leaf") for n in listed(leaves, "leaves")]
        if leader is None:
            self.leader = followed(nodes, self.where, {i for i in self.leaves if not nodes[i].is_leaf})
        else:
            self.leader = resolve(integers(leader, "leader"), len(nodes))
        self.alive = None if alive is None else integers(alive, "alive")
        if self.alive is not None and len(self.alive) != len(nodes):
            raise Malformed(f"alive has {len(self.alive)} entries for {len(nodes)} nodes")
        self.merged = [i for i, to in enumerate(self.leader) if to != i]
        self.recorded = convert(nodes, Vocabulary()) if recorded is None else recorded
        self.vocabulary = self.recorded.vocabulary
        self.differentiator = Differentiator(self.recorded)

    @functools.cached_property
    def original(self) -> Program:
        """Values and gradients of the graph as written."""
        return self.differentiator.program(range(len(self.nodes)), self.roots, self.leaves)

    @functools.cached_property
    def optimized(self) -> Program:
        """Values and gradients with one node for each leader."""
        if not self.merged:
            return self.original.copy()
        return self.differentiator.program(self.leader, self.roots, self.leaves)

    def position(self, node: Any, what: str) -> int:
        found = node if isinstance(node, int) else self.where.get(id(node))
        if found is None or not 0 <= found < len(self.nodes):
            raise Malformed(f"the {what} {node!r} is not in the graph")
        return found

    @property
    def goals(self) -> list[str]:
        """The names of what is compared."""
        return goals_of(self.leaves, self.roots)

    @property
    def compared(self) -> list[Goal]:
        """Each goal's name, and its positions in the two programs."""
        pairs = checker.goals(self.original, self.optimized)
        return [(name, *pair) for name, pair in zip(self.goals, pairs, strict=True)]

    def run(self, how: How) -> Verification:
        """Ask the engines in order until one decides."""
        stats: dict[str, Any] = {
            "nodes": len(self.nodes),
            "merged": sum(self.leader[i] != i for i in range(len(self.nodes))),
        }
        common: dict[str, Any] = {
            "original": (digest := self.original.digest()),
            "optimized": digest if self.original.same(self.optimized) else self.optimized.digest(),
            "stats": stats,
            "trust": trust(h.op for h in self.used() if h.op in LINEAR),
        }
        if (
            not self.roots
            or not self.leaves
            or all(g is None for g in self.original.gradients + self.optimized.gradients)
        ):
            return undecided(Reason.NOTHING, "no output reaches a leaf that requires grad", **common)
        wrong = self.effects()
        if wrong is not None:
            return undecided(*wrong, **common)
        outcome = checker.check(self.original, self.optimized, self.leader, expansions=how.budget.expansions,
                                deadline=time.monotonic() + how.budget.seconds)
        stats.update(outcome.stats)
        proved = outcome.bitwise if "linear" not in how.engines or how.exact == "bitwise" else outcome.equal
        goals = tuple(
            Verdict(goal, Status.PROVED, "bitwise" if bits else "real")
            if ok
            else Verdict(goal, Status.UNDECIDED, None, Reason.BUDGET if outcome.budget else Reason.UNDERIVED)
            for goal, ok, bits in zip(self.goals, proved, outcome.bitwise, strict=True)
        )
        if all(proved):
            drawn = next((i for i in self.merged if not self.recorded.pure[i]), None)
            if drawn is not None:  # whatever the values are, there is one draw, or one leaf, less
                to = self.line(self.leader[drawn])
                return undecided(Reason.EFFECT, f"{self.line(drawn)} is merged into {to}, and is a value of its own",
                                 **common)
            bits = all(outcome.bitwise)
            return Verification(
                Status.PROVED,
                "bitwise" if bits else "real",
                SCOPE,
                self.conditions(bits),
                engine="structural" if bits else "linear",
                goals=goals,
                **common | ({"trust": trust()} if bits else {}),
            )
        culprit = self.describe(outcome.failed)
        common |= {"goals": goals, "culprit": culprit}
        if how.exact == "bitwise" and all(outcome.equal):
            return undecided(Reason.ONLY_REAL, "equal over the reals; sums are taken in another order", **common)
        from autograd_opt.verification.strategies.search import search

        return search(self, how, outcome, common)

    def effects(self) -> tuple[Reason, str] | None:
        """Merges and prunings that are wrong whatever the values: of effects, of nodes still needed."""
        pure = self.recorded.pure
        for i in self.merged:
            to = self.leader[i]
            a, b = (self.vocabulary.types[self.vocabulary.heads[self.recorded.heads[k]].type] for k in (i, to))
            if (a.dtype, a.device) != (b.dtype, b.device):
                return Reason.MALFORMED, f"{self.line(i)} is merged into {self.line(to)}, of another dtype or device"
            watched = next((k for k in (i, to) if self.nodes[k].flags & PINNED), None)
            if watched is not None:
                return Reason.EFFECT, (
                    f"{self.line(i)} is merged into {self.line(to)}, and a hook or retain_grad sees the cotangent of "
                    f"%{watched}, which would be that of both"
                )
            if not (pure[i] or self.is_free(i)):
                return Reason.EFFECT, f"{self.line(i)} is merged into {self.line(to)}, but is not a pure function"
            reads = [self.leader[o] for o in self.recorded.operands[i] if o is not None]
            if not (pure[to] or self.is_free(to) or reads == [to]):      # a copy of what was written may be that
                return Reason.EFFECT, f"{self.line(i)} is merged into {self.line(to)}, which is not a pure function"
        if self.alive is not None:
            needed = self.needed()
            for i, keep in enumerate(self.alive):
                if not keep and self.leader[i] == i and not pure[i] and not self.nodes[i].is_leaf:
                    return Reason.EFFECT, f"{self.line(i)} is dropped, but is not a pure function: a draw or a write"
                if not keep and i in needed:
                    return Reason.PRUNED, f"{self.line(i)} is dropped, but outputs need it"
        return None

    def is_free(self, i: int) -> bool:
        """A random draw or a leaf: two of them are two free values, so a point can show the mistake."""
        return self.nodes[i].is_leaf or self.nodes[i].op.name in DRAWS

    def needed(self) -> set[int]:
        """Nodes that the outputs read, where each is read off its leader."""
        leader, operands = self.leader, self.recorded.operands
        seen: set[int] = set()
        stack = [leader[r] for r in self.roots]
        while stack:
            i = stack.pop()
            if i not in seen:
                seen.add(i)
                stack += [leader[o] for o in operands[i] if o is not None]
        return seen

    def conditions(self, bitwise: bool) -> tuple[str, ...]:
        """What a proof presupposes."""
        return conditions(() if bitwise else self.used(), bitwise, self.differentiator.read_rules)

    def used(self) -> list[Head]:
        """What the two programs are made of."""
        heads = self.vocabulary.heads
        return [heads[k] for k in {*self.original.heads, *self.optimized.heads}]

    def line(self, i: int) -> str:
        node = self.nodes[i]
        return f"%{i} {node.op.name}" + (f" ({node.source})" if node.source else "")

    def describe(self, failed: list[tuple[int, str]]) -> str | None:
        """The first node whose claim failed, with its source line."""
        if not failed:
            return None
        i, text = failed[0]
        to = f", merged into {self.line(self.leader[i])}" if self.leader[i] != i else ""
        return f"{self.line(i)}{to}: {text}"


def listed(values: Any, what: str) -> list[Any]:
    """The members of a sequence; neither text nor a mapping is taken for one."""
    if not isinstance(values, Iterable) or isinstance(values, (str, Mapping)):
        raise Malformed(f"{what} is of type {type(values).__name__}, not a sequence")
    return list(values)


def integers(numbers: Any, what: str) -> list[int]:
    if type(numbers) is np.ndarray and numbers.dtype.kind in "iu":
        return list(numbers.tolist())
    try:
        return [operator.index(x) for x in listed(numbers, what)]
    except TypeError as error:
        raise Malformed(f"{what} is no sequence of whole numbers ({error})") from error
