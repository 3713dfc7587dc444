"""Ways to obtain a proof of something wrong: each is a mistake that was made, or might be, in verifying."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F

import autograd_opt as ao
from autograd_opt.errors import ArgumentError, VerificationError
from autograd_opt.verification.cache import memory_cache
from autograd_opt.verification.checker.numbering import numbering
from autograd_opt.verification.program.instruction_names import MERGED, PULLBACK, RULE
from autograd_opt.verification.result.budget import How
from autograd_opt.verification.strategies.task import Task
from autograd_opt.verify import ENGINES, Budget, Reason, Status, verify

BUDGET = Budget(seconds=3, sympy_seconds=3)
PROVERS = ("structural", "linear", "rewrite", "sympy")
"""The engines that can prove, without those that refute first."""


def leaf(*shape, **kwargs):
    return ao.tensor(torch.rand(shape, dtype=torch.float64) + 0.5, **kwargs)


def forced(fn, *leaves, engines=PROVERS, **options):
    """The verdict where fn returns (loss, a, b) and b is merged into a."""
    with ao.AutogradGraph() as graph:
        loss, a, b = fn(*leaves)
        nodes = graph.tape.snapshot()
        where = {id(n): i for i, n in enumerate(nodes)}
        i, j = where[id(a._node)], where[id(b._node)]
        leader = list(range(len(nodes)))
        leader[j] = i
        return verify(nodes, [loss._node], None, leader, engines=engines, budget=BUDGET, **options)


def refused(*args, **kwargs):
    v = forced(*args, **kwargs)
    assert v.status is not Status.PROVED, v
    return v


# ----- linear parts of an operator -----
def test_where_a_part_of_cat_lands_depends_on_the_other_parts():
    y = leaf(3, requires_grad=False)
    weight = torch.rand(5, dtype=torch.float64)

    def fn(u):
        w = u[:1]
        a, b = torch.cat([u - u, y]), torch.cat([w - w, y, w - w])
        return (a * weight).sum() + (b * weight).sum(), a, b

    refused(fn, leaf(2), engines=("linear",))
    assert forced(fn, leaf(2), engines=("linear", "points")).status is Status.REFUTED


def test_a_derivative_with_two_cotangents_is_linear_in_both_together():
    """f(a + b, 2 c) = f(a, c) + f(b, c), and neither f(a + b, c) nor f(a, 2 c) + f(b, 2 c) is."""
    with ao.AutogradGraph() as graph:
        x = leaf(3, 3)
        h = x + x.T
        values, vectors = torch.linalg.eigh(h)
        again, vectors_again = torch.linalg.eigh(h)
        g = torch.rand(3, 3, dtype=torch.float64)
        loss = (values * 2).sum() + again.sin().sum() + (vectors * g).sum() + (vectors_again * g).sum()
        nodes = graph.tape.snapshot()
        leader = list(range(len(nodes)))
        first, second = values._node.operands[0], again._node.operands[0]
        for one, two in ((first, second), (values._node, again._node), (vectors._node, vectors_again._node)):
            leader[nodes.index(two)] = nodes.index(one)
        right = Task(nodes, [loss._node], None, list(leader), None)
        assert right.run(How(("linear",), BUDGET, "real", (), 0)).status is Status.PROVED
        p, v = right.optimized, right.vocabulary
        sums = [k for k in range(p.forward, len(p.heads)) if v.heads[p.heads[k]].op == "add"]
        for k in sums:
            task = Task(nodes, [loss._node], None, list(leader), None)
            p, v = task.optimized, task.vocabulary
            p.operands[k] = p.operands[k][:1]
            p.heads[k] = v.head(MERGED, (), v.heads[p.heads[k]].type)
            assert task.run(How(("linear",), BUDGET, "real", (), 0)).status is Status.UNDECIDED
    assert len(sums) == 3


@pytest.mark.parametrize("op", ["_scaled_dot_product_efficient_attention_backward", "mkldnn_rnn_layer_backward",
                                "linear_backward", "no_such_backward", "convolution"])
def test_only_kernels_with_one_cotangent_in_front_are_taken_for_linear(op):
    from autograd_opt.verification.program.linear import derives

    wanted = op.startswith("_scaled")
    assert derives(f"aten::{op}") is wanted
    assert derives("aten::convolution_backward")


def test_products_of_complex_numbers_commute_over_the_reals_only():
    with ao.AutogradGraph() as graph:
        x, y = (ao.tensor(torch.rand(3, dtype=torch.complex128)) for _ in range(2))
        loss = (x * y).abs().sum() + (y * x).abs().sum() + (x + y).abs().sum() + (y + x).abs().sum()
        task = Task(graph.tape.snapshot(), [loss._node], None, None, None)
        (numbers,) = numbering([task.original])
        names = [n.op.name for n in task.nodes]
        products = [numbers[k] for k, name in enumerate(names) if name == "mul"]
        sums = [numbers[k] for k, name in enumerate(names) if name == "add" and task.nodes[k].dtype.is_complex]
    assert len(set(products)) == 2
    assert len(set(sums)) == 1


@pytest.mark.parametrize("dtype", [torch.float32, torch.int64])
def test_memory_read_as_another_dtype_is_no_linear_view(dtype):
    from autograd_opt.verification.program.attribute_encoding import encode
    from autograd_opt.verification.program.instructions import Head
    from autograd_opt.verification.program.linear import slots

    def head(dtype):
        attributes = (("base_dtype", encode(torch.float64)), ("dtype", encode(dtype)))
        return Head("view_region", attributes, 0, False, 0)

    assert slots(head(torch.float64), [True]) == slots(head(torch.complex128), [True]) == (0,)
    assert slots(head(dtype), [True]) == ()


# ----- rules that do what a trace cannot see -----
def by_setitem(g, x):
    out = torch.zeros_like(g)
    out[:] = 3 * x * x * g
    return out


def by_out(g, x):
    buffer = torch.zeros_like(g)
    torch.mul(g, x, out=buffer)
    return buffer


def by_data(g, x):
    h = g * x
    h.data = g
    return h


def by_foreach(g, x):
    h = g * 1
    torch._foreach_mul_([h], [x])
    return h


def by_inplace_flag(g, x):
    h = g * x
    F.relu(h, inplace=True)
    return h


def by_view(g, x):
    h = g * x
    h.view(-1).mul_(2)
    return h


def by_operator(g, x):
    h = g * x
    h += g
    return h


def by_draw(g, x):
    return g * torch.randint_like(g, 1, 5)


def by_poisson(g, x):
    return g * torch.poisson(x)


def by_own_draw(g, x):
    return g * torch.rand(3, dtype=torch.float64)


def by_rrelu(g, x):
    return F.rrelu(g * x, training=True)


IN_PLACE = [by_setitem, by_out, by_data, by_foreach, by_inplace_flag, by_view, by_operator]
DRAWN = [by_draw, by_poisson, by_own_draw, by_rrelu]
OPERATORS = {
    rule: ao.register_op("x", pure=True, elementwise=True, name=f"attack_{rule.__name__}", x=rule)(lambda x: x * x * x)
    for rule in IN_PLACE + DRAWN
}


def twice(op):
    with ao.AutogradGraph(optimize=True) as graph:
        x = leaf(3)
        u = x.sin()
        loss = op(u).sum() + (op(u) * 2).sum()
        task = Task(graph.tape.snapshot(), [loss._node], None, None, None)
    return task, [task.vocabulary.heads[h].op for h in task.original.heads[task.original.forward:]]


@pytest.mark.parametrize("rule", IN_PLACE, ids=lambda f: f.__name__)
def test_a_rule_that_writes_in_place_is_not_traced(rule):
    task, ops = twice(OPERATORS[rule])
    assert "writes in place" in task.differentiator.unsupported[f"attack_{rule.__name__}"]
    assert ops.count(RULE) == 2
    assert PULLBACK not in ops


@pytest.mark.parametrize("rule", DRAWN, ids=lambda f: f.__name__)
def test_two_calls_of_a_rule_that_draws_are_not_one(rule):
    task, _ = twice(OPERATORS[rule])
    assert "draws random numbers" in task.differentiator.unsupported[f"attack_{rule.__name__}"]
    v = task.run(How(PROVERS, BUDGET, "real", (), 0))
    assert v.status is Status.UNDECIDED, v


# ----- functions that are called like torch's -----
LIBRARY = torch.library.Library("attack", "DEF")
for _name in ("zeros_like", "clone", "numel", "elu_backward", "rsub"):
    LIBRARY.define(f"{_name}(Tensor x, Tensor y) -> Tensor")
    LIBRARY.impl(_name, lambda x, y: x * x, "CPU")
    LIBRARY.impl(_name, lambda x, y: torch.empty_like(x), "Meta")


def named(name):
    """A function of another library that honours torch's protocol, under a name that torch has too."""
    def fn(x, y):
        if torch.overrides.has_torch_function((x, y)):
            return torch.overrides.handle_torch_function(fn, (x, y), x, y)
        return x * x

    fn.__name__ = name
    return fn


def calling(fn):
    return lambda g, x: fn(g, x)


CALLED_LIKE = {
    **{f"library_{n}": getattr(torch.ops.attack, n) for n in ("zeros_like", "clone", "numel", "elu_backward", "rsub")},
    "overload": torch.ops.attack.zeros_like.default,
    **{f"python_{n}": named(n) for n in ("zeros_like", "contiguous", "clone", "rdiv", "shape", "size")},
}
FOREIGN = {
    name: ao.register_op("x", pure=True, elementwise=True, name=f"attack_{name}", x=calling(fn))(
        lambda x: x * x * x)
    for name, fn in CALLED_LIKE.items()
}


@pytest.mark.parametrize("name", CALLED_LIKE)
def test_a_function_is_not_torchs_because_it_has_its_name(name):
    task, ops = twice(FOREIGN[name])
    assert f"attack_{name}" in task.differentiator.unsupported
    assert ops.count(RULE) == 2
    assert PULLBACK not in ops


# ----- what sympy would take for granted -----
MASK = torch.tensor([True, True])


@pytest.mark.parametrize("select", [
    lambda x, y: torch.where(MASK, x * 2, y),
    lambda x, y: (x * 2).masked_fill(~MASK, 0.0),
    lambda x, y: torch.where(torch.logical_or(MASK, x > 1), x * 2, y),
    lambda x, y: torch.where(torch.logical_not(~MASK), x * 2, y),
], ids=range(4))
def test_a_mask_is_not_true_because_it_is_a_symbol(select):
    def fn(x, y):
        a, b = x * 2, select(x, y)
        return (a * 0).sum() + (b * x).sum(), a, b

    refused(fn, leaf(2), leaf(2), assume=("defined and finite: a cast to float64",))


def test_bits_of_integers_are_no_truth_values():
    k = torch.tensor([1, 2])

    def fn(x):
        a, b = x * (k > 0), x * ((k & 1) > 0)
        return (a * 0).sum() + (b * x).sum(), a, b

    refused(fn, leaf(2), assume=("defined and finite: a cast to float64",))
    assert forced(fn, leaf(2), engines=("linear", "points")).status is Status.REFUTED


def explog(x):
    a, b = x.log().exp(), x * 1.0
    return (a * 0).sum() + (b * x).sum(), a, b


def expexp(x):
    a, b = (x * 2).exp() * (-x).exp(), x.exp()
    return (a * 0).sum() + (b * x).sum(), a, b


def nansum(x):
    a, b = x.sum(), x.nansum()
    return a * 0 + b * x.sum(), a, b


def ratio(x):
    a, b = (x / x) * x, x * 1.0
    return (a * 0).sum() + (b * x).sum(), a, b


@pytest.mark.parametrize("fn", [explog, expexp, nansum, ratio])
@pytest.mark.parametrize("engines", [("linear", "sympy"), PROVERS])
def test_what_only_the_optimized_side_computes_is_a_condition(fn, engines):
    v = refused(fn, leaf(2), engines=engines)
    assert v.reason is Reason.CONDITION, v


@pytest.mark.parametrize("fn", [
    lambda x: (x.float().double(), x * 1.0),
    lambda x: ((torch.tensor([100, 2], dtype=torch.int8) * 2).double() * x,
               torch.tensor([100, 2], dtype=torch.int8).double() * 2 * x),
    lambda x: (torch.where(torch.isnan(x), 0.0, x), x * 1.0),
    lambda x: (x + 0.1 + 0.2, x + 0.3),
    lambda x: (torch.div(x, 2.0, rounding_mode="floor"), torch.div(x, 2.0)),
    lambda x: (x.clamp(min=0.0), x.relu()),
    lambda x: (torch.maximum(x, -x), x * (x > 0) - x * (x < 0)),
], ids=range(7))
def test_merges_that_hold_almost(fn):
    def both(x):
        a, b = fn(x)
        return (a * 0.5).sin().sum() + (b * (x + 1)).sum(), a, b

    refused(both, leaf(2))


# ----- effects -----
def retained(x):
    a, b = x.sin(), x.sin()
    b.retain_grad()
    return (a * 2 + b * x).sum(), a, b


def target_retained(x):
    a, b = x.sin(), x.sin()
    a.retain_grad()
    return (a * 2 + b * x).sum(), a, b


def hooked(x):
    a, b = x.sin(), x.sin()
    b.register_hook(lambda g: g * 2)
    return (a * 2 + b * x).sum(), a, b


def drawn(x):
    a, b = F.dropout(x, 0.5), F.dropout(x, 0.5)
    return (a * 2 + b * 0).sum(), a, b


def drawn_for_nothing(x):
    a, b = F.dropout(x, 0.5), F.dropout(x, 0.5)
    return (a * 2).sum(), a, b


def constants(x):
    c, d = (torch.tensor([1.0, 2.0], dtype=torch.float64) for _ in range(2))
    a, b = x * c, x * d
    return (a + b.sin()).sum(), a, b


@pytest.mark.parametrize("fn", [retained, target_retained, hooked, drawn, drawn_for_nothing, constants])
def test_effects_are_not_merged(fn):
    refused(fn, leaf(2))


def test_a_wanted_intermediate_keeps_its_own_cotangent():
    with ao.AutogradGraph() as graph:
        x = leaf(3)
        a, b = x.sin(), x.sin()
        loss = (a * 2 + b * x).sum()
        nodes = graph.tape.snapshot()
        leader = list(range(len(nodes)))
        leader[nodes.index(b._node)] = nodes.index(a._node)
        assert verify(nodes, [loss._node], None, leader).status is Status.PROVED
        assert verify(nodes, [loss._node], [a._node], leader).status is Status.REFUTED
        assert verify(nodes, [loss._node], [b._node], leader).status is not Status.PROVED


def test_verify_true_compares_the_cotangents_that_a_run_captures(monkeypatch):
    from autograd_opt.optimizer import merging

    def uncaptured(tape, roots, pipeline, captured=()):
        table, found = run_passes(tape, roots, pipeline, ())
        return table, found

    run_passes = merging.run_passes
    monkeypatch.setattr(merging, "run_passes", uncaptured)
    with ao.AutogradGraph(optimize=True, verify=True) as graph:
        x = leaf(3)
        a, b = x.sin(), x.sin()
        loss = (a * 2 + b * x).sum()
        with pytest.raises(VerificationError, match="refuted"):
            torch.autograd.grad(loss, [a], retain_graph=True)
        assert graph.verdicts[-1].status is Status.REFUTED


def test_verify_true_uses_nothing_that_is_not_proved(monkeypatch):
    from autograd_opt.verification.result.verdict import undecided
    from autograd_opt.verification.strategies import verifier

    def gradient():
        with ao.AutogradGraph(optimize=True, verify=True) as graph:
            y = x.sin() * 2 + x.sin() * x
            y.sum().backward()
            return [v.reason or v.status for v in graph.verdicts], len(graph.runs)

    x = leaf(3)
    assert gradient() == ([Status.PROVED], 1)
    memory_cache.forget()
    first, x.grad = x.grad, None
    monkeypatch.setattr(verifier, "decide", lambda *a, **k: undecided(Reason.BUDGET))
    assert gradient() == ([Reason.BUDGET], 0)
    assert torch.allclose(x.grad, first)


@pytest.mark.parametrize("optimize", [False, True])
def test_a_graph_that_does_not_watch_its_memory_says_so(optimize):
    """Renormalizing writes the table unseen; with optimize= its version tells, and nothing is merged."""
    indices = torch.tensor([0, 1, 1])
    with ao.AutogradGraph(optimize=optimize) as graph:
        table = ao.tensor(torch.rand(4, 5, dtype=torch.float64) * 9)
        a, b = F.embedding(indices, table, max_norm=3.0), F.embedding(indices, table, max_norm=1.0)
        v = graph.verify((a.sin() * b).sum())
    assert v.status is Status.PROVED
    assert any("outside the record" in c for c in v.conditions) is not optimize
    assert (v.stats["merged"] > 0) is not optimize


def test_a_hook_on_a_node_with_several_outputs_sees_all_of_them():
    with ao.AutogradGraph() as graph:
        x = leaf(4)
        u, v = x.sin().split(2)
        u._node.operands[0].register_prehook(lambda gs: (gs[1], gs[0]))
        loss = (u * 2).sum() + v.cos().sum()
        task = Task(graph.tape.snapshot(), [loss._node], None, None, None)
        p, v = task.original, task.vocabulary
        hooks = [k for k in range(p.forward, len(p.heads)) if v.heads[p.heads[k]].op == "hook"]
    assert len(hooks) == 2
    assert p.operands[hooks[0]] == p.operands[hooks[1]]
    assert len(p.operands[hooks[0]]) == 2
    assert p.heads[hooks[0]] != p.heads[hooks[1]]


# ----- numbers and attributes that are not operands -----
@pytest.mark.parametrize("op", [
    torch.pow, lambda x, k: torch.pow(k, x), torch.add, lambda x, k: k - x, torch.sub, torch.mul, torch.div,
    lambda x, k: k / x, torch.remainder, torch.fmod, torch.xlogy, lambda x, k: torch.xlogy(k, x), torch.float_power,
    torch.copysign, torch.clamp_min, torch.clamp_max, lambda x, k: torch.where(x > 1, x, k),
    lambda x, k: torch.lerp(x, x * 2, k), lambda x, k: x.masked_fill(x > 1, k),
    lambda x, k: torch.addcmul(x, x, x, value=k), lambda x, k: torch.add(x, x, alpha=k),
    lambda x, k: F.threshold(x, 1.0, k), F.elu, lambda x, k: F.hardtanh(x, -k, k), F.softplus,
    lambda x, k: torch.full_like(x, k) * x, lambda x, k: torch.linalg.vector_norm(x, ord=k).expand(3),
    lambda x, k: torch.roll(x, int(k)), lambda x, k: F.pad(x, (1, 1), value=k),
    lambda x, k: F.layer_norm(x, (3,), eps=k),
    lambda x, k: torch.var(x, correction=int(k) - 2).expand(3), lambda x, k: F.normalize(x, p=k, dim=0),
    lambda x, k: F.huber_loss(x * 9, x, delta=k).expand(3), lambda x, k: x[int(k) - 2:int(k) - 1].expand(3),
    lambda x, k: torch.fft.fft(x, norm="ortho" if k == 2.0 else "backward").abs(),
    lambda x, k: torch.logit(x * 0.1, eps=0.1 * k), lambda x, k: torch.polygamma(int(k), x),
], ids=range(37))
def test_calls_that_differ_in_a_number_only_are_not_one(op):
    def fn(x):
        a, b = op(x, 2.0), op(x, 3.0)
        return (a * 0.3 + b * 0.7).sum() + (a.sin() * b).sum(), a, b

    x = ao.tensor(torch.tensor([0.3, 1.4, 2.2], dtype=torch.float64))
    refused(fn, x, engines=("structural", "linear"))
    refused(fn, x, engines=("structural", "linear"))


# ----- attributes that cannot be read -----
UNREADABLE = {
    "gelu": lambda x: F.gelu(x, approximate=Text("tanh")),
}
LIKE = {
    "clamp": lambda x: x * 1.0,
    "add": lambda x: x + x,
    "sub": lambda x: x - x.exp(),
    "roll": lambda x: torch.roll(x, 0),
    "mul": lambda x: x * 1.0,
    "pow": lambda x: x**1.0,
    "threshold": lambda x: F.threshold(x, 0.0, 0.0),
    "cumsum": lambda x: x.expand(2, 3).cumsum(0).sum(0),
    "softplus": F.softplus,
    "gelu": F.gelu,
}


class Text(str):
    """A string of a class of its own."""


@pytest.mark.parametrize("op", UNREADABLE)
def test_an_attribute_that_cannot_be_read_has_no_value_of_its_own(op):
    """It was taken for the operator's default: by the checker, by the rule that is traced, and by every domain."""
    with ao.AutogradGraph(optimize=True) as graph:
        x = leaf(3)
        u, like = UNREADABLE[op](x), LIKE[op](x)
        w, v = torch.sin(u), torch.sin(like)
        loss = (w * 2 + v * x).sum()
        nodes = graph.tape.snapshot()
        leader = list(range(len(nodes)))
        leader[nodes.index(v._node)] = nodes.index(w._node)
        for engines in (ENGINES, ("structural", "linear"), ("structural", "linear", "rewrite", "sympy"), ("sympy",)):
            found = verify(nodes, [loss._node], None, list(leader), engines=engines)
            assert found.status is Status.UNDECIDED, found
        assert verify(nodes, [loss._node], None, list(range(len(nodes)))).status is Status.PROVED
        with pytest.raises(ArgumentError, match="cannot be read"):
            graph.gradient_expression(x, outputs=loss)
