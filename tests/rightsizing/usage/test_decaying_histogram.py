"""Histograms that forget: what they say of values, what they lose when saved, and that no weight overflows."""

import math
import statistics

import msgspec
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from gpuwatch.rightsizing.usage.decaying_histogram import (
    BYTES_PER_SECOND,
    RATIO,
    SLOWDOWN,
    WATTS,
    Histogram,
    HistogramState,
    Moments,
    Scale,
)

SCALES = [RATIO, SLOWDOWN, WATTS, BYTES_PER_SECOND]
TOPS = {RATIO: 1.0, SLOWDOWN: 30.0, WATTS: 3000.0, BYTES_PER_SECOND: 1e11}


def filled(scale: Scale, *values: float, weight: float = 1.0) -> Histogram:
    histogram = Histogram(scale)
    for value in values:
        histogram.add(value, weight)
    return histogram


def test_an_empty_one_says_nothing():
    assert Histogram(RATIO).distribution() is None


def test_zero_and_the_whole_are_exact():
    found = filled(RATIO, *[0.0] * 50, *[1.0] * 50).distribution()

    assert found is not None
    assert (found.mean, found.p50, found.p95, found.max) == (0.5, 0.0, 1.0, 1.0)


@pytest.mark.parametrize("scale", SCALES)
@given(shares=st.lists(st.floats(0, 1), min_size=1, max_size=60))
def test_a_quantile_is_that_of_the_values_to_a_bucket(scale: Scale, shares: list[float]):
    values = sorted(share * TOPS[scale] for share in shares)
    wanted = values[math.ceil(0.95 * len(values)) - 1]

    found = filled(scale, *values).distribution()

    assert found is not None
    assert scale.bucket(wanted) == scale.bucket(found.p95)
    assert found.mean == pytest.approx(statistics.fmean(values))
    assert found.p50 <= found.p95 <= found.max


@pytest.mark.parametrize("scale", SCALES)
def test_the_end_of_a_bucket_belongs_to_it_and_buckets_rise(scale: Scale):
    ends = [scale.end(index) for index in range(scale.size)]

    assert ends == sorted(set(ends))
    assert [scale.bucket(end) for end in ends] == list(range(scale.size))
    assert scale.bucket(1e30) == scale.size - 1


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf, -0.1])
def test_what_no_value_can_be_is_left_out(value: float):
    histogram, mean = filled(RATIO, 0.5, value), Moments()
    mean.add(value, 1.0)

    assert histogram.weight == 1.0
    assert mean.value is None


@given(mean=st.floats(0, 1), high=st.floats(0, 1))
@example(mean=0.04894851445222172, high=0.5562018124730418)  # mean / high * high is more than mean
def test_a_span_keeps_its_mean_and_shows_its_high_end(mean: float, high: float):
    histogram = Histogram(RATIO)

    histogram.add_span(mean, high, 60.0)

    found = histogram.distribution()
    assert found is not None
    assert histogram.weight == pytest.approx(60.0)
    assert found.mean == pytest.approx(mean)
    if high > mean > 0.2 * high:
        assert RATIO.bucket(found.p95) == RATIO.bucket(high)


def test_what_is_faded_counts_less():
    histogram = filled(RATIO, 1.0, weight=60.0)
    histogram.fade(0.5)
    histogram.add(0.0, 90.0)

    found = histogram.distribution()

    assert found is not None
    assert found.mean == pytest.approx(0.25)


def test_what_was_long_ago_is_no_maximum_any_more():
    histogram = filled(WATTS, 700.0)
    histogram.fade(2.0**-40)
    histogram.add(100.0, 1.0)

    found = histogram.distribution()

    assert found is not None
    assert found.max == pytest.approx(100.0)


@given(values=st.lists(st.floats(0, 1), max_size=60), weight=st.floats(1e-3, 1e15))
def test_a_saved_one_says_the_same_and_saving_twice_loses_no_more(values: list[float], weight: float):
    histogram = filled(RATIO, *values, weight=weight)
    body = msgspec.json.encode(histogram.state())

    restored = Histogram(RATIO, msgspec.json.decode(body, type=HistogramState))

    before, after = histogram.distribution(), restored.distribution()
    assert (before is None) == (after is None)
    if before is not None and after is not None:
        assert after.max == pytest.approx(before.max)
        assert histogram.quantile(0.499) <= after.p50 <= histogram.quantile(0.501)
        assert after.mean == pytest.approx(before.mean)
        assert restored.weight == pytest.approx(histogram.weight)
    assert restored.state().buckets == histogram.state().buckets


def test_one_that_was_saved_with_more_buckets_is_cut():
    state = HistogramState(weight=1.0, moment=1.0, buckets=(1,) * 500)

    assert Histogram(RATIO, state).quantile(1.0) == 1.0
