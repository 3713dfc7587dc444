"""From a tape to the passes and back: what happens before backward when optimizing.

The recorder numbers values while it records, so it already knows every repeated key: where
there is none, no pass can merge anything and none is run.  Where there are some, the passes
decide on the flat arrays, and the executor follows the leaders that they return.
"""

from __future__ import annotations

import difflib
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import rustworkx as rx

from autograd_opt import errors
from autograd_opt.graph.arrays import flat_arrays
from autograd_opt.passes import KEEP, PINNED, NodeTable, Optimized, Pipeline

DEFAULT = ("cse", "prune")
EXACT = ("prune",)
"""With `optimize="exact"`: nothing that adds cotangents in another order than the graph as written."""


def table_of(tape: Any) -> NodeTable:
    """The recorded graph as flat arrays, in record order."""
    *columns, same = flat_arrays(tape)
    key, offsets, operands, flags, meta = map(np.asarray, columns)
    return NodeTable(key, offsets, operands, flags, meta, same=None if same is None else np.asarray(same))


def mode_of(optimize: Any) -> bool | str:
    """What `optimize=` asks for: False, True or "exact".

    Raises
    ------
    ArgumentError : anything else; the message names the nearest.
    """
    if isinstance(optimize, str) and optimize == "exact":
        return optimize
    if optimize is None or (isinstance(optimize, (int, np.bool_)) and optimize in (0, 1)):
        return bool(optimize)
    words = {"exact": "'exact'", "true": "True", "false": "False"}
    nearest = difflib.get_close_matches(str(optimize).lower(), words, n=1, cutoff=0.7)
    hint = f": did you mean {words[nearest[0]]}?" if nearest else ":"
    raise errors.ArgumentError(errors.at(f"optimize={optimize!r}{hint} choose False, True or 'exact'"))


def pipeline_of(passes: Any, exact: bool = False) -> Pipeline:
    """The default pipeline, or the one that the user named; `exact`: none that adds in another order.

    Raises
    ------
    ArgumentError : a name is unknown, or a pass may not run in this mode.
    """
    try:
        found = passes if isinstance(passes, Pipeline) else Pipeline(
            (EXACT if exact else DEFAULT) if passes is None else passes)
    except errors.ArgumentTypeError as error:
        raise errors.ArgumentError(str(error)) from error
    loose = [step.name for step in found.passes if exact and not step.keeps_sums]
    if loose:
        raise errors.ArgumentError(errors.at(
            f"optimize='exact' keeps every sum of cotangents as written, which the pass {loose[0]!r} does not "
            "promise: leave it out, or use optimize=True"
        ))
    return found


def run_passes(tape: Any, roots: list[int], pipeline: Pipeline, captured: Sequence[int] = ()
               ) -> tuple[NodeTable, Optimized]:
    """Run `pipeline` for the outputs `roots`; `captured` nodes keep their own cotangents (record numbers)."""
    table = table_of(tape)
    if captured:
        flags = table.flags.copy()
        flags[list(captured)] |= PINNED | KEEP
        table = replace(table, flags=flags)
    return table, pipeline.run(table, np.asarray(roots, np.int64))


def dag_of(nodes: list[Any]) -> rx.PyDiGraph[Any, int]:
    """The graph as written: one node per record, operand positions on the edges."""
    dag: rx.PyDiGraph[Any, int] = rx.PyDiGraph(multigraph=True)
    dag.add_nodes_from(nodes)
    dag.add_edges_from([
        (operand.index, node.index, position)
        for node in nodes for position, operand in enumerate(node.operands)
        if operand is not None and operand.index >= 0
    ])
    return dag
