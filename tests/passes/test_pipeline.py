"""Passes in a row: order, reports, refusals, certificates, bisection."""

from collections.abc import Iterator

import numpy as np
import pytest

from autograd_opt.passes import (
    LEAF,
    Merge,
    NodeTable,
    Pass,
    PassResult,
    PassResultError,
    PassState,
    Pipeline,
    UnknownPassError,
    first_bad_merge,
    get_pass,
    pass_names,
    register_pass,
    unregister_pass,
)

# x; a, b = sin x; c, d = cos a, cos b; e = c - d; f = tan x, unused
TABLE = NodeTable.from_operands(
    [0, 1, 1, 2, 2, 3, 4],
    [(), (0,), (0,), (1,), (2,), (3, 4), (0,)],
    [LEAF, 0, 0, 0, 0, 0, 0],
)
MERGES = [Merge(2, 1, "cse"), Merge(4, 3, "cse")]


def returning(leader: list[int] | None = None, alive: list[int] | None = None) -> Pass:
    result = PassResult(
        None if leader is None else np.array(leader, np.int32),
        None if alive is None else np.array(alive, np.uint8),
    )
    return Pass("mine", lambda table, state: result)


@pytest.fixture
def registered() -> Iterator[None]:
    register_pass("nothing", lambda table, state: PassResult())
    yield
    unregister_pass("nothing")


def test_cse_then_prune() -> None:
    optimized = Pipeline().run(TABLE, [5])
    assert optimized.leader.tolist() == [0, 1, 1, 3, 3, 5, 6]
    assert optimized.alive.tolist() == [1, 1, 0, 1, 0, 1, 0]
    first, second = optimized.reports
    assert (first.name, first.merged, first.pruned) == ("cse", 2, 0)
    assert (second.name, second.merged, second.pruned) == ("prune", 0, 1)
    assert (optimized.merged, optimized.pruned, optimized.changed) == (2, 1, True)
    assert first.effort is not None
    assert first.effort.comparisons >= 2
    assert first.seconds > 0


def test_prune_first_revives_a_leader_that_was_unused() -> None:
    rows = [(), (0,), (0,)]
    table = NodeTable.from_operands([0, 1, 1], rows, [LEAF, 0, 0])
    optimized = Pipeline(["prune", "cse"], check=True).run(table, [2])
    assert optimized.leader.tolist() == [0, 1, 1]
    assert optimized.alive.tolist() == [1, 1, 0]
    assert (optimized.merged, optimized.pruned) == (1, 0)


def test_a_second_run_changes_nothing() -> None:
    optimized = Pipeline(["cse", "prune", "cse", "prune"], check=True).run(TABLE, [5])
    assert [report.changed for report in optimized.reports] == [1, 1, 0, 0]


def test_certificate() -> None:
    certificate = Pipeline().run(TABLE, [5]).certificate()
    assert list(certificate) == certificate[:] == MERGES
    assert certificate[-1] == MERGES[-1]
    assert len(certificate) == 2


def test_no_passes() -> None:
    optimized = Pipeline([]).run(TABLE, [5])
    assert optimized.alive.all()
    assert not optimized.changed
    assert len(optimized.certificate()) == 0


def test_limit() -> None:
    optimized = Pipeline(limit=1).run(TABLE, [5])
    assert list(optimized.certificate()) == MERGES[:1]
    optimized = Pipeline(["cse", "cse"], limit=1, check=True).run(TABLE, [5])
    assert optimized.merged == 1


def test_liveness_that_rests_on_merges_beyond_the_limit_is_not_taken() -> None:
    both = returning(leader=[0, 1, 1, 3, 3, 5, 6], alive=[1, 1, 0, 1, 0, 1, 0])
    assert Pipeline([both]).run(TABLE, [5]).alive.tolist() == [1, 1, 0, 1, 0, 1, 0]
    optimized = Pipeline([both], limit=1).run(TABLE, [5])
    assert optimized.leader.tolist() == [0, 1, 1, 3, 4, 5, 6]
    assert optimized.alive.tolist() == [1, 1, 0, 1, 1, 1, 1]


def test_unknown_pass() -> None:
    with pytest.raises(UnknownPassError, match="'prun', did you mean 'prune'"):
        Pipeline(["prun"])
    with pytest.raises(ValueError, match=r"no pass named 'x'\. Registered: .*cse"):
        get_pass("x")


@pytest.mark.usefixtures("registered")
def test_register() -> None:
    assert pass_names()[:2] == ["cse", "prune"]
    assert "nothing" in pass_names()
    assert not Pipeline(["nothing"]).run(TABLE, [5]).changed
    with pytest.raises(ValueError, match="registered already"):
        register_pass("nothing", lambda table, state: PassResult())


@pytest.mark.parametrize(
    ("step", "message"),
    [
        (returning(leader=[0, 1, 1]), r"leader is int32\[3\]"),
        (returning(leader=[0, 1, 2, 3, 4, 5, 7]), "node 6: leader 7"),
        (returning(leader=[0, 0, 1, 3, 4, 5, 6]), "node 2: its leader has another"),
        (returning(alive=[1, 0, 1, 1, 1, 1, 1]), "node 3: an operand"),
        (returning(alive=[1]), r"alive is uint8\[1\]"),
    ],
)
def test_a_broken_result_is_refused(step: Pass, message: str) -> None:
    with pytest.raises(PassResultError, match=message) as caught:
        Pipeline([step]).run(TABLE, [5])
    assert caught.value.pass_name == "mine"
    with pytest.warns(UserWarning, match="left unoptimized: pass 'mine'"):
        optimized = Pipeline(["cse", step], on_error="fall back").run(TABLE, [5])
    assert optimized.failure is not None
    assert optimized.leader.tolist() == list(range(7))
    assert optimized.alive.all()
    assert not optimized.changed


def test_a_pass_cannot_undo_merges() -> None:
    with pytest.raises(PassResultError, match="node 2: leader 2 undoes a merge"):
        Pipeline(["cse", returning(leader=list(range(7)))]).run(TABLE, [5])


def test_a_pass_cannot_write_its_input() -> None:
    def write(table: NodeTable, state: PassState) -> PassResult:
        state.leader[2] = 1
        return PassResult()

    with pytest.raises(ValueError, match="read-only"):
        Pipeline([Pass("mine", write)]).run(TABLE, [5])
    with pytest.raises(ValueError, match="read-only"):
        TABLE.key[0] = 1


def test_a_pass_that_claims_to_be_exact_is_held_to_it() -> None:
    sloppy = returning(leader=[0, 1, 1, 1, 4, 5, 6])
    Pipeline([sloppy]).run(TABLE, [5])
    with pytest.raises(PassResultError, match="node 3: its leader computes"):
        Pipeline([Pass("mine", sloppy.run, exact=True)]).run(TABLE, [5])


def test_built_in_passes_are_checked_on_request(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv("AUTOGRAD_OPT_CHECK", raising=False)
    wrong = Pass("mine", returning(alive=[0] * 7).run, trusted=True)
    Pipeline([wrong]).run(TABLE, [5])
    with pytest.raises(PassResultError):
        Pipeline([wrong], check=True).run(TABLE, [5])
    monkeypatch.setenv("AUTOGRAD_OPT_CHECK", "1")
    with pytest.raises(PassResultError):
        Pipeline([wrong]).run(TABLE, [5])
    Pipeline([wrong], check=False).run(TABLE, [5])


def test_on_error_is_one_of_two() -> None:
    with pytest.raises(ValueError, match="'raise' or 'fall back'"):
        Pipeline(on_error="ignore")  # type: ignore[arg-type]


@pytest.mark.parametrize("bad", range(50))
def test_bisection_finds_the_bad_merge(bad: int) -> None:
    table = NodeTable.from_operands([0] + [1] * 51, [()] + [(0,)] * 51)
    certificate = Pipeline(["cse"]).run(table, [51]).certificate()
    asked: list[int] = []

    def is_good(limit: int) -> bool:
        asked.append(limit)
        leader = Pipeline(["cse"], limit=limit).run(table, [51]).leader
        return bool(leader[bad + 2] == bad + 2)

    assert first_bad_merge(is_good, certificate) == Merge(bad + 2, 1, "cse")
    assert len(asked) <= 8


def test_bisection_without_a_bad_merge() -> None:
    certificate = Pipeline(["cse"]).run(TABLE, [5]).certificate()
    assert first_bad_merge(lambda limit: True, certificate) is None
    with pytest.raises(ValueError, match="without any merge"):
        first_bad_merge(lambda limit: False, certificate)
