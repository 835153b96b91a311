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
    FOLDER,
    GAP_SECONDS,
    SETTLE_SECONDS,
    SupportCases,
    kept_cases,
)
from gpuwatch.cli.diagnose import support_case
from gpuwatch.config import Config
from gpuwatch.model.event import EventQuery, Result
from gpuwatch.model.finding import Finding, Judgement, Severity
from gpuwatch.storage.store import Store
from tests.e2e.processes import agent
from tests.model import views
from tests.repair.machine import START, TurnedClock

WRITES = '#!/bin/sh\necho "$3" >> "$(dirname "$0")/calls"\necho bundle > "$3"\necho more > "$3.more"\n'
FAILS = '#!/bin/sh\necho "$3" >> "$(dirname "$0")/calls"\necho "gpuwatch: error: No space left on device" >&2\nexit 1\n'
HANGS = '#!/bin/sh\necho "$3" >> "$(dirname "$0")/calls"\necho $$ > "$(dirname "$0")/pid"\nexec sleep 60\n'


class Node:
    """A store, a clock that is turned, and a program in the place of the bundle's."""

    def __init__(self, folder: Path, script: str = WRITES) -> None:
        self.folder, self.clock, self.seconds = folder, TurnedClock(), 20.0
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
        self.cases = SupportCases(self.store, self.clock, self.folder / "a.sock", [str(self.program)], self.seconds)

    def find(self, *checks: str, since: float, severity: Severity = Severity.CRITICAL) -> None:
        found = tuple(Finding(check=c, severity=severity, message="m", gpu=views.uuid(0), since=since) for c in checks)
        self.view = replace(self.view, judgement=Judgement(node=self.view.judgement.node, findings=found))

    def step(self) -> list[str]:
        self.cases.step(self.config, self.view)
        return [case.file for case in self.cases.kept]

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
    made.store.close()


def test_a_critical_finding_gets_one_bundle_also_over_a_restart(node: Node) -> None:
    assert node.step() == ["20260921T141320Z-xid_fatal.tgz"]
    assert node.results == [(Result.DONE, str(node.state / FOLDER / "20260921T141320Z-xid_fatal.tgz"))]
    assert [each.name for each in (node.state / FOLDER).iterdir()] == ["20260921T141320Z-xid_fatal.tgz"]
    node.clock.seconds += 2 * GAP_SECONDS
    node.start()
    node.step()
    assert node.calls == 1


@pytest.mark.parametrize("severity", [Severity.WARNING, Severity.INFO])
def test_lesser_findings_get_none(node: Node, severity: Severity) -> None:
    node.find("xid_fatal", since=START - 60, severity=severity)
    assert node.step() == []
    assert node.calls == 0


def test_what_follows_from_a_fault_is_in_its_bundle(node: Node) -> None:
    node.find("xid_fatal", since=START)
    assert node.step() == []
    node.find("xid_fatal", "gpu_lost", since=START)
    node.clock.seconds += SETTLE_SECONDS
    assert len(node.step()) == 1
    node.clock.seconds += 2 * GAP_SECONDS
    node.step()
    assert node.calls == 1


def test_a_fault_that_comes_and_goes_is_one_fault_for_a_day(node: Node) -> None:
    node.step()
    node.clock.seconds += 3600
    node.find("xid_fatal", since=node.clock.time() - 60)
    node.step()
    assert node.calls == 1
    node.clock.seconds += AGAIN_SECONDS
    node.find("xid_fatal", since=node.clock.time() - 60)
    node.step()
    assert node.calls == 2


def test_a_full_disk_is_tried_three_times_and_reported(node: Node) -> None:
    node.write(FAILS)
    for _ in range(6):
        node.step()
        node.clock.seconds += GAP_SECONDS
    assert node.results == [(Result.FAILED, "it ended with 1; gpuwatch: error: No space left on device")] * 3
    assert node.calls == 3


def test_nothing_is_begun_when_little_of_the_disk_is_free(node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(support_cases, "MIN_FREE", 1 << 62)
    node.step()
    assert node.calls == 0
    assert "of its disk are free" in node.results[0][1]


def test_a_bundle_that_hangs_is_ended_at_its_deadline(node: Node) -> None:
    node.write(HANGS)
    node.seconds = 0.3
    node.start()
    assert node.step() == []
    assert not Path(f"/proc/{int((node.folder / 'pid').read_text())}").exists()
    assert [result for result, _ in node.results] == [Result.FAILED]
    assert "has not ended within 0 s" in node.results[0][1]


def test_an_agent_that_dies_with_its_bundle_does_not_repeat_it_for_ever(node: Node) -> None:
    """The try is in the store before the program starts; nothing later is needed."""
    node.write(f"#!/bin/sh\necho x >> {node.folder}/calls\nexit 1\n")
    for _ in range(6):
        node.step()
        node.start()  # a new life knows no gap
    assert node.calls == 3


def test_the_try_is_on_the_disk_before_the_program_starts(node: Node) -> None:
    node.write(f'#!/bin/sh\ncp {node.state}/gpuwatch.db* {node.folder}/copy/\necho b > "$3"\n')
    (node.folder / "copy").mkdir(mode=0o750)
    node.step()
    copied = Store.open(node.folder / "copy", node.clock)
    try:
        tries = json.loads(copied.memory(support_cases.MEMORY) or b"{}")
    finally:
        copied.close()
    assert [tried[1] for tried in tries.values()] == [1]


def test_more_faults_than_gpus_can_have_do_not_make_bundles_for_ever(node: Node) -> None:
    node.find(*(f"fault_{number}" for number in range(1000)), since=START - 60)
    node.step()
    node.clock.seconds += 2 * GAP_SECONDS
    node.step()
    assert node.calls == 1


def test_a_folder_that_is_a_link_gets_nothing(node: Node) -> None:
    (node.folder / "elsewhere").mkdir()
    (node.state / FOLDER).symlink_to(node.folder / "elsewhere")
    assert node.step() == []
    assert node.calls == 0
    assert "it is a link" in node.results[0][1] or "not safe" in node.results[0][1]
    assert list((node.folder / "elsewhere").iterdir()) == []
    (old := node.folder / "elsewhere/20250921T141320Z-xid_fatal.tgz").touch()
    os.utime(old, (1, 1))
    assert node.step() == []
    assert old.exists()


def test_what_a_killed_agent_left_goes_with_the_next_case(node: Node) -> None:
    left = node.state / FOLDER / ".tgz"
    left.mkdir(parents=True, mode=0o700)
    (left / "case.tgz").write_text("old and half")
    node.write(FAILS)
    assert node.step() == []
    assert list((node.state / FOLDER).iterdir()) == []


def test_a_pipe_in_the_place_of_its_folder_is_not_waited_for(node: Node) -> None:
    (node.state / FOLDER).mkdir(mode=0o700)
    os.mkfifo(pipe := node.state / FOLDER / ".tgz")
    writer = os.open(pipe, os.O_RDWR)  # without one, this test would wait, too
    try:
        assert len(node.step()) == 1
    finally:
        os.close(writer)


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
    assert node.step() == []
    assert node.calls == 0


LIMITS = """
from gpuwatch.cli.diagnose.support_case import step_back
step_back(30)
print(open("/proc/self/stat").read().split()[18], open("/proc/self/oom_score_adj").read().strip())
"""
FILLS = """
from gpuwatch.cli.diagnose.support_case import step_back
step_back(30)
"""


def ended(program: str, *words: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [sys.executable, "-c", program, *words], capture_output=True, text=True, timeout=30, check=False
    )


def test_the_program_lets_all_others_go_first() -> None:
    assert ended(LIMITS).stdout.split() == ["19", "1000"]


def test_its_files_and_its_memory_are_bounded(tmp_path: Path) -> None:
    large = tmp_path / "large"
    wrote = ended(
        FILLS + f"open({str(large)!r}, 'wb', 0).write(bytes(48 << 20)); open({str(large)!r}, 'ab', 0).write(b'x')"
    )
    assert wrote.returncode != 0
    assert large.stat().st_size == support_case.MAX_FILE
    held = ended(FILLS + "bytearray(112 << 20)")
    assert held.stderr.strip().endswith("MemoryError")


@pytest.mark.slow  # the cases above have the rules; these have the real program
def test_the_real_program_writes_a_bundle_within_its_memory(tmp_path: Path) -> None:
    bundle(tmp_path, "")
    with tarfile.open(tmp_path / "place/case.tgz") as archive:
        names = archive.getnames()
        assert any(name.endswith("gpuwatch/host.json") for name in names)  # made in a folder of its own, not in /tmp
    assert any(name.endswith("diagnosis.txt") for name in names)


@pytest.mark.slow
def test_on_a_full_disk_the_real_program_fails_and_says_why(tmp_path: Path) -> None:
    output = bundle(tmp_path, "s.MAX_FILE = 4096;")
    assert not (tmp_path / "place/case.tgz").exists()
    assert "cannot write" in output
    assert list((tmp_path / "place").iterdir()) == []


def bundle(folder: Path, before: str) -> str:
    """Run the program on a simulated node, after the statements `before`; what it printed."""
    place = folder / "place"
    place.mkdir()
    (folder / "config.yaml").write_text(json.dumps({"state_dir": str(folder)}))
    steps = f"from gpuwatch.cli.diagnose import support_case as s; {before} s.main()"
    with agent(folder, source=("--source", "sim:healthy")) as found:
        found.settle()
        socket = str(next(folder.glob("*.sock")))
        words = [str(folder / "config.yaml"), socket, str(place / "case.tgz"), "60"]
        result = subprocess.run(
            [sys.executable, "-c", steps, *words], capture_output=True, text=True, timeout=90, check=False
        )
    return result.stdout + result.stderr
