"""What is given back: only what is ours and in force, and never more than there was before."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuwatch.tuning.model.setting import TOLERANCE_WATTS, PowerLimits, Setting, expiry_reason, power_target

WATTS = st.floats(50, 1000, allow_nan=False)


def setting(original: float | None = 700.0, applied: tuple[float, ...] = (500.0,)) -> Setting:
    return Setting(
        uuid="GPU-0", knob="power_limit", original=original, applied=applied, at=0.0, boot_id="b1", driver="580"
    )


@pytest.mark.parametrize(
    ("configured", "most", "target"),
    [
        (500.0, 700.0, 700.0),  # as we left it
        (700.0, 700.0, None),  # we died before the driver was asked
        (600.0, 700.0, None),  # somebody else set it since
        (499.6, 700.0, 700.0),  # the driver rounds
        (500.0, 650.0, 650.0),  # the board no longer allows what it was
    ],
)
def test_what_a_power_limit_goes_back_to(configured: float, most: float, target: float | None) -> None:
    assert power_target(setting(), PowerLimits(configured, most)) == target


def test_a_limit_within_what_the_driver_rounds_of_the_original_is_restored_already() -> None:
    assert power_target(setting(applied=(699.5, 500.0)), PowerLimits(699.4, 700.0)) is None


def test_a_setting_that_was_cut_off_while_changed_is_known_by_both_its_values() -> None:
    twice = setting(applied=(400.0, 500.0))
    assert {power_target(twice, PowerLimits(now, 700.0)) for now in (400.0, 500.0)} == {700.0}


@given(WATTS, WATTS, WATTS)
def test_nothing_is_ever_set_above_the_original(original: float, applied: float, most: float) -> None:
    found = power_target(setting(original, (applied,)), PowerLimits(applied, most))
    assert found is None or found <= original


@given(WATTS, WATTS)
def test_what_is_not_ours_is_never_touched(applied: float, now: float) -> None:
    found = power_target(setting(1000.0, (applied,)), PowerLimits(now, 1000.0))
    assert found is None or abs(applied - now) <= TOLERANCE_WATTS


@pytest.mark.parametrize(
    ("boot_id", "driver", "gone"),
    [
        ("b1", "580", False),
        ("b2", "580", True),
        ("b1", "590", True),
        (None, "580", False),
        ("b1", None, False),
        (None, None, False),
    ],
)
def test_a_boot_and_a_driver_end_every_setting_and_not_knowing_ends_none(
    boot_id: str | None, driver: str | None, gone: bool
) -> None:
    assert bool(expiry_reason(setting(), boot_id, driver)) is gone
