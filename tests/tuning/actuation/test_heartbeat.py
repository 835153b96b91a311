"""Signs of life: each beat is told from the one before without a clock, and what cannot be read is a beat as well."""

import os
from pathlib import Path

import pytest

from gpuwatch.model.errors import GpuwatchError
from gpuwatch.tuning.actuation.heartbeat import GUARD_NAME, NAME, Heartbeat, HeartbeatFile
from gpuwatch.tuning.actuation.record import FOLDER


def test_a_heartbeat_is_received_with_its_mode(tmp_path: Path) -> None:
    heartbeat = HeartbeatFile(tmp_path)
    assert heartbeat.latest() is None
    heartbeat.beat("enforce", 5.0)
    seen = HeartbeatFile(tmp_path).latest()
    assert seen is not None
    assert seen.beat == Heartbeat(mode="enforce", pid=os.getpid(), at=5.0)


def test_the_same_beat_twice_has_two_stamps(tmp_path: Path) -> None:
    heartbeat, stamps = HeartbeatFile(tmp_path), []
    for _ in range(2):
        heartbeat.beat("enforce", 5.0)
        seen = heartbeat.latest()
        assert seen is not None
        stamps.append(seen.stamp)
    assert stamps[0] != stamps[1]
    assert heartbeat.latest() == seen


def test_tuner_and_guard_beat_apart(tmp_path: Path) -> None:
    HeartbeatFile(tmp_path).beat("enforce", 1.0)
    HeartbeatFile(tmp_path, GUARD_NAME).beat("guard", 2.0)
    guarded = {name: HeartbeatFile(tmp_path, name).latest() for name in (NAME, GUARD_NAME)}
    assert {name: seen.beat.mode for name, seen in guarded.items() if seen and seen.beat} == {
        NAME: "enforce",
        GUARD_NAME: "guard",
    }
    assert sorted(path.name for path in (tmp_path / FOLDER).iterdir()) == ["guard.heartbeat", "tuner.heartbeat"]


@pytest.mark.parametrize("body", [b"", b"{}", b"\xff", b'{"mode": 1, "pid": 2, "at": 3}'])
def test_what_cannot_be_read_is_a_beat_of_nobody(tmp_path: Path, body: bytes) -> None:
    heartbeat = HeartbeatFile(tmp_path)
    heartbeat.path.parent.mkdir()
    heartbeat.path.write_bytes(body)
    seen = heartbeat.latest()
    assert seen is not None
    assert seen.beat is None


def test_a_folder_that_cannot_be_written_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(GpuwatchError, match="look at --state-dir"):
        HeartbeatFile(tmp_path / "missing").beat("enforce", 0.0)
