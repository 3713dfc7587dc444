"""An exact Gaussian process of the package gpytorch: 300 points, 200 training steps, 3 predictions."""

import time

import gpytorch
import torch

torch.manual_seed(0)
x = torch.linspace(0, 1, 300)
y = torch.sin(x * 6.28) + 0.1 * torch.randn(300)


class Model(gpytorch.models.ExactGP):
    def __init__(self, x, y, likelihood):
        super().__init__(x, y, likelihood)
        self.mean = gpytorch.means.ConstantMean()
        self.kernel = gpytorch.kernels.ScaleKernel(gpytorch.kernels.RBFKernel())

    def forward(self, x):
        return gpytorch.distributions.MultivariateNormal(self.mean(x), self.kernel(x))


likelihood = gpytorch.likelihoods.GaussianLikelihood()
model = Model(x, y, likelihood)
optimizer = torch.optim.Adam(model.parameters(), 0.1)
objective = gpytorch.mlls.ExactMarginalLogLikelihood(likelihood, model)
begin = time.process_time()
for _ in range(200):
    optimizer.zero_grad()
    loss = -objective(model(x), y)
    loss.backward()
    optimizer.step()
model.eval()
likelihood.eval()
with torch.no_grad():
    test = torch.linspace(0, 1, 51)
    for _ in range(3):
        low, high = likelihood(model(test)).confidence_region()
print(loss.item().hex(), float(low.sum()).hex(), time.process_time() - begin)
