"""What the tuner reports after a cycle: the status of each GPU, and its decisions as entries of the audit log."""

from collections.abc import Callable, Iterator, Mapping

from msgspec.structs import replace

from gpuwatch.model.setting import Setting
from gpuwatch.model.snapshot import Gpu
from gpuwatch.tuning.cycle.gang import GangDecision
from gpuwatch.tuning.cycle.gang_energy import GangState, attempt
from gpuwatch.tuning.cycle.state import Account, CycleMemory, OrderReport, Since
from gpuwatch.tuning.energy.hold import HOLD_SECONDS
from gpuwatch.tuning.energy.model import TrialPhase
from gpuwatch.tuning.energy.tuner import OBSERVED
from gpuwatch.tuning.model.order import setting_text
from gpuwatch.tuning.model.status import GpuTuning, Obstacle, ObstacleReason, TuningState

STATES: Mapping[TrialPhase, TuningState] = {
    TrialPhase.OBSERVE: TuningState.OBSERVING,
    TrialPhase.SEARCH: TuningState.SEARCHING,
    TrialPhase.HOLD: TuningState.HOLDING,
    TrialPhase.VERIFY: TuningState.VERIFYING,
    TrialPhase.REFUSED: TuningState.REFUSED,
}

MESSAGES: Mapping[ObstacleReason, str] = {
    ObstacleReason.WEAK_SIGNAL: "its memory and its pipes are used too little to tell its speed",
    ObstacleReason.UNSTEADY: "its work varies too much to tell what a cap costs",
    ObstacleReason.DISAGREE: "memory and pipe activity told two stories of what a cap costs",
    ObstacleReason.NO_STEP: "there is no lower setting that may be tried",
    ObstacleReason.NOT_OBEYED: "it was not measured at the cap that was set",
    ObstacleReason.UNREADABLE: "its counters or its energy could not be read",
    ObstacleReason.NO_GAIN: "no cap within the bound saved energy",
    ObstacleReason.FAILED: "the cap that was held no longer kept the bound",
    ObstacleReason.RELEASED: "its cap was given back a while ago",
}


def gpu_status(
    judged: GpuTuning,
    decision: GangDecision | None,
    memory: CycleMemory,
    at: float,
    account: Account,
    settings: tuple[Setting, ...],
) -> GpuTuning:
    """One GPU. `judged`: by the View's gates alone; `settings`: those recorded for it."""
    tuned = decision.tuned if decision is not None else None
    obstacles = _obstacles(judged, decision)
    state = _state(decision, obstacles)
    since = memory.since.get(judged.uuid)
    limits = [each.applied[0] for each in settings if each.knob == "power_limit"]
    estimate = tuned.estimate if tuned is not None and state in (TuningState.HOLDING, TuningState.VERIFYING) else None
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
        joules_saved=account.told,
        since=since.at if since is not None and since.state is state else at,
        note=_note(tuned, state),
    )


def account(before: Account, gpu: Gpu, tuned: GangState | None, more: float) -> Account:
    """With the joules that a held cap has saved since the sample before. `tuned`: as it was until now; `more`: joules
    that were saved otherwise.
    """
    counter, saved = gpu.power.energy, before.saved + more
    if counter is None:
        return Account(None, saved, max(saved, before.told))
    used = None if before.counter is None else counter - before.counter
    holds = tuned is not None and tuned.state.phase is TrialPhase.HOLD and tuned.cap == tuned.state.held
    if used is not None and used >= 0 and tuned is not None and tuned.estimate is not None and holds:
        share = min(tuned.estimate.saved, 0.9)
        saved += used * share / (1 - share)
    return Account(counter, saved, max(saved, before.told))


def rest_saved(before: GangState | None, now: GangState | None) -> float:
    """Joules of all GPUs together, in this cycle, of a rest at the lowest clock."""
    if before is None or now is None or not (before.resting and now.resting):
        return 0.0
    return now.idle.joules_saved - before.idle.joules_saved


def since(gpus: tuple[GpuTuning, ...]) -> dict[str, Since]:
    """For the next cycle."""
    return {gpu.uuid: Since(gpu.state, gpu.since or 0.0) for gpu in gpus}


def _obstacles(judged: GpuTuning, decision: GangDecision | None) -> tuple[Obstacle, ...]:
    if decision is None:
        return judged.obstacles
    closed = decision.closed.get(judged.uuid, ())
    tuned = decision.tuned
    if closed or tuned is None or tuned.resting or tuned.state.refusal is None:
        return closed
    reason = ObstacleReason(tuned.state.refusal.value)
    left = max(0.0, tuned.state.rest - tuned.state.seconds)
    return (Obstacle(reason=reason, message=f"{MESSAGES[reason]}; looked at again after {left:.0f} s of work"),)


def _state(decision: GangDecision | None, obstacles: tuple[Obstacle, ...]) -> TuningState:
    if obstacles:
        return TuningState.REFUSED
    if decision is None or decision.tuned is None or not decision.gang.owners:
        return TuningState.IDLE
    tuned = decision.tuned
    if tuned.resting:
        return TuningState.RESTING
    return TuningState.ELIGIBLE if tuned.would is not None else STATES[tuned.state.phase]


def _note(tuned: GangState | None, state: TuningState) -> str:
    if tuned is None:
        return ""
    return NOTES.get(state, _cap)(tuned)


def _cap(tuned: GangState) -> str:
    return setting_text(tuned.ladder.knob, attempt(tuned))


def _tried(tuned: GangState) -> str:
    probe = tuned.state.probe
    return _cap(tuned) if probe is None else f"{_cap(tuned)} in turns, pair {len(probe.pairs) + 1}"


def _held(tuned: GangState) -> str:
    if tuned.state.lifted:
        return f"full speed while it is this busy, else {setting_text(tuned.ladder.knob, tuned.state.held)}"
    return f"next trial in {max(0.0, HOLD_SECONDS - tuned.state.seconds) / 60:.0f} min"


def _steady(tuned: GangState) -> str:
    drams = [window.dram for gang in tuned.state.full for window in gang if window.dram is not None]
    return f"steady, DRAM {100 * sum(drams) / len(drams):.0f} %" if drams else "steady"


NOTES: Mapping[TuningState, Callable[[GangState], str]] = {
    TuningState.ELIGIBLE: lambda tuned: (
        f"would search from {setting_text(tuned.ladder.knob, tuned.would)}; {_steady(tuned)}"
    ),
    TuningState.OBSERVING: lambda tuned: f"at full speed, {len(tuned.state.full)} of {OBSERVED} windows",
    TuningState.SEARCHING: _tried,
    TuningState.VERIFYING: _tried,
    TuningState.HOLDING: _held,
    TuningState.RESTING: lambda tuned: f"held and idle, at {_cap(tuned)}",
}


def order_reports(memory: CycleMemory, decisions: tuple[GangDecision, ...]) -> Iterator[OrderReport]:
    """What is another decision than in the cycle before."""
    there = {decision.gang.key for decision in decisions}
    for key, tuned in memory.tuned.items():
        if key not in there and tuned.owned:
            for uuid in memory.gangs[key].uuids:
                yield _restore_report(uuid, tuned, "its owner has changed")
    for decision in decisions:
        yield from _of_team(memory.tuned.get(decision.gang.key), decision)


def why(tuned: GangState) -> str:
    """What an order that sets something is for."""
    if tuned.resting:
        return "its work holds it and does nothing"
    return f"{tuned.state.phase}, slowdown of {100 * tuned.terms.slowdown:g} % at most"


def why_not(decision: GangDecision, uuid: str) -> str:
    """What an order that gives back is for."""
    if closed := decision.closed.get(uuid):
        return "; ".join(obstacle.message or obstacle.reason for obstacle in closed)
    if decision.tuned is not None and decision.tuned.state.refusal is not None:
        return decision.tuned.state.refusal
    return "another owner, or another start" if decision.gang.owners else "nobody uses it"


def _of_team(before: GangState | None, decision: GangDecision) -> Iterator[OrderReport]:
    now = decision.tuned
    for uuid in decision.gang.uuids:
        if before is not None and before.owned and (now is None or not now.owned):
            reasons = {obstacle.reason for obstacle in decision.closed.get(uuid, ())}
            told = _restore_report(uuid, before, why_not(decision, uuid))
            yield told._replace(action="yield") if ObstacleReason.CONFLICT in reasons else told
        elif now is not None and decision.aim is not None:
            yield from _moved(uuid, before, now)


def _moved(uuid: str, before: GangState | None, now: GangState) -> Iterator[OrderReport]:
    knob, cap = now.ladder.knob, attempt(now)
    tried = None if before is None else before.tried
    if now.tried is not None and now.tried != tried:
        yield OrderReport(
            "tune", uuid, knob, before=setting_text(knob, tried), after=setting_text(knob, now.tried), why=why(now)
        )
    elif now.state.phase is TrialPhase.HOLD and before is not None and before.state.phase is not TrialPhase.HOLD:
        yield OrderReport(
            "tune", uuid, knob, before=setting_text(knob, cap), after=setting_text(knob, cap), why=_held_report(now)
        )


def _held_report(now: GangState) -> str:
    if now.estimate is None:
        return "held"
    found = now.estimate
    return f"held: {100 * found.slowdown:.1f} % slower, {100 * found.saved:.1f} % less energy"


def _restore_report(uuid: str, before: GangState, message: str) -> OrderReport:
    knob = before.ladder.knob
    return OrderReport("restore", uuid, knob, before=setting_text(knob, before.tried or before.cap), why=message)
