"""Exit codes, output for machines, and files that are whole or absent."""

import json
import os
import subprocess
import sys
from pathlib import Path

import click
import pytest

from autograd_opt._common.files import written_whole
from autograd_opt.cli import demo, main
from autograd_opt.cli.main import COMMANDS

PROGRAM = [sys.executable, "-m", "autograd_opt"]


def run(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([*PROGRAM, *arguments], capture_output=True, text=True, check=False,
                          env={**os.environ, **environment})


def test_help_names_every_command() -> None:
    done = run("--help")
    assert done.returncode == 0
    assert all(name in done.stdout for name in COMMANDS)


@pytest.mark.parametrize("name", COMMANDS)
def test_each_command_explains_itself(name: str) -> None:
    done = run(name, "--help")
    assert done.returncode == 0, done.stderr
    assert "Usage: autograd-opt" in done.stdout


def test_wrong_usage_is_2() -> None:
    done = run("no-such-command")
    assert done.returncode == main.USAGE
    assert "no-such-command" in done.stderr
    assert run("demo", "--epochs", "0").returncode == main.USAGE


@pytest.mark.parametrize(("words", "hint"), [
    (["explan"], "did you mean 'explain'"), (["zzz"], "Commands: bench, demo, doctor, explain, verify"),
    (["explain", "--jso", "x.py"], "--json"), (["verify", "--secnds", "3", "x.py"], "--seconds"),
    (["bench", "chian"], "'chain'"), (["verify", "--seconds", "nan", "x.py"], "'nan' is not a number"),
    (["verify", "--seconds", "-1", "x.py"], "range"), (["verify", "--limit", "0", "x.py"], "range"),
    (["explain", "--budget", "nan", "x.py"], "'nan' is not a number"),
])
def test_wrong_words_name_what_is_known(words: list[str], hint: str) -> None:
    done = run(*words)
    assert done.returncode == main.USAGE, done.stderr
    assert hint in done.stderr
    assert "Traceback" not in done.stderr


def test_what_is_not_installed_is_3(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setitem(COMMANDS, "other", ("no_such_package:command", ""))
    with pytest.raises(SystemExit) as stopped:
        main.root.get_command(click.Context(main.root), "other")
    assert stopped.value.code == main.MISSING
    assert "no_such_package" in capsys.readouterr().err


@pytest.mark.parametrize("error", [KeyboardInterrupt, ValueError])
def test_an_interrupted_write_leaves_the_old_file(tmp_path: Path, error: type[BaseException]) -> None:
    path = tmp_path / "result.json"
    path.write_text("old")

    def write() -> None:
        with written_whole(path) as draft:
            draft.write_text("ne")
            raise error

    with pytest.raises(error):
        write()
    assert path.read_text() == "old"
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.slow
def test_the_demo(tmp_path: Path) -> None:
    done = run("demo", "--json", "--repeats", "3", "--out", str(tmp_path))
    assert done.returncode == 0, done.stderr
    facts = json.loads(done.stdout)
    assert facts["accuracy"] > 0.95
    assert facts["nodes_after"] < facts["nodes_before"]
    assert max(facts["largest_difference"].values()) < 1e-5
    assert facts["verdict"] == "proved"
    assert all("softmax" in Path(path).read_text() for path in facts["pictures"].values())
    assert "\x1b[" not in done.stdout + done.stderr
    source = Path(demo.__file__).read_text().splitlines()
    lines = {source[int(line.rpartition(":")[2]) - 1].strip(): n for line, n in facts["repeated"].items()}
    assert lines["return -F.log_softmax(model(images), 1).mean()"] == 6       # all of the network once more


def test_the_demo_writes_nothing_unasked_and_shows_the_lines(tmp_path: Path) -> None:
    done = subprocess.run([*PROGRAM, "demo", "--repeats", "1"], capture_output=True, text=True, check=False,
                          cwd=tmp_path, env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])})
    assert done.returncode == 0, done.stderr
    assert not list(tmp_path.iterdir())
    assert done.stdout.startswith("training a network on handwritten digits in 460 steps")
    assert "-F.log_softmax(model(images), 1).mean()" in done.stdout


def test_ctrl_c_is_130_and_leaves_nothing(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(demo, "train", interrupted)
    monkeypatch.setattr(sys, "argv", ["autograd-opt", "demo", "--out", str(tmp_path / "out")])
    with pytest.raises(SystemExit) as stopped:
        main.main()
    assert stopped.value.code == main.INTERRUPTED
    assert capsys.readouterr().err.strip() == "interrupted"
    assert not (tmp_path / "out").exists()
