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
from typing import Any

OLDEST_PYTHON = (3, 11)
OLDEST_TORCH = (2, 13)
FIRST_UNTESTED_TORCH = (2, 14)
COMPILED = ("autograd_opt.node", "autograd_opt.recorder", "autograd_opt.executor", "autograd_opt.passes")


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
    if sys.version_info < OLDEST_PYTHON:
        found = sys.version.split()[0]
        raise ImportError(f"autograd_opt needs Python {_dotted(OLDEST_PYTHON)} or newer; this is {found}")
    try:
        from torch.version import __version__
    except ImportError as error:
        raise ImportError(
            f"autograd_opt needs torch {_dotted(OLDEST_TORCH)}, which could not be imported ({error}): "
            f"pip install 'torch>={_dotted(OLDEST_TORCH)},<{_dotted(FIRST_UNTESTED_TORCH)}'"
        ) from error
    check_torch(str(__version__))
    for name in COMPILED:
        if importlib.util.find_spec(name) is None:
            raise ImportError(
                f"{name} is missing: this is a source folder that has not been built. "
                "Run `pip install -e .` in it, or leave it so that the installed package is found"
            )


def check_torch(version: str) -> None:
    """Raise ImportError unless `version` is one this release was tested with.

    >>> check_torch("2.13.1+cpu")
    >>> check_torch("2.14.0")
    Traceback (most recent call last):
    ImportError: autograd_opt was tested with torch 2.13 only, this is 2.14.0: pip install 'torch>=2.13,<2.14'
    """
    found = tuple(int(part) for part in re.findall(r"\d+", version)[:2])
    if not OLDEST_TORCH <= found < FIRST_UNTESTED_TORCH:
        oldest, beyond = _dotted(OLDEST_TORCH), _dotted(FIRST_UNTESTED_TORCH)
        raise ImportError(
            f"autograd_opt was tested with torch {oldest} only, this is {version}: "
            f"pip install 'torch>={oldest},<{beyond}'"
        )


def _dotted(version: tuple[int, ...]) -> str:
    return ".".join(map(str, version))
