"""Architectures and layers as people write them: attention, graphs, images, routing, quantization."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn
from torch.nn import functional as F
from torch.nn.utils import parametrize
from torch.utils.checkpoint import checkpoint

from . import algorithm
from .training import mlp, parameters

Tensor = torch.Tensor


class Attention(nn.Module):
    """Causal self-attention, written out."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads, self.qkv, self.out = heads, nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.register_buffer("mask", torch.tril(torch.ones(16, 16)).view(1, 1, 16, 16))

    def forward(self, x: Tensor) -> Tensor:
        b, t, c = x.size()
        q, k, v = (m.view(b, t, self.heads, c // self.heads).transpose(1, 2) for m in self.qkv(x).split(c, dim=2))
        weights = (q @ k.transpose(-2, -1)) * (k.size(-1) ** -0.5)
        weights = weights.masked_fill(self.mask[:, :, :t, :t] == 0, float("-inf")).softmax(-1)
        return self.out((weights @ v).transpose(1, 2).contiguous().view(b, t, c))


class Block(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.attend, self.mix = Attention(width, 2), mlp(width, 2 * width, width, act=nn.GELU)
        self.n1, self.n2, self.drop = nn.LayerNorm(width), nn.LayerNorm(width), nn.Dropout(0.1)

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.drop(self.attend(self.n1(x)))
        return x + self.drop(self.mix(self.n2(x)))


class Language(nn.Module):
    def __init__(self, recompute: bool = False) -> None:
        super().__init__()
        self.tokens, self.places = nn.Embedding(11, 8), nn.Embedding(16, 8)
        self.blocks, self.norm = nn.ModuleList([Block(8), Block(8)]), nn.LayerNorm(8)
        self.head = nn.Linear(8, 11, bias=False)
        self.head.weight = self.tokens.weight
        self.recompute = recompute

    def forward(self, x: Tensor) -> Tensor:
        h = self.tokens(x) + self.places(torch.arange(x.size(1)))
        for block in self.blocks:
            h = checkpoint(block, h, use_reentrant=False) if self.recompute else block(h)
        return self.head(self.norm(h))


def learn_language(model: nn.Module) -> dict[str, Any]:
    decay = [p for p in model.parameters() if p.ndim > 1]
    rest = [p for p in model.parameters() if p.ndim <= 1]
    optimizer = torch.optim.AdamW([{"params": decay, "weight_decay": 0.1}, {"params": rest, "weight_decay": 0.0}], 1e-2)
    losses = []
    for _ in range(2):
        text = torch.randint(11, (3, 13))
        logits = model(text[:, :-1])
        loss = F.cross_entropy(logits.view(-1, 11), text[:, 1:].reshape(-1), ignore_index=0)
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        losses.append(loss.item())
    return {"losses": losses, **parameters(model)}


@algorithm
def tied_language_model() -> dict[str, Any]:
    return learn_language(Language())


@algorithm
def checkpointed_language_model() -> dict[str, Any]:
    return learn_language(Language(recompute=True))


@algorithm
def attention_with_cache() -> dict[str, Any]:
    """Keys and values are written into buffers a step at a time."""
    width = 4
    q, k, v = (nn.Linear(width, width) for _ in range(3))
    keys, values = torch.zeros(2, 6, width), torch.zeros(2, 6, width)
    x, outs = torch.randn(2, width), []
    for t in range(6):
        keys = keys.clone()
        values = values.clone()
        keys[:, t], values[:, t] = k(x), v(x)
        weights = torch.softmax(torch.einsum("bd,btd->bt", q(x), keys[:, :t + 1]) / 2, -1)
        x = x + torch.einsum("bt,btd->bd", weights, values[:, :t + 1])
        outs.append(x)
    torch.stack(outs).square().sum().backward()
    return {f"{i}": p.grad for i, p in enumerate(p for m in (q, k, v) for p in m.parameters())}


@algorithm
def rotary_and_grouped_attention() -> dict[str, Any]:
    q, kv = nn.Linear(8, 8, bias=False), nn.Linear(8, 8, bias=False)
    scale = nn.Parameter(torch.ones(8))
    angle = torch.arange(5)[:, None] / 10000 ** (torch.arange(0, 2, 2) / 2)[None]
    turn = torch.polar(torch.ones_like(angle), angle)

    def rotate(x: Tensor) -> Tensor:
        return torch.view_as_real(torch.view_as_complex(x.unflatten(-1, (-1, 2))) * turn).flatten(-2)

    x = torch.randn(2, 5, 8)
    h = x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6) * scale
    queries = rotate(q(h).view(2, 5, 4, 2).transpose(1, 2))
    keys, values = kv(h).view(2, 5, 2, 2, 2).permute(3, 0, 2, 1, 4)
    keys, values = (m.repeat_interleave(2, dim=1) for m in (rotate(keys), values))
    out = F.scaled_dot_product_attention(queries, keys, values, is_causal=True)
    out.transpose(1, 2).reshape(2, 5, 8).square().mean().backward()
    return {"q": q.weight.grad, "kv": kv.weight.grad, "scale": scale.grad}


@algorithm
def shifted_windows() -> dict[str, Any]:
    x, mix = torch.randn(2, 8, 8, 4, requires_grad=True), nn.Linear(4, 4)
    h = torch.roll(x, (-2, -2), (1, 2))
    h = h.view(2, 2, 4, 2, 4, 4).permute(0, 1, 3, 2, 4, 5).reshape(-1, 16, 4)
    h = F.multi_head_attention_forward(
        h.transpose(0, 1), h.transpose(0, 1), h.transpose(0, 1), 4, 2, torch.eye(12, 4), torch.zeros(12), None, None,
        False, 0.0, mix.weight, mix.bias, need_weights=False)[0].transpose(0, 1)
    h = h.reshape(2, 2, 2, 4, 4, 4).permute(0, 1, 3, 2, 4, 5).reshape(2, 8, 8, 4)
    h = torch.roll(h, (2, 2), (1, 2)) + x
    h.square().mean().backward()
    return {"x": x.grad, "w": mix.weight.grad}


@algorithm
def graph_convolution() -> dict[str, Any]:
    edges = torch.randint(6, (2, 14))
    w1, w2 = nn.Linear(3, 5), nn.Linear(5, 2)
    optimizer = torch.optim.Adam([*w1.parameters(), *w2.parameters()], 1e-2, weight_decay=5e-4)
    x, y = torch.randn(6, 3), torch.randint(2, (6,))
    degree = torch.zeros(6).scatter_add_(0, edges[1], torch.ones(14)).clamp_(min=1)
    weight = (degree[edges[0]] * degree[edges[1]]).rsqrt()[:, None]
    adjacency = torch.sparse_coo_tensor(edges.flip(0), weight.squeeze(1), (6, 6))
    for _ in range(3):
        h = w1(x)
        h = torch.zeros_like(h).index_add_(0, edges[1], h[edges[0]] * weight)
        h = F.dropout(F.elu(h), 0.2)
        out = torch.sparse.mm(adjacency, w2(h))
        loss = F.nll_loss(F.log_softmax(out, 1), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return parameters(w1, w2)


@algorithm
def graph_attention() -> dict[str, Any]:
    source, target = torch.randint(5, (2, 12))
    w, a = nn.Linear(3, 4, bias=False), nn.Parameter(torch.randn(8))
    x = torch.randn(5, 3, requires_grad=True)
    h = w(x)
    score = F.leaky_relu(torch.cat([h[source], h[target]], 1) @ a, 0.2)
    top = torch.full((5,), float("-inf")).scatter_reduce(0, target, score, "amax")
    raised = (score - top[target]).exp()
    share = raised / torch.zeros(5).index_add(0, target, raised)[target]
    out = torch.zeros(5, 4).index_add(0, target, share[:, None] * h[source])
    out.square().sum().backward()
    return {"x": x.grad, "w": w.weight.grad, "a": a.grad}


@algorithm
def mixture_of_experts() -> dict[str, Any]:
    gate, experts = nn.Linear(4, 3, bias=False), nn.ModuleList([mlp(4, 6, 4) for _ in range(3)])
    x = torch.randn(10, 4, requires_grad=True)
    chances = gate(x).softmax(-1)
    weight, chosen = chances.topk(2, dim=-1)
    weight = weight / weight.sum(-1, keepdim=True)
    out = torch.zeros_like(x)
    for i, expert in enumerate(experts):
        rows, slot = torch.where(chosen == i)
        if rows.numel():
            out = out.index_put((rows,), expert(x[rows]) * weight[rows, slot, None], accumulate=True)
    balance = 3 * (F.one_hot(chosen[:, 0], 3).to(x.dtype).mean(0) * chances.mean(0)).sum()
    (out.square().mean() + 0.01 * balance).backward()
    return {"x": x.grad, "gate": gate.weight.grad, **{k: p.grad for k, p in experts.named_parameters()}}


@algorithm
def straight_through_quantization() -> dict[str, Any]:
    class Round(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Tensor, scale: Tensor) -> Tensor:
            ctx.save_for_backward(x, scale)
            return (x / scale).round().clamp(-4, 3) * scale

        @staticmethod
        def backward(ctx: Any, *cotangents: Tensor) -> tuple[Tensor, Tensor]:
            x, scale = ctx.saved_tensors
            inside = ((x / scale) >= -4) & ((x / scale) <= 3)
            step = torch.where(inside, (x / scale).round() - x / scale, (x / scale).clamp(-4, 3))
            return cotangents[0] * inside, (cotangents[0] * step).sum()

    scale, layer, codes = nn.Parameter(torch.tensor(0.1)), nn.Linear(4, 3), nn.Parameter(torch.randn(5, 3))
    optimizer = torch.optim.SGD([scale, codes, *layer.parameters()], 0.05)
    for _ in range(3):
        h = F.linear(torch.randn(6, 4), Round.apply(layer.weight, scale), layer.bias)
        nearest = torch.cdist(h.detach(), codes.detach()).argmin(1)
        quantized = codes[nearest]
        passed = h + (quantized - h).detach()
        hard = F.gumbel_softmax(passed, tau=0.7, hard=True)
        commitment = F.mse_loss(quantized, h.detach()) + 0.25 * F.mse_loss(h, quantized.detach())
        loss = (hard * torch.arange(3.0)).sum() + commitment
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return {"scale": scale.detach(), "codes": codes.detach(), **parameters(layer)}


@algorithm
def low_rank_adaptation() -> dict[str, Any]:
    class Adapt(nn.Module):
        def __init__(self, n: int, m: int) -> None:
            super().__init__()
            self.a, self.b = nn.Parameter(torch.randn(2, m) / 4), nn.Parameter(torch.zeros(n, 2))

        def forward(self, w: Tensor) -> Tensor:
            return w + self.b @ self.a

    model = mlp(4, 6, 2, act=nn.ReLU).requires_grad_(False)
    for layer in model:
        if isinstance(layer, nn.Linear):
            parametrize.register_parametrization(layer, "weight", Adapt(*layer.weight.shape))
    trained = [p for p in model.parameters() if p.requires_grad]
    optimizer = torch.optim.AdamW(trained, 1e-1)
    for _ in range(3):
        with parametrize.cached():
            loss = F.mse_loss(model(torch.randn(5, 4)), torch.zeros(5, 2)) + 0.1 * model(torch.ones(1, 4)).sum()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return parameters(model)


@algorithm
def radiance_along_rays() -> dict[str, Any]:
    net = mlp(18, 12, 4, act=nn.ReLU)
    origin, ways = torch.zeros(4, 1, 3), F.normalize(torch.randn(4, 1, 3), dim=-1)
    depth = torch.linspace(1, 3, 6).expand(4, 6) + 0.1 * torch.rand(4, 6)
    points = origin + ways * depth[..., None]
    coded = torch.cat([f(points * 2 ** k) for k in range(3) for f in (torch.sin, torch.cos)], -1)
    raw = net(coded)
    gap = torch.cat([depth.diff(dim=1), torch.full((4, 1), 1e10)], 1)
    alpha = 1 - torch.exp(-F.relu(raw[..., 3]) * gap)
    light = torch.cumprod(torch.cat([torch.ones(4, 1), 1 - alpha + 1e-10], 1), 1)[:, :-1]
    colour = ((alpha * light)[..., None] * raw[..., :3].sigmoid()).sum(1)
    F.mse_loss(colour, torch.rand(4, 3)).backward()
    return {k: p.grad for k, p in net.named_parameters()}


@algorithm
def residual_images() -> dict[str, Any]:
    class Residual(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.c1, self.c2 = nn.Conv2d(4, 4, 3, padding=1, bias=False), nn.Conv2d(4, 4, 3, padding=1, groups=2)
            self.b1, self.g2 = nn.BatchNorm2d(4), nn.GroupNorm(2, 4)

        def forward(self, x: Tensor) -> Tensor:
            return F.relu(self.g2(self.c2(F.relu(self.b1(self.c1(x)), inplace=True))) + x, inplace=True)

    model = nn.Sequential(nn.Conv2d(1, 4, 3, padding=1), nn.ReLU(inplace=True), Residual(), nn.MaxPool2d(2), Residual(),
                          nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(4, 3))
    optimizer = torch.optim.SGD(model.parameters(), 0.1, momentum=0.9)
    for _ in range(2):
        loss = F.cross_entropy(model(torch.randn(4, 1, 8, 8)), torch.randint(3, (4,)))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return parameters(model)


@algorithm
def segmenting_images() -> dict[str, Any]:
    down, mid, up = nn.Conv2d(1, 3, 3, padding=1), nn.Conv2d(3, 6, 3, padding=1), nn.ConvTranspose2d(6, 3, 2, stride=2)
    head = nn.Conv2d(6, 2, 1)
    x, mask = torch.randn(2, 1, 8, 8), torch.randint(2, (2, 8, 8))
    a = F.relu(down(x))
    b = up(F.relu(mid(F.max_pool2d(a, 2))))
    out = F.interpolate(head(torch.cat([a, b], 1)), scale_factor=2, mode="bilinear", align_corners=False)
    out = F.avg_pool2d(out, 2)
    soft = out.softmax(1)[:, 1]
    dice = 1 - 2 * (soft * mask).sum() / (soft + mask).sum()
    (F.cross_entropy(out, mask) + dice).backward()
    return {f"{i}.{k}": p.grad for i, m in enumerate((down, mid, up, head)) for k, p in m.named_parameters()}


@algorithm
def spatial_transformer() -> dict[str, Any]:
    theta = torch.eye(2, 3).repeat(2, 1, 1).requires_grad_()
    x = torch.rand(2, 1, 6, 6, requires_grad=True)
    warped = F.grid_sample(x, F.affine_grid(theta, [2, 1, 6, 6], align_corners=False), align_corners=False)
    patches = F.unfold(warped, 3, stride=2).transpose(1, 2)
    loss = (patches @ patches.mT).square().mean() + (warped[..., 1:] - warped[..., :-1]).abs().mean()
    loss.backward()
    return {"theta": theta.grad, "x": x.grad}


@algorithm
def recurrent_translation() -> dict[str, Any]:
    embed, encode, decode, out = nn.Embedding(9, 4, padding_idx=0), nn.LSTM(4, 5), nn.LSTMCell(4, 5), nn.Linear(10, 9)
    modules = [embed, encode, decode, out]
    optimizer = torch.optim.Adam([p for m in modules for p in m.parameters()], 1e-2)
    for _ in range(2):
        source, target = torch.randint(9, (5, 3)), torch.randint(9, (4, 3))
        memory, (h, c) = encode(embed(source))
        h, c, loss = h[0], c[0], torch.zeros(())
        word = torch.zeros(3, dtype=torch.long)
        for t in range(4):
            h, c = decode(embed(word), (h, c))
            weights = (memory * h).sum(-1).softmax(0)
            logits = out(torch.cat([h, (weights[..., None] * memory).sum(0)], 1))
            loss = loss + F.cross_entropy(logits, target[t], ignore_index=0, reduction="sum")
            word = target[t] if torch.rand(()) < 0.5 else logits.argmax(1)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return parameters(*modules)


@algorithm
def matrix_of_embeddings() -> dict[str, Any]:
    users, items = nn.Embedding(6, 3, sparse=True), nn.Embedding(7, 3, max_norm=1.0)
    bags = nn.EmbeddingBag(8, 3, mode="mean")
    dense = torch.optim.Adam([*items.parameters(), *bags.parameters()], 1e-2)
    sparse = torch.optim.SparseAdam(list(users.parameters()), 1e-2)
    for _ in range(3):
        u, i = users(torch.randint(6, (5,))), items(torch.randint(7, (5,)))
        b = bags(torch.randint(8, (10,)), torch.arange(0, 10, 2))
        loss = F.margin_ranking_loss((u * i).sum(1), (u * b).sum(1), torch.ones(5), 0.5)
        loss = loss + F.triplet_margin_loss(u, i, b)
        dense.zero_grad()
        sparse.zero_grad()
        loss.backward()
        dense.step()
        sparse.step()
    return parameters(users, items, bags)
