"""Dashboards and rules at scale: `python -m tests.bench.scale [--gpus N...] [--raw N] [--rules N]`."""

import argparse
import os
import tempfile
import time
from pathlib import Path

import psutil

from tests.bench.measure import own_memory, table
from tests.bench.scale import fleet
from tests.bench.scale.boards import TIMEOUT, Taken, median, opened, queries, raw
from tests.bench.scale.rules import measure
from tests.dashboards.boards import FILES
from tests.e2e.backfilled import serving
from tests.e2e.processes import Prometheus

SLOWEST = 10
HEADS = ("query", "step", "s", "CPU s", "series", "error")


def load() -> str:
    """How busy the machine is."""
    return f"load {os.getloadavg()[0]:.1f} on {psutil.cpu_count()} cores"


def row(taken: Taken) -> tuple[object, ...]:
    step = f"{taken.query.step} s" if taken.query.step else "instant"
    return taken.query.name, step, taken.seconds, taken.cpu, taken.series, taken.error


def dashboards(templates: list[fleet.Template], gpus: int, boards: list[str], with_raw: bool) -> None:
    """Print what dashboards cost on a fleet of so many GPUs."""
    end = int(time.time()) // fleet.SCRAPE * fleet.SCRAPE
    with tempfile.TemporaryDirectory(prefix="scale-") as place:
        made = fleet.write(Path(place), templates, gpus, end)
        print(f"\n# {gpus:,} GPUs: {made['numSeries']:,} series, {made['numSamples']:,} samples; {load()}", flush=True)
        with serving(Path(place), f"--query.timeout={2 * TIMEOUT}s") as served:
            taken, rows = [], []
            asked = list(queries("r0-gpu-west-01"))
            for board in boards:
                its = [median(served, query, end) for query in asked if query.board == board]
                slow = sorted(its, key=lambda each: -each.seconds)[:SLOWEST]
                table(f"{board}: the {SLOWEST} slowest queries, {gpus:,} GPUs; {load()}", HEADS, [row(e) for e in slow])
                whole, cpu = opened(served, [each.query for each in its], end)
                rows.append((board, len(its), max(e.seconds for e in its), max(e.cpu for e in its), whole, cpu))
                taken += its
            heads = ("dashboard", "queries", "slowest s", "most CPU s", "all at once s", "all CPU s")
            table(f"Dashboards, {gpus:,} GPUs", heads, rows)
            if with_raw:
                _compare(served, [each for each in taken if each.query.board == "fleet"], end)
            print(f"\nPrometheus has {own_memory(served.process.pid):.0f} MiB; {load()}", flush=True)


def _compare(served: Prometheus, taken: list[Taken], end: int) -> None:
    rows = []
    for each in taken:
        bare = raw(each.query)
        if bare != each.query:
            other = median(served, bare, end, 1)
            rows.append((each.query.name, each.seconds, other.seconds, each.cpu, other.cpu, other.error))
    heads = ("query", "s", "raw s", "CPU s", "raw CPU s", "error")
    table("Fleet with recording rules and without", heads, rows)


def groups(templates: list[fleet.Template], gpus: int, seconds: int) -> None:
    """Print what the groups of rules cost."""
    with tempfile.TemporaryDirectory(prefix="scale-") as place:
        found = measure(Path(place), templates, gpus, seconds)
    print(f"\n# {gpus:,} GPUs, rules: {found.series:,} scraped series; {load()}")
    rows = [(g.name, g.rules, g.cpu, min(g.seconds), g.median, max(g.seconds), len(g.seconds)) for g in found.groups]
    table("Groups of rules", ("group", "rules", "CPU s alone", "least s", "median s", "most s", "evaluations"), rows)
    print(f"\nPrometheus: {found.memory:.0f} MiB, {found.cpu:.2f} cores for all groups")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--gpus", type=int, nargs="*", default=(1024, 10_000))
    names = [file.stem for file in FILES]
    parser.add_argument("--boards", nargs="*", choices=names, default=names)
    parser.add_argument("--raw", type=int, default=1024, help="up to so many GPUs also without recording rules")
    parser.add_argument("--rules", type=int, default=10_000, help="GPUs of the fleet that rules are measured on")
    parser.add_argument("--seconds", type=int, default=300, help="how long rules are measured")
    options = parser.parse_args()
    templates = fleet.templates()
    for gpus in options.gpus:
        dashboards(templates, gpus, options.boards, gpus <= options.raw)
    if options.rules:
        groups(templates, options.rules, options.seconds)


if __name__ == "__main__":
    main()
