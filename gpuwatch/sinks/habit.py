"""When a page will likely be asked for again: scrapers come regularly, so only the View they will see needs a page."""

from collections import deque
from itertools import pairwise

REMEMBERED = 8
"""Several scrapers of one page come at uneven gaps; the shortest of so many counts."""

FORGET_SECONDS = 300.0
"""After so long nobody is expected any more."""


class Habit:
    """The last times one form of the page was asked for, monotonic seconds. Any thread may call."""

    def __init__(self) -> None:
        self._asked: deque[float] = deque(maxlen=REMEMBERED)

    def note(self, now: float) -> None:
        """It was asked for."""
        self._asked.append(now)

    def forgotten(self, now: float) -> bool:
        """Whether nobody has asked for long."""
        return now - self._asked[-1] > FORGET_SECONDS

    def expects(self, until: float) -> bool:
        """Whether somebody may ask before `until`. One who asked once may do so at any time."""
        asked = list(self._asked)
        return asked[-1] + min((later - earlier for earlier, later in pairwise(asked)), default=0.0) <= until
