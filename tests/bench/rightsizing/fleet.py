"""Right-sizing a fleet out of a real Prometheus: `python -m tests.bench.rightsizing.fleet --nodes 10 100 1000`.

For each size two weeks of 8 GPUs a node are backfilled by promtool, a Prometheus of its own serves them, and a process
of its own reads them, judges and tells what that took. What is printed for Prometheus is the highest resident memory
while it was read. `--place` keeps the databases for the next time; 1,000 nodes take promtool ten minutes and a core.
"""

import argparse
import json
import os
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any, NamedTuple

from tests.bench.rightsizing.fleet_backfill import GPUS, Plan, fill
from tests.e2e.backfilled import serving

DAY = 86400
START_SECONDS = 120.0


class Result(NamedTuple):
    """What one size took. Sizes in bytes, times in seconds."""

    nodes: int
    interval: int
    step: float
    samples: int
    backfill: float
    wall: float
    cpu: float
    server_cpu: float
    reader: int
    server: int
    received: int
    unpacked: int
    queries: int
    windows: int
    workloads: int
    items: int


def run(plan: Plan, place: Path, step: float | None) -> Result:
    """Fill, serve, read."""
    told = place / "filled.json"
    if not told.exists():
        shutil.rmtree(place, ignore_errors=True)
        began = time.monotonic()
        samples = fill(plan, place)
        told.write_text(json.dumps({"samples": samples, "seconds": time.monotonic() - began, "end": plan.end}))
    filled = json.loads(told.read_text())
    with serving(place, seconds=START_SECONDS) as server:
        days = (plan.end - plan.begin) / DAY
        found = read(server.url, days, filled["end"], step)
        return Result(
            nodes=plan.nodes,
            interval=plan.interval,
            samples=filled["samples"],
            backfill=filled["seconds"],
            server=peak(server.process.pid),
            server_cpu=busy(server.process.pid),
            **found,
        )


def read(url: str, days: float, end: float, step: float | None) -> dict[str, Any]:
    """What a process of its own says of itself after it has judged the fleet."""
    command = [sys.executable, "-m", "tests.bench.rightsizing.fleet", "--read", url, "--days", str(days)]
    command += ["--end", str(end), *(["--step", str(step)] if step else [])]
    done = subprocess.run(command, check=True, stdout=subprocess.PIPE)
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def peak(pid: int) -> int:
    """The most resident memory of a process so far (VmHWM)."""
    status = Path(f"/proc/{pid}/status").read_text()
    return int(status.partition("VmHWM:")[2].split()[0]) * 1024


def busy(pid: int) -> float:
    """Seconds of processor that a process has had so far."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def judged(url: str, days: float, end: float, step: float | None) -> dict[str, Any]:
    """Read and judge, here."""
    from gpuwatch.config import RightsizingConfig
    from gpuwatch.rightsizing.findings.judge import recommend
    from gpuwatch.rightsizing.prometheus.api import PrometheusApi
    from gpuwatch.rightsizing.prometheus.history import FleetHistory, ReadProgress
    from gpuwatch.rightsizing.prometheus.http import PrometheusHttp
    from gpuwatch.rightsizing.prometheus.read_plan import HistoryOptions

    api, config = PrometheusApi(PrometheusHttp(url, rate=1000)), RightsizingConfig()
    windows = 0

    def report(progress: ReadProgress) -> None:
        nonlocal windows
        windows = progress.windows
        rss = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        print(f"{progress.done}/{progress.total} {windows} windows {rss >> 10} MiB", file=sys.stderr, flush=True)

    began = time.monotonic()
    history = FleetHistory(api, config, HistoryOptions(window=days * DAY, end=end, step=step), report)
    ledger, fleet = history.read()
    advice = recommend(ledger.summaries(end), fleet, config, end)
    traffic = api.http.traffic
    return {
        "wall": time.monotonic() - began,
        "cpu": time.process_time(),
        "step": history.plan.step if history.plan else 0.0,
        "reader": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024,
        "received": traffic.received,
        "unpacked": traffic.unpacked,
        "queries": traffic.requests,
        "windows": windows,
        "workloads": advice.workloads,
        "items": len(advice.items),
    }


COLUMNS = {
    "nodes": lambda r: f"{r.nodes:,}",
    "GPUs": lambda r: f"{r.nodes * GPUS:,}",
    "samples in it": lambda r: f"{r.samples / 1e6:.1f} M",
    "step": lambda r: f"{r.step / 60:.0f} min",
    "wall": lambda r: f"{r.wall:.1f} s",
    "reader's CPU": lambda r: f"{r.cpu:.1f} s",
    "Prometheus' CPU": lambda r: f"{r.server_cpu:.1f} s",
    "reader's peak RSS": lambda r: f"{r.reader / 2**20:.0f} MiB",
    "Prometheus' peak RSS": lambda r: f"{r.server / 2**20:.0f} MiB",
    "on the wire": lambda r: f"{r.received / 1e6:.1f} MB",
    "unpacked": lambda r: f"{r.unpacked / 1e6:.0f} MB",
    "queries": lambda r: f"{r.queries}",
    "windows": lambda r: f"{r.windows:,}",
    "workloads": lambda r: f"{r.workloads:,}",
}
GROWING = {
    "GPUs": lambda r: r.nodes,
    "samples in it": lambda r: r.samples,
    "wall": lambda r: r.wall,
    "reader's CPU": lambda r: r.cpu,
    "Prometheus' CPU": lambda r: r.server_cpu,
    "reader's peak RSS": lambda r: r.reader,
    "Prometheus' peak RSS": lambda r: r.server,
    "on the wire": lambda r: r.received,
    "unpacked": lambda r: r.unpacked,
    "queries": lambda r: r.queries,
    "windows": lambda r: r.windows,
    "workloads": lambda r: r.workloads,
}


def table(results: list[Result]) -> str:
    """In Markdown: a line a size, and between two the factors."""
    lines = ["| " + " | ".join(COLUMNS) + " |", "|---" * len(COLUMNS) + "|"]
    for before, result in zip([None, *results[:-1]], results, strict=True):
        if before is not None and before.step == result.step:
            factors = {name: f"× {get(result) / get(before):.1f}" for name, get in GROWING.items()}
            lines.append("| " + " | ".join(factors.get(name, "") for name in COLUMNS) + " |")
        lines.append("| " + " | ".join(show(result) for show in COLUMNS.values()) + " |")
    return "\n".join(lines)


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--nodes", type=int, nargs="+", default=[10, 100])
    parser.add_argument("--days", type=float, default=14)
    parser.add_argument("--interval", type=int, default=600, help="seconds between scrapes")
    parser.add_argument("--step", type=float, default=None, help="seconds; else as gpuwatch chooses")
    parser.add_argument("--end", type=float, default=time.time() // DAY * DAY)
    parser.add_argument("--place", type=Path, default=None, help="keep databases here")
    parser.add_argument("--read", metavar="URL", help="only read, and tell what it took, as JSON")
    asked = parser.parse_args()
    if asked.read:
        print(json.dumps(judged(asked.read, asked.days, asked.end, asked.step)))
        return
    results = []
    with tempfile.TemporaryDirectory(prefix="gpuwatch-fleet-") as temporary:
        for nodes in asked.nodes:
            plan = Plan(nodes, int(asked.end - asked.days * DAY), int(asked.end), asked.interval)
            place = (asked.place or Path(temporary)) / f"n{nodes}-{asked.interval}"
            results.append(run(plan, place, asked.step))
            print(results[-1], file=sys.stderr, flush=True)
    print(table(results))


if __name__ == "__main__":
    main()
