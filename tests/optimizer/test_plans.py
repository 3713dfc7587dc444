"""A structure seen before reuses its plan; whatever differs makes another structure."""

from __future__ import annotations

import gc
import threading
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

import autograd_opt as ao
from autograd_opt.graph.structure import structure_of
from autograd_opt.ops.table import OPS
from autograd_opt.optimizer import merging, plan_cache
from autograd_opt.optimizer.plan_cache import PLANS, Plans
from autograd_opt.passes import Pass, PassResult, cse, register_pass, unregister_pass
from tests.fuzz.oracle import make_inputs
from tests.programs import environment, from_seed

X = torch.tensor([[0.5, -1.0, 2.0], [1.5, 0.25, -0.75]], dtype=torch.float64)


@pytest.fixture(autouse=True)
def _empty():
    PLANS.clear()
    yield
    PLANS.clear()


def step(program: Callable[[Any], Any], value: torch.Tensor = X, **options: Any) -> tuple[Any, tuple[int, int]]:
    x = ao.tensor(value)
    with ao.AutogradGraph(**({"optimize": True} | options)) as graph:
        program(x).backward()
        return x.grad, graph.planned


def repeated(x: Any) -> Any:
    return (x.sin() * x.sin() + x.t().t().sin().sum(0)).sum()


def test_the_second_step_runs_no_pass(monkeypatch: pytest.MonkeyPatch) -> None:
    first, planned = step(repeated)
    assert planned == (0, 1)
    monkeypatch.setattr(merging, "run_passes", lambda *a: pytest.fail("a pass has run"))
    for k in range(3):
        grad, planned = step(repeated, X + k)
        assert planned == (1, 1)
        y = (X + k).requires_grad_()
        repeated(y).backward()
        assert torch.allclose(grad, y.grad)
    assert torch.equal(first, step(repeated)[0])


def test_the_report_says_so() -> None:
    step(repeated)
    x = ao.tensor(X)
    with ao.AutogradGraph(optimize=True) as graph:
        loss = repeated(x)
        loss.backward()
        assert graph.report().planned == (1, 1)
        assert "known from an equal structure: 1" in str(graph.report())


OTHERS: dict[str, Callable[[Any], Any]] = {
    "base": lambda x: (x.sum(0) * x.sum(0)).sum() + (x * 2.0).sum(),
    "another attribute": lambda x: (x.sum(1) * x.sum(1)).sum() + (x * 2.0).sum(),
    "another flag": lambda x: (x.sum(0, keepdim=True) * x.sum(0, keepdim=True)).sum() + (x * 2.0).sum(),
    "another number": lambda x: (x.sum(0) * x.sum(0)).sum() + (x * 3.0).sum(),
    "another type of number": lambda x: (x.sum(0) * x.sum(0)).sum() + (x * 2).sum(),
    "another operator": lambda x: (x.sum(0) + x.sum(0)).sum() + (x * 2.0).sum(),
    "another operand": lambda x: (x.sum(0) * x.sum(0)).sum() + (x.sum(0) * 2.0).sum(),
    "one more": lambda x: (x.sum(0) * x.sum(0)).sum() + (x * 2.0).sum() * 1.5,
    "zero": lambda x: (x.sum(0) * x.sum(0)).sum() + (x + 0.0).sum(),
    "negative zero": lambda x: (x.sum(0) * x.sum(0)).sum() + (x + -0.0).sum(),
    "pinned": lambda x: (pinned(x.sum(0)) * x.sum(0)).sum() + (x * 2.0).sum(),
}


def pinned(t: Any) -> Any:
    t.retain_grad()
    return t


def row(program: Callable[[Any], Any], value: torch.Tensor = X, roots: int = 0) -> Any:
    x = ao.tensor(value)
    with ao.AutogradGraph(optimize=True) as graph:
        out = program(x)
        return structure_of(graph.tape, [out._node.index - roots], [])


def test_every_difference_is_one() -> None:
    rows = {name: row(program) for name, program in OTHERS.items()}
    rows["another shape"] = row(OTHERS["base"], X.t().contiguous())
    rows["another dtype"] = row(OTHERS["base"], X.float())
    rows["another output"] = row(OTHERS["base"], roots=1)
    for a in rows:
        for b in rows:
            assert (rows[a] == rows[b]) == (a == b), f"{a} and {b}"
    assert row(OTHERS["base"], X + 1) == rows["base"], "values are no part of it"
    assert hash(row(OTHERS["base"])) == hash(rows["base"])


def recorded(seed: int) -> tuple[Any, Any]:
    """The structure of a random program, and its flat arrays."""
    env = environment(make_inputs("custom"))
    program = from_seed(seed)
    torch.manual_seed(0)
    with ao.AutogradGraph(optimize=True) as graph:
        for statement, code in zip(program.statements, program.code, strict=True):
            if not any(word in statement for word in ("backward(", "grad(", ".data", ".numpy()")):
                try:
                    exec(code, env)
                except Exception:
                    break
        structure, table = structure_of(graph.tape, [0], []), merging.table_of(graph.tape)
        env.clear()
    return structure, table


def same_tables(a: Any, b: Any) -> bool:
    names = ("key", "offsets", "operands", "flags", "meta", "same")
    return all(np.array_equal(getattr(a, n), getattr(b, n)) for n in names)


def test_equal_structures_have_equal_arrays() -> None:
    found = [recorded(seed) for seed in range(150)]
    described = [(s, t) for s, t in found if s is not None]
    assert len(described) > 100
    for seed in range(0, 150, 10):
        again, table = recorded(seed)
        assert again == found[seed][0]
        assert again is None or same_tables(table, found[seed][1])
    for i, (s, t) in enumerate(described):
        for other, arrays in described[:i]:
            assert s != other or same_tables(t, arrays)


def test_a_captured_node_makes_another_plan() -> None:
    def run(capture: bool) -> tuple[int, int]:
        x = ao.tensor(X)
        with ao.AutogradGraph(optimize=True) as graph:
            middle = x.sin()
            out = (middle * x.sin()).sum()
            torch.autograd.grad(out, [middle] if capture else [x])
            return graph.planned

    assert [run(False), run(True), run(True), run(False)] == [(0, 1), (0, 1), (1, 1), (1, 1)]


def test_other_pipelines_have_plans_of_their_own() -> None:
    step(repeated)
    assert step(repeated, passes=["cse"])[1] == (0, 1)
    assert step(repeated, passes=["cse"])[1] == (1, 1)
    assert step(repeated, verify=True)[1] == (0, 1)
    assert step(repeated, verify=True)[1] == (1, 1)


def test_a_users_pass_runs_each_time() -> None:
    runs = []

    def counted(table: Any, state: Any) -> PassResult:
        runs.append(1)
        return PassResult()

    register_pass("counted", counted)
    try:
        for _ in range(3):
            assert step(repeated, passes=["cse", "counted"])[1] == (0, 1)
    finally:
        unregister_pass("counted")
    assert len(runs) == 3


def test_a_pass_that_has_gone_leaves_no_plan_to_one_at_its_address() -> None:
    def merges(table: Any, state: Any) -> PassResult:
        return PassResult(leader=cse(table, leader=state.leader))

    def nothing(table: Any, state: Any) -> PassResult:
        return PassResult()

    def merged(given: Pass) -> int:
        x = ao.tensor(X)
        with ao.AutogradGraph(optimize=True, passes=[given]) as graph:
            repeated(x).backward()
            return int(graph.runs[-1].merged)

    first = Pass("mine", merges, repeatable=True)
    address = id(first)
    assert merged(first) > 0
    del first
    gc.collect()
    others = []
    for _ in range(1000):                        # one of them lies where the first one lay, if that is free
        others.append(Pass("mine", nothing, repeatable=True))
        if id(others[-1]) == address:
            break
    assert merged(others[-1]) == 0


def test_an_operator_that_was_removed_leaves_no_plan_to_the_next() -> None:
    def with_operator(pure: bool) -> tuple[int, int]:
        @ao.register_op("x", name="passing_by", pure=pure, x=lambda g: g * 2)
        def passing_by(x: Any) -> Any:
            return x * 2

        try:
            x = ao.tensor(X)
            with ao.AutogradGraph(optimize=True) as graph:
                ((passing_by(x) * passing_by(x)).sum() + (x.sin() * x.sin()).sum()).backward()
                return graph.planned[0], int(graph.runs[-1].merged)
        finally:
            del OPS["passing_by"]

    assert with_operator(True) == (0, 2)
    assert with_operator(False) == (0, 1)


class Colliding:
    """Equal by content, of one hash with all others."""

    def __init__(self, content: int) -> None:
        self.content = content

    def __hash__(self) -> int:
        return 0

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Colliding) and self.content == other.content


def test_colliding_hashes_find_the_right_plan() -> None:
    table = Plans()
    for k in range(20):
        table.keep((1,), Colliding(k), 1, k)
    assert [table.find((1,), Colliding(k)) for k in range(20)] == list(range(20))
    assert table.find((1,), Colliding(99)) is None


def test_plans_are_bounded_and_the_longest_unused_goes() -> None:
    table = Plans(most_plans=3, most_nodes=100)
    for k in range(3):
        table.keep((1,), k, 10, k)
    assert table.find((1,), 0) == 0
    table.keep((1,), 3, 10, 3)
    assert [table.find((1,), k) for k in range(4)] == [0, None, 2, 3]
    table.keep((1,), 4, 95, 4)
    assert (len(table), table.nodes) == (1, 95)
    table.keep((1,), 5, 101, 5)
    assert table.find((1,), 5) is None
    assert plan_cache.MOST_PLANS == 64


def test_threads_share_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(plan_cache, "KNOWN", 1000)         # the passes are asked before every run
    step(repeated)
    found: list[tuple[int, int]] = []

    def body() -> None:
        for _ in range(20):
            found.append(step(repeated)[1])

    threads = [threading.Thread(target=body) for _ in range(4)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert found == [(1, 1)] * 80


# ----- structures that follow one another at one place ----------------
def at_one_place(program: Callable[[Any], Any], steps: Callable[[Any], Any] = lambda graph: None,
                 options: dict[str, Any] | None = None) -> tuple[torch.Tensor, int]:
    """The gradient and the number of known plans; every program ends at this one line."""
    x = ao.tensor(X)
    with ao.AutogradGraph(**({"optimize": True} | (options or {}))) as graph:
        out = program(x)
        steps(graph)
        (out * 1.25).backward()
        return x.grad, graph.planned[0]


def eager(program: Callable[[Any], Any]) -> torch.Tensor:
    x = X.clone().requires_grad_()
    (program(x) * 1.25).backward()
    assert x.grad is not None
    return x.grad


@pytest.mark.parametrize("name", [name for name in OTHERS if name not in ("base", "another flag")])
def test_structures_that_take_turns_at_one_place(name: str) -> None:
    for turn in range(3):
        for program in (OTHERS["base"], OTHERS[name]):
            gradient, known = at_one_place(program)
            torch.testing.assert_close(gradient, eager(program))
            assert known == (turn > 0)


def test_leaders_in_place_are_left_and_others_set() -> None:
    """A request for a temporary's own gradient, a hook, a second run: the leaders are those of the passes each time."""
    def expect(graph: Any) -> None:
        result = graph.runs[-1]
        for i, node in enumerate(graph.tape.snapshot()):
            leader = int(result.leader[i])
            if not node.spent:
                assert (node.leader is None) == (leader == i)
                assert node.leader is None or node.leader.index == leader

    for _ in range(3):
        x = ao.tensor(X)
        with ao.AutogradGraph(optimize=True) as graph:
            out = repeated(x)
            graph.tape.set_leaders(np.arange(len(graph.tape), dtype=np.int32))     # what recording has found is undone
            out.backward()
            assert graph.runs[-1].merged > 0
            expect(graph)
            torch.testing.assert_close(x.grad, eager(lambda t: repeated(t) * 0.8))


def test_what_was_forgotten_is_worked_out_again() -> None:
    assert [at_one_place(repeated)[1] for _ in range(3)] == [0, 1, 1]
    PLANS.clear()
    assert [at_one_place(repeated)[1] for _ in range(3)] == [0, 1, 1]
    table = Plans(most_plans=1)
    table.keep((1,), "first", 1, "result")
    table.keep((1,), "second", 1, "result")
    assert (table.find((1,), "first"), table.find((1,), "second")) == (None, "result")


def test_other_pipelines_at_one_place() -> None:
    assert at_one_place(repeated)[1] == 0
    assert at_one_place(repeated, options={"passes": ["cse"]})[1] == 0
    assert at_one_place(repeated)[1] == 1
    assert at_one_place(repeated, options={"verify": True})[1] == 0
    for _ in range(2):
        for options in ({}, {"passes": ["cse"]}, {"verify": True}):
            gradient, known = at_one_place(repeated, options=options)
            assert known == 1
            torch.testing.assert_close(gradient, eager(repeated))


def test_twins_without_gradient_do_not_bring_the_passes() -> None:
    """Buffers that an optimizer makes alike, say: no cotangent reaches them."""
    w = torch.ones(3, requires_grad=True)
    with ao.AutogradGraph(optimize=True) as graph:
        state = torch.zeros_like(w), torch.zeros_like(w)
        for k in range(2, 5):
            (w * float(k) + state[0] + state[1]).sin().sum().backward()
        assert graph.report().merged == 1
        assert graph.planned == (0, 0)
        (w * state[0] + w * state[1]).sum().backward()         # what stands on them merges
        assert graph.planned == (0, 1)


def test_a_merge_of_long_ago_does_not_bring_the_passes() -> None:
    w = torch.ones(3, requires_grad=True)
    with ao.AutogradGraph(optimize=True) as graph:
        (w.exp() + w.exp()).sum().backward()
        assert graph.planned[1] == 1
        for k in range(100):
            (w * float(k + 2)).sin().sum().backward()
        asked = graph.planned[1]
        assert asked < 40                                      # until what was merged is swept away
        for k in range(100):
            (w * float(k + 200)).sin().sum().backward()
        assert graph.planned[1] == asked
        before = w.grad.clone()
        (w.exp() + w.exp()).sum().backward()
        assert graph.planned[1] == asked + 1
    torch.testing.assert_close(w.grad - before, 2 * torch.ones(3).exp())
