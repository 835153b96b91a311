"""Whatever story the simulated node lives through, its page passes promtool, in both text formats and all profiles."""

import contextlib
import subprocess
import sys
import time
from typing import NamedTuple

import msgspec
import pytest
from prometheus_client.openmetrics.parser import text_string_to_metric_families

from gpuwatch.config import AgentConfig, Config, MetricsConfig
from gpuwatch.sim.scenario import names
from gpuwatch.sim.world import World
from tests.e2e.launch import Launch
from tests.e2e.processes import Agent, fetch, running, series
from tests.ports import free_port
from tests.waiting import until

SPEED = 120.0
STORY_SECONDS = 240.0  # simulated: by then the story of every scenario has begun
QUERIES = ("", "?profile=dcgm-4.8&profile=dcgm-4.9")
OPENMETRICS = {"Accept": "application/openmetrics-text;version=1.0.0"}


class Pages(NamedTuple):
    """What an agent served, by query."""

    text: dict[str, bytes]
    openmetrics: dict[str, bytes]


@pytest.fixture(scope="module")
def pages(tmp_path_factory):
    """Scenario to Pages: all agents run side by side, far into their stories."""
    place = tmp_path_factory.mktemp("scenarios")
    with contextlib.ExitStack() as stack:
        agents = {name: stack.enter_context(_living(place / name, name)) for name in names()}
        for agent in agents.values():
            until(lambda agent=agent: b"gpuwatch_gpu_health{" in agent.page(), "the first look")
        time.sleep(STORY_SECONDS / SPEED)
        found = {
            name: Pages(
                text={query: agent.page(query) for query in QUERIES},
                openmetrics={query: fetch(f"{agent.url}/metrics{query}", OPENMETRICS) for query in QUERIES},
            )
            for name, agent in agents.items()
        }
        for agent in agents.values():
            agent.process.terminate()
    return found


@contextlib.contextmanager
def _living(place, name):
    port, log = free_port(), place / "agent.log"
    with World(name, place / "node", speed=SPEED) as world:
        launch = Launch(
            config=Config(
                agent=AgentConfig(listen=f"127.0.0.1:{port}", socket=str(place / "agent.sock"), interval=1.0),
                metrics=MetricsConfig(processes=True),
                sources=world.sources,
                state_dir=str(place / "state"),
            ),
            backend=world.backend,
        )
        command = [sys.executable, "-m", "tests.e2e.launch", msgspec.json.encode(launch).decode()]
        with running(command, log) as process:
            yield Agent(process, f"http://127.0.0.1:{port}", place / "node", log)


@pytest.mark.parametrize("scenario", names())
def test_the_page_passes_promtool(pages, scenario):
    page = pages[scenario].text[""]
    done = subprocess.run(["promtool", "check", "metrics"], input=page, capture_output=True, check=False)
    assert (done.returncode, done.stderr.decode()) == (0, "")


@pytest.mark.parametrize("query", QUERIES)
@pytest.mark.parametrize("scenario", names())
def test_no_series_is_there_twice(pages, scenario, query):
    page = pages[scenario].text[query]
    assert len(series(page)) == sum(not line.startswith(b"#") for line in page.splitlines())


@pytest.mark.parametrize("scenario", names())
def test_openmetrics_parses_strictly(pages, scenario):
    """Of the native names; DCGM's counters lack `_total`, which Prometheus takes and the standard does not."""
    page = pages[scenario].openmetrics
    assert list(text_string_to_metric_families(page[""].decode()))
    assert all(body.endswith(b"# EOF\n") for body in page.values())
