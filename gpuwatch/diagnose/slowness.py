"""Causes of low speed, ranked, each with the figures it is judged by and what to do.

CAUSES is the table; a row judges one GPU. Causes are sorted by rank, then by loss. Ranks: the GPU does not work at all;
it is held below its usual speed; it waits for work; it waits for a repair; and last the limits that every GPU of its
kind has. A loss is an upper bound: work that the memory limits loses less from a low clock.
"""

from collections.abc import Callable, Sequence
from enum import IntEnum
from statistics import fmean, median
from typing import NamedTuple

from gpuwatch.diagnose.slow_gpu import BUSY, IDLE, SlowGpu, slow_gpus
from gpuwatch.health.check import is_paced
from gpuwatch.model.finding import Severity
from gpuwatch.model.recent import Recent
from gpuwatch.model.snapshot import GpuState
from gpuwatch.model.view import View
from gpuwatch.tuning.model.setting import Setting

LOW_CLOCK = 0.03
"""A clock counts as low when it is below the highest by at least this share."""

SELDOM = 0.1
"""Share of the time at work below which a clock event explains nothing."""

BEHIND = 0.85
"""Share of its peers' median below which a GPU is a straggler, as in the alert GpuStraggler."""

FULL_MEMORY = 0.96


class Rank(IntEnum):
    """Which causes come first."""

    STOPPED = 0
    HELD = 1
    WAITING = 2
    PENDING = 3
    DESIGN = 4


class SlowCause(NamedTuple):
    """Why a GPU is slow. `loss`: share of its speed that this costs at most; None: not known."""

    name: str
    rank: Rank
    loss: float | None
    message: str
    action: str
    evidence: dict[str, str] = {}
    gpu: str = ""  # uuid
    since: float | None = None


def slow_causes(view: View, recent: Recent, settings: Sequence[Setting] = ()) -> list[SlowCause]:
    """Causes of all GPUs, in the order in which to treat them."""
    gpus = slow_gpus(view, recent, settings)
    causes = [
        cause._replace(
            gpu=gpu.status.identity.uuid, action=cause.action.replace("{gpu}", str(gpu.status.identity.index))
        )
        for gpu in gpus
        for judge in CAUSES
        if (cause := judge(gpu)) is not None
    ]
    causes += [waiting for gpu in gpus if (waiting := _waits_for_peer(gpu, causes)) is not None]
    return sorted(causes, key=lambda cause: (cause.rank, -(cause.loss or 0.0)))


def not_answering(of: SlowGpu) -> SlowCause | None:
    """Lost, hung or not read."""
    if of.status.state is GpuState.FRESH:
        return None
    action = of.findings[0].action if of.findings else "look at the kernel log: dmesg | grep NVRM"
    text = of.status.detail or f"its state is {of.status.state}"
    return SlowCause("not_answering", Rank.STOPPED, 1.0, f"the GPU does not answer: {text}", action)


def fault(of: SlowGpu) -> SlowCause | None:
    """A finding that takes the GPU out of service."""
    worst = next((each for each in of.findings if each.severity is Severity.CRITICAL), None)
    if worst is None or of.status.state is not GpuState.FRESH:
        return None
    text = f"{worst.check}: {worst.message}"
    return SlowCause("fault", Rank.STOPPED, 1.0, text, worst.action, worst.evidence, since=worst.since)


def heat(of: SlowGpu) -> SlowCause | None:
    """The hardware or the driver slows down to stay cool."""
    share = of.held("hw_thermal_slowdown", "sw_thermal_slowdown")
    if of.gpu is None or share < SELDOM:
        return None
    hard, degrees = of.held("hw_thermal_slowdown"), of.gpu.temperature
    evidence = _evidence(
        ("temperature.gpu", degrees.gpu, "°C"),
        ("temperature.threshold_slowdown", degrees.threshold_slowdown, "°C"),
        ("temperature.margin", degrees.margin, "°C"),
    )
    actor = "the hardware halves" if hard else "the driver lowers"
    message = f"{actor} its clocks because of heat: {of.clocks}, in {share:.0%} of its time at work"
    action = "check air flow, fans and inlet temperature; compare the node's other GPUs: `gpuwatch get gpus`"
    return SlowCause("heat", Rank.HELD, of.clock_loss, message, action, evidence)


def power_brake(of: SlowGpu) -> SlowCause | None:
    """The power supply holds the board back."""
    share = of.held("hw_power_brake_slowdown")
    message = f"the power supply holds the board back: {of.clocks}, in {share:.0%} of its time at work"
    action = "check power supplies and the rack's power budget"
    return SlowCause("power_brake", Rank.HELD, of.clock_loss, message, action) if share >= SELDOM else None


def power_cap(of: SlowGpu) -> SlowCause | None:
    """It reaches its power limit: one below the board's default was set; the default itself is by design."""
    share = of.held("sw_power_cap")
    if of.gpu is None or share < SELDOM:
        return None
    limit, usual, set_to = (of.gpu.power.limit_enforced, of.gpu.power.limit_default, of.gpu.power.limit_configured)
    evidence = _evidence(("power.limit_enforced", limit, "W"), ("power.limit_default", usual, "W"))
    effect = f"{of.clocks}, in {share:.0%} of its time at work"
    if limit is None or usual is None or limit >= 0.99 * usual:
        message, action = f"it draws what its board may: {effect}", "nothing is wrong: full load does this to its kind"
        return SlowCause("power_cap", Rank.DESIGN, of.clock_loss, message, action, evidence)
    lowered = f"lowered its power limit from {usual:.0f} to {limit:.0f} W: {effect}"
    if "power_limit" in of.settings and limit >= 0.99 * min(of.settings["power_limit"].applied):
        return SlowCause("tuner_cap", Rank.HELD, of.clock_loss, f"gpuwatch's tuner {lowered}", TUNER_ACTION, evidence)
    platform = set_to is not None and limit < 0.99 * set_to
    actor = "the platform (BMC, power shelf)" if platform else "another program than gpuwatch (nvidia-smi -pl, DCGM)"
    action = f"ask for the reason, then nvidia-smi -i {{gpu}} -pl {usual:.0f}"
    return SlowCause("power_cap", Rank.HELD, of.clock_loss, f"{actor} {lowered}", action, evidence)


TUNER_ACTION = "`gpuwatch tune status --gpu {gpu}` shows why; `gpuwatch tune stop` restores everything"

CLOCK_REASONS = ("sw_power_cap", "hw_power_brake_slowdown", "sw_thermal_slowdown", "hw_thermal_slowdown", "hw_slowdown")


def low_clock(of: SlowGpu) -> SlowCause | None:
    """A clock that is low for no reason of heat or power: locked, stuck, or tied to another GPU's."""
    loss = of.clock_loss
    if of.gpu is None or loss is None or loss < LOW_CLOCK or is_paced(of.gpu) or of.held(*CLOCK_REASONS) > 0.5:
        return None
    own = of.settings.get("locked_clocks")
    name, text, action = next(
        row[1:]
        for row in (
            (
                own is not None and 0.97 * min(own.applied) <= (of.clock or 0.0) <= 1.01 * own.applied[0],
                "tuner_cap",
                "gpuwatch's tuner locked its clock",
                TUNER_ACTION,
            ),
            (
                any(each.check == "clocks_stuck" for each in of.findings),
                "clocks_stuck",
                "its clock does not rise and the driver gives no reason",
                "try nvidia-smi -i {gpu} -rgc; if that does not help, reset the GPU when its work is done",
            ),
            (
                of.held("applications_clocks_setting") >= SELDOM,
                "clocks_locked",
                "application clocks are set (nvidia-smi -ac, DCGM)",
                "ask for the reason, then nvidia-smi -i {gpu} -rac",
            ),
            (
                of.held("sync_boost") >= SELDOM,
                "clocks_locked",
                "it follows the slowest GPU of its sync boost group",
                "find the slowest: `gpuwatch get gpus`",
            ),
            (
                of.is_clock_steady,
                "clocks_locked",
                "another program than gpuwatch locked its clock (nvidia-smi -lgc, DCGM)",
                "ask for the reason, then nvidia-smi -i {gpu} -rgc",
            ),
            (True, "", "", ""),
        )
        if row[0]
    )
    return SlowCause(name, Rank.HELD, loss, f"{text}: {of.clocks}", action, {"clocks.sm": of.clocks}) if name else None


def pcie_degraded(of: SlowGpu) -> SlowCause | None:
    """A busy link below its own maximum; an idle link trains down on purpose."""
    if of.gpu is None or not of.busy or is_paced(of.gpu):
        return None
    link, share = of.gpu.pcie, 1.0
    if link.width and link.width_max:
        share *= min(1.0, link.width / link.width_max)
    if link.generation and link.generation_max:
        share *= min(1.0, 2.0 ** (link.generation - link.generation_max))
    if share == 1.0:
        return None
    parts = f"generation {link.generation} of {link.generation_max}, width {link.width} of {link.width_max}"
    message = f"PCIe has {share:.0%} of its bandwidth: {parts}"
    return SlowCause("pcie_degraded", Rank.HELD, 1 - share, message, "reseat the GPU; check the riser and the slot")


def nvlink_degraded(of: SlowGpu) -> SlowCause | None:
    """Links that are down, else the View's finding on errors of links or on the fabric."""
    if of.gpu is None or of.gpu.mig_enabled:
        return None
    links = [each for each in of.gpu.nvlinks if each.remote_pci or each.transmit_bytes]
    down = [str(each.link) for each in links if each.active is False]
    if down:
        loss = len(down) / len(links)
        message = (
            f"{len(down)} of {len(links)} NVLinks are down: peers are reached with {1 - loss:.0%} of the bandwidth"
        )
        action = "check the NVLink bridge or the fabric manager; reset the GPU when its work is done"
        return SlowCause("nvlink_degraded", Rank.HELD, loss, message, action, {"nvlinks": ", ".join(down)})
    found = next((each for each in of.findings if each.check in ("nvlink_errors", "fabric_state")), None)
    if found is None:
        return None
    return SlowCause("nvlink_degraded", Rank.HELD, None, found.message, found.action, found.evidence, since=found.since)


def straggler(of: SlowGpu) -> SlowCause | None:
    """Slower than its peers, for whatever reason; a known reason is ranked above it."""
    for name, own, theirs in (
        ("SM clock", of.clock, [peer.clock for peer in of.peers]),
        ("SM activity", of.sm, [peer.sm for peer in of.peers]),
        ("utilization", of.use, [peer.use for peer in of.peers]),
    ):
        known = [value for value in theirs if value]
        if own is not None and len(known) >= 2 and own < BEHIND * (usual := median(known)):
            share = own / usual
            message = f"its {name} is {share:.0%} of the median of its {len(known)} peers; work in step waits for it"
            action = "without another cause above, this rank has more or other work than its peers: ask its owner"
            return SlowCause("straggler", Rank.WAITING, 1 - share, message, action)
    return None


def _waits_for_peer(of: SlowGpu, causes: Sequence[SlowCause]) -> SlowCause | None:
    """Nothing slows the GPU itself, but something slows one of its peers."""
    uuid, peers = of.status.identity.uuid, {each.status.identity.uuid: each.status.identity.index for each in of.peers}
    above = [each for each in causes if each.rank <= Rank.HELD]
    slow = [each for each in above if each.gpu in peers and (each.loss or 0.0) > 1 - BEHIND]
    worst = max(slow, key=lambda each: each.loss or 0.0, default=None)
    if worst is None or any(each.gpu == uuid for each in above):
        return None
    message = f"it works in step with GPU {peers[worst.gpu]}, which is slow: {worst.message}"
    action = f"`gpuwatch why {peers[worst.gpu]}`"
    return SlowCause("waits_for_peer", Rank.WAITING, worst.loss, message, action, gpu=uuid)


def neighbour(of: SlowGpu) -> SlowCause | None:
    """Several workloads at work on one device. A MIG instance has no neighbours."""
    working = {f"{each.workload.namespace}/{each.workload.pod}": each.utilization or 0.0 for each in of.usage}
    working = {name: share for name, share in working.items() if share > IDLE}
    if of.gpu is None or of.gpu.mig_enabled or len(working) < 2 or (of.use or 0.0) < BUSY:
        return None
    loss = 1 - max(working.values()) / sum(working.values())
    message = f"{len(working)} workloads share the GPU, which is {of.use:.0%} busy"
    evidence = {name: f"{share:.0%}" for name, share in working.items()}
    action = "give them GPUs or MIG instances of their own; `gpuwatch recommend` shows which fit"
    return SlowCause("neighbour", Rank.WAITING, loss, message, action, evidence)


def memory_full(of: SlowGpu) -> SlowCause | None:
    """So little memory is left that allocations wait, spill to the host or fail."""
    memory = of.gpu.memory if of.gpu else None
    if memory is None or not memory.total or memory.free is None or memory.free > (1 - FULL_MEMORY) * memory.total:
        return None
    share = 1 - memory.free / memory.total
    message = f"its memory is {share:.0%} full, {memory.free / 2**20:.0f} MiB are free: allocations wait, spill or fail"
    action = "use a smaller batch or cache; `gpuwatch get processes --gpu {gpu}` shows the users"
    return SlowCause("memory_full", Rank.WAITING, 0.05, message, action)


def little_work(of: SlowGpu) -> SlowCause | None:
    """Bursts with pauses: something feeds the GPU too slowly. No work, or little and steady work: work is missing."""
    use, gpu = of.use, of.gpu
    if gpu is None or use is None or use >= 0.7 or not (gpu.processes or of.users):
        return None
    pauses = fmean((each.utilization or 0.0) <= IDLE for each in of.samples)
    evidence = {"utilization.gpu": f"{use:.0%} in {of.samples[-1].at - of.samples[0].at:.0f} s"}
    video = max(gpu.utilization.encoder or 0.0, gpu.utilization.decoder or 0.0)
    if of.busy and pauses >= 0.25:
        message = f"it waits {pauses:.0%} of the time and works in bursts between: {use:.0%} busy"
        action = "give the data loader more workers, CPUs or faster storage; look at the pod's CPU throttling"
        return SlowCause("loader_bound", Rank.WAITING, 1 - use, message, action, evidence)
    if video > IDLE:
        return None
    if use <= 0.01:
        action = "look at the workload's log: it waits for data, peers or requests, or its work is done"
        return SlowCause("no_work", Rank.WAITING, 1.0, "a workload has it and sends it no work", action, evidence)
    message, action = f"it gets little work: {use:.0%} busy, no long pauses", "send larger batches or more requests"
    return SlowCause("little_work", Rank.WAITING, None, message, action, evidence)


PENDING_MEMORY = (
    "row_remap_pending", "retired_pages_pending", "repair_pending", "ecc_uncorrected", "ecc_correctable_rate",
    "retired_pages_limit",
)  # fmt: skip
PENDING_CHECKS = (*PENDING_MEMORY, "zombie_memory", "inforom", "driver_slow", "xid_contained", "mig_pending")


def pending(of: SlowGpu) -> SlowCause | None:
    """The first of the findings that lower no clock, but may cost speed until a reset or a replacement."""
    found = min(
        (each for each in of.findings if each.check in PENDING_CHECKS),
        key=lambda each: PENDING_CHECKS.index(each.check),
        default=None,
    )
    if found is None or of.status.state is not GpuState.FRESH:
        return None
    name = "ecc_pending" if found.check in PENDING_MEMORY else found.check
    return SlowCause(name, Rank.PENDING, None, found.message, found.action, found.evidence, since=found.since)


def mig_slice(of: SlowGpu) -> SlowCause | None:
    """An instance has its share of the multiprocessors and no more."""
    if of.gpu is None or not of.gpu.mig:
        return None
    profiles = ", ".join(sorted({each.profile or "?" for each in of.gpu.mig}))
    message = f"it is cut into {len(of.gpu.mig)} MIG instances ({profiles}), each with its share of the multiprocessors"
    return SlowCause("mig_slice", Rank.DESIGN, None, message, "`gpuwatch get mig` shows how busy each is")


CAUSES: tuple[Callable[[SlowGpu], SlowCause | None], ...] = (
    not_answering, fault, heat, power_brake, power_cap, low_clock, pcie_degraded, nvlink_degraded,
    straggler, neighbour, memory_full, little_work, pending, mig_slice,
)  # fmt: skip


def _evidence(*figures: tuple[str, float | None, str]) -> dict[str, str]:
    return {path: f"{value:.0f} {unit}" for path, value, unit in figures if value is not None}
