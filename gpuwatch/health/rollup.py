"""What findings add up to: the health of each GPU and of the node.

Faults of the monitor itself never count against a GPU: a GPU nobody reads is `unknown`.
"""

from collections.abc import Collection, Sequence

from gpuwatch.model.finding import Finding, Health, Severity
from gpuwatch.model.snapshot import Gpu, GpuState, GpuStatus, Snapshot

JUDGED = ("recovery_action", "row_remap.", "ecc.counts.uncorrected/volatile/total")
"""Beginnings of FIELDS paths without which nobody can say that a GPU is healthy."""


def is_seen(gpu: Gpu) -> bool:
    """Whether all could be read that health hangs on; a failed read is not a good one."""
    return not any(path.startswith(JUDGED) for path in gpu.errors)


def is_clean(gpu: Gpu) -> bool:
    """Whether it looks like a GPU that has been repaired: nothing asked for, nothing pending, all of it read."""
    if gpu.retired_pages.pending or gpu.ecc.channel_repair_pending or gpu.ecc.tpc_repair_pending:
        return False
    waits = gpu.recovery_action or gpu.row_remap.pending or gpu.row_remap.failure
    return is_seen(gpu) and not waits


def gpu_healths(snapshot: Snapshot, findings: Sequence[Finding]) -> dict[str, Health]:
    """The health of every GPU by uuid."""
    unseen = {gpu.identity.uuid for gpu in snapshot.gpus if not is_seen(gpu)}
    return {status.identity.uuid: _health(status, findings, unseen) for status in snapshot.statuses}


def node_health(gpus: Collection[Health], findings: Sequence[Finding]) -> Health:
    """The node is as bad as its worst GPU or finding."""
    if Health.FAILED in gpus or any(f.severity is Severity.CRITICAL for f in findings):
        return Health.FAILED
    if not gpus or Health.UNKNOWN in gpus:
        return Health.UNKNOWN
    degraded = Health.DEGRADED in gpus or any(f.severity is Severity.WARNING for f in findings)
    return Health.DEGRADED if degraded else Health.HEALTHY


def _health(status: GpuStatus, findings: Sequence[Finding], unseen: set[str]) -> Health:
    severities = {finding.severity for finding in findings if finding.gpu == status.identity.uuid}
    if Severity.CRITICAL in severities:
        return Health.FAILED
    if status.state is not GpuState.FRESH or status.identity.uuid in unseen:
        return Health.UNKNOWN
    return Health.DEGRADED if Severity.WARNING in severities else Health.HEALTHY
