"""Unmodified modules, losses, optimizers and whole trainings: the same numbers as torch eager."""

from __future__ import annotations

import copy
import warnings
from contextlib import nullcontext

import pytest
import torch
from torch import nn
from torch.nn import functional as F

import autograd_opt as ao

OPTIMIZE = pytest.mark.parametrize("optimize", [False, True])
R = torch.randn
LONG = torch.long


def module(make, *inputs, train=True, call=None):
    """A module, its inputs (made by functions), and how it is called."""
    return make, inputs, train, call


def mask(n):
    return torch.triu(torch.full((n, n), float("-inf")), 1)


MODULES = {
    "Linear": module(lambda: nn.Linear(4, 3), lambda: R(5, 4)),
    "Bilinear": module(lambda: nn.Bilinear(3, 4, 2), lambda: R(5, 3), lambda: R(5, 4)),
    "Conv1d": module(lambda: nn.Conv1d(2, 4, 3, padding=1), lambda: R(2, 2, 8)),
    "Conv2d": module(lambda: nn.Conv2d(2, 4, 3, stride=2, padding=1, groups=2), lambda: R(2, 2, 8, 8)),
    "Conv2d same, dilated, reflect": module(
        lambda: nn.Conv2d(2, 4, 3, padding="same", dilation=2, padding_mode="reflect"), lambda: R(2, 2, 8, 8)),
    "Conv3d": module(lambda: nn.Conv3d(1, 2, 3), lambda: R(1, 1, 5, 5, 5)),
    "ConvTranspose1d": module(lambda: nn.ConvTranspose1d(2, 3, 3, stride=2), lambda: R(2, 2, 5)),
    "ConvTranspose2d": module(lambda: nn.ConvTranspose2d(2, 3, 3, stride=2, output_padding=1), lambda: R(2, 2, 5, 5)),
    "ConvTranspose3d": module(lambda: nn.ConvTranspose3d(1, 2, 2), lambda: R(1, 1, 3, 3, 3)),
    "BatchNorm1d": module(lambda: nn.BatchNorm1d(4), lambda: R(6, 4)),
    "BatchNorm1d eval": module(lambda: nn.BatchNorm1d(4), lambda: R(6, 4), train=False),
    "BatchNorm2d": module(lambda: nn.BatchNorm2d(3, momentum=0.3), lambda: R(4, 3, 5, 5)),
    "BatchNorm2d cumulative": module(lambda: nn.BatchNorm2d(3, momentum=None), lambda: R(4, 3, 5, 5)),
    "BatchNorm3d": module(lambda: nn.BatchNorm3d(2, affine=False), lambda: R(2, 2, 3, 3, 3)),
    "InstanceNorm2d": module(lambda: nn.InstanceNorm2d(3, affine=True, track_running_stats=True),
                             lambda: R(2, 3, 5, 5)),
    "LayerNorm": module(lambda: nn.LayerNorm([4, 5]), lambda: R(3, 4, 5)),
    "GroupNorm": module(lambda: nn.GroupNorm(2, 4), lambda: R(3, 4, 5)),
    "RMSNorm": module(lambda: nn.RMSNorm(5), lambda: R(3, 4, 5)),
    "LocalResponseNorm": module(lambda: nn.LocalResponseNorm(2), lambda: R(2, 4, 5)),
    "Embedding": module(lambda: nn.Embedding(10, 4, padding_idx=0), lambda: torch.randint(0, 10, (3, 5))),
    "Embedding max_norm": module(lambda: nn.Embedding(10, 4, max_norm=1.0), lambda: torch.randint(0, 10, (3, 5))),
    "EmbeddingBag": module(lambda: nn.EmbeddingBag(10, 4, mode="mean"), lambda: torch.randint(0, 10, (3, 5))),
    "EmbeddingBag max": module(lambda: nn.EmbeddingBag(10, 4, mode="max"), lambda: torch.randint(0, 10, (3, 5))),
    "RNN": module(lambda: nn.RNN(3, 4, 2, nonlinearity="relu"), lambda: R(5, 2, 3), call=lambda m, x: m(x)[0]),
    "GRU": module(lambda: nn.GRU(3, 4, 2, bidirectional=True), lambda: R(5, 2, 3), call=lambda m, x: m(x)[0]),
    "LSTM": module(lambda: nn.LSTM(3, 4, 2, dropout=0.2), lambda: R(5, 2, 3),
                   call=lambda m, x: (lambda o: o[0].sum() + o[1][1].sum())(m(x))),
    "LSTM batch first, projected": module(lambda: nn.LSTM(3, 4, batch_first=True, proj_size=2), lambda: R(2, 5, 3),
                                          call=lambda m, x: m(x)[0]),
    "LSTMCell": module(lambda: nn.LSTMCell(3, 4), lambda: R(2, 3), call=lambda m, x: sum(m(x))),
    "GRUCell": module(lambda: nn.GRUCell(3, 4), lambda: R(2, 3)),
    "packed LSTM": module(lambda: nn.LSTM(3, 4), lambda: R(5, 2, 3), call=lambda m, x: nn.utils.rnn.pad_packed_sequence(
        m(nn.utils.rnn.pack_padded_sequence(x, torch.tensor([5, 3])))[0])[0]),
    "MultiheadAttention": module(lambda: nn.MultiheadAttention(8, 2), lambda: R(4, 2, 8),
                                 call=lambda m, x: sum(o.sum() for o in m(x, x, x, attn_mask=mask(4)))),
    "MultiheadAttention, no weights": module(
        lambda: nn.MultiheadAttention(8, 2, batch_first=True, kdim=6, vdim=6), lambda: R(2, 4, 8), lambda: R(2, 5, 6),
        call=lambda m, q, k: m(q, k, k, need_weights=False)[0]),
    "MultiheadAttention, padding": module(
        lambda: nn.MultiheadAttention(8, 2, batch_first=True), lambda: R(2, 4, 8),
        call=lambda m, x: m(x, x, x, key_padding_mask=torch.tensor([[False] * 4, [False, False, True, True]]))[0]),
    "TransformerEncoderLayer": module(lambda: nn.TransformerEncoderLayer(8, 2, 16, dropout=0.1), lambda: R(4, 2, 8),
                                      call=lambda m, x: m(x, src_mask=mask(4))),
    "TransformerEncoderLayer eval": module(lambda: nn.TransformerEncoderLayer(8, 2, 16, batch_first=True),
                                           lambda: R(2, 4, 8), train=False),
    "TransformerDecoderLayer": module(
        lambda: nn.TransformerDecoderLayer(8, 2, 16, dropout=0.0, norm_first=True, activation="gelu"),
        lambda: R(4, 2, 8), lambda: R(5, 2, 8), call=lambda m, x, y: m(x, y, tgt_mask=mask(4))),
    "Transformer": module(lambda: nn.Transformer(8, 2, 1, 1, 16, 0.0), lambda: R(3, 2, 8), lambda: R(4, 2, 8)),
    "MaxPool1d": module(lambda: nn.MaxPool1d(2), lambda: R(2, 2, 7)),
    "MaxPool2d indices": module(lambda: nn.MaxPool2d(2, return_indices=True), lambda: R(2, 2, 6, 6),
                                call=lambda m, x: m(x)[0]),
    "MaxUnpool2d": module(lambda: nn.MaxPool2d(2, return_indices=True), lambda: R(2, 2, 6, 6),
                          call=lambda m, x: F.max_unpool2d(*m(x), 2)),
    "AvgPool2d": module(lambda: nn.AvgPool2d(3, 2, 1, count_include_pad=False), lambda: R(2, 2, 6, 6)),
    "AdaptiveAvgPool2d": module(lambda: nn.AdaptiveAvgPool2d((3, None)), lambda: R(2, 2, 7, 5)),
    "AdaptiveMaxPool1d": module(lambda: nn.AdaptiveMaxPool1d(3), lambda: R(2, 2, 7)),
    "LPPool2d": module(lambda: nn.LPPool2d(2, 2), lambda: R(2, 2, 6, 6)),
    "FractionalMaxPool2d": module(lambda: nn.FractionalMaxPool2d(2, output_size=3), lambda: R(2, 2, 6, 6)),
    "ReflectionPad2d": module(lambda: nn.ReflectionPad2d(1), lambda: R(2, 2, 4, 4)),
    "ReplicationPad1d": module(lambda: nn.ReplicationPad1d(2), lambda: R(2, 2, 4)),
    "CircularPad2d": module(lambda: nn.CircularPad2d(1), lambda: R(2, 2, 4, 4)),
    "ConstantPad2d": module(lambda: nn.ConstantPad2d(1, 3.0), lambda: R(2, 2, 4, 4)),
    "Upsample bilinear": module(lambda: nn.Upsample(scale_factor=2, mode="bilinear"), lambda: R(2, 2, 4, 4)),
    "Upsample nearest": module(lambda: nn.Upsample(size=7), lambda: R(2, 2, 4)),
    "Upsample bicubic": module(lambda: nn.Upsample(scale_factor=1.5, mode="bicubic", align_corners=True),
                               lambda: R(1, 1, 4, 4)),
    "PixelShuffle": module(lambda: nn.PixelShuffle(2), lambda: R(1, 4, 3, 3)),
    "Fold and Unfold": module(lambda: nn.Unfold(2), lambda: R(1, 2, 4, 4), call=lambda m, x: F.fold(m(x) ** 2, 4, 2)),
    "Flatten and Unflatten": module(lambda: nn.Sequential(nn.Flatten(), nn.Unflatten(1, (2, 6))), lambda: R(2, 3, 4)),
    "Dropout": module(lambda: nn.Dropout(0.4), lambda: R(6, 6)),
    "Dropout2d": module(lambda: nn.Dropout2d(0.4), lambda: R(2, 6, 3, 3)),
    "AlphaDropout": module(lambda: nn.AlphaDropout(0.4), lambda: R(6, 6)),
    "Dropout in place": module(lambda: nn.Sequential(nn.Linear(4, 4), nn.Dropout(0.4, True)), lambda: R(6, 4)),
    "PReLU": module(lambda: nn.PReLU(3), lambda: R(2, 3, 4)),
    "activations": module(lambda: nn.Sequential(
        nn.Linear(4, 4), nn.ReLU(), nn.ELU(), nn.SELU(), nn.CELU(), nn.GELU(), nn.SiLU(), nn.Mish(), nn.Softplus(),
        nn.Softsign(), nn.Tanhshrink(), nn.Hardswish(), nn.Hardsigmoid(), nn.LeakyReLU(0.1), nn.LogSigmoid(),
        nn.Hardtanh(-0.9, 0.9), nn.Softmin(1), nn.Softmax(1), nn.LogSoftmax(1)), lambda: R(5, 4)),
    "activations in place": module(lambda: nn.Sequential(
        nn.Linear(4, 4), nn.ReLU(True),
        nn.Linear(4, 4), nn.Hardtanh(inplace=True), nn.Linear(4, 4), nn.LeakyReLU(0.1, True)), lambda: R(5, 4)),
    "GLU": module(lambda: nn.GLU(), lambda: R(3, 6)),
    "weight_norm": module(lambda: nn.utils.parametrizations.weight_norm(nn.Linear(4, 3)), lambda: R(5, 4)),
    "spectral_norm": module(lambda: nn.utils.parametrizations.spectral_norm(nn.Linear(4, 3)), lambda: R(5, 4)),
    "orthogonal": module(lambda: nn.utils.parametrizations.orthogonal(nn.Linear(4, 3)), lambda: R(5, 4)),
    "ParameterList": module(lambda: nn.ParameterList([R(3, 3) for _ in range(2)]), lambda: R(2, 3),
                            call=lambda m, x: x @ m[0] @ m[1]),
    "CosineSimilarity": module(lambda: nn.CosineSimilarity(), lambda: R(4, 5), lambda: R(4, 5)),
    "PairwiseDistance": module(lambda: nn.PairwiseDistance(), lambda: R(4, 5), lambda: R(4, 5)),
    "TransformerDecoder": module(
        lambda: nn.TransformerDecoder(nn.TransformerDecoderLayer(8, 2, 16, dropout=0.1), 2, nn.LayerNorm(8)),
        lambda: R(4, 2, 8), lambda: R(5, 2, 8), call=lambda m, x, y: m(
            x, y, tgt_mask=mask(4), memory_mask=torch.zeros(4, 5).index_fill(1, torch.tensor([2]), float("-inf")),
            tgt_key_padding_mask=torch.tensor([[False] * 4, [False, False, False, True]]).float() * -1e9,
            memory_key_padding_mask=torch.tensor([[False] * 5, [False, False, False, True, True]]).float() * -1e9)),
    "TransformerEncoder, nested layers": module(
        lambda: nn.TransformerEncoder(nn.TransformerEncoderLayer(8, 2, 16, dropout=0.0, batch_first=True), 2),
        lambda: R(2, 4, 8), call=lambda m, x: m(
            x, src_key_padding_mask=torch.tensor([[False] * 4, [False, False, True, True]]))),
    "EmbeddingBag of weights": module(
        lambda: nn.EmbeddingBag(10, 4, mode="sum", padding_idx=3), lambda: torch.randint(0, 10, (7,)), lambda: R(7),
        call=lambda m, i, w: m(i, torch.tensor([0, 2, 2, 5]), w)),
    "ChannelShuffle": module(lambda: nn.ChannelShuffle(2), lambda: R(1, 4, 3, 3)),
    "CrossMapLRN2d": module(lambda: nn.CrossMapLRN2d(3), lambda: R(1, 4, 3, 3)),
    "Dropout1d": module(lambda: nn.Dropout1d(0.4), lambda: R(2, 6, 3)),
    "Dropout3d": module(lambda: nn.Dropout3d(0.4), lambda: R(2, 6, 3, 3, 3)),
    "FeatureAlphaDropout": module(lambda: nn.FeatureAlphaDropout(0.4), lambda: R(2, 6, 3, 3)),
    "RReLU": module(lambda: nn.RReLU(), lambda: R(2, 6)),
    "LazyLinear and LazyBatchNorm": module(
        lambda: nn.Sequential(nn.LazyLinear(5), nn.LazyBatchNorm1d(), nn.LazyLinear(2)), lambda: R(4, 3)),
    "MaxUnpool1d": module(lambda: nn.MaxPool1d(2, return_indices=True), lambda: R(2, 2, 6),
                          call=lambda m, x: nn.MaxUnpool1d(2)(*m(x))),
    "MaxUnpool3d": module(lambda: nn.MaxPool3d(2, return_indices=True), lambda: R(1, 2, 4, 4, 4),
                          call=lambda m, x: nn.MaxUnpool3d(2)(*m(x))),
    "PixelUnshuffle": module(lambda: nn.PixelUnshuffle(2), lambda: R(1, 1, 4, 4)),
    "UpsamplingBilinear2d": module(lambda: nn.UpsamplingBilinear2d(scale_factor=2), lambda: R(1, 2, 3, 3)),
    "UpsamplingNearest2d": module(lambda: nn.UpsamplingNearest2d(scale_factor=2), lambda: R(1, 2, 3, 3)),
    "ParameterDict": module(lambda: nn.ParameterDict({"w": R(3, 3), "b": R(3)}), lambda: R(2, 3),
                            call=lambda m, x: x @ m["w"] + m["b"]),
    "interpolate": module(lambda: nn.Identity(), lambda: R(1, 2, 5, 5), call=lambda m, x: F.interpolate(
        x, size=(7, 3), mode="bilinear", antialias=True) + F.interpolate(x, size=(7, 3), mode="area")),
    "grid_sample": module(lambda: nn.Identity(), lambda: R(1, 2, 5, 5), lambda: R(1, 3, 3, 2).tanh(),
                          call=lambda m, x, grid: F.grid_sample(x, grid, align_corners=False)),
    "weight_norm, one tensor": module(lambda: nn.utils.parametrizations.weight_norm(nn.Conv1d(2, 3, 3), dim=None),
                                      lambda: R(1, 2, 6)),
    "orthogonal, cayley": module(
        lambda: nn.utils.parametrizations.orthogonal(nn.Linear(4, 3), orthogonal_map="cayley"), lambda: R(5, 4)),
    "GRU with dropout": module(lambda: nn.GRU(3, 4, 2, dropout=0.3), lambda: R(5, 2, 3), call=lambda m, x: m(x)[0]),
    "RNN of two ways, batch first": module(lambda: nn.RNN(3, 4, batch_first=True, bidirectional=True),
                                           lambda: R(2, 5, 3), call=lambda m, x: m(x)[0]),
}
CLASSES = torch.tensor([0, 2, 1, 1])
SIGNS = torch.tensor([1.0, -1.0, 1.0, -1.0])
LOSSES = {
    "L1Loss": (nn.L1Loss(), lambda: (R(4, 3), R(4, 3))),
    "MSELoss": (nn.MSELoss(), lambda: (R(4, 3), R(4, 3))),
    "SmoothL1Loss": (nn.SmoothL1Loss(beta=0.5), lambda: (R(4, 3), R(4, 3))),
    "HuberLoss": (nn.HuberLoss(delta=0.7), lambda: (R(4, 3), R(4, 3))),
    "CrossEntropyLoss": (nn.CrossEntropyLoss(label_smoothing=0.1, weight=torch.tensor([1.0, 2.0, 3.0])),
                         lambda: (R(4, 3), CLASSES)),
    "CrossEntropyLoss of probabilities": (nn.CrossEntropyLoss(), lambda: (R(4, 3), R(4, 3).softmax(1))),
    "NLLLoss": (nn.NLLLoss(ignore_index=1), lambda: (R(4, 3).log_softmax(1), CLASSES)),
    "BCELoss": (nn.BCELoss(), lambda: (R(4, 3).sigmoid(), torch.rand(4, 3))),
    "BCEWithLogitsLoss": (nn.BCEWithLogitsLoss(pos_weight=torch.tensor([1.0, 2.0, 3.0])),
                          lambda: (R(4, 3), torch.rand(4, 3))),
    "KLDivLoss": (nn.KLDivLoss(reduction="batchmean"), lambda: (R(4, 3).log_softmax(1), R(4, 3).softmax(1))),
    "PoissonNLLLoss": (nn.PoissonNLLLoss(), lambda: (R(4, 3), torch.rand(4, 3) * 5)),
    "GaussianNLLLoss": (nn.GaussianNLLLoss(), lambda: (R(4, 3), R(4, 3), torch.rand(4, 3) + 0.1)),
    "HingeEmbeddingLoss": (nn.HingeEmbeddingLoss(), lambda: (R(4), SIGNS)),
    "MarginRankingLoss": (nn.MarginRankingLoss(0.1), lambda: (R(4), R(4), SIGNS)),
    "MultiMarginLoss": (nn.MultiMarginLoss(), lambda: (R(4, 3), CLASSES)),
    "MultiLabelMarginLoss": (nn.MultiLabelMarginLoss(), lambda: (R(2, 3), torch.tensor([[1, 0, -1], [2, -1, 0]]))),
    "MultiLabelSoftMarginLoss": (nn.MultiLabelSoftMarginLoss(), lambda: (R(4, 3), (R(4, 3) > 0).float())),
    "CosineEmbeddingLoss": (nn.CosineEmbeddingLoss(), lambda: (R(4, 3), R(4, 3), SIGNS)),
    "TripletMarginLoss": (nn.TripletMarginLoss(), lambda: (R(4, 3), R(4, 3), R(4, 3))),
    "TripletMarginWithDistanceLoss": (nn.TripletMarginWithDistanceLoss(), lambda: (R(4, 3), R(4, 3), R(4, 3))),
    "CTCLoss": (nn.CTCLoss(), lambda: (R(6, 2, 4).log_softmax(2), torch.tensor([[1, 2], [3, 1]]), torch.tensor([6, 6]),
                                       torch.tensor([2, 2]))),
    "AdaptiveLogSoftmaxWithLoss": (None, lambda: (R(4, 8), CLASSES)),
}


def twice(run, optimize):
    """What `run` observes under torch, and in a context; each from one seed."""
    results = []
    for context in (nullcontext(), ao.AutogradGraph(optimize=optimize)):
        torch.manual_seed(0)
        with warnings.catch_warnings(), context:
            warnings.simplefilter("ignore")
            results.append(run())
    return results


def assert_same(mine, theirs, rtol=1e-4, atol=1e-6):
    assert mine.keys() == theirs.keys()
    for name, value in theirs.items():
        if value is None:
            assert mine[name] is None, name
            continue
        torch.testing.assert_close(mine[name].detach().as_subclass(torch.Tensor), value, rtol=rtol, atol=atol,
                                   equal_nan=True, msg=lambda m, name=name: f"{name}: {m}")


def observed(net, inputs, out):
    seen = {"out": out.detach().clone()}
    seen |= {f"parameter {n}": p.detach().clone() for n, p in net.named_parameters()}
    seen |= {f"gradient of {n}": None if p.grad is None else p.grad.clone() for n, p in net.named_parameters()}
    seen |= {f"buffer {n}": b.clone() for n, b in net.named_buffers()}
    seen |= {f"gradient of input {i}": None if x.grad is None else x.grad.clone() for i, x in enumerate(inputs)}
    return seen


@OPTIMIZE
@pytest.mark.parametrize("name", MODULES)
def test_module(name, optimize):
    make, inputs, train, call = MODULES[name]

    def run():
        net = make().train(train)
        given = [f() for f in inputs]
        given = [x.detach().requires_grad_() if x.is_floating_point() else x for x in given]
        for _ in range(2):
            out = call(net, *given) if call else net(*given)
            (out * torch.linspace(0.5, 1.5, out.numel()).reshape(out.shape)).sum().backward()
        return observed(net, given, out)

    theirs, mine = twice(run, optimize)
    assert_same(mine, theirs)


@OPTIMIZE
@pytest.mark.parametrize("name", LOSSES)
def test_loss(name, optimize):
    loss, make = LOSSES[name]

    def run():
        criterion = copy.deepcopy(loss) if loss is not None else nn.AdaptiveLogSoftmaxWithLoss(8, 6, [3])
        given = [x.detach().requires_grad_() if x.is_floating_point() and x is not SIGNS else x for x in make()]
        out = criterion(*given)
        out = out.loss if hasattr(out, "loss") else out
        out.backward()
        return observed(criterion, given, out)

    theirs, mine = twice(run, optimize)
    assert_same(mine, theirs)


def small_net():
    return nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.Linear(8, 3))


OPTIMIZERS = {
    "SGD": lambda ps: torch.optim.SGD(ps, lr=0.1, momentum=0.9, nesterov=True, weight_decay=0.01),
    "Adam": lambda ps: torch.optim.Adam(ps, lr=0.01, amsgrad=True),
    "Adam foreach": lambda ps: torch.optim.Adam(ps, lr=0.01, foreach=True),
    "Adam fused": lambda ps: torch.optim.Adam(ps, lr=0.01, fused=True),
    "Adam capturable off, maximize": lambda ps: torch.optim.Adam(ps, lr=0.01, maximize=True),
    "AdamW": lambda ps: torch.optim.AdamW(ps, lr=0.01),
    "Adamax": lambda ps: torch.optim.Adamax(ps, lr=0.01),
    "NAdam": lambda ps: torch.optim.NAdam(ps, lr=0.01),
    "RAdam": lambda ps: torch.optim.RAdam(ps, lr=0.01),
    "Adagrad": lambda ps: torch.optim.Adagrad(ps, lr=0.1),
    "Adadelta": lambda ps: torch.optim.Adadelta(ps, lr=1.0),
    "RMSprop": lambda ps: torch.optim.RMSprop(ps, lr=0.01, centered=True, momentum=0.5),
    "Rprop": lambda ps: torch.optim.Rprop(ps, lr=0.01),
    "ASGD": lambda ps: torch.optim.ASGD(ps, lr=0.1),
    "Adafactor": lambda ps: torch.optim.Adafactor(ps, lr=0.01),
    "LBFGS": lambda ps: torch.optim.LBFGS(ps, lr=0.5, max_iter=4, line_search_fn="strong_wolfe"),
}


@OPTIMIZE
@pytest.mark.parametrize("name", OPTIMIZERS)
def test_optimizer(name, optimize):
    def run():
        net = small_net()
        opt = OPTIMIZERS[name](net.parameters())
        schedule = torch.optim.lr_scheduler.StepLR(opt, 2, 0.5)
        x, y = R(7, 6), torch.randint(0, 3, (7,))

        def closure():
            opt.zero_grad()
            loss = F.cross_entropy(net(x), y)
            loss.backward()
            return loss

        for _ in range(5):
            loss = opt.step(closure)
            schedule.step()
        return observed(net, [], loss)

    theirs, mine = twice(run, optimize)
    assert_same(mine, theirs, 1e-3, 1e-5)


@OPTIMIZE
def test_a_muon_step(optimize):
    def run():
        net = nn.Linear(6, 3, bias=False)
        opt = torch.optim.Muon(net.parameters(), lr=0.01)
        x = R(4, 6)
        for _ in range(3):
            opt.zero_grad()
            loss = net(x).pow(2).sum()
            loss.backward()
            opt.step()
        return observed(net, [], loss)

    if not hasattr(torch.optim, "Muon"):
        pytest.skip("this torch has no Muon")
    theirs, mine = twice(run, optimize)
    assert_same(mine, theirs, 1e-3, 1e-4)


@OPTIMIZE
def test_clipping_and_gradient_scaling(optimize):
    def run():
        net = small_net()
        opt = torch.optim.SGD(net.parameters(), lr=0.1)
        scaler = torch.amp.GradScaler("cpu", init_scale=8.0)
        norms = []
        for _ in range(3):
            opt.zero_grad()
            loss = net(R(5, 6)).pow(2).mean()
            scaler.scale(loss).backward()
            scaler.unscale_(opt)
            norms.append(nn.utils.clip_grad_norm_(net.parameters(), 0.5))
            nn.utils.clip_grad_value_(net.parameters(), 0.2)
            scaler.step(opt)
            scaler.update()
        return observed(net, [], loss) | {"norms": torch.stack(norms)}

    theirs, mine = twice(run, optimize)
    assert_same(mine, theirs)


@OPTIMIZE
def test_functional_call(optimize):
    def run():
        net = small_net()
        ps = {n: p.detach().clone().requires_grad_() for n, p in net.named_parameters()}
        out = torch.func.functional_call(net, ps, (R(4, 6),))
        out.pow(2).sum().backward()
        return {"out": out.detach()} | {n: p.grad for n, p in ps.items()} | {"own": net[0].weight.grad}

    theirs, mine = twice(run, optimize)
    assert_same(mine, theirs)


@OPTIMIZE
def test_state_dict_and_copies(optimize):
    def run():
        net = small_net()
        other = small_net()
        net(R(3, 6)).sum().backward()
        other.load_state_dict(net.state_dict())
        twin = copy.deepcopy(net)
        (other(R(3, 6)).sum() + twin(R(3, 6)).sum()).backward()
        return observed(net, [], torch.zeros(1)) | {f"o {n}": p.grad for n, p in other.named_parameters()} \
            | {f"t {n}": p.grad for n, p in twin.named_parameters()}

    theirs, mine = twice(run, optimize)
    assert_same(mine, theirs)


@OPTIMIZE
def test_frozen_and_shared_parameters(optimize):
    def run():
        net = nn.Sequential(nn.Linear(6, 6), nn.Tanh(), nn.Linear(6, 6))
        net[2].weight = net[0].weight
        net[0].bias.requires_grad_(False)
        out = net(R(4, 6))
        out.pow(2).sum().backward()
        return observed(net, [], out)

    theirs, mine = twice(run, optimize)
    assert_same(mine, theirs)


@OPTIMIZE
def test_gradient_accumulation(optimize):
    def run():
        net = small_net()
        for _ in range(3):
            out = net(R(4, 6)).pow(2).mean() / 3
            out.backward()
        return observed(net, [], out)

    theirs, mine = twice(run, optimize)
    assert_same(mine, theirs)


@OPTIMIZE
def test_scaled_dot_product_attention(optimize):
    def run():
        q, k, v = (R(2, 2, 4, 8).requires_grad_() for _ in range(3))
        keep = torch.ones(4, 4, dtype=torch.bool).tril()
        outs = [F.scaled_dot_product_attention(q, k, v), F.scaled_dot_product_attention(q, k, v, is_causal=True),
                F.scaled_dot_product_attention(q, k, v, attn_mask=keep),
                F.scaled_dot_product_attention(q, k, v, attn_mask=R(4, 4), scale=0.3)]
        sum((o * (i + 1)).sum() for i, o in enumerate(outs)).backward()
        return {"q": q.grad, "k": k.grad, "v": v.grad} | {str(i): o.detach() for i, o in enumerate(outs)}

    theirs, mine = twice(run, optimize)
    assert_same(mine, theirs)


# ----- whole trainings, twenty steps -----
def train(net, batches, loss, opt, context=nullcontext):
    losses = []
    for x, y in batches:
        with context():
            opt.zero_grad()
            value = loss(net(x), y)
            value.backward()
            opt.step()
        losses.append(value.detach().clone())
    return {"losses": torch.stack(losses)} | {n: p.detach().clone() for n, p in net.state_dict().items()}


def digits(n=20, size=16):
    data = pytest.importorskip("sklearn.datasets").load_digits()
    x = torch.tensor(data.images, dtype=torch.float32).unsqueeze(1) / 16
    y = torch.tensor(data.target)
    return [(x[i * size:(i + 1) * size], y[i * size:(i + 1) * size]) for i in range(n)]


def text(n=20, size=4, length=12):
    words = "the quick brown fox jumps over the lazy dog and the dog sleeps while the fox runs on " * 20
    letters = sorted(set(words))
    codes = torch.tensor([letters.index(c) for c in words])
    batches = []
    for i in range(n):
        rows = torch.stack([codes[(i * size + k) * 5:(i * size + k) * 5 + length + 1] for k in range(size)])
        batches.append((rows[:, :-1], rows[:, 1:]))
    return batches, len(letters)


class CharTransformer(nn.Module):
    def __init__(self, letters, width=16, length=12):
        super().__init__()
        self.embed = nn.Embedding(letters, width)
        self.place = nn.Parameter(torch.zeros(length, width))
        layer = nn.TransformerEncoderLayer(width, 2, 32, dropout=0.1, batch_first=True, norm_first=True)
        self.body = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
        self.head = nn.Linear(width, letters)
        self.head.weight = self.embed.weight
        self.register_buffer("mask", mask(length))

    def forward(self, x):
        h = self.embed(x) + self.place
        return self.head(self.body(h, mask=self.mask, is_causal=True))


class CharLSTM(nn.Module):
    def __init__(self, letters):
        super().__init__()
        self.embed, self.cell = nn.Embedding(letters, 8), nn.LSTM(8, 16, 2, batch_first=True)
        self.head = nn.Linear(16, letters)

    def forward(self, x):
        return self.head(self.cell(self.embed(x))[0])


def flat(out, y):
    return F.cross_entropy(out.flatten(0, 1), y.flatten())


TRAININGS = {
    "a convolutional network on digits": lambda: (nn.Sequential(
        nn.Conv2d(1, 4, 3, padding=1), nn.BatchNorm2d(4), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(4, 8, 3), nn.ReLU(),
        nn.Flatten(), nn.Dropout(0.2), nn.Linear(32, 10)), digits(), F.cross_entropy),
    "an LSTM": lambda: (CharLSTM(text()[1]), text()[0], flat),
    "a character transformer": lambda: (CharTransformer(text()[1]), text()[0], flat),
}


@pytest.mark.slow
@OPTIMIZE
@pytest.mark.parametrize("around", ["each step", "the loop"])
@pytest.mark.parametrize("name", TRAININGS)
def test_training(name, around, optimize):
    """Twenty steps of Adam; losses, parameters and running statistics as in eager."""
    results = []
    for inside in (False, True):
        torch.manual_seed(0)
        net, batches, loss = TRAININGS[name]()
        opt = torch.optim.Adam(net.parameters(), lr=0.01)
        if not inside:
            results.append(train(net, batches, loss, opt))
        elif around == "each step":
            results.append(train(net, batches, loss, opt, lambda: ao.AutogradGraph(optimize=optimize)))
        else:
            with ao.AutogradGraph(optimize=optimize):
                results.append(train(net, batches, loss, opt))
    assert_same(results[1], results[0], 5e-3, 5e-4)


@OPTIMIZE
@pytest.mark.parametrize("custom", [False, True])
def test_a_leaf_that_was_given_data_of_another_dtype_or_shape(custom, optimize):
    """As `net.to(torch.float64)` gives it after parameters were initialized in the same context."""
    x = torch.rand(4, dtype=torch.float64) / 3
    with ao.AutogradGraph(optimize=optimize):
        p = ao.tensor([1.0, 2.0, 3.0], requires_grad=True) if custom else nn.Parameter(torch.tensor([1.0, 2.0, 3.0]))
        before = (p * 2).sum()
        p.data = torch.tensor([1.0, 2.0, 3.0, 4.0], dtype=torch.float64)
        (p * x).sum().backward()
        assert p.grad.dtype is torch.float64
        assert torch.equal(p.grad, x)
        assert before.item() == 12.0


@OPTIMIZE
@pytest.mark.parametrize("order", [False, True], ids=["", "of second order"])
@pytest.mark.parametrize("write", [
    lambda norm, x: norm.train()(x),
    lambda norm, x: F.batch_norm(x, norm.running_mean, norm.running_var, training=True),
    lambda norm, x: norm.running_mean.add_(1) + 0 * x], ids=["train", "function", "a write"])
def test_batch_norm_in_evaluation_keeps_its_statistics(write, order, optimize):
    """Its gradient is of the values it has read; torch takes those that a call in training has written since."""
    x = R(5, 4, dtype=torch.float64).requires_grad_()

    def grads(written, norm):
        before = norm.eval()(x)
        if written:
            write(norm, x)
        g, = torch.autograd.grad((before ** 3).sum(), x, create_graph=order)
        return torch.autograd.grad(g.sin().sum(), [x, *norm.parameters()]) if order else [g]

    wanted = grads(False, nn.BatchNorm1d(4).double())
    with ao.AutogradGraph(optimize=optimize):
        found = grads(True, nn.BatchNorm1d(4).double())
    for f, w in zip(found, wanted, strict=True):
        torch.testing.assert_close(f.as_subclass(torch.Tensor), w)


def test_equal_evaluations_of_batch_norm_merge_until_its_statistics_are_written():
    x, norm = R(5, 4, dtype=torch.float64).requires_grad_(), nn.BatchNorm1d(4).double().eval()
    with ao.AutogradGraph(optimize=True) as graph:
        a, b = norm(x), norm(x)
        assert graph.report().merged == 1
        norm.train()(x)
        c = norm.eval()(x)
        assert graph.report().merged == 1
        found, = torch.autograd.grad((a * b + c ** 2).sum(), x)
    plain = nn.BatchNorm1d(4).double().eval()
    wanted, = torch.autograd.grad((plain(x) ** 2).sum(), x)
    plain.train()(x)
    wanted += torch.autograd.grad((plain.eval()(x) ** 2).sum(), x)[0]
    torch.testing.assert_close(found.as_subclass(torch.Tensor), wanted)


@pytest.fixture
def group(tmp_path):
    """A process group of one."""
    torch.distributed.init_process_group("gloo", init_method=f"file://{tmp_path}/store", rank=0, world_size=1)
    yield
    torch.distributed.destroy_process_group()


@pytest.mark.skipif(not torch.distributed.is_available() or not torch.distributed.is_gloo_available(),
                    reason="torch was built without gloo")
@OPTIMIZE
def test_distributed_data_parallel_is_refused_where_it_would_average(group, optimize):
    """Nobody calls its reducer's hooks in a context: each process would go on with gradients of its own."""
    torch.manual_seed(0)
    net, x = nn.Linear(4, 3), R(5, 4)
    model = nn.parallel.DistributedDataParallel(net)
    with ao.AutogradGraph(optimize=optimize):
        for _ in range(2):
            with pytest.raises(ao.UnsupportedError, match=r"model\.module.*all_reduce.* \[at .*modules\.py") as caught:
                model(x)
        assert len(str(caught.value)) < 600
        with torch.no_grad():
            assert torch.equal(model(x), net(x))
        with model.no_sync():
            model(x).sum().backward()
    wanted = torch.autograd.grad(net(x).sum(), list(net.parameters()))
    with ao.AutogradGraph(optimize=optimize):
        model.module(x).sum().backward()
    for p, g in zip(net.parameters(), wanted, strict=True):
        torch.distributed.all_reduce(p.grad)
        torch.testing.assert_close(p.grad / torch.distributed.get_world_size(), 2 * g)
    net.zero_grad()
    for _ in range(2):
        model(x).sum().backward()
    for p, g in zip(net.parameters(), wanted, strict=True):
        torch.testing.assert_close(p.grad, 2 * g)
