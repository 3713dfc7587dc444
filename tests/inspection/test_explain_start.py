"""What watching a short script costs beside the script: modules that it must not import, time that it may take."""

from __future__ import annotations

import gc
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from autograd_opt.explaining import watch

SCRIPT = """
import sys
import torch

w = torch.ones(4, 4, requires_grad=True)
for _ in range(3):
    (w @ w).exp().sum().backward()
"""
DEAR = ("torch._dynamo", "torch._inductor", "torch.export", "sympy", "matplotlib", "rich.console")
"""Modules of a tenth of a second or more; a script that imports them itself pays for them itself."""


def imported(folder: Path, program: str) -> set[str]:
    """The modules that a process has at its end."""
    (folder / "short.py").write_text(SCRIPT)
    told = "\nimport sys; sys.stderr.write('\\n'.join(['', *sys.modules]))"
    done = subprocess.run([sys.executable, "-c", program + told], cwd=folder, capture_output=True, text=True,
                          check=True, timeout=300)
    return set(done.stderr.splitlines())


@pytest.mark.slow
def test_a_short_script_pays_for_nothing_that_it_does_not_need(tmp_path: Path) -> None:
    bare = imported(tmp_path, "import runpy; runpy.run_path('short.py')")
    seen = imported(tmp_path, "import sys; sys.argv = ['autograd-opt', 'explain', 'short.py']\n"
                              "sys.orig_argv = ['python', *sys.argv]\n"
                              "from autograd_opt.cli.main import root; root.main(standalone_mode=False)")
    assert "autograd_opt.explaining.watch" in seen
    assert not {name for name in DEAR if name in seen and name not in bare}


@pytest.mark.parametrize("words", [
    ["--help"], ["--version"], ["explain", "--help"], ["explain", "absent.py"], ["no-such"],
])
def test_the_command_line_is_read_without_torch(words: list[str]) -> None:
    program = ("import sys; sys.argv = ['autograd-opt', *{0!r}]; sys.orig_argv = ['python', *sys.argv]\n"
               "from autograd_opt.cli.main import main\n"
               "try: main()\n"
               "except SystemExit: pass\n"
               "sys.exit('torch' in sys.modules or 'rich.console' in sys.modules)")
    done = subprocess.run([sys.executable, "-c", program.format(words)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


@pytest.mark.slow
def test_a_script_run_by_a_command_finds_the_whole_library(tmp_path: Path) -> None:
    (tmp_path / "own.py").write_text(
        "from autograd_opt.api.graph import AutogradGraph\nimport autograd_opt as ao\n"
        "x = ao.tensor([1.0, 2.0])\n"
        "with ao.AutogradGraph(optimize=True) as graph:\n    (x * x).sum().backward()\n"
        "assert isinstance(graph, AutogradGraph)\nprint(x.grad)\n")
    for command in ("explain", "verify"):
        done = subprocess.run([sys.executable, "-m", "autograd_opt", command, "own.py"], cwd=tmp_path,
                              capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        assert "tensor([2., 4.])\n" in done.stdout


def test_what_watching_may_cost_a_tenth_of_a_second() -> None:
    e = watch.Watch()
    e._begin = 0.0
    allowed = e.spare(0.1)
    assert 0.1 < allowed < 0.2          # beside the script's own tenth: three times as long at most


def test_the_cost_of_an_operation_is_charged_for_all_between_two_that_are_timed() -> None:
    x = torch.ones(3)
    with watch.Watch(budget=1e9) as e:
        for _ in range(4 * watch.SAMPLED):
            x.exp()
    assert e.samples == 4
    assert e.operations == 4 * watch.SAMPLED
    assert e.own_seconds == pytest.approx(
        e.operations * e.sampled_seconds / 4 * (1 + watch.AROUND) + e.collected_seconds)
    assert e.own_seconds > 0


def test_time_spent_elsewhere_than_in_torch_earns_nothing() -> None:
    x = torch.ones(3)
    with watch.Watch() as e:
        for _ in range(2 * watch.SAMPLED):
            x.exp()
        begin = e.now()
        while e.now() < begin + 0.2:        # an import, say
            pass
        for _ in range(2 * watch.SAMPLED):
            x.exp()
        allowed = e.spare(e.now())
    assert e.idle_seconds > 0.1
    assert allowed < watch.FREE + e.budget * (e.total_seconds - 0.1)


def test_the_collector_is_charged_where_watching_sets_it_going(monkeypatch: pytest.MonkeyPatch) -> None:
    x = torch.ones(3)
    before, kind_of = list(gc.callbacks), watch.purity.kind_of
    with watch.Watch(budget=1e9) as e:
        for _ in range(5):
            x.exp()
        gc.collect()
        nothing = e.collected_seconds
        monkeypatch.setattr(watch.purity, "kind_of", lambda func: (gc.collect(), kind_of(func))[1])
        x.exp()
        something = e.collected_seconds
    assert something > nothing
    assert something > 1e-3
    assert nothing < 1e-2
    assert gc.callbacks == before
