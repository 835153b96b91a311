"""A real Alertmanager with the example's routes and inhibition, and a webhook that remembers what it was told."""

import contextlib
import json
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, NamedTuple

import yaml

from tests import fast_yaml
from tests.e2e.processes import fetch, running
from tests.ports import free_port
from tests.waiting import until

ROOT = Path(__file__).parent.parent.parent
EXAMPLE = ROOT / "alerts" / "alertmanager.example.yaml"
WAITS = {"10s": "6s", "30s": "9s"}
"""The example's group_wait -> that of the tests. What an alert waits, the one that holds it back may come later: on a
machine that is busy two GPUs of a hung driver are found seconds apart.
"""


class Alert(NamedTuple):
    """What tells alerts apart in the tests: `gpu` is empty for one about the whole node."""

    name: str
    node: str
    gpu: str = ""


class Notice(NamedTuple):
    """One alert within one message to the webhook; `at` is monotonic."""

    at: float
    receiver: str
    status: str  # firing or resolved
    alert: Alert


def alert_of(labels: dict[str, str]) -> Alert:
    """From an alert's labels."""
    return Alert(labels["alertname"], labels.get("node", ""), labels.get("gpu", ""))


class Alertmanager:
    """A running one: what reached the webhook, and what inhibition kept back."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.notices: list[Notice] = []
        self.held_back: dict[Alert, set[str]] = {}
        """Alert -> names of those that kept it back."""
        self._stopping = threading.Event()

    def first(self, alert: Alert, status: str = "firing", after: float = 0.0) -> float | None:
        """When the webhook first heard of it."""
        times = (each.at for each in self.notices if (each.alert, each.status) == (alert, status) and each.at >= after)
        return min(times, default=None)

    def notified(self, status: str = "firing") -> set[Alert]:
        """All that the webhook has heard of."""
        return {each.alert for each in self.notices if each.status == status}

    def take(self, receiver: str, message: dict[str, Any]) -> None:
        """A message arrived at the webhook."""
        at = time.monotonic()
        self.notices += [
            Notice(at, receiver, found["status"], alert_of(found["labels"])) for found in message["alerts"]
        ]

    def watch(self) -> None:
        """Note what is inhibited, until `stop`."""
        while not self._stopping.wait(0.5):
            found = json.loads(fetch(f"{self.url}/api/v2/alerts") or b"[]")
            names = {each["fingerprint"]: each["labels"]["alertname"] for each in found}
            for each in found:
                by = {names[source] for source in each["status"]["inhibitedBy"] if source in names}
                if by:
                    self.held_back.setdefault(alert_of(each["labels"]), set()).update(by)

    def stop(self) -> None:
        """End `watch`."""
        self._stopping.set()


def quick(webhook: str, inhibits: bool) -> dict[str, Any]:
    """The example with shorter waits, and the test's webhook in place of its receivers. Inhibition is as it stands, or
    there is none.
    """
    config = fast_yaml.load(EXAMPLE.read_text())
    if not inhibits:
        del config["inhibit_rules"]
    _hurry(config["route"])
    for receiver in config["receivers"]:
        for hook in receiver.get("webhook_configs", ()):
            hook["url"] = f"{webhook}/{receiver['name']}"
    found: dict[str, Any] = config
    return found


def _hurry(route: dict[str, Any]) -> None:
    route["group_interval"] = "1s"
    if "group_wait" in route:
        route["group_wait"] = WAITS[route["group_wait"]]
    for inner in route.get("routes", ()):
        _hurry(inner)


@contextlib.contextmanager
def alertmanager(directory: Path, *, inhibits: bool = True) -> Iterator[Alertmanager]:
    """One with a database and a webhook of its own."""
    directory.mkdir(parents=True, exist_ok=True)
    port = free_port()
    found = Alertmanager(f"http://127.0.0.1:{port}")
    file = directory / "alertmanager.yaml"
    with _webhook(found) as webhook:
        file.write_text(yaml.safe_dump(quick(webhook, inhibits)))
        command = ["prometheus-alertmanager", f"--config.file={file}", f"--storage.path={directory / 'data'}"]
        command += [f"--web.listen-address=127.0.0.1:{port}", "--cluster.listen-address=", "--log.level=warn"]
        with running(command, directory / "alertmanager.log"):
            until(lambda: fetch(f"{found.url}/-/ready"), "Alertmanager is ready")
            watcher = threading.Thread(target=found.watch)
            watcher.start()
            try:
                yield found
            finally:
                found.stop()
                watcher.join()


@contextlib.contextmanager
def _webhook(found: Alertmanager) -> Iterator[str]:
    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            found.take(self.path.strip("/"), json.loads(body))
            self.send_response(200)
            self.end_headers()

        def log_message(self, format: str, *args: Any) -> None:
            """Say nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
