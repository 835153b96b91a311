"""MIG packing against all ways there are and first-fit decreasing: `python -m tests.bench.rightsizing.packing`.

Small demands: GPUs by the rules, by brute force and by first-fit decreasing, each on the same random demands. Large
ones: against first-fit decreasing, and how long it takes. The same `--demands` and `--seed` give the same figures.
"""

import argparse
import random
import sys
import time
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from gpuwatch.rightsizing.findings.mig_packing import cuts, layout_error, pack
from gpuwatch.rightsizing.model.mig_profiles import GpuModel, table
from tests.bench import measure
from tests.rightsizing.findings.mig_brute import brute, drawn, first_fit

SMALL = 8
LARGE = (30, 100, 300, 1_000, 3_000)
DRAWS = 20


class Compared(NamedTuple):
    """Of one model: sums over all demands, and seconds."""

    demands: int
    exact: int
    best: int
    first: int
    not_best: int
    not_first: int
    invalid: int
    seconds: float
    brute_seconds: float


def compare(model: GpuModel, demands: Iterable[Counter[str]]) -> Compared:
    """The three on each demand."""
    profiles = model.plain()
    cuts(profiles)
    found = Compared(0, 0, 0, 0, 0, 0, 0, 0.0, 0.0)
    for demand in demands:
        began = time.perf_counter()
        packed = pack(demand, profiles)
        done = time.perf_counter()
        best, _ = brute(demand, profiles)
        brute_done = time.perf_counter()
        first = first_fit(demand, profiles)
        wrong = sum(layout_error(layout, profiles) is not None for layout in packed)
        served = Counter(each.profile for layout in packed for each in layout) == demand
        more = Compared(
            1, len(packed), best, first, len(packed) != best, first != best, wrong + (not served),
            done - began, brute_done - done,
        )  # fmt: skip
        found = Compared(*map(sum, zip(found, more, strict=True)))
    return found


def small(seed: int, demands: int) -> list[tuple[str, ...]]:
    """One line a model, and their sum."""
    chance = random.Random(seed)
    each = {
        model.name: compare(model, [drawn(model.plain(), SMALL, chance) for _ in range(demands)])
        for model in table().gpus
    }
    each["all"] = Compared(*map(sum, zip(*each.values(), strict=True)))
    return [
        (
            name, f"{of.demands}", f"{of.exact}", f"{of.best}", f"{of.not_best}", f"{of.first}",
            f"{of.not_first / of.demands:.1%}", f"{of.invalid}", f"{of.seconds / of.demands * 1e3:.2f} ms",
            f"{of.brute_seconds / of.demands * 1e3:.1f} ms",
        )
        for name, of in each.items()
    ]  # fmt: skip


def large(seed: int) -> list[tuple[str, ...]]:
    """One line a size of demand, on a GPU of seven slices and on one of four."""
    chance = random.Random(seed)
    return [line for name in ("H100-80GB-SXM5", "A30-24GB") for line in _large(name, chance)]


def _large(name: str, chance: random.Random) -> Iterable[tuple[str, ...]]:
    profiles = next(model.plain() for model in table().gpus if model.name == name)
    for size in LARGE:
        gpus = first = 0
        slowest = 0.0
        for _ in range(DRAWS):
            demand = drawn(profiles, 1, chance) + Counter(
                chance.choices([profile.name for profile in profiles], [chance.random() for _ in profiles], k=size - 1)
            )
            began = time.perf_counter()
            found = pack(demand, profiles)
            slowest = max(slowest, time.perf_counter() - began)
            gpus += len(found)
            first += first_fit(demand, profiles)
        yield name, f"{size}", f"{DRAWS}", f"{gpus}", f"{first}", f"{slowest * 1e3:.1f} ms"


def main(arguments: Sequence[str]) -> int:
    """Print both tables; 1 where a layout was not valid."""
    parser = argparse.ArgumentParser(prog="python -m tests.bench.rightsizing.packing", description=__doc__)
    parser.add_argument("--seed", type=int, default=2026)
    parser.add_argument("--demands", type=int, default=100, help="a model")
    chosen = parser.parse_args(arguments)
    lines = small(chosen.seed, chosen.demands)
    measure.table(
        f"GPUs for up to {SMALL} instances, seed {chosen.seed}",
        ("model", "demands", "gpuwatch", "brute force", "not the fewest", "first-fit decreasing", "not the fewest",
         "not valid", "gpuwatch", "brute force"),
        lines,
    )  # fmt: skip
    measure.table(
        f"GPUs for many instances, seed {chosen.seed}",
        ("model", "instances", "demands", "GPUs", "first-fit decreasing", "slowest"),
        large(chosen.seed),
    )
    return int(lines[-1][7] != "0")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
