"""CAUSES: which findings follow from which. One broken GPU is one fault, however many checks it fails.

Alertmanager's inhibition rules are made from this table, too (alerts/inhibition.py). An explained finding is only shown
below its cause: health, conditions, taints and metrics count every finding as before.
"""

from collections.abc import Sequence
from typing import Literal, NamedTuple

from msgspec.structs import replace

from gpuwatch.model.finding import CheckName, Finding, Remedy, Severity


class Cause(NamedTuple):
    """Findings of `checks` explain those of `effects` that are no more severe, of the same GPU or of the whole node."""

    checks: tuple[CheckName, ...]
    effects: tuple[CheckName, ...]
    why: str
    scope: Literal["gpu", "node"] = "gpu"


XIDS: tuple[CheckName, ...] = ("xid_fatal", "xid_contained", "xid_warning", "xid_unconfirmed")
MEMORY: tuple[CheckName, ...] = ("ecc_uncorrected", "ecc_correctable_rate", "row_remap_pending", "repair_pending")
LINKS: tuple[CheckName, ...] = ("nvlink_down", "nvlink_errors")

CAUSES: tuple[Cause, ...] = (
    Cause(("driver_wedged",), ("gpu_unresponsive", "gpu_missing"), "the driver answers for no GPU", "node"),
    Cause(
        ("sxid_fatal",),
        (*LINKS, "fabric_state", "sxid_warning", "sxid_unconfirmed"),
        "the switch carries the links of all its GPUs",
        "node",
    ),
    Cause(
        ("gpu_lost",),
        (
            *("gpu_unresponsive", "recovery_action", "recovery_advised", "driver_slow", "gpu_not_allocatable"),
            *(*XIDS, *MEMORY, *LINKS, "fabric_state", "pcie_degraded", "inforom", "zombie_memory"),
            *("thermal_margin", "hw_thermal_slowdown", "hw_power_brake", "clocks_stuck"),
        ),
        "the driver has lost it",
    ),
    Cause(
        ("row_remap_failure", "memory_unrepairable", "ecc_sram_threshold"),
        ("recovery_action", *XIDS, *MEMORY),
        "its memory cannot be repaired",
    ),
    Cause(
        ("gpu_unresponsive",),
        ("recovery_action", "recovery_advised", "driver_slow", *XIDS, *LINKS, "fabric_state"),
        "the driver's calls about it do not return",
    ),
    Cause(("recovery_action",), (*XIDS, *MEMORY, *LINKS), "the driver asks for one repair of it all"),
    Cause(("xid_fatal",), (*XIDS, *MEMORY, *LINKS, "recovery_advised"), "one fault raises several XIDs"),
    Cause(("xid_contained",), (*XIDS[1:], *MEMORY), "the GPU has contained the error until its next reset"),
    Cause(("recovery_advised",), ("xid_warning",), "the driver sums its XIDs up"),
    Cause(("fabric_state",), LINKS, "its links are the fabric's"),
    Cause(("thermal_margin",), ("hw_thermal_slowdown", "clocks_stuck"), "it slows down because it is hot"),
    Cause(("hw_thermal_slowdown", "hw_power_brake"), ("clocks_stuck",), "the hardware holds its clocks down"),
    Cause(("retired_pages_limit",), ("retired_pages_pending",), "each reset retires more of its pages"),
)
"""The first that fits counts. A check is explained by rows above its own only, so that no two explain each other; of
several findings of one check, the one with the gravest remedy, then the oldest, explains the others.
"""

WHY: dict[str, str] = {check: cause.why for cause in CAUSES for check in cause.checks}


def with_causes(findings: Sequence[Finding]) -> tuple[Finding, ...]:
    """The findings, each with the key of the root that explains it, if another one does."""
    causes = {finding.key: _cause(finding, findings) for finding in findings}
    rooted = []
    for finding in findings:
        root = causes[finding.key]
        while root is not None and (above := causes[root]) is not None:
            root = above
        rooted.append(replace(finding, caused_by=root))
    return tuple(rooted)


def _cause(finding: Finding, findings: Sequence[Finding]) -> str | None:
    """The key of the first that explains it; of one check only the gravest and oldest explains the others."""
    for cause in CAUSES:
        if finding.check in cause.effects:
            for other in sorted((each for each in findings if each.check in cause.checks), key=_precedence):
                near = cause.scope == "node" or (other.gpu is not None and other.gpu == finding.gpu)
                comes_first = other.check != finding.check or _precedence(other) < _precedence(finding)
                if near and comes_first and _SEVERITY[other.severity] >= _SEVERITY[finding.severity]:
                    return other.key
    return None


def _precedence(finding: Finding) -> tuple[int, float, str]:
    return -_REMEDY[finding.remedy], finding.since or 0.0, finding.key


_REMEDY = {remedy: place for place, remedy in enumerate(Remedy)}
_SEVERITY = {severity: place for place, severity in enumerate(Severity)}
