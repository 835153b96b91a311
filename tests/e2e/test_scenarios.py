"""Whatever story the simulated node lives through, its page passes promtool, in both text formats and all profiles."""

import contextlib
import json
import subprocess
import sys
import time

import msgspec
import pytest
from prometheus_client.openmetrics.parser import text_string_to_metric_families

from gpuwatch.config import AgentConfig, Config, MetricsConfig
from gpuwatch.sim.node.scenario import names
from gpuwatch.sim.world import World
from tests.e2e.launch import Launch
from tests.e2e.processes import Agent, fetch, running, series
from tests.ports import free_port
from tests.waiting import until

QUICK = ("fallen-off-bus", "mig", "t4", "time-sliced")
"""Pages of four kinds: a GPU without readings and its XID, instances, a GPU that supports little, pods that share."""

SPEED = 120.0
STORY_SECONDS = 240.0  # simulated: by then the story of every scenario has begun
QUERIES = ("", "?profile=dcgm-4.8&profile=dcgm-4.9")
OPENMETRICS = {"Accept": "application/openmetrics-text;version=1.0.0"}


@contextlib.contextmanager
def _living(place, name):
    port, log = free_port(), place / "agent.log"
    with World(name, place / "node", speed=SPEED) as world:
        launch = Launch(
            config=Config(
                agent=AgentConfig(
                    listen=f"127.0.0.1:{port}", socket=str(place / "agent.sock"), interval=1.0, api="open"
                ),
                metrics=MetricsConfig(processes=True),
                sources=world.sources,
                state_dir=str(place / "state"),
            ),
            backend=world.backend,
        )
        command = [sys.executable, "-m", "tests.e2e.launch", msgspec.json.encode(launch).decode()]
        with running(command, log) as process:
            yield Agent(process, f"http://127.0.0.1:{port}", place / "node", log)


def _pages(place, name):
    """What an agent serves far into its node's story, by query: (text, OpenMetrics)."""
    with _living(place, name) as agent:
        until(lambda: b"gpuwatch_gpu_health{" in (fetch(f"{agent.url}/metrics") or b""), "the first look")
        due = time.time() + STORY_SECONDS / SPEED
        until(lambda: json.loads(fetch(f"{agent.url}/api/v1/view"))["snapshot"]["at"] > due, "a look so late", step=0.1)
        text = {query: agent.page(query) for query in QUERIES}
        return text, {query: fetch(f"{agent.url}/metrics{query}", OPENMETRICS) for query in QUERIES}


@pytest.mark.parametrize(
    "scenario",
    [name if name in QUICK else pytest.param(name, marks=pytest.mark.slow) for name in names()],
)
def test_a_page_passes_promtool_parses_strictly_and_has_no_series_twice(tmp_path, scenario):
    """OpenMetrics of the native names; DCGM's counters lack `_total`, which Prometheus takes and the standard does not.

    `make test` has the four kinds of pages; what else a scenario shows, tests/sim and tests/metrics try in one process.
    """
    text, openmetrics = _pages(tmp_path, scenario)
    done = subprocess.run(["promtool", "check", "metrics"], input=text[""], capture_output=True, check=False)
    assert (done.returncode, done.stderr.decode()) == (0, "")
    for page in text.values():
        assert len(series(page)) == sum(not line.startswith(b"#") for line in page.splitlines())
    assert list(text_string_to_metric_families(openmetrics[""].decode()))
    assert all(body.endswith(b"# EOF\n") for body in openmetrics.values())
