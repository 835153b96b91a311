"""The file that says how far a fleet's history was read: taken back only by who asked the same, whole or not at all."""

import os

import msgspec
import pytest

from gpuwatch.rightsizing.prometheus.history import Position, PositionFile


def position(question="q" * 64, **changes):
    known = {"begin": 0.0, "end": 600.0, "step": 300.0, "steps": 2, "at": 300.0, "saved": 1.0, "windows": 7}
    return Position(question=question, ledger=b"state", **known | changes)


@pytest.fixture
def file(tmp_path):
    return PositionFile(tmp_path / "deep" / "place", "q" * 64)


def test_what_was_written_comes_back_and_nobody_else_may_read_it(file):
    assert file.read() is None
    file.write(position())
    file.write(position(at=600.0))
    assert file.read() == position(at=600.0)
    assert [each.name for each in file.path.parent.iterdir()] == [file.path.name]
    assert file.path.parent.stat().st_mode & 0o77 == 0


@pytest.mark.parametrize("cut", [0, 1, 20, -1])
def test_half_a_file_is_none(file, cut):
    file.write(position())
    file.path.write_bytes(file.path.read_bytes()[:cut])
    assert file.read() is None


@pytest.mark.parametrize("other", [position(question="q" * 16 + "r" * 48), position(schema=2)])
def test_that_of_another_question_or_another_version_is_none(file, other):
    file.write(position())
    file.path.write_bytes(msgspec.msgpack.encode(other))
    assert file.read() is None


def test_a_disk_that_takes_nothing_leaves_the_one_before(file):
    file.write(position())
    file.path.with_name(f"{file.path.name}.{os.getpid()}.partial").mkdir()
    with pytest.raises(OSError, match="directory"):
        file.write(position(at=600.0))
    assert file.read() == position()


def test_old_ones_and_that_of_who_has_done_go(file):
    old = PositionFile(file.path.parent, "o" * 64)
    old.write(position(question="o" * 64))
    killed = old.path.with_name(f"{old.path.name}.1.partial")  # while it wrote
    killed.write_bytes(b"half")
    for each in (old.path, killed):
        os.utime(each, (10, 10))
    file.write(position())
    file.forget_older(100)
    assert (old.read(), file.read()) == (None, position())
    assert not killed.exists()
    file.forget()
    file.forget()
    assert file.read() is None
