"""The optimizer: flat integer arrays in, leaders and liveness out.

Sees integers and byte strings only, neither torch nor sympy. Read in this
order: `flags` and `keys`, what a node is; `node_table` and `graph_io`, a graph as arrays;
`cse` and `prune`, the passes (`_cse` and `_prune` are the same, compiled);
`check`, the rules they keep; `registry` and `pipeline`, running them.
"""

from autograd_opt.passes._cse import cse
from autograd_opt.passes._prune import prune
from autograd_opt.passes.bisection import first_bad_merge
from autograd_opt.passes.check import check
from autograd_opt.passes.effort import Effort
from autograd_opt.passes.errors import NodeTableError, PassResultError, UnknownPassError
from autograd_opt.passes.flags import COMMUTATIVE, EFFECT, KEEP, LEAF, NEVER_MERGES, NEVER_PRUNED, NOMERGE, PINNED
from autograd_opt.passes.keys import KeyInterner
from autograd_opt.passes.leaders import Leaders, first_merges, identity_leaders, merged_nodes
from autograd_opt.passes.node_table import NodeTable
from autograd_opt.passes.pipeline import Certificate, Merge, Optimized, PassReport, Pipeline
from autograd_opt.passes.registry import (
    Pass,
    PassResult,
    PassState,
    get_pass,
    pass_names,
    register_pass,
    unregister_pass,
)

__all__ = [
    "COMMUTATIVE",
    "EFFECT",
    "KEEP",
    "LEAF",
    "NEVER_MERGES",
    "NEVER_PRUNED",
    "NOMERGE",
    "PINNED",
    "Certificate",
    "Effort",
    "KeyInterner",
    "Leaders",
    "Merge",
    "NodeTable",
    "NodeTableError",
    "Optimized",
    "Pass",
    "PassReport",
    "PassResult",
    "PassResultError",
    "PassState",
    "Pipeline",
    "UnknownPassError",
    "check",
    "cse",
    "first_bad_merge",
    "first_merges",
    "get_pass",
    "identity_leaders",
    "merged_nodes",
    "pass_names",
    "prune",
    "register_pass",
    "unregister_pass",
]
