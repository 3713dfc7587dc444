"""What an installation contains: built, installed and imported in fresh virtual environments.

torch and the other dependencies come from the environment that runs the tests, through a
.pth file, so that nothing is downloaded; only the package itself is installed.
"""

from __future__ import annotations

import os
import subprocess
import sys
import sysconfig
import tarfile
import venv
import zipfile
from pathlib import Path

import pytest

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("installed")]         # one process builds, once
ROOT = Path(__file__).resolve().parents[2]
SHIPPED = ("pyproject.toml", "setup.py", "MANIFEST.in", "README.md", "LICENSE", "autograd_opt", "passes", "benchmarks")
PROBE = """
import importlib.util, sys
import autograd_opt, autograd_opt.passes._cse, autograd_opt.benchmarks.workloads
assert importlib.util.find_spec("passes") is None, "a top-level `passes` was installed"
assert importlib.util.find_spec("benchmarks") is None, "a top-level `benchmarks` was installed"
t = autograd_opt.tensor([1.0, 2.0])
with autograd_opt.AutogradGraph(optimize=True):
    ((t + 1) * (t + 1)).sum().backward()
assert t.grad.tolist() == [4.0, 6.0]
print(autograd_opt.__file__)
print(sys.modules["autograd_opt.passes._cse"].__file__)
"""


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the sources alone, as a clone would have them."""
    folder = tmp_path_factory.mktemp("source")
    for name in SHIPPED:
        for file in [ROOT / name, *(ROOT / name).rglob("*")]:
            built = file.suffix in (".so", ".c", ".pyc") or "__pycache__" in file.parts
            if file.is_file() and not built:
                target = folder / file.relative_to(ROOT)
                target.parent.mkdir(parents=True, exist_ok=True)
                target.write_bytes(file.read_bytes())
    return folder


def new_environment(folder: Path) -> Path:
    """A virtual environment that sees this one's packages, but not this package; its Python."""
    venv.create(folder, with_pip=False, symlinks=True)
    python = folder / "bin" / "python"
    found = subprocess.run([python, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))"],
                           capture_output=True, text=True, check=True)
    site = Path(found.stdout.strip())
    hosts = {sysconfig.get_path("purelib"), sysconfig.get_path("platlib")}
    for host in hosts:
        for entry in Path(host).iterdir():
            # .pth files are not linked: one of them may be this package's editable installation
            ours = "autograd_opt" in entry.name or entry.suffix == ".pth"
            if not ours and not (site / entry.name).exists():
                (site / entry.name).symlink_to(entry)
    return python


def install(python: Path, *arguments: str, cwd: Path) -> None:
    run(python, "-m", "pip", "install", "--no-deps", "--no-build-isolation", "--no-index", *arguments, cwd=cwd)


def run(python: Path, *arguments: str, cwd: Path) -> str:
    """Run Python without this environment's variables; its output, or the test fails with it."""
    clean = {k: v for k, v in os.environ.items() if k not in ("PYTHONPATH", "PYTHONHOME")}
    clean["AUTOGRAD_OPT_LEVEL"] = "0"        # compiles in a seventh of the time; nothing is timed here
    command = [str(python), *arguments]
    done = subprocess.run(command, cwd=cwd, env=clean, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def distributions(source: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Wheel and source distribution, the wheel built from the source distribution as `python -m build` does."""
    out = tmp_path_factory.mktemp("dist")
    build = "from setuptools import build_meta as b; import sys; print(getattr(b, sys.argv[1])(sys.argv[2]))"
    run(Path(sys.executable), "-c", build, "build_sdist", str(out), cwd=source)
    (sdist,) = out.glob("*.tar.gz")
    unpacked = tmp_path_factory.mktemp("unpacked")
    with tarfile.open(sdist) as archive:
        # Python 3.11 has the filter from its fourth patch release on
        archive.extractall(unpacked, **({"filter": "data"} if hasattr(tarfile, "data_filter") else {}))
    (folder,) = unpacked.iterdir()
    run(Path(sys.executable), "-c", build, "build_wheel", str(out), cwd=folder)
    (wheel,) = out.glob("*.whl")
    return {"wheel": wheel, "sdist": sdist}


def test_the_wheel_holds_one_top_level_package(distributions: dict[str, Path]) -> None:
    names = zipfile.ZipFile(distributions["wheel"]).namelist()
    tops = {name.split("/")[0] for name in names}
    assert {t for t in tops if not t.endswith(".dist-info")} == {"autograd_opt"}
    for wanted in ("py.typed", "graph/node.pyi", "graph/node.pyx", "graph/node.pxd", "graph/tape.pyx",
                   "passes/_cse.pyi", "passes/_cse.pyx"):
        assert f"autograd_opt/{wanted}" in names
    for module in ("graph/node", "record/recorder", "engine/executor", "passes/_cse", "passes/_prune"):
        assert any(n.startswith(f"autograd_opt/{module}.") and n.endswith(".so") for n in names), module


def test_the_source_distribution_is_complete_and_holds_nothing_built(
    source: Path, distributions: dict[str, Path],
) -> None:
    with tarfile.open(distributions["sdist"]) as archive:
        names = ["/".join(n.split("/")[1:]) for n in archive.getnames()]
    for wanted in ("setup.py", "pyproject.toml", "LICENSE", "passes/_cse.pyx", "autograd_opt/graph/tape.pyx"):
        assert wanted in names
    built = (".so", ".c", ".pyc")            # an editable installation leaves them in the sources
    packages = [file for folder in ("autograd_opt", "passes", "benchmarks") for file in (source / folder).rglob("*")]
    assert not {str(file.relative_to(source)) for file in packages
                if file.is_file() and file.suffix not in built} - set(names)
    assert not [n for n in names if n.endswith(built)]


def test_a_regular_installation(distributions: dict[str, Path], tmp_path: Path) -> None:
    python = new_environment(tmp_path / "venv")
    install(python, str(distributions["wheel"]), cwd=tmp_path)
    first, second = run(python, "-c", PROBE, cwd=tmp_path).split()
    assert Path(first).is_relative_to(tmp_path / "venv")
    assert Path(second).is_relative_to(tmp_path / "venv")


def test_an_editable_installation(source: Path, tmp_path: Path) -> None:
    python = new_environment(tmp_path / "venv")
    install(python, "-e", str(source), cwd=tmp_path)
    first, second = run(python, "-c", PROBE, cwd=tmp_path).split()
    assert Path(first).parent == source / "autograd_opt"
    assert Path(second).parent == source / "passes"


def test_the_command_is_installed(distributions: dict[str, Path], tmp_path: Path) -> None:
    python = new_environment(tmp_path / "venv")
    install(python, str(distributions["wheel"]), cwd=tmp_path)
    printed = subprocess.run([python.parent / "autograd-opt", "--help"], capture_output=True, text=True, check=True)
    assert "demo" in printed.stdout
    assert "bench" in printed.stdout
