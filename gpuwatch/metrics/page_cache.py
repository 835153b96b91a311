"""The pages of /metrics: each form of the page is rendered at most once for each View, however many scrapers read it.

Publishing swaps one reference, so no scrape waits for it. A page that a scraper will likely request while this View is
the newest is rendered before the swap and costs that scraper nothing; any other is rendered at its first request.
"""

import gzip as gzip_module
import threading
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from itertools import pairwise
from typing import NamedTuple, get_args

import msgspec

from gpuwatch.config import MetricsConfig, Profile
from gpuwatch.http.server import HttpStats
from gpuwatch.metrics.dcgm_profile import DcgmHistory, dcgm_families
from gpuwatch.metrics.exposition import Encoder
from gpuwatch.metrics.metric import Family, NvlinkCounters
from gpuwatch.metrics.native import cap, collect
from gpuwatch.metrics.process import SelfMetrics
from gpuwatch.metrics.selection import Selection, fits
from gpuwatch.model.clock import Clock, SystemClock
from gpuwatch.model.view import STALE_INTERVALS, View
from gpuwatch.storage.store import StoreStats

PROFILES: tuple[str, ...] = get_args(Profile)
"""Names of all profiles, in the order in which they share a page."""

AHEAD_INTERVALS = 1.5
"""A page that may be requested within so many intervals is rendered at publication: the next View, and a margin."""

MIN_STALE_SECONDS = 3.0
"""Of a View older than STALE_INTERVALS of its intervals, and these seconds, only gpuwatch's own counts are shown."""

REMEMBERED = 8
"""Requests kept of a page: several scrapers come at uneven intervals, and the shortest of these counts."""

EXPIRY_GAPS = 3
"""A page is given up once its scrapers are silent for so many of their longest gaps."""

EXPIRY_SECONDS = (15.0, 90.0)
"""A page is never given up before the first; one that was requested only once, after the second."""

MAX_SELECTIONS = 8
"""So many selections of families are kept and rendered ahead; any further one is rendered at each request."""

_GZIP_LEVEL = 1  # a tenth of the time of level 9 for a page half as large again, which is still 5 % of the text


class Profiles:
    """Turns Views into families: under gpuwatch's own names, under dcgm-exporter's, or under several at once, so that
    dashboards and rules written for dcgm-exporter still work. Not thread-safe. `node`: the host's name where a View
    has none.
    """

    def __init__(self, config: MetricsConfig, node: str) -> None:
        self._config, self._node = config, node
        self._history = DcgmHistory()
        self._counters = NvlinkCounters()

    def observe(self, view: View, now: float) -> None:
        """Take in a View at monotonic `now`: rates and windows need the earlier ones."""
        self._history.observe(view, now)
        self._counters.observe(view)

    def collect(
        self,
        view: View,
        profiles: Iterable[str],
        *,
        owned_only: bool = False,
        extra: Sequence[Family] = (),
        only: Selection = None,
    ) -> list[Family]:
        """The families of `profiles`, each name once. `owned_only`, `extra`, `only`: see `metrics.native.collect`."""
        families: dict[str, Family] = {}
        for profile in profiles:
            if profile == "native":
                found = collect(
                    view, self._config, owned_only=owned_only, extra=extra, only=only, counters=self._counters
                )
            else:
                there = dcgm_families(view, profile, self._history, self._node, owned_only=owned_only)
                found = [
                    family
                    for family in there
                    if (only is None or family.name in only) and not fits(family.name, self._config.families.deny)
                ]
            for family in found:
                known = families.get(family.name)
                # the labels distinguish samples that both DCGM profiles have
                families[family.name] = family._replace(samples=known.samples + family.samples) if known else family
        return list(families.values())


class ScrapeSchedule:
    """The times of the last requests of one form of the page, which predict the next. Any thread may call."""

    def __init__(self) -> None:
        self._requests: deque[float] = deque(maxlen=REMEMBERED)

    def note(self, now: float) -> None:
        """Record a request of the page at monotonic `now`."""
        self._requests.append(now)

    def is_expired(self, now: float) -> bool:
        """Whether its scrapers have stopped."""
        gaps, last = self._gaps()
        expiry = max(EXPIRY_GAPS * max(gaps), EXPIRY_SECONDS[0]) if gaps else EXPIRY_SECONDS[1]
        return now - last > expiry

    def expects(self, until: float) -> bool:
        """Whether a request may come before `until`. After a single request the next may come at any time."""
        gaps, last = self._gaps()
        return last + min(gaps, default=0.0) <= until

    def _gaps(self) -> tuple[list[float], float]:
        """Seconds between the requests, and the time of the last."""
        requests = list(self._requests)
        return [later - earlier for earlier, later in pairwise(requests)], requests[-1]


class Variant(NamedTuple):
    """One form of the page."""

    profiles: tuple[str, ...]
    openmetrics: bool = False
    gzip: bool = False
    only: Selection = None


class RenderedView:
    """One View, the families handed in with it, and the pages rendered of them. `owned_only`: the View is stale."""

    def __init__(self, view: View | None, at: float, *, owned_only: bool = False, extra: Sequence[Family] = ()) -> None:
        self.view, self.at, self.owned_only, self.extra = view, at, owned_only, extra
        self.pages: dict[Variant, bytes] = {}
        self.json: bytes | None = None


class PageCache:
    """Holds the newest View in every form that is requested. Any thread may call.

    `node` names the host where a profile has a label for it; `http` and `store` return their counts.
    """

    def __init__(
        self,
        config: MetricsConfig,
        *,
        node: str,
        clock: Clock | None = None,
        http: Callable[[], HttpStats] | None = None,
        store: Callable[[], StoreStats] | None = None,
    ) -> None:
        self._config, self._clock = config, clock or SystemClock()
        self._profiles = Profiles(config, node)
        self._self = SelfMetrics(http, store)
        self._encoder = Encoder()
        self._rendering = threading.Lock()  # the encoder and the profiles keep state; ready pages need no lock
        self._schedules: dict[Variant, ScrapeSchedule] = {}
        self._newest = RenderedView(None, self._clock.monotonic())

    def publish(self, view: View, extra: Sequence[Family] = ()) -> None:
        """Make `view` the newest, once the pages that scrapers will likely request are ready. `extra`: families of
        other parts of gpuwatch that belong on the native page.
        """
        now = self._clock.monotonic()
        rendered = RenderedView(view, now, extra=extra)
        with self._rendering:
            self._profiles.observe(view, now)
            soon = now + AHEAD_INTERVALS * view.snapshot.interval
            for variant, schedule in self._schedules.copy().items():
                if schedule.is_expired(now):
                    self._schedules.pop(variant, None)
                elif schedule.expects(soon):
                    self._render(rendered, variant)
            self._newest = rendered

    def page(
        self, profiles: Iterable[str], openmetrics: bool = False, gzip: bool = False, only: Selection = None
    ) -> bytes:
        """The exposition of `profiles`, in their own order; unknown names are left out. `only`: only these families.

        Before the first View, and once the newest is stale, it has only gpuwatch's own state and counts.
        """
        wanted = set(profiles)
        variant = Variant(tuple(name for name in PROFILES if name in wanted), openmetrics, gzip, only)
        now = self._clock.monotonic()
        schedule = self._schedules.get(variant)
        selections = sum(each.only is not None for each in self._schedules.copy())
        is_remembered = schedule is not None or only is None or selections < MAX_SELECTIONS
        if is_remembered:
            schedule = schedule or ScrapeSchedule()
            schedule.note(now)
            self._schedules[variant] = schedule  # also where another thread has dropped it meanwhile
        rendered = self._newest
        view = rendered.view
        is_stale = view is not None and (
            now - rendered.at > max(STALE_INTERVALS * view.snapshot.interval, MIN_STALE_SECONDS)
        )
        if view is None or is_stale or not is_remembered:  # rendered each time; a stale one shows the present state
            rendered = RenderedView(view, rendered.at, owned_only=view is None or is_stale, extra=rendered.extra)
        page = rendered.pages.get(variant)
        if page is None:
            with self._rendering:
                page = self._render(rendered, variant)
        return page

    def view_json(self) -> bytes | None:
        """The newest View as JSON; None before the first."""
        rendered = self._newest
        if rendered.json is None and rendered.view is not None:
            rendered.json = msgspec.json.encode(rendered.view)
        return rendered.json

    def age(self) -> float | None:
        """Seconds since the last publication; None before the first."""
        rendered = self._newest
        return None if rendered.view is None else self._clock.monotonic() - rendered.at

    def _render(self, rendered: RenderedView, variant: Variant) -> bytes:
        """Render a page that is missing; the caller holds the lock."""
        page = rendered.pages.get(variant)
        if page is None:
            if variant.gzip:
                plain = self._render(rendered, variant._replace(gzip=False))
                page = gzip_module.compress(plain, _GZIP_LEVEL, mtime=0)
            else:
                families, dropped = [], 0
                if rendered.view is not None:
                    families = self._profiles.collect(
                        rendered.view,
                        variant.profiles,
                        owned_only=rendered.owned_only,
                        extra=rendered.extra,
                        only=variant.only,
                    )
                    families, dropped = cap(families, self._config.max_series)
                own = self._self.families(dropped)
                if variant.only is not None:
                    own = [family for family in own if family.name in variant.only]
                page = self._encoder.encode(own + families, openmetrics=variant.openmetrics)
            rendered.pages[variant] = page
        return page
