"""Gaussian processes, flows, probabilistic programs, quadrature."""

from __future__ import annotations

import torch
from torch import nn

from . import of, training


@of("gpytorch")
def marginal_likelihood():
    import gpytorch

    class Model(gpytorch.models.ExactGP):
        def __init__(self, x, y, likelihood):
            super().__init__(x, y, likelihood)
            self.mean = gpytorch.means.ConstantMean()
            self.kernel = gpytorch.kernels.ScaleKernel(gpytorch.kernels.RBFKernel())

        def forward(self, x):
            return gpytorch.distributions.MultivariateNormal(self.mean(x), self.kernel(x))

    x = torch.linspace(0, 1, 40)
    y = torch.sin(6 * x)
    likelihood = gpytorch.likelihoods.GaussianLikelihood()
    model = Model(x, y, likelihood)
    objective = gpytorch.mlls.ExactMarginalLogLikelihood(likelihood, model)
    model.train()
    return training(model, lambda: -objective(model(x), y))


@of("gpytorch")
def variational_process():
    import gpytorch

    class Model(gpytorch.models.ApproximateGP):
        def __init__(self, points):
            inner = gpytorch.variational.CholeskyVariationalDistribution(len(points))
            super().__init__(gpytorch.variational.VariationalStrategy(self, points, inner))
            self.mean = gpytorch.means.ConstantMean()
            self.kernel = gpytorch.kernels.ScaleKernel(gpytorch.kernels.MaternKernel(nu=2.5))

        def forward(self, x):
            return gpytorch.distributions.MultivariateNormal(self.mean(x), self.kernel(x))

    x = torch.rand(64, 2)
    y = x.sum(-1).sin()
    model, likelihood = Model(x[:16].clone()), gpytorch.likelihoods.GaussianLikelihood()
    objective = gpytorch.mlls.VariationalELBO(likelihood, model, num_data=64)
    return training([*model.parameters(), *likelihood.parameters()], lambda: -objective(model(x), y))


@of("botorch")
def expected_improvement():
    from botorch.acquisition import qLogExpectedImprovement
    from botorch.models import SingleTaskGP
    from botorch.sampling import SobolQMCNormalSampler

    x = torch.rand(12, 2, dtype=torch.float64)
    model = SingleTaskGP(x, x.sin().sum(-1, keepdim=True))
    model.eval()
    sampler = SobolQMCNormalSampler(torch.Size([32]), seed=0)
    improvement = qLogExpectedImprovement(model, best_f=1.0, sampler=sampler)
    candidates = torch.rand(3, 2, 2, dtype=torch.float64, requires_grad=True)
    return training([candidates], lambda: -improvement(candidates).sum())


@of("pyro-ppl")
def elbo():
    import pyro
    import pyro.distributions as dist
    from pyro.infer import Trace_ELBO
    from pyro.infer.autoguide import AutoNormal

    data = torch.randn(50) + 2

    def model():
        mean = pyro.sample("mean", dist.Normal(0.0, 10.0))
        scale = pyro.sample("scale", dist.LogNormal(0.0, 1.0))
        with pyro.plate("data", 50):
            pyro.sample("x", dist.Normal(mean, scale), obs=data)

    guide = AutoNormal(model)
    guide()
    objective = Trace_ELBO()
    return training(guide, lambda: objective.differentiable_loss(model, guide))


@of("nflows")
def masked_autoregressive_flow():
    from nflows.distributions import StandardNormal
    from nflows.flows import Flow
    from nflows.transforms import CompositeTransform, MaskedAffineAutoregressiveTransform, ReversePermutation

    layers = [layer for _ in range(3) for layer in (
        ReversePermutation(4), MaskedAffineAutoregressiveTransform(features=4, hidden_features=16))]
    flow, x = Flow(CompositeTransform(layers), StandardNormal([4])), torch.randn(64, 4)
    return training(flow, lambda: -flow.log_prob(x).mean())


@of("nflows")
def spline_flow():
    from nflows.distributions import StandardNormal
    from nflows.flows import Flow
    from nflows.transforms import MaskedPiecewiseRationalQuadraticAutoregressiveTransform as Spline

    layer = Spline(features=4, hidden_features=16, num_bins=6, tails="linear", tail_bound=3.0)
    flow, x = Flow(layer, StandardNormal([4])), torch.randn(64, 4)
    return training(flow, lambda: -flow.log_prob(x).mean())


@of("normflows")
def real_nvp():
    import normflows

    layers = []
    for i in range(4):
        layers += [normflows.flows.AffineCouplingBlock(normflows.nets.MLP([1, 16, 16, 2], init_zeros=False)),
                   normflows.flows.Permute(2, mode="swap"), *([normflows.flows.ActNorm(2)] if i == 0 else [])]
    flow, x = normflows.NormalizingFlow(normflows.distributions.DiagGaussian(2), layers), torch.randn(64, 2)
    flow.forward_kld(x)
    return training(flow, lambda: flow.forward_kld(x))


@of("zuko")
def neural_spline_flow():
    import zuko

    flow = zuko.flows.NSF(3, 2, transforms=2, hidden_features=(16, 16))
    x, context = torch.randn(64, 3), torch.randn(64, 2)
    return training(flow, lambda: -flow(context).log_prob(x).mean())


@of("zuko")
def continuous_flow():
    import zuko

    flow, x = zuko.flows.CNF(2, hidden_features=(16,)), torch.randn(16, 2)
    return training(flow, lambda: -flow().log_prob(x).mean())


@of("torchquad")
def integral_of_a_network():
    from torchquad import Simpson, set_log_level

    set_log_level("ERROR")
    net = nn.Sequential(nn.Linear(1, 16), nn.Tanh(), nn.Linear(16, 1))
    rule = Simpson()
    return training(net, lambda: rule.integrate(
        lambda x: net(x).squeeze(-1), dim=1, N=101, integration_domain=[[0.0, 1.0]], backend="torch"))
