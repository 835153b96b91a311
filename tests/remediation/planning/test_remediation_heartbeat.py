"""How often the condition of a node is written when nothing happens: once a period, half as often in quarantine."""

import itertools

import pytest

from gpuwatch.remediation.model import SetCondition
from tests.remediation.planning.remediating import Story, finding

PERIOD = 300.0


@pytest.mark.parametrize(
    ("check", "tainted", "every"),
    [(None, False, PERIOD), ("hw_power_brake", False, PERIOD), ("gpu_lost", True, 2 * PERIOD)],
)
def test_a_heartbeat_comes_once_a_period_and_in_quarantine_every_other(
    check: str | None, tainted: bool, every: float
) -> None:
    story, written = Story(heartbeat=PERIOD), []
    for _ in range(400):
        story.now += 10.0
        story.see(*([finding(check)] if check else []))
        before = len(story.done)
        story.cycle()
        written += [story.now for step in story.done[before:] if isinstance(step, SetCondition)]
    assert bool(story.node.taint) is tainted
    gaps = [later - earlier for earlier, later in itertools.pairwise(written[1:])]  # the first is news
    assert len(gaps) >= 4
    assert set(gaps) == {every}
