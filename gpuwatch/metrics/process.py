"""What gpuwatch says about its own process: build, web server, CPU and memory; there before the first snapshot is."""

import platform
from collections.abc import Callable, Iterable
from functools import partial
from typing import Any, NamedTuple

import gpuwatch
from gpuwatch.http.server import HttpStats
from gpuwatch.metrics.metric import Family, Metric, Parts, label_text, node
from gpuwatch.storage.store import StoreStats


class SelfState(NamedTuple):
    """What the rows read."""

    http: HttpStats | None
    store: StoreStats | None
    dropped: int


Row = Metric[SelfState]
_row = partial(Row, scope="node")


def _http(rows: Callable[[HttpStats], Parts]) -> Callable[[SelfState], list[Any]]:
    """Values of the web server, where there is one."""
    return node(lambda state: rows(state.http) if state.http is not None else ())


def _store(rows: Callable[[StoreStats], Parts]) -> Callable[[SelfState], list[Any]]:
    """Values of the store, where something is meant to be kept."""
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
"""Never stale, never dropped. `process_*` and `python_info` of prometheus-client come beside them."""


class SelfMetrics:
    """Families about this process, as of the call. `http` gives the web server's counts, `store` the store's."""

    def __init__(
        self, http: Callable[[], HttpStats] | None = None, store: Callable[[], StoreStats] | None = None
    ) -> None:
        self._http, self._store = http, store
        # loaded when a page is wanted, and before the first scrape: it costs 40 ms and 2 MiB
        from prometheus_client.platform_collector import PlatformCollector
        from prometheus_client.process_collector import ProcessCollector

        self._collectors = [ProcessCollector(registry=None), PlatformCollector(registry=None)]

    def families(self, dropped: int) -> list[Family]:
        """Gpuwatch's own rows, then the standard ones of every process."""
        state = SelfState(self._http() if self._http else None, self._store() if self._store else None, dropped)
        own = [row.family(state) for row in SELF_METRICS]
        return own + [_family(each) for collector in self._collectors for each in collector.collect()]


def _family(family: Any) -> Family:
    """A family of prometheus-client in our terms; its labels become the subject."""
    samples: Iterable[Any] = family.samples
    return Family(
        name=next(iter(samples)).name,
        type=family.type,
        help=family.documentation,
        labels=(),
        samples=[((label_text(**sample.labels), ()), sample.value) for sample in samples],
    )
