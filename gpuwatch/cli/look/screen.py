"""The status screen: a line for the node, a line per GPU, what is wrong and what to do about it."""

import textwrap
from collections import Counter
from collections.abc import Iterator, Sequence
from datetime import datetime
from typing import TYPE_CHECKING

from gpuwatch.agent.view_builder import OFF
from gpuwatch.cli.console.document import Envelope
from gpuwatch.cli.console.remedies import ADVICE
from gpuwatch.cli.console.table import table
from gpuwatch.cli.console.terminal import Glyphs
from gpuwatch.cli.console.words import Words, utc
from gpuwatch.cli.look.columns import GPUS, HEALTH_STYLES, SEVERITY_STYLES
from gpuwatch.cli.look.gather import finding_items, gpu_items
from gpuwatch.cli.look.items import FindingItem
from gpuwatch.cli.look.owners import pod_names
from gpuwatch.model.finding import Health
from gpuwatch.model.snapshot import Driver, SourceStatus
from gpuwatch.model.view import View

if TYPE_CHECKING:
    from rich.text import Text


NODE_LINE = 90
"""Columns that the first line takes when there are as many."""

INDENT = 9


class StatusDocument(Envelope, frozen=True, kw_only=True):
    """The Envelope of `status`: `items` are the GPUs."""

    health: Health
    driver: Driver | None
    findings: tuple[FindingItem, ...]
    sources: tuple[SourceStatus, ...]


def status_document(view: View) -> StatusDocument:
    """What scripts get."""
    at: datetime = utc(view.snapshot.at)
    return StatusDocument(
        kind="Status",
        node=view.snapshot.node,
        at=at,
        items=tuple(gpu_items(view)),
        health=view.judgement.node,
        driver=view.snapshot.driver,
        findings=tuple(finding_items(view)),
        sources=view.snapshot.sources,
    )


def status_lines(view: View, glyphs: Glyphs, width: int, *, wide: bool = False) -> "list[Text]":
    """What people get."""
    from rich.text import Text

    words = Words(glyphs, view.snapshot.at)
    gpus = gpu_items(view)
    shown = [c for c in GPUS if c.header != "XID" or any(gpu.last_xid for gpu in gpus)]
    rows = table(shown, gpus, words, width=width, wide=wide) if gpus else [Text("no GPU", "dim", end="")]
    findings = [line for alike in grouped(finding_items(view)) for line in finding_lines(alike, words, width)]
    head = node_line(view, words, min(width, max(NODE_LINE, *(line.cell_len for line in rows))))
    return [head, Text("", end=""), *rows, *([Text("", end=""), *findings] if findings else [])]


def node_line(view: View, words: Words, width: int) -> "Text":
    """`NODE name   8 × NVIDIA H100   driver 580.95        HEALTHY`."""
    return head_line(view.snapshot.node, node_parts(view, words.glyphs), view.judgement.node, words, width)


def node_parts(view: View, glyphs: Glyphs) -> list[str]:
    """What a node is, the most telling first."""
    driver = view.snapshot.driver
    parts = [gpu_models(view, glyphs)] if view.snapshot.statuses else []
    if driver is not None:
        parts += [
            f"{name} {version}" for name, version in (("driver", driver.version), ("CUDA", driver.cuda)) if version
        ]
    return parts


def head_line(node: str | None, parts: Sequence[str], health: Health, words: Words, width: int) -> "Text":
    """Name, as many parts as there is room for, and the verdict at `width` where there is room."""
    from rich.text import Text

    shown = list(parts)
    line = Text.assemble(("NODE ", "dim"), (node or words.glyphs.dash, "bold"), no_wrap=True, end="")
    while shown and line.cell_len + sum(3 + len(part) for part in shown) + 3 + len(health.value) > width:
        shown.pop()
    line.append("".join(f"   {part}" for part in shown))
    line.append(" " * max(3, width - len(health.value) - line.cell_len))
    return line.append(health.value.upper(), HEALTH_STYLES[health])


def gpu_models(view: View, glyphs: Glyphs) -> str:
    """`8 × NVIDIA H100 80GB HBM3`, every model of the node."""
    models = Counter(status.identity.name or "GPU" for status in view.snapshot.statuses)
    return ", ".join(f"{count} {glyphs.times} {name}" for name, count in models.items())


def grouped(findings: Sequence[FindingItem]) -> list[list[FindingItem]]:
    """Findings that say the same of several GPUs, together; in the order of the first of each."""
    groups: dict[tuple[object, ...], list[FindingItem]] = {}
    for finding in findings:
        key = (finding.gpu is None, finding.check, finding.severity, finding.xid, finding.message, finding.action)
        groups.setdefault(key, []).append(finding)
    return list(groups.values())


def finding_lines(alike: Sequence[FindingItem], words: Words, width: int, *, evidence: bool = False) -> "list[Text]":
    """What is wrong, with which GPUs and since when; below it what to do and who may be affected."""
    from rich.text import Text

    finding = alike[0]
    style = SEVERITY_STYLES[finding.severity]
    since = min((one.since for one in alike if one.since), default=None)
    head = Text.assemble(
        ("! ", style),
        f"{_subject([one.gpu for one in alike if one.gpu is not None]) + ' ':<{INDENT - 2}}",
        (f"{finding.severity.value:<10}", style),
        (finding.check, "bold"),
        "" if finding.xid is None else f"  XID {finding.xid}",
        (f"  {words.ago(since.timestamp())}" if since else "", "dim"),
        end="",
    )
    return [head, *(Text(line, end="") for text in _below(alike, words, evidence) for line in _wrapped(text, width))]


def _below(alike: Sequence[FindingItem], words: Words, evidence: bool) -> Iterator[str]:
    finding = alike[0]
    yield finding.message
    if evidence and finding.evidence:
        yield "evidence: " + ", ".join(f"{name} = {value}" for name, value in finding.evidence.items())
    advice = finding.action or ADVICE[finding.remedy]
    if advice:
        yield f"{words.glyphs.arrow} {advice}"
    if finding.xid is not None:
        yield f"{words.glyphs.arrow} gpuwatch xid explain {finding.xid}"
    pods = pod_names(workload for one in alike for workload in one.pods)
    if pods:
        yield f"possibly affected: {', '.join(pods)}"


def _subject(gpus: Sequence[int]) -> str:
    """`node`, `gpu 3`, `gpus 0-3,7`."""
    ranges: list[list[int]] = []
    for gpu in sorted(gpus):
        if ranges and gpu == ranges[-1][-1] + 1:
            ranges[-1].append(gpu)
        else:
            ranges.append([gpu])
    text = ",".join(str(run[0]) if len(run) == 1 else f"{run[0]}-{run[-1]}" for run in ranges)
    return f"{'gpu' if len(gpus) == 1 else 'gpus'} {text}" if gpus else "node"


def _wrapped(text: str, width: int) -> list[str]:
    blank = " " * INDENT
    return textwrap.wrap(text, max(width, 40), initial_indent=blank, subsequent_indent=blank)


def off_sources(view: View, *, every: bool) -> list[str]:
    """Hints about what is not looked at, and why. Only the kernel log is worth one by itself: XIDs come from it."""
    return [
        f"hint: {source.name} is off; {source.reason}"
        for source in view.snapshot.sources
        if source.up is None and (every or (source.name == "kmsg" and source.reason != OFF))
    ]


def plugin_line(view: View) -> str:
    """The verdict in one line of text for other monitors."""
    healths = Counter(health.value for health in view.judgement.gpus.values())
    counts = ", ".join(f"{count} {health}" for health, count in healths.items()) or "no GPU"
    worst = finding_items(view)[:1]
    who = [("node" if f.gpu is None else f"gpu {f.gpu}") + f" {f.check}: {f.message}" for f in worst]
    return "; ".join([f"{len(view.judgement.gpus)} GPUs: {counts}", *who])
