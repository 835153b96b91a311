"""`gpuwatch xid`: what an XID means, what a log line says, what happens now. All but `watch` need no GPU."""

import time
from typing import Any, TextIO

import click

from gpuwatch.cli.console.commands import Entry
from gpuwatch.cli.console.lazy import LazyGroup
from gpuwatch.cli.console.options import output
from gpuwatch.cli.console.session import Session, pass_session

ENTRIES = (
    Entry("explain", "Say what an XID means and what to do.", "xid.xid:explain", "Commands"),
    Entry("list", "List every known XID.", "xid.xid:list_", "Commands"),
    Entry("parse", "Read kernel log lines, print one JSON object a line.", "xid.xid:parse", "Commands"),
    Entry("watch", "Print XIDs as they happen.", "xid.xid:watch", "Commands"),
)

PROSE = 100
"""Columns that sentences take at most."""

CATEGORIES = ("hardware", "driver", "application", "unknown")


@click.group(cls=LazyGroup, entries=ENTRIES)
def xid() -> None:
    """Explain, list, parse and watch XIDs."""


def _codes(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[str]:
    from gpuwatch.model.xid_catalogue import all_xids

    return [str(info.code) for info in all_xids() if str(info.code).startswith(incomplete)]


@click.command(short_help="Say what an XID means and what to do.")
@click.argument("code", metavar="CODE|LINE", shell_complete=_codes)
@output("table", "json", "yaml", "schema")
@pass_session
def explain(session: Session, code: str, output: str) -> None:
    """Say what an XID means and what to do.

    CODE is its number; a whole LINE of the kernel log is decoded as well.

    \b
    Examples:
      gpuwatch xid explain 79
      gpuwatch xid explain "$(dmesg | grep 'NVRM: Xid' | tail -1)"
    """
    from gpuwatch.cli.xid.page import catalogue_document, page
    from gpuwatch.collect.kernel_log.lines import parse_line
    from gpuwatch.model.errors import GpuwatchError, UsageError
    from gpuwatch.model.xid_catalogue import explain as look_up

    if output == "schema":
        _document(catalogue_document(()), output)
        return
    line = None if code.isdecimal() else parse_line(code)
    number = int(code) if line is None else line.xid
    if number is None:
        raise UsageError(f"{code[:60]!r} is no XID", "it is neither a number nor an XID's kernel line", "write e.g. 79")
    info = look_up(number)
    if info is None:
        raise GpuwatchError(f"XID {number} is not documented", "no NVIDIA document names it", "see gpuwatch xid list")
    if output == "table":
        session.terminal.show(*page(info, line, session.config(), min(session.terminal.width, PROSE)))
    else:
        _document(catalogue_document((info,)), output)


@click.command("list", short_help="List every known XID.")
@output("table", "wide", "json", "yaml", "name", "schema")
@click.option("--category", type=click.Choice(CATEGORIES), help="Only those of one cause.", show_envvar=True)
@click.option("--taint", is_flag=True, help="Only those that call for taking the node out of use.", show_envvar=True)
@pass_session
def list_(session: Session, output: str, category: str | None, taint: bool) -> None:
    """List every known XID.

    \b
    Example:
      gpuwatch xid list --category hardware
    """
    from gpuwatch.cli.console.table import table
    from gpuwatch.cli.console.words import Words
    from gpuwatch.cli.xid.page import COLUMNS, catalogue_document
    from gpuwatch.model.xid_catalogue import all_xids

    rows = [x for x in all_xids() if category in (None, x.category) and (x.taint or not taint)]
    terminal = session.terminal
    if output in ("table", "wide"):
        words = Words(terminal.glyphs, time.time())
        terminal.show(*table(COLUMNS, rows, words, width=terminal.width, wide=output == "wide"))
    elif output == "name":
        click.echo("\n".join(f"xid/{row.code}" for row in rows))
    else:
        _document(catalogue_document(tuple(rows)), output)


@click.command(short_help="Read kernel log lines, print one JSON object a line.")
@click.argument("file", type=click.File("r", encoding="utf-8", errors="replace"), default="-")
def parse(file: TextIO) -> None:
    """Read kernel log lines, print one JSON object a line.

    Takes dmesg, syslog, journal and raw /dev/kmsg lines, in any mixture. Absent fields are null.

    \b
    Examples:
      dmesg | gpuwatch xid parse
      journalctl -k -b -1 | gpuwatch xid parse | jq 'select(.kind == "xid")'
    """
    from gpuwatch.cli.console.document import to_json
    from gpuwatch.collect.kernel_log.lines import parse_lines

    for line in parse_lines(file):
        click.echo(to_json(line, lines=True))


@click.command(short_help="Print XIDs as they happen.")
@output("table", "json")
@pass_session
def watch(session: Session, output: str) -> None:
    """Print XIDs as they happen, until interrupted.

    \b
    Example:
      gpuwatch xid watch -o json
    """
    from gpuwatch.cli.look.events import EventFilter, follow
    from gpuwatch.model.event import EventQuery

    follow(session, output, EventFilter(EventQuery(kinds=("xid",))))


def _document(document: Any, output: str) -> None:
    from gpuwatch.cli.console.document import schema, to_json, to_yaml
    from gpuwatch.cli.xid.page import XidCode

    if output == "schema":
        click.echo(schema(document.kind, XidCode))
    else:
        click.echo(to_json(document) if output == "json" else to_yaml(document))
