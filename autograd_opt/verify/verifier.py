"""The entry point: which engine is asked when, and how their findings become a verdict."""

from __future__ import annotations

import functools
import gc
import platform
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from importlib.metadata import version
from pathlib import Path
from typing import Any

import torch

from autograd_opt.errors import ArgumentError
from autograd_opt.verify import checker
from autograd_opt.verify.ir import DRAWS, Malformed, Program, Recorded, Vocabulary, convert
from autograd_opt.verify.trace import PULLBACK, Differentiator
from autograd_opt.verify.verdict import Counterexample, Reason, Status, Verdict, Verification, undecided

ENGINES = ("structural", "linear", "field", "points", "sympy")
PINNED, SPENT = 4096, 4


@dataclass(frozen=True)
class Budget:
    """Limits that hold.

    Attributes
    ----------
    seconds : for the checker, and again for the search for a counterexample.
    expansions : terms that the checker may expand.
    elements : scalar operations that one evaluation at a point may cost.
    sympy_seconds : for the sympy subprocess.
    sympy_operations : scalar operations up to which sympy compares whole gradients.
    """

    seconds: float = 30.0
    expansions: int = 5_000_000
    elements: int = 2_000_000
    sympy_seconds: float = 20.0
    sympy_operations: int = 600


def verify(
    nodes: Sequence[Any],
    roots: Sequence[Any],
    leaves: Sequence[Any] | None = None,
    leader: Sequence[int] | None = None,
    *,
    alive: Sequence[int] | None = None,
    engines: Sequence[str] = ENGINES,
    budget: Budget | None = None,
    exact: str = "real",
    assume: Sequence[str] = (),
    seed: int = 0,
) -> Verification:
    """Are the optimized values and gradients those of the graph as written?

    Parameters
    ----------
    nodes : the recorded nodes in record order (`graph.tape.snapshot()`).
    roots : output nodes, or their positions in `nodes`.
    leaves : the leaves whose gradients are compared; None: all that require grad.
    leader : position of the node that each node is merged into (itself: not merged);
        None: what the recorder noted and the executor follows.
    alive : 0 for the nodes that a pass dropped; None: none.
    engines : which means may be used, in this order.
    budget : limits; see `Budget`.
    exact : `real`, or `bitwise` to accept nothing less.
    assume : conditions that the caller vouches for.
    seed : for the random points.

    Returns
    -------
    Verification : never an exception for what is wrong with the graph.

    Examples
    --------
    >>> import autograd_opt as ao
    >>> a, b = ao.tensor([1.0, 2.0]), ao.tensor([3.0, 4.0])
    >>> with ao.AutogradGraph(optimize=True) as graph:
    ...     loss = ((a * b).sin() * (a * b)).sum()
    ...     v = verify(graph.tape.snapshot(), [loss.grad_fn])
    >>> v.status, v.exact
    (<Status.PROVED: 'proved'>, 'real')
    """
    unknown = set(engines) - set(ENGINES)
    if unknown or exact not in ("real", "bitwise"):
        raise ArgumentError(
            f"unknown engines {sorted(unknown)}: choose from {ENGINES}"
            if unknown
            else f"exact={exact!r}: choose 'real' or 'bitwise'"
        )
    budget = budget or Budget()
    start = time.perf_counter()
    collecting = gc.isenabled()
    gc.disable()  # millions of tuples and no cycle among them: collections would only walk them again and again
    try:
        task = Task(nodes, roots, leaves, leader, alive)
        found = task.run(tuple(engines), budget, exact, tuple(assume), seed)
    except Malformed as error:
        return undecided(Reason.RELEASED if not len(nodes) else Reason.MALFORMED, str(error))
    except Exception as error:  # an engine that fails must never look like a proof, nor hide its failure
        return undecided(Reason.FAILED, f"{type(error).__name__}: {error}")
    finally:
        if collecting:
            gc.enable()
    found.stats["seconds"] = time.perf_counter() - start  # type: ignore[index]
    return found


class Task:
    """One graph and one optimization of it."""

    def __init__(
        self,
        nodes: Sequence[Any],
        roots: Sequence[Any],
        leaves: Sequence[Any] | None,
        leader: Sequence[int] | None,
        alive: Sequence[int] | None,
    ):
        if not len(nodes):
            raise Malformed("there are no nodes: the graph was cleared, or nothing was recorded")
        self.nodes = nodes
        self.where = {id(node): i for i, node in enumerate(nodes)}
        self.roots = [self.position(r, "output") for r in roots]
        if leaves is None:
            self.leaves = [i for i, n in enumerate(nodes) if n.is_leaf and n.requires_grad]
        else:
            self.leaves = [self.position(n, "leaf") for n in leaves]
        self.leader = followed(nodes, self.where) if leader is None else resolve([int(x) for x in leader], len(nodes))
        self.alive = None if alive is None else [int(x) for x in alive]
        if self.alive is not None and len(self.alive) != len(nodes):
            raise Malformed(f"alive has {len(self.alive)} entries for {len(nodes)} nodes")
        self.vocabulary = Vocabulary()
        self.recorded: Recorded = convert(nodes, self.vocabulary)
        self.differentiator = Differentiator(self.recorded)
        self.original = self.differentiator.program(range(len(nodes)), self.roots, self.leaves)
        self.optimized = self.differentiator.program(self.leader, self.roots, self.leaves)

    def position(self, node: Any, what: str) -> int:
        found = node if isinstance(node, int) else self.where.get(id(node))
        if found is None or not 0 <= found < len(self.nodes):
            raise Malformed(f"the {what} {node!r} is not in the graph")
        return found

    @property
    def goals(self) -> list[str]:
        """The names of what is compared, gradients first."""
        return [f"gradient of %{i}" for i in self.leaves] + [f"value of %{i}" for i in self.roots]

    def run(
        self, engines: tuple[str, ...], budget: Budget, exact: str, assume: tuple[str, ...], seed: int
    ) -> Verification:
        """Ask the engines in order until one decides."""
        stats: dict[str, Any] = {
            "nodes": len(self.nodes),
            "merged": sum(self.leader[i] != i for i in range(len(self.nodes))),
        }
        common: dict[str, Any] = {
            "original": self.original.digest(),
            "optimized": self.optimized.digest(),
            "stats": stats,
            "trust": self.trust(),
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
        outcome = checker.check(
            self.original,
            self.optimized,
            self.leader,
            expansions=budget.expansions,
            deadline=time.monotonic() + budget.seconds,
        )
        stats.update(outcome.stats)
        proved = outcome.bitwise if "linear" not in engines or exact == "bitwise" else outcome.equal
        goals = tuple(
            Verdict(goal, Status.PROVED, "bitwise" if bits else "real")
            if ok
            else Verdict(goal, Status.UNDECIDED, None, Reason.BUDGET if outcome.budget else Reason.UNDERIVED)
            for goal, ok, bits in zip(self.goals, proved, outcome.bitwise, strict=True)
        )
        if all(proved):
            bits = all(outcome.bitwise)
            return Verification(
                Status.PROVED,
                "bitwise" if bits else "real",
                "all sizes with these broadcasts and branches",
                self.conditions(bits),
                engine="structural" if bits else "linear",
                goals=goals,
                **common,
            )
        culprit = self.describe(outcome.failed)
        common |= {"goals": goals, "culprit": culprit}
        if exact == "bitwise" and all(outcome.equal):
            return undecided(Reason.ONLY_REAL, "equal over the reals; sums are taken in another order", **common)
        return self.search(engines, budget, assume, seed, outcome, common)

    def search(
        self,
        engines: tuple[str, ...],
        budget: Budget,
        assume: tuple[str, ...],
        seed: int,
        outcome: Any,
        common: dict[str, Any],
    ) -> Verification:
        """No proof: look for a counterexample, then for evidence, then ask sympy."""
        from autograd_opt.verify import field, points, sympy_engine

        evidence: list[str] = []
        goals = [k for k, ok in enumerate(outcome.equal) if not ok]
        pairs = list(
            zip(
                [*self.original.gradients, *self.original.values],
                [*self.optimized.gradients, *self.optimized.values],
                strict=True,
            )
        )
        wanted = [(self.goals[k], *pairs[k]) for k in goals]
        reason, message = Reason.UNDERIVED, "no derivation was found"
        if outcome.budget:
            reason, message = Reason.BUDGET, str(outcome.stats.get("budget", ""))
        elif self.differentiator.unsupported:
            name, why = next(iter(self.differentiator.unsupported.items()))
            reason, message = Reason.UNSUPPORTED, f"{name}: {why}"
        field_found = None
        if "field" in engines:
            field_found = field.compare(
                self.original, self.optimized, wanted, budget=budget.elements, seed=seed, nodes=self.nodes
            )
            evidence.append(str(field_found))
        if "points" in engines:  # also where the field sees no difference: it never meets a kink
            found = points.refute(
                self.original,
                self.optimized,
                wanted,
                names=self.names(),
                budget=budget.elements,
                seconds=budget.seconds,
                seed=seed,
                nodes=self.nodes,
            )
            if isinstance(found, Counterexample):
                if found.kind == "value" and field_found is not None and field_found.equal:
                    found = replace(found, kind="kink")
                verdicts = tuple(
                    Verdict(g.goal, Status.REFUTED) if g.goal == found.goal else g for g in common["goals"]
                )
                return Verification(
                    Status.REFUTED,
                    counterexample=found,
                    evidence=tuple(evidence),
                    **(common | {"goals": verdicts}),
                    engine="points",
                )
            evidence.append(f"points: {found}")
        if "sympy" in engines and (field_found is None or field_found.equal is not False):
            answer = sympy_engine.compare(
                self.original, self.optimized, wanted, limit=budget.sympy_operations, seconds=budget.sympy_seconds
            )
            evidence.append(f"sympy: {answer.message}")
            if answer.equal:
                verdicts = tuple(
                    g if g.status is Status.PROVED else Verdict(g.goal, Status.PROVED, "real") for g in common["goals"]
                )
                missing = [c for c in answer.conditions if c not in assume]
                if not missing:
                    return Verification(
                        Status.PROVED,
                        "real",
                        "these shapes",
                        (*self.conditions(False), *answer.conditions),
                        engine="sympy",
                        evidence=tuple(evidence),
                        **(common | {"goals": verdicts, "culprit": None}),
                    )
                reason, message = Reason.CONDITION, "; ".join(missing)
        if reason is Reason.UNDERIVED and field_found is not None and field_found.equal is not None:
            reason = Reason.EQUAL_IN_FIELD if field_found.equal else Reason.NO_WITNESS
            message = str(field_found)
        return undecided(reason, message, evidence=tuple(evidence), **common)

    def names_of_leaves(self) -> dict[int, str]:
        """Symbols of the leaves: x0, x1, ... by record number."""
        return {i: f"x{i}" for i, n in enumerate(self.nodes) if n.is_leaf}

    def names(self) -> dict[int, str]:
        """How counterexamples call the leaves."""
        return {i: f"%{i}" for i, n in enumerate(self.nodes) if n.is_leaf}

    def effects(self) -> tuple[Reason, str] | None:
        """Merges and prunings that are wrong whatever the values: of effects, of nodes still needed."""
        pure = self.recorded.pure
        for i, to in enumerate(self.leader):
            if to != i and not (pure[i] or self.is_free(i)):
                return Reason.EFFECT, f"{self.line(i)} is merged into {self.line(to)}, but is not a pure function"
            if to != i and not (pure[to] or self.is_free(to)):
                return Reason.EFFECT, f"{self.line(i)} is merged into {self.line(to)}, which is not a pure function"
        if self.alive is not None:
            needed = self.needed()
            for i, keep in enumerate(self.alive):
                if not keep and i in needed:
                    return Reason.PRUNED, f"{self.line(i)} is dropped, but outputs need it"
        return None

    def is_free(self, i: int) -> bool:
        """A random draw or a leaf: two of them are two free values, so a point can show the mistake."""
        return self.nodes[i].is_leaf or self.nodes[i].op.name in DRAWS

    def needed(self) -> set[int]:
        """Positions that the outputs read, in the optimized program."""
        seen: set[int] = set()
        stack = list(self.optimized.values)
        while stack:
            i = stack.pop()
            if i not in seen:
                seen.add(i)
                stack += self.optimized.operands[i]
        return seen

    def conditions(self, bitwise: bool) -> tuple[str, ...]:
        """What a proof presupposes."""
        if bitwise:
            return ("kernels are deterministic",)
        out = ["real arithmetic: sums may round differently"]
        private = sorted(
            {
                str(h.value("#of")) if h.op == PULLBACK else h.op
                for h in self.vocabulary.heads
                if checker.is_kernel(h.op)
            }
        )
        if private:
            out.append(f"torch's own derivatives are linear: {', '.join(private)}")
        return tuple(out)

    def trust(self) -> dict[str, Any]:
        """Versions and the lemmas that a proof of this graph uses."""
        return {
            **versions(),
            "lemmas": sorted({h.op for h in self.vocabulary.heads if h.op in checker.LINEAR}),
        }

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

    def certificate(self) -> dict[str, Any]:
        """Both programs and their words, for a file that can be replayed."""
        return {
            "types": [list(t) for t in self.vocabulary.types],
            "heads": [list(h) for h in self.vocabulary.heads],
            "original": self.original.to_dict(),
            "optimized": self.optimized.to_dict(),
            "leader": list(self.leader),
        }


@functools.cache
def versions() -> dict[str, str]:
    return {"python": platform.python_version(), "torch": torch.__version__, "sympy": version("sympy")}


def followed(nodes: Sequence[Any], where: dict[int, int]) -> list[int]:
    """The leaders that the executor follows: not from or into pinned nodes."""
    out = list(range(len(nodes)))
    for i, node in enumerate(nodes):
        to = node.leader
        if to is None or node.flags & PINNED or to.flags & PINNED:
            continue
        k = where.get(id(to))
        if k is not None:
            out[i] = out[k]
    return out


def resolve(leader: list[int], n: int) -> list[int]:
    """Chains of leaders followed to their ends."""
    if len(leader) != n:
        raise Malformed(f"leader has {len(leader)} entries for {n} nodes")
    for i in range(n):
        if not 0 <= leader[i] <= i:
            raise Malformed(f"leader[{i}] = {leader[i]}: a leader comes before its followers")
        leader[i] = leader[leader[i]]
    return leader


def save(
    path: str | Path,
    nodes: Sequence[Any],
    roots: Sequence[Any],
    leaves: Sequence[Any] | None = None,
    leader: Sequence[int] | None = None,
) -> Verification:
    """Verify and write a certificate that `replay` checks without the graph."""
    task = Task(nodes, roots, leaves, leader, None)
    found = task.run(ENGINES, Budget(), "real", (), 0)
    found = replace(found, programs=task.certificate())
    found.to_json(path)
    return found


def replay(saved: Verification | str | Path, budget: Budget | None = None) -> Verification:
    """Check a saved verification again from the programs in it.

    Raises
    ------
    ArgumentError : the file is damaged, or holds no programs.
    """
    from autograd_opt.verify.replaying import programs_of

    v = saved if isinstance(saved, Verification) else Verification.from_json(saved)
    original, optimized, leader = programs_of(v)
    if (original.digest(), optimized.digest()) != (v.original, v.optimized):
        return undecided(Reason.FOREIGN, "the hashes are not those of the programs in the file")
    budget = budget or Budget()
    outcome = checker.check(
        original, optimized, leader, expansions=budget.expansions, deadline=time.monotonic() + budget.seconds
    )
    if all(outcome.equal) and outcome.equal:
        return replace(
            v, status=Status.PROVED, exact="bitwise" if all(outcome.bitwise) else "real", reason=None, message=""
        )
    return undecided(
        Reason.UNDERIVED, "the saved programs are not proved equal", original=v.original, optimized=v.optimized
    )


def expression(
    nodes: Sequence[Any],
    roots: Sequence[Any],
    leaf: Any,
    leader: Sequence[int] | None = None,
    *,
    optimized: bool = True,
    names: dict[int, str] | None = None,
    limit: int = 600,
) -> Any:
    """The gradient of `leaf` as sympy expressions, before or after optimization.

    Parameters
    ----------
    optimized : of the optimized sweep; False: of the graph as written.
    names : record number of a leaf to the name of its symbols.
    limit : scalar operations above which it refuses.

    Returns
    -------
    GradientExpression : prints as text, `.latex()`, common subexpressions named.

    Raises
    ------
    ArgumentError : too large, branches on values, or without meaning.
    """
    from autograd_opt.verify.sympy_engine import gradient_expression

    try:
        task = Task(nodes, roots, [leaf], leader, None)
    except Malformed as error:
        raise ArgumentError(str(error)) from error
    names = {**task.names_of_leaves(), **(names or {})}
    program = task.optimized if optimized else task.original
    return gradient_expression(program, program.gradients[0], names[task.leaves[0]], names=names, limit=limit)


def assert_optimization_proved(
    fn: Callable[..., Any],
    *inputs: Any,
    engines: Sequence[str] = ENGINES,
    budget: Budget | None = None,
    exact: str = "real",
) -> Verification:
    """For tests: record `fn(*inputs)` with optimization on, and require the proof.

    Parameters
    ----------
    fn : returns a tensor or a tuple of tensors.
    inputs : leaves (tensors that require grad are compared).

    Raises
    ------
    AssertionError : with the whole report, unless proved.

    Examples
    --------
    >>> import autograd_opt as ao
    >>> v = assert_optimization_proved(lambda x: ((x * x).exp() + x * x).sum(), ao.tensor([1.0, 2.0]))
    >>> v.stats["merged"]
    1
    """
    import autograd_opt as ao

    with ao.AutogradGraph(optimize=True) as graph:
        out = fn(*inputs)
        outs = [o for o in (out if isinstance(out, (tuple, list)) else (out,)) if isinstance(o, torch.Tensor)]
        found = verify(
            graph.tape.snapshot(), [o.grad_fn for o in outs], None, engines=engines, budget=budget, exact=exact
        )
    if found.status is not Status.PROVED:
        raise AssertionError(str(found))
    return found


__all__ = [
    "ENGINES",
    "Budget",
    "Program",
    "Task",
    "assert_optimization_proved",
    "expression",
    "replay",
    "save",
    "verify",
]
