"""Graphs, equivariant networks, manifolds, tensor algebra."""

from __future__ import annotations

import torch
from torch import nn

from . import of, training


def ring(count):
    first = torch.arange(count)
    return torch.stack([torch.cat([first, first]), torch.cat([(first + 1) % count, (first + 5) % count])])


@of("torch-geometric")
def graph_attention():
    from torch_geometric.nn import GATConv, GCNConv

    first, second, x, edges = GCNConv(8, 16), GATConv(16, 4, heads=2), torch.randn(40, 8), ring(40)
    return training([*first.parameters(), *second.parameters()],
                    lambda: second(first(x, edges).relu(), edges).square().mean())


@of("torch-geometric")
def message_passing_and_pooling():
    from torch_geometric.nn import GINConv, global_mean_pool

    net = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 16))
    layer, x, edges, batch = GINConv(net, train_eps=True), torch.randn(40, 8), ring(40), torch.arange(40) // 10
    return training(layer, lambda: global_mean_pool(layer(x, edges), batch).square().mean())


@of("e3nn")
def equivariant_convolution():
    from e3nn import o3

    inner = o3.FullyConnectedTensorProduct("4x0e+4x1o", "1x0e+1x1o+1x2e", "4x0e+4x1o")
    x, places = torch.randn(32, 16), torch.randn(32, 3)
    return training(inner, lambda: inner(
        x, o3.spherical_harmonics([0, 1, 2], places, normalize=True)).square().mean())


@of("egnn-pytorch")
def equivariant_graph_network():
    from egnn_pytorch import EGNN

    net, x, places = EGNN(dim=16), torch.randn(1, 12, 16), torch.randn(1, 12, 3)
    return training(net, lambda: sum(out.square().mean() for out in net(x, places)))


@of("geoopt")
def hyperbolic_distances():
    import geoopt

    ball = geoopt.PoincareBall()
    x = geoopt.ManifoldParameter(ball.random(32, 4), manifold=ball)
    return training([x], lambda: ball.dist(x[:16], x[16:]).square().mean())


@of("geotorch")
def orthogonal_network():
    import geotorch

    net, x = nn.RNN(8, 16), torch.randn(6, 4, 8)
    geotorch.orthogonal(net, "weight_hh_l0")
    return training(net, lambda: net(x)[0].square().mean())


@of("tensorly")
def tucker_regression():
    import tensorly
    from tensorly.tucker_tensor import tucker_to_tensor

    tensorly.set_backend("pytorch")
    core, factors = torch.randn(3, 3, 3, requires_grad=True), [torch.randn(8, 3, requires_grad=True) for _ in range(3)]
    goal = torch.randn(8, 8, 8)
    return training([core, *factors], lambda: (tucker_to_tensor((core, factors)) - goal).square().mean())


@of("tensorly-torch")
def factorized_layer():
    from tltorch import FactorizedLinear

    layer, x = FactorizedLinear((4, 4), (4, 4), factorization="tucker", rank=0.5), torch.randn(16, 16)
    return training(layer, lambda: layer(x).square().mean())


@of("opt-einsum")
def contraction():
    from opt_einsum import contract

    a, b, c = (torch.randn(8, 8, requires_grad=True) for _ in range(3))
    return training([a, b, c], lambda: contract("ij,jk,kl,lm->im", a, b, c, a).square().sum())


@of("kornia")
def homography():
    import kornia

    image, matrix = torch.rand(2, 3, 24, 24), torch.eye(3).repeat(2, 1, 1).requires_grad_()
    goal = kornia.filters.gaussian_blur2d(image, (5, 5), (1.0, 1.0))
    return training([matrix], lambda: (
        kornia.geometry.transform.warp_perspective(image, matrix, (24, 24)) - goal).abs().mean())


@of("kornia")
def color_and_edges():
    import kornia

    image = torch.rand(2, 3, 24, 24, requires_grad=True)
    return training([image], lambda: kornia.filters.sobel(kornia.color.rgb_to_lab(image)).square().mean())
