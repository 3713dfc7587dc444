"""Files that outlive the process: read only where nobody else can have written them, written whole or not at all.

`AUTOGRAD_OPT_CACHE` names their folder, or is `off`.
"""

from __future__ import annotations

import functools
import json
import os
import stat
import tempfile
from pathlib import Path
from typing import Any

MOST_BYTES = 1 << 22
MOST_FILES = 4096
"""In one folder."""


def cache_folder() -> Path | None:
    """Where files are kept; None: nowhere."""
    words = os.environ
    return folder_of(words.get("AUTOGRAD_OPT_CACHE", ""), words.get("XDG_CACHE_HOME", ""), words.get("HOME", ""))


@functools.lru_cache(8)
def folder_of(chosen: str, caches: str, home: str) -> Path | None:
    """The same by the variables that name it."""
    if chosen.lower() in ("off", "0", "no", "false"):
        return None
    return Path(chosen) if chosen else Path(caches or Path.home() / ".cache") / "autograd_opt"


def contents(path: Path | str) -> Any:
    """The data in a file that only this user can have written; None where there is none, or it is damaged."""
    text = text_of(path)
    try:
        return None if text is None else json.loads(text)
    except (ValueError, RecursionError):
        return None


def text_of(path: Path | str) -> bytes | None:
    """What is in a file that only this user can have written; None where there is none."""
    try:
        handle = os.open(path, os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0))
    except OSError:
        return None
    try:
        about = os.fstat(handle)
        ours = not hasattr(os, "geteuid") or (about.st_uid == os.geteuid() and not about.st_mode & 0o022)
        if not (ours and stat.S_ISREG(about.st_mode) and about.st_size <= MOST_BYTES):
            return None
        text, part = b"", os.read(handle, about.st_size + 1)
        while part and len(text) <= MOST_BYTES:
            text, part = text + part, os.read(handle, 1 << 16)
        return text
    except OSError:
        return None
    finally:
        os.close(handle)


def put(path: Path, data: Any) -> None:
    """Write data, whole or not at all; nothing where the folder cannot be written to, or is full."""
    text = json.dumps(data)
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        if len(text) > MOST_BYTES or (len(os.listdir(path.parent)) >= MOST_FILES and not path.exists()):
            return
        handle, draft = tempfile.mkstemp(dir=path.parent, prefix=".draft")
        try:
            with os.fdopen(handle, "w", encoding="utf-8") as file:
                file.write(text)
            os.replace(draft, path)
        except BaseException:
            os.unlink(draft)
            raise
    except OSError:
        return
