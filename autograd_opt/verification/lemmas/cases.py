# ruff: noqa: E501 (a case is one line)
"""Instances of operators on which their lemmas are proved: shapes of different sizes, attributes, domains."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch


@dataclass(frozen=True)
class Case:
    """One instance of an operator: operand shapes, attributes, which operands are positive, negative or integers."""

    shapes: tuple[Any, ...]
    attributes: dict[str, Any] = field(default_factory=dict)
    positive: tuple[int, ...] = ()
    values: dict[int, Any] = field(default_factory=dict)
    needs: tuple[int, ...] | None = None
    negative: tuple[int, ...] = ()
    dtype: torch.dtype = torch.float64

    def __hash__(self) -> int:
        return hash(repr(self))


def on(*shapes: Any, positive: Any = (), values: Any = None, needs: Any = None, **attributes: Any) -> Case:
    """A case in one call; `positive=True` means all operands."""
    wanted = tuple(range(len(shapes))) if positive is True else tuple(positive)
    return Case(shapes, attributes, wanted, values or {}, needs)


def each(names: str, *cases: Case) -> dict[str, tuple[Case, ...]]:
    return dict.fromkeys(names.split(), cases)


I0 = {1: np.array([2, 0, 2])}
CASES: dict[str, tuple[Case, ...]] = {
    # ----- elementwise -----
    **each("neg positive square sin cos tan sinh cosh asinh atan tanh exp exp2 expm1 erf erfc sigmoid silu mish log_sigmoid "
           "ndtr digamma lgamma deg2rad rad2deg", on((2,))),
    **each("reciprocal log log2 log10 log1p sqrt rsqrt entr sinc", on((2,), positive=True)),
    **each("asin acos atanh acosh erfinv", on((2,))),
    "polygamma": (on((2,), n=1),),
    "gelu": (on((1,)), on((1,), approximate="tanh")),
    **each("add sub rsub", on((2, 3), (3,)), on((2, 1), (3,)), on((2,), (2,), alpha=3)),
    **each("mul div", on((2, 3), (3,)), on((2, 1), (3,))),
    **each("addcmul addcdiv", on((2,), (2,), (2,), value=3)),
    "lerp": (on((2,), (2,), (2,)),),
    **each("hypot xlogy xlog1py logaddexp", on((2,), (2,), positive=True)),
    "atan2": (on((2,), (2,), positive=(1,)),),
    "pow": (on((2,), (2,), positive=True),),
    # ----- kinks -----
    **each("abs relu leaky_relu leaky_relu_ hardtanh relu6 hardsigmoid softshrink", on((2,))),
    **each("elu elu_", on((1,)), on((1,), alpha=2.0, scale=3.0)), **each("celu celu_", on((1,), alpha=2.0)),
    **each("selu selu_", on((1,))),
    "softplus": (on((1,), beta=2),), "threshold": (on((1,), threshold=0, value=0),),
    "prelu_kernel": (on((2,), (2,)),),
    **each("maximum minimum clamp_min clamp_max", on((2, 1), (1,))),
    "clamp": (on((2,), None, None, min=-1.0, max=2.0), on((2,), None, None, min=0)),
    **each("amax amin", on((2,)), on((2, 2), dim=1), on((2, 1), dim=0, keepdim=True), on((1, 2), dim=1)),
    **each("max_all min_all", on((2,))),
    **each("where", on((2,), (2,), (2,), values={0: np.array([True, False])}, needs=(1, 2)),
           on((2, 3), (3,), (2, 1), values={0: np.arange(6).reshape(2, 3) % 2 == 0}, needs=(1, 2))),
    "where_method": (on((2,), (2,), (2,), values={1: np.array([True, False])}, needs=(0, 2)),),
    "masked_fill": (on((2,), (2,), None, values={1: np.array([True, False])}, needs=(0,), value=0),),
    # ----- reductions -----
    **each("sum mean", on((2, 3)), on((2, 3), dim=1), on((2, 3, 1), dim=(0, 2), keepdim=True)),
    "sum_to_size": (on((2, 3), size=(1, 3)), on((2, 3), size=(3,))),
    "logsumexp": (on((2, 3), dim=1), on((2, 3), dim=(0, 1), keepdim=True)),
    **each("var std", on((3,)), on((2, 3), dim=1, correction=0, keepdim=True)),
    "cumsum": (on((2, 3), dim=1),), "cumprod": (on((2, 3), dim=1, positive=True),),
    "vector_norm": (on((3,), positive=True),),
    "prod": (on((3,), positive=True),),
    # ----- softmax and losses -----
    **each("softmax log_softmax", on((2, 3), dim=1), on((3, 2), dim=0)),
    "glu": (on((2, 4), dim=1),),
    "mse_loss": (on((2, 3), (2, 3), reduction=1), on((2,), (2,), reduction=2), on((2,), (2,), reduction=0)),
    "smooth_l1_loss": (on((1,), (1,), beta=2.0, reduction=1),), "huber_loss": (on((1,), (1,), delta=2.0, reduction=1),),
    "soft_margin_loss": (on((2,), (2,), needs=(0,), reduction=1),),
    "binary_cross_entropy_with_logits": (on((2,), (2,), None, None, reduction=1),),
    "layer_norm": (on((2, 3), (3,), (3,), normalized_shape=[3]),),
    "group_norm": (on((1, 2, 2), (2,), (2,), num_groups=2), on((2, 2), None, None, num_groups=1, eps=0.5)),
    "nll_loss": (*[on((3, 2), (3,), *weight, values={1: np.array([1, 0, 1])}, needs=(0,), reduction=r, ignore_index=i)
                   for weight in ((None,), ((2,),)) for r, i in ((1, -100), (1, 0), (2, 1), (0, 0))],
                 on((3,), (), None, values={1: np.array(1)}, needs=(0,), reduction=1)),
    # ----- products -----
    "matmul": (on((2, 3), (3, 4)), on((3,), (3,)), on((2, 3), (3,)), on((3,), (3, 2)), on((2, 2, 3), (3, 2)),
               on((2, 1, 3), (2, 3, 2))),
    "mm": (on((2, 3), (3, 4)),), "bmm": (on((2, 2, 3), (2, 3, 1)),), "mv": (on((2, 3), (3,)),),
    **each("dot vdot", on((3,), (3,))), "outer": (on((2,), (3,)),),
    "linear": (on((2, 3), (4, 3), (4,)), on((2, 3), (4, 3), None)),
    "einsum": (on((2, 3), (3, 4), equation="ij,jk->ik"), on((2, 3), (3,), equation="ij,j->j"), on((2, 3), equation="ij->j")),
    "addmm": (on((2, 4), (2, 3), (3, 4), alpha=2, beta=3),), "baddbmm": (on((2, 2, 1), (2, 2, 3), (2, 3, 1), alpha=2),),
    "addbmm": (on((2, 1), (2, 2, 3), (2, 3, 1), beta=2),), "addmv": (on((2,), (2, 3), (3,), alpha=2),),
    "addr": (on((2, 3), (2,), (3,), beta=2),), "trace": (on((2, 2)),),
    # ----- data movement -----
    **each("reshape view", on((2, 3), shape=(3, 2))), **each("unsafe_view reshape_alias", on((2, 3), size=(3, 2)), on((2,), size=(2, 1))),
    **each("ravel", on((2, 3))), "flatten": (on((2, 3, 2), start_dim=1),),
    "unflatten": (on((2, 6), dim=1, sizes=(2, 3)), on((2,), dim=0, sizes=(2, 1))),
    **each("squeeze", on((2, 1, 3), dim=(1,))), "unsqueeze": (on((2, 3), dim=1),), "permute": (on((2, 3, 4), dims=(2, 0, 1)),),
    "transpose": (on((2, 3, 1), dim0=0, dim1=1),), **each("t T mT H mH", on((2, 3))),
    "movedim": (on((2, 3, 4), source=0, destination=2),),
    **each("expand broadcast_to", on((2, 1), size=(2, 3)), on((3,), size=(2, 3))),
    "expand_as": (on((2, 1), shape=(2, 3)), on((2, 1), shape=(2, 1))),
    **each("view_as reshape_as", on((2, 3), shape=(3, 2)), on((2,), shape=(2, 1))),
    "narrow": (on((2, 4), dim=1, start=1, length=2),), "select": (on((2, 3), dim=1, index=1),),
    "slice": (on((3, 4), index=(slice(None), slice(1, 3))), on((3, 4), index=(1,))),
    **each("tril triu", on((3, 3)), on((2, 3), diagonal=1)), **each("flip", on((2, 3), dims=(1,))),
    **each("fliplr flipud", on((2, 3))), "rot90": (on((2, 3), k=1, dims=(0, 1)),), "roll": (on((2, 3), shifts=1, dims=(1,)),),
    **each("repeat", on((2, 3), repeats=(2, 1))), "tile": (on((2, 3), dims=(2, 1)),),
    "pad": (on((2, 3), pad=(1, 2), mode="constant"),), "constant_pad_nd": (on((2, 3), pad=(1, 2)),),
    "diag_embed": (on((2, 3)),), "cat": (on((2, 3), (1, 3), dim=0), on((2, 1), (2, 2), dim=1)),
    "stack": (on((2, 3), (2, 3), dim=1),),
    "index_select": (on((3, 2), (3,), values=I0, dim=0, needs=(0,)),),
    "gather": (on((3, 2), (2, 2), values={1: np.array([[2, 0], [2, 1]])}, dim=0, needs=(0,)),),
    "take": (on((3, 2), (3,), values={1: np.array([2, 5, 2])}, needs=(0,)),),
    "index_add": (on((3, 2), (2,), (2, 2), values={1: np.array([1, 1])}, dim=0, needs=(0, 2)),),
    "scatter_add": (on((3, 2), (2, 2), (2, 2), values={1: np.array([[2, 0], [2, 1]])}, dim=0, needs=(0, 2)),),
    "index": (on((3, 2), (3,), values=I0, index=("#",), needs=(0,)),),
    **each("split", on((5, 2), split_size=2, dim=0)), "chunk": (on((4, 2), chunks=2, dim=0),),
    "split_with_sizes": (on((3, 2), split_sizes=(1, 2), dim=0),), "unbind": (on((2, 3), dim=1),),
    "conv1d": (on((1, 2, 4), (1, 2, 2), (1,), stride=[1], padding=[1], dilation=[1], groups=1),),
    "conv2d": (on((1, 2, 3, 3), (2, 2, 2, 2), (2,), stride=[1, 2], padding=[1, 0], dilation=[1, 1], groups=1),
               on((1, 2, 2, 3), (2, 2, 1, 2), None, stride=[1, 1], padding=[0, 0], dilation=[1, 1], groups=1)),
    "conv3d": (on((1, 1, 2, 2, 2), (1, 1, 2, 1, 2), (1,), stride=[1, 1, 1], padding=[0, 0, 0], dilation=[1, 1, 1], groups=1),),
    "diagonal": (on((2, 3), offset=0), on((3, 3), offset=1)),
    "select_backward": (on((2,), shape=(2, 3), dim=1, index=1), on((2,), shape=(2, 1), dim=1, index=0)),
    "slice_backward": (on((2, 2), shape=(2, 5), dim=1, start=1, end=4, step=2), on((2, 1), shape=(3, 1), dim=0, start=1, end=3, step=1)),
    "diagonal_backward": (on((2,), shape=(2, 3)), on((2, 1), shape=(1, 2, 2))),
    "place": (on((2,), shape=(2, 3), index=(slice(None), 1)), on((2,), shape=(2, 1), index=(slice(None), 0))),
    "place_add": (on((3, 2), (3,), values=I0, shape=(3, 2), index=("#",), needs=(0,)),),
    **each("conj conj_physical resolve_conj resolve_neg real", on((2,))),
    # ----- fused kernels, by the formulas of the operator table; their rules serve second derivatives -----
    **each("tanh_backward sigmoid_backward silu_backward mish_backward", on((2,), (2,))),
    "threshold_backward": (on((2,), (2,)),), "leaky_relu_backward": (on((2,), (2,)),), "elu_backward": (on((1,), (1,)),),
    "softplus_backward": (on((1,), (1,), beta=2),), "gelu_backward": (on((1,), (1,)),),
    **each("softmax_backward log_softmax_backward", on((2, 3), (2, 3), dim=1, dtype=torch.float64)),
    "hardswish_backward": (on((1,), (1,)),), "logit_backward": (on((1,), (1,), eps=0.25),),
    "glu_backward": (on((2, 1), (2, 2), dim=1), on((1, 1), (2, 1), dim=0), on((2, 1, 1), (2, 2, 1), dim=1), on((1, 2, 2), (1, 2, 4), dim=2), on((1, 2, 2), (2, 2, 2), dim=0), on((2, 2), (2, 4), dim=1)),
    "mse_loss_backward": (on((), (2,), (2,)),),
    "smooth_l1_loss_backward": (on((), (1,), (1,), beta=2.0),), "huber_loss_backward": (on((), (1,), (1,), delta=2.0),),
    "soft_margin_loss_backward": (on((), (2,), (2,), needs=(0, 1)),),
    "binary_cross_entropy_backward": (on((), (1,), (1,), None),),
}


FURTHER: dict[str, tuple[Case, ...]] = {
    **each("add sub rsub", on((2,), (2,), alpha=-2), on((2,), (2,), alpha=0.5), on((), (2,)), on((1, 2), (2, 1)), on((2, 2), (2, 2)),
           on((3, 3), (3, 3))),
    **each("mul div", on((2,), (2,)), on((), (2,)), on((2, 2), (2, 2)), on((1, 2), (2, 1)), on((1, 1, 2), (2, 1, 1)), on((3, 3), (3, 3)), on((1, 2, 2), (2, 2))),
    **each("addcmul addcdiv", on((2,), (2,), (2,)), on((2,), (2,), (2,), value=-0.5), on((2, 1), (1, 2), (2,)), on((2, 2), (1, 2), (2, 1))),
    "lerp": (on((2, 1), (2,), (2,)), on((), (2,), (2,))),
    **each("clamp_min clamp_max", on((2,), (2,)), on((1, 2), (2,)), on((2, 2), (2, 2)), on((2, 2), (2, 1))),
    **each("maximum minimum", on((2,), (2,)), on((1, 1, 2), (2,)), on((2, 2), (2, 2)), on((2, 2), (2, 1))),
    "leaky_relu": (on((2,), negative_slope=0.5), on((2,), negative_slope=-0.25)),
    **each("elu elu_", on((1,), alpha=0.5), on((1,), scale=2.0), on((1,), input_scale=2.0)),
    **each("celu celu_", on((1,)), on((1,), alpha=0.5)),
    "softplus": (on((1,)), on((1,), beta=3, threshold=10)),
    "threshold": (on((1,), threshold=1, value=2), on((1,), threshold=-1, value=0.5)),
    "hardtanh": (on((1,), min_val=-2.0, max_val=0.5),), "softshrink": (on((1,), lambd=0.25), on((1,), lambd=2.0)),
    "clamp": (on((1,), None, None, max=0), on((1,), None, None, min=-1.0), on((2,), (2,), None), on((2,), None, (2,), min=None),
              on((1, 1), None, (2, 1), min=None), on((2, 2), (2, 2), None), on((2, 2), None, (2, 2), min=None), on((2, 2), (2, 1), None)),
    "polygamma": (on((1,), n=2), on((1,), n=3)),
    "where": (on((1, 2), (2,), (), values={0: np.array([[True, False]])}, needs=(1, 2)),
              *[on((3, 1), *shapes, values={0: np.array([[True], [True], [False]])}, needs=(1, 2))
                for shapes in (((3, 1), (1,)), ((1,), (3, 1)))],
              on((2, 2), (2, 2), (2, 2), values={0: np.array([[True, False], [True, True]])}, needs=(1, 2))),
    "where_method": (on((2, 1), (2, 1), (2, 1), values={1: np.array([[True], [False]])}, needs=(0, 2)), on((2, 2), (2, 2), (2, 2), values={1: np.array([[True, False], [True, True]])}, needs=(0, 2)),),
    "take": (on((2, 2), (2, 2), values={1: np.array([[2, 3], [2, 0]])}, needs=(0,)),),
    "index": (on((2, 2), (2,), values={1: np.array([1, 1])}, index=("#",), needs=(0,)),),
    "conv2d": (on((2, 1, 1, 3), (1, 1, 1, 2), None, stride=[1, 2], padding=[0, 1], dilation=[1, 1], groups=1),),
    "masked_fill": (on((2,), (2,), None, values={1: np.array([False, True])}, needs=(0,), value=3),
                    on((2, 1), (2, 1), (), values={1: np.array([[False], [True]])}, needs=(0, 2)),
                    on((3, 2), (3, 2), (), values={1: np.arange(6).reshape(3, 2) % 2 == 0}, needs=(0, 2)),
                    on((5,), (5,), (), values={1: np.arange(5) % 2 == 0}, needs=(0, 2)),
                    on((2, 2), (2, 2), (), values={1: np.array([[True, False], [True, True]])}, needs=(0, 2))),
    **each("sum mean", on(()), on((1,)), on((2,), dim=0), on((2, 1, 3), dim=1), on((2, 2, 1, 2), dim=(1, 3)),
           on((2, 3), dim=0, keepdim=True), on((3, 2), dim=(0, 1)), on((2, 3), keepdim=True)),
    "sum_to_size": (on((1, 2, 3), size=(2, 1)), on((2,), size=(1,)), on((2, 3), size=(2, 3)), on((2, 2, 2), size=(1, 1, 1)), on((2, 2), size=(2, 1)),
                    on((2,), size=(2,)), on((2, 2, 2), size=(2, 1, 2)), on((2, 2), size=(2, 2))),
    "logsumexp": (on((3,), dim=0), on((1, 2), dim=1), on((2, 1, 2), dim=(0, 2))),
    **each("var std", on((2, 2), dim=0), on((4,), correction=2), on((2, 2), dim=(0, 1)), on((2, 2), correction=0)),
    "cumsum": (on((3,), dim=0), on((3, 2), dim=0), on((1, 4), dim=1)),
    "cumprod": (on((3,), dim=0, positive=True), on((3, 2), dim=0, positive=True)), "prod": (on((2, 2), dim=1, positive=True), on((4,), positive=True)),
    "vector_norm": (on((2, 2), dim=1, positive=True), on((2,), positive=True)),
    **each("softmax log_softmax", on((3,), dim=0), on((1, 2), dim=1), on((2, 2, 1), dim=1)),
    "glu": (on((2, 1), dim=0), on((4,), dim=0)),
    "mse_loss": (on((3,), (3,), reduction=1), on((1,), (1,), reduction=1), on((2, 2), (2, 2), reduction=1), on((), (), reduction=1)),
    "smooth_l1_loss": (on((1,), (1,), reduction=1), on((1,), (1,), reduction=2, beta=0.5), on((1,), (1,), reduction=0)),
    "huber_loss": (on((1,), (1,), reduction=1), on((1,), (1,), reduction=2, delta=0.5), on((1,), (1,), reduction=0)),
    "soft_margin_loss": (on((2,), (2,), needs=(0,), reduction=2), on((1,), (1,), needs=(0,), reduction=0)),
    "binary_cross_entropy_with_logits": (on((1,), (1,), None, None, reduction=2), on((2,), (2,), None, None, reduction=0)),
    "layer_norm": (on((2, 2), None, None, normalized_shape=[2]), on((1, 2), (2,), None, normalized_shape=[2], eps=0.5),
                   on((1, 2, 1), (2, 1), (2, 1), normalized_shape=[2, 1]), on((2, 2, 1), None, None, normalized_shape=[2, 1]), on((3,), (3,), (3,), normalized_shape=[3])),
    "nll_loss": (on((1, 3), (1,), None, values={1: np.array([2])}, needs=(0,), reduction=0), *[on((2, 2), (2,), None, values={1: np.array(values)}, needs=(0,), ignore_index=i, reduction=1) for i in (-100, -2) for values in ([1, 1], [1, 0])], on((1, 3), (1,), None, values={1: np.array([2])}, needs=(0,), reduction=1)),
    "matmul": (on((2, 2), (2, 2)), on((1, 1), (1, 1)), on((2, 1), (1, 2)), on((1,), (1, 2)), on((2,), (2, 2, 1)), on((2, 2, 1), (1,)),
               on((1, 2, 1, 2), (2, 2, 1)), on((2, 1, 1), (1, 1, 2)), on((2, 2, 2), (2, 2)), on((2, 1, 2), (2, 2, 2)),
               on((2, 2), (2, 1)), on((2, 1, 2, 2), (2, 2))),
    "mm": (on((2, 2), (2, 2)), on((1, 3), (3, 1)), on((2, 2), (2, 1)), on((1, 2), (2, 2))), "bmm": (on((1, 2, 2), (1, 2, 2)), on((3, 1, 2), (3, 2, 1))),
    "mv": (on((2, 2), (2,)), on((1, 4), (4,)), on((3, 3), (3,))), **each("dot vdot", on((2,), (2,)), on((1,), (1,))), "outer": (on((2,), (2,)), on((1,), (3,))),
    "linear": (on((2,), (3, 2), (3,)), on((1, 2, 2), (2, 2), (2,)), on((2, 1), (1, 1), None), on((2, 2), (2,), None),
               on((2, 2, 2), (3, 2), None)),
    "addmm": (on((2,), (2, 1), (1, 2), alpha=-1), on((2, 2), (2, 2), (2, 2)), on((2, 2), (2, 2), (2, 2), beta=0.5), on((2, 1), (2, 2), (2, 1)),
              on((1, 2), (1, 2), (2, 2)), on((3, 3), (3, 1), (1, 3)), on((2, 3), (2, 2), (2, 3)), on((3, 2), (3, 2), (2, 2))),
    "baddbmm": (on((1, 2, 2), (1, 2, 2), (1, 2, 2)), on((1, 2, 2), (1, 2, 2), (1, 2, 2), alpha=-1), on((2, 1, 1), (2, 1, 2), (2, 2, 1), beta=-2)),
    "addbmm": (on((2, 2), (1, 2, 1), (1, 1, 2)), on((1, 1), (2, 1, 2), (2, 2, 1), alpha=3), on((3, 3), (1, 3, 1), (1, 1, 3), alpha=-1),
               on((2, 3), (1, 2, 2), (1, 2, 3)), on((3, 2), (1, 3, 2), (1, 2, 2)),
               on((2, 1), (1, 2, 2), (1, 2, 1)), on((3, 1), (2, 3, 1), (2, 1, 1)), on((1, 2), (1, 1, 2), (1, 2, 2), alpha=2)),
    "addmv": (on((2,), (2, 2), (2,)), on((1,), (1, 3), (3,), beta=-2), on((3,), (3, 3), (3,), alpha=-2, beta=2)), "addr": (on((3, 3), (3,), (3,)), on((2, 2), (2,), (2,)), on((1, 2), (1,), (2,), alpha=-3)),
    "trace": (on((3, 3)), on((1, 1)), on((2, 3))), **each("reshape view", on((4,), shape=(2, 2)), on((2,), shape=(2, 1)), on((2, 2), shape=(4,)), on((1, 2), shape=(2,)), on((1,), shape=())),
    **each("ravel", on((4,)), on((1, 2, 2)), on((3, 1)), on((3, 3))), "flatten": (on((2, 1, 2), start_dim=0, end_dim=1), on((1, 2, 1, 2), start_dim=-2), on((2, 2, 2, 1), start_dim=1, end_dim=2),
                on((1, 1, 2, 2), start_dim=0, end_dim=1)),
    "squeeze": (on((1, 2, 1)), on((2, 2), dim=(0,)), on((1,), dim=(0,))), "permute": (on((2, 2), dims=(1, 0)), on((2, 1, 2, 1), dims=(3, 1, -2, 0)), on((3, 3), dims=(1, 0)), on((1, 2, 2), dims=(1, 2, 0)),
                on((1, 1, 2, 2), dims=(1, 0, 3, 2))),
    **each("mT mH", on((2, 2)), on((2, 1, 3)), on((1, 2, 1, 2)), on((2, 1, 2, 1))), **each("T H t", on((2, 2)), on((1, 3)), on((3, 1))),
    **each("expand broadcast_to", on((), size=(2,)), on((1, 2), size=(3, 2)), on((2, 1, 1), size=(2, 1, 2)), on((2, 1, 2), size=(2, 3, 2)), on((1,), size=(2, 2, 1, 1)), on((2, 2), size=(3, 2, 2)),
           on((1, 2, 2), size=(1, 2, 2)), on((2, 2), size=(2, 2)), on((2, 1, 1, 1), size=(2, 1, 2, 1)), on((1, 2, 2), size=(1, 1, 2, 2))),
    **each("tril triu", on((2, 2), diagonal=-1), on((1, 3)), on((2, 2, 2)), on((4, 2), diagonal=-2), on((1, 2, 2)), on((3, 3), diagonal=-2)),
    "transpose": (*[on((n, n), dim0=0, dim1=1) for n in (2, 3)], on((1, 2, 2), dim0=1, dim1=2), on((1, 1, 2, 2), dim0=-1, dim1=-2)),
    "flip": (on((3,), dims=(0,)), on((2, 2), dims=(0, 1)), on((2, 1, 2), dims=(2,))), "rot90": (on((2, 2), k=2, dims=(0, 1)), on((2, 2), k=3, dims=(0, 1)), on((2, 1, 2), k=-1, dims=(0, 2)), on((3, 3), k=1, dims=(0, 1)), on((1, 2, 2), k=1, dims=(1, 2))),
    "roll": (on((4,), shifts=2, dims=(0,)), on((2, 3), shifts=-1, dims=(0,)), on((2, 2), shifts=1)),
    **each("repeat", on((2,), repeats=(2, 1)), on((1, 2), repeats=(1, 3)), on((2,), repeats=(4,)), on((2, 2), repeats=(3, 1, 1)), on((2, 2), repeats=(1, 1, 1))),
    "tile": (on((2, 2), dims=(3, 1, 1)), on((2, 2), dims=(1, 1, 1)), on((2,), dims=(3,)), on((2, 2), dims=(1, 2))),
    "pad": (on((2,), pad=(2, 0), mode="constant"), on((2, 2), pad=(0, 1, 1, 0), mode="constant"), on((3,), pad=(-1, 0), mode="constant")), "constant_pad_nd": (on((2, 1), pad=(0, 0, 1, 0)), on((1, 2, 2), pad=(1, 0))),
    "group_norm": (on((2, 2, 1), None, None, num_groups=1), on((2, 2, 1), (2,), (2,), num_groups=1)),
    "cat": (on((1,), (1,), (2,), dim=0), on((2, 2), (2, 2), dim=1)), "stack": (on((2,), (2,), dim=0), on((), (), (), dim=0)),
    "narrow": (on((3,), dim=0, start=1, length=1), on((3,), dim=0, start=0, length=2), on((2, 2), dim=0, start=0, length=2)), "select": (on((2,), dim=0, index=1), on((2, 2), dim=0, index=-1)),
    "slice": (on((4,), index=(slice(None, None, 2),)), on((2, 2), index=(slice(None), 0)), on((1, 3), index=(0, slice(1, None))), on((2, 3), index=(slice(None), slice(1, 2)))),
    "index_select": (on((2, 2), (2,), values={1: np.array([1, 1])}, dim=0, needs=(0,)), on((2,), (1,), values={1: np.array([1])}, dim=0, needs=(0,)), on((1, 3), (2,), values={1: np.array([2, 2])}, dim=1, needs=(0,))),
    "gather": (on((2, 2), (2, 2), values={1: np.array([[1, 0], [1, 1]])}, dim=0, needs=(0,)), on((2,), (4,), values={1: np.array([1, 0, 1, 1])}, dim=0, needs=(0,)), on((2, 2), (2, 1), values={1: np.array([[1], [0]])}, dim=0, needs=(0,)), on((1, 3), (1, 2), values={1: np.array([[2, 2]])}, dim=1, needs=(0,))),
    "index_add": (on((2, 1), (2,), (2, 1), values={1: np.array([1, 0])}, dim=0, needs=(0, 2)), on((2, 2), (1,), (2, 1), values={1: np.array([1])}, dim=1, needs=(0, 2)), on((3,), (2,), (2,), values={1: np.array([0, 2])}, dim=0, alpha=-2, needs=(0, 2))),
    "mse_loss_backward": (on((), (2, 2), (2, 2)), on((), (1,), (1,)), on((), (2, 1), (2, 1)), on((), (1, 2, 2), (1, 2, 2)), on((1, 2, 2), (1, 2, 2), (1, 2, 2), reduction=0), on((2, 2), (2, 2), (2, 2), reduction=0), on((2, 1), (2, 1), (2, 1), reduction=0)),
    "binary_cross_entropy_backward": (on((), (2, 1), (2, 1), None), on((2,), (2,), (2,), None, reduction=0)),
    "soft_margin_loss_backward": (on((), (2, 1), (2, 1), needs=(0, 1)), on((), (1, 2, 2), (1, 2, 2), needs=(0, 1)),
                                  on((2, 1), (2, 1), (2, 1), needs=(0, 1), reduction=0), on((1, 2, 2), (1, 2, 2), (1, 2, 2), needs=(0, 1), reduction=0)),
    "smooth_l1_loss_backward": (on((2, 1), (2, 1), (2, 1), needs=(0,), reduction=0, beta=2.0),),
    "huber_loss_backward": (on((2, 1), (2, 1), (2, 1), needs=(0,), reduction=0, delta=2.0),),
    "conv3d": tuple([on(*shapes, (2,), stride=[1, 1, 1], padding=[0, 0, 0], dilation=[1, 1, 1], groups=1) for shapes in (
        ((1, 1, 1, 1, 2), (2, 1, 1, 1, 1)), ((2, 1, 1, 2, 3), (2, 1, 1, 2, 2)))]),
    "scatter_add": (on((2, 1), (2, 1), (2, 1), values={1: np.array([[1], [0]])}, dim=0, needs=(0, 2)), on((1, 3), (1, 2), (1, 2), values={1: np.array([[2, 2]])}, dim=1, needs=(0, 2)), on((2,), (2,), (3,), values={1: np.array([1, 1])}, dim=0, needs=(0, 2))),
    "conv1d": (on((1, 1, 5), (1, 1, 2), None, stride=[2], padding=[0], dilation=[2], groups=1), on((2, 1, 2), (2, 1, 1), (2,), stride=[1], padding=[1], dilation=[1], groups=1),
               *[on(*shapes, stride=[1], padding=[0], dilation=[1], groups=1) for shapes in (
                   ((2, 1, 5), (2, 1, 1), (2,)), ((2, 1, 2), (2, 1, 2), (2,)), ((1, 2, 3), (1, 2, 2), None))]),
    "diagonal": (on((2, 2), offset=-1), on((2, 1, 2), offset=0, dim1=0, dim2=2)),
    **each("conj conj_physical resolve_conj resolve_neg real", on(()), on((2, 2))),
}
"""Instances at which rules might branch: other values of attributes, coinciding, even and single sizes, other ranks."""
NEGATIVE_TOO: dict[str, tuple[int, ...]] = {
    **dict.fromkeys("reciprocal sinc prod cumprod vector_norm".split(), (0,)), "xlogy": (0,), "xlog1py": (0,), "hypot": (0, 1),
    "logaddexp": (0, 1), "atan2": (1,),
}
"""Operands that written instances take for positive, though the operator is defined below 0, too."""
