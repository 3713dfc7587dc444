"""Proofs of rewrites in files: believed only where all that they depend on is the same, and harmless otherwise."""

from __future__ import annotations

import importlib.metadata
import json
import multiprocessing
import os
import sys

import pytest
import torch
from processes import new_process

import autograd_opt as ao
from autograd_opt.verify import Budget, Status, fingerprints, replay, rewrites, shelf, stored, verify
from autograd_opt.verify.meaning import MEANING
from autograd_opt.verify.task import Task
from autograd_opt.verify.versions import version_of

BUDGET = Budget(seconds=3, sympy_seconds=5)


@pytest.fixture
def folder(cache):
    return cache / "rewrites"


@pytest.fixture
def asked(monkeypatch):
    """Counts the questions to sympy."""
    questions = []
    ask = rewrites.ask
    monkeypatch.setattr(rewrites, "ask", lambda *a: questions.append(1) or ask(*a))
    return questions


def cubed(x):
    return x * x * x, x ** 3


def merged(fn=cubed, engines=("structural", "linear", "rewrite"), **options):
    """The verdict where the second of two computations takes the value of the first."""
    with ao.AutogradGraph() as graph:
        x = ao.tensor(torch.rand(3, dtype=torch.float64) + 0.5)
        a, b = fn(x)
        loss = (a.sin() * b.cos()).sum()
        nodes = graph.tape.snapshot()
        leader = list(range(len(nodes)))
        leader[nodes.index(b._node)] = nodes.index(a._node)
        return verify(nodes, [loss._node], None, leader, engines=engines, budget=BUDGET, **options)


def test_the_next_process_reads_the_proof(folder, asked, monkeypatch):
    first = merged()
    assert first.status is Status.PROVED
    assert "stored proofs" not in first.trust
    assert (len(asked), len(os.listdir(folder))) == (1, 1)
    new_process()
    again = merged()
    assert again.status is Status.PROVED
    assert again.trust["stored proofs"] == 1
    assert len(asked) == 1
    assert (again.scope, again.conditions, again.goals) == (first.scope, first.conditions, first.goals)


def test_conditions_are_stored_too(folder, asked):
    def fn(x):
        return x, x.exp().log()

    first = merged(fn)
    new_process()
    again = merged(fn)
    assert len(asked) == 1
    assert first.status is again.status is Status.UNDECIDED
    assert first.message == again.message
    assert "defined and finite" in again.message


def test_what_is_asked_for_anew_is_proved_anew(folder, asked, tmp_path):
    merged()
    for again in (lambda: merged(anew=True), lambda: merged(save=tmp_path / "v.json"),
                  lambda: replay(tmp_path / "v.json")):
        new_process()
        v = again()
        assert v.status is Status.PROVED
        assert "stored proofs" not in v.trust
    assert len(asked) == 4


def test_what_was_read_does_not_stand_for_a_proof_made_anew(folder, asked):
    merged()
    new_process()
    assert merged().trust["stored proofs"] == 1
    assert "stored proofs" not in merged(anew=True).trust
    assert len(asked) == 2


@pytest.mark.parametrize("word", ["off", "0", "OFF", "no"])
def test_files_can_be_switched_off(monkeypatch, asked, tmp_path, word):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setenv("AUTOGRAD_OPT_CACHE", word)
    for _ in range(2):
        new_process()
        assert merged().status is Status.PROVED
    assert (len(asked), os.listdir(tmp_path)) == (2, [])


def test_the_folder_is_the_users_cache(monkeypatch, tmp_path):
    monkeypatch.delenv("AUTOGRAD_OPT_CACHE")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert shelf.cache_folder() == tmp_path / "autograd_opt"


def test_nothing_but_proofs_is_stored(folder):
    assert merged(lambda x: (x * x, x ** 3)).status is not Status.PROVED
    assert merged(lambda x: (x * x, x ** 3), engines=("structural", "linear", "field", "points", "rewrite", "sympy")
                  ).status is Status.REFUTED
    assert not folder.exists() or os.listdir(folder) == []


@pytest.mark.parametrize("fn", [
    lambda x: (x * x * x, x ** 4), lambda x: (x * x, x ** 3), lambda x: (-x * x * x, x ** 3),
    lambda x: (x * x * x * 1.0000001, x ** 3), lambda x: (x * x * x.detach(), x ** 3), lambda x: (x * x / x, x ** 3),
])
def test_no_wrong_rewrite_is_proved_by_the_file_of_a_right_one(folder, fn):
    assert merged().status is Status.PROVED
    new_process()
    assert merged(fn).status is not Status.PROVED


def damage(change):
    def damaged(path):
        raw = json.loads(path.read_text())
        raw = change(raw) or raw
        path.write_text(json.dumps(raw))
    return damaged


def linked(path):
    path.rename(path.with_suffix(".other"))
    path.symlink_to(path.with_suffix(".other"))


def fifo(path):
    path.unlink()
    os.mkfifo(path)


def directory(path):
    path.unlink()
    path.mkdir()


DAMAGES = {
    "empty": lambda path: path.write_text(""),
    "cut off": lambda path: path.write_text(path.read_text()[:-20]),
    "no text": lambda path: path.write_bytes(b"\xff\xfe\x00"),
    "deep": lambda path: path.write_text("[" * 100_000),
    "a list": lambda path: path.write_text("[]"),
    "a number": lambda path: path.write_text("NaN"),
    "large": lambda path: path.write_text(path.read_text() + " " * shelf.MOST_BYTES),
    "open to all": lambda path: path.chmod(0o666),
    "a link": linked,
    "a pipe": fifo,
    "a folder": directory,
    "one word more": damage(lambda raw: raw | {"more": 1}),
    "one word less": damage(lambda raw: raw.pop("conditions") and None),
    "no bool": damage(lambda raw: raw | {"everywhere": 1}),
    "no list": damage(lambda raw: raw | {"conditions": "all"}),
    "no texts": damage(lambda raw: raw | {"conditions": [1]}),
    "another left": damage(lambda raw: raw | {"left": raw["right"]}),
    "another right": damage(lambda raw: raw | {"right": raw["left"]}),
    "another meaning": damage(lambda raw: raw["meanings"].update(mul="0" * 64)),
    "no meaning": damage(lambda raw: raw["meanings"].pop("mul") and None),
    "another torch": damage(lambda raw: raw["about"].update(torch="1.0")),
    "other sources": damage(lambda raw: raw["about"].update(sources="0" * 64)),
    "another format": damage(lambda raw: raw["about"].update(format=1)),
}


@pytest.mark.parametrize("name", DAMAGES)
def test_a_damaged_or_foreign_file_is_as_good_as_none(folder, asked, name):
    merged()
    (path,) = folder.iterdir()
    DAMAGES[name](path)
    new_process()
    v = merged()
    assert v.status is Status.PROVED
    assert "stored proofs" not in v.trust
    assert len(asked) == 2


@pytest.mark.skipif(not hasattr(os, "geteuid"), reason="files have no owner here")
def test_a_file_of_another_user_is_not_believed(folder, asked, monkeypatch):
    merged()
    new_process()
    monkeypatch.setattr(shelf.os, "geteuid", lambda: 12345)
    assert "stored proofs" not in merged().trust
    assert len(asked) == 2


@pytest.mark.parametrize("place", ["/proc/no/such/place", "a file"])
def test_a_folder_that_cannot_be_written_to_is_harmless(monkeypatch, asked, tmp_path, place):
    if place == "a file":
        place = str(tmp_path / "file")
        (tmp_path / "file").write_text("in the way")
    monkeypatch.setenv("AUTOGRAD_OPT_CACHE", place)
    for _ in range(2):
        new_process()
        assert merged().status is Status.PROVED
    assert len(asked) == 2


def test_a_full_folder_takes_no_more(folder, monkeypatch):
    monkeypatch.setattr(shelf, "MOST_FILES", 1)
    merged()
    merged(lambda x: (x * x * x * x, x ** 4))
    assert len(os.listdir(folder)) == 1


def test_another_meaning_is_another_file(folder, asked, monkeypatch):
    merged()
    new_process()
    monkeypatch.setitem(MEANING, "mul", MEANING["sub"])
    assert "stored proofs" not in merged().trust
    assert len(asked) == 2


def test_a_function_that_a_meaning_calls_belongs_to_it(monkeypatch):
    from autograd_opt.verify import computing

    before = fingerprints.meaning_of("mean"), fingerprints.meaning_of("var")
    monkeypatch.setattr(sys.modules["autograd_opt.verify.computing"], "axes_of", computing.packed)
    assert fingerprints.meaning_of("mean") != before[0]
    assert fingerprints.meaning_of("var") != before[1]


def test_meanings_that_are_not_the_librarys_are_not_stored(folder):
    @ao.register_op("x", pure=True, elementwise=True, name="stored_thrice", meaning=lambda x: x * 3, x=lambda g: g * 3)
    def thrice(x):
        return x * 3

    with pytest.raises(fingerprints.Unclear):
        fingerprints.meaning_of("stored_thrice")
    assert merged(lambda x: (x * x * x * 3, thrice(x ** 3))).status is Status.PROVED
    assert not folder.exists() or os.listdir(folder) == []


def test_sources_that_have_changed_since_they_were_loaded_are_not_what_runs(folder, monkeypatch):
    monkeypatch.setattr(stored, "LOADED", 0.0)
    merged()
    assert not folder.exists() or os.listdir(folder) == []


def test_programs_that_differ_in_anything_have_different_texts():
    texts = set()
    for fn in (lambda x: (x * 2, x + x), lambda x: (x * 2.0, x + x), lambda x: (x * 3, x + x),
               lambda x: (x.float() * 2, x + x),
               lambda x: (x * 2, x + x.detach()), lambda x: (-x, x + x)):
        with ao.AutogradGraph() as graph:
            x = ao.tensor(torch.rand(3, dtype=torch.float64))
            a, b = fn(x)
            task = Task(graph.tape.snapshot(), [a._node, b._node], None, None, None)
            texts.add(task.original.text())
    assert len(texts) == 6


def together(folder, n):
    os.environ["AUTOGRAD_OPT_CACHE"] = folder
    for k in range(n):
        shelf.put(shelf.cache_folder() / "rewrites" / f"{k % 3}.json", {"k": k, "long": "x" * 10_000})
        found = shelf.contents(shelf.cache_folder() / "rewrites" / "0.json")
        assert found is not None
        assert len(found["long"]) == 10_000


def test_processes_that_write_the_same_file_never_see_half_of_one(tmp_path):
    context = multiprocessing.get_context("fork")
    children = [context.Process(target=together, args=(str(tmp_path), 60)) for _ in range(3)]
    for child in children:
        child.start()
    for child in children:
        child.join()
    assert [c.exitcode for c in children] == [0, 0, 0]
    assert sorted(os.listdir(tmp_path / "rewrites")) == ["0.json", "1.json", "2.json"]


def test_a_damaged_file_of_lemmas_is_as_good_as_none(monkeypatch, tmp_path):
    from autograd_opt.verify import lemmas

    monkeypatch.setenv("AUTOGRAD_OPT_CACHE", str(tmp_path))
    key = lemmas.fingerprint("sin")
    for text in ("", "[1]", "{", json.dumps({key: [["sin", "gradient", "proved", "", "fast"]]}),
                 json.dumps({key: 3}), json.dumps({key: [["cos", "gradient", "proved", "", 0.1]]}),
                 json.dumps({key: [["sin", "gradient", "refuted", "", 0.1]]})):
        (tmp_path / "lemmas.json").write_text(text)
        (tmp_path / "lemmas.json").chmod(0o600)
        assert [p.status for p in lemmas.prove_all(ops=["sin"])] == ["proved", "proved"], text


@pytest.mark.parametrize("name", ["torch", "sympy", "numpy"])
def test_a_version_is_what_the_package_says_loaded_or_not(monkeypatch, name):
    monkeypatch.delitem(sys.modules, "sympy", raising=False)
    assert version_of.__wrapped__(name) == importlib.metadata.version(name)
    monkeypatch.undo()
    assert version_of.__wrapped__(name) == importlib.import_module(name).__version__
