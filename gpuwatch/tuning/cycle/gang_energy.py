"""One owner's GPUs, which are set together: from samples to the energy tuner's state and the cap to have in force."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from msgspec.structs import replace

from gpuwatch.model.consent import ProgressCounter
from gpuwatch.model.snapshot import Gpu, Record
from gpuwatch.tuning.energy.hold import SavingEstimate, saving_estimate
from gpuwatch.tuning.energy.meter import IdleCap, Meter, idle_step, take
from gpuwatch.tuning.energy.model import Ladder, Terms, TrialPhase, TrialState
from gpuwatch.tuning.energy.resumption import released, resumed
from gpuwatch.tuning.energy.slo import TargetHistogram
from gpuwatch.tuning.energy.tuner import step, target_cap, verification, window_seconds
from gpuwatch.tuning.model.setting import TOLERANCE_WATTS

ACTIVE = (TrialPhase.SEARCH, TrialPhase.HOLD, TrialPhase.VERIFY)
"""Phases in which something may be in force."""

UP = 0.95
"""Share of the clock that should be in force: a GPU that reaches it is held down by nothing else."""


class GangState(Record, frozen=True, kw_only=True):
    """The state of GPUs that are set together. `cap`: hertz or watts ordered last, None: none; `switched`:
    unix seconds of the order. `owned`: the recorded settings of their knob were ordered for this owner. `tried`: the
    newest cap that counted as an action. `resting`: idle, at the floor. `planned`: where a search would begin in mode
    `enforce`. `limits`: the newest power limits, watts by uuid.
    """

    ladder: Ladder
    terms: Terms
    state: TrialState = TrialState()
    meter: Meter = Meter()
    cap: float | None = None
    switched: float | None = None
    owned: bool = False
    tried: float | None = None
    idle: IdleCap = IdleCap()
    resting: bool = False
    estimate: SavingEstimate | None = None
    planned: float | None = None
    limits: Mapping[str, float] = {}


class TargetCap(NamedTuple):
    """What should be in force from now on. None: nothing, but a cap was in force and will be again in seconds."""

    value: float | None


def with_terms(tuned: GangState, ladder: Ladder, terms: Terms, members: int) -> GangState:
    """The same GPUs under other terms, or with another ladder."""
    if (tuned.ladder, tuned.terms) == (ladder, terms):
        return tuned
    kept = tuned if tuned.ladder.knob == ladder.knob else replace(tuned, cap=None, owned=False)
    state = resumed(tuned.state, ladder, terms, members)
    return replace(kept, ladder=ladder, terms=terms, state=state, resting=False, estimate=None, planned=None)


def with_samples(
    tuned: GangState,
    gpus: tuple[Gpu, ...],
    counters: Sequence[ProgressCounter | None] = (),
    *,
    enforcing: bool,
    slo: Sequence[TargetHistogram] = (),
) -> GangState:
    """After new samples, one of each GPU. `counters`: of work, one for each owner; empty: none names one. `slo`:
    what is counted for each target of the terms.
    """
    tuned = _with_power_limits(tuned, gpus)
    serving = tuned.terms.latency == "serving"
    seconds = window_seconds(tuned.state, f"{[gpu.identity.uuid for gpu in gpus]} {tuned.state.seconds}")
    meter, complete = take(tuned.meter, gpus, tuned.cap, tuned.switched, serving, counters, seconds, slo)
    state, planned = tuned.state, tuned.planned
    for windows in complete:
        after = step(state, windows, tuned.ladder, tuned.terms)
        if not enforcing:  # no search ever begins: the newest windows are judged again and again
            planned = None
            if after.phase is TrialPhase.SEARCH and after.probe is not None:
                planned = after.probe.cap
                after = replace(state, full=(*state.full, windows)[1:], ignored=0)
        state = after
        if target_cap(state) != tuned.cap:
            break  # the windows left were measured before the setting changes
    estimate = tuned.estimate if state.probes is tuned.state.probes else saving_estimate(state)
    return replace(tuned, meter=meter, state=state, estimate=estimate, planned=planned)


def _with_power_limits(tuned: GangState, gpus: tuple[Gpu, ...]) -> GangState:
    """Another power limit, mostly the budget's doing, is a switch as well: windows before and after it are not of
    one speed. A held cap hides whether the work would be faster without it now, so it is verified.
    """
    limits = {gpu.identity.uuid: limit for gpu in gpus if (limit := gpu.power.limit_enforced) is not None}
    steps = [limit - tuned.limits.get(uuid, limit) for uuid, limit in limits.items()]
    known = replace(tuned, limits={**tuned.limits, **limits})
    if tuned.ladder.knob == "power_limit" or all(abs(step) <= TOLERANCE_WATTS for step in steps):
        return known
    state = tuned.state
    if state.phase in (TrialPhase.OBSERVE, TrialPhase.SEARCH):
        state = TrialState(rest=state.rest)
    elif state.phase is TrialPhase.VERIFY or (state.phase is TrialPhase.HOLD and max(steps) > TOLERANCE_WATTS):
        state = verification(state)
    return replace(known, state=state, switched=max(gpu.at for gpu in gpus))


def with_idle(tuned: GangState, gpus: tuple[Gpu, ...], now: float, *, allowed: bool) -> GangState:
    """Whether the GPUs are held by work that does nothing: then the lowest clock is enough, until they do something.

    Only GPUs whose clocks stay up, as a CUDA context keeps them. Others save nothing by it, and another process may
    have locked them: the driver names no reason on an idle GPU, and the end of the rest would remove that lock.
    """
    idle, rests = idle_step(tuned.idle, gpus, now)
    rests = rests and allowed and tuned.ladder.knob == "locked_clocks" and bool(tuned.ladder.caps)
    up = UP * (tuned.cap or tuned.ladder.top)
    rests = rests and (tuned.resting or all((gpu.clocks.sm or 0.0) >= up for gpu in gpus))
    if rests == tuned.resting:
        return replace(tuned, idle=idle)
    state, members = tuned.state, len(gpus)
    if state.phase is not TrialPhase.REFUSED:
        state = resumed(state, tuned.ladder, tuned.terms, members)
    return replace(tuned, idle=idle, resting=rests, state=state, meter=Meter(), estimate=None)


def suspended(tuned: GangState, at: float, members: int, *, external: bool) -> GangState:
    """A gate is closed: nothing may be in force. `external`: its reason is not about the GPUs or their work, so that
    a cap that was held may be verified again afterwards; else they are left alone for a while.
    """
    state = tuned.state
    if state.phase in ACTIVE and external:
        state = resumed(state, tuned.ladder, tuned.terms, members)
    elif state.phase in ACTIVE and tuned.owned:
        state = released(state)
    elif state.phase is not TrialPhase.REFUSED:
        state = TrialState(rest=state.rest)
    fresh = replace(tuned, state=state, meter=Meter(), idle=IdleCap(), resting=False, estimate=None, planned=None)
    return lifted(fresh, at)


def lifted(tuned: GangState, at: float) -> GangState:
    """Nothing is in force or recorded any more."""
    switched = at if tuned.cap is not None else tuned.switched
    return replace(tuned, cap=None, owned=False, tried=None, switched=switched)


def target(tuned: GangState) -> TargetCap | None:
    """What should be in force. None: nothing at all, recorded settings are to be restored."""
    if tuned.resting:
        return TargetCap(tuned.ladder.floor)
    value = target_cap(tuned.state)
    if value is None and not (tuned.owned and tuned.state.phase in ACTIVE):
        return None
    return TargetCap(value)


def current_cap(tuned: GangState) -> float | None:
    """The cap that is being tried or held, whether in force at this second or not. None: none."""
    if tuned.resting:
        return tuned.ladder.floor
    state = tuned.state
    if state.phase in (TrialPhase.SEARCH, TrialPhase.VERIFY) and state.probe is not None:
        return state.probe.cap
    return state.held if state.phase is TrialPhase.HOLD else None


def after_orders(tuned: GangState, target: TargetCap | None, at: float) -> GangState:
    """After the orders of this cycle."""
    if target is None:
        return lifted(tuned, at)
    switched = at if target.value != tuned.cap else tuned.switched
    owned = tuned.owned or target.value is not None
    return replace(tuned, cap=target.value, switched=switched, owned=owned)
