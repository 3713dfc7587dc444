"""What stays alive, and how long: by reference counting alone, the collector switched off."""

from __future__ import annotations

import contextlib
import gc
import json
import resource
import subprocess
import sys
import weakref

import pytest
import torch
from torch.multiprocessing.reductions import StorageWeakRef
from torch.utils._python_dispatch import TorchDispatchMode

import autograd_opt as ao

OPTIMIZE = pytest.mark.parametrize("optimize", [False, True])


@pytest.fixture(autouse=True)
def _without_collector():
    gc.collect()
    gc.disable()
    yield
    gc.enable()


def alive(refs):
    return [name for name, ref in refs.items() if ref() is not None]


def live_tensors():
    """Tensors that anything holds; counted by the collector's list, which switching it off keeps complete."""
    return [x for x in gc.get_objects() if issubclass(type(x), torch.Tensor)]


@OPTIMIZE
def test_the_example_leaves_only_leaves(optimize):
    """c = 4a+b; d = cb+a; e = cd+b; f = e+5.5d: after backward and exit only a and b are alive."""
    a, b = ao.tensor([2.0]), ao.tensor([3.0])

    def step():
        with ao.AutogradGraph(optimize=optimize) as graph:
            c = 4 * a + b
            d = c * b + a
            e = c * d + b
            f = e + d * 5.5
            f.backward()
            refs = {n: weakref.ref(t) for n, t in (("c", c), ("d", d), ("e", e), ("f", f))}
            return refs, weakref.ref(graph)

    for _ in range(2):                              # numbers met twice, 4 and 5.5 here, stay as tensors of the process
        step()
    a.grad = b.grad = None
    before = len(live_tensors())
    refs, graph = step()
    assert alive(refs) == []
    assert graph() is None
    assert len(live_tensors()) == before + 2        # the two gradients
    x, y = (torch.tensor([v], requires_grad=True) for v in (2.0, 3.0))
    c = 4 * x + y
    d = c * y + x
    (c * d + y + d * 5.5).backward()
    assert torch.equal(a.grad, x.grad)
    assert torch.equal(b.grad, y.grad)


@OPTIMIZE
def test_what_the_user_holds_outlives_the_context(optimize):
    a = ao.tensor([2.0])
    with ao.AutogradGraph(optimize=optimize):
        c = a * 3
        d = c.exp()
        ref = weakref.ref(d)
        del d
        assert ref() is None
    assert c.tolist() == [6.0]


@OPTIMIZE
def test_dropping_a_branch_frees_what_it_saved(optimize):
    x = ao.tensor(torch.randn(1000))
    with ao.AutogradGraph(optimize=optimize, allowance=0) as graph:
        kept = x.exp()
        before = graph.references.saved_bytes()
        branch = (x * x).sin().cos().tanh().sigmoid()
        assert graph.references.saved_bytes() > before
        del branch
        assert graph.references.saved_bytes() == before
        kept.sum().backward()
    assert torch.equal(x.grad, x.detach().exp())


@OPTIMIZE
@pytest.mark.parametrize("make", [ao.tensor, lambda t: t.requires_grad_()])
def test_a_leaf_dies_with_what_reads_it(optimize, make):
    """An input of a step that requires grad goes when its user lets go, in a context that stays open."""
    w = torch.ones(3, requires_grad=True)
    with ao.AutogradGraph(optimize=optimize):
        for _ in range(3):
            x = make(torch.ones(3))
            ref = weakref.ref(x)
            loss = (x * w).sum()
            del x
            assert ref() is not None
            loss.backward()
            del loss
            assert ref() is None
        x = make(torch.ones(3))
        for k in (1, 2):                            # let go, and taken up again
            (x * w).sum().backward()
            assert torch.equal(x.grad, k * torch.ones(3))
        x.backward(torch.ones(3))
        assert torch.equal(x.grad, 3 * torch.ones(3))


@OPTIMIZE
def test_attributes_end_with_the_users_tensor(optimize):
    """A value that a rule keeps is no tensor of the user's any more, whatever names other tensors have."""
    class Tag:
        pass

    for k in range(28):
        setattr(torch.zeros(1), f"name_{k}", k)          # names that plain tensors share
    tag = Tag()
    gone = weakref.ref(tag)
    x = ao.tensor([0.5, 1.0])
    with ao.AutogradGraph(optimize=optimize):
        y = x.exp()
        y.tag, y.other = tag, 1
        z = (y * 2).sum()
        del y, tag
        assert gone() is None
        z.backward()
    assert torch.equal(x.grad, 2 * torch.tensor([0.5, 1.0]).exp())


@OPTIMIZE
def test_backward_frees_as_it_goes(optimize):
    x = ao.tensor(torch.randn(1000))
    with ao.AutogradGraph(optimize=optimize, allowance=0) as graph:
        loss = x.exp().sin().tanh().sum()
        assert graph.references.saved_bytes() > 0
        loss.backward()
        assert graph.references.saved_bytes() == 0


@OPTIMIZE
def test_retain_graph_keeps(optimize):
    x = ao.tensor(torch.randn(100))
    with ao.AutogradGraph(optimize=optimize) as graph:
        loss = x.exp().sin().sum()
        before = graph.references.saved_bytes()
        loss.backward(retain_graph=True)
        assert graph.references.saved_bytes() == before
        loss.backward()


@OPTIMIZE
def test_an_exception_frees_the_graph(optimize):
    x = ao.tensor([1.0])

    def fails():
        with ao.AutogradGraph(optimize=optimize):
            y = x.exp()
            refs["y"] = weakref.ref(y)
            raise ValueError("here")

    refs = {}
    with contextlib.suppress(ValueError):
        fails()
    assert alive(refs) == []


@OPTIMIZE
def test_create_graph_makes_no_cycle_in_grad(optimize):
    x = ao.tensor([1.0, 2.0])

    def step():
        with ao.AutogradGraph(optimize=optimize):
            y = (x ** 3).sum()
            g, = torch.autograd.grad(y, x, create_graph=True)
            h, = torch.autograd.grad(g.sum(), x)
            return {"y": weakref.ref(y), "g": weakref.ref(g), "h": weakref.ref(h)}

    assert alive(step()) == []


@OPTIMIZE
def test_functions_and_hooks_make_no_cycle(optimize):
    class Keeps(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            out = x.exp()
            ctx.save_for_backward(x, out)
            ctx.box = box  # noqa: F821  (deleted below, which the linter takes for undefined)
            return out

        @staticmethod
        def backward(ctx, g):
            return g * ctx.saved_tensors[1]

    class Box:
        pass

    seen = []
    x = ao.tensor([1.0])
    box = Box()
    ref = weakref.ref(box)
    with ao.AutogradGraph(optimize=optimize):
        y = Keeps.apply(x)
        y.register_hook(lambda g: seen.append((type(g), ref)))
        y.sum().backward()
        refs = {"y": weakref.ref(y)}
        del y
        assert alive(refs) == []
    del box
    assert ref() is None


@OPTIMIZE
def test_inplace_writes_make_no_cycle(optimize):
    x = ao.tensor(torch.randn(4))

    def step():
        with ao.AutogradGraph(optimize=optimize):
            y = x * 2
            v = y[:2]
            v.mul_(3)
            y.exp_()
            y.sum().backward()
            return {"y": weakref.ref(y), "v": weakref.ref(v)}

    assert alive(step()) == []


@OPTIMIZE
def test_modules_and_optimizers_leave_nothing(optimize):
    torch.manual_seed(0)
    net = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.ReLU(), torch.nn.Linear(16, 1))
    opt = torch.optim.Adam(net.parameters())
    x, y = torch.randn(4, 8), torch.randn(4, 1)

    def step():
        with ao.AutogradGraph(optimize=optimize):
            opt.zero_grad()
            torch.nn.functional.mse_loss(net(x), y).backward()
            opt.step()

    step()
    step()
    before = len(live_tensors())
    for _ in range(5):
        step()
    assert len(live_tensors()) == before


class Watch(TorchDispatchMode):
    """The most bytes alive at any kernel, among storages that kernels have made."""

    def __init__(self):
        super().__init__()
        self.most = 0
        self.storages = {}

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        out = func(*args, **(kwargs or {}))
        for t in out if isinstance(out, (tuple, list)) else [out]:
            if isinstance(t, torch.Tensor):
                storage = t.untyped_storage()
                self.storages[storage._cdata] = StorageWeakRef(storage), storage.nbytes()
        self.storages = {k: v for k, v in self.storages.items() if not v[0].expired()}
        self.most = max(self.most, sum(n for _, n in self.storages.values()))
        return out


def peak(step):
    """The most bytes that `step` has alive at once."""
    with Watch() as watch:
        step()
    return watch.most


def chain(x, ws):
    for w in ws:
        x = torch.tanh(x @ w) * 2 + x
    return (x * x).sum()


@OPTIMIZE
def test_the_peak_of_a_step_is_at_most_eagers(optimize):
    torch.manual_seed(0)
    x = torch.randn(64, 64)

    def eager():
        ws = [torch.randn(64, 64).requires_grad_() for _ in range(6)]
        chain(x, ws).backward()

    def mine():
        ws = [ao.tensor(torch.randn(64, 64)) for _ in range(6)]
        with ao.AutogradGraph(optimize=optimize, allowance=0):
            chain(x, ws).backward()

    assert peak(mine) <= peak(eager)


@pytest.mark.parametrize("name", ["dropout", "layer_norm", "group_norm", "batch_norm", "max_pool", "nll_loss", "cummax",
                                  "eigh", "svd"])
@OPTIMIZE
def test_what_an_operator_computes_inside_is_not_recorded(optimize, name):
    """Such a node would keep what it saved as long as the graph."""
    functions = torch.nn.functional
    operations = {
        "dropout": lambda x: functions.dropout(x, 0.5, True),
        "layer_norm": lambda x: functions.layer_norm(x, (4,)),
        "group_norm": lambda x: functions.group_norm(x.reshape(1, 4, 4), 2),
        "batch_norm": lambda x: functions.batch_norm(x, torch.zeros(4), torch.ones(4), training=True),
        "max_pool": lambda x: functions.max_pool2d(x.reshape(1, 4, 4), 2),
        "nll_loss": lambda x: functions.nll_loss(x, torch.arange(4)),
        "cummax": lambda x: torch.cummax(x, 1)[0],
        "eigh": lambda x: torch.linalg.eigh(x)[0],
        "svd": lambda x: torch.linalg.svd(x)[1],
    }
    x = ao.tensor(torch.randn(4, 4))
    with ao.AutogradGraph(optimize=optimize) as graph:
        operations[name](x * 1.5).sum().backward()
        assert graph.references.saved_bytes() == 0
        assert len([n for n in graph.tape.snapshot() if not n.is_leaf and n.op.name not in ("output", "reshape")]) == 3


def resident():
    """Kilobytes of memory that the process holds now."""
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * resource.getpagesize() // 1024


def grown(optimize, where, steps):
    """Kilobytes that the second half of a training adds to the first; tensors and other objects that both add."""
    gc.disable()
    torch.manual_seed(0)
    w = ao.tensor(torch.randn(8, 8) * 0.1)
    x = torch.randn(4, 8)

    def step():
        loss = ((x @ w).tanh() - (x @ w).sin()).pow(2).sum()
        loss.backward()
        with torch.no_grad():
            w.sub_(w.grad, alpha=0.01)
        w.grad = None

    def loop(n):
        if where == "outside":
            with ao.AutogradGraph(optimize=optimize) as graph:
                for _ in range(n):
                    step()
                assert len(graph) < 5000
        else:
            for _ in range(n):
                with ao.AutogradGraph(optimize=optimize):
                    step()

    loop(300)
    tensors, objects = len(live_tensors()), len(gc.get_objects())
    loop(steps // 2)                     # fills what the lists of all objects have left of the heap when they went
    before = resident()
    loop(steps // 2)
    after = resident()
    return [after - before, len(live_tensors()) - tensors, len(gc.get_objects()) - objects]


@pytest.mark.parametrize("steps", [
    pytest.param(10_000, marks=pytest.mark.slow), pytest.param(100_000, marks=pytest.mark.long),
])
@pytest.mark.parametrize("where", ["inside", "outside"])
@OPTIMIZE
def test_training_does_not_grow(optimize, where, steps):
    """`with` inside the loop, and around the whole of it; in a process of its own, without what other tests left."""
    code = ("import json; from tests import conftest; from tests.engine import test_lifetime; "
            "conftest.pytest_configure(); "
            f"print(json.dumps(test_lifetime.grown({optimize}, {where!r}, {steps})))")
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    memory, tensors, objects = json.loads(done.stdout)
    assert memory < 256                  # 50 bytes a step; without a leak it is a few pages
    assert tensors <= 0
    assert objects <= 300                # the test's lists, what the latest passes report; a leak is one in each step


@OPTIMIZE
def test_an_optimizer_inside_the_context_does_not_grow(optimize):
    """Adam makes tensors and writes them: nothing kept for such a write lies between what is freed."""
    torch.manual_seed(0)
    model, x = torch.nn.Linear(256, 512), torch.randn(32, 256)
    adam = torch.optim.Adam(model.parameters(), lr=1e-3)

    def steps(n):
        for _ in range(n):
            adam.zero_grad()
            model(x).square().mean().backward()
            adam.step()

    with ao.AutogradGraph(optimize=optimize) as graph:
        steps(30)
        before = resident()
        steps(120)
        gc.collect()
        assert resident() - before < 24_000              # of 60_000 in gradients alone
        assert len(graph) < 200
        assert len([n for n in graph.tape.snapshot() if n.alive]) < 12


@OPTIMIZE
def test_writes_without_gradient_make_no_chain(optimize):
    with ao.AutogradGraph(optimize=optimize) as graph:
        ones = torch.ones(3, requires_grad=True)
        with torch.no_grad():
            state = torch.zeros_like(ones)
        for k in range(5):
            with torch.no_grad():
                state.add_(1)
            loss = (ones * state).sum()
            loss.backward()
            assert torch.equal(ones.grad, torch.full((3,), (k + 1.0) * (k + 2) / 2))
        del loss
        assert len([n for n in graph.tape.snapshot() if n.alive and n.op.name == "written"]) <= 1


@pytest.mark.slow
@OPTIMIZE
def test_a_chain_of_a_hundred_thousand(optimize):
    """Recorded, optimized, differentiated, read and cleared without recursion."""
    n = 100_000
    x = ao.tensor([1.0], dtype=torch.float64)
    with ao.AutogradGraph(optimize=optimize) as graph:
        y = x
        for _ in range(n):
            y = y * 1.000001
        assert len(graph) == n + 1
        assert graph.is_acyclic()
        if optimize:
            assert graph.optimized(y).num_nodes() > 0
        y.backward(retain_graph=True)
        assert float(x.grad) == pytest.approx(1.000001 ** n)
        x.grad = None
        torch.autograd.grad(y, x)
        graph.clear()
        del y


@pytest.mark.slow
def test_a_deep_chain_of_functions_is_freed():
    class Id(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x.clone()

        @staticmethod
        def backward(ctx, g):
            return g

    x = ao.tensor([1.0])
    with ao.AutogradGraph():
        y = x * 1
        for _ in range(20_000):
            y = Id.apply(y)
        del y
        z = (x * 2).sum()
        z.backward()
    assert x.grad.tolist() == [2.0]


@pytest.mark.slow
def test_two_branches_of_a_deep_graph():
    """Every node used twice: freeing must not visit paths one by one."""
    x = ao.tensor([1.0], dtype=torch.float64)
    with ao.AutogradGraph():
        y = x
        for _ in range(20_000):
            y = (y + y) * 0.5
        y.backward()
    assert x.grad.tolist() == [1.0]


def test_the_record_does_not_shift_under_a_run():
    """Hooks that record while earlier steps wait to be forgotten."""
    x = ao.tensor(torch.randn(4), dtype=torch.float64)
    with ao.AutogradGraph():
        for _ in range(30):
            (x * x).sum().backward()
        x.grad = None
        y = x * 3

        def hook(g):
            with torch.enable_grad():
                for _ in range(500):
                    (x.detach().requires_grad_() * 2).sum()
            return g

        y.register_hook(hook)
        (y * y).sum().backward()
    assert torch.allclose(x.grad, 18 * x.detach())


def without_grad(mode):
    def double(w):
        with mode():
            return w * 2
    return double


READ_WITHOUT_GRADIENT = {
    "argmax": lambda w: w.argmax(),
    "comparison": lambda w: w > 0,
    "equal": lambda w: w == w,
    "logical": lambda w: torch.logical_and(w, w),
    "mean of a mask": lambda w: (w > 0).double().mean(),
    "where": lambda w: torch.where(w > 0),
    "zeros_like": lambda w: torch.zeros_like(w),
    "isnan": lambda w: torch.isnan(w),
    "long": lambda w: w.long(),
    "bincount": lambda w: w.long().bincount(),
    "index_fill": lambda w: torch.zeros(3).index_fill(0, w.long(), 1.0),
    "searchsorted": lambda w: torch.searchsorted(w, w),
    "no_grad": without_grad(torch.no_grad),
    "inference_mode": without_grad(torch.inference_mode),
}
"""Calls whose results have no history in torch."""


@OPTIMIZE
@pytest.mark.parametrize("name", READ_WITHOUT_GRADIENT)
def test_result_without_history_holds_no_leaf(name, optimize):
    def gone():
        w = torch.ones(3, requires_grad=True)
        results.append(READ_WITHOUT_GRADIENT[name](w))
        there = weakref.ref(w)
        del w
        return there() is None

    results = []
    assert gone()                                   # torch's
    with ao.AutogradGraph(optimize=optimize):
        assert gone()


@pytest.mark.parametrize("index", [
    lambda w: w.sort()[1], lambda w: w.max(0).indices, lambda w: torch.topk(w * 2, 2)[1],
])
@OPTIMIZE
def test_index_holds_no_record(index, optimize):
    """Nor the graph of what it was found in."""
    with ao.AutogradGraph(optimize=optimize):
        w = torch.ones(3, requires_grad=True)
        found, there = index(w), weakref.ref(w)
        del w
        assert there() is None
        assert found.dtype is torch.int64


@pytest.mark.parametrize("optimize", [None, False, True])
def test_leaf_that_was_read_without_gradient_is_held_where_one_is_recorded(optimize):
    with contextlib.nullcontext() if optimize is None else ao.AutogradGraph(optimize=optimize):
        w = torch.ones(3, requires_grad=True)
        with torch.no_grad():
            y = w * 2
        z = (w * w).sum() * y.sum()
        w.register_post_accumulate_grad_hook(lambda t: seen.append(t.grad.tolist()))
        there, seen = weakref.ref(w), []
        del w
        assert there() is not None
        z.backward()
        assert seen == [[12.0] * 3]
        del y, z
        assert there() is None


@OPTIMIZE
@pytest.mark.parametrize("name", ["sparse", "trapezoid", "pinv"])
def test_the_memory_of_an_operand_that_a_call_without_a_rule_does_not_need_is_freed(name, optimize):
    x = torch.rand(64, 64, dtype=torch.float64, requires_grad=True)
    weights = torch.eye(64, dtype=torch.float64).to_sparse()
    call = {"sparse": lambda t: weights @ t, "trapezoid": torch.trapezoid, "pinv": torch.linalg.pinv}[name]

    def step():
        v = x * 2
        with torch._C.DisableTorchFunction():       # the graph would keep a memory that was asked for
            memory = StorageWeakRef(v.untyped_storage())
        y = call(v)
        del v
        freed = memory.expired()
        grad, = torch.autograd.grad(y.sum(), x, create_graph=True)
        second, = torch.autograd.grad(grad.sum() + y.square().sum(), x)
        return freed, grad.detach(), second

    freed, grad, second = step()
    with ao.AutogradGraph(optimize=optimize, allowance=0):
        ours = step()
    assert ours[0] is freed is (name != "pinv")
    torch.testing.assert_close(ours[1:], (grad, second))
