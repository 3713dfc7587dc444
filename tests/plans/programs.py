"""Random functions of tensors for plans: elementwise work, views, in-place writes, products, reductions, draws."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import torch

Tensor = torch.Tensor
Statement = Callable[[list[Tensor], list[int]], Tensor]


@torch.no_grad()
def shown(x: Tensor) -> Tensor:
    """The tensor itself, of which views were looked at."""
    x[1:].max()
    x.t()[0].view(-1)
    return x


UNARY: list[Callable[[Tensor], Tensor]] = [
    torch.sin,
    torch.cos,
    torch.tanh,
    torch.sigmoid,
    torch.exp,
    torch.abs,
    torch.relu,
    torch.neg,
    torch.square,
    lambda x: x * 0.1,
    lambda x: 2.5 - x,
    lambda x: x / 3,
    lambda x: x**2,
    lambda x: x**3,
    lambda x: (x * x + 1).sqrt(),
    lambda x: (x.abs() + 0.5).log(),
    lambda x: x.clone(),
    lambda x: x.detach(),
    lambda x: torch.where(x > 0, x, x * 0.01),
    lambda x: x.t(),
    lambda x: x.t().contiguous(),
    lambda x: x.reshape(-1).view(x.shape),
    lambda x: x[:1] + x,
    lambda x: x - x.mean(),
    lambda x: x / (1 + x.abs().sum()),
    lambda x: x.sum(0) + x,
    lambda x: x.sum(1, keepdim=True) * x,
    lambda x: torch.softmax(x, 1),
    lambda x: torch.cat([x[2:], x[:2]]),
    lambda x: x.flip(0),
    lambda x: x.cumsum(0),
    lambda x: torch.nn.functional.pad(x[:, 1:], (1, 0)),
    lambda x: x.expand(2, *x.shape).sum(0),
    lambda x: x.float().to(x.dtype),
    lambda x: shown(x) * 1,
]
BINARY: list[Callable[[Tensor, Tensor], Tensor]] = [
    torch.add,
    torch.sub,
    torch.mul,
    lambda x, y: x / (1 + y * y),
    torch.maximum,
    torch.minimum,
    torch.matmul,
    lambda x, y: torch.add(x, y, alpha=0.3),
    lambda x, y: torch.addcmul(x, x, y, value=0.5),
    lambda x, y: torch.where(x < y, x, y),
    lambda x, y: x @ y.t(),
    lambda x, y: torch.stack([x, y]).mean(0),
    lambda x, y: x.lerp(y, 0.25),
]
WRITES: list[Callable[[Tensor, Tensor], Any]] = [
    lambda x, y: x.mul_(0.5),
    lambda x, y: x.add_(y),
    lambda x, y: x.tanh_(),
    lambda x, y: x[0].mul_(2),
    lambda x, y: x.copy_(y),
    lambda x, y: x.t().add_(1),
    lambda x, y: x[1:3].zero_(),
]


def program(seed: int) -> Callable[..., Any]:
    """A function of three 4x4 tensors, the same at each call; its structure depends on the seed alone."""
    rng = random.Random(seed)
    steps: list[tuple[str, Any, list[int]]] = []
    for k in range(rng.randint(4, 18)):
        kind = rng.choices(["unary", "binary", "write", "draw"], [5, 4, 1.5, 0.5])[0]
        which = [rng.randrange(3 + k), rng.randrange(3 + k)]
        steps.append(
            (
                kind,
                rng.choice({"unary": UNARY, "binary": BINARY, "write": WRITES, "draw": [torch.rand_like]}[kind]),
                which,
            )
        )
    kept = rng.sample(range(len(steps)), min(len(steps), rng.randint(1, 3)))
    ends = rng.choice(["values", "loss", "backward", "grad"])

    def run(a: Tensor, b: Tensor, c: Tensor) -> Any:
        values = [a, b, c]
        for kind, function, (i, j) in steps:
            x, y = values[i], values[j]
            if kind == "write":
                x = x * 1  # memory of its own
                with torch.no_grad() if not x.requires_grad else torch.enable_grad():
                    function(x, y)
                values.append(x)
            else:
                values.append(function(x, y) if kind == "binary" else function(x))
        results = [values[3 + k] for k in kept]
        loss = sum((r * r.detach().cos()).sum() for r in results) / 16
        if ends == "values":
            return results
        if ends == "loss":
            return {"loss": loss, "parts": tuple(results)}
        if not loss.requires_grad:
            return loss
        if ends == "backward":
            loss.backward()
            return loss.detach()
        return torch.autograd.grad(loss, [t for t in (a, b, c) if t.requires_grad], allow_unused=True)

    return run


def operands(seed: int, draw: int) -> list[Tensor]:
    """Three operands: their kinds depend on the seed, their values on the draw."""
    rng = random.Random(seed + 77)
    generator = torch.Generator().manual_seed(1000 * seed + draw)
    dtype = rng.choice([torch.float32, torch.float64])
    made = []
    for k in range(3):
        t = torch.randn(4, 4, dtype=dtype, generator=generator)
        t = t.t() if rng.random() < 0.2 else t
        made.append(t.requires_grad_() if k == 0 or rng.random() < 0.5 else t)
    return made


def observed(function: Callable[..., Any], given: list[Tensor], seed: int) -> list[Any]:
    """All that a call leaves: results, whether they follow gradients, gradients by a backward run, operands, a draw."""
    torch.manual_seed(seed)
    for t in given:
        t.grad = None
    result = function(*given)
    flat = torch.utils._pytree.tree_leaves(result)
    open_ = [t for t in flat if isinstance(t, Tensor) and t.requires_grad]
    seen: list[Any] = [(t.detach().clone(), t.requires_grad) if isinstance(t, Tensor) else t for t in flat]
    if open_:
        sum((t * (k + 1)).sum() for k, t in enumerate(open_)).backward()
    return [
        *seen,
        *(None if t.grad is None else t.grad.clone() for t in given),
        *(t.detach().clone() for t in given),
        torch.rand(1),
    ]


def agree(found: Any, expected: Any) -> bool:
    """True if two observations are equal, within rounding where they are numbers."""
    if isinstance(expected, (list, tuple)):
        return len(found) == len(expected) and all(map(agree, found, expected))
    if isinstance(expected, Tensor):
        if not isinstance(found, Tensor) or found.dtype != expected.dtype or found.shape != expected.shape:
            return False
        tolerance = 2e-4 if expected.dtype == torch.float32 else 1e-9
        return torch.allclose(found, expected, rtol=tolerance, atol=tolerance, equal_nan=True)
    return bool(found == expected)
