"""`autograd-opt explain script.py [args...]`: run any torch script and list the work it does twice."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import click

from autograd_opt._common import environment
from autograd_opt._common.files import written_whole
from autograd_opt.cli.main import Number, cannot_start, console
from autograd_opt.cli.run_script import PAGE, SETTINGS, options_behind, require_script, run, stdout_to_stderr


@click.command(context_settings=SETTINGS)
@click.option("-m", "as_module", is_flag=True, help="SCRIPT is the name of a module.")
@click.option("--budget", type=Number(min=0), default=0.5, show_default=True,
              help="What watching may cost, as a share of the script's own time, beside a tenth of a second.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object on stdout, the rest on stderr.")
@PAGE
@click.argument("script")
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED)
def explain_command(script: str, arguments: tuple[str, ...], as_module: bool, budget: float, as_json: bool,
                    html: Path | None) -> None:
    """Run a torch SCRIPT, unchanged, and list the work it does twice.

    Each finding names the lines that ask for the same value, how often, and the processor time and
    memory that sharing would save.  The script's results are the same as without.  The exit
    code is the script's own.
    """
    options_behind(script, arguments)
    require_script(script, as_module)
    try:
        environment.load()
        from autograd_opt.explaining import Watch
    except ImportError as error:
        cannot_start("explain", error)

    watch = Watch(budget)
    with stdout_to_stderr(as_json):
        with watch:
            code = run(script, arguments, as_module)
        sys.stdout.flush()
    found: Any = watch.report
    object.__setattr__(found, "title", f"work done twice by {' '.join([script, *arguments])}")
    if html is not None:
        from autograd_opt.explaining.render import page
        with written_whole(html) as draft:
            draft.write_text(page(found), encoding="utf-8")
    if as_json:
        click.echo(json.dumps(found.to_dict(), indent=2))
    else:
        if sys.stdout.isatty():
            console().print(found)
        else:
            click.echo(str(found))
    if code:
        sys.exit(code)
