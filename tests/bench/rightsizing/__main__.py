"""Right-sizing on fleets whose future is known: `python -m tests.bench.rightsizing [--quick]`.

Prints tables and writes them to .cache/bench-rightsizing.json. The same arguments give the same figures on any machine.
"""

import argparse
import json
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path

import msgspec

from gpuwatch.rightsizing.model.recommendation import FindingKind
from tests.bench.measure import table
from tests.bench.rightsizing import score
from tests.bench.rightsizing.evaluate import MOMENTS, RIVALS, Idle, Played, Size, play
from tests.bench.rightsizing.fleet_world import KINDS
from tests.bench.rightsizing.score import Followed, Found

RESULTS = Path(".cache/bench-rightsizing.json")
SEEDS = (201, 202, 203, 204, 205, 206)
"""Looked at once, after the rules were done: who changes a rule goes by others."""

SIZE = 240
HEAD = "flagged, no work 1 d, 3 d, 7 d, untouched 1 d, over, recall, for a day, recall, dead, recall, deleted"
IDLE = ("", *HEAD.split(", "))
SIZED = ("rule", "advice", "lacked 7 d", "rate", "lacked 14 d", "rate", "preallocators", "too slow", "GPUs freed")


def percent(value: float | None, digits: int = 1) -> str:
    """Of a ratio."""
    return "-" if value is None else f"{100 * value:.{digits}f} %"


def idle_cells(name: str, found: Found) -> Sequence[str]:
    """One line."""
    return (
        name,
        str(found.flagged),
        *map(percent, found.right),
        percent(found.untouched),
        str(found.over),
        percent(found.recall),
        str(found.later),
        percent(found.recall_later),
        str(found.dead),
        percent(found.recall_dead),
        str(found.serving_deleted),
    )


def size_cells(name: str, found: Followed) -> Sequence[str]:
    """One line."""
    pairs = (
        text for lacked, rate in zip(found.lacked, found.rate, strict=True) for text in (str(lacked), percent(rate))
    )
    return (name, str(found.advice), *pairs, str(found.preallocators), percent(found.slow), f"{found.saved:.0f}")


def show_idle(plays: Sequence[Played]) -> None:
    """By moment, by fleet, by kind, and gpu-pruner's rule."""
    holds = [each for played in plays for each in played.idle]
    lines = [("all", holds), *((moment, [each for each in holds if each.moment == moment]) for moment in MOMENTS)]
    lines += [(f"seed {played.seed}", list(played.idle)) for played in plays]
    lines += [("worst", worst(plays))]
    cells = [idle_cells(name, score.found(chosen, score.flagged, score.deleted)) for name, chosen in lines]
    table("Idle or never used, by moment and fleet", IDLE, cells)
    cells = [idle_cells(name, score.found(chosen, score.pruned, score.pruned)) for name, chosen in lines]
    table("The same holds, gpu-pruner's rule", IDLE, cells)
    kinds = [(kind, [each for each in holds if each.kind == kind]) for kind in KINDS]
    cells = [idle_cells(name, score.found(chosen, score.flagged, score.deleted)) for name, chosen in kinds]
    table("Idle or never used, by kind of workload", IDLE, cells)


def worst(plays: Sequence[Played]) -> list[Idle]:
    """The fleet and moment with the lowest precision."""
    parts = [[each for each in played.idle if each.moment == moment] for played in plays for moment in MOMENTS]
    return min(parts, key=precision)


def precision(holds: Sequence[Idle]) -> float:
    """Of a day; nothing that was said is not wrong."""
    right = score.found(holds, score.flagged, score.deleted).right[0]
    return 1.0 if right is None else right


def show_sizes(plays: Sequence[Played]) -> None:
    """Each rule, gpuwatch by moment and kind, and how true its slowdowns are."""
    sizes = [each for played in plays for each in played.sizes]
    mine = [each for each in sizes if each.rule == "gpuwatch"]
    lines = [("gpuwatch, all", mine)]
    lines += [
        (f"gpuwatch, {action}", [each for each in mine if each.action == action]) for action in ("resize", "share")
    ]
    lines += [(rule, [each for each in sizes if each.rule == rule]) for rule in RIVALS]
    table("Size, and what follows", SIZED, [size_cells(name, score.followed(chosen)) for name, chosen in lines])
    lines = [(moment, [each for each in mine if each.moment == moment]) for moment in MOMENTS]
    lines += [(f"seed {each.seed}", [size for size in each.sizes if size.rule == "gpuwatch"]) for each in plays]
    table(
        "gpuwatch's, by moment and fleet", SIZED, [size_cells(name, score.followed(chosen)) for name, chosen in lines]
    )
    for rule in ("gpuwatch", *RIVALS):
        chosen = [(kind, [each for each in sizes if each.rule == rule and each.kind == kind]) for kind in KINDS]
        cells = [size_cells(name, score.followed(part)) for name, part in chosen if part]
        table(f"{rule}, by kind of workload", SIZED, cells)
    show_slowdowns(mine)


def show_slowdowns(sizes: Iterable[Size]) -> None:
    """Predicted against true."""
    found = score.predicted(sizes)
    cells = [(str(found.advice), *(percent(value) for value in found[1:]))]
    head = ("advice", "true below low", "between", "above high", "worst above", "mean true p95", "mean high")
    table("Slowdown on MIG instances, 95th percentile", head, cells)


def show_findings(plays: Sequence[Played]) -> None:
    """What was said of each kind."""
    found = score.by_kind(plays)
    columns = [finding for finding in FindingKind if any(found[kind][finding] for kind in KINDS)]
    cells = [(kind, *(str(found[kind][finding] or "") for finding in columns)) for kind in KINDS]
    table("Findings by kind of workload, all moments", ("", *(finding.value for finding in columns)), cells)


def main(arguments: Sequence[str]) -> int:
    """Print all tables."""
    parser = argparse.ArgumentParser(prog="python -m tests.bench.rightsizing", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="one fleet")
    parser.add_argument("--seed", type=int, action="append", help="of a fleet; may be given more than once")
    parser.add_argument("--workloads", type=int, default=SIZE)
    parser.add_argument("--every", type=int, default=3, metavar="STEPS", help="of five minutes in a window")
    chosen = parser.parse_args(arguments)
    seeds = chosen.seed or (SEEDS[:1] if chosen.quick else SEEDS)
    plays = [play(seed, chosen.workloads, chosen.every) for seed in seeds]
    windows = sum(each.windows for each in plays)
    spent = sum(each.seconds for each in plays)
    print(
        f"{len(plays)} fleets of {chosen.workloads} workloads, {windows} windows, {1e6 * spent / windows:.1f} us each"
    )
    show_idle(plays)
    show_sizes(plays)
    show_findings(plays)
    RESULTS.parent.mkdir(exist_ok=True)
    RESULTS.write_text(json.dumps(msgspec.to_builtins(plays), indent=1) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
