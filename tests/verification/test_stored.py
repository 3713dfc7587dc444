"""Files that outlive a process: read only where this user alone can have written them, and harmless otherwise."""

from __future__ import annotations

import importlib.metadata
import json
import multiprocessing
import os
import sys

import pytest
import torch

import autograd_opt as ao
from autograd_opt.verification.cache import cache_files
from autograd_opt.verification.result.versions import version_of
from autograd_opt.verification.strategies.task import Task


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "folder" / "file.json"
    cache_files.put(path, {"a": 1})
    assert cache_files.contents(path) == {"a": 1}
    return path


def test_the_folder_is_the_users_cache(monkeypatch, tmp_path):
    monkeypatch.delenv("AUTOGRAD_OPT_CACHE")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert cache_files.cache_folder() == tmp_path / "autograd_opt"


@pytest.mark.parametrize("name", ["text", "nothing", "deep", "long", "writable", "a link", "a folder", "gone"])
def test_a_damaged_or_foreign_file_is_as_good_as_none(file, name):
    texts = {"text": b"{", "nothing": b"", "deep": b"[" * 100_000, "long": b" " * (cache_files.MOST_BYTES + 1) + b"1"}
    if name in texts:
        file.write_bytes(texts[name])
    elif name == "writable":
        file.chmod(0o666)
    else:
        kept = file.rename(file.with_name("kept"))
        if name == "a link":
            file.symlink_to(kept)
        elif name == "a folder":
            file.mkdir()
    assert cache_files.contents(file) is None


@pytest.mark.skipif(not hasattr(os, "geteuid"), reason="files have no owner here")
def test_a_file_of_another_user_is_not_believed(file, monkeypatch):
    monkeypatch.setattr(cache_files.os, "geteuid", lambda: 12345)
    assert cache_files.contents(file) is None


def test_a_folder_that_cannot_be_written_to_is_harmless(file):
    cache_files.put(file / "below a file", 1)
    cache_files.put(cache_files.Path("/proc/no/such/place"), 1)
    assert cache_files.contents(file) == {"a": 1}


def test_a_full_folder_takes_no_more(file, monkeypatch):
    monkeypatch.setattr(cache_files, "MOST_FILES", 1)
    cache_files.put(file.with_name("other"), 1)
    cache_files.put(file, 2)
    assert os.listdir(file.parent) == [file.name]
    assert cache_files.contents(file) == 2


@pytest.mark.parametrize("word", ["off", "0", "no"])
def test_files_can_be_switched_off(monkeypatch, word):
    monkeypatch.setenv("AUTOGRAD_OPT_CACHE", word)
    assert cache_files.cache_folder() is None


def test_programs_that_differ_in_anything_have_different_hashes():
    hashes = set()
    for fn in (lambda x: (x * 2, x + x), lambda x: (x * 2.0, x + x), lambda x: (x * 3, x + x),
               lambda x: (x.float() * 2, x + x),
               lambda x: (x * 2, x + x.detach()), lambda x: (-x, x + x)):
        with ao.AutogradGraph() as graph:
            x = ao.tensor(torch.rand(3, dtype=torch.float64))
            a, b = fn(x)
            task = Task(graph.tape.snapshot(), [a._node, b._node], None, None, None)
            hashes.add(task.original.digest())
    assert len(hashes) == 6


def together(folder, n):
    os.environ["AUTOGRAD_OPT_CACHE"] = folder
    for k in range(n):
        cache_files.put(cache_files.cache_folder() / "files" / f"{k % 3}.json", {"k": k, "long": "x" * 10_000})
        found = cache_files.contents(cache_files.cache_folder() / "files" / "0.json")
        assert found is not None
        assert len(found["long"]) == 10_000


def test_processes_that_write_the_same_file_never_see_half_of_one(tmp_path):
    context = multiprocessing.get_context("spawn")       # a fork would hold what other threads of this process held
    children = [context.Process(target=together, args=(str(tmp_path), 60)) for _ in range(3)]
    for child in children:
        child.start()
    for child in children:
        child.join(timeout=300)
    assert [c.exitcode for c in children] == [0, 0, 0]
    assert sorted(os.listdir(tmp_path / "files")) == ["0.json", "1.json", "2.json"]


def test_a_damaged_file_of_lemmas_is_as_good_as_none(monkeypatch, tmp_path):
    from autograd_opt.verification.lemmas import prover

    monkeypatch.setenv("AUTOGRAD_OPT_CACHE", str(tmp_path))
    key = prover.fingerprint("sin")
    for text in ("", "[1]", "{", json.dumps({key: [["sin", "gradient", "proved", "", "fast"]]}),
                 json.dumps({key: 3}), json.dumps({key: [["cos", "gradient", "proved", "", 0.1]]}),
                 json.dumps({key: [["sin", "gradient", "refuted", "", 0.1]]})):
        (tmp_path / "lemmas.json").write_text(text)
        (tmp_path / "lemmas.json").chmod(0o600)
        assert [p.status for p in prover.prove_all(ops=["sin"])] == ["proved", "proved"], text


@pytest.mark.parametrize("name", ["torch", "sympy", "numpy"])
def test_a_version_is_what_the_package_says_loaded_or_not(monkeypatch, name):
    monkeypatch.delitem(sys.modules, "sympy", raising=False)
    said, installed = version_of.__wrapped__(name), importlib.metadata.version(name)
    assert installed in (said, said.partition("+")[0])       # a wheel may not name the build that torch names: +cu130
    monkeypatch.undo()
    assert version_of.__wrapped__(name) == importlib.import_module(name).__version__
