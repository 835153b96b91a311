"""What becomes of the energy tuner's state when a gate closes, and what a state that was written down is still worth.

What does not fit is forgotten, and without a held cap there is none: in doubt the GPU runs at its own speed.
"""

import math

from gpuwatch.tuning.energy.estimate import slowest
from gpuwatch.tuning.energy.phases import LONGEST_REST, REST_SECONDS, verification
from gpuwatch.tuning.energy.search import PROBES
from gpuwatch.tuning.energy.state import Phase, Probe, Refusal, State
from gpuwatch.tuning.energy.windows import Ladder, Pair, Terms


def released(state: State) -> State:
    """What becomes of a gang whose cap has to go at once: a gate closed. Work of another owner gets a new State.

    It may be called as long as the gate is closed: the rest begins when it opens, and gets no longer.
    """
    return State(phase=Phase.REFUSED, refusal=Refusal.RELEASED, rest=max(REST_SECONDS, _rest(state)))


def resumed(state: State, ladder: Ladder, terms: Terms, members: int = 1) -> State:
    """What a tuner makes of a state written down before it restarted, or before its ladder or its terms changed.

    A held cap is verified before it is believed, if it may be set now, and what `members` GPUs told of it keeps the
    promise of now. Otherwise all begins again.
    """
    probes = tuple(probe for probe in state.probes if probe.cap in ladder.caps and _is_sound(probe, members))
    held = next((probe for probe in probes if probe.good and probe.cap == state.held), None)
    if held is None or not _keeps(held, terms):
        return State(rest=_rest(state))
    left, failures = min(max(state.left, 0), PROBES), min(max(state.failures, 0), 2)
    kept = State(held=held.cap, probes=probes, left=left, holds=state.holds, failures=failures, rest=_rest(state))
    return verification(kept)


def _keeps(probe: Probe, terms: Terms) -> bool:
    speed = slowest(probe.pairs)
    return speed is not None and speed.ratio >= 1 - terms.slowdown


def _is_sound(probe: Probe, members: int) -> bool:
    return len(probe.pairs) > 1 and all(_can_be(pair, members) for pair in probe.pairs)


def _can_be(pair: Pair, members: int) -> bool:
    numbers = [each for each in (*pair.speed, pair.energy) if each is not None]
    return len(pair.speed) == 2 * members and all(map(math.isfinite, numbers))


def _rest(state: State) -> float:
    return state.rest if 0 <= state.rest <= LONGEST_REST else 0.0
