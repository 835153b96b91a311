"""Real processes and how to ask them: an agent, a Prometheus. For the tests of this folder and the benchmarks."""

import contextlib
import http.client
import json
import os
import subprocess
import sys
import urllib.parse
import urllib.request
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from prometheus_client.parser import text_string_to_metric_families

from tests.ports import free_port
from tests.waiting import until

STOP_SECONDS = 10.0
ROOT = Path(__file__).resolve().parents[2]
"""Where `python -m tests...` works, from wherever the tests are run."""


def fetch(url: str, headers: Mapping[str, str] | None = None) -> bytes | None:
    """The body behind a URL; None while nobody answers with 200."""
    try:
        with urllib.request.urlopen(urllib.request.Request(url, headers=dict(headers or {})), timeout=10) as answer:
            body: bytes = answer.read()
            return body
    except (OSError, http.client.HTTPException):
        return None


@contextlib.contextmanager
def running(command: Sequence[str], log: Path, env: Mapping[str, str] | None = None) -> Iterator[subprocess.Popen]:
    """A process for as long as the block runs; what it says goes to `log`."""
    log.parent.mkdir(parents=True, exist_ok=True)
    with log.open("wb") as output:
        variables = {**os.environ, **(env or {})}
        process = subprocess.Popen(command, stdout=output, stderr=output, env=variables, cwd=ROOT)
    try:
        yield process
    finally:
        process.terminate()
        try:
            process.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def in_line(pids: Iterable[int]) -> float:
    """Seconds for which these processes stood in line for a processor, each by its longest waiting thread, as far as
    Linux tells.
    """
    return sum(max(_waits(pid), default=0) for pid in pids) / 1e9


def _waits(pid: int) -> Iterator[int]:
    """Nanoseconds of each thread."""
    with contextlib.suppress(OSError):  # the process ends meanwhile
        for thread in os.listdir(f"/proc/{pid}/task"):
            with contextlib.suppress(OSError):  # or one of its threads
                yield int(Path(f"/proc/{pid}/task/{thread}/schedstat").read_text().split()[1])


class Series(NamedTuple):
    """Name and labels."""

    name: str
    labels: frozenset[tuple[str, str]]


def series(page: bytes) -> dict[Series, float]:
    """What a page in the text format says, type aside: the parser gives every counter the ending `_total`."""
    samples = [line for line in page.decode().splitlines() if not line.startswith("#")]
    families = text_string_to_metric_families("\n".join(samples) + "\n")
    return {Series(s.name, frozenset(s.labels.items())): s.value for family in families for s in family.samples}


class Agent(NamedTuple):
    """A running agent."""

    process: subprocess.Popen
    url: str
    directory: Path  # of the simulated node, with `--source sim`
    log: Path

    def page(self, query: str = "") -> bytes:
        """/metrics as text."""
        page = fetch(f"{self.url}/metrics{query}")
        assert page is not None, f"no page; the agent says:\n{self.log.read_text()}"
        return page

    def settle(self) -> "Agent":
        """Wait until it has a fresh look at the node."""
        until(lambda: fetch(f"{self.url}/-/ready") or self._gone(), "the agent is ready")
        return self

    def _gone(self) -> None:
        assert self.process.poll() is None, f"the agent ended:\n{self.log.read_text()}"


@contextlib.contextmanager
def agent(
    directory: Path,
    *,
    source: Sequence[str] = (),
    config: Mapping[str, Any] | None = None,
    env: Mapping[str, str] | None = None,
) -> Iterator[Agent]:
    """`gpuwatch agent` as people start it. `source`: global options, such as `--source sim:mig`; `config`: the file."""
    directory.mkdir(parents=True, exist_ok=True)
    port, log, node = free_port(), directory / "agent.log", directory / "node"
    file = directory / "gpuwatch.yaml"
    settings = dict(config or {})
    settings["agent"] = {"api": "open", **settings.get("agent", {})}  # the tests ask over TCP
    file.write_text(json.dumps(settings))  # JSON is YAML
    command = [sys.executable, "-m", "gpuwatch", "--config", str(file), *source, "agent"]
    command += ["--listen", f"127.0.0.1:{port}", "--socket", str(directory / "agent.sock")]
    command += ["--state-dir", str(directory / "state")]
    if any(option.startswith("sim") for option in source):
        command += ["--sim-dir", str(node)]
    with running(command, log, env) as process:
        yield Agent(process, f"http://127.0.0.1:{port}", node, log)


class Prometheus(NamedTuple):
    """A running Prometheus."""

    process: subprocess.Popen
    url: str

    def query(self, expression: str) -> list[dict[str, Any]]:
        """The result vector now: `metric` (labels) and `value` (time, text) of each element."""
        return self._ask("query", query=expression)["result"]

    def value(self, expression: str) -> float | None:
        """The only element's number; None when there is none."""
        found = self.query(expression)
        assert len(found) <= 1, f"{expression} has {len(found)} results"
        return float(found[0]["value"][1]) if found else None

    def label_values(self, metric: str, label: str) -> list[str]:
        """As Grafana's variable `label_values(metric, label)`."""
        found = self._ask("series", **{"match[]": metric})
        return sorted({row[label] for row in found if label in row})

    def _ask(self, what: str, **arguments: str) -> Any:
        request = f"{self.url}/api/v1/{what}?{urllib.parse.urlencode(arguments)}"
        try:
            with urllib.request.urlopen(request, timeout=10) as answer:
                return json.load(answer)["data"]
        except urllib.error.HTTPError as error:
            raise AssertionError(f"{arguments}: {error.read().decode()}") from None


def job(name: str, agent: Agent, **settings: Any) -> dict[str, Any]:
    """A scrape job for an agent."""
    target = agent.url.removeprefix("http://")
    return {"job_name": name, "static_configs": [{"targets": [target]}], **settings}


@contextlib.contextmanager
def prometheus(
    directory: Path, jobs: Sequence[Mapping[str, Any]], options: Sequence[str] = (), **more: Any
) -> Iterator[Prometheus]:
    """A Prometheus with a database of its own that scrapes every second, itself too. `more`: of its configuration."""
    directory.mkdir(parents=True, exist_ok=True)
    port = free_port()
    itself = {"job_name": "prometheus", "static_configs": [{"targets": [f"127.0.0.1:{port}"]}]}
    file = directory / "prometheus.yaml"
    every = {"scrape_interval": "1s", "scrape_timeout": "1s", "evaluation_interval": "1s"}
    file.write_text(json.dumps({"global": every, "scrape_configs": [*jobs, itself], **more}))
    command = ["prometheus", f"--config.file={file}", f"--storage.tsdb.path={directory / 'data'}"]
    command += [f"--web.listen-address=127.0.0.1:{port}", "--log.level=warn", *options]
    with running(command, directory / "prometheus.log") as process:
        found = Prometheus(process, f"http://127.0.0.1:{port}")
        until(lambda: fetch(f"{found.url}/-/ready"), "Prometheus is ready")
        yield found
