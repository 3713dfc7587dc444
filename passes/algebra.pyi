from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from autograd_opt.passes.effort import Effort
from autograd_opt.passes.leaders import Leaders
from autograd_opt.passes.rules import Rule
from autograd_opt.passes.table import NodeTable

def orders(term: object) -> list[object]: ...
def algebra(
    table: NodeTable,
    rules: Sequence[Rule],
    *,
    leader: Leaders | None = None,
    limit: int | None = None,
    degenerate_hash: bool | None = None,
    effort: Effort | None = None,
) -> tuple[Leaders, NDArray[np.uint64]]: ...
