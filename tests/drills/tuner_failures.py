"""What goes wrong under a tuner that has settings in force: `python -m tests.drills.tuner_failures [--count 1000]`.

Each drill starts a tuner and a guard (real processes, see `tuner_children`) on a fake driver, waits until limits and in
half of the drills also a clock cap are in force, lets one thing go wrong, and then wants everything back as it was. The
driver keeps a log of every setter call: nothing may ever have been set above the original.
"""

import argparse
import sys
import tempfile
import threading
from collections import defaultdict
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from tests.bench.measure import table
from tests.drills.tuner_mishaps import KINDS, NEED_CLOCKS
from tests.drills.tuner_rig import (
    GUARD,
    DrillResult,
    Rig,
)


def drills(
    count: int, seed: int, folder: Path, rigs: int, kinds: Sequence[str] = tuple(KINDS), guard: float = GUARD
) -> list[DrillResult]:
    """So many drills, one kind after the other, on some rigs at once; `guard`: how fast theirs is."""
    jobs = [(kinds[number % len(kinds)], f"{seed} {number}") for number in range(count)]
    free = threading.local()
    numbers = iter(range(rigs))

    def one(job: tuple[str, str]) -> DrillResult:
        if not hasattr(free, "rig"):
            own = folder / f"rig-{next(numbers)}"
            own.mkdir()
            free.rig = Rig(own, guard)
        kind, own_seed = job
        return free.rig.drill(kind, own_seed, KINDS[kind], clocked=kind in NEED_CLOCKS)

    with ThreadPoolExecutor(rigs) as pool:
        return list(pool.map(one, jobs))


def show(found: Sequence[DrillResult]) -> None:
    """A line for each kind."""
    kinds: dict[str, list[DrillResult]] = defaultdict(list)
    for each in found:
        kinds[each.kind].append(each)
        kinds["all"].append(each)
    head = ("failure", "n", "clocks capped, too", "as it was", "guard's path, most", "the tuner's end, most")
    rows = [
        (
            kind,
            len(own),
            sum(each.clocked for each in own),
            f"{sum(not each.trouble for each in own) / len(own):.1%}",
            _most([each.path for each in own]),
            _most([each.exit for each in own]),
        )
        for kind, own in sorted(kinds.items(), key=lambda item: item[0] == "all")
    ]
    print(f"{sum(each.sets for each in found)} calls of setters")
    table("Failures under a tuner that has settings in force", head, rows)
    for each in found:
        if each.trouble:
            print(f"{each.kind} (--seed {each.seed}): {each.trouble}")


def _most(seconds: Sequence[float | None]) -> str | None:
    known = [each for each in seconds if each is not None]
    return f"{max(known):.1f} s" if known else None


def main(arguments: Sequence[str]) -> int:
    """1: something was not as it was."""
    parser = argparse.ArgumentParser(prog="python -m tests.drills.tuner_failures", description=__doc__)
    parser.add_argument("--count", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--rigs", type=int, default=8, help="how many drills at once")
    parser.add_argument("--kind", action="append", choices=list(KINDS), help="only these")
    chosen = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory() as folder:
        found = drills(chosen.count, chosen.seed, Path(folder), chosen.rigs, chosen.kind or tuple(KINDS))
    show(found)
    return 1 if any(each.trouble for each in found) else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
