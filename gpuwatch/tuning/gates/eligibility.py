"""The gates before tuning: what must hold of a GPU before its clocks or power may be changed, and for how long it held.

A gate judges one GPU of one View, and what the API server reports of the Node and the pods, if that is known.
"""

from collections.abc import Callable, Iterator, Mapping
from typing import NamedTuple

from gpuwatch.config import TuningConfig
from gpuwatch.health.xid.classify import classify
from gpuwatch.model.consent import PROGRESS, Consents
from gpuwatch.model.finding import Finding, Health, Severity, XidClass
from gpuwatch.model.pci import pci_key
from gpuwatch.model.snapshot import Gpu, GpuState, GpuStatus, Identity, Record
from gpuwatch.model.view import View
from gpuwatch.model.xid import XidCount, XidEvent
from gpuwatch.tuning.gates.conflict import OTHER_CONTROLLERS, SETTING, YIELD_SECONDS
from gpuwatch.tuning.gates.consent import names_progress, opted_in, power_agent
from gpuwatch.tuning.gates.owners import UNKNOWN_OWNER, Owner, owners
from gpuwatch.tuning.model.setting import Setting, is_same
from gpuwatch.tuning.model.status import GpuTuning, Obstacle, ObstacleReason, TuningState

COOLDOWN_SECONDS = 600.0
"""A GPU that was in trouble is left alone for so long after it."""

LINGER_SECONDS = 15.0
"""A sample is as old as a View may be: it may show a setting of gpuwatch that is no longer recorded, also one that an
earlier tuner made and that this one does not know.
"""

VOLTA = 7.0
"""Compute capability. Older GPUs name application clocks as a reason also where none are set."""

SLOWDOWNS = ("hw_slowdown", "hw_thermal_slowdown", "hw_power_brake_slowdown", "sw_thermal_slowdown")
"""Clock event reasons with which the hardware or the driver protects the GPU; a power cap is none."""

HARMLESS = ("xid_application", "xid_application_repeated")
"""Checks for which the work is the cause, not the GPU."""

MONITOR = "monitoring_degraded"


class GateInputs(Record, frozen=True, kw_only=True):
    """One GPU. `gpu` None: there is no fresh sample. `settings`: what gpuwatch itself has set on it, or had when the
    sample may have been taken. `owners`: of the work on it. `config` None: no owner has opted in.
    """

    view: View
    status: GpuStatus
    gpu: Gpu | None
    settings: tuple[Setting, ...]
    classes: Mapping[int, XidClass]
    owners: tuple[Owner, ...] = ()
    consents: Consents | None = None
    config: TuningConfig | None = None

    @property
    def uuid(self) -> str:
        """The GPU's."""
        return self.status.identity.uuid


class Gate(NamedTuple):
    """`closed` returns why it is closed, empty: it is open. `cooldown`: seconds for which it stays closed after its
    cause has ended, if that lasted for `min_seconds`.
    """

    reason: ObstacleReason
    closed: Callable[[GateInputs], str]
    cooldown: float = 0.0
    min_seconds: float = 0.0


def foreign_limit(gpu: Gpu, settings: tuple[Setting, ...]) -> bool | None:
    """Whether the power limit is neither the board's default nor one of gpuwatch's; None: not known."""
    power = gpu.power
    limits = [limit for limit in (power.limit_configured, power.limit_enforced) if limit is not None]
    if power.limit_default is None or not limits:
        return None
    own = [watts for each in settings if each.knob == "power_limit" for watts in (*each.applied, each.original)]
    usual = [power.limit_default, *(watts for watts in own if watts is not None)]
    return any(not any(is_same(limit, watts) for watts in usual) for limit in limits)


def _quarantined(inputs: GateInputs) -> str:
    return "gpuwatch has tainted the node" if inputs.consents is not None and inputs.consents.quarantined else ""


def _in_state(state: GpuState) -> Callable[[GateInputs], str]:
    return lambda inputs: f"{state}: {inputs.status.detail or 'no sample'}" if inputs.status.state is state else ""


def _unknown(inputs: GateInputs) -> str:
    if inputs.status.state is GpuState.UNKNOWN or (inputs.gpu is None and inputs.status.state is GpuState.FRESH):
        return f"it is not read: {inputs.status.detail or 'no sample'}"
    health = inputs.view.judgement.gpus.get(inputs.uuid, Health.UNKNOWN)
    return "its health is not known" if inputs.gpu is not None and health is Health.UNKNOWN else ""


def _findings(inputs: GateInputs) -> Iterator[Finding]:
    return (found for found in inputs.view.judgement.findings if found.gpu in (inputs.uuid, None))


def _fault(inputs: GateInputs) -> str:
    checks = (
        found.check
        for found in _findings(inputs)
        if found.severity is not Severity.INFO and found.check not in (*HARMLESS, MONITOR)
    )
    return ", ".join(dict.fromkeys(checks))


def _xid(inputs: GateInputs) -> str:
    at = inputs.view.snapshot.at
    codes = {
        count.xid
        for count in inputs.view.xids
        if count.last is not None
        and at - count.last < COOLDOWN_SECONDS
        and _is_of(count, inputs.status.identity)
        and classify(XidEvent(at=count.last, xid=count.xid, source="kernel"), inputs.classes)
        not in ("application", "ignore")
    }
    return ", ".join(f"XID {code}" for code in sorted(codes))


def _is_of(count: XidCount, identity: Identity) -> bool:
    """An XID that names no GPU may be of any."""
    if count.uuid is not None:
        return count.uuid == identity.uuid
    return count.pci is None or pci_key(count.pci) == pci_key(identity.pci_bus_id)


def _repair(gpu: Gpu) -> str:
    pending = {
        "row remap": gpu.row_remap.pending,
        "page retirement": gpu.retired_pages.pending,
        "memory channel repair": gpu.ecc.channel_repair_pending,
        "TPC repair": gpu.ecc.tpc_repair_pending,
        "recovery action": bool(gpu.recovery_action),
    }
    waiting = [name for name, waits in pending.items() if waits]
    return f"{', '.join(waiting)} pending" if waiting else ""


def _slowdown(gpu: Gpu) -> str:
    return ", ".join(reason for reason in SLOWDOWNS if gpu.clock_events.active.get(reason))


def _monitoring(inputs: GateInputs) -> str:
    degraded = any(found.check == MONITOR for found in _findings(inputs))
    return "a source of the agent is down, faults may be missed" if degraded else ""


def _mig(gpu: Gpu) -> str:
    return "MIG: its clocks and power are those of several instances" if gpu.mig_enabled or gpu.mig_pending else ""


def _vgpu(gpu: Gpu) -> str:
    hosts = gpu.vgpus or (gpu.virtualization_mode or "none") not in ("none", "passthrough")
    return "virtual machines share it" if hosts else ""


def _display(gpu: Gpu) -> str:
    draws = gpu.display_active or any("graphics" in process.type for process in gpu.processes or ())
    return "it draws a screen" if draws else ""


def _owners_unknown(inputs: GateInputs) -> str:
    down = {source.name for source in inputs.view.snapshot.sources if source.up is False}
    if "podresources" in down:
        return "the kubelet does not report which pod uses it"
    if any(owner.name == UNKNOWN_OWNER for owner in inputs.owners):
        return "the owner of its processes is not known: they may be of a pod that has opted out"
    return "its processes cannot be listed" if inputs.gpu is not None and inputs.gpu.processes is None else ""


def _shared(inputs: GateInputs) -> str:
    if len(inputs.owners) < 2 or inputs.gpu is None:
        return ""
    config, at = inputs.config, inputs.view.snapshot.at
    message = f"shared by {', '.join(owner.name for owner in inputs.owners)}, and not all of them"
    if config is None or not all(opted_in(config, inputs.consents, owner, at) for owner in inputs.owners):
        return f"{message} have opted in"
    if config.shared == "sum" or all(names_progress(config, inputs.consents, owner) for owner in inputs.owners):
        return ""
    return f"{message} count their work ({PROGRESS}), so that a bound could only be on their sum (tuning.shared: sum)"


def _conflict(inputs: GateInputs) -> str:
    agents = {name for owner in inputs.owners if (name := power_agent(inputs.consents, owner))}
    message = [f"{name} sets its power" for name in sorted(agents)]
    if (gpu := inputs.gpu) is None:
        return "; ".join(message)
    if foreign_limit(gpu, inputs.settings):
        limit = min(watts for watts in (gpu.power.limit_configured, gpu.power.limit_enforced) if watts is not None)
        default = gpu.power.limit_default
        message.append(f"its power limit is {limit:.0f} W, by default {default:.0f} W, and not by gpuwatch")
    # The driver also names locked clocks, so that this shows nothing where gpuwatch has locked them.
    is_locked = any(setting.knob == "locked_clocks" for setting in inputs.settings)
    is_set = not is_locked and gpu.clock_events.active.get(SETTING)
    if is_set and float(gpu.identity.compute_capability or VOLTA) >= VOLTA:
        message.append(f"its clocks are held by a setting, and not by gpuwatch: {OTHER_CONTROLLERS}")
    return "; ".join(message)


def _sampled(closed: Callable[[Gpu], str]) -> Callable[[GateInputs], str]:
    """Open without a sample: then another gate is closed."""
    return lambda inputs: "" if inputs.gpu is None else closed(inputs.gpu)


GATES: tuple[Gate, ...] = (
    Gate(ObstacleReason.QUARANTINED, _quarantined),
    Gate(ObstacleReason.LOST, _in_state(GpuState.LOST), cooldown=COOLDOWN_SECONDS),
    Gate(ObstacleReason.UNRESPONSIVE, _in_state(GpuState.UNRESPONSIVE), cooldown=COOLDOWN_SECONDS),
    Gate(ObstacleReason.UNKNOWN, _unknown),
    Gate(ObstacleReason.FAULT, _fault, cooldown=COOLDOWN_SECONDS),
    Gate(ObstacleReason.XID, _xid),  # an XID's own time is known
    Gate(ObstacleReason.REPAIR_PENDING, _sampled(_repair), cooldown=COOLDOWN_SECONDS),
    Gate(ObstacleReason.SLOWDOWN, _sampled(_slowdown), cooldown=COOLDOWN_SECONDS),
    Gate(ObstacleReason.MONITORING, _monitoring),
    Gate(ObstacleReason.MIG, _sampled(_mig)),
    Gate(ObstacleReason.VGPU, _sampled(_vgpu)),
    Gate(ObstacleReason.DISPLAY, _sampled(_display)),
    Gate(ObstacleReason.OWNERS_UNKNOWN, _owners_unknown),
    Gate(ObstacleReason.SHARED, _shared),
    Gate(ObstacleReason.CONFLICT, _conflict, cooldown=YIELD_SECONDS, min_seconds=LINGER_SECONDS),
)
"""Most serious first: the first that is closed is the reason that metrics name."""


class Span(NamedTuple):
    """Monotonic seconds at which something was first and last found."""

    first: float
    last: float


_Key = tuple[str, ObstacleReason | Setting]
GateHistory = Mapping[_Key, Span]
"""By uuid: gates with a cooldown that were closed, settings of gpuwatch that were recorded."""

COOLDOWNS = {gate.reason: gate.cooldown for gate in GATES}


def judge(
    view: View,
    *,
    fresh: bool,
    now: float,
    settings: tuple[Setting, ...] = (),
    history: GateHistory | None = None,
    classes: Mapping[int, XidClass] | None = None,
    consents: Consents | None = None,
    config: TuningConfig | None = None,
) -> tuple[tuple[GpuTuning, ...], GateHistory]:
    """Every GPU, lost ones too, and what to pass next time as `history`. `now`: monotonic; `fresh`: the View is not too
    old; `settings`: the record of what gpuwatch has set; `classes`: `checks.xids`; `consents` None: not known, `config`
    None: no owner has opted in.
    """
    samples = {gpu.identity.uuid: gpu for gpu in view.snapshot.gpus}
    kept = {
        (uuid, what): span
        for (uuid, what), span in (history or {}).items()
        if now - span.last < (LINGER_SECONDS if isinstance(what, Setting) else COOLDOWNS[what])
    }
    kept |= {(setting.uuid, setting): Span(now, now) for setting in settings}
    found = []
    for status in view.snapshot.statuses:
        uuid = status.identity.uuid
        inputs = GateInputs(
            view=view,
            status=status,
            gpu=samples.get(uuid),
            settings=tuple(what for name, what in kept if name == uuid and isinstance(what, Setting)),
            classes=classes or {},
            owners=owners(view, uuid, samples.get(uuid), consents),
            consents=consents,
            config=config,
        )
        obstacles: tuple[Obstacle, ...]
        if not fresh:
            obstacles = (Obstacle(reason=ObstacleReason.STALE_VIEW, message="the agent's view is too old"),)
        else:
            closed = {gate.reason: message for gate in GATES if (message := gate.closed(inputs))}
            kept = _after(uuid, closed, kept, now)
            obstacles = tuple(_obstacles(uuid, closed, kept, now))
        found.append(_tuning(inputs, obstacles))
    return tuple(found), kept


def _after(uuid: str, closed: Mapping[ObstacleReason, str], kept: dict[_Key, Span], now: float) -> dict[_Key, Span]:
    """The history, with the gates of one GPU as they are now; one closed for less than `min_seconds` is dropped."""
    after = dict(kept)
    for gate in GATES:
        key = (uuid, gate.reason)
        span = kept.get(key)
        if gate.reason in closed and gate.cooldown:
            after[key] = Span(now if span is None else span.first, now)
        elif span is not None and span.last - span.first < gate.min_seconds:
            del after[key]
    return after


def _obstacles(uuid: str, closed: Mapping[ObstacleReason, str], history: GateHistory, now: float) -> Iterator[Obstacle]:
    for gate in GATES:
        if gate.reason in closed:
            yield Obstacle(reason=gate.reason, message=closed[gate.reason])
        elif (span := history.get((uuid, gate.reason))) is not None:
            message = f"{gate.reason} {now - span.last:.0f} s ago, cooldown {gate.cooldown:.0f} s"
            yield Obstacle(reason=gate.reason, message=message)


def _tuning(inputs: GateInputs, obstacles: tuple[Obstacle, ...]) -> GpuTuning:
    used = inputs.gpu is not None and bool(inputs.owners)
    state = TuningState.REFUSED if obstacles else TuningState.ELIGIBLE if used else TuningState.IDLE
    foreign = None if inputs.gpu is None else foreign_limit(inputs.gpu, inputs.settings)
    return GpuTuning(
        index=inputs.status.identity.index,
        uuid=inputs.uuid,
        state=state,
        obstacles=obstacles,
        foreign={} if foreign is None else {"power_limit": foreign},
        owners=tuple(owner.name for owner in inputs.owners),
    )
