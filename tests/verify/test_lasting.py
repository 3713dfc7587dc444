"""Whole proofs in files: found by the next process, believed only where everything that they rest on is the same."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import Any

import mutants
import pytest
import torch
from processes import new_process
from test_known import FAMILIES, leaf
from test_stored import DAMAGES, damage

import autograd_opt as ao
from autograd_opt.node import Vjp
from autograd_opt.ops.table import CALLS, OPS
from autograd_opt.verify import Budget, Status, known, lasting, linear, replay, stored, verify, world
from autograd_opt.verify.meaning import MEANING
from autograd_opt.verify.versions import version_of


@pytest.fixture(autouse=True)
def folder(cache):
    return cache / "proofs"


def end():
    """The process ends, and another begins."""
    lasting.write()
    new_process()


def program(x: Any) -> Any:
    return ((x * 2.0).sin() + (x * 2.0).sin() * x).sum()


def step(fn: Any = program, x: Any = None) -> Any:
    with ao.AutogradGraph(optimize=True, verify=True) as graph:
        fn(leaf(3) if x is None else x).backward()
        return graph.verdicts[-1]


def test_the_next_process_finds_the_proof(folder, proofs):
    first = step()
    assert not folder.exists()
    end()
    assert len(os.listdir(folder)) == 1
    again = step()
    assert again.status is Status.PROVED
    assert (again.trust["stored"], again.stats["stored"], len(proofs)) == ("the whole proof", True, 1)
    for part in "exact scope conditions goals evidence original optimized engine".split():
        assert getattr(again, part) == getattr(first, part), part
    assert step().stats["known"]
    assert len(proofs) == 1


def test_what_was_found_is_not_written_again(folder):
    step()
    end()
    (before,) = [os.stat(folder / f).st_mtime_ns for f in os.listdir(folder)]
    step()
    end()
    assert [os.stat(folder / f).st_mtime_ns for f in os.listdir(folder)] == [before]


def test_a_verification_that_was_asked_for_by_name_is_kept_too(proofs):
    for _ in range(2):
        with ao.AutogradGraph(optimize=True) as graph:
            assert graph.verify(program(leaf(3))).status is Status.PROVED
        end()
    assert len(proofs) == 1


def test_what_is_asked_for_anew_is_proved_anew(proofs, tmp_path):
    with ao.AutogradGraph(optimize=True) as graph:
        loss = program(leaf(3))
        graph.verify(loss)
        end()
        for k, again in enumerate((lambda: graph.verify(loss, anew=True),
                                   lambda: graph.verify(loss, save=tmp_path / "v.json"),
                                   lambda: replay(tmp_path / "v.json"))):
            v = again()
            assert v.status is Status.PROVED
            assert "stored" not in v.trust
            assert len(proofs) == k + 2


@pytest.mark.parametrize("word", ["off", "0", "no"])
def test_files_can_be_switched_off(monkeypatch, proofs, tmp_path, word):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("AUTOGRAD_OPT_CACHE", word)
    for _ in range(2):
        assert step().status is Status.PROVED
        end()
    assert len(proofs) == 2
    assert not (tmp_path / "home").exists()


def test_where_files_are_switched_off_nothing_is_hashed_for_them(monkeypatch):
    monkeypatch.setenv("AUTOGRAD_OPT_CACHE", "off")
    monkeypatch.setattr(lasting, "world", lambda: pytest.fail("the operator table is hashed"))
    assert step().status is Status.PROVED


@pytest.mark.parametrize("name", ["torch", "sympy", "numpy"])
def test_a_version_is_what_the_package_says_loaded_or_not(monkeypatch, name):
    import importlib

    monkeypatch.delitem(sys.modules, "sympy", raising=False)
    assert version_of.__wrapped__(name) == importlib.metadata.version(name)
    monkeypatch.undo()
    assert version_of.__wrapped__(name) == importlib.import_module(name).__version__


def test_a_process_with_ever_new_structures_stops_asking(folder, monkeypatch):
    monkeypatch.setattr(lasting, "MOST_ASKED", 3)
    for k in range(6):
        step(lambda x, k=k: (x * (k + 0.5) + x * (k + 0.5)).sum())
    end()
    assert len(os.listdir(folder)) == 3


def test_nothing_but_proofs_is_stored(folder):
    with ao.AutogradGraph() as graph:
        x = leaf(3)
        loss = (x * 2 + x * 3).sum()
        nodes = graph.tape.snapshot()
        leader = list(range(len(nodes)))
        leader[2] = 1
        assert verify(nodes, [loss._node], None, leader).status is Status.REFUTED
        assert verify(nodes, [loss._node], None, leader, engines=("structural",)).status is Status.UNDECIDED
    end()
    assert not folder.exists()


# ----- files that say something else -----
WRONG = {
    **{k: v for k, v in DAMAGES.items() if k in (
        "empty", "cut off", "no text", "deep", "a list", "a number", "large", "open to all", "a link", "a pipe",
        "a folder", "one word more")},
    "spelled otherwise": lambda path: path.write_text(path.read_text().replace('": ', '":')),
    "another proof behind": lambda path: path.write_text(path.read_text()[:-1] + ', "proof": {}}'),
    "nothing behind": lambda path: path.write_text(path.read_text().partition('"proof": ')[0] + '"proof": }'),
    "no proof": damage(lambda raw: raw.pop("proof") and None),
    "proof of another kind": damage(lambda raw: raw | {"proof": 1}),
    "a part less": damage(lambda raw: raw["proof"].pop("goals") and None),
    "a part more": damage(lambda raw: raw["proof"].update(status="proved")),
    "goals that are none": damage(lambda raw: raw["proof"].update(goals=7)),
    "conditions that are none": damage(lambda raw: raw["proof"].update(conditions=7)),
    "trust that is none": damage(lambda raw: raw["proof"].update(trust=[1])),
    "another row": damage(lambda raw: raw["graph"].__setitem__(0, raw["graph"][0][:-8] + "AAAAAAA=")),
    "other leaders": damage(lambda raw: raw["graph"].__setitem__(1, raw["graph"][0])),
    "other words": damage(lambda raw: raw["texts"].__setitem__(0, raw["texts"][0].replace("sin", "cos"))),
    "another question": damage(lambda raw: raw["texts"].__setitem__(1, raw["texts"][1].replace("real", "bitwise"))),
    "other rules": damage(lambda raw: raw | {"tables": "0" * 64}),
    "another torch": damage(lambda raw: raw | {"about": raw["about"].replace(torch.__version__, "1.0")}),
}


@pytest.mark.parametrize("name", WRONG)
def test_a_damaged_or_foreign_file_is_as_good_as_none(folder, proofs, name):
    step()
    end()
    (path,) = folder.iterdir()
    WRONG[name](path)
    v = step()
    assert v.status is Status.PROVED
    assert "stored" not in v.trust
    assert len(proofs) == 2


# ----- what differs in one thing -----
@pytest.mark.parametrize("family", FAMILIES)
def test_programs_that_differ_in_one_thing_have_different_files(family):
    def file_of(fn: Any) -> Any:
        found = []
        with ao.AutogradGraph(optimize=True) as graph:
            out = fn(leaf(2, 3), leaf(2, 3))
            nodes = graph.tape.snapshot()
            key = known.key_of(known.seen(nodes, [out._node], None), range(len(nodes)), None, known.USUAL)
            found.append(lasting.question(key, nodes, [out._node], None, False))
        return found[0]

    files = [file_of(fn) for fn in FAMILIES[family]]
    assert all(f is not None for f in files)
    assert len({f[0] for f in files}) == len(files)
    assert len({json.dumps(f[1]) for f in files}) == len(files)
    assert [file_of(fn) for fn in FAMILIES[family]] == files


def test_the_question_belongs_to_it(proofs):
    with ao.AutogradGraph(optimize=True) as graph:
        loss = program(leaf(3))
        for options in ({}, {"exact": "bitwise"}, {"seed": 1}, {"assume": ("x",)}, {"budget": Budget(seconds=1)},
                        {"engines": ("structural", "linear")}):
            graph.verify(loss, **options)
            end()
    assert len(proofs) == 6


# ----- stale proofs: what a proof rests on has changed -----
def believed_after(change: Any, proofs: list[int], fn: Any = program) -> bool:
    """Is the proof of the healthy process believed in one that differs?"""
    step(fn)
    end()
    assert step(fn).trust.get("stored"), "the healthy one is"
    end()
    change()
    made = len(proofs)
    v = step(fn)
    assert bool(v.trust.get("stored")) == (len(proofs) == made)
    return len(proofs) == made


def test_a_proof_is_not_believed_with_another_rule(monkeypatch, proofs):
    rule, rules = OPS["sin"].vjps[0], OPS["sin"].vjps
    other = Vjp(lambda g, x: g * x.sin(), rule.codes, rule.attributes, rule.needs)
    try:
        assert not believed_after(lambda: rules.__setitem__(0, other), proofs)
    finally:
        rules[0] = rule


def test_a_proof_is_not_believed_with_another_function_that_a_rule_calls(monkeypatch, proofs):
    names = OPS["clamp"].vjps[0].fn.__globals__
    assert "masked" in OPS["clamp"].vjps[0].fn.__code__.co_names
    healthy = names["masked"]

    def masked(*args):
        return healthy(*args)

    masked.__module__ = healthy.__module__
    assert not believed_after(lambda: monkeypatch.setitem(names, "masked", masked), proofs,
                              lambda x: (x.clamp(0.5, 1) * x.clamp(0.5, 1)).sum())


def test_a_proof_is_not_believed_with_other_code_of_a_rule(monkeypatch, proofs):
    rule = OPS["sin"].vjps[0].fn
    other = rule.__code__.replace(co_name="other", co_names=("H", "sin"))
    assert not believed_after(lambda: monkeypatch.setattr(rule, "__code__", other), proofs)


def test_a_proof_is_not_believed_with_another_meaning_or_linearity(monkeypatch, proofs):
    assert not believed_after(lambda: monkeypatch.setitem(MEANING, "sin", MEANING["cos"]), proofs)
    monkeypatch.undo()


@pytest.mark.parametrize("table", [linear.LINEAR, linear.JOINTLY])
def test_a_proof_is_not_believed_with_another_linearity(monkeypatch, proofs, table):
    assert not believed_after(lambda: monkeypatch.setitem(table, "sin", (0,)), proofs)


def test_a_proof_is_not_believed_with_another_word_for_a_call(monkeypatch, proofs):
    assert not believed_after(lambda: monkeypatch.setitem(CALLS, torch.cos, "sin"), proofs)


def test_a_change_is_seen_without_a_new_process(monkeypatch, proofs):
    """Tables are looked at each time, though their hash is taken once."""
    step()
    end()
    step(lambda x: (x.exp() * x.exp()).sum())
    monkeypatch.setitem(linear.LINEAR, "sin", (0,))
    assert "stored" not in step().trust
    assert len(proofs) == 3


@pytest.mark.parametrize("name", ["python", "sources", "torch", "sympy", "numpy"])
def test_a_proof_is_not_believed_with_other_versions_or_sources(monkeypatch, proofs, name):
    about = stored.surroundings

    def changed():
        return {**about(), name: "another"}

    changed.cache_clear = about.cache_clear
    assert not believed_after(lambda: monkeypatch.setattr(stored, "surroundings", changed), proofs)


def test_a_proof_is_not_believed_with_another_core(monkeypatch, proofs):
    """The compiled modules are told by the files that they were loaded from."""
    assert not believed_after(lambda: monkeypatch.setattr(lasting, "CORE", lasting.CORE[1:]), proofs)


def test_sources_that_have_changed_since_they_were_loaded_are_not_what_runs(folder, monkeypatch):
    monkeypatch.setattr(stored, "LOADED", 0.0)
    assert step().status is Status.PROVED
    end()
    assert not folder.exists()


def test_a_function_that_is_replaced_while_a_process_runs_spoils_its_proofs(folder, monkeypatch):
    """A wrong proof, made with a helper that was replaced in memory, must not reach the next process."""
    step()
    rule = OPS["sin"].vjps[0].fn
    monkeypatch.setattr(rule, "__code__", rule.__code__.replace(co_names=("H", "sin")))
    end()
    assert not folder.exists()


def test_functions_of_torchs_that_somebody_has_replaced_are_not_told(folder, monkeypatch):
    monkeypatch.setattr(torch, "cos", lambda x: x.sin())
    assert world.world() is None
    step()
    end()
    assert not folder.exists()


def test_operators_of_others_are_not_stored(folder):
    @ao.register_op("x", pure=True, elementwise=True, name="lasting_thrice", x=lambda g: g * 3)
    def thrice(x):
        return x * 3

    assert step(lambda x: (thrice(x) + thrice(x)).sum()).status is Status.PROVED
    end()
    assert not folder.exists()
    assert step().status is Status.PROVED     # others are still
    end()
    assert len(os.listdir(folder)) == 1


def test_all_operators_of_the_library_but_functions_of_the_users_are_told():
    """In a process of its own, in which no test has defined operators."""
    program = """
from autograd_opt.ops.table import OPS
from autograd_opt.verify import world
told = world.world().clear
print(sorted(name for name, op in OPS.items() if op not in told))
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=120)
    assert done.stdout.strip() == "['function']", done.stderr


# ----- wrong optimizations, after the proof of the healthy graph was stored -----
@pytest.mark.parametrize("m", [m for m in mutants.MUTANTS if (m.number <= 17 or m.number >= 38) and m.number != 39],
                         ids=lambda m: f"{m.number}")
def test_no_wrong_merge_is_proved_by_the_file_of_its_healthy_twin(m):
    budget = Budget(seconds=5, sympy_seconds=3)
    try:
        task = m.make()
        honest = list(range(len(task.nodes)))
        assert task.leader != honest
        assert verify(task.nodes, task.roots, task.leaves, honest, budget=budget).status is Status.PROVED
        end()
        again = verify(task.nodes, task.roots, task.leaves, honest, budget=budget)
        assert "stored" in again.trust or not told(task)
        v = verify(task.nodes, task.roots, task.leaves, list(task.leader), budget=budget)
        assert v.status is not Status.PROVED, m.text
    finally:
        mutants.close()


def told(task: Any) -> bool:
    """May a file hold this graph?"""
    return world.world().tells([world.what(n.op) for n in task.nodes])


# ----- processes -----
SCRIPT = """
import sys, json, torch, autograd_opt as ao
for word in sys.argv[1:]:                   # numbers that this process gives to words, dtypes and devices
    a = ao.tensor([1.0, 2.0], dtype=getattr(torch, word))
    with ao.AutogradGraph(optimize=True, verify=True):
        torch.nn.functional.gelu(a, approximate="tanh").cumsum(0).sum().backward()
torch.manual_seed(0)
net = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.Tanh(), torch.nn.Linear(4, 2))
with ao.AutogradGraph(optimize=True, verify=True) as graph:
    x = torch.ones(5, 3)
    (torch.nn.functional.cross_entropy(net(x), torch.ones(5, dtype=torch.long)) + net(x).softmax(1).sum()).backward()
    print(json.dumps([[str(v.status), v.trust.get("stored", ""), v.original, v.optimized] for v in graph.verdicts]))
"""


def run(*words: str) -> Any:
    done = subprocess.run([sys.executable, "-c", SCRIPT, *words], env={**os.environ, "PYTHONHASHSEED": str(len(words))},
                          capture_output=True, text=True, check=True)
    return json.loads(done.stdout)


def test_processes_understand_each_other():
    """Whatever they have done before, and in whatever order their sets and dictionaries are."""
    ((status, found, *hashes),) = run()
    assert (status, found) == ("proved", "")
    assert run() == [["proved", "the whole proof", *hashes]]
    assert run("float64", "bfloat16") == [["proved", "the whole proof", *hashes]]
