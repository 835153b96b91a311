"""Two weeks of a fleet in the database of a real Prometheus, through promtool: what the benchmark of the fleet reads.

promtool reads its whole input once for each block, so that every block gets a file of its own, which is deleted as soon
as it is in. All series of a block repeat a thousand curves: too far apart for gzip to gain by it, and quickly
written.
"""

import math
import random
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

BLOCK = 18 * 3600
"""Seconds of a block: of the lengths that Prometheus makes (2 h and its powers of three) a long one, as after
compaction."""

SHAPES = 997
GPUS = 8
HELD = 0.92
GIB = 1 << 30
MODEL = "NVIDIA H100 80GB HBM3"


class Plan(NamedTuple):
    """What is to be there. `begin`, `end`: unix seconds; `interval`: seconds between scrapes."""

    nodes: int
    begin: int
    end: int
    interval: int = 300
    seed: int = 1


class Gpu(NamedTuple):
    """One GPU, and the labels of all its series."""

    number: int
    labels: str
    info: str


def gpus(plan: Plan) -> list[Gpu]:
    """All GPUs of the fleet."""
    return [_gpu(node, index) for node in range(plan.nodes) for index in range(GPUS)]


def _gpu(node: int, index: int) -> Gpu:
    number = node * GPUS + index
    # the fixed part keeps the length of a real uuid
    scrape = f'instance="10.{node >> 8}.{node & 255}.1:9400",job="gpuwatch",node="node-{node:04d}"'
    labels = f'gpu="{index}",uuid="GPU-{number * 2654435761 % 2**32:08x}-1f2e-4d3c-8b9a-{number:012x}",{scrape}'
    info = f'model="{MODEL}",pci_bus_id="00000000:{index:02X}:00.0",device="nvidia{index}",architecture="hopper"'
    return Gpu(number, labels, f"{info},{labels}")


def fill(plan: Plan, place: Path) -> int:
    """Samples written to the blocks in `place`, the storage path of a Prometheus."""
    samples = 0
    fleet = gpus(plan)
    place.mkdir(parents=True, exist_ok=True)
    for start in range(plan.begin // BLOCK * BLOCK, plan.end, BLOCK):
        times = [at for at in range(start, start + BLOCK, plan.interval) if plan.begin <= at < plan.end]
        if not times:
            continue
        text = place / "block.om"
        with text.open("w") as out:
            for prefix, tails in _series(plan, fleet, times):
                out.write(prefix + prefix.join(tails))
                samples += len(tails)
            out.write("# EOF\n")
        import_block(text, place)
        text.unlink()
    shutil.rmtree(place / "wal", ignore_errors=True)
    return samples


def import_block(text: Path, place: Path) -> None:
    """Into the database; of one block's length."""
    command = ["promtool", "tsdb", "create-blocks-from", "--max-block-duration=18h", "openmetrics", "-q"]
    subprocess.run([*command, str(text), str(place)], check=True, stdout=subprocess.DEVNULL)


def _series(plan: Plan, fleet: list[Gpu], times: list[int]) -> Iterator[tuple[str, list[str]]]:
    """(name and labels, the rest of each of its lines)."""
    rng = random.Random(plan.seed * 1_000_003 + times[0])
    shapes = [_shape(rng, kind, times) for kind in range(SHAPES)]
    for gpu in fleet:
        shape = shapes[gpu.number % SHAPES]
        yield f"gpuwatch_gpu_info{{{gpu.info}}}", shape["one"]
        for name in DEVICE:
            label = EXTRA.get(name, "")
            yield f"gpuwatch_{name}{{{label}{gpu.labels}}}", shape[name]
        if gpu.number % 100 >= HELD * 100:
            continue
        pod = _pod(gpu.number, times[0])
        resource = f'pod_uid="{gpu.number:032x}",resource="nvidia.com/gpu",'
        yield f"gpuwatch_gpu_workload_info{{{pod}{resource}{gpu.labels}}}", shape["one"]
        for name in ("pod_gpu_memory_bytes", "pod_gpu_utilization_ratio"):
            yield f"gpuwatch_{name}{{{pod}{gpu.labels}}}", shape[name]


DEVICE = (
    "gpu_processes",
    "gpu_utilization_mean_ratio",
    "gpu_sm_active_ratio",
    "gpu_dram_active_ratio",
    "gpu_tensor_active_ratio",
    "gpu_memory_total_bytes",
    "gpu_memory_used_bytes",
    "gpu_power_watts",
    "gpu_power_limit_watts",
    "gpu_pcie_transmit_bytes_total",
    "gpu_pcie_receive_bytes_total",
)
EXTRA = {"gpu_power_watts": 'window="mean",', "gpu_power_limit_watts": 'limit="enforced",'}


def _pod(number: int, at: int) -> str:
    """Five of eight GPUs serve, two train for a block's length, the others are notebooks."""
    team, kind = number // 8 % 40, number % 8
    name = f"serve-{number // 16}-{_hash(number // 16, 9)}-{_hash(number, 5)}"
    if kind >= 7:
        name = f"jupyter-{number // 8}-0"
    elif kind >= 5:
        name = f"train-{number // 16}-{_hash(at + number, 5)}"
    return f'namespace="team-{team}",pod="{name}",container="main",'


def _hash(seed: int, length: int) -> str:
    rng = random.Random(seed)
    return "".join(rng.choices("bcdfghjklmnpqrstvwxz2456789", k=length))


def _shape(rng: random.Random, kind: int, times: list[int]) -> dict[str, list[str]]:
    """The curves of all families of one GPU: the end of each line."""
    level = kind / SHAPES if kind % 6 else 0.0
    busy = [_busy(rng, level, at) for at in times]
    total = 80 * GIB
    used = [int((2 + 70 * kind / SHAPES + rng.random()) * GIB) for _ in times]
    counter = [int(at * (1 + 4e6 * level)) for at in times]
    values: dict[str, list[float]] = {
        "one": [1] * len(times),
        "gpu_processes": [1] * len(times),
        "gpu_utilization_mean_ratio": busy,
        "gpu_sm_active_ratio": [round(b * 0.6, 4) for b in busy],
        "gpu_dram_active_ratio": [round(b * 0.35, 4) for b in busy],
        "gpu_tensor_active_ratio": [round(b * 0.3, 4) for b in busy],
        "gpu_memory_total_bytes": [total] * len(times),
        "gpu_memory_used_bytes": list(used),
        "gpu_power_watts": [round(72 + 500 * b + rng.random(), 3) for b in busy],
        "gpu_power_limit_watts": [700] * len(times),
        "gpu_pcie_transmit_bytes_total": list(counter),
        "gpu_pcie_receive_bytes_total": list(counter),
        "pod_gpu_memory_bytes": [u - GIB // 2 for u in used],
        "pod_gpu_utilization_ratio": busy,
    }
    return {name: [f" {v} {at}\n" for v, at in zip(row, times, strict=True)] for name, row in values.items()}


def _busy(rng: random.Random, level: float, at: int) -> float:
    if not level:
        return 0.0
    daily = 0.75 + 0.25 * math.sin(at / 86400 * math.tau)
    return round(min(1.0, max(0.0, level * daily + rng.gauss(0, 0.03))), 4)
