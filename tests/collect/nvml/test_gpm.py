"""GPM activity from sample pairs: the first read has none, MIG instances have their own, gaps stay gaps."""

import pytest

from gpuwatch.collect.nvml.reads import GPM_METRICS, GPM_MIN_WINDOW
from tests.fakes.libnvml import FakeDriver, FakeMig
from tests.fakes.nvml_child import run

READ = """
from gpuwatch.collect.nvml.library import NvmlFailure
from gpuwatch.collect.nvml.reads import GpmSampler, has_gpm
def look(pair, now):
    try:
        tell(pair.read(now))
    except NvmlFailure as error:
        tell(str(error))
"""
PAIR = READ + "pair = GpmSampler(nvml, handle)\n"
GRAPHICS, SM, TENSOR, FP64 = 1, 2, 5, 11  # nvmlGpmMetricId_t


def test_the_first_read_is_empty_and_the_second_is_the_mean_between(driver: FakeDriver) -> None:
    driver.set_gpm(0, {SM: 20.0, TENSOR: 10.0})
    first, second = run(
        driver, PAIR + "look(pair, 0.0); pause(); look(pair, 2.0)", lambda: driver.set_gpm(0, {SM: 60.0, TENSOR: 30.0})
    )
    assert first == {}
    assert (second["sm"], second["tensor"]) == (pytest.approx(0.4), pytest.approx(0.2))
    assert second["window_seconds"] == 2.0


def test_every_metric_is_read(driver: FakeDriver) -> None:
    _, activity = run(driver, PAIR + "look(pair, 0.0); look(pair, 1.0)")
    assert set(activity) == {*GPM_METRICS, "window_seconds"}


def test_a_metric_without_data_is_unknown(driver: FakeDriver) -> None:
    driver.set_gpm(0, {FP64: None})
    _, activity = run(driver, PAIR + "look(pair, 0.0); look(pair, 1.0)")
    assert "fp64" not in activity
    assert "sm" in activity


def test_too_short_a_window_is_left_to_the_next_read(driver: FakeDriver) -> None:
    reads = run(driver, PAIR + f"look(pair, 0.0); look(pair, {GPM_MIN_WINDOW / 2}); look(pair, {GPM_MIN_WINDOW * 2})")
    assert reads[:2] == [{}, {}]
    assert reads[2]["window_seconds"] == pytest.approx(GPM_MIN_WINDOW * 2)


def test_a_refusal_is_raised_and_the_next_pair_is_whole(driver: FakeDriver) -> None:
    reads = run(
        driver,
        PAIR + "look(pair, 0.0); pause(); look(pair, 1.0); pause(); look(pair, 2.0)",
        lambda: driver.error(4, "nvmlGpmSampleGet"),
        driver.clear,
    )
    assert reads[1] == "Insufficient Permissions"
    assert reads[2]["window_seconds"] == 2.0


def test_a_comparison_that_fails_once_does_not_fail_for_ever(driver: FakeDriver) -> None:
    """As with a GPU instance that was destroyed and made anew under the same id."""
    reads = run(
        driver,
        PAIR + "look(pair, 0.0); pause(); look(pair, 1.0); pause(); look(pair, 2.0)",
        lambda: driver.error(2, "nvmlGpmMetricsGet"),
        driver.clear,
    )
    assert reads[1] == "Invalid Argument"
    assert reads[2]["window_seconds"] == 1.0


def test_instances_have_their_own(driver: FakeDriver) -> None:
    driver.set_mig(0, [FakeMig(gi=1), FakeMig(gi=5)])
    driver.set_gpm(0, {GRAPHICS: 80.0}, gi=5)
    piece = READ + (
        "one, five = (GpmSampler(nvml, handle, gi) for gi in (1, 5))\n"
        "look(one, 0.0); look(five, 0.0); look(one, 1.0); look(five, 1.0)"
    )
    *_, one, five = run(driver, piece)
    assert (one["graphics"], five["graphics"]) == (0.0, 0.8)


def test_samples_are_returned(driver: FakeDriver) -> None:
    run(driver, PAIR + "pair.close()")
    assert driver.calls("nvmlGpmSampleFree") == driver.calls("nvmlGpmSampleAlloc") == 2


@pytest.mark.parametrize(("model", "offered"), [("H100", True), ("A100", False), ("T4", False)])
def test_who_offers_it(tmp_path_factory: pytest.TempPathFactory, model: str, offered: bool) -> None:
    with FakeDriver(tmp_path_factory.mktemp(model), gpus=1, model=model) as driver:
        assert run(driver, READ + "tell(has_gpm(nvml, handle))") == [offered]


def test_drivers_without_the_call_do_not_offer_it(driver: FakeDriver) -> None:
    driver.error(13, "nvmlGpmQueryDeviceSupport")
    assert run(driver, READ + "tell(has_gpm(nvml, handle))") == [False]


def test_within_the_window_the_same_is_reported_again(driver: FakeDriver) -> None:
    """A sample asked for out of turn must not make the activity vanish for one look."""
    reads = run(driver, PAIR + f"look(pair, 0.0); look(pair, 1.0); look(pair, {1 + GPM_MIN_WINDOW / 2})")
    assert reads[1]["sm"] >= 0
    assert reads[2] == reads[1]
