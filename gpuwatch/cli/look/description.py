"""One GPU with all its parts, as an item for scripts and as text for people."""

from collections.abc import Iterable, Iterator
from operator import attrgetter
from typing import TYPE_CHECKING, Any

from gpuwatch.cli.console.table import table
from gpuwatch.cli.console.words import Words
from gpuwatch.cli.look.columns import HEALTH_STYLES, MIG, NVLINKS, PROCESSES, XIDS, gpu_user
from gpuwatch.cli.look.describe_rows import SECTIONS, Row
from gpuwatch.cli.look.event_items import HISTORY, EventItem, concerns, event_items
from gpuwatch.cli.look.gather import finding_items, gpu_items, mig_items, nvlink_items, process_items, xid_items
from gpuwatch.cli.look.items import (
    FindingItem,
    GpuItem,
    MigItem,
    NvLinkItem,
    ProcessItem,
    SettingItem,
    XidItem,
    setting_items,
)
from gpuwatch.model.setting import Setting
from gpuwatch.model.snapshot import Identity, Vgpu
from gpuwatch.model.view import Events, View

if TYPE_CHECKING:
    from rich.text import Text

LABEL = 30
WIDTH = 100
HISTORY_EVENTS = 12

PARTS = (
    ("NVLink", "nvlinks", NVLINKS),
    ("MIG instances", "mig", MIG),
    ("Processes", "process_list", PROCESSES),
    ("XIDs", "xids", XIDS),
    ("History", "history", HISTORY),
)
"""Lists, printed as tables where they have rows; their first column says the GPU, which is known here."""

_UNMEASURED = (
    ("identity.", "not reported"),
    ("activity.", "not measured (GPM, Hopper and newer)"),
    ("utilization.gpu_m", "not measured"),
    ("power.m", "not measured"),
)
"""What to say about values the driver is not asked for by path."""


class GpuDescription(GpuItem, frozen=True, kw_only=True):
    """A GpuItem and all that belongs to it. `settings`: what gpuwatch's tuner has set, by its record on this machine.
    `errors` maps a path to the driver's error; `unsupported` lists paths; `history` has the latest, oldest first.
    """

    identity: Identity
    settings: tuple[SettingItem, ...] = ()
    display_active: bool | None = None
    virtualization_mode: str | None = None
    mig_pending: bool | None = None
    nvlinks: tuple[NvLinkItem, ...] = ()
    mig: tuple[MigItem, ...] = ()
    vgpus: tuple[Vgpu, ...] = ()
    process_list: tuple[ProcessItem, ...] = ()
    xids: tuple[XidItem, ...] = ()
    findings: tuple[FindingItem, ...] = ()
    history: tuple[EventItem, ...] = ()
    unsupported: tuple[str, ...] = ()
    errors: dict[str, str] = {}
    read_seconds: float | None = None


def description(
    view: View, uuid: str, events: Events | None = None, settings: tuple[Setting, ...] = ()
) -> GpuDescription:
    """All that the View has about one GPU, what happened to it lately, and what is recorded as set on it."""
    item = next(gpu for gpu in gpu_items(view) if gpu.uuid == uuid)
    status = next(s for s in view.snapshot.statuses if s.identity.uuid == uuid)
    sample = next((gpu for gpu in view.snapshot.gpus if gpu.identity.uuid == uuid), None)
    also = ("display_active", "virtualization_mode", "mig_pending", "vgpus", "unsupported", "errors", "read_seconds")
    indices = {status.identity.index}
    return GpuDescription(
        **{name: getattr(item, name) for name in GpuItem.__struct_fields__},
        **({name: getattr(sample, name) for name in also} if sample else {}),
        identity=status.identity,
        settings=setting_items(settings, uuid),
        nvlinks=tuple(link for link in nvlink_items(view) if link.uuid == uuid),
        mig=tuple(mig for mig in mig_items(view) if mig.gpu in indices),
        process_list=tuple(process for process in process_items(view) if process.uuid == uuid),
        xids=tuple(xid for xid in xid_items(view) if xid.uuid == uuid),
        findings=tuple(finding for finding in finding_items(view) if finding.uuid == uuid),
        history=_history(events, view, uuid) if events else (),
    )


def _history(events: Events, view: View, uuid: str) -> tuple[EventItem, ...]:
    return tuple(item for item in event_items(events, view) if concerns(item, (uuid,)))[-HISTORY_EVENTS:]


def text_lines(item: GpuDescription, words: Words) -> "list[Text]":
    """Sections of `label  value`, then the lists."""
    from rich.text import Text

    head = Text.assemble(
        (f"GPU {item.index}", "bold"),
        f"  {item.name or ''}   ",
        (item.health.value.upper(), HEALTH_STYLES[item.health]),
    )
    lines = [head, *_presence(item, words), *_findings(item, words)]
    for title, rows in SECTIONS:
        body = [_row(item, row, words) for row in rows]
        if item.at is not None or title == "Identity":
            lines += [Text("", end=""), Text(title, "bold", end=""), *body]
    lines += _clock_events(item, words) + _counts(item)
    for title, name, columns in PARTS:
        rows_of = getattr(item, name)
        if rows_of:
            lines += [
                Text("", end=""),
                Text(title, "bold", end=""),
                *_indented(table(columns[1:], rows_of, words, width=WIDTH - 2)),
            ]
    return lines


def why_unknown(item: GpuDescription, path: str) -> str:
    """What to say where a value is missing: not supported, failed, or just not known."""
    for part in _prefixes(path):
        if part in item.errors:
            return f"could not be read: {item.errors[part]}"
    if attrgetter(path)(item) == () or any(part in item.unsupported for part in _prefixes(path)):
        return "not supported by this GPU"
    return next((words for start, words in _UNMEASURED if path.startswith(start)), "unknown")


def _prefixes(path: str) -> Iterator[str]:
    parts = path.split(".")
    return (".".join(parts[:size]) for size in range(len(parts), 0, -1))


def _presence(item: GpuDescription, words: Words) -> "list[Text]":
    from rich.text import Text

    state = item.state.value + (f", {item.detail}" if item.detail else "")
    facts = [("State", state), ("Used by", gpu_user(item, words))]
    facts += [("Set by gpuwatch's tuner", _setting(setting, words)) for setting in item.settings]
    return [Text(f"  {label:<{LABEL}}{value}", end="") for label, value in facts]


def _setting(item: SettingItem, words: Words) -> str:
    if item.knob == "power_limit":
        return f"power limit {words.watts(item.applied)}, before {words.watts(item.original)}"
    return f"clock at most {words.clock(item.applied)}; gpuwatch tune status tells why"


def _findings(item: GpuDescription, words: Words) -> "list[Text]":
    from rich.text import Text

    from gpuwatch.cli.look.screen import finding_lines

    lines = [line for finding in item.findings for line in finding_lines([finding], words, WIDTH, evidence=True)]
    return [Text("", end=""), *lines] if lines else []


def _row(item: GpuDescription, row: Row, words: Words) -> "Text":
    from rich.text import Text

    value: Any = attrgetter(row.path)(item)
    known = value is not None and value not in ((), {})
    line = Text(f"  {row.label:<{LABEL}}", overflow="fold", end="")
    return line.append(row.words(words, value)) if known else line.append(why_unknown(item, row.path), "dim")


def _clock_events(item: GpuDescription, words: Words) -> "list[Text]":
    from rich.text import Text

    events = item.clock_events
    reasons = list(dict.fromkeys([*events.active, *events.seconds]))
    if not reasons:
        return []
    lines = [Text("", end=""), Text("Clock event reasons", "bold")]
    for reason in reasons:
        active, seconds = events.active.get(reason), events.seconds.get(reason)
        state = {True: "active", False: "not active", None: ""}[active]
        held = f"{seconds:.3f} s in all" if seconds is not None else ""
        text = ", ".join(part for part in (state, held) if part)
        lines.append(Text(f"  {reason:<{LABEL}}{text}", "yellow" if active and reason != "gpu_idle" else "", end=""))
    return lines


def _counts(item: GpuDescription) -> "list[Text]":
    """ECC counters: a line for each kind and scope, its locations side by side."""
    from rich.text import Text

    groups: dict[str, list[str]] = {}
    for name, count in item.ecc.counts.items():
        kind, scope, location = name.split("/", 2)
        groups.setdefault(f"{kind}, {scope}", []).append(f"{location} {count}")
    if not groups:
        return []
    body = [Text(f"  {label:<{LABEL}}{'  '.join(counts)}", overflow="fold", end="") for label, counts in groups.items()]
    return [Text("", end=""), Text("ECC errors", "bold"), *body]


def _indented(lines: "Iterable[Text]") -> "list[Text]":
    from rich.text import Text

    return [Text("  ", end="").append_text(line) for line in lines]
