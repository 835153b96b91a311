"""Keeps how each outside interface is doing, for `source_*` metrics and `status`."""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from gpuwatch.model.clock import Clock
from gpuwatch.model.snapshot import SourceStatus


class SourceHealth:
    """One row per source, replaced as a whole, so that any thread may read it."""

    def __init__(self, name: str, clock: Clock, off: str | None = None) -> None:
        self._clock = clock
        self.status = SourceStatus(name=name, up=None, reason=off or "not asked yet")

    def switch_off(self, reason: str) -> None:
        """The source is not there to be asked, and that is no failure."""
        before = self.status
        self.status = SourceStatus(
            name=before.name, up=None, reason=reason, last_success=before.last_success, failures=before.failures
        )

    @contextmanager
    def asking(self, *failures: type[Exception], describe: Callable[[Exception], str] = str) -> Iterator[None]:
        """Time one use of the source; the named failures are counted and kept, not raised."""
        start, before = time.perf_counter(), self.status
        try:
            yield
        except failures as error:
            self.status = SourceStatus(
                name=before.name,
                up=False,
                reason=describe(error),
                duration_seconds=time.perf_counter() - start,
                last_success=before.last_success,
                failures=before.failures + 1,
            )
        else:
            self.status = SourceStatus(
                name=before.name,
                up=True,
                duration_seconds=time.perf_counter() - start,
                last_success=self._clock.time(),
                failures=before.failures,
            )
