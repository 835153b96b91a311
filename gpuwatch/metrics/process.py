"""Metrics of gpuwatch's own process: build, web server, CPU and memory; available before the first snapshot."""

import os
import platform
from collections.abc import Callable
from functools import partial
from pathlib import Path
from resource import RLIMIT_NOFILE, getpagesize, getrlimit
from typing import Any, NamedTuple

import gpuwatch
from gpuwatch.http.server import HttpStats
from gpuwatch.metrics.metric import Family, Metric, Parts, Type, label_text, node
from gpuwatch.storage.store import StoreStats

_CPU_TIMES, _START_TIME, _VIRTUAL_SIZE, _RESIDENT_PAGES = (14, 15), 22, 23, 24
_TICKS = os.sysconf("SC_CLK_TCK")
_MAJOR, _MINOR, _PATCH = platform.python_version_tuple()
_PYTHON_LABELS = label_text(
    version=platform.python_version(),
    implementation=platform.python_implementation(),
    major=_MAJOR,
    minor=_MINOR,
    patchlevel=_PATCH,
)
_PYTHON = Family("python_info", "gauge", "Python platform information", (), [((_PYTHON_LABELS, ()), 1)])


class SelfState(NamedTuple):
    """The input of the rows."""

    http: HttpStats | None
    store: StoreStats | None
    dropped: int


Row = Metric[SelfState]
_row = partial(Row, scope="node")


def _http(rows: Callable[[HttpStats], Parts]) -> Callable[[SelfState], list[Any]]:
    """Values of the web server, where there is one."""
    return node(lambda state: rows(state.http) if state.http is not None else ())


def _store(rows: Callable[[StoreStats], Parts]) -> Callable[[SelfState], list[Any]]:
    """Values of the store, where one is configured."""
    return node(lambda state: rows(state.store) if state.store is not None and state.store.up is not None else ())


SELF_METRICS: tuple[Row, ...] = (
    _row(
        "build_info",
        "Version of gpuwatch and of its Python.",
        node(lambda _: [((gpuwatch.__version__, platform.python_version()), 1)]),
        ("version", "python"),
    ),
    _row(
        "series_dropped",
        "Series left out of this page because of `metrics.max_series`.",
        node(lambda s: [((), s.dropped)]),
    ),
    _row(
        "http_requests_total",
        "Responses by status.",
        _http(lambda stats: (((str(code),), count) for code, count in sorted(stats.requests.items()))),
        ("code",),
    ),
    _row(
        "http_rejected_requests_total",
        "Refusals by reason.",
        _http(lambda stats: (((reason,), count) for reason, count in stats.rejected.items())),
        ("reason",),
    ),
    _row("http_handler_errors_total", "Pages that failed.", _http(lambda s: [((), s.handler_errors)])),
    _row("http_open_connections", "Connections open now.", _http(lambda s: [((), s.open_connections)])),
    _row(
        "web_config_reload_failures_total",
        "Changes of the web configuration or its certificates that could not be used.",
        _http(lambda s: [((), s.reload_failures)]),
    ),
    _row("store_up", "Whether events are written to the disk.", _store(lambda s: [((), s.up)])),
    _row(
        "store_lost_records_total",
        "Events that were lost because they could not be written.",
        _store(lambda s: [((), s.lost)]),
    ),
    _row(
        "store_set_aside_total",
        "Store files that could not be used and were set aside.",
        _store(lambda s: [((), s.set_aside)]),
    ),
)
"""Never stale, never dropped. The page also has `process_*` and `python_info` of every Prometheus client library."""


class SelfMetrics:
    """Families about this process, as of the call. `http` gives the web server's counts, `store` the store's."""

    def __init__(
        self, http: Callable[[], HttpStats] | None = None, store: Callable[[], StoreStats] | None = None
    ) -> None:
        self._http, self._store = http, store
        boot = next(line for line in Path("/proc/stat").read_text().splitlines() if line.startswith("btime "))
        # read once: a wall clock that is set moves the boot time, but the process did not restart
        self._started = int(boot.split()[1]) + _stat()[_START_TIME] / _TICKS

    def families(self, dropped: int) -> list[Family]:
        """Gpuwatch's own rows, then the standard ones of every process."""
        state = SelfState(self._http() if self._http else None, self._store() if self._store else None, dropped)
        own = [row.family(state) for row in SELF_METRICS]
        stat = _stat()
        # under the names that Prometheus requires of client libraries
        values: tuple[tuple[str, Type, str, float], ...] = (
            ("virtual_memory_bytes", "gauge", "Virtual memory size in bytes.", stat[_VIRTUAL_SIZE]),
            (
                "resident_memory_bytes",
                "gauge",
                "Resident memory size in bytes.",
                stat[_RESIDENT_PAGES] * getpagesize(),
            ),
            ("start_time_seconds", "gauge", "Start time of the process since unix epoch in seconds.", self._started),
            (
                "cpu_seconds_total",
                "counter",
                "Total user and system CPU time spent in seconds.",
                sum(stat[field] for field in _CPU_TIMES) / _TICKS,
            ),
            ("open_fds", "gauge", "Number of open file descriptors.", len(os.listdir("/proc/self/fd"))),
            ("max_fds", "gauge", "Maximum number of open file descriptors.", getrlimit(RLIMIT_NOFILE)[0]),
        )
        process = [Family(f"process_{name}", kind, text, (), [(("", ()), value)]) for name, kind, text, value in values]
        return [*own, *process, _PYTHON]


def _stat() -> dict[int, int]:
    """The fields of /proc/self/stat by their number in proc(5), from the fourth on: the name may have spaces."""
    fields = Path("/proc/self/stat").read_bytes().rpartition(b")")[2].split()
    return {number: int(field) for number, field in enumerate(fields[1:], start=4)}
