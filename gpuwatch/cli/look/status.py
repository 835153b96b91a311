"""`gpuwatch status`: a line for the node, a line per GPU, findings and what to do about them; health as exit code."""

from collections import Counter
from collections.abc import Collection, Sequence

import click

from gpuwatch.cli.console.document import Envelope
from gpuwatch.cli.console.options import option, output
from gpuwatch.cli.console.remedies import ADVICE
from gpuwatch.cli.console.session import Session, pass_session
from gpuwatch.cli.console.table import table
from gpuwatch.cli.console.terminal import Glyphs
from gpuwatch.cli.console.text import Text
from gpuwatch.cli.console.words import Words, utc, wrap
from gpuwatch.cli.look.columns import GPUS, HEALTH_STYLES, SEVERITY_STYLES
from gpuwatch.cli.look.gather import finding_items, gpu_items, pod_names
from gpuwatch.cli.look.items import FindingItem
from gpuwatch.cli.look.source import open_source
from gpuwatch.health.causes import WHY
from gpuwatch.model.errors import GpuwatchError, UsageError
from gpuwatch.model.finding import Health, Severity
from gpuwatch.model.snapshot import Driver, SourceStatus
from gpuwatch.model.view import View

HELP = """Show the node on one screen: verdict, GPUs, findings.

The exit code is the verdict: 0 healthy, 3 degraded, 4 failed, 5 no GPU stack;
1 unknown, or 3 where a finding says why it is.

\b
Examples:
  gpuwatch status
  gpuwatch status -o json
  gpuwatch status --nagios
"""

EXIT_CODES = {"healthy": 0, "degraded": 3, "failed": 4, "unknown": 1}
NAGIOS = {"healthy": (0, "OK"), "degraded": (1, "WARNING"), "failed": (2, "CRITICAL"), "unknown": (3, "UNKNOWN")}
NPD = {"healthy": 0, "degraded": 1, "failed": 1, "unknown": 2}
"""node-problem-detector's custom plugins: 0 OK, 1 not OK, 2 unknown."""


NODE_LINE = 90
"""Columns that the first line takes when there are as many."""

INDENT = 9


class StatusDocument(Envelope, frozen=True, kw_only=True):
    """The Envelope of `status`: `items` are the GPUs."""

    health: Health
    driver: Driver | None
    findings: tuple[FindingItem, ...]
    ignored: tuple[str, ...]
    sources: tuple[SourceStatus, ...]


@click.command(help=HELP, short_help="Show the node on one screen: verdict, GPUs, findings.")
@output(schema=("Status", "cli.look.items:GpuItem", "cli.look.status:StatusDocument"))
@option("--nagios", is_flag=True, help="One line and exit code of a Nagios plugin.")
@option("--npd", is_flag=True, help="One line and exit code of a node-problem-detector plugin.")
@pass_session
@click.pass_context
def status(ctx: click.Context, session: Session, output: str, nagios: bool, npd: bool) -> None:
    """Print one View of the node."""
    if nagios and npd:
        raise UsageError("--nagios and --npd exclude each other", "", "choose one")
    if nagios or npd:
        ctx.exit(_plugin(session, npd=npd))
    with open_source(session) as source:
        view = source.view()
    if output in ("json", "yaml"):
        document = StatusDocument(
            kind="Status",
            node=view.snapshot.node,
            at=utc(view.snapshot.at),
            items=tuple(gpu_items(view)),
            health=view.judgement.node,
            driver=view.snapshot.driver,
            findings=tuple(finding_items(view)),
            ignored=view.judgement.ignored,
            sources=view.snapshot.sources,
        )
        session.terminal.document(document, output)
    elif output == "name":
        session.terminal.print(f"node/{view.snapshot.node}")
    else:
        terminal = session.terminal
        terminal.show(*status_lines(view, terminal.glyphs, terminal.width, wide=output == "wide"))
        from gpuwatch.agent.view_builder import OFF

        for each in view.snapshot.sources:  # only the kernel log is worth a hint without -v: XIDs come from it
            if each.up is None and (session.verbose or (each.name == "kmsg" and each.reason != OFF)):
                terminal.hint(f"hint: {each.name} is off; {each.reason}")
    judged = view.judgement
    has_reason = judged.node is Health.UNKNOWN and any(
        finding.severity is Severity.WARNING for finding in judged.findings
    )
    ctx.exit(EXIT_CODES["degraded" if has_reason else judged.node.value] if view.snapshot.statuses else 5)


def _plugin(session: Session, *, npd: bool) -> int:
    """One line for another monitor; an error is `unknown` there, never a traceback."""
    try:
        with open_source(session, quiet=True) as source:  # a plugin host logs what is on stderr as an error
            view = source.view()
    except GpuwatchError as error:
        session.terminal.print(str(error) if npd else f"GPU UNKNOWN - {error}")
        return NPD["unknown"] if npd else NAGIOS["unknown"][0]
    healths = Counter(health.value for health in view.judgement.gpus.values())
    counts = ", ".join(f"{count} {health}" for health, count in healths.items()) or "no GPU"
    parts = [f"{len(view.judgement.gpus)} GPUs: {counts}"]
    parts += [
        ("node" if finding.gpu is None else f"gpu {finding.gpu}") + f" {finding.check}: {finding.message}"
        for finding in finding_items(view)[:1]
    ]
    health: Health = view.judgement.node
    text = "; ".join(parts)
    session.terminal.print(text if npd else f"GPU {NAGIOS[health.value][1]} - {text}")
    return NPD[health.value] if npd else NAGIOS[health.value][0]


def status_lines(view: View, glyphs: Glyphs, width: int, *, wide: bool = False) -> list[Text]:
    """The screen of `status`."""
    words = Words(glyphs, view.snapshot.at)
    gpus = gpu_items(view)
    shown = [c for c in GPUS if c.header != "XID" or any(gpu.last_xid for gpu in gpus)]
    rows = table(shown, gpus, words, width=width, wide=wide) if gpus else [Text("no GPU", "dim")]
    findings = [
        line
        for alike, effects in folded(finding_items(view))
        for line in finding_lines(alike, words, width, effects=effects)
    ]
    if view.judgement.ignored:
        findings.append(Text(f"ignored by checks.ignore: {', '.join(view.judgement.ignored)}", "dim"))
    head = node_line(view, words, min(width, max(NODE_LINE, *(line.cell_len for line in rows))))
    return [head, Text(""), *rows, *([Text(""), *findings] if findings else [])]


def node_line(view: View, words: Words, width: int) -> Text:
    """`NODE name   8 × NVIDIA H100   driver 580.95        HEALTHY`."""
    return head_line(view.snapshot.node, node_parts(view, words.glyphs), view.judgement.node, words, width)


def node_parts(view: View, glyphs: Glyphs) -> list[str]:
    """`8 × NVIDIA H100 80GB HBM3`, every model of the node; the versions of driver and CUDA."""
    models = Counter(status.identity.name or "GPU" for status in view.snapshot.statuses)
    parts = [", ".join(f"{count} {glyphs.times} {name}" for name, count in models.items())] if models else []
    if (driver := view.snapshot.driver) is not None:
        versions = (("driver", driver.version), ("CUDA", driver.cuda))
        parts += [f"{name} {version}" for name, version in versions if version]
    return parts


def head_line(node: str | None, parts: Sequence[str], health: Health, words: Words, width: int) -> Text:
    """Name, as many parts as there is room for, and the verdict at `width` where there is room."""
    shown = list(parts)
    line = Text.assemble(("NODE ", "dim"), (node or words.glyphs.dash, "bold"), no_wrap=True)
    while shown and line.cell_len + sum(3 + len(part) for part in shown) + 3 + len(health.value) > width:
        shown.pop()
    line.append("".join(f"   {part}" for part in shown))
    line.append(" " * max(3, width - len(health.value) - line.cell_len))
    return line.append(health.value.upper(), HEALTH_STYLES[health])


def grouped(findings: Sequence[FindingItem]) -> list[list[FindingItem]]:
    """Findings that differ in the GPU only, together; in the order of the first of each."""
    groups: dict[tuple[object, ...], list[FindingItem]] = {}
    for finding in findings:
        key = (finding.gpu is None, finding.check, finding.severity, finding.xid, finding.message, finding.action)
        groups.setdefault(key, []).append(finding)
    return list(groups.values())


def folded(findings: Sequence[FindingItem]) -> list[tuple[list[FindingItem], list[FindingItem]]]:
    """Findings without a cause among these, grouped, each group with the findings that it explains."""
    keys = {finding.key for finding in findings}
    roots = grouped([finding for finding in findings if finding.caused_by not in keys])
    return [(alike, [each for each in findings if each.caused_by in {one.key for one in alike}]) for alike in roots]


def effects_text(effects: Sequence[FindingItem]) -> str:
    """`3 more follow from it: xid_fatal 79, 154 and nvlink_down on gpu 4`."""
    checks: dict[str, list[FindingItem]] = {}
    for effect in effects:
        checks.setdefault(effect.check, []).append(effect)
    parts = []
    for check, found in checks.items():
        xids = ", ".join(dict.fromkeys(str(one.xid) for one in found if one.xid is not None))
        gpus = {one.gpu for one in found if one.gpu is not None}
        parts.append(f"{check} {xids}".rstrip() + (f" on {gpu_ranges(list(gpus))}" if len(gpus) > 1 else ""))
    return f"{len(effects)} more follow{'s' if len(effects) == 1 else ''} from it: {'; '.join(parts)}"


def finding_lines(
    alike: Sequence[FindingItem],
    words: Words,
    width: int,
    *,
    effects: Sequence[FindingItem] = (),
    evidence: bool = False,
) -> list[Text]:
    """The finding, its GPUs and its age; below it what to do, what follows from it and which pods may be affected."""
    finding = alike[0]
    style = SEVERITY_STYLES[finding.severity]
    since = min((one.since for one in alike if one.since), default=None)
    head = Text.assemble(
        ("! ", style),
        f"{gpu_ranges([one.gpu for one in alike if one.gpu is not None]) + ' ':<{INDENT - 2}}",
        (f"{finding.severity.value:<10}", style),
        (finding.check, "bold"),
        "" if finding.xid is None else f"  XID {finding.xid}",
        (f"  {words.ago(since.timestamp())}" if since else "", "dim"),
    )
    texts = [finding.message]
    if evidence and finding.evidence:
        texts.append("evidence: " + ", ".join(f"{name} = {value}" for name, value in finding.evidence.items()))
    if advice := finding.action or ADVICE[finding.remedy]:
        texts.append(f"{words.glyphs.arrow} {advice}")
    if finding.xid is not None:
        texts.append(f"{words.glyphs.arrow} gpuwatch xid explain {finding.xid}")
    if effects:
        texts.append(f"{effects_text(effects)} ({WHY[finding.check]})")
    elif finding.caused_by:
        texts.append(f"follows from {finding.caused_by}")
    if pods := pod_names(workload for one in (*alike, *effects) for workload in one.pods):
        texts.append(f"possibly affected: {', '.join(pods)}")
    blank = " " * INDENT
    below = [
        line for text in texts for line in wrap(text, max(width, 40), initial_indent=blank, subsequent_indent=blank)
    ]
    return [head, *(Text(line) for line in below)]


def gpu_numbers(gpus: Collection[int]) -> str:
    """`0-3,7`."""
    ranges: list[list[int]] = []
    for gpu in sorted(gpus):
        if ranges and gpu == ranges[-1][-1] + 1:
            ranges[-1].append(gpu)
        else:
            ranges.append([gpu])
    return ",".join(str(run[0]) if len(run) == 1 else f"{run[0]}-{run[-1]}" for run in ranges)


def gpu_ranges(gpus: Collection[int]) -> str:
    """`node`, `gpu 3`, `gpus 0-3,7`."""
    return f"{'gpu' if len(gpus) == 1 else 'gpus'} {gpu_numbers(gpus)}" if gpus else "node"
