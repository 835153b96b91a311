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
from tests.bench.tuner.curves import FITS, ZEUS, Curve, drawn, load
from tests.bench.tuner.play import Noise
from tests.bench.tuner.rivals import fixed
from tests.bench.tuner.score import HEAD, Score, cells, ruled, score, tuned

RESULTS = Path(".cache/bench-tuner.json")
NOISES = (Noise(0.005), Noise(0.01), Noise(0.02), Noise(0.01, 0.7), Noise(0.02, 0.6), Noise(0.02, 0.8))
BOUNDS = (0.02, 0.05, 0.10)


def show(title: str, scores: Sequence[Score]) -> None:
    """Print lines of one kind."""
    table(title, HEAD, [cells(each) for each in scores])


def steady(what: str, curves: Sequence[Curve], seed: int, noises: Iterable[Noise] = NOISES) -> list[Score]:
    """The tuner at 5 % under each noise, and at the other bounds under one."""
    cases = [(noise, 0.05) for noise in noises] + [(Noise(0.01), bound) for bound in BOUNDS if bound != 0.05]
    return [score(what, "gpuwatch", str(noise), bound, tuned(curves, noise, bound, seed)) for noise, bound in cases]


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
    count = 6 if chosen.quick else 60
    fleets = {name: list(drawn(name, count, chosen.seed)) for name in FITS}
    everything = [curve for fleet in fleets.values() for curve in fleet]
    scores = steady("all ranges", everything, chosen.seed)
    scores += [score("all ranges", "fixed 85 %", "", 0.05, ruled(everything, 0.05, fixed))]
    show("Drawn from fitted ranges, SM clock", scores)
    zeus = list(load(ZEUS))[:: 10 if chosen.quick else 1]
    for gpu, curves in by_gpu(zeus).items():
        found = [score(gpu, "gpuwatch", "white 1 %", 0.05, tuned(curves, Noise(0.01), 0.05, chosen.seed))]
        found += [score(gpu, "fixed 70 %", "", 0.05, ruled(curves, 0.05, fixed))]
        show(f"Zeus traces, power limit, {gpu}", found)
        scores += found
    for path in chosen.curves:
        for gpu, curves in by_gpu(load(path)).items():
            found = steady(gpu, curves, chosen.seed)
            show(f"{path.name}: {gpu}", found)
            scores += found
    RESULTS.parent.mkdir(exist_ok=True)
    RESULTS.write_text(json.dumps([each._asdict() | {"share": each.share} for each in scores], indent=1) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
