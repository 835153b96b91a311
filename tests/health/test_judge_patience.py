"""N of M bad answers begin a finding. Once it is open every bad answer brings it up to date, however few there are."""

import pytest

from gpuwatch.health.checks import CHECK_BY_NAME
from gpuwatch.model.snapshot import Temperature
from tests.health.judging import Bench
from tests.health.test_checks import LEVELS

PATIENT = [name for name in LEVELS if CHECK_BY_NAME[name].raise_after[0] > 1 and CHECK_BY_NAME[name].ends == "clean"]


@pytest.mark.parametrize("name", PATIENT)
def test_an_open_finding_takes_one_bad_answer_to_last_where_a_new_one_takes_several(name: str) -> None:
    check, bench = CHECK_BY_NAME[name], Bench()
    enough, of = check.raise_after
    bench.make(0, **LEVELS[name].sick)
    assert bench.cycle(times=enough - 1).findings == ()
    bench.cycle()
    assert bench.checks() == {name}
    for _ in range(2 * of):  # one bad answer in each stretch that would end it: never N of the latest M
        bench.make(0)
        bench.cycle(times=check.clear_after - 1)
        assert bench.checks() == {name}
        bench.make(0, **LEVELS[name].sick)
        bench.cycle()
    bench.make(0)
    bench.cycle(times=check.clear_after)
    assert bench.checks() == set()


def test_an_open_finding_says_what_the_latest_bad_answer_says() -> None:
    bench = Bench(thermal_margin=2.0)
    bench.make(0, temperature=Temperature(gpu=90.0, margin=2.0))
    bench.cycle(times=10)
    before = bench.finding("thermal_margin")
    bench.make(0)
    bench.cycle(times=4)
    bench.make(0, temperature=Temperature(gpu=91.0, margin=1.0))  # 7 of the latest 10, where a new finding takes 8
    bench.cycle()
    after = bench.finding("thermal_margin")
    assert after.since == before.since
    assert "2 °C" in before.message
    assert "1 °C" in after.message
    assert after.evidence["temperature.margin"] != before.evidence["temperature.margin"]
