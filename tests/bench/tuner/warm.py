"""Work that comes back: `python -m tests.bench.tuner.warm [--count N] [--seed N]`.

Each workload is searched for once. Then it comes again, with other noise: once the search knows nothing, once it knows
the cap that held. And under the same name comes other work of the same GPU: what is known is then wrong.
"""

import argparse
import sys
from collections.abc import Sequence
from statistics import fmean
from typing import NamedTuple

from gpuwatch.tuning.energy.model import Terms
from tests.bench.measure import table
from tests.bench.tuner.curves import Curve
from tests.bench.tuner.hard import BOUND, COUNTING, NOISE
from tests.bench.tuner.parting import Part, PartingGpu, applications, best, cache_resident
from tests.bench.tuner.play import Account, play


class Returned(NamedTuple):
    """Of the plays of a row. `hold`: mean seconds until a cap is held, or work is refused; `share`: of the oracle's
    saving, of the cap held then; `worst`: true slowdown; `over`: share of the plays over the bound by 0.3 points;
    `beyond`: mean seconds over it by a point while it was searched.
    """

    what: str
    plays: int
    hold: float
    share: float
    worst: float
    over: float
    beyond: float
    refused: int


def returned(what: str, plays: Sequence[tuple[PartingGpu, Account]]) -> Returned:
    """The row of these."""
    truths = [gpu.truth(account.held) for gpu, account in plays]
    slower = [1 - speed for speed, _ in truths]
    possible = sum(best(gpu, gpu.curve.ladder(), BOUND) for gpu, _ in plays)
    return Returned(
        what,
        len(plays),
        fmean(account.seconds for _, account in plays),
        sum(1 - energy for _, energy in truths) / possible,
        max(slower),
        sum(each > BOUND + 0.003 for each in slower) / len(slower),
        fmean(account.over for _, account in plays),
        sum(account.held is None for _, account in plays),
    )


def evaluate(count: int, seed: int) -> list[Returned]:
    """Applications by both signals, and work in caches, each until a cap is held."""
    rows = []
    for what, work, counts in (
        ("applications, counters", list(applications(count, seed)), None),
        ("caches, counters", list(cache_resident(count, seed)), None),
        ("applications, progress", list(applications(count, seed)), COUNTING),
    ):
        found: dict[str, list[tuple[PartingGpu, Account]]] = {}
        for number, (curve, part) in enumerate(work):
            before = _play(curve, part, counts, f"before {what} {number} {seed}")[1].held
            fleet = [each for each in work if each[0].knob == curve.knob and each[0].ladder() == curve.ladder()]
            other = fleet[(fleet.index((curve, part)) + 1) % len(fleet)]
            for which, (now, how), known in (
                ("again, nothing known", (curve, part), None),
                ("again, cap known", (curve, part), before),
                ("other work, nothing known", other, None),
                ("other work, cap known", other, before),
            ):
                again = f"again {what} {number} {seed}"
                found.setdefault(which, []).append(_play(now, how, counts, again, known))
        rows += [returned(f"{what}: {which}", plays) for which, plays in found.items()]
    return rows


def _play(
    curve: Curve, part: Part, counts: float | None, seed: str, known: float | None = None
) -> tuple[PartingGpu, Account]:
    gpu = PartingGpu(curve, NOISE, seed, part, counts=counts)
    return gpu, play(gpu, curve.ladder(), Terms(slowdown=BOUND), 0, known=known)


def show(rows: Sequence[Returned]) -> None:
    """Print the table."""
    head = ("", "n", "to hold", "share", "worst", "over by 0.3", "over by a point", "refused")
    cells = [
        (
            row.what,
            row.plays,
            f"{row.hold:.0f} s",
            *(f"{100 * each:.1f} %" for each in (row.share, row.worst, row.over)),
            f"{row.beyond:.1f} s",
            row.refused,
        )
        for row in rows
    ]
    table("Work that comes back, bound 5 %, true slowdown", head, cells)


def main(arguments: Sequence[str]) -> int:
    """Play and print."""
    parser = argparse.ArgumentParser(prog="python -m tests.bench.tuner.warm", description=__doc__)
    parser.add_argument("--count", type=int, default=10, help="workloads of each of five ranges")
    parser.add_argument("--seed", type=int, default=2026)
    chosen = parser.parse_args(arguments)
    show(evaluate(chosen.count, chosen.seed))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
