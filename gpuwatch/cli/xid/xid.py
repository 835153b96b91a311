"""`gpuwatch xid`: what an XID means, what a log line contains, which XIDs occur now. All but `watch` need no GPU."""

import time
from typing import BinaryIO

import click

from gpuwatch.cli.console.commands import Entry
from gpuwatch.cli.console.lazy import LazyGroup
from gpuwatch.cli.console.options import option, output
from gpuwatch.cli.console.session import Session, pass_session

ENTRIES = (
    Entry("explain", "Say what an XID means and what to do.", "xid.xid:explain", "Commands"),
    Entry("list", "List every known XID.", "xid.xid:list_", "Commands"),
    Entry("parse", "Read kernel log lines, print one JSON object a line.", "xid.xid:parse", "Commands"),
    Entry("watch", "Print XIDs as they happen.", "xid.xid:watch", "Commands"),
)

PROSE = 100
"""Columns that sentences take at most."""

SCHEMA = ("XidCodeList", "cli.xid.page:XidCode")

CATEGORIES = ("hardware", "driver", "application", "unknown")


@click.group(cls=LazyGroup, entries=ENTRIES)
def xid() -> None:
    """Explain, list, parse and watch XIDs."""


def _codes(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[str]:
    from gpuwatch.model.xid_catalogue import all_xids

    return [str(info.code) for info in all_xids() if str(info.code).startswith(incomplete)]


@click.command(short_help="Say what an XID means and what to do.")
@click.argument("code", metavar="CODE|LINE", shell_complete=_codes)
@output("table", "json", "yaml", schema=SCHEMA)
@pass_session
def explain(session: Session, code: str, output: str) -> None:
    """Say what an XID means and what to do.

    CODE is its number; a whole LINE of the kernel log is decoded as well, with any prefix. "-" reads the first line
    with an XID from stdin.

    \b
    Examples:
      gpuwatch xid explain 79
      gpuwatch xid explain "$(dmesg | grep 'NVRM: Xid' | tail -1)"
    """
    from gpuwatch.cli.xid.page import catalogue_document, page
    from gpuwatch.collect.kernel_log.lines import LONGEST_LINE, parse_line, read_pasted
    from gpuwatch.model.errors import GpuwatchError, UsageError
    from gpuwatch.model.xid_catalogue import explain as look_up

    if code == "-":
        lines = click.open_file("-", "rb")
        read = (
            read_pasted(text.decode("utf-8", "replace")) for text in iter(lambda: lines.readline(LONGEST_LINE), b"")
        )
        line = next((line for line in read if line.xid is not None), None)
        if line is None:
            raise UsageError("no XID on stdin", "none of its lines is the driver's", "paste the line with NVRM: Xid")
    elif code.isdecimal() and len(code) < 10:
        line = None
    else:
        line = parse_line(code)
        line = read_pasted(code) if line.xid is None else line
    number = int(code) if line is None else line.xid
    if number is None:
        raise UsageError(
            f"{code[:60]!r} is no XID", "it is neither a number nor an XID's kernel line", "for example 79"
        )
    info = look_up(number)
    if info is None:
        raise GpuwatchError(f"XID {number} is not documented", "no NVIDIA document names it", "see gpuwatch xid list")
    if output == "table":
        session.terminal.show(*page(info, line, session.config_or_defaults(), min(session.terminal.width, PROSE)))
    else:
        session.terminal.document(catalogue_document((info,)), output)


@click.command("list", short_help="List every known XID.")
@output(schema=SCHEMA)
@option("--category", type=click.Choice(CATEGORIES), help="Only those of one cause.")
@option("--taint", is_flag=True, help="Only those that call for taking the node out of use.")
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
        session.terminal.print(*(f"xid/{row.code}" for row in rows))
    else:
        session.terminal.document(catalogue_document(tuple(rows)), output)


@click.command(short_help="Read kernel log lines, print one JSON object a line.")
@click.argument("file", type=click.File("rb"), default="-")
@pass_session
def parse(session: Session, file: BinaryIO) -> None:
    """Read kernel log lines, print one JSON object a line, for each record.

    Takes raw /dev/kmsg records, the journal's JSON and export forms, dmesg, klogctl, syslog and journal text, and lines
    with any other prefix. Lines of text that share a time to the microsecond are one record; one that a process name
    with a newline could have forged is marked "forgeable". Absent fields are null.

    \b
    Examples:
      dmesg | gpuwatch xid parse
      journalctl -k -b -1 -o json | gpuwatch xid parse | jq 'select(.kind == "xid")'
    """
    from gpuwatch.collect.kernel_log.records import parse_file

    for line in parse_file(file, pasted=True):
        session.terminal.document(line, "ndjson")


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
