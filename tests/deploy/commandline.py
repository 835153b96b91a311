"""What the real command line makes of arguments, without running anything."""

from collections.abc import Sequence

import click

from gpuwatch.cli.main import cli


def commands(arguments: Sequence[str]) -> tuple[click.Context, click.Context]:
    """The contexts of a command line, outermost first; a wrong option or command raises click.UsageError."""
    outer = cli.make_context("gpuwatch", list(arguments))
    name, command, rest = cli.resolve_command(outer, [*outer._protected_args, *outer.args])
    assert command is not None
    with outer:
        return outer, command.make_context(name, rest, parent=outer)
