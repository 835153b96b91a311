"""The curve of a GPU under power limits: its shape, its inverse, and that a few measurements find it again."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuwatch.tuning.power_budget.curve import Curve, Measured, fit, prior

CURVES = st.builds(Curve, draw=st.floats(50.0, 700.0), waits=st.floats(0.2, 1.0), static=st.floats(0.1, 0.6))


@given(CURVES, st.floats(0.2, 0.999))
def test_a_limit_gives_the_speed_it_was_asked_for(curve: Curve, speed: float) -> None:
    assert curve.performance(curve.watts(speed)) == pytest.approx(speed, abs=1e-6)


@given(CURVES, st.floats(0.0, 800.0), st.floats(0.0, 800.0))
def test_a_higher_limit_never_makes_it_slower(curve: Curve, one: float, other: float) -> None:
    assert curve.performance(min(one, other)) <= curve.performance(max(one, other)) <= 1.0


def test_work_that_does_not_wait_for_the_clock_loses_nothing() -> None:
    assert Curve(draw=200.0, waits=0.0).watts(0.99) == 80.0
    assert Curve(draw=200.0, waits=0.0).performance(120.0) == pytest.approx(1.0)


@pytest.mark.parametrize("waits", [0.2, 0.6, 1.0])
@pytest.mark.parametrize("static", [0.25, 0.4])
def test_three_measurements_find_the_curve_between_them(waits: float, static: float) -> None:
    true = Curve(draw=230.0, waits=waits, static=static)
    found = fit([Measured(watts, true.performance(watts)) for watts in (240.0, 180.0, 135.0)], draw=200.0)
    worst = max(abs(found.performance(watts) - true.performance(watts)) for watts in range(130, 250))
    assert worst < 0.04


def test_without_measurements_it_is_the_prior() -> None:
    assert fit([], draw=200.0) == prior(200.0)
    assert prior(200.0).performance(200.0) < 1.0 == prior(200.0).performance(230.0)


def test_a_measurement_above_full_speed_is_noise() -> None:
    assert fit([Measured(240.0, 1.05)], draw=200.0) == fit([Measured(240.0, 1.0)], draw=200.0)
