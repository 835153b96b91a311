"""The energy tuner's way from one window to the next: observe, search, hold, verify. Pure; the caller sets the cap."""

import math
from collections.abc import Callable, Mapping
from statistics import fmean

from msgspec.structs import replace

from gpuwatch.tuning.energy.estimate import slowest, spread
from gpuwatch.tuning.energy.hold import (
    BLOCK,
    CALM,
    HOLD_SECONDS,
    KEPT,
    LEVEL,
    ODD,
    has_room,
    is_burst,
    is_idle,
    is_odd,
    is_same_work,
    keeps,
    level,
    raised,
)
from gpuwatch.tuning.energy.model import (
    WEAK,
    Decision,
    GangWindow,
    Ladder,
    Probe,
    Refusal,
    Terms,
    TrialPhase,
    TrialState,
    WindowPair,
    pair,
)
from gpuwatch.tuning.energy.search import (
    LOOKS,
    PROBES,
    best,
    finished,
    first,
    following,
    is_hopeless,
    judge,
    reached,
    saved,
)


def released(state: TrialState) -> TrialState:
    """What becomes of a gang whose cap has to go at once: a gate closed. Work of another owner gets a new TrialState.

    It may be called as long as the gate is closed: the rest begins when it opens, and gets no longer.
    """
    return TrialState(phase=TrialPhase.REFUSED, refusal=Refusal.RELEASED, rest=max(REST_SECONDS, _rest(state)))


def resumed(state: TrialState, ladder: Ladder, terms: Terms, members: int = 1) -> TrialState:
    """What a tuner makes of a state written down before it restarted, or before its ladder or its terms changed.

    A held cap is verified before it is believed, if it may be set now, and what `members` GPUs told of it keeps the
    promise of now. Otherwise all begins again.
    """
    probes = tuple(
        probe
        for probe in state.probes
        if probe.cap in ladder.caps and (len(probe.pairs) > 1 and all(_can_be(pair, members) for pair in probe.pairs))
    )
    held = next((probe for probe in probes if probe.good and probe.cap == state.held), None)
    if held is None or not _keeps(held, terms):
        return TrialState(rest=_rest(state))
    left, failures = min(max(state.left, 0), PROBES), min(max(state.failures, 0), 2)
    kept = TrialState(held=held.cap, probes=probes, left=left, holds=state.holds, failures=failures, rest=_rest(state))
    return verification(kept)


def _keeps(probe: Probe, terms: Terms) -> bool:
    speed = slowest(probe.pairs)
    return speed is not None and speed.ratio >= 1 - terms.slowdown


def _can_be(pair: WindowPair, members: int) -> bool:
    numbers = [each for each in (*pair.speed, pair.energy) if each is not None]
    return len(pair.speed) == 2 * members and all(map(math.isfinite, numbers))


def _rest(state: TrialState) -> float:
    return state.rest if 0 <= state.rest <= LONGEST_REST else 0.0


OBSERVED = 12
"""Settled full windows before anything is tried: a minute of windows of 5 s."""

STEADY = 0.05
"""Full windows that vary more than this (standard deviation over mean) tell nothing."""

REST_SECONDS, LONGEST_REST = 600.0, 4 * 3600.0


def refused(state: TrialState, reason: Refusal) -> TrialState:
    """Nothing is done for a while, for longer each time."""
    rest = min(max(REST_SECONDS, 2 * state.rest), LONGEST_REST)
    return TrialState(phase=TrialPhase.REFUSED, refusal=reason, rest=rest)


def _observe(state: TrialState, windows: GangWindow, ladder: Ladder, terms: Terms) -> TrialState:
    """At full speed: whether there is a signal, and a steady one."""
    full = (*state.full, windows)
    if len(full) < OBSERVED:
        return replace(state, full=full)
    reason = unfit(full) if ladder.caps else Refusal.NO_STEP
    if reason is not None:
        return refused(state, reason)
    watts = max(fmean(window.watts for window in member) for member in zip(*full, strict=True))
    begun = TrialState(phase=TrialPhase.SEARCH, left=PROBES, rest=state.rest)
    return _probe(begun, first(reached(ladder, full), terms, watts))


def unfit(full: tuple[GangWindow, ...]) -> Refusal | None:
    """Why full windows are no ground to search on. None: they are."""
    for member in zip(*full, strict=True):
        drams = [window.dram or 0.0 for window in member]
        pipes = [window.pipe or 0.0 for window in member]
        strong = [values for values in (drams, pipes) if fmean(values) >= WEAK]
        if not strong:
            return Refusal.WEAK_SIGNAL
        if any(spread(values) > STEADY * fmean(values) for values in strong):
            return Refusal.UNSTEADY
    return None


def _probe(state: TrialState, cap: float) -> TrialState:
    return replace(state, probe=Probe(cap=cap), before=None, reduced=None, left=state.left - 1)


def _measure(state: TrialState, windows: GangWindow, ladder: Ladder) -> tuple[TrialState, bool]:
    """Put a window in its place; whether that made a pair complete."""
    probe = state.probe
    if probe is None or state.before is None:
        return replace(state, before=windows), False
    if state.reduced is None:
        return replace(state, reduced=windows), False
    pairs = (*probe.pairs, pair(state.before, state.reduced, windows, ladder))
    return replace(state, probe=replace(probe, pairs=pairs), before=windows, reduced=None, newest=state.reduced), True


def _search(state: TrialState, windows: GangWindow, ladder: Ladder, terms: Terms) -> TrialState:
    """One probe after the other, until a cap is held or none is worth it."""
    state, complete = _measure(state, windows, ladder)
    probe = state.probe
    if not complete or probe is None:
        return state
    found = best(state.probes)
    good = judge(probe.pairs, terms, 0.0 if found is None else saved(found))
    if good is None:
        return state
    easy = good and len(probe.pairs) <= LOOKS[1]
    left = max(state.left, 1) if easy else state.left
    probes = (*state.probes, finished(probe, good=good))
    return _next(replace(state, probes=probes, left=left, before=windows), ladder, terms)


def _next(state: TrialState, ladder: Ladder, terms: Terms) -> TrialState:
    """Another probe if one is worth it and left, else the best of what is known: held if it is what was seen last."""
    below = ladder if state.before is None else reached(ladder, (state.before,))
    cap = following(state.probes, below, terms) if state.left > 0 else None
    if cap is not None:
        return replace(_probe(state, cap), phase=TrialPhase.SEARCH, before=state.before)
    found = best(state.probes)
    if found is None:
        told = any(each.disagreed for each in state.probes)
        return refused(state, Refusal.DISAGREE if told else Refusal.NO_GAIN)
    if found is state.probes[-1]:
        watched = () if state.newest is None else (state.newest,)
        return TrialState(
            phase=TrialPhase.HOLD,
            held=found.cap,
            probes=state.probes,
            watched=watched,
            level=level(watched),
            holds=state.holds,
        )
    return verification(replace(state, held=found.cap))


def _hold(state: TrialState, windows: GangWindow, ladder: Ladder, terms: Terms) -> TrialState:
    """The cap stays, and the work is watched."""
    if state.level and is_odd(state.level, windows):
        odd = state.odd + 1
    else:
        odd, state = 0, _leveled(state, windows)
    if odd >= ODD:
        return verification(state)
    if state.seconds >= HOLD_SECONDS:
        return verification(_forgetful(replace(state, holds=state.holds + 1, left=1), terms))
    return replace(state, odd=odd)


def _forgetful(state: TrialState, terms: Terms) -> TrialState:
    """Where half of the bound is not used, try lower caps again after 1, 2, 4 and so on holds: work changes."""
    kept = tuple(probe for probe in state.probes if probe.cap == state.held)
    backed_off = state.holds & (state.holds - 1)
    return state if backed_off or not has_room(kept, terms) else replace(state, probes=kept)


def _leveled(state: TrialState, windows: GangWindow) -> TrialState:
    """Learn how the work looks as long as too few windows tell."""
    if len(state.watched) >= LEVEL:
        return state
    watched = (*state.watched, windows)
    return replace(state, watched=watched, level=level(watched))


def verification(state: TrialState) -> TrialState:
    """One block at the held cap."""
    held = None if state.held is None else Probe(cap=state.held)
    return replace(state, phase=TrialPhase.VERIFY, probe=held, before=None, reduced=None)


def _verify(state: TrialState, windows: GangWindow, ladder: Ladder, terms: Terms) -> TrialState:
    """A block at the held cap: keep it, raise it, search again or give up."""
    state, complete = _measure(state, windows, ladder)
    if not complete or state.probe is None:
        return state
    cap, block = state.probe.cap, state.probe.pairs
    if len(block) > 1 and is_hopeless(block, terms):
        bad = finished(state.probe, good=False)
        return _next(TrialState(probes=(bad,), left=PROBES, rest=state.rest, before=windows), ladder, terms)
    if len(block) < BLOCK:
        return state
    known = next((each.pairs for each in state.probes if each.cap == cap), ())
    if known and not is_same_work(block, known):
        known, state = (), replace(state, probes=(), left=PROBES)
    probe = Probe(cap=cap, pairs=(*known, *block)[-KEPT:], good=True)
    state = replace(state, probes=(*(each for each in state.probes if each.cap != cap), probe), before=windows)
    if keeps(block, probe.pairs, terms):
        return _next(replace(state, failures=0), ladder, terms)
    return _failed(replace(state, failures=state.failures + 1), cap, ladder, terms)


def _failed(state: TrialState, cap: float, ladder: Ladder, terms: Terms) -> TrialState:
    """Once: look again. Twice: one step up, the lower cap is bad. Then: enough."""
    if state.failures == 1:
        return verification(state)
    above = raised(cap, ladder, terms)
    if state.failures > 2 or above is None:
        return refused(state, Refusal.FAILED)
    probes = tuple(each if each.cap != cap else replace(each, good=False) for each in state.probes)
    return verification(replace(state, probes=probes, held=above))


IGNORED = 6
"""Settled windows in a row of no use: somebody else has the knob, or the counters are gone."""


PHASES: Mapping[TrialPhase, Callable[[TrialState, GangWindow, Ladder, Terms], TrialState]] = {
    TrialPhase.OBSERVE: _observe,
    TrialPhase.SEARCH: _search,
    TrialPhase.HOLD: _hold,
    TrialPhase.VERIFY: _verify,
}


def wanted(state: TrialState) -> float | None:
    """The cap that should be in force now. None: none."""
    if state.phase in (TrialPhase.SEARCH, TrialPhase.VERIFY) and state.probe is not None:
        return state.probe.cap if state.before is not None and state.reduced is None else None
    return state.held if state.phase is TrialPhase.HOLD and not state.lifted else None


def step(state: TrialState, windows: GangWindow, ladder: Ladder, terms: Terms) -> tuple[TrialState, Decision]:
    """Take in one window of every GPU of a gang, and tell what is to be in force from now on.

    Other terms, another ladder: `resumed` first. Another owner, other GPUs: a new TrialState. Raises ValueError for a
    gang of another size than before.
    """
    seconds = windows[0].seconds if windows[0].is_sound else 0.0
    after = _step(replace(state, seconds=state.seconds + seconds), windows, ladder, terms)
    return after, Decision(cap=wanted(after), message=after.refusal or after.phase)


def _step(state: TrialState, windows: GangWindow, ladder: Ladder, terms: Terms) -> TrialState:
    if state.phase is TrialPhase.REFUSED:
        return TrialState(rest=state.rest) if state.seconds >= state.rest else state
    if is_burst(windows, terms):
        return replace(state, lifted=CALM, before=None, reduced=None)
    if not all(window.settled for window in windows):
        return state
    if any(window.cap != wanted(state) for window in windows):
        return _ignoring(state, Refusal.NOT_OBEYED)
    if not _is_readable(state, windows, terms):
        lifted = CALM if terms.latency == "serving" else state.lifted
        return _ignoring(replace(state, before=None, reduced=None, lifted=lifted), Refusal.UNREADABLE)
    return _used(replace(state, ignored=0), windows, ladder, terms)


def _is_readable(state: TrialState, windows: GangWindow, terms: Terms) -> bool:
    """Whether the windows can tell what they are asked: at work the speed, and where somebody waits, a burst."""
    if terms.latency == "serving" and any(window.engine is None for window in windows):
        return False
    return all(window.is_sound and (window.has_signal or state.phase is TrialPhase.OBSERVE) for window in windows)


def _ignoring(state: TrialState, reason: Refusal) -> TrialState:
    ignored = state.ignored + 1
    return refused(state, reason) if ignored >= IGNORED else replace(state, ignored=ignored)


def _used(state: TrialState, windows: GangWindow, ladder: Ladder, terms: Terms) -> TrialState:
    if state.lifted:
        return replace(state, lifted=state.lifted - 1)
    if state.phase is not TrialPhase.OBSERVE and is_idle(windows):
        return replace(state, before=None, reduced=None, seconds=state.seconds - windows[0].seconds)
    return PHASES[state.phase](state, windows, ladder, terms)
