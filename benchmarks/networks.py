"""Workloads of unmodified torch modules: one training step each."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from .workload import Leaf, Workload, of_module, torch_leaf

WIDTHS = (64, 256, 256, 10)


def digits(count: int) -> tuple[Tensor, Tensor]:
    """The first handwritten digits of scikit-learn, scaled to [0, 1]."""
    from sklearn.datasets import load_digits

    images, labels = load_digits(return_X_y=True)
    return torch.tensor(images[:count] / 16.0, dtype=torch.float32), torch.tensor(labels[:count])


def mlp_network() -> nn.Sequential:
    torch.manual_seed(0)
    first, second, third, last = WIDTHS
    return nn.Sequential(
        nn.Linear(first, second), nn.ReLU(), nn.Linear(second, third), nn.ReLU(), nn.Linear(third, last)
    )


def mlp(leaf: Leaf = torch_leaf, batch: int = 128) -> Workload:
    """64-256-256-10 on real digits."""
    model = mlp_network()
    images, labels = digits(batch)
    return of_module("mlp", model, lambda: F.cross_entropy(model(images), labels),
                     data={"images": images, "one_hot": F.one_hot(labels, WIDTHS[-1]).float()})


def mlp_by_hand(batch: int = 128) -> Workload:
    """The same step with its backward written out: what no autograd can beat by being one."""
    model = mlp_network()
    images, labels = digits(batch)
    one_hot = F.one_hot(labels, WIDTHS[-1]).float()
    with torch.no_grad():
        parameters = list(model.parameters())

    def forward(*_: Tensor) -> Tensor:
        w1, b1, w2, b2, w3, b3 = parameters
        with torch.no_grad():
            h1 = torch.addmm(b1, images, w1.t()).relu_()
            h2 = torch.addmm(b2, h1, w2.t()).relu_()
            log_p = F.log_softmax(torch.addmm(b3, h2, w3.t()), 1)
            g = log_p.exp().sub_(one_hot).div_(batch)
            w3.grad, b3.grad = g.t() @ h2, g.sum(0)
            g = torch.ops.aten.threshold_backward(g @ w3, h2, 0)
            w2.grad, b2.grad = g.t() @ h1, g.sum(0)
            g = torch.ops.aten.threshold_backward(g @ w2, h1, 0)
            w1.grad, b1.grad = g.t() @ images, g.sum(0)
            return F.nll_loss(log_p, labels)

    return Workload("mlp, by hand", parameters, forward, backward=False)


def transformer(leaf: Leaf = torch_leaf, batch: int = 8, length: int = 32, width: int = 64) -> Workload:
    """Two layers of torch's own encoder with dropout, classifying sequences of tokens."""
    torch.manual_seed(0)
    layer = nn.TransformerEncoderLayer(width, 4, 4 * width, dropout=0.1, batch_first=True)
    model = nn.ModuleDict({
        "embedding": nn.Embedding(100, width),
        "encoder": nn.TransformerEncoder(layer, 2, enable_nested_tensor=False),
        "head": nn.Linear(width, 10),
    })
    tokens, labels = torch.randint(0, 100, (batch, length)), torch.randint(0, 10, (batch,))

    def loss() -> Tensor:
        hidden = model["encoder"](model["embedding"](tokens))
        return F.cross_entropy(model["head"](hidden.mean(1)), labels)

    return of_module("transformer", model, loss, random=True,
                     data={"tokens": tokens, "one_hot": F.one_hot(labels, 10).float()})


def cnn(leaf: Leaf = torch_leaf, batch: int = 32) -> Workload:
    """Two convolutions with batch normalization and pooling on 28×28 images."""
    torch.manual_seed(0)
    model = nn.Sequential(
        nn.Conv2d(1, 16, 3, padding=1), nn.BatchNorm2d(16), nn.ReLU(), nn.MaxPool2d(2),
        nn.Conv2d(16, 32, 3, padding=1), nn.BatchNorm2d(32), nn.ReLU(), nn.MaxPool2d(2),
        nn.Flatten(), nn.Linear(32 * 7 * 7, 10),
    )
    images, labels = torch.randn(batch, 1, 28, 28), torch.randint(0, 10, (batch,))
    return of_module("cnn", model, lambda: F.cross_entropy(model(images), labels),
                     data={"images": images, "one_hot": F.one_hot(labels, 10).float()})


def lstm(leaf: Leaf = torch_leaf, batch: int = 16, length: int = 32) -> Workload:
    """A one-layer torch LSTM that labels sequences."""
    torch.manual_seed(0)
    model = nn.ModuleDict({"lstm": nn.LSTM(32, 64, batch_first=True), "head": nn.Linear(64, 10)})
    series, labels = torch.randn(batch, length, 32), torch.randint(0, 10, (batch,))

    def loss() -> Tensor:
        hidden, _ = model["lstm"](series)
        return F.cross_entropy(model["head"](hidden[:, -1]), labels)

    return of_module("lstm", model, loss, data={"series": series, "one_hot": F.one_hot(labels, 10).float()})
