from collections.abc import Callable, Iterable, Sequence
from typing import Any

from torch import Tensor
from typing_extensions import disjoint_base

@disjoint_base
class Plan:
    def __init__(
        self, parameters: Sequence[tuple[str, Any, Any]], positional: int, collects: bool = False,
        fixed: dict[str, Any] | None = None, lists: Sequence[str] = (), host: bool = False,
        width: int = 0, real: bool = False,
    ) -> None: ...

@disjoint_base
class Constant:
    def __init__(self, *names: str) -> None: ...
    def __call__(self, *args: Any, **kwargs: Any) -> tuple[tuple[Any, ...], dict[str, Any]]: ...

@disjoint_base
class OneLayer:
    def __init__(self, whole: Callable[..., Any]) -> None: ...
    def __call__(self, *operands: Any, **attributes: Any) -> Any: ...

def of_one_shape(tensors: Iterable[Any]) -> bool: ...
def convolution_backward(
    g: Any, x: Any, weight: Any, bias_shape: Sequence[int], stride: Sequence[int], padding: Sequence[int],
    dilation: Sequence[int], transposed: bool, output_padding: Sequence[int], groups: int, needs: Iterable[Any],
) -> tuple[Any, Any, Any]: ...
def nll_loss_forward(
    x: Tensor, target: Tensor, weight: Tensor | None, *, reduction: int, ignore_index: int,
) -> tuple[Tensor, Tensor]: ...
def pick_lstm(
    input: Any, hx: Any, params: Any, has_biases: Any = None, num_layers: Any = None, *rest: Any, **kwargs: Any
) -> str | None: ...
def bind_lstm(
    input: Any, hx: Any, params: Any, has_biases: bool, num_layers: int, dropout: float, train: bool,
    bidirectional: bool, batch_first: bool,
) -> tuple[tuple[Any, ...], dict[str, Any]]: ...
