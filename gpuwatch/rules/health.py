"""CHECKS: what one snapshot says is wrong, and the health it adds up to. Levels are judged, not counters.

A row is a name, a severity, a predicate over one GPU and the next step for a person. Faults of the monitor itself never
count against a GPU: a GPU nobody reads is `unknown`.
"""

from collections.abc import Callable
from typing import NamedTuple

import msgspec

from gpuwatch.model.finding import Finding, Health, Judgement, Severity
from gpuwatch.model.pci import pci_key
from gpuwatch.model.snapshot import Gpu, GpuState, GpuStatus, Snapshot

RECOVERY_ACTIONS = {
    1: "reset the GPU",
    2: "reboot the node",
    3: "stop peer-to-peer work on this GPU",
    4: "drain the GPU, then reset it",
    5: "recover the IMEX domain",
    6: "reset the GPU's PCIe bus",
    7: "reboot the system",
}
"""NVML_GPU_RECOVERY_ACTION_*: the driver's own verdict."""


class Check(NamedTuple):
    """One row: `says` gives the message when the GPU has the fault, None when not."""

    name: str
    severity: Severity
    says: Callable[[Gpu], str | None]
    action: str


def _recovery(gpu: Gpu) -> str | None:
    action = gpu.recovery_action
    return f"the driver asks: {RECOVERY_ACTIONS.get(action, f'action {action}')}" if action else None


def _ecc(gpu: Gpu) -> str | None:
    count = gpu.ecc.counts.get("uncorrected/volatile/total")
    return f"uncorrected ECC errors since the driver was loaded: {count}" if count else None


def _slowed(reason: str, text: str) -> Callable[[Gpu], str | None]:
    return lambda gpu: text if gpu.clock_events.active.get(reason) else None


def _links_down(gpu: Gpu) -> str | None:
    """Links that have a far end or have carried data; one that leads nowhere is how boards without a full bridge are
    built, and all of them rest while MIG is on.
    """
    down = [str(link.link) for link in gpu.nvlinks if link.active is False and (link.remote_pci or link.transmit_bytes)]
    return f"NVLink {', '.join(down)} down" if down and not gpu.mig_enabled else None


CHECKS: tuple[Check, ...] = (
    Check("recovery_action", Severity.CRITICAL, _recovery, "drain the node and do what the driver asks"),
    Check(
        "row_remap_failure",
        Severity.CRITICAL,
        lambda gpu: "a row could not be remapped" if gpu.row_remap.failure else None,
        "replace the GPU",
    ),
    Check(
        "row_remap_pending",
        Severity.WARNING,
        lambda gpu: "a row remap waits for a reset" if gpu.row_remap.pending else None,
        "reset the GPU when its work is done",
    ),
    Check("ecc_uncorrected", Severity.WARNING, _ecc, "look at the XIDs beside it; reset the GPU when its work is done"),
    Check(
        "hw_thermal_slowdown",
        Severity.WARNING,
        _slowed("hw_thermal_slowdown", "too hot: the hardware halves the clocks"),
        "check air flow, fans and inlet temperature",
    ),
    Check(
        "hw_power_brake",
        Severity.WARNING,
        _slowed("hw_power_brake_slowdown", "the power supply asks for less power"),
        "check power supplies and the rack's power budget",
    ),
    Check("nvlink_down", Severity.WARNING, _links_down, "check the NVLink bridge or the fabric manager; reset the GPU"),
)


JUDGED = ("recovery_action", "row_remap.", "ecc.counts.uncorrected/volatile/total")
"""Beginnings of FIELDS paths without which nobody can say that a GPU is healthy."""


def judge(snapshot: Snapshot, before: Judgement | None = None) -> Judgement:
    """Findings and health of one snapshot. A finding that was there `before` keeps the time it began."""
    findings = [finding for status in snapshot.statuses for finding in _presence(status)]
    findings += [
        Finding(check=c.name, severity=c.severity, message=text, gpu=gpu.identity.uuid, since=gpu.at, action=c.action)
        for gpu in snapshot.gpus
        for c in CHECKS
        if (text := c.says(gpu)) is not None
    ]
    findings += _missing(snapshot) + _monitoring(snapshot)
    unseen = {gpu.identity.uuid for gpu in snapshot.gpus if any(path.startswith(JUDGED) for path in gpu.errors)}
    began = {_key(finding): finding.since for finding in before.findings} if before else {}
    findings = [msgspec.structs.replace(found, since=began.get(_key(found), found.since)) for found in findings]
    gpus = {status.identity.uuid: _health(status, findings, unseen) for status in snapshot.statuses}
    return Judgement(node=_node(gpus, findings), gpus=gpus, findings=tuple(findings))


def _key(finding: Finding) -> tuple[str, str]:
    """What makes two findings the same: a GPU's by its check, the node's by what it says."""
    return finding.check, finding.gpu or finding.message


def _presence(status: GpuStatus) -> list[Finding]:
    rows = {
        GpuState.LOST: ("gpu_lost", "drain the node and reboot it; reseat or replace the GPU if it happens again"),
        GpuState.UNRESPONSIVE: ("gpu_unresponsive", "drain the node; reboot it if the driver does not come back"),
    }
    if status.state not in rows:
        return []
    check, action = rows[status.state]
    return [
        Finding(
            check=check,
            severity=Severity.CRITICAL,
            message=status.detail,
            gpu=status.identity.uuid,
            since=status.since,
            action=action,
        )
    ]


def _missing(snapshot: Snapshot) -> list[Finding]:
    """GPUs that the bus or the configuration has and NVML has not. Nothing is missing while nobody reads NVML."""
    nvml = next((source for source in snapshot.sources if source.name == "nvml"), None)
    if nvml is None or not nvml.up:
        return []
    known = {pci_key(status.identity.pci_bus_id) for status in snapshot.statuses}
    missing = [address for address in snapshot.bus or () if pci_key(address) not in known]
    why = "; ".join(f"index {index}: {reason}" for index, reason in snapshot.unanswered.items())
    said = [
        f"GPU {address} is on the PCI bus but does not answer in NVML" + (why and f" ({why})") for address in missing
    ]
    if why and not missing:
        said.append(f"a GPU that NVML counts does not answer ({why})")
    found = [
        _gpu_missing(message, "look for the driver's messages about it: dmesg | grep NVRM", snapshot)
        for message in said
    ]
    expected = snapshot.expected_gpus
    if expected is not None and len(snapshot.statuses) + len(missing) < expected:
        message = f"{len(snapshot.statuses)} of {expected} expected GPUs are there"
        found.append(_gpu_missing(message, "reboot the node; reseat or replace the GPU if it stays away", snapshot))
    return found


def _gpu_missing(message: str, action: str, snapshot: Snapshot) -> Finding:
    return Finding(check="gpu_missing", severity=Severity.CRITICAL, message=message, since=snapshot.at, action=action)


def _monitoring(snapshot: Snapshot) -> list[Finding]:
    """The monitor's own trouble, said as such."""
    return [
        Finding(
            check="monitoring_degraded",
            severity=Severity.WARNING,
            message=f"{source.name}: {source.reason}",
            since=source.last_success,
            action="see what the message asks for; GPUs are judged without this source",
        )
        for source in snapshot.sources
        if source.up is False
    ]


def _health(status: GpuStatus, findings: list[Finding], unseen: set[str]) -> Health:
    """`unseen`: GPUs of which what is judged could not be read; a failed read is not a good one."""
    severities = {finding.severity for finding in findings if finding.gpu == status.identity.uuid}
    if Severity.CRITICAL in severities:
        return Health.FAILED
    if status.state is not GpuState.FRESH or status.identity.uuid in unseen:
        return Health.UNKNOWN
    return Health.DEGRADED if Severity.WARNING in severities else Health.HEALTHY


def _node(gpus: dict[str, Health], findings: list[Finding]) -> Health:
    if Health.FAILED in gpus.values() or any(f.severity is Severity.CRITICAL for f in findings):
        return Health.FAILED
    if not gpus or Health.UNKNOWN in gpus.values():
        return Health.UNKNOWN
    degraded = Health.DEGRADED in gpus.values() or any(f.severity is Severity.WARNING for f in findings)
    return Health.DEGRADED if degraded else Health.HEALTHY
