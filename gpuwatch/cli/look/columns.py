"""The columns of every table that `get`, `status` and `top` print."""

from collections.abc import Callable, Sequence
from typing import Any

from gpuwatch.cli.console.table import Column
from gpuwatch.cli.console.words import Words
from gpuwatch.cli.look.gather import pod_names, process_workload
from gpuwatch.cli.look.items import FindingItem, GpuItem, MigItem, NvLinkItem, PodItem, ProcessItem, XidItem
from gpuwatch.model.finding import Health, Severity

HEALTH_STYLES = {Health.HEALTHY: "green", Health.DEGRADED: "yellow", Health.FAILED: "bold red", Health.UNKNOWN: "dim"}
SEVERITY_STYLES = {Severity.INFO: "", Severity.WARNING: "yellow", Severity.CRITICAL: "bold red"}


def users(names: Sequence[str], words: Words) -> str:
    """The first name and how many more."""
    if not names:
        return words.glyphs.dash
    return names[0] + (f" +{len(names) - 1}" if len(names) > 1 else "")


def gpu_user(gpu: GpuItem, words: Words) -> str:
    """The users of the GPU; `free` when it is known that there are none."""
    parts = [f"{gpu.mig_instances} MIG"] if gpu.mig_instances else []
    if gpu.users:
        parts.append(users(gpu.users, words))
    elif gpu.processes:
        parts.append("1 process" if gpu.processes == 1 else f"{gpu.processes} processes")
    elif gpu.allocated is False or gpu.processes == 0:
        parts.append("free")
    return f" {words.glyphs.dot} ".join(parts) or words.glyphs.dash


def gpu_xid(gpu: GpuItem, words: Words) -> str:
    """The newest XID and its age."""
    xid = gpu.last_xid
    if xid is None:
        return ""
    return f"{xid.xid} {words.ago(xid.last.timestamp() if xid.last else None)}"


def hot(gpu: GpuItem) -> str:
    """Yellow within five degrees of the slowdown temperature, red where the hardware slows down."""
    active = gpu.clock_events.active
    if active.get("hw_thermal_slowdown"):
        return "red"
    limit, now, margin = gpu.temperature.threshold_slowdown, gpu.temperature.gpu, gpu.temperature.margin
    near = (margin is not None and margin < 5) or (limit is not None and now is not None and limit - now < 5)
    return "yellow" if near else ""


def power(gpu: GpuItem) -> float | None:
    """The draw to show, watts: the instant one where the driver has it, else the average."""
    return gpu.power.instant if gpu.power.instant is not None else gpu.power.average


def since(at: Any, words: Words) -> str:
    """Age of an item's time."""
    return words.ago(at.timestamp() if at else None)


def _size(get: Callable[[Any], float | None]) -> Callable[[Any, Words], str]:
    return lambda item, words: words.size(get(item))


GPUS: tuple[Column[GpuItem], ...] = (
    Column("GPU", lambda g, w: str(g.index), right=True),
    Column("HEALTH", lambda g, w: g.health.value, style=lambda g: HEALTH_STYLES[g.health]),
    Column("UTIL", lambda g, w: w.ratio(g.utilization.gpu), right=True),
    Column("SM", lambda g, w: w.ratio(g.activity.sm), right=True, drop=3),
    Column("MEMORY", lambda g, w: w.sizes(g.memory.used, g.memory.total), right=True),
    Column("POWER", lambda g, w: w.draw(power(g), g.power.limit_enforced), right=True, drop=1),
    Column("TEMP", lambda g, w: w.celsius(g.temperature.gpu), right=True, style=hot),
    Column("CLOCK", lambda g, w: w.clock(g.clocks.sm), right=True, drop=4),
    Column("WORKLOAD", gpu_user, shorten="middle"),
    Column("XID", gpu_xid, style=lambda _: "yellow", drop=2),
    Column(
        "PSTATE", lambda g, w: w.glyphs.dash if g.performance_state is None else f"P{g.performance_state}", wide=True
    ),
    Column("ECC", lambda g, w: w.text(g.ecc.counts.get("uncorrected/volatile/total")), right=True, wide=True),
    Column("PCI", lambda g, w: g.pci_bus_id, wide=True),
    Column("UUID", lambda g, w: g.uuid, wide=True),
    Column("NAME", lambda g, w: w.text(g.name), wide=True),
)

PROCESSES: tuple[Column[ProcessItem], ...] = (
    Column("GPU", lambda p, w: str(p.gpu), right=True),
    Column("PID", lambda p, w: str(p.pid), right=True),
    Column("TYPE", lambda p, w: p.type, drop=2),
    Column("NAME", lambda p, w: w.text(p.name), shorten="middle"),
    Column("MEMORY", _size(lambda p: p.memory), right=True),
    Column("UTIL", lambda p, w: w.ratio(p.utilization), right=True),
    Column("USER", lambda p, w: w.text(p.user), drop=1),
    Column("WORKLOAD", lambda p, w: w.text(process_workload(p)), shorten="middle"),
    Column("GI", lambda p, w: w.text(p.gi), right=True, wide=True),
    Column("CI", lambda p, w: w.text(p.ci), right=True, wide=True),
    Column("CONTAINER", lambda p, w: w.text(p.workload.container if p.workload else None), wide=True),
    Column("IMAGE", lambda p, w: w.text(p.container.image if p.container else None), wide=True),
)

PODS: tuple[Column[PodItem], ...] = (
    Column("NAMESPACE", lambda p, w: w.text(p.namespace), shorten="middle"),
    Column("POD", lambda p, w: w.text(p.pod), shorten="middle"),
    Column("CONTAINER", lambda p, w: w.text(p.container), drop=3, shorten="middle"),
    Column("GPU", lambda p, w: w.text(p.gpu), right=True),
    Column("MIG", lambda p, w: w.text(p.profile), drop=1),
    Column("PROCS", lambda p, w: str(p.processes), right=True, drop=2),
    Column("MEMORY", _size(lambda p: p.memory), right=True),
    Column("UTIL", lambda p, w: w.ratio(p.utilization), right=True),
    Column("ENERGY", lambda p, w: w.watt_hours(p.energy), right=True, drop=4),
    Column("RESOURCE", lambda p, w: w.text(p.resource), wide=True),
    Column("SLOTS", lambda p, w: w.text(p.replicas), right=True, wide=True),
    Column("GI", lambda p, w: w.text(p.gi), right=True, wide=True),
    Column("POD-UID", lambda p, w: w.text(p.pod_uid), wide=True),
)

MIG: tuple[Column[MigItem], ...] = (
    Column("GPU", lambda m, w: str(m.gpu), right=True),
    Column("MIG", lambda m, w: str(m.index), right=True),
    Column("GI", lambda m, w: str(m.gi), right=True),
    Column("CI", lambda m, w: str(m.ci), right=True, drop=1),
    Column("PROFILE", lambda m, w: w.text(m.profile)),
    Column("SM", lambda m, w: w.ratio(m.activity.sm), right=True, drop=2),
    Column("MEMORY", lambda m, w: w.sizes(m.memory.used, m.memory.total), right=True),
    Column(
        "WORKLOAD", lambda m, w: "free" if m.allocated is False and not m.users else users(m.users, w), shorten="middle"
    ),
    Column("SMS", lambda m, w: w.text(m.multiprocessors), right=True, wide=True),
    Column("UUID", lambda m, w: m.uuid, wide=True),
)

_LINK_STATES = {True: "up", False: "down", None: "unknown"}

NVLINKS: tuple[Column[NvLinkItem], ...] = (
    Column("GPU", lambda n, w: str(n.gpu), right=True),
    Column("LINK", lambda n, w: str(n.link), right=True),
    Column("STATE", lambda n, w: _LINK_STATES[n.active], style=lambda n: "yellow" if n.active is False else ""),
    Column("VERSION", lambda n, w: w.text(n.version), drop=2),
    Column("SPEED", lambda n, w: w.rate(n.speed_bytes_per_second), right=True, drop=1),
    Column("SENT", _size(lambda n: n.transmit_bytes), right=True),
    Column("RECEIVED", _size(lambda n: n.receive_bytes), right=True),
    Column("ERRORS", lambda n, w: str(sum(n.errors.values())) if n.errors else w.glyphs.dash, right=True),
    Column("REMOTE", lambda n, w: w.text(n.remote_pci or n.remote_type), drop=3),
)

FINDINGS: tuple[Column[FindingItem], ...] = (
    Column("GPU", lambda f, w: w.text(f.gpu), right=True),
    Column("CHECK", lambda f, w: f.check),
    Column("SEVERITY", lambda f, w: f.severity.value, style=lambda f: SEVERITY_STYLES[f.severity]),
    Column("SINCE", lambda f, w: since(f.since, w), drop=1),
    Column("MESSAGE", lambda f, w: f.message, shorten="end"),
    Column("XID", lambda f, w: w.text(f.xid), right=True, wide=True),
    Column("COUNT", lambda f, w: str(f.count), right=True, wide=True),
    Column("LAST", lambda f, w: since(f.last, w), wide=True),
    Column("REMEDY", lambda f, w: f.remedy.value, wide=True),
    Column("PODS", lambda f, w: w.text(", ".join(pod_names(f.pods))), wide=True),
    Column("ACTION", lambda f, w: w.text(f.action), wide=True),
    Column("CAUSED BY", lambda f, w: w.text(f.caused_by), wide=True),
)

XIDS: tuple[Column[XidItem], ...] = (
    Column("GPU", lambda x, w: w.text(x.gpu), right=True),
    Column("XID", lambda x, w: str(x.xid), right=True),
    Column("COUNT", lambda x, w: str(x.count), right=True),
    Column("LAST", lambda x, w: since(x.last, w)),
    Column("CATEGORY", lambda x, w: w.text(x.category), drop=1),
    Column("MEANING", lambda x, w: w.text(x.description or "not documented"), shorten="end"),
    Column("ACTION", lambda x, w: w.text(x.action), drop=2),
    Column("MNEMONIC", lambda x, w: w.text(x.mnemonic), wide=True),
    Column("PCI", lambda x, w: w.text(x.pci_bus_id), wide=True),
)
