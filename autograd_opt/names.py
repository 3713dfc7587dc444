"""The names that torch gives to the backward nodes of operators: what `grad_fn.name()` says.

Most are the operator's in camel case with a number, the place of the overload among those that torch
differentiates (`derivatives.yaml`).  Where torch makes several nodes of one call, it is the name of the last.
`tests/seeing/test_names.py` compares them with torch's over its database of operators.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from autograd_opt.ops.table import OPS

RENAMED = dict(pair.split(":", 1) for pair in """
H:TransposeBackward0 mH:TransposeBackward0 mT:TransposeBackward0 T:PermuteBackward0 movedim:PermuteBackward0
attention:UnsafeViewBackward0 attention_dropout:UnsafeViewBackward0
flash_attention:ScaledDotProductFlashAttentionForCpuBackward0
batch_norm_eval:NativeBatchNormBackward0 batch_norm_train:NativeBatchNormBackward0
group_norm:NativeGroupNormBackward0 layer_norm:NativeLayerNormBackward0 rms_norm:MulBackward0
broadcast_to:ExpandBackward0 expand_as:ExpandBackward0 cast:ToCopyBackward0 to_bfloat16:ToCopyBackward0
to_double:ToCopyBackward0 to_float:ToCopyBackward0 to_half:ToCopyBackward0
chunk:SplitBackward0 unsafe_chunk:UnsafeSplitBackward0 tensor_split:SliceBackward0 hsplit:SliceBackward0
vsplit:SliceBackward0 dsplit:SliceBackward0 narrow:SliceBackward0
div_rounded:DivBackward2 dropout:MulBackward0 outer:MulBackward0 float_power:PowBackward1
entr:SpecialEntrBackward0 erfcx:SpecialErfcxBackward0 i0e:SpecialI0EBackward0 i1:SpecialI1Backward0
i1e:SpecialI1EBackward0 log_ndtr:SpecialLogNdtrBackward0 ndtri:SpecialNdtriBackward0 ndtr:MulBackward1
xlog1py:SpecialXlog1PyBackward0 fft1:FftR2CBackward0 fft2:FftC2CBackward0 fftn:FftC2CBackward0 ifft2:FftC2CBackward0
ifftn:FftC2CBackward0 irfft1:FftC2RBackward0 irfft2:FftC2RBackward0 irfftn:FftC2RBackward0 rfft1:FftR2CBackward0
rfft2:FftR2CBackward0 rfftn:FftR2CBackward0 flatten:ViewBackward0 unflatten:ViewBackward0 ravel:ViewBackward0
reshape:ViewBackward0 reshape_as:ViewBackward0 view_as:ViewBackward0 fliplr:FlipBackward0 flipud:FlipBackward0
linalg_cholesky:LinalgCholeskyExBackward0 linalg_diagonal:DiagonalBackward0 linalg_inv:LinalgInvExBackward0
linalg_solve:LinalgSolveExBackward0 logdet:WhereBackward0 max_all:MaxBackward1 max_dim:MaxBackward0
min_all:MinBackward1 min_dim:MinBackward0 median_all:MedianBackward0 median_dim:MedianBackward1
nanmedian_all:NanmedianBackward0 nanmedian_dim:NanmedianBackward1 max_pool2d:MaxPool2DWithIndicesBackward0
max_pool3d:MaxPool3DWithIndicesBackward0 pad:ConstantPadNdBackward0 relu6:HardtanhBackward0 selu:EluBackward0
softmax_backward:SoftmaxBackwardDataBackward0 log_softmax_backward:LogSoftmaxBackwardDataBackward0
square:PowBackward0 take_along_dim:GatherBackward0 tile:RepeatBackward0 sum_to_size:SumBackward1
vector_norm:LinalgVectorNormBackward0 einsum:ViewBackward0 setitem:torch::autograd::CopySlices
index_copy:IndexCopyBackward0 narrow_copy:NarrowCopyBackward0 repeat_interleave:ViewBackward0
repeat_interleave_counts:IndexSelectBackward0 instance_norm:ViewBackward0
""".split())
"""Operator of the table -> torch's node, where that is not its camel case."""


def torch_name(node: Any) -> str:
    """The name of this node, a recorded operator's, as torch has it."""
    op = node.op.name
    rule = BY_CALL.get(op)
    if rule is None or (node.op.named and not node.operands):       # released before anybody could ask
        return RENAMED.get(op) or numbered(op, 0)
    return rule(node)


def numbered(op: str, overload: int) -> str:
    """The operator's name in camel case, with its number."""
    if op.endswith("_copy"):
        return f"{camel(op.removesuffix('_copy'))}Backward{overload}_copy"
    return f"{camel(op)}Backward{overload}"


def camel(op: str) -> str:
    return op.title().replace("_", "")


def along(node: Any) -> str:
    """Overload 0 takes everything, 1 dimensions."""
    return numbered(node.op.name, int(node.attributes.get("dim") is not None))


def operand(place: int) -> Callable[[Any], str]:
    """Overload 0 has a number at this place, 1 a tensor."""
    return lambda node: numbered(node.op.name, int(len(node.operands) > place and node.operands[place] is not None))


def number(place: int) -> Callable[[Any], str]:
    """Overload 0 has a tensor at this place, 1 a number."""
    return lambda node: numbered(node.op.name, int(len(node.operands) <= place or node.operands[place] is None))


def given(name: str, default: Any = None) -> Callable[[Any], str]:
    """Overload 1 has this argument."""
    return lambda node: numbered(node.op.name, int(node.attributes.get(name, default) not in (None, default)))


def squeezed(node: Any) -> str:
    dims = node.attributes.get("dim")
    count = len(dims) if isinstance(dims, tuple) else int(dims is not None)
    return numbered(node.op.name, min(count, 2))


def raised(node: Any) -> str:
    base, exponent = node.operands
    return "PowBackward0" if exponent is None else "PowBackward1" if base is not None else "PowBackward2"


def multiplied(node: Any) -> str:
    x, y = (len(n.shape) for n in node.operands)
    if x <= 2 and y <= 2:
        return "SqueezeBackward4" if x < y else f"{'Dot' if x == 1 else 'Mv' if y == 1 else 'Mm'}Backward0"
    return "UnsafeViewBackward0"


def affine(node: Any) -> str:
    if len(node.operands[0].shape) == 2:
        return "MmBackward0" if node.operands[2] is None else "AddmmBackward0"
    return "UnsafeViewBackward0" if node.operands[2] is None else "ViewBackward0"


def convolved(node: Any) -> str:
    """Of one sample without a batch, torch squeezes what it has computed."""
    x, weight = node.operands[:2]
    return "ConvolutionBackward0" if len(x.shape) == len(weight.shape) else "SqueezeBackward1"


def sliced(node: Any) -> str:
    """The last entry of the index that makes a view."""
    index = node.attributes["index"]
    for entry in reversed(index):
        if isinstance(entry, slice):
            if entry != slice(None):
                return "SliceBackward0"
        elif entry is None:
            return "UnsqueezeBackward0"
        elif entry is not Ellipsis:
            return "SelectBackward0"
    return "AliasBackward0"


def of_torch(node: Any) -> str:
    return str(node.attributes.get("torch") or numbered(str(node.attributes.get("call", "opaque")), 0))


BY_OPERANDS: dict[str, Callable[[Any], str]] = {
    **dict.fromkeys(["fmod", "remainder", "clamp_min", "clamp_max"], operand(1)),
    "clamp": lambda node: numbered("clamp", int(node.operands[1] is None and node.operands[2] is None)),
    **dict.fromkeys(["masked_fill", "lerp", "index_fill"], operand(2)),
    **dict.fromkeys(["rsub", "copysign"], number(1)), "pow": raised, "matmul": multiplied, "linear": affine,
    **{f"conv{kind}{n}d": convolved for kind in ("", "_transpose") for n in (1, 2, 3)},
}
"""Where the name depends on what the operands are."""
BY_CALL: dict[str, Callable[[Any], str]] = {
    **BY_OPERANDS,
    **dict.fromkeys(["sum", "mean", "prod"], along), **dict.fromkeys(["squeeze", "squeeze_copy"], squeezed),
    "round": given("decimals", 0), "sort": given("stable", False), "slice": sliced,
    "opaque": of_torch, "opaque_multi": of_torch,
}
"""Where it depends on the call."""


def install() -> None:
    """Tell the operators whose nodes are named before their operands are released; done once at import."""
    for name in (*BY_OPERANDS, "output", "written"):
        OPS[name].named = True
