"""What a monitor sees of the fleet: windows with noise and gaps, without the counters that a GPU does not have."""

import math
from collections.abc import Iterator, Sequence
from random import Random
from typing import Any

from msgspec import structs

from gpuwatch.rightsizing.model import mig_profiles
from gpuwatch.rightsizing.model.usage import UsageWindow
from tests.bench.rightsizing.fleet_world import BEGIN, Pod, Workload
from tests.bench.rightsizing.work_laws import DAY, HOUR, STEP, at_rate, log_uniform

SLOT = 10.0
"""Seconds between a monitor's samples: the high end of a window is of means of so long."""


class Sight:
    """How one workload is seen. `every`: steps of a window."""

    def __init__(self, workload: Workload, seed: int, steps: int, every: int) -> None:
        self._workload, self._every = workload, every
        self._rng = rng = Random(f"sight {seed} {workload.key.name}")
        self._floor = rng.uniform(0, 0.003) if rng.random() < 0.5 else 0.0
        self._bytes = log_uniform(rng, 1e7, 5e9)
        self._draw = rng.uniform(0.25, 0.9)
        self._missing = outages(rng, steps)
        self._blind = rng.random() < 0.03 or (workload.profile is not None and not workload.hardware.counters)
        self._begin_known = rng.random() < 0.85
        self._processes_known = rng.random() < 0.9
        self._first = 0
        self._names: dict[str, dict[str, Any]] = {}

    def at(self, step: int) -> Iterator[UsageWindow]:
        """All windows of the workload that begin here."""
        pods = self._workload.pods
        while self._first < len(pods) and pods[self._first].end <= step:
            self._first += 1
        for pod in pods[self._first :]:
            begin, end = max(step, pod.begin), min(step + self._every, pod.end)
            if pod.begin >= step + self._every:
                return
            if end - begin > 0.05 and not self._missing[step]:
                yield from self._pod(pod, begin, end)

    def _pod(self, pod: Pod, begin: float, end: float) -> Iterator[UsageWindow]:
        covered = 1.0 if self._rng.random() < 0.9 else self._rng.uniform(0.9, 1.0)
        span = (end - begin) * STEP
        for place, gpu in enumerate(pod.gpus):
            if gpu not in self._names:
                self._names[gpu] = self._named(pod, gpu)
            yield UsageWindow(
                at=BEGIN + begin * STEP,
                span=span,
                covered=span * covered,
                gpu=gpu,
                index=place,
                held_since=BEGIN + pod.begin * STEP if self._begin_known else None,
                **self._names[gpu],
                **self._seen(place, int(begin), min(math.ceil(end), len(self._workload.load[0]))),
            )

    def _named(self, pod: Pod, gpu: str) -> dict[str, Any]:
        work = self._workload
        sliced = work.profile is not None
        return {
            "key": structs.replace(work.key, image=pod.image),
            "pod": pod.name,
            "node": pod.node,
            "device": f"MIG-{gpu}" if sliced else "",
            "model": work.hardware.model,
            "profile": work.profile,
            "resource": f"nvidia.com/mig-{work.profile}" if sliced else "nvidia.com/gpu",
            "holders": work.holders,
            "declared_class": work.declared_class,
            "programs": work.programs,
            "memory_total": device_total(work),
            "cpu_throttled": work.cpu_throttled,
        }

    def _seen(self, place: int, first: int, last: int) -> dict[str, Any]:
        work, rng = self._workload, self._rng
        loads, needs = work.load[place][first:last], work.need[place][first:last]
        load = sum(loads) / len(loads)
        beat = work.beat[0] / work.beat[1] if work.beat[1] else 0.0
        busy = min(1.0, load + beat + rng.uniform(0, self._floor))
        total = device_total(work)
        shown = [need if work.shown is None or not need else work.shown for need in needs]
        found: dict[str, Any] = {
            "memory": int(max(shown) * total) if work.context else rng.choice((0, 0, 1 << 21)),
            "memory_low": int(min(shown) * total) if work.context else 0,
            "processes": (1 if work.context else 0) if self._processes_known else None,
        }
        if self._blind:
            return found
        found |= {"busy": busy, "busy_high": max(busy, self._high(loads)), "busy_low": self._low(loads)}
        if work.holders > 1:
            return found
        draw = work.hardware.loaded if work.context else work.hardware.idle
        found["watts"] = draw * rng.uniform(0.99, 1.02) + load * (work.hardware.limit - draw) * self._draw
        found["power_limit"] = work.hardware.limit
        found["pcie"] = load * self._bytes * rng.uniform(0.5, 2) + rng.uniform(0, 2e5)
        return found | (self._counters(load, found["busy_high"]) if work.hardware.counters else {})

    def _high(self, loads: Sequence[float]) -> float:
        work = self._workload
        if work.grain:
            count = sum(loads) * STEP / work.grain
            return min(1.0, work.grain / SLOT) if count >= 0.05 * len(loads) * STEP / SLOT else 0.0
        most = max(loads)
        return min(1.0, most * (1 + work.physics.swing)) if most else work.beat[0] / SLOT

    def _low(self, loads: Sequence[float]) -> float:
        return 0.0 if self._workload.grain else min(loads) * (1 - self._workload.physics.swing)

    def _counters(self, load: float, high: float) -> dict[str, float]:
        """Activity of parts; a slice can show no more than it has."""
        physics, share = self._workload.physics, part(self._workload)
        sm, dram = min(physics.seen(1), share[0]), min(physics.seen(3), share[1])
        swing = high / load if load else 0.0
        noise = self._rng.uniform(0.97, 1.03)
        return {
            "sm": load * sm * noise,
            "sm_high": min(1.0, load * sm * max(1.0, swing) * noise),
            "dram": load * dram * noise,
            "dram_high": min(1.0, load * dram * max(1.0, swing) * noise),
            "pipe": load * min(physics.seen(2), share[0]) * noise,
        }


def part(work: Workload) -> tuple[float, float]:
    """Shares of multiprocessors and memory bandwidth that it has now."""
    found = mig_profiles.instance(work.hardware.model, work.hardware.total, work.profile)
    return (found.sm_share, found.memory_fraction) if found else (1.0, 1.0)


def device_total(work: Workload) -> int:
    """Bytes of the device it has."""
    found = mig_profiles.instance(work.hardware.model, work.hardware.total, work.profile)
    return found.memory if found else work.hardware.total


def outages(rng: Random, steps: int) -> Sequence[bool]:
    """Steps in which nobody looked: on two nodes in five some, hours at a time; on one in twenty most of the time."""
    missing = [False] * steps
    chance = rng.random()
    if chance < 0.4:
        mean = 6 * HOUR if chance < 0.05 else log_uniform(rng, 2 * DAY, 20 * DAY)
        for begin in at_rate(rng, steps, mean):
            for step in range(begin, min(steps, begin + int(log_uniform(rng, 2, 6 * HOUR)))):
                missing[step] = True
    return missing


def windows(sights: Sequence[Sight], first: int, last: int, every: int) -> Iterator[UsageWindow]:
    """All that is seen between two steps, in order of time."""
    for step in range(first, last, every):
        for sight in sights:
            yield from sight.at(step)
