from autograd_opt.passes.leaders import Leaders
from autograd_opt.passes.table import NodeTable

def refine(table: NodeTable, *, leader: Leaders | None = None) -> Leaders: ...
