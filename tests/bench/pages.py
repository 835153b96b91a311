"""Serves one big page over HTTP, by gpuwatch or by prometheus_client: `python -m tests.bench.pages WHO PORT SERIES`."""

import itertools
import sys
import threading
import time
from collections.abc import Generator

import msgspec
from prometheus_client import CollectorRegistry, start_http_server

from gpuwatch.agent.pages import routes
from gpuwatch.config import MetricsConfig
from gpuwatch.http.server import HttpServer
from gpuwatch.metrics.native import collect
from gpuwatch.metrics.page_cache import PageCache
from gpuwatch.model.event import EventQuery
from gpuwatch.model.view import Events, View
from tests.bench.bench_exposition import CONFIG, Peer
from tests.model.view_factory import full_view

INTERVAL = 1.0


def views(series: int) -> list[View]:
    """Two Views, one after the other, of as many GPUs as make so many series."""
    for gpus in itertools.count(8):
        if sum(len(family.samples) for family in collect(full_view(gpus), CONFIG)) >= series:
            return [full_view(gpus, seed=seed) for seed in (1, 2)]
    raise AssertionError("unreachable")


class Stage:
    """As much of an agent as its pages need."""

    profiles = ("native",)

    def __init__(self) -> None:
        self.board = PageCache(MetricsConfig(processes=True), node="bench")

    def ready(self) -> str | None:
        return None

    def view(self) -> View | None:
        return None

    def wedged(self) -> str | None:
        return None

    def events_json(self, _: EventQuery) -> Generator[bytes]:
        yield msgspec.json.encode(Events())


def serve_gpuwatch(port: int, alternating: "itertools.cycle[View]") -> None:
    """The agent's board and server; a new View every interval."""
    stage = Stage()
    HttpServer(routes(stage), listen=f"127.0.0.1:{port}").start()
    while True:
        stage.board.publish(next(alternating))
        time.sleep(INTERVAL)


def serve_peer(port: int, alternating: "itertools.cycle[View]") -> None:
    """prometheus_client's own server over a custom collector of the same View."""
    registry, peer = CollectorRegistry(), Peer(next(alternating))
    registry.register(peer)
    start_http_server(port, "127.0.0.1", registry)
    while True:
        peer.view = next(alternating)
        time.sleep(INTERVAL)


def main() -> None:
    """Serve until killed."""
    who, port, series = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
    alternating = itertools.cycle(views(series))
    serve = serve_gpuwatch if who == "gpuwatch" else serve_peer
    threading.Thread(target=serve, args=(port, alternating)).start()


if __name__ == "__main__":
    main()
