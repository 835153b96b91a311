"""Which lines of the kernel log the driver confirms, and how the others are treated."""

from collections.abc import Iterable

from msgspec.structs import replace

from gpuwatch.health.checks import CHECK_BY_NAME
from gpuwatch.health.history import HealthHistory
from gpuwatch.health.xid.classify import FATAL_ACTIONS, RECOVERY_REMEDIES
from gpuwatch.model.finding import CheckName, Finding, Remedy, Severity, UnconfirmedCheck
from gpuwatch.model.pci import pci_key
from gpuwatch.model.snapshot import GpuState
from gpuwatch.model.xid_catalogue import Confirmation, catalogue, explain

# Which line of the kernel log may take a node out of service?
#
# The kernel log is the only place that names every fault, and it proves none: processes write parts of its lines. A
# program whose name holds a newline and a made-up XID needs no right at all, and the kernel prints that name when it
# crashes. Reading the log more strictly closes only the known ways. Ignoring all lines loses facts that only they
# contain: which link, which row, which instance; and a lost GPU may send no event.
#
# The driver reports in ways that no process can forge: its NVML event of the same code; a state that NVML reads, such
# as a recovery action, a pending remap, an ECC count that rose, a GPU that is gone; or its silence, calls that do not
# return. The catalogue lists for each code which of them come with a real fault (`confirmed_by`). Until one of them is
# present, a line makes a finding of `xid_unconfirmed` or `sxid_unconfirmed`. These two have names of their own, so that
# no policy, alert or script that acts on a fault takes them for one; no policy may answer them with more than
# `observe`; and they pass with time.
#
# The state may begin before the line or after it, at most `checks.xid_confirm_within` seconds apart. Without the bound
# an ECC error of last month, or a recovery action that an operator has accepted, would confirm every forged
# line. A reader that is down, a GPU that was never read and a driver that is being started are not silence: the
# state is then unknown, the finding reports this, and an operator has to look.

UNCONFIRMED: dict[str, UnconfirmedCheck] = {
    "xid_fatal": "xid_unconfirmed",
    "xid_contained": "xid_unconfirmed",
    "xid_warning": "xid_unconfirmed",
    "sxid_fatal": "sxid_unconfirmed",
}
"""Check -> the check of its findings while only the kernel log reports them. The others never act on a node."""

STATES: dict[Confirmation, tuple[CheckName, ...]] = {
    "recovery_action": ("recovery_action", "recovery_advised"),
    "ecc": ("ecc_uncorrected", "ecc_sram_threshold"),
    "remap": ("row_remap_pending", "row_remap_failure", "memory_unrepairable", "repair_pending"),
    "retired_pages": ("retired_pages_pending", "retired_pages_limit"),
    "lost": ("gpu_lost", "gpu_missing"),
    "silence": ("gpu_unresponsive", "driver_wedged"),
    "nvlink": ("nvlink_down", "nvlink_errors"),
    "fabric": ("fabric_state",),
    "power": ("hw_power_brake",),
}
"""Confirmation -> checks whose findings are that state, as the driver reports it; `event` is the event itself."""

KERNEL_ONLY = "reported by the kernel log only"


def unconfirmed(found: Finding) -> Finding:
    """The form of `found` while only the kernel log reports it."""
    check = CHECK_BY_NAME[UNCONFIRMED[found.check]]
    return replace(
        found,
        check=check.name,
        severity=found.severity if found.severity is Severity.INFO else check.severity,
        message=f"{found.message}; {KERNEL_ONLY}",
        remedy=check.remedy,
        action=check.action,
        evidence={**found.evidence, "unconfirmed": found.check, "if_confirmed": found.remedy},
    )


def confirmed(finding: Finding, word: str, history: HealthHistory) -> Finding:
    """An unconfirmed finding after the driver's report `word` has confirmed the line."""
    evidence = {**finding.evidence, "confirmed_by": word}
    check = CHECK_BY_NAME[evidence.pop("unconfirmed")]
    remedy = Remedy(evidence.pop("if_confirmed"))
    past = history.gpus.get(finding.gpu or "")
    asked = past.gpu.recovery_action if past and past.gpu else None
    remedy = RECOVERY_REMEDIES.get(asked, remedy) if asked else remedy
    action = FATAL_ACTIONS.get(remedy, check.action) if check.name == "xid_fatal" else check.action
    return replace(
        finding,
        check=check.name,
        severity=min(finding.severity, check.severity, key=_MILDEST.index)
        if check.name == "xid_warning"
        else check.severity,
        message=finding.message.rpartition(f"; {KERNEL_ONLY}")[0],
        remedy=remedy,
        action=f"{action} {finding.xid}" if check.name == "xid_warning" else action,
        evidence=evidence,
    )


_MILDEST = tuple(Severity)


def driver_state(finding: Finding, others: Iterable[Finding], within: float) -> str | None:
    """The state of the driver that confirms an unconfirmed finding, among all current findings; None: there is none."""
    info = explain(finding.xid) if finding.xid is not None else None
    ways = catalogue().sxids_confirmed_by if finding.xid is None else info.confirmed_by if info else ()
    wanted = {check for way in ways for check in STATES.get(way, ())}
    for other in others:
        is_wanted = other.check in wanted
        if finding.xid is None and other.xid is not None and other.check in UNCONFIRMED:
            # a switch that fails causes XIDs about NVLink; here the driver has confirmed one
            caused = explain(other.xid)
            is_wanted = is_wanted or (caused is not None and "nvlink" in caused.confirmed_by)
        if is_wanted and other.latest >= finding.latest - within and _is_about(other, finding):
            return f"{other.check}: {other.message}"
    return None


def not_asked(finding: Finding, history: HealthHistory) -> str | None:
    """Why the driver cannot confirm or contradict the finding now; None: it can."""
    nvml = next((source for source in history.snapshot.sources if source.name == "nvml"), None)
    if nvml is None or not nvml.up:
        return nvml.reason if nvml and nvml.reason else "NVML is not read"
    if finding.xid is None:
        return None
    past = history.gpus.get(finding.gpu or "")
    if past is None or past.status is None:
        return "NVML has shown no GPU at its address"
    return None if past.status.state is not GpuState.UNKNOWN else past.status.detail or "the GPU is not read"


def with_driver(finding: Finding, reason: str | None) -> Finding:
    """An unconfirmed finding with the `reason` why the driver could not be asked; None: it could."""
    text = finding.message.rpartition(f"; {KERNEL_ONLY}")[0]
    tail = f", and the driver could not be asked: {reason}" if reason else ""
    return replace(finding, message=f"{text}; {KERNEL_ONLY}{tail}")


def _is_about(other: Finding, finding: Finding) -> bool:
    """Whether a state concerns the GPU of an XID; the state of any GPU confirms an SXid of a switch."""
    if finding.xid is None or (other.gpu is not None and other.gpu == finding.gpu):
        return True
    if other.check == "gpu_missing":
        key = pci_key(finding.evidence.get("pci"))
        return key is not None and key in map(pci_key, other.evidence)
    return other.check == "driver_wedged"
