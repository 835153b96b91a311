"""A part of a day under the whole loop keeps what docs/tuner-evaluation.md promises, with other seeds.

A short part on four GPUs holds every case in `make test`.
"""

import pytest

from tests.bench.tuner.day import under
from tests.bench.tuner.day_account import BURST, GATE, OWNER, Report

SHORT, LONG = (4, 0.8, 33, 10.0), (8, 1.5, 5, 4.0)
"""GPUs, hours, the seed, and how many times as fast as in the day of the evaluation pods come and go."""


@pytest.fixture(scope="module", params=[SHORT, pytest.param(LONG, marks=pytest.mark.slow)], ids=["short", "long"])
def day(request: pytest.FixtureRequest) -> Report:
    return under(*request.param)


def test_s7_an_owner_that_goes_takes_its_cap_along_within_two_seconds(day: Report) -> None:
    assert len(day.span(OWNER)) > 3
    assert max(day.span(OWNER)) <= 2.0


def test_s8_a_closed_gate_lifts_caps_within_seconds(day: Report) -> None:
    assert day.span(GATE)
    assert max(day.span(GATE)) <= 5.0


def test_s10_no_gpu_has_more_than_twelve_actions_in_an_hour(day: Report) -> None:
    assert 0 < day.actions_most <= 12


def test_pods_that_refused_or_did_not_answer_are_never_touched(day: Report) -> None:
    assert {kind.name for kind in day.kinds} & {"silent", "opted out"}
    assert day.untouchable == 0.0


def test_bursts_are_served_at_full_clock_within_two_samples(day: Report) -> None:
    assert day.span(BURST)
    assert max(day.span(BURST)) <= 2.5


def test_work_is_slowed_less_than_promised_and_energy_falls(day: Report) -> None:
    for kind in day.kinds:
        assert kind.slowdown < 0.05
        if kind.name in ("training", "serving"):
            assert kind.over < 0.03
    saved = {kind.name: kind.saved for kind in day.kinds}
    assert saved["training"] > 0.02
    assert day.saved_of_all > 0.01


def test_the_tuners_own_count_of_joules_is_not_boastful(day: Report) -> None:
    assert 0.3 < day.claimed < 1.1
