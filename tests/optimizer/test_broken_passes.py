"""A pass that goes wrong is refused by name, and the graph is as it was; options say what they take."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import pytest
import torch

import autograd_opt as ao
from autograd_opt.errors import ArgumentError
from autograd_opt.passes import (
    LEAF,
    Pass,
    PassResult,
    PassResultError,
    Pipeline,
    UnknownPassError,
    get_pass,
    pass_names,
    register_pass,
    unregister_pass,
)

Run = Callable[[Any, Any], Any]
START = torch.tensor([0.5, 1.0, 2.0])


def program(x: Any, y: Any) -> Any:
    """Nodes 0 to 8: x, sin, cos, sin, mul, add, y, mul, sum."""
    a, b, c = x.sin(), x.cos(), x.sin()
    return ((a * c + b) * y).sum()


@contextmanager
def registered(run: Run, **options: Any) -> Iterator[None]:
    register_pass("mine", run, **options)
    try:
        yield
    finally:
        unregister_pass("mine")


def leaders(**changed: int) -> Run:
    """A pass that gives `n3=2` node 3 the leader 2, and so on."""
    def run(table: Any, state: Any) -> PassResult:
        leader = state.leader.copy()
        for node, target in changed.items():
            leader[int(node[1:])] = target
        return PassResult(leader=leader)
    return run


def merges_leaves(table: Any, state: Any) -> PassResult:
    leader = state.leader.copy()
    first, *others = np.flatnonzero(table.flags & LEAF)
    leader[others] = first
    return PassResult(leader=leader)


def kills_an_operand(table: Any, state: Any) -> PassResult:
    alive = state.alive.copy()
    alive[table.operands_of(int(state.outputs[0]))[0]] = 0
    return PassResult(alive=alive)


def raises(table: Any, state: Any) -> PassResult:
    raise KeyError("a mistake of mine")


REFUSED: dict[str, tuple[Run, int | None, str]] = {
    "nothing": (lambda t, s: None, None, "returned a NoneType"),
    "an array": (lambda t, s: s.leader.copy(), None, "returned a ndarray"),
    "a tuple": (lambda t, s: (s.leader, s.alive), None, "returned a tuple"),
    "effort of another kind": (lambda t, s: PassResult(effort="much"), None, "effort is a str"),  # type: ignore[arg-type]
    "too short": (lambda t, s: PassResult(leader=s.leader[:-1]), None, r"leader is int32\[8\]"),
    "too long": (lambda t, s: PassResult(leader=np.append(s.leader, s.leader[:1])), None, r"leader is int32\[10\]"),
    "another type": (lambda t, s: PassResult(leader=s.leader.astype(np.int64)), None, "leader is int64"),
    "another byte order": (lambda t, s: PassResult(leader=s.leader.astype(">i4")), None, "leader is >i4"),
    "floats": (lambda t, s: PassResult(leader=s.leader.astype(float)), None, "leader is float64"),
    "a list": (lambda t, s: PassResult(leader=s.leader.tolist()), None, "leader is a list"),
    "a tensor": (lambda t, s: PassResult(leader=torch.from_numpy(s.leader.copy())), None,  # type: ignore[arg-type]
                 "leader is torch.int32"),
    "a column": (lambda t, s: PassResult(leader=s.leader.reshape(-1, 1)), None, r"leader is int32\[9, 1\]"),
    "a list of liveness": (lambda t, s: PassResult(alive=s.alive.tolist()), None, "alive is a list"),
    "liveness as bool": (lambda t, s: PassResult(alive=s.alive.astype(bool)), None, "alive is bool"),
    "liveness of two": (lambda t, s: PassResult(alive=s.alive * np.uint8(2)), 0, "alive is 2"),
    "a cycle": (leaders(n3=4, n4=3), 3, "leader comes after it"),
    "a later node": (leaders(n2=8), 2, "leader comes after it"),
    "before the first": (leaders(n3=-1), 3, "leader -1 undoes a merge or is no node"),
    "after the last": (leaders(n3=2**31 - 1), 3, "undoes a merge or is no node"),
    "a chain": (leaders(n3=2, n4=3), 4, "its leader has another leader"),
    "leaves": (merges_leaves, 6, "a leaf, effect, pinned or NOMERGE node was merged"),
    "another shape": (leaders(n8=7), 8, "its leader has another meta"),
    "an output": (lambda t, s: PassResult(alive=np.zeros(len(t), np.uint8)), 8, "an output is not alive"),
    "an operand": (kills_an_operand, 8, "an operand of it is not alive"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_a_broken_result_is_refused_and_changes_nothing(name: str) -> None:
    run, node, fact = REFUSED[name]
    x, y = ao.tensor(START), ao.tensor(START + 1)
    with registered(run), ao.AutogradGraph(passes=["cse", "mine"] if name == "liveness of two" else ["mine"]) as graph:
        loss = program(x, y)
        before = [n.leader for n in graph.tape.snapshot()]
        with pytest.raises(PassResultError, match="pass 'mine'") as caught:
            loss.backward()
        assert fact.replace("\\", "") in str(caught.value)
        assert caught.value.node == node
        assert [n.leader for n in graph.tape.snapshot()] == before
        assert x.grad is y.grad is None
        graph.pipeline = Pipeline()
        loss.backward()
    as_torch(x, y)


def as_torch(x: Any, y: Any) -> None:
    """The gradients are torch's."""
    u, v = START.clone().requires_grad_(), (START + 1).requires_grad_()
    program(u, v).backward()
    torch.testing.assert_close(x.grad, u.grad)
    torch.testing.assert_close(y.grad, v.grad)


def test_what_a_pass_raises_names_the_pass() -> None:
    x, y = ao.tensor(START), ao.tensor(START + 1)
    with registered(raises), ao.AutogradGraph(passes=["cse", "mine"]) as graph:
        loss = program(x, y)
        with pytest.raises(KeyError, match="a mistake of mine") as caught:
            loss.backward()
        assert any("'mine'" in note for note in caught.value.__notes__)
        graph.pipeline = Pipeline()
        loss.backward()
    as_torch(x, y)


def test_a_value_that_is_another_is_refused_of_an_exact_pass_and_refuted_of_any() -> None:
    wrong = leaders(n3=2)                        # the sine of x for its cosine
    for options in ({"exact": True}, {}):
        x, y = ao.tensor(START), ao.tensor(START + 1)
        expected = PassResultError if options else ao.VerificationError
        with registered(wrong, **options), ao.AutogradGraph(passes=["mine"], verify=not options):
            with pytest.raises(expected):
                program(x, y).backward()
            assert x.grad is y.grad is None


def test_what_a_pass_keeps_of_its_result_is_its_own() -> None:
    kept: list[Any] = []

    def keeps(table: Any, state: Any) -> PassResult:
        leader, alive = state.leader.copy(), state.alive.copy()
        kept[:] = leader, alive
        return PassResult(leader=leader, alive=alive)

    x, y = ao.tensor(START), ao.tensor(START + 1)
    with registered(keeps), ao.AutogradGraph(passes=["mine"]) as graph:
        program(x, y).backward()
        for array in kept:
            array[:] = 0
        assert graph.runs[-1].leader.tolist() == list(range(9))
        assert graph.runs[-1].alive.tolist() == [1] * 9
    as_torch(x, y)


@pytest.mark.parametrize("change", [
    lambda leader: np.repeat(leader, 2)[::2], np.ma.array, lambda leader: leader.view(np.recarray),
], ids=["strides", "masked", "records"])
def test_arrays_of_other_kinds_are_read_as_they_are(change: Callable[[Any], Any]) -> None:
    x, y = ao.tensor(START), ao.tensor(START + 1)
    with registered(lambda t, s: PassResult(leader=change(s.leader))), ao.AutogradGraph(passes=["cse", "mine"]):
        program(x, y).backward()
    as_torch(x, y)


@pytest.mark.parametrize("table", ["key", "operands", "offsets", "flags", "meta"])
def test_the_table_and_the_state_cannot_be_written(table: str) -> None:
    def writes(t: Any, s: Any) -> PassResult:
        getattr(t, table)[0] = 1
        return PassResult()

    x, y = ao.tensor(START), ao.tensor(START + 1)
    with registered(writes), ao.AutogradGraph(passes=["mine"]), pytest.raises(ValueError, match="read-only"):
        program(x, y).backward()


# ----- names and options -------------------------------------------------------------------------
@pytest.mark.parametrize(("passes", "words"), [
    (["csee"], "did you mean 'cse'"), (["CSE"], "did you mean 'cse'"),
    ("cse", r"\['cse'\]"), ("csee", "did you mean 'cse'"), ([None], "None is neither"), ([len], "register_pass"),
    (5, "a list of names, not as 5"), ([["cse"]], "is neither"), ([b"cse"], "is neither"),
])
def test_what_is_no_pass_is_named(passes: Any, words: str) -> None:
    with pytest.raises(ArgumentError, match=words):
        ao.AutogradGraph(passes=passes)


@pytest.mark.parametrize(("optimize", "words"), [
    ("exac", "did you mean 'exact'"), ("EXACT", "did you mean 'exact'"), ("true", "did you mean True"),
    ("False", "did you mean False"), ("on", "choose False, True or 'exact'"), ("fast", "'fast': choose"),
    (2, "choose"), ([], "choose"), (0.5, "choose"),
])
def test_what_optimize_takes(optimize: Any, words: str) -> None:
    with pytest.raises(ArgumentError, match=words):
        ao.AutogradGraph(optimize=optimize)


@pytest.mark.parametrize("options", [
    {"limit": -1}, {"limit": 1.5}, {"limit": "3"}, {"limit": True}, {"check": "yes"}, {"on_error": "ignore"},
])
def test_options_of_a_pipeline(options: Any) -> None:
    with pytest.raises(ValueError, match=next(iter(options))):
        Pipeline(["cse"], **options)


HERE = r"\[at .*test_broken_passes\.py:\d+\]"


def test_a_refused_result_names_the_run_and_is_an_error_of_the_library() -> None:
    x, y = ao.tensor(START), ao.tensor(START + 1)
    with registered(leaders(n3=8)), ao.AutogradGraph(passes=["mine"]) as graph:
        loss = program(x, y)
        for run in (loss.backward, lambda: graph.report(loss), lambda: graph.verify(loss)):
            with pytest.raises(ao.AutogradOptError, match=f"(?s)pass 'mine', node 3: .*{HERE}") as caught:
                run()
            assert isinstance(caught.value, PassResultError)


def test_a_graph_left_as_written_says_where() -> None:
    x, y = ao.tensor(START), ao.tensor(START + 1)
    with registered(lambda t, s: None), ao.AutogradGraph(
            passes=Pipeline(["cse", "mine"], on_error="fall back")) as graph:
        loss = program(x, y)
        with pytest.warns(UserWarning, match=f"left unoptimized: pass 'mine': it returned a NoneType.*{HERE}"):
            loss.backward()
        assert graph.runs[-1].merged == 0
    as_torch(x, y)


def test_what_is_wrong_with_a_registration_says_where() -> None:
    before = pass_names()
    cases: list[tuple[Callable[[], Any], str]] = [
        (lambda: ao.register_pass("cse", merges_leaves), "'cse' is registered already"),
        (lambda: ao.register_pass(3, merges_leaves), "a pass has a name, not 3"),  # type: ignore[arg-type]
        (lambda: ao.register_pass("mine", 3), "'mine' is a function of a table and a state, not 3"),  # type: ignore[arg-type]
        (lambda: ao.register_pass("mine", merges_leaves, exact="no"), "exact='no': choose True or False"),  # type: ignore[arg-type]
        (lambda: ao.register_pass("mine", merges_leaves, exct=True), "did you mean 'exact'"),  # type: ignore[call-arg]
        (lambda: get_pass("csee"), "did you mean 'cse'"),
        (lambda: unregister_pass("csee"), "did you mean 'cse'"),
        (lambda: Pipeline(["csee"]), "did you mean 'cse'"),
        (lambda: Pipeline("cse"), r"given as a list: \['cse'\]"),
        (lambda: Pipeline(["cse"], limit=-1), "limit is a number of merges"),
        (lambda: Pipeline(["cse"], on_error="ignore"), "on_error is 'raise' or"),  # type: ignore[arg-type]
        (lambda: ao.AutogradGraph(passes=["csee"]), "did you mean 'cse'"),
        (lambda: ao.AutogradGraph(passes="cse"), "given as a list"),
    ]
    for wrong, words in cases:
        with pytest.raises(ao.AutogradOptError, match=f"{words}.*{HERE}$") as caught:
            wrong()
        assert str(caught.value).count("[at") == 1
    assert pass_names() == before


@pytest.mark.parametrize("name", ["cse", "prune"])
def test_a_built_in_pass_stays_registered(name: str) -> None:
    with pytest.raises(ArgumentError, match=f"'{name}' is built in and stays registered: leave it out of .*{HERE}"):
        unregister_pass(name)
    assert isinstance(get_pass(name), Pass)
    x, y = ao.tensor(START), ao.tensor(START + 1)
    with ao.AutogradGraph(optimize=True):
        program(x, y).backward()
    as_torch(x, y)


def test_passes_are_registered_by_a_name_and_a_function() -> None:
    before = pass_names()
    wrong: list[Any] = [(5, merges_leaves), ("", merges_leaves), ("mine", 5), (None, merges_leaves)]
    for arguments in wrong:
        with pytest.raises(TypeError):
            register_pass(*arguments)
    with pytest.raises(ValueError, match="already"):
        register_pass("cse", merges_leaves)
    names: list[Any] = ["csee", 5, ["cse"], None]
    for name in names:
        with pytest.raises(UnknownPassError):
            get_pass(name)
        with pytest.raises(UnknownPassError):
            unregister_pass(name)
    assert pass_names() == before
    assert isinstance(get_pass("cse"), Pass)
