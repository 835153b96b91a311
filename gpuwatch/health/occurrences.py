"""Findings that XIDs and SXids make, and what ends them: evidence of a repair, newer than the last occurrence."""

from collections.abc import Mapping

from gpuwatch.health.check import is_clean
from gpuwatch.health.checks import CHECK_BY_NAME
from gpuwatch.health.gpu_history import RESTARTED, GpuHistory
from gpuwatch.health.history import HealthHistory, Occurrence
from gpuwatch.health.xid.classify import FATAL_ACTIONS, remedy, severity
from gpuwatch.model.finding import Finding, Severity
from gpuwatch.model.xid import SxidEvent
from gpuwatch.model.xid_catalogue import explain


def occurred(news: Occurrence, history: HealthHistory) -> Finding:
    """The finding of one occurrence, as if it were the first."""
    check, event = CHECK_BY_NAME[news.check], news.event
    if isinstance(event, SxidEvent):
        return Finding(
            check=check.name,
            severity=check.severity,
            message=f"SXid {event.sxid} of NVSwitch {event.switch}: {(event.message or event.severity).strip()}",
            since=event.at,
            last=event.at,
            remedy=check.remedy,
            action=check.action,
            evidence=_known(
                sxid=str(event.sxid),
                switch=str(event.switch),
                link=None if event.link is None else str(event.link),
                boot_id=history.boot_id,
                driver=history.driver,
            ),
        )
    past = history.gpus.get(news.gpu or "")
    asked = past.gpu.recovery_action if past and past.gpu else None
    helps = remedy(event, news.kind, asked)
    pci = past.status.identity.pci_bus_id if past and past.status else event.pci
    energy = None if past is None or past.energy is None else f"{past.energy:.3f}"
    info, line = explain(event.xid), (event.message or "").strip()
    if info is None:
        meaning = line or "a code that no document names"
    else:  # where the line decides what the code means, the driver's own text is more exact
        meaning = line if line and info.decided_by else info.summary
    action = check.action
    if check.severity is Severity.CRITICAL:
        action = FATAL_ACTIONS.get(helps, check.action)
    elif check.name == "xid_warning":
        action = f"{check.action} {event.xid}"
    return Finding(
        check=check.name,
        severity=severity(event, news.kind),
        message=f"XID {event.xid}: {meaning}",
        gpu=news.gpu,
        gi=event.gi,
        xid=event.xid,
        since=event.at,
        last=event.at,
        remedy=helps,
        action=action,
        evidence=_known(
            pci=pci, boot_id=history.boot_id, driver=history.driver, energy=energy, kernel=event.message or None
        ),
        pods=news.pods,
    )


# When has a fault ended?
#
# A fault that keeps work away must not end because its signs are absent: a GPU that hangs shows no errors, a counter is
# 0 after a reload of the driver, and an XID is a moment, not a state. A quiet hour does not work as proof either: a GPU
# that nothing uses is quiet. Nor does a reboot: it proves that the machine was started, not that the GPU was repaired.
#
# So one sign is never enough; two that do not depend on each other must agree. First, the GPU is read *now* and clean:
# its sample is new, everything health depends on could be read, the driver asks for no recovery action, and no repair
# is pending. Second, something happened *after the last occurrence* that can have repaired it: another boot or driver
# version; an energy counter that restarted, which only a reset or a reload does; the driver's own XID 154 with action
# "none"; or, on drivers that report the recovery action, ten minutes without a gap in which they asked for nothing. A
# declaration of the operator may replace the second sign (`gpuwatch repaired`), never for the first.
#
# The order of events decides what "after" means, not their times: clocks of kernel log, NVML and snapshots differ, and
# the wall clock jumps. `order` grows with every snapshot and every event.


def is_repaired(finding: Finding, order: int, now: float, history: HealthHistory) -> bool:
    """Whether the fault of `finding`, whose last occurrence was at `order` and `now` of the history, was repaired.

    A fault of the node, or of an address without a known GPU, needs both signs of all GPUs; time alone does not do.
    """
    pasts = list(history.gpus.values()) if finding.gpu is None else [history.gpus.get(finding.gpu)]
    known = [past for past in pasts if past is not None and past.gpu is not None and past.is_new]
    if not known or len(known) < len(pasts) or not all(past.gpu and is_clean(past.gpu) for past in known):
        return False
    if _differs(finding, "boot_id", history.boot_id) or _differs(finding, "driver", history.driver):
        return True
    if all(_began_again(past, finding, order) for past in known):
        return True
    clear_after = history.config.xid_clear_after
    return finding.gpu is not None and min(known[0].clean_seconds, history.now - now) >= clear_after


def is_declared_repaired(finding: Finding, declared: Mapping[str, float], history: HealthHistory) -> bool:
    """Whether an operator has declared it since its last occurrence (`declared`: GPU or NODE -> unix time) and the
    GPU's state does not contradict it. A GPU that this agent has never read counts as gone for good.
    """
    at = declared.get(finding.gpu or NODE)
    if at is None or finding.latest > at:
        return False
    past = history.gpus.get(finding.gpu or "")
    return past is None or (past.gpu is not None and past.is_new and is_clean(past.gpu))


NODE = "node"
"""The subject of findings without a GPU."""


def _began_again(past: GpuHistory, finding: Finding, order: int) -> bool:
    repair = past.repair
    if repair is not None and order < repair.order <= past.order:
        return repair.at is None or repair.at >= finding.latest
    then = finding.evidence.get("power.energy")
    return then is not None and past.energy is not None and past.energy < RESTARTED * float(then)


def _differs(finding: Finding, name: str, now: str | None) -> bool:
    then = finding.evidence.get(name)
    return None not in (then, now) and then != now


def _known(energy: str | None = None, **facts: str | None) -> dict[str, str]:
    """Evidence without unknown values."""
    named = {**facts, "power.energy": energy}
    return {name: value for name, value in named.items() if value is not None}
