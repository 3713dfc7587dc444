"""How a graph is looked at: its nodes, its text and its reports."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, overload

import rustworkx as rx
import torch

from autograd_opt import errors
from autograd_opt._common.arguments import named
from autograd_opt.api.drawings import Drawings
from autograd_opt.engine import backward as engine
from autograd_opt.graph import node as nodes
from autograd_opt.graph import released_history
from autograd_opt.optimizer import merging as optimize_
from autograd_opt.record.context import Context

if TYPE_CHECKING:
    import os
    from contextlib import AbstractContextManager

    from autograd_opt.api.kept import Snapshot
    from autograd_opt.api.options import Tensors
    from autograd_opt.inspection.difference import PairExplanation
    from autograd_opt.inspection.report import Report
    from autograd_opt.inspection.snapshot import Item
    from autograd_opt.verification.result.verdict import Verification

Tensor = torch.Tensor


class ReadableGraph(Drawings, Context):
    """A graph that can be read while it is open, or afterwards from its snapshot where it was made with `keep=True`."""

    kept: Snapshot | None = None
    """The snapshot of a graph made with `keep=True` that has been left."""
    verdicts: deque[Verification]
    released: Any = None
    """What `clear()` has released inside the context and tensors still hold: `autograd_opt.graph.released_history`."""

    @property
    def label(self) -> str:
        """How messages call this graph."""
        return f"graph {self.name!r}" if self.name else f"graph #{self.number}"

    def _state(self) -> str:
        """What is said of a graph that is not open."""
        return "has not been entered yet" if self.tape is None else "has been left, which releases its nodes"

    def require_thread(self, what: str) -> None:
        """Refuse to be used from a thread other than the one that entered."""
        if self.thread is not None and self.thread != threading.get_ident():
            raise errors.GraphError(errors.at(
                f"{self.label} was entered in another thread and cannot be {what} in this one: open an AutogradGraph "
                "in each thread"
            ))

    def require_open(self) -> None:
        """Refuse to be looked at before the context is entered and after it is left."""
        if self.thread is None:
            raise errors.OutsideGraphError(errors.at(
                f"{self.label} {self._state()}: draw, verify and read it inside its context, `with ... as graph:`, "
                "or make it with keep=True"
            ))
        self.require_thread("used")

    def _readable(self) -> ReadableGraph | Snapshot:
        """The graph itself, or its snapshot where it has been left with `keep=True`."""
        return self.kept if self.thread is None and self.kept is not None else self

    def __iter__(self) -> Iterator[nodes.Node | Item]:
        """The nodes in the order of recording; after the context those of the snapshot."""
        if self.thread is None and self.kept is not None:
            return iter(self.kept)
        self.require_open()
        return iter(self.tape.snapshot())

    @overload
    def __getitem__(self, index: int) -> nodes.Node | Item: ...
    @overload
    def __getitem__(self, index: slice) -> list[nodes.Node] | list[Item]: ...
    def __getitem__(self, index: int | slice) -> Any:
        """The node of a record number, or a list of nodes for a slice.

        Raises
        ------
        EmptyError : an `IndexError`: the graph has no node of that number.
        """
        if self.thread is None and self.kept is not None:
            return self.kept[index]
        self.require_open()
        from autograd_opt.api.kept import node_at
        return node_at(self.tape.snapshot(), index, self.label)

    def __bool__(self) -> bool:
        """A graph is true, also before anything is recorded: `with graph or nullcontext():` records."""
        return True

    def __len__(self) -> int:
        if self.thread is None and self.kept is not None:
            return len(self.kept)
        return 0 if self.tape is None else len(self.tape)

    @property
    def dag(self) -> rx.PyDiGraph[nodes.Node, int]:
        """The graph as written; payloads are nodes, edge payloads operand positions.

        A payload has `op`, `attributes`, `shape`, `dtype`, `device`, `requires_grad`, `is_leaf` and `source`, its line.
        While nothing is recorded this is one object: take a `copy()` of it to change it.

        Raises
        ------
        OutsideGraphError : the graph is not open.

        >>> import autograd_opt as ao
        >>> x = ao.tensor([1.0])
        >>> with ao.AutogradGraph() as graph:
        ...     y = x * x
        ...     print([node.op.name for node in graph.dag.nodes()], graph.dag.edge_list())
        ['leaf', 'mul'] EdgeList[(0, 1), (0, 1)]
        """
        self.require_open()
        stamp = (len(self.tape), self.tape.epoch)
        if self._dag is None or self._dag[0] != stamp:
            self._dag = (stamp, optimize_.dag_of(self.tape.snapshot()))
        return self._dag[1]

    @named
    def optimized(self, outputs: Tensors | None = None) -> rx.PyDiGraph[nodes.Node, int]:
        """A new DAG: what the passes leave of the graph for `outputs` (default: every sink).

        >>> import autograd_opt as ao
        >>> x = ao.tensor([1.0])
        >>> with ao.AutogradGraph(optimize=True) as graph:
        ...     y = x.exp() * x.exp()
        ...     print(graph.dag.num_nodes(), graph.optimized(y).num_nodes())
        4 3
        """
        self.require_open()
        table, result = optimize_.run_passes(self.tape, self.root_numbers(outputs), self.pipeline)
        return table.to_dag(self.tape.snapshot(), result.leader, result.alive)[0]

    def root_numbers(self, outputs: Tensors | None = None) -> list[int]:
        """Record numbers of `outputs`, or of every node that nothing uses.

        A `FreedGraphError` says that what they would be differentiated through was cleared.
        """
        self.require_open()
        if outputs is not None:
            found = engine.root_nodes(self.tape, engine.as_tuple(outputs))
        else:
            nodes = self.tape.snapshot()
            used = {o.index for n in nodes for o in n.operands if o is not None}
            found = [n for n in nodes if n.index not in used and not n.is_leaf and (n.alive or n.spent)]
            if self.released is not None:
                found = [n for n in found if n not in self.released.nodes]
        if self.released is not None:
            released_history.refuse(self, found, abroad=True)
        return [n.index for n in found]

    def is_acyclic(self) -> bool:
        """Always true for a recorded graph; checked on the DAG."""
        self.require_open()
        return bool(rx.is_directed_acyclic_graph(optimize_.dag_of(self.tape.snapshot())))

    def topological_order(self) -> list[nodes.Node]:
        """The nodes, operands before their users.

        >>> import autograd_opt as ao
        >>> with ao.AutogradGraph() as graph:
        ...     y = ao.tensor([1.0]).exp().sin()
        ...     print([node.op.name for node in graph.topological_order()])
        ['leaf', 'exp', 'sin']
        """
        self.require_open()
        dag = optimize_.dag_of(self.tape.snapshot())         # not `self.dag`, which a caller may have changed
        return [dag[i] for i in rx.topological_sort(dag)]

    @named
    def report(self, outputs: Tensors | None = None) -> Report:
        """Nodes before and after, what was merged and reused, and what it saved: a `Report`.

        `outputs` are what must be kept; default every result that nothing reads.  After the context has
        been left the counts of calls and bytes remain.

        >>> import autograd_opt as ao
        >>> x = ao.tensor([1.0])
        >>> with ao.AutogradGraph(optimize=True) as graph:
        ...     y = x.exp() * x.exp()
        ...     report = graph.report()
        >>> report.nodes, report.merged, report.groups[0].expression
        ((4, 3), 1, 'exp(%0)')
        """
        if self.thread is None and self.kept is not None:
            return self.kept.report()
        from autograd_opt.inspection.report import make_report
        return make_report(self, outputs)

    @named
    def explain(self, a: Tensor, b: Tensor) -> PairExplanation:
        """Why two tensors are one value, or which part of their keys differs: a `PairExplanation`.

        Raises
        ------
        GraphError : one of the tensors has no node in this graph, or another thread has the graph open.
        OutsideGraphError : the graph is not open.

        >>> import autograd_opt as ao
        >>> x = ao.tensor([1.0])
        >>> with ao.AutogradGraph(optimize=True) as graph:
        ...     graph.explain(x * 2, x * 2.0).differences[0].text
        'attribute y: 2 and 2.0'
        """
        from autograd_opt.explaining import explain_pair
        self.require_thread("used")
        return explain_pair(self, a, b)

    def __str__(self) -> str:
        from autograd_opt.graph.program_text import program
        if self.thread is None and self.kept is not None:
            return str(self.kept)
        if self.thread is None:
            return f"{self.label} {self._state()}: print it inside its context, or make it with keep=True"
        return program(self.tape.snapshot())

    def __repr__(self) -> str:
        state = "open" if self.thread is not None else "closed"
        return f"<{type(self).__name__} {self.label}: {len(self)} nodes, {state}>"

    def profile(self, path: str | os.PathLike[str]) -> AbstractContextManager[None]:
        """Time the kernels of a block and write a trace, which chrome://tracing and Perfetto show on a time axis.

        Parameters
        ----------
        path : the file, in the format of Chrome's traces (JSON): each source line, and below it its kernels.

        Raises
        ------
        OutsideGraphError : the graph is not open.

        >>> import json, tempfile, autograd_opt as ao
        >>> from pathlib import Path
        >>> file, x = Path(tempfile.mkdtemp()) / "trace.json", ao.tensor([1.0])
        >>> with ao.AutogradGraph(optimize=True) as graph:
        ...     with graph.profile(file):
        ...         loss = (x.exp() * x.exp()).sum()
        ...         loss.backward()
        >>> names = [event["name"] for event in json.loads(file.read_text())["traceEvents"]]
        >>> names.count("exp"), "sum" in names
        (1, True)
        """
        from autograd_opt.inspection.profile import profile
        self.require_open()
        return profile(path)

    def follow(self, *models: torch.nn.Module) -> None:
        """Remember which module of these models records what, and their parameters' names, for pictures and pages.

        Raises
        ------
        OutsideGraphError : the graph is not open.
        ArgumentTypeError : a model that is no `torch.nn.Module`.

        >>> import torch, autograd_opt as ao
        >>> model = torch.nn.Sequential(torch.nn.Linear(2, 2), torch.nn.Tanh())
        >>> with ao.AutogradGraph() as graph:
        ...     graph.follow(model)
        ...     y = model(torch.ones(1, 2))
        ...     [(node["name"], node["module"]) for node in graph.to_dict()["nodes"][1:4]]
        [('0.weight', 'Sequential.0'), ('0.bias', 'Sequential.0'), ('', 'Sequential.0')]
        """
        from autograd_opt.inspection.module_names import follow
        self.require_open()
        follow(self, *models)

    def _repr_svg_(self) -> str | None:
        from autograd_opt.inspection.drawing import dot
        return str(self.draw()) if self.thread is not None and len(self) and dot.installed() else None
