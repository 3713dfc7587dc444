from typing import final

from torch import Tensor

from autograd_opt.graph.node import Node

@final
class UnrecordedWrites:
    def locate(self, node: Node, t: Tensor) -> int: ...
