"""A real agent in a process of its own, on a fake driver, scraped over HTTP without a pause."""

import json
import os
import re
import signal
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from http.client import HTTPConnection, HTTPException
from pathlib import Path
from typing import Any, Self

import msgspec
import psutil

from gpuwatch.config import AgentConfig, Backend, Config, SourcesConfig
from gpuwatch.sim.fakelib import FakeDriver

PROGRAM = """
import sys, threading, time
import msgspec
from gpuwatch.config import Backend, Config
from gpuwatch.model.errors import GpuwatchError
from gpuwatch.roles.agent import Agent

def tell():
    while agent.port is None:
        time.sleep(0.002)
    print(agent.port, flush=True)

config, backend = (msgspec.json.decode(a, type=t) for a, t in zip(sys.argv[1:], (Config, Backend)))
agent = Agent(config, backend)
threading.Thread(target=tell, daemon=True).start()
try:
    agent.run()
except GpuwatchError as error:
    print(f"gpuwatch: error: {error}", file=sys.stderr)
    sys.exit(error.exit_code)
"""
POLL_SECONDS = 0.01
ENOUGH_SCRAPES = 100


class AgentProcess:
    """The agent, its reader and a thread that scrapes `/metrics` all the time.

    `page` is the newest exposition, `latencies` the seconds each scrape took, `failures` the scrapes that got none;
    `noise` is how late the machine woke the scraper up each time, which is what it may have kept the agent waiting too.
    """

    def __init__(
        self, folder: Path, driver: FakeDriver | None, *, interval: float = 0.5, env: dict[str, str] | None = None,
        factory: str = Backend().factory, **sources: Any,
    ) -> None:  # fmt: skip
        missing = str(folder / "missing")
        places = {"kmsg": missing, "pod_resources": f"{missing}/kubelet.sock", "pod_logs": f"{missing}/pods"}
        quiet = {"sys": missing, "disabled": ("kmsg",) if "kmsg" not in sources else ()}
        config = Config(
            agent=AgentConfig(listen="127.0.0.1:0", socket=str(folder / "agent.sock"), interval=interval),
            sources=SourcesConfig(**{**places, **quiet, **sources}),
            state_dir=str(folder / "state"),
        )
        backend = Backend(factory=factory, target=str(driver.library) if driver else "")
        arguments = [msgspec.json.encode(part).decode() for part in (config, backend)]
        self.interval = interval
        self.started = time.monotonic()
        self._stderr = folder / "stderr"  # no pipe: a reader left inside a driver call would keep it open
        with self._stderr.open("w") as stderr:
            self.process = subprocess.Popen(
                [sys.executable, "-c", PROGRAM, *arguments],
                env={**os.environ, **(driver.env if driver else {}), **(env or {})},
                stdout=subprocess.PIPE,
                stderr=stderr,
                text=True,
            )
        self.page = ""
        self.latencies: list[float] = []
        self.noise: list[float] = []
        self.failures: list[str] = []
        self._scraping = True
        self._news = threading.Condition()
        assert self.process.stdout
        self.port = int(self.process.stdout.readline() or 0)
        self._scraper = threading.Thread(target=self._scrape_for_ever, daemon=True)
        if self.port:
            self._scraper.start()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.end()

    def _scrape_for_ever(self) -> None:
        connection = HTTPConnection("127.0.0.1", self.port, timeout=5)
        while self._scraping:
            start = time.perf_counter()
            try:
                connection.request("GET", "/metrics")
                page = connection.getresponse().read().decode()
            except (OSError, HTTPException) as error:
                if self._scraping:
                    self.failures.append(repr(error))
                connection.close()
            else:
                self.latencies.append(time.perf_counter() - start)
                with self._news:
                    self.page = page
                    self._news.notify_all()
            asleep = time.perf_counter()
            time.sleep(POLL_SECONDS)
            self.noise.append(time.perf_counter() - asleep - POLL_SECONDS)
        connection.close()

    def get(self, path: str) -> Any:
        """The JSON document at a path, from a connection of its own; None while there is none."""
        connection = HTTPConnection("127.0.0.1", self.port, timeout=5)
        try:
            connection.request("GET", path)
            response = connection.getresponse()
            body = response.read()
            return json.loads(body) if response.status == 200 else None
        finally:
            connection.close()

    def sample_times(self) -> dict[int, float]:
        """GPU index -> unix time of the sample that is shown."""
        view = self.get("/api/v1/view") or {"snapshot": {}}
        return {gpu["identity"]["index"]: gpu["at"] for gpu in view["snapshot"].get("gpus", ())}

    def value(self, name: str, **labels: Any) -> float | None:
        """The first sample of that name with these labels in the newest page."""
        return sample(self.page, name, **labels)

    def wait(self, holds: Callable[[], Any], seconds: float = 8.0) -> float:
        """Seconds until a scraped page makes `holds` true; AssertionError when none does in time."""
        start = time.monotonic()
        with self._news:
            done = self._news.wait_for(holds, seconds)
        assert done, f"not within {seconds} s; the page says:\n" + "\n".join(self.told())
        return time.monotonic() - start

    def told(self) -> list[str]:
        """What the page says of sources, health and findings."""
        found = re.findall(r"^gpuwatch_(?:source_up|finding|gpu_health|gpu_un|gpu_lost|reader).*$", self.page, re.M)
        return [line for line in found if not line.endswith(" 0")]

    def wait_complete(self, gpus: int) -> float:
        """Until readings of so many GPUs are shown; seconds since the agent was started. Latencies count from here."""
        self.wait(lambda: self.page.count("\ngpuwatch_gpu_temperature_celsius{") >= gpus)
        took = time.monotonic() - self.started
        self.latencies.clear()
        self.noise.clear()
        return took

    def readers(self) -> list[psutil.Process]:
        """The reader processes, the one that is used and those left alone."""
        try:
            children = psutil.Process(self.process.pid).children()
            return [child for child in children if "gpuwatch.reader" in child.cmdline()]
        except psutil.Error:
            return []

    def grace(self) -> float:
        """Seconds that a busy machine has kept this side waiting, there and back."""
        return 2 * max(self.noise, default=0.0)

    def serves_within(self, seconds: float) -> None:
        """AssertionError unless the 99th percentile of the scrapes is within `seconds` of a machine that has time."""
        self.wait(lambda: len(self.latencies) >= ENOUGH_SCRAPES)
        assert not self.failures, self.failures[:3]
        found, noise = (statistics.quantiles(times, n=100)[98] for times in (self.latencies, self.noise))
        print(
            f"/metrics p99 {found * 1e3:.1f} ms over {len(self.latencies)} scrapes; the machine's {noise * 1e3:.1f} ms"
        )
        assert found <= seconds + 2 * noise

    def terminate(self, number: int = signal.SIGTERM) -> float:
        """Seconds from the signal to the end of the agent."""
        self.rest()
        start = time.monotonic()
        self.process.send_signal(number)
        self.process.wait(10)
        return time.monotonic() - start

    def rest(self) -> None:
        """Scrape no more."""
        self._scraping = False
        if self.port:
            self._scraper.join(6)

    def end(self) -> str:
        """End it however it is; what it wrote to stderr."""
        self.rest()
        if self.process.poll() is None:
            self.process.terminate()
            try:
                self.process.wait(5)
            except subprocess.TimeoutExpired:
                self.process.kill()
        assert self.process.stdout
        self.process.stdout.close()
        return self._stderr.read_text()


def sample(page: str, name: str, **labels: Any) -> float | None:
    """The first sample of that name whose labels include these."""
    parts = "".join(rf'(?=[^\n]*[{{,]{label}="{re.escape(str(text))}")' for label, text in labels.items())
    found = re.search(rf"^{name}(?=[ {{]){parts}[^\n]* (\S+)$", page, re.M)
    return float(found[1]) if found else None
