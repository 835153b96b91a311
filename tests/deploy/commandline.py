"""What the real command line makes of arguments and variables, without running anything."""

from collections.abc import Iterable, Sequence
from typing import Any

import click

from gpuwatch.cli.main import cli


def commands(arguments: Sequence[str]) -> tuple[click.Context, click.Context]:
    """The contexts of a command line, outermost first; a wrong option or command raises click.UsageError."""
    _, rest, _ = cli.make_parser(click.Context(cli)).parse_args(list(arguments))
    outer = cli.make_context("gpuwatch", list(arguments))
    with outer:
        name, command, rest = cli.resolve_command(outer, rest)
        assert command is not None
        return outer, command.make_context(name, rest, parent=outer)


def variables(contexts: Iterable[click.Context]) -> dict[str, Any]:
    """Name of a variable -> what its option has become."""
    return {
        _variable(param, context): context.params.get(param.name or "")
        for context in contexts
        for param in context.command.params
    }


def _variable(param: click.Parameter, context: click.Context) -> str:
    return str(param.envvar or f"{context.auto_envvar_prefix}_{(param.name or '').upper()}")
