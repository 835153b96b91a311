"""The guard, with a clock that is turned: it acts on silence, not before, not twice, and not while a tuner lives."""

import threading
from pathlib import Path

import pytest

from gpuwatch.storage.audit import Audit
from gpuwatch.tuning.actuation.driver import NvmlControl
from gpuwatch.tuning.actuation.guard import CHECK_SECONDS, HEARTBEAT_TIMEOUT_SECONDS, RETRY_SECONDS, Guard
from gpuwatch.tuning.actuation.heartbeat import GUARD_NAME, HeartbeatFile
from gpuwatch.tuning.actuation.record import SettingsRecord
from gpuwatch.tuning.actuation.restore import Restorer
from gpuwatch.tuning.model.setting import Actuation, Trigger
from tests.remediation.model.remediating import FakeClock, Ledger
from tests.tuning.service.tuning import BOOT, Knobs, limit

GPU = "GPU-0"


class Bench:
    """A guard over one GPU whose power limit was lowered. `pass_time` beats as often as it is told to."""

    def __init__(self, folder: Path) -> None:
        self.clock, self.knobs = FakeClock(), Knobs(GPU)
        self.record, self.heartbeat = SettingsRecord(folder), HeartbeatFile(folder)
        self.lower()
        self.restorer = Restorer(
            self.record,
            lambda: NvmlControl(self.knobs),
            boot_id=BOOT,
            trigger=Trigger.GUARD,
            audit=Audit(Ledger(), self.clock),
            clock=self.clock,
        )
        self.guard = Guard(self.record, self.heartbeat, self.restorer, self.clock, exit_wait=0.2)

    def lower(self) -> None:
        self.record.add(limit(GPU))
        self.knobs.limits[GPU] = 500_000

    def pass_time(self, seconds: float, *, beat: str = "") -> float | None:
        """Seconds until the limit was given back; None: it was not."""
        start = self.clock.monotonic()
        while self.clock.monotonic() - start < seconds:
            if beat:
                self.heartbeat.beat(beat, self.clock.time())
            wait = self.guard.step()
            if self.knobs.limits[GPU] == 700_000:
                return self.clock.monotonic() - start
            self.clock.go(wait)
        return None


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    return Bench(tmp_path)


def test_while_the_tuner_beats_nothing_is_touched(bench: Bench) -> None:
    assert bench.pass_time(300, beat="enforce") is None
    assert not bench.knobs.calls


def test_s4_three_missed_beats_of_ten_seconds_and_all_is_restored(bench: Bench) -> None:
    assert bench.pass_time(5, beat="enforce") is None
    took = bench.pass_time(60)
    assert took is not None
    assert HEARTBEAT_TIMEOUT_SECONDS - CHECK_SECONDS <= took <= 35
    assert not bench.record.read().settings


def test_a_tuner_that_was_never_there_is_silent_too(bench: Bench) -> None:
    assert bench.pass_time(60) == HEARTBEAT_TIMEOUT_SECONDS


def test_a_tuner_that_comes_back_in_time_keeps_its_settings(bench: Bench) -> None:
    for _ in range(5):
        assert bench.pass_time(2, beat="enforce") is None
        assert bench.pass_time(HEARTBEAT_TIMEOUT_SECONDS - 5) is None


@pytest.mark.parametrize("mode", ["observe", "off"])
def test_a_tuner_that_does_not_enforce_answers_for_nothing(bench: Bench, mode: str) -> None:
    assert bench.pass_time(10, beat=mode) == 0


def test_a_clock_that_is_set_changes_nothing(bench: Bench) -> None:
    assert bench.pass_time(5, beat="enforce") is None
    bench.clock.wall -= 86400
    assert bench.pass_time(60, beat="enforce") is None
    bench.clock.wall += 2 * 86400
    assert bench.pass_time(HEARTBEAT_TIMEOUT_SECONDS - 5) is None


def test_with_nothing_recorded_the_driver_is_never_asked(bench: Bench) -> None:
    bench.record.settle(bench.record.read().settings, 0, Trigger.GUARD)
    bench.knobs.errors["nvmlInit"] = 1
    assert bench.pass_time(100) is None


def test_s6_what_fails_is_tried_again_and_not_in_a_hurry(bench: Bench) -> None:
    bench.knobs.deaf = True
    assert bench.pass_time(HEARTBEAT_TIMEOUT_SECONDS + 3 * RETRY_SECONDS + 1) is None
    assert len(bench.knobs.calls) == 4
    bench.knobs.deaf = False
    assert bench.pass_time(RETRY_SECONDS + 1) is not None


def test_a_record_that_cannot_be_understood_is_left_as_it_is(bench: Bench) -> None:
    bench.record.path.write_text("{")
    assert bench.pass_time(60) is None
    assert not bench.knobs.calls
    assert bench.record.path.read_text() == "{"


def test_a_heartbeat_that_cannot_be_read_is_a_beat(bench: Bench) -> None:
    bench.heartbeat.path.write_text("x")
    assert bench.pass_time(HEARTBEAT_TIMEOUT_SECONDS - 1) is None


class Between(SettingsRecord):
    """A record at whose first reading a new tuner has just begun: it has beaten, and recorded what it sets."""

    begun = False

    def read(self) -> Actuation:
        if not self.begun:
            self.begun = True
            HeartbeatFile(self.directory).beat("enforce", 0.0)
            self.add(limit(GPU))
        return super().read()


def test_a_tuner_that_begins_while_the_guard_reads_keeps_its_settings(tmp_path: Path, bench: Bench) -> None:
    bench.record.settle(bench.record.read().settings, 0, Trigger.GUARD)
    bench.heartbeat.beat("observe", 0.0)
    guard = Guard(Between(tmp_path), bench.heartbeat, bench.restorer, bench.clock)
    guard.step()
    assert bench.record.read().settings
    assert not bench.knobs.calls


def test_each_cycle_writes_a_heartbeat_for_the_tuner(bench: Bench, tmp_path: Path) -> None:
    own, stamps = HeartbeatFile(tmp_path, GUARD_NAME), set()
    for _ in range(3):
        bench.heartbeat.beat("enforce", 0.0)
        bench.guard.step()
        seen = own.latest()
        assert seen is not None
        assert seen.beat is not None
        assert (seen.beat.mode, seen.beat.at) == ("guard", bench.clock.time())
        stamps.add(seen.stamp)
    assert len(stamps) > 1
    guarded = bench.heartbeat.latest()
    assert guarded is not None
    assert guarded.beat is not None
    assert guarded.beat.mode == "enforce"


def test_a_guard_that_cannot_beat_reports_it_once_and_guards_on(
    bench: Bench, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    HeartbeatFile(tmp_path, GUARD_NAME).path.mkdir()
    assert bench.pass_time(60, beat="observe") == 0
    bench.guard.step()
    bench.guard.step()
    assert sum("no tuner will set anything" in record.message for record in caplog.records) == 1


def test_at_its_end_nothing_is_left_behind(bench: Bench) -> None:
    assert bench.pass_time(5, beat="enforce") is None
    stopping = threading.Event()
    stopping.set()
    bench.guard.run(stopping.wait)
    assert bench.knobs.limits[GPU] == 700_000


def test_at_its_end_a_tuner_may_restore_by_itself(bench: Bench) -> None:
    assert bench.pass_time(5, beat="enforce") is None
    bench.record.settle(bench.record.read().settings, 0, Trigger.GUARD)
    bench.guard.stop()
    assert not bench.knobs.calls
