"""Files that are written whole or not at all."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any


def path_of(what: str, path: Any, folder: bool = False) -> Path:
    """The path of a file that the user has given as the option `what`; `folder`: in a folder that is there.

    Raises
    ------
    ArgumentError, ArgumentTypeError : it is a folder, or no path.
    """
    from autograd_opt import errors  # commands that are still reading their options have not loaded torch
    if not isinstance(path, (str, os.PathLike)):
        raise errors.ArgumentTypeError(errors.at(
            f"{what}={path!r} is of type {type(path).__name__}: choose text or a pathlib.Path"))
    found = Path(os.fsdecode(path))
    if found.is_dir():
        raise errors.ArgumentError(errors.at(f"{what}={str(path)!r} is a folder: name a file in it"))
    if folder and not found.parent.is_dir():
        raise errors.ArgumentError(errors.at(
            f"{what}={str(path)!r}: there is no folder {str(found.parent)!r}; make it first, or choose another"))
    return found


@contextmanager
def written_whole(path: Path) -> Iterator[Path]:
    """A path to write to; it takes the place of `path` only when the block ends well.

    >>> import tempfile
    >>> folder = Path(tempfile.mkdtemp())
    >>> with written_whole(folder / "a.txt") as draft:
    ...     _ = draft.write_text("all of it")
    >>> [f.name for f in folder.iterdir()]
    ['a.txt']
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    number, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.stem}-", suffix=path.suffix)
    os.close(number)
    draft = Path(name)
    try:
        yield draft
        draft.chmod(0o644)
        draft.replace(path)
    finally:
        with suppress(FileNotFoundError):
            draft.unlink()
