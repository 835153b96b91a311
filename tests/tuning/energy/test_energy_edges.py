"""The energy tuner's rules at their bounds: noise, levels, rests, and what an earlier tuner wrote down."""

import math

import pytest
from msgspec.structs import replace

from gpuwatch.tuning.energy.hold import CHANGE, LEVEL, QUIET, is_same_work, level, raised, saving_estimate
from gpuwatch.tuning.energy.meter import IDLE_SECONDS, IdleCap
from gpuwatch.tuning.energy.meter import idle_step as rest_step
from gpuwatch.tuning.energy.model import STEADY, Probe, Refusal, Terms, TrialPhase, TrialState, TrialWindow, WindowPair
from gpuwatch.tuning.energy.resumption import resumed
from gpuwatch.tuning.energy.search import resolution
from gpuwatch.tuning.energy.signals import unfit
from gpuwatch.tuning.energy.tuner import step, verification
from tests.tuning.energy.tuner_bench import LADDER, TERMS
from tests.tuning.energy.tuning_samples import sample

WINDOW = TrialWindow(cap=None, seconds=5.0, dram=0.5, pipe=0.3, engine=1.0, joules=1500.0)
CAP = LADDER.caps[20]
PAIRS = tuple(
    WindowPair(speed=(math.log(0.97) + noise,) * 2, energy=math.log(0.85)) for noise in (-1e-3, 0.0, 1e-3, 0.0)
)


@pytest.mark.parametrize(("windows", "allowed"), [(LEVEL - 1, CHANGE), (LEVEL, QUIET)])
def test_what_is_usual_is_narrow_once_it_is_known(windows: int, allowed: float) -> None:
    assert {margin for _, margin in level([(WINDOW,)] * windows)} == {allowed}


def test_a_cap_is_raised_by_a_step_that_matters_and_never_to_the_top() -> None:
    above = raised(CAP, LADDER, TERMS)
    assert above is not None
    assert CAP < above < LADDER.top
    near = LADDER.top - resolution(LADDER, TERMS) / 2
    assert LADDER.at_least(near + resolution(LADDER, TERMS) / 2) == LADDER.top
    assert raised(near, LADDER, TERMS) is None


def test_a_verification_is_of_the_cap_that_is_held() -> None:
    verified = verification(TrialState(phase=TrialPhase.HOLD, held=CAP, before=(WINDOW,)))
    assert (verified.phase, verified.probe, verified.before) == (TrialPhase.VERIFY, Probe(cap=CAP), None)
    assert verification(TrialState(phase=TrialPhase.HOLD)).probe is None


def test_one_pair_is_no_evidence_of_the_same_work() -> None:
    assert is_same_work(PAIRS, PAIRS)
    assert not is_same_work(PAIRS, PAIRS[:1])


def test_energy_alone_is_no_estimate_of_a_saving() -> None:
    """A signal that went away: what was spent is known, what was done with it is not."""
    pairs = tuple(replace(each, speed=(None, None)) for each in PAIRS)
    assert saving_estimate(TrialState(held=CAP, probes=(Probe(cap=CAP, pairs=pairs),))) is None
    assert saving_estimate(TrialState(held=CAP, probes=(Probe(cap=CAP, pairs=PAIRS),))) is not None


@pytest.mark.parametrize(("swing", "refusal"), [(0.9 * STEADY, None), (1.5 * STEADY, Refusal.UNSTEADY)])
def test_work_that_swings_by_more_than_one_part_in_twenty_is_unsteady(swing: float, refusal: Refusal | None) -> None:
    assert STEADY == 0.05
    values = [0.5 * (1 + sign * swing) for sign in (-1, 1) * 6]
    assert unfit(tuple((replace(WINDOW, dram=value, pipe=0.01),) for value in values)) is refusal


HELD = TrialState(
    phase=TrialPhase.HOLD, held=CAP, probes=(Probe(cap=CAP, pairs=PAIRS, good=True),), failures=7, left=99
)


def test_of_what_was_written_down_only_what_can_be_is_trusted() -> None:
    back = resumed(HELD, LADDER, TERMS)
    assert (back.held, back.phase, back.failures, back.left) == (CAP, TrialPhase.VERIFY, 2, 6)
    odd = replace(PAIRS[0], energy=math.nan)
    assert resumed(replace(HELD, probes=(Probe(cap=CAP, pairs=(*PAIRS, odd), good=True),)), LADDER, TERMS).held is None


@pytest.mark.parametrize(("rest", "phase"), [(5.0, TrialPhase.OBSERVE), (5.1, TrialPhase.REFUSED)])
def test_a_rest_ends_when_its_seconds_are_over(rest: float, phase: TrialPhase) -> None:
    refused = TrialState(phase=TrialPhase.REFUSED, refusal=Refusal.NO_GAIN, rest=rest)
    after = step(refused, (WINDOW,), LADDER, Terms())
    assert after.phase is phase
    assert (after.refusal or after.phase) == (Refusal.NO_GAIN if phase is TrialPhase.REFUSED else TrialPhase.OBSERVE)


def test_what_a_rest_saves_is_reported_against_its_last_minute_awake() -> None:
    rest, joules = IdleCap(), 0.0
    for at in range(int(IDLE_SECONDS) + 61):
        watts = 200.0 if at <= IDLE_SECONDS - 60 else 120.0 if at <= IDLE_SECONDS else 90.0
        joules += watts
        gpu = sample(0, work={"graphics": 0.0, "dram": 0.0}, energy=joules)
        rest, _ = rest_step(rest, (gpu,), float(at))
    assert rest.joules_saved == pytest.approx(60 * 30.0, rel=0.02)
