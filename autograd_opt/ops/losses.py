"""Rules: loss functions.  `reduction` is torch's number: 0 none, 1 mean, 2 sum.

torch's compiled functions reduce nothing where they are not told to; its Python functions tell them, by default the
mean.
"""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable
from typing import Any

import torch

from autograd_opt import errors
from autograd_opt.abi import torch_private as private
from autograd_opt.ops.binding import Plan, nll_loss_forward
from autograd_opt.ops.helpers import masked, refuse, summed
from autograd_opt.ops.table import PURE, REDUCES, decompose, define

A: Any = private.aten
NN: Any = private.nn
R = PURE | REDUCES


def mean_over(g: Any, shape: Any, reduction: int) -> Any:
    """The cotangent of one element of a loss of `shape`."""
    n = 1
    for d in shape:
        n *= d
    return g / n if reduction == 1 else g


def reduced(loss: Any, reduction: int) -> Any:
    return loss.mean() if reduction == 1 else loss.sum() if reduction == 2 else loss


def fused(kernel: Any, g: Any, x: Any, y: Any, *attributes: Any) -> Any:
    """By the fused kernel, which divides by the size of `x`: so `x` must have the whole shape."""
    if x.shape == y.shape:
        return kernel(g, x, y, *attributes)
    wide, y = torch.broadcast_tensors(x, y)
    return summed(kernel(g, wide, y, *attributes), x.shape)


def smooth_l1_back(g: Any, x: Any, y: Any, *, reduction: int, beta: float) -> Any:
    d = x - y
    return mean_over(g, x.shape, reduction) * torch.where(d.abs() < beta, d / beta, d.sign())


def smooth_l1_bend(h: Any, g: Any, x: Any, y: Any, *, reduction: int, beta: float) -> Any:
    if beta == 0:
        return torch.zeros_like(x)
    return mean_over(h * g * ((x - y).abs() < beta), x.shape, reduction) / beta


def huber_back(g: Any, x: Any, y: Any, *, reduction: int, delta: float) -> Any:
    d = x - y
    return mean_over(g, x.shape, reduction) * torch.where(d.abs() < delta, d, delta * d.sign())


def huber_bend(h: Any, g: Any, x: Any, y: Any, *, reduction: int, delta: float) -> Any:
    """The curvature; none where |x - y| is delta, as torch has it."""
    return mean_over(h * g * ((x - y).abs() < delta), x.shape, reduction)


def soft_margin_back(g: Any, x: Any, y: Any, *, reduction: int) -> Any:
    return mean_over(g, x.shape, reduction) * -y * (-y * x).sigmoid()


def soft_margin_bend(x: Any, y: Any) -> Any:
    z = (-y * x).exp()
    return y * y * z / ((z + 1) * (z + 1))


def weighted(g: Any, weight: Any) -> Any:
    return g if weight is None else g * weight


def bce_back(g: Any, x: Any, y: Any, weight: Any, *, reduction: int) -> Any:
    return weighted(mean_over(g, x.shape, reduction) * (x - y) / ((1 - x) * x).clamp(min=1e-12), weight)


def bce_bend(x: Any, y: Any) -> Any:
    """The derivative of (x - y) / (x (1 - x)), whose denominator torch keeps above 1e-12."""
    product = (1 - x) * x
    held = product.clamp(min=1e-12)
    return 1 / held - masked(product >= 1e-12, (x - y) * (1 - 2 * x) / (held * held))


def bce_y(g: Any, x: Any, weight: Any, *, reduction: int) -> Any:
    return weighted(-mean_over(g, x.shape, reduction) * x.logit(), weight)


def bce_logits_x(g: Any, x: Any, y: Any, weight: Any, pos_weight: Any, *, reduction: int) -> Any:
    g = mean_over(g, x.shape, reduction)
    if pos_weight is None:
        g = g * (x.sigmoid() - y)
    else:
        t = pos_weight * y
        g = g * ((t + 1 - y) * x.sigmoid() - t)
    return weighted(g, weight)


def bce_logits_y(g: Any, x: Any, weight: Any, pos_weight: Any, *, reduction: int) -> Any:
    g = mean_over(g, x.shape, reduction)
    log_sigmoid = torch.nn.functional.logsigmoid
    return weighted(-g * x if pos_weight is None else g * (log_sigmoid(-x) - pos_weight * log_sigmoid(x)), weight)


def twice_mean(shape: Any, reduction: int) -> float:
    n = 1
    for d in shape:
        n *= d
    return 2.0 / n if reduction == 1 and n else 2.0


def bind_weighted(name: str, weights: tuple[str, ...]) -> Callable[..., Any]:
    """A loss of two tensors and of weights that torch does not differentiate with respect to."""
    def bind(x: Any, y: Any, *given: Any, reduction: int = 0, **named: Any) -> Any:
        if len(given) > len(weights):
            *given, reduction = given  # type: ignore[assignment]
        found = {**dict.fromkeys(weights), **dict(zip(weights, given, strict=False)), **named}
        if len(found) != len(weights) or len(given) > len(weights):
            raise TypeError("another spelling")
        if torch.is_grad_enabled():
            refuse(name, **found)
        return (x, y, *found.values()), {"reduction": reduction}
    absent: list[Any] = [(f"no {w}", 2 + i, None) for i, w in enumerate(weights)]   # no call can name these
    empty = inspect.Parameter.empty
    bind.__dict__["plan"] = Plan(
        [("x", 0, empty), ("y", 1, empty), *((w, None, None) for w in weights), ("reduction", "reduction", 0), *absent],
        3 + len(weights))
    return bind


def bind_soft_margin(x: Any, y: Any, reduction: int = 0) -> Any:
    if torch.is_grad_enabled():
        refuse("soft_margin_loss", target=y)
    return (x, y), {"reduction": reduction}


def nll_kernel(x: Any, target: Any, weight: Any, *, reduction: int, ignore_index: int) -> Any:
    if weight is not None:
        refuse("nll_loss_forward", weight=weight)
    return nll_loss_forward(x, target, weight, reduction=reduction, ignore_index=ignore_index)


def nll2d_kernel(x: Any, target: Any, weight: Any, *, reduction: int, ignore_index: int) -> Any:
    refuse("nll_loss2d_forward", weight=weight)
    return A.nll_loss2d_forward(x, target, weight, reduction, ignore_index)


@decompose("torch._C._nn.nll_loss_nd")
def nll_loss_nd(x: Any, target: Any, weight: Any = None, reduction: int = 0, ignore_index: int = -100) -> Any:
    """By rank: vectors and matrices, images, and everything else as an image of one row."""
    if x.ndim < 1:
        raise errors.ArgumentError(f"Expected 1 or more dimensions (got {x.ndim})")
    if x.ndim != 1 and x.shape[0] != target.shape[0]:
        raise errors.ArgumentError(
            f"Expected input batch_size ({x.shape[0]}) to match target batch_size ({target.shape[0]}).")
    if x.ndim <= 2:
        return NN.nll_loss(x, target, weight, reduction, ignore_index)
    if x.ndim == 4:
        return NN.nll_loss2d(x, target, weight, reduction, ignore_index)
    n, c = x.shape[:2]
    rest = x[0, 0].numel() if n * c else 0
    out = NN.nll_loss2d(x.reshape(n, c, 1, rest), target.reshape(n, 1, rest), weight, reduction, ignore_index)
    return out.reshape(target.shape) if reduction == 0 else out


# ----- regression -----
define("mse_loss", "x, y, reduction=0", R, "torch._C._nn.mse_loss",
       x=lambda g, x, y, *, reduction: fused(A.mse_loss_backward, g, x, y, reduction),
       y=lambda g, x, y, *, reduction: fused(A.mse_loss_backward, g, y, x, reduction))
define("mse_loss_backward", "g, x, y, reduction=1", R, "torch.ops.aten.mse_loss_backward",
       meaning=lambda g, x, y, *, reduction: g * twice_mean(x.shape, reduction) * (x - y),
       g=lambda h, x, y, *, reduction: A.mse_loss_backward(h, x, y, reduction),
       x=lambda h, g, x_shape, *, reduction: h * g * twice_mean(x_shape, reduction),
       y=lambda h, g, x_shape, *, reduction: -h * g * twice_mean(x_shape, reduction))
define("smooth_l1_loss", "x, y, reduction=0, beta=1.0", R, "torch._C._nn.smooth_l1_loss",
       x=lambda g, x, y, *, reduction, beta: fused(A.smooth_l1_loss_backward, g, x, y, reduction, beta),
       y=lambda g, x, y, *, reduction, beta: fused(A.smooth_l1_loss_backward, g, y, x, reduction, beta))
define("smooth_l1_loss_backward", "g, x, y, reduction=1, beta=1.0", R, "torch.ops.aten.smooth_l1_loss_backward",
       meaning=smooth_l1_back, x=smooth_l1_bend,
       g=lambda h, x, y, *, reduction, beta: A.smooth_l1_loss_backward(h, x, y, reduction, beta),
       y=lambda h, g, x, y, *, reduction, beta: smooth_l1_bend(-h, g, x, y, reduction=reduction, beta=beta))
define("huber_loss", "x, y, reduction=0, delta=1.0", R, "torch._C._nn.huber_loss",
       x=lambda g, x, y, *, reduction, delta: fused(A.huber_loss_backward, g, x, y, reduction, delta),
       y=lambda g, x, y, *, reduction, delta: fused(A.huber_loss_backward, g, y, x, reduction, delta))
define("huber_loss_backward", "g, x, y, reduction=1, delta=1.0", R, "torch.ops.aten.huber_loss_backward",
       meaning=huber_back, x=huber_bend,
       g=lambda h, x, y, *, reduction, delta: A.huber_loss_backward(h, x, y, reduction, delta),
       y=lambda h, g, x, y, *, reduction, delta: huber_bend(-h, g, x, y, reduction=reduction, delta=delta))
define("soft_margin_loss", "x, y, reduction=0", R, "torch._C._nn.soft_margin_loss", bind=bind_soft_margin,
       x=lambda g, x, y, *, reduction: fused(A.soft_margin_loss_backward, g, x, y, reduction))
define("soft_margin_loss_backward", "g, x, y, reduction=1", R, "torch.ops.aten.soft_margin_loss_backward",
       meaning=soft_margin_back, g=lambda h, x, y, *, reduction: A.soft_margin_loss_backward(h, x, y, reduction),
       x=lambda h, g, x, y, *, reduction: mean_over(h * g, x.shape, reduction) * soft_margin_bend(x, y))
# ----- classification -----
define("binary_cross_entropy", "x, y, weight=?, reduction=0", R, "torch._C._nn.binary_cross_entropy",
       bind=bind_weighted("binary_cross_entropy", ("weight",)),
       x=lambda g, x, y, weight, *, reduction: A.binary_cross_entropy_backward(g, x, y, weight, reduction), y=bce_y)
define("binary_cross_entropy_backward", "g, x, y, weight=?, reduction=1", R,
       "torch.ops.aten.binary_cross_entropy_backward", meaning=bce_back, g=bce_back,
       x=lambda h, g, x, y, weight, *, reduction: weighted(
           mean_over(h * g, x.shape, reduction) * bce_bend(x, y), weight),
       y=lambda h, g, x, weight, *, reduction: weighted(
           -mean_over(h * g, x.shape, reduction) / ((1 - x) * x).clamp(min=1e-12), weight))
define("binary_cross_entropy_with_logits", "x, y, weight=?, pos_weight=?, reduction=0", R,
       "torch.binary_cross_entropy_with_logits",
       bind=bind_weighted("binary_cross_entropy_with_logits", ("weight", "pos_weight")), x=bce_logits_x, y=bce_logits_y)
for _name in ("nll_loss", "nll_loss2d"):
    define(_name, "x, target, weight=?, reduction=0, ignore_index=-100", PURE, f"torch._C._nn.{_name}",
           kernel=nll_kernel if _name == "nll_loss" else nll2d_kernel,
           x=(lambda g, x, target, weight, extra, *, reduction, ignore_index:
              A.nll_loss_backward(g, x, target, weight, reduction, ignore_index, extra)) if _name == "nll_loss" else
             (lambda g, x, target, weight, extra, *, reduction, ignore_index:
              A.nll_loss2d_backward(g, x, target, weight, reduction, ignore_index, extra)))
    define(f"{_name}_backward", "g, x, target, weight=?, reduction=0, ignore_index=-100, total_weight=None", 0,
           f"torch.ops.aten.{_name}_backward",
           bind=lambda g, x, target, weight, reduction, ignore_index, total_weight: (
               (g, x, target, weight),
               {"reduction": reduction, "ignore_index": ignore_index, "total_weight": total_weight}),
           g=lambda h, target, weight, *, reduction, ignore_index:
               nll_loss_nd(h, target, weight, reduction, ignore_index),
           x=lambda h: torch.zeros_like(h))


@decompose("torch._C._nn.cross_entropy_loss")
def cross_entropy(x: Any, target: Any, weight: Any = None, reduction: int = 0, ignore_index: int = -100,
                  label_smoothing: float = 0.0) -> Any:
    """torch's own composition."""
    dim = 0 if x.ndim == 1 else 1
    classes = x.shape[dim]
    share = label_smoothing / classes if classes else math.inf
    if target.is_floating_point() and target.shape == x.shape:
        log_p = x.log_softmax(dim)
        if label_smoothing > 0:
            target = target * (1 - label_smoothing) + share
        loss = log_p * target
        if weight is not None:
            loss = loss * weight.reshape((-1,) + (1,) * (x.ndim - dim - 1))
        if reduction == 1:
            return -loss.sum() / (x.numel() / classes) if x.numel() else -(loss.sum() * math.nan)
        return -loss.sum() if reduction == 2 else -loss.sum(dim)
    log_p = x.log_softmax(dim)
    nll = nll_loss_nd(log_p, target, weight, reduction, ignore_index)
    if label_smoothing == 0:
        return nll
    spread = log_p if weight is None else log_p * weight.reshape((-1,) + (1,) * (x.ndim - dim - 1))
    ignored = target == ignore_index
    smooth = -(spread.sum(dim)).masked_fill(ignored, 0)
    if reduction == 1:
        total = (~ignored).sum() if weight is None else weight[target.masked_select(~ignored)].sum()
        smooth = smooth.sum() / total
    elif reduction == 2:
        smooth = smooth.sum()
    return (1 - label_smoothing) * nll + smooth * share


@decompose("torch._C._nn.l1_loss")
def l1_loss(x: Any, y: Any, reduction: int = 0) -> Any:
    return reduced((x - y).abs(), reduction)


@decompose("torch.kl_div")
def kl_div(x: Any, y: Any, reduction: int = 0, *, log_target: bool = False) -> Any:
    return reduced(y.exp() * (y - x) if log_target else torch.xlogy(y, y) - y * x, reduction)


@decompose("torch.hinge_embedding_loss")
def hinge_embedding_loss(x: Any, y: Any, margin: float = 1.0, reduction: int = 0) -> Any:
    below = torch.where(y != 1, (margin - x).clamp_min(0), 0.0)
    return reduced(below + torch.where(y != -1, x, 0.0), reduction)


@decompose("torch.margin_ranking_loss")
def margin_ranking_loss(input1: Any, input2: Any, target: Any, margin: float = 0.0, reduction: int = 0) -> Any:
    return reduced((-target * (input1 - input2) + margin).clamp_min(0), reduction)


@decompose("torch.poisson_nll_loss")
def poisson_nll_loss(x: Any, y: Any, log_input: bool, full: bool, eps: float, reduction: int) -> Any:
    loss = x.exp() - y * x if log_input else x - y * (x + eps).log()
    if full:
        stirling = y * y.log() - y + 0.5 * (2 * torch.pi * y).log()
        loss = loss + stirling.masked_fill(y <= 1, 0)
    return reduced(loss, reduction)


