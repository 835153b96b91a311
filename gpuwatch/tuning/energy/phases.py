"""What one window does to the state of a gang in each phase."""

from statistics import fmean

import msgspec

from gpuwatch.tuning.energy import hold as holding
from gpuwatch.tuning.energy import search as searching
from gpuwatch.tuning.energy.estimate import spread
from gpuwatch.tuning.energy.state import Phase, Probe, Refusal, State
from gpuwatch.tuning.energy.windows import WEAK, Gang, Ladder, Terms, pair

OBSERVED = 12
"""Settled full windows before anything is tried: a minute of windows of 5 s."""

STEADY = 0.05
"""Full windows that vary more than this (standard deviation over mean) tell nothing."""

REST_SECONDS, LONGEST_REST = 600.0, 4 * 3600.0

evolve = msgspec.structs.replace


def refused(state: State, reason: Refusal) -> State:
    """Nothing is done for a while, for longer each time."""
    rest = min(max(REST_SECONDS, 2 * state.rest), LONGEST_REST)
    return State(phase=Phase.REFUSED, refusal=reason, rest=rest)


def observe(state: State, gang: Gang, ladder: Ladder, terms: Terms) -> State:
    """At full speed: whether there is a signal, and a steady one."""
    full = (*state.full, gang)
    if len(full) < OBSERVED:
        return evolve(state, full=full)
    reason = unfit(full) if ladder.caps else Refusal.NO_STEP
    if reason is not None:
        return refused(state, reason)
    watts = max(fmean(window.watts for window in member) for member in zip(*full, strict=True))
    begun = State(phase=Phase.SEARCH, left=searching.PROBES, rest=state.rest)
    return _probe(begun, searching.first(searching.reached(ladder, full), terms, watts))


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


def search(state: State, gang: Gang, ladder: Ladder, terms: Terms) -> State:
    """One probe after the other, until a cap is held or none is worth it."""
    state, complete = _measure(state, gang, ladder)
    probe = state.probe
    if not complete or probe is None:
        return state
    best = searching.best(state.probes)
    good = searching.judge(probe.pairs, terms, 0.0 if best is None else searching.saved(best))
    if good is None:
        return state
    easy = good and len(probe.pairs) <= searching.LOOKS[1]
    left = max(state.left, 1) if easy else state.left
    probes = (*state.probes, searching.finished(probe, good=good))
    return _next(evolve(state, probes=probes, left=left, before=gang), ladder, terms)


def _next(state: State, ladder: Ladder, terms: Terms) -> State:
    """Another probe if one is worth it and left, else the best of what is known: held if it is what was seen last."""
    below = ladder if state.before is None else searching.reached(ladder, (state.before,))
    cap = searching.following(state.probes, below, terms) if state.left > 0 else None
    if cap is not None:
        return evolve(_probe(state, cap), phase=Phase.SEARCH, before=state.before)
    best = searching.best(state.probes)
    if best is None:
        told = any(each.disagreed for each in state.probes)
        return refused(state, Refusal.DISAGREE if told else Refusal.NO_GAIN)
    if best is state.probes[-1]:
        watched = () if state.newest is None else (state.newest,)
        return State(
            phase=Phase.HOLD,
            held=best.cap,
            probes=state.probes,
            watched=watched,
            level=holding.level(watched),
            holds=state.holds,
        )
    return verification(evolve(state, held=best.cap))


def hold(state: State, gang: Gang, ladder: Ladder, terms: Terms) -> State:
    """The cap stays, and the work is watched."""
    if state.level and holding.is_odd(state.level, gang):
        odd = state.odd + 1
    else:
        odd, state = 0, _leveled(state, gang)
    if odd >= holding.ODD:
        return verification(state)
    if state.seconds >= holding.HOLD_SECONDS:
        return verification(_forgetful(evolve(state, holds=state.holds + 1, left=1), terms))
    return evolve(state, odd=odd)


def _forgetful(state: State, terms: Terms) -> State:
    """Where half of the bound is not used, try lower caps again after 1, 2, 4 and so on holds: work changes."""
    kept = tuple(probe for probe in state.probes if probe.cap == state.held)
    backed_off = state.holds & (state.holds - 1)
    return state if backed_off or not holding.has_room(kept, terms) else evolve(state, probes=kept)


def _leveled(state: State, gang: Gang) -> State:
    """Learn how the work looks as long as too few windows tell."""
    if len(state.watched) >= holding.LEVEL:
        return state
    watched = (*state.watched, gang)
    return evolve(state, watched=watched, level=holding.level(watched))


def verification(state: State) -> State:
    """One block at the held cap."""
    held = None if state.held is None else Probe(cap=state.held)
    return evolve(state, phase=Phase.VERIFY, probe=held, before=None, reduced=None)


def verify(state: State, gang: Gang, ladder: Ladder, terms: Terms) -> State:
    """A block at the held cap: keep it, raise it, search again or give up."""
    state, complete = _measure(state, gang, ladder)
    if not complete or state.probe is None:
        return state
    cap, block = state.probe.cap, state.probe.pairs
    if len(block) > 1 and searching.is_hopeless(block, terms):
        bad = searching.finished(state.probe, good=False)
        return _next(State(probes=(bad,), left=searching.PROBES, rest=state.rest, before=gang), ladder, terms)
    if len(block) < holding.BLOCK:
        return state
    known = next((each.pairs for each in state.probes if each.cap == cap), ())
    if known and not holding.is_same(block, known):
        known, state = (), evolve(state, probes=(), left=searching.PROBES)
    probe = Probe(cap=cap, pairs=(*known, *block)[-holding.KEPT :], good=True)
    state = evolve(state, probes=(*(each for each in state.probes if each.cap != cap), probe), before=gang)
    if holding.keeps(block, probe.pairs, terms):
        return _next(evolve(state, failures=0), ladder, terms)
    return _failed(evolve(state, failures=state.failures + 1), cap, ladder, terms)


def _failed(state: State, cap: float, ladder: Ladder, terms: Terms) -> State:
    """Once: look again. Twice: one step up, the lower cap is bad. Then: enough."""
    if state.failures == 1:
        return verification(state)
    above = holding.raised(cap, ladder, terms)
    if state.failures > 2 or above is None:
        return refused(state, Refusal.FAILED)
    probes = tuple(each if each.cap != cap else evolve(each, good=False) for each in state.probes)
    return verification(evolve(state, probes=probes, held=above))
