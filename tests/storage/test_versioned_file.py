"""One file, many processes: a crash at any step leaves the old or the new content whole, and nothing else is accepted.

A crash of the machine loses what was not flushed: content of a file, or the newest renames of a folder.
"""

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest

from gpuwatch.model.errors import GpuwatchError
from gpuwatch.storage import versioned_file
from gpuwatch.storage.versioned_file import MOST_BYTES, UnreadableFile, VersionedFile, lock_file, replace_file

OLD, NEW = {"n": [1] * 50}, {"n": [2] * 5000}


class Crash(BaseException):
    """The process ends here: no handler of gpuwatch's may catch it."""


class Disk:
    """Counts the system calls of a write, ends it before number `left`, and knows what a power cut would lose."""

    def __init__(self, left: int | None = None) -> None:
        self.left, self.steps = left, list[str]()
        self.unflushed: dict[int, Path] = {}

    def step(self, name: str) -> None:
        if self.left is not None and len(self.steps) >= self.left:
            raise Crash
        self.steps.append(name)

    @contextmanager
    def watched(self, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
        def wrapped(name: str, call: Callable[..., Any]) -> Callable[..., Any]:
            def run(*args: Any, **kwargs: Any) -> Any:
                self.step(name)
                return call(*args, **kwargs)

            return run

        def create(path: str, flags: int) -> int:
            self.step("create")
            found = os.open(path, flags, 0o600)
            self.unflushed[os.fstat(found).st_ino] = Path(path)
            return found

        def fsync(descriptor: int) -> None:
            self.step("fsync")
            self.unflushed.pop(os.fstat(descriptor).st_ino, None)

        with monkeypatch.context() as patch:
            patch.setattr(versioned_file, "_create", create)
            patch.setattr(os, "fsync", fsync)
            for name in ("unlink", "rename", "replace", "fchmod"):
                patch.setattr(os, name, wrapped(name, getattr(os, name)))
            yield

    def cut(self, folder: Path) -> None:
        """A power cut: half of what was not flushed is there."""
        for path in folder.iterdir():
            if path.stat().st_ino in self.unflushed:
                os.truncate(path, path.stat().st_size // 2)


def write(path: Path, content: object, *, durable: bool = True) -> None:
    VersionedFile(path, dict, durable=durable).write(content)


def crashed(path: Path, monkeypatch: pytest.MonkeyPatch, left: int, *, durable: bool = True) -> Disk:
    disk = Disk(left)
    with disk.watched(monkeypatch):
        try:
            write(path, NEW, durable=durable)
        except Crash:
            pass
        else:
            disk.left = None
    return disk


def test_a_crash_at_any_step_leaves_the_old_or_the_new_content_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, found = tmp_path / "file.json", []
    for left in range(20):
        write(path, OLD)
        disk = crashed(path, monkeypatch, left)
        disk.cut(tmp_path)
        found.append(VersionedFile(path, dict).read())
        if disk.left is None:
            break
        write(path, OLD)  # nothing that the crash has left behind is in the way
    assert disk.steps == ["unlink", "create", "fchmod", "fsync", "replace", "fsync"]
    assert found == [OLD] * 5 + [NEW] * 2
    assert [each.name for each in tmp_path.iterdir()] == [path.name]


@pytest.mark.parametrize("written", [0, 1, 100])
def test_a_crash_within_a_write_leaves_the_old_content(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, written: int
) -> None:
    """The file beside it has a part of the new content then."""
    path = tmp_path / "file.json"
    write(path, OLD)

    def parts() -> Iterator[bytes]:
        yield b"x" * written
        raise Crash

    with pytest.raises(Crash):
        replace_file(path, parts())
    assert VersionedFile(path, dict).read() == OLD
    write(path, NEW)
    assert VersionedFile(path, dict).read() == NEW


def test_without_a_flush_a_power_cut_is_noticed_by_the_reader(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It also shows that the test above would find a flush that is missing."""
    path = tmp_path / "file.json"
    write(path, OLD)
    crashed(path, monkeypatch, 20, durable=False).cut(tmp_path)
    with pytest.raises(UnreadableFile):
        VersionedFile(path, dict).read()


def test_a_failed_write_leaves_the_old_content_and_no_partial_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "file.json"
    write(path, OLD)

    def full(descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", full)
        with pytest.raises(GpuwatchError, match=r"cannot write .*file\.json; No space left"):
            write(path, NEW)
    assert VersionedFile(path, dict).read() == OLD
    assert [each.name for each in tmp_path.iterdir()] == [path.name]


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"{",
        b"\xff",
        b"[" * 10_000,
        b'{"schema": 2, "content": {}}',
        b'{"schema": 0, "content": {}}',
        b'{"schema": 1}',
        b'{"schema": 1, "content": []}',
        b'{"schema": 1, "content": {}, "more": 1}',
    ],
)
def test_what_this_version_does_not_write_is_refused(tmp_path: Path, body: bytes) -> None:
    path = tmp_path / "file.json"
    path.write_bytes(body)
    with pytest.raises(UnreadableFile, match="remove it"):
        VersionedFile(path, dict).read()


def test_a_folder_that_goes_between_the_read_and_the_check_of_its_path_is_an_error_of_gpuwatch(tmp_path: Path) -> None:
    """Else the thread that reads dies. The way is looked at by its name: here the folder of that name is none."""
    (tmp_path / "elsewhere/own").mkdir(parents=True)
    (tmp_path / "elsewhere/state").mkdir()
    (tmp_path / "link").symlink_to("elsewhere/own")
    write(tmp_path / "elsewhere/state/file.json", {"n": 1})
    with pytest.raises(GpuwatchError, match=r"cannot read .*file\.json; No such file"):
        VersionedFile(tmp_path / "link/../state/file.json", dict, trusted=True).read()


def test_a_file_is_not_quoted_at_length(tmp_path: Path) -> None:
    """A name of 4 MiB in a tree was in its diagnosis twice."""
    (tmp_path / "file").write_text(f'{{"schema": 1, "{"x" * 100_000}": 1}}')
    with pytest.raises(UnreadableFile, match="contains unknown field `xxx") as refused:
        VersionedFile(tmp_path / "file", dict[str, int]).read()
    assert len(str(refused.value)) < 5000


def test_too_much_is_neither_read_nor_written(tmp_path: Path) -> None:
    path = tmp_path / "file.json"
    with pytest.raises(GpuwatchError, match=f"{MOST_BYTES} at most"):
        write(path, {"n": "x" * MOST_BYTES})
    path.write_bytes(b" " * (MOST_BYTES + 1))
    with pytest.raises(GpuwatchError, match=f"more than {MOST_BYTES} bytes"):
        VersionedFile(path, dict).read()


def test_every_write_has_another_stamp(tmp_path: Path) -> None:
    file = VersionedFile(tmp_path / "file.json", dict)
    assert file.stamp() is None
    file.write(OLD)
    before = file.stamp()
    file.write(OLD)
    assert file.stamp() != before


def test_two_holders_do_not_have_one_lock(tmp_path: Path) -> None:
    with lock_file(tmp_path / "lock", 0.0) as first, lock_file(tmp_path / "lock", 0.05) as second:
        assert (first, second) == (True, False)
    with lock_file(tmp_path / "lock", 0.0) as third, lock_file(tmp_path / "none" / "lock", 0.0) as nowhere:
        assert (third, nowhere) == (True, False)


def test_it_is_json_that_a_person_can_read(tmp_path: Path) -> None:
    file = VersionedFile(tmp_path / "file.json", dict, schema=3)
    file.write({"a": 1})
    assert msgspec.json.decode(file.path.read_bytes()) == {"schema": 3, "content": {"a": 1}}
    assert file.path.read_text().count("\n") > 2
    assert file.path.stat().st_mode & 0o777 == 0o640
