"""The energy tuner's way from one window to the next: observe, search, hold, verify. Pure; the caller sets the cap.

A window is used only if it is settled and was measured at the cap asked for. Full and reduced windows take turns, so
each step asks for the other one; a switch costs the second that is not settled.
"""

from collections.abc import Callable, Mapping
from statistics import fmean

import msgspec

from gpuwatch.rules import energy_hold as hold
from gpuwatch.rules import energy_search as search
from gpuwatch.rules.energy_estimate import spread
from gpuwatch.rules.energy_state import Decision, Phase, Probe, Refusal, State
from gpuwatch.rules.energy_windows import WEAK, Gang, Ladder, Terms, pair

OBSERVED = 12
"""Settled full windows before anything is tried: a minute of windows of 5 s."""

STEADY = 0.05
"""Full windows that vary more than this (standard deviation over mean) tell nothing."""

REST_SECONDS, LONGEST_REST = 600.0, 4 * 3600.0

IGNORED = 6
"""Settled windows in a row at another cap than asked for: somebody else has the knob."""

evolve = msgspec.structs.replace


def wanted(state: State) -> float | None:
    """The cap that should be in force now. None: none."""
    if state.phase in (Phase.SEARCH, Phase.VERIFY) and state.probe is not None:
        return state.probe.cap if state.before is not None and state.reduced is None else None
    return state.held if state.phase is Phase.HOLD else None


def step(state: State, gang: Gang, ladder: Ladder, terms: Terms) -> tuple[State, Decision]:
    """Take in one window of every GPU of a gang, and tell what is to be in force from now on."""
    state = evolve(state, seconds=state.seconds + gang[0].seconds)
    if state.phase is Phase.REFUSED:
        after = State(rest=state.rest) if state.seconds >= state.rest else state
    elif not all(window.settled for window in gang):
        after = state
    elif any(window.cap != wanted(state) for window in gang):
        after = evolve(state, ignored=state.ignored + 1)
        after = refused(after, Refusal.NOT_OBEYED) if after.ignored >= IGNORED else after
    else:
        after = STEPS[state.phase](evolve(state, ignored=0), gang, ladder, terms)
    return after, Decision(cap=wanted(after), words=after.refusal or after.phase)


def released(state: State) -> State:
    """What becomes of a gang whose cap has to go at once: another owner, a closed gate, a burst."""
    return refused(state, Refusal.RELEASED)


def resumed(state: State) -> State:
    """What a restarted tuner makes of what it had written down: a hold has to be verified, the rest begins again."""
    if state.held is None:
        return State(rest=state.rest)
    return _verify(state)


def refused(state: State, reason: Refusal) -> State:
    """Nothing is done for a while, for longer each time."""
    rest = min(max(REST_SECONDS, 2 * state.rest), LONGEST_REST)
    return State(phase=Phase.REFUSED, refusal=reason, rest=rest)


def _observe(state: State, gang: Gang, ladder: Ladder, terms: Terms) -> State:
    full = (*state.full, gang)
    if len(full) < OBSERVED:
        return evolve(state, full=full)
    reason = unfit(full)
    if reason is not None:
        return refused(state, reason)
    watts = max(fmean(window.watts for window in member) for member in zip(*full, strict=True))
    return _begun(State(rest=state.rest), search.first(ladder, terms, watts))


def unfit(full: tuple[Gang, ...]) -> Refusal | None:
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


def _begun(state: State, cap: float) -> State:
    """A search from its first probe on."""
    return _probe(evolve(state, phase=Phase.SEARCH, left=search.PROBES), cap)


def _probe(state: State, cap: float) -> State:
    return evolve(state, probe=Probe(cap=cap), before=None, reduced=None, left=state.left - 1)


def _measure(state: State, gang: Gang, ladder: Ladder) -> tuple[State, bool]:
    """Put a window in its place; whether that made a pair complete."""
    probe = state.probe
    if probe is None or state.before is None:
        return evolve(state, before=gang), False
    if state.reduced is None:
        return evolve(state, reduced=gang), False
    pairs = (*probe.pairs, pair(state.before, state.reduced, gang, ladder))
    return evolve(state, probe=evolve(probe, pairs=pairs), before=gang, reduced=None, newest=state.reduced), True


def _search(state: State, gang: Gang, ladder: Ladder, terms: Terms) -> State:
    state, complete = _measure(state, gang, ladder)
    probe = state.probe
    if not complete or probe is None:
        return state
    best = search.best(state.probes)
    good = search.judge(probe.pairs, terms, 0.0 if best is None else search.saved(best))
    if good is None:
        return state
    return _next(evolve(state, probes=(*state.probes, search.finished(probe, good=good)), before=gang), ladder, terms)


def _next(state: State, ladder: Ladder, terms: Terms) -> State:
    """Another probe if one is worth it and left, else the best of what is known: held if it is what was seen last."""
    cap = search.following(state.probes, ladder, terms) if state.left > 0 else None
    if cap is not None:
        return evolve(_probe(state, cap), phase=Phase.SEARCH, before=state.before)
    best = search.best(state.probes)
    if best is None:
        told = any(each.disagreed for each in state.probes)
        return refused(state, Refusal.DISAGREE if told else Refusal.NO_GAIN)
    if best is state.probes[-1]:
        watched = () if state.newest is None else (state.newest,)
        return State(phase=Phase.HOLD, held=best.cap, probes=state.probes, watched=watched, level=hold.level(watched))
    return _verify(evolve(state, held=best.cap))


def _held(state: State, gang: Gang, ladder: Ladder, terms: Terms) -> State:
    if hold.is_idle(gang):
        return evolve(state, seconds=state.seconds - gang[0].seconds)
    if state.level and hold.is_odd(state.level, gang):
        odd = state.odd + 1
    else:
        odd, state = 0, _leveled(state, gang)
    if odd >= hold.ODD:
        return _verify(state)
    if state.seconds >= hold.HOLD_SECONDS:
        return _verify(evolve(state, left=state.left + 1))
    return evolve(state, odd=odd)


def _leveled(state: State, gang: Gang) -> State:
    """Learn how the work looks as long as too few windows tell."""
    if len(state.watched) >= hold.LEVEL:
        return state
    watched = (*state.watched, gang)
    return evolve(state, watched=watched, level=hold.level(watched))


def _verify(state: State) -> State:
    """One block at the held cap."""
    held = None if state.held is None else Probe(cap=state.held)
    return evolve(state, phase=Phase.VERIFY, probe=held, before=None, reduced=None)


def _verified(state: State, gang: Gang, ladder: Ladder, terms: Terms) -> State:
    state, complete = _measure(state, gang, ladder)
    if not complete or state.probe is None:
        return state
    cap, block = state.probe.cap, state.probe.pairs
    if len(block) > 1 and search.is_hopeless(block, terms):
        bad = search.finished(state.probe, good=False)
        return _next(State(probes=(bad,), left=search.PROBES, rest=state.rest, before=gang), ladder, terms)
    if len(block) < hold.BLOCK:
        return state
    known = next((each.pairs for each in state.probes if each.cap == cap), ())
    if known and not hold.is_same(block, known):
        known, state = (), evolve(state, probes=(), left=search.PROBES)
    probe = Probe(cap=cap, pairs=(*known, *block)[-hold.KEPT :], good=True)
    state = evolve(state, probes=(*(each for each in state.probes if each.cap != cap), probe), before=gang)
    if hold.keeps(block, probe.pairs, terms):
        return _next(evolve(state, failures=0), ladder, terms)
    return _failed(evolve(state, failures=state.failures + 1), cap, ladder, terms)


def _failed(state: State, cap: float, ladder: Ladder, terms: Terms) -> State:
    """Once: look again. Twice: one step up, the lower cap is bad. Then: enough."""
    if state.failures == 1:
        return _verify(state)
    above = hold.raised(cap, ladder, terms)
    if state.failures > 2 or above is None:
        return refused(state, Refusal.FAILED)
    probes = tuple(each if each.cap != cap else evolve(each, good=False) for each in state.probes)
    return _verify(evolve(state, probes=probes, held=above))


STEPS: Mapping[Phase, Callable[[State, Gang, Ladder, Terms], State]] = {
    Phase.OBSERVE: _observe,
    Phase.SEARCH: _search,
    Phase.HOLD: _held,
    Phase.VERIFY: _verified,
}
