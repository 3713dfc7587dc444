"""Running a user's script as `python` would, from a command that has options of its own."""

from __future__ import annotations

import gc
import importlib.machinery
import io
import os
import runpy
import sys
import threading
import traceback
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from types import TracebackType
from typing import Any

import click

from autograd_opt.cli.main import INTERRUPTED

SETTINGS: dict[str, Any] = {"allow_interspersed_args": False}
"""Of a command: what stands behind the script is the script's."""

OWN_FILES = (__file__, runpy.__file__, "<frozen runpy>")
"""Where a traceback passes before it comes to the script."""


def a_file(_: click.Context, __: click.Parameter, path: Path | None) -> Path | None:
    """Refuse what names no file, as an empty text does."""
    if path is not None and path.is_dir():
        raise click.BadParameter(f"{path} is a folder: name a file in it")
    return path


PAGE = click.option("--html", type=click.Path(path_type=Path), callback=a_file, help="Write a page as well.")
"""The option of a command that writes a page."""


def require_script(script: str, as_module: bool) -> None:
    """Wrong usage unless the script is a file, or the module can be found."""
    if as_module:
        places = [*dict.fromkeys([os.getcwd(), *sys.path])]
        top = script.partition(".")[0]
        if top not in sys.modules and importlib.machinery.PathFinder.find_spec(top, places) is None:
            raise click.BadParameter(f"there is no module {top}", param_hint="SCRIPT")
    elif Path(script).is_dir():
        raise click.BadParameter(f"{script} is a folder, not a script", param_hint="SCRIPT")
    elif not Path(script).is_file():
        raise click.BadParameter(f"there is no file {script}", param_hint="SCRIPT")


def options_behind(script: str, arguments: Sequence[str]) -> None:
    """Say so where an option of the command, written out, stands behind the script."""
    context = click.get_current_context()
    command, own = context.info_name, {word for param in context.command.params for word in param.opts if len(word) > 2}
    taken = [word for word in arguments if word.partition("=")[0] in own]
    if taken:
        click.echo(f"note: {', '.join(taken)} behind {script} goes to the script; "
                   f"options of {command} stand before it: autograd-opt {command} {' '.join(taken)} {script}", err=True)


@contextmanager
def stdout_to_stderr(active: bool) -> Iterator[None]:
    """Keep stdout for the answer alone: what the script prints, also from C, goes to stderr."""
    if not active:
        yield
        return
    sys.stdout.flush()
    kept, python = os.dup(1), sys.stdout
    os.dup2(2, 1)
    sys.stdout = sys.stderr
    try:
        yield
    finally:
        sys.stdout = python
        os.dup2(kept, 1)
        os.close(kept)


def from_the_script(trace: TracebackType | None) -> TracebackType | None:
    """A traceback without its beginning, which is of this command and of the standard library's launcher."""
    while trace is not None and trace.tb_frame.f_code.co_filename in OWN_FILES:
        trace = trace.tb_next
    return trace


def wait_for_others(before: set[threading.Thread]) -> None:
    """Wait for what Python waits for at its end: threads that are no daemons, and pools, which are told to end."""
    def left() -> list[threading.Thread]:
        return [t for t in threading.enumerate()
                if not t.daemon and t not in before and t is not threading.current_thread()]

    while threads := left():
        from concurrent.futures import thread as pools
        if any(t in pools._threads_queues for t in threads):
            pools._python_exit()
        for t in threads:
            with suppress(RuntimeError):
                t.join()


@contextmanager
def own_streams() -> Iterator[None]:
    """Take back stdout and stderr from a script, and write out its open files."""
    kept = sys.stdout, sys.stderr
    try:
        yield
    finally:
        left_open = [f for f in gc.get_objects() if type(f) in (io.TextIOWrapper, io.BufferedWriter)]
        for stream in (sys.stdout, sys.stderr, *left_open):
            with suppress(Exception):            # closed, or no file at all
                stream.flush()
        sys.stdout, sys.stderr = kept


def run(target: str, arguments: tuple[str, ...], as_module: bool) -> int:
    """Run a script or module as `python` would, to the end of its threads; returns its exit code."""
    before = set(threading.enumerate())
    with own_streams():
        code = main_part(target, arguments, as_module)
        try:
            wait_for_others(before)
        except KeyboardInterrupt:
            click.echo("interrupted", err=True)
            code = INTERRUPTED
    return code


def main_part(target: str, arguments: tuple[str, ...], as_module: bool) -> int:
    """Run the script's main thread; returns its exit code."""
    saved_argv, saved_path = sys.argv, list(sys.path)
    main = sys.modules["__main__"]
    try:
        sys.argv = [target, *arguments]
        if as_module:
            sys.path.insert(0, os.getcwd())
            runpy.run_module(target, run_name="__main__", alter_sys=True)
        else:
            sys.path.insert(0, os.path.dirname(os.path.abspath(target)))
            runpy.run_path(target, run_name="__main__")
    except SystemExit as error:
        if error.code is None or isinstance(error.code, int):
            return error.code or 0
        click.echo(error.code, err=True)
        return 1
    except KeyboardInterrupt:
        click.echo("interrupted", err=True)
        return INTERRUPTED
    except Exception as error:
        traceback.print_exception(error.with_traceback(from_the_script(error.__traceback__)))
        return 1
    finally:
        sys.argv, sys.path[:] = saved_argv, saved_path
        sys.modules["__main__"] = main
    return 0
