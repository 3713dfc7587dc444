"""Derivations in files, checked by a script that knows nothing of this library."""

from __future__ import annotations

import ast
import copy
import json
import math
import random
import subprocess
import sys
import time
import warnings
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import pytest
import torch
from test_checker import random_program

import autograd_opt as ao
from autograd_opt.api.graph import AutogradGraph
from autograd_opt.cli.verify import asked
from autograd_opt.verification import check_certificate
from autograd_opt.verification.check_certificate import Derivation, Wrong, sealed
from autograd_opt.verification.derivation import derivation
from autograd_opt.verification.result.budget import How
from autograd_opt.verification.strategies.task import Task
from autograd_opt.verify import Budget, Status
from benchmarks.elementwise import chain, sharing
from benchmarks.networks import cnn, lstm, mlp, transformer
from benchmarks.population import population
from benchmarks.science import gp, mechanics
from benchmarks.second_order import hessian_network, hessian_rosenbrock, pinn_burgers, pinn_navier_stokes
from benchmarks.whole_programs import ALGORITHMS
from benchmarks.workloads import WORKLOADS

SCRIPT = Path(check_certificate.__file__)


def as_read(data):
    """As it is read from a file."""
    return json.loads(json.dumps(data))


def agreed(task):
    """Check the derivation of a proved task; its number of instructions."""
    data = as_read(derivation(task))
    assert data["sha256"] == sealed(data)
    return len(Derivation(data).check().programs[0][0])


@contextmanager
def checked(most):
    """While open, the derivations of so many backward runs are checked; the sizes of their programs."""
    sizes, seen, prepare = [], set(), AutogradGraph.prepare

    def prepared(self, roots, inputs=None, *args, **kwargs):
        out = prepare(self, roots, inputs, *args, **kwargs)
        if len(sizes) < most:
            task = Task(**{"leaves": None, "leader": None, "alive": None, **asked(self, roots, inputs)})
            if task.original.digest() not in seen:
                seen.add(task.original.digest())
                found = task.run(How(("structural", "linear"), Budget(), "real", (), 0))
                if found.status is Status.PROVED:
                    sizes.append(agreed(task))
                else:
                    assert found.reason == "nothing compared", found
        return out

    AutogradGraph.prepare = prepared
    try:
        yield sizes
    finally:
        AutogradGraph.prepare = prepare


def test_the_script_is_short_and_imports_nothing_of_this_library():
    text = SCRIPT.read_text()
    assert len(text.splitlines()) <= 300
    imports = [n for n in ast.walk(ast.parse(text)) if isinstance(n, (ast.Import, ast.ImportFrom))]
    modules = {a.name for n in imports if isinstance(n, ast.Import) for a in n.names} | {
        n.module for n in imports if isinstance(n, ast.ImportFrom)}
    assert modules - {"sympy"} <= set(sys.stdlib_module_names)


def saved(tmp_path, optimize=True):
    a, b = ao.tensor([1.0, 2.0]), ao.tensor([3.0, 4.0])
    with ao.AutogradGraph(optimize=optimize) as graph:
        graph.verify(((a * b).sin() * (a * b)).sum(), save=tmp_path / "proof.json").require("proved")
    return tmp_path / "proof.json"


def test_the_script_alone_agrees_with_a_saved_proof(tmp_path):
    path = saved(tmp_path)
    done = subprocess.run([sys.executable, "-I", str(SCRIPT), str(path)], capture_output=True, text=True, cwd=tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.startswith("agreed: 3 values and gradients are equal over the reals")
    assert "mul is linear in [[0], [1]]: sympy" in done.stdout


@pytest.mark.parametrize("damage", ["text", "a byte", "no derivation", "nothing"])
def test_what_is_no_derivation_is_refused(tmp_path, damage, capsys):
    path = saved(tmp_path)
    text = path.read_text()
    whole = json.loads(text)
    if damage == "no derivation":
        whole["recorded"]["derivation"] = None
    text = {"text": "{", "a byte": text.replace('"claims": [[', '"claims": [[1'), "nothing": ""}.get(
        damage, json.dumps(whole))
    path.write_text(text)
    assert check_certificate.main([str(path)]) == 1
    assert capsys.readouterr().out.startswith("refused: ")


def test_a_file_that_is_not_there_and_wrong_usage(tmp_path):
    def said(*words):
        return subprocess.run([sys.executable, "-I", str(SCRIPT), *words], capture_output=True, text=True, cwd=tmp_path)

    absent = said("proof.json")
    assert absent.returncode == 1
    assert absent.stdout.startswith("refused: the file is damaged, or cannot be read (FileNotFoundError")
    for words in ((), ("a", "b")):
        assert said(*words).returncode == 1
        assert said(*words).stderr == "usage: python check_certificate.py proof.json\n"


# ----- edits -----
def edits(data):
    """Every single edit of a derivation that makes it wrong: (what, the edited one)."""
    found = Derivation(data)
    values = found.walk(0, [])
    kinds = [data["heads"][h][2] for h in data["original"]["heads"]]

    def other(k):
        """A position of the original whose value is another, of the same type."""
        return next((j for j in range(len(values)) if kinds[j] == kinds[k] and not found.same(values[j], values[k])),
                    None)

    for k, (_, terms) in enumerate(data["claims"]):
        for t, (factor, where) in enumerate(terms):
            if found.same(values[where], {}):
                continue
            yield f"claim {k}: coefficient", ("claims", k, 1, t, 0), str(int(factor) + 1)
            yield f"claim {k}: sign", ("claims", k, 1, t, 0), "-1"
            if other(where) is not None:
                yield f"claim {k}: position", ("claims", k, 1, t, 1), other(where)
            yield f"claim {k}: a term less", ("claims", k, 1), terms[:t] + terms[t + 1:]
            yield f"claim {k}: a term twice", ("claims", k, 1), [*terms, terms[t]]
    for k, lemma in enumerate(data["lemmas"]):
        if lemma["kind"] == "sympy":
            first = next(s for slot in lemma["linear"][0] for s in lemma["symbols"][slot])
            yield f"lemma {k}: a square", ("lemmas", k, "value", 0), f"{first}**2"
            yield f"lemma {k}: a constant", ("lemmas", k, "value", 0), f"{lemma['value'][0]} + 1"
            yield f"lemma {k}: no formula", ("lemmas", k, "value", 0), "open"
            yield f"lemma {k}: of another operator", ("lemmas", k, "op"), "sin"
    for k, (head, _, kind, detail, _) in enumerate(data["rules"]):
        if kind == "plain" and not data["heads"][head][4]:
            for n, lemma in enumerate(data["lemmas"]):
                for group in lemma["linear"] if lemma["op"] == data["heads"][head][0] else ():
                    word = "linear" if len(group) == 1 else "together"
                    yield f"rule {k}: linear by lemma {n}", ("rules", k), [head, data["rules"][k][1], word, group, n]
        if kind == "plain":
            yield f"rule {k}: unchanged", ("rules", k, 2), "unchanged"
            yield f"rule {k}: zero", ("rules", k, 2), "zero"
        if kind == "sum":
            yield f"rule {k}: sign", ("rules", k, 3), -detail
        if kind == "linear":
            yield f"rule {k}: operand", ("rules", k, 3), [7]
        if data["heads"][head][4]:
            yield f"rule {k}: an effect is linear", ("rules", k), [head, [], "sum", 1, None]
    for k, (name, x, y) in enumerate(data["goals"]):
        if x is not None and other(x) is not None:
            yield f"{name}: another value", ("goals", k, 1), other(x)
            yield f"{name}: none", ("goals", k, 1), None
        if y is not None:
            yield f"{name}: none of the optimized", ("goals", k, 2), None
    for side in ("original", "optimized"):
        for k, places in enumerate(data[side]["operands"]):
            if places:
                yield f"{side} {k}: reads itself", (side, "operands", k, 0), k


def edited(data, path, value):
    out = copy.deepcopy(data)
    part = out
    for key in path[:-1]:
        part = part[key]
    part[path[-1]] = value
    return out


def accepted(data, what):
    Derivation(data).check()
    pytest.fail(f"accepted: {what}", pytrace=False)


def refused_edits(programs, seed):
    rng = random.Random(seed)
    tried = 0
    for _ in range(programs):
        graph, loss = random_program(rng, n=rng.randint(3, 7))
        try:
            task = Task(graph.tape.snapshot(), [loss.grad_fn], None, None, None)
            data = as_read(derivation(task))
        finally:
            graph.__exit__(None, None, None)
        Derivation(data).check()
        for what, path, value in edits(data):
            wrong = edited(data, path, value)
            assert sealed(wrong) != data["sha256"]
            with pytest.raises((Wrong, LookupError, TypeError, ValueError, AttributeError)) as refused:
                accepted(wrong, f"{what}: {path} = {value}")
            assert refused
            tried += 1
    return tried


def test_every_single_edit_of_a_derivation_is_refused():
    assert refused_edits(3, seed=3) > 100


@pytest.mark.long
def test_every_single_edit_of_two_hundred_derivations_is_refused():
    assert refused_edits(200, seed=4) > 5000


def test_values_that_neither_program_has_are_not_compared():
    graph, loss = random_program(random.Random(5), n=3)
    try:
        data = as_read(derivation(Task(graph.tape.snapshot(), [loss.grad_fn], None, None, None)))
    finally:
        graph.__exit__(None, None, None)
    data["goals"] = [[name, None, None] for name, _, _ in data["goals"]]
    with pytest.raises(Wrong, match="nothing is compared"):
        Derivation(data).check()


# ----- what it agrees with -----
@pytest.mark.parametrize("number", [math.inf, -math.inf, math.nan, 0.0, -0.0, 1, True, 2**70, 1e308, 5e-324], ids=repr)
@pytest.mark.parametrize("op", [torch.mul, torch.div, torch.add, torch.sub, torch.pow, torch.clamp, partial(
    torch.lerp, torch.ones(2)), lambda x, k: torch.add(x, x, alpha=k), lambda x, k: k / x], ids=range(9))
def test_any_number_is_read(op, number):
    x = ao.tensor([1.0, -2.0])
    with ao.AutogradGraph(optimize=True) as graph:
        try:
            loss = (op(x, number) * op(x, number)).sum()
        except (RuntimeError, OverflowError):
            return                                  # torch takes no such number
        task = Task(graph.tape.snapshot(), [loss.grad_fn], None, None, None)
        assert agreed(task)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(20))
def test_a_thousand_random_programs_agree(seed):
    rng = random.Random(seed)
    for _ in range(50):
        graph, loss = random_program(rng)
        try:
            agreed(Task(graph.tape.snapshot(), [loss.grad_fn], None, None, None))
        finally:
            graph.__exit__(None, None, None)


UNLIKE = [torch.maximum, lambda a, b: torch.where(a > b, a, b), lambda a, b: a.relu() + b, lambda a, b: a.abs() * b,
          lambda a, b: a * -1.0, lambda a, b: a / 2 - b, lambda a, b: (a @ b.t()) @ a, lambda a, b: a.clamp(0, 1)]
"""Operations whose cotangents are sums, multiples, and masked."""
KEEPING = [lambda a: a * 1, lambda a: a.clone(), lambda a: a.view(2, 3), lambda a: a.expand(2, 3), lambda a: a / 1.0]
"""Operations that are their operand."""


@pytest.mark.parametrize("seed", range(4))
def test_cotangents_that_hooks_see_among_operations_that_keep_their_operand(seed):
    """A hook is no linear function: what it reads has to be the same number in both programs, not only equal."""
    rng, proved = random.Random(seed), 0
    for _ in range(25):
        leaves = [ao.tensor(torch.rand(2, 3, dtype=torch.float64) - 0.5) for _ in range(2)]
        with ao.AutogradGraph(optimize=True) as graph:
            values = list(leaves)
            for _ in range(rng.randint(3, 8)):
                values.append(rng.choice(UNLIKE)(rng.choice(values), rng.choice(values)))
                if rng.random() < 0.5:
                    values[-1].register_hook(lambda g: None)
                if rng.random() < 0.6:
                    values.append(rng.choice(KEEPING)(rng.choice(values)))
            loss = sum((v * k).sum() for k, v in enumerate(values[-4:], 1))
            task = Task(graph.tape.snapshot(), [loss.grad_fn], None, None, None)
            if task.run(How(("structural", "linear"), Budget(), "real", (), 0)).status is Status.PROVED:
                proved += 1
                assert agreed(task)
    assert proved >= 20                             # what is not shown is undecided, never wrong


SMALL = {
    "chain": partial(chain, length=100), "sharing": partial(sharing, size=4), "mlp": mlp, "transformer": transformer,
    "cnn": cnn, "lstm": lstm, "population": partial(population, points=8), "pinn_burgers": pinn_burgers,
    "pinn_navier_stokes": pinn_navier_stokes, "hessian_rosenbrock": hessian_rosenbrock,
    "hessian_network": hessian_network, "mechanics": mechanics, "gp": gp,
}
"""Workloads, small where they can be."""


@pytest.mark.slow
@pytest.mark.parametrize("name", SMALL)
def test_workloads_agree(name):
    assert {n.partition("_ros")[0].partition("_net")[0] for n in SMALL} == set(WORKLOADS)
    work = SMALL[name]()
    with checked(3) as sizes, ao.AutogradGraph(optimize=True, verify=True):
        work.step()
    assert sizes or not work.backward


@pytest.mark.slow
@pytest.mark.parametrize("name", sorted(ALGORITHMS))
def test_algorithms_agree(name):
    torch.manual_seed(0)
    before = torch.get_default_dtype()
    torch.set_default_dtype(torch.float64)
    try:
        with warnings.catch_warnings(), checked(2) as sizes, ao.AutogradGraph(optimize=True, verify=True):
            warnings.simplefilter("ignore")
            ALGORITHMS[name]()
    finally:
        torch.set_default_dtype(before)
    assert sizes


@pytest.mark.slow
def test_ten_thousand_nodes_take_less_than_a_minute():
    x = ao.tensor(torch.rand(4, dtype=torch.float64))
    with ao.AutogradGraph(optimize=True) as graph:
        y = x
        for k in range(2500):
            y = (y * 0.5 + x).sin() + (y * 0.5 + x).sin() * (0.1 + 0.001 * k)
        loss = y.sum()
        task = Task(graph.tape.snapshot(), [loss._node], None, None, None)
    data = as_read(derivation(task))
    start = time.process_time()
    assert len(Derivation(data).check().programs[0][0]) > 20_000
    assert time.process_time() - start < 60
