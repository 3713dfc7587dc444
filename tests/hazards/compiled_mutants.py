"""Guards inside the compiled modules, each with the case that notices when it is broken.

`build` copies the package, puts a switch in place of each guard and compiles the copy once;
`main` then runs, inside that copy, each killer with its guard broken.
"""

from __future__ import annotations

import gc
import importlib
import os
import re
import shutil
import subprocess
import sys
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from tests.hazards.conditions import CONDITIONS

ROOT = Path(__file__).resolve().parents[2]
SWITCH = "cdef int mutant = 0\n\n\ndef set_mutant(int k):\n    global mutant\n    mutant = k\n\n\n"


@dataclass
class Guard:
    """`right` occurs once in the compiled modules; `switched` opens it where `mutant` is its number, @."""

    right: str
    switched: str
    killer: str


KEY = "e = key_of(tape, op, count, na, nb, nc, operands, attrs, req, grad)\n        "
"""Which of the two places that look a value up."""
GUARDS = [
    # what may be handed out
    Guard(
        "if node.flags & (EXPOSED | OVERWRITTEN | NO_MERGE):\n        return None",
        "if mutant != @ and node.flags & (EXPOSED | OVERWRITTEN | NO_MERGE):\n        return None",
        "10 value of inference mode written",
    ),
    Guard(
        "if tape.exposed and tape.shares_exposed(t):\n        node.mark",
        "if mutant != @ and tape.exposed and tape.shares_exposed(t):\n        node.mark",
        "10 dlpack of a value that a rule reads",
    ),
    Guard(
        "if tape.exposed and not unseen(tape, operand):",
        "if mutant != @ and tape.exposed and not unseen(tape, operand):",
        "10 dlpack of an operand after two functions",
    ),
    Guard(
        "if t is None or version_of(t) != node.version:",
        "if t is None or mutant != @ and version_of(t) != node.version:",
        "11 constants are two objects",
    ),
    Guard(
        "return ao_method0(lazy_clone, value)",
        "return base.detach(value) if mutant == @ else ao_method0(lazy_clone, value)",
        "11 two outputs are two objects",
    ),
    Guard(
        KEY + "if e != NULL and e.first != NULL and not op.flags & (VIEW | FILLS):",
        KEY + "if e != NULL and e.first != NULL and (mutant == @ or not op.flags & (VIEW | FILLS)):",
        "12 two views of one base",
    ),
    # the key
    Guard(
        "memcpy(key, &number, 8)",
        "memcpy(key, &number, 8)\n        key[0] = <int64_t>number if mutant == @ else key[0]",
        "03 signed zeros multiply",
    ),
    Guard(
        "if nb is not None and op.flags & COMMUTATIVE and kb < na.vn:",
        "if nb is not None and (mutant == @ or op.flags & COMMUTATIVE) and kb < na.vn:",
        "16 difference order, equal shapes",
    ),
    Guard(
        "and a.stride() != b.stride()",
        "and mutant != @ and a.stride() != b.stride()",
        "16 strides of a commuted sum",
    ),
    Guard(
        "cdef uint64_t kind = (<uint64_t>op.id << 8) | GENERAL |",
        "cdef uint64_t kind = (0 if mutant == @ else <uint64_t>op.id << 8) | GENERAL |",
        "06 another operator",
    ),
    Guard(
        "(req << 3) | (grad << 2)\n    if wide",
        "(0 if mutant == @ else (req << 3) | (grad << 2))\n    if wide",
        "09 no_grad value held",
    ),
    Guard(
        "kind |= default_number()",
        "kind |= 0 if mutant == @ else default_number()",
        "04 default dtype",
    ),
    Guard(
        "kind |= (rest & LOW) << 24\n    if changes and second < first:\n        first, second = second, first\n"
        "    while True:\n        e = find(tape.table, first, second, kind)\n"
        "        if e.first == NULL:\n            return e\n        if same_rest(",
        "kind |= (0 if mutant == @ else rest & LOW) << 24\n    if changes and second < first:\n"
        "        first, second = second, first\n    while True:\n        e = find(tape.table, first, second, kind)\n"
        "        if e.first == NULL:\n            return e\n        if mutant == @ or same_rest(",
        "06 roll",
    ),
    # what a write does to a value
    Guard(
        "if tape.optimize:\n        if version_of(t) != node.version:",
        "if tape.optimize:\n        if mutant != @ and version_of(t) != node.version:",
        "10 write to an intermediate under no_grad",
    ),
    Guard(
        "if version != now.version",
        "if mutant != @ and version != now.version",
        "10 through detach of a leaf",
    ),
    Guard(
        "or node.flags & (EXPOSED | WROTE):\n",
        "or mutant != @ and node.flags & (EXPOSED | WROTE):\n",
        "10 through .data of a leaf",
    ),
    Guard(
        "if tape.optimize and (borrowed(t) or tape.exposed and tape.shares_exposed(t)):\n            node.flags",
        "if tape.optimize and (mutant != @ and borrowed(t) or "
        "tape.exposed and tape.shares_exposed(t)):\n            node.flags",
        "10 memory of numpy",
    ),
    Guard(
        "return memory in self.exposed",
        "return mutant != @ and memory in self.exposed",
        "10 numpy of a detached alias",
    ),
    Guard(
        "if entry is not None and mark != (",
        "if mutant != @ and entry is not None and mark != (",
        "09 requires_grad between twins, then used",
    ),
    # what may merge before a run
    Guard("never = PINNED |", "never = (0 if mutant == @ else PINNED) |", "23 retain on both, kept graph"),
    Guard(
        "if captured is not None and (node.index in captured or",
        "if mutant != @ and captured is not None and (node.index in captured or",
        "23 gradient at one twin",
    ),
    Guard(
        "if not intact(leader) or not intact(node) or narrows(node):",
        "if mutant != @ and (not intact(leader) or not intact(node) or narrows(node)):",
        "10 written constant operand of the first twin",
    ),
    Guard(
        "if end(node.in0) is end(leader.in0) and",
        "if mutant == @ or end(node.in0) is end(leader.in0) and",
        "23 hook below merged consumers",
    ),
    # calls of modules
    Guard(
        "if version == 0 or version != found.changed:",
        "if found.changed == 0 or mutant != @ and (version == 0 or version != found.changed):",
        "tests/engine/test_calls.py::test_parameters_are_looked_up_each_time",
    ),
    Guard(
        "\n        wrote(<object>a[0])\n",
        "\n        if mutant != @: wrote(<object>a[0])\n",
        "10 constant operand written between two kept runs",
    ),
    # the run
    Guard(
        "if (node.flags & FRESH or Py_REFCNT(old) == 2",
        "if (mutant == @ or node.flags & FRESH or Py_REFCNT(old) == 2",
        "28 shared cotangent buffers",
    ),
    Guard(
        "if not task.retain and task.own:\n        spend(task.tape, node)",
        "if not task.retain and (mutant == @ or task.own):\n        spend(task.tape, node)",
        "28 first twin after a run through the second",
    ),
    Guard(
        "if not self.retain and self.own:\n                spend_twin(self.tape, node, self.id",
        "if mutant != @ and not self.retain and self.own:\n                spend_twin(self.tape, node, self.id",
        "28 second run through a twin",
    ),
    Guard(
        "and version_of(t) != node.v0:",
        "and mutant != @ and version_of(t) != node.v0:",
        "10 saved operand written",
    ),
    Guard(
        "and version_of(t) != node.v1:",
        "and mutant != @ and version_of(t) != node.v1:",
        "10 second saved operand written",
    ),
    Guard(
        "and version_of(t) != versions[i]:",
        "and mutant != @ and version_of(t) != versions[i]:",
        "10 saved number of three operands written",
    ),
    # runs
    Guard(
        "GraphTask.__new__(GraphTask, tape, retain, True, False)",
        "GraphTask.__new__(GraphTask, tape, retain, True, mutant == @ and graph.prepare(roots, targets, not retain))",
        "23 retained after a recorded run",
    ),
]


def compiled() -> dict[Path, str]:
    """The compiled modules of the package, by their paths below it, and the text of each."""
    package = ROOT / "autograd_opt"
    return {path.relative_to(package): path.read_text() for path in sorted(package.rglob("*.pyx"))}


def place(sources: dict[Path, str], text: str) -> Path:
    """The module that has `text`, once."""
    found = [path for path, source in sources.items() for _ in range(source.count(text))]
    if len(found) != 1:
        raise LookupError(f"the compiled modules have {len(found)} times {text!r}: update the mutants that quote it")
    return found[0]


def mutated() -> dict[Path, str]:
    """The modules with a switch at each guard, numbered from 1, and at each condition, numbered after them."""
    sources = compiled()
    spans: dict[Path, list[tuple[int, int, str]]] = {}
    for number, guard in enumerate(GUARDS, 1):
        path = place(sources, guard.right)
        start = sources[path].index(guard.right)
        spans.setdefault(path, []).append((start, start + len(guard.right), guard.switched.replace("@", str(number))))
    for number, c in enumerate(CONDITIONS, len(GUARDS) + 1):
        path = place(sources, c.context)
        if c.context.count(c.part) != 1:
            raise LookupError(f"{c.context!r} has {c.context.count(c.part)} times {c.part!r}: update conditions.py")
        start = sources[path].index(c.context) + c.context.index(c.part)
        spans.setdefault(path, []).append((start, start + len(c.part), c.switched(number)))
    return {path: switched(sources[path], found) for path, found in spans.items()}


def switched(source: str, spans: list[tuple[int, int, str]]) -> str:
    """`source` with each span replaced."""
    for start, stop, text in sorted(spans, reverse=True):
        source = source[:start] + text + source[stop:]
    start = next(re.finditer(r"^(?:@|cdef )", source, re.MULTILINE)).start()
    return source[:start] + SWITCH + source[start:]


def build(folder: Path) -> None:
    """Compile the package with a switch at every guard."""
    sources = mutated()
    ignore = shutil.ignore_patterns("__pycache__", *(f"{path.stem}.*.so" for path in sources))
    shutil.copytree(ROOT / "autograd_opt", folder / "autograd_opt", ignore=ignore)
    shutil.copytree(ROOT / "passes", folder / "passes", ignore=shutil.ignore_patterns("__pycache__", "*.pyx"))
    shutil.copytree(ROOT / "benchmarks", folder / "benchmarks", ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copytree(ROOT / "tests", folder / "tests", ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("pyproject.toml", "README.md"):
        shutil.copy2(ROOT / name, folder / name)
    (folder / "setup.py").write_text((ROOT / "setup.py").read_text().replace("-O3", "-O0"))
    for path, text in sources.items():
        (folder / "autograd_opt" / path).write_text(text)
    done = subprocess.run(
        [sys.executable, "setup.py", "build_ext", "--inplace"], cwd=folder, capture_output=True, text=True, check=False
    )
    if done.returncode:
        raise RuntimeError(done.stdout[-3000:] + done.stderr[-3000:])
    (folder / "autograd_opt" / "passes").symlink_to(folder / "passes")


def survives(killer: Callable[[], None]) -> bool:
    """Does `killer` pass, in a process of its own?"""
    child = os.fork()
    if child == 0:
        try:
            killer()
        except BaseException:
            os._exit(1)
        os._exit(0)
    return os.waitpid(child, 0)[1] == 0


def killed_by(killer: str) -> Callable[[], None]:
    """A case by its name, or a test by its file and name."""
    if "::" not in killer:
        return lambda: compare_case(killer)

    def run() -> None:
        import pytest

        sys.stdout.flush()
        with Path(os.devnull).open("w") as nowhere:
            os.dup2(nowhere.fileno(), 1)
            os.dup2(nowhere.fileno(), 2)
            code = pytest.main(["-q", "-x", "--tb=no", "--assert=plain", "-W", "ignore", "-p", "no:cacheprovider",
                                "-p", "no:hypothesispytest", killer])
        if code:
            raise AssertionError(killer)

    return run


def compare_case(name: str) -> None:
    """Run a case in every mode, beside torch."""
    from tests.fuzz.oracle import compare
    from tests.hazards.cases import program
    from tests.hazards.mutants import MODES

    compare(program(name), MODES)


def compiled_names() -> list[str]:
    """The names of the compiled modules."""
    return [".".join(("autograd_opt", *path.with_suffix("").parts)) for path in compiled()]


def main(words: list[str]) -> int:
    """Print the guards that nothing misses (of those whose text or killer has one of `words`); run inside the copy."""
    import torch

    import tests.hazards.mutants

    assert tests.hazards.mutants.MODES
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    gc.freeze()                                  # tests call the collector: what is imported need not be looked at
    modules = [module for module in map(importlib.import_module, compiled_names()) if hasattr(module, "set_mutant")]
    whole_guards = [(g.right.splitlines()[0], g.killer) for g in GUARDS]
    parts = [(c.part, c.killer) for c in CONDITIONS]
    alive: list[str] = []
    sound: dict[str, bool] = {}
    for k, (guard, killer) in enumerate([*whole_guards, *parts], 1):
        if words and not any(word in f"{guard} {killer}" for word in words):
            continue
        run = killed_by(killer)
        if killer not in sound:
            sound[killer] = survives(run)
        if not sound[killer]:
            alive.append(f"{killer!r} fails with every guard in place")
            continue
        for module in modules:
            module.set_mutant(k)
        if survives(run):
            alive.append(f"{guard!r} is not missed by {killer!r}")
        for module in modules:
            module.set_mutant(0)
    print("\n".join(alive))
    return len(alive)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
