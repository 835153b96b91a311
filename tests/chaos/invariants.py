"""What holds whatever goes wrong: watched all along from threads of their own, and asked once more at the end."""

import contextlib
import json
import statistics
import threading
import time
from collections import Counter
from collections.abc import Callable
from http.client import HTTPConnection, HTTPException
from typing import Any, NamedTuple, Self

import psutil

from gpuwatch.agent.event_recorder import STORM_EVENTS
from gpuwatch.kube.objects import TAINT
from gpuwatch.tuning.actuation.record import SettingsRecord
from tests.chaos.node import NODE_NAMES, ChaosNode, Daemon
from tests.chaos.plan import GPUS
from tests.cluster.remediating import BUDGETS, foreign
from tests.drills.tuner_rig import LIMIT, is_above
from tests.e2e.processes import fetch
from tests.waiting import until

SCRAPE_SECONDS = 0.1
CHECK_SECONDS = 0.3
SETTLE_SECONDS = 60.0
P99_SECONDS = 0.05
SLACK = (24.0, 4, 10)
"""MiB, threads and descriptors by which a daemon at the end may differ from one at the start."""


class Scrapes:
    """Scrapes one agent all the time. What it asks while the plan has the agent dead or stopped does not count."""

    def __init__(self, daemon: Daemon, port: int) -> None:
        self.seconds: list[float] = []
        self.failures: list[str] = []
        self._daemon, self._port, self._over = daemon, port, threading.Event()
        self._thread = threading.Thread(target=self._run, name=f"scrape-{daemon.name}")

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()

    def _run(self) -> None:
        answered = 0.0  # when it began to answer after it was last disturbed
        while not self._over.wait(SCRAPE_SECONDS):
            began, clean = time.monotonic(), False
            connection = HTTPConnection("127.0.0.1", self._port, timeout=5)
            try:
                connection.request("GET", "/metrics")
                clean = connection.getresponse().read() != b""
                why = ""
            except (OSError, HTTPException) as error:
                why = repr(error)
            finally:
                connection.close()
            if self._daemon.disturbed > answered or self._daemon.paused:
                if clean and began > self._daemon.disturbed and not self._daemon.paused:
                    answered = time.monotonic()
            elif clean:
                self.seconds.append(time.monotonic() - began)
            else:
                self.failures.append(why)

    def p99(self) -> float:
        """Seconds."""
        return statistics.quantiles(self.seconds, n=100)[98] if len(self.seconds) > 1 else 0.0


class Watch:
    """Looks at Nodes, slots and setter calls all the time; `broken` is what did not hold, each thing once."""

    def __init__(self, node: ChaosNode) -> None:
        self.broken: dict[str, float] = {}
        self.tainted = self.sets = 0
        self._node, self._over, self._began = node, threading.Event(), time.monotonic()
        self._thread = threading.Thread(target=self._run, name="invariants")

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()

    def say(self, what: str) -> None:
        """Something did not hold."""
        self.broken.setdefault(what, round(time.monotonic() - self._began, 1))

    def _run(self) -> None:
        was: set[str] = set()
        while not self._over.wait(CHECK_SECONDS):
            nodes = {name: self._node.node(name) for name in NODE_NAMES.values()}
            for name, found in nodes.items():
                if foreign(found) != self._node.before[name]:
                    self.say(f"foreign change of {name}: {foreign(found)} was {self._node.before[name]}")
            tainted = {name for name, found in nodes.items() if has_taint(found)}
            self.tainted += len(tainted - was)
            was = tainted
            if len(tainted) > 1:
                self.say(f"the budget of one node is exceeded: {tainted}")
            if len(holders(self._node)) > 1:
                self.say("more than one slot is held")
            calls = self._node.driver.sets()
            self.sets = len(calls)
            for call in filter(is_above, calls):
                self.say(f"set above the original: {call}")


def has_taint(node: dict[str, Any]) -> bool:
    """Whether ours is on it."""
    return any(taint["key"] == TAINT for taint in node["spec"].get("taints", ()))


def holders(node: ChaosNode) -> list[Any]:
    """Slots of the budget that are held."""
    items = node.api.request("GET", BUDGETS).body.get("items", [])
    return [each for each in items if each["spec"].get("holderIdentity")]


def events(node: ChaosNode) -> list[dict[str, Any]] | None:
    """All XIDs that the agent recorded; None while it does not answer."""
    body = fetch(f"http://127.0.0.1:{node.port}/api/v1/events?kind=xid&limit=100000")
    return None if body is None else json.loads(body)["xids"]


def lost_or_doubled(node: ChaosNode) -> str:
    """What differs between the genuine lines of the kernel log and the events; empty: nothing.

    Of a storm, so many of one GPU and code within an hour, only the first are recorded.
    """
    found = events(node)
    if found is None:
        return "the agent does not answer"
    sequences = Counter(event["sequence"] for event in found)
    written, recorded = (Counter(node.written.get(each) for each in numbers) for numbers in (node.written, sequences))
    lost = {place: recorded[place] for place, count in written.items() if recorded[place] < min(count, STORM_EVENTS)}
    doubled = {number: count for number, count in sequences.items() if count > 1}
    foreign_lines = sequences.keys() - node.written.keys()
    if not (lost or doubled or foreign_lines):
        return ""
    return f"recorded of GPU and XID {lost}, doubled {doubled}, without a genuine line {foreign_lines}"


class Flat(NamedTuple):
    """What a daemon used after the start, and at the end."""

    name: str
    before: tuple[float, int, int]
    after: tuple[float, int, int]

    @property
    def grown(self) -> bool:
        """By more than SLACK in one of them."""
        return any(now > then + slack for now, then, slack in zip(self.after, self.before, SLACK, strict=True))

    def __str__(self) -> str:
        then, now = ("{:.0f} MiB, {} threads, {} descriptors".format(*each) for each in (self.before, self.after))
        return f"{self.name}: {then} -> {now}"


def usages(node: ChaosNode) -> dict[str, tuple[float, int, int]]:
    """Of each daemon that lives."""
    found = {}
    for name, daemon in node.daemons.items():
        with contextlib.suppress(psutil.Error):
            found[name] = daemon.usage()
    return found


def ready(node: ChaosNode) -> bool:
    """Whether every daemon lives and both agents show all GPUs."""
    pages = (fetch(f"http://127.0.0.1:{port}/metrics") or b"" for port in (node.port, node.quiet_port))
    living = all(daemon.process.poll() is None for daemon in node.daemons.values())
    return living and all(page.count(b"\ngpuwatch_gpu_temperature_celsius{") >= GPUS for page in pages)


def settle(node: ChaosNode, watch: Watch) -> None:
    """All failures are over: wait until each thing is as it was, and say what does not become so."""

    def gives_back() -> bool:
        return not any(has_taint(node.node(name)) for name in NODE_NAMES.values())

    expected: tuple[tuple[str, Callable[[], Any]], ...] = (
        ("all daemons are ready", lambda: ready(node)),
        ("every event is there once", lambda: not lost_or_doubled(node)),
        ("no taint is left", gives_back),
        ("no slot is held", lambda: not holders(node)),
    )
    for what, holds in expected:
        try:
            until(holds, what, SETTLE_SECONDS, step=0.2)
        except AssertionError as late:
            watch.say(f"{late}: {lost_or_doubled(node) if 'event' in what else ''}")


def knobs_left(node: ChaosNode) -> str:
    """What tuner and guard left set when both have ended; empty: nothing."""
    left = [
        f"GPU {gpu}: {node.driver.get(gpu, 'power_limit_mw')} mW, clock {node.driver.get(gpu, 'locked_max_mhz')}"
        for gpu in range(GPUS)
        if node.driver.get(gpu, "power_limit_mw") != LIMIT or node.driver.get(gpu, "locked_max_mhz") is not None
    ]
    recorded = SettingsRecord(node.folder / "tuner").read().settings
    return "; ".join([*left, *(f"recorded: {each}" for each in recorded)])
