"""Compiled modules and the mapping of folders to packages; everything else is in pyproject.toml."""

from __future__ import annotations

import os
import shutil
import sys
import sysconfig
from pathlib import Path

from setuptools import Extension, find_packages, setup
from setuptools.command.build_ext import build_ext
from setuptools.errors import CCompilerError, ExecError, PlatformError

OLDEST, FIRST_UNTESTED = (3, 11), (3, 14)
DEBUG = os.environ.get("AUTOGRAD_OPT_DEBUG_BUILD") == "1"
SANITIZER = os.environ.get("AUTOGRAD_OPT_SANITIZER", "")
"""A sanitizer of the compiler's, `address` or `undefined`: `scripts/variant.py` builds and runs tests with it."""
PROFILE = os.environ.get("AUTOGRAD_OPT_PROFILE", "")
"""`record` builds modules that count what is run, `use` lays code out by those counts: 4 % of `algorithms`.

`make` does both, with `scripts/training.py` between; without either, code is laid out as the compiler guesses.
"""
LEVEL = os.environ.get("AUTOGRAD_OPT_LEVEL", "1" if SANITIZER else "0" if DEBUG else "2")
"""How much the compiler optimizes: 0 takes a sixth of the time of 2, and will do where only tests run.

With 3 the code is a sixth larger, and programs are 1 to 2 % slower, since most of it runs once in a step; with s, the
smallest, they are 6 % slower.
"""
DIRECTIVES = {
    "language_level": 3,
    "boundscheck": DEBUG,
    "wraparound": False,  # a negative index is a bug, which the debug build shows
    "initializedcheck": DEBUG,
    "show_performance_hints": not DEBUG,
    "cdivision": True,
    "binding": True,
    "embedsignature": True,
    "autotestdict": False,  # no __test__ in the modules: stubs need not name it
}
FOLDERS = {"passes": "autograd_opt.passes", "benchmarks": "autograd_opt.benchmarks"}
"""Top-level folders and the package that each is installed as; never under its own name."""
OPTIONAL = {"autograd_opt.abi.kernels"}
"""Modules in C++: without a compiler for it everything works, some of it through longer ways."""
ROUNDED = "autograd_opt.plans.blocks"
"""The module whose products and sums are rounded one by one, as torch's are, on every processor; it is not profiled."""
PROFILING = {
    "record": ["-fprofile-generate", "-fprofile-update=single"],
    # a function that was not run is compiled as ever; one that has changed since is not laid out by old counts
    "use": ["-fprofile-use", "-fprofile-partial-training", "-Wno-missing-profile", "-Wno-coverage-mismatch"],
}


def stop(reason: str) -> SystemExit:
    return SystemExit(f"autograd_opt cannot be built: {reason}")


def packages() -> list[str]:
    found = find_packages(include=["autograd_opt", "autograd_opt.*"])
    for folder, package in FOLDERS.items():
        found += [package, *(f"{package}.{name}" for name in find_packages(folder, exclude=["commits"]))]
    return found


def compiled_modules() -> list[Extension]:
    """One extension for each .pyx file, named by the package that its folder is installed as."""
    places = [*Path("autograd_opt").rglob("*.pyx"), *(f for d in FOLDERS for f in Path(d).rglob("*.pyx"))]
    extensions = []
    for source in sorted(places):
        first, *rest = source.with_suffix("").parts
        name = ".".join([FOLDERS.get(first, first), *rest])
        flags = [f"-O{LEVEL}"]
        sanitizer = [f"-fsanitize={SANITIZER}", "-fno-sanitize-recover=undefined"] if SANITIZER else []
        if os.name == "posix":
            flags.append("-g" if SANITIZER else "-g0")  # Python's own flags ask for symbols: two thirds of a wheel
        if sys.platform == "linux":
            flags.append("-fno-plt")  # calls of Python's functions without a jump between: 2 % of `algorithms`
        if name in OPTIONAL and os.name == "posix":
            flags.append("-std=c++17")
        if name == ROUNDED and os.name == "posix":
            flags += ["-O3"] if LEVEL == "2" else []  # its loops are worth unrolling
            flags += ["-ffp-contract=off", "-fno-math-errno", "-fno-trapping-math"]
        else:
            flags += PROFILING.get(PROFILE, [])
        counted = PROFILING["record"] if PROFILE == "record" else []
        module = Extension(name, [str(source)], include_dirs=["autograd_opt/abi"], extra_compile_args=flags + sanitizer,
                           extra_link_args=sanitizer + counted, optional=name in OPTIONAL)
        # The passes' loops run without the interpreter lock, which the error of a None needs.
        module.cython_directives = {"nonecheck": DEBUG and first == "autograd_opt"}
        extensions.append(module)
    if not extensions:
        raise stop("no .pyx files beside setup.py; build from a complete checkout or source distribution")
    return extensions


def compiler() -> str:
    """The C compiler that will be called."""
    configured = os.environ.get("CC") or sysconfig.get_config_var("CC") or "cc"
    return configured.split()[0]


class BuildExtensions(build_ext):
    """build_ext that says in one sentence what a machine lacks."""

    def initialize_options(self) -> None:
        super().initialize_options()
        self.parallel = True

    def finalize_options(self) -> None:
        from Cython.Build import cythonize

        # Below build/, each kind in a folder of its own: C text is reused while it is up to date.
        folder = "build/cython-debug" if DEBUG else "build/cython"
        self.distribution.ext_modules = cythonize(
            self.distribution.ext_modules, compiler_directives=DIRECTIVES, build_dir=folder, quiet=True,
            nthreads=(os.cpu_count() or 1) if sys.platform == "linux" else 0,  # elsewhere a process would start anew
        )
        super().finalize_options()
        if PROFILE:     # counts are found beside the object files, so these are in one place both times
            self.build_temp = "build/objects"
            self.force = True
        if PROFILE == "record":
            shutil.rmtree("build/objects", ignore_errors=True)      # counts of other code

    def run(self) -> None:
        if os.name == "posix" and shutil.which(compiler()) is None:
            raise stop(
                f"no C compiler, {compiler()!r} is not on the PATH. Install one (Debian, Ubuntu: apt install gcc; "
                "Fedora: dnf install gcc; macOS: xcode-select --install) or name yours in the variable CC."
            )
        header = Path(sysconfig.get_paths()["include"], "Python.h")
        if not header.exists():
            raise stop(
                f"{header} is missing. Install the headers of this Python "
                "(Debian, Ubuntu: apt install python3-dev; Fedora: dnf install python3-devel)."
            )
        try:
            super().run()
        except (CCompilerError, ExecError, PlatformError) as error:
            raise stop(f"the C compiler {compiler()!r} failed: {error}") from None


found = sys.version.split()[0]
if sys.version_info < OLDEST:
    raise stop(f"it needs Python {OLDEST[0]}.{OLDEST[1]} or newer, this is {found} ({sys.executable}).")
if sys.version_info[:2] >= FIRST_UNTESTED:
    raise stop(f"it needs a Python before {FIRST_UNTESTED[0]}.{FIRST_UNTESTED[1]}, this is {found} ({sys.executable}).")
if sysconfig.get_config_var("Py_GIL_DISABLED"):
    raise stop(f"it needs a Python with the global interpreter lock, this is free-threaded ({sys.executable}).")

setup(
    packages=packages(),
    package_dir={package: folder for folder, package in FOLDERS.items()},
    package_data={"": ["*.pyx", "*.pxd", "*.h", "*.pyi", "py.typed", "*.js", "*.css"]},
    include_package_data=False,
    ext_modules=compiled_modules(),
    cmdclass={"build_ext": BuildExtensions},
)
