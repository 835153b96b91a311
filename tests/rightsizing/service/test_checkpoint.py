"""The ledger's checkpoint: killed while it writes, cut, garbled, of another version or program, on a full disk."""

import os
import random
import subprocess
import sys
import time
import tracemalloc
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gpuwatch.config import RightsizingConfig
from gpuwatch.model.errors import GpuwatchError
from gpuwatch.rightsizing.service.checkpoint import (
    CURRENT,
    KEPT_ASIDE,
    MOST_BYTES,
    NAME,
    Schema,
    load,
    peek,
    previous,
    save,
)
from gpuwatch.rightsizing.usage.ledger import LedgerState, UsageLedger
from tests.rightsizing.usage.usage_spans import BEGIN, HOUR, at_rest, at_work

KILLS = 6
SAVE_FOR_EVER = """
import sys
from pathlib import Path
from msgspec.structs import replace
from gpuwatch.rightsizing.usage.ledger import LedgerState
from gpuwatch.rightsizing.service.checkpoint import load, save
path = Path(sys.argv[1])
state, trouble = load(path, LedgerState)
print(state.at, len(trouble), flush=True)
while True:
    state = replace(state, at=state.at + 1)
    save(path, state)
    print(state.at, len(trouble), flush=True)
"""
SAVE_ON_A_FULL_DISK = """
import resource, sys
from pathlib import Path
from gpuwatch.model.errors import GpuwatchError
from gpuwatch.rightsizing.usage.ledger import LedgerState
from gpuwatch.rightsizing.service.checkpoint import load, save
path = Path(sys.argv[1])
state = load(path, LedgerState).state
resource.setrlimit(resource.RLIMIT_FSIZE, (path.stat().st_size - 1, resource.RLIM_INFINITY))
try:
    save(path, state)
except GpuwatchError as error:
    print(error)
"""


def known() -> LedgerState:
    ledger = UsageLedger(RightsizingConfig())
    for each in (*at_work(BEGIN, HOUR, memory=7 << 30), *at_rest(BEGIN + HOUR, HOUR)):
        ledger.add(each)
    return ledger.state()


KNOWN = known()
OLDER = msgspec.structs.replace(KNOWN, at=BEGIN)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / NAME


def names(path: Path) -> set[str]:
    return {each.name for each in path.parent.iterdir()}


def test_what_was_saved_is_there_and_so_is_what_was_before(path: Path):
    save(path, OLDER)
    size = save(path, KNOWN)

    assert load(path, LedgerState) == (KNOWN, ())
    assert load(previous(path), LedgerState) == (OLDER, ())
    assert size == path.stat().st_size
    assert names(path) == {NAME, previous(path).name}


def test_a_ledger_continues_from_it(path: Path):
    save(path, KNOWN)

    state, _ = load(path, LedgerState)

    assert state is not None
    assert UsageLedger.restored(state, RightsizingConfig()).state() == KNOWN


def test_nothing_is_there_at_first(path: Path):
    assert load(path, LedgerState) == (None, ())


def test_it_survives_kill_9_at_any_moment(path: Path):
    save(path, KNOWN)
    chance = random.Random(7)
    told = KNOWN.at or 0.0
    for _ in range(KILLS):
        process = subprocess.Popen([sys.executable, "-c", SAVE_FOR_EVER, str(path)], stdout=subprocess.PIPE, text=True)
        assert process.stdout
        for _ in range(chance.randrange(5, 40)):
            at, trouble = process.stdout.readline().split()
            assert (float(at) >= told, trouble) == (True, "0")
            told = float(at)
        time.sleep(chance.random() / 100)  # anywhere between two saves, or within one
        process.kill()
        rest = process.stdout.read()  # communicate() would leave out the part of a line that readline() has buffered
        process.communicate()
        told = max([told, *(float(line.split()[0]) for line in rest.splitlines() if len(line.split()) == 2)])

        state, trouble = load(path, LedgerState)
        assert trouble == ()
        assert state is not None
        assert state.at is not None
        assert state.at >= told
        told = state.at


def test_killed_between_its_two_renames_the_one_before_is_taken(path: Path):
    save(path, OLDER)
    path.replace(previous(path))

    assert load(path, LedgerState) == (OLDER, ())


def test_a_full_disk_costs_nothing_of_what_was_there(path: Path):
    save(path, KNOWN)

    declared_class = subprocess.run(
        [sys.executable, "-c", SAVE_ON_A_FULL_DISK, str(path)], capture_output=True, text=True
    )

    what, why, next_step = declared_class.stdout.strip().split("; ", 2)
    assert (what, why) == (f"cannot write {path}", "File too large")
    assert "look at its disk and at --state-dir" in next_step
    assert load(path, LedgerState) == (KNOWN, ())
    assert names(path) == {NAME}


def test_a_directory_that_is_not_there_is_reported(path: Path):
    with pytest.raises(GpuwatchError, match="No such file"):
        save(path.parent / "gone" / NAME, KNOWN)


def test_a_newer_gpuwatch_reads_what_an_older_one_wrote(path: Path):
    def renamed(values: dict[str, Any]) -> dict[str, Any]:
        return {"at" if name == "until" else name: value for name, value in values.items()}

    class Old(msgspec.Struct, omit_defaults=True):
        since: float
        until: float
        workloads: tuple[msgspec.Raw, ...]

    workloads = tuple(msgspec.Raw(msgspec.json.encode(book)) for book in KNOWN.workloads)
    save(path, Old(since=BEGIN, until=BEGIN + HOUR, workloads=workloads), Schema(number=1))

    state, trouble = load(path, LedgerState, Schema(number=3, migrations={1: renamed, 2: dict}))

    assert trouble == ()
    assert state is not None
    assert (state.since, state.at, state.workloads) == (BEGIN, BEGIN + HOUR, KNOWN.workloads)


def test_an_older_gpuwatch_takes_what_was_before_and_keeps_the_newer_for_its_writer(path: Path):
    newer = Schema(number=CURRENT.number + 1, migrations={CURRENT.number: dict})
    save(path, OLDER)
    save(path, KNOWN, newer)

    state, (trouble,) = load(path, LedgerState)

    assert state == OLDER
    (aside,) = path.parent.glob("rightsizing.newer-*.json")
    assert f"{path} cannot be used, it is now {aside}; it has schema {newer.number}" in trouble
    assert trouble.endswith("restore its name for the gpuwatch that wrote it, or remove it")
    save(path, OLDER)
    aside.replace(path)
    assert load(path, LedgerState, newer) == (KNOWN, ())


def test_members_that_a_later_gpuwatch_has_added_are_passed_by(path: Path):
    class Wider(LedgerState, frozen=True, kw_only=True):
        news: dict[str, int] = {}

    save(path, Wider(since=BEGIN, at=BEGIN, news={"a": 1}))

    assert load(path, LedgerState) == (LedgerState(since=BEGIN, at=BEGIN), ())


def test_one_that_is_too_old_is_reported(path: Path):
    save(path, KNOWN, Schema(number=1))

    state, (trouble,) = load(path, LedgerState, Schema(number=3, migrations={2: dict}))

    assert state is None
    assert "schema 1, which this gpuwatch cannot read any more; use a gpuwatch in between first" in trouble


def test_a_step_to_the_next_schema_that_fails_is_no_crash(path: Path):
    def broken(values: dict[str, Any]) -> Any:
        return values["absent"]

    save(path, KNOWN, Schema(number=1))

    state, (trouble,) = load(path, LedgerState, Schema(number=2, migrations={1: broken}))

    assert state is None
    assert "KeyError" in trouble


BODY = b'{"format":"gpuwatch-rightsizing","schema":1,"size":2,"crc32":2745614147}\n{}\n'


@pytest.mark.parametrize(
    ("body", "kind", "why"),
    [
        (b"", "corrupt", "its first line is not one that gpuwatch writes"),
        (b"[" * 100_000, "corrupt", "its first line is not one that gpuwatch writes"),
        (b"\xff\xfe\n", "corrupt", "its first line is not one that gpuwatch writes"),
        (BODY[:-3], "corrupt", "0 of 2 bytes are there"),
        (BODY.replace(b"{}", b"[]"), "corrupt", "its checksum is wrong"),
        (BODY.replace(b"gpuwatch-r", b"other-r"), "foreign", "it is of format 'other-rightsizing'"),
    ],
)
def test_what_cannot_be_used_is_set_aside_and_reported(path: Path, body: bytes, kind: str, why: str):
    save(previous(path), OLDER)
    path.write_bytes(body)

    state, (trouble,) = load(path, LedgerState)

    assert state == OLDER
    (aside,) = path.parent.glob(f"rightsizing.{kind}-*.json")
    assert aside.read_bytes() == body
    assert trouble.startswith(f"{path} cannot be used, it is now {aside}; {why}")
    assert trouble.endswith("then remove it")
    assert load(path, LedgerState) == (OLDER, ())


@pytest.mark.parametrize("head", [b"", BODY.partition(b"\n")[0] + b"\n"])
def test_a_file_that_the_head_does_not_describe_costs_no_memory(path: Path, head: bytes):
    """An agent has 256 MiB; the 512 MiB that a file may have ended it at each start."""
    path.write_bytes(head)
    os.truncate(path, MOST_BYTES)
    tracemalloc.start()
    try:
        assert load(path, LedgerState).state is None
        assert tracemalloc.get_traced_memory()[1] < 1 << 20
    finally:
        tracemalloc.stop()


@settings(deadline=None)
@given(cut=st.floats(0, 1, exclude_max=True), flip=st.integers(0, 255))
def test_cut_or_garbled_anywhere_it_is_never_trusted(tmp_path_factory: pytest.TempPathFactory, cut: float, flip: int):
    path = tmp_path_factory.mktemp("state") / NAME
    size = save(path, KNOWN)
    whole = path.read_bytes()
    place = int(cut * (size - 1))
    garbled = whole[:place] + bytes([flip]) + whole[place + 1 :]
    for body in (whole[:place], garbled):
        path.write_bytes(body)

        state, trouble = peek(path, LedgerState)

        assert state == (KNOWN if body == whole or msgspec_reads_the_same(body, whole) else None)
        assert len(trouble) == (state is None)


def msgspec_reads_the_same(body: bytes, whole: bytes) -> bool:
    """White space for white space, or another schema's number that means the same: the head is no secret."""
    return body.partition(b"\n")[2] == whole.partition(b"\n")[2] and body.split() == whole.split()


def test_observing_moves_nothing(path: Path):
    path.write_bytes(b"rubbish")

    state, (trouble,) = peek(path, LedgerState)

    assert state is None
    assert trouble.startswith(f"{path} cannot be used; its first line")
    assert names(path) == {NAME}


def test_no_more_bad_files_are_kept_than_a_person_reads(path: Path):
    for number in range(3 * KEPT_ASIDE):
        path.write_bytes(b"rubbish %d" % number)
        os.utime(path, (BEGIN + number, BEGIN + number))
        load(path, LedgerState)

    kept = {each.read_bytes() for each in path.parent.iterdir()}
    assert kept == {b"rubbish %d" % number for number in range(2 * KEPT_ASIDE, 3 * KEPT_ASIDE)}


@pytest.mark.parametrize("make", ["pipe", "link", "directory"])
def test_what_is_no_file_is_neither_waited_for_nor_followed(path: Path, make: str):
    save(previous(path), OLDER)
    if make == "pipe":
        os.mkfifo(path)
    elif make == "link":
        path.symlink_to("/dev/zero")
    else:
        path.mkdir()

    state, (trouble,) = load(path, LedgerState)

    assert state == OLDER
    assert trouble.startswith(f"cannot read {path}; ")


def test_nothing_is_written_through_a_link(path: Path, tmp_path: Path):
    victim = tmp_path / "victim"
    victim.write_text("mine")
    path.with_suffix(".partial").symlink_to(victim)

    save(path, KNOWN)

    assert victim.read_text() == "mine"
    assert load(path, LedgerState) == (KNOWN, ())
