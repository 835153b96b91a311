"""From what a Prometheus had of a stretch of time to Windows: the fleet's way into the ledger.

A query gives one value for each step and device; who held the device is a series of its own, counted in samples. A
device's figures are a holder's where he was alone on it all through the step; else only what the driver told of his own
processes, or nothing, if the device did nothing.
"""

from collections.abc import Iterator, Mapping, Sequence
from statistics import median
from typing import Any, NamedTuple

from gpuwatch.model.work import WorkClass, WorkloadKey
from gpuwatch.rightsizing.model.mig_profiles import instance
from gpuwatch.rightsizing.model.usage import Window
from gpuwatch.rightsizing.usage.allocation import IDLE_BUSY
from gpuwatch.rightsizing.usage.mig_slowdown import of_whole_gpu

Device = tuple[str, str]
"""Uuid of the GPU, and number of the GPU instance or nothing."""

Row = Sequence[float | None]
Grid = Mapping[Device, Row]
"""Values by step; None: nothing known."""

OF_DEVICE = (
    "busy",
    "busy_high",
    "busy_low",
    "sm",
    "sm_high",
    "dram",
    "dram_high",
    "pipe",
    "memory",
    "memory_low",
    "memory_total",
)
"""Readings of a GPU or a MIG instance, each a query of a dialect."""

OF_BOARD = ("pcie", "watts", "power_limit", "processes")
"""Readings of the physical GPU, whatever it is cut into."""


class GpuRow(NamedTuple):
    """One GPU; `gpu` is its NVML index. `samples`: how often it was scraped, by step, from the step before the first
    to the one after the last.
    """

    node: str
    gpu: int | None
    model: str | None
    samples: Row


class HolderRow(NamedTuple):
    """One container on one device. `samples` as of `GpuRow`."""

    device: Device
    namespace: str
    pod: str
    container: str
    profile: str | None
    resource: str | None
    samples: Row


class PodFacts(NamedTuple):
    """What Kubernetes says of a container."""

    key: WorkloadKey
    said: WorkClass | None = None
    autotune: str | None = None
    started: float | None = None


class Chunk(NamedTuple):
    """A stretch of time: steps of `step` seconds, the first of which begins at `start`.

    `grids`: by reading (OF_DEVICE, OF_BOARD); readings of physical GPUs have no instance in their
    key. `own`: memory (bytes) and busy (sum over samples) by holder: (device, namespace, pod, container).
    """

    start: float
    step: float
    steps: int
    gpus: Mapping[str, GpuRow]
    holders: Sequence[HolderRow]
    grids: Mapping[str, Grid]
    own_memory: Mapping[tuple[Device, str, str, str], Row]
    own_busy: Mapping[tuple[Device, str, str, str], Row]
    throttled: Mapping[tuple[str, str, str], Row]
    pods: Mapping[tuple[str, str, str], PodFacts]


class _Line(NamedTuple):
    """A holder with everything it needs, looked up once for all steps."""

    row: HolderRow
    facts: PodFacts
    gpu: GpuRow
    interval: float
    crowd: Sequence[float]
    device: dict[str, Row]
    board: dict[str, Row]
    own_memory: Row
    own_busy: Row
    throttled: Row
    first: int
    last: int


def windows(chunk: Chunk) -> Iterator[Window]:
    """All Windows of the chunk, in time order."""
    lines = list(_lines(chunk))
    for number in range(chunk.steps):
        for line in lines:
            if line.first <= number + 1 <= line.last:
                yield _window(chunk, line, number)


def _lines(chunk: Chunk) -> Iterator[_Line]:
    nothing: Row = (None,) * chunk.steps
    crowds = _crowds(chunk)
    unknown = GpuRow("", None, None, (None,) * (chunk.steps + 2))
    for row in chunk.holders:
        present = [at for at, count in enumerate(row.samples) if count]
        if not present:
            continue
        gpu = chunk.gpus.get(row.device[0], unknown)
        who = (row.device, row.namespace, row.pod, row.container)
        board = (row.device[0], "")
        yield _Line(
            row,
            chunk.pods[who[1:]],
            gpu,
            _interval(chunk.step, gpu.samples, row.samples),
            crowds[row.device],
            {name: chunk.grids.get(name, {}).get(row.device, nothing) for name in OF_DEVICE},
            {name: chunk.grids.get(name, {}).get(board, nothing) for name in OF_BOARD},
            chunk.own_memory.get(who, nothing),
            chunk.own_busy.get(who, nothing),
            chunk.throttled.get(who[1:], nothing),
            present[0],
            present[-1],
        )


def _interval(step: float, *rows: Row) -> float:
    """Seconds between scrapes: what most steps tell, as one at the border may have a sample more or less."""
    for row in rows:
        if counts := [count for count in row if count]:
            return step / median(counts)
    return step


def _crowds(chunk: Chunk) -> dict[Device, list[float]]:
    """Samples of all holders of a device together, by step."""
    found: dict[Device, list[float]] = {}
    for row in chunk.holders:
        sums = found.setdefault(row.device, [0.0] * (chunk.steps + 2))
        for at, count in enumerate(row.samples):
            sums[at] += count or 0.0
    return found


def _window(chunk: Chunk, line: _Line, number: int) -> Window:
    row, facts, gpu = line.row, line.facts, line.gpu
    begin, span, covered = _extent(chunk, line, number)
    samples = row.samples[number + 1]
    looks = max(gpu.samples[number + 1] or 0.0, samples or 0.0)
    holders = max(1, round(line.crowd[number + 1] / looks)) if looks else 1
    alone = not samples or line.crowd[number + 1] <= samples + 0.5
    figures = _figures(line, number, samples or 0.0, alone=alone) if samples else {}
    return Window(
        at=begin,
        span=span,
        covered=covered,
        key=facts.key,
        pod=row.pod,
        gpu=row.device[0],
        node=gpu.node,
        device=f"{row.device[0]}/{row.device[1]}" if row.device[1] else "",
        index=gpu.gpu,
        model=gpu.model,
        profile=row.profile,
        resource=row.resource,
        holders=holders,
        held_since=facts.started,
        said=facts.said,
        autotune=facts.autotune,
        **figures,
    )


def _extent(chunk: Chunk, line: _Line, number: int) -> tuple[float, float, float]:
    """(begin, span, covered). A hold that begins or ends within the step is as long as its samples say."""
    begin, step = chunk.start + number * chunk.step, chunk.step
    samples = line.row.samples[number + 1]
    if not samples:
        return begin, step, 0.0
    seen = min(step, samples * line.interval)
    came = not line.row.samples[number] and bool(line.gpu.samples[number])
    went = not line.row.samples[number + 2] and bool(line.gpu.samples[number + 2])
    if came and not went:
        return begin + step - seen, seen, seen
    return begin, seen if went else step, seen


def _figures(line: _Line, number: int, samples: float, *, alone: bool) -> dict[str, Any]:
    device, board = line.device, line.board
    busy = device["busy"][number]
    found: dict[str, Any] = {
        "watts": board["watts"][number],
        "power_limit": board["power_limit"][number],
        "memory_total": _whole(device["memory_total"][number]),
        "cpu_throttled": line.throttled[number],
    }
    own = line.own_memory[number]
    if not alone:
        worked = line.own_busy[number]
        highest = busy if device["busy_high"][number] is None else device["busy_high"][number]
        still = busy if highest is not None and highest < IDLE_BUSY else None
        found["busy"] = still if worked is None else min(1.0, worked / samples)
        found["memory"] = _whole(own)
        return found
    sm, dram, pipe = _scaled(line, number, ("sm", "dram", "pipe"))
    sm_high, dram_high, _ = _scaled(line, number, ("sm_high", "dram_high", "pipe"))
    return found | {
        "busy": busy,
        "busy_high": device["busy_high"][number],
        "busy_low": device["busy_low"][number],
        "sm": sm,
        "sm_high": sm_high,
        "dram": dram,
        "dram_high": dram_high,
        "pipe": pipe,
        "memory": _whole(device["memory"][number]),
        "memory_low": _whole(device["memory_low"][number]),
        "pcie": None if line.row.device[1] else board["pcie"][number],
        "processes": None if line.row.device[1] else _whole(board["processes"][number]),
    }


def _scaled(line: _Line, number: int, names: tuple[str, str, str]) -> tuple[float | None, float | None, float | None]:
    """Ratios of the whole GPU; of an instance that nobody knows, none."""
    sm, dram, pipe = (line.device[name][number] for name in names)
    if not line.row.device[1]:
        return sm, dram, pipe
    profile = instance(line.gpu.model, None, line.row.profile)
    return of_whole_gpu(profile, sm=sm, dram=dram, pipe=pipe) if profile else (None, None, None)


def _whole(value: float | None) -> int | None:
    return None if value is None else int(value)
