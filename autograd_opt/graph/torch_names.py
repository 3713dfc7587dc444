"""The names that torch gives to the backward nodes of operators: what `grad_fn.name()` says.

Most are the operator's in camel case with a number, the place of the overload among those that torch
differentiates (`derivatives.yaml`).  Where torch makes several nodes of one call, it is the name of the last.
`shown_operands` says which of a node's operands torch shows as `next_functions`: those that its derivatives are of.
`tests/inspection/test_names.py` compares them with torch's over its database of operators.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from autograd_opt.abi import torch_private as private
from autograd_opt.graph.node import OVERWRITTEN

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
real:SelectBackward0 imag:SelectBackward0 copy:torch::autograd::CopyBackwards view_place:torch::autograd::CopySlices
view_region:AsStridedBackward0 view_cut:AsStridedBackward0
square:PowBackward0 take_along_dim:GatherBackward0 tile:RepeatBackward0 sum_to_size:SumBackward1
vector_norm:LinalgVectorNormBackward0
leaky_relu_:LeakyReluBackward1 elu_:EluBackward1 celu_:CeluBackward1 selu_:EluBackward1
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
    return numbered(node.op.name, min(len(dims), 2) if isinstance(dims, tuple) else int(dims is not None))


def raised(node: Any) -> str:
    base, exponent = node.operands
    return "PowBackward0" if exponent is None else "PowBackward1" if base is not None else "PowBackward2"


def multiplied(node: Any) -> str:
    x, y = (len(n.shape) for n in node.operands)
    if x <= 2 and y <= 2:
        return "SqueezeBackward4" if x < y else f"{'Dot' if x == 1 else 'Mv' if y == 1 else 'Mm'}Backward0"
    return "UnsafeViewBackward0"


def reshaped(node: Any) -> str:
    """A view, or a copy's, where the operand's layout has none of that shape; while the result is there to tell."""
    t = node.tensor
    if t is None:
        return "ViewBackward0"
    with private.DisableTorchFunction():
        return "UnsafeViewBackward0" if not private.is_view(t) else \
            "ViewBackward0" if t.is_contiguous() else "ReshapeAliasBackward0"


def affine(node: Any) -> str:
    if len(node.operands[1].shape) == 1:
        return {1: "DotBackward0", 2: "MvBackward0"}.get(len(node.operands[0].shape), "UnsafeViewBackward0")
    x, _, bias = node.operands
    if len(x.shape) == 2:
        return "MmBackward0" if bias is None else "AddmmBackward0"
    if bias is None:
        return "SqueezeBackward4" if len(x.shape) == 1 else "UnsafeViewBackward0"
    return "ViewBackward0" if contiguous(x) and contiguous(bias) else "AddBackward0"


def contiguous(operand: Any) -> bool:
    """False for an operand whose tensor is there and says so."""
    t = operand.tensor
    with private.DisableTorchFunction():
        return t is None or t.layout is not torch.strided or t.is_contiguous()


def convolved(node: Any) -> str:
    """Of one sample without a batch, torch squeezes what it has computed."""
    x, weight = node.operands[:2]
    return "ConvolutionBackward0" if len(x.shape) == len(weight.shape) else "SqueezeBackward1"


def contracted(node: Any) -> str:
    """One operand is permuted and summed; several are multiplied, and the letters that they were summed over go."""
    left, _, out = node.attributes["equation"].partition("->")
    summed = bool(set(left) - {","} - set(out))
    if "," not in left:
        return "SumBackward1" if summed else "PermuteBackward0"
    return "ViewBackward0" if summed else "MulBackward0"


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


def assigned(node: Any) -> str:
    """Elements that are gathered are put in the tensor itself, others in a view of it."""
    index = node.attributes["index"]
    gathers = all(e is Ellipsis or e == slice(None) if e is Ellipsis or isinstance(e, slice) else
                  isinstance(e, list) or (isinstance(e, torch.Tensor) and e.dim() > 0)
                  for e in (index if isinstance(index, tuple) else (index,)))
    return "IndexPutBackward0" if gathers else "torch::autograd::CopySlices"


def either(name: str) -> Callable[[Any], str]:
    """Overload 1 has a number first, 2 a number second."""
    return lambda node: f"{name}Backward{1 if node.operands[0] is None else 2 if node.operands[1] is None else 0}"


def filled(node: Any) -> str:
    """The overloads in place, with a number and with a tensor, come after the others."""
    in_place = 2 if in_place_of(node) else 0
    return f"FillBackward{in_place + (node.operands[1] is not None)}"


def in_place_apart(node: Any) -> str:
    """The overload in place comes after the other."""
    return numbered(node.op.name, int(in_place_of(node)))


def in_place_of(node: Any) -> bool:
    """Was the first operand written?  One that is gone was: nobody else had it."""
    first = node.operands[0]
    return first is None or first.flags & OVERWRITTEN != 0 or (node.tensor is not None and first.tensor is node.tensor)


def overwritten(node: Any) -> str:
    """The call that has filled the memory."""
    call = node.attributes.get("call")
    if call is None:
        return "FillBackward3"
    return numbered(call.rstrip("_"), 2 if call in ("bernoulli_", "random_") else 0)


def of_torch(node: Any) -> str:
    return str(node.attributes.get("torch") or numbered(str(node.attributes.get("call", "opaque")), 0))


BY_OPERANDS: dict[str, Callable[[Any], str]] = {
    **dict.fromkeys(["fmod", "remainder", "clamp_min", "clamp_max"], operand(1)),
    "clamp": lambda node: numbered("clamp", int(node.operands[1] is None and node.operands[2] is None)),
    **dict.fromkeys(["masked_fill", "lerp", "index_fill"], operand(2)),
    **dict.fromkeys(["rsub", "copysign"], number(1)), "scatter": number(2), "fill": filled,
    "threshold": in_place_apart,
    "xlogy": either("Xlogy"), "xlog1py": either("SpecialXlog1Py"),
    "pow": raised, "matmul": multiplied, "linear": affine,
    **{f"conv{kind}{n}d": convolved for kind in ("", "_transpose") for n in (1, 2, 3)},
}
"""Where the name depends on what the operands are."""
BY_CALL: dict[str, Callable[[Any], str]] = {
    **BY_OPERANDS,
    **dict.fromkeys(["sum", "mean", "prod"], along), **dict.fromkeys(["squeeze", "squeeze_copy"], squeezed),
    "round": given("decimals", 0), "sort": given("stable", False), "slice": sliced, "overwrite": overwritten,
    "setitem": assigned,
    **dict.fromkeys(["reshape", "reshape_as", "flatten"], reshaped),
    "einsum": contracted, "opaque": of_torch, "opaque_multi": of_torch,
}
"""Where it depends on the call."""


NUMBERS_APART = frozenset([
    "rsub", "copysign", "pow", "fmod", "remainder", "clamp_min", "clamp_max", "masked_fill", "lerp", "index_fill",
    "scatter", "fill", "xlogy", "xlog1py", "linear",
])
"""Operators that have an overload for a number (or for no bias) instead of making a tensor of it."""
DIFFERENTIATED = {"index": 1, "index_put": 2, "batch_norm_train": 3, "batch_norm_eval": 3}
"""How many operands, the first ones, a joint rule gives cotangents to, where that is not all."""
SEPARATE = frozenset(["tensor_split", "hsplit", "vsplit", "dsplit"])
"""Calls with several outputs for each of which torch makes a node."""


def shown_operands(node: Any) -> tuple[Any, ...]:
    """The operands that torch has an edge to: those that the derivatives of this overload are of."""
    op, operands = node.op, node.operands
    if op.name == "view_place":                         # what the write to the view has read besides the view
        base, part = operands or (None, None)
        return (base, *(shown_operands(part)[1:] if part is not None else ()))
    if op.name in DIFFERENTIATED:
        return tuple(operands[:DIFFERENTIATED[op.name]])
    if op.joint is None and op.differentiable and len(operands) == len(op.vjps):
        operands = tuple(n for n, rule in zip(operands, op.vjps, strict=True) if rule is not None)
    if op.name in NUMBERS_APART or (op.name == "clamp" and operands[1:] == (None, None)):
        return tuple(n for n in operands if n is not None)
    made = op.name == "dropout" or (op.name == "overwrite" and not node.attributes)      # the mask, or the number
    return (*operands, None) if made else tuple(operands)


def output_number(node: Any) -> int:
    """The number that torch gives to this output of a call with several."""
    source = node.operands[0] if node.operands else None
    if not node.requires_grad or (source is not None and source.op.name in SEPARATE):
        return 0
    number = node.raw_attributes["i"]
    numbers = None if source is None else (source.raw_attributes or {}).get("numbers")
    return int(number if numbers is None else numbers[number])

NAMED_EARLY = (*BY_OPERANDS, "output", "written")
"""Operators whose nodes are named before their operands are released."""
