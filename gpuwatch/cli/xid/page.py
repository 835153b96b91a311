"""The page of `xid explain`: what happened, what gpuwatch does about it, what a person does, gentlest first."""

import textwrap
from collections.abc import Iterable
from typing import TYPE_CHECKING

from gpuwatch.cli.console.remedies import RUNGS, ladder
from gpuwatch.cli.xid.answer import answer, first_remedy
from gpuwatch.cli.xid.catalogue import SEVERITY_STYLES, causes
from gpuwatch.cli.xid.decode import DECIDES, Fact, decoded, spoken, table_of
from gpuwatch.config import Config
from gpuwatch.model.finding import Remedy
from gpuwatch.model.xid import KernelLine
from gpuwatch.model.xid_catalogue import XidInfo

if TYPE_CHECKING:
    from rich.text import Text

LABEL = 12
WIDEST_LABEL = 44
PLACES = {"node": "NODE", "gpu": "INDEX", "namespace": "NAMESPACE", "pod": "POD"}
"""What stands in commands for what the page cannot know."""


def page(info: XidInfo, line: KernelLine | None, config: Config, width: int) -> "list[Text]":
    """One code in sentences, at most `width` columns wide; `line`: one of it to decode."""
    from rich.text import Text

    head = Text.assemble(
        (f"XID {info.code}", "bold"), f"  {info.name}  ", (info.severity, SEVERITY_STYLES[info.severity]), end=""
    )
    about = [Text(f"  {text}", end="") for text in textwrap.wrap(info.description, width - 2)]
    lines = [head, *about]
    if line is not None:
        lines += _section("This line", decoded(line), width)
    lines += _section("Cause", _cause(info), width)
    lines += _section("What gpuwatch does", answer(info, line, config), width)
    first = first_remedy(info, line, config.checks.xids)
    lines += _section("What to do", _advice(info, line, first), width) + _steps(info, first, width)
    if line is None and info.decided_by:
        lines += _section(DECIDES[info.decided_by], table_of(info), width)
    return lines


def _cause(info: XidInfo) -> Iterable[Fact]:
    yield Fact("cause", causes(info))
    yield Fact("category", info.category)
    if info.since:
        yield Fact("since", f"driver {info.since}")
    if info.note:
        yield Fact("note", info.note)
    if info.unused:
        yield Fact("note", "NVIDIA calls this code unused on Ampere and newer.")


def _advice(info: XidInfo, line: KernelLine | None, first: Remedy) -> Iterable[Fact]:
    told = [action for action in (info.nvidia, info.investigate) if action]
    if told:
        yield Fact("NVIDIA", ", then ".join(dict.fromkeys(f"{spoken(action)} ({action})" for action in told)))
    if first is Remedy.NONE:
        decides = line is None and info.decided_by
        yield Fact("do", "what the line decides, see below" if decides else "nothing")


def _steps(info: XidInfo, first: Remedy, width: int) -> "list[Text]":
    """The ladder: each rung with its commands, those of an earlier one left out; the next is for when it comes back."""
    from rich.text import Text

    again = "in other programs too" if info.category == "application" else "if it comes back"
    lines: list[Text] = []
    told: set[str] = set()
    for number, remedy in enumerate(ladder(first), 1):
        rung = RUNGS[remedy]
        title = f"  {number}. {f'{again}: ' if number > 1 else ''}{rung.words}"
        lines += [Text(text, end="") for text in textwrap.wrap(title, width, subsequent_indent=" " * 5)]
        commands = [command for command in rung.commands if command not in told]
        lines += [Text.assemble("       ", (command.format(**PLACES), "cyan"), end="") for command in commands]
        told |= set(rung.commands)
    return lines


def _section(title: str, facts: Iterable[Fact], width: int) -> "list[Text]":
    """A headline, and facts whose texts hang beside their labels."""
    from rich.text import Text

    rows = list(facts)
    if not rows:
        return []
    size = min(max(LABEL, *(len(row.label) + 4 for row in rows)), WIDEST_LABEL)
    lines = [Text("", end=""), Text(title, "bold", end="")]
    for row in rows:
        label = f"  {row.label}"
        if len(label) + 2 > size:
            lines.append(Text(label, end=""))
            label = ""
        for text in textwrap.wrap(row.text, width - size):
            lines.append(Text(f"{label:<{size}}{text}", end=""))
            label = ""
    return lines
