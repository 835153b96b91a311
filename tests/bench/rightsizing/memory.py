"""What the ledger costs: memory while workloads come and go, time for a window, and its checkpoint.

    python -m tests.bench.rightsizing.memory

All figures are of a process of its own with one ledger. Each workload holds one GPU or eight, and works as none before.
"""

import gc
import random
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import psutil

from gpuwatch.config import RightsizingConfig
from gpuwatch.model.work import WorkloadKey
from gpuwatch.rightsizing.model.usage import UsageWindow
from gpuwatch.rightsizing.service.checkpoint import NAME, load, save
from gpuwatch.rightsizing.usage.ledger import LedgerState, UsageLedger

BEGIN = 1_700_000_000.0
SPAN = 300.0
MODELS = ("NVIDIA H100 80GB HBM3", "NVIDIA A100-SXM4-80GB", "NVIDIA L4")
GIB = 1 << 30


class Round(NamedTuple):
    """Where it stood after so many workloads."""

    workloads: int
    books: int
    rss: int  # bytes of the process


class Cost(NamedTuple):
    """Of one ledger. Seconds and bytes."""

    rounds: tuple[Round, ...]
    windows: int
    seconds: float  # of processor time, for all windows
    empty: int  # bytes of the process before the first window
    checkpoint: int
    saving: float
    loading: float

    @property
    def book(self) -> float:
        """Bytes of a book."""
        return (self.rounds[-1].rss - self.empty) / self.rounds[-1].books


def life(number: int, chance: random.Random, windows: int, apart: float = 3600.0) -> Iterator[UsageWindow]:
    """All windows of one workload, that comes `apart` seconds after the one before and uses the GPU in its own way."""
    begin, gpus = BEGIN + number * apart, chance.choice((1, 1, 1, 8))
    key = WorkloadKey(namespace=f"team-{number % 50}", kind="Job", name=f"job-{number}", container="main", image="i")
    busy, watts, memory = chance.random(), chance.uniform(80, 650), chance.randrange(1, 79) * GIB
    model = chance.choice(MODELS)
    for step in range(windows // gpus):
        now = min(1.0, busy * chance.uniform(0.2, 2.0))
        for gpu in range(gpus):
            yield UsageWindow(
                at=begin + step * SPAN,
                span=SPAN,
                covered=SPAN,
                key=key,
                pod=f"job-{number}-{gpu}",
                gpu=f"GPU-{number % 997}-{gpu}",
                node=f"node-{number % 997}",
                index=gpu,
                model=model,
                resource="nvidia.com/gpu",
                processes=1,
                programs=("python3",),
                busy=now,
                busy_high=min(1.0, 1.2 * now),
                busy_low=now / 2,
                sm=0.8 * now,
                sm_high=min(1.0, now),
                dram=0.5 * now,
                pipe=0.4 * now,
                memory=memory,
                memory_total=80 * GIB,
                pcie=now * 1e9,
                watts=watts * now + 80,
                power_limit=700.0,
            )


def measured(workloads: int, room: int, windows: int, rounds: int = 10) -> Cost:
    """`workloads` come and go, of each `windows`, through a ledger with `room` for fewer."""
    chance, process = random.Random(7), psutil.Process()
    ledger, seconds, count, found = UsageLedger(RightsizingConfig(max_workloads=room)), 0.0, 0, []
    warm = list(life(0, chance, windows))
    gc.collect()
    empty = process.memory_info().rss
    for number in range(workloads):
        batch = list(life(number, chance, windows)) if number else warm
        begin = time.process_time()
        for window in batch:
            ledger.add(window)
        seconds, count = seconds + time.process_time() - begin, count + len(batch)
        if (number + 1) % (workloads // rounds) == 0:
            gc.collect()
            found.append(Round(number + 1, len(ledger), process.memory_info().rss))
    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory) / NAME
        begin = time.perf_counter()
        size = save(path, ledger.state())
        saved = time.perf_counter()
        state = load(path, LedgerState).state
        assert state is not None
        UsageLedger.restored(state, RightsizingConfig(max_workloads=room))
        return Cost(tuple(found), count, seconds, empty, size, saved - begin, time.perf_counter() - saved)


def main() -> None:
    """Print it."""
    cost = measured(workloads=10_000, room=1000, windows=200)
    print(f"{'workloads':>10} {'books':>6} {'MiB':>7}    (before the first: {cost.empty / 2**20:.1f} MiB)")
    for workloads, books, rss in cost.rounds:
        print(f"{workloads:>10} {books:>6} {rss / 2**20:>7.1f}")
    print(f"a book: {cost.book / 1024:.1f} KiB")
    print(f"a window: {cost.seconds / cost.windows * 1e6:.1f} us of processor time ({cost.windows} windows)")
    print(f"checkpoint: {cost.checkpoint / 2**20:.2f} MiB, {cost.saving:.3f} s to save, {cost.loading:.3f} s to load")


if __name__ == "__main__":
    main()
