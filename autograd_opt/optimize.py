"""From a tape to the passes and back: what happens before backward when optimizing.

The recorder numbers values while it records, so it already knows every repeated key: where
there is none, no pass can merge anything and none is run.  Where there are some, the passes
decide on the flat arrays, and the executor follows the leaders that they return.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import rustworkx as rx

from autograd_opt import errors
from autograd_opt.passes import NodeTable, Optimized, Pipeline, UnknownPassError

DEFAULT = ("cse", "prune")


def table_of(tape: Any) -> NodeTable:
    """The recorded graph as flat arrays, in record order."""
    key, offsets, operands, flags, meta = tape.arrays()
    return NodeTable(
        np.frombuffer(key, np.int64) if len(key) else np.zeros(0, np.int64),
        np.frombuffer(offsets, np.int64),
        np.frombuffer(operands, np.int32) if len(operands) else np.zeros(0, np.int32),
        np.frombuffer(flags, np.uint8) if len(flags) else np.zeros(0, np.uint8),
        np.frombuffer(meta, np.int64) if len(meta) else np.zeros(0, np.int64),
    )


def pipeline_of(passes: Any) -> Pipeline:
    """The default pipeline, or the one that the user named."""
    try:
        return passes if isinstance(passes, Pipeline) else Pipeline(DEFAULT if passes is None else passes)
    except UnknownPassError as error:
        raise errors.ArgumentError(errors.at(str(error))) from error


def run_passes(tape: Any, roots: list[int], pipeline: Pipeline) -> tuple[NodeTable, Optimized]:
    """Run `pipeline` for the outputs `roots` (record numbers)."""
    table = table_of(tape)
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
