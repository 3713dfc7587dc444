from autograd_opt.passes.effort import Effort
from autograd_opt.passes.leaders import Leaders
from autograd_opt.passes.node_table import NodeTable

def cse(
    table: NodeTable,
    *,
    leader: Leaders | None = None,
    limit: int | None = None,
    degenerate_hash: bool | None = None,
    effort: Effort | None = None,
) -> Leaders: ...
