"""A support bundle of each critical fault: once, bounded, by a process that nothing waits for."""

import json
import os
import subprocess
import sys
import tarfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from msgspec.structs import replace

from gpuwatch.agent import support_cases
from gpuwatch.agent.support_cases import (
    AGAIN_SECONDS,
    DEADLINE_SECONDS,
    FOLDER,
    GAP_SECONDS,
    SETTLE_SECONDS,
    SupportCases,
    kept_cases,
)
from gpuwatch.config import Config
from gpuwatch.model.event import EventQuery, Result
from gpuwatch.model.finding import Finding, Judgement, Severity
from gpuwatch.storage.store import Store
from tests.model import views
from tests.repair.machine import START, TurnedClock
from tests.waiting import until

WRITES = '#!/bin/sh\necho "$3" >> "$(dirname "$0")/calls"\necho bundle > "$3"\n'
FAILS = '#!/bin/sh\necho "$3" >> "$(dirname "$0")/calls"\necho "gpuwatch: error: No space left on device" >&2\nexit 1\n'
HANGS = '#!/bin/sh\necho "$3" >> "$(dirname "$0")/calls"\necho $$ > "$(dirname "$0")/pid"\nexec sleep 600\n'


class Node:
    """A store, a clock that is turned, and a program in the place of the bundle's."""

    def __init__(self, folder: Path, script: str = WRITES) -> None:
        self.folder, self.clock = folder, TurnedClock()
        self.state = folder / "state"
        self.state.mkdir(mode=0o750)
        self.program = folder / "program"
        self.write(script)
        self.store = Store.open(self.state, self.clock)
        self.config = Config(state_dir=str(self.state))
        self.view = views.view(())
        self.find("xid_fatal", since=START - SETTLE_SECONDS)
        self.start()

    def write(self, script: str) -> None:
        self.program.write_text(script)
        self.program.chmod(0o755)

    def start(self) -> None:
        self.cases = SupportCases(self.store, self.clock, self.folder / "a.sock", [str(self.program)])

    def find(self, *checks: str, since: float, severity: Severity = Severity.CRITICAL) -> None:
        found = tuple(Finding(check=c, severity=severity, message="m", gpu=views.uuid(0), since=since) for c in checks)
        self.view = replace(self.view, judgement=Judgement(node=self.view.judgement.node, findings=found))

    def step(self) -> list[str]:
        return [case.file for case in self.cases.step(self.config, self.view)]

    def run(self) -> list[str]:
        """Begin what is due, and wait for its end."""
        self.step()
        running = self.cases._running
        if running is not None:
            until(lambda: running.process.poll() is not None)
        return self.step()

    @property
    def calls(self) -> int:
        path = self.folder / "calls"
        return len(path.read_text().splitlines()) if path.exists() else 0

    @property
    def results(self) -> list[tuple[Result, str]]:
        actions = self.store.events(EventQuery(kinds=("action",))).actions
        return [(each.result, each.detail) for each in actions if each.action == "support_case"]


@pytest.fixture
def node(tmp_path: Path) -> Iterator[Node]:
    made = Node(tmp_path)
    yield made
    made.cases.stop()
    made.store.close()


def test_a_critical_finding_gets_one_bundle_also_over_a_restart(node: Node) -> None:
    assert node.run() == ["20260921T141320Z-xid_fatal.tgz"]
    assert [result for result, _ in node.results] == [Result.DONE]
    node.clock.seconds += 2 * GAP_SECONDS
    node.start()
    node.run()
    assert node.calls == 1


@pytest.mark.parametrize("severity", [Severity.WARNING, Severity.INFO])
def test_lesser_findings_get_none(node: Node, severity: Severity) -> None:
    node.find("xid_fatal", since=START - 60, severity=severity)
    assert node.run() == []
    assert node.calls == 0


def test_what_follows_from_a_fault_is_in_its_bundle(node: Node) -> None:
    node.find("xid_fatal", since=START)
    assert node.run() == []
    node.find("xid_fatal", "gpu_lost", since=START)
    node.clock.seconds += SETTLE_SECONDS
    assert len(node.run()) == 1
    node.clock.seconds += 2 * GAP_SECONDS
    node.run()
    assert node.calls == 1


def test_a_fault_that_comes_and_goes_is_one_fault_for_a_day(node: Node) -> None:
    node.run()
    node.clock.seconds += 3600
    node.find("xid_fatal", since=node.clock.time() - 60)
    node.run()
    assert node.calls == 1
    node.clock.seconds += AGAIN_SECONDS
    node.find("xid_fatal", since=node.clock.time() - 60)
    node.run()
    assert node.calls == 2


def test_a_full_disk_is_tried_three_times_and_reported(node: Node) -> None:
    node.write(FAILS)
    for _ in range(6):
        node.run()
        node.clock.seconds += GAP_SECONDS
    assert node.results == [(Result.FAILED, "it ended with 1: gpuwatch: error: No space left on device")] * 3
    assert node.calls == 3


def test_nothing_is_begun_when_little_of_the_disk_is_free(node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(support_cases, "MIN_FREE", 1 << 62)
    node.run()
    assert node.calls == 0
    assert "of its disk are free" in node.results[0][1]


def test_a_bundle_that_hangs_delays_nothing_and_is_killed_at_its_deadline(node: Node) -> None:
    node.write(HANGS)
    node.step()
    until((node.folder / "pid").exists)
    assert node.step() == []
    assert node.results == []
    pid = int(until((node.folder / "pid").read_text))
    node.clock.seconds += DEADLINE_SECONDS
    node.step()
    assert not Path(f"/proc/{pid}").exists()
    assert node.results == [(Result.FAILED, f"it has not ended within {DEADLINE_SECONDS:.0f} s")]


def test_an_agent_that_dies_with_its_bundle_does_not_repeat_it_for_ever(node: Node) -> None:
    node.write(HANGS)
    for number in range(1, 6):
        node.step()
        if node.cases._running is not None:
            until(lambda number=number: node.calls == number)
        node.cases.stop()
        node.start()
        node.clock.seconds += GAP_SECONDS
    assert node.calls == 3


def test_cases_are_deleted_by_age_and_number_and_nothing_else_is(tmp_path: Path) -> None:
    folder = tmp_path / FOLDER
    folder.mkdir()
    for day in range(1, 6):
        file = folder / f"2026090{day}T000000Z-xid_fatal.tgz"
        file.write_bytes(b"x")
        os.utime(file, (START - (10 - day) * 86400,) * 2)
    (folder / "notes.txt").touch()
    (folder / "20260901T000000Z-link.tgz").symlink_to(folder / "notes.txt")
    left = kept_cases(str(tmp_path), START, days=8.5, most=3)
    assert [case.file[:8] for case in left] == ["20260903", "20260904", "20260905"]
    assert (folder / "notes.txt").exists()
    assert len(list(folder.iterdir())) == 5
    kept_cases(str(tmp_path), START, days=30, most=0)
    assert sorted(each.name for each in folder.iterdir()) == ["20260901T000000Z-link.tgz", "notes.txt"]


def test_without_a_state_folder_or_with_cases_0_nothing_is_made(node: Node) -> None:
    node.config = Config(state_dir="")
    assert node.step() == []
    node.config = replace(Config(state_dir=str(node.state)), support=replace(Config().support, cases=0))
    assert node.run() == []
    assert node.calls == 0


@pytest.mark.slow  # the cases above have the rules; this one has the real program
def test_the_real_program_writes_a_bundle_and_steps_back(tmp_path: Path) -> None:
    (tmp_path / "config.yaml").write_text(json.dumps({"state_dir": str(tmp_path)}))
    target = tmp_path / "case.tgz"
    program = [sys.executable, "-m", "gpuwatch.cli.diagnose.support_case"]
    words = [*program, str(tmp_path / "config.yaml"), str(tmp_path / "a.sock"), str(target), "60"]
    from tests.e2e.processes import agent

    with agent(tmp_path, source=("--source", "sim:healthy")) as found:
        found.settle()
        words[4] = str(next(tmp_path.glob("*.sock")))
        ended = subprocess.run(words, capture_output=True, text=True, timeout=90, check=False)
    assert target.exists(), ended.stderr
    with tarfile.open(target) as archive:
        assert any(name.endswith("diagnosis.txt") for name in archive.getnames())
