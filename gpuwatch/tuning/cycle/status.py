"""What the tuner says of each GPU to people: its state, what stands against it, and what was saved."""

from collections.abc import Callable, Mapping

import msgspec

from gpuwatch.model.setting import Setting
from gpuwatch.model.snapshot import Gpu
from gpuwatch.tuning.cycle.gang import Moved
from gpuwatch.tuning.cycle.gang_energy import Tuned, attempt
from gpuwatch.tuning.cycle.orders import text
from gpuwatch.tuning.cycle.state import Account, Memory, Since
from gpuwatch.tuning.energy.hold import HOLD_SECONDS
from gpuwatch.tuning.energy.phases import OBSERVED
from gpuwatch.tuning.energy.state import Phase
from gpuwatch.tuning.model.status import GpuTuning, Obstacle, Reason, TuningState

STATES: Mapping[Phase, TuningState] = {
    Phase.OBSERVE: TuningState.OBSERVING,
    Phase.SEARCH: TuningState.SEARCHING,
    Phase.HOLD: TuningState.HOLDING,
    Phase.VERIFY: TuningState.VERIFYING,
    Phase.REFUSED: TuningState.REFUSED,
}

WORDS: Mapping[Reason, str] = {
    Reason.WEAK_SIGNAL: "its memory and its pipes are used too little to tell its speed",
    Reason.UNSTEADY: "its work varies too much to tell what a cap costs",
    Reason.DISAGREE: "memory and pipe activity told two stories of what a cap costs",
    Reason.NO_STEP: "there is no lower setting that may be tried",
    Reason.NOT_OBEYED: "it was not measured at the cap that was set",
    Reason.UNREADABLE: "its counters or its energy could not be read",
    Reason.NO_GAIN: "no cap within the bound saved energy",
    Reason.FAILED: "the cap that was held no longer kept the bound",
    Reason.RELEASED: "its cap was given back a while ago",
}

evolve = msgspec.structs.replace


def face(
    judged: GpuTuning, moved: Moved | None, memory: Memory, at: float, account: Account, settings: tuple[Setting, ...]
) -> GpuTuning:
    """One GPU. `judged`: by the View's gates alone; `settings`: those recorded for it."""
    tuned = moved.tuned if moved is not None else None
    obstacles = _obstacles(judged, moved)
    state = _state(moved, obstacles)
    since = memory.since.get(judged.uuid)
    limits = [each.applied[0] for each in settings if each.knob == "power_limit"]
    belief = tuned.belief if tuned is not None and state in (TuningState.HOLDING, TuningState.VERIFYING) else None
    clocked = tuned is not None and tuned.ladder.knob == "locked_clocks"
    return evolve(
        judged,
        state=state,
        obstacles=obstacles,
        owners=tuple(owner.name for owner in moved.team.owners) if moved is not None else (),
        bound=moved.wish.terms.slowdown if moved is not None and moved.wish.terms is not None else None,
        clock_cap=tuned.cap if tuned is not None and clocked else None,
        power_limit=tuned.cap if tuned is not None and not clocked else next(iter(limits), None),
        slowdown=belief.slowdown if belief else None,
        slowdown_upper=belief.at_most if belief else None,
        saved=belief.saved if belief else None,
        joules_saved=account.told,
        since=since.at if since is not None and since.state is state else at,
        note=_note(tuned, state),
    )


def account(before: Account, gpu: Gpu, tuned: Tuned | None, more: float) -> Account:
    """With the joules that a held cap has saved since the sample before. `tuned`: as it was until now; `more`: joules
    that were saved otherwise.
    """
    counter, saved = gpu.power.energy, before.saved + more
    if counter is None:
        return Account(None, saved, max(saved, before.told))
    used = None if before.counter is None else counter - before.counter
    holds = tuned is not None and tuned.state.phase is Phase.HOLD and tuned.cap == tuned.state.held
    if used is not None and used >= 0 and tuned is not None and tuned.belief is not None and holds:
        share = min(tuned.belief.saved, 0.9)
        saved += used * share / (1 - share)
    return Account(counter, saved, max(saved, before.told))


def rest_saved(before: Tuned | None, now: Tuned | None) -> float:
    """Joules of all GPUs together, in this cycle, of a rest at the lowest clock."""
    if before is None or now is None or not (before.resting and now.resting):
        return 0.0
    return now.idle.joules_saved - before.idle.joules_saved


def since(gpus: tuple[GpuTuning, ...]) -> dict[str, Since]:
    """For the next cycle."""
    return {gpu.uuid: Since(gpu.state, gpu.since or 0.0) for gpu in gpus}


def _obstacles(judged: GpuTuning, moved: Moved | None) -> tuple[Obstacle, ...]:
    if moved is None:
        return judged.obstacles
    closed = moved.closed.get(judged.uuid, ())
    tuned = moved.tuned
    if closed or tuned is None or tuned.resting or tuned.state.refusal is None:
        return closed
    reason = Reason(tuned.state.refusal.value)
    left = max(0.0, tuned.state.rest - tuned.state.seconds)
    return (Obstacle(reason=reason, words=f"{WORDS[reason]}; looked at again after {left:.0f} s of work"),)


def _state(moved: Moved | None, obstacles: tuple[Obstacle, ...]) -> TuningState:
    if obstacles:
        return TuningState.REFUSED
    if moved is None or moved.tuned is None or not moved.team.owners:
        return TuningState.IDLE
    tuned = moved.tuned
    if tuned.resting:
        return TuningState.RESTING
    return TuningState.ELIGIBLE if tuned.would is not None else STATES[tuned.state.phase]


def _note(tuned: Tuned | None, state: TuningState) -> str:
    if tuned is None:
        return ""
    return NOTES.get(state, _cap)(tuned)


def _cap(tuned: Tuned) -> str:
    return text(tuned.ladder.knob, attempt(tuned))


def _tried(tuned: Tuned) -> str:
    probe = tuned.state.probe
    return _cap(tuned) if probe is None else f"{_cap(tuned)} in turns, pair {len(probe.pairs) + 1}"


def _held(tuned: Tuned) -> str:
    if tuned.state.lifted:
        return f"full speed while it is this busy, else {text(tuned.ladder.knob, tuned.state.held)}"
    return f"next trial in {max(0.0, HOLD_SECONDS - tuned.state.seconds) / 60:.0f} min"


def _steady(tuned: Tuned) -> str:
    drams = [window.dram for gang in tuned.state.full for window in gang if window.dram is not None]
    return f"steady, DRAM {100 * sum(drams) / len(drams):.0f} %" if drams else "steady"


NOTES: Mapping[TuningState, Callable[[Tuned], str]] = {
    TuningState.ELIGIBLE: lambda tuned: f"would search from {text(tuned.ladder.knob, tuned.would)}; {_steady(tuned)}",
    TuningState.OBSERVING: lambda tuned: f"at full speed, {len(tuned.state.full)} of {OBSERVED} windows",
    TuningState.SEARCHING: _tried,
    TuningState.VERIFYING: _tried,
    TuningState.HOLDING: _held,
    TuningState.RESTING: lambda tuned: f"held and idle, at {_cap(tuned)}",
}
