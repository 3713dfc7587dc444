from collections.abc import Callable
from typing import Any

from typing_extensions import disjoint_base

from autograd_opt.graph.node import Op

@disjoint_base
class CrossEntropy:
    def __init__(
        self, log_softmax: Op, nll: Op, attributes: dict[str, Any], reductions: dict[str, int],
        whole: Callable[..., Any],
    ) -> None: ...
    def __call__(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any: ...
