"""What is learnt of a GPU from the limits it had: how low one may be that costs nothing, and what lower ones cost."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuwatch.tuning.power_budget.curve import (
    HEADROOM,
    KEPT,
    LimitEffect,
    LimitEffects,
    Measured,
    free,
    hindered,
    measured,
    unhindered,
)
from gpuwatch.tuning.power_budget.loop import LEARN_SECONDS, SHARE_SECONDS
from tests.tuning.power_budget.budget_node import Node

PROBES = ((0.8, 0.95), (0.6, 0.8))


def test_before_anything_is_felt_the_peak_and_the_board_count() -> None:
    assert measured(LimitEffects(), PROBES, 200.0, 300.0)[0] == Measured(0.8 * 200.0 * HEADROOM, 0.95)
    assert measured(LimitEffects(), PROBES, 290.0, 300.0)[0] == Measured(0.8 * 300.0, 0.95)


def test_a_limit_that_slows_it_down_shows_where_the_probes_belong_and_what_it_costs() -> None:
    hold = hindered(free(LimitEffects(), 200.0), 210.0, 140.0)
    assert hold.enough == pytest.approx(300.0)
    points = measured(hold, PROBES, 220.0, 400.0)
    assert [each.watts for each in points] == pytest.approx([240.0, 180.0, 210.0])
    assert points[-1].performance == pytest.approx(0.875)


def test_a_limit_that_slows_nothing_down_is_enough() -> None:
    hold = unhindered(free(LimitEffects(), 100.0), 150.0, 100.0)
    assert (hold.enough, unhindered(hold, 130.0, 99.0).enough, unhindered(hold, 180.0, 99.0).enough) == (150, 130, 150)
    assert unhindered(hold, 130.0, 60.0) == hold  # it only has less to do


def test_who_draws_more_than_ever_does_something_else() -> None:
    hold = hindered(free(LimitEffects(), 200.0), 210.0, 140.0)
    assert hindered(hold, 250.0, 220.0) == LimitEffects()
    assert hindered(LimitEffects(), 250.0, 220.0) == LimitEffects()


def test_a_limit_that_hardly_cuts_shows_nothing() -> None:
    hold = free(LimitEffects(), 200.0)
    assert hindered(hold, 210.0, 199.0) == hold


@given(st.lists(st.tuples(st.floats(50.0, 400.0), st.floats(20.0, 190.0)), max_size=12))
def test_only_the_newest_limits_are_kept_and_each_once(seen: list[tuple[float, float]]) -> None:
    hold = free(LimitEffects(), 200.0)
    for limit, mean in seen:
        hold = hindered(hold, limit, mean)
    assert len(hold.effects) <= KEPT
    assert len({each.limit for each in hold.effects}) == len(hold.effects)
    if seen:
        assert hold.effects[-1] == LimitEffect(seen[-1][0], seen[-1][1] / 200.0)
    assert all(0.0 <= each.performance <= 1.0 for each in measured(hold, PROBES, 220.0, 400.0))


@pytest.mark.parametrize("is_told", [True, False])
def test_the_drivers_word_keeps_noise_from_looking_like_a_limit(is_told: bool) -> None:
    """A GPU at the lowest limit draws nearly as much as it may."""
    node = Node(450.0, seed=3, noise=0.09)
    for watts in (84.0, 280.0, 280.0):
        node.come(draws=watts)
        node.boards[f"GPU-{node.made}"].is_capped = (lambda limit: limit < 250.0) if watts > 250 else lambda _: False
    node.boards["GPU-1"].is_capped = (lambda _: False) if is_told else None
    node.run(LEARN_SECONDS + SHARE_SECONDS, each=2.0)
    highest = 0.0
    for _ in range(600):
        node.run(2, each=2.0)
        highest = max(highest, node.limits["GPU-1"])
    assert (highest < 120.0) is is_told
