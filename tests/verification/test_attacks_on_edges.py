"""Proofs of something wrong by way of a proof's edges: number kinds, levels, sizes, rules with state, leaving early."""

from __future__ import annotations

import os
import subprocess
import sys
import threading

import pytest
import torch
from test_attacks import PROVERS, forced, refused

import autograd_opt as ao
from autograd_opt.cli.main import main
from autograd_opt.passes import PassResult, register_pass
from autograd_opt.verification.cache.rule_state import state_of
from autograd_opt.verification.strategies.task import SCOPE
from autograd_opt.verify import Budget, Status

Z = torch.complex(torch.tensor([1.0, 2.0]).double(), torch.tensor([3.0, 4.0]).double())


def leaf(*shape):
    return ao.tensor(torch.rand(shape, dtype=torch.float64) + 0.5)


# ----- complex numbers -----
COMPLEX = {
    "conj": lambda z: (z.conj(), z * 1.0),
    "conj_physical": lambda z: (torch.conj_physical(z), z * 1.0),
    "vdot": lambda z: (torch.vdot(z, z), torch.dot(z, z)),
    "H": lambda z: (z.reshape(1, 2).H, z.reshape(1, 2).T),
    "mH": lambda z: (z.reshape(1, 2).mH, z.reshape(1, 2).mT),
    "square of conj": lambda z: (z.conj() * z, z * z),
    "exp of conj": lambda z: (z.conj().exp(), z.exp()),
    "real, then complex": lambda z: (z.real.to(torch.complex128), z * 1.0),
    "linear": lambda z: (torch.nn.functional.linear(z, z.conj().reshape(1, 2)), (z * z).sum().reshape(1)),
    "sum of squares": lambda z: (torch.linalg.vector_norm(z), (z * z).sum().real.sqrt()),
}


@pytest.mark.parametrize("name", COMPLEX)
def test_complex_numbers_are_no_real_ones(name):
    def fn(x):
        a, b = COMPLEX[name](x * Z)
        parts = (lambda t: (t.real, t.imag)) if a.is_complex() else (lambda t: (t, t))
        return sum((p.sin() * k).sum() for k, p in enumerate((*parts(a), *parts(b)), 1)), a, b

    refused(fn, leaf(2))


def test_a_pass_that_drops_conjugations_is_not_believed():
    merged = []

    def dropping(table, state):
        leader = state.leader.copy()
        if merged:
            leader[merged[1]] = merged[0]
        return PassResult(leader=leader)

    def gradient(**options):
        x = ao.tensor([0.3, 0.7])
        with ao.AutogradGraph(**options) as graph:
            z = x * Z.to(torch.complex64)
            a, b = z.conj(), z * 1.0
            loss = a.real.sum() * 2 + b.imag.square().sum()
            if not merged:
                merged[:] = sorted([a._node.index, b._node.index])
            loss.backward()
            return x.grad, [v.status for v in graph.verdicts]

    plain, _ = gradient()
    register_pass("test_dropping", dropping)
    found, verdicts = gradient(passes=["test_dropping", "prune"], verify=True)
    assert torch.equal(plain, found)
    assert verdicts != [Status.PROVED]


# ----- truth values and integers -----
BOOLS = {
    "sum over 1 and both": lambda p, q: ((p + q) > 1, p & q),
    "sum equal to 2 and both": lambda p, q: ((p + q) == 2, p & q),
    "squared sum": lambda p, q: ((p + p) * (p + p) > 3, p),
    "sum and either": lambda p, q: ((p + q) != 0, (p * q) != 0),
}


@pytest.mark.parametrize("name", BOOLS)
def test_sums_of_truth_values_are_truth_values(name):
    """With the condition that the tool itself names."""
    values = torch.tensor([0.5, 1.5], dtype=torch.float64)

    def fn(x):
        one, other = BOOLS[name](x > 0.2, x > 0.7)
        a, b = torch.where(one, x, -x), torch.where(other, x, -x)
        return (a * 0.7 + 0.2).sin().sum() + (b * b).sum(), a, b

    _refused_recorded(fn, values)


def test_a_sum_of_truth_values_is_not_distributed_over():
    def fn(x):
        p = x > 0.2
        a, b = (p + p) * x, p * (x + x)
        return (a * 0.7).sin().sum() + (b * b).sum(), a, b

    _refused_recorded(fn, torch.tensor([0.5, 1.5], dtype=torch.float64))


@pytest.mark.parametrize("dtype", [torch.int8, torch.uint8, torch.int32, torch.int64], ids=str)
def test_integers_wrap_around(dtype):
    most = torch.iinfo(dtype).max
    number = torch.tensor([most, most - 1], dtype=dtype)

    def fn(x):
        k = number + (x > 100).to(dtype)
        a, b = (k + k) * x, k * (x + x)
        return a.sin().sum() + (b * b).sum(), a, b

    _refused_recorded(fn, torch.tensor([0.5, 1.5], dtype=torch.float64))


def _refused_recorded(fn, values):
    """Refused where tests of values are recorded as well, also under the conditions that the answers name."""
    from autograd_opt.verify import verify

    x = ao.tensor(values.clone())
    with ao.AutogradGraph(optimize=True) as graph:
        loss, a, b = fn(x)
        nodes = graph.tape.snapshot()
        i, j = sorted((nodes.index(a._node), nodes.index(b._node)))
        leader = list(range(len(nodes)))
        leader[j] = i
        assume = ()
        for _ in range(3):
            found = verify(nodes, [loss._node], None, leader, engines=PROVERS, assume=assume)
            assert found.status is not Status.PROVED, found
            assume = (*assume, *found.message.split("; "))


def test_casts_are_stated():
    x = leaf(3)
    with ao.AutogradGraph(optimize=True) as graph:
        h = x * x
        a, b = h.half().double(), h.half().double()
        found = graph.verify((a * 2 + b.sin()).sum())
    assert found.status is Status.PROVED
    assert any(line.startswith("casts only round") for line in found.conditions)


@pytest.mark.parametrize("half", [torch.float16, torch.bfloat16], ids=str)
def test_a_product_before_a_cast_is_none_after_it(half):
    def fn(x):
        a, b = (x.to(half) * 0.0009765625).double(), (x * 0.0009765625).to(half).double()
        return (a * 0.7).sin().sum() + (b * b).sum(), a, b

    refused(fn, ao.tensor([1e5, 3e4], dtype=torch.float64))


# ----- levels -----
def test_no_engine_over_the_reals_answers_about_bits():
    def fn(x, y, z):
        a, b = (x + y) + z, x + (y + z)
        return (a * 0.7).sin().sum() + (b * b).sum(), a, b

    leaves = [leaf(2) for _ in range(3)]
    assert forced(fn, *leaves).exact == "real"
    for engines in (PROVERS, ("structural", "sympy"), ("rewrite",), ("sympy",)):
        refused(fn, *leaves, engines=engines, exact="bitwise")


# ----- sizes that coincide -----
SQUARE = {
    "means over either axis": lambda x: (x.mean(0).sum(), x.mean(1).sum()),
    "mean and a third of the sum": lambda x: (x.mean(0), x.sum(0) / 3),
}


@pytest.mark.parametrize("name", SQUARE)
def test_sizes_that_coincide_are_no_law(name):
    def fn(x):
        a, b = SQUARE[name](x)
        return (a.sin() * 2).sum() + (b * b).sum(), a, b

    found = forced(fn, leaf(3, 3))
    assert found.status is not Status.PROVED or found.scope == "these shapes"
    refused(fn, leaf(4, 5))


def test_sizes_that_have_to_be_equal_are(monkeypatch):
    monkeypatch.setattr("test_attacks.BUDGET", Budget(seconds=60, sympy_seconds=60))

    def fn(x, y):
        a, b = (x @ y).sum(), (x.sum(0) * y.sum(1)).sum()
        return a.sin() + b * b, a, b

    assert forced(fn, leaf(3, 3), leaf(3, 3)).scope == SCOPE


@ao.register_op("x", pure=True, name="test_edges_size", x=lambda g, x: g * x.shape[0], meaning=lambda x: x * 1.0)
def by_its_size(x):
    return x * 1.0


@ao.register_op("x", pure=True, name="test_edges_three", x=lambda g: g * 3, meaning=lambda x: x * 1.0)
def by_three(x):
    return x * 1.0


def test_a_rule_of_the_users_that_counts_is_proved_for_its_shapes():
    def fn(x):
        a, b = by_its_size(x), by_three(x)
        return (a.sin() * 2).sum() + (b * b).sum(), a, b

    found = forced(fn, leaf(3))
    assert found.status is not Status.PROVED or found.scope == "these shapes"


# ----- axes -----
AXES = {
    "softmax": lambda x, dim: x.softmax(dim), "log_softmax": lambda x, dim: x.log_softmax(dim),
    "sum": lambda x, dim: x.sum(dim), "mean": lambda x, dim: x.mean((dim,), keepdim=True),
    "cumsum": lambda x, dim: x.cumsum(dim), "select": lambda x, dim: x.select(dim, 1),
}


@pytest.mark.parametrize("name", AXES)
def test_an_axis_is_one_from_either_end(name):
    def fn(x, one, other):
        a, b = AXES[name](x, one), AXES[name](x, other)
        return (a.sin() * 2).sum() + (b * b).sum(), a, b

    by_structure = ("structural", "linear")
    assert forced(lambda x: fn(x, 1, -1), leaf(3, 3), engines=by_structure).status is Status.PROVED
    assert forced(lambda x: fn(x, -2, 0), leaf(3, 3), engines=by_structure).status is Status.PROVED
    refused(lambda x: fn(x, 0, -1), leaf(3, 3), engines=by_structure)


# ----- rules -----
class Clipped:
    on = False

    def __call__(self, g, x):
        g = g * 2 * x
        return g.clamp(-1.0, 1.0) if self.on else g


RULE = Clipped()
FACTOR = [2.0]
LIMIT = 1.0


@ao.register_op("x", pure=True, name="test_edges_clipped", x=RULE)
def clipped_square(x):
    return x * x


@ao.register_op("x", pure=True, name="test_edges_global",
                x=lambda g, x: g * FACTOR[0] * x if FACTOR[0] > 1 else g.clamp(-LIMIT, LIMIT))
def by_a_global(x):
    return x * x


@ao.register_op("x", pure=True, name="test_edges_thread",
                x=lambda g, x: g * 2 * x if threading.current_thread().name != "odd" else (g * 2 * x).clamp(-1, 1))
def by_thread(x):
    return x * x


def gradient(op, **options):
    x = ao.tensor([0.3, 0.7, 3.0], dtype=torch.float64)
    with ao.AutogradGraph(**options) as graph:
        a, b = op(x), op(x)
        (a.sum() * 3 + (b * x).sum()).backward()
        return x.grad, list(graph.verdicts)


def test_a_rule_whose_state_changes_is_proved_anew():
    try:
        for RULE.on in (False, True, False):
            found, verdicts = gradient(clipped_square, optimize=True, verify=True)
            assert torch.allclose(found, gradient(clipped_square)[0])
            assert verdicts[0].status is (Status.UNDECIDED if RULE.on else Status.PROVED)
            assert "known" not in verdicts[0].stats
    finally:
        RULE.on = False


def test_a_rule_that_reads_globals_is_proved_anew():
    try:
        for FACTOR[0] in (2.0, 0.5, 2.0):
            found, _ = gradient(by_a_global, optimize=True, verify=True)
            assert torch.allclose(found, gradient(by_a_global)[0])
    finally:
        FACTOR[0] = 2.0


def test_a_rule_may_be_another_one_elsewhere_and_the_proof_says_so():
    _, verdicts = gradient(by_thread, optimize=True, verify=True)
    assert any("rules do in each run" in line and "test_edges_thread" in line for line in verdicts[0].conditions)
    found = []
    thread = threading.Thread(target=lambda: found.append((gradient(by_thread, optimize=True, verify=True)[0],
                                                           gradient(by_thread)[0])), name="odd")
    thread.start()
    thread.join()
    assert torch.allclose(*found[0])


def inner():
    return FACTOR[0]


def test_what_a_rule_reads_is_told_or_it_is_proved_each_time():
    from types import SimpleNamespace as Of

    def state(rule):
        return state_of(Of(vjps=[Of(fn=rule)], joint=None, meaning=None))

    k = 2.0
    assert state(lambda g, x: g * k * x.cos()) is not None
    assert state(lambda g, x: torch.where(x > LIMIT, g, 0.0)) is not None
    by_list = lambda g: g * FACTOR[0]
    before = state(by_list)
    FACTOR.append(1.0)
    assert None is not before != state(by_list)
    FACTOR.pop()
    assert state(lambda g: g * inner()) is not None
    unreadable = [RULE, lambda g: eval("g"), lambda g: g * RULE.on,
                  lambda g: os.environ, lambda g: globals()]
    assert [state(rule) for rule in unreadable] == [None] * len(unreadable)
    before = state(lambda g: g * k)
    assert state(lambda g: g * k) != before          # another code object, though of the same text


# ----- runs without a verdict -----
def test_a_run_whose_sums_stay_as_written_has_a_verdict():
    x = leaf(3)
    for known in (False, True):
        with ao.AutogradGraph(optimize="exact", verify=True) as graph:
            (x.exp() * x.exp().sin()).sum().backward()
        (verdict,) = graph.verdicts
        assert (verdict.status, verdict.exact, verdict.stats.get("known", False)) == (Status.PROVED, "bitwise", known)


def test_a_value_taken_from_another_operation_is_seen(monkeypatch):
    from autograd_opt.verification.checker import unchanged

    x = leaf(3)
    with ao.AutogradGraph(optimize=True) as graph:
        y = x.exp() * x.exp() + x.sin()
        nodes = graph.tape.snapshot()
        assert any(n.leader is not None for n in nodes)
        assert unchanged.reused_otherwise(nodes) is None
        merged = next(n for n in nodes if n.leader is not None)
        monkeypatch.setattr(unchanged, "numbering", lambda programs: [list(range(len(nodes)))])
        assert unchanged.reused_otherwise(nodes) == merged.index
        del y


LEAVES = {"os._exit": "import os; os._exit(0)", "exec": "import os; os.execv('/bin/true', ['true'])",
          "at its end": "print('end')", "failing": "raise ValueError", "with a code": "raise SystemExit(3)",
          "killed": "import os, signal; os.kill(os.getpid(), signal.SIGKILL)"}
CODES = {"os._exit": 1, "exec": 1, "at its end": 0, "failing": 1, "with a code": 3, "killed": 137}


@pytest.mark.parametrize("way", LEAVES)
def test_the_command_is_not_passed_by_leaving_early(tmp_path, way):
    script = tmp_path / "script.py"
    script.write_text("import autograd_opt as ao\nx = ao.tensor([1.0, 2.0])\n"
                      "with ao.AutogradGraph(optimize=True) as graph:\n    (x.exp() * x.exp()).sum().backward()\n"
                      + LEAVES[way])
    assert main is not None
    done = subprocess.run([sys.executable, "-m", "autograd_opt", "verify", str(script)], capture_output=True, text=True)
    assert done.returncode == CODES[way], done.stdout + done.stderr
