"""The energy tuner's way from one window to the next: observe, search, hold, verify. Pure; the caller sets the cap.

A window is used only if it is settled, was measured at the cap asked for and can be. Full and reduced windows take
turns, so each step asks for the other one; a switch costs the second that is not settled.
"""

from collections.abc import Callable, Mapping

import msgspec

from gpuwatch.tuning.energy import hold, phases
from gpuwatch.tuning.energy.state import Decision, Phase, Refusal, State
from gpuwatch.tuning.energy.windows import Gang, Ladder, Terms

IGNORED = 6
"""Settled windows in a row of no use: somebody else has the knob, or the counters are gone."""

evolve = msgspec.structs.replace

PHASES: Mapping[Phase, Callable[[State, Gang, Ladder, Terms], State]] = {
    Phase.OBSERVE: phases.observe,
    Phase.SEARCH: phases.search,
    Phase.HOLD: phases.hold,
    Phase.VERIFY: phases.verify,
}


def wanted(state: State) -> float | None:
    """The cap that should be in force now. None: none."""
    if state.phase in (Phase.SEARCH, Phase.VERIFY) and state.probe is not None:
        return state.probe.cap if state.before is not None and state.reduced is None else None
    return state.held if state.phase is Phase.HOLD and not state.lifted else None


def step(state: State, gang: Gang, ladder: Ladder, terms: Terms) -> tuple[State, Decision]:
    """Take in one window of every GPU of a gang, and tell what is to be in force from now on.

    Other terms, another ladder: `resumed` first. Another owner, other GPUs: a new State. Raises ValueError for a gang
    of another size than before.
    """
    seconds = gang[0].seconds if gang[0].is_sound else 0.0
    after = _step(evolve(state, seconds=state.seconds + seconds), gang, ladder, terms)
    return after, Decision(cap=wanted(after), words=after.refusal or after.phase)


def _step(state: State, gang: Gang, ladder: Ladder, terms: Terms) -> State:
    if state.phase is Phase.REFUSED:
        return State(rest=state.rest) if state.seconds >= state.rest else state
    if hold.is_burst(gang, terms):
        return evolve(state, lifted=hold.CALM, before=None, reduced=None)
    if not all(window.settled for window in gang):
        return state
    if any(window.cap != wanted(state) for window in gang):
        return _ignoring(state, Refusal.NOT_OBEYED)
    if not _is_readable(state, gang, terms):
        lifted = hold.CALM if terms.latency == "serving" else state.lifted
        return _ignoring(evolve(state, before=None, reduced=None, lifted=lifted), Refusal.UNREADABLE)
    return _used(evolve(state, ignored=0), gang, ladder, terms)


def _is_readable(state: State, gang: Gang, terms: Terms) -> bool:
    """Whether the windows can tell what they are asked: at work the speed, and where somebody waits, a burst."""
    if terms.latency == "serving" and any(window.engine is None for window in gang):
        return False
    return all(window.is_sound and (window.has_signal or state.phase is Phase.OBSERVE) for window in gang)


def _ignoring(state: State, reason: Refusal) -> State:
    ignored = state.ignored + 1
    return phases.refused(state, reason) if ignored >= IGNORED else evolve(state, ignored=ignored)


def _used(state: State, gang: Gang, ladder: Ladder, terms: Terms) -> State:
    if state.lifted:
        return evolve(state, lifted=state.lifted - 1)
    if state.phase is not Phase.OBSERVE and hold.is_idle(gang):
        return evolve(state, before=None, reduced=None, seconds=state.seconds - gang[0].seconds)
    return PHASES[state.phase](state, gang, ladder, terms)
