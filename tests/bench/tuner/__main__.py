"""The energy tuner and its rivals on workloads whose curves are known: `python -m tests.bench.tuner [--quick]`.

Prints tables and writes them to .cache/bench-tuner.json. The same arguments give the same figures on any machine.
`--curves FILE.csv` adds curves of your own (columns: gpu, workload, power_limit_w or clock_mhz, relative_perf,
relative_energy; optional avg_power_w).
"""

import argparse
import json
import sys
from collections import defaultdict
from collections.abc import Iterable, Sequence
from pathlib import Path

from tests.bench.measure import table
from tests.bench.tuner import ablate, budget, day, hard, served, warm
from tests.bench.tuner.curves import FITS, ZEUS, Curve, drawn, load
from tests.bench.tuner.long import HOURS, Changes, Long, amortised, changing
from tests.bench.tuner.long import cells as long_cells
from tests.bench.tuner.play import Noise
from tests.bench.tuner.rivals import Rule, fixed, fold_line, grid
from tests.bench.tuner.score import HEAD, Score, cells, ruled, score, tuned

RESULTS = Path(".cache/bench-tuner.json")
NOISES = (Noise(0.005), Noise(0.01), Noise(0.02), Noise(0.01, 0.7), Noise(0.02, 0.6), Noise(0.02, 0.8))
WHITE, LASTING = NOISES[1], NOISES[4]
BOUNDS = (0.02, 0.05, 0.10)


def show(title: str, scores: Sequence[Score]) -> None:
    """Print lines of one kind."""
    table(title, HEAD, [cells(each) for each in scores])


def steady(what: str, curves: Sequence[Curve], seed: int, noises: Iterable[Noise] = NOISES) -> list[Score]:
    """The tuner at 5 % under each noise, and at the other bounds under one."""
    cases = [(noise, 0.05) for noise in noises] + [(Noise(0.01), bound) for bound in BOUNDS if bound != 0.05]
    return [score(what, "gpuwatch", str(noise), bound, tuned(curves, noise, bound, seed)) for noise, bound in cases]


def rivals(what: str, curves: Sequence[Curve], seed: int) -> list[Score]:
    """The other rules at 5 %."""
    rules: dict[tuple[str, str], Rule] = {
        ("none", ""): lambda curve, ladder: None,
        ("fixed", ""): fixed,
        ("fold line", str(WHITE)): fold_line(0.05, WHITE.sigma, seed),
        ("Zeus grid", ""): grid(0.05),
    }
    return [score(what, name, noise, 0.05, ruled(curves, 0.05, rule)) for (name, noise), rule in rules.items()]


def by_gpu(curves: Iterable[Curve]) -> dict[str, list[Curve]]:
    """Each knob and model by itself."""
    found = defaultdict(list)
    for curve in curves:
        found[f"{curve.gpu}{', clocks' if curve.knob == 'locked_clocks' else ''}"].append(curve)
    return dict(found)


def main(arguments: Sequence[str]) -> int:
    """Print all tables."""
    parser = argparse.ArgumentParser(prog="python -m tests.bench.tuner", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="a tenth of the workloads")
    parser.add_argument("--curves", type=Path, action="append", default=[], metavar="FILE.csv")
    parser.add_argument("--seed", type=int, default=2026)
    chosen = parser.parse_args(arguments)
    tenth, seed = 10 if chosen.quick else 1, chosen.seed
    fleet = [curve for name in FITS for curve in drawn(name, 60 // tenth, seed)]
    scores = ranges(fleet, seed) + traces(list(load(ZEUS))[::tenth], seed)
    for path in chosen.curves:
        for gpu, curves in by_gpu(load(path)).items():
            found = [*steady(gpu, curves, seed), *rivals(gpu, curves, seed)]
            show(f"{path.name}: {gpu}", found)
            scores += found
    hours = [amortised(fleet[::5], noise, 0.05, seed) for noise in NOISES]
    table(
        f"{HOURS:g} h, probes and verifications paid for, bound 5 %", Long._fields, [long_cells(each) for each in hours]
    )
    parted, drift = hard.evaluate(40 // tenth, seed)
    hard.show(parted, drift)
    ablated = ablate.evaluate(12 // tenth, seed)
    ablate.show(ablated, 12 // tenth)
    warm.show(warm.evaluate(20 // tenth, seed))
    served.show([served.served(load, 24.0 / tenth, seed) for load in served.LOADS])
    changes = [changing(20 // tenth, noise, 0.05, seed) for noise in NOISES]
    table("Seconds over the bound + 1 pp after each change", Changes._fields, [long_cells(each) for each in changes])
    document = {"arguments": list(arguments), "scores": [each._asdict() | {"share": each.share} for each in scores]}
    whole = day.under(8, 1.5, seed, hurry=4.0) if chosen.quick else day.under(8, 24.0, seed)
    day.show(whole, seed)
    power = [*load(ZEUS), *(curve for path in chosen.curves for curve in load(path))]
    trials = budget.TRIALS // tenth
    budgets, loops = budget.evaluate(power, trials), budget.run(power, trials)
    budget.show(budgets)
    budget.show(loops, budget.IN_LOOP)
    document |= {"budgets": [each._asdict() for each in budgets], "loops": [each._asdict() for each in loops]}
    document |= {"day": whole._asdict() | {"kinds": [kind._asdict() for kind in whole.kinds]}}
    document |= {"hours": [each._asdict() for each in hours], "changes": [each._asdict() for each in changes]}
    document |= {"parted": [each._asdict() for each in parted], "drift": drift._asdict()}
    document |= {"ablated": [ablate.cells(each) for each in ablated]}
    RESULTS.parent.mkdir(exist_ok=True)
    RESULTS.write_text(json.dumps(document, indent=1) + "\n")
    return 0


def ranges(fleet: Sequence[Curve], seed: int) -> list[Score]:
    """SM clock, workloads drawn from fitted ranges."""
    together = [*steady("all ranges", fleet, seed), *rivals("all ranges", fleet, seed)]
    show("Drawn from fitted ranges, SM clock", together)
    alone = [
        score(gpu, "gpuwatch", str(LASTING), 0.05, tuned(curves, LASTING, 0.05, seed))
        for gpu, curves in by_gpu(fleet).items()
    ]
    show("Each range by itself", alone)
    skewed = [
        score("all ranges", "gpuwatch", str(noise), 0.05, tuned(fleet, noise, 0.05, seed))
        for noise in (Noise(0.01, skew=0.003), Noise(0.01, skew=0.006), Noise(0.01, skew=0.012))
    ]
    show("Counters that tell the speed wrong, each its own way", skewed)
    return together + alone + skewed


def traces(zeus: Sequence[Curve], seed: int) -> list[Score]:
    """Power limit, measured workloads; those below draw less than any limit tried, so that none does anything."""
    found: list[Score] = []
    for gpu, curves in by_gpu(zeus).items():
        bound = [curve for curve in curves if curve.binds]
        found += [score(gpu, "gpuwatch", str(WHITE), 0.05, tuned(bound, WHITE, 0.05, seed))]
        found += [score(gpu, "gpuwatch", str(LASTING), 0.05, tuned(bound, LASTING, 0.05, seed))]
        found += [score(gpu, "gpuwatch, 25 W", str(WHITE), 0.05, tuned(bound, WHITE, 0.05, seed, watts=25.0))]
        found += [score(gpu, "fixed", "", 0.05, ruled(bound, 0.05, fixed))]
        found += [score(gpu, "Zeus, 25 W", "", 0.05, ruled(bound, 0.05, grid(0.05)))]
        found += [score(f"{gpu}, all", "gpuwatch", str(WHITE), 0.05, tuned(curves, WHITE, 0.05, seed))]
    show("Zeus traces, power limit", found)
    return found


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
