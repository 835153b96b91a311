"""The energy tuner, from one window to the next: observe, search, hold, verify. Pure; the caller sets the cap."""

import zlib
from collections.abc import Callable, Mapping
from statistics import fmean

from msgspec.structs import replace

from gpuwatch.tuning.energy.hold import (
    BLOCK,
    CALM,
    HOLD_SECONDS,
    KEPT,
    LEVEL,
    ODD,
    has_room,
    idle_at,
    idle_share,
    is_burst,
    is_idle,
    is_odd,
    is_same_work,
    is_uncovered,
    keeps,
    level,
    raised,
    wait_is_gone,
)
from gpuwatch.tuning.energy.model import (
    LENGTHS,
    WINDOW_SECONDS,
    GangWindow,
    Ladder,
    Probe,
    Refusal,
    Signal,
    Terms,
    TrialPhase,
    TrialState,
    pair,
)
from gpuwatch.tuning.energy.search import (
    PROBES,
    WAITING,
    best,
    finished,
    first,
    following,
    hides_loader,
    is_far_over,
    judge,
    reached,
    saved,
)
from gpuwatch.tuning.energy.signals import refused_because, unfit
from gpuwatch.tuning.energy.slo import holds, together

MOST_FAILURES = 2
"""Verifications in a row that may fail."""

OBSERVED = 12
"""Settled full windows before anything is tried: a minute of windows of 5 s."""

MOST_BREAKS = 2
"""Times that an SLO may break under one cap without holding in between."""

NO_REQUESTS = 24
"""After so many windows of a GPU at work, two minutes, without a counted request its page has stopped."""

REST_SECONDS, LONGEST_REST = 600.0, 4 * 3600.0


def refused(state: TrialState, reason: Refusal) -> TrialState:
    """Do nothing for a while, for longer each time."""
    rest = min(max(REST_SECONDS, 2 * state.rest), LONGEST_REST)
    return TrialState(phase=TrialPhase.REFUSED, refusal=reason, rest=rest)


def _observe(state: TrialState, windows: GangWindow, ladder: Ladder, terms: Terms) -> TrialState:
    """At full speed: whether there is a signal, and a steady one."""
    if terms.slo:
        return _observe_slo(state, windows, ladder, terms)
    full = (*state.full, windows)
    if len(full) < OBSERVED:
        return replace(state, full=full)
    uncounted = refused_because(full, terms)
    signal: Signal = "progress" if full[0][0].progress and not uncounted else "counters"
    reason = None if ladder.caps else Refusal.NO_STEP
    if signal == "counters":
        reason = reason or (Refusal.NO_PROGRESS if terms.each else unfit(full))
    if reason is not None:
        return refused(state, reason)
    watts = max(fmean(window.watts for window in member) for member in zip(*full, strict=True))
    begun = replace(_begun(state, signal), unfit=uncounted)
    return _probe(begun, first(reached(ladder, full), terms, watts, begun.known))


def _observe_slo(state: TrialState, windows: GangWindow, ladder: Ladder, terms: Terms) -> TrialState:
    """With an SLO: until enough requests came and it holds at full speed; while it does not, a cap is not the cause."""
    full, served = (*state.full, windows)[-OBSERVED:], together((state.served, windows[0].served))
    if not ladder.caps:
        return refused(state, Refusal.NO_STEP)
    held = holds(terms.slo, served)
    if held is False:
        return replace(state, full=(), served=())
    if held is None or len(full) < OBSERVED:
        return replace(state, full=full, served=served)
    watts = max(fmean(window.watts for window in member) for member in zip(*full, strict=True))
    begun = _begun(state, "slo")
    return _probe(begun, first(reached(ladder, full), terms, watts, begun.known))


def _begun(state: TrialState, signal: Signal) -> TrialState:
    return TrialState(phase=TrialPhase.SEARCH, left=PROBES, rest=state.rest, signal=signal, known=state.known)


def _probe(state: TrialState, cap: float) -> TrialState:
    return replace(state, probe=Probe(cap=cap), before=None, reduced=None, left=state.left - 1, served=(), breaks=0)


def _measure(state: TrialState, windows: GangWindow, ladder: Ladder) -> tuple[TrialState, bool]:
    """Store a window as full or reduced; returns whether that completed a pair."""
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
    waited = idle_share([each for one in (*state.probes, probe) for each in one.pairs], 0)
    if len(probe.pairs) > 1 and waited >= WAITING and wait_is_gone(probe.pairs, waited, 0, terms):
        return _search_again(state, finished(probe, terms, good=False), windows, ladder, terms)
    found = best(state.probes)
    good = judge(probe.pairs, terms, 0.0 if found is None else saved(found))
    if good is None:
        return state
    probes = (*state.probes, finished(probe, terms, good=good))
    if state.known is not None and not state.probes:  # the first one: it shows whether the work is as before
        is_as_before = good and not has_room(probes, terms)
        state = replace(state, left=0) if is_as_before else replace(state, known=None)
    return _next(replace(state, probes=probes, before=windows), ladder, terms)


def _next(state: TrialState, ladder: Ladder, terms: Terms) -> TrialState:
    """Another probe if one is left and worth it, else the best one so far: held if it is the newest, else verified."""
    below = ladder if state.before is None else reached(ladder, (state.before,))
    cap = following(state.probes, below, terms) if state.left > 0 else None
    if cap is not None:
        return replace(_probe(state, cap), phase=TrialPhase.SEARCH, before=state.before)
    found = best(state.probes)
    if found is None:
        disagreed = any(each.disagreed for each in state.probes)
        return refused(state, Refusal.DISAGREE if disagreed else Refusal.NO_GAIN)
    if found is state.probes[-1]:
        watched = () if state.newest is None else (state.newest,)
        return TrialState(
            phase=TrialPhase.HOLD,
            held=found.cap,
            probes=state.probes,
            watched=watched,
            level=level(watched),
            holds=state.holds,
            failures=state.failures,
            signal=state.signal,
            unfit=state.unfit,
            known=state.known,
        )
    return verification(replace(state, held=found.cap))


def _hold(state: TrialState, windows: GangWindow, ladder: Ladder, terms: Terms) -> TrialState:
    """The cap stays, and each window is compared with the level of the work."""
    if terms.slo:
        odd, most = 0 if any(each and each.requests for each in windows[0].served) else state.odd + 1, NO_REQUESTS
    elif state.level and is_odd(state.level, windows, idle_at(state.probes, state.held), terms):
        odd, most = state.odd + 1, ODD
    else:
        odd, most = 0, ODD
        if len(state.watched) < LEVEL:  # too few windows for a level
            watched = (*state.watched, windows)
            state = replace(state, watched=watched, level=level(watched))
    if odd >= most:
        return TrialState(rest=state.rest) if terms.slo else verification(state)
    if state.seconds >= HOLD_SECONDS:
        return verification(_retry_lower(replace(state, holds=state.holds + 1, left=1, known=None), terms))
    return replace(state, odd=odd)


def _retry_lower(state: TrialState, terms: Terms) -> TrialState:
    """Where half of the bound is not used, try lower caps again after 1, 2, 4 and so on holds: work changes."""
    kept = tuple(probe for probe in state.probes if probe.cap == state.held)
    backed_off = state.holds & (state.holds - 1)
    return state if backed_off or not has_room(kept, terms) else replace(state, probes=kept)


def verification(state: TrialState) -> TrialState:
    """Begin one block at the held cap."""
    held = None if state.held is None else Probe(cap=state.held)
    return replace(state, phase=TrialPhase.VERIFY, probe=held, before=None, reduced=None)


def _verify(state: TrialState, windows: GangWindow, ladder: Ladder, terms: Terms) -> TrialState:
    """A block at the held cap: keep it, raise it, search again or give up."""
    state, complete = _measure(state, windows, ladder)
    if not complete or state.probe is None:
        return state
    cap, block = state.probe.cap, state.probe.pairs
    is_over = len(block) > 1 and (is_far_over(block, terms) or is_uncovered(block, idle_at(state.probes, cap), terms))
    if not is_over and len(block) < BLOCK:
        return state
    known = next((each.pairs for each in state.probes if each.cap == cap), ())
    is_same = not known or bool(terms.slo) or is_same_work(block, known)
    if is_over or hides_loader(block, terms):
        return _search_again(state, finished(state.probe, terms, good=False), windows, ladder, terms)
    if not is_same:
        known, state = (), replace(state, probes=(), left=PROBES)
    probe = Probe(cap=cap, pairs=(*known, *block)[-KEPT:], good=True)
    state = replace(state, probes=(*(each for each in state.probes if each.cap != cap), probe), before=windows)
    if keeps(block, probe.pairs, terms):
        return _next(replace(state, failures=0), ladder, terms)
    return _failed(replace(state, failures=state.failures + 1), cap, ladder, terms)


def _search_again(state: TrialState, bad: Probe, windows: GangWindow, ladder: Ladder, terms: Terms) -> TrialState:
    """The work has changed, and the cap is too low for it: search again. Three failures in a row end in a refusal."""
    failures = state.failures + 1
    if failures > MOST_FAILURES:
        return refused(state, Refusal.FAILED)
    begun = TrialState(probes=(bad,), left=PROBES, rest=state.rest, signal=state.signal, unfit=state.unfit)
    return _next(replace(begun, before=windows, failures=failures), ladder, terms)


def _failed(state: TrialState, cap: float, ladder: Ladder, terms: Terms) -> TrialState:
    """First failure: verify again. Second: one step up, the lower cap is bad. Third, or at the top: refuse."""
    if state.failures == 1:
        return verification(state)
    above = raised(cap, ladder, terms)
    if state.failures > MOST_FAILURES or above is None:
        return refused(state, Refusal.FAILED)
    probes = tuple(each if each.cap != cap else replace(each, good=False) for each in state.probes)
    return verification(replace(state, probes=probes, held=above))


IGNORED = 6
"""Settled windows in a row of no use: another process sets the knob, or the counters are gone."""


PHASES: Mapping[TrialPhase, Callable[[TrialState, GangWindow, Ladder, Terms], TrialState]] = {
    TrialPhase.OBSERVE: _observe,
    TrialPhase.SEARCH: _search,
    TrialPhase.HOLD: _hold,
    TrialPhase.VERIFY: _verify,
}


def target_cap(state: TrialState) -> float | None:
    """The cap that should be in force now. None: none."""
    if state.phase in (TrialPhase.SEARCH, TrialPhase.VERIFY) and state.probe is not None:
        return state.probe.cap if state.before is not None and state.reduced is None else None
    return state.held if state.phase is TrialPhase.HOLD and not state.lifted else None


def window_seconds(state: TrialState, seed: str) -> float:
    """How long the next window should be: where windows are compared, drawn from LENGTHS. `seed`: the gang's."""
    if state.phase not in (TrialPhase.SEARCH, TrialPhase.VERIFY) or state.probe is None:
        return WINDOW_SECONDS
    drawn = f"{seed} {state.probe.cap} {len(state.probe.pairs)} {state.before is None} {state.reduced is None}"
    return LENGTHS[zlib.crc32(drawn.encode()) % len(LENGTHS)]


def step(state: TrialState, windows: GangWindow, ladder: Ladder, terms: Terms) -> TrialState:
    """Take in one window of every GPU of a gang; `target_cap` returns what should be in force from now on.

    Other terms, another ladder: call `resumed` first. Another owner, other GPUs: pass a new TrialState. Raises
    ValueError for a gang of another size than before.
    """
    seconds = windows[0].seconds if windows[0].is_sound else 0.0
    state = replace(state, seconds=state.seconds + seconds)
    if state.phase is TrialPhase.REFUSED:
        return TrialState(rest=state.rest) if state.seconds >= state.rest else state
    if is_burst(windows, terms):
        return replace(state, lifted=CALM, before=None, reduced=None)
    if not all(window.settled for window in windows):
        return state
    if any(window.cap != target_cap(state) for window in windows):
        return _ignored(state, Refusal.NOT_OBEYED)
    if not _is_readable(state, windows, terms):
        lifted = CALM if terms.latency == "serving" else state.lifted
        reason = Refusal.NO_SLO if terms.slo and state.phase is TrialPhase.OBSERVE else Refusal.UNREADABLE
        return _ignored(replace(state, before=None, reduced=None, lifted=lifted), reason)
    if state.signal != "progress" and state.phase is not TrialPhase.OBSERVE:
        windows = tuple(replace(window, progress=()) for window in windows)
    return _used(replace(state, ignored=0), windows, ladder, terms)


def _is_readable(state: TrialState, windows: GangWindow, terms: Terms) -> bool:
    """Whether the windows show what is needed: the speed of the work, and a burst where the work is serving."""
    if terms.latency == "serving" and any(window.engine is None for window in windows):
        return False
    if state.signal == "progress" and (not windows[0].progress or None in windows[0].progress):
        return False
    if terms.slo and (len(windows[0].served) != len(terms.slo) or None in windows[0].served):
        return False
    return all(window.is_sound and (window.has_signal or state.phase is TrialPhase.OBSERVE) for window in windows)


def _ignored(state: TrialState, reason: Refusal) -> TrialState:
    ignored = state.ignored + 1
    if ignored < IGNORED:
        return replace(state, ignored=ignored)
    if reason is Refusal.UNREADABLE and state.signal != "counters":
        return TrialState(rest=state.rest)  # its page may be gone: observing finds another signal
    return refused(state, reason)


def _used(state: TrialState, windows: GangWindow, ladder: Ladder, terms: Terms) -> TrialState:
    if terms.slo and state.phase is not TrialPhase.OBSERVE:
        served = together((state.served, windows[0].served))
        trial = state.phase is not TrialPhase.HOLD and windows[0].cap is not None  # its pair will be judged
        held = None if trial else holds(terms.slo, served)
        if held is False:
            return _slo_broken(state, windows, ladder, terms)
        if not trial:
            recovered = held is True and not state.lifted
            state = replace(state, served=() if held else served, breaks=max(0, state.breaks - recovered))
    if state.lifted:
        return replace(state, lifted=state.lifted - 1, served=() if state.lifted == 1 else state.served)
    if state.phase is not TrialPhase.OBSERVE and is_idle(windows):
        return replace(state, before=None, reduced=None, seconds=state.seconds - windows[0].seconds)
    return PHASES[state.phase](state, windows, ladder, terms)


def _slo_broken(state: TrialState, windows: GangWindow, ladder: Ladder, terms: Terms) -> TrialState:
    """The SLO does not hold: full speed at once, for longer each time. A cap under which it breaks again and again is
    bad, also where no pair shows it, as with requests that take longer than a window.
    """
    if state.lifted:  # it does not hold at full speed either: the load is the cause
        return replace(state, served=(), lifted=max(state.lifted, CALM))
    calm = CALM << state.breaks
    if state.breaks < MOST_BREAKS:
        return replace(state, served=(), before=None, reduced=None, lifted=calm, breaks=state.breaks + 1)
    if state.phase is TrialPhase.SEARCH and state.probe is not None:
        probes = (*state.probes, finished(state.probe, terms, good=False))
        after = _next(replace(state, probes=probes), ladder, terms)
    else:
        known = next((each for each in state.probes if each.cap == state.held), Probe(cap=state.held or ladder.top))
        after = _search_again(state, replace(known, good=False), windows, ladder, terms)
    return replace(after, before=None, lifted=calm)
