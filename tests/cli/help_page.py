"""Writes docs/cli.md from the command tree: `python -m tests.cli.help_page > docs/cli.md`. A test compares."""

from collections.abc import Iterator

import click

from gpuwatch.cli.main import cli

WIDTH = 100

PREFACE = """# The command line

Made from the program's own help by `python -m tests.cli.help_page`; change the help, not this page.

Data goes to stdout; logs, progress and hints go to stderr. Options of the whole program stand before the command.
"""


def markdown() -> str:
    """The page: every command's help, in the order of the help."""
    sections = [f"{'#' * depth} {path}\n\n```text\n{text}\n```\n" for depth, path, text in helps(cli, "gpuwatch", None)]
    return PREFACE + "\n" + "\n".join(sections)


def helps(command: click.Command, name: str, parent: click.Context | None) -> Iterator[tuple[int, str, str]]:
    """Depth of the heading, path and help text of a command and all below it."""
    settings = {**command.context_settings, "terminal_width": WIDTH, "max_content_width": WIDTH}
    ctx = click.Context(command, parent=parent, info_name=name, **settings)
    yield ctx.command_path.count(" ") + 2, ctx.command_path, command.get_help(ctx).rstrip()
    if isinstance(command, click.Group):
        for sub in command.list_commands(ctx):
            inner = command.get_command(ctx, sub)
            if inner is not None:
                yield from helps(inner, sub, ctx)


if __name__ == "__main__":
    click.echo(markdown(), nl=False)
