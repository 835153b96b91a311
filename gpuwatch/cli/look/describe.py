"""`gpuwatch describe gpu|pod|job NAME`: everything about one GPU, and why values are missing; or work and its GPUs."""

from functools import partial
from operator import attrgetter
from typing import Any

import click

from gpuwatch.cli.console.document import Envelope, schema
from gpuwatch.cli.console.options import ResourceName, find_gpu, namespace, output, state_dir
from gpuwatch.cli.console.session import Session, pass_session
from gpuwatch.cli.console.table import table
from gpuwatch.cli.console.text import Text
from gpuwatch.cli.console.words import Words, utc
from gpuwatch.cli.look.columns import HEALTH_STYLES, MIG, NVLINKS, PROCESSES, XIDS, gpu_user
from gpuwatch.cli.look.describe_rows import SECTIONS, DescriptionRow
from gpuwatch.cli.look.event_items import HISTORY, EventItem, concerns, event_items
from gpuwatch.cli.look.gather import finding_items, gpu_items, mig_items, nvlink_items, process_items, xid_items
from gpuwatch.cli.look.items import (
    FindingItem,
    GpuItem,
    Item,
    MigItem,
    NvLinkItem,
    ProcessItem,
    SettingItem,
    XidItem,
    same_members,
    setting_items,
)
from gpuwatch.cli.look.source import complete_names, open_source, recorded_settings
from gpuwatch.cli.look.status import finding_lines, folded
from gpuwatch.model.snapshot import C2c, Identity, License, Memory, Vgpu, VideoSessions
from gpuwatch.model.view import Events, GpuRepair, View
from gpuwatch.tuning.model.setting import Setting

HELP = """Show everything about one GPU, or about a pod or Slurm job and its GPUs.

ID is an index, a UUID or its beginning, or a PCI address; NAME is a pod, NAMESPACE/POD, or a job's number.

\b
Examples:
  gpuwatch describe gpu 0
  gpuwatch describe pod ml-research/llama-pretrain-0
  gpuwatch describe job 4711
"""

LABEL = 30
WIDTH = 100
HISTORY_EVENTS = 12
WORK_SECONDS = 3.0
"""How long the GPUs of a pod or job are measured where no agent has done so."""

PARTS = (
    ("NVLink", "nvlinks", NVLINKS),
    ("MIG instances", "mig", MIG),
    ("Processes", "process_list", PROCESSES),
    ("XIDs", "xids", XIDS),
    ("History", "history", HISTORY),
)
"""Lists, printed as tables where they have rows; their first column, the GPU, is left out."""

_UNMEASURED = (
    ("identity.", "not reported"),
    ("protected_memory.", "not reported"),
    ("license.", "not reported"),
    ("activity.", "not measured (GPM, Hopper and newer)"),
    ("utilization.gpu_m", "not measured"),
    ("power.m", "not measured"),
)
"""Beginning of a path -> why its value is missing, where neither driver nor View gives a reason."""


class GpuDescription(GpuItem, frozen=True, kw_only=True):
    """A GpuItem and all that belongs to it. `settings`: what gpuwatch's tuner has set, by its record on this machine;
    `repair`: what the repairer reports about it. `errors` maps a path to the driver's error; `unsupported` lists
    paths, `why_absent` maps some of them to the reason; `history` has the latest events, oldest first.
    """

    identity: Identity
    settings: tuple[SettingItem, ...] = ()
    repair: GpuRepair | None = None
    display_active: bool | None = None
    virtualization_mode: str | None = None
    accounting_mode: bool | None = None
    license: License = License()
    confidential: bool | None = None
    protected_memory: Memory = Memory()
    c2c: C2c = C2c()
    encoder: VideoSessions = VideoSessions()
    frame_capture: VideoSessions = VideoSessions()
    mig_pending: bool | None = None
    nvlinks: tuple[NvLinkItem, ...] = ()
    mig: tuple[MigItem, ...] = ()
    vgpus: tuple[Vgpu, ...] = ()
    process_list: tuple[ProcessItem, ...] = ()
    xids: tuple[XidItem, ...] = ()
    findings: tuple[FindingItem, ...] = ()
    history: tuple[EventItem, ...] = ()
    unsupported: tuple[str, ...] = ()
    why_absent: dict[str, str] = {}
    errors: dict[str, str] = {}
    read_seconds: float | None = None


@click.command(help=HELP, short_help="Show everything about one GPU, pod or Slurm job.")
@click.argument(
    "resource", type=ResourceName({"gpu": ("gpus",), "pod": ("pods", "po"), "job": ("jobs",)}), metavar="gpu|pod|job"
)
@click.argument("id_", metavar="ID|NAME", shell_complete=complete_names)
@output("table", "json", "yaml", "schema")
@namespace
@state_dir
@pass_session
def describe(session: Session, resource: str, id_: str, output: str, namespace: str | None) -> None:
    """Print one GPU, pod or job of one View."""
    from gpuwatch.cli.look.describe_work import (
        JobDescription,
        PodDescription,
        job_description,
        pod_description,
        work_lines,
    )
    from gpuwatch.cli.look.why import recent_of

    types: dict[str, type[Item]] = {"gpu": GpuDescription, "pod": PodDescription, "job": JobDescription}
    type_ = types[resource]
    if output == "schema":
        session.terminal.page(schema(type_.__name__, type_) + "\n")
        return
    item: GpuDescription | PodDescription | JobDescription
    with open_source(session) as source:
        view, events, settings = source.view(), source.events(), recorded_settings(session)
        words = Words(session.terminal.glyphs, view.snapshot.at)
        recent = partial(recent_of, source, WORK_SECONDS)
        if resource == "gpu":
            item = description(view, find_gpu(view, id_).uuid, events, settings)
            lines = text_lines(item, words)
        else:
            if resource == "pod":
                item = pod_description(view, id_, namespace, events, recent, settings)
            else:
                item = job_description(view, id_, events, recent, settings)
            lines = work_lines(item, words, session.terminal.width)
    if output == "table":
        session.terminal.show(*lines)
        return
    document = Envelope(kind=type_.__name__, node=view.snapshot.node, at=utc(view.snapshot.at), items=(item,))
    session.terminal.document(document, output)


def description(
    view: View, uuid: str, events: Events | None = None, settings: tuple[Setting, ...] = ()
) -> GpuDescription:
    """All that the View has about one GPU, what happened to it lately, and what is recorded as set on it."""
    item = next(gpu for gpu in gpu_items(view) if gpu.uuid == uuid)
    status = next(s for s in view.snapshot.statuses if s.identity.uuid == uuid)
    sample = next((gpu for gpu in view.snapshot.gpus if gpu.identity.uuid == uuid), None)
    return same_members(
        GpuDescription,
        sample,
        **{name: getattr(item, name) for name in GpuItem.__struct_fields__},
        identity=status.identity,
        confidential=view.snapshot.driver.confidential if view.snapshot.driver else None,
        settings=setting_items(settings, uuid),
        repair=next((each for each in view.repairer.gpus if each.gpu == uuid), None) if view.repairer else None,
        nvlinks=tuple(link for link in nvlink_items(view) if link.uuid == uuid),
        mig=tuple(mig for mig in mig_items(view) if mig.gpu == status.identity.index),
        process_list=tuple(process for process in process_items(view) if process.uuid == uuid),
        xids=tuple(xid for xid in xid_items(view) if xid.uuid == uuid),
        findings=tuple(finding for finding in finding_items(view) if finding.uuid == uuid),
        history=tuple(each for each in event_items(events, view) if concerns(each, (uuid,)))[-HISTORY_EVENTS:]
        if events
        else (),
    )


def text_lines(item: GpuDescription, words: Words) -> list[Text]:
    """Sections of `label  value`, then the lists."""
    head = Text.assemble(
        (f"GPU {item.index}", "bold"),
        f"  {item.name or ''}   ",
        (item.health.value.upper(), HEALTH_STYLES[item.health]),
    )
    state = item.state.value + (f", {item.detail}" if item.detail else "")
    facts = [("State", state), ("Used by", gpu_user(item, words))]
    for setting in item.settings:
        text = f"clock at most {words.clock(setting.applied)}; `gpuwatch tune status` shows why"
        if setting.knob == "power_limit":
            text = f"power limit {words.watts(setting.applied)}, before {words.watts(setting.original)}"
        facts.append(("Set by gpuwatch's tuner", text))
    if item.repair:
        facts.append(("Repairer", f"{item.repair.state}: {item.repair.message}".removesuffix(": ")))
    lines = [head, *(Text(f"  {label:<{LABEL}}{value}") for label, value in facts)]
    if item.findings:
        lines.append(Text(""))
        for alike, effects in folded(item.findings):
            lines += finding_lines(alike, words, WIDTH, effects=effects, evidence=True)
    for title, rows in SECTIONS:
        if item.at is not None or title == "Identity":
            lines += [Text(""), Text(title, "bold"), *(_row(item, row, words) for row in rows)]
    lines += _clock_events(item) + _ecc_counts(item)
    for title, name, columns in PARTS:
        if rows_of := getattr(item, name):
            body = table(columns[1:], rows_of, words, width=WIDTH - 2)
            lines += [Text(""), Text(title, "bold")]
            lines += [Text("  ").append(line) for line in body]
    return lines


def why_unknown(item: GpuDescription, path: str) -> str:
    """Why a value is missing: not supported, failed, or not known."""
    parts = path.split(".")
    prefixes = [".".join(parts[:size]) for size in range(len(parts), 0, -1)]
    for prefix in prefixes:
        if prefix in item.errors:
            return f"could not be read: {item.errors[prefix]}"
        if prefix in item.why_absent:
            return item.why_absent[prefix]
    if attrgetter(path)(item) == () or any(prefix in item.unsupported for prefix in prefixes):
        return "not supported by this GPU"
    return next((text for start, text in _UNMEASURED if path.startswith(start)), "unknown")


def _row(item: GpuDescription, row: DescriptionRow, words: Words) -> Text:
    value: Any = attrgetter(row.path)(item)
    known = value is not None and value not in ((), {})
    line = Text(f"  {row.label:<{LABEL}}", overflow="fold")
    return line.append(row.text(words, value)) if known else line.append(why_unknown(item, row.path), "dim")


def _clock_events(item: GpuDescription) -> list[Text]:
    events = item.clock_events
    untimed = {
        path.rpartition(".")[2]: why
        for path, why in item.why_absent.items()
        if path.startswith("clock_events.seconds.")
    }
    reasons = list(dict.fromkeys([*events.active, *events.seconds, *untimed]))
    if not reasons:
        return []
    lines = [Text(""), Text("Clock event reasons", "bold")]
    for reason in reasons:
        active, seconds = events.active.get(reason), events.seconds.get(reason)
        state = {True: "active", False: "not active", None: ""}[active]
        held = f"{seconds:.3f} s in all" if seconds is not None else untimed.get(reason, "")
        text = ", ".join(part for part in (state, held) if part)
        lines.append(Text(f"  {reason:<{LABEL}}{text}", "yellow" if active and reason != "gpu_idle" else ""))
    return lines


def _ecc_counts(item: GpuDescription) -> list[Text]:
    """ECC counters: a line for each kind and scope, its locations side by side."""
    groups: dict[str, list[str]] = {}
    for name, count in item.ecc.counts.items():
        kind, scope, location = name.split("/", 2)
        groups.setdefault(f"{kind}, {scope}", []).append(f"{location} {count}")
    if not groups:
        return []
    body = [Text(f"  {label:<{LABEL}}{'  '.join(counts)}", overflow="fold") for label, counts in groups.items()]
    return [Text(""), Text("ECC errors", "bold"), *body]
