"""torch's composite layers and cells of recurrent networks, written as recordable calls."""

from __future__ import annotations

from typing import Any

import torch

from autograd_opt.abi import torch_private as private
from autograd_opt.ops.neural import suggested
from autograd_opt.ops.table import decompose

PADDINGS = {"reflect": "reflection", "replicate": "replication"}


@decompose("F.pad torch._C._nn.pad")
def pad(input: Any, pad: Any, mode: str = "constant", value: Any = None) -> Any:
    """What is no constant padding: copies of the edge, or of what lies inside."""
    axes = len(pad) // 2
    if not 1 <= axes <= 3 or len(pad) != 2 * axes or not axes + 1 <= input.ndim <= axes + 2 or value not in (None, 0) \
            or (input.is_cuda and torch.are_deterministic_algorithms_enabled()):
        return torch.nn.functional.pad(input, pad, mode, value)
    if mode in PADDINGS:
        return getattr(private.nn, f"{PADDINGS[mode]}_pad{axes}d")(input, pad)
    sizes = input.shape[::-1]
    if mode == "circular" and input.is_contiguous() and all(0 <= p <= sizes[i // 2] for i, p in enumerate(pad)):
        for axis, (before, after) in enumerate(zip(pad[::2], pad[1::2], strict=True), 1):
            size = input.shape[-axis]
            input = torch.cat([input.narrow(-axis, size - before, before), input, input.narrow(-axis, 0, after)], -axis)
        return input
    return torch.nn.functional.pad(input, pad, mode, value)


@decompose("torch.prelu T.prelu F.prelu")
def prelu(input: Any, weight: Any) -> Any:
    if input.ndim != weight.ndim:
        weight = weight.reshape([weight.numel() if d == 1 else 1 for d in range(input.ndim)])
    return torch._prelu_kernel(input, weight)


def single(option: Any) -> Any:
    """An option of a layer over one axis, given as a number or as a list of one."""
    return option[0] if isinstance(option, (tuple, list)) and option else option


@decompose("torch.avg_pool1d F.avg_pool1d")
def avg_pool1d(input: Any, kernel_size: Any, stride: Any = None, padding: Any = 0, ceil_mode: bool = False,
               count_include_pad: bool = True) -> Any:
    k, s, p = map(single, (kernel_size, stride or kernel_size, padding))
    return private.nn.avg_pool2d(
        input.unsqueeze(-2), (1, k), (1, s), (0, p), ceil_mode, count_include_pad).squeeze(-2)


@decompose("torch.adaptive_avg_pool1d F.adaptive_avg_pool1d")
def adaptive_avg_pool1d(input: Any, output_size: Any) -> Any:
    return adaptive_avg_pool2d(input.unsqueeze(-2), (1, single(output_size))).squeeze(-2)


@decompose("torch.max_pool1d_with_indices")
def max_pool1d_with_indices(input: Any, kernel_size: Any, stride: Any = None, padding: Any = 0, dilation: Any = 1,
                            ceil_mode: bool = False) -> Any:
    k, s, p, d = map(single, (kernel_size, stride or kernel_size, padding, dilation))
    pooled, indices = private.nn.max_pool2d_with_indices(
        input.unsqueeze(-2), (1, k), (1, s), (0, p), (1, d), ceil_mode)
    return pooled.squeeze(-2), indices.squeeze(-2)


@decompose("torch.adaptive_max_pool1d")
def adaptive_max_pool1d(input: Any, output_size: Any) -> Any:
    pooled, indices = private.nn.adaptive_max_pool2d(input.unsqueeze(-2), (1, single(output_size)))
    return pooled.squeeze(-2), indices.squeeze(-2)


def adaptive_max_pool(n: int) -> Any:
    """The pooling over `n` axes; torch computes the indices in any case."""
    def function(input: Any, output_size: Any, return_indices: bool = False) -> Any:
        found = getattr(torch.nn.functional, f"adaptive_max_pool{n}d_with_indices")(input, output_size)
        return found if return_indices else found[0]
    return function


for _n in (1, 2, 3):
    decompose(f"F.adaptive_max_pool{_n}d")(adaptive_max_pool(_n))


def wanted_size(size: Any, shape: Any) -> list[int]:
    sizes = [size] * len(shape) if isinstance(size, int) else list(size)
    return [n if s is None else s for s, n in zip(sizes, shape, strict=True)]


def mean_of_channels(x: Any, axes: int) -> Any:
    """The mean over the last `axes` axes, channels last where those of a batch `x` are."""
    mean = x.mean(tuple(range(-1, -1 - axes, -1)), keepdim=True)
    if x.ndim != axes + 2 or suggested(x) is torch.contiguous_format:
        return mean
    channels = x.shape[1]
    return mean.as_strided(mean.shape, (channels, 1, *[channels] * axes))


@decompose("torch._C._nn.adaptive_avg_pool2d")
def adaptive_avg_pool2d(input: Any, output_size: Any) -> Any:
    size = wanted_size(output_size, input.shape[-2:])
    return mean_of_channels(input, 2) if size == [1, 1] else torch._adaptive_avg_pool2d(input, size)


@decompose("torch._C._nn.adaptive_avg_pool3d")
def adaptive_avg_pool3d(input: Any, output_size: Any) -> Any:
    size = wanted_size(output_size, input.shape[-3:])
    return mean_of_channels(input, 3) if size == [1, 1, 1] else torch._adaptive_avg_pool3d(input, size)


@decompose("torch.max_pool1d")
def max_pool1d(input: Any, kernel_size: Any, stride: Any = None, padding: Any = 0, dilation: Any = 1,
               ceil_mode: bool = False) -> Any:
    from autograd_opt.graph.references import requires_grad
    if isinstance(input, torch.Tensor) and not (torch.is_grad_enabled() and requires_grad(input)):
        # torch's own kernel for it, whose result is no view
        with private.DisableTorchFunction():
            return torch.max_pool1d(input, kernel_size, stride or (), padding, dilation, ceil_mode)
    k, s, p, d = map(single, (kernel_size, stride or kernel_size, padding, dilation))
    return torch.max_pool2d(input.unsqueeze(-2), (1, k), (1, s), (0, p), (1, d), ceil_mode).squeeze(-2)


@decompose("F.max_pool1d")
def max_pool1d_of_module(input: Any, kernel_size: Any, stride: Any = None, padding: Any = 0, dilation: Any = 1,
                         ceil_mode: bool = False, return_indices: bool = False) -> Any:
    if return_indices:
        return torch.max_pool1d_with_indices(input, kernel_size, stride or kernel_size, padding, dilation, ceil_mode)
    return max_pool1d(input, kernel_size, stride, padding, dilation, ceil_mode)


# ----- cells of recurrent networks -----
def composed(call: Any) -> Any:
    """A cell that torch composes of these calls on the CPU; elsewhere, or where sizes do not fit, it is torch's own."""
    count = call.__code__.co_argcount - 2

    def cell(input: Any, hx: Any, w_ih: Any, w_hh: Any, b_ih: Any = None, b_hh: Any = None) -> Any:
        states = tuple(hx) if isinstance(hx, (tuple, list)) else (hx,)
        fits = input.ndim == w_ih.ndim == w_hh.ndim == 2 and input.shape[1] == w_ih.shape[1]
        shape = (input.shape[0], w_hh.shape[1]) if fits else None
        tensors = [input, *states, w_ih, w_hh, *(b for b in (b_ih, b_hh) if b is not None)]
        if len(states) != count or any(h.shape != shape for h in states) or (b_ih is None) is not (b_hh is None) \
                or any(not t.is_cpu or t.layout is not torch.strided or t.dtype is not input.dtype for t in tensors):
            return getattr(torch, call.__name__)(input, hx, w_ih, w_hh, b_ih, b_hh)
        linear = torch.nn.functional.linear
        return call(linear(input, w_ih, b_ih), linear(states[0], w_hh, b_hh), *states)
    return decompose(f"torch.{call.__name__}")(cell)


@composed
def gru_cell(own: Any, past: Any, h: Any) -> Any:
    own_reset, own_input, own_new = own.chunk(3, 1)
    past_reset, past_input, past_new = past.chunk(3, 1)
    reset, gate = (past_reset + own_reset).sigmoid(), (past_input + own_input).sigmoid()
    new = (own_new + past_new * reset).tanh()
    return (h - new) * gate + new


@composed
def lstm_cell(own: Any, past: Any, h: Any, c: Any) -> Any:
    gates = (past + own).chunk(4, 1)
    c = gates[1].sigmoid() * c + gates[0].sigmoid() * gates[2].tanh()
    return gates[3].sigmoid() * c.tanh(), c


@composed
def rnn_tanh_cell(own: Any, past: Any, h: Any) -> Any:
    return (past + own).tanh()


@composed
def rnn_relu_cell(own: Any, past: Any, h: Any) -> Any:
    return (past + own).relu()
