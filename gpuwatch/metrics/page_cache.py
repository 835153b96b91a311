"""The board at which scrapes read: pages rendered at most once for each View, whoever asks and however often.

Publishing swaps one reference, so no scrape waits for it. A page that will likely be asked for while this View is the
newest is rendered before the swap and costs its reader nothing; any other is rendered when first asked for.
"""

import gzip as gzip_module
import threading
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from gpuwatch.config import MetricsConfig
from gpuwatch.metrics.exposition import Encoder
from gpuwatch.metrics.native import cap
from gpuwatch.metrics.native.rightsizing import Told
from gpuwatch.metrics.process import SelfMetrics
from gpuwatch.metrics.profiles import PROFILES, Profiles
from gpuwatch.metrics.scrape_schedule import Habit
from gpuwatch.model.clock import Clock, SystemClock
from gpuwatch.model.view import View

if TYPE_CHECKING:
    from gpuwatch.http.server import HttpStats
    from gpuwatch.storage.store import StoreStats

AHEAD_INTERVALS = 1.5
"""A page that may be asked for this soon is rendered at publication: before the next View, and a little more."""

STALE_INTERVALS = 3
MIN_STALE_SECONDS = 3.0
"""A View older than this many of its intervals, and these seconds, shows only what gpuwatch itself counts."""

_GZIP_LEVEL = 1  # a tenth of the time of level 9 for a page half as large again, which is still 5 % of the text


class Variant(NamedTuple):
    """One form of the page."""

    profiles: tuple[str, ...]
    openmetrics: bool = False
    gzip: bool = False


class Edition:
    """One View, what right-sizing said at that time, and what has been rendered of them. `owned_only`: the View is
    stale.
    """

    def __init__(self, view: View | None, at: float, *, owned_only: bool = False, advice: Told | None = None) -> None:
        self.view, self.at, self.owned_only, self.advice = view, at, owned_only, advice
        self.pages: dict[Variant, bytes] = {}
        self.json: bytes | None = None

    def stale(self, now: float) -> bool:
        """Whether its readings are too old to be shown as the present."""
        if self.view is None:
            return False
        return now - self.at > max(STALE_INTERVALS * self.view.snapshot.interval, MIN_STALE_SECONDS)


class Board:
    """Holds the newest View in every form readers ask for. Any thread may call.

    `node` names the host where a profile has a label for it; `http` and `store` give the counts of these.
    """

    def __init__(
        self,
        config: MetricsConfig,
        *,
        node: str,
        clock: Clock | None = None,
        http: "Callable[[], HttpStats] | None" = None,
        store: "Callable[[], StoreStats] | None" = None,
    ) -> None:
        self._config, self._clock = config, clock or SystemClock()
        self._profiles = Profiles(config, node)
        self._self = SelfMetrics(http, store)
        self._encoder = Encoder()
        self._rendering = threading.Lock()  # the encoder and the profiles keep state; ready pages need no lock
        self._habits: dict[Variant, Habit] = {}
        self._edition = Edition(None, self._clock.monotonic())

    def publish(self, view: View, advice: Told | None = None) -> None:
        """Make `view` what readers see, once the pages they will likely ask for are ready."""
        now = self._clock.monotonic()
        edition = Edition(view, now, advice=advice)
        with self._rendering:
            self._profiles.observe(view, now)
            soon = now + AHEAD_INTERVALS * view.snapshot.interval
            for variant, habit in self._habits.copy().items():
                if habit.forgotten(now):
                    self._habits.pop(variant, None)
                elif habit.expects(soon):
                    self._render(edition, variant)
            self._edition = edition

    def page(self, profiles: Iterable[str], openmetrics: bool = False, gzip: bool = False) -> bytes:
        """The exposition of `profiles`, in their own order; of an unknown name nothing.

        Before the first View, and once the newest is stale, only what gpuwatch knows of itself and counts itself.
        """
        wanted = set(profiles)
        variant = Variant(tuple(name for name in PROFILES if name in wanted), openmetrics, gzip)
        now = self._clock.monotonic()
        habit = self._habits.get(variant) or Habit()
        habit.note(now)
        self._habits[variant] = habit  # also where it was forgotten meanwhile
        edition = self._current(now)
        page = edition.pages.get(variant)
        if page is None:
            with self._rendering:
                page = self._render(edition, variant)
        return page

    def view_json(self) -> bytes | None:
        """The newest View as JSON; None before the first."""
        edition = self._edition
        if edition.json is None and edition.view is not None:
            edition.json = msgspec.json.encode(edition.view)
        return edition.json

    def age(self) -> float | None:
        """Seconds since the last publication; None before the first."""
        edition = self._edition
        return None if edition.view is None else self._clock.monotonic() - edition.at

    def _current(self, now: float) -> Edition:
        """The newest edition. One that has no present to show is made anew each time: it says how gpuwatch is now."""
        edition = self._edition
        if edition.view is None or edition.stale(now):
            return Edition(edition.view, edition.at, owned_only=True, advice=edition.advice)
        return edition

    def _render(self, edition: Edition, variant: Variant) -> bytes:
        """Render what is missing; the caller holds the lock."""
        page = edition.pages.get(variant)
        if page is None:
            if variant.gzip:
                plain = self._render(edition, variant._replace(gzip=False))
                page = gzip_module.compress(plain, _GZIP_LEVEL, mtime=0)
            else:
                page = self._encode(edition, variant)
            edition.pages[variant] = page
        return page

    def _encode(self, edition: Edition, variant: Variant) -> bytes:
        families, dropped = [], 0
        if edition.view is not None:
            families = self._profiles.collect(
                edition.view, variant.profiles, owned_only=edition.owned_only, advice=edition.advice
            )
            families, dropped = cap(families, self._config.max_series)
        return self._encoder.encode(self._self.families(dropped) + families, openmetrics=variant.openmetrics)
