"""Build and test every Python with every torch that can be had, and write docs/matrix.md.

    python scripts/matrix.py                                every cell of CELLS, then the table
    python scripts/matrix.py --cell 3.13:2.14.1             one cell; its results replace those of its last run
    python scripts/matrix.py --steps import demo engine     some steps of each cell
    python scripts/matrix.py --cell 3.13:2.15.0 --brief     import, demo, doctor and some tests; the page stays as it is
    python scripts/matrix.py --table                        the table alone, from the results at hand

A Python is found as `python3.13`, or below `--pythons` (a folder as pyenv's, with `3.13.0/bin/python`).  Each Python
gets an environment with this checkout in it, built in place, and each torch a folder of its own beside it, so that a
wheel is installed once.  The product is built without torch.

A wheel of torch may want the CUDA libraries of NVIDIA, gigabytes that nothing here calls.  Where they are missing,
empty libraries of the same names take their places: each function that torch asks for is there and returns 0, and the
driver says that there is no device.  They exist for these tests alone, in the folder of the environments.
"""

from __future__ import annotations

import argparse
import functools
import json
import os
import re
import shutil
import subprocess
import sys
import time
import tomllib
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from datetime import date
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

ROOT = Path(__file__).resolve().parents[1]
RESULTS = ROOT / "build" / "matrix"
PAGE = ROOT / "docs" / "matrix.md"
OUTCOMES = ROOT / "docs" / "results" / "matrix.json"
"""The last outcome of each step of each cell, from which the page is made."""
CELLS = [(python, torch) for python in ("3.11", "3.12", "3.13")
         for torch in ("2.12.1", "2.13.0", "2.14.1", "2.15.0")]
"""Python and torch of each cell; the newest torch that has been run is `NEWEST_TORCH` in `_common/environment.py`."""
TORCH_IMPORTS = ["filelock", "typing_extensions", "networkx", "jinja2", "fsspec"]
"""What torch imports, without its CUDA libraries."""
PYTEST = ["-m", "pytest", "-q", "-n", "auto", "-p", "no:randomly", "-m", "not slow and not long and not gpu"]
REFUSALS = {"cudaGetDeviceCount": 100, "cuInit": 100, "nvmlInit_v2": 999}
"""Functions of the empty libraries that say more than 0: there is no device, there is no driver."""


class Missing(Exception):
    """What a cell needs and this machine cannot have: no fault of the package."""


# ----- environments -----
def packages() -> list[str]:
    """What this package and its tests need, and what torch does, without torch."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    wanted = project["dependencies"] + project["optional-dependencies"]["test"] + TORCH_IMPORTS
    return [name for name in dict.fromkeys(wanted) if not name.startswith("torch>")]


def run(command: list[str], log: Path, environment: dict[str, str] | None = None, limit: float = 3600) -> int:
    """Run a command in this checkout with its output in a file; its exit code, 124 where it takes too long."""
    log.parent.mkdir(parents=True, exist_ok=True)
    with log.open("w") as out:
        try:
            return subprocess.run(command, cwd=ROOT, env={**os.environ, **(environment or {})}, stdout=out,
                                  stderr=subprocess.STDOUT, timeout=limit, check=False).returncode
        except subprocess.TimeoutExpired:
            return 124


def interpreter(version: str, pythons: Path | None) -> str | None:
    """Find the path of a Python of this version, None where there is none."""
    found = sorted(pythons.glob(f"{version}.*/bin/python")) if pythons else []
    candidates = [str(path) for path in reversed(found)] + [shutil.which(f"python{version}") or ""]
    for path in filter(None, candidates):
        said = subprocess.run([path, "-c", "import sys; print(*sys.version_info[:2], sep='.')"],
                              capture_output=True, text=True, check=False).stdout.strip()
        if said == version:
            return path
    return None


@functools.cache
def environment_of(version: str, folder: Path, made: str) -> Path | None:
    """Make an environment of the Python `made` without torch, and build this checkout in place; None if that fails."""
    python = folder / f"py{version}" / "bin" / "python"
    if not python.exists():
        if run([made, "-m", "venv", str(folder / f"py{version}")], RESULTS / f"{version}-venv.log"):
            raise Missing("no environment")
        pip = [str(python), "-m", "pip", "install", "-q"]
        if run([*pip, *packages()], RESULTS / f"{version}-packages.log", limit=900):
            shutil.rmtree(folder / f"py{version}", ignore_errors=True)
            raise Missing("no packages")
    here = list((folder / f"py{version}").glob("lib/python*/site-packages/autograd_opt-*.dist-info"))
    build = ["setup.py", "-q", "build_ext", "--inplace"] if here else \
        ["-m", "pip", "install", "-q", "--no-deps", "--no-build-isolation", "-e", "."]
    return python if run([str(python), *build], RESULTS / f"{version}-build.log") == 0 else None


def torch_of(python: Path, version: str) -> dict[str, str]:
    """Install this torch, and return the variables with which this Python imports it."""
    folder = python.parents[1] / "torch" / version
    if not folder.exists():
        log = RESULTS / f"{python.parents[1].name}-torch-{version}.log"
        pip = [str(python), "-m", "pip", "install", "-q", "--no-deps", "--target", str(folder)]
        if run([*pip, f"torch=={version}"], log, limit=900):
            shutil.rmtree(folder, ignore_errors=True)
            raise Missing(f"no torch {version}")
    stubs = empty_libraries(folder / "torch", folder / "empty")
    return {"PYTHONPATH": str(folder), "LD_LIBRARY_PATH": str(stubs)}


# ----- empty libraries in place of NVIDIA's -----
def read(*arguments: str) -> str:
    return subprocess.run(["readelf", "-W", *arguments], capture_output=True, text=True, check=False).stdout


def empty_libraries(torch: Path, folder: Path) -> Path:
    """Build the libraries that torch's own need and that are not installed, with the functions that torch asks for."""
    if folder.exists():
        return folder
    folder.mkdir(parents=True)
    if not (shutil.which("readelf") and shutil.which("gcc")):
        return folder                                    # another platform, whose wheels want none
    libraries = [*(torch / "lib").glob("*.so*"), *torch.glob("_C*.so")]
    needed: set[str] = set()
    versions: dict[str, set[tuple[str, str]]] = {}       # library -> its (function, version) that are asked for
    defined: set[str] = set()
    asked: set[str] = set()
    for library in libraries:
        needed |= set(re.findall(r"\(NEEDED\).*\[(.+)\]", read("-d", str(library))))
        homes: dict[str, str] = {}                       # version -> the library that has it
        home = ""
        for line in read("-V", str(library)).splitlines():
            if found := re.search(r" File: (\S+) ", line):
                home = found[1]
            elif home and (found := re.search(r" Name: (\S+) ", line)):
                homes[found[1]] = home
        for line in read("--dyn-syms", str(library)).splitlines():
            words = line.split()
            if len(words) < 8 or not words[0].endswith(":"):
                continue
            name, _, version = words[7].partition("@")
            if words[6] != "UND":
                defined.add(name)
            elif version:
                versions.setdefault(homes.get(version.lstrip("@"), ""), set()).add((name, version.lstrip("@")))
            elif words[4] != "WEAK":
                asked.add(name)
    ours = {library.name for library in libraries}
    system = subprocess.run(["/sbin/ldconfig", "-p"], capture_output=True, text=True, check=False).stdout
    missing = sorted(name for name in needed - ours if f"\t{name} " not in system)
    rest = {name for name in asked - defined if not re.match(r"_?Py|_Z", name)}
    for k, name in enumerate(missing):
        build_empty(folder, name, versions.get(name, set()), rest if k == 0 else set())
    return folder


def build_empty(folder: Path, name: str, versioned: set[tuple[str, str]], plain: set[str]) -> None:
    """One such library, its functions with the versions of the real one."""
    source, script = folder / f"{name}.c", folder / f"{name}.map"
    functions = sorted({function for function, _ in versioned} | plain)
    source.write_text("".join(f"long {f}(void) {{ return {REFUSALS.get(f, 0)}; }}\n" for f in functions))
    parts: dict[str, list[str]] = {}
    for function, version in sorted(versioned):
        parts.setdefault(version, []).append(function)
    script.write_text("".join(f"{version} {{ {' '.join(f'{f};' for f in fs)} }};\n" for version, fs in parts.items()))
    options = [f"-Wl,--version-script,{script}"] if parts else []
    subprocess.run(["gcc", "-shared", "-fPIC", "-nostdlib", "-fno-builtin", "-w", f"-Wl,-soname,{name}", *options, "-o",
                    str(folder / name), str(source)], check=True)
    source.unlink()
    script.unlink()


# ----- steps -----
@dataclass
class Outcome:
    """What came of a step: counts, and the names of what failed."""

    passed: int = 0
    failed: int = 0
    skipped: int = 0
    names: list[str] = field(default_factory=list)
    again: list[str] = field(default_factory=list)
    """Tests that failed in the whole run and passed when they were run again, without the others."""
    seconds: float = 0.0


Step = Callable[[str, dict[str, str], Path], Outcome]


def program(*words: str) -> Step:
    """A step that is one command, which passes or fails."""
    def step(python: str, environment: dict[str, str], log: Path) -> Outcome:
        code = run([python, *words], log, environment, 900)
        return Outcome(int(code == 0), int(code != 0), names=[f"exit code {code}"] if code else [])
    return step


def tests(*folders: str) -> Step:
    """A step that is a run of pytest."""
    def step(python: str, environment: dict[str, str], log: Path) -> Outcome:
        report = log.with_suffix(".xml")
        report.unlink(missing_ok=True)
        run([python, *PYTEST, f"--junitxml={report}", *folders], log, environment)
        if not report.exists():
            return Outcome(failed=1, names=["pytest did not end"])
        outcome = counted(report)
        if outcome.names:
            second = report.with_name(f"{report.stem}-again.xml")
            run([python, *PYTEST, f"--junitxml={second}", *outcome.names], second.with_suffix(".log"), environment)
            still = counted(second).names if second.exists() else outcome.names
            outcome.again = [name for name in outcome.names if name not in still]
            outcome.names, outcome.failed = still, len(still)
            outcome.passed += len(outcome.again)
        return outcome
    return step


def counted(report: Path) -> Outcome:
    """What a run of pytest has written; tests by the names that pytest takes."""
    outcome, failed = Outcome(), dict[str, None]()
    for case in ElementTree.parse(report).iter("testcase"):
        kinds = {child.tag for child in case}
        if kinds & {"failure", "error"}:
            failed[f"{case.get('classname', '').replace('.', '/')}.py::{case.get('name', '')}"] = None
        elif "skipped" in kinds:
            outcome.skipped += 1
        else:
            outcome.passed += 1
    outcome.names, outcome.failed = list(failed), len(failed)
    return outcome


def operators(python: str, environment: dict[str, str], log: Path) -> Outcome:
    """Five samples of each entry of this torch's own database of operators."""
    folder = log.with_suffix("")
    run([python, "-m", "tests.opinfo_sweep", "--samples", "5", "--fresh"], log,
        {**environment, "OPINFO_RESULTS": str(folder)})
    outcome = Outcome()
    entries = [json.loads(line) for file in folder.glob("*.jsonl") for line in file.read_text().splitlines()]
    for entry in entries:
        outcome.passed += entry.get("passed", 0) + entry.get("rounding", 0)
        outcome.failed += entry.get("failed", 0)
        outcome.skipped += entry.get("skipped", 0)
        if entry.get("failed"):
            outcome.names.append(entry["op"])
    return outcome


PROBE = "import autograd_opt, torch, sys; print(sys.version.split()[0], torch.__version__)"
STEPS: dict[str, Step] = {
    "import": program("-W", "error", "-c", PROBE),
    "demo": program("-m", "autograd_opt", "demo", "--repeats", "5", "--out", "build/matrix/demo"),
    "doctor": program("-m", "autograd_opt", "doctor"),
    "engine": tests("tests/engine"),
    "optimizer": tests("tests/optimizer"),
    "hazards": tests("tests/hazards"),
    "operators": operators,
}
"""Name of a step -> what does it, given Python, variables and the file for its output."""
BRIEF: dict[str, Step] = {name: STEPS[name] for name in ("import", "demo", "doctor", "optimizer")} | {
    "sample": tests(*(f"tests/engine/test_{name}.py" for name in (
        "backward", "views", "inplace", "function", "hooks", "weak_references", "monitoring", "metadata"))),
}
"""The steps of `--brief`, minutes where all steps take a quarter of an hour."""


def cell(version: str, torch: str, steps: dict[str, Step], folder: Path, pythons: Path | None, keep: bool) -> bool:
    """Run the steps of one cell, and keep their outcomes for the page; False if something failed.

    Nothing fails where the Python or the torch cannot be had: that is said.
    """
    name = f"{version}-{torch}"
    try:
        made = interpreter(version, pythons)
        if made is None:
            raise Missing(f"no Python {version}")
        python = environment_of(version, folder, made)
        environment = torch_of(python, torch) if python else {}
    except Missing as missing:
        print(f"{name}: {missing} on this machine, nothing was run; see {RESULTS}", flush=True)
        return True
    if python is None:
        print(f"{name}: not built, see {RESULTS}", flush=True)
        return False
    right = True
    for step, does in steps.items():
        begin = time.monotonic()
        outcome = does(str(python), environment, RESULTS / name / f"{step}.log")
        outcome.seconds = round(time.monotonic() - begin, 1)
        if keep:
            kept({"python": version, "torch": torch, "step": step, "date": str(date.today()), **asdict(outcome)})
        print(f"{name} {step}: {outcome.passed} passed, {outcome.failed} failed, {outcome.skipped} skipped "
              f"({outcome.seconds:.0f} s)", *outcome.names[:40], sep="\n  ", flush=True)
        right = right and not outcome.failed
    return right


# ----- the table -----
def kept(said: dict[str, Any]) -> None:
    """Put an outcome in the place of that of the last run."""
    def place(of: dict[str, Any]) -> tuple[str, str, int]:
        return of["python"], of["torch"], list(STEPS).index(of["step"])
    rest = [old for old in json.loads(OUTCOMES.read_text(encoding="utf-8")) if place(old) != place(said)]
    lines = ",\n".join(json.dumps(one) for one in sorted([*rest, said], key=place))
    OUTCOMES.write_text(f"[\n{lines}\n]\n", encoding="utf-8")


def table() -> str:
    """The page: counts of each cell, and the names of what failed."""
    found = json.loads(OUTCOMES.read_text(encoding="utf-8"))
    lines = ["# Pythons and torches", "",
             "`make matrix` writes this page. For each Python and each available torch it builds the package, runs the "
             "tests, and compares results with the eager mode of that torch. A cell shows passed / failed tests "
             "(skipped tests in brackets). The column *operators* counts samples of torch's own database of operators, "
             "five for each entry. Slow tests are left out.", "",
             f"| Python | torch | {' | '.join(STEPS)} | date |", f"|---|---|{'---|' * (len(STEPS) + 1)}"]
    cells = sorted({(f["python"], f["torch"]) for f in found})
    for python, torch in cells:
        here = {f["step"]: f for f in found if (f["python"], f["torch"]) == (python, torch)}
        words = [text(here[step]) if step in here else "" for step in STEPS]
        lines.append(f"| {python} | {torch} | {' | '.join(words)} | {min(f['date'] for f in here.values())} |")
    lines += ["", "## What failed", ""]
    failed = [f for f in found if f["failed"]]
    lines += [f"- Python {f['python']}, torch {f['torch']}, {f['step']}: {', '.join(f'`{n}`' for n in f['names'])}"
              for f in failed] or ["Nothing."]
    again = [f for f in found if f.get("again")]
    if again:
        lines += ["", "## What failed in the whole run and passed alone", ""]
        for f in again:
            files = sorted({name.partition("::")[0] for name in f["again"]})
            lines.append(f"- Python {f['python']}, torch {f['torch']}, {f['step']}: {len(f['again'])} tests of "
                         + ", ".join(f"`{file}`" for file in files))
    return "\n".join(lines) + "\n"


def text(found: dict[str, Any]) -> str:
    """One field of the table."""
    if found["passed"] + found["failed"] == 1:
        return "passed" if found["passed"] else "**failed**"
    failed = f"**{found['failed']}**" if found["failed"] else "0"
    return f"{found['passed']} / {failed}" + (f" ({found['skipped']})" if found["skipped"] else "")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cell", action="append", metavar="PYTHON:TORCH", help="these cells instead of all")
    parser.add_argument("--steps", nargs="+", choices=STEPS, default=list(STEPS))
    parser.add_argument("--brief", action="store_true", help=f"{', '.join(BRIEF)}; the page is not written")
    parser.add_argument("--folder", type=Path, default=ROOT / "build" / "environments", help="where environments lie")
    parser.add_argument("--pythons", type=Path, default=Path.home() / ".pyenv" / "versions", help="a folder of Pythons")
    parser.add_argument("--table", action="store_true", help="write the table alone")
    options = parser.parse_args()
    cells = [(c.partition(":")[0], c.partition(":")[2]) for c in options.cell] if options.cell else CELLS
    if options.brief:
        os.environ.setdefault("AUTOGRAD_OPT_LEVEL", "0")         # the compiler's own work is tried elsewhere
    steps = BRIEF if options.brief else {name: STEPS[name] for name in options.steps}
    pythons = options.pythons if options.pythons.exists() else None
    failed = [] if options.table else \
        [v for v, t in cells if not cell(v, t, steps, options.folder.resolve(), pythons, not options.brief)]
    if not options.brief:
        PAGE.write_text(table(), encoding="utf-8")
    return int(bool(failed))


if __name__ == "__main__":
    sys.exit(main())
