"""What a search does to work at worst: caps that are too low are left at once, none is ever below the fraction."""

from itertools import groupby

import pytest

from gpuwatch.tuning.energy.model import Terms, TrialPhase
from gpuwatch.tuning.energy.search import first
from tests.bench.tuner.curves import FITS, Curve, drawn, model
from tests.seeds import seeded
from tests.tuning.energy.tuner_bench import LADDER, Bench

FLEET = [curve for name in FITS for curve in drawn(name, 6, 77)]
CLIFF = Curve("H100", "cliff", "locked_clocks", ((400e6, 0.3, 1.5), (1395e6, 0.4, 1.4), (1410e6, 1.0, 1.0)), 300.0)
"""Any cap more than halves its speed."""


@pytest.mark.parametrize("number", seeded(range(6)))
@pytest.mark.parametrize("fraction", [0.5, 0.75])
def test_s11_no_cap_is_ever_below_the_fraction(fraction: float, number: int) -> None:
    for curve in FLEET[number::6]:
        ladder = curve.ladder(min_fraction=fraction)
        bench = Bench(curve, ladder=ladder)
        bench.run(3 * 3600)
        assert min((cap for cap in bench.asked if cap is not None), default=curve.top) >= fraction * curve.top


def test_s11_where_users_wait_the_first_step_is_half_as_large() -> None:
    batch, serving = (first(LADDER, Terms(latency=latency), 400.0) for latency in ("batch", "serving"))
    assert LADDER.top - serving == pytest.approx((LADDER.top - batch) / 2, abs=15e6)


def test_s11_a_hopeless_cap_is_in_force_for_three_windows_at_most() -> None:
    bench = Bench(CLIFF, ladder=CLIFF.ladder())
    bench.until(TrialPhase.REFUSED)
    asked = [cap for cap, before in zip(bench.asked[1:], bench.asked, strict=False) if cap != before]
    assert max(asked.count(cap) for cap in asked if cap is not None) <= 3


def test_s11_a_search_is_in_force_for_half_of_its_time_at_most() -> None:
    steep = model("H100", "steep", 1410e6, 0.9, 0.4, 2.75)
    bench = Bench(steep)
    bench.until(TrialPhase.SEARCH)
    begun = len(bench.asked)
    bench.until(TrialPhase.HOLD)
    searched = bench.asked[begun:-1]
    assert sum(cap is not None for cap in searched) <= len(searched) / 2
    stretches = [len(list(same)) for cap, same in groupby(searched) if cap is not None]
    assert 0 < max(stretches) <= 2  # windows of five seconds
