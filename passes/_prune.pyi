import numpy as np
from numpy.typing import ArrayLike, NDArray

from autograd_opt.passes.leaders import Leaders
from autograd_opt.passes.node_table import NodeTable

def prune(table: NodeTable, outputs: ArrayLike, leader: Leaders | None = None) -> NDArray[np.uint8]: ...
