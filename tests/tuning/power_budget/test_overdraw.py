"""What a GPU would draw unheld, and when a node is in an emergency."""

import pytest

from gpuwatch.tuning.power_budget.demand import Overdraw, PowerReading, natural, p95, with_reading


def test_the_demand_is_the_p95_of_the_last_minute() -> None:
    readings = [PowerReading(float(second), 100.0 + second) for second in range(200)]
    assert p95(readings, now=199.0) == 100.0 + 196
    assert p95([], now=0.0) is None


def test_too_short_a_time_shows_no_demand() -> None:
    assert p95([PowerReading(0.0, 100.0), PowerReading(29.0, 100.0)], now=29.0) is None
    assert p95([PowerReading(0.0, 100.0), PowerReading(30.0, 100.0)], now=30.0) == 100.0
    assert p95([PowerReading(0.0, 100.0), PowerReading(30.0, 100.0)], now=80.0) is None


@pytest.mark.parametrize(
    ("known", "draw", "limit", "expected"),
    [
        (None, 120.0, 200.0, 120.0),
        (None, 190.0, 200.0, None),
        (250.0, 190.0, 200.0, 250.0),
        (185.0, 190.0, 200.0, 190.0),
        (150.0, 190.0, 200.0, None),
        (250.0, 120.0, 200.0, 120.0),
        (250.0, None, 200.0, 250.0),
        (None, 120.0, None, None),
    ],
    ids=["free", "held", "held-and-known", "creeping", "held-and-grown", "fell", "unread", "limit-unread"],
)
def test_a_draw_at_its_limit_is_not_the_demand(
    known: float | None, draw: float | None, limit: float | None, expected: float | None
) -> None:
    assert natural(known, draw, limit) == expected


def after(*watts: float | None) -> Overdraw:
    seen = Overdraw()
    for at, each in enumerate(watts):
        seen = with_reading(seen, None if each is None else PowerReading(float(at), each), budget=1_000.0)
    return seen


@pytest.mark.parametrize(
    ("watts", "expected"),
    [
        ((1_001.0,) * 3, False),
        ((1_001.0,) * 4, True),
        ((1_001.0, 1_001.0, 1_000.0, 1_001.0, 1_001.0), False),
        ((1_001.0, None, None, 1_001.0), True),
        ((1_001.0, None, None, None), False),
    ],
    ids=["2 s", "3 s", "interrupted", "unread-between", "unread"],
)
def test_three_seconds_above_the_budget_are_an_emergency(watts: tuple[float | None, ...], expected: bool) -> None:
    assert after(*watts).is_emergency(float(len(watts) - 1)) is expected


def test_an_emergency_lasts_a_minute_after_its_last_second() -> None:
    seen = after(1_001.0, 1_001.0, 1_001.0, 1_001.0, 900.0)
    assert seen.is_emergency(62.0)
    assert not seen.is_emergency(63.0)
