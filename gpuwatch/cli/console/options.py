"""Options that several commands share; every option can also be given as a GPUWATCH_* variable."""

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import click

from gpuwatch.cli.console.effective_config import OVERRIDES, Override
from gpuwatch.cli.console.session import Session

NODE_NAME, KUBECONFIG = "GPUWATCH_NODE_NAME", "GPUWATCH_KUBECONFIG"
"""Variables of options that the remediator and the node commands have in common."""

Command = TypeVar("Command", bound=Callable[..., Any])


def option(*names: str, **attributes: Any) -> Callable[[Command], Command]:
    """`click.option`, its variable shown in the help."""
    return click.option(*names, show_envvar=True, **attributes)


def output(*formats: str) -> Callable[[Command], Command]:
    """`-o FORMAT`; the first is the default."""

    def remember(ctx: click.Context, _: click.Parameter, value: str) -> str:
        ctx.ensure_object(Session).json_errors = value == "json"
        return value

    return option(
        "-o",
        "--output",
        type=click.Choice(formats),
        default=formats[0],
        callback=remember,
        help=f"Output format. Default: {formats[0]}.",
    )


def keeps_state(help_text: str) -> Callable[[Command], Command]:
    """`--state-dir`, for commands without a role's options."""

    def remember(ctx: click.Context, _: click.Parameter, value: str | None) -> None:
        ctx.ensure_object(Session).state_dir = value

    return option(
        "--state-dir",
        metavar="DIR",
        envvar="GPUWATCH_STATE_DIR",
        callback=remember,
        expose_value=False,
        help=f"{help_text} Default: /var/lib/gpuwatch.",
    )


def state_dir(command: Command) -> Command:
    """`--state-dir`, for commands that read what an agent has kept."""
    return keeps_state("Without an agent: where one has kept its state.")(command)


def gpus(command: Command) -> Command:
    """`--gpu 0,3`."""
    return option("--gpu", "gpu", metavar="ID,...", help="Only these GPUs: index, UUID or PCI address.")(command)


def row_options(rows: Sequence[Override]) -> Callable[[Command], Command]:
    """Add an option for every row."""

    def add(command: Command) -> Command:
        for row in reversed(rows):
            command = option(
                row.flag,
                row.name,
                metavar=row.metavar or None,
                is_flag=row.type is bool,
                help=row.help,
                envvar=row.variable,
                multiple=row.many,
                type=row.type,
                default=() if row.many else None,
            )(command)
        return command

    return add


settings_options = row_options(OVERRIDES)
"""Adds the options of the agent."""
