"""Scripts that a command runs end as they do under `python`, and the command's answer is not lost to what they do."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

STEP = """
import autograd_opt as ao
x = ao.tensor([1.0, 2.0])
with ao.AutogradGraph(optimize=True):
    (x.exp() * x.exp()).sum().backward()
"""
ANSWER = {"explain": "operations watched", "verify": "1 proved, 0 refuted, 0 undecided"}
LAST_ACTS = {
    "a function at exit": "import atexit\natexit.register(lambda: open('left.txt', 'w').write('done'))\n",
    "a file that stays open": "def f(): pass\nfile = open('left.txt', 'w')\nfile.write('done')\n",
    "a thread": "import threading, time\ndef late():\n    time.sleep(0.3)\n    open('left.txt', 'w').write('done')\n"
                "threading.Thread(target=late).start()\n",
    "threads of a pool": "from concurrent.futures import ThreadPoolExecutor\npool = ThreadPoolExecutor(1)\n"
                         "pool.submit(lambda: open('left.txt', 'w').write('done'))\n",
}
REDIRECTIONS = {
    "a file": "import sys\nsys.stdout = sys.stderr = open('log.txt', 'w')\n",
    "a file that is closed": "import sys\nsys.stdout = open('log.txt', 'w')\n" + STEP + "sys.stdout.close()\n",
    "a class": "import sys\nclass To:\n    def __init__(self, file): self.write = file.write\n"
               "    def flush(self): raise OSError('full')\nsys.stdout = To(open('log.txt', 'w'))\n",
    "a block": "import contextlib, io\ncontextlib.redirect_stdout(io.StringIO()).__enter__()\n",
}


def run(folder: Path, command: str, text: str, *options: str) -> subprocess.CompletedProcess[str]:
    (folder / "script.py").write_text(text)
    words = [sys.executable, "-m", "autograd_opt", command, *options, "script.py"]
    return subprocess.run(words, capture_output=True, text=True, check=False, cwd=folder, timeout=300,
                          env={**os.environ, "PYTHONPATH": os.getcwd()})


@pytest.mark.parametrize("act", LAST_ACTS)
@pytest.mark.parametrize("command", ANSWER)
def test_a_script_ends_as_under_python(tmp_path: Path, command: str, act: str) -> None:
    done = run(tmp_path, command, LAST_ACTS[act] + STEP)
    assert done.returncode == 0, done.stderr
    assert ANSWER[command] in done.stdout
    assert (tmp_path / "left.txt").read_text() == "done"


@pytest.mark.parametrize("where", REDIRECTIONS)
@pytest.mark.parametrize("command", ANSWER)
def test_what_a_script_prints_to_takes_no_answer(tmp_path: Path, command: str, where: str) -> None:
    text = REDIRECTIONS[where]
    done = run(tmp_path, command, text if STEP in text else text + STEP + "print('printed')\n")
    assert done.returncode == 0, done.stderr
    assert ANSWER[command] in done.stdout
    if command == "verify":
        assert "graph #1: proved" in done.stdout
    if (tmp_path / "log.txt").exists() and STEP not in text:
        assert (tmp_path / "log.txt").read_text() == "printed\n"


@pytest.mark.parametrize("command", ANSWER)
@pytest.mark.parametrize("page", ["", "."])
def test_a_page_needs_the_name_of_a_file(tmp_path: Path, command: str, page: str) -> None:
    done = run(tmp_path, command, STEP, "--html", page)
    assert done.returncode == 2
    assert "'--html'" in done.stderr
    assert "Traceback" not in done.stderr
    assert [f.name for f in tmp_path.iterdir()] == ["script.py"]
