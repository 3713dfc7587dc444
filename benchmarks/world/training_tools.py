"""What changes how networks are trained: meta-learning, per-sample gradients, many losses, spikes, optimizers."""

from __future__ import annotations

import torch
from torch import nn

from . import of, outcome, training, updated


def small():
    return nn.Sequential(nn.Linear(8, 32), nn.ReLU(), nn.Linear(32, 4))


def labelled(count=32):
    return torch.randn(count, 8), torch.randint(0, 4, (count,))


def classifier(optimizer):
    """Steps of an optimizer on a small classifier."""
    net, (x, y) = small(), labelled()
    return updated(net, optimizer, lambda: nn.functional.cross_entropy(net(x), y))


@of("higher")
def inner_loop():
    import higher

    net, (x, y) = small(), labelled()
    inner, objective = torch.optim.SGD(net.parameters(), 0.1), nn.CrossEntropyLoss()

    def loss():
        with higher.innerloop_ctx(net, inner, copy_initial_weights=False) as (fast, steps):
            for _ in range(3):
                steps.step(objective(fast(x), y))
            return objective(fast(x), y)

    return training(net, loss)


@of("torchjd")
def conflicting_losses():
    from torchjd.aggregation import UPGrad
    from torchjd.autojac import backward, jac_to_grad

    net, (x, y), aggregate = small(), labelled(), UPGrad()

    def run():
        out = net(x)
        backward([nn.functional.cross_entropy(out, y), out.square().mean()])
        net.zero_grad()
        jac_to_grad(net.parameters(), aggregate)
        return [p.grad.detach().clone() for p in net.parameters()]

    return outcome(run)


@of("backpack-for-pytorch")
def per_sample_gradients():
    from backpack import backpack, extend
    from backpack.extensions import BatchGrad, DiagGGNExact

    net, objective, (x, y) = extend(small()), extend(nn.CrossEntropyLoss()), labelled()

    def run():
        net.zero_grad()
        with backpack(BatchGrad(), DiagGGNExact()):
            objective(net(x), y).backward()
        return [value.detach().clone() for p in net.parameters() for value in (p.grad, p.grad_batch, p.diag_ggn_exact)]

    return outcome(run)


@of("opacus")
def private_gradients():
    from opacus import GradSampleModule

    net, (x, y) = GradSampleModule(small()), labelled()

    def run():
        net.zero_grad()
        nn.functional.cross_entropy(net(x), y).backward()
        found = [p.grad_sample.detach().clone() for p in net.parameters()]
        for p in net.parameters():
            p.grad_sample = None
        return found

    return outcome(run)


@of("snntorch")
def spikes():
    import snntorch

    first, second = nn.Linear(8, 16), nn.Linear(16, 4)
    one, two, (x, y) = snntorch.Leaky(beta=0.9), snntorch.Leaky(beta=0.9), labelled()

    def loss():
        a, b, total = one.init_leaky(), two.init_leaky(), 0.0
        for _ in range(8):
            spikes, a = one(first(x), a)
            spikes, b = two(second(spikes), b)
            total = total + nn.functional.cross_entropy(b, y)
        return total

    return training([*first.parameters(), *second.parameters()], loss)


@of("torch-optimizer")
def shampoo():
    from torch_optimizer import Shampoo

    return classifier(lambda p: Shampoo(p, 1e-2))


@of("torch-optimizer")
def diff_grad():
    from torch_optimizer import DiffGrad

    return classifier(lambda p: DiffGrad(p, 1e-2))


@of("lion-pytorch")
def lion():
    from lion_pytorch import Lion

    return classifier(lambda p: Lion(p, 1e-3))


@of("ema-pytorch")
def averaged_weights():
    from ema_pytorch import EMA

    net, (x, y) = small(), labelled()
    slow = EMA(net, beta=0.9, update_after_step=0, update_every=1)

    def loss():
        slow.update()
        with torch.no_grad():
            goal = slow(x)
        return nn.functional.mse_loss(net(x), goal) + nn.functional.cross_entropy(net(x), y)

    return training(net, loss)


@of("skorch")
def one_fit_step():
    from skorch import NeuralNetClassifier

    (x, y), model = labelled(), NeuralNetClassifier(small, criterion=nn.CrossEntropyLoss, verbose=0).initialize()

    def run():
        model.module_.zero_grad()
        loss = model.train_step_single((x, y))["loss"]
        return [loss.detach(), *(p.grad.detach().clone() for p in model.module_.parameters())]

    return outcome(run)


@of("captum")
def integrated_gradients():
    from captum.attr import IntegratedGradients

    net, (x, y) = small(), labelled(8)
    method = IntegratedGradients(net)
    return outcome(lambda: [method.attribute(x, target=y, n_steps=8).detach()])


@of("pytorch-metric-learning")
def triplets():
    from pytorch_metric_learning.losses import MultiSimilarityLoss, TripletMarginLoss
    from pytorch_metric_learning.miners import MultiSimilarityMiner

    net, (x, y), mine = small(), labelled(), MultiSimilarityMiner()
    triplet, other = TripletMarginLoss(), MultiSimilarityLoss()

    def loss():
        out = net(x)
        return triplet(out, y, mine(out, y)) + other(out, y)

    return training(net, loss)


@of("torchmetrics")
def structural_metrics():
    from torchmetrics.functional.image import structural_similarity_index_measure as similarity
    from torchmetrics.functional.regression import pearson_corrcoef

    x, y = torch.rand(2, 1, 24, 24, requires_grad=True), torch.rand(2, 1, 24, 24)
    return training([x], lambda: similarity(x, y, data_range=1.0) + pearson_corrcoef(x.flatten(), y.flatten()))


@of("tensordict")
def functional_parameters():
    from tensordict import TensorDict

    net, (x, y) = small(), labelled()
    parameters = TensorDict.from_module(net)

    def loss():
        with parameters.to_module(net):
            return nn.functional.cross_entropy(net(x), y)

    return training(net, loss)
