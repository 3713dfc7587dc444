"""Saved verifications: verified again elsewhere, and believed in nothing that can be computed."""

from __future__ import annotations

import json
import random
import re
import subprocess
import sys
from dataclasses import replace

import pytest
import torch
import torch.nn.functional as F

import autograd_opt as ao
from autograd_opt.errors import ArgumentError, ArgumentTypeError
from autograd_opt.verify import Budget, Reason, Status, Verification, replay, verify

BUDGET = Budget(seconds=5, sympy_seconds=5)


def leaf(*shape):
    return ao.tensor(torch.rand(shape, dtype=torch.float64) + 0.5)


def linear(x):
    return ((x * 2).sin() * (x * 2)).sum(), None


def bitwise(x):
    return (x * 2).sin().sum(), None


def rewritten(x):
    u, v = (x + 1) * (x - 1), x * x - 1
    return (u * 2 + v.sin()).sum(), (u, v)


def refuted(x):
    a, b = x.sin(), x.cos()
    return (a * 2 + b * x).sum(), (a, b)


def indexed(x):
    k = torch.tensor([1, 0, 1])
    a, b = x[k], x[torch.tensor([1, 0, 0])]
    return (a * 2 + b).sum(), (a, b)


def drawn(x):
    a, b = F.dropout(x, 0.5), F.dropout(x, 0.5)
    return (a * 2 + b * x).sum(), (a, b)


def opaque(x):
    a, b = torch.linalg.cholesky(x @ x.T), torch.linalg.cholesky(x @ x.T)
    return (a * 2 + b.sin()).sum(), None


def saved(path, fn, *shape, **options):
    with ao.AutogradGraph(optimize=True) as graph:
        loss, pair = fn(leaf(*shape))
        nodes = graph.tape.snapshot()
        leader = None
        if pair is not None:
            leader = list(range(len(nodes)))
            leader[nodes.index(pair[1]._node)] = nodes.index(pair[0]._node)
        return verify(nodes, [loss._node], None, leader, budget=BUDGET, save=path, **options)


CASES = {
    "linear": (linear, (2,), Status.PROVED), "bitwise": (bitwise, (2,), Status.PROVED),
    "rewritten": (rewritten, (2,), Status.PROVED), "refuted": (refuted, (2,), Status.REFUTED),
    "indexed": (indexed, (2,), Status.REFUTED), "drawn": (drawn, (4,), None), "opaque": (opaque, (3, 3), Status.PROVED),
}


def same(a, b):
    """Two verdicts, but for how long they took."""
    def bare(v):
        return replace(v, stats={k: x for k, x in v.stats.items() if k != "seconds"})

    return bare(a) == bare(b)


@pytest.mark.parametrize("name", CASES)
def test_the_answer_without_the_graph_is_the_same(name, tmp_path):
    fn, shape, status = CASES[name]
    first = saved(tmp_path / "v.json", fn, *shape)
    again = replay(tmp_path / "v.json", BUDGET)
    assert status is None or first.status is status, first
    assert same(first, again), (first, again)
    assert replay(again, BUDGET).status is first.status
    assert "test_replay.py:" in (again.culprit or "test_replay.py:")


def test_in_another_process(tmp_path):
    saved(tmp_path / "v.json", linear, 2)
    code = f"from autograd_opt.verify import replay; print(replay({str(tmp_path / 'v.json')!r}))"
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert out.stdout.startswith("proved: ")


def test_from_a_graph(tmp_path):
    with ao.AutogradGraph(optimize=True) as graph:
        loss, _ = linear(leaf(3))
        v = graph.verify(loss, save=tmp_path / "v.json")
    assert same(replay(tmp_path / "v.json"), v)


def edited(path, **changes):
    raw = json.loads(path.read_text())
    raw.update(changes)
    path.write_text(json.dumps(raw))
    return path


def test_what_a_verdict_says_is_computed_anew(tmp_path):
    path = tmp_path / "v.json"
    first = saved(path, linear, 2)
    told = replay(edited(path, conditions=[], scope="everything", exact="bitwise", goals=[], trust={}))
    assert same(told, first)


def test_a_refuted_one_is_not_proved_by_saying_so(tmp_path):
    path = tmp_path / "v.json"
    saved(path, refuted, 2)
    told = replay(edited(path, status="proved", exact="real", counterexample=None), BUDGET)
    assert told.status is Status.REFUTED


def damaged(path, **changes):
    raw = json.loads(path.read_text())
    raw["recorded"].update(changes)
    path.write_text(json.dumps(raw))
    return path


def test_effects_stay_effects(tmp_path):
    """A draw that the file calls a pure function; an operator that is not here."""
    path = tmp_path / "v.json"
    saved(path, drawn, 4)
    raw = json.loads(path.read_text())["recorded"]
    heads = [[op, attributes, kind, grad, 0 if op == "dropout" else effect]
             for op, attributes, kind, grad, effect in raw["heads"]]
    unique = [h for k, h in enumerate(heads) if h not in heads[:k]]
    places = [unique.index(heads[h]) for h in raw["nodes"]]
    v = replay(damaged(path, heads=unique, nodes=places))
    assert v.reason is Reason.MALFORMED
    assert "a value of its own" in v.message
    saved(path, linear, 2)
    raw = json.loads(path.read_text())["recorded"]
    heads = [["unheard of" if op == "sin" else op, *rest] for op, *rest in raw["heads"]]
    assert "not registered here" in replay(damaged(path, heads=heads)).message


def test_nothing_compared_is_no_proof(tmp_path):
    path = tmp_path / "v.json"
    saved(path, linear, 2)
    v = replay(path)
    assert v.status is Status.PROVED
    raw = json.loads(path.read_text())
    raw["recorded"].update(roots=[], wanted=[])
    task_like = Verification.from_json(json.dumps(raw))
    from autograd_opt.verification.certificate import task_of

    task, _ = task_of(task_like)
    told = replace(task_like, original=task.original.digest(), optimized=task.optimized.digest())
    assert replay(told).reason is Reason.NOTHING


def leaves_of(value, path=()):
    """Every number and text in nested data, by its path."""
    if isinstance(value, dict):
        return [p for k, v in value.items() for p in leaves_of(v, (*path, k))]
    if isinstance(value, list) and value:
        return [p for k, v in enumerate(value) for p in leaves_of(v, (*path, k))]
    return [path]


@pytest.mark.parametrize("name", ["linear", "refuted", "indexed", "opaque"])
def test_random_damage(name, tmp_path):
    """An error that says what to do, a reason, or the answer that the hashes stand for; never another proof."""
    fn, shape, _ = CASES[name]
    path = tmp_path / "v.json"
    first = saved(path, fn, *shape)
    raw = json.loads(path.read_text())
    raw["recorded"]["derivation"] = None         # not read here: its damages are those of test_certificate
    places = leaves_of(raw["recorded"], ("recorded",))
    rng = random.Random(name)
    kept = 0
    for _ in range(120):
        broken = json.loads(json.dumps(raw))
        *way, last = rng.choice(places)
        target = broken
        for step in way:
            target = target[step]
        target[last] = rng.choice([0, -1, 1, 5, 10**6, "x", "", "i", "(", None, [], True, 0.5, "add", "leaf", {}])
        try:
            v = replay(Verification.from_json(json.dumps(broken)), BUDGET)
        except ArgumentError:
            continue
        if v.status is not Status.UNDECIDED:
            kept += 1
            assert v.status is first.status
            assert (v.original, v.optimized) == (first.original, first.optimized)
    assert kept < 60


# ----- files that are no saved verification -----
WRONG = [None, -1, 0, 1, 10**30, "x", "", [], {}, [[]], 1.5, float("nan"), True, "gone"]


def containers(value):
    """Every list and dictionary that is not empty."""
    if value and isinstance(value, (dict, list)):
        yield value
        for part in value.values() if isinstance(value, dict) else value:
            yield from containers(part)


@pytest.mark.parametrize("name", ["rewritten", "refuted"])
def test_damage_anywhere_says_what_to_do(name, tmp_path):
    fn, shape, _ = CASES[name]
    path = tmp_path / "v.json"
    first = saved(path, fn, *shape)
    raw = json.loads(path.read_text())
    raw["recorded"]["options"]["engines"] = ["structural", "linear"]
    count = len(list(containers(raw)))
    rng = random.Random(name)
    for _ in range(600):
        broken = json.loads(json.dumps(raw))
        target = list(containers(broken))[rng.randrange(count)]
        place = rng.choice(list(target) if isinstance(target, dict) else range(len(target)))
        wrong = rng.choice(WRONG)
        if wrong == "gone":
            del target[place]
        else:
            target[place] = wrong
        path.write_text(json.dumps(broken))
        said = ""
        try:
            v = replay(path)
        except ArgumentError as error:
            said = str(error)
        else:
            assert v.reason is not Reason.FAILED, v
            assert v.status in (Status.UNDECIDED, first.status)
        assert not said or re.search(r"(verify the graph anew|pass save=path to verify) \[at .*test_replay", said), said


@pytest.mark.parametrize("field", [
    "original", "optimized", "goals", "stats", "trust", "message", "counterexample", "recorded",
])
@pytest.mark.parametrize("value", [3, "x", [[]], True])
def test_a_field_of_a_wrong_type_is_damage(field, value, tmp_path):
    path = tmp_path / "v.json"
    saved(path, linear, 2)
    if isinstance(value, str) and field in ("original", "optimized", "message"):
        value = None
    with pytest.raises(ArgumentError, match=r"damaged one .*verify the graph anew"):
        Verification.from_json(edited(path, **{field: value}))


@pytest.mark.parametrize("text", ["", "[]", "3", "null", "{", "[" * 100_000, '{"format": 2}', '"x"'])
def test_other_text_is_no_verification(text):
    with pytest.raises(ArgumentError, match="this is no saved verification"):
        Verification.from_json(text)


def test_files_that_cannot_be_read_are_named(tmp_path):
    (tmp_path / "bytes").write_bytes(b"\xff\xfe\x00")
    for read in (replay, Verification.from_json):
        with pytest.raises(ArgumentError, match="no saved verification"):
            read(tmp_path / "bytes")
        with pytest.raises(ArgumentError, match=r"there is no file .*none.json: write one with"):
            read(tmp_path / "none.json")
        with pytest.raises(ArgumentError, match="cannot be read"):
            read(tmp_path)
        with pytest.raises(ArgumentTypeError, match="NoneType"):
            read(None)


def test_options_of_a_replay_are_looked_at(tmp_path):
    v = saved(tmp_path / "v.json", linear, 2)
    with pytest.raises(ArgumentTypeError, match="choose a Budget"):
        replay(tmp_path / "v.json", 5)
    with pytest.raises(ArgumentTypeError, match=r"Verification\.original"):
        replay(tmp_path / "v.json", about=v)
