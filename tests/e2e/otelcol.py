"""An OpenTelemetry collector, built once from its modules, and a server to which it sends metrics by OTLP."""

import contextlib
import json
import sys
import threading
from collections.abc import Iterator, Sequence
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import yaml

from tests.deploy.tools import without
from tests.e2e.processes import ROOT, running
from tests.gobuild import GoModule, NoBinaries, say

CONFIGURATIONS = ROOT / "deploy/opentelemetry"
MODULE = GoModule(
    "otelcol",
    Path(__file__).parent / "collector",
    {"otelcol": "./otelcol"},
    # of the many ways to discover targets the one that is used
    tags=("remove_all_sd", "enable_kubernetes_sd"),
)
Told = set[tuple[str, frozenset[tuple[str, str]]]]


def otelcol() -> Path:
    """The program; built where there is none, 5 CPU minutes. Skips the test when it cannot be; in CI fails it."""
    try:
        return MODULE.get()["otelcol"]
    except NoBinaries as none:
        without(str(none))


class OtlpServer:
    """What has arrived: metric names with the attributes of their data points, and those of resources."""

    def __init__(self) -> None:
        self.points: Told = set()
        self.resources: set[frozenset[tuple[str, str]]] = set()
        self.monotonic: set[str] = set()
        """Names of counters."""

    def take(self, message: dict[str, Any]) -> None:
        """One request, as JSON."""
        for resource in message["resourceMetrics"]:
            self.resources.add(_attributes(resource["resource"]))
            for metric in (metric for scope in resource["scopeMetrics"] for metric in scope["metrics"]):
                (data,) = (metric[kind] for kind in ("gauge", "sum") if kind in metric)
                self.points |= {(metric["name"], _attributes(point)) for point in data["dataPoints"]}
                if data.get("isMonotonic"):
                    self.monotonic.add(metric["name"])


def _attributes(found: dict[str, Any]) -> frozenset[tuple[str, str]]:
    return frozenset((each["key"], each["value"]["stringValue"]) for each in found.get("attributes", ()))


@contextlib.contextmanager
def otlp_server() -> Iterator[tuple[str, OtlpServer]]:
    """(URL, what arrives there)"""
    arrived = OtlpServer()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            assert self.path == "/v1/metrics"
            arrived.take(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
            self.send_response(200)
            self.send_header("Content-Type", "application/json")
            self.end_headers()
            self.wfile.write(b"{}")

        def log_message(self, format: str, *args: Any) -> None:
            """Say nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}", arrived
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


@contextlib.contextmanager
def collector(
    program: Path, place: Path, config: dict[str, Any], remote_write: str, otlp: str, env: dict[str, str]
) -> Iterator[None]:
    """A collector with this configuration, but with these receivers and every second."""
    place.mkdir(parents=True, exist_ok=True)
    for job in config["receivers"]["prometheus"]["config"]["scrape_configs"]:
        job["scrape_interval"] = "1s"
    file = place / "otelcol.yaml"
    file.write_text(yaml.safe_dump(config))
    options = {
        "exporters.prometheusremotewrite.endpoint": f"{remote_write}/api/v1/write",
        "exporters.otlphttp.endpoint": otlp,
        "exporters.otlphttp.encoding": "json",
        "exporters.otlphttp.compression": "none",
        "service.telemetry.metrics.level": "none",  # else it takes a port
    }
    command: Sequence[str] = [
        str(program),
        f"--config={file}",
        *(f"--set={key}={value}" for key, value in options.items()),
    ]
    with running(command, place / "otelcol.log", env):
        yield


def main() -> None:
    """Get the program and print where it is."""
    try:
        print(*MODULE.get().values(), sep="\n")
    except NoBinaries as none:
        say(str(none))
        sys.exit(1)


if __name__ == "__main__":
    main()
