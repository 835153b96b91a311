"""A group without a subcommand prints its help to stdout and ends with 0, whichever click there is."""

import click
import pytest

from gpuwatch.cli.console.lazy import LazyGroup
from gpuwatch.cli.main import cli
from tests.cli.commands import run
from tests.cli.processes import finish


def bare_groups(group: LazyGroup, words: tuple[str, ...] = ()) -> list[tuple[str, ...]]:
    """The words of every group that does nothing by itself."""
    found = [words] if group.no_args_is_help else []
    below = ((name, group.get_command(click.Context(group), name)) for name in group.entries)
    return found + [
        each for name, sub in below if isinstance(sub, LazyGroup) for each in bare_groups(sub, (*words, name))
    ]


GROUPS = bare_groups(cli)


def test_every_group_but_metrics_does_nothing_by_itself():
    assert set(GROUPS) == {(), ("node",), ("xid",), ("tune",), ("sim",), ("policy",), ("config",)}


@pytest.mark.parametrize("words", GROUPS, ids=lambda words: " ".join(words) or "gpuwatch")
def test_a_bare_group_prints_its_help_and_ends_with_0(words):
    bare, asked = run(*words), run(*words, "--help")
    assert bare.stdout == asked.stdout
    assert bare.stdout.startswith("Usage: gpuwatch")
    assert "Commands:" in bare.stdout or "Look:" in bare.stdout
    assert (bare.stderr, bare.exit_code) == ("", 0)


def test_the_program_alone_prints_its_help_and_ends_with_0():
    ended = finish()
    assert "Look:" in ended.stdout
    assert (ended.stderr, ended.returncode) == ("", 0)


def test_a_group_with_options_and_no_subcommand_is_wrong_usage():
    ended = run("--source", "sim")
    assert ended.exit_code == 2
    assert ended.stderr.startswith("gpuwatch: error: missing command")
    assert len(ended.stderr.splitlines()) == 1
