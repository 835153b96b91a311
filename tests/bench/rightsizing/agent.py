"""What right-sizing costs an agent: two of them side by side on one node, one of them without, over the same minutes.

python -m tests.bench.rightsizing.agent [--seconds 150] [--pods 8]
"""

import argparse
import contextlib
import re
import sys
import tempfile
import time
from pathlib import Path
from typing import NamedTuple

import psutil

from tests.bench.node import Node, Shape
from tests.e2e.processes import Agent, agent

SETTLE_SECONDS = 70.0
"""By then the first advice has been made, and all is loaded that ever will be."""

MIB = 1 << 20


class Cost(NamedTuple):
    """Of the agent's own process, without its reader."""

    rss: float  # MiB
    pss: float  # MiB
    cpu: float  # seconds a minute
    threads: int


def main() -> None:
    """Print both, and the difference."""
    given = argparse.ArgumentParser(description=__doc__)
    given.add_argument("--seconds", type=float, default=150.0)
    given.add_argument("--pods", type=int, default=8)
    asked = given.parse_args()
    shape = Shape(f"8 GPUs, {asked.pods} pods", pods=asked.pods)
    with contextlib.ExitStack() as stack:
        place = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        node = Node(place / "node", shape, stack)
        agents = {on: stack.enter_context(_agent(node, place / on, on=on == "with")) for on in ("with", "without")}
        for each in agents.values():
            each.set_class()
        time.sleep(SETTLE_SECONDS)
        costs = measured(agents, asked.seconds)
        for each in agents.values():
            each.process.terminate()
            each.process.wait()
        saved = (place / "with/state/rightsizing.json").stat().st_size
    print(f"{shape.name}, a look each second, {asked.seconds:.0f} s of both side by side")
    print(f"{'':>12}{'RSS MiB':>10}{'PSS MiB':>10}{'CPU s/min':>11}{'threads':>9}")
    for name, cost in costs.items():
        print(f"{name:>12}{cost.rss:10.1f}{cost.pss:10.1f}{cost.cpu:11.3f}{cost.threads:9d}")
    more = [a - b for a, b in zip(costs["with"], costs["without"], strict=True)]
    print(f"{'more':>12}{more[0]:10.1f}{more[1]:10.1f}{more[2]:11.3f}{more[3]:9.0f}")
    print(f"checkpoint {saved / 1024:.0f} KiB")


def measured(agents: dict[str, Agent], seconds: float) -> dict[str, Cost]:
    """After so many seconds."""
    processes = {name: psutil.Process(each.process.pid) for name, each in agents.items()}
    before = {name: _cpu(process) for name, process in processes.items()}
    began = time.monotonic()
    time.sleep(seconds)
    minutes = (time.monotonic() - began) / 60
    return {
        name: Cost(
            rss=process.memory_info().rss / MIB,
            pss=_pss(process.pid),
            cpu=(_cpu(process) - before[name]) / minutes,
            threads=process.num_threads(),
        )
        for name, process in processes.items()
    }


def _agent(node: Node, place: Path, *, on: bool) -> contextlib.AbstractContextManager[Agent]:
    config = {**node.config, "rightsizing": {"enabled": on}}
    source = ("--source", "nvml", "--nvml-library", str(node.driver.library))
    return agent(place, source=source, config=config, env=node.driver.env)


def _cpu(process: psutil.Process) -> float:
    times = process.cpu_times()
    return float(times.user + times.system)


def _pss(pid: int) -> float:
    rollup = Path(f"/proc/{pid}/smaps_rollup").read_text()
    return int(re.findall(r"^Pss:\s+(\d+)", rollup, re.M)[0]) / 1024


if __name__ == "__main__":
    sys.exit(main())
