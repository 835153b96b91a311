"""How long the groups of rules take, evaluated as they are, every SCRAPE seconds.

The past is in a block. The last minutes, and those that are to come while rules are measured, are written ahead by
remote write: what scrapes cost is not in it.
"""

import http.client
import json
import signal
import statistics
import struct
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from tests.bench.measure import cpu_seconds, own_memory
from tests.bench.scale import fleet
from tests.bench.scale.boards import Query, ask
from tests.bench.scale.fleet import SCRAPE, Template
from tests.bench.scale.tsdb import Labels, uvarint
from tests.e2e.backfilled import serving
from tests.e2e.processes import Prometheus
from tests.promql import RULES, metrics, rule_groups

IN_MEMORY = 660
"""Seconds of which Prometheus has samples in memory: all that most rules read. What is older is in a block."""
EVERY = 30
"""Seconds between those samples."""
BATCH = 4000
"""Series of one request."""


class Group(NamedTuple):
    """CPU seconds of its expressions, each asked alone; the seconds that evaluations took, all groups at once."""

    name: str
    rules: int
    cpu: float
    seconds: list[float]

    @property
    def median(self) -> float:
        return statistics.median(self.seconds)


def read_by_rules(template: Template) -> bool:
    """Whether a rule reads it, and Prometheus scrapes it."""
    return template.name in READ and ":" not in template.name


READ = frozenset(name for group in rule_groups() for rule in group["rules"] for name in metrics(rule["expr"]))


class Live:
    """What agents would bring with each scrape: the last value of each series, and of those that vary one beside it."""

    def __init__(self, templates: list[Template], gpus: int, end: int) -> None:
        self._nodes = list(fleet.copies(templates, gpus))
        self._by_node: dict[str, list[Template]] = {}
        for each in templates:
            if read_by_rules(each) and each.values[-1] is not None:
                self._by_node.setdefault(each.node, []).append(each)
        self._labels = [
            (template, _spelt(fleet.relabelled(template, number)))
            for name, number in self._nodes
            for template in self._by_node[name]
        ]
        self._end = end

    @property
    def series(self) -> int:
        return len(self._labels)

    def requests(self, at: int) -> Iterator[bytes]:
        """The bodies that bring the samples of that second."""
        stamp = b"\x10" + uvarint(at * 1000)
        values = {id(t): self._value(t, at) for found in self._by_node.values() for t in found}
        samples = {key: _field(2, b"\x09" + struct.pack("<d", value) + stamp) for key, value in values.items()}
        for begin in range(0, len(self._labels), BATCH):
            part = self._labels[begin : begin + BATCH]
            yield snappy(b"".join(_field(1, labels + samples[id(template)]) for template, labels in part))

    def _value(self, template: Template, at: int) -> float:
        last, before = template.values[-1] or 0.0, template.values[-2]
        if template.is_time:
            return self._end - (fleet.END - last) * fleet.STRETCH + (at - self._end if last > fleet.END - 60 else 0)
        if before is None or before == last:
            return last
        rise = (last - before) / (fleet.STRETCH * fleet.PAGE_STEP)
        return last + rise * (at - self._end) if template.name.endswith("_total") else (last, before)[at // SCRAPE % 2]


def _spelt(labels: Labels) -> bytes:
    return b"".join(_field(1, _field(1, name.encode()) + _field(2, value.encode())) for name, value in labels)


def _field(number: int, data: bytes) -> bytes:
    """A field of a protobuf message that has bytes."""
    return bytes((number << 3 | 2,)) + uvarint(len(data)) + data


def snappy(data: bytes) -> bytes:
    """As one needs it where nothing has to be small: literals only."""
    parts = [uvarint(len(data))]
    for begin in range(0, len(data), 1 << 16):
        part = data[begin : begin + (1 << 16)]
        parts += [b"\xf4", struct.pack("<H", len(part) - 1), part]
    return b"".join(parts)


class Measured(NamedTuple):
    """What came of it. `cpu`: seconds of Prometheus in each second, for all it does."""

    past: int
    series: int
    groups: list[Group]
    cpu: float
    memory: float


def measure(place: Path, templates: list[Template], gpus: int, seconds: int) -> Measured:
    """Rules are evaluated for so many seconds."""
    end = int(time.time()) // SCRAPE * SCRAPE - IN_MEMORY
    made = fleet.write(place, [each for each in templates if each.name in READ], gpus, end)
    live = Live(templates, gpus, end)
    settings = {"global": {"evaluation_interval": f"{SCRAPE}s"}}
    evaluations: dict[tuple[str, str], float] = {}
    with serving(place, "--web.enable-remote-write-receiver", settings=settings) as served:
        alone = _alone(served, end)
        at = end + EVERY
        while at < time.time() + seconds:
            _send(served, live.requests(at))
            at += EVERY
        (place / "prometheus.json").write_text(json.dumps(settings | {"rule_files": [str(RULES)]}))
        served.process.send_signal(signal.SIGHUP)
        before, begin = cpu_seconds(served.process.pid), time.monotonic()
        while time.monotonic() < begin + seconds:
            evaluations |= _evaluations(served)
            time.sleep(SCRAPE / 5)
        return Measured(
            past=made["numSeries"],
            series=live.series,
            groups=_groups(evaluations, alone),
            cpu=(cpu_seconds(served.process.pid) - before) / (time.monotonic() - begin),
            memory=own_memory(served.process.pid),
        )


def _send(served: Prometheus, bodies: Iterator[bytes]) -> None:
    connection = http.client.HTTPConnection(served.url.removeprefix("http://"), timeout=120)
    for body in bodies:
        connection.request("POST", "/api/v1/write", body, {"Content-Encoding": "snappy"})
        answer = connection.getresponse()
        said = answer.read()
        assert answer.status == 204, said
    connection.close()


def _evaluations(served: Prometheus) -> dict[tuple[str, str], float]:
    """(group, time) -> the seconds of the last evaluation."""
    with urllib.request.urlopen(f"{served.url}/api/v1/rules", timeout=120) as answer:
        groups = json.load(answer)["data"]["groups"]
    return {(each["name"], each["lastEvaluation"]): each["evaluationTime"] for each in groups}


def _alone(served: Prometheus, end: int) -> dict[str, float]:
    """CPU seconds of each group's expressions, the lesser of two."""
    found: dict[str, float] = {}
    for group in rule_groups():
        asked = [Query(group["name"], rule["expr"], 0, None) for rule in group["rules"]]
        found[group["name"]] = sum(min(ask(served, query, end).cpu for _ in range(2)) for query in asked)
    return found


def _groups(evaluations: dict[tuple[str, str], float], alone: dict[str, float]) -> list[Group]:
    """Without the first evaluation of each, which reads what nobody has read before."""
    found = []
    for group in rule_groups():
        taken = [seconds for (name, _), seconds in sorted(evaluations.items()) if name == group["name"]]
        found.append(Group(group["name"], len(group["rules"]), alone[group["name"]], taken[1:] or taken))
    return found
