"""Every command line of gpuwatch in the documents and the alerts is one that gpuwatch understands."""

import re
import shlex
from collections.abc import Iterator
from pathlib import Path

import click
import pytest

from gpuwatch.cli.main import cli
from tests import fast_yaml

ROOT = Path(__file__).parent.parent.parent
DOCUMENTS = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
RULES = ROOT / "alerts" / "gpuwatch.rules.yaml"
WORD = r"gpuwatch(?=\s+[-a-z])"
IN_BLOCK = re.compile(rf"(?:^\s*|[|;&$]\s+|\bsudo |\s-- |<\(|\$\(){WORD}")
IN_HELP = re.compile(rf"^    {WORD}")
"""Examples in docs/cli.md; other lines there may begin with the name by chance."""

ENDS = frozenset("|&;<>()")
TEMPLATE = re.compile(r"\{\{.*?\}\}")


def code_lines(text: str) -> Iterator[str]:
    """Lines of fenced and indented blocks; a block of another language than a shell's is none."""
    fence: str | None = None
    for line in text.splitlines():
        if line.lstrip().startswith("```"):
            fence = None if fence is not None else line.strip().removeprefix("```") or "text"
        elif fence in {"text", "sh", "bash", "console", "shell"} or (fence is None and line.startswith("    ")):
            yield line


def commands(text: str, start: re.Pattern[str] = IN_BLOCK) -> Iterator[str]:
    """Command lines in blocks, and code within sentences that is one."""
    for line in code_lines(text):
        yield from (line[found.end() - len("gpuwatch") :] for found in start.finditer(line))
    prose = re.sub(r"```.*?```", "", text, flags=re.DOTALL)
    spans = (" ".join(code.split()) for code in re.findall(r"`([^`]+)`", prose))
    yield from (code for code in spans if re.match(WORD, code))


def described(rule: dict) -> str:
    """What an alert says, with a name in place of each label."""
    return TEMPLATE.sub("NAME", rule.get("annotations", {}).get("description", ""))


def documented() -> list[tuple[str, str]]:
    """(where, command line), each once."""
    found = [
        (str(path.relative_to(ROOT)), line)
        for path in DOCUMENTS
        for line in commands(path.read_text(), IN_HELP if path.name == "cli.md" else IN_BLOCK)
    ]
    rules = [rule for group in fast_yaml.load(RULES.read_text())["groups"] for rule in group["rules"]]
    found += [(rule["alert"], line) for rule in rules if "alert" in rule for line in commands(described(rule))]
    return list(dict.fromkeys(found))


def words(line: str) -> list[str]:
    """The line's words up to a pipe or another command, without gpuwatch itself and what stands for more."""
    lexer = shlex.shlex(line, posix=True, punctuation_chars=True)
    lexer.whitespace_split, lexer.commenters = True, "#"
    given: list[str] = []
    for word in lexer:
        if set(word) <= ENDS:
            break
        given.append(word)
    return [word for word in given[1:] if word not in {"...", "…"} and not word.startswith("[")]


def check(line: str) -> None:
    """Walk down the commands as click would, without running any.

    Raises:
        click.UsageError: no such command or option, a wrong choice, or too many arguments.
    """
    command: click.Command = cli
    rest, ctx = words(line), None
    while True:
        ctx = click.Context(command, parent=ctx, info_name=command.name, **command.context_settings)
        values, over, _ = command.make_parser(ctx).parse_args(list(rest))
        for parameter in command.params:
            chosen = values.get(parameter.name)
            if isinstance(parameter.type, click.Choice) and chosen is not None:
                for each in chosen if isinstance(chosen, list | tuple) else [chosen]:
                    parameter.type.convert(each, parameter, ctx)
        if not isinstance(command, click.Group):
            if over and not ctx.allow_extra_args:
                raise click.UsageError(f"too many arguments: {over}")
            return
        if not over:
            return
        _, found, rest = command.resolve_command(ctx, list(over))
        assert found is not None
        command = found


@pytest.mark.parametrize(("where", "line"), documented(), ids=lambda value: value[:60])
def test_it_is_understood(where, line):
    check(line)


@pytest.mark.parametrize(
    "line",
    [
        "gpuwatch diagnosis",
        "gpuwatch status --nagois",
        "gpuwatch get findings -o tabel",
        "gpuwatch node release --node gpu-1 --force",
        "gpuwatch xid explain 79 80",
        "gpuwatch --sources sim status",
    ],
)
def test_the_check_refuses_what_gpuwatch_does_not_have(line):
    with pytest.raises(click.UsageError):
        check(line)


def test_there_are_commands_in_the_runbooks():
    runbooks = {where for where, _ in documented() if where.startswith("docs/runbooks/Gpu")}
    assert len(runbooks) == len(list((ROOT / "docs" / "runbooks").glob("Gpu*.md")))
