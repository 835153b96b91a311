"""A node's watts: who gets how many, that nobody is held without need, and that the sum stays within the budget."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuwatch.tuning.power_budget.allocation import PowerDemand, ShareMethod, Shares, emergency, share
from gpuwatch.tuning.power_budget.curve import Curve

EIGHT = [f"GPU-{n}" for n in range(8)]
TIMID = Curve(draw=280.0, waits=0.9)
CALM = Curve(draw=170.0, waits=0.2)


def demand(
    uuid: str,
    draw: float | None = None,
    curve: Curve | None = None,
    priority: int = 0,
    fixed: float | None = None,
) -> PowerDemand:
    return PowerDemand(uuid=uuid, floor=100.0, ceiling=300.0, draw=draw, curve=curve, priority=priority, fixed=fixed)


def speeds(shares: Shares, *gpus: PowerDemand) -> list[float]:
    return [gpu.curve.performance(shares.limits[gpu.uuid]) for gpu in gpus if gpu.curve]


def test_with_nothing_known_all_get_the_same() -> None:
    shares = share(1_200.0, [demand(uuid) for uuid in EIGHT])
    assert shares.how is ShareMethod.UNIFORM
    assert set(shares.limits.values()) == {150.0}


def test_a_budget_that_all_limits_fit_changes_nothing() -> None:
    odd = PowerDemand(uuid="odd", floor=100.0, ceiling=249.5)
    shares = share(549.5, [demand("a"), odd])
    assert (shares.how, shares.limits) == (ShareMethod.UNLIMITED, {"a": 300.0, "odd": 249.5})


def test_below_95_percent_of_the_budget_nobody_is_held() -> None:
    gpus = [demand("busy", draw=250.0, curve=TIMID), demand("idle", draw=60.0, curve=CALM)]
    shares = share(400.0, gpus)
    assert shares.how is ShareMethod.ROOMY
    assert shares.limits == {"busy": 280.0, "idle": 120.0}


def test_the_gpu_that_would_lose_most_gets_more() -> None:
    timid, calm = demand("timid", curve=TIMID), demand("calm", curve=CALM)
    shares = share(360.0, [timid, calm])
    slow, fast = speeds(shares, timid, calm)
    assert shares.how is ShareMethod.SHARED
    assert slow > TIMID.performance(180.0) + 0.05
    assert fast == pytest.approx(slow, abs=0.02)


def test_what_nobody_needs_is_spread() -> None:
    shares = share(560.0, [demand("timid", curve=TIMID), demand("calm", curve=CALM)])
    assert shares.limits == {"timid": 280.0, "calm": 280.0}


def test_a_higher_priority_is_served_before_the_others() -> None:
    first, second = demand("first", curve=TIMID, priority=1), demand("second", curve=TIMID)
    shares = share(420.0, [first, second])
    assert shares.limits == {"first": 280.0, "second": 140.0}
    assert share(360.0, [first, second]).limits == {"first": 260.0, "second": 100.0}


def test_a_gpu_nothing_is_known_of_gets_an_equal_part() -> None:
    shares = share(540.0, [demand("unknown"), demand("timid", curve=TIMID), demand("calm", curve=CALM)])
    assert shares.limits["unknown"] == 180.0
    assert shares.limits["timid"] > 180.0 > shares.limits["calm"]
    assert "1 unknown in equal parts" in shares.message


def test_a_gpu_of_which_only_the_draw_is_known_keeps_about_that() -> None:
    gpus = [demand("low", draw=110.0), demand("high", draw=290.0)]
    shares = share(380.0, gpus)
    assert shares.how is ShareMethod.SHARED
    assert shares.limits["low"] < 140.0 < shares.limits["high"]


def test_a_curve_of_a_busier_phase_no_longer_counts() -> None:
    still = share(420.0, [demand("a", draw=60.0, curve=TIMID), demand("b", draw=None, curve=TIMID)])
    assert still.limits["a"] < 150.0
    assert still.limits["b"] > 270.0


def test_a_budget_below_all_floors_is_reported_and_all_are_at_the_floor() -> None:
    shares = share(700.0, [demand(uuid, curve=TIMID) for uuid in EIGHT])
    assert shares.how is ShareMethod.INFEASIBLE
    assert set(shares.limits.values()) == {100.0}
    assert shares.message == "infeasible: the lowest limits are 800 W together, the budget is 700 W"


def test_a_limit_that_cannot_be_changed_is_taken_off_first() -> None:
    gpus = [demand("a"), demand("b"), demand("foreign", fixed=300.0)]
    assert share(600.0, gpus).limits == {"a": 150.0, "b": 150.0}
    bound = share(450.0, gpus)
    assert bound.how is ShareMethod.INFEASIBLE
    assert "300 W are bound by limits that cannot be changed" in bound.message


def test_a_node_without_gpus_is_no_trouble() -> None:
    assert share(0.0, []).limits == {}


def test_in_an_emergency_nobody_gets_more_than_an_equal_part_or_than_before() -> None:
    gpus = [demand("a"), demand("b"), demand("c", fixed=120.0)]
    assert emergency(480.0, gpus, {"a": 130.0, "b": 230.0, "c": 120.0}) == {"a": 130.0, "b": pytest.approx(180.0)}


@pytest.mark.parametrize("draw", [0.0, -5.0, math.nan, math.inf])
@pytest.mark.parametrize("curve", [None, TIMID])
def test_a_draw_that_cannot_be_is_not_known(draw: float, curve: Curve | None) -> None:
    other = demand("other", draw=290.0)
    assert share(350.0, [demand("a", draw=draw, curve=curve), other]) == share(350.0, [demand("a", curve=curve), other])


@pytest.mark.parametrize(
    "curve",
    [
        Curve(draw=0.0),
        Curve(draw=-200.0),
        Curve(draw=math.nan),
        Curve(draw=200.0, static=1.0),
        Curve(draw=200.0, waits=2.0),
        Curve(draw=200.0, lowest=math.nan),
        Curve(draw=200.0, lowest=250.0),
    ],
)
def test_a_curve_that_cannot_be_is_none(curve: Curve) -> None:
    other = demand("other", draw=290.0)
    assert share(350.0, [demand("a", curve=curve), other]) == share(350.0, [demand("a"), other])


@pytest.mark.parametrize("budget", [0.0, -100.0])
def test_no_budget_leaves_all_at_the_floor(budget: float) -> None:
    gpus = [demand("a", draw=200.0), demand("b")]
    assert share(budget, gpus).how is ShareMethod.INFEASIBLE
    assert share(budget, gpus).limits == {"a": 100.0, "b": 100.0} == emergency(budget, gpus, {"a": 300.0})


def test_a_floor_above_the_limit_of_before_never_raises_it() -> None:
    low = PowerDemand(uuid="low", floor=200.0, ceiling=150.0)
    assert share(300.0, [low, demand("a")]).limits == {"low": 150.0, "a": 150.0}


@pytest.mark.parametrize("wrong", [math.nan, math.inf])
def test_limits_that_are_no_number_are_an_error_and_nothing_is_shared(wrong: float) -> None:
    for gpus in ([PowerDemand(uuid="a", floor=wrong, ceiling=300.0)], [demand("a", fixed=wrong)]):
        with pytest.raises(ValueError, match="no number"):
            share(500.0, gpus)
    for ask in (lambda: share(wrong, [demand("a")]), lambda: emergency(wrong, [demand("a")], {})):
        with pytest.raises(ValueError, match="no number"):
            ask()


def test_a_gpu_that_is_named_twice_is_an_error() -> None:
    with pytest.raises(ValueError, match="named twice"):
        share(500.0, [demand("a"), demand("a")])


WATTS = st.floats(1.0, 1_000.0, allow_nan=False)
CURVES = st.builds(Curve, draw=WATTS, waits=st.floats(0.05, 1.0), static=st.floats(0.0, 0.9))
WILD = st.builds(Curve, draw=st.floats(), waits=st.floats(), static=st.floats(), lowest=st.floats())
DEMANDS = st.builds(
    PowerDemand,
    uuid=st.uuids().map(str),
    floor=st.integers(50, 200).map(float),
    ceiling=WATTS,
    draw=st.none() | WATTS | st.floats(),
    curve=st.none() | CURVES | WILD,
    priority=st.integers(0, 2),
    fixed=st.none() | st.none() | WATTS,
)


@given(st.integers(-500, 5_000), st.lists(DEMANDS, max_size=16, unique_by=lambda gpu: gpu.uuid))
def test_limits_stay_within_the_budget_and_the_boards_whatever_is_asked(budget: float, gpus: list[PowerDemand]) -> None:
    shares = share(budget, gpus)
    free = {gpu.uuid: gpu for gpu in gpus if gpu.fixed is None}
    assert set(shares.limits) == set(free)
    for uuid, watts in shares.limits.items():
        assert free[uuid].range.low <= watts <= free[uuid].range.high
    total = sum(shares.limits.values()) + sum(gpu.fixed or 0.0 for gpu in gpus)
    assert shares.how is ShareMethod.INFEASIBLE or total <= budget + 1e-6


@given(st.integers(800, 2_400), st.lists(CURVES, min_size=8, max_size=8))
def test_by_its_own_estimate_sharing_never_leaves_the_worst_gpu_below_equal_parts(
    budget: float, curves: list[Curve]
) -> None:
    gpus = [demand(uuid, curve=curve) for uuid, curve in zip(EIGHT, curves, strict=True)]
    limits = share(budget, gpus).limits
    worst = min(curve.performance(limits[uuid] + 1.0) for uuid, curve in zip(EIGHT, curves, strict=True))  # whole watts
    assert worst >= min(curve.performance(min(300.0, budget / 8)) for curve in curves) - 1e-6
