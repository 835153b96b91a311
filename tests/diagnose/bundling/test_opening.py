"""Archives from strangers: only plain files and folders come out, below the folder, within bounds."""

import gzip
import io
import os
import tarfile
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from gpuwatch.diagnose.bundling import opening
from gpuwatch.diagnose.bundling.opening import open_archive
from gpuwatch.model.errors import UsageError


def archive(path: Path, *entries: tuple[str, bytes, str, bytes], mode: str = "w:gz") -> Path:
    """Of entries name, type, link target, body."""
    with tarfile.open(path, mode) as tar:  # type: ignore[call-overload]
        for name, kind, target, body in entries:
            entry = tarfile.TarInfo(name)
            entry.type, entry.linkname, entry.size = kind, target, len(body)
            entry.mode = 0o6777
            tar.addfile(entry, io.BytesIO(body))
    return path


def file(name: str, body: bytes = b"x") -> tuple[str, bytes, str, bytes]:
    return name, tarfile.REGTYPE, "", body


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "opened").mkdir()
    return tmp_path / "opened"


@pytest.mark.parametrize("mode", ["w", "w:gz"])
def test_plain_files_come_out_for_the_owner_alone(tmp_path: Path, folder: Path, mode: str) -> None:
    found = open_archive(archive(tmp_path / "a", file("top/etc/name"), mode=mode), folder)
    assert found == (folder / "top", {})
    assert (folder / "top/etc/name").read_bytes() == b"x"
    assert (folder / "top/etc/name").stat().st_mode & 0o7777 == 0o600


@pytest.mark.parametrize(
    ("entry", "why"),
    [
        (("a", tarfile.SYMTYPE, "/etc/passwd", b""), "a link"),
        (("a", tarfile.LNKTYPE, "top/b", b""), "a link"),
        (("a", tarfile.FIFOTYPE, "", b""), "neither"),
        (("a", tarfile.CHRTYPE, "", b""), "neither"),
        (("a", tarfile.BLKTYPE, "", b""), "neither"),
        (file("../a"), "elsewhere"),
        (file("top/../../a"), "elsewhere"),
        (file("/a"), "elsewhere"),
        (file("top//a"), "elsewhere"),
        (file("a" * 300), "too long"),
        (file("a/" * 40 + "a"), "too long"),
        (file("a\x1b[2J"), "no text"),
        (file("top/b"), "another entry"),
        (file("top/b/c"), "another entry"),
    ],
)
def test_anything_else_is_left_out_and_named(
    tmp_path: Path, folder: Path, entry: tuple[str, bytes, str, bytes], why: str
) -> None:
    found = open_archive(archive(tmp_path / "a.tgz", file("top/b"), entry), folder)
    assert list(found.refused) == [entry[0]]
    assert why in found.message
    assert sorted(map(str, tmp_path.rglob("*"))) == sorted(
        map(str, (tmp_path / "a.tgz", folder, folder / "top", folder / "top/b"))
    )
    assert (folder / "top/b").read_bytes() == b"x"


def test_a_link_does_not_lead_the_next_entry_out(tmp_path: Path, folder: Path) -> None:
    entries = (("top", tarfile.SYMTYPE, str(tmp_path), b""), file("top/out"))
    open_archive(archive(tmp_path / "a.tgz", *entries), folder)
    assert not (tmp_path / "out").exists()
    assert (folder / "top/out").read_bytes() == b"x"


def test_what_unpacks_to_too_much_is_refused(tmp_path: Path, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(opening, "MOST_BYTES", 1 << 20)
    bomb = archive(tmp_path / "a.tgz", file("top/a", bytes(2 << 20)))
    assert bomb.stat().st_size < 10_000
    with pytest.raises(UsageError, match="more than 1 MiB"):
        open_archive(bomb, folder)
    assert sum(path.stat().st_size for path in folder.rglob("*")) <= 1 << 20


def test_too_many_entries_are_refused(tmp_path: Path, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(opening, "MOST_ENTRIES", 8)
    with pytest.raises(UsageError, match="more than 8 entries"):
        open_archive(archive(tmp_path / "a.tgz", *(file(f"top/{n}") for n in range(9))), folder)


def test_folders_that_names_make_count_as_entries(
    tmp_path: Path, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """20,000 entries, each below 31 folders of its own, would take minutes and 640,000 inodes."""
    monkeypatch.setattr(opening, "MOST_ENTRIES", 40)
    with pytest.raises(UsageError, match="more than 40 entries"):
        open_archive(archive(tmp_path / "a.tgz", *(file(f"{n}/" + "a/" * 28 + "x") for n in range(2))), folder)
    assert sum(path.is_dir() for path in folder.rglob("*")) <= 40


def with_header(path: Path, size: int, entries: int = 1) -> Path:
    """An archive whose entries have a comment of digits in their headers, in which some Pythons look for a number."""
    with tarfile.open(path, "w:gz", format=tarfile.PAX_FORMAT) as tar:
        for number in range(entries):
            entry = tarfile.TarInfo(f"top/{number}")
            entry.pax_headers = {"comment": "1" * size}
            tar.addfile(entry)
    return path


def test_headers_as_tar_writes_them_are_read(tmp_path: Path, folder: Path) -> None:
    long = "/".join(["a" * 200] * 4)
    assert open_archive(archive(tmp_path / "a", file(f"top/{long}")), folder).refused == {}
    assert (folder / "top" / long).read_bytes() == b"x"
    assert open_archive(with_header(tmp_path / "b", 1000, entries=20), folder).refused == {}


@pytest.mark.parametrize(("size", "entries"), [(100_000, 1), (2000, 1000)], ids=["one", "many"])
def test_long_headers_are_refused_before_they_cost_time(tmp_path: Path, folder: Path, size: int, entries: int) -> None:
    made = with_header(tmp_path / "a.tgz", size, entries)
    began = time.process_time()
    with pytest.raises(UsageError, match="a header of it is too long"):
        open_archive(made, folder)
    assert time.process_time() - began < 10.0


def test_a_sparse_file_is_left_out(tmp_path: Path, folder: Path) -> None:
    with tarfile.open(tmp_path / "a.tar", "w", format=tarfile.PAX_FORMAT) as tar:
        entry = tarfile.TarInfo("top/a")
        entry.pax_headers = {"GNU.sparse.map": "0,1", "GNU.sparse.size": str(1 << 40), "GNU.sparse.numblocks": "1"}
        entry.size = 1
        tar.addfile(entry, io.BytesIO(b"x"))
    assert list(open_archive(tmp_path / "a.tar", folder).refused) == ["top/a"]


def with_sparse_map(path: Path) -> Path:
    """Version 1.0 of GNU's format: the map of a sparse file is in front of its content."""
    with tarfile.open(path, "w:gz", format=tarfile.PAX_FORMAT) as tar:
        entry, numbers = tarfile.TarInfo("top/a"), 8 << 20
        entry.pax_headers = {"GNU.sparse.major": "1", "GNU.sparse.minor": "0", "GNU.sparse.realsize": "1"}
        body = b"%d\n" % (numbers // 2) + b"1\n" * numbers
        entry.size = len(body)
        tar.addfile(entry, io.BytesIO(body))
    return path


def with_old_sparse_map(path: Path) -> Path:
    """GNU's oldest format: each block of the map says whether a further one follows."""
    entry = tarfile.TarInfo("top/a")
    entry.type = tarfile.GNUTYPE_SPARSE
    head = bytearray(entry.tobuf(tarfile.GNU_FORMAT))
    head[482], head[483:495] = 1, b"00000000005\0"
    head[148:156] = b"%06o\0 " % (sum(head[:148]) + sum(head[156:]) + 8 * ord(" "))
    block = (b"00000000001\0" * 42 + b"\1").ljust(512, b"\0")
    path.write_bytes(gzip.compress(bytes(head) + block * 30_000 + bytes(2048)))
    return path


def with_long_name(path: Path, kind: bytes) -> Path:
    return archive(path, ("././@LongLink", kind, "", b"a/" * (8 << 20)), file("top/a"))


@pytest.mark.parametrize(
    ("make", "why"),
    [
        (with_sparse_map, "sparse"),
        (with_old_sparse_map, "sparse"),
        (lambda path: with_long_name(path, tarfile.GNUTYPE_LONGNAME), "too long"),
        (lambda path: with_long_name(path, tarfile.GNUTYPE_LONGLINK), "too long"),
    ],
)
def test_headers_of_gnu_cost_neither_time_nor_memory(
    tmp_path: Path, folder: Path, make: Callable[[Path], Path], why: str
) -> None:
    """A file of 64 KiB took a minute to read, one of a name 700 MiB of memory."""
    made = make(tmp_path / "a.tgz")
    began = time.process_time()
    with pytest.raises(UsageError, match=why):
        open_archive(made, folder)
    assert time.process_time() - began < 1.0


@pytest.mark.parametrize(
    "body", [b"", b"no archive", gzip.compress(b"none", mtime=0), gzip.compress(bytes(9000), mtime=0)[:-9]]
)
def test_what_is_no_archive_is_reported(tmp_path: Path, folder: Path, body: bytes) -> None:
    (tmp_path / "a.tgz").write_bytes(body)
    with pytest.raises(UsageError, match="cannot open"):
        open_archive(tmp_path / "a.tgz", folder)


def test_a_pipe_is_no_archive(tmp_path: Path, folder: Path) -> None:
    os.mkfifo(tmp_path / "a.tgz")
    with pytest.raises(UsageError, match="no plain file"):
        open_archive(tmp_path / "a.tgz", folder)
