"""Rules: convolutions, pooling, normalization, embedding, dropout."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import Any

import torch
from torch.autograd.graph import increment_version

from autograd_opt import errors
from autograd_opt.abi import torch_private as private
from autograd_opt.ops.binding import Plan, convolution_backward
from autograd_opt.ops.helpers import refuse, zero
from autograd_opt.ops.table import MULTI, PURE, REDUCES, choose, decompose, define, spell

A: Any = private.aten
EMPTY = inspect.Parameter.empty
"""The default of a parameter that must be given."""


# ----- convolution -----
def spread(value: Any, n: int) -> list[int]:
    """An int or a tuple as a list of n ints."""
    return [value] * n if isinstance(value, int) else list(value) * (n if len(value) == 1 else 1)


def bind_conv(n: int) -> Callable[..., Any]:
    def bind(x: Any, weight: Any, bias: Any = None, stride: Any = 1, padding: Any = 0, dilation: Any = 1,
             groups: int = 1) -> Any:
        if x.is_complex() or weight.is_complex():
            raise TypeError("complex convolutions are composed of real ones")
        if weight.ndim != n + 2:
            raise TypeError("torch has an error for it")
        if padding == "same":
            total = [d * (k - 1) for d, k in zip(spread(dilation, n), weight.shape[2:], strict=True)]
            if any(t % 2 for t in total):
                raise TypeError("pads unevenly")
            padding = [t // 2 for t in total]
        return (x, weight, bias), {
            "stride": spread(stride, n), "padding": spread(0 if padding == "valid" else padding, n),
            "dilation": spread(dilation, n), "groups": groups}
    bind.__dict__["plan"] = Plan(
        [("input", 0, EMPTY), ("weight", 1, EMPTY), ("bias", 2, None), ("stride", "stride", 1),
         ("padding", "padding", 0), ("dilation", "dilation", 1), ("groups", "groups", 1)],
        7, lists=["stride", "padding", "dilation"], width=n, real=True)
    return bind


def bind_conv_transpose(n: int) -> Callable[..., Any]:
    def bind(x: Any, weight: Any, bias: Any = None, stride: Any = 1, padding: Any = 0, output_padding: Any = 0,
             groups: int = 1, dilation: Any = 1) -> Any:
        if x.is_complex() or weight.is_complex():
            raise TypeError("complex convolutions are composed of real ones")
        return (x, weight, bias), {
            "stride": spread(stride, n), "padding": spread(padding, n),
            "output_padding": spread(output_padding, n), "groups": groups, "dilation": spread(dilation, n)}
    return bind


def convolution_back(g: Any, needs: Any, x: Any, weight: Any, bias_shape: Any, stride: Any, padding: Any, dilation: Any,
                     groups: int, transposed: bool, output_padding: Any) -> list[Any]:
    single = x.ndim == weight.ndim - 1
    if single:
        g, x = g.unsqueeze(0), x.unsqueeze(0)
    grads = list(convolution_backward(g, x, weight, bias_shape, stride, padding, dilation, transposed, output_padding,
                                      groups, needs))
    if single and grads[0] is not None:
        grads[0] = grads[0].squeeze(0)
    return grads


def conv_back(g: Any, needs: Any, x: Any, weight: Any, bias_shape: Any, *, stride: Any, padding: Any, dilation: Any,
              groups: int) -> list[Any]:
    return convolution_back(g, needs, x, weight, bias_shape, stride, padding, dilation, groups, False,
        [0] * len(stride))


def conv_transpose_back(g: Any, needs: Any, x: Any, weight: Any, bias_shape: Any, *, stride: Any, padding: Any,
                        output_padding: Any, groups: int, dilation: Any) -> list[Any]:
    return convolution_back(g, needs, x, weight, bias_shape, stride, padding, dilation, groups, True, output_padding)


for _n in (1, 2, 3):
    define(f"conv{_n}d", "x, weight, bias=?, stride=1, padding=0, dilation=1, groups=1", PURE, f"torch.conv{_n}d",
           bind=bind_conv(_n), joint=conv_back)
    define(f"conv_transpose{_n}d", "x, weight, bias=?, stride=1, padding=0, output_padding=0, groups=1, dilation=1",
           PURE,
           f"torch.conv_transpose{_n}d", bind=bind_conv_transpose(_n), joint=conv_transpose_back)


# ----- pooling -----
def pool_stride(kernel: Any, stride: Any) -> Any:
    return kernel if stride is None or stride == () or stride == [] else stride


def bind_max_pool(x: Any, kernel_size: Any, stride: Any = None, padding: Any = 0, dilation: Any = 1,
                  ceil_mode: bool = False,
                  return_indices: bool = False) -> Any:
    if return_indices:
        raise TypeError("indices are another operator's")
    return (x,), {"kernel_size": kernel_size, "stride": stride, "padding": padding, "dilation": dilation,
        "ceil_mode": ceil_mode}


def avg_pool_rule(backward: Any, n: int) -> Callable[..., Any]:
    def rule(g: Any, x: Any, *, kernel_size: Any, stride: Any, padding: Any, ceil_mode: bool, count_include_pad: bool,
             divisor_override: Any) -> Any:
        return backward(g, x, spread(kernel_size, n), spread(pool_stride(kernel_size, stride), n), spread(padding, n),
                        ceil_mode, count_include_pad, divisor_override)
    return rule


def max_pool_rule(backward: Any, n: int) -> Callable[..., Any]:
    def rule(g: Any, x: Any, extra: Any, *, kernel_size: Any, stride: Any, padding: Any, dilation: Any,
             ceil_mode: bool) -> Any:
        return backward(g, x, spread(kernel_size, n), spread(pool_stride(kernel_size, stride), n), spread(padding, n),
                        spread(dilation, n), ceil_mode, extra)
    return rule


def bind_max_pool_backward(g: Any, x: Any, kernel_size: Any, stride: Any, padding: Any, dilation: Any, ceil_mode: bool,
                           indices: Any) -> Any:
    return (g, x, indices), {"kernel_size": kernel_size, "stride": stride, "padding": padding, "dilation": dilation,
                             "ceil_mode": ceil_mode}


def max_pool_kernel(forward: Any) -> Callable[..., Any]:
    def kernel(x: Any, *, kernel_size: Any, stride: Any, padding: Any, dilation: Any, ceil_mode: bool) -> Any:
        return forward(x, kernel_size, pool_stride(kernel_size, stride), padding, dilation, ceil_mode)
    return kernel


def adaptive_max_rule(backward: Any) -> Callable[..., Any]:
    def rule(g: Any, x: Any, extra: Any) -> Any:
        return backward(g, x, extra)
    return rule


def unpool_rule(n: int) -> Callable[..., Any]:
    def rule(g: Any, indices: Any) -> Any:
        return g.flatten(-n).gather(-1, indices.flatten(-n)).reshape(indices.shape)
    return rule


def indexed(forward: Any) -> Callable[..., Any]:
    """The kernel of a pooling with (values, indices), whose rule reads the indices."""
    def kernel(*operands: Any, **attributes: Any) -> Any:
        result = forward(*operands, **attributes)
        return result, result[1].detach()
    return kernel


def of_values(rule: Callable[..., Any]) -> Callable[..., Any]:
    """The rule of such a pooling, by that of one that has the values alone."""
    @functools.wraps(rule)
    def joint(g: Any, *rest: Any, **attributes: Any) -> Any:
        return rule(g.parts[0], *rest, **attributes)
    return joint


bind_max_pool.__dict__["plan"] = Plan(
    [("x", 0, EMPTY), ("kernel_size", "kernel_size", EMPTY), ("stride", "stride", None), ("padding", "padding", 0),
     ("dilation", "dilation", 1), ("ceil_mode", "ceil_mode", False), ("return_indices", None, False)], 7)
for _n in (2, 3):
    define(f"avg_pool{_n}d", "x, kernel_size=1, stride=None, padding=0, ceil_mode=False, count_include_pad=True, "
           "divisor_override=None", PURE, f"torch._C._nn.avg_pool{_n}d",
           x=avg_pool_rule(getattr(A, f"avg_pool{_n}d_backward"), _n))
    define(f"max_pool{_n}d", "x, kernel_size=1, stride=None, padding=0, dilation=1, ceil_mode=False", PURE,
           f"torch.max_pool{_n}d F.max_pool{_n}d", bind=bind_max_pool,
           kernel=max_pool_kernel(getattr(private.nn, f"max_pool{_n}d_with_indices")),
           x=max_pool_rule(getattr(A, f"max_pool{_n}d_with_indices_backward"), _n))
    define(f"max_pool{_n}d_with_indices", "x, kernel_size=1, stride=None, padding=0, dilation=1, ceil_mode=False",
           PURE | MULTI, f"torch._C._nn.max_pool{_n}d_with_indices",
           kernel=indexed(max_pool_kernel(getattr(private.nn, f"max_pool{_n}d_with_indices"))),
           x=of_values(max_pool_rule(getattr(A, f"max_pool{_n}d_with_indices_backward"), _n)))
    define(f"max_pool{_n}d_with_indices_backward",
           "g, x, indices, kernel_size=1, stride=None, padding=0, dilation=1, ceil_mode=False", PURE,
           f"torch.ops.aten.max_pool{_n}d_with_indices_backward", bind=bind_max_pool_backward,
           forward=max_pool_rule(getattr(A, f"max_pool{_n}d_with_indices_backward"), _n), g=unpool_rule(_n), x=zero)
    define(f"adaptive_max_pool{_n}d", "x, output_size=1", PURE | MULTI, f"torch._C._nn.adaptive_max_pool{_n}d",
           kernel=indexed(getattr(private.nn, f"adaptive_max_pool{_n}d")),
           x=of_values(adaptive_max_rule(getattr(A, f"adaptive_max_pool{_n}d_backward"))))
    define(f"max_unpool{_n}d", "x, indices, output_size=()" + ", stride=(), padding=()" * (_n == 3), PURE,
           f"torch._C._nn.max_unpool{_n}d", x=unpool_rule(_n))
define("adaptive_avg_pool2d", "x, output_size=1", PURE, "torch._adaptive_avg_pool2d",
       x=lambda g, x: A._adaptive_avg_pool2d_backward(g, x))
define("adaptive_avg_pool3d", "x, output_size=1", PURE, "torch._adaptive_avg_pool3d",
       x=lambda g, x: A._adaptive_avg_pool3d_backward(g, x))


# ----- normalization -----
def suggested(t: Any) -> Any:
    """The memory format into which torch copies `t` for a kernel that needs one: channels last where they are last.

    Told by its strides alone, as by `is_channels_last_strides_2d` in torch's c10/core/MemoryFormat.h.
    """
    form = {4: torch.channels_last, 5: torch.channels_last_3d}.get(t.ndim)
    strides, sizes, least = t.stride(), t.shape, 0
    if form is None or strides[1] == 0:
        return torch.contiguous_format
    for d in (1, *range(t.ndim - 1, 1, -1), 0):
        if sizes[d] == 0 or strides[d] < least or (d == 0 and least == strides[1]):
            return torch.contiguous_format
        least = strides[d] * max(sizes[d], 1)
    return form


def ready(t: Any) -> bool:
    """Is there nothing to copy?"""
    return t is None or t.is_contiguous() or t.is_contiguous(memory_format=suggested(t))


def layer_norm_kernel(x: Any, weight: Any, bias: Any, *, normalized_shape: Any, eps: float) -> Any:
    out, mean, rstd = torch.native_layer_norm(x, normalized_shape, weight, bias, eps)
    return out, (mean, rstd)


def layer_norm_back(g: Any, needs: Any, x: Any, weight: Any, bias: Any, extra: Any, *, normalized_shape: Any) -> Any:
    return A.native_layer_norm_backward(g, x, normalized_shape, *extra, weight, bias, list(needs))


def bind_layer_norm(x: Any, normalized_shape: Any, weight: Any = None, bias: Any = None, eps: float = 1e-5,
                    cudnn_enable: bool = True) -> Any:
    return (x, weight, bias), {"normalized_shape": list(normalized_shape), "eps": eps}


def group_norm_kernel(x: Any, weight: Any, bias: Any, *, num_groups: int, eps: float) -> Any:
    n, c = x.shape[:2]
    size = x.numel() // (n * c) if n * c else 1
    out, mean, rstd = torch.native_group_norm(x, weight, bias, n, c, size, num_groups, eps)
    return out, (mean, rstd, suggested(x))


def group_norm_back(g: Any, needs: Any, x: Any, weight: Any, extra: Any, *, num_groups: int, eps: float) -> Any:
    n, c = x.shape[:2]
    if torch.is_grad_enabled():  # the kernel has no derivative: recorded runs need the formula
        return group_norm_formula(g, x, weight, num_groups, eps)
    mean, rstd, form = extra
    size = x.numel() // (n * c) if n * c else 1
    # torch's kernel for channels-last operands writes the operand's gradient whether asked for it or not
    wanted = [needs[0] or form is not torch.contiguous_format, *needs[1:]]
    return A.native_group_norm_backward(g.contiguous(memory_format=form), x, mean, rstd, weight, n, c, size, num_groups,
        wanted)


def group_norm_formula(g: Any, x: Any, weight: Any, groups: int, eps: float) -> list[Any]:
    n, c = x.shape[:2]
    channel = (1, c) + (1,) * (x.ndim - 2)
    rest = tuple(d for d in range(x.ndim) if d != 1)
    each = (n, groups, x.numel() // (n * groups) if n else 0)
    grouped = x.reshape(each)
    centered = grouped - grouped.mean(-1, keepdim=True)
    rstd = ((centered * centered).mean(-1, keepdim=True) + eps).rsqrt()
    normal = centered * rstd
    gw = (g if weight is None else g * weight.reshape(channel)).reshape(each)
    gx = rstd * (gw - gw.mean(-1, keepdim=True) - normal * (gw * normal).mean(-1, keepdim=True))
    return [gx.reshape(x.shape), (g * normal.reshape(x.shape)).sum(rest), g.sum(rest)]


def bind_group_norm(x: Any, num_groups: int, weight: Any = None, bias: Any = None, eps: float = 1e-5,
                    cudnn_enabled: bool = True) -> Any:
    if x.ndim < 2 or not (ready(x) and ready(weight) and ready(bias)):
        raise TypeError("torch copies first what the kernel would misread")
    return (x, weight, bias), {"num_groups": num_groups, "eps": eps}


@decompose("torch.group_norm")
def group_norm(x: Any, num_groups: int, weight: Any = None, bias: Any = None, eps: float = 1e-5,
               cudnn_enabled: bool = True) -> Any:
    """For operands that lie otherwise: torch's copies, and the call again."""
    with private.DisableTorchFunction():
        form = suggested(x)
    weight, bias = (t if t is None else t.contiguous() for t in (weight, bias))
    return torch.group_norm(x.contiguous(memory_format=form), num_groups, weight, bias, eps, cudnn_enabled)


def bind_batch_norm(x: Any, weight: Any, bias: Any, running_mean: Any, running_var: Any, training: bool,
                    momentum: float,
                    eps: float, cudnn_enabled: bool = True) -> Any:
    if training:                             # torch writes the statistics and leaves their versions as they were
        increment_version([t for t in (running_mean, running_var) if t is not None])
    return (x, weight, bias, running_mean, running_var), {
        "training": training, "momentum": momentum, "eps": eps, "cudnn_enabled": cudnn_enabled}


def pick_batch_norm(*args: Any, **kwargs: Any) -> str | None:
    training = args[5] if len(args) > 5 else kwargs.get("training")
    x = args[0] if args else kwargs["input"]
    if not x.numel():
        return None                          # torch takes another way
    return "batch_norm_train" if training else "batch_norm_eval"


def bind_functional_batch_norm(input: Any, running_mean: Any, running_var: Any, weight: Any = None, bias: Any = None,
                               training: bool = False, momentum: float = 0.1, eps: float = 1e-5) -> Any:
    if eps <= 0 or (training and input.numel() == input.shape[1]):
        raise TypeError("torch has errors for such eps, and for one value a channel")
    return bind_batch_norm(input, weight, bias, running_mean, running_var, training, momentum, eps,
                           torch.backends.cudnn.enabled)


def batch_norm_kernel(x: Any, weight: Any, bias: Any, running_mean: Any, running_var: Any, *, training: bool,
                      momentum: float, eps: float, cudnn_enabled: bool) -> Any:
    refuse("native_batch_norm", running_mean=running_mean, running_var=running_var)
    out, *extra = torch._batch_norm_impl_index(
        x, weight, bias, running_mean, running_var, training, momentum, eps, cudnn_enabled)
    return out, extra


def batch_norm_eval_kernel(x: Any, weight: Any, bias: Any, running_mean: Any, running_var: Any,
                           **attributes: Any) -> Any:
    """The statistics are copied: a call in training may write them before the backward run."""
    out, extra = batch_norm_kernel(x, weight, bias, running_mean, running_var, **attributes)
    return out, [*extra, running_mean.detach().clone(), running_var.detach().clone()]


def batch_norm_train(g: Any, needs: Any, x: Any, weight: Any, extra: Any, *, eps: float) -> Any:
    mean, var, reserved, impl = extra
    return A._batch_norm_impl_index_backward(impl, x, g, weight, None, None, mean, var, True, eps, list(needs[:3]),
        reserved)


def batch_norm_eval(g: Any, needs: Any, x: Any, weight: Any, extra: Any, *, eps: float) -> Any:
    mean, var, reserved, impl, running_mean, running_var = extra
    return A._batch_norm_impl_index_backward(
        impl, x, g, weight, running_mean, running_var, mean, var, False, eps, list(needs[:3]), reserved)


bind_layer_norm.__dict__["plan"] = Plan(
    [("input", 0, EMPTY), ("normalized_shape", "normalized_shape", EMPTY), ("weight", 1, None), ("bias", 2, None),
     ("eps", "eps", 1e-5), ("cudnn_enable", ..., True)], 6, lists=["normalized_shape"])
BATCH_NORM = ("x, weight=?, bias=?, running_mean=?, running_var=?, "
              "training=False, momentum=0.1, eps=1e-05, cudnn_enabled=True")
define("layer_norm", "x, weight=?, bias=?, *, normalized_shape=(), eps=1e-05", PURE, "torch.layer_norm F.layer_norm",
       bind=bind_layer_norm, kernel=layer_norm_kernel, joint=layer_norm_back,
       forward=lambda x, weight, bias, *, normalized_shape, eps:
           torch.layer_norm(x, normalized_shape, weight, bias, eps))
define("group_norm", "x, weight=?, bias=?, *, num_groups=1, eps=1e-05", PURE, "torch.group_norm",
       bind=bind_group_norm, kernel=group_norm_kernel, joint=group_norm_back,
       forward=lambda x, weight, bias, *, num_groups, eps: torch.group_norm(x, num_groups, weight, bias, eps))
define("batch_norm_train", BATCH_NORM, 0, bind=bind_batch_norm, forward=torch.batch_norm, kernel=batch_norm_kernel,
       joint=batch_norm_train)
define("batch_norm_eval", BATCH_NORM, PURE, bind=bind_batch_norm, forward=torch.batch_norm,
       kernel=batch_norm_eval_kernel, joint=batch_norm_eval)
choose("torch.batch_norm", pick_batch_norm)
spell("F.batch_norm", pick_batch_norm, bind_functional_batch_norm)


# ----- normalization by formula -----
def rms_norm_back(g: Any, needs: Any, x: Any, weight: Any, *, normalized_shape: Any, eps: float | None) -> list[Any]:
    dims = tuple(range(-len(normalized_shape), 0))
    wide = x.float() if x.dtype in (torch.float16, torch.bfloat16) else x
    least = torch.finfo(wide.dtype).eps if eps is None else eps
    rstd = ((wide * wide).mean(dims, keepdim=True) + least).rsqrt()
    normal = wide * rstd
    if wide.dtype != x.dtype:
        g = g.to(wide.dtype)
    gw = g if weight is None else g * weight
    gx = rstd * (gw - normal * (gw * normal).mean(dims, keepdim=True)) if needs[0] else None
    return [gx, g * normal]


def bind_rms_norm(input: Any, normalized_shape: Any, weight: Any = None, eps: float | None = None) -> Any:
    if input.is_complex():
        raise TypeError("the formula is for real numbers")
    return (input, weight), {"normalized_shape": tuple(normalized_shape), "eps": eps}


@decompose("torch.instance_norm")
def instance_norm(x: Any, weight: Any, bias: Any, running_mean: Any, running_var: Any, use_input_stats: bool,
                  momentum: float, eps: float, cudnn_enabled: bool) -> Any:
    """As torch composes it: a batch norm in which the channels of all examples are channels of one."""
    statistics = [t for t in (running_mean, running_var) if t is not None]
    missing = not use_input_stats and len(statistics) < 2
    if x.ndim < 2 or not x.numel() or missing or any(t.requires_grad for t in statistics):
        return torch.instance_norm(
            x, weight, bias, running_mean, running_var, use_input_stats, momentum, eps, cudnn_enabled)
    n, channels = x.shape[:2]
    weight, bias = (t if t is None else t.repeat(n) for t in (weight, bias))
    with private.DisableTorchFunction():                # nothing of the statistics is followed
        mean, var = (t if t is None else t.repeat(n) for t in (running_mean, running_var))
    folded = x.contiguous().view(1, n * channels, *x.shape[2:])
    out = torch.batch_norm(folded, weight, bias, mean, var, use_input_stats, momentum, eps, cudnn_enabled)
    if use_input_stats:
        with private.DisableTorchFunction():
            for own, each in ((running_mean, mean), (running_var, var)):
                if own is not None and each is not None:
                    own.copy_(each.view(n, channels).mean(0))
    return out.view(x.shape)


define("rms_norm", "x, weight=?, *, normalized_shape=(), eps=None", PURE | REDUCES, "torch.rms_norm",
       bind=bind_rms_norm,
       joint=rms_norm_back,
       forward=lambda x, weight, *, normalized_shape, eps: torch.rms_norm(x, normalized_shape, weight, eps))


# ----- embedding -----
def bind_embedding(weight: Any, indices: Any, padding_idx: int = -1, scale_grad_by_freq: bool = False,
                   sparse: bool = False) -> Any:
    return (weight, indices), {"padding_idx": padding_idx, "scale_grad_by_freq": scale_grad_by_freq, "sparse": sparse}


def embedding_back(g: Any, indices: Any, weight_shape: Any, *, padding_idx: int, scale_grad_by_freq: bool,
                   sparse: bool) -> Any:
    back = A.embedding_sparse_backward if sparse else A.embedding_dense_backward
    return back(g, indices, weight_shape[0], padding_idx, scale_grad_by_freq)


def bind_functional_embedding(input: Any, weight: Any, padding_idx: int | None = None, max_norm: float | None = None,
                              norm_type: float = 2.0, scale_grad_by_freq: bool = False, sparse: bool = False) -> Any:
    if max_norm is not None or (padding_idx is not None and not 0 <= padding_idx < weight.shape[0]):
        raise TypeError("writes have no rule; torch counts from the end, and has the errors")
    return (weight, input), {"padding_idx": -1 if padding_idx is None else padding_idx,
                             "scale_grad_by_freq": scale_grad_by_freq, "sparse": sparse}


define("embedding", "weight, indices, padding_idx=-1, scale_grad_by_freq=False, sparse=False", PURE, "torch.embedding",
       bind=bind_embedding, weight=embedding_back)
bind_functional_embedding.__dict__["plan"] = Plan(
    [("input", 1, EMPTY), ("weight", 0, EMPTY), ("padding_idx", None, None), ("max_norm", None, None),
     ("norm_type", ..., 2.0), ("scale_grad_by_freq", "scale_grad_by_freq", False), ("sparse", "sparse", False)],
    7, fixed={"padding_idx": -1})
spell("F.embedding", "embedding", bind_functional_embedding)


# ----- dropout -----
def bind_dropout(x: Any, p: float = 0.5, training: bool = True, inplace: bool = False) -> Any:
    if inplace or x.is_cuda:
        raise TypeError("writes, or draws from another stream")
    return (x,), {"p": p, "training": training}


def dropout_kernel(x: Any, *, p: float, training: bool) -> Any:
    """torch's own steps, the mask kept."""
    if not 0 <= p <= 1:
        raise errors.ArgumentError(f"dropout probability has to be between 0 and 1, but got {p}")
    if not training or p == 0 or not x.numel():
        return x, None
    noise = torch.zeros_like(x) if p == 1 else torch.empty_like(x).bernoulli_(1 - p).div_(1 - p)
    return torch.mul(x, noise), noise        # a function: operators of recorded tensors record


bind_dropout.__dict__["plan"] = Plan(
    [("input", 0, EMPTY), ("p", "p", 0.5), ("training", "training", True), ("inplace", None, False)], 4, host=True)
define("dropout", "x, p=0.5, training=True", 0, "torch.dropout F.dropout", bind=bind_dropout, kernel=dropout_kernel,
       x=lambda g, extra: g * extra)
