"""What the remediator observes, for how long the node has been proven healthy, and when the next cycle is due."""

import random
from typing import NamedTuple

from gpuwatch.agent.client import ViewSource
from gpuwatch.kube.objects import NodeObject
from gpuwatch.model.clock import Clock
from gpuwatch.remediation.planning.evidence import FRESH_INTERVALS, FRESH_SECONDS, Observation, is_clean, is_fresh
from gpuwatch.remediation.planning.policy import Policy


class HoldTimer:
    """One condition; by a clock that does not jump."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._since: float | None = None
        self._seen = 0.0

    def look(self, holds: bool, gap: float) -> float:
        """Say how it is now; seconds for which it has held. More than `gap` since the last look, and it begins anew."""
        now = self._clock.monotonic()
        if not holds:
            self._since = None
            return 0.0
        if self._since is None or now - self._seen > gap:
            self._since = now
        self._seen = now
        return now - self._since


class ObservationTracker:
    """Looks at the View there is; time in which nobody looked proves nothing."""

    def __init__(self, views: ViewSource, clock: Clock) -> None:
        self._views, self._clean = views, HoldTimer(clock)

    def look(self, node: NodeObject | None, policy: Policy) -> Observation:
        """What is seen now. `node` None: it has not been read, and is not known to be well."""
        observation = Observation(view=self._views.view, age=self._views.age)
        clean = node is not None and is_clean(observation, node, policy)
        interval = observation.view.snapshot.interval if observation.view else 0.0
        gap = max((FRESH_INTERVALS + 1) * interval, 1.5 * FRESH_SECONDS)
        return Observation(view=observation.view, age=observation.age, clean_for=self._clean.look(clean, gap))


class ViewFingerprint(NamedTuple):
    """What of a View can change a plan at once; readings that merely vary are left out. `what` there is to see, and
    when it happened `last`.
    """

    what: object = None
    last: tuple[float, ...] = ()


def fingerprint(observation: Observation) -> ViewFingerprint:
    """The news of a View."""
    if observation.view is None:
        return ViewFingerprint()
    findings = observation.view.judgement.findings
    what = is_fresh(observation), frozenset(each.key for each in findings), observation.view.snapshot.host.boot_id
    return ViewFingerprint(what, tuple(each.latest for each in findings))


def seconds_fresh(observation: Observation) -> float | None:
    """Seconds until the View is too old to act on; None: it is, or there is none."""
    if observation.view is None or not is_fresh(observation):
        return None
    return max(FRESH_INTERVALS * observation.view.snapshot.interval, FRESH_SECONDS) - observation.age + 0.01


MAX_HURRY = 1.0
"""Seconds that news wait at most while the API server is being left alone."""

NEWS_AT_ONCE = 10
NEWS_SECONDS = 5.0
"""What only happens once more is looked at at once so many times in a row, then one in so many seconds."""

PATIENT_AFTER = 3
LONGEST_PATIENCE = 60.0
"""The same steps in so many cycles running, and each further cycle waits twice as long: somebody undoes what we do."""


class LookSchedule:
    """The due time of one remediator's cycles."""

    def __init__(self, clock: Clock, chance: random.Random) -> None:
        self._clock, self._chance = clock, chance
        self._due = self._not_before = self._news_until = clock.monotonic()
        self._troubled = False
        self._doing: object = ()
        self._times = 0

    @property
    def left(self) -> float:
        """Seconds until a look is due."""
        return max(0.0, self._due - self._clock.monotonic())

    def at_once(self) -> None:
        """What is to be done has changed altogether."""
        self._due = self._clock.monotonic()

    def changed(self, *, again: bool = False) -> None:
        """There is something new to be seen; `again`: what there was has happened once more."""
        spread = self._chance.uniform(0, MAX_HURRY) if self._troubled else 0.0
        at = max(self._clock.monotonic() + spread, self._not_before)
        if again:
            at = max(at, self._news_until - (NEWS_AT_ONCE - 1) * NEWS_SECONDS)
        if at < self._due:
            self._due = at
            if again:
                self._news_until = max(self._news_until, at) + NEWS_SECONDS

    def wait(self, seconds: float) -> None:
        """A look has been taken; the next one in so many seconds."""
        self._due = self._clock.monotonic() + seconds

    def went_well(self, doing: object) -> float:
        """A cycle did `doing`, which tells its steps; seconds to wait at least."""
        self._troubled = False
        self._times = self._times + 1 if doing and doing == self._doing else 0
        self._doing = doing
        if self._times < PATIENT_AFTER:
            return 0.0
        return float(min(2.0 ** min(self._times - PATIENT_AFTER, 16), LONGEST_PATIENCE))

    def failed(self, leave_alone: float | None) -> None:
        """A cycle came to no end; the API server wants so many seconds without us, whatever the news are."""
        self._troubled = True
        if leave_alone:
            self._not_before = self._clock.monotonic() + leave_alone
