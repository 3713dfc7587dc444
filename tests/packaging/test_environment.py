"""A wrong installation is one clear sentence."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from autograd_opt._common import environment

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.parametrize("version", ["2.12.1", "2.13.0", "2.13.4+cpu", "2.15.0", "2.14.0a0+git1234"])
def test_tested_versions_of_torch_pass(version: str) -> None:
    environment.check_torch(version)


@pytest.mark.parametrize("version", ["2.11.0", "1.13.1+cu117"])
def test_older_versions_of_torch_are_refused(version: str) -> None:
    with pytest.raises(ImportError, match=f"needs torch 2.12 or newer, this is {version}".replace("+", r"\+")):
        environment.check_torch(version)


def test_a_torch_newer_than_tested_runs_plainly_with_a_warning() -> None:
    with pytest.warns(RuntimeWarning, match="torch 3.0 is newer than {}.{}".format(*environment.NEWEST_TORCH)):
        environment.check_torch("3.0")
    program = ("import torch; torch.__version__ = torch.version.__version__ = '2.99.0'\n"
               "import autograd_opt as ao; from autograd_opt.abi import switches\n"
               "x = torch.ones(2, requires_grad=True)\n"
               "with ao.AutogradGraph(optimize=True): torch.nn.Tanh()(x * x.sum()).sum().backward()\n"
               "print(switches.OFF.keys() == switches.PARTS.keys(), x.grad is not None)")
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout == "True True\n"
    assert "without its accelerations" in done.stderr


@pytest.mark.parametrize(("asked", "how"), [("0", "with its"), ("", "without its"), ("1", "without its")])
def test_the_warning_says_whether_it_runs_plainly(monkeypatch: pytest.MonkeyPatch, asked: str, how: str) -> None:
    monkeypatch.setenv("AUTOGRAD_OPT_PLAIN", asked)
    with pytest.warns(RuntimeWarning, match=f"it runs {how} accelerations"):
        environment.check_torch("3.0")


@pytest.mark.parametrize("version", [(3, 10), (3, 14), (4, 0)])
def test_other_pythons_are_refused(version: tuple[int, int]) -> None:
    with pytest.raises(ImportError, match=r"needs a Python from 3.11 to 3.13"):
        environment.check_python(version)


def test_a_free_threaded_python_is_refused() -> None:
    with pytest.raises(ImportError, match="free-threaded"):
        environment.check_python((3, 13), free_threaded=True)


def test_a_missing_torch_is_named() -> None:
    program = "import sys; sys.modules['torch'] = None; import autograd_opt"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert done.stderr.splitlines()[-1].startswith("ImportError: autograd_opt needs torch 2.12")


@pytest.mark.parametrize("error", ["ImportError", "OSError", "ModuleNotFoundError"])
def test_a_torch_that_does_not_find_its_libraries_is_named(error: str, tmp_path: Path) -> None:
    said = "libcudnn.so.9: cannot open shared object file"
    (tmp_path / "torch").mkdir()
    (tmp_path / "torch" / "__init__.py").write_text(f"raise {error}({said!r})")
    done = subprocess.run([sys.executable, "-c", "import autograd_opt"], capture_output=True, text=True, check=False,
                          env={**os.environ, "PYTHONPATH": str(tmp_path)})
    assert done.returncode == 1
    last = done.stderr.splitlines()[-1]
    assert last.startswith(f"ImportError: torch is installed, but its import failed ({said}). ")
    assert "--index-url https://download.pytorch.org/whl/cpu" in last


def test_proofs_are_reached_from_the_package_alone() -> None:
    program = ("import sys, autograd_opt as ao; assert 'autograd_opt.verify' not in sys.modules\n"
               "print(ao.verify.Status.PROVED, hasattr(ao, 'nothing'))")
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout == "proved False\n"


def build(**environment: str) -> subprocess.CompletedProcess[str]:
    """Start a build of the extensions; it is expected to stop before it compiles."""
    program = [sys.executable, "setup.py", "--quiet", "build_ext", "--build-lib", environment.pop("OUT")]
    return subprocess.run(program, cwd=ROOT, env={**os.environ, **environment}, capture_output=True, text=True,
                          check=False)


def test_a_missing_compiler_is_named(tmp_path: Path) -> None:
    done = build(CC="no-such-compiler", OUT=str(tmp_path))
    assert done.returncode == 1
    assert done.stderr.splitlines()[-1].startswith(
        "autograd_opt cannot be built: no C compiler, 'no-such-compiler' is not on the PATH"
    )
    assert "Traceback" not in done.stderr


def test_an_old_python_is_named() -> None:
    program = (
        "import sys; sys.version_info = (3, 10, 13, 'final', 0); sys.argv = ['setup.py', '--version'];"
        "exec(compile(open('setup.py').read(), 'setup.py', 'exec'))"
    )
    done = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert "autograd_opt cannot be built: it needs Python 3.11 or newer" in done.stderr.splitlines()[-1]


@pytest.mark.skipif(shutil.which("make") is None, reason="make is not installed")
def test_make_builds_anew_whenever_a_compiled_part_has_changed() -> None:
    printed = subprocess.run(["make", "-npq", "clean"], cwd=ROOT, capture_output=True, text=True, check=False).stdout
    (line,) = [line for line in printed.splitlines() if line.startswith("SOURCES := ")]
    parts = [file for folder in ("autograd_opt", "passes") for file in (ROOT / folder).rglob("*.p[yx][xdi]")
             if file.suffix != ".pyi"]
    assert len(parts) > 30
    assert set(line.split()[2:]) == {str(file.relative_to(ROOT)) for file in parts}


def test_one_version_everywhere() -> None:
    import importlib.metadata

    import autograd_opt

    assert importlib.metadata.version("autograd_opt") == autograd_opt.__version__


@pytest.mark.skipif(sys.platform != "linux", reason="threads are counted in /proc")
def test_importing_starts_no_thread() -> None:
    """A forked process would wait for them: the kernels of torch that run in several threads would never end."""
    program = ("import os, numpy, torch; before = len(os.listdir('/proc/self/task')); import autograd_opt.cli.verify\n"
               "print(len(os.listdir('/proc/self/task')) - before)")
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True,
                          env={**os.environ, "OMP_NUM_THREADS": "2"})
    assert done.stdout == "0\n"
