"""A histogram from a page that others write: its buckets added up, or nothing."""

import math
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuwatch.consents.progress import MOST_BUCKETS, MOST_BYTES, MOST_SERIES, buckets

PAGE = rb"""# TYPE x_seconds histogram
x_seconds_bucket{engine="0",le="0.5",model_name="a } le=\"9\" b"} 1
x_seconds_bucket{engine="0",le="2.0",model_name="a"} 3.0
x_seconds_bucket{engine="0",le="+Inf",model_name="a"} 4
x_seconds_bucket{engine="1",le="0.5"} 10 1790000000000
x_seconds_bucket{engine="1",le="2.0"} 1.0e+01
x_seconds_bucket{engine="1",le="+Inf"} 10
x_seconds_count{engine="0"} 4
x_seconds_sum{engine="0"} 7.5
other_x_seconds_bucket{le="+Inf"} 99
"""


def page(*samples: tuple[str, str], name: str = "x_seconds") -> bytes:
    return "".join(f'{name}_bucket{{le="{bound}"}} {count}\n' for bound, count in samples).encode()


def test_the_buckets_of_all_series_are_added_up_and_nothing_else() -> None:
    assert buckets(PAGE, "x_seconds") == {0.5: 11.0, 2.0: 13.0, math.inf: 14.0}


def test_bounds_are_sorted_however_a_page_orders_them() -> None:
    found = buckets(page(("+Inf", "3"), ("2", "2"), ("1e-1", "1")), "x_seconds")
    assert found is not None
    assert list(found.items()) == [(0.1, 1.0), (2.0, 2.0), (math.inf, 3.0)]


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"x_seconds_bucket 5\n",
        b'x_seconds_bucket{engine="0"} 5\n',
        b'x_seconds_bucket{le="1",le="+Inf"} 5\n',
        page(("1", "5")),  # no +Inf: how many there are in all is not known
        page(("1", "5"), ("+Inf", "NaN")),
        page(("1", "NaN"), ("+Inf", "5")),
        page(("NaN", "5"), ("+Inf", "5")),
        page(("-Inf", "5"), ("+Inf", "5")),
        page(("1", "-1"), ("+Inf", "5")),
        page(("1", "5"), ("+Inf", "+Inf")),
        page(("1", "5"), ("+Inf", "1e300")),
        page(("1", "6"), ("+Inf", "5")),  # not cumulative
        page(("1", "six"), ("+Inf", "6")),
        page(("one", "5"), ("+Inf", "5")),
        page(("1", "5"), ("+Inf", "5"), ("+Inf", "5")),  # a series without that bucket cannot be added
        page(*((str(n), "1") for n in range(MOST_BUCKETS)), ("+Inf", "1")),
    ],
)
def test_what_is_no_histogram_is_none(body: bytes) -> None:
    assert buckets(body, "x_seconds") is None


def test_a_page_full_of_buckets_is_given_up_early() -> None:
    body = page(*((str(n), "1") for n in range(100_000)))
    began = time.process_time()
    assert buckets(body[:MOST_BYTES], "x_seconds") is None
    many = page(("1", "1"), ("+Inf", "1")) * MOST_SERIES
    assert buckets(many, "x_seconds") is None
    assert time.process_time() - began < 1.0


HOSTILE = {
    "a name": b"a",
    "names": b"le ",
    "an equals sign": b"le=",
    "spaces": b" ",
    "empty values": b'a="",',
    "values alone": b'"le=",',
    "backslashes": b'"\\\\",',
}


@pytest.mark.parametrize("labels", HOSTILE.values(), ids=HOSTILE)
@pytest.mark.parametrize("size", [4000, MOST_BYTES - 100])
def test_labels_of_any_length_cost_no_time(labels: bytes, size: int) -> None:
    sample = b"x_seconds_bucket{" + labels * (size // len(labels)) + b"} 1\n"
    body = (sample * (MOST_BYTES // len(sample)))[:MOST_BYTES]
    began = time.process_time()
    assert buckets(body, "x_seconds") is None
    assert time.process_time() - began < 1.0


@pytest.mark.parametrize("labels", ['a="le=\\"9\\"",le="1"', 'x_le="9",le="1"', 'le = "1",b="x"', 'lex="9", le="1"'])
def test_a_bound_is_the_value_of_le_alone(labels: str) -> None:
    body = f'x_seconds_bucket{{{labels}}} 2\nx_seconds_bucket{{le="+Inf"}} 2\n'
    assert buckets(body.encode(), "x_seconds") == {1.0: 2.0, math.inf: 2.0}


@given(st.lists(st.tuples(st.sampled_from(["0.1", "1", "2", "+Inf", "NaN", "-1"]), st.integers(-1, 9)), max_size=9))
def test_what_is_taken_is_cumulative_and_finite(samples: list[tuple[str, int]]) -> None:
    found = buckets(page(*((bound, str(count)) for bound, count in samples)), "x_seconds")
    if found is not None:
        counts = list(found.values())
        assert counts == sorted(counts)
        assert counts[0] >= 0
        assert list(found)[-1] == math.inf
