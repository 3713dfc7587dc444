"""Training loops: generative models, meta-learning, reinforcement, optimizers written by hand."""

from __future__ import annotations

import copy
from itertools import pairwise
from typing import Any

import torch
from torch import nn
from torch.distributions import Categorical, Independent, Normal, kl_divergence
from torch.func import functional_call
from torch.nn import functional as F

from . import algorithm

Tensor = torch.Tensor


def mlp(*sizes: int, act: type[nn.Module] = nn.Tanh) -> nn.Sequential:
    layers: list[nn.Module] = []
    for before, after in pairwise(sizes):
        layers += [nn.Linear(before, after), act()]
    return nn.Sequential(*layers[:-1])


def parameters(*modules: nn.Module) -> dict[str, Any]:
    states = [module.state_dict() for module in modules]
    return {f"{i}.{name}": value.detach().clone() for i, state in enumerate(states) for name, value in state.items()}


@algorithm
def maml() -> dict[str, Any]:
    model = mlp(1, 16, 1)
    outer = torch.optim.Adam(model.parameters(), 1e-2)
    losses = []
    for _ in range(3):
        outer.zero_grad()
        total = torch.zeros(())
        for _ in range(2):
            phase = torch.rand(())
            x, y = torch.rand(8, 1), torch.rand(8, 1)
            fast = dict(model.named_parameters())
            for _ in range(2):
                inner = F.mse_loss(functional_call(model, fast, (x,)), torch.sin(x + phase))
                grads = torch.autograd.grad(inner, list(fast.values()), create_graph=True)
                fast = {k: p - 0.1 * g for (k, p), g in zip(fast.items(), grads, strict=True)}
            total = total + F.mse_loss(functional_call(model, fast, (y,)), torch.sin(y + phase))
        total.backward()
        outer.step()
        losses.append(total.item())
    return {"losses": losses, **parameters(model)}


@algorithm
def gan_with_gradient_penalty() -> dict[str, Any]:
    generator, critic = mlp(2, 16, 2, act=nn.ReLU), mlp(2, 16, 1, act=nn.LeakyReLU)
    g_opt = torch.optim.RMSprop(generator.parameters(), 1e-3)
    c_opt = torch.optim.RMSprop(critic.parameters(), 1e-3)
    for step in range(4):
        real, noise = torch.randn(8, 2) + 2, torch.randn(8, 2)
        fake = generator(noise).detach()
        mix = torch.rand(8, 1)
        between = (mix * real + (1 - mix) * fake).requires_grad_()
        slope = torch.autograd.grad(critic(between).sum(), between, create_graph=True)[0]
        loss = critic(fake).mean() - critic(real).mean() + 10 * ((slope.norm(dim=1) - 1) ** 2).mean()
        c_opt.zero_grad()
        loss.backward()
        c_opt.step()
        if step % 2:
            g_opt.zero_grad()
            (-critic(generator(noise)).mean()).backward()
            g_opt.step()
    return parameters(generator, critic)


@algorithm
def spectral_norm_gan() -> dict[str, Any]:
    critic = nn.Sequential(nn.utils.parametrizations.spectral_norm(nn.Linear(2, 8)), nn.LeakyReLU(0.2),
                           nn.utils.parametrizations.spectral_norm(nn.Linear(8, 1)))
    generator = nn.Sequential(nn.Linear(3, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Linear(8, 2))
    g_opt = torch.optim.Adam(generator.parameters(), 1e-2, betas=(0.5, 0.9))
    c_opt = torch.optim.Adam(critic.parameters(), 1e-2, betas=(0.5, 0.9))
    for _ in range(3):
        real, fake = torch.randn(6, 2), generator(torch.randn(6, 3))
        c_loss = F.relu(1 - critic(real)).mean() + F.relu(1 + critic(fake.detach())).mean()
        c_opt.zero_grad()
        c_loss.backward()
        c_opt.step()
        for p in critic.parameters():
            p.requires_grad_(False)
        g_opt.zero_grad()
        (-critic(fake).mean()).backward()
        g_opt.step()
        for p in critic.parameters():
            p.requires_grad_(True)
    return parameters(generator, critic)


@algorithm
def variational_autoencoder() -> dict[str, Any]:
    encoder, decoder = mlp(6, 12, 4), mlp(2, 12, 6)
    optimizer = torch.optim.AdamW([*encoder.parameters(), *decoder.parameters()], 1e-2)
    losses = []
    for _ in range(4):
        x = (torch.rand(10, 6) > 0.5).to(torch.get_default_dtype())
        mean, log_scale = encoder(x).chunk(2, dim=-1)
        posterior = Independent(Normal(mean, log_scale.exp()), 1)
        prior = Independent(Normal(torch.zeros_like(mean), torch.ones_like(mean)), 1)
        reconstruction = F.binary_cross_entropy_with_logits(decoder(posterior.rsample()), x, reduction="none").sum(-1)
        loss = (reconstruction + kl_divergence(posterior, prior)).mean()
        optimizer.zero_grad(set_to_none=False)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return {"losses": losses, **parameters(encoder, decoder)}


@algorithm
def diffusion_with_moving_average() -> dict[str, Any]:
    model = mlp(3, 16, 2, act=nn.SiLU)
    average = copy.deepcopy(model).requires_grad_(False)
    optimizer = torch.optim.Adam(model.parameters(), 1e-2)
    alphas = torch.cumprod(1 - torch.linspace(1e-3, 0.2, 10), 0)
    for _ in range(4):
        x, t = torch.randn(8, 2), torch.randint(0, 10, (8,))
        noise = torch.randn_like(x)
        a = alphas[t, None]
        loss = F.mse_loss(model(torch.cat([a.sqrt() * x + (1 - a).sqrt() * noise, t[:, None] / 10], 1)), noise)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        with torch.no_grad():
            for mean, p in zip(average.parameters(), model.parameters(), strict=True):
                mean.mul_(0.9).add_(p, alpha=0.1)
    return parameters(model, average)


@algorithm
def policy_gradient() -> dict[str, Any]:
    policy, value = mlp(3, 8, 4), mlp(3, 8, 1)
    optimizer = torch.optim.SGD([*policy.parameters(), *value.parameters()], 1e-2, momentum=0.9, nesterov=True)
    for _ in range(2):
        state, logs, values, rewards, entropies = torch.randn(3), [], [], [], []
        for _ in range(5):
            chances = Categorical(logits=policy(state))
            action = chances.sample()
            logs.append(chances.log_prob(action))
            entropies.append(chances.entropy())
            values.append(value(state).squeeze())
            rewards.append((action == 1).to(state.dtype).item())
            state = (state + 0.1 * action).detach() * 0.9
        returns, running = [], 0.0
        for reward in reversed(rewards):
            running = reward + 0.9 * running
            returns.insert(0, running)
        target, seen = torch.tensor(returns), torch.stack(values)
        advantage = target - seen.detach()
        loss = -(torch.stack(logs) * advantage).sum() + F.smooth_l1_loss(seen, target) - 0.01 * sum(entropies)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return parameters(policy, value)


@algorithm
def proximal_policy() -> dict[str, Any]:
    actor, critic = mlp(4, 16, 2), mlp(4, 16, 1)
    optimizer = torch.optim.Adam([{"params": actor.parameters()}, {"params": critic.parameters(), "lr": 1e-2}], 1e-3)
    states = torch.randn(16, 4)
    with torch.no_grad():
        old = Categorical(logits=actor(states))
        actions = old.sample()
        before = old.log_prob(actions)
        gains = torch.randn(16)
    for _ in range(2):
        for rows in torch.randperm(16).split(8):
            new = Categorical(logits=actor(states[rows]))
            ratio = (new.log_prob(actions[rows]) - before[rows]).exp()
            gain = gains[rows]
            clipped = torch.min(ratio * gain, ratio.clamp(0.8, 1.2) * gain).mean()
            error = (critic(states[rows]).squeeze(-1) - gain).pow(2).mean()
            loss = -clipped + 0.5 * error - 0.01 * new.entropy().mean()
            optimizer.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_([p for g in optimizer.param_groups for p in g["params"]], 0.5)
            optimizer.step()
    return parameters(actor, critic)


@algorithm
def q_learning_with_target() -> dict[str, Any]:
    online = mlp(4, 16, 3, act=nn.ReLU)
    target = copy.deepcopy(online)
    optimizer = torch.optim.Adam(online.parameters(), 1e-2, amsgrad=True)
    for _ in range(4):
        state, after, action, reward = torch.randn(8, 4), torch.randn(8, 4), torch.randint(3, (8, 1)), torch.randn(8)
        with torch.no_grad():
            best = online(after).argmax(1, keepdim=True)
            goal = reward + 0.99 * target(after).gather(1, best).squeeze(1)
        loss = F.huber_loss(online(state).gather(1, action).squeeze(1), goal)
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_value_(online.parameters(), 1.0)
        optimizer.step()
        for slow, p in zip(target.parameters(), online.parameters(), strict=True):
            slow.data.lerp_(p.data, 0.05)
    return parameters(online, target)


@algorithm
def sharpness_aware() -> dict[str, Any]:
    model = mlp(3, 8, 1)
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    x, y = torch.randn(8, 3), torch.randn(8, 1)
    for _ in range(3):
        optimizer.zero_grad()
        F.mse_loss(model(x), y).backward()
        scale = 0.05 / torch.stack([p.grad.norm() for p in model.parameters()]).norm()
        moves = {}
        with torch.no_grad():
            for p in model.parameters():
                moves[p] = p.grad * scale
                p.add_(moves[p])
        optimizer.zero_grad()
        F.mse_loss(model(x), y).backward()
        with torch.no_grad():
            for p in model.parameters():
                p.sub_(moves[p])
        optimizer.step()
    return parameters(model)


@algorithm
def orthogonalized_momentum() -> dict[str, Any]:
    """Newton-Schulz iterations on the momentum of every matrix, as in Muon."""
    model = mlp(4, 6, 2, act=nn.GELU)
    buffers = {p: torch.zeros_like(p) for p in model.parameters()}
    x, y = torch.randn(8, 4), torch.randint(2, (8,))
    for _ in range(3):
        model.zero_grad()
        F.cross_entropy(model(x), y, label_smoothing=0.1).backward()
        with torch.no_grad():
            for p, buffer in buffers.items():
                buffer.mul_(0.9).add_(p.grad)
                step = buffer
                if p.ndim == 2:
                    step = buffer / (buffer.norm() + 1e-7)
                    turned = step.size(0) > step.size(1)
                    step = step.mT if turned else step
                    for _ in range(3):
                        a = step @ step.mT
                        step = 3.4445 * step + (-4.775 * a + 2.0315 * a @ a) @ step
                    step = step.mT if turned else step
                p.add_(step, alpha=-0.02)
    return parameters(model)


@algorithm
def learned_learning_rate() -> dict[str, Any]:
    """The gradient of the last loss by the learning rate and the decay, through unrolled steps."""
    rate, decay = torch.tensor(0.1, requires_grad=True), torch.tensor(0.01, requires_grad=True)
    x, y, w = torch.randn(12, 3), torch.randn(12), torch.zeros(3, requires_grad=True)
    now, velocity = w, torch.zeros(3)
    for _ in range(5):
        loss = ((x @ now - y) ** 2).mean() + decay * now.square().sum()
        g, = torch.autograd.grad(loss, now, create_graph=True)
        velocity = 0.9 * velocity + g
        now = now - rate * velocity
    last = ((x @ now - y) ** 2).mean()
    last.backward()
    return {"rate": rate.grad, "decay": decay.grad, "w": w.grad, "last": last.detach()}


@algorithm
def projected_conflicts() -> dict[str, Any]:
    """Two tasks whose conflicting gradients are projected onto each other's normal planes."""
    trunk, heads = mlp(3, 8, 4), nn.ModuleList([nn.Linear(4, 1), nn.Linear(4, 1)])
    shared = list(trunk.parameters())
    optimizer = torch.optim.Adagrad([*shared, *heads.parameters()], 1e-1)
    x, y = torch.randn(10, 3), torch.randn(2, 10, 1)
    for _ in range(3):
        features = trunk(x)
        losses = [F.mse_loss(head(features), y[i]) for i, head in enumerate(heads)]
        both = [torch.autograd.grad(loss, shared, retain_graph=True) for loss in losses]
        flat = [torch.cat([g.flatten() for g in grads]) for grads in both]
        dot = flat[0] @ flat[1]
        if dot < 0:
            flat = [flat[0] - dot / flat[1].square().sum() * flat[1], flat[1] - dot / flat[0].square().sum() * flat[0]]
        optimizer.zero_grad()
        sum(losses).backward(inputs=list(heads.parameters()))
        for p, g in zip(shared, (flat[0] + flat[1]).split([p.numel() for p in shared]), strict=True):
            p.grad = g.view_as(p).clone()
        optimizer.step()
    return parameters(trunk, heads)


@algorithm
def accumulated_gradients() -> dict[str, Any]:
    model = nn.Sequential(nn.Linear(4, 8), nn.LayerNorm(8), nn.Dropout(0.3), nn.ReLU(), nn.Linear(8, 3))
    optimizer = torch.optim.AdamW(model.parameters(), 1e-2, weight_decay=0.1)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, 0.1, total_steps=6)
    norms = []
    for _ in range(3):
        for part in torch.randn(4, 6, 4):
            (F.cross_entropy(model(part), torch.randint(3, (6,))) / 4).backward()
        norms.append(nn.utils.clip_grad_norm_(model.parameters(), 0.1).item())
        optimizer.step()
        schedule.step()
        optimizer.zero_grad()
    return {"norms": norms, "rate": schedule.get_last_lr(), **parameters(model)}


@algorithm
def averaged_weights() -> dict[str, Any]:
    model = nn.Sequential(nn.Linear(3, 6), nn.BatchNorm1d(6), nn.ReLU(), nn.Linear(6, 1))
    swa = torch.optim.swa_utils.AveragedModel(model)
    optimizer = torch.optim.SGD(model.parameters(), 0.1, momentum=0.9)
    batches = [(torch.randn(6, 3), torch.randn(6, 1)) for _ in range(4)]
    for x, y in batches:
        optimizer.zero_grad()
        F.mse_loss(model(x), y).backward()
        optimizer.step()
        swa.update_parameters(model)
    torch.optim.swa_utils.update_bn([x for x, _ in batches], swa)
    return parameters(model, swa)


@algorithm
def elastic_consolidation() -> dict[str, Any]:
    """The diagonal Fisher information of a first task holds the weights while a second is learned."""
    model = mlp(3, 8, 2)
    x, y = torch.randn(6, 3), torch.randint(2, (6,))
    fisher = {name: torch.zeros_like(p) for name, p in model.named_parameters()}
    logs = F.log_softmax(model(x), -1)
    for i in range(6):
        model.zero_grad()
        logs[i, y[i]].backward(retain_graph=True)
        for name, p in model.named_parameters():
            fisher[name] += p.grad.detach() ** 2 / 6
    old = {name: p.clone().detach() for name, p in model.named_parameters()}
    optimizer = torch.optim.Adadelta(model.parameters(), 1.0)
    for _ in range(3):
        loss = F.cross_entropy(model(torch.randn(6, 3)), torch.randint(2, (6,)))
        loss += 50 * sum((fisher[name] * (p - old[name]) ** 2).sum() for name, p in model.named_parameters())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return {**fisher, **{f"new.{k}": v for k, v in parameters(model).items()}}


@algorithm
def contrastive_pairs() -> dict[str, Any]:
    model = mlp(5, 8, 4)
    temperature = nn.Parameter(torch.tensor(0.07).log())
    optimizer = torch.optim.NAdam([*model.parameters(), temperature], 1e-2)
    for _ in range(3):
        x = torch.randn(6, 5)
        a, b = (F.normalize(model(x + 0.1 * torch.randn_like(x)), dim=-1) for _ in range(2))
        logits = a @ b.T / temperature.exp()
        labels = torch.arange(6)
        loss = (F.cross_entropy(logits, labels) + F.cross_entropy(logits.T, labels)) / 2
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        with torch.no_grad():
            temperature.clamp_(-4, 4)
    return {"temperature": temperature.detach(), **parameters(model)}


@algorithm
def federated_average() -> dict[str, Any]:
    server = mlp(3, 6, 1)
    for _ in range(2):
        states = []
        for _ in range(3):
            client = copy.deepcopy(server)
            optimizer = torch.optim.SGD(client.parameters(), 0.1, weight_decay=1e-3)
            for _ in range(2):
                optimizer.zero_grad()
                F.mse_loss(client(torch.randn(5, 3)), torch.randn(5, 1)).backward()
                optimizer.step()
            states.append(client.state_dict())
        server.load_state_dict({k: torch.stack([s[k] for s in states]).mean(0) for k in states[0]})
    return parameters(server)


@algorithm
def per_example_gradients() -> dict[str, Any]:
    """Differentially private steps: torch.func's vmap of grad, clipped a row, with noise."""
    model = mlp(3, 6, 2)
    x, y = torch.randn(6, 3), torch.randint(2, (6,))
    weights = {k: v.detach() for k, v in model.named_parameters()}

    def loss(values: dict[str, Tensor], row: Tensor, label: Tensor) -> Tensor:
        return F.cross_entropy(functional_call(model, values, (row[None],)), label[None])

    rows = torch.func.vmap(torch.func.grad(loss), (None, 0, 0))(weights, x, y)
    norms = torch.stack([g.flatten(1).norm(dim=1) for g in rows.values()]).norm(dim=0)
    scale = (1 / norms).clamp(max=1)
    private = {k: torch.einsum("b,b...->...", scale, g) + 0.1 * torch.randn_like(g[0]) for k, g in rows.items()}
    loops = F.cross_entropy(model(x), y, reduction="none")
    single = [torch.autograd.grad(one, list(model.parameters()), retain_graph=True) for one in loops]
    lengths = torch.stack([torch.cat([g.flatten() for g in grads]).norm() for grads in single])
    return {**private, "norms": norms, "lengths": lengths}
