"""The search on work of which counters and time part: `python -m tests.bench.tuner.hard [--count N] [--seed N]`.

The true slowdown of the cap that is held is the account; what the counters told of it counts for nothing.
"""

import argparse
import sys
from collections.abc import Iterable, Sequence
from statistics import fmean
from typing import Any, NamedTuple

from gpuwatch.tuning.energy.model import Terms
from tests.bench.measure import table
from tests.bench.tuner.curves import Curve
from tests.bench.tuner.drift import Drift, drifting
from tests.bench.tuner.parting import Part, PartingGpu, applications, best, cache_resident, periodic
from tests.bench.tuner.play import Noise, play

NOISE = Noise(0.01)
BOUND = 0.05
COUNTING = 0.01
"""Noise that a counter of progress has of its own in a window."""


class Parted(NamedTuple):
    """`over`: share of the plays more than 0.3 points over the bound."""

    what: str
    plays: int
    saved: float
    share: float
    mean: float
    worst: float
    over: float
    refused: int
    asked: str


def parted(
    what: str, work: Iterable[tuple[Curve, Part]], seed: int, counts: float | None = None, asked: str = ""
) -> Parted:
    """Each until it holds a cap or is refused. `counts`: noise of a counter of progress, None: there is none."""
    slower, saved, possible, refused = [], [], [], 0
    for number, (curve, part) in enumerate(work):
        gpu = PartingGpu(curve, NOISE, f"{what} {number} {seed}", part, counts=counts)
        ladder = curve.ladder()
        held = play(gpu, ladder, Terms(slowdown=BOUND), 0).held
        speed, energy = gpu.truth(held)
        slower.append(1 - speed)
        saved.append(1 - energy)
        possible.append(best(gpu, ladder, BOUND))
        refused += held is None
    over = sum(each > BOUND + 0.003 for each in slower) / len(slower)
    share = sum(saved) / sum(possible)
    return Parted(what, len(slower), fmean(saved), share, fmean(slower), max(slower), over, refused, asked)


def evaluate(count: int, seed: int) -> tuple[list[Parted], Drift]:
    """`count` workloads of each of five ranges."""
    rows = [
        parted("applications, counters", applications(count, seed), seed, asked="<= 6.0 %, over <= 1 %, >= 85 %"),
        parted("caches, counters", cache_resident(count, seed), seed, asked="<= 8 %"),
        parted("applications, progress", applications(count, seed), seed, COUNTING, asked="<= 5.5 %, >= 92 %"),
        parted("caches, progress", cache_resident(count, seed), seed, COUNTING, asked="<= 5.5 %, >= 92 %"),
        parted("periods of 2-120 s, counters", periodic(3 * count, seed), seed, asked="<= 5.5 %"),
    ]
    return rows, drifting(max(2, count), NOISE, BOUND, seed)


def show(rows: Sequence[Parted], drift: Drift) -> None:
    """Print the tables."""
    head = ("", "n", "saved", "share", "slower", "worst", "over", "refused", "asked")
    table("Counters and time part, bound 5 %, true slowdown", head, [cells(row) for row in rows])
    times = (f"{drift.mean:.0f} s", f"{drift.worst:.0f} s", f"{100 * drift.late:.1f} %", f"{100 * drift.saved:.1f} %")
    head = ("scripts", "changes", "over, mean", "over, most", "over 60 s", "saved")
    table(
        "Loaders that drift: seconds over the bound + 1 pp after a change; asked <= 60 s", head, [(*drift[:2], *times)]
    )


def cells(row: Parted) -> tuple[Any, ...]:
    """As the table shows it."""
    return (
        row.what,
        row.plays,
        *(f"{100 * share:.1f} %" for share in (row.saved, row.share, row.mean)),
        f"{100 * row.worst:.2f} %",
        f"{100 * row.over:.1f} %",
        row.refused,
        row.asked,
    )


def main(arguments: Sequence[str]) -> int:
    """Print both tables."""
    parser = argparse.ArgumentParser(prog="python -m tests.bench.tuner.hard", description=__doc__)
    parser.add_argument("--count", type=int, default=40, help="workloads of each range")
    parser.add_argument("--seed", type=int, default=2026)
    chosen = parser.parse_args(arguments)
    show(*evaluate(chosen.count, chosen.seed))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
