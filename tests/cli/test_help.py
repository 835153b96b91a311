"""Help: quick, complete, honest about variables, and the same as docs/cli.md."""

import re
import subprocess
import sys
from pathlib import Path

import click
import pytest

from gpuwatch import __version__
from gpuwatch.cli.console.lazy import LazyGroup
from gpuwatch.cli.main import cli
from tests.cli.commands import run
from tests.cli.help_page import SAME_OPTIONS, SHARED, markdown
from tests.seeds import a_third

DOCS = Path(__file__).parent.parent.parent / "docs" / "cli.md"


def tree(command: click.Command, name: str = "gpuwatch", parent: click.Context | None = None):
    """(path, command, context) of every command."""
    ctx = click.Context(command, parent=parent, info_name=name, **command.context_settings)
    yield ctx.command_path, command, ctx
    if isinstance(command, click.Group):
        for sub in command.list_commands(ctx):
            yield from tree(command.get_command(ctx, sub), sub, ctx)


TREE = list(tree(cli))


def loaded_by(*args: str) -> set[str]:
    """Modules in memory after a command line."""
    program = (
        "import sys; from gpuwatch.cli.main import cli\n"
        "try: cli.main(sys.argv[1:], prog_name='gpuwatch')\n"
        "except SystemExit: pass\n"
        "print(*sys.modules, file=sys.stderr)"
    )
    ran = subprocess.run([sys.executable, "-c", program, *args], capture_output=True, text=True, check=True)
    return set(ran.stderr.split())


def test_help_loads_click_and_nothing_else_from_outside_the_standard_library():
    foreign = {
        name.partition(".")[0]
        for name in loaded_by("--help")
        if name.partition(".")[0] not in sys.stdlib_module_names and not name.startswith("_")
    }
    assert foreign - {"__main__", "sitecustomize", "usercustomize"} == {"click", "gpuwatch"}


def test_help_loads_no_more_of_gpuwatch_than_the_command_line_itself():
    ours = {name for name in loaded_by("--help") if name.startswith("gpuwatch.")}
    assert {name.split(".")[1] for name in ours} == {"cli", "model"}
    assert {name for name in ours if name.startswith("gpuwatch.model.")} == {
        "gpuwatch.model.errors",
        "gpuwatch.model.text",
    }


@pytest.mark.parametrize("args", a_third((name, "--help") for name in cli.entries), ids=" ".join)
def test_help_of_a_command_loads_neither_rich_nor_a_driver(args):
    assert not {"rich", "grpc", "pynvml", "prometheus_client"} & loaded_by(*args)


def test_help_of_diagnose_loads_no_check():
    """They are 75 modules, half a second of a slow core, which each completion of an option would cost, too."""
    assert not [name for name in loaded_by("diagnose", "--help") if name.startswith("gpuwatch.diagnose")]


@pytest.mark.parametrize(("path", "command", "ctx"), TREE, ids=[path for path, _, _ in TREE])
def test_help_has_a_first_line_that_fits_and_examples_where_there_is_much_to_say(path, command, ctx):
    first = command.get_short_help_str(200)
    assert 0 < len(first) <= 70
    assert first.endswith(".")
    text = command.get_help(ctx)
    assert all(len(line) <= 100 for line in text.splitlines())


GROUPS = [row for row in TREE if isinstance(row[1], LazyGroup)]


@pytest.mark.parametrize(("path", "command", "ctx"), GROUPS, ids=[path for path, _, _ in GROUPS])
def test_a_table_row_says_what_its_command_says(path, command, ctx):
    for entry in command.entries.values():
        assert command.get_command(ctx, entry.name).get_short_help_str(200) == entry.help


@pytest.mark.parametrize(("path", "command", "ctx"), TREE, ids=[path for path, _, _ in TREE])
def test_every_option_has_a_variable_as_the_end_of_its_help_says_or_shows_it(path, command, ctx):
    ends = re.findall(r"^  Each option is also a variable: GPUWATCH_\w+ for --", command.get_help(ctx), re.MULTILINE)
    for param in command.get_params(ctx):
        if isinstance(param, click.Option) and not param.hidden and not {"--help", "--version"} & set(param.opts):
            shown = re.search(r"env var: ([^;\]]+)", param.get_help_record(ctx)[1])
            names = shown[1].split(", ") if shown else [variable(path, max(param.opts, key=len))]
            assert shown or ends
            assert all(name.startswith("GPUWATCH_") for name in names)
            for name in names:
                assert param.resolve_envvar_value(ctx) is None
                with pytest.MonkeyPatch.context() as patched:
                    patched.setenv(name, "something")
                    assert param.resolve_envvar_value(ctx) == "something", name


def variable(path, option):
    return f"{path}_{option.lstrip('-')}".upper().replace(" ", "_").replace("-", "_")


@pytest.mark.parametrize(("path", "command", "ctx"), TREE, ids=[path for path, _, _ in TREE])
def test_help_fits_a_screen(path, command, ctx):
    """Of the program itself: a line for each of its commands besides."""
    more = len(command.list_commands(ctx)) if isinstance(command, click.Group) else 0
    assert len(command.get_help(ctx).splitlines()) <= 40 + more


def test_the_page_is_as_the_program_says():
    assert DOCS.read_text() == markdown(), "if the change is meant: python -m tests.cli.help_page > docs/cli.md"


def test_the_page_names_every_option_and_every_variable_that_has_a_name_of_its_own():
    page = markdown()
    for path, command, ctx in TREE:
        for param in command.get_params(ctx):
            if isinstance(param, click.Option) and not param.hidden and path not in SAME_OPTIONS:
                assert max(param.opts, key=len) in page, (path, param.opts)
                shown = re.search(r"env var: ([^;\]]+)", param.get_help_record(ctx)[1])
                assert shown is None or shown[1] in page, (path, shown[1])


def test_what_the_page_explains_once_belongs_to_several_commands():
    options = [max(param.opts, key=len) for _, command, ctx in TREE for param in command.get_params(ctx)]
    assert all(options.count(option) > 1 for option in SHARED)


def test_a_variable_does_what_the_option_does():
    assert run("xid", "explain", "79", env={"GPUWATCH_XID_EXPLAIN_OUTPUT": "json"}).stdout.startswith("{")


@pytest.mark.parametrize("flag", ["-h", "--help"])
def test_both_spellings_of_help_work_everywhere(flag):
    assert run("get", flag).stdout.startswith("Usage: gpuwatch get")


def test_the_version_is_the_packages():
    assert run("--version").stdout == f"gpuwatch {__version__}\n"


@pytest.mark.parametrize(
    ("typed", "meant"),
    [(("statsu",), "status"), (("xid", "explian"), "explain"), (("--souce", "sim", "status"), "--source")],
)
def test_a_typo_is_answered_with_what_was_meant(typed, meant):
    result = run(*typed)
    assert result.exit_code == 2
    assert "did you mean" in result.stderr.lower()
    assert meant in result.stderr


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_is_a_script_for_our_name(shell):
    script = run("completion", shell).stdout
    assert "_GPUWATCH_COMPLETE" in script
    assert "gpuwatch" in script


def test_completion_offers_values():
    words = subprocess.run(
        [sys.executable, "-m", "gpuwatch"],
        env={"COMP_WORDS": "gpuwatch sim run fallen", "COMP_CWORD": "3", "_GPUWATCH_COMPLETE": "bash_complete"},
        capture_output=True,
        text=True,
        check=False,
    ).stdout
    assert "fallen-off-bus" in words
