"""One pod's container on one device: since when, whether it works, how long it has not, and what it took meanwhile."""

import math
import re

import msgspec

from gpuwatch.rightsizing.model.usage import DeviceAllocation, UsageWindow
from gpuwatch.rightsizing.usage.decaying_histogram import Moments

IDLE_BUSY = 0.01
"""A GPU that is busy for less than this share of a window does no work."""

BURST_BUSY = 0.05
"""Unless its high end reaches this: requests that come now and then. A health check of 0.2 s every 10 s is at 0.02."""

STRETCH_SECONDS = 600.0
"""Health checks come at least so often."""

STRETCHES = 64
LEAST_STRETCHES = 8
"""The latest STRETCHES count; with fewer than LEAST_STRETCHES, none do."""

FEW_STIRRED = 0.05
"""Of the stretches: so few with kernels, or so few without, do not count."""

IRREGULAR = 0.2
"""Standard deviation over mean: checks every two minutes have 0.1, random requests, 25 in a stretch, 0.2."""

BRIDGED_SECONDS = 600.0
"""An unobserved gap of up to this length counts as the time around it."""

UNSEEN_SHARE = 0.5
"""Of the observed idle time: with more unobserved time than this in it, only the time after that counts as idle."""

START_SECONDS = 120.0
GRACE_SECONDS = 120.0
"""A hold of which no window came for so long after the next was due is gone."""

UNIQUE = re.compile(r"-[bcdfghjklmnpqrstvwxz2456789]{5}$")
"""Kubernetes generates such suffixes at random: no other pod ever has the same name."""

LONGEST_GAP_SECONDS = 86400.0
"""After so long a gap the same pod's name on the same GPU is another hold."""


def activity(window: UsageWindow) -> bool | None:
    """Whether any work was done in it; None: not known."""
    if window.busy is None or not (window.busy >= 0 and window.covered > 0):
        return None
    return window.busy >= IDLE_BUSY or (window.busy_high or 0.0) >= BURST_BUSY


class IdleActivity(msgspec.Struct, omit_defaults=True):
    """Short kernels within an idle time, by stretches of STRETCH_SECONDS; the latest stretches count.

    A GPU at rest has no kernels. Health checks come in every stretch, about equally many. Requests come in some, or
    more in one than in another.
    """

    count: int = 0
    share: float = 0.0  # of stretches with such kernels
    mean: float = 0.0  # busy
    variance: float = 0.0
    seconds: float = 0.0  # of the unfinished stretch
    busy: float = 0.0  # seconds of these with a kernel
    is_active: bool = False

    def add(self, busy: float, high: float, seconds: float) -> None:
        """Take a window without work."""
        self.seconds += seconds
        self.busy += busy * seconds
        self.is_active = self.is_active or high >= IDLE_BUSY
        if self.seconds >= STRETCH_SECONDS:
            self.count = min(self.count + 1, STRETCHES)
            step = self.busy / self.seconds - self.mean
            self.share += (self.is_active - self.share) / self.count
            self.mean += step / self.count
            self.variance = (1 - 1 / self.count) * (self.variance + step * step / self.count)
            self.seconds, self.busy, self.is_active = 0.0, 0.0, False

    @property
    def are_requests(self) -> bool:
        """Whether the short kernels come from requests, so far as is known."""
        if self.count < LEAST_STRETCHES or self.share < FEW_STIRRED:
            return False
        return self.share < 1 - FEW_STIRRED or math.sqrt(self.variance) > IRREGULAR * self.mean


class AllocationTracker(msgspec.Struct, kw_only=True, omit_defaults=True):
    """A hold while it is watched, and in a checkpoint. `newest`: the latest window, for what is not accumulated."""

    newest: UsageWindow
    since: float
    observed_since: float
    last: float
    covered: float = 0.0
    known: float  # end of the last window of which it is known whether it worked
    idle_since: float | None = None
    quiet_since: float  # its begin or the end of its last work, moved on by the unobserved time since
    unobserved: float = 0.0  # seconds of that
    observed_again: float = 0.0  # when the last unobserved time ended
    longest_gap: float = 0.0
    worked: bool = False
    busy: Moments = msgspec.field(default_factory=Moments)
    watts: Moments = msgspec.field(default_factory=Moments)
    idle_watts: Moments = msgspec.field(default_factory=Moments)
    idle_pcie: Moments = msgspec.field(default_factory=Moments)
    memories: Moments = msgspec.field(default_factory=Moments)
    idle_activity: IdleActivity = msgspec.field(default_factory=IdleActivity)
    least_watts: float | None = None
    memory: int | None = None
    memory_at_start: int | None = None

    @classmethod
    def begun(cls, window: UsageWindow) -> "AllocationTracker":
        """A hold that begins with this window, which `take` must still add."""
        since = window.at if window.held_since is None else min(window.held_since, window.at)
        observed_since = since if window.at - since <= bridged(window) else window.at
        return cls(
            newest=window,
            since=since,
            observed_since=observed_since,
            last=window.at,
            known=observed_since,
            quiet_since=observed_since,
        )

    def is_over(self, window: UsageWindow, watched: float) -> bool:
        """Whether a later window is of another hold. `watched`: when its node's windows before that one began."""
        if window.held_since is not None:
            return window.held_since > self.last  # else the pod is older than the gap: it was there all the time
        is_away = window.at - self.last > LONGEST_GAP_SECONDS or watched - self.last > grace(self.newest)
        return is_away and not UNIQUE.search(window.pod)

    def is_present(self, now: float) -> bool:
        """Whether it is still there."""
        return now - self.last <= grace(self.newest)

    def take(self, window: UsageWindow, seconds: float, is_work: bool | None) -> float:
        """Add a window with `seconds` that were observed. Returns the seconds of an idle time that it ended, or 0."""
        first = self.covered == 0 and self.last == window.at
        self.newest, self.last = window, window.at + window.span
        self.covered += seconds
        if window.memory is not None:
            self.memory = max(self.memory or 0, window.memory)
            if first or window.at < self.since + START_SECONDS:
                self.memory_at_start = max(self.memory_at_start or 0, window.memory)
            else:
                self.memories.add(window.memory, seconds / 2)
                self.memories.add(window.memory if window.memory_low is None else window.memory_low, seconds / 2)
        gap = self._update_idle_time(window, is_work)
        if window.busy is not None:
            self.busy.add(window.busy, seconds)
        if window.watts is not None:
            self.watts.add(window.watts, seconds)
            self.least_watts = window.watts if self.least_watts is None else min(self.least_watts, window.watts)
        if self.idle_since is not None:
            if window.watts is not None:
                self.idle_watts.add(window.watts, seconds)
            if window.busy is not None and window.busy_high is not None:
                self.idle_activity.add(window.busy, window.busy_high, seconds)
            if window.pcie is not None:
                self.idle_pcie.add(window.pcie, seconds)
        return gap

    def clip(self, now: float) -> None:
        """Move all times after `now` to `now`: the clock has been set back."""
        self.since, self.observed_since, self.last = (
            min(self.since, now),
            min(self.observed_since, now),
            min(self.last, now),
        )
        self.known, self.quiet_since = min(self.known, now), min(self.quiet_since, now)
        self.observed_again = min(self.observed_again, now)
        self.idle_since = None if self.idle_since is None else min(self.idle_since, now)

    def hold(self, now: float, longest_gap: float) -> DeviceAllocation:
        """For the rules. `longest_gap`: of its workload."""
        newest = self.newest
        return DeviceAllocation(
            pod=newest.pod,
            gpu=newest.gpu,
            node=newest.node,
            device=newest.device,
            index=newest.index,
            model=newest.model,
            profile=newest.profile,
            resource=newest.resource,
            replicas=newest.replicas,
            holders=newest.holders,
            since=self.since,
            last=self.last,
            present=self.is_present(now),
            covered=self.covered,
            idle_since=self.idle_since if self.last - self.known <= bridged(newest) else None,
            unobserved=self.unobserved if self.idle_since == self.quiet_since else 0.0,
            longest_gap=max(self.longest_gap, longest_gap),
            worked=self.worked,
            processes=newest.processes,
            busy=self.busy.value,
            watts=self.watts.value if self.idle_watts.value is None else self.idle_watts.value,
            loaded_idle_watts=self.least_watts,
            pcie=self.idle_pcie.value,
            has_requests=self.idle_activity.are_requests,
            memory=self.memory,
            memory_at_start=self.memory_at_start,
            memory_later=self.memories.mean if self.memories.weight else None,
            memory_spread=self.memories.spread,
            power_limit=newest.power_limit,
        )

    def _update_idle_time(self, window: UsageWindow, is_work: bool | None) -> float:
        if is_work is None:
            return 0.0
        away = window.at - self.known
        if away > bridged(window):
            self.unobserved = 0.0 if self.known == self.quiet_since else self.unobserved + away
            self.quiet_since, self.observed_again = self.quiet_since + away, window.at
        self.known = self.last
        if not is_work:
            is_little = self.unobserved <= UNSEEN_SHARE * (self.known - self.quiet_since)
            self.idle_since = self.quiet_since if is_little else self.observed_again
            return 0.0
        gap = max(0.0, window.at - self.quiet_since)
        self.longest_gap = max(self.longest_gap, gap)
        self.worked, self.idle_since, self.quiet_since, self.unobserved = True, None, self.last, 0.0
        self.idle_watts, self.idle_pcie, self.idle_activity = Moments(), Moments(), IdleActivity()
        return gap


def bridged(window: UsageWindow) -> float:
    """Seconds that may be unobserved in an idle time: at least one window."""
    return max(BRIDGED_SECONDS, window.span) if window.covered > 0 else BRIDGED_SECONDS


def grace(window: UsageWindow) -> float:
    """Seconds after a window's end in which the next one must have come."""
    return window.span + GRACE_SECONDS
