"""An agent that is killed and started again: nothing is told twice, nothing is missed, faults stay found."""

import random
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from gpuwatch.agent.client import AgentClient
from gpuwatch.model.event import FindingEvent
from gpuwatch.model.view import Events
from tests.drills.agent_process import AgentProcess
from tests.fakes.libnvml import FakeDriver

LIVES = [2, pytest.param(8, marks=pytest.mark.slow)]
"""How often it is killed; more often in `make test-slow`."""

Start = Callable[..., AgentProcess]


class Ring:
    """A kernel log that can be read again from its beginning, as /dev/kmsg can."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.numbers = 0
        self.say("usb 1-1: new device")

    def say(self, message: str) -> int:
        self.numbers += 1
        with self.path.open("a") as file:
            file.write(f"4,{self.numbers},{int(time.monotonic() * 1e6)},-;{message}\n")
        return self.numbers

    def xid(self, driver: FakeDriver, gpu: int, code: int = 79) -> int:
        return self.say(
            f"NVRM: Xid (PCI:0000:{driver.get(gpu, 'pci_bus'):02x}:00): {code}, GPU has fallen off the bus."
        )


@pytest.fixture
def ring(tmp_path: Path) -> Ring:
    return Ring(tmp_path / "kmsg")


def events(agent: AgentProcess) -> Events:
    return AgentClient(f"http://127.0.0.1:{agent.port}").events()


def sequences(agent: AgentProcess) -> list[int | None]:
    return [event.sequence for event in events(agent).xids]


def findings(agent: AgentProcess) -> dict[str, Any]:
    """Open findings about GPUs by key."""
    view = AgentClient(f"http://127.0.0.1:{agent.port}").view()
    return {finding.key: finding for finding in view.judgement.findings if finding.gpu}


def counted(agent: AgentProcess, driver: FakeDriver, gpu: int) -> float:
    return agent.value("gpuwatch_gpu_xid_errors_total", uuid=driver.get(gpu, "uuid"), xid=79) or 0


def begun(agent: AgentProcess) -> Counter[str]:
    """How often each finding about an XID began."""
    told: tuple[FindingEvent, ...] = events(agent).findings
    return Counter(each.finding.key for each in told if each.change == "began" and each.finding.xid is not None)


def test_a_restart_repeats_nothing_and_misses_nothing(driver: FakeDriver, start: Start, ring: Ring) -> None:
    first = start(kmsg=str(ring.path))
    first.wait_complete(4)
    told = ring.xid(driver, 1)
    first.wait(lambda: counted(first, driver, 1) == 1)
    first.wait(lambda: findings(first))
    found = findings(first)
    first.wait(lambda: sequences(first) == [told])
    time.sleep(0.3)  # what is shown is written within a tenth of a second
    first.process.kill()
    first.end()
    missed = ring.xid(driver, 2)

    second = start(kmsg=str(ring.path))
    second.wait_complete(4)
    second.wait(lambda: counted(second, driver, 2) == 1)
    assert counted(second, driver, 1) == 0
    assert sequences(second) == [told, missed]
    assert [event.historical for event in events(second).xids] == [False, False]
    second.wait(lambda: len(findings(second)) == len(found) + 1)
    kept = findings(second)
    assert {key: kept[key].since for key in found} == {key: each.since for key, each in found.items()}
    assert set(begun(second).values()) == {1}
    assert second.value("gpuwatch_kmsg_lost_records_total") == 0
    assert second.value("gpuwatch_store_up") == 1


@pytest.mark.parametrize("lives", LIVES)
def test_killed_at_any_moment_it_has_every_line_once(driver: FakeDriver, start: Start, ring: Ring, lives: int) -> None:
    chance = random.Random(7)
    agent = start(kmsg=str(ring.path))
    agent.wait_complete(4)
    written = []
    for life in range(lives):
        written.append(ring.xid(driver, life % 4))
        time.sleep(chance.uniform(0, 0.15))
        agent.process.kill()
        agent.end()
        written.append(ring.xid(driver, (life + 1) % 4))
        agent = start(kmsg=str(ring.path))
        agent.wait_complete(4)
    agent.wait(lambda: sequences(agent) == written)
    sick = {driver.get(gpu % 4, "uuid") for gpu in range(lives + 1)}
    agent.wait(lambda: {finding.gpu for finding in findings(agent).values() if finding.xid == 79} == sick)


def test_what_was_there_before_the_first_life_is_history(driver: FakeDriver, start: Start, ring: Ring) -> None:
    old = ring.xid(driver, 0)
    first = start(kmsg=str(ring.path))
    first.wait_complete(4)
    first.wait(lambda: sequences(first) == [old])
    assert [event.historical for event in events(first).xids] == [True]
    assert counted(first, driver, 0) == 0


def test_events_are_asked_for_by_time_number_and_kind(driver: FakeDriver, start: Start, ring: Ring) -> None:
    agent = start(kmsg=str(ring.path))
    agent.wait_complete(4)
    for gpu in range(3):
        ring.xid(driver, gpu)
    agent.wait(lambda: len(sequences(agent)) == 3)
    agent.wait(lambda: len(begun(agent)) == 3)
    last = msgspec.convert(agent.get("/api/v1/events?limit=1&kind=xid"), Events)
    assert (len(last.xids), last.findings) == (1, ())
    since = agent.get(f"/api/v1/events?since={last.xids[0].at!r}&kind=xid,sxid")
    assert [event["sequence"] for event in since["xids"]] == [last.xids[0].sequence]
    for bad in ("limit=0", "limit=1.5", "limit=x", "since=yesterday", "since=nan", "kind=panic"):
        assert agent.get(f"/api/v1/events?{bad}") is None
