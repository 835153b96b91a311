"""When the next look at the Node is due: news hurry it, but neither a storm of them nor a plan that never ends
makes a storm of requests.
"""

import random

from gpuwatch.model.clock import Clock

MAX_HURRY = 1.0
"""Seconds that news wait at most while the API server is being left alone."""

NEWS_AT_ONCE = 10
NEWS_SECONDS = 5.0
"""What only happens once more is looked at at once so many times in a row, then one in so many seconds."""

PATIENT_AFTER = 3
LONGEST_PATIENCE = 60.0
"""The same steps in so many cycles running, and each further cycle waits twice as long: somebody undoes what we do."""


class Pace:
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

    def news(self, *, again: bool = False) -> None:
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
