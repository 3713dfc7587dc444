"""`autograd-opt explain script.py [args...]`: run any torch script and list the work it does twice."""

from __future__ import annotations

import json
import os
import runpy
import sys
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import click

from autograd_opt.cli import INTERRUPTED, console
from autograd_opt.files import written_whole


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


def run(target: str, arguments: tuple[str, ...], as_module: bool) -> int:
    """Run a script or module as `python` would; returns its exit code."""
    saved_argv, saved_path = sys.argv, list(sys.path)
    main = sys.modules["__main__"]
    try:
        if as_module:
            sys.argv = [target, *arguments]
            sys.path.insert(0, os.getcwd())
            runpy.run_module(target, run_name="__main__", alter_sys=True)
        else:
            sys.argv = [target, *arguments]
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
    except Exception:
        traceback.print_exc()
        return 1
    finally:
        sys.argv, sys.path[:] = saved_argv, saved_path
        sys.modules["__main__"] = main
    return 0


OWN_OPTIONS = ("--budget", "--json", "--html")
"""Options that are easily written behind the script, where they are the script's own."""


@click.command(context_settings={"ignore_unknown_options": True, "allow_interspersed_args": False})
@click.option("-m", "as_module", is_flag=True, help="SCRIPT is the name of a module.")
@click.option("--budget", default=0.5, show_default=True,
              help="What watching may cost, as a share of the script's own time, beside a third of a second.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object on stdout, the rest on stderr.")
@click.option("--html", type=click.Path(path_type=Path, dir_okay=False), help="Write a page as well.")
@click.argument("script")
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED)
def explain_command(script: str, arguments: tuple[str, ...], as_module: bool, budget: float, as_json: bool,
                    html: Path | None) -> None:
    """Run a torch SCRIPT, unchanged, and list the work it does twice.

    Each finding names the lines that ask for the same value, how often, and the kernel time and
    memory that sharing would save.  The script's results are the same as without.  The exit
    code is the script's own.
    """
    taken = [word for word in arguments if word.partition("=")[0] in OWN_OPTIONS]
    if taken:
        click.echo(f"note: {', '.join(taken)} behind {script} goes to the script; "
                   f"options of explain stand before it: autograd-opt explain {' '.join(taken)} {script}", err=True)
    from autograd_opt.explain import Watch
    from autograd_opt.explain.show import page

    if not as_module and not Path(script).is_file():
        raise click.BadParameter(f"there is no file {script}", param_hint="SCRIPT")
    watch = Watch(budget)
    with stdout_to_stderr(as_json):
        with watch:
            code = run(script, arguments, as_module)
        sys.stdout.flush()
    found: Any = watch.report
    object.__setattr__(found, "title", f"work done twice by {' '.join([script, *arguments])}")
    if html is not None:
        with written_whole(html) as draft:
            draft.write_text(page(found), encoding="utf-8")
    if as_json:
        click.echo(json.dumps(found.to_dict(), indent=2))
    else:
        out = console()
        if out.is_terminal:
            out.print(found)
        else:
            click.echo(str(found))
    if code:
        sys.exit(code)
