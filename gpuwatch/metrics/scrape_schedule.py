"""When a page will likely be asked for again: scrapers come regularly, so only the View they will see needs a page."""

from collections import deque
from itertools import pairwise

REMEMBERED = 8
"""Several scrapers of one page come at uneven gaps; the shortest of so many counts."""

PATIENCE = 3
"""One who is late by so many of its longest gaps comes no more."""

FORGET_SECONDS = (15.0, 90.0)
"""After the first nobody is given up yet; after the second one who came only once is."""


class Habit:
    """The last times one form of the page was asked for, monotonic seconds. Any thread may call."""

    def __init__(self) -> None:
        self._asked: deque[float] = deque(maxlen=REMEMBERED)

    def note(self, now: float) -> None:
        """It was asked for."""
        self._asked.append(now)

    def forgotten(self, now: float) -> bool:
        """Whether those who asked come no more."""
        gaps, asked = self._gaps()
        patience = max(PATIENCE * max(gaps), FORGET_SECONDS[0]) if gaps else FORGET_SECONDS[1]
        return now - asked > patience

    def expects(self, until: float) -> bool:
        """Whether somebody may ask before `until`. One who asked once may do so at any time."""
        gaps, asked = self._gaps()
        return asked + min(gaps, default=0.0) <= until

    def _gaps(self) -> tuple[list[float], float]:
        """Seconds between the times asked, and the last of these."""
        asked = list(self._asked)
        return [later - earlier for earlier, later in pairwise(asked)], asked[-1]
