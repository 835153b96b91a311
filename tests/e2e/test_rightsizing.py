"""Right-sizing in a real agent: what it has learned outlives SIGTERM and kill -9, and neither waits for it."""

import contextlib
import http.client
import json
import subprocess
import time
import urllib.error
import urllib.request
from pathlib import Path

import pytest

from gpuwatch.rightsizing.service.thread import LEARNING
from tests.e2e.processes import Agent, agent, fetch, in_line
from tests.waiting import BOUND_SECONDS, until

SIM = ("--source", "sim:idle-allocated")
CONFIG = {"agent": {"interval": 0.2}}
END_SECONDS = 2.0
SOME_VIEWS, VIEWS = 10, 30
"""In six seconds: an agent that has seen so many knows who holds what, and began to learn some seconds ago."""


def fetched(url: str) -> tuple[int, str]:
    """Status and body of the page; 0 while nobody answers."""
    with contextlib.suppress(OSError, http.client.HTTPException):
        try:
            with urllib.request.urlopen(f"{url}/api/v1/recommendations", timeout=10) as answer:
                return answer.status, answer.read().decode()
        except urllib.error.HTTPError as error:
            return error.code, error.read().decode()
    return 0, ""


def wait_for_views(url: str, count: int) -> None:
    """Until so many different Views were served."""
    seen = set()

    def more() -> bool:
        body = fetch(f"{url}/api/v1/view")
        if body is not None:
            seen.add(json.loads(body)["snapshot"]["at"])
        return len(seen) >= count

    until(more, f"{count} views")


def seconds_to_end(process: subprocess.Popen[bytes]) -> float:
    """From SIGTERM to its end, but for those in which others had the processors."""
    before = waited = in_line([process.pid])
    began = time.monotonic()
    process.terminate()
    while process.poll() is None:
        waited = max(waited, in_line([process.pid]))
        assert time.monotonic() - began < BOUND_SECONDS
        time.sleep(0.01)
    return time.monotonic() - began - (waited - before)


def advice(url: str) -> dict[str, object]:
    """What an agent says that has found a checkpoint: at its first View."""
    until(lambda: fetched(url)[0] == 200, "advice")
    found: dict[str, object] = json.loads(fetched(url)[1])
    return found


@pytest.mark.slow  # kill and restart: tests/rightsizing/service/test_checkpoint.py
def test_what_was_learned_outlives_sigterm_and_kill_and_can_be_switched_off_and_on(tmp_path: Path) -> None:
    with agent(tmp_path, source=SIM, config=CONFIG) as first:
        first.settle()
        assert fetched(first.url) == (503, f"{LEARNING}\n")
        wait_for_views(first.url, VIEWS)
        assert seconds_to_end(first.process) < END_SECONDS
    with agent(tmp_path, source=SIM, config=CONFIG) as second:
        after_term = advice(second.url)
        assert after_term["workloads"] == after_term["learning"] == 6
        switches_off_and_on(second, tmp_path / "gpuwatch.yaml")
        second.process.kill()
        second.process.wait()
    with agent(tmp_path, source=SIM, config=CONFIG) as third:
        after_kill = advice(third.url)
        learning = b'gpuwatch_rightsizing_workloads{state="learning"} 6\n'
        until(lambda: learning in third.page(), "the series come with the next View")
    assert (after_kill["since"], after_kill["workloads"]) == (after_term["since"], after_term["workloads"])


def switches_off_and_on(found: Agent, file: Path) -> None:
    """By its configuration, while it runs."""
    file.write_text(json.dumps({**CONFIG, "rightsizing": {"enabled": False}}))
    until(lambda: fetched(found.url)[0] == 503, "it is off")
    assert "rightsizing.enabled" in fetched(found.url)[1]
    until(lambda: b"gpuwatch_recommendations{" not in found.page(), "its series are gone")
    file.write_text(json.dumps(CONFIG))
    assert advice(found.url)["workloads"] == 6


def test_a_state_directory_that_cannot_be_written_hurts_nobody(tmp_path: Path) -> None:
    (tmp_path / "state").write_text("no folder")
    with agent(tmp_path, source=SIM, config=CONFIG) as found:
        wait_for_views(found.settle().url, SOME_VIEWS)
        assert fetched(found.url)[0] == 503
        assert b"gpuwatch_gpu_power_watts{" in found.page()
        assert "Traceback" not in found.log.read_text()
