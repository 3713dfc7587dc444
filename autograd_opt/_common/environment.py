"""Is this the torch and the Python that the compiled modules were made for?  And is the library needed yet?

Called before anything else is imported, so that a wrong installation is one sentence and
not a traceback from inside a compiled module.

The command line is read before torch is imported: `autograd-opt --help` takes a tenth of the time
that torch does.  In any other process `import autograd_opt` imports everything.
"""

from __future__ import annotations

import importlib
import importlib.util
import os
import re
import sys
import sysconfig
import warnings
from typing import Any

OLDEST_PYTHON, FIRST_UNTESTED_PYTHON = (3, 11), (3, 14)
OLDEST_TORCH, NEWEST_TORCH = (2, 12), (2, 15)
"""What has been tested: a newer torch runs without the accelerations (`abi/switches.py`), anything else is refused."""
COMPILED = ("autograd_opt.graph.node", "autograd_opt.record.recorder", "autograd_opt.engine.executor",
            "autograd_opt.passes._cse", "autograd_opt.passes._prune")


_loaded = False


def reads_command_line(words: list[str] | None = None) -> bool:
    """Is this `autograd-opt ...` or `python -m autograd_opt ...`, its command not yet known?

    >>> reads_command_line(["python", "/usr/bin/autograd-opt", "--help"])
    True
    >>> reads_command_line(["python", "-m", "autograd_opt"]), reads_command_line(["python", "train.py"])
    (True, False)
    """
    _, *words = sys.orig_argv if words is None else words
    script, then = (words + ["", ""])[:2]
    if script == "-m":
        named = then == "autograd_opt"
    else:
        named = os.path.basename(script).removesuffix(".exe") == "autograd-opt"
    return named and not _loaded


def load() -> None:
    """Import the whole library; called once the command is known to need it."""
    global _loaded
    if reads_command_line():
        _loaded = True
        importlib.reload(sys.modules["autograd_opt"])


def load_for(name: str) -> Any:
    """`__getattr__` of the package while the command line is read."""
    package = sys.modules["autograd_opt"]
    if name in package.__dict__.get("__all__", ()) and not _loaded:
        load()
        return getattr(package, name)
    raise AttributeError(f"module 'autograd_opt' has no attribute {name!r}")


def check() -> None:
    """Raise ImportError with one sentence when something is missing or of a wrong version."""
    check_python(sys.version_info[:2], bool(sysconfig.get_config_var("Py_GIL_DISABLED")))
    try:
        from torch.version import __version__
    except (ImportError, OSError) as error:
        raise ImportError(without_torch(error)) from error
    check_torch(str(__version__))
    for name in COMPILED:
        if importlib.util.find_spec(name) is None:
            raise ImportError(
                f"{name} is missing: this is a source folder that has not been built. "
                "Run `pip install -e .` in it, or leave it so that the installed package is found"
            )


def without_torch(error: Exception) -> str:
    """Why torch cannot be imported: it is not installed, or a library that it needs is not.

    >>> without_torch(OSError("libcudnn.so.9: cannot open shared object file")).partition(" (")[0]
    'torch is installed, but its import failed'
    """
    if isinstance(error, ModuleNotFoundError) and error.name in ("torch", "torch.version"):
        return f"autograd_opt needs torch {_dotted(OLDEST_TORCH)} or newer, which is not installed: " \
            f"pip install 'torch>={_dotted(OLDEST_TORCH)}'"
    return f"torch is installed, but its import failed ({error}). If a library of CUDA is missing, install torch " \
        "with its dependencies, or the CPU build, which needs none: " \
        "pip install --force-reinstall torch --index-url https://download.pytorch.org/whl/cpu"


def check_python(found: tuple[int, ...], free_threaded: bool = False) -> None:
    """Raise ImportError unless this is a Python that this release was tested with.

    A newer one may count references in another way, which decides what may be written in place.

    >>> check_python((3, 13))
    >>> check_python((3, 14))
    Traceback (most recent call last):
    ImportError: autograd_opt needs a Python from 3.11 to 3.13; this is 3.14
    """
    if not OLDEST_PYTHON <= found < FIRST_UNTESTED_PYTHON:
        raise ImportError(f"autograd_opt needs a Python from {tested_pythons()}; this is {_dotted(found)}")
    if free_threaded:
        raise ImportError("autograd_opt needs a Python with the global interpreter lock; this is a free-threaded build")


def plain_asked() -> str:
    """The value of `AUTOGRAD_OPT_PLAIN`, without spaces."""
    return os.environ.get("AUTOGRAD_OPT_PLAIN", "").replace(" ", "")


def check_torch(version: str) -> None:
    """Raise ImportError for a torch that is too old; warn of one that is newer than all that were tested.

    >>> check_torch("2.13.1+cpu")
    >>> check_torch("2.10.0")
    Traceback (most recent call last):
    ImportError: autograd_opt needs torch 2.12 or newer, this is 2.10.0: pip install 'torch>=2.12'
    """
    if parsed(version) < OLDEST_TORCH:
        oldest = _dotted(OLDEST_TORCH)
        raise ImportError(
            f"autograd_opt needs torch {oldest} or newer, this is {version}: pip install 'torch>={oldest}'")
    if newer_than_tested(version):
        how = "with its accelerations, as AUTOGRAD_OPT_PLAIN=0 asks" if plain_asked() == "0" \
            else "without its accelerations"
        warnings.warn(
            f"torch {version} is newer than {_dotted(NEWEST_TORCH)}, the newest that autograd_opt was tested with: "
            f"it runs {how}; `autograd-opt doctor` says more", RuntimeWarning, stacklevel=4)


def tested_pythons() -> str:
    """The oldest and the newest Python that this release was tested with.

    >>> tested_pythons()
    '3.11 to 3.13'
    """
    return f"{_dotted(OLDEST_PYTHON)} to {FIRST_UNTESTED_PYTHON[0]}.{FIRST_UNTESTED_PYTHON[1] - 1}"


def tested_torches() -> str:
    """The oldest and the newest torch that this release was tested with.

    >>> tested_torches() == f"2.12 to {_dotted(NEWEST_TORCH)}"
    True
    """
    return f"{_dotted(OLDEST_TORCH)} to {_dotted(NEWEST_TORCH)}"


def newer_than_tested(version: str) -> bool:
    """Is this torch newer than all that this release was tested with?"""
    return parsed(version) > NEWEST_TORCH


def parsed(version: str) -> tuple[int, ...]:
    """Major and minor number of a version.

    >>> parsed("2.13.0a0+git1234")
    (2, 13)
    """
    return tuple(int(part) for part in re.findall(r"\d+", version)[:2])


def _dotted(version: tuple[int, ...]) -> str:
    return ".".join(map(str, version))
