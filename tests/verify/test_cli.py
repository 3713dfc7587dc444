"""`autograd-opt verify`."""

from __future__ import annotations

import json

from click.testing import CliRunner

from autograd_opt.verify.cli import verify_command

SCRIPT = """
import autograd_opt as ao
a, b = ao.tensor([1.0, 2.0]), ao.tensor([3.0, 4.0])
for _ in range(3):
    with ao.AutogradGraph(optimize=True) as graph:
        ((a * b).sin() * (a * b)).sum().backward()
print("done")
"""


def run(tmp_path, text, *options, arguments=()):
    path = tmp_path / "script.py"
    path.write_text(text)
    return CliRunner().invoke(verify_command, [*options, str(path), *arguments])


def test_a_script_is_proved_once_per_structure(tmp_path):
    result = run(tmp_path, SCRIPT)
    assert result.exit_code == 0, result.output
    assert "1 proved, 0 refuted, 0 undecided" in result.output


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
