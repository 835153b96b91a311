"""Records about GPUs from outside the agent: an operator's declaration of a repair, and the active checks that a GPU
passed or failed. The command line writes both into the store, and the agent reads them there.

A declaration is for a repair of which there is no other sign: no energy counter, no recovery action, no reboot; or for
a GPU that was taken out. A validation holds until the next fault of its GPU, which removes it, so that a GPU that fails
again and recovers has to be validated again.
"""

import logging
import math
from collections.abc import Collection, Iterable

import msgspec
from msgspec.structs import replace

from gpuwatch.model.event import ActionEvent, Result
from gpuwatch.model.finding import Finding, Remedy
from gpuwatch.model.view import RepairerStatus, Validation
from gpuwatch.storage.store import Store

log = logging.getLogger(__name__)

NAME, VALIDATED, REPAIRER = "repaired", "validated", "repairer"
KEPT = 64

MAX_CLOSED_SECONDS = 1800.0
"""The agent reads a closed GPU again after so long, also when the repairer has died."""

HARMLESS = (Remedy.NONE, Remedy.RESTART_APP)
"""Remedies of findings that are no evidence about the GPU itself."""


AHEAD_SECONDS = 5.0
"""No clock was set back by so little: another process wrote it a moment ago, or the clock was slewed."""


def repaired_at(store: Store, now: float = math.inf) -> dict[str, float]:
    """GPU uuid, or `node` -> unix time at which an operator declared it repaired. Those after `now` are removed from
    the store: the clock was set back since, and they would end each fault until then.
    """
    kept = store.remembered(NAME, dict[str, float]) or {}
    past = {subject: at for subject, at in kept.items() if at <= now + AHEAD_SECONDS}
    if past != kept:
        log.warning(
            "the clock was set back: what was declared repaired later than now counts no more; declare it again"
        )
        store.remember(NAME, msgspec.json.encode(past))
    return past


def mark_repaired(
    store: Store,
    subjects: Collection[str],
    at: float,
    evidence: Collection[str],
    actor: str = "operator",
    why: str = "confirmed by the operator",
) -> bool:
    """Store the declaration and an action for each subject; False when the store cannot be written: see its `trouble`.

    `evidence`: keys of the findings that it is about.
    """
    newest = sorted((repaired_at(store) | dict.fromkeys(subjects, at)).items(), key=lambda pair: pair[1])[-KEPT:]
    store.remember(NAME, msgspec.json.encode(dict(newest)))
    for subject in subjects:
        target, done = subject if subject == "node" else f"gpu/{subject}", Result.DONE
        action = ActionEvent(at=at, actor=actor, action="repaired", target=target, result=done, why=why)
        store.record(replace(action, evidence=tuple(evidence)))
    return store.flush()


def validations(store: Store, findings: Iterable[Finding] = (), now: float = math.inf) -> tuple[Validation, ...]:
    """The newest of each GPU. Those older than one of `findings` are removed from the store, and so are those after
    `now`: the clock was set back since, and they would count as newer than each fault until then.
    """
    kept = store.remembered(VALIDATED, tuple[Validation, ...]) or ()
    faults = [finding for finding in findings if finding.remedy not in HARMLESS]
    past = (v for v in kept if v.at <= now + AHEAD_SECONDS)
    good = tuple(v for v in past if not any(f.gpu in (v.gpu, None) and f.latest > v.at for f in faults))
    if good != kept:
        store.remember(VALIDATED, msgspec.json.encode(good))
    return good


def keep_validations(store: Store, new: Iterable[Validation], actor: str) -> bool:
    """Store them in place of earlier ones, each with an action; False as for `mark_repaired`."""
    latest = {each.gpu: each for each in validations(store)}
    for each in new:
        latest[each.gpu] = each
        result = Result.DONE if each.passed else Result.FAILED
        action = ActionEvent(at=each.at, actor=actor, action="validate", target=f"gpu/{each.gpu}", result=result)
        store.record(replace(action, why=each.message, boot_id=each.boot_id))
    store.remember(VALIDATED, msgspec.json.encode(sorted(latest.values(), key=lambda each: each.at)[-KEPT:]))
    return store.flush()


def repairer_status(store: Store) -> RepairerStatus | None:
    """What the repairer last reported; None: nothing, or nothing that can be read."""
    return store.remembered(REPAIRER, RepairerStatus)


def publish_repairer(store: Store, status: RepairerStatus) -> None:
    """Report the status to the agent, which reads it within ten seconds."""
    store.remember(REPAIRER, msgspec.json.encode(status))
    store.flush()


def closed_gpu(status: RepairerStatus | None, now: float) -> str | None:
    """The GPU that the reader must not hold open: never longer than MAX_CLOSED_SECONDS, whatever the repairer wrote."""
    if status is None or status.closed is None or not 0 <= now - status.at <= MAX_CLOSED_SECONDS:
        return None
    return status.closed if now < status.closed_until else None
