"""A day of churn in minutes: `python -m tests.bench.soak [--hours 24] [--minutes 6]`. Exits with 1 when something grew.

The simulated node runs that much faster than real time; the agent and its reader are the real processes, sampling at
their shortest interval. All the while pods with names never seen before come and go, GPUs are cut and made whole, lost
and recovered, the kubelet is away now and then, applications fault and the driver is reloaded.
"""

import argparse
import contextlib
import re
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import psutil

from gpuwatch.config import AgentConfig, Config, MetricsConfig
from gpuwatch.sim.node.scenario import parse
from gpuwatch.sim.world import World
from tests.bench.measure import PROMETHEUS, quantiles, scrape, table
from tests.e2e.launch import Launch
from tests.e2e.processes import fetch, running
from tests.ports import free_port
from tests.waiting import until

INTERVAL = 0.1
MIB_GROWTH = 2.0
WARM_UP = 0.25  # of the time
SETTLE_SECONDS = 10.0  # of a reader's life before its memory counts
GPUS = 8
POD_LIFE = 6  # turns of a second
SCENARIO = {
    "description": "Eight GPUs, four of them at a long training, the others for the churn",
    "node": {"model": "h100", "gpus": GPUS},
    "workloads": [
        {"name": "ml/pretrain-0", "container": "trainer", "gpus": [0, 1, 2, 3], "load": "training", "memory": 0.86}
    ],
}
# seconds of real time between two, and what happens
REGULAR: tuple[tuple[int, dict[str, Any]], ...] = (
    (7, {"do": "xid", "gpu": 4, "xid": 43}),
    (11, {"do": "mig", "gpu": 7, "profiles": ["3g.40gb", "3g.40gb"]}),
    (17, {"do": "mig", "gpu": 7}),
    (23, {"do": "kubelet", "state": "absent"}),
    (29, {"do": "kubelet", "state": "ok"}),
    (31, {"do": "lose", "gpu": 6}),
    (37, {"do": "recover", "gpu": 6}),
    (65, {"do": "reload", "seconds": 60.0}),
)


class Sample(NamedTuple):
    """The processes at one moment; memory in MiB, private pages only."""

    at: float
    agent: float
    agent_threads: int
    agent_files: int
    children: int
    reader: int | None  # pid
    reader_memory: float = 0.0
    reader_threads: int = 0
    reader_files: int = 0


def sample(pid: int, at: float) -> Sample:
    """Measure the agent and its newest child."""
    agent = psutil.Process(pid)
    own = (at, private(pid), agent.num_threads(), agent.num_fds())
    children = sorted(agent.children(), key=lambda child: child.create_time())
    with contextlib.suppress(psutil.Error, OSError, IndexError):
        reader = children[-1]
        theirs = (reader.pid, private(reader.pid), reader.num_threads(), reader.num_fds())
        return Sample(*own, len(children), *theirs)
    return Sample(*own, len(children), None)


def private(pid: int) -> float:
    """MiB that no other process shares: unlike PSS it does not change with what else runs on the machine."""
    lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    return sum(int(line.split()[1]) for line in lines if line.startswith("Private_")) / 1024


class Churn:
    """What happens to the node, one turn a second."""

    def __init__(self, world: World) -> None:
        self._world, self._turn = world, 0
        self.pods = 0
        self.reloads = 0

    def turn(self) -> None:
        """A new pod, the end of an old one, and whatever is due."""
        self._turn += 1
        self.pods += 1
        workload = {"name": f"batch/{self._name(self.pods)}", "gpus": [4 + self.pods % 2], "memory": 0.1}
        self._world.inject({"do": "start", "workload": {**workload, "process": f"worker-{self.pods}"}})
        if self.pods > POD_LIFE:
            self._world.inject({"do": "stop", "name": f"batch/{self._name(self.pods - POD_LIFE)}"})
        for every, action in REGULAR:
            if self._turn % every == 0:
                self._world.inject(action)
                self.reloads += action["do"] == "reload"

    def gone(self, grace: int) -> set[str]:
        """Pods that ended more than `grace` turns ago."""
        return {self._name(number) for number in range(1, self.pods - POD_LIFE - grace + 1)}

    def _name(self, number: int) -> str:
        return f"job-{number:05}"


@contextlib.contextmanager
def agent(place: Path, world: World) -> Iterator[tuple[int, str]]:
    """(pid, URL) of an agent that watches the world."""
    port = free_port()
    launch = Launch(
        config=Config(
            agent=AgentConfig(
                listen=f"127.0.0.1:{port}", socket=str(place / "agent.sock"), interval=INTERVAL, api="open"
            ),
            metrics=MetricsConfig(profiles=("native", "dcgm-4.8"), processes=True),
            sources=world.sources,
        ),
        backend=world.backend,
    )
    command = [sys.executable, "-m", "tests.e2e.launch", msgspec.json.encode(launch).decode()]
    with running(command, place / "agent.log") as process:
        url = f"http://127.0.0.1:{port}"
        until(lambda: fetch(f"{url}/-/ready"), "the agent is ready")
        yield process.pid, url


def live(pid: int, url: str, churn: Churn, seconds: float) -> tuple[list[Sample], list[float]]:
    """Turn by turn to the end; what was seen, and seconds of every scrape."""
    start, looks, scrapes = time.monotonic(), [], []
    turns = int(seconds)
    for number in range(1, turns + 1):
        churn.turn()
        scrapes.append(scrape(f"{url}/metrics", PROMETHEUS).seconds)
        if number % 5 == 0:
            scrape(f"{url}/api/v1/view")
            scrape(f"{url}/api/v1/events")
        looks.append(sample(pid, time.monotonic() - start))
        if number % 60 == 0:
            last = looks[-1]
            print(f"  {number:4} s: agent {last.agent:.1f} MiB, reader {last.reader_memory:.1f} MiB", flush=True)
        time.sleep(max(0.0, start + number - time.monotonic()))
    return looks, scrapes


class Verdict(NamedTuple):
    """One line of the result."""

    what: str
    before: float
    after: float
    bound: str
    good: bool


def grew(what: str, looks: list[Sample], member: Callable[[Sample], float], bound: float, unit: str) -> Verdict:
    """Compare the first and the last quarter of `looks`: medians of memory, else the most. To shrink is no fault."""
    quarter = max(len(looks) // 4, 1)
    of = statistics.median if unit == "MiB" else max
    before, after = (of([member(one) for one in part]) for part in (looks[:quarter], looks[-quarter:]))
    return Verdict(f"{what}, {unit}", before, after, f"+{bound:g}", after - before <= bound)


def judge(looks: list[Sample], page: bytes, churn: Churn, scrapes: list[float]) -> list[Verdict]:
    """What must not have grown, and what must be gone."""
    warm = looks[int(len(looks) * WARM_UP) :]
    settled = [one for one in warm if one.reader and one.at - _born(looks, one.reader) > SETTLE_SECONDS]
    restarts = _sample(page, "gpuwatch_reader_restarts_total")
    dead = churn.gone(grace=5)
    threads = max(one.reader_threads for one in warm)  # one per GPU it found, one for events, the main one
    shown = set(re.findall(r'pod="(job-\d+)"', page.decode()))
    p99 = quantiles(scrapes)[1]
    return [
        grew("agent memory", warm, lambda one: one.agent, MIB_GROWTH, "MiB"),
        grew("agent threads", warm, lambda one: one.agent_threads, 0, "number"),
        grew("agent files", warm, lambda one: one.agent_files, 2, "number"),
        grew("reader memory", settled, lambda one: one.reader_memory, MIB_GROWTH, "MiB"),
        Verdict("GPUs -> most reader threads", GPUS, threads, "+2", threads <= GPUS + 2),
        grew("reader files", settled, lambda one: one.reader_files, 1, "number"),
        Verdict("readers at the end", 1, looks[-1].children, "1", looks[-1].children == 1),
        Verdict("driver reloads -> reader restarts", churn.reloads, restarts, ">=", restarts >= churn.reloads),
        Verdict("pods that ended -> with series", len(dead), len(dead & shown), "0", not dead & shown),
        Verdict("pods that live -> with series", POD_LIFE, len(shown - dead), ">= 1", bool(shown - dead)),
        Verdict("scrapes -> p99, ms", len(scrapes), p99, "<= 50", p99 <= 50),
    ]


def _born(looks: list[Sample], reader: int) -> float:
    return next(one.at for one in looks if one.reader == reader)


def _sample(page: bytes, name: str) -> float:
    found = re.search(rf"^{name} (\S+)$", page.decode(), re.MULTILINE)
    return float(found[1]) if found else 0.0


def main() -> int:
    """Run it all; the exit status."""
    parser = argparse.ArgumentParser(prog="python -m tests.bench.soak", description=__doc__)
    parser.add_argument("--hours", type=float, default=24.0, help="simulated hours")
    parser.add_argument("--minutes", type=float, default=6.0, help="of real time")
    options = parser.parse_args()
    seconds = options.minutes * 60
    speed = options.hours * 3600 / seconds
    print(f"{options.hours:g} simulated hours in {options.minutes:g} minutes, {speed:.0f} times real time", flush=True)
    with tempfile.TemporaryDirectory(prefix="soak-") as directory, contextlib.ExitStack() as stack:
        place = Path(directory)
        world = stack.enter_context(World(parse(SCENARIO, "the soak"), place / "node", speed=speed))
        pid, url = stack.enter_context(agent(place, world))
        churn = Churn(world)
        looks, scrapes = live(pid, url, churn, seconds)
        page = fetch(f"{url}/metrics") or b""
        verdicts = judge(looks, page, churn, scrapes)
    rows = [(v.what, v.before, v.after, v.bound, "good" if v.good else "BAD") for v in verdicts]
    table(f"{options.hours:g} hours, {churn.pods} pods", ("", "after warm-up", "at the end", "bound", ""), rows)
    return 0 if all(v.good for v in verdicts) else 1


if __name__ == "__main__":
    sys.exit(main())
