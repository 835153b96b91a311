"""GPUs that are allocated and do nothing: the largest savings, and the worst mistakes.

Quiet is not enough. Work that pauses at night, over a weekend or between two requests will resume, so a pause counts
only when it is longer than any pause the workload has resumed from. Interactive work has holidays, too: it must have
worked through a whole week, or be quiet for longer than a long weekend. gpuwatch never recommends deleting a workload
that may be serving, nor one whose other pods work: its owner is asked. Counters that cannot be read are never idle.
"""

from collections.abc import Iterable

from gpuwatch.model.snapshot import Record
from gpuwatch.rightsizing.findings.advice import HOURS, Proposal, Risk, advice, allocation_text, savings
from gpuwatch.rightsizing.findings.text import percent, some, span, time
from gpuwatch.rightsizing.findings.workload import (
    DAY_SECONDS,
    KNOWN_HOLDS,
    WEEK_DAYS,
    FleetContext,
    WorkloadFacts,
    by_pod,
    level_of,
    share_of,
)
from gpuwatch.rightsizing.model.recommendation import (
    FindingKind,
    Level,
    Recommendation,
    RecommendedAction,
    RecommendedChange,
)
from gpuwatch.rightsizing.model.usage import DeviceAllocation, FleetFacts
from gpuwatch.rightsizing.usage.allocation import IDLE_BUSY

PCIE_IDLE = 1 << 20
"""Bytes a second. Processes that wait still poll and report."""

DRAW = 1.15
"""Times the lowest draw while it was held: a higher draw means work that no counter shows."""

DRAW_AT_REST = 0.4
"""Of the power limit: no GPU at rest draws more, whatever the lowest draw was before it had a context."""

BEGIN_SECONDS = 600.0
"""Unobserved time of up to this length at the begin of a hold counts as idle if the time after it was idle."""

OLD_SECONDS = 3 * 3600.0
"""A hold whose newest window ended longer ago than this may have worked since."""


def idle_seconds(hold: DeviceAllocation, context: FleetContext) -> float | None:
    """For how long it surely did nothing, after its grace. None: it works, or that is not known.

    The ledger has left out the time that was not observed.
    """
    if hold.idle_since is None or hold.busy is None or _does_something(hold):
        return None
    if context.now - hold.last > OLD_SECONDS:
        return None
    return hold.last - max(hold.idle_since, hold.since + context.config.grace)


def is_observed_from_start(hold: DeviceAllocation) -> bool:
    """Whether it worked, or was observed from its begin: else it may have worked before."""
    if hold.worked or hold.idle_since is None:
        return hold.worked
    return hold.idle_since - hold.unobserved - hold.since <= BEGIN_SECONDS


def may_be_working(hold: DeviceAllocation, context: FleetContext) -> bool:
    """True, too, where its idle time is not known."""
    seconds = idle_seconds(hold, context)
    return seconds is None or seconds < context.config.idle_after


def draw_above_idle(holds: Iterable[DeviceAllocation], fleet: FleetFacts) -> float | None:
    """Watts that the idle GPUs draw because they are held. None: not known of one, or it is MIG or shared."""
    idle = {gpu.uuid: gpu.idle_watts for gpu in fleet.gpus}
    total = 0.0
    for hold in holds:
        rest = idle.get(hold.gpu)
        if hold.watts is None or rest is None or hold.device or hold.holders > 1:
            return None
        total += max(0.0, hold.watts - rest)
    return total


def _does_something(hold: DeviceAllocation) -> bool:
    if hold.device or hold.has_requests:
        return hold.has_requests
    if hold.pcie is not None and hold.pcie >= PCIE_IDLE:
        return True
    if hold.watts is None or hold.loaded_idle_watts is None or hold.watts < DRAW * hold.loaded_idle_watts:
        return False
    return hold.power_limit is None or hold.watts > DRAW_AT_REST * hold.power_limit


LONGER = 1.25
"""Times the longest pause after which it worked again."""

BREAK_SECONDS = 6 * 3600.0
"""A workload that never paused for so long in a week rests neither at night nor on weekends."""

STEADY = ((WEEK_DAYS, 0.0), (3.0, 12 * 3600.0), (1.0, DAY_SECONDS))
"""Days of work without such a pause, and seconds of quiet up to which it may still have a break."""

NO_CONTEXT_BYTES = 64 * 2**20
"""Less than any context of CUDA takes."""

DRIVER_BYTES = 2**30
"""The most that the driver itself takes on an unused GPU."""


class IdlePod(Record, frozen=True, kw_only=True):
    """A pod of which no device has worked for `seconds` or longer. `never`: none of them was ever used."""

    holds: tuple[DeviceAllocation, ...]
    seconds: float
    never: bool


def never_used(facts: WorkloadFacts) -> Recommendation | None:
    """Its pods hold devices without a process, and without any work so far as observed."""
    rests = tuple(rest for rest in idle_pods(facts) if rest.never)
    if not rests:
        return None
    holds = tuple(hold for rest in rests for hold in rest.holds)
    since = min(hold.since for hold in holds)
    held = max(hold.last - hold.since for hold in holds)
    why = (
        f"Held for {span(held)}, since {time(since)}. No compute process is on it, and no window was busy "
        f"for {percent(0.01)} or more of its time."
    )
    risk = "Its owner may be about to begin: nothing is lost but the place."
    return _advice(facts, FindingKind.NEVER_USED, rests, why, risk)


def idle_holder(facts: WorkloadFacts) -> Recommendation | None:
    """It has a context on the GPU, or had, and does nothing with it."""
    rests = tuple(rest for rest in idle_pods(facts) if not rest.never)
    if not rests:
        return None
    shortest = min(rest.seconds for rest in rests)
    pause = _longest_pause(facts)
    before = f" The longest pause after which it worked again was {span(pause)}." if pause >= 60 else ""
    copies = any(hold.pcie is not None and not hold.device for rest in rests for hold in rest.holds)
    still = f", and copied less than {PCIE_IDLE >> 20} MiB a second" if copies else ""
    why = f"No work for {span(shortest)}: busy for less than {percent(0.01)} of any window{still}.{before}"
    risk = "What its processes keep in GPU memory is lost when they end: let it be saved first."
    return _advice(facts, FindingKind.IDLE_HOLDER, rests, why, risk)


def is_all_idle(facts: WorkloadFacts) -> bool:
    """Whether every device that it holds is idle: then its size does not matter."""
    return bool(facts.present) and sum(len(rest.holds) for rest in idle_pods(facts)) == len(facts.present)


def idle_pods(facts: WorkloadFacts) -> tuple[IdlePod, ...]:
    """Its pods of which every device has been quiet for long enough to be sure that this is no pause."""
    found = []
    for _, holds in by_pod(facts.present):
        quiet = [seconds for hold in holds if (seconds := idle_seconds(hold, facts.context)) is not None]
        if len(quiet) < len(holds):
            continue
        rest = IdlePod(holds=holds, seconds=min(quiet), never=all(map(_is_untouched, holds)))
        pause = _longest_pause(facts)
        least = max(facts.config.idle_after, LONGER * pause)
        is_batch = facts.summary.work_class == "batch" and not facts.may_serve
        if not is_batch and not (rest.never and pause == 0.0):
            least = max(least, _break(facts, rest, pause))
        if rest.seconds >= least:  # too long for a pause of this workload
            found.append(rest)
    return tuple(found)


def _break(facts: WorkloadFacts, rest: IdlePod, pause: float) -> float:
    """Seconds for which nights, weekends and holidays may keep it quiet, by what is known of its pauses."""
    lull = facts.config.lull
    holds = [hold for each in facts.all_images for hold in each.holds]
    first, last = min(each.first for each in facts.all_images), max(each.last for each in facts.all_images)
    if pause == 0.0 and not any(hold.worked for hold in holds):
        is_whole = all(map(is_observed_from_start, holds))
        return 0.0 if last - first >= (DAY_SECONDS if is_whole else lull) else lull
    if pause >= BREAK_SECONDS:
        return lull
    worked = last - first - rest.seconds
    return min(lull, next((quiet for days, quiet in STEADY if worked >= days * DAY_SECONDS), lull))


def _longest_pause(facts: WorkloadFacts) -> float:
    """Of any of its pods, also of those that are gone, and with other images: they did the same work."""
    return max((hold.longest_gap for each in facts.all_images for hold in each.holds), default=0.0)


def _is_untouched(hold: DeviceAllocation) -> bool:
    """No process, or so little memory that none can be there. A hold that once took more memory was used."""
    if hold.worked or not is_observed_from_start(hold):
        return False
    if hold.processes is None:
        return hold.memory is not None and hold.memory < NO_CONTEXT_BYTES
    return hold.processes == 0 and (hold.memory is None or hold.memory < DRIVER_BYTES)


def _advice(
    facts: WorkloadFacts, finding: FindingKind, rests: tuple[IdlePod, ...], why: str, risk: str
) -> Recommendation:
    holds = tuple(hold for rest in rests for hold in rest.holds)
    seconds = min(rest.seconds for rest in rests)
    is_whole = is_all_idle(facts) and len(facts.present) < KNOWN_HOLDS
    at_work = [hold.pod for hold in holds if (facts.summary.key.namespace, hold.pod) in facts.context.working]
    may_go = is_whole and not at_work and not facts.may_serve
    return advice(
        facts,
        finding,
        Proposal(
            action=RecommendedAction.SCALE_DOWN if may_go else RecommendedAction.ASK_OWNER,
            current=allocation_text(holds),
            recommended="release it" if may_go else "ask whether it is needed",
            change=RecommendedChange(
                resource=facts.resource, count=facts.summary.gpus_per_pod, to_count=0 if may_go else None
            ),
        ),
        Risk(level=Level.MEDIUM if may_go and finding is FindingKind.IDLE_HOLDER else Level.LOW, text=risk),
        holds=holds,
        why=why + ("" if may_go else f" {_why_asked(facts, at_work)}"),
        evidence=facts.evidence(held=sum(hold.last - hold.since for hold in holds), idle=seconds),
        confidence=level_of(seconds, (DAY_SECONDS, 2 * 3600.0)),
        savings=savings(
            facts.config, facts.model, HOURS * sum(map(share_of, holds)), draw_above_idle(holds, facts.context.fleet)
        ),
        good_for=min(facts.config.expire, DAY_SECONDS),
    )


def _why_asked(facts: WorkloadFacts, at_work: list[str]) -> str:
    """Why the owner is asked."""
    if facts.may_serve:
        named = "It serves" if facts.summary.work_class == "serving" else "It is not declared that it does not serve"
        return f"{named}, so quiet may be normal: only its owner can tell."
    if at_work:
        return f"Another container of {some(set(at_work))} works."
    return "Other pods of it work, or may work: they may need each other."


OTHERS_BUSY = 0.3
"""Mean over the hold, at least, of every GPU that is not spare."""

QUIET = 0.9
"""Idle share, at least, of a spare GPU's hold: something may run on every GPU at the start."""


def gang_oversized(facts: WorkloadFacts) -> Recommendation | None:
    """Every pod has GPUs to spare, and has held them for `min_history` or longer."""
    count = facts.summary.gpus_per_pod
    if count < 2 or facts.profile != "" or facts.shared or not facts.present:
        return None
    spare = [_spare(facts, holds) for _, holds in by_pod(facts.present)]
    fewest = min(map(len, spare))
    if not 0 < fewest < count:
        return None
    holds = tuple(hold for each in spare for hold in each)
    quiet = min(idle_seconds(hold, facts.context) or 0.0 for hold in holds)
    others = [hold.busy for hold in facts.present if hold not in holds and hold.busy is not None]
    return advice(
        facts,
        FindingKind.GANG_OVERSIZED,
        Proposal(
            action=RecommendedAction.REDUCE,
            current=f"{count} x {facts.resource or 'GPU'}",
            recommended=f"{count - fewest} x {facts.resource or 'GPU'}",
            change=RecommendedChange(
                resource=facts.resource, count=count, to_resource=facts.resource, to_count=count - fewest
            ),
        ),
        Risk(
            level=Level.MEDIUM,
            text=f"The work may not divide by {count - fewest}, as tensor parallelism and batch sizes often do not: "
            "try it, or lower what it asks for to what it uses.",
        ),
        holds=holds,
        why=f"{fewest} of {count} GPUs of each pod did nothing for {span(quiet)}, while every other one was busy "
        f"{percent(min(others))} of the time or more. Now: {allocation_text(facts.present)}.",
        evidence=facts.evidence(idle=quiet),
        savings=savings(facts.config, facts.model, facts.hours_per_day * fewest / count),
    )


def _spare(facts: WorkloadFacts, holds: tuple[DeviceAllocation, ...]) -> tuple[DeviceAllocation, ...]:
    """GPUs of one pod that are not needed; none where some of its GPUs are unknown, or neither spare nor busy."""
    if len({hold.gpu for hold in holds}) != facts.summary.gpus_per_pod:
        return ()
    spare: list[DeviceAllocation] = []
    for hold in holds:
        held, quiet = hold.last - hold.since, idle_seconds(hold, facts.context)
        if quiet is None or hold.busy is None or hold.busy >= IDLE_BUSY or held < facts.config.min_history:
            continue
        if quiet >= max(facts.config.idle_after, QUIET * (held - facts.config.grace)):
            spare.append(hold)
    at_work = [hold for hold in holds if hold.busy is not None and hold.busy >= OTHERS_BUSY]
    return tuple(spare) if len(spare) + len(at_work) == len(holds) else ()
