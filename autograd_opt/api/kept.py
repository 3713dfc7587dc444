"""A graph after its context: plain data, without tensors, that prints, draws and reports as the graph did."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, overload

from autograd_opt import errors
from autograd_opt.api.drawings import Drawings
from autograd_opt.graph import program_text
from autograd_opt.inspection.report import Report, make_report
from autograd_opt.inspection.snapshot import Item, Scene, scene_of

if TYPE_CHECKING:
    from autograd_opt.verification.result.verdict import Verification


def node_at(items: Sequence[Any], index: Any, label: str) -> Any:
    """The node of a record number, or those of a slice."""
    if isinstance(index, slice):
        return items[index]
    if not isinstance(index, int):
        raise errors.ArgumentTypeError(errors.at(
            f"{label} is indexed by record numbers, 0, 1, ..., or by a slice of them; it got {index!r}"
        ))
    if not -len(items) <= index < len(items):
        raise errors.EmptyError(errors.at(
            f"{label} has no node {index}: its {len(items)} nodes are numbered from 0 on"
        ))
    return items[index]


class Snapshot(Drawings):
    """What `graph.snapshot()` returns, and a graph made with `keep=True` holds when it is left.

    It holds operators, attributes, shapes, source lines, what was merged, and a verification where one was made; no
    tensor and no node. It is iterated over and indexed as the graph is, by record number.

    >>> import autograd_opt as ao
    >>> x = ao.tensor([1.0])
    >>> with ao.AutogradGraph(optimize=True, sources=False) as graph:
    ...     y = x.exp() * x.exp()
    ...     kept = graph.snapshot()
    >>> print(kept)
    %0 = leaf()  # f32[1]
    %1 = exp(%0)  # f32[1]
    %2 = exp(%0)  # f32[1], same as %1
    %3 = mul(%1, %2)  # f32[1]
    >>> [item.op for item in kept], kept[3].operands, kept.report().merged
    (['leaf', 'exp', 'exp', 'mul'], (1, 2), 1)
    """

    def __init__(self, graph: Any, outputs: Any, verification: Verification | None) -> None:
        self.scene: Scene = scene_of(graph, outputs)
        self._text = program_text.program(graph.tape.snapshot())
        self._report = make_report(graph, outputs)
        self._verification = verification
        from autograd_opt.inspection.page import rules_of
        self.rules: dict[str, dict[str, str]] = rules_of(graph)

    @property
    def label(self) -> str:
        """The graph's name in messages."""
        return self.scene.name

    def __len__(self) -> int:
        return len(self.scene.items)

    def __iter__(self) -> Iterator[Item]:
        return iter(self.scene.items)

    @overload
    def __getitem__(self, index: int) -> Item: ...
    @overload
    def __getitem__(self, index: slice) -> list[Item]: ...
    def __getitem__(self, index: int | slice) -> Item | list[Item]:
        found: Item | list[Item] = node_at(self.scene.items, index, self.label)
        return found

    def __str__(self) -> str:
        return self._text

    def __repr__(self) -> str:
        return f"<{type(self).__name__} of {self.label}: {len(self)} nodes>"

    def report(self) -> Report:
        """Nodes before and after, and what was merged."""
        return self._report

    def verify(self) -> Verification:
        """The verification that was made with the snapshot.

        Raises
        ------
        GraphError : none was made: a proof needs the graph itself.
        """
        if self._verification is None:
            raise errors.GraphError(errors.at(
                f"this snapshot of {self.label} was taken without a verification: inside the context, "
                "take it by graph.snapshot(verify=True), or verify the graph"
            ))
        return self._verification
