"""Random whole programs do, in every graph mode, what torch eager does.

A plain run takes some hundred programs; `python -m tests.fuzz --examples 20000` is the long sweep.
"""

from __future__ import annotations

import gc
import re

import pytest
from hypothesis import HealthCheck, given, settings

from tests.fuzz.known import KNOWN, Known, reason_of
from tests.fuzz.oracle import compare, differs
from tests.fuzz.shrinking import shrink
from tests.programs import Program, from_seed, programs

CHUNK = 30


@pytest.mark.slow
@pytest.mark.parametrize("chunk", range(10))
def test_seeded_programs(chunk: int) -> None:
    for seed in range(CHUNK * chunk, CHUNK * (chunk + 1)):
        program = from_seed(seed)
        error = differs(program)
        if error is not None and reason_of(str(error), program) is None:
            compare(shrink(program))


@pytest.mark.slow
@pytest.mark.parametrize("chunk", range(4))
def test_wider_programs(chunk: int) -> None:
    for seed in range(CHUNK * chunk, CHUNK * (chunk + 1)):
        program = from_seed(seed, wide=True)
        error = differs(program)
        if error is not None and reason_of(str(error), program) is None:
            compare(shrink(program))


@pytest.mark.slow
@settings(max_examples=100, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])
@given(programs())
def test_drawn_programs(program: Program) -> None:
    error = differs(program)
    if error is not None and reason_of(str(error), program) is None:
        raise error


@pytest.mark.parametrize("known", KNOWN, ids=lambda k: k.reason)
def test_known_differences_still_differ(known: Known) -> None:
    gc.collect()                        # views of other tests, which every graph to come would look at
    program = Program(known.example.splitlines(), frozenset(re.findall(r"\bv\d+\b", known.example)))
    error = differs(program)
    if error is None and known.sometimes:
        pytest.skip(known.sometimes)
    assert reason_of(str(error), program) == known.reason


@pytest.mark.long
def test_long_programs() -> None:
    for seed in range(100_000, 100_300):
        program = from_seed(seed, length=60)
        error = differs(program)
        assert error is None or reason_of(str(error), program), error


def test_a_seed_is_a_program() -> None:
    assert str(from_seed(3)) == str(from_seed(3)) != str(from_seed(4))


def test_every_kind_of_statement_occurs() -> None:
    """The generator still writes what it is meant to."""
    text = "\n".join(str(from_seed(seed)) for seed in range(400))
    for word in (
        "_(",
        "] =",
        "+=",
        ".view(",
        "dropout",
        "randn_like",
        "no_grad",
        "detach",
        "register_hook",
        "retain_grad",
        "del ",
        "retain_graph=True",
        "create_graph=True",
        "alpha=2",
        "nan",
        "inf",
        "-0.0",
        "True",
        "torch.where",
        ".unbind(",
        "m.",
        "i ",
        "z",
        ".data",
        ".numpy()",
        "requires_grad_()",
        "@",
        ".sum(0)",
        "inputs=[",
    ):
        assert word in text, word


def test_every_kind_of_wider_statement_occurs() -> None:
    from tests.statements.table import KINDS, PLAIN

    missing = {
        "Both.apply", "Ranked.apply", "Doubled.apply", "use_reentrant=True", "saved_tensors_hooks", "functional.hvp",
        "func.vmap", "is_grads_batched", "register_prehook", "register_multi_grad_hook", "copy.deepcopy", "np.float32",
        "out=", "inference_mode", "autocast", "optim.SGD", "_foreach", "index_put_", "function('", "train(", "carried(",
        "spent(", "laid(", "to_sparse", "fresh()", "outside()", "wrapped(", "printed(", "Held(", "Duck(",
        "torch.vmap(", "watch(", "tied(", "_version", "edge(", "group_norm", "hardtanh",
        "checkpoint(lambda t: checkpoint",
    }
    for seed in range(600):
        text = str(from_seed(seed, wide=True))
        missing = {word for word in missing if word not in text}
        if not missing:
            break
    assert not missing
    assert len({kind.subject for kind in KINDS} - set(PLAIN)) == 16


def test_named_subjects_are_in_every_program() -> None:
    """`kinds` names subjects, or single kinds of statements; what nothing is called is refused."""
    assert sum("Held(" in str(from_seed(seed, kinds=["with_reflected"])) for seed in range(40)) > 5
    with pytest.raises(ValueError, match="subjects are checkpoints"):
        from_seed(0, kinds=["no such"])


def test_a_lost_gradient_and_a_told_thing_are_seen() -> None:
    """The oracle compares what programs tell, and sees one that tells nothing."""
    from tests.fuzz import oracle

    told, other = Program(["tell(x._version)"]), Program(["tell(x._version + 1)"])
    with pytest.raises(oracle.Difference, match="told by"):
        oracle.check(oracle.eager(told), oracle.eager(other), told, "told")


def test_graphs_of_a_program_follow_one_another() -> None:
    """`fresh()` leaves the graph; what was recorded there stays readable, and leaves go on."""
    compare(Program(["v = (x * 2).detach()", "(x * 3).sum().backward()", "fresh()", "(x * v).sum().backward()"]))


def test_a_threshold_is_no_chaos() -> None:
    """A variable that changes with its inputs alone is not set aside; one made of rounding is."""
    from tests.fuzz.causes import chaotic

    assert not chaotic(Program(["a = (x == 0.5) * 1.0", "b = x.clamp(-0.5, 0.5)", "(b * a).sum().backward()"]))
    assert chaotic(Program(["a = ((x * 3 / 7).sin() + 1) - 1 - (x * 3 / 7).sin()", "b = a.sign()"])) >= {"b"}


def test_what_is_left_with_the_same_gradients() -> None:
    """A quotient by a gradient that is 0, or rounding, is set aside; whatever no gradient explains is not."""
    from tests.fuzz.causes import fed
    from tests.fuzz.known import rounding
    from tests.fuzz.oracle import MODES

    cancels = Program(
        ["v1 = x.relu()", "v2 = -((x * v1) / v1)", "v3, = torch.autograd.grad(v2.sum() * 5, [v1])", "v4 = 1 / v3"],
        frozenset(["v3", "v4"]),
    )
    message = str(differs(cancels))
    assert "v4 is" in message
    assert rounding(cancels, message)
    turned = Program(["u = c.t()", "v = torch.where(u == torch.view_as_real(z), u, 0.0)", "v.sum().backward()"])
    assert differs(turned) is not None
    assert fed(turned, MODES[0]) is not None


def test_a_wrong_gradient_is_seen() -> None:
    """The oracle itself: a gradient that is wrong by 0.1 % is found."""
    from tests.fuzz import oracle

    right, wrong = (Program(["a = x.sin()", f"(a.sum() * {k}).backward()"]) for k in (1, 1.001))
    with pytest.raises(oracle.Difference):
        oracle.check(oracle.eager(right), oracle.eager(wrong), right, "a gradient")


def test_a_wrong_value_is_seen() -> None:
    from tests.fuzz import oracle

    reference, mine = oracle.eager(Program(["a = d * 0.0"])), oracle.eager(Program(["a = d * -0.0"]))
    with pytest.raises(oracle.Difference):
        oracle.check(reference, mine, Program(["a = d * 0.0"]), "signed zeros")
