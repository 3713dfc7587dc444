"""Data, pictures and pages of a graph, open or kept."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, overload

from autograd_opt import errors
from autograd_opt._common.arguments import named

if TYPE_CHECKING:
    import os
    from pathlib import Path

    import networkx


class Drawings:
    """What a graph, and the snapshot of one, can be drawn as."""

    def _readable(self) -> Any:
        """What is drawn."""
        return self

    @named
    def to_dict(self, optimized: bool = False) -> dict[str, object]:
        """The graph as plain data, ready for JSON: see `autograd_opt.inspection.snapshot.to_dict`."""
        from autograd_opt.inspection.snapshot import to_dict
        return to_dict(self._readable(), optimized)

    @named
    def to_dot(self, optimized: bool = False, *, limit: int | None = None) -> str:
        """The graph in Graphviz's language; folded, framed by module, beyond `limit` (60) nodes.

        >>> import autograd_opt as ao
        >>> with ao.AutogradGraph() as graph:
        ...     y = ao.tensor([1.0]) * 2
        ...     '  n0 -> n1;' in graph.to_dot().splitlines()
        True
        """
        from autograd_opt.inspection.drawing import dot, pictures
        from autograd_opt.inspection.snapshot import scene_of
        return dot.text([pictures.picture_of(scene_of(self._readable()), optimized, limit)])

    @named
    def to_mermaid(self, optimized: bool = False, *, limit: int | None = None) -> str:
        """The graph in Mermaid's language, which code hosts draw; folded beyond `limit` (60) nodes.

        >>> import autograd_opt as ao
        >>> with ao.AutogradGraph() as graph:
        ...     y = ao.tensor([1.0]) * 2
        ...     graph.to_mermaid().splitlines()[3]
        '  n1(["#37;1 mul 2<br/>f32[1]"])'
        """
        from autograd_opt.inspection.drawing import to_mermaid
        return to_mermaid(self._readable(), optimized, limit=limit)

    @overload
    def draw(self, path: None = None, optimized: bool = False, *, limit: int | None = None) -> str: ...
    @overload
    def draw(self, path: str | os.PathLike[str], optimized: bool = False, *, limit: int | None = None) -> Path: ...
    @named
    def draw(self, path: Any = None, optimized: bool = False, *, limit: int | None = None) -> str | Path:
        """A picture: SVG text, or a file by the ending of `path` (.svg, .png, .dot, .mmd).

        Parameters
        ----------
        path : the file, written whole or not at all, as which it is returned; None returns SVG text.
        optimized : what the passes leave, instead of the graph as written.
        limit : nodes above which the picture is folded, 1 or more (60).

        Raises
        ------
        ArgumentError : an unknown ending, or a `limit` below 1.
        OutsideGraphError : the graph's context has been left, and the nodes with it.
        UnsupportedError : SVG or PNG without the program `dot` of Graphviz.
        """
        from autograd_opt.inspection.drawing import drawn, pictures
        return drawn(self._readable(), path, lambda scene: [pictures.picture_of(scene, optimized, limit)])

    @overload
    def to_html(self, path: None = None, optimized: bool = False) -> str: ...
    @overload
    def to_html(self, path: str | os.PathLike[str], optimized: bool = False) -> Path: ...
    @named
    def to_html(self, path: Any = None, optimized: bool = False) -> str | Path:
        """A self-contained page to browse the graph; `optimized` says which of its two views opens first.

        Without `path` its text is returned.
        """
        from autograd_opt.inspection.page import to_html
        return to_html(self._readable(), path, optimized)

    @named
    def to_networkx(self, optimized: bool = False) -> networkx.MultiDiGraph:
        """A `networkx.MultiDiGraph`: record numbers with the data of `to_dict`, edges with the operand's `position`.

        Raises
        ------
        UnsupportedError : networkx is not installed.
        """
        from autograd_opt.inspection.snapshot import to_dict
        found: Any = to_dict(self._readable(), optimized)
        try:
            import networkx
        except ImportError:
            raise errors.UnsupportedError(errors.at("to_networkx needs networkx: pip install networkx")) from None
        made = networkx.MultiDiGraph(name=found["name"])
        made.add_nodes_from((node["index"], node) for node in found["nodes"])
        made.add_edges_from((o, node["index"], {"position": k}) for node in found["nodes"]
                            for k, o in enumerate(node["operands"]) if o is not None)
        return made

    def _repr_html_(self) -> str:
        from autograd_opt.inspection.page import notebook_html
        return str(notebook_html(self._readable()))
