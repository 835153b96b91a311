"""`gpuwatch completion`: the script by which a shell completes commands, options and values."""

import click

from gpuwatch.cli.console.session import Session, pass_session

HELP = """Print the completion script of a shell.

\b
Examples:
  source <(gpuwatch completion bash)
  gpuwatch completion zsh > ~/.zfunc/_gpuwatch
  gpuwatch completion fish > ~/.config/fish/completions/gpuwatch.fish
"""


@click.command(help=HELP, short_help="Print the completion script of a shell.")
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
@pass_session
@click.pass_context
def completion(ctx: click.Context, session: Session, shell: str) -> None:
    """Print click's script for the whole command tree."""
    from click.shell_completion import get_completion_class

    kind = get_completion_class(shell)
    assert kind is not None  # noqa: S101 click has all three
    root = ctx.find_root().command
    script = kind(root, {}, "gpuwatch", "_GPUWATCH_COMPLETE")
    session.terminal.page(script.source_template % script.source_vars() + "\n")
