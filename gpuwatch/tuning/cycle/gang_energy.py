"""One owner's GPUs, which are moved together: from samples to the state of the energy tuner, and what it wants."""

from collections.abc import Mapping
from typing import NamedTuple

import msgspec

from gpuwatch.model.snapshot import Gpu, Record
from gpuwatch.tuning.energy import idle as energy_idle
from gpuwatch.tuning.energy.hold import Belief, believed
from gpuwatch.tuning.energy.meter import Meter, take
from gpuwatch.tuning.energy.phases import verification
from gpuwatch.tuning.energy.resume import released, resumed
from gpuwatch.tuning.energy.state import Phase, State
from gpuwatch.tuning.energy.tuner import step, wanted
from gpuwatch.tuning.energy.windows import Gang, Ladder, Terms
from gpuwatch.tuning.model.restore_value import TOLERANCE_WATTS

ACTIVE = (Phase.SEARCH, Phase.HOLD, Phase.VERIFY)
"""Phases in which something may be in force."""

UP = 0.95
"""Of the clock that should be in force: a GPU that is there is held down by nobody else."""

evolve = msgspec.structs.replace


class Tuned(Record, frozen=True, kw_only=True):
    """What is remembered of GPUs that are moved together. `cap`: hertz or watts ordered last, None: none; `switched`:
    unix seconds of the order. `owned`: what is recorded of their knob was ordered for this owner. `tried`: the newest
    cap that counted as an action. `resting`: idle, at the floor. `would`: where a search would begin, had the mode been
    `enforce`. `limits`: the power limits seen last, watts by uuid.
    """

    ladder: Ladder
    terms: Terms
    state: State = State()
    meter: Meter = Meter()
    cap: float | None = None
    switched: float | None = None
    owned: bool = False
    tried: float | None = None
    idle: energy_idle.Rest = energy_idle.Rest()
    resting: bool = False
    belief: Belief | None = None
    would: float | None = None
    limits: Mapping[str, float] = {}


class Aim(NamedTuple):
    """What should be in force from now on. None: nothing, but something was and will be again in seconds."""

    value: float | None


def fitted(tuned: Tuned, ladder: Ladder, terms: Terms, members: int) -> Tuned:
    """The same GPUs under another promise, or with another ladder."""
    if (tuned.ladder, tuned.terms) == (ladder, terms):
        return tuned
    kept = tuned if tuned.ladder.knob == ladder.knob else evolve(tuned, cap=None, owned=False)
    state = resumed(tuned.state, ladder, terms, members)
    return evolve(kept, ladder=ladder, terms=terms, state=state, resting=False, belief=None, would=None)


def looked(tuned: Tuned, gpus: tuple[Gpu, ...], *, enforcing: bool) -> Tuned:
    """After new samples, one of each GPU."""
    tuned = _limited(tuned, gpus)
    serving = tuned.terms.latency == "serving"
    meter, gangs = take(tuned.meter, gpus, tuned.cap, tuned.switched, serving)
    state, would = tuned.state, tuned.would
    for gang in gangs:
        after, _ = step(state, gang, tuned.ladder, tuned.terms)
        if not enforcing:
            after, would = _watching(state, after, gang)
        state = after
        if wanted(state) != tuned.cap:
            break  # what is left was measured before the knob is turned
    belief = tuned.belief if state.probes is tuned.state.probes else believed(state)
    return evolve(tuned, meter=meter, state=state, belief=belief, would=would)


def _limited(tuned: Tuned, gpus: tuple[Gpu, ...]) -> Tuned:
    """Another power limit, mostly the budget's doing, is a switch as well: windows of before and after it are not of
    one speed. Under a held cap nothing tells that without it the work would be faster now, so that is looked at.
    """
    seen = {gpu.identity.uuid: limit for gpu in gpus if (limit := gpu.power.limit_enforced) is not None}
    steps = [limit - tuned.limits.get(uuid, limit) for uuid, limit in seen.items()]
    known = evolve(tuned, limits={**tuned.limits, **seen})
    if tuned.ladder.knob == "power_limit" or all(abs(step) <= TOLERANCE_WATTS for step in steps):
        return known
    state = tuned.state
    if state.phase in (Phase.OBSERVE, Phase.SEARCH):
        state = State(rest=state.rest)
    elif state.phase is Phase.VERIFY or (state.phase is Phase.HOLD and max(steps) > TOLERANCE_WATTS):
        state = verification(state)
    return evolve(known, state=state, switched=max(gpu.at for gpu in gpus))


def _watching(state: State, after: State, gang: Gang) -> tuple[State, float | None]:
    """Without a hand nothing is ever searched: the newest windows are judged again and again."""
    if after.phase is not Phase.SEARCH or after.probe is None:
        return after, None
    return evolve(state, full=(*state.full, gang)[1:], ignored=0), after.probe.cap


def rested(tuned: Tuned, gpus: tuple[Gpu, ...], now: float, *, allowed: bool) -> Tuned:
    """Whether the GPUs are held by work that does nothing: then the lowest clock will do, until they do something.

    Only of those whose clocks stay up, as a context of CUDA keeps them. Others save nothing by it, and may be locked by
    somebody: the driver names no reason on an idle GPU, and at the end of the rest that lock would be gone.
    """
    idle, rests = energy_idle.step(tuned.idle, gpus, now)
    rests = rests and allowed and tuned.ladder.knob == "locked_clocks" and bool(tuned.ladder.caps)
    up = UP * (tuned.cap or tuned.ladder.top)
    rests = rests and (tuned.resting or all((gpu.clocks.sm or 0.0) >= up for gpu in gpus))
    if rests == tuned.resting:
        return evolve(tuned, idle=idle)
    state, members = tuned.state, len(gpus)
    if state.phase is not Phase.REFUSED:
        state = resumed(state, tuned.ladder, tuned.terms, members)
    return evolve(tuned, idle=idle, resting=rests, state=state, meter=Meter(), belief=None)


def shut(tuned: Tuned, at: float, members: int, *, doubt: bool) -> Tuned:
    """A gate is closed: nothing may be in force. `doubt`: it says nothing about the GPUs or their work, so that a cap
    that was held may be verified again afterwards; else they are left alone for a while.
    """
    state = tuned.state
    if state.phase in ACTIVE and doubt:
        state = resumed(state, tuned.ladder, tuned.terms, members)
    elif state.phase in ACTIVE and tuned.owned:
        state = released(state)
    elif state.phase is not Phase.REFUSED:
        state = State(rest=state.rest)
    fresh = evolve(tuned, state=state, meter=Meter(), idle=energy_idle.Rest(), resting=False, belief=None, would=None)
    return lifted(fresh, at)


def lifted(tuned: Tuned, at: float) -> Tuned:
    """Nothing is in force or recorded any more."""
    switched = at if tuned.cap is not None else tuned.switched
    return evolve(tuned, cap=None, owned=False, tried=None, switched=switched)


def aim(tuned: Tuned) -> Aim | None:
    """What is wanted. None: nothing at all, what is recorded is to be given back."""
    if tuned.resting:
        return Aim(tuned.ladder.floor)
    value = wanted(tuned.state)
    if value is None and not (tuned.owned and tuned.state.phase in ACTIVE):
        return None
    return Aim(value)


def attempt(tuned: Tuned) -> float | None:
    """The cap that is being tried or held, be it in force this second or not. None: none."""
    if tuned.resting:
        return tuned.ladder.floor
    state = tuned.state
    if state.phase in (Phase.SEARCH, Phase.VERIFY) and state.probe is not None:
        return state.probe.cap
    return state.held if state.phase is Phase.HOLD else None


def turned(tuned: Tuned, aimed: Aim | None, at: float) -> Tuned:
    """After the orders of this cycle."""
    if aimed is None:
        return lifted(tuned, at)
    switched = at if aimed.value != tuned.cap else tuned.switched
    owned = tuned.owned or aimed.value is not None
    return evolve(tuned, cap=aimed.value, switched=switched, owned=owned)
