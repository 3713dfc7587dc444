"""Proofs are kept by everything that they have read: whatever differs is proved anew, and no wrong one comes back."""

from __future__ import annotations

import itertools
import random
import threading
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import mutants
import pytest
import torch
import torch.nn.functional as F
from test_checker import random_program

import autograd_opt as ao
from autograd_opt.errors import VerificationError
from autograd_opt.graph.node import PINNED, Vjp
from autograd_opt.ops.table import OPS
from autograd_opt.optimizer import merging, plan_cache
from autograd_opt.optimizer.plan_cache import PLANS, Plans
from autograd_opt.verification.cache import memory_cache
from autograd_opt.verification.counterexample import prime_field
from autograd_opt.verification.program.leaders import followed
from autograd_opt.verification.strategies.task import Task
from autograd_opt.verify import Budget, Reason, Status, Verification, replay, verify
from tests.fuzz.oracle import make_inputs
from tests.programs import environment, from_seed


@pytest.fixture(autouse=True)
def _plans():
    PLANS.clear()
    yield
    PLANS.clear()


def leaf(*shape: int, dtype: torch.dtype = torch.float64) -> Any:
    return ao.tensor(torch.arange(1, 1 + torch.Size(shape).numel()).reshape(shape).to(dtype) / 4)


# ----- a loop proves its step once -----
def step(x: Any, k: float = 2.0, verify: bool = True) -> list[Verification]:
    with ao.AutogradGraph(optimize=True, verify=verify) as graph:
        ((x * k).sin() + (x * k).sin() * x).sum().backward()
        return list(graph.verdicts)


def annealed(x: Any, k: float, twice: bool = False) -> list[Verification]:
    with ao.AutogradGraph(optimize=True, verify=True) as graph:
        loss = (((x * 0.3).sin() + (x * 0.3).sin() * x) * k).sum()
        if twice:
            loss = loss + ((x + k).exp() * (x + k).exp()).sum()
        loss.backward()
        (found,) = graph.verdicts
        again = verify(graph.tape.snapshot(), [loss.grad_fn], anew=True)
        assert (again.status, str(again.original), str(again.optimized)) == (
            found.status, str(found.original), str(found.optimized))
        return [found]


@pytest.mark.parametrize("merges", [True, False])
def test_a_coefficient_that_changes_at_each_step(merges):
    def one(k: float) -> Any:
        if merges:
            return annealed(x, k)[0].stats.get("known")
        with ao.AutogradGraph(optimize=True, verify=True) as graph:
            (x.cos() * k).sum().backward()
        return graph.verdicts[0].stats.get("known")

    x = leaf(3)
    assert [one(k) for k in (0.5, 0.625, 0.75, 0.875)] == [None, None, True, True]
    assert one(1.0) is None                  # which changes nothing
    assert one(0.0) is None
    assert one(float("inf")) is None
    if merges:
        assert one(0.3) is None              # the number of `x * 0.3`, which is merged


def test_a_number_that_merged_nodes_read_is_proved_anew():
    x = leaf(3)
    assert [annealed(x, k, twice=True)[0].stats.get("known") for k in (0.5, 0.625, 0.75, 0.625)] == [
        None, None, None, True]


def test_the_second_step_is_known(proofs):
    x = leaf(3)
    (first,) = step(x)
    (second,) = step(x)
    assert (first.status, second.status) == (Status.PROVED, Status.PROVED)
    assert "known" not in first.stats
    assert second.stats["known"] is True
    assert len(proofs) == 1
    (third,) = step(ao.tensor(leaf(3).detach() * 7))  # values are no part of it
    assert third.stats["known"]
    assert len(proofs) == 1
    assert not step(x, 3.0)[0].stats.get("known")
    assert len(proofs) == 2


def test_what_is_known_is_the_verdict_that_would_be_found_anew():
    for seed in range(12):
        graph, loss = random_program(random.Random(seed), n=12)
        try:
            nodes = graph.tape.snapshot()
            first, again = (verify(nodes, [loss.grad_fn]) for _ in range(2))
            anew = verify(nodes, [loss.grad_fn], anew=True)
            assert again.stats.get("known") == (True if first.status is Status.PROVED else None)
            assert "known" not in anew.stats
            for v in (again, anew):
                assert replace(v, stats={}) == replace(first, stats={})
            task = Task(nodes, [loss.grad_fn], None, None, None)
            assert (again.original, again.optimized) == (task.original.digest(), task.optimized.digest())
        finally:
            graph.__exit__(None, None, None)


def test_saving_and_replaying_prove_anew(tmp_path, proofs):
    with ao.AutogradGraph(optimize=True) as graph:
        x = leaf(3)
        loss = (x.sin() * x.sin()).sum()
        for k in range(2):
            v = graph.verify(loss, save=tmp_path / "proof.json")
            assert "known" not in v.stats
            assert len(proofs) == k + 1
    assert replay(tmp_path / "proof.json").status is Status.PROVED
    assert len(proofs) == 3


def test_the_gradients_of_known_steps_are_right():
    x, y = leaf(3), leaf(3)
    for k in range(4):
        x.grad = y.grad = None
        step(x, 1.5)
        step(y, 1.5, verify=False)
        assert torch.equal(x.grad, y.grad), k


# ----- pairs that differ in one thing -----
def asked(fn: Callable[..., Any], *leaves: Any, prepare: Callable[..., Any] | None = None, **options: Any) -> Any:
    """The key of the question, and the two hashes that a proof of it is bound to."""
    with ao.AutogradGraph(optimize=True) as graph:
        out = fn(*leaves)
        nodes = graph.tape.snapshot()
        wanted = options.pop("leaves", None)
        leader = followed(nodes, {id(n): i for i, n in enumerate(nodes)})
        if prepare is not None:
            leader = prepare(nodes, leader)
        seen = memory_cache.seen(nodes, [out._node], wanted)
        given = (tuple(options.get("engines", memory_cache.USUAL[0])), *memory_cache.USUAL[1:])
        return memory_cache.key_of(seen, leader, options.get("alive"), given)


def hook(t: Any) -> Any:
    t.register_hook(lambda g: g)
    return t


def pinned(t: Any) -> Any:
    t._node.mark(PINNED)
    return t


def unhooked(t: Any) -> Any:
    t.register_hook(lambda g: g).remove()
    return t


class Opaque(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, power):
        ctx.save_for_backward(x)
        return x**power

    @staticmethod
    def backward(ctx, g):
        return g * ctx.saved_tensors[0], None


A, B = leaf(2, 3), leaf(2, 3)
C = torch.tensor([1.0, 2.0, 4.0], dtype=torch.float64)
NAN = [torch.tensor([bits], dtype=torch.int64).view(torch.float64).item() for bits in
       (0x7FF8000000000000, 0x7FF8000000000001)]
FAMILIES: dict[str, list[Callable[[Any, Any], Any]]] = {
    "numbers": [lambda a, b, k=k: (a * k + b).sum() for k in
                (1, 1.0, 2, 2.0, 0.0, -0.0, 1e-300, float("inf"), *NAN, 1j, 2.0 + 1e-15)],
    "booleans": [lambda a, b, k=k: a.sum(1, keepdim=k).sum() for k in (True, False)],
    "axes": [lambda a, b, d=d: (a.sum(d) * 2).sum() for d in (0, 1, -1, (0,), (1,), (0, 1))],
    "order": [lambda a, b, f=f: (a * b + f(a, b)).sum() for f in
              (lambda a, b: a - b, lambda a, b: b - a, lambda a, b: a - a, lambda a, b: a + b, lambda a, b: b + a)],
    "order of operators": [lambda a, b: a.sin().cos().sin().sum(), lambda a, b: a.sin().cos().cos().sum(),
                           lambda a, b: a.sin().sin().cos().sum()],
    "numbers among three operands": [
        *(lambda a, b, k=k: torch.where(a > 1, a, k).sum() for k in (2.0, 3.0, 2, 0.0, -0.0)),
        *(lambda a, b, k=k: torch.lerp(a, b, k).sum() for k in (0.25, 0.5, 1))],
    "operators": [lambda a, b, f=f: f(a).sum() for f in
                  (torch.sin, torch.cos, torch.tan, torch.exp, torch.relu, torch.abs, lambda t: t * 1)],
    "dtypes": [lambda a, b, d=d: a.to(d).sum().double() for d in (torch.float32, torch.float16, torch.bfloat16)],
    "slices": [lambda a, b, s=s: (a[s] * 2).sum() for s in
               (slice(0, 1), slice(1, 2), slice(0, 2, 2), slice(None), (slice(None), 1), (Ellipsis, 1), (0, 1))],
    "absent operands": [lambda a, b, k=k: torch.clamp(a, *k).sum() for k in
                        ((0.5, 1.0), (None, 1.0), (0.5, None), (0.5, 1), (-0.5, 1.0))],
    "text": [lambda a, b, w=w: (F.gelu(a, approximate=w)).sum() for w in ("none", "tanh")],
    "watched": [lambda a, b: (a * 2).sum(), lambda a, b: hook(a * 2).sum(),
                lambda a, b: pinned(a * 2).sum()],
    "no gradient": [lambda a, b: (a * b).sum(), lambda a, b: (a.detach() * b).sum(),
                    lambda a, b: (a * b.detach()).sum()],
    "parts": [lambda a, b, k=k: a.split(k, 1)[0].sum() for k in (1, 2, [1, 2], [2, 1])],
    "which part": [lambda a, b, k=k: (a.unbind(1)[k] * 2).sum() for k in (0, 1, 2)],
    "shapes of constants": [lambda a, b, c=c: (a * c).sum() for c in (C, C[:1], C[None], C.float(), C.expand(2, 3))],
    "draws": [lambda a, b, p=p: F.dropout(a, p).sum() for p in (0.5, 0.25)],
    "writes": [lambda a, b: (c := a * 2, c.add_(1))[1].sum(), lambda a, b: (c := a * 2, c.mul_(1))[1].sum()],
}


@pytest.mark.parametrize("family", FAMILIES)
def test_programs_that_differ_in_one_thing_are_two(family):
    keys = [asked(fn, A, B) for fn in FAMILIES[family]]
    assert all(k is not None for k in keys)
    for (i, one), (j, two) in itertools.product(enumerate(keys), enumerate(keys)):
        assert (one == two) == (i == j), f"{i} and {j}"
    for fn, key in zip(FAMILIES[family], keys, strict=True):
        assert asked(fn, A, B) == key  # and the same program, recorded again, is one


def test_leaves_that_differ_in_one_thing_are_two():
    fn = FAMILIES["numbers"][0]
    leaves = {
        "same": leaf(2, 3), "shape": leaf(3, 3), "rank": leaf(1, 2, 3), "broadcast": leaf(1, 3),
        "dtype": leaf(2, 3, dtype=torch.float32),
        "constant": leaf(2, 3).detach(), "complex": ao.tensor(torch.ones(2, 3, dtype=torch.complex128)),
    }
    keys = {name: asked(fn, x, leaf(3, 3) if name == "shape" else B) for name, x in leaves.items()}
    for (i, one), (j, two) in itertools.product(keys.items(), keys.items()):
        assert (one == two) == (i == j), f"{i} and {j}"
    assert asked(fn, ao.tensor(A.detach() * 3), B) == keys["same"]


def merged(i: int, to: int) -> Callable[..., Any]:
    def prepare(nodes: Any, leader: list[int]) -> list[int]:
        leader[i] = to
        return leader

    return prepare


def test_what_is_asked_is_part_of_the_question():
    def fn(a: Any, b: Any) -> Any:
        return ((a * 2.0) + (b * 2.0) + (a * 3.0)).sum()

    variants = {
        "base": asked(fn, A, B),
        "a merge": asked(fn, A, B, prepare=merged(3, 1)),
        "another merge": asked(fn, A, B, prepare=merged(5, 1)),
        "no hook of a removed one": asked(lambda a, b: (unhooked(a * 2.0) + (b * 2.0) + (a * 3.0)).sum(), A, B),
        "one leaf": asked(fn, A, B, leaves=[0]),
        "the other leaf": asked(fn, A, B, leaves=[2]),
        "both": asked(fn, A, B, leaves=[0, 2]),
        "both, in another order": asked(fn, A, B, leaves=[2, 0]),
        "alive": asked(fn, A, B, alive=[1] * 8),
        "dropped": asked(fn, A, B, alive=[1] * 7 + [0]),
        "engines": asked(fn, A, B, engines=("structural",)),
    }
    for (i, one), (j, two) in itertools.product(variants.items(), variants.items()):
        assert (one == two) == (i == j), f"{i} and {j}"


def test_how_it_is_asked_is_part_of_the_question(proofs):
    with ao.AutogradGraph(optimize=True) as graph:
        x = leaf(3)
        loss = (x.sin() * 2 + x.sin() * x).sum()
        asks = [{}, {"seed": 1}, {"assume": ("x",)}, {"budget": Budget(seconds=29.0)},
                {"budget": Budget(expansions=10**6)}, {"engines": ("structural", "linear")}, {"exact": "bitwise"}]
        found = [graph.verify(loss, **options) for options in asks]
        assert len(proofs) == len(asks)
        assert not any("known" in v.stats for v in found)
        assert {v.status for v in found[:-1]} == {Status.PROVED}
        assert found[-1].status is not Status.PROVED
        assert [graph.verify(loss, **options).stats.get("known") for options in asks] == [True] * 6 + [None]


def test_the_default_dtype_is_part_of_the_question():
    before = asked(FAMILIES["numbers"][0], A, B)
    torch.set_default_dtype(torch.float64)
    assert asked(FAMILIES["numbers"][0], A, B) != before


# ----- what lies outside the graph -----
def test_another_rule_is_proved_anew(proofs):
    x = leaf(3)
    step(x)
    step(x)
    assert len(proofs) == 1
    sin = OPS["sin"]
    rule = sin.vjps[0]
    sin.vjps[0] = Vjp(lambda g, x: g * x.cos() * 1.0, (16,), (), rule.needs)
    try:
        (v,) = step(x)
        assert "known" not in v.stats
        assert len(proofs) == 2
    finally:
        sin.vjps[0] = rule
    assert step(x)[0].stats["known"]


@pytest.mark.parametrize("change", ["meaning", "default"])
def test_another_meaning_or_default_is_another_question(monkeypatch, change):
    before = asked(FAMILIES["text"][0], A, B)
    if change == "meaning":
        monkeypatch.setattr(OPS["gelu"], "meaning", lambda x, approximate="none": x)
    else:
        monkeypatch.setitem(OPS["gelu"].attributes, "approximate", "tanh")
    assert asked(FAMILIES["text"][0], A, B) != before


@ao.register_op("x, *, k=1", pure=True, elementwise=True, name="test_known_scaled", x=lambda g, *, k: g * float(k))
def scaled(x: Any, *, k: int = 1) -> Any:
    return x * float(k)


def test_what_a_row_cannot_hold_is_proved_each_time(proofs):
    assert asked(lambda a, b: scaled(a, k=2**62).sum(), A, B) is not None
    assert asked(lambda a, b: scaled(a, k=2**63).sum(), A, B) is None
    with ao.AutogradGraph(optimize=True) as graph:
        loss = scaled(leaf(3), k=2**70).sin().sum()
        for k in range(2):
            assert graph.verify(loss).status is Status.PROVED
            assert len(proofs) == k + 1


def test_attributes_that_no_proof_reads_are_no_part_of_it():
    key = asked(lambda a, b: Opaque.apply(a, 2).sum(), A, B)
    assert key is not None


def test_nodes_that_are_no_list_in_record_order_have_no_key():
    with ao.AutogradGraph(optimize=True) as graph:
        loss = (A * B).sum()
        nodes = graph.tape.snapshot()
        root = [loss._node]
        assert memory_cache.seen(nodes, root, None) is not None
        assert memory_cache.seen(nodes[1:], root, None) is None
        assert memory_cache.seen([*nodes, nodes[0]], root, None) is None
        assert memory_cache.seen(nodes[::-1], root, None) is None
        assert memory_cache.seen([], root, None) is None
        assert memory_cache.seen(nodes, [object()], None) is None
        assert memory_cache.seen(nodes, [99], None) is None
        assert memory_cache.seen(nodes, [True], None) is None
        assert memory_cache.seen(nodes, root, [-1]) is None
        with ao.AutogradGraph(optimize=True) as other:
            alike = (A * B).sum()
            mixed = [nodes[0], *other.tape.snapshot()[1:]]  # its operands stand at these places of another graph
            assert memory_cache.seen(mixed, [alike._node], None) is None
            assert memory_cache.seen(other.tape.snapshot(), root, None) is None
        seen = memory_cache.seen(nodes, root, None)
        assert memory_cache.key_of(seen, ["x"] * len(nodes), None, memory_cache.USUAL) is None
        assert memory_cache.key_of(seen, None, None, ([],)) is None

def test_leaders_read_from_the_nodes_are_part_of_the_question(proofs):
    with ao.AutogradGraph(optimize=True) as graph:
        x = leaf(3)
        a, b = x.sin(), x.sin()
        loss = (a * 2 + b * x).sum()
        nodes = graph.tape.snapshot()
        first = verify(nodes, [loss._node])
        graph.tape.set_leaders(torch.arange(len(nodes), dtype=torch.int32).numpy())
        second = verify(nodes, [loss._node])
    assert first.stats["merged"] > second.stats["merged"]
    assert len(proofs) == 2


# ----- a harmful edit after the proof of its healthy twin -----
@pytest.mark.parametrize("m", [m for m in mutants.MUTANTS if m.number <= 17 or m.number >= 38],
                         ids=lambda m: f"{m.number}")
def test_no_wrong_merge_is_proved_after_its_healthy_twin(m):
    task = m.make()
    budget = Budget(seconds=5, sympy_seconds=2)
    try:
        for k in range(2):
            healthy = verify(task.nodes, task.roots, task.leaves, list(range(len(task.nodes))), budget=budget)
            assert healthy.status is Status.PROVED
            assert healthy.stats.get("known") == (True if k else None)
            if task.leader != list(range(len(task.nodes))):  # 39 is an edit of the sweep
                v = verify(task.nodes, task.roots, task.leaves, list(task.leader), budget=budget)
                assert v.status is not Status.PROVED, m.text
                assert "known" not in v.stats or v.reason is Reason.CONDITION
    finally:
        mutants.close()


def test_no_harmful_merge_is_proved_after_the_honest_ones():
    """Random merges; the honest optimization of each graph is known already."""
    rng = random.Random(5)
    budget = Budget(seconds=1, sympy_seconds=0.3, sympy_operations=60)
    engines = ("structural", "linear", "rewrite", "sympy")
    harmful = 0
    for _ in range(12):
        graph, loss = random_program(rng, n=rng.randint(6, 14))
        try:
            nodes = graph.tape.snapshot()
            honest = followed(nodes, {id(n): i for i, n in enumerate(nodes)})
            options = {"engines": engines, "budget": budget}
            for k in range(2):
                v = verify(nodes, [loss.grad_fn], None, list(honest), **options)
                assert v.status is Status.PROVED
                assert v.stats.get("known") == (True if k else None)
            inner = [i for i, n in enumerate(nodes) if not n.is_leaf and n.op.name != "output"]
            pairs = [(i, j) for i in inner for j in inner if i < j and honest[j] == j
                     and (nodes[i].shape, nodes[i].dtype) == (nodes[j].shape, nodes[j].dtype)]
            for i, j in rng.sample(pairs, min(4, len(pairs))):
                leader = list(honest)
                leader[j] = leader[i]
                task = Task(nodes, [loss.grad_fn], None, list(leader), None)
                if prime_field.compare(task, task.compared).equal is False:
                    harmful += 1
                    for _ in range(2):
                        v = verify(nodes, [loss.grad_fn], None, list(leader), **options)
                        assert v.status is not Status.PROVED
        finally:
            graph.__exit__(None, None, None)
    assert harmful > 20


def test_a_plan_that_was_falsified_after_its_proof_is_not_used():
    """The passes' result is kept as well; what is proved is what is used, whatever became of it since."""
    x = leaf(3)

    def gradient() -> Any:
        x.grad = None
        with ao.AutogradGraph(optimize=True, verify=True) as graph:
            (x.sin() + x.cos() * x.sin()).sum().backward()
            return graph.verdicts[-1]

    assert gradient().status is Status.PROVED
    right = x.grad
    (place, plan), = PLANS._known.items()
    nodes, result = plan
    leader = result.leader.copy()
    leader[2] = 1  # cos into sin
    PLANS._known[place] = nodes, replace(result, leader=leader)
    with pytest.raises(VerificationError, match="refuted"):
        gradient()
    PLANS._known[place] = plan
    assert gradient().stats["known"]
    assert torch.equal(x.grad, right)


def test_a_users_pass_that_changes_its_mind_is_refuted(proofs):
    from autograd_opt.passes import PassResult, register_pass, unregister_pass

    wrong = []

    def moody(table: Any, state: Any) -> Any:
        leader = state.leader.copy()
        if wrong:
            leader[2] = 1
        return PassResult(leader=leader)

    def gradient() -> Any:
        with ao.AutogradGraph(passes=["moody"], verify=True) as graph:
            (x.sin() + x.cos()).sum().backward()
            return graph.verdicts[-1]

    x = leaf(3)
    register_pass("moody", moody)
    try:
        assert gradient().status is Status.PROVED
        assert gradient().stats["known"]
        assert len(proofs) == 1
        wrong.append(1)
        with pytest.raises(VerificationError):
            gradient()
    finally:
        unregister_pass("moody")


# ----- what is not kept -----
def test_a_refutation_is_found_each_time(proofs):
    x = leaf(3)
    with ao.AutogradGraph(optimize=True) as graph:
        loss = (x.sin() * x.cos()).sum()
        nodes = graph.tape.snapshot()
        leader = list(range(len(nodes)))
        leader[2] = 1
        for k in range(2):
            assert verify(nodes, [loss._node], None, leader).status is Status.REFUTED
            assert len(proofs) == k + 1
    assert len(memory_cache.PROOFS) == 0


def test_what_comes_after_the_search_for_a_counterexample_is_not_kept(proofs):
    """The search reads integers of the graph; sympy is asked after it."""
    with ao.AutogradGraph(optimize=True) as graph:
        x = leaf(2)
        a, b = (x + 1.0) * (x + 1.0), x * x + x * 2.0 + 1.0
        loss = (a * 2 + b * x).sum()
        nodes = graph.tape.snapshot()
        leader = followed(nodes, {id(n): i for i, n in enumerate(nodes)})
        leader[nodes.index(b._node)] = nodes.index(a._node)
        for k in range(2):
            v = verify(nodes, [loss._node], None, list(leader))
            assert v.status is Status.PROVED
            assert v.stats["searched"]
            assert len(proofs) == k + 1


# ----- the table -----
def test_the_table_is_bounded_and_forgets(monkeypatch, proofs):
    monkeypatch.setattr(memory_cache, "PROOFS", Plans(most_plans=2))
    x = leaf(3)
    for k in (1.5, 2.5, 3.5, 2.5, 1.5):
        step(x, k)
    assert len(memory_cache.PROOFS) == 2
    assert len(proofs) == 4
    memory_cache.forget()
    assert len(memory_cache.PROOFS) == 0


def test_threads_share_the_table(proofs):
    failures: list[BaseException] = []

    def loop(seed: int) -> None:
        try:
            rng = random.Random(seed)
            x = leaf(3)
            for _ in range(30):
                x.grad = None
                k = rng.choice((1.5, 2.5, 3.5))
                (v,) = step(x, k)
                assert v.status is Status.PROVED
                y = torch.tensor(x.tolist(), dtype=x.dtype, requires_grad=True)
                ((y * k).sin() + (y * k).sin() * y).sum().backward()
                assert torch.allclose(x.grad, y.grad)
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=loop, args=(s,)) for s in range(8)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert not failures
    assert len(memory_cache.PROOFS) == 3


def keys_and_hashes(count: int, length: int) -> list[tuple[Any, tuple[str, str]]]:
    """Keys of random programs with every kind of call, and what a proof of them is bound to."""
    found = []
    for seed in range(count):
        env = environment(make_inputs("custom"))
        program = from_seed(seed // 2, length)
        torch.manual_seed(0)
        with ao.AutogradGraph(optimize=True) as graph:
            statements = list(zip(program.statements, program.code, strict=True))
            if seed % 2:
                statements = statements[:-1]
            for statement, code in statements:
                if not any(word in statement for word in ("backward(", "grad(", ".data", ".numpy()")):
                    try:
                        exec(code, env)
                    except Exception:
                        break
            nodes = graph.tape.snapshot()
            root = [max(len(nodes) - 1, 0)]
            key = memory_cache.key_of(memory_cache.seen(nodes, root, None, True), None, None, memory_cache.USUAL)
            if key is not None:
                try:
                    task = Task(nodes, root, None, None, None)
                    found.append((key, (task.original.digest(), task.optimized.digest())))
                except Exception:
                    pass
            env.clear()
    return found


def test_equal_keys_have_equal_hashes():
    found = keys_and_hashes(160, 12) + keys_and_hashes(40, 12)
    assert len(found) > 120
    by_key: dict[Any, set[Any]] = {}
    for key, hashes in found:
        by_key.setdefault(key, set()).add(hashes)
    assert any(sum(k == key for k, _ in found) > 1 for key in by_key)
    assert all(len(hashes) == 1 for hashes in by_key.values())
    assert len({h for hashes in by_key.values() for h in hashes}) > 60


def test_rows_of_the_passes_and_of_proofs_are_never_one():
    with ao.AutogradGraph(optimize=True) as graph:
        loss = (A * B).sum()
        rows = [plan_cache.structure_of(graph.tape, [loss._node.index], []),
                memory_cache.seen(graph.tape.snapshot(), [loss._node], None)[0]]
        assert rows[0] != rows[1]
        assert merging.run_passes(graph.tape, [loss._node.index], graph.pipeline)[1] is not None
