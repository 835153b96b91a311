"""Views as they come from an agent: how old they are, and what is said while there are none."""

import math

import pytest

from gpuwatch.agent.client import AgentViews
from gpuwatch.model.errors import GpuwatchError
from gpuwatch.remediation.service.observation import HoldTimer
from tests.remediation.model.remediating import FakeClock, view


class Agent:
    """Answers with what the test has put there."""

    name = "here"

    def __init__(self, clock):
        self.answer, self.asked = view(clock.time()), []

    def view(self, *, after=None, wait=0.0):
        self.asked.append((after, wait))
        if isinstance(self.answer, Exception):
            raise self.answer
        return self.answer


@pytest.fixture
def clock():
    return FakeClock()


@pytest.fixture
def agent(clock):
    return Agent(clock)


@pytest.fixture
def views(agent, clock):
    return AgentViews(agent, clock)


def test_before_the_first_view_its_age_is_infinite(views):
    assert (views.view, views.age) == (None, math.inf)
    assert views.trouble


def test_each_question_names_the_view_before(views, agent, clock):
    assert views.poll()
    assert not views.poll(5.0)
    assert agent.asked == [(None, 0.0), (agent.answer.snapshot.at, 5.0)]
    clock.go(2)
    agent.answer = view(clock.time())
    assert views.poll()
    assert views.age == 0


def test_a_view_served_again_and_again_grows_old(views, clock):
    views.poll()
    for _ in range(10):
        clock.go(5)
        views.poll()
    assert views.age == 50


def test_a_first_view_may_be_old_already(views, clock):
    clock.go(30)
    views.poll()
    assert views.age == 30


def test_a_clock_set_back_makes_no_view_younger_than_new_and_one_set_ahead_none_fresh_for_ever(views, agent, clock):
    clock.wall -= 3600
    views.poll()
    assert views.age == 0
    clock.go(20)
    assert views.age == 20


def test_an_agent_that_is_gone_keeps_its_last_view_and_says_why(views, agent, clock):
    views.poll()
    agent.answer = GpuwatchError("cannot reach the agent", "gone")
    clock.go(7)
    assert not views.poll()
    assert views.trouble == "cannot reach the agent; gone"
    assert (views.view is not None, views.age) == (True, 7)
    agent.answer = view(clock.time())
    assert views.poll()
    assert views.trouble is None


def test_a_hold_counts_only_time_with_samples(clock):
    hold = HoldTimer(clock)
    assert hold.update(True, 10) == 0
    clock.go(8)
    assert hold.update(True, 10) == 8
    clock.go(11)
    assert hold.update(True, 10) == 0
    clock.go(5)
    assert hold.update(False, 10) == 0
    clock.go(1)
    assert hold.update(True, 10) == 0
