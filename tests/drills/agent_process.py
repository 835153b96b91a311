"""A real agent in a process of its own, on a fake driver, scraped over HTTP without a pause."""

import contextlib
import json
import logging
import os
import re
import signal
import statistics
import sys
import threading
import time
from collections.abc import Callable
from http.client import HTTPConnection, HTTPException
from multiprocessing import get_context
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, Self

import psutil

from gpuwatch.agent.agent import Agent
from gpuwatch.config import AgentConfig, Backend, Config, SourcesConfig
from gpuwatch.model.errors import GpuwatchError
from tests.children import children
from tests.e2e.processes import in_line
from tests.fakes.libnvml import FakeDriver
from tests.waiting import BOUND_SECONDS

POLL_SECONDS = 0.01
ENOUGH_SCRAPES = 100
END_SECONDS = 20.0


_processes = get_context("forkserver")
_processes.set_forkserver_preload(["tests.drills.agent_process"])


def live(config: Config, backend: Backend, env: dict[str, str], stderr: str, port: Connection) -> None:
    """Be an agent, as `gpuwatch agent` is, and say on which port; its modules were loaded before the fork."""
    os.environ.update(env)
    file = os.open(stderr, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o644)
    os.dup2(file, 2)
    logging.basicConfig(level=logging.INFO, force=True)
    agent = Agent(config, backend)
    try:
        agent.run(lambda: port.send(agent.port))
    except GpuwatchError as error:
        print(f"gpuwatch: error: {error}", file=sys.stderr)
        sys.exit(error.exit_code)


class Forked:
    """A process of the fork server with what `subprocess.Popen` has."""

    def __init__(self, target: Callable[..., None], *arguments: Any) -> None:
        self._process = _processes.Process(target=target, args=arguments, daemon=True)
        self._process.start()
        assert self._process.pid is not None
        self.pid = self._process.pid

    @property
    def returncode(self) -> int | None:
        """None while it lives."""
        return self._process.exitcode

    def poll(self) -> int | None:
        """None while it lives."""
        return self._process.exitcode

    def wait(self, seconds: float = BOUND_SECONDS) -> int:
        """Its exit code; AssertionError if it lives on."""
        self._process.join(seconds)
        assert self._process.exitcode is not None, f"process {self.pid} does not end"
        return self._process.exitcode

    def send_signal(self, number: int) -> None:
        """If it still lives. The fork server waits for it, and its exit code is here a little later than it is gone."""
        if self._process.exitcode is None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.pid, number)

    def terminate(self) -> None:
        """SIGTERM."""
        self.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        """SIGKILL."""
        self.send_signal(signal.SIGKILL)


class AgentProcess:
    """The agent, its reader and a thread that scrapes `/metrics` all the time.

    `page` is the newest exposition, `latencies` the seconds each scrape took, `failures` the scrapes that got none;
    `noise` is how late the machine woke the scraper up each time, which is what it may have kept the agent waiting too.
    """

    def __init__(
        self, folder: Path, driver: FakeDriver | None, *, interval: float = 0.5, env: dict[str, str] | None = None,
        factory: str = Backend().factory, stderr: Path | None = None, **sources: Any,
    ) -> None:  # fmt: skip
        missing = str(folder / "missing")
        places = {"kmsg": missing, "pod_resources": f"{missing}/kubelet.sock", "pod_logs": f"{missing}/pods"}
        quiet = {"sys": missing, "disabled": ("kmsg",) if "kmsg" not in sources else ()}
        config = Config(
            agent=AgentConfig(listen="127.0.0.1:0", socket=str(folder / "agent.sock"), interval=interval, api="open"),
            sources=SourcesConfig(**{**places, **quiet, **sources}),
            state_dir=str(folder / "state"),
        )
        backend = Backend(factory=factory, target=str(driver.library) if driver else "")
        self.interval = interval
        self.started = time.monotonic()
        self._stderr = stderr or folder / "stderr"  # no pipe: a reader left inside a driver call would keep it open
        here, there = _processes.Pipe(duplex=False)
        variables = {**(driver.env if driver else {}), **(env or {})}
        self.process = Forked(live, config, backend, variables, str(self._stderr), there)
        there.close()
        self.page = ""
        self.latencies: list[float] = []
        self.noise: list[float] = []
        self.failures: list[str] = []
        self._scraping = True
        self._news = threading.Condition()
        try:
            self.port = int(here.recv())
        except EOFError:  # it has ended
            self.port = 0
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

    def wait(self, holds: Callable[[], Any], seconds: float = BOUND_SECONDS) -> float:
        """Seconds until a scraped page makes `holds` true; AssertionError when none does in time."""
        start = time.monotonic()
        with self._news:
            done = self._news.wait_for(holds, seconds)
        assert done, f"not within {seconds} s; the page says:\n" + "\n".join(self.problems())
        return time.monotonic() - start

    def problems(self) -> list[str]:
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
        return children("gpuwatch.collect.reader", self.process.pid)

    def grace(self) -> float:
        """Seconds that a busy machine has kept waiting this side, there and back, and the agent."""
        return 2 * max(self.noise, default=0.0) + self.in_line()

    def in_line(self) -> float:
        """Seconds for which agent, readers and scraper stood in line for a processor."""
        mine = Path(f"/proc/self/task/{self._scraper.native_id}/schedstat")
        scraper = 0.0
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):  # after `rest` it ends at any time
            scraper = int(mine.read_text().split()[1]) / 1e9
        return scraper + in_line((self.process.pid, *(reader.pid for reader in self.readers())))

    def serves_within(self, seconds: float, percent: int = 90) -> None:
        """AssertionError unless so many of a hundred scrapes take no longer than that on a machine that has time."""
        self.wait(lambda: len(self.latencies) >= ENOUGH_SCRAPES)
        assert not self.failures, self.failures[:3]
        found, noise = (statistics.quantiles(times, n=100)[percent - 1] for times in (self.latencies, self.noise))
        print(
            f"/metrics p{percent} {found * 1e3:.1f} ms over {len(self.latencies)} scrapes; "
            f"the machine's {noise * 1e3:.1f} ms"
        )
        assert found <= seconds + 2 * max(noise, statistics.quantiles(self.noise, n=100)[98])

    def terminate(self, number: int = signal.SIGTERM) -> float:
        """Seconds from the signal to the end of the agent, but for those that it stood in line."""
        self.rest()
        before = waited = self.in_line()
        start = time.monotonic()
        self.process.send_signal(number)
        while self.process.poll() is None and time.monotonic() - start < BOUND_SECONDS:
            waited = max(waited, self.in_line())
            time.sleep(POLL_SECONDS)
        assert self.process.poll() is not None, "the agent does not end"
        return time.monotonic() - start - (waited - before)

    def rest(self) -> None:
        """Scrape no more."""
        self._scraping = False
        if self.port:
            self._scraper.join(BOUND_SECONDS)

    def end(self) -> str:
        """End it however it is; what it wrote to stderr."""
        self.rest()
        self.process.terminate()
        try:
            self.process.wait(END_SECONDS)
        except AssertionError:  # a test that has failed before, most likely
            self.process.kill()
            self.process.wait()
        return self.stderr()

    def stderr(self) -> str:
        """What it has written to stderr; nothing where that is no file."""
        return self._stderr.read_text() if self._stderr.is_file() else ""


def sample(page: str, name: str, **labels: Any) -> float | None:
    """The first sample of that name whose labels include these."""
    parts = "".join(rf'(?=[^\n]*[{{,]{label}="{re.escape(str(text))}")' for label, text in labels.items())
    found = re.search(rf"^{name}(?=[ {{]){parts}[^\n]* (\S+)$", page, re.M)
    return float(found[1]) if found else None
