"""From series of a Prometheus to UsageWindows: the fleet's way into the ledger.

A query gives one value for each step and device; the holders of a device are series of their own, counted in samples. A
holder has the device's figures where it was alone on it all through the step; else only what the driver reported of its
own processes, or idleness, if the device was idle.
"""

from collections.abc import Iterator, Mapping, Sequence
from statistics import median
from typing import Any, NamedTuple

from gpuwatch.model.work import WorkClass, WorkloadKey
from gpuwatch.rightsizing.model.mig_profiles import Profile, instance
from gpuwatch.rightsizing.model.usage import UsageWindow
from gpuwatch.rightsizing.usage.allocation import IDLE_BUSY
from gpuwatch.rightsizing.usage.mig_slowdown import of_whole_gpu

Device = tuple[str, str]
"""Uuid of the GPU, and number of the GPU instance or nothing."""

Row = Sequence[float | None]
Grid = Mapping[Device, Row]
"""Values by step; None: nothing known."""

OF_DEVICE = (
    *("busy", "busy_high", "busy_low", "sm", "sm_high", "dram", "dram_high", "pipe"),
    *("memory", "memory_low", "memory_total"),
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
    """What kube-state-metrics reports of a container."""

    key: WorkloadKey
    declared_class: WorkClass | None = None
    autotune: str | None = None
    started: float | None = None


class Chunk(NamedTuple):
    """A stretch of time: steps of `step` seconds, the first of which begins at `start`.

    `grids`: by reading (OF_DEVICE, OF_BOARD); readings of physical GPUs have no instance in their
    key. `own_*`: memory (bytes) and busy (sum over samples) by holder: (device, namespace, pod, container).
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


class _Holder(NamedTuple):
    """A holder with all series that it needs, looked up once for all steps. `interval`: seconds between scrapes;
    `samples_of_all`: of all holders of the device together.
    """

    row: HolderRow
    facts: PodFacts
    gpu: GpuRow
    interval: float
    samples_of_all: Sequence[float]
    device: dict[str, Row]
    board: dict[str, Row]
    own_memory: Row
    own_busy: Row
    throttled: Row
    first: int
    last: int


def windows(chunk: Chunk) -> Iterator[UsageWindow]:
    """All UsageWindows of the chunk, in time order."""
    holders = list(_holders(chunk))
    for number in range(chunk.steps):
        for holder in holders:
            if holder.first <= number + 1 <= holder.last:
                yield _window(chunk, holder, number)


def _holders(chunk: Chunk) -> Iterator[_Holder]:
    nothing: Row = (None,) * chunk.steps
    unknown = GpuRow("", None, None, (None,) * (chunk.steps + 2))
    samples_of_all: dict[Device, list[float]] = {}
    for row in chunk.holders:
        sums = samples_of_all.setdefault(row.device, [0.0] * (chunk.steps + 2))
        for at, count in enumerate(row.samples):
            sums[at] += count or 0.0
    for row in chunk.holders:
        present = [at for at, count in enumerate(row.samples) if count]
        if not present:
            continue
        gpu = chunk.gpus.get(row.device[0], unknown)
        # the median gives the interval: a step at the border may have a sample more or less
        counts = [count for count in gpu.samples if count] or [count for count in row.samples if count]
        container = (row.namespace, row.pod, row.container)
        board = (row.device[0], "")
        yield _Holder(
            row,
            chunk.pods[container],
            gpu,
            chunk.step / median(counts),
            samples_of_all[row.device],
            {name: chunk.grids.get(name, {}).get(row.device, nothing) for name in OF_DEVICE},
            {name: chunk.grids.get(name, {}).get(board, nothing) for name in OF_BOARD},
            chunk.own_memory.get((row.device, *container), nothing),
            chunk.own_busy.get((row.device, *container), nothing),
            chunk.throttled.get(container, nothing),
            present[0],
            present[-1],
        )


def _window(chunk: Chunk, holder: _Holder, number: int) -> UsageWindow:
    row, facts, gpu = holder.row, holder.facts, holder.gpu
    samples, of_all = row.samples[number + 1], holder.samples_of_all[number + 1]
    scrapes = max(gpu.samples[number + 1] or 0.0, samples or 0.0)
    alone = not samples or of_all <= samples + 0.5
    begin, span, covered = chunk.start + number * chunk.step, chunk.step, 0.0
    if samples:  # a hold that begins or ends within the step is as long as its samples show
        covered = min(span, samples * holder.interval)
        began = not row.samples[number] and bool(gpu.samples[number])
        ended = not row.samples[number + 2] and bool(gpu.samples[number + 2])
        if began and not ended:
            begin, span = begin + span - covered, covered
        elif ended:
            span = covered
    return UsageWindow(
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
        holders=max(1, round(of_all / scrapes)) if scrapes else 1,
        held_since=facts.started,
        declared_class=facts.declared_class,
        autotune=facts.autotune,
        **(_figures(holder, number, samples, alone=alone) if samples else {}),
    )


def _figures(holder: _Holder, number: int, samples: float, *, alone: bool) -> dict[str, Any]:
    """Readings of the holder: of the device where it is alone, else only what the driver reported of its processes."""
    device = {name: row[number] for name, row in holder.device.items()}
    board = {name: row[number] for name, row in holder.board.items()}
    found: dict[str, Any] = {
        "watts": board["watts"],
        "power_limit": board["power_limit"],
        "memory_total": device["memory_total"],
        "cpu_throttled": holder.throttled[number],
    }
    if not alone:
        worked, highest = holder.own_busy[number], device["busy_high"]
        highest = device["busy"] if highest is None else highest
        idle = device["busy"] if highest is not None and highest < IDLE_BUSY else None
        found["busy"] = idle if worked is None else min(1.0, worked / samples)
        found["memory"] = holder.own_memory[number]
    else:
        is_cut = bool(holder.row.device[1])
        engines = {name: device[name] for name in ("sm", "dram", "pipe", "sm_high", "dram_high")}
        if is_cut:  # ratios are of the whole GPU; of an instance that is in no table, none are known
            profile = instance(holder.gpu.model, None, holder.row.profile)
            sm, dram, pipe = _of_whole_gpu(profile, engines["sm"], engines["dram"], engines["pipe"])
            sm_high, dram_high, _ = _of_whole_gpu(profile, engines["sm_high"], engines["dram_high"], None)
            engines = {"sm": sm, "dram": dram, "pipe": pipe, "sm_high": sm_high, "dram_high": dram_high}
        found |= engines | {name: device[name] for name in ("busy", "busy_high", "busy_low", "memory", "memory_low")}
        found["pcie"] = None if is_cut else board["pcie"]
        found["processes"] = None if is_cut else board["processes"]
    for name in ("memory", "memory_low", "memory_total", "processes"):
        if found.get(name) is not None:
            found[name] = int(found[name])
    return found


def _of_whole_gpu(
    profile: Profile | None, sm: float | None, dram: float | None, pipe: float | None
) -> tuple[float | None, float | None, float | None]:
    return of_whole_gpu(profile, sm=sm, dram=dram, pipe=pipe) if profile else (None, None, None)
