"""What an order comes to: never above the original, never below what can be set, and nothing over somebody else's."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from gpuwatch.tuning.model.setting import (
    GpuCapabilities,
    OrderOutcome,
    OrderRefused,
    Setting,
    lowest_clock,
    original_limit,
    watts_to_set,
)

BOARD = GpuCapabilities(
    uuid="GPU-0", clocks=(1.98e9, 1.2e9, 2.1e8), limit=600.0, limit_default=700.0, limit_min=200.0, limit_max=700.0
)


def setting(original: float = 650.0, *applied: float) -> Setting:
    return Setting(
        uuid="GPU-0", knob="power_limit", original=original, applied=applied, at=0.0, boot_id="b1", driver="580"
    )


def capabilities(limit: float | None = 600.0, least: float | None = 200.0) -> GpuCapabilities:
    return GpuCapabilities(uuid="GPU-0", limit=limit, limit_min=least)


def test_the_original_is_what_is_configured_before_the_first_write_and_then_what_is_recorded() -> None:
    assert original_limit(BOARD, None) == 600.0
    assert original_limit(BOARD, setting(650.0, 600.0)) == 650.0
    assert original_limit(BOARD, setting(600.0, 500.0)) == 600.0


@pytest.mark.parametrize("missing", ["limit", "limit_min", "limit_default"])
def test_a_limit_that_is_not_known_is_not_set(missing: str) -> None:
    with pytest.raises(OrderRefused) as refused:
        original_limit(replace(BOARD, **{missing: None}), None)
    assert refused.value.outcome is OrderOutcome.REFUSED


def test_s9_what_is_neither_ours_nor_the_original_belongs_to_another_program() -> None:
    with pytest.raises(OrderRefused) as refused:
        original_limit(BOARD, setting(650.0, 500.0))
    assert refused.value.outcome is OrderOutcome.FOREIGN


@given(st.floats(), st.floats(100, 1000), st.floats(50, 1000))
def test_s1_what_is_set_is_neither_above_the_original_nor_below_the_least(
    watts: float, original: float, least: float
) -> None:
    try:
        found = watts_to_set(watts, capabilities(original, least), original)
    except OrderRefused:
        assert not min(least, original) <= watts <= original
    else:
        assert min(least, original) <= found <= original
        assert abs(found - watts) <= 1.0 + 1e-9


@pytest.mark.parametrize(("watts", "found"), [(600.5, 600.0), (599.5, 599.5), (199.5, 200.0), (200.5, 200.5)])
def test_s1_what_is_off_by_less_than_the_driver_rounds_is_clipped(watts: float, found: float) -> None:
    assert watts_to_set(watts, BOARD, 600.0) == found


@given(st.floats())
def test_s1_a_cap_is_one_that_the_gpu_can_have(cap: float) -> None:
    try:
        assert lowest_clock(cap, BOARD) == 2.1e8
        assert 2.1e8 <= cap <= 1.98e9
    except OrderRefused:
        assert not 2.1e8 <= cap <= 1.98e9


def test_clocks_that_cannot_be_locked_are_not() -> None:
    with pytest.raises(OrderRefused, match="cannot be locked"):
        lowest_clock(1.2e9, capabilities())
