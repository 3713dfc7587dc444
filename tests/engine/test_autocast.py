"""Autocast inside a context: casts are nodes, kept as long as torch keeps its own; results are torch's bit for bit."""

from __future__ import annotations

import contextlib
import gc
import threading
import warnings
import weakref

import pytest
import torch
from torch import nn

import autograd_opt as ao
from autograd_opt.abi.torch_private import VERSION
from autograd_opt.record import autocast
from tests.opinfo_sweep import entries, samples_of

F = torch.nn.functional
OPTIMIZE = pytest.mark.parametrize("optimize", [False, True])


def casting(enabled=True, **more):
    return torch.autocast("cpu", torch.bfloat16, enabled=enabled, **more)


def nets():
    torch.manual_seed(0)
    return {
        "mlp": (nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 16), nn.Tanh(), nn.Linear(16, 4)),
                torch.randn(6, 8)),
        "cnn": (nn.Sequential(nn.Conv2d(2, 4, 3), nn.BatchNorm2d(4), nn.GELU(), nn.Flatten(), nn.Linear(64, 4)),
                torch.randn(3, 2, 6, 6)),
        "encoder": (nn.TransformerEncoderLayer(8, 2, 16, dropout=0.0, batch_first=True), torch.randn(2, 5, 8)),
        "lstm": (nn.LSTM(8, 4, batch_first=True), torch.randn(2, 5, 8)),
        "prelu": (nn.Sequential(nn.Linear(8, 8), nn.PReLU(), nn.LayerNorm(8), nn.Linear(8, 3)), torch.randn(6, 8)),
    }


def loss_of(net, x):
    with casting():
        y = net(x)
        y = y[0] if isinstance(y, tuple) else y
        return F.mse_loss(y.float(), torch.ones_like(y, dtype=torch.float32)) + y.softmax(-1).log().mean()


def gradients(net, step):
    net.zero_grad(set_to_none=True)
    step()
    return [torch.zeros(0) if p.grad is None else p.grad.clone() for p in net.parameters()]


def same(a, b):
    return all(x.dtype is y.dtype and torch.equal(x, y) for x, y in zip(a, b, strict=True))


@OPTIMIZE
@pytest.mark.parametrize("name", list(nets()))
def test_networks_have_torchs_gradients_bit_for_bit(name, optimize):
    net, x = nets()[name]

    def inside():
        with ao.AutogradGraph(optimize=optimize):
            loss_of(net, x).backward()

    try:
        expected = gradients(net, lambda: loss_of(net, x).backward())
    except RuntimeError as error:
        if "primitive descriptor" not in str(error):
            raise
        pytest.skip("oneDNN has no such layer for this processor")
    assert same(gradients(net, inside), expected)


def regions(lin, x):
    """Ways of using a weight several times: how often it is cast decides how its cotangents are rounded."""
    def one():
        with casting():
            h = lin(x)
            for _ in range(4):
                h = lin(h.relu())
        return h.float().square().sum()

    def two():
        with casting():
            h = lin(x)
        with casting():
            return lin(h.relu()).float().square().sum()

    def nested():
        with casting():
            h = lin(x)
            with casting():
                h = lin(h.relu())
            with casting(enabled=False):
                h = lin(h.float())
            return lin(h).float().square().sum()

    def uncached():
        with casting(cache_enabled=False):
            return lin(lin(x).relu()).float().square().sum()

    def unrecorded_first():
        with casting():
            with torch.no_grad():
                h = lin(x)
            return lin(h).float().square().sum()

    def transposed():
        with casting():
            return (lin(x) @ lin.weight @ lin.weight.t()).float().square().sum()

    def another_thread():
        """Torch has one cache for all threads, and forgets it when any of them leaves its outermost autocast."""
        with casting():
            h = lin(x)

            def other():
                with casting():
                    torch.ones(2, 2) @ torch.ones(2, 2)

            thread = threading.Thread(target=other)
            thread.start()
            thread.join()
            return lin(h).float().square().sum()

    def within():
        with casting():
            loss = lin(lin(x)).float().square().sum()
            loss.backward(retain_graph=True)
            return loss

    return {f.__name__: f for f in (one, two, nested, uncached, unrecorded_first, transposed, another_thread, within)}


@OPTIMIZE
@pytest.mark.parametrize("name", list(regions(None, None)))
def test_a_weight_is_cast_as_often_as_torch_casts_it(name, optimize):
    torch.manual_seed(1)
    lin, x = nn.Linear(16, 16), torch.randn(8, 16)
    f = regions(lin, x)[name]

    def inside():
        with ao.AutogradGraph(optimize=optimize):
            f().backward()

    assert same(gradients(lin, inside), gradients(lin, lambda: f().backward()))


def test_the_cast_of_a_weight_is_one_node():
    w, x = nn.Parameter(torch.randn(4, 4)), torch.randn(4, 4)
    with ao.AutogradGraph() as graph:
        with casting():
            y = (x @ w).relu() @ w
        with casting():
            z = y @ w
        z.float().sum().backward(retain_graph=True)
        names = [n.op.name for n in graph.tape.snapshot()]
        assert "opaque" not in names
        casts = [n for n in graph.tape.snapshot() if n.op.name == "to_bfloat16" and n.operands[0].tensor is w]
        assert len(casts) == 2                # one for each region


def test_a_weight_written_inside_the_region_stays_as_it_was_cast():
    """As in torch, whose cache does not look at versions."""
    def run():
        torch.manual_seed(2)
        w, x = nn.Parameter(torch.randn(4, 4)), torch.randn(4, 4)
        with casting():
            a = x @ w
            with torch.no_grad():
                w.mul_(3)
            b = x @ w
        return a.detach().clone(), b.detach().clone()

    theirs = run()
    with ao.AutogradGraph(optimize=True):
        mine = run()
    assert torch.equal(theirs[0], theirs[1])
    assert same(mine, theirs)


@OPTIMIZE
def test_second_derivatives(optimize):
    torch.manual_seed(3)
    net, x = nn.Sequential(nn.Linear(3, 8), nn.Tanh(), nn.Linear(8, 1)), torch.randn(5, 3, requires_grad=True)

    def step(grad):
        with casting():
            y = net(x)
        g, = grad(y.float().sum(), x, create_graph=True)
        g.square().sum().backward()

    def inside():
        with ao.AutogradGraph(optimize=optimize):
            step(torch.autograd.grad)

    assert same(gradients(net, inside), gradients(net, lambda: step(torch.autograd.grad)))


@OPTIMIZE
def test_mixed_types(optimize):
    """What autocast promotes, casts to float32, and leaves alone."""
    def run(a, b):
        low = a.bfloat16()
        with casting():
            parts = [torch.cat([low, b]), torch.stack([a, b]), low + b, torch.cat([low, low]), low * 2, low.sum(),
                     F.mse_loss(low, b), F.mse_loss(a, b), low.exp(), low.prod(), F.linear(a.double(), b.double()),
                     torch.addmm(a, a, b), torch.baddbmm(a[None], a[None], b[None]), a.reshape(-1)[1:].softmax(0),
                     F.smooth_l1_loss(low, b), F.layer_norm(low, (3,)), a.t() @ low]
        sum(p.float().sum() for p in parts).backward()
        return parts

    def leaves():
        torch.manual_seed(4)
        return torch.randn(3, 3, requires_grad=True), torch.randn(3, 3, requires_grad=True)

    theirs = leaves()
    wanted = run(*theirs)
    mine = leaves()
    with ao.AutogradGraph(optimize=optimize):
        found = [p.detach() for p in run(*mine)]
    assert same(found, [p.detach() for p in wanted])
    for x, y in zip(mine, theirs, strict=True):
        bound = 1e-2 if optimize else 1e-6   # merged: cotangents are added before the product, and rounded once
        torch.testing.assert_close(x.grad, y.grad, rtol=bound, atol=bound)


@OPTIMIZE
def test_the_casts_end_with_the_context(optimize):
    w, x = nn.Parameter(torch.randn(4, 4)), torch.randn(4, 4)
    gc.disable()
    try:
        with casting():
            with ao.AutogradGraph(optimize=optimize) as graph:
                (x @ w).float().sum().backward()
                cast, = [n for n in graph.tape.snapshot() if n.op.name == "to_bfloat16" and n.operands[0].tensor is w]
                weak = weakref.ref(cast.tensor)
                del cast
                assert weak() is not None     # as torch keeps its own until the region ends
            assert weak() is None
    finally:
        gc.enable()


# ----- which operators autocast leaves alone -----
def calls():
    """The samples of torch's database whose operator the table has under the same name."""
    for op in entries(torch.float32):
        policy = autocast.autocast_policy(op.name, "cpu")
        if op.name in ao.ops.OPS and policy in ("untouched", "single", "widest") and not op.variant_test_name:
            yield pytest.param(op, policy, id=op.name)


def flat(out):
    return [t.detach() for t in torch.utils._pytree.tree_leaves(out) if isinstance(t, torch.Tensor)]


def results(op, sample, enabled, args):
    torch.manual_seed(0)
    with casting(enabled), torch.no_grad():
        return flat(op(*args, **sample.kwargs))


def cast_tree(tree, dtype):
    return torch.utils._pytree.tree_map(
        lambda t: t.to(dtype) if isinstance(t, torch.Tensor) and t.is_floating_point() else t, tree)


@pytest.mark.parametrize(("op", "policy"), list(calls()))
def test_autocast_does_what_the_policy_says(op, policy):
    """In torch alone: the result under autocast is that of the operands as the policy casts them, without autocast."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for dtype in (torch.float32, torch.bfloat16):
            if dtype not in op.supported_dtypes("cpu"):
                continue
            for sample in samples_of(op, dtype, 4):
                if policy == "single" and torch.dtype in map(type, (*sample.args, *sample.kwargs.values())):
                    continue
                given = (sample.input, *sample.args)
                meant = cast_tree(given, torch.float32) if policy == "single" else given
                for a, b in zip(results(op, sample, True, given), results(op, sample, False, meant), strict=True):
                    assert a.dtype is b.dtype
                    assert torch.equal(a.nan_to_num(), b.nan_to_num())


@OPTIMIZE
def test_common_layers_and_losses_are_recorded_operator_by_operator(optimize):
    torch.manual_seed(5)
    # of what AdaptiveAvgPool2d(1) may be made of, torch 2.12 casts one operator and leaves the other
    pool = nn.AvgPool2d(3) if VERSION < (2, 13) else nn.AdaptiveAvgPool2d(1)
    net = nn.Sequential(nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.ReLU(), nn.MaxPool2d(2), nn.GroupNorm(2, 8),
                        pool, nn.Flatten(), nn.Linear(8, 8), nn.LayerNorm(8), nn.Linear(8, 4))
    x, classes, wanted = torch.randn(4, 3, 8, 8), torch.tensor([0, 1, 2, 3]), torch.rand(4, 4)

    def loss(enabled=True):
        with casting(enabled):
            y = net(x)
            return (F.cross_entropy(y, classes) + F.mse_loss(y, wanted) + F.l1_loss(y, wanted)
                    + F.smooth_l1_loss(y, wanted) + F.binary_cross_entropy_with_logits(y, wanted)
                    + F.cross_entropy(y, wanted) + y.norm() + F.kl_div(y.log_softmax(-1), wanted, reduction="batchmean")
                    + F.normalize(y).var())

    theirs = gradients(net, lambda: loss().backward())

    def inside():
        with ao.AutogradGraph(optimize=optimize) as graph:
            total = loss()
            assert "opaque" not in {n.op.name for n in graph.tape.snapshot()}
            total.backward()

    mine = gradients(net, inside)
    if not optimize:
        torch.testing.assert_close(mine, theirs, rtol=1e-6, atol=1e-7)
        return
    # one cast serves all losses: their cotangents are added before they are rounded
    exact = gradients(net, lambda: loss(False).backward())
    a, b, c = (torch.cat([g.flatten() for g in each]) for each in (mine, theirs, exact))
    assert (a - c).norm() <= 2 * (b - c).norm()


@OPTIMIZE
def test_writes_and_indices_under_autocast(optimize):
    def run(w, x):
        with casting():
            h = x @ w
            h.mul_(2).add_(x)
            h[:, 0] = x[:, 1]
            h[1] = 0.5
            h.relu_()
            return h[:, 1:].float().square().sum() + h[torch.tensor([0, 2])].sum()

    def leaves():
        torch.manual_seed(6)
        return nn.Parameter(torch.randn(4, 4)), torch.randn(4, 4)

    w, x = leaves()
    loss = run(w, x)
    loss.backward()
    mine, x = leaves()
    with ao.AutogradGraph(optimize=optimize):
        found = run(mine, x)
        found.backward()
    assert same([found.detach(), mine.grad], [loss.detach(), w.grad])


@pytest.mark.parametrize("optimize", [False, True])
def test_hooks_on_saved_values_see_what_torch_saves_under_autocast(optimize):
    """A weight that is cast once, and used twice, gathers its gradient in the lower precision; no hook sees a probe."""
    def program(context):
        torch.manual_seed(0)
        net = nn.Sequential(nn.Linear(4, 4), nn.SiLU(), nn.LayerNorm(4), nn.Linear(4, 4))
        x, packed = torch.randn(3, 4, requires_grad=True), []

        def pack(t):
            packed.append((t.dtype, t.shape))
            return t.detach().clone()

        with context, casting():
            with torch.autograd.graph.saved_tensors_hooks(pack, lambda t: t):
                y = net(net(x)) @ net[0].weight @ net[0].weight
            y.float().sum().backward()
        return packed, [x.grad, *(p.grad for p in net.parameters())]

    packed, wanted = program(contextlib.nullcontext())
    seen, found = program(ao.AutogradGraph(optimize=optimize))
    assert seen == packed
    torch.testing.assert_close(found, wanted)


def test_a_checkpoint_under_autocast_makes_no_call_without_a_rule():
    net = nn.Sequential(nn.Linear(4, 4), nn.SiLU(), nn.Linear(4, 4))
    with ao.AutogradGraph() as graph, casting():
        torch.utils.checkpoint.checkpoint(net, torch.randn(3, 4), use_reentrant=False)
        operators = {node.op for node in graph.tape.snapshot()}
    assert "linear" in operators
    assert "opaque" not in operators
