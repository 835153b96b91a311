"""The spread of memory is a number, whatever bytes and seconds are added up: rounding must not make it imaginary."""

from hypothesis import given
from hypothesis import strategies as st

from gpuwatch.rightsizing.usage.decaying_histogram import Moments


def test_one_value_has_no_spread() -> None:
    moments = Moments()
    moments.add(778526664.0, 198.76773400007806)  # rounds to a sum of squares of -18447
    assert moments.spread == 0.0


@given(st.lists(st.tuples(st.integers(1, 1 << 38), st.floats(1.0, 3600.0)), min_size=1, max_size=20))
def test_a_spread_is_never_below_zero(values: list[tuple[int, float]]) -> None:
    moments = Moments()
    for value, seconds in values:
        moments.add(value, seconds)
    spread = moments.spread
    assert spread is not None
    assert spread >= 0.0
