"""Numbers on the command line: what is no number of seconds is wrong usage, and nobody waits for it."""

from collections.abc import Iterator

import click
import pytest

from gpuwatch.cli.console.options import Number
from gpuwatch.cli.main import cli
from tests.cli.commands import ask
from tests.model import views


def commands(command: click.Command, *path: str) -> Iterator[tuple[tuple[str, ...], click.Command]]:
    """Every command below, with its words."""
    yield path, command
    if isinstance(command, click.Group):
        context = click.Context(command)
        for name in command.list_commands(context):
            below = command.get_command(context, name)
            assert below is not None
            yield from commands(below, *path, name)


NUMBERS = [
    (path, parameter)
    for path, command in commands(cli)
    for parameter in command.params
    if isinstance(parameter.type, (click.types.FloatParamType, click.FloatRange))
]


def test_every_number_is_a_finite_one():
    assert len(NUMBERS) > 8
    unbounded = {(path, each.name) for path, each in NUMBERS if not isinstance(each.type, Number)}
    assert unbounded == {(("agent",), "interval"), (("config", "show"), "interval")}  # the configuration checks it


@pytest.mark.parametrize("text", ["nan", "NaN", "-nan", "inf", "-inf", "1e300", "1e400", "1_", ""])
@pytest.mark.parametrize(
    ("path", "parameter"), NUMBERS, ids=[" ".join((*path, each.name or "")) for path, each in NUMBERS]
)
def test_what_is_none_is_wrong_usage(path, parameter, text):
    words = [f"{parameter.opts[0]}={text}"] if isinstance(parameter, click.Option) else ["--", text]
    result = ask(views.failing(), *path, *words)
    assert result.exit_code == 2, result.output
    assert "something went wrong" not in result.stderr
