"""What the tuner reports after a cycle: the status of each GPU, and its decisions as entries of the audit log."""

import math
from collections.abc import Callable, Iterator, Mapping

from msgspec.structs import replace

from gpuwatch.model.snapshot import Gpu
from gpuwatch.tuning.cycle.gang import GangDecision, slo_histograms
from gpuwatch.tuning.cycle.gang_energy import ACTIVE, GangState, current_cap
from gpuwatch.tuning.cycle.state import Account, CycleInputs, CycleMemory, OrderReport
from gpuwatch.tuning.energy.hold import HOLD_SECONDS
from gpuwatch.tuning.energy.model import TrialPhase
from gpuwatch.tuning.energy.slo import quantile
from gpuwatch.tuning.energy.tuner import OBSERVED
from gpuwatch.tuning.model.setting import setting_text
from gpuwatch.tuning.model.status import GpuTuning, Obstacle, ObstacleReason, TuningState

STATES: Mapping[TrialPhase, TuningState] = {
    TrialPhase.OBSERVE: TuningState.OBSERVING,
    TrialPhase.SEARCH: TuningState.SEARCHING,
    TrialPhase.HOLD: TuningState.HOLDING,
    TrialPhase.VERIFY: TuningState.VERIFYING,
    TrialPhase.REFUSED: TuningState.REFUSED,
}

MESSAGES: Mapping[ObstacleReason, str] = {
    ObstacleReason.WEAK_SIGNAL: "its memory and pipes are used too little to show its speed, or pipes not at all",
    ObstacleReason.NO_PROGRESS: "several owners share it, and not each has a counter of progress that can be used",
    ObstacleReason.NO_SLO: "the histogram that its SLO names cannot be read",
    ObstacleReason.UNSTEADY: "its work varies too much to measure what a cap costs",
    ObstacleReason.DISAGREE: "memory and pipe activity contradict each other in what a cap costs",
    ObstacleReason.NO_STEP: "there is no lower setting that may be tried",
    ObstacleReason.NOT_OBEYED: "it was not measured at the cap that was set",
    ObstacleReason.UNREADABLE: "its counters or its energy could not be read",
    ObstacleReason.NO_GAIN: "no cap within the bound saved energy",
    ObstacleReason.FAILED: "the cap that was held no longer kept the bound",
    ObstacleReason.RELEASED: "its cap was released a while ago",
}


def gpu_status(
    judged: GpuTuning, decision: GangDecision | None, memory: CycleMemory, inputs: CycleInputs, account: Account
) -> GpuTuning:
    """The status of one GPU. `judged`: by the View's gates alone."""
    tuned = decision.tuned if decision is not None else None
    obstacles = judged.obstacles if decision is None else decision.closed.get(judged.uuid, ())
    if not obstacles and tuned is not None and not tuned.resting and tuned.state.refusal is not None:
        reason = ObstacleReason(tuned.state.refusal.value)
        left = max(0.0, tuned.state.rest - tuned.state.seconds)
        obstacles = (Obstacle(reason=reason, message=f"{MESSAGES[reason]}; tried again after {left:.0f} s of work"),)
    if obstacles:
        state = TuningState.REFUSED
    elif decision is None or tuned is None or not decision.gang.owners:
        state = TuningState.IDLE
    elif tuned.resting:
        state = TuningState.RESTING
    else:
        state = TuningState.ELIGIBLE if tuned.planned is not None else STATES[tuned.state.phase]
    since = memory.since.get(judged.uuid)
    settings = inputs.actuation.settings if inputs.actuation else ()
    limits = [each.applied[0] for each in settings if each.uuid == judged.uuid and each.knob == "power_limit"]
    estimate = tuned.estimate if tuned is not None and state in (TuningState.HOLDING, TuningState.VERIFYING) else None
    note = "" if tuned is None else NOTES.get(state, _cap)(tuned)
    if tuned is not None and decision is not None:
        note = "; ".join(filter(None, (note, _slo(tuned, decision, inputs), _unused(tuned, decision, inputs))))
    clocked = tuned is not None and tuned.ladder.knob == "locked_clocks"
    return replace(
        judged,
        state=state,
        obstacles=obstacles,
        owners=tuple(owner.name for owner in decision.gang.owners) if decision is not None else (),
        bound=decision.request.terms.slowdown if decision is not None and decision.request.terms is not None else None,
        clock_cap=tuned.cap if tuned is not None and clocked else None,
        power_limit=tuned.cap if tuned is not None and not clocked else next(iter(limits), None),
        slowdown=estimate.slowdown if estimate else None,
        slowdown_upper=estimate.at_most if estimate else None,
        saved=estimate.saved if estimate else None,
        joules_saved=account.reported,
        since=since.at if since is not None and since.state is state else inputs.at,
        signal=tuned.state.signal if tuned is not None and tuned.state.phase in ACTIVE else None,
        note=note,
    )


def _unused(tuned: GangState, decision: GangDecision, inputs: CycleInputs) -> str:
    """Why the counter or SLO that the owners name is not the signal; empty: it is, or none is named."""
    known = inputs.progress.owners if inputs.progress is not None else {}
    troubles = [known[owner.id].trouble for owner in decision.gang.owners if owner.id in known]
    why = "; ".join(filter(None, dict.fromkeys((tuned.state.unfit, *troubles))))
    return f"{'slo' if tuned.terms.slo else 'progress'} is not used: {why}" if why else ""


def _slo(tuned: GangState, decision: GangDecision, inputs: CycleInputs) -> str:
    """The targets of the SLO, each with the latency measured of late; empty: there is none."""
    texts = []
    for target, histogram in slo_histograms(decision.gang, inputs) if tuned.terms.slo else ():
        seconds = None if histogram is None else quantile(target, histogram)
        now = "no request" if seconds is None else f"{seconds:g} s" if seconds < math.inf else "above all buckets"
        texts.append(f"{target}, now {now}")
    return ", ".join(texts)


def account(before: Account, gpu: Gpu, tuned: GangState | None, more: float) -> Account:
    """Add the joules that a held cap has saved since the sample before. `tuned`: as it was until now; `more`: joules
    that were saved otherwise.
    """
    counter, saved = gpu.power.energy, before.saved + more
    if counter is None:
        return Account(None, saved, max(saved, before.reported))
    used = None if before.counter is None else counter - before.counter
    holds = tuned is not None and tuned.state.phase is TrialPhase.HOLD and tuned.cap == tuned.state.held
    if used is not None and used >= 0 and tuned is not None and tuned.estimate is not None and holds:
        share = min(tuned.estimate.saved, 0.9)
        saved += used * share / (1 - share)
    return Account(counter, saved, max(saved, before.reported))


def idle_saved(before: GangState | None, now: GangState | None) -> float:
    """Joules that all GPUs together saved in this cycle while they idled at the lowest clock."""
    if before is None or now is None or not (before.resting and now.resting):
        return 0.0
    return now.idle.joules_saved - before.idle.joules_saved


def _cap(tuned: GangState) -> str:
    return setting_text(tuned.ladder.knob, current_cap(tuned))


def _tried(tuned: GangState) -> str:
    probe = tuned.state.probe
    if probe is None:
        return _cap(tuned)
    before = f", near {setting_text(tuned.ladder.knob, known)} of before" if (known := tuned.state.known) else ""
    return f"{_cap(tuned)} in turns, pair {len(probe.pairs) + 1}{before}"


def _steady(tuned: GangState) -> str:
    drams = [window.dram for gang in tuned.state.full for window in gang if window.dram is not None]
    steady = f"steady, DRAM {100 * sum(drams) / len(drams):.0f} %" if drams else "steady"
    return f"would search from {setting_text(tuned.ladder.knob, tuned.planned)}; {steady}"


NOTES: Mapping[TuningState, Callable[[GangState], str]] = {
    TuningState.ELIGIBLE: _steady,
    TuningState.OBSERVING: lambda tuned: f"at full speed, {len(tuned.state.full)} of {OBSERVED} windows",
    TuningState.SEARCHING: _tried,
    TuningState.VERIFYING: _tried,
    TuningState.HOLDING: lambda tuned: (
        f"full speed while it is this busy, else {setting_text(tuned.ladder.knob, tuned.state.held)}"
        if tuned.state.lifted
        else f"next trial in {max(0.0, HOLD_SECONDS - tuned.state.seconds) / 60:.0f} min"
    ),
    TuningState.RESTING: lambda tuned: f"held and idle, at {_cap(tuned)}",
}


def order_reports(memory: CycleMemory, decisions: tuple[GangDecision, ...]) -> Iterator[OrderReport]:
    """The decisions that differ from the cycle before."""
    there = {decision.gang.key for decision in decisions}
    for key, tuned in memory.tuned.items():
        if key not in there and tuned.owned:
            for uuid in memory.gangs[key].uuids:
                yield _restore_report(uuid, tuned, "its owner has changed")
    for decision in decisions:
        before, now = memory.tuned.get(decision.gang.key), decision.tuned
        for uuid in decision.gang.uuids:
            if before is not None and before.owned and (now is None or not now.owned):
                reasons = {obstacle.reason for obstacle in decision.closed.get(uuid, ())}
                report = _restore_report(uuid, before, restore_text(decision, uuid))
                yield report._replace(action="yield") if ObstacleReason.CONFLICT in reasons else report
            elif now is not None and decision.target is not None:
                yield from _set_report(uuid, before, now)


def _restore_report(uuid: str, before: GangState, message: str) -> OrderReport:
    knob = before.ladder.knob
    return OrderReport("restore", uuid, knob, before=setting_text(knob, before.tried or before.cap), why=message)


def _set_report(uuid: str, before: GangState | None, now: GangState) -> Iterator[OrderReport]:
    knob = now.ladder.knob
    tried = None if before is None else before.tried
    if now.tried is not None and now.tried != tried:
        old, new = setting_text(knob, tried), setting_text(knob, now.tried)
        yield OrderReport("tune", uuid, knob, before=old, after=new, why=set_text(now))
    elif now.state.phase is TrialPhase.HOLD and before is not None and before.state.phase is not TrialPhase.HOLD:
        cap, why = setting_text(knob, current_cap(now)), "held"
        if now.estimate is not None:
            lost = now.estimate.slowdown
            slower = "the SLO holds" if lost is None else f"{100 * lost:.1f} % slower"
            why = f"held: {slower}, {100 * now.estimate.saved:.1f} % less energy"
        yield OrderReport("tune", uuid, knob, before=cap, after=cap, why=why)


def set_text(tuned: GangState) -> str:
    """Why an order sets something."""
    if tuned.resting:
        return "its work holds it and does nothing"
    return f"{tuned.state.phase}, slowdown of {100 * tuned.terms.slowdown:g} % at most"


def restore_text(decision: GangDecision, uuid: str) -> str:
    """Why an order restores."""
    if closed := decision.closed.get(uuid):
        return "; ".join(obstacle.message or obstacle.reason for obstacle in closed)
    if decision.tuned is not None and decision.tuned.state.refusal is not None:
        return decision.tuned.state.refusal
    return "another owner, or the same one restarted" if decision.gang.owners else "no workload uses it"
