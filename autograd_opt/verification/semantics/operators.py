# ruff: noqa: E501 (an operator is one line)
"""What operators mean: one line each, over any number domain.

A line computes on arrays whose elements belong to a `Domain`: sympy expressions, residues
modulo a prime, intervals.  numpy moves elements about; the domain adds, multiplies and
applies functions.  A kink is `D.branch(d, above, below, share)`: `above` where d > 0,
`below` where d < 0, and at d = 0 both with the weights `share`, 1 - share, which is how
the derivative there is stated (relu 0, clamp 1, maximum 1/2, as torch has them).

To give an operator a meaning, add one line to `MEANING`.  Fused kernels need none when
the operator table states their `meaning` in torch's own operations.
"""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np

from autograd_opt.ops.helpers import TIES_SHARE
from autograd_opt.verification.semantics.index_ops import (
    accumulate,
    along,
    cells,
    convolution,
    convolution_back,
    diagonal_back,
    embedded,
    expanded,
    filled,
    index_added,
    index_copied,
    integer,
    movement,
    nll,
    nll_back,
    nll_kernel_back,
    overwritten,
    padded,
    place,
    put,
    scattered,
    squeezed,
    sum_to,
    triangle,
)
from autograd_opt.verification.semantics.numeric_ops import (
    HALF,
    Meaning,
    axes_of,
    bitwise,
    cast,
    clamp,
    compare,
    einsum,
    elu,
    extreme,
    group_norm,
    group_norm_back,
    huber,
    layer_norm,
    layer_norm_back,
    linear,
    logical,
    logsumexp,
    matmul_affine,
    mean,
    packed,
    product,
    reduce_loss,
    refuse,
    scan,
    sigmoid,
    softmax,
    unary,
    var,
)

MEANING: dict[str, Meaning] = {
    # ----- arithmetic -----
    "add": lambda D, x, y, alpha=1: D.add(x, D.scale(alpha, y)),
    "sub": lambda D, x, y, alpha=1: D.sub(x, D.scale(alpha, y)),
    "rsub": lambda D, x, y, alpha=1: D.sub(y, D.scale(alpha, x)),
    "mul": lambda D, x, y: D.mul(x, y),
    "div": lambda D, x, y: D.div(x, y),
    "neg": lambda D, x: D.neg(x),
    "positive": lambda D, x: x,
    "reciprocal": lambda D, x: D.div(D.number(1), x),
    "square": lambda D, x: D.mul(x, x),
    "addcmul": lambda D, x, y, z, value=1: D.add(x, D.scale(value, D.mul(y, z))),
    "addcdiv": lambda D, x, y, z, value=1: D.add(x, D.scale(value, D.div(y, z))),
    "lerp": lambda D, x, y, weight: D.add(x, D.mul(weight, D.sub(y, x))),
    "pow": lambda D, x, y: D.power(x, y),
    "float_power": lambda D, x, y: D.power(x, y),
    "sqrt": unary("sqrt"),
    "rsqrt": lambda D, x: D.div(D.number(1), D.call("sqrt", x)),
    "hypot": lambda D, x, y: D.call("sqrt", D.add(D.mul(x, x), D.mul(y, y))),
    "deg2rad": lambda D, x: D.mul(D.number(0.017453292519943295769236907684886), x),
    "rad2deg": lambda D, x: D.mul(D.number(57.295779513082320876798154814105), x),
    # ----- kinks -----
    "abs": lambda D, x: D.branch(x, x, D.neg(x), HALF),
    "sign": lambda D, x: D.lift(D.signs(x)),
    "sgn": lambda D, x: D.lift(D.signs(x)),
    "relu": lambda D, x: D.branch(x, x, D.number(0), 0),
    "relu6": lambda D, x: D.branch(D.sub(x, D.number(6)), D.number(6), D.branch(x, x, D.number(0), 0), 1),
    "threshold": lambda D, x, threshold=0, value=0: D.branch(D.sub(x, D.number(threshold)), x, D.number(value), 0),
    **dict.fromkeys(("leaky_relu", "leaky_relu_"), lambda D, x, negative_slope=0.01: D.branch(x, x, D.scale(negative_slope, x), 0)),
    "hardtanh": lambda D, x, min_val=-1.0, max_val=1.0: D.branch(
        D.sub(x, D.number(max_val)), D.number(max_val),
        D.branch(D.sub(x, D.number(min_val)), x, D.number(min_val), 0), 1),
    "hardsigmoid": lambda D, x: D.branch(D.sub(x, D.number(3)), D.number(1), D.branch(
        D.add(x, D.number(3)), D.div(D.add(x, D.number(3)), D.number(6)), D.number(0), 0), 1),
    "softshrink": lambda D, x, lambd=0.5: D.branch(D.sub(x, D.number(lambd)), D.sub(x, D.number(lambd)), D.branch(
        D.add(x, D.number(lambd)), D.number(0), D.add(x, D.number(lambd)), 1), 0),
    "prelu_kernel": lambda D, x, weight: D.branch(x, x, D.mul(weight, x), 0),
    "elu": elu, "elu_": elu,
    **dict.fromkeys(("selu", "selu_"), lambda D, x: elu(D, x, 1.6732632423543772848170429916717, 1.0507009873554804934193349852946)),
    **dict.fromkeys(("celu", "celu_"), lambda D, x, alpha=1.0: D.branch(x, x, D.scale(alpha, D.sub(D.call(
        "exp", D.div(x, D.number(alpha))), D.number(1))), 0)),
    "maximum": lambda D, x, y: D.branch(D.sub(x, y), x, y, HALF),
    "minimum": lambda D, x, y: D.branch(D.sub(x, y), y, x, HALF),
    "fmax": lambda D, x, y: D.branch(D.sub(x, y), x, y, HALF if TIES_SHARE else 1),
    "fmin": lambda D, x, y: D.branch(D.sub(x, y), y, x, HALF if TIES_SHARE else 0),
    "clamp": lambda D, x, min=None, max=None: clamp(D, x, min, max),
    "clamp_min": lambda D, x, min: clamp(D, x, min),
    "clamp_max": lambda D, x, max: clamp(D, x, None, max),
    "amax": lambda D, x, dim=None, keepdim=False: extreme(D, x, dim, keepdim, 1),
    "amin": lambda D, x, dim=None, keepdim=False: extreme(D, x, dim, keepdim, -1),
    "max_all": lambda D, x: extreme(D, x, None, False, 1),
    "min_all": lambda D, x: extreme(D, x, None, False, -1),
    "where": lambda D, condition, x, y: D.select(condition, x, y),
    "where_method": lambda D, x, condition, y: D.select(condition, x, y),
    "masked_fill": lambda D, x, mask, value: D.select(mask, value, x),
    "remainder": lambda D, x, y: np.mod(x, integer(y)), "fmod": lambda D, x, y: np.fmod(x, integer(y)),
    # ----- exponentials, logarithms, powers -----
    "exp": unary("exp"), "log": unary("log"),
    "exp2": lambda D, x: D.call("exp", D.mul(D.number(math.log(2)), x)),
    "expm1": lambda D, x: D.sub(D.call("exp", x), D.number(1)),
    "log2": lambda D, x: D.div(D.call("log", x), D.number(math.log(2))),
    "log10": lambda D, x: D.div(D.call("log", x), D.number(math.log(10))),
    "log1p": lambda D, x: D.call("log", D.add(D.number(1), x)),
    "logaddexp": lambda D, x, y: D.call("log", D.add(D.call("exp", x), D.call("exp", y))),
    "xlogy": lambda D, x, y: D.mul(x, D.call("log", y)),
    "xlog1py": lambda D, x, y: D.mul(x, D.call("log", D.add(D.number(1), y))),
    "logit": lambda D, x, eps=None: D.call("log", D.div(x, D.sub(D.number(1), x))),
    "entr": lambda D, x: D.neg(D.mul(x, D.call("log", x))),
    # ----- trigonometric, hyperbolic -----
    **{name: unary(name) for name in ("sin", "cos", "tan", "asin", "acos", "atan", "sinh", "cosh", "asinh", "atanh",
                                      "erf", "erfc", "erfinv", "lgamma", "digamma")},
    "tanh": unary("tanh"),
    "acosh": lambda D, x: D.call("log", D.add(x, D.call("sqrt", D.sub(D.mul(x, x), D.number(1))))),
    "atan2": lambda D, x, y: D.call("atan", D.div(x, y)),
    "sinc": lambda D, x: D.div(D.call("sin", D.mul(D.number(math.pi), x)), D.mul(D.number(math.pi), x)),
    "ndtr": lambda D, x: D.mul(D.number(HALF), D.add(D.number(1), D.call("erf", D.mul(D.number(math.sqrt(0.5)), x)))),
    "polygamma": lambda D, x, n=0: D.call(f"polygamma{n}", x),
    # ----- activations -----
    "sigmoid": sigmoid,
    "silu": lambda D, x: D.mul(x, sigmoid(D, x)),
    "log_sigmoid": lambda D, x: D.call("log", sigmoid(D, x)),
    "mish": lambda D, x: D.mul(x, D.call("tanh", D.neg(D.call("log", sigmoid(D, D.neg(x)))))),
    "softplus": lambda D, x, beta=1, threshold=20: D.branch(
        D.sub(D.scale(beta, x), D.number(threshold)), x,
        D.div(D.call("log", D.add(D.number(1), D.call("exp", D.scale(beta, x)))), D.number(beta)), 0),
    "gelu": lambda D, x, approximate="none": D.mul(x, D.mul(D.number(HALF), D.add(D.number(1), D.call(
        "erf", D.mul(D.number(math.sqrt(0.5)), x))))) if approximate == "none" else D.mul(x, D.mul(D.number(HALF), D.add(
            D.number(1), D.call("tanh", D.mul(D.number(0.7978845608028654), D.add(x, D.mul(D.number(0.044715), D.mul(
                x, D.mul(x, x))))))))),
    "glu": lambda D, x, dim=-1: D.mul(np.split(x, 2, dim)[0], sigmoid(D, np.split(x, 2, dim)[1])),
    "softmax": softmax,
    "log_softmax": lambda D, x, dim=-1, dtype=None: D.sub(x, logsumexp(D, x, dim, True)),
    # ----- sums, products, norms -----
    "sum": lambda D, x, dim=None, keepdim=False, dtype=None: D.sum(x, axes_of(dim, x.ndim), keepdim),
    "nansum": lambda D, x, dim=None, keepdim=False, dtype=None: D.sum(x, axes_of(dim, x.ndim), keepdim),
    "mean": mean, "prod": product, "logsumexp": logsumexp, "var": var, "cumsum": scan("add"), "cumprod": scan("mul"),
    "std": lambda D, x, dim=None, correction=1, keepdim=False: D.call("sqrt", var(D, x, dim, correction, keepdim)),
    "sum_to_size": lambda D, x, size=(): sum_to(D, x, size),
    "vector_norm": lambda D, x, ord=2, dim=None, keepdim=False, dtype=None: D.call(
        "sqrt", D.sum(D.mul(x, x), axes_of(dim, x.ndim), keepdim)) if ord == 2 else refuse("this order of norm"),
    "layer_norm": layer_norm, "group_norm": group_norm,
    "aten::native_layer_norm_backward": layer_norm_back, "aten::native_group_norm_backward": group_norm_back,
    "aten::nll_loss_backward": nll_kernel_back,
    # ----- matrix products -----
    "matmul": lambda D, x, y: D.matmul(x, y), "mm": lambda D, x, y: D.matmul(x, y), "bmm": lambda D, x, y: D.matmul(x, y),
    "mv": lambda D, x, y: D.matmul(x, y), "dot": lambda D, x, y: D.matmul(x, y), "vdot": lambda D, x, y: D.matmul(x, y),
    "outer": lambda D, x, y: D.mul(x[:, None], y[None, :]),
    "linear": linear, "einsum": einsum,
    "addmm": matmul_affine, "baddbmm": matmul_affine, "addmv": matmul_affine,
    "addbmm": lambda D, x, y, z, beta=1, alpha=1: D.add(D.scale(beta, x), D.scale(alpha, D.sum(D.matmul(y, z), (0,)))),
    "addr": lambda D, x, y, z, beta=1, alpha=1: D.add(D.scale(beta, x), D.scale(alpha, D.mul(y[:, None], z[None, :]))),
    "trace": lambda D, x: D.sum(np.diagonal(x), (0,)),
    "aten::convolution_backward": convolution_back, "diagonal_backward": diagonal_back, "conv1d": convolution, "conv2d": convolution, "conv3d": convolution,
    # ----- losses -----
    "mse_loss": lambda D, x, y, reduction=0: reduce_loss(D, D.mul(D.sub(x, y), D.sub(x, y)), reduction),
    "smooth_l1_loss": lambda D, x, y, reduction=0, beta=1.0: reduce_loss(D, huber(D, D.sub(x, y), beta, 1 / Fraction(beta)), reduction),
    "huber_loss": lambda D, x, y, reduction=0, delta=1.0: reduce_loss(D, huber(D, D.sub(x, y), delta, Fraction(1)), reduction),
    "soft_margin_loss": lambda D, x, y, reduction=0: reduce_loss(
        D, D.call("log", D.add(D.number(1), D.call("exp", D.neg(D.mul(y, x))))), reduction),
    "binary_cross_entropy_with_logits": lambda D, x, y, weight=None, pos_weight=None, reduction=0: reduce_loss(
        D, D.neg(D.add(D.mul(y, D.call("log", sigmoid(D, x))), D.mul(
            D.sub(D.number(1), y), D.call("log", sigmoid(D, D.neg(x)))))), reduction)
        if weight is None and pos_weight is None else refuse("weights"),
    "nll_loss": nll,
    # ----- data movement -----
    "view": movement(lambda x, shape=(): x.reshape(packed(shape))), "reshape": movement(lambda x, shape=(): x.reshape(packed(shape))),
    "unsafe_view": movement(lambda x, size=(): x.reshape(size)), "reshape_alias": movement(lambda x, size=(): x.reshape(size)),
    "ravel": movement(lambda x: x.reshape(-1)), "view_as": movement(lambda x, shape=(): x.reshape(shape)),
    "reshape_as": movement(lambda x, shape=(): x.reshape(shape)),
    "expand_as": movement(lambda x, shape=(): np.broadcast_to(x, shape)),
    "flatten": movement(lambda x, start_dim=0, end_dim=-1: x.reshape(
        *x.shape[:start_dim], -1, *x.shape[end_dim % max(x.ndim, 1) + 1:])),
    "unflatten": movement(lambda x, dim=0, sizes=(): x.reshape(*x.shape[:dim % x.ndim], *sizes, *x.shape[dim % x.ndim + 1:])),
    "squeeze": movement(lambda x, dim=(): squeezed(x, dim)),
    "unsqueeze": movement(lambda x, dim=0: np.expand_dims(x, dim)),
    "permute": movement(lambda x, dims=(): x.transpose(packed(dims))),
    "transpose": movement(lambda x, dim0=0, dim1=0: np.swapaxes(x, dim0, dim1)), "t": movement(lambda x: x.T),
    "T": movement(lambda x: x.T), "mT": movement(lambda x: np.swapaxes(x, -1, -2)),
    "H": movement(lambda x: x.T), "mH": movement(lambda x: np.swapaxes(x, -1, -2)),
    "movedim": movement(lambda x, source=0, destination=0: np.moveaxis(x, source, destination)),
    "expand": movement(lambda x, size=(): expanded(x, size)), "broadcast_to": movement(lambda x, size=(): expanded(x, size)),
    "narrow": movement(lambda x, dim=0, start=0, length=0: x[(slice(None),) * (dim % x.ndim) + (slice(start, start + length),)]),
    "select": movement(lambda x, dim=0, index=0: x[(slice(None),) * (dim % x.ndim) + (index,)]),
    "diagonal": movement(lambda x, offset=0, dim1=0, dim2=1: np.diagonal(x, offset, dim1, dim2)),
    "slice": movement(lambda x, index=(): x[index]),
    "tril": lambda D, x, diagonal=0: D.select(triangle(x, diagonal), x, D.number(0)),
    "triu": lambda D, x, diagonal=0: D.select(~triangle(x, diagonal - 1), x, D.number(0)),
    "flip": movement(lambda x, dims=(): np.flip(x, packed(dims))), "fliplr": movement(np.fliplr), "flipud": movement(np.flipud),
    "roll": movement(lambda x, shifts=0, dims=(): np.roll(x, shifts, packed(dims) if isinstance(dims, tuple) and dims else dims or None)),
    "rot90": movement(lambda x, k=1, dims=(0, 1): np.rot90(x, k, dims)),
    "repeat": movement(lambda x, repeats=(): np.tile(x, packed(repeats))),
    "tile": movement(lambda x, dims=(): np.tile(x, packed(dims))),
    "pad": padded, "constant_pad_nd": lambda D, x, pad=(), value=0: padded(D, x, pad, "constant", value),
    "cat": movement(lambda *xs, dim=0: np.concatenate(xs, dim)), "stack": movement(lambda *xs, dim=0: np.stack(xs, dim)),
    "diag_embed": lambda D, x, offset=0, dim1=-2, dim2=-1: embedded(D, x) if (offset, dim1, dim2) == (0, -2, -1) else refuse("axes"),
    **{name: movement(lambda x, unrecorded=True, **geometry: x.reshape(-1)[cells(**geometry)])
       for name in ("view_region", "view_cut", "view_apart", "as_strided")},
    "copy": lambda D, x, source: np.broadcast_to(D.lift(source), x.shape),
    "setitem": lambda D, x, value, index=(), versions=(): overwritten(D, x, value, index),
    "erase_index": lambda D, x, index=(): overwritten(D, x, D.number(0), index),
    "view_erase": lambda D, x, **geometry: put(D, x, D.number(0), geometry),
    "view_place": lambda D, x, part, **geometry: put(D, x, part, geometry),
    "view_embed": lambda D, x, **geometry: accumulate(D, tuple(geometry.get("base_size", ())), np.unravel_index(
        cells(**geometry), geometry.get("base_size", ())), x),
    "place": place,
    "place_add": lambda D, g, *t, shape=(), index=(): accumulate(D, tuple(shape), filled(index, t), g),
    "index": movement(lambda x, *t, index=(): x[filled(index, t)]),
    "gather": movement(lambda x, index, dim=0: x[along(x, index, dim)]),
    "take_along_dim": movement(lambda x, index, dim=None: np.take_along_axis(x, index, dim)),
    "take": movement(lambda x, index: x.reshape(-1)[index]),
    "index_select": movement(lambda x, index, dim=0: np.take(x, index, axis=dim)),
    "index_copy": index_copied, "index_add": index_added, "scatter_add": scattered,
    "embedding": movement(
        lambda weight, indices, padding_idx=-1, scale_grad_by_freq=False, sparse=False: weight[indices]),
    "split": movement(lambda x, split_size=1, dim=0: tuple(np.split(x, range(split_size, x.shape[dim], split_size), dim))),
    "split_with_sizes": movement(lambda x, split_sizes=(), dim=0: tuple(np.split(x, np.cumsum(split_sizes)[:-1], dim))),
    "chunk": movement(lambda x, chunks=1, dim=0: tuple(np.split(
        x, range(-(-x.shape[dim] // chunks), x.shape[dim], -(-x.shape[dim] // chunks)), dim))),
    "unbind": movement(lambda x, dim=0: tuple(np.take(x, k, axis=dim) for k in range(x.shape[dim]))),
    "output": movement(lambda x, i=0: x[i]),
    **{name: movement(lambda x: x) for name in ("clone", "contiguous", "detach", "conj", "conj_physical", "resolve_conj",
                                                "resolve_neg", "real")},
    **{name: movement(lambda x: x) for name in ("to_float", "to_double", "to_half", "to_bfloat16")},
    "cast": lambda D, x, to=(), options=(): cast(x, to, options),
    "to": lambda D, x, dtype=None: x if dtype is None or dtype.is_floating_point else refuse("a cast to integers"),
    # ----- tests -----
    "gt": compare(lambda s: s > 0), "ge": compare(lambda s: s >= 0), "lt": compare(lambda s: s < 0),
    "le": compare(lambda s: s <= 0), "eq": compare(lambda s: s == 0), "ne": compare(lambda s: s != 0),
    "logical_and": logical(np.logical_and), "logical_or": logical(np.logical_or), "logical_not": logical(np.logical_not),
    "logical_xor": logical(np.logical_xor), "bitwise_and": bitwise(np.bitwise_and), "bitwise_or": bitwise(np.bitwise_or),
    "bitwise_xor": bitwise(np.bitwise_xor), "bitwise_not": bitwise(np.bitwise_not), "isnan": lambda D, x: np.zeros(np.shape(x), bool),
    "isinf": lambda D, x: np.zeros(np.shape(x), bool), "isfinite": lambda D, x: np.ones(np.shape(x), bool),
}
PULLBACKS: dict[str, Meaning] = {"nll_loss": lambda D, g, ans, x, *rest, **attributes: nll_back(D, g, x, *rest, **attributes)}
"""What the derivatives of some operators compute that torch's kernels work out with what they kept: (g, ans, *operands)."""
