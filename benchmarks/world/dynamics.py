"""Differential equations, kinematics, operators, fields."""

from __future__ import annotations

import torch
from torch import nn

from . import of, training


@of("torchdiffeq")
def neural_ode():
    from torchdiffeq import odeint

    net = nn.Sequential(nn.Linear(2, 16), nn.Tanh(), nn.Linear(16, 2))
    y, t = torch.randn(16, 2), torch.linspace(0, 1, 5)
    return training(net, lambda: odeint(lambda _, y: net(y), y, t, method="rk4").square().mean())


@of("torchdiffeq")
def adjoint_neural_ode():
    from torchdiffeq import odeint_adjoint

    class Field(nn.Module):
        def __init__(self):
            super().__init__()
            self.net = nn.Sequential(nn.Linear(2, 16), nn.Tanh(), nn.Linear(16, 2))

        def forward(self, t, y):
            return self.net(y ** 3)

    field, y, t = Field(), torch.randn(16, 2), torch.linspace(0, 1, 3)
    return training(field, lambda: odeint_adjoint(field, y, t, rtol=1e-3, atol=1e-3).square().mean())


@of("torchsde")
def neural_sde():
    import torchsde

    class Equation(nn.Module):
        noise_type, sde_type = "diagonal", "ito"

        def __init__(self):
            super().__init__()
            self.drift, self.noise = nn.Linear(3, 3), nn.Linear(3, 3)

        def f(self, t, y):
            return self.drift(y)

        def g(self, t, y):
            return self.noise(y).sigmoid()

    equation, y, t = Equation(), torch.randn(8, 3), torch.linspace(0, 1, 3)

    def loss():
        motion = torchsde.BrownianInterval(0.0, 1.0, size=(8, 3), entropy=3)
        return torchsde.sdeint(equation, y, t, bm=motion, method="euler", dt=0.1).square().mean()

    return training(equation, loss)


@of("torchcde")
def neural_cde():
    import torchcde

    class Field(nn.Module):
        def __init__(self):
            super().__init__()
            self.linear = nn.Linear(4, 4 * 3)

        def forward(self, t, z):
            return self.linear(z).tanh().view(*z.shape, 3)

    field = Field()
    x = torchcde.CubicSpline(torchcde.natural_cubic_coeffs(torch.randn(8, 10, 3)))
    z = torch.randn(8, 4)
    return training(field, lambda: torchcde.cdeint(
        X=x, func=field, z0=z, t=x.interval, adjoint=False, method="rk4", options={"step_size": 1.0}).square().mean())


@of("xitorch")
def equilibrium():
    from xitorch.optimize import rootfinder

    class Layer(nn.Module):
        def forward(self, y, a):
            return torch.tanh(a @ y + 0.1) + y / 2.0

    layer, y, a = Layer(), torch.zeros(2, 1), torch.tensor([[1.1, 0.4], [0.3, 0.8]], requires_grad=True)
    return training([a], lambda: rootfinder(lambda y, a: layer(y, a), y, params=(a,)).square().sum())


@of("pytorch-kinematics")
def inverse_kinematics():
    import pytorch_kinematics

    joint = '<link name="l{0}"/><joint name="j{0}" type="revolute"><parent link="l{1}"/><child link="l{0}"/>' \
        '<origin xyz="0 0 0.3"/><axis xyz="{2}"/><limit lower="-3" upper="3" effort="1" velocity="1"/></joint>'
    links = "".join(joint.format(i + 1, i, ("1 0 0", "0 1 0", "0 0 1")[i % 3]) for i in range(6))
    chain = pytorch_kinematics.build_serial_chain_from_urdf(
        f'<robot name="arm"><link name="l0"/>{links}</robot>', "l6")
    angles, goal = (0.3 * torch.randn(8, 6)).requires_grad_(), torch.tensor([0.3, 0.2, 1.2])
    return training([angles], lambda: (chain.forward_kinematics(angles).get_matrix()[:, :3, 3] - goal).square().sum())


@of("neuraloperator")
def fourier_operator():
    from neuralop.models import FNO

    model = FNO(n_modes=(4, 4), in_channels=1, out_channels=1, hidden_channels=8, n_layers=2)
    x = torch.randn(2, 1, 16, 16)
    return training(model, lambda: model(x).square().mean())


@of("siren-pytorch")
def periodic_field():
    from siren_pytorch import SirenNet

    net, x = SirenNet(dim_in=2, dim_hidden=32, dim_out=1, num_layers=3), torch.rand(64, 2, requires_grad=True)

    def loss():
        slope, = torch.autograd.grad(net(x).sum(), x, create_graph=True)
        return (slope.norm(dim=-1) - 1).square().mean()

    return training(net, loss)


@of("pykan")
def kolmogorov_arnold():
    from kan import KAN

    model = KAN(width=[2, 3, 1], grid=3, k=3, seed=0, auto_save=False, symbolic_enabled=False, save_act=False)
    x = torch.rand(32, 2)
    return training(model, lambda: (model(x) - x.prod(-1, keepdim=True)).square().mean())
