"""The write-ahead file: what is in it is on the disk, what cannot be understood stops every write, nobody loses any."""

import json
import os
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from gpuwatch.model.errors import GpuwatchError
from gpuwatch.storage.versioned_file import UnreadableFile
from gpuwatch.tuning.actuation.record import FOLDER, KEY_NAME, NAME, RecordBusy, SettingsRecord
from gpuwatch.tuning.model.setting import Actuation, Setting, Trigger

LIMIT = Setting(
    uuid="GPU-0",
    knob="power_limit",
    original=700.0,
    applied=(500.0,),
    at=1.79e9,
    boot_id="b1",
    driver="580",
    pod_uid="u",
)
CLOCKS = replace(LIMIT, knob="locked_clocks", original=None, applied=(1.2e9,))
SAME_FOLDER = settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)


@pytest.fixture
def record(tmp_path: Path) -> SettingsRecord:
    return SettingsRecord(tmp_path)


def lay(record: SettingsRecord, body: bytes) -> None:
    """A file there, with the mode that gpuwatch gives it."""
    record.path.parent.mkdir(mode=0o700, exist_ok=True)
    record.path.write_bytes(body)
    record.path.chmod(0o600)


def test_no_file_is_nothing(record: SettingsRecord) -> None:
    assert record.read() == Actuation()


def test_what_is_added_is_read_by_others(record: SettingsRecord, tmp_path: Path) -> None:
    record.add(LIMIT)
    record.add(CLOCKS)
    assert SettingsRecord(tmp_path).read().settings == (LIMIT, CLOCKS)
    found = {path.name: path.stat().st_mode & 0o777 for path in (tmp_path / FOLDER).iterdir()}
    assert {name: found[name] for name in (NAME, KEY_NAME)} == {NAME: 0o600, KEY_NAME: 0o600}
    assert (tmp_path / FOLDER).stat().st_mode & 0o777 == 0o700


def test_s1_the_first_original_stays(record: SettingsRecord) -> None:
    record.add(LIMIT)
    record.add(replace(LIMIT, original=500.0, applied=(400.0,)))
    (found,) = record.read().settings
    assert (found.original, found.applied) == (700.0, (400.0, 500.0))


def test_another_boot_starts_over(record: SettingsRecord) -> None:
    record.add(LIMIT)
    later = replace(LIMIT, boot_id="b2", original=650.0, applied=(400.0,))
    record.add(later)
    assert record.read().settings == (later,)


def test_what_is_settled_is_gone_and_counted(record: SettingsRecord) -> None:
    record.add(LIMIT)
    record.add(CLOCKS)
    record.settle((LIMIT,), 1, Trigger.GUARD)
    record.settle((), 0, Trigger.COMMAND)
    assert record.read() == Actuation(settings=(CLOCKS,), restores={Trigger.GUARD: 1, Trigger.COMMAND: 0})


def test_what_was_changed_meanwhile_is_not_settled(record: SettingsRecord) -> None:
    record.add(LIMIT)
    record.add(replace(LIMIT, applied=(450.0,)))
    record.settle((LIMIT,), 1, Trigger.GUARD)
    assert [setting.applied for setting in record.read().settings] == [(450.0, 500.0)]


def test_what_the_driver_has_confirmed_is_all_that_may_be_in_force(record: SettingsRecord) -> None:
    record.add(LIMIT)
    record.add(CLOCKS)
    record.add(replace(LIMIT, applied=(400.0,)))
    record.confirm("GPU-0", "power_limit", 400.0)
    assert record.read().settings == (CLOCKS, replace(LIMIT, applied=(400.0,)))
    written = record.path.stat().st_ino
    record.confirm("GPU-0", "power_limit", 400.0)
    record.confirm("GPU-9", "power_limit", 300.0)
    assert record.path.stat().st_ino == written, "nothing has changed"


NONSENSE = [
    replace(LIMIT, applied=(800.0,)),
    replace(LIMIT, applied=()),
    replace(LIMIT, applied=(-5.0,)),
    replace(LIMIT, original=None),
    replace(LIMIT, uuid=""),
    replace(CLOCKS, original=1.0),
]


@pytest.mark.parametrize("setting", NONSENSE)
def test_what_would_raise_or_makes_no_sense_is_neither_written_nor_read(
    record: SettingsRecord, setting: Setting
) -> None:
    with pytest.raises(GpuwatchError, match="not recorded, hence not made"):
        record.add(setting)
    assert not record.path.exists()
    lay(record, document({"settings": [msgspec.to_builtins(setting)]}))
    with pytest.raises(UnreadableFile):
        record.read()


def test_a_knob_that_is_listed_twice_is_refused(record: SettingsRecord) -> None:
    """Given back one after the other, the second could raise what the first has restored."""
    twice = [LIMIT, replace(LIMIT, original=800.0, applied=(700.0,))]
    lay(record, document({"settings": msgspec.to_builtins(twice)}))
    with pytest.raises(UnreadableFile, match="GPU-0: power_limit is listed twice"):
        record.read()


@pytest.mark.parametrize("mode", [0o666, 0o664, 0o602, 0o644, 0o640])
def test_a_file_that_others_may_read_or_write_is_not_acted_on(record: SettingsRecord, mode: int) -> None:
    record.add(LIMIT)
    record.path.chmod(mode)
    with pytest.raises(UnreadableFile, match="others may read or write it"):
        record.read()


def test_whatever_the_umask_its_own_file_is_trusted(record: SettingsRecord) -> None:
    before = os.umask(0)
    try:
        record.add(LIMIT)
    finally:
        os.umask(before)
    assert record.read().settings == (LIMIT,)


def test_a_link_that_lies_in_wait_is_not_written_through(record: SettingsRecord, tmp_path: Path) -> None:
    victim = tmp_path / "victim"
    victim.write_text("precious")
    (tmp_path / FOLDER).mkdir(mode=0o700)
    (tmp_path / FOLDER / f"{NAME}.partial").symlink_to(victim)
    record.add(LIMIT)
    assert victim.read_text() == "precious"
    record.path.unlink()
    record.path.symlink_to(victim)
    with pytest.raises(GpuwatchError, match="it is a link"):
        record.add(LIMIT)
    assert victim.read_text() == "precious"


def document(actuation: Any, **more: Any) -> bytes:
    return json.dumps({"schema": 1, "content": {"actuation": actuation, "seal": ""}} | more).encode()


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"{}",
        b"null",
        b"[1]",
        b"\xff\xfe",
        document({}, schema=2),
        document({}, more=1),
        document({"settings": [{}]}),
        document({"restores": {"nobody": 1}}),
    ],
)
def test_s6_a_file_that_cannot_be_understood_stops_every_write(record: SettingsRecord, body: bytes) -> None:
    lay(record, body)
    for write in (lambda: record.add(LIMIT), lambda: record.settle((LIMIT,), 1, Trigger.GUARD), record.read):
        with pytest.raises(UnreadableFile, match="nothing is set on GPUs meanwhile"):
            write()
    assert record.path.read_bytes() == body


@SAME_FOLDER
@given(st.one_of(st.binary(max_size=200), st.integers(0, 2000)))
@example(2000)
def test_any_bytes_are_read_or_refused(record: SettingsRecord, damage: bytes | int) -> None:
    record.path.unlink(missing_ok=True)
    record.add(LIMIT)
    record.add(CLOCKS)
    whole = record.path.read_bytes()
    body = damage if isinstance(damage, bytes) else whole[:damage]
    lay(record, body)
    try:
        found = record.read()
    except UnreadableFile:
        assert body != whole
    else:
        assert found.settings == (LIMIT, CLOCKS)


def test_a_line_without_the_seal_of_this_record_is_not_acted_on(record: SettingsRecord) -> None:
    """Whoever can write the file, and not the key, invents, changes and repeats settings in vain."""
    forged = json.dumps({"settings": [msgspec.to_builtins(LIMIT)]})
    lay(record, document(json.loads(forged)))
    with pytest.raises(UnreadableFile, match="the key of its seal"):
        record.read()
    record.path.unlink()
    record.add(LIMIT)
    genuine = record.path.read_bytes()
    assert genuine.count(b"700.0") == 1
    lay(record, genuine.replace(b"700.0", b"900.0"))
    with pytest.raises(UnreadableFile, match="its seal is wrong"):
        record.read()
    lay(record, genuine)
    record.settle((LIMIT,), 1, Trigger.GUARD)
    record.add(CLOCKS)
    lay(record, genuine)
    with pytest.raises(UnreadableFile, match="its seal is wrong"):
        record.read()


def test_a_key_that_others_may_read_is_not_used(record: SettingsRecord) -> None:
    record.add(LIMIT)
    record.path.with_name(KEY_NAME).chmod(0o640)
    with pytest.raises(UnreadableFile, match="is not its owner's alone"):
        record.read()


@SAME_FOLDER
@given(
    st.lists(
        st.builds(
            lambda gpu, original, share: replace(
                LIMIT, uuid=f"GPU-{gpu}", original=original, applied=(original * share,)
            ),
            st.integers(0, 3),
            st.floats(100, 1000),
            st.floats(0.3, 1.0),
        ),
        max_size=6,
    )
)
def test_whatever_is_added_the_first_original_of_each_gpu_is_there(
    record: SettingsRecord, added: list[Setting]
) -> None:
    record.path.unlink(missing_ok=True)
    first: dict[str, float | None] = {}
    for setting in added:
        try:
            record.add(setting)
        except GpuwatchError:  # above what it was at first
            assert max(setting.applied) > (first.get(setting.uuid) or 0.0)
        else:
            first.setdefault(setting.uuid, setting.original)
    assert {each.uuid: each.original for each in record.read().settings} == first


def test_a_folder_that_cannot_be_written_is_an_error_and_leaves_the_old(tmp_path: Path) -> None:
    nowhere = SettingsRecord(tmp_path / "missing")
    with pytest.raises(GpuwatchError, match="No such file"):
        nowhere.add(LIMIT)
    with nowhere.lock(0.0) as held:
        assert not held


def test_a_lock_that_is_no_file_is_not_only_reported_to_be_held(record: SettingsRecord, tmp_path: Path) -> None:
    (tmp_path / FOLDER).mkdir(mode=0o700)
    os.mkfifo(record.path.with_suffix(".lock"))
    with pytest.raises(RecordBusy, match=f"cannot lock {record.path}.*or the lock cannot be opened; .*dir"):
        record.add(LIMIT)


SLOW_DISK = 0.04
"""Seconds of a flush: a network disk beside other load. 8 GPUs one after the other would take 0.7 s."""


@pytest.fixture
def slow_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    flush = os.fsync

    def slow(number: int) -> None:
        time.sleep(SLOW_DISK)
        flush(number)

    monkeypatch.setattr(os, "fsync", slow)


def at_once(record: SettingsRecord, wanted: list[Setting]) -> list[str]:
    """Record each in a thread of its own; what was refused."""
    refused: list[str] = []

    def add(setting: Setting) -> None:
        try:
            record.add(setting)
        except (GpuwatchError, TypeError) as error:
            refused.append(str(error))

    threads = [threading.Thread(target=add, args=(setting,)) for setting in wanted]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return refused


@pytest.mark.usefixtures("slow_disk")
def test_the_gpus_that_are_set_at_once_share_the_writes(record: SettingsRecord) -> None:
    wanted = [replace(LIMIT, uuid=f"GPU-{index}") for index in range(8)]
    assert at_once(record, wanted) == []
    assert {each.uuid for each in record.read().settings} == {each.uuid for each in wanted}


@pytest.mark.usefixtures("slow_disk")
def test_a_setting_that_may_not_be_recorded_keeps_none_beside_it_out(record: SettingsRecord) -> None:
    wanted = [replace(LIMIT, uuid=f"GPU-{index}") for index in range(8)]
    wanted[3] = replace(wanted[3], applied=(9000.0,))
    refused = at_once(record, wanted)
    assert (len(refused), "above the original" in refused[0]) == (1, True)
    assert {each.uuid for each in record.read().settings} == {each.uuid for each in wanted} - {"GPU-3"}


@pytest.mark.usefixtures("slow_disk")
def test_whatever_the_thread_that_writes_dies_of_those_beside_it_do_not_take_their_settings_for_recorded(
    record: SettingsRecord,
) -> None:
    wanted = [replace(LIMIT, uuid=f"GPU-{index}") for index in range(8)]
    wanted[3] = replace(wanted[3], applied=("no number",))
    refused = at_once(record, wanted)
    assert len(refused) == len(wanted) - len(record.read().settings) > 0


HOLD = """
import sys
from pathlib import Path
from gpuwatch.tuning.actuation.record import SettingsRecord
with SettingsRecord(Path(sys.argv[1])).lock(5.0) as held:
    print(held, flush=True)
    sys.stdin.read()
"""


@pytest.mark.parametrize("uuid", ["GPU-0", "../../escape", "..", "a/b", "x\0y", ""])
def test_each_gpu_has_a_lock_of_its_own_inside_the_folder(record: SettingsRecord, tmp_path: Path, uuid: str) -> None:
    with record.lock_gpu(uuid, 0.0) as held:
        assert held
        with record.lock_gpu(uuid, 0.0) as again, record.lock_gpu("GPU-1", 0.0) as other, record.lock(0.0) as whole:
            assert (again, other, whole) == (False, True, True)
    with record.lock_gpu(uuid, 0.0) as held:
        assert held
    locks = list((tmp_path / FOLDER).iterdir())
    assert all(path.name.endswith(".lock") and path.is_file() for path in locks)
    assert (len(locks), list(tmp_path.iterdir())) == (3, [tmp_path / FOLDER])


def test_a_gpu_that_no_file_can_be_named_after_is_not_held(record: SettingsRecord) -> None:
    with record.lock_gpu("x" * 300, 0.0) as held:
        assert not held


def test_the_lock_holds_against_another_process_until_it_dies(record: SettingsRecord, tmp_path: Path) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", HOLD, str(tmp_path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == "True\n"
        with record.lock(0.1) as held:
            assert not held
        os.kill(holder.pid, 9)
        holder.wait(10)
        with record.lock(5.0) as held:
            assert held
