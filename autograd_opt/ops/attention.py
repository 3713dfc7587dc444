"""Rules: scaled dot-product attention.

torch picks between a fused kernel and a composition of plain ones; the same pick is made here,
and the same kernels run in forward and backward, so that values and gradients have torch's
bits.  Under `create_graph` the formula in recordable operations stands in for the fused
backward kernel, which has no derivative of its own.

A. Vaswani et al., Attention Is All You Need, 2017; T. Dao et al., FlashAttention, 2022.
"""

from __future__ import annotations

import math
from typing import Any

import torch

from autograd_opt.abi import torch_private as private
from autograd_opt.graph.handles import handle_of
from autograd_opt.ops.table import PURE, REDUCES, choose, define

A: Any = private.aten
FLASH = 1
"""What torch calls the fused kernel in the answer of `_fused_sdp_choice`; 0 is the composition."""
FORMULA_TYPES = (torch.float32, torch.float64)


def bind_attention(query: Any, key: Any, value: Any, attn_mask: Any = None, dropout_p: float = 0.0,
                   is_causal: bool = False, scale: float | None = None, enable_gqa: bool = False) -> Any:
    return (query, key, value, attn_mask), {"dropout_p": dropout_p, "is_causal": is_causal, "scale": scale}


def pick_attention(query: Any, key: Any, value: Any, attn_mask: Any = None, dropout_p: float = 0.0,
                   is_causal: bool = False, scale: float | None = None, enable_gqa: bool = False) -> str | None:
    """The way that torch would take; None for what has no rule."""
    if not plain(query) or not plain(key) or not plain(value) or enable_gqa or query.ndim < 2 \
            or key.dtype is not query.dtype or value.dtype is not query.dtype or (is_causal and attn_mask is not None):
        return None
    if attn_mask is not None:
        if no_values(attn_mask) or (attn_mask.dtype is not torch.bool and attn_mask.dtype is not query.dtype):
            return None
        if handle_of(attn_mask).requires_grad:
            return "attention_dropout" if dropout_p > 0 else "attention"
    choice = torch._fused_sdp_choice(query, key, value, attn_mask, dropout_p, is_causal, scale=scale)
    if choice == FLASH:
        return "flash_attention" if query.ndim == 4 else None      # torch 2.14 adds the heads that the others lack
    return "attention_dropout" if dropout_p > 0 else "attention"


def no_values(mask: Any) -> bool:
    """A mask of torch's own that says what to compute instead: `CausalBias`, whose module loads torch's compiler."""
    return type(mask).__module__ == "torch.nn.attention.bias"


def plain(t: Any) -> bool:
    """A dense tensor in memory of the host, of a type that is not widened for the product."""
    return isinstance(t, torch.Tensor) and t.dtype in FORMULA_TYPES and t.layout is torch.strided and t.is_cpu


def factors(query: Any, scale: float | None) -> tuple[float, float]:
    """What queries and keys are multiplied by: the root of the scale, its sign with the queries."""
    size = query.shape[-1]
    root = math.sqrt(abs(scale if scale is not None else 1.0 / math.sqrt(size) if size else math.inf))
    return (-root if scale is not None and scale < 0 else root), root


def additive(mask: Any, query: Any, key: Any, is_causal: bool) -> Any:
    """The mask as a summand: 0 where a key takes part, -inf where not."""
    if is_causal:
        mask = torch.ones((query.shape[-2], key.shape[-2]), dtype=torch.bool, device=query.device).tril()
    if mask is None or mask.dtype is not torch.bool:
        return mask
    nothing, minus = (torch.scalar_tensor(x, dtype=query.dtype, device=query.device) for x in (0.0, -math.inf))
    return torch.where(mask, nothing, minus)


def attention_kernel(query: Any, key: Any, value: Any, mask: Any, *, dropout_p: float, is_causal: bool,
                     scale: float | None) -> Any:
    """The composition, with what its backward needs: scaled operands, weights, noise, weights under the noise."""
    of_query, of_key = factors(query, scale)
    scaled_query = torch.mul(query, of_query)        # functions: operators of recorded tensors record
    mask = additive(mask, query, key, is_causal)
    scaled_key = torch.mul(key.transpose(-2, -1), of_key)
    scores = torch.matmul(scaled_query, scaled_key)
    weights = torch._safe_softmax(scores if mask is None else torch.add(scores, mask), -1)
    noise, used = None, weights
    if dropout_p > 0:
        noise = torch.zeros_like(weights) if dropout_p == 1 else \
            torch.empty_like(weights).bernoulli_(1 - dropout_p).div_(1 - dropout_p)
        used = torch.mul(weights, noise)
    return torch.matmul(used, value), (scaled_query, scaled_key, weights, noise, used)


def attention_back(g: Any, needs: Any, query: Any, key: Any, value: Any, mask: Any, extra: Any, *, is_causal: bool,
                   scale: float | None) -> list[Any]:
    """The chain through the two products and the softmax, by the kernels of torch's own."""
    if torch.is_grad_enabled():
        return attention_formula(g, query, key, value, mask, is_causal, scale, extra[3])
    scaled_query, scaled_key, weights, noise, used = extra
    of_query, of_key = factors(query, scale)
    gq = gk = gs = gv = None
    if needs[2]:
        gv = torch.matmul(used.transpose(-2, -1), g)
    if needs[0] or needs[1] or needs[3]:
        gw = torch.matmul(g, value.transpose(-2, -1))
        gs = torch._softmax_backward_data(gw if noise is None else gw * noise, weights, -1, weights.dtype)
        if needs[1]:
            gk = (torch.matmul(scaled_query.transpose(-2, -1), gs) * of_key).transpose(-2, -1)
        if needs[0]:
            gq = torch.matmul(gs, scaled_key.transpose(-2, -1)) * of_query
    return [gq, gk, gv, gs]


def attention_formula(g: Any, query: Any, key: Any, value: Any, mask: Any, is_causal: bool, scale: float | None,
                      noise: Any = None) -> list[Any]:
    """The same cotangents by recordable operations."""
    of_query, of_key = factors(query, scale)
    mask = additive(mask, query, key, is_causal)
    scaled_query, scaled_key = query * of_query, key.transpose(-2, -1) * of_key
    scores = scaled_query @ scaled_key
    if mask is not None:
        scores = scores + mask
    empty = (scores == -math.inf).all(-1, keepdim=True)
    weights = scores.masked_fill(empty, 0.0).softmax(-1).masked_fill(empty, 0.0)
    gw = g @ value.transpose(-2, -1)
    used = weights
    if noise is not None:
        gw, used = gw * noise, weights * noise
    gs = weights * (gw - (gw * weights).sum(-1, keepdim=True))
    gk = (scaled_query.transpose(-2, -1) @ gs * of_key).transpose(-2, -1)
    return [gs @ scaled_key.transpose(-2, -1) * of_query, gk, used.transpose(-2, -1) @ g, gs]


def flash_kernel(query: Any, key: Any, value: Any, mask: Any, *, dropout_p: float, is_causal: bool,
                 scale: float | None) -> Any:
    mask = additive(mask, query, key, False)
    out, logsumexp = torch._scaled_dot_product_flash_attention_for_cpu(
        query, key, value, dropout_p, is_causal, attn_mask=mask, scale=scale)
    return out, (mask, logsumexp)


def flash_back(g: Any, needs: Any, ans: Any, query: Any, key: Any, value: Any, mask: Any, extra: Any, *,
               dropout_p: float, is_causal: bool, scale: float | None) -> list[Any]:
    if torch.is_grad_enabled():
        return attention_formula(g, query, key, value, mask, is_causal, scale)[:3]
    mask, logsumexp = extra
    return list(A._scaled_dot_product_flash_attention_for_cpu_backward(
        g, query, key, value, ans, logsumexp, dropout_p, is_causal, attn_mask=mask, scale=scale))


def attention(query: Any, key: Any, value: Any, mask: Any, *, dropout_p: float, is_causal: bool,
              scale: float | None) -> Any:
    """The canonical call."""
    return private.nn.scaled_dot_product_attention(query, key, value, mask, dropout_p, is_causal, scale=scale)


SIGNATURE = "query, key, value, mask=?, *, dropout_p=0.0, is_causal=False, scale=None"
define("attention", SIGNATURE, PURE | REDUCES, bind=bind_attention, forward=attention, kernel=attention_kernel,
       joint=attention_back)
define("attention_dropout", SIGNATURE, REDUCES, bind=bind_attention, forward=attention, kernel=attention_kernel,
       joint=attention_back)
define("flash_attention", SIGNATURE, PURE, bind=bind_attention, forward=attention, kernel=flash_kernel,
       joint=flash_back)
choose("torch._C._nn.scaled_dot_product_attention F.scaled_dot_product_attention", pick_attention)
