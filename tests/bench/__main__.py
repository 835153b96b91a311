"""gpuwatch against nvitop-exporter and prometheus_client, in one run: `python -m tests.bench`.

Prints tables with both figures and writes them to .cache/bench.json. Both exporters read the same fake driver library,
whose calls take the time of real ones, and run side by side; latency is that of a scraper that keeps its connection as
Prometheus does, asking both in turns.
"""

import contextlib
import json
import platform
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tests.bench.bench_exposition import compare
from tests.bench.measure import (
    PROMETHEUS,
    Compared,
    at_most,
    cpu_per_minute,
    faster,
    latencies,
    pss,
    scrape,
    scraping,
    show,
    table,
)
from tests.bench.node import CALL_SECONDS, PCIE_SECONDS, Node, Shape, gpuwatch, nvitop_exporter, take_time
from tests.bench.pages import views
from tests.e2e.processes import fetch, running
from tests.ports import free_port
from tests.waiting import until

RESULTS = Path(".cache/bench.json")
GROWTH = (
    Shape("1 GPU", gpus=1),
    Shape("8 GPUs", gpus=8),
    Shape("16 GPUs", gpus=16),
    Shape("8 GPUs x 7 MIG instances", gpus=8, mig=True),
    Shape("8 GPUs, 500 pods", gpus=8, pods=500),
)
SERIES = 20_000
ROUNDS = 200
CPU_SECONDS = 30
GROWTH_SECONDS = 15
SETTLE_SECONDS = 16  # a scraper that stays away so long is forgotten


@contextlib.contextmanager
def place(shape: Shape, interval: float = 1.0) -> Iterator[Node]:
    """A node of some shape, for as long as the block runs."""
    with tempfile.TemporaryDirectory(prefix="bench-") as directory, contextlib.ExitStack() as stack:
        yield Node(Path(directory), shape, stack, interval)


def eight_gpus(interval: float) -> list[Compared]:
    """Both exporters side by side on eight busy GPUs with a pod each, on a driver that takes its time. Both read it
    every `interval` seconds, and are scraped as often.
    """
    with place(Shape("8 GPUs"), interval) as node, contextlib.ExitStack() as stack:
        take_time(node.driver)
        ours, peer = stack.enter_context(gpuwatch(node)), stack.enter_context(nvitop_exporter(node))
        urls, pids = (ours.url, peer.url), (ours.pid, peer.pid)
        found = [at_most("time to first complete page", ours.started, peer.started, "s", 0.5)]
        time.sleep(3)
        for name, headers in (("plain", None), ("as Prometheus asks", PROMETHEUS)):
            (p50, p99), (peer50, peer99) = latencies(urls, ROUNDS, headers)
            found += [
                Compared(f"scrape p50, {name}", p50, peer50, "ms"),
                Compared(f"scrape p99, {name}", p99, peer99, "ms"),
            ]
        time.sleep(SETTLE_SECONDS)
        with scraping(urls, interval):
            time.sleep(2 * interval + 2)  # by then it is known when the next scrape comes
            cpu = cpu_per_minute(pids, max(CPU_SECONDS, 8 * interval))
        lines = [(fetch(url) or b"").count(b"\n") for url in urls]  # now that rates have their second sample
        found += [Compared("lines on the page", *map(float, lines), "lines")]
        each = [1e3 * used / count for used, count in zip(cpu, lines, strict=True)]
        found += [
            at_most("CPU a minute", *cpu, "s", 1.2) if interval == 1 else faster("CPU a minute", *cpu, "s", 1),
            faster("CPU a minute for each line", *each, "ms", 2),
            at_most("memory (PSS), pod mapping on", sum(pss(ours.pid)), sum(pss(peer.pid)), "MiB", 52),
        ]
    return found


def big_page() -> list[Compared]:
    """The same View served by gpuwatch and by prometheus_client."""
    with contextlib.ExitStack() as stack:
        urls = []
        directory = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="bench-")))
        for who in ("gpuwatch", "prometheus_client"):
            port = free_port()
            command = [sys.executable, "-m", "tests.bench.pages", who, str(port), str(SERIES)]
            process = stack.enter_context(running(command, directory / f"{who}.log"))
            stack.callback(process.kill)
            urls.append(f"http://127.0.0.1:{port}/metrics")
        for url in urls:
            until(lambda url=url: (fetch(url) or b"").count(b"\n") > SERIES, "the big page")
        found = []
        for name, headers in (("plain", None), ("as Prometheus asks", PROMETHEUS)):
            (p50, p99), (peer50, peer99) = latencies(urls, ROUNDS // 10, headers)
            found += [faster(f"scrape p50, {name}", p50, peer50, "ms", 50)]
            found += [Compared(f"scrape p99, {name}", p99, peer99, "ms")]
    return found


def growth() -> list[dict[str, Any]]:
    """gpuwatch alone on nodes of several shapes."""
    rows = []
    for shape in GROWTH:
        with place(shape) as node, gpuwatch(node) as ours, scraping((ours.url,), 1.0):
            time.sleep(4)
            cpu = cpu_per_minute((ours.pid,), GROWTH_SECONDS)[0]
            memory = pss(ours.pid)
            (p50, p99), page = latencies((ours.url,), ROUNDS, PROMETHEUS)[0], fetch(ours.url) or b""
            rows.append(
                {
                    "node": shape.name,
                    "series": sum(not line.startswith(b"#") for line in page.splitlines()),
                    "page KiB": len(page) / 1024,
                    "gzip KiB": scrape(ours.url, PROMETHEUS).size / 1024,
                    "p50 ms": p50,
                    "p99 ms": p99,
                    "CPU s/min": cpu,
                    "agent MiB": memory[0],
                    "reader MiB": sum(memory[1:]),
                    "first page s": ours.started,
                }
            )
    return rows


def startup() -> list[Compared]:
    """What a person waits for."""
    ours = [str(Path(sys.executable).with_name("gpuwatch")), "--help"]
    peer = [sys.executable, "-c", "import click"]
    taken: dict[int, list[float]] = {0: [], 1: []}
    for _ in range(10):
        for number, command in enumerate((ours, peer)):
            start = time.perf_counter()
            subprocess.run(command, check=True, capture_output=True)
            taken[number].append((time.perf_counter() - start) * 1e3)
    mine, theirs = (statistics.median(seconds) for seconds in taken.values())
    return [at_most("gpuwatch --help (peer: import click)", mine, theirs, "ms", 150)]


def main() -> None:
    """Run everything."""
    start = time.monotonic()
    results: dict[str, Any] = {"machine": f"{platform.machine()}, Python {platform.python_version()}"}
    takes = f"a driver whose calls take {CALL_SECONDS * 1e3:.2f} ms, of PCIe {PCIE_SECONDS * 1e3:g} ms"
    for interval in (1.0, 15.0):
        title = f"8 GPUs, read and scraped every {interval:g} s, {takes}"
        results[f"eight_gpus_{interval:g}s"] = show(title, eight_gpus(interval), "nvitop-exporter")
    results["big_page"] = show(f"{SERIES:,} series over HTTP", big_page(), "prometheus_client")
    print("\nRendering one View")
    results["rendering"] = {
        name: compare(name, views(series), rounds)
        for name, series, rounds in (("8 GPUs", 1, 100), ("20,000 series", SERIES, 10))
    }
    results["startup"] = show("Command line", startup(), "peer")
    rows = growth()
    table(
        "Growth, interval 1 s, scraped every 1 s as Prometheus does", tuple(rows[0]), [tuple(r.values()) for r in rows]
    )
    results["growth"] = rows
    results["seconds"] = time.monotonic() - start
    RESULTS.parent.mkdir(exist_ok=True)
    RESULTS.write_text(json.dumps(results, indent=2) + "\n")
    print(f"\n{results['seconds']:.0f} s; written to {RESULTS}")


if __name__ == "__main__":
    main()
