"""What becomes of a search that was interrupted: by a closed gate, a restart, other terms or another ladder; and
what is known of work that ended and comes back.
"""

import math

from gpuwatch.tuning.energy.estimate import slowest
from gpuwatch.tuning.energy.model import Ladder, Probe, Refusal, Terms, TrialPhase, TrialState, WindowPair
from gpuwatch.tuning.energy.search import PROBES, safe
from gpuwatch.tuning.energy.tuner import LONGEST_REST, MOST_FAILURES, REST_SECONDS, verification


def released(state: TrialState) -> TrialState:
    """The state of a gang whose cap has to go at once: a gate closed. Work of another owner gets a new TrialState.

    It may be called as long as the gate is closed: the rest begins when it opens, and does not grow.
    """
    return TrialState(phase=TrialPhase.REFUSED, refusal=Refusal.RELEASED, rest=max(REST_SECONDS, _rest(state)))


def resumed(state: TrialState, ladder: Ladder, terms: Terms, members: int = 1) -> TrialState:
    """The state to continue with, from one of before a restart of the tuner, or before its ladder or its terms changed.

    A held cap is verified before it is held again, if it may be set now, and its pairs of `members` GPUs keep the
    present bound. Otherwise all begins again.
    """
    probes = tuple(
        probe
        for probe in state.probes
        if probe.cap in ladder.caps
        and len(probe.pairs) > 1
        and all(_can_be(pair, members) and len(pair.progress) == len(probe.pairs[0].progress) for pair in probe.pairs)
        and all(len(pair.served) == len(terms.slo) for pair in probe.pairs)
    )
    held = next((probe for probe in probes if probe.good and probe.cap == state.held), None)
    if held is None or not _keeps(held, terms):
        return TrialState(rest=_rest(state))
    left, failures = min(max(state.left, 0), PROBES), min(max(state.failures, 0), MOST_FAILURES)
    return verification(
        TrialState(
            held=held.cap,
            probes=probes,
            left=left,
            holds=state.holds,
            failures=failures,
            rest=_rest(state),
            signal="slo" if terms.slo else "progress" if held.pairs[0].progress else "counters",
            unfit=state.unfit,
            known=state.known,
        )
    )


def known_cap(state: TrialState, ladder: Ladder) -> float | None:
    """The cap to begin with when such work comes back. None: none is held.

    A held cap that is at most the safe distance above the known one is not returned in its place: with each return
    the distance would grow.
    """
    if state.phase is not TrialPhase.HOLD or state.held is None:
        return None
    return state.held if state.known is None or state.held > safe(state.known, ladder) else state.known


def _keeps(probe: Probe, terms: Terms) -> bool:
    if terms.slo:
        return True  # late requests under an earlier SLO show nothing about this one: the verification does
    speed = slowest(probe.pairs)
    return speed is not None and speed.ratio >= 1 - terms.slowdown


def _can_be(pair: WindowPair, members: int) -> bool:
    numbers = [each for each in (*pair.speed, *pair.progress, pair.energy) if each is not None]
    counts = [number for each in pair.served for number in each]
    return len(pair.speed) == 2 * members and all(map(math.isfinite, (*numbers, *counts)))


def _rest(state: TrialState) -> float:
    return state.rest if 0 <= state.rest <= LONGEST_REST else 0.0
