"""The command line: one line a command, each imported only when it is called.

Exit codes: 0 done, 1 the command ran and its answer is no (a bar missed, a gradient that
differs, a proof refuted), 2 wrong usage, 3 something it needs is not installed, 130 Ctrl-C.
"""

from __future__ import annotations

import difflib
import importlib
import math
import sys
from typing import TYPE_CHECKING, Any, NoReturn

import click

from autograd_opt._common import environment

if TYPE_CHECKING:
    from rich.console import Console

FAILED, USAGE, MISSING, INTERRUPTED = 1, 2, 3, 130
"""Exit codes other than 0."""

WIDTH = 120
"""Columns of what is written to a file or a pipe."""

LIGHT = {"explain"}
"""Commands whose module imports nothing of the library before it runs."""

COMMANDS = {
    "bench": ("autograd_opt.benchmarks.command:bench", "Time this library against torch eager and its peers."),
    "demo": ("autograd_opt.cli.demo:demo", "Train on real digits, then optimize a step with repeated work."),
    "doctor": ("autograd_opt.cli.doctor:doctor", "Say what is installed and which parts are on, and check them."),
    "explain": ("autograd_opt.cli.explain:explain_command", "Run a torch script and list the work that it does twice."),
    "verify": ("autograd_opt.cli.verify:verify_command", "Run a torch script and prove its optimized gradients."),
}
"""Name -> where the click command is, and its line in the help.  A new command is a line here."""


class Number(click.FloatRange):
    """A number in a range; NaN, which no comparison keeps out, is none."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        number = super().convert(value, param, ctx)
        if math.isnan(number):
            self.fail(f"{value!r} is not a number.", param, ctx)
        return number


class LazyGroup(click.Group):
    """A group whose commands are imported when they are asked for, so that --help is quick."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return sorted(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS:
            return None
        module, name = COMMANDS[cmd_name][0].split(":")
        try:
            if cmd_name not in LIGHT:
                environment.load()
            command = getattr(importlib.import_module(module), name)
        except ImportError as error:
            cannot_start(cmd_name, error)
        assert isinstance(command, click.Command)
        return command

    def resolve_command(self, ctx: click.Context, args: list[str]
                        ) -> tuple[str | None, click.Command | None, list[str]]:
        name = args[0] if args else ""
        if name and name not in COMMANDS and not name.startswith("-"):
            near = difflib.get_close_matches(name.lower(), COMMANDS, n=1)
            hint = f", did you mean {near[0]!r}?" if near else "."
            ctx.fail(f"No such command {name!r}{hint} Commands: {', '.join(sorted(COMMANDS))}")
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, COMMANDS[name][1]) for name in sorted(COMMANDS)])


def fail(message: str, code: int = FAILED) -> NoReturn:
    """Say why on stderr and leave with `code`."""
    click.echo(message, err=True)
    sys.exit(code)


def cannot_start(command: str, error: ImportError) -> NoReturn:
    """Something that the command needs is not installed."""
    fail(f"`autograd-opt {command}` cannot start: {error}", MISSING)


def console(json: bool = False) -> Console:
    """Where a command writes what a person reads: stderr when stdout carries JSON.

    Colour and moving progress appear on terminals only; NO_COLOR is honoured.
    """
    from rich.console import Console
    screen = Console(stderr=json, highlight=False)
    return screen if screen.is_terminal else Console(stderr=json, highlight=False, width=WIDTH)


@click.group(cls=LazyGroup, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="autograd_opt")
def root() -> None:
    """Autograd on torch tensors that finds repeated work and removes it."""


def main() -> None:
    """Entry point of `autograd-opt`."""
    try:
        sys.exit(root.main(prog_name="autograd-opt", standalone_mode=False) or 0)
    except (click.Abort, KeyboardInterrupt):
        fail("interrupted", INTERRUPTED)
    except click.ClickException as error:
        error.show()
        sys.exit(error.exit_code)
