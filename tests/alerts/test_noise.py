"""One cause is at most one page: inhibition and grouping leave no second one."""

import pytest

from tests.bench.noise import causes, measure


@pytest.mark.slow
def test_a_cause_is_at_most_one_page(tmp_path):
    """Some of them page at all, so the scenarios do reach the rules."""
    found = {cause: measure(cause, series, tmp_path) for cause, series in causes()}
    assert {cause: noise.pages for cause, noise in found.items() if len(noise.pages) > 1} == {}
    paging = {cause for cause, noise in found.items() if noise.pages}
    assert paging == {"lost GPU", "ECC storm", "switch failure"}
