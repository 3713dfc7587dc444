"""`autograd-opt verify`."""

from __future__ import annotations

import json

import pytest
from click.testing import CliRunner

from autograd_opt.cli.verify import verify_command

SCRIPT = """
import autograd_opt as ao
a, b = ao.tensor([1.0, 2.0]), ao.tensor([3.0, 4.0])
for _ in range(3):
    with ao.AutogradGraph(optimize=True) as graph:
        ((a * b).sin() * (a * b)).sum().backward()
print("done")
"""
TWO = """
import autograd_opt as ao
a, b = ao.tensor([1.0, 2.0]), ao.tensor([3.0, 4.0])
for k in range(2):
    with ao.AutogradGraph(optimize=True) as graph:
        sum(((a * b).sin() * (a * b)).sum() for _ in range(k + 1)).backward()
"""
INTERMEDIATE = """
import torch
import autograd_opt as ao
x = ao.tensor([1.0, 2.0])
with ao.AutogradGraph(optimize=True, name="inner") as graph:
    a, b = x.sin(), x.sin()
    loss = (a * 2 + b * x).sum()
    torch.autograd.grad(loss, [b])
"""


PLAIN = """
import autograd_opt as ao
x = ao.tensor([1.0, 2.0])
for k in (0, 0, 1, 1):
    with ao.AutogradGraph(optimize=True):
        (x.sin() if k else x.exp()).sum().backward()
"""


def run(tmp_path, text, *options, arguments=()):
    path = tmp_path / "script.py"
    path.write_text(text)
    return CliRunner().invoke(verify_command, [*options, str(path), *arguments])


def test_a_script_is_proved_once_per_structure(tmp_path):
    result = run(tmp_path, SCRIPT)
    assert result.exit_code == 0, result.output
    assert "1 proved, 0 refuted, 0 undecided; 2 more runs had the structure of one of these" in result.output


def test_runs_without_a_repeated_value_are_counted_as_well(tmp_path):
    result = run(tmp_path, PLAIN)
    assert result.exit_code == 0, result.output
    assert "2 proved, 0 refuted, 0 undecided; 2 more runs had the structure of one of these" in result.output


def test_json(tmp_path):
    result = run(tmp_path, SCRIPT, "--json")
    assert json.loads(result.stdout)["counts"]["proved"] == 1


def test_nothing_to_verify_is_a_no(tmp_path):
    result = run(tmp_path, "print(1)")
    assert result.exit_code == 1
    assert "nothing to verify" in result.output


def test_what_stands_behind_the_script_is_the_scripts(tmp_path):
    result = run(tmp_path, "import sys\nassert sys.argv[1:] == ['--epochs', '1', '--json']\n" + SCRIPT,
                 arguments=["--epochs", "1", "--json"])
    assert result.exit_code == 0, result.output
    assert "options of verify stand before it" in result.output


def test_a_script_that_ends_itself_is_still_judged(tmp_path):
    result = run(tmp_path, SCRIPT + "raise SystemExit\n")
    assert result.exit_code == 0
    assert "1 proved" in result.output
    failed = run(tmp_path, SCRIPT + "raise ValueError('no')\n")
    assert failed.exit_code == 1
    assert "1 proved" in failed.output
    assert "ValueError: no" in failed.stderr


def test_a_script_that_is_not_there_is_wrong_usage(tmp_path):
    assert CliRunner().invoke(verify_command, [str(tmp_path / "absent.py")]).exit_code == 2


def test_a_page(tmp_path):
    result = run(tmp_path, SCRIPT, "--html", str(tmp_path / "out.html"))
    assert result.exit_code == 0
    page = (tmp_path / "out.html").read_text()
    assert "<h2>graph #" in page
    assert "1 proved, 0 refuted" in page
    assert "gradient of %0" in page


@pytest.mark.parametrize(("end", "code"), [("sys.exit()", 0), ("sys.exit(0)", 0), ("sys.exit(4)", 4), ("1 / 0", 1)])
def test_a_script_that_exits_is_reported(tmp_path, end, code):
    result = run(tmp_path, f"import sys\n{SCRIPT}\n{end}")
    assert "1 proved" in result.output
    assert result.exit_code == code
    assert ("is not verified" in result.output) is (code != 0)


def test_exiting_well_without_anything_verified_is_a_no(tmp_path):
    assert run(tmp_path, "import sys; sys.exit(0)").exit_code == 1


def test_runs_beyond_the_limit_are_no_proof(tmp_path):
    result = run(tmp_path, TWO, "--limit", "1")
    assert result.exit_code == 1
    assert "1 proved, 0 refuted, 0 undecided; 1 runs were not verified" in result.output
    assert run(tmp_path, TWO).exit_code == 0


def test_runs_that_repeat_a_structure_are_within_the_limit(tmp_path):
    result = run(tmp_path, SCRIPT, "--limit", "1")
    assert result.exit_code == 0, result.output
    assert "1 proved, 0 refuted, 0 undecided; 2 more runs had the structure of one of these\n" in result.output


@pytest.mark.parametrize(("limit", "skipped"), [(1, 2), (2, 1), (3, 0)])
def test_a_repetition_behind_the_limit_is_no_run_that_was_not_verified(tmp_path, limit, skipped):
    result = run(tmp_path, SCRIPT + TWO + SCRIPT, "--limit", str(limit), "--json")
    found = json.loads(result.stdout[result.stdout.index("{"):])
    assert (found["counts"]["proved"], found["repeated"], found["skipped"]) == (limit, 5, skipped)
    assert result.exit_code == (1 if skipped else 0)


def test_the_gradient_of_an_intermediate_is_compared(tmp_path):
    result = run(tmp_path, INTERMEDIATE, "--json")
    (found,) = json.loads(result.stdout)["runs"]
    assert "gradient of %2" in [g["goal"] for g in found["goals"]]


@pytest.mark.parametrize("retain", [False, True])
@pytest.mark.parametrize("name", ["a", "b"])
def test_an_intermediate_with_a_twin_is_proved(tmp_path, name, retain):
    text = INTERMEDIATE.replace("grad(loss, [b])", f"grad(loss, [{name}], retain_graph={retain})")
    result = run(tmp_path, text)
    assert result.exit_code == 0, result.output
    assert "1 proved, 0 refuted, 0 undecided" in result.output


CARELESS = """
import torch
import autograd_opt as ao
from autograd_opt.passes import PassResult, Pipeline, Pass

def careless(table, state):
    leader = state.leader.copy()
    seen = {}
    for n in range(len(table)):
        operands = tuple(leader[o] for o in table.operands_of(n))
        if leader[n] == n and operands:
            leader[n] = seen.setdefault(operands, n)
    return PassResult(leader=leader)

x = ao.tensor([[2.0, 0.5], [0.5, 3.0]])
with ao.AutogradGraph(passes=[Pass("careless", careless)], verify=VERIFY, name="careless") as graph:
    (FIRST(x) * SECOND(x)).sum().backward()
"""


def careless(tmp_path, first, second, verify, *options):
    text = CARELESS.replace("VERIFY", str(verify)).replace("FIRST", first).replace("SECOND", second)
    return run(tmp_path, text, *options)


@pytest.mark.parametrize("verify", [False, True])
def test_a_wrong_pass_is_refuted_with_its_line(tmp_path, verify):
    result = careless(tmp_path, "torch.sin", "torch.cos", verify)
    assert result.exit_code == 1
    assert "0 proved, 1 refuted, 0 undecided" in result.output
    assert "cos (script.py:17), merged into %1 sin (script.py:17)" in result.output.replace(str(tmp_path) + "/", "")


def test_operators_without_a_meaning_are_undecided_with_what_to_do(tmp_path):
    result = careless(tmp_path, "torch.linalg.cholesky", "torch.linalg.inv", False, "--seconds", "3")
    assert result.exit_code == 1
    assert "0 proved, 0 refuted, 1 undecided" in result.output
    assert "unsupported operator" in result.output
    assert "what to do: give the operator a meaning" in result.output
