"""Findings that XIDs and SXids make, and what ends them: evidence of a repair, newer than the last occurrence."""

from collections.abc import Mapping

from gpuwatch.health.check import Check
from gpuwatch.health.checks import CHECK_BY_NAME
from gpuwatch.health.checks.xid import FATAL_ACTIONS
from gpuwatch.health.gpu_history import RESTARTED, GpuHistory
from gpuwatch.health.history import History, Occurrence
from gpuwatch.health.rollup import is_clean
from gpuwatch.health.xid.classify import remedy, severity
from gpuwatch.model.finding import Finding, Remedy, Severity
from gpuwatch.model.xid import SxidEvent, XidEvent
from gpuwatch.model.xid_catalogue import explain


def occurred(news: Occurrence, history: History) -> Finding:
    """The finding of one occurrence, as if it were the first."""
    check, event = CHECK_BY_NAME[news.check], news.event
    return _sxid(check, event, history) if isinstance(event, SxidEvent) else _xid(check, event, news, history)


def is_repaired(finding: Finding, order: int, now: float, history: History) -> bool:
    """Whether the fault of `finding`, whose last occurrence was at `order` and `now` of the history, was repaired.

    A GPU must be fresh and clean, and: the machine was booted or has another driver since; or the GPU's energy counter
    began anew, or the driver said that it has recovered; or the driver tells what it asks for, and has asked for
    nothing for `checks.xid_clear_after`. A fault of the node, or of a place where no GPU is known, needs all GPUs, and
    more than the passing of time.
    """
    pasts = list(history.gpus.values()) if finding.gpu is None else [history.gpus.get(finding.gpu)]
    known = [past for past in pasts if past is not None and past.gpu is not None and past.is_new]
    if not known or len(known) < len(pasts) or not all(past.gpu and is_clean(past.gpu) for past in known):
        return False
    if _differs(finding, "boot_id", history.boot_id) or _differs(finding, "driver", history.driver):
        return True
    if all(_began_anew(past, finding, order) for past in known):
        return True
    clear_after = history.config.xid_clear_after
    return finding.gpu is not None and min(known[0].calm, history.now - now) >= clear_after


def is_said_repaired(finding: Finding, said: Mapping[str, float], history: History) -> bool:
    """Whether a person has said so since its last occurrence (`said`: GPU or NODE -> unix time), and what is seen of
    the GPU does not speak against it. A GPU that this agent has never seen is believed to be gone for good.
    """
    at = said.get(finding.gpu or NODE)
    if at is None or finding.latest > at:
        return False
    past = history.gpus.get(finding.gpu or "")
    return past is None or (past.gpu is not None and past.is_new and is_clean(past.gpu))


NODE = "node"
"""Who is meant by findings without a GPU."""


def _began_anew(past: GpuHistory, finding: Finding, order: int) -> bool:
    repair = past.repair
    if repair is not None and order < repair.order <= past.order:
        return repair.at is None or repair.at >= finding.latest
    then = finding.evidence.get("power.energy")
    return then is not None and past.energy is not None and past.energy < RESTARTED * float(then)


def _differs(finding: Finding, name: str, now: str | None) -> bool:
    then = finding.evidence.get(name)
    return None not in (then, now) and then != now


def _xid(check: Check, event: XidEvent, news: Occurrence, history: History) -> Finding:
    past = history.gpus.get(news.gpu or "")
    asked = past.gpu.recovery_action if past and past.gpu else None
    helps = remedy(event, news.kind, asked)
    pci = past.status.identity.pci_bus_id if past and past.status else event.pci
    energy = None if past is None or past.energy is None else f"{past.energy:.3f}"
    return Finding(
        check=check.name,
        severity=severity(event, news.kind),
        message=f"XID {event.xid}: {_says(event)}",
        gpu=news.gpu,
        gi=event.gi,
        xid=event.xid,
        since=event.at,
        last=event.at,
        remedy=helps,
        action=_action(check, event.xid, helps),
        evidence=_known(
            pci=pci, boot_id=history.boot_id, driver=history.driver, energy=energy, kernel=event.message or None
        ),
        pods=news.pods,
    )


def _says(event: XidEvent) -> str:
    """What the code means; the driver's own words where they decide that, or where nobody else has any."""
    info = explain(event.xid)
    words = (event.message or "").strip()
    if info is None:
        return words or "a code nobody has documented"
    return words if words and info.decided_by else info.summary


def _action(check: Check, xid: int, helps: Remedy) -> str:
    if check.severity is Severity.CRITICAL:
        return FATAL_ACTIONS.get(helps, check.action)
    return f"{check.action} {xid}" if check.name == "xid_warning" else check.action


def _sxid(check: Check, event: SxidEvent, history: History) -> Finding:
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


def _known(energy: str | None = None, **facts: str | None) -> dict[str, str]:
    """Evidence without what is unknown."""
    named = {**facts, "power.energy": energy}
    return {name: value for name, value in named.items() if value is not None}
