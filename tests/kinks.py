# ruff: noqa: B008 (a case is one line, and its lambda binds what its row names)
"""Functions with kinks, as people call them: with numbers, in place, as modules; each of tensors of one vector's shape.

Torch's database of operators gives most of these tensors as bounds, exponents and thresholds, or none at all.
"""

# ruff: noqa: B008 (defaults bind what a loop goes over)
from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import torch
import torch.nn.functional as F

from tests.opinfo_kinks import Fill, filled

INF, NAN = math.inf, math.nan
ORDERS = (0, 0.5, 1, 1.5, 2, 2.5, 3, INF, -INF, -1)
EXPONENTS = (0, 1, 2, 3, -1, -2, 0.0, 0.5, 1.0, 1.5, 2.0, 3.0, -0.5, -1.0)
L: Any = torch.linalg


@dataclass(frozen=True)
class Case:
    """A function of tensors of six numbers, with what `tests/opinfo_compare.py` asks of an entry of the database."""

    full_name: str
    function: Callable[..., Any]
    operands: int

    def get_op(self) -> Callable[..., Any]:
        return self.function

    def get_method(self) -> None:
        return None

    get_inplace = get_method

    def gradcheck_wrapper(self, function: Callable[..., Any], *args: Any) -> Any:
        return function(*args)

    def sample(self, fill: Fill, seed: int = 7, dtype: torch.dtype = torch.float64) -> Any:
        six = [torch.zeros(6, dtype=dtype, requires_grad=True) for _ in range(self.operands)]
        x, *rest = filled(six, torch.tensor(fill.palette, dtype=torch.float64), seed)
        return SimpleNamespace(input=x, args=tuple(rest), kwargs={}, broadcasts_input=False,
                               output_process_fn_grad=lambda y: y)


CASES: list[Case] = []


def case(name: str, function: Callable[..., Any], operands: int = 1) -> None:
    CASES.append(Case(name, function, operands))


# ----- bounds -----
for low, high in ((-1, 1), (0, 1), (0.5, 0.5), (1, -1), (0.0, None), (None, 1.0), (NAN, 1), (-0.0, INF), (-INF, 0)):
    case(f"clamp {low} {high}", lambda x, a=low, b=high: x.clamp(a, b))
    case(f"clip {low} {high}", lambda x, a=low, b=high: torch.clip(x, a, b))
    case(f"clamp_ {low} {high}", lambda x, a=low, b=high: x.clone().clamp_(a, b))
for bound in (0, 0.5, -1.0, INF, NAN):
    case(f"clamp_min {bound}", lambda x, b=bound: x.clamp_min(b))
    case(f"clamp_max {bound}", lambda x, b=bound: x.clamp_max(b))
    case(f"clamp_min_ {bound}", lambda x, b=bound: x.clone().clamp_min_(b))
case("clamp tensors", lambda x, y, z: torch.clamp(x, y, z), 3)
case("clamp equal tensors", lambda x, y: torch.clamp(x, y, y), 2)
case("clamp tensor below", lambda x, y: torch.clamp(x, min=y), 2)
case("clamp tensor above", lambda x, y: torch.clamp(x, max=y), 2)
case("clamp between itself", lambda x: torch.clamp(x, x, x))
case("clamp_min tensor", lambda x, y: x.clamp_min(y), 2)
case("clamp_max tensor", lambda x, y: x.clamp_max(y), 2)
case("max with a number", lambda x: torch.maximum(x, torch.tensor(0.0)))
case("where on an equal mask", lambda x, y: torch.where(x == y, x * y, x - y), 2)
case("where of a root", lambda x: torch.where(x > 0, x.sqrt(), 0.0))
case("masked_fill on a mask", lambda x: x.masked_fill(x == 0, -INF).exp())
# ----- activations -----
for name in ("relu", "relu6", "leaky_relu", "elu", "selu", "celu", "hardsigmoid", "hardswish", "softsign", "hardshrink",
             "softshrink", "tanhshrink", "logsigmoid", "mish", "silu", "gelu", "softplus", "hardtanh", "rrelu"):
    case(f"F.{name}", getattr(F, name))
for name in ("relu", "relu6", "leaky_relu", "elu", "selu", "hardtanh", "hardswish", "silu", "mish", "hardsigmoid"):
    case(f"F.{name} in place", lambda x, f=getattr(F, name): f(x * 1, inplace=True))
case("relu_", lambda x: torch.relu_(x * 1))
case("relu by where", lambda x: torch.where(x > 0, x, 0.0))
case("leaky_relu 0.5", lambda x: F.leaky_relu(x, 0.5))
case("leaky_relu -1", lambda x: F.leaky_relu(x, -1.0))
case("leaky_relu 0", lambda x: F.leaky_relu(x, 0.0))
case("elu 0", lambda x: F.elu(x, 0.0))
case("elu 2", lambda x: F.elu(x, 2.0))
case("celu 0.5", lambda x: F.celu(x, 0.5))
case("gelu tanh", lambda x: F.gelu(x, approximate="tanh"))
case("hardtanh 0 1", lambda x: F.hardtanh(x, 0.0, 1.0))
case("hardtanh one point", lambda x: F.hardtanh(x, 0.5, 0.5))
case("threshold", lambda x: F.threshold(x, 0.5, -1.0))
case("threshold 0", lambda x: F.threshold(x, 0.0, 0.0))
case("softplus threshold", lambda x: F.softplus(x, 2.0, 1.0))
case("softplus threshold 0", lambda x: F.softplus(x, 1.0, 0.0))
case("hardshrink 1", lambda x: F.hardshrink(x, 1.0))
case("hardshrink 0", lambda x: F.hardshrink(x, 0.0))
case("softshrink 1", lambda x: F.softshrink(x, 1.0))
case("softshrink 0", lambda x: F.softshrink(x, 0.0))
case("prelu", lambda x, w: F.prelu(x.reshape(1, -1), w[:1]), 2)
case("prelu per channel", lambda x, w: F.prelu(x.reshape(1, -1), w), 2)
case("rrelu in training, one slope", lambda x: F.rrelu(x, 0.25, 0.25, training=True))
case("glu", lambda x, y: F.glu(torch.stack([x, y]), 0), 2)
# ----- extrema -----
for name in ("max", "min", "amax", "amin", "median", "nanmedian", "logsumexp", "prod", "nansum", "nanmean", "var",
             "std"):
    f = getattr(torch, name)
    if name not in ("logsumexp",):
        case(name, lambda x, f=f: f(x))
    case(f"{name} dim", lambda x, f=f: (lambda y: y if isinstance(y, torch.Tensor) else y[0])(f(x.reshape(2, -1), 1)))
    case(f"{name} keepdim", lambda x, f=f: (lambda y: y if isinstance(y, torch.Tensor) else y[0])(
        f(x.reshape(2, -1), 0, keepdim=True)))
for name in ("maximum", "minimum", "fmax", "fmin", "max", "min", "fmod", "remainder", "atan2", "hypot", "xlogy",
             "copysign", "logaddexp", "logaddexp2", "pow", "float_power", "div", "dist"):
    case(f"{name} of two", getattr(torch, name), 2)
    case(f"{name} of one twice", lambda x, f=getattr(torch, name): f(x, x))
for name in ("cummax", "cummin", "cumprod", "cumsum", "logcumsumexp", "softmax", "log_softmax", "softmin"):
    case(name, lambda x, f=getattr(torch, name, None) or getattr(F, name): (
        lambda y: y if isinstance(y, torch.Tensor) else y[0])(f(x, dim=0)))
case("aminmax", lambda x: sum(torch.aminmax(x)))
case("aminmax dim", lambda x: sum(torch.aminmax(x.reshape(2, -1), dim=1)))
case("sort", lambda x: torch.sort(x)[0])
case("sort stable descending", lambda x: torch.sort(x, stable=True, descending=True)[0])
case("argsort gather", lambda x: x[x.argsort(stable=True)])
case("topk", lambda x: x.topk(3)[0])
case("kthvalue", lambda x: x.kthvalue(2)[0])
case("mode", lambda x: x.mode()[0])
for way in ("linear", "lower", "higher", "midpoint", "nearest"):
    case(f"quantile {way}", lambda x, w=way: torch.quantile(x, 0.3, interpolation=w))
    case(f"nanquantile {way}", lambda x, w=way: torch.nanquantile(x.reshape(2, -1), 0.5, dim=1, interpolation=w))
case("max of max", lambda x: x.max() * x.max(0)[0] + x.amax())
case("cumprod rows", lambda x: x.reshape(2, -1).cumprod(1))
for _kind in ("reflect", "replicate", "circular"):
    case(f"pad {_kind}", lambda x, kind=_kind: F.pad(x.reshape(1, 2, -1), (1, 2), mode=kind))
case("prod rows", lambda x: x.reshape(2, -1).prod(1, keepdim=True))
case("prod of one row", lambda x: x.reshape(1, -1).prod(0))
# ----- points -----
for name in ("abs", "sgn", "sign", "sqrt", "rsqrt", "log", "log2", "log10", "log1p", "asin", "acos", "atanh", "acosh",
             "reciprocal", "floor", "ceil", "round", "trunc", "frac", "erfinv", "logit", "nan_to_num", "sinc", "angle",
             "square", "digamma", "lgamma", "i0", "exp", "expm1", "tanh", "sigmoid", "tan", "positive"):
    case(name, getattr(torch, name))
for name in ("entr", "i0e", "i1", "i1e", "ndtr", "ndtri", "log_ndtr", "erfcx", "expit", "log_softmax", "softmax"):
    case(f"special {name}", lambda x, f=getattr(torch.special, name), d={"dim": 0} if "softmax" in name else {}:
         f(x, **d))
case("special xlog1py", torch.special.xlog1py, 2)
case("special zeta", lambda x: torch.special.zeta(2.0, x.abs() + 1))
for eps in (0.0, 0.25, 0.5, 1e-6):
    case(f"logit {eps}", lambda x, e=eps: torch.logit(x, e))
case("nan_to_num numbers", lambda x: torch.nan_to_num(x, 1.0, 2.0, -2.0))
case("round decimals", lambda x: torch.round(x, decimals=1))
case("floor division", lambda x, y: torch.div(x, y, rounding_mode="floor") + x, 2)
case("truncating division", lambda x, y: torch.div(x, y, rounding_mode="trunc") + x, 2)
case("absolute value by root", lambda x: (x * x).sqrt())
for k in EXPONENTS:
    case(f"x ** {k!r}", lambda x, k=k: x ** k)
    case(f"torch.pow {k!r}", lambda x, k=k: torch.pow(x, k))
    case(f"float_power {k!r}", lambda x, k=k: torch.float_power(x, k))
    case(f"pow_ {k!r}", lambda x, k=k: x.clone().pow_(k))
    case(f"x ** tensor {k!r}", lambda x, k=k: x ** torch.tensor(float(k), dtype=x.dtype))
for k in (0, 1, 2, 0.0, 0.5, -1.0, INF):
    case(f"{k!r} ** x", lambda x, k=k: k ** x)
    case(f"xlogy {k!r} x", lambda x, k=k: torch.xlogy(k, x))
    case(f"xlogy x {k!r}", lambda x, k=k: torch.xlogy(x, k))
    case(f"x % {k!r}", lambda x, k=k: x % (k or 0.5))
    case(f"fmod {k!r}", lambda x, k=k: x.fmod(k or 0.5))
    case(f"{k!r} / x", lambda x, k=k: k / x)
# ----- norms -----
for p in ORDERS:
    case(f"vector_norm {p}", lambda x, p=p: L.vector_norm(x, p))
    case(f"vector_norm rows {p}", lambda x, p=p: L.vector_norm(x.reshape(2, -1), p, dim=1))
    case(f"linalg.norm {p}", lambda x, p=p: L.norm(x, p))
    case(f"Tensor.norm {p}", lambda x, p=p: x.norm(p))
    case(f"torch.norm rows {p}", lambda x, p=p: torch.norm(x.reshape(2, -1), p, dim=0, keepdim=True))
    if p:
        case(f"dist {p}", lambda x, y, p=p: torch.dist(x, y, p), 2)
    case(f"pairwise_distance {p}", lambda x, y, p=p: F.pairwise_distance(x.reshape(2, -1), y.reshape(2, -1), p, 0.0), 2)
    if p >= 0:
        case(f"cdist {p}", lambda x, y, p=p: torch.cdist(x.reshape(2, -1), y.reshape(2, -1), float(p)), 2)
        case(f"cdist to itself {p}", lambda x, p=p: torch.cdist(x.reshape(3, -1), x.reshape(3, -1), float(p)))
        case(f"pdist {p}", lambda x, p=p: torch.pdist(x.reshape(3, -1), float(p)))
    if p > 0:
        case(f"normalize {p}", lambda x, p=p: F.normalize(x.reshape(2, -1), p, 1))
        case(f"renorm {p}", lambda x, p=p: torch.renorm(x.reshape(2, -1), p, 0, 1.0))
        case(f"lp_pool {p}", lambda x, p=p: F.lp_pool1d(x.reshape(1, 1, -1), p, 2) if p < INF else x)
for p in ("fro", "nuc", 1, -1, 2, -2, INF, -INF):
    case(f"matrix_norm {p}", lambda x, p=p: L.matrix_norm(x.reshape(2, -1), p))
case("cosine_similarity", lambda x, y: F.cosine_similarity(x.reshape(2, -1), y.reshape(2, -1)), 2)
case("x / x.norm()", lambda x: x / x.norm())
case("cdist without matrix products", lambda x, y: torch.cdist(
    x.reshape(2, -1), y.reshape(2, -1), compute_mode="donot_use_mm_for_euclid_dist"), 2)
case("cdist by matrix products", lambda x, y: torch.cdist(
    x.reshape(2, -1), y.reshape(2, -1), compute_mode="use_mm_for_euclid_dist"), 2)
# ----- pooling, sampling -----
for name in ("max_pool1d", "avg_pool1d"):
    case(name, lambda x, f=getattr(F, name): f(x.reshape(1, 1, -1), 2))
    case(f"{name} padded", lambda x, f=getattr(F, name): f(x.reshape(1, 1, -1), 3, 1, 1, ceil_mode=True))
for n, name in ((1, "adaptive_max_pool1d"), (2, "adaptive_max_pool2d"), (1, "adaptive_avg_pool1d"),
                (2, "adaptive_avg_pool2d")):
    case(name, lambda x, f=getattr(F, name), n=n: f(x.reshape((1, 1, -1) if n == 1 else (1, 1, 2, -1)), 2))
for name in ("max_pool2d", "avg_pool2d"):
    case(name, lambda x, f=getattr(F, name): f(x.reshape(1, 1, 2, -1), 2, 1))
    case(f"{name} padded", lambda x, f=getattr(F, name): f(x.reshape(1, 1, 2, -1), 3, 1, 1))
case("max_pool2d with indices", lambda x: F.max_pool2d(x.reshape(1, 1, 2, -1), 2, 1, return_indices=True)[0])
case("max_pool3d", lambda x: F.max_pool3d(x.reshape(1, 1, 1, 2, -1), (1, 2, 2), 1))
case("fractional_max_pool2d", lambda x: F.fractional_max_pool2d(
    x.reshape(1, 1, 2, -1), 2, (1, 2), _random_samples=torch.full((1, 1, 2), 0.5, dtype=x.dtype)))
for mode in ("bilinear", "nearest", "bicubic"):
    for padding in ("zeros", "border", "reflection"):
        case(f"grid_sample {mode} {padding}", lambda x, y, m=mode, p=padding: F.grid_sample(
            x.reshape(1, 1, 2, -1), y.nan_to_num(0.0, 2.0, -2.0).reshape(1, 1, -1, 2), m, p, align_corners=True), 2)
    case(f"interpolate {mode}", lambda x, m=mode: F.interpolate(x.reshape(1, 1, 2, -1), scale_factor=1.5, mode=m))
# ----- losses -----
for reduction in ("mean", "none"):
    r = {"reduction": reduction}
    for delta in (0.5, 1.0):
        case(f"huber {delta} {reduction}", lambda x, y, d=delta, r=r: F.huber_loss(x, y, delta=d, **r), 2)
        case(f"smooth_l1 {delta} {reduction}", lambda x, y, d=delta, r=r: F.smooth_l1_loss(x, y, beta=d, **r), 2)
    case(f"smooth_l1 0 {reduction}", lambda x, y, r=r: F.smooth_l1_loss(x, y, beta=0.0, **r), 2)
    case(f"l1 {reduction}", lambda x, y, r=r: F.l1_loss(x, y, **r), 2)
    case(f"mse {reduction}", lambda x, y, r=r: F.mse_loss(x, y, **r), 2)
    case(f"hinge_embedding {reduction}", lambda x, r=r: F.hinge_embedding_loss(x, torch.tensor([1.0, -1.0] * 3), **r))
    case(f"margin_ranking {reduction}", lambda x, y, r=r: F.margin_ranking_loss(
        x, y, torch.tensor([1.0, -1.0] * 3), 0.5, **r), 2)
    case(f"triplet {reduction}", lambda x, y, z, r=r: F.triplet_margin_loss(
        x.reshape(2, -1), y.reshape(2, -1), z.reshape(2, -1), 0.5, swap=True, eps=0.0, **r), 3)
    case(f"triplet with distance {reduction}", lambda x, y, z, r=r: F.triplet_margin_with_distance_loss(
        x.reshape(2, -1), y.reshape(2, -1), z.reshape(2, -1), margin=0.5, swap=True, **r), 3)
    case(f"multi_margin {reduction}", lambda x, r=r: F.multi_margin_loss(x.reshape(2, -1), torch.tensor([0, 2]), **r))
    case(f"multi_margin squared {reduction}", lambda x, r=r: F.multi_margin_loss(
        x.reshape(2, -1), torch.tensor([0, 2]), p=2, **r))
    case(f"multilabel_margin {reduction}", lambda x, r=r: F.multilabel_margin_loss(
        x.reshape(2, -1), torch.tensor([[0, 2, -1], [1, -1, 0]]), **r))
    case(f"soft_margin {reduction}", lambda x, r=r: F.soft_margin_loss(x, torch.tensor([1.0, -1.0] * 3).to(x), **r))
    case(f"cosine_embedding {reduction}", lambda x, y, r=r: F.cosine_embedding_loss(
        x.reshape(2, -1), y.reshape(2, -1), torch.tensor([1, -1]), **r), 2)
    case(f"bce {reduction}", lambda x, y, r=r: F.binary_cross_entropy(x.clamp(0, 1), y.clamp(0, 1), **r), 2)
    case(f"bce with logits {reduction}", lambda x, y, r=r: F.binary_cross_entropy_with_logits(x, y, **r), 2)
    case(f"kl_div {reduction}", lambda x, y, r=r: F.kl_div(x, y, **r), 2)
    case(f"kl_div of logarithms {reduction}", lambda x, y, r=r: F.kl_div(x, y, log_target=True, **r), 2)
    case(f"poisson {reduction}", lambda x, y, r=r: F.poisson_nll_loss(
        x, y, log_input=False, full=True, eps=0.0, **r), 2)
    case(f"gaussian {reduction}", lambda x, y, z, r=r: F.gaussian_nll_loss(x, y, z.abs(), full=True, **r), 3)
    case(f"cross_entropy {reduction}", lambda x, r=r: F.cross_entropy(x.reshape(2, -1), torch.tensor([0, 2]), **r))
    case(f"cross_entropy ignored {reduction}", lambda x, r=r: F.cross_entropy(
        x.reshape(2, -1), torch.tensor([1, 1]), ignore_index=1, **r))
    case(f"cross_entropy smoothed {reduction}", lambda x, r=r: F.cross_entropy(
        x.reshape(2, -1), torch.tensor([0, 1]), ignore_index=1, label_smoothing=0.5, **r))
    case(f"nll without weight {reduction}", lambda x, r=r: F.nll_loss(
        x.reshape(2, -1), torch.tensor([0, 2]), torch.tensor([0.0, 1.0, 0.0]).to(x), **r))
    case(f"cross_entropy of probabilities {reduction}", lambda x, y, r=r: F.cross_entropy(
        x.reshape(2, -1), y.reshape(2, -1), **r), 2)
    case(f"ctc {reduction}", lambda x, r=r: F.ctc_loss(
        x.reshape(3, 1, 2).log_softmax(-1), torch.tensor([[1]]), torch.tensor([3]), torch.tensor([1]), **r))
# ----- matrices, scatters -----
for name in ("det", "logdet", "trace"):
    case(name, lambda x, f=getattr(torch, name): f(x[:4].reshape(2, 2)))
case("slogdet", lambda x: L.slogdet(x[:4].reshape(2, 2))[1])
case("sign of slogdet", lambda x: L.slogdet(x[:4].reshape(2, 2))[0] * x[0])
INDEX = torch.tensor([0, 1, 0, 0, 2, 1])
for way in ("sum", "prod", "mean", "amax", "amin"):
    for own in (True, False):
        case(f"scatter_reduce {way} {own}", lambda x, y, w=way, s=own: x.scatter_reduce(
            0, INDEX, y, w, include_self=s), 2)
        if way != "sum":
            case(f"index_reduce {way} {own}", lambda x, y, w=way, s=own: x.index_reduce(
                0, INDEX, y, w, include_self=s), 2)
    if way in ("sum", "prod", "mean"):
        case(f"segment_reduce {way}", lambda x, w=way: torch.segment_reduce(x, w, lengths=torch.tensor([2, 0, 4])))
for way in ("max", "min"):
    case(f"segment_reduce {way}", lambda x, w=way: torch.segment_reduce(
        x, w, lengths=torch.tensor([2, 4]), initial=0.0))
for name in ("amax", "prod", "mean", "softmax", "logsumexp", "norm", "var", "median"):
    f = getattr(torch.masked, name)
    extra = {"norm": {"ord": 2.0}}.get(name, {})
    case(f"masked {name}", lambda x, f=f, e=extra: f(
        x.reshape(2, -1), *e.values(), dim=1, mask=torch.tensor([[True, False, True], [False] * 3])))
# ----- attention -----
case("attention with closed rows", lambda x, y, z: F.scaled_dot_product_attention(
    x.reshape(1, 3, 2), y.reshape(1, 3, 2), z.reshape(1, 3, 2),
    attn_mask=torch.tensor([[True, True, True], [False, False, False], [True, False, False]])), 3)
case("softmax of a masked row", lambda x: x.reshape(2, -1).masked_fill(
    torch.tensor([[True], [False]]), -INF).softmax(1))
case("logsumexp of a masked row", lambda x: x.reshape(2, -1).masked_fill(
    torch.tensor([[True], [False]]), -INF).logsumexp(1))
case("log_softmax of a masked row", lambda x: x.reshape(2, -1).masked_fill(
    torch.tensor([[True], [False]]), -INF).log_softmax(1))
for name, of in (("layer_norm", (3,)), ("rms_norm", (3,))):
    case(f"{name} of equal numbers", lambda x, f=getattr(F, name), of=of: f(x.reshape(2, 3), of, eps=0.0))
case("group_norm of equal numbers", lambda x: F.group_norm(x.reshape(1, 2, 3), 2, eps=0.0))
case("batch_norm of equal numbers", lambda x: F.batch_norm(x.reshape(3, 2), None, None, training=True))
