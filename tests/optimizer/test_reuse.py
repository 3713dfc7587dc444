"""Record-time reuse: a repeated operation does not run its kernel again, and nobody can tell."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

import pytest
import torch

import autograd_opt as ao
from tests.optimizer.counting import kernels_of

Tensor = torch.Tensor
SHAPE = (4, 3)


def leaves() -> tuple[Tensor, Tensor, Tensor]:
    torch.manual_seed(0)
    return tuple(ao.tensor(torch.rand(SHAPE, dtype=torch.float64) + 0.5) for _ in range(3))  # type: ignore[return-value]


def forward_kernels(program: Callable[..., object], optimize: bool = True, allowance: int = 16 << 20) -> Counter[str]:
    """Kernels of the program alone, without backward."""
    inputs = leaves()
    with ao.AutogradGraph(optimize=optimize, allowance=allowance):
        return kernels_of(lambda: program(*inputs))


def test_the_example_of_the_documentation() -> None:
    def program(t1: Tensor, t2: Tensor, a: Tensor) -> Tensor:
        d = (t1 + t2) * a
        return t1 + t2 + d

    assert forward_kernels(program, optimize=False) == {"add": 3, "mul": 1}
    assert forward_kernels(program) == {"add": 2, "mul": 1}


def test_a_named_value_and_two_temporaries() -> None:
    def program(t1: Tensor, t2: Tensor, a: Tensor) -> tuple[Tensor, ...]:
        c = t1 + t2
        d = (t1 + t2) * a
        return c, d, t1 + t2 + d

    assert forward_kernels(program) == {"add": 2, "mul": 1}


def test_temporaries_that_nobody_holds() -> None:
    def program(x: Tensor, y: Tensor, z: Tensor) -> None:
        for _ in range(10):
            ((x + y).exp() * z).sin()

    assert forward_kernels(program) == {"add": 1, "exp": 1, "mul": 1, "sin": 1}
    assert forward_kernels(program, optimize=False) == {"add": 10, "exp": 10, "mul": 10, "sin": 10}


def test_without_an_advance_the_first_repeat_shows_what_to_keep() -> None:
    """The default allowance opens with the first value that had to be computed again, also for the next graph."""
    x, y, z = leaves()

    def repeats() -> None:
        for _ in range(10):
            ((x + y).exp() * z).sin()

    counts = []
    for _ in range(3):
        with ao.AutogradGraph(optimize=True):
            counts.append(kernels_of(repeats))
    assert counts[0] == {"add": 2, "exp": 2, "mul": 2, "sin": 2}
    assert counts[1] == counts[2] == {"add": 1, "exp": 1, "mul": 1, "sin": 1}


def test_a_value_number_outlives_its_value() -> None:
    """Without any allowance the dead temporary is computed again, but what stands on it is recognized."""

    def program(x: Tensor, y: Tensor, z: Tensor) -> tuple[Tensor, Tensor]:
        return (x + y).exp(), (x + y).exp()

    assert forward_kernels(program, allowance=0) == {"add": 2, "exp": 1}


def test_reuse_pays_for_what_it_keeps() -> None:
    """Every hit allows as many bytes to be kept as it has saved."""

    def program(x: Tensor, y: Tensor, z: Tensor) -> list[Tensor]:
        kept = [x * y, x * y]  # one value's bytes saved
        for _ in range(5):
            (x + z)
        return kept

    assert forward_kernels(program, allowance=0)["add"] == 1


@pytest.mark.parametrize(
    "call",
    [
        lambda x, y, z: x + y,
        lambda x, y, z: x * y,
        lambda x, y, z: x - y,
        lambda x, y, z: x / y,
        lambda x, y, z: -x,
        lambda x, y, z: x + 1.5,
        lambda x, y, z: 1.5 * x,
        lambda x, y, z: 2 - x,
        lambda x, y, z: 2 / x,
        lambda x, y, z: x**2,
        lambda x, y, z: x.exp(),
        lambda x, y, z: x.relu(),
        lambda x, y, z: x @ y.t(),
        lambda x, y, z: x.sum(0, keepdim=True),
        lambda x, y, z: x.softmax(-1),
        lambda x, y, z: torch.where(x > 1, x, y),
        lambda x, y, z: torch.cat([x, y]),
        lambda x, y, z: torch.nn.functional.linear(x, y),
        lambda x, y, z: torch.nn.functional.gelu(x),
        lambda x, y, z: x.clamp(0, 1),
        lambda x, y, z: torch.nn.functional.layer_norm(x, x.shape[-1:]),
        lambda x, y, z: x.logsumexp(0),
        lambda x, y, z: torch.maximum(x, y),
        lambda x, y, z: x.norm(),
        lambda x, y, z: x[:2].contiguous(),
        lambda x, y, z: x.var(0),
        lambda x, y, z: torch.stack([x, y]),
    ],
    ids=lambda f: str(f.__code__.co_firstlineno) + str(f.__code__.co_names),
)
def test_a_second_call_costs_no_kernel(call: Callable[..., Tensor]) -> None:
    inputs = leaves()
    with ao.AutogradGraph(optimize=True):
        first = call(*inputs)
        again: list[Tensor] = []
        assert kernels_of(lambda: again.append(call(*inputs))).total() <= 1  # a comparison may run again
        assert again[0] is not first
        assert torch.equal(again[0], first)


@pytest.mark.parametrize(
    "call",
    [
        lambda x: torch.nn.functional.dropout(x, 0.5),
        lambda x: torch.randn_like(x),
        lambda x: torch.bernoulli(x.detach() * 0),
        lambda x: torch.rand(3),
        lambda x: torch.nn.functional.rrelu(x, training=True),
    ],
    ids=range(5),
)
def test_a_random_call_runs_each_time(call: Callable[..., Tensor]) -> None:
    x = leaves()[0]
    with ao.AutogradGraph(optimize=True):
        assert kernels_of(lambda: call(x)).total() == kernels_of(lambda: call(x)).total() > 0


def test_order_counts_only_where_it_may() -> None:
    def sums(x: Tensor, y: Tensor, z: Tensor) -> list[Tensor]:
        return [x + y, y + x, x * y, y * x]

    assert forward_kernels(sums) == {"add": 1, "mul": 1}

    def differences(x: Tensor, y: Tensor, z: Tensor) -> list[Tensor]:
        return [
            x - y,
            y - x,
            x / y,
            y / x,
            torch.maximum(x, y),
            torch.maximum(y, x),
            torch.atan2(x, y),
            torch.atan2(y, x),
        ]

    assert forward_kernels(differences) == {"sub": 2, "div": 2, "maximum": 2, "atan2": 2}


def test_literals_count_with_type_and_sign() -> None:
    def program(x: Tensor, y: Tensor, z: Tensor) -> list[Tensor]:
        return [x * 0.0, x * -0.0, x * 0, x * 0.0]

    assert forward_kernels(program) == {"mul": 3}


def test_a_write_ends_reuse_of_the_operand_and_of_the_result() -> None:
    def operand(x: Tensor, y: Tensor, z: Tensor) -> None:
        u = x * 1
        u.sin()
        u.add_(1)
        u.sin()

    assert forward_kernels(operand)["sin"] == 2

    def result(x: Tensor, y: Tensor, z: Tensor) -> None:
        a = x.cos()
        a.zero_()
        x.cos()

    assert forward_kernels(result)["cos"] == 2


def test_memory_seen_from_outside_is_not_reused() -> None:
    def program(x: Tensor, y: Tensor, z: Tensor) -> None:
        a = x.detach() * 2
        a.numpy()
        a.sin()
        a.sin()
        x.detach() * 2

    counts = forward_kernels(program)
    assert counts["sin"] == 2
    assert counts["mul"] == 2


def test_the_copy_shares_memory_until_one_is_written() -> None:
    x, y, _ = leaves()
    with ao.AutogradGraph(optimize=True):
        a = x + y
        b = x + y
        with torch._C.DisableTorchFunction():
            assert torch._C._is_cow_tensor(b)
        before = b.detach().clone()
        a.mul_(2)
        assert torch.equal(b, before)
        with torch._C.DisableTorchFunction():
            assert not torch._C._is_cow_tensor(a)


def test_views_run_again_and_alias_their_base() -> None:
    x = leaves()[0]
    with ao.AutogradGraph(optimize=True):
        u = x * 1
        a, b = u.view(-1), u.view(-1)
        c, d = a.exp(), b.exp()
        assert a is not b
        with torch.no_grad():
            u.zero_()
        assert not a.detach().any()
        assert not b.detach().any()
        assert c.grad_fn.value_number == d.grad_fn.value_number


def test_a_layer_called_twice_runs_once() -> None:
    layer = torch.nn.Sequential(torch.nn.Linear(3, 5), torch.nn.Tanh(), torch.nn.Linear(5, 2)).double()
    x = torch.rand(4, 3, dtype=torch.float64)
    with ao.AutogradGraph(optimize=True):
        kept = [layer(x), layer(x)]
        assert kernels_of(lambda: kept.append(layer(x))).total() == 0


def test_no_grad_and_grad_are_two_values_of_one_kernel_each() -> None:
    x = leaves()[0]
    with ao.AutogradGraph(optimize=True):
        with torch.no_grad():
            a = x.exp()
        b = x.exp()
        assert not a.requires_grad
        assert b.requires_grad
        b.sum().backward()
    assert torch.equal(x.grad, b.detach())


def test_a_view_seen_through_numpy_is_a_new_value_also_after_requires_grad():
    f, c = ao.tensor([1.0, 2.0]), torch.arange(4.0)
    with ao.AutogradGraph(optimize=True):
        view = c.narrow(0, 0, 2)
        with torch.no_grad():
            other = f + view
        before = f + view
        view.detach().numpy()[...] = 0.5
        other.requires_grad_()               # from now on, views are asked for a base that came to require grad
        after = f + view
    assert before.tolist() == [1.0, 3.0]
    assert after.tolist() == [1.5, 2.5]


def test_a_weighted_sum_does_not_commute():
    x, y = ao.tensor([1.0, 2.0]), ao.tensor([3.0, 5.0])
    with ao.AutogradGraph(optimize=True) as graph:
        one, other = torch.add(x, y, alpha=2), torch.add(y, x, alpha=2)
        twins = (x * 3.0).exp(), (x * 3.0).exp()         # so that the passes run
        assert graph.optimized([one, other, *twins]).num_nodes() == len(graph) - 2
        (one.sum() + 10 * other.sum()).backward()
    assert x.grad.tolist() == [21.0, 21.0]
    assert y.grad.tolist() == [12.0, 12.0]


@pytest.mark.parametrize("how", ["as it is", "without gradient", "by function", "of instances"])
def test_statistics_that_a_training_call_wrote_are_read_anew(how: str) -> None:
    """torch leaves the versions of running statistics as they were."""
    x = torch.rand(8, 3, 4)

    def program() -> list[Tensor]:
        net = torch.nn.InstanceNorm1d(3, track_running_stats=True) if how == "of instances" else torch.nn.BatchNorm1d(3)
        before = net.eval()(x)
        if how == "by function":
            torch.nn.functional.batch_norm(x, net.running_mean, net.running_var, training=True)
        else:
            with torch.set_grad_enabled(how != "without gradient"):
                net.train()(x)
        return [before.detach().clone(), net.eval()(x).detach().clone()]

    eager = program()
    with ao.AutogradGraph(optimize=True):
        mine = program()
    assert not torch.equal(*eager)
    assert all(map(torch.equal, mine, eager))


RESIZED: dict[str, Callable[[Tensor], object]] = {
    "resize_": lambda t: t.resize_(10), "resize_as_": lambda t: t.resize_as_(torch.ones(4, 4)),
    "storage": lambda t: t.untyped_storage().resize_(400), "out": lambda t: torch.add(torch.ones(50), 1, out=t),
    "factory": lambda t: torch.zeros(50, out=t), "outs": lambda t: torch.max(
        torch.rand(9, 9), 0, out=(t, torch.empty(0, dtype=torch.long))),
    "overload": lambda t: torch.ops.aten.sin.out(torch.ones(60), out=t),
}


@pytest.mark.parametrize("name", RESIZED)
@pytest.mark.parametrize("which", [0, 1], ids=["first", "clone"])
@pytest.mark.parametrize("inside", [False, True], ids=["after the graph", "inside"])
@pytest.mark.filterwarnings("ignore:An output with one or more elements was resized")
def test_memory_that_is_shared_can_be_given_another_size(name: str, which: int, inside: bool) -> None:
    x = torch.ones(3)
    with ao.AutogradGraph(optimize=True):
        both = [x * 2, x * 2]
        if inside:
            RESIZED[name](both[which])
            both[which].fill_(1.0)
    if not inside:
        RESIZED[name](both[which])
        both[which].fill_(1.0)
    assert torch.equal(both[which], torch.ones(both[which].shape))
    assert torch.equal(both[1 - which], torch.full((3,), 2.0))
