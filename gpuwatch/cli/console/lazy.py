"""Command groups that load a command only when it runs, so that help costs nothing but click.

A group is a table: name, one line of help, where the command is, the section of the help page it stands in.
"""

import difflib
import importlib
from collections.abc import Sequence
from typing import NamedTuple

import click

from gpuwatch.cli.console.program import as_typed

EPILOG = """\b
Exit codes: 0 healthy or done, 1 no answer, 2 wrong usage, 3 degraded, 4 failed,
5 no GPU stack, 6 permission missing, 130 interrupted.
"""
"""Of every command's help."""


class Entry(NamedTuple):
    """One row. `target` is `module:attribute` below gpuwatch.cli; `help` is the command's own first line."""

    name: str
    help: str
    target: str
    section: str


class HelpContext(click.Context):
    """Click's context; the examples in a help page are as they have to be typed here."""

    def get_help(self) -> str:
        """The help page of the command."""
        return as_typed(super().get_help())


class LazyGroup(click.Group):
    """A group made of a table of entries."""

    context_class = HelpContext

    def __init__(self, *args: object, entries: Sequence[Entry] = (), **attributes: object) -> None:
        super().__init__(*args, **attributes)  # type: ignore[arg-type]
        self.entries = {entry.name: entry for entry in entries}

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Without a word, print the help and end with 0; click does it with 2 and on stderr since 8.2."""
        if not args and self.no_args_is_help and not ctx.resilient_parsing:
            click.echo(ctx.get_help(), color=ctx.color)
            ctx.exit()
        return super().parse_args(ctx, args)

    def list_commands(self, ctx: click.Context) -> list[str]:
        """In the order of the table: what a person on call needs comes first."""
        return list(self.entries)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import the module of one command."""
        entry = self.entries.get(cmd_name)
        if entry is None:
            return None
        module, _, attribute = entry.target.partition(":")
        command = getattr(importlib.import_module(f"gpuwatch.cli.{module}"), attribute)
        assert isinstance(command, click.Command)  # noqa: S101 the table is ours; a test walks all of it
        command.epilog = command.epilog or EPILOG
        command.context_class = HelpContext
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """As click does, but a mistyped command is answered with the nearest one."""
        name = args[0]
        if name not in self.entries and not name.startswith("-") and not ctx.resilient_parsing:
            near = difflib.get_close_matches(name, self.entries, n=1)
            hint = f"did you mean {near[0]}?" if near else "the commands are: " + ", ".join(self.entries)
            raise click.UsageError(f"no such command {name!r}; {hint}", ctx)
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """One block of commands for each section."""
        width = max(len(name) for name in self.entries)
        for section in dict.fromkeys(entry.section for entry in self.entries.values()):
            rows = [(e.name.ljust(width), e.help) for e in self.entries.values() if e.section == section]
            with formatter.section(section):
                formatter.write_dl(rows)
