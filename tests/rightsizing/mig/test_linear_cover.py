"""The linear relaxation of a cover: exact, a cover indeed, and never dearer than one in whole numbers."""

from fractions import Fraction
from itertools import product

from hypothesis import given, settings
from hypothesis import strategies as st

from gpuwatch.rightsizing.mig.linear_cover import least_cover
from tests.seeds import examples

FEW = st.integers(0, 3)


def test_a_half_of_each_is_less_than_two_whole_ones() -> None:
    assert least_cover([(1, 1, 0), (0, 1, 1), (1, 0, 1)], (1, 1, 1)) == [Fraction(1, 2)] * 3


def test_no_demand_costs_nothing() -> None:
    assert least_cover([(1, 0), (0, 1)], (0, 0)) == [0, 0]


@settings(max_examples=examples(200))
@given(st.data())
def test_it_covers_and_is_a_lower_bound(data: st.DataObject) -> None:
    items = data.draw(st.integers(1, 3))
    ones = [tuple(int(at == item) for at in range(items)) for item in range(items)]
    patterns = ones + data.draw(st.lists(st.tuples(*[FEW] * items).filter(any), max_size=3))
    demand = data.draw(st.tuples(*[FEW] * items))
    times = least_cover(patterns, demand)
    assert all(each >= 0 for each in times)
    covered = [sum(times[row] * patterns[row][item] for row in range(len(patterns))) for item in range(items)]
    assert all(there >= wanted for there, wanted in zip(covered, demand, strict=True))
    whole = (
        counts
        for counts in product(range(4), repeat=len(patterns))
        if all(
            sum(count * pattern[item] for count, pattern in zip(counts, patterns, strict=True)) >= demand[item]
            for item in range(items)
        )
    )
    best = min(sum(counts) for counts in whole)
    assert sum(times) <= best
    assert sum(times) >= Fraction(sum(demand), max(sum(pattern) for pattern in patterns))
