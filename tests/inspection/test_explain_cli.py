"""`autograd-opt explain script.py`: the script runs unchanged, the report comes after."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = """
import sys
import torch

torch.manual_seed(0)
model = torch.nn.Linear(4, 4).double()
x = torch.randn(3, 4).double()
for step in range(int(sys.argv[1])):
    mask = torch.triu(torch.ones(4, 4).double())
    loss = (model(x) @ mask).square().mean()
    loss.backward()
    print(__name__, loss.item().hex())
    with torch.no_grad():
        for p in model.parameters():
            p -= 0.01 * p.grad
            p.grad = None
sys.exit(int(sys.argv[2]))
"""


def run(*arguments: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, *arguments], cwd=cwd, capture_output=True, text=True, timeout=300,
                          check=False, env={**os.environ, "OMP_NUM_THREADS": "1", "COLUMNS": "200"})


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "train.py").write_text(SCRIPT)
    return tmp_path


COMMAND = ("-c", "from autograd_opt.cli.explain import explain_command; explain_command()")


@pytest.mark.slow
def test_same_output_then_the_report(folder: Path) -> None:
    bare = run("train.py", "5", "0", cwd=folder)
    seen = run(*COMMAND, "train.py", "5", "0", cwd=folder)
    assert bare.returncode == seen.returncode == 0, seen.stderr
    assert seen.stdout.startswith(bare.stdout)
    assert re.search("compute `mask[^`]*` once, before the loop at train.py:8", seen.stdout)


@pytest.mark.slow
def test_json_html_and_exit_code(folder: Path) -> None:
    seen = run(*COMMAND, "--json", "--html", "page.html", "train.py", "3", "7", cwd=folder)
    assert seen.returncode == 7
    found = json.loads(seen.stdout)
    assert found["findings"][0]["lines"]
    assert "__main__" in seen.stderr
    page = (folder / "page.html").read_text()
    assert page.startswith("<!doctype html>")
    assert "http" not in page


@pytest.mark.slow
def test_a_script_that_fails(folder: Path) -> None:
    (folder / "bad.py").write_text("import torch\nx = torch.ones(2)\nx.exp()\nx.exp()\nraise ValueError('no')\n")
    seen = run(*COMMAND, "bad.py", "--json", cwd=folder)
    assert seen.returncode == 1
    assert "--json behind bad.py goes to the script" in seen.stderr
    assert not any(line.endswith(" ") for line in seen.stdout.splitlines())
    assert "ValueError: no" in seen.stderr
    trace = seen.stderr[seen.stderr.index("Traceback"):]
    assert trace.splitlines()[1].strip() == 'File "bad.py", line 5, in <module>'
    assert "runpy" not in trace
    assert "autograd_opt" not in trace
    assert "1 listed below repeat" in seen.stdout
    missing = run(*COMMAND, "absent.py", cwd=folder)
    assert missing.returncode == 2
    assert "absent.py" in missing.stderr


@pytest.mark.parametrize(("words", "said"), [
    (["."], ". is a folder, not a script"),
    (["-m", "no_such_module.part"], "there is no module no_such_module"),
    (["--budget", "-1", "train.py", "1", "0"], "--budget"),
])
def test_wrong_usage(folder: Path, words: list[str], said: str) -> None:
    seen = run(*COMMAND, *words, cwd=folder)
    assert seen.returncode == 2
    assert said in seen.stderr
    assert not seen.stdout


@pytest.mark.slow
def test_a_module_of_the_working_folder(folder: Path) -> None:
    seen = run(*COMMAND, "-m", "train", "3", "0", cwd=folder)
    assert seen.returncode == 0, seen.stderr
    assert "work done twice by train" in seen.stdout


def test_a_backward_run_in_a_function_of_the_scripts_is_named_by_it(tmp_path: Path) -> None:
    """The chain of calls is the script's own, before, in and after a backward run."""
    (tmp_path / "pinn.py").write_text(
        "import torch\nnet = torch.nn.Sequential(torch.nn.Linear(2, 8), torch.nn.Tanh(), torch.nn.Linear(8, 1))\n"
        "def derivative(y, x):\n    return torch.autograd.grad(y.sum(), x, create_graph=True)[0]\n"
        "def residual(x, t):\n    u = net(torch.cat([x, t], 1))\n    return derivative(u, t) + derivative(u, x)\n"
        "x, t = torch.rand(6, 1, requires_grad=True), torch.rand(6, 1, requires_grad=True)\n"
        "for step in range(6):\n    residual(x, t).square().mean().backward()\n    with torch.no_grad():\n"
        "        for p in net.parameters():\n            p -= 0 if p.grad is None else p.grad\n")
    done = run("-m", "autograd_opt", "explain", "--json", "--budget", "100", "pinn.py", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)["findings"]
    (finding,) = [f for f in found if "derivative(u, x)" in f["advice"]]
    assert "computes what `derivative(u, t)` at pinn.py:7 computed before, in 6 of 6 runs" in finding["advice"]
    assert [place.partition(" in ")[0] for place in finding["chain"]] == ["pinn.py:10", "pinn.py:7"]
    assert not any("`residual(" in f["advice"] for f in found)
