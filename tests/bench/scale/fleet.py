"""A fleet of N GPUs out of the simulated nodes of dashboards.history: each node has the series of one of those.

Two hours of pages, a minute apart, are spread over six, 15 seconds apart. What takes many values goes straight from one
to the next, so each sample differs from the one before; what takes few stays until it changes.
"""

import json
import re
import urllib.parse
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from dashboards.history import blocks
from dashboards.history.fleet import BEGIN, END, NODES
from dashboards.history.fleet import STEP as PAGE_STEP
from dashboards.history.server import prometheus
from tests.bench.scale.tsdb import BlockWriter, Labels

SCRAPE = 15
"""Seconds between samples, and between evaluations of rules."""
RANGE = 6 * 3600
"""Seconds of the past that all series have; dashboards open with it."""
DAY = 86400
LONGER = {
    "node:gpuwatch_target:known": (SCRAPE, DAY),
    "gpuwatch_remediator_quarantined": (SCRAPE, DAY),
    "cluster:gpuwatch_nodes:count": (SCRAPE, 7 * DAY),
}
"""Series of which rules read more than six hours: seconds between samples, and how long."""
COST = re.compile(
    r"(owner|model|namespace:gpuwatch_recommendation|cluster:gpuwatch_tuner|workload:gpuwatch_gpu_energy)\w*:"
)
COST_STEP, COST_RANGE = 300, 30 * DAY
"""The records of the cost group, of which a dashboard reads a month."""
FEW = 8
TIMES = re.compile(r".*_(timestamp|start_time)_seconds")
STRETCH = RANGE / (END - BEGIN)
OWN = frozenset(
    {"node", "instance", "uuid", "serial", "pod", "pod_uid", "name", "owner", "workload", "mig_uuid", "boot_id"}
)
"""Labels whose values no two nodes share."""
NAMESPACES = 20
"""In how many groups of namespaces the nodes are."""

USUAL = ("gpu-west-01", "gpu-east-04", "gpu-west-01", "gpu-east-03", "gpu-west-01")
UNUSUAL = tuple(node.name for node in NODES if node.name not in USUAL)
ONE_IN = 16
"""So many nodes have one among them that lives through a fault."""


class Template(NamedTuple):
    """A series of a simulated node: labels without the name's, its value each minute, None where it has none."""

    name: str
    labels: dict[str, str]
    values: tuple[float | None, ...]

    @property
    def node(self) -> str:
        """Empty for a series of the whole fleet."""
        return self.labels.get("node", "")

    @property
    def is_gpu(self) -> bool:
        return self.name == "gpuwatch_gpu_info"

    @property
    def is_time(self) -> bool:
        return bool(TIMES.fullmatch(self.name))

    @property
    def pace(self) -> tuple[int, int]:
        """Seconds between samples, and of the past that it has."""
        return (COST_STEP, COST_RANGE) if COST.match(self.name) else LONGER.get(self.name, (SCRAPE, RANGE))


def templates() -> list[Template]:
    """All series of the history, real pages and what the recording rules make of them."""
    steps = round((END - BEGIN) / PAGE_STEP) + 1
    found = []
    with prometheus(blocks.get()) as url:
        asked = urllib.parse.urlencode({"query": f'{{__name__=~".+"}}[{END - BEGIN + 1:.0f}s]', "time": END})
        with urllib.request.urlopen(f"{url}/api/v1/query?{asked}", timeout=120) as answer:
            series = json.load(answer)["data"]["result"]
    for each in series:
        values: list[float | None] = [None] * steps
        for at, text in each["values"]:
            values[min(round((at - BEGIN) / PAGE_STEP), steps - 1)] = float(text)
        name = each["metric"].pop("__name__")
        if ":" in name:  # groups have moments of their own
            values = list(_held(values, COST_STEP // round(PAGE_STEP) if COST.match(name) else 2))
        found.append(Template(name, each["metric"], tuple(values)))
    return found


def _held(values: list[float | None], steps: int) -> Iterator[float | None]:
    """Each value for as many steps as there are until the next."""
    for number in range(len(values)):
        yield next((v for v in reversed(values[max(0, number - steps + 1) : number + 1]) if v is not None), None)


def spread(template: Template, end: int) -> tuple[range, list[float | None]]:
    """Its samples until `end`, in milliseconds."""
    step, span = template.pace
    times = range((end - span) * 1000, end * 1000 + 1, step * 1000)
    values = template.values
    if template.is_time:
        values = tuple(None if v is None else end - (END - v) * STRETCH for v in values)
    straight = len(set(values)) > FEW
    found: list[float | None] = []
    for at in times:
        place = max(0.0, (len(values) - 1) * (1 - (end - at / 1000) / RANGE))
        before, now = int(place), values[int(place)]
        after = values[before + 1] if before + 1 < len(values) else None
        found.append(
            now + (after - now) * (place - before) if straight and now is not None and after is not None else now
        )
    return times, found


def copies(templates: list[Template], gpus: int) -> Iterator[tuple[str, int]]:
    """(simulated node, number) of each node, until there are so many GPUs."""
    has = {name: sum(each.is_gpu for each in templates if each.node == name) for name in (*USUAL, *UNUSUAL)}
    number = total = 0
    while total < gpus:
        turn, place = divmod(number, ONE_IN)
        name = UNUSUAL[turn % len(UNUSUAL)] if place == ONE_IN - 1 else USUAL[place % len(USUAL)]
        yield name, number
        number, total = number + 1, total + has[name]


def relabelled(template: Template, number: int) -> Labels:
    """The labels of its counterpart on the node of that number."""
    labels = {key: f"r{number}-{text}" if key in OWN else text for key, text in template.labels.items()}
    for key in labels.keys() & {"namespace"}:
        labels[key] += f"-{number % NAMESPACES}"
    return tuple(sorted({**labels, "__name__": template.name}.items()))


def write(place: Path, templates: list[Template], gpus: int, end: int) -> dict[str, int]:
    """A block of the past of a fleet; how many series, chunks and samples it has."""
    block = BlockWriter(place)
    by_node: dict[str, list[tuple[Template, bytes]]] = {}
    entries: dict[object, bytes] = {}  # most series never change, and many are alike
    for each in templates:
        alike = (each.values, each.pace, each.is_time)
        if alike not in entries:
            entries[alike] = block.chunks(*spread(each, end))
        by_node.setdefault(each.node, []).append((each, entries[alike]))
    return block.close(_series(by_node, list(copies(templates, gpus))))


def _series(
    by_node: dict[str, list[tuple[Template, bytes]]], nodes: list[tuple[str, int]]
) -> Iterator[tuple[Labels, bytes]]:
    for name, number in nodes:
        for template, entry in by_node[name]:
            yield relabelled(template, number), entry
    whole: dict[Labels, bytes] = {}
    for number in range(min(NAMESPACES, len(nodes))):
        whole |= {relabelled(template, number): entry for template, entry in by_node.get("", ())}
    yield from whole.items()
