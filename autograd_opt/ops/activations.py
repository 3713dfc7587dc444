"""Rules: activation functions; fused backward kernels with rules of their own."""

from __future__ import annotations

import inspect
from typing import Any

import torch

from autograd_opt.abi import torch_private as private
from autograd_opt.errors import UnsupportedError
from autograd_opt.ops.binding import Plan
from autograd_opt.ops.helpers import H, masked, zero
from autograd_opt.ops.table import ELEMENTWISE, PURE, REDUCES, define, spell

E = ELEMENTWISE | PURE
A: Any = private.aten


def elu_slope(x: Any, *, alpha: Any, scale: Any, input_scale: Any, is_result: bool) -> Any:
    """d elu / d x, from x or from the result; at 0 its value from below, which torch takes for constant there."""
    low = (x + alpha * scale) * input_scale if is_result else input_scale * alpha * scale * (x * input_scale).exp()
    return torch.where(x < 0, low, torch.where(x > 0, scale, input_scale * alpha * scale))


def elu_bend(g: Any, h: Any, x: Any, *, alpha: Any, scale: Any, input_scale: Any, is_result: bool) -> Any:
    """The derivative of `elu_slope`; none at 0, as torch has it."""
    low = g * h * input_scale
    if not is_result:
        low = A.elu_backward(low, alpha, scale, input_scale, is_result, x)
    return low * (x < 0)


def gelu_slope(x: Any, *, approximate: str) -> Any:
    """d gelu / d x."""
    if approximate == "tanh":
        beta, kappa = 0.7978845608028654, 0.044715
        inner = (beta * (x + kappa * x * x * x)).tanh()
        return 0.5 * (1 + inner) + 0.5 * x * (1 - inner * inner) * (beta * (1 + 3 * kappa * x * x))
    return 0.5 * (1 + (x * 0.7071067811865476).erf()) + x * (x * x * -0.5).exp() * 0.3989422804014327


def gelu_bend(x: Any, *, approximate: str) -> Any:
    """The second derivative of gelu."""
    if approximate == "tanh":
        beta, kappa = 0.7978845608028654, 0.044715
        inner = (beta * (x + kappa * x * x * x)).tanh()
        slope = beta * (1 + 3 * kappa * x * x)
        sech = 1 - inner * inner
        bent = sech * slope                  # first, since it is small where the factors below are large
        return bent - x * inner * bent * slope + sech * (3 * beta * kappa * x * x)
    return (2 - x * x) * (x * x * -0.5).exp() * 0.3989422804014327


def silu_slope(x: Any) -> Any:
    s = x.sigmoid()
    return s * (1 + x * (1 - s))


def silu_bend(x: Any) -> Any:
    s = x.sigmoid()
    return s * (1 - s) * (2 + x * (1 - 2 * s))


def mish_parts(x: Any) -> tuple[Any, Any]:
    """tanh(log(1 + exp(x))), without softplus' threshold, beyond which its derivative is another; and sigmoid(x)."""
    return (-torch.nn.functional.logsigmoid(-x)).tanh(), x.sigmoid()


def mish_slope(x: Any) -> Any:
    t, s = mish_parts(x)
    return t + x * s * (1 - t * t)


def mish_bend(x: Any) -> Any:
    t, s = mish_parts(x)
    return (1 - t * t) * s * (2 + x * (1 - s) - 2 * x * t * s)


def hardswish_back(g: Any, x: Any) -> Any:
    return torch.where(x <= -3, 0.0, torch.where(x < 3, g * (x / 3 + 0.5), g))


def glu_back(g: Any, x: Any, *, dim: int) -> Any:
    a, b = x.chunk(2, dim)
    s = b.sigmoid()
    return torch.cat([s * g, (1 - s) * s * g * a], dim)


def glu_g(h: Any, x: Any, *, dim: int) -> Any:
    """The derivative of `glu_back` by the cotangent, which it is linear in."""
    (a, b), (h, k) = x.chunk(2, dim), h.chunk(2, dim)
    s = b.sigmoid()
    return s * h + (1 - s) * s * a * k


def glu_bend(h: Any, g: Any, x: Any, *, dim: int) -> Any:
    """The derivative of `glu_back` by x."""
    (a, b), (h, k) = x.chunk(2, dim), h.chunk(2, dim)
    s = b.sigmoid()
    slope = (1 - s) * s * g
    return torch.cat([slope * k, slope * (h + (1 - 2 * s) * a * k)], dim)


def softplus_x(g: Any, x: Any, *, beta: Any, threshold: Any) -> Any:
    return A.softplus_backward(g, x, beta, threshold)


def softplus_back(g: Any, x: Any, *, beta: Any, threshold: Any) -> Any:
    """The kernel; at the threshold its value from below, which torch takes for constant there."""
    z = x * beta
    return torch.where(z < threshold, g * z.sigmoid(), torch.where(z > threshold, g, g * (x * 0 + threshold).sigmoid()))


def softplus_bend(h: Any, g: Any, x: Any, *, beta: Any, threshold: Any) -> Any:
    """The derivative of the kernel; none at the threshold, where the slope is still the sigmoid's."""
    return A.sigmoid_backward(h * g, (x * beta).sigmoid()) * (x * beta < threshold) * beta


def hardsigmoid_again(h: Any) -> Any:
    """Refuse a second derivative, as torch, which has none."""
    raise UnsupportedError("derivative for aten::hardsigmoid_backward is not implemented: for second derivatives write "
                           "the function as `torch.nn.functional.relu6(x + 3) / 6`")


# ----- in place: as in torch, the rules read the result, and no copy of the operand is kept -----
define("leaky_relu_", "x, negative_slope=0.01", E, inplace="torch._C._nn.leaky_relu_",
       forward=torch.nn.functional.leaky_relu,
       x=lambda g, ans, *, negative_slope: A.leaky_relu_backward(g, ans, negative_slope, True))
define("elu_", "x, alpha=1.0, scale=1.0, input_scale=1.0", E, inplace="torch._C._nn.elu_", forward=A.elu,
       x=lambda g, ans, *, alpha, scale, input_scale: A.elu_backward(g, alpha, scale, input_scale, True, ans))
define("celu_", "x, alpha=1.0", E, inplace="torch.celu_", forward=torch.celu,
       x=lambda g, ans, *, alpha: A.elu_backward(g, alpha, 1.0, 1.0 / alpha, True, ans))
define("selu_", "x", E, inplace="torch.selu_", forward=torch.selu,
       x=lambda g, ans: A.elu_backward(g, 1.6732632423543772848170429916717, 1.0507009873554804934193349852946, 1.0,
                                       True, ans))
# ----- with a fused backward kernel -----
define("tanh", "x", E, "torch.tanh T.tanh", x=lambda g, ans: A.tanh_backward(g, ans))
define("tanh_backward", "g, y", E, "torch.ops.aten.tanh_backward", meaning=lambda g, y: g * H(1 - y * y),
       g=lambda h, y: A.tanh_backward(h, H(y)), y=lambda h, g, y: H(h) * (H(y * -2) * g))
define("sigmoid", "x", E, "torch.sigmoid T.sigmoid torch.special.expit", x=lambda g, ans: A.sigmoid_backward(g, ans))
define("sigmoid_backward", "g, y", E, "torch.ops.aten.sigmoid_backward", meaning=lambda g, y: g * H((1 - y) * y),
       g=lambda h, y: A.sigmoid_backward(h, H(y)), y=lambda h, g, y: H(h) * g * H(1 - 2 * y))
define("relu", "x", E, "torch.relu T.relu", x=lambda g, ans: A.threshold_backward(g, ans, 0))
define("threshold_backward", "g, x, *, threshold=0", E, "torch.ops.aten.threshold_backward",
       bind=lambda g, x, threshold: ((g, x), {"threshold": threshold}),
       meaning=lambda g, x, *, threshold: masked(x > threshold, g),
       g=lambda h, x, *, threshold: A.threshold_backward(h, x, threshold), x=zero)
define("threshold", "x, threshold=0, value=0", E, "torch.threshold",
       x=lambda g, x, *, threshold: A.threshold_backward(g, x, threshold))
define("leaky_relu", "x, negative_slope=0.01", E, "torch._C._nn.leaky_relu",
       x=lambda g, x, *, negative_slope: A.leaky_relu_backward(g, x, negative_slope, False))
define("leaky_relu_backward", "g, x, negative_slope=0.01, self_is_result=False", E,
       "torch.ops.aten.leaky_relu_backward",
       meaning=lambda g, x, *, negative_slope, self_is_result: torch.where(x > 0, g, g * negative_slope),
       g=lambda h, x, *, negative_slope: A.leaky_relu_backward(h, x, negative_slope, False), x=zero)
define("elu", "x, alpha=1.0, scale=1.0, input_scale=1.0", E, "torch._C._nn.elu",
       x=lambda g, x, *, alpha, scale, input_scale: A.elu_backward(g, alpha, scale, input_scale, False, x))
define("elu_backward", "g, x, *, alpha=1.0, scale=1.0, input_scale=1.0, is_result=False", E,
       "torch.ops.aten.elu_backward",
       bind=lambda g, alpha, scale, input_scale, is_result, x: (
           (g, x), {"alpha": alpha, "scale": scale, "input_scale": input_scale, "is_result": is_result}),
       forward=lambda g, x, *, alpha, scale, input_scale, is_result:
           A.elu_backward(g, alpha, scale, input_scale, is_result, x),
       meaning=lambda g, x, **attributes: g * elu_slope(x, **attributes),
       g=lambda h, x, *, alpha, scale, input_scale, is_result:
           A.elu_backward(h, alpha, scale, input_scale, is_result, x),
       x=lambda h, g, x, *, alpha, scale, input_scale, is_result:
           elu_bend(h, g, x, alpha=alpha, scale=scale, input_scale=input_scale, is_result=is_result))
define("celu", "x, alpha=1.0", E, "torch.celu",
       x=lambda g, x, *, alpha: A.elu_backward(g, alpha, 1.0, 1.0 / alpha, False, x))
define("selu", "x", E, "torch.selu",
       x=lambda g, x: A.elu_backward(g, 1.6732632423543772848170429916717, 1.0507009873554804934193349852946, 1.0,
       False, x))
define("gelu", "x, *, approximate='none'", E, "torch._C._nn.gelu",
       x=lambda g, x, *, approximate: A.gelu_backward(g, x, approximate=approximate))
define("gelu_backward", "g, x, *, approximate='none'", E, "torch.ops.aten.gelu_backward",
       meaning=lambda g, x, *, approximate: g * gelu_slope(x, approximate=approximate),
       g=lambda h, x, *, approximate: A.gelu_backward(h, x, approximate=approximate),
       x=lambda h, g, x, *, approximate: h * g * gelu_bend(x, approximate=approximate))
define("silu", "x", E, "torch._C._nn.silu", x=lambda g, x: A.silu_backward(g, x))
define("silu_backward", "g, x", E, "torch.ops.aten.silu_backward", meaning=lambda g, x: g * H(silu_slope(x)),
       g=lambda h, x: A.silu_backward(h, H(x)), x=lambda h, g, x: H(h) * g * H(silu_bend(x)))
define("softplus", "x, beta=1, threshold=20", E, "torch._C._nn.softplus F.softplus", x=softplus_x)
define("softplus_backward", "g, x, beta=1, threshold=20", E, "torch.ops.aten.softplus_backward",
       meaning=softplus_back,
       g=lambda h, x, *, beta, threshold: A.softplus_backward(h, x, beta, threshold),
       x=softplus_bend)
# ----- composed -----
define("log_sigmoid", "x", E, "torch._C._nn.log_sigmoid F.logsigmoid", x=lambda g, x: g * (-x).sigmoid())
define("mish", "x", E, "torch._C._nn.mish", x=lambda g, x: A.mish_backward(g, x))
define("mish_backward", "g, x", E, "torch.ops.aten.mish_backward", meaning=lambda g, x: g * mish_slope(x),
       g=lambda h, x: A.mish_backward(h, x), x=lambda h, g, x: h * g * mish_bend(x))
define("hardtanh", "x, min_val=-1.0, max_val=1.0", E, "torch._C._nn.hardtanh",
       x=lambda g, x, *, min_val, max_val: A.hardtanh_backward(g, x, min_val, max_val))
define("relu6", "x", E, "torch._C._nn.relu6", x=lambda g, x: A.hardtanh_backward(g, x, 0, 6))
define("hardtanh_backward", "g, x, min_val=-1.0, max_val=1.0", E, "torch.ops.aten.hardtanh_backward",
       meaning=lambda g, x, *, min_val, max_val: masked((x > min_val) & (x < max_val), g),
       g=lambda h, x, *, min_val, max_val: A.hardtanh_backward(h, x, min_val, max_val), x=zero)
define("hardsigmoid", "x", E, "torch._C._nn.hardsigmoid", x=lambda g, x: A.hardsigmoid_backward(g, x))
define("hardsigmoid_backward", "g, x", E, "torch.ops.aten.hardsigmoid_backward",
       meaning=lambda g, x: masked((x > -3) & (x < 3), g / 6), g=hardsigmoid_again, x=hardsigmoid_again)
define("hardswish", "x", E, "torch._C._nn.hardswish", x=lambda g, x: A.hardswish_backward(g, x))
define("hardswish_backward", "g, x", E, "torch.ops.aten.hardswish_backward", meaning=hardswish_back,
       g=lambda h, x: A.hardswish_backward(h, x), x=lambda h, g, x: masked((x > -3) & (x < 3), h * g / 3))
define("softshrink", "x, lambd=0.5", E, "torch._C._nn.softshrink F.softshrink",
       x=lambda g, x, *, lambd: A.softshrink_backward(g, x, lambd))
define("hardshrink", "x, lambd=0.5", E, "torch.hardshrink T.hardshrink F.hardshrink",
       x=lambda g, x, *, lambd: A.hardshrink_backward(g, x, lambd))
for _name in ("softshrink_backward", "hardshrink_backward"):
    define(_name, "g, x, lambd=0.5", E, f"torch.ops.aten.{_name}",
           meaning=lambda g, x, *, lambd: masked((x < -lambd) | (x > lambd), g),
           g=lambda h, x, *, lambd: A.hardshrink_backward(h, x, lambd), x=zero)
define("prelu_kernel", "x, weight", E, "torch._prelu_kernel",
       joint=lambda g, x, weight: A._prelu_kernel_backward(g, x, weight))
define("glu", "x, dim=-1", PURE | REDUCES, "torch._C._nn.glu", x=lambda g, x, *, dim: A.glu_backward(g, x, dim))
define("glu_backward", "g, x, dim=-1", PURE | REDUCES, "torch.ops.aten.glu_backward", meaning=glu_back, g=glu_g,
       x=glu_bend)
# ----- softmax -----
for _name, _calls in (("softmax", "torch.softmax T.softmax torch.special.softmax"),
                      ("safe_softmax", "torch._safe_softmax")):
    define(_name, "x, dim=-1, dtype=None", PURE | REDUCES, _calls,
           x=lambda g, ans, ans_dtype, *, dim: A._softmax_backward_data(g, ans, dim, ans_dtype))
define("softmax_backward", "g, y, dim=-1, dtype=None", PURE, "torch.ops.aten._softmax_backward_data",
       meaning=lambda g, y, *, dim, dtype: y * (g - (g * y).sum(dim, keepdim=True)),
       g=lambda h, y, *, dim, dtype: A._softmax_backward_data(h, y, dim, dtype),
       y=lambda h, g, y, *, dim: h * g - h * (g * y).sum(dim, keepdim=True) - g * (h * y).sum(dim, keepdim=True))
define("log_softmax", "x, dim=-1, dtype=None", PURE | REDUCES,
       "torch.log_softmax T.log_softmax torch.special.log_softmax",
       x=lambda g, ans, ans_dtype, *, dim: A._log_softmax_backward_data(g, ans, dim, ans_dtype))
define("log_softmax_backward", "g, y, dim=-1, dtype=None", PURE, "torch.ops.aten._log_softmax_backward_data",
       meaning=lambda g, y, *, dim, dtype: g - y.exp() * g.sum(dim, keepdim=True),
       g=lambda h, y, *, dim: h - (h * y.exp()).sum(dim, keepdim=True),
       y=lambda h, g, y, *, dim: -(h * y.exp()) * g.sum(dim, keepdim=True))


# ----- spellings of torch.nn.functional -----
def bind_activation(input: Any, inplace: bool = False) -> tuple[tuple[Any, ...], dict[str, Any]]:
    if inplace:
        raise TypeError("writes")
    return (input,), {}


def bind_functional_softmax(input: Any, dim: int | None = None, _stacklevel: int = 3,
                            dtype: Any = None) -> tuple[tuple[Any, ...], dict[str, Any]]:
    if dim is None:
        raise TypeError("torch chooses an axis, and warns")
    return (input,), {"dim": dim, "dtype": dtype}


bind_activation.__dict__["plan"] = Plan([("input", 0, inspect.Parameter.empty), ("inplace", None, False)], 2)
for _name in ("relu", "silu", "mish"):
    spell(f"F.{_name}", _name, bind_activation)
for _name in ("softmax", "log_softmax"):
    spell(f"F.{_name}", _name, bind_functional_softmax)
