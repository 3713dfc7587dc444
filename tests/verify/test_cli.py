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


def run(tmp_path, text, *options):
    path = tmp_path / "script.py"
    path.write_text(text)
    return CliRunner().invoke(verify_command, [str(path), *options])


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
