"""What each mechanism of the search buys: `python -m tests.bench.tuner.ablate [--count N] [--seed N]`.

Each is switched off by itself, here and not by a flag of the product, and the same work is played again. The account is
the true slowdown. Beside them a rival that has none of it: three fixed caps, paired windows, one confidence test.
"""

import argparse
import sys
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import ExitStack
from statistics import fmean
from types import ModuleType
from typing import Any, NamedTuple
from unittest.mock import patch

from msgspec.structs import replace

from gpuwatch.tuning.energy import estimate, hold, model, search, signals, tuner
from gpuwatch.tuning.energy.model import GangWindow, Ladder, Probe, Terms, TrialWindow, WindowPair, pair
from tests.bench.measure import table
from tests.bench.tuner import hard
from tests.bench.tuner import play as playing
from tests.bench.tuner.drift import Drift, drifting
from tests.bench.tuner.hard import BOUND, NOISE, Parted, parted
from tests.bench.tuner.long import Changes, changing
from tests.bench.tuner.parting import PartingGpu, applications
from tests.bench.tuner.play import Account

Off = tuple[ModuleType, str, Any]
"""What stands in a module instead of a mechanism."""

MEMBERS = 4
TRIED = (0.9, 0.8, 0.7)
PAIRS = 16
"""The rival's caps, as shares of the clock, and its pairs at each."""

_speeds = estimate.speeds


def _halfway(good: search.Point, beyond: Sequence[Probe], ladder: Ladder, time: float) -> float:
    return (good.x + ladder.top / max(probe.cap for probe in beyond)) / 2


def _stride(good: search.Point, probes: Sequence[Probe], ladder: Ladder, time: float) -> float | None:
    return min(good.x * search.STRIDE, ladder.top / ladder.floor) if good.x < ladder.top / ladder.floor else None


def _first_decides(pairs: Sequence[WindowPair]) -> list[estimate.Estimate]:
    return _speeds([replace(each, speed=each.speed[:2], weak=each.weak & {0, 1}) for each in pairs])


def _no(*_: object, **__: object) -> bool:
    return False


def _yes(*_: object, **__: object) -> bool:
    return True


MECHANISMS: dict[str, tuple[Off, ...]] = {
    "all of them": (),
    "search: line to the next cap": ((search, "_between", _halfway), (search, "_beyond", _stride)),
    "search: margin of the aim": ((search, "MARGIN", 0.0),),
    "search: longest stride": ((search, "STRIDE", 100.0),),
    "search: six probes (two)": ((tuner, "PROBES", 2),),
    "search: 95 % of the bound": ((search, "COUNTED", 1.0),),
    "search: hopeless after two": ((search, "is_far_over", _no), (tuner, "is_far_over", _no)),
    "looks: after each pair": ((search, "JUDGED_AT", tuple(range(4, 65))),),
    "looks: 4, 16 and 64 only": ((search, "JUDGED_AT", (4, 16, 64)),),
    "care: early errors count 1": ((search, "EARLY_FACTOR", 1.0),),
    "care: all errors count 1.9": ((search, "EARLY", 1000),),
    "care: error by batches": ((estimate, "BATCHES", 1000),),
    "care: shared windows": ((estimate, "SHARED", 1.0),),
    "care: Student's t": ((estimate, "student", lambda _: estimate.ONE_SIDED_95),),
    "care: two stories": ((estimate, "disagree", _no),),
    "care: weak signals' veto": ((search, "weak_signals_allow", _yes), (hold, "weak_signals_allow", _yes)),
    "care: weak does not vouch": ((model, "WEAK", 0.0), (signals, "WEAK", 0.0)),
    "care: counters' veto": ((estimate, "VETO", 1.0),),
    "care: windows drawn": ((playing, "window_seconds", lambda *_: model.WINDOW_SECONDS),),
    "phases: unsteady refused": ((tuner, "unfit", lambda _: None),),
    "phases: loader's reserve": tuple((module, "hides_loader", _no) for module in (search, tuner, hold)),
    "phases: lower within the reserve": ((hold, "hides_loader", _no),),
    "phases: loader gone: two pairs": ((tuner, "is_uncovered", _no),),
    "phases: loader gone in a search": ((tuner, "wait_is_gone", _no),),
    "phases: other work": ((tuner, "is_odd", _no),),
    "phases: loader gone": ((hold, "SHOWN_IDLE", 2.0),),
    "phases: other work forgotten": ((tuner, "is_same_work", _yes),),
    "phases: half-hour look": ((tuner, "HOLD_SECONDS", 1e9),),
    "phases: lower again": ((tuner, "_retry_lower", lambda state, _: state),),
    "gangs: slowest GPU decides": ((estimate, "speeds", _first_decides),),
}


class Ablated(NamedTuple):
    """One mechanism off. `rows`: applications, caches, progress, periods, gangs."""

    what: str
    rows: list[Parted]
    loaders: Drift | None = None
    changes: Changes | None = None


class Gang(PartingGpu):
    """GPUs of one pod that are moved together; the slowest of them is the account."""

    def __init__(self, members: Sequence[PartingGpu]) -> None:
        first = members[0]
        super().__init__(first.curve, first.noise, first.seed, first.part)
        self.fellows = members[1:]

    def truth(self, cap: float | None) -> tuple[float, float]:
        told = [super().truth(cap), *(each.truth(cap) for each in self.fellows)]
        return min(speed for speed, _ in told), fmean(energy for _, energy in told)

    def gang(self, window: TrialWindow) -> GangWindow:
        for each in self.fellows:
            each.cap = self.cap
        return (window, *(each._window(window.seconds, settled=window.settled) for each in self.fellows))


def gangs(count: int, seed: int) -> Iterator[Gang]:
    """Four GPUs of one model each, each with an application of its own."""
    found = list(hard.gpus("gangs", applications(MEMBERS * count, seed), seed))
    for start in range(0, len(found), MEMBERS):
        yield Gang(found[start : start + MEMBERS])


def three_caps(gpu: PartingGpu, ladder: Ladder, terms: Terms) -> Account:
    """The rival: of the caps that keep the bound with 95 % confidence, the one of least energy."""
    seconds, kept = 60.0, []
    for cap in dict.fromkeys(ladder.at_least(share * ladder.top) for share in TRIED):
        windows = []
        for number in range(2 * PAIRS + 1):
            windows += gpu.tick(cap if number % 2 else None, 6.0)[-1:]
            seconds += 6.0
        told = [
            (gpu.gang(a), gpu.gang(b), gpu.gang(c))
            for a, b, c in zip(windows[::2], windows[1::2], windows[2::2], strict=False)
        ]
        pairs = [pair(*each, ladder) for each in told]
        speed, work = estimate.slowest(pairs), estimate.energy(pairs)
        if speed is not None and work is not None and speed.lower >= 1 - terms.slowdown and work.upper < 1:
            kept.append((work.mean, cap))
    held = min(kept)[1] if kept else None
    return Account(held, "" if kept else "no_gain", seconds, seconds, seconds, len(TRIED), seconds, 0.0, 0.0)


def without(what: str, count: int, seed: int) -> Ablated:
    """The same work with one mechanism off."""
    with ExitStack() as stack:
        for module, name, instead in MECHANISMS[what]:
            stack.enter_context(patch.object(module, name, instead))
        rows = [parted(name, gpus) for name, gpus, _ in hard.populations(count, seed)]
        rows.append(parted("gangs", gangs(count, seed)))
        return Ablated(what, rows, drifting(count, NOISE, BOUND, seed), changing(count, NOISE, BOUND, seed))


def rival(count: int, seed: int) -> Ablated:
    """Three caps on the same work; it holds what it found for good."""
    rows = [parted(name, gpus, player=three_caps) for name, gpus, _ in hard.populations(count, seed)]
    return Ablated("rival: three caps, one test", rows)


def evaluate(count: int, seed: int) -> list[Ablated]:
    """All of them, on two cores."""
    with ProcessPoolExecutor(2) as pool:
        futures = [pool.submit(without, what, count, seed) for what in MECHANISMS]
        return [*(each.result() for each in futures), rival(count, seed)]


HEAD = ("off", *("applications", "caches", "progress", "caches, progress", "periods", "gangs"), "loaders", "phases")


def show(found: Sequence[Ablated], count: int) -> None:
    """Print the table."""
    plays = sum(row.plays for each in found for row in each.rows)
    print(f"\n{plays} searches, {count} scripts of loaders and of phases for each line.")
    print("share of the oracle / worst true slowdown / plays over the bound + 0.3 points / seconds to hold;")
    print("loaders, phases: seconds over the bound + 1 point after a change, mean / most; saved")
    table("Each mechanism off by itself, bound 5 %", HEAD, [cells(each) for each in found])


def cells(each: Ablated) -> tuple[str | None, ...]:
    """As the table shows it."""
    rows = [
        f"{100 * row.share:.1f}/{100 * row.worst:.2f}/{100 * row.over:.1f}/{row.hold or 0:.0f}" for row in each.rows
    ]
    rows += [""] * (6 - len(rows))
    over = [
        None if row is None else f"{row.mean:.0f}/{row.worst:.0f}; {100 * row.saved:.1f}"
        for row in (each.loaders, each.changes)
    ]
    return (each.what, *rows, *over)


def main(arguments: Sequence[str]) -> int:
    """Print the table."""
    parser = argparse.ArgumentParser(prog="python -m tests.bench.tuner.ablate", description=__doc__)
    parser.add_argument("--count", type=int, default=12, help="workloads of each range")
    parser.add_argument("--seed", type=int, default=2026)
    chosen = parser.parse_args(arguments)
    show(evaluate(chosen.count, chosen.seed), chosen.count)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
