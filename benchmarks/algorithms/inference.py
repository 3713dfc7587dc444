"""Inference: likelihoods, samplers, filters, transports, curvature."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import nn
from torch.distributions import (
    Categorical,
    Gamma,
    MixtureSameFamily,
    MultivariateNormal,
    Normal,
    TransformedDistribution,
    transforms,
)
from torch.nn import functional as F

from . import algorithm
from .training import mlp, parameters

Tensor = torch.Tensor


@algorithm
def gaussian_process() -> dict[str, Any]:
    x = torch.linspace(0, 1, 12)
    y = torch.sin(6 * x) + 0.1 * torch.randn(12)
    raw = torch.zeros(3, requires_grad=True)
    optimizer = torch.optim.LBFGS([raw], 0.5, max_iter=5, line_search_fn="strong_wolfe")

    def likelihood() -> Tensor:
        length, scale, noise = F.softplus(raw) + 1e-3
        d = (x[:, None] - x[None]).abs() * math.sqrt(3) / length
        k = scale * (1 + d) * torch.exp(-d) + noise * torch.eye(12)
        low = torch.linalg.cholesky(k)
        alpha = torch.cholesky_solve(y[:, None], low).squeeze(-1)
        return 0.5 * y @ alpha + low.diagonal().log().sum()

    def closure() -> Tensor:
        optimizer.zero_grad()
        loss = likelihood()
        loss.backward()
        return loss

    losses = [optimizer.step(closure).item() for _ in range(2)]
    return {"losses": losses, "raw": raw.detach(), "grad": raw.grad}


@algorithm
def kalman_filter() -> dict[str, Any]:
    turn = torch.tensor([[0.9, 0.2], [-0.2, 0.9]], requires_grad=True)
    noise, seen = torch.tensor([-1.0, -1.5], requires_grad=True), torch.randn(8, 1)
    h = torch.tensor([[1.0, 0.0]])
    mean, cov, total = torch.zeros(2), torch.eye(2), torch.zeros(())
    for y in seen:
        mean, cov = turn @ mean, turn @ cov @ turn.T + torch.diag(noise.exp())
        s = h @ cov @ h.T + 0.1 * torch.eye(1)
        gain = torch.linalg.solve(s, h @ cov).T
        left = y - h @ mean
        total = total + MultivariateNormal(h @ mean, s).log_prob(y)
        mean, cov = mean + gain @ left, (torch.eye(2) - gain @ h) @ cov
    total.backward()
    return {"total": total.detach(), "turn": turn.grad, "noise": noise.grad}


@algorithm
def hidden_markov_posterior() -> dict[str, Any]:
    """The posterior marginals are the gradient of the log-likelihood by the emissions' log-probabilities."""
    start, step = torch.randn(3, requires_grad=True), torch.randn(3, 3, requires_grad=True)
    emissions = torch.randn(7, 3, requires_grad=True)
    a = F.log_softmax(start, 0) + emissions[0]
    for t in range(1, 7):
        a = torch.logsumexp(a[:, None] + F.log_softmax(step, 1), 0) + emissions[t]
    log = torch.logsumexp(a, 0)
    marginals, = torch.autograd.grad(log, emissions, create_graph=True)
    entropy = -(marginals * (marginals + 1e-9).log()).sum()
    entropy.backward()
    return {"log": log.detach(), "marginals": marginals.detach(), "start": start.grad, "step": step.grad}


@algorithm
def conditional_random_field() -> dict[str, Any]:
    scores, moves = torch.randn(2, 6, 4, requires_grad=True), torch.randn(4, 4, requires_grad=True)
    tags, lengths = torch.randint(4, (2, 6)), torch.tensor([6, 4])
    mask = torch.arange(6)[None] < lengths[:, None]
    gold = scores.gather(2, tags[..., None]).squeeze(2).masked_fill(~mask, 0).sum(1)
    gold = gold + (moves[tags[:, :-1], tags[:, 1:]] * mask[:, 1:]).sum(1)
    a = scores[:, 0]
    for t in range(1, 6):
        a = torch.where(mask[:, t, None], torch.logsumexp(a[:, :, None] + moves, 1) + scores[:, t], a)
    loss = (torch.logsumexp(a, 1) - gold).mean()
    loss.backward()
    return {"loss": loss.detach(), "scores": scores.grad, "moves": moves.grad}


@algorithm
def hamiltonian_monte_carlo() -> dict[str, Any]:
    x, y = torch.randn(20, 3), (torch.rand(20) > 0.5).to(torch.get_default_dtype())

    def density(w: Tensor) -> Tensor:
        return -F.binary_cross_entropy_with_logits(x @ w, y, reduction="sum") - 0.5 * w.square().sum()

    def slope(w: Tensor) -> Tensor:
        w = w.detach().requires_grad_()
        return torch.autograd.grad(density(w), w)[0]

    w, kept = torch.zeros(3), []
    for _ in range(4):
        p = torch.randn(3)
        q, momentum = w.clone(), p + 0.05 * slope(w)
        for _ in range(3):
            q = q + 0.1 * momentum
            momentum = momentum + 0.1 * slope(q)
        q = q + 0.1 * momentum
        momentum = momentum + 0.05 * slope(q)
        with torch.no_grad():
            change = density(q) - 0.5 * momentum @ momentum - density(w) + 0.5 * p @ p
        if torch.rand(()).log() < change:
            w = q
        kept.append(w)
    return {"kept": torch.stack(kept)}


@algorithm
def stochastic_langevin() -> dict[str, Any]:
    w = nn.Parameter(torch.zeros(4))
    x = torch.randn(30, 4)
    y, path = x @ torch.tensor([1.0, -1.0, 0.5, 0.0]), []
    for step in range(6):
        rows = torch.randint(30, (5,))
        loss = 6 * F.mse_loss(x[rows] @ w, y[rows], reduction="sum") + 0.5 * w.square().sum()
        w.grad = None
        loss.backward()
        rate = 1e-3 / (1 + step)
        with torch.no_grad():
            w -= 0.5 * rate * w.grad
            w += torch.randn_like(w) * math.sqrt(rate)
        path.append(w.detach().clone())
    return {"path": torch.stack(path)}


@algorithm
def coupling_flow() -> dict[str, Any]:
    nets = nn.ModuleList([mlp(1, 8, 2) for _ in range(3)])
    optimizer = torch.optim.Adam(nets.parameters(), 1e-2)
    for _ in range(3):
        x = torch.randn(10, 2) @ torch.tensor([[1.0, 0.5], [0.0, 0.7]])
        log = torch.zeros(10)
        for i, net in enumerate(nets):
            a, b = x[:, i % 2:i % 2 + 1], x[:, 1 - i % 2:2 - i % 2]
            scale, shift = net(a).chunk(2, 1)
            scale = torch.tanh(scale)
            b = b * scale.exp() + shift
            log = log + scale.squeeze(1)
            x = torch.cat([a, b] if i % 2 == 0 else [b, a], 1)
        loss = -(Normal(0.0, 1.0).log_prob(x).sum(1) + log).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return parameters(nets)


@algorithm
def transformed_distributions() -> dict[str, Any]:
    location, scale = torch.randn(3, requires_grad=True), torch.rand(3, requires_grad=True)
    base = Normal(location, F.softplus(scale))
    flow = TransformedDistribution(base, [transforms.SigmoidTransform(), transforms.AffineTransform(2.0, 3.0)])
    draws = flow.rsample((5,))
    gamma = Gamma(scale.exp(), location.exp()).rsample((4,))
    loss = flow.log_prob(draws.detach()).mean() + draws.log().mean() + gamma.mean()
    loss.backward()
    return {"loss": loss.detach(), "location": location.grad, "scale": scale.grad}


@algorithm
def mixture_density() -> dict[str, Any]:
    model = mlp(2, 12, 9)
    optimizer = torch.optim.RAdam(model.parameters(), 1e-2)
    for _ in range(3):
        logits, mean, scale = model(torch.randn(8, 2)).chunk(3, 1)
        mixture = MixtureSameFamily(Categorical(logits=logits), Normal(mean, F.softplus(scale) + 1e-3))
        loss = -mixture.log_prob(torch.randn(8)).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return parameters(model)


@algorithm
def entropic_transport() -> dict[str, Any]:
    x, y = torch.randn(6, 2, requires_grad=True), torch.randn(8, 2)
    cost = torch.cdist(x, y) ** 2
    f, g, eps = torch.zeros(6), torch.zeros(8), 0.5
    for _ in range(6):
        f = -eps * torch.logsumexp((g - cost) / eps - math.log(8), dim=1)
        g = -eps * torch.logsumexp((f[:, None] - cost) / eps - math.log(6), dim=0)
    plan = torch.exp((f[:, None] + g[None] - cost) / eps) / 48
    value = (plan * cost).sum()
    value.backward()
    return {"value": value.detach(), "plan": plan.detach(), "x": x.grad}


@algorithm
def natural_gradient() -> dict[str, Any]:
    """Conjugate gradients on products with the Fisher matrix, by differentiating twice."""
    model = mlp(3, 6, 3)
    x = torch.randn(8, 3)
    weights = list(model.parameters())
    logs = F.log_softmax(model(x), 1)
    y = torch.randint(3, (8,))
    flat = torch.cat([g.flatten() for g in torch.autograd.grad(F.nll_loss(logs, y), weights, retain_graph=True)])
    divergence = F.kl_div(logs, logs.detach().exp(), reduction="batchmean")
    first = torch.cat([g.flatten() for g in torch.autograd.grad(divergence, weights, create_graph=True)])

    def product(v: Tensor) -> Tensor:
        again = torch.autograd.grad(first @ v, weights, retain_graph=True)
        return torch.cat([g.flatten() for g in again]) + 0.1 * v

    step, r = torch.zeros_like(flat), flat.clone()
    p, size = r.clone(), r @ r
    for _ in range(5):
        ap = product(p)
        a = size / (p @ ap)
        step += a * p
        r -= a * ap
        fresh = r @ r
        p = r + fresh / size * p
        size = fresh
    return {"step": step, "rest": r}


@algorithm
def newton_regression() -> dict[str, Any]:
    x, counts, w = torch.randn(20, 3), torch.randint(0, 5, (20,)).to(torch.get_default_dtype()), torch.zeros(3)
    for _ in range(4):
        def loss(w: Tensor) -> Tensor:
            return F.poisson_nll_loss(x @ w, counts, log_input=True) + 0.01 * w @ w

        w = w.detach().requires_grad_()
        g, = torch.autograd.grad(loss(w), w)
        h = torch.autograd.functional.hessian(loss, w)
        w = w.detach() - torch.linalg.solve(h, g)
    return {"w": w, "h": h, "h_func": torch.func.hessian(loss)(w)}


@algorithm
def influence_of_examples() -> dict[str, Any]:
    """Inverse-Hessian products as a damped series, then the influence of every example on a test loss."""
    w = torch.randn(4, requires_grad=True)
    x, y = torch.randn(10, 4), torch.randn(10)

    def losses() -> Tensor:
        return F.softplus(-y * (x @ w))

    test, = torch.autograd.grad((torch.randn(4) @ w).sigmoid(), w)
    estimate = test.clone()
    for _ in range(5):
        g, = torch.autograd.grad(losses().mean() + 0.05 * w @ w, w, create_graph=True)
        hv, = torch.autograd.grad(g, w, grad_outputs=estimate)
        estimate = test + estimate - 0.5 * hv
    rows = losses()
    influence = torch.stack([-torch.autograd.grad(row, w, retain_graph=True)[0] @ estimate for row in rows])
    return {"estimate": estimate, "influence": influence}


@algorithm
def sliced_score_matching() -> dict[str, Any]:
    energy = mlp(2, 12, 1, act=nn.Softplus)
    optimizer = torch.optim.Adamax(energy.parameters(), 1e-2)
    for _ in range(3):
        x = torch.randn(8, 2).requires_grad_()
        v = torch.randint(0, 2, (8, 2)) * 2.0 - 1
        score, = torch.autograd.grad(-energy(x).sum(), x, create_graph=True)
        trace, = torch.autograd.grad((score * v).sum(), x, create_graph=True)
        loss = ((trace * v).sum(1) + 0.5 * score.square().sum(1)).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return parameters(energy)


@algorithm
def bayesian_layers() -> dict[str, Any]:
    class Layer(nn.Module):
        def __init__(self, n: int, m: int) -> None:
            super().__init__()
            self.mean, self.rho = nn.Parameter(torch.randn(m, n) / n ** 0.5), nn.Parameter(torch.full((m, n), -3.0))

        def forward(self, x: Tensor) -> Tensor:
            variance = F.softplus(self.rho) ** 2
            m, v = F.linear(x, self.mean), F.linear(x ** 2, variance)
            return m + v.sqrt() * torch.randn_like(m)

        def divergence(self) -> Tensor:
            variance = F.softplus(self.rho) ** 2
            return 0.5 * (variance + self.mean ** 2 - 1 - variance.log()).sum()

    layers = nn.ModuleList([Layer(3, 6), Layer(6, 1)])
    optimizer = torch.optim.Adam(layers.parameters(), 1e-2)
    for _ in range(3):
        h = torch.relu(layers[0](torch.randn(10, 3)))
        loss = F.gaussian_nll_loss(layers[1](h), torch.randn(10, 1), torch.full((10, 1), 0.1))
        loss = loss + sum(layer.divergence() for layer in layers) / 100
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return parameters(layers)


@algorithm
def connectionist_alignment() -> dict[str, Any]:
    model = nn.GRU(4, 6, bidirectional=True, batch_first=True)
    head = nn.Linear(12, 5)
    optimizer = torch.optim.Rprop([*model.parameters(), *head.parameters()], 1e-2)
    for _ in range(2):
        packed = nn.utils.rnn.pack_padded_sequence(torch.randn(3, 9, 4), torch.tensor([9, 7, 8]), batch_first=True,
                                                   enforce_sorted=False)
        hidden, _ = nn.utils.rnn.pad_packed_sequence(model(packed)[0], batch_first=True)
        logs = F.log_softmax(head(hidden), -1).transpose(0, 1)
        loss = F.ctc_loss(logs, torch.randint(1, 5, (3, 4)), torch.tensor([9, 7, 8]), torch.tensor([4, 3, 2]))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return parameters(model, head)
