"""Files that would keep, flood or wake whoever opens them are refused; others are read up to a bound."""

import os
from pathlib import Path

import pytest

from gpuwatch.host.plain_file import content, text


def test_a_file_is_read_up_to_its_bound(tmp_path: Path) -> None:
    file = tmp_path / "a"
    file.write_bytes(b" ab\xffc\n")
    assert (content(file), content(file, 2), text(file), text(file, 3)) == (b" ab\xffc\n", b" a", "ab\ufffdc", "ab")


def test_a_file_of_proc_is_one_though_it_says_it_is_empty() -> None:
    assert text(Path("/proc/self/comm"))


def test_a_file_of_proc_sys_is_read() -> None:
    """The kernel refuses a single read of 4 MiB there."""
    assert text(Path("/proc/sys/kernel/random/boot_id"))


def test_a_link_is_followed(tmp_path: Path) -> None:
    (tmp_path / "a").write_text("x")
    (tmp_path / "b").symlink_to("a")
    assert text(tmp_path / "b") == "x"


@pytest.mark.parametrize("device", ["/dev/zero", "/dev/tty", "/dev/null"])
def test_a_device_is_not_even_opened(tmp_path: Path, device: str) -> None:
    (tmp_path / "a").symlink_to(device)
    assert text(tmp_path / "a") is None
    with pytest.raises(OSError, match=r"no plain file|No such device"):
        content(tmp_path / "a")


def test_nobody_waits_for_a_pipe(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "a")
    with pytest.raises(OSError, match="no plain file"):
        content(tmp_path / "a")


def test_what_is_not_there_is_unknown(tmp_path: Path) -> None:
    assert text(tmp_path / "a") is None
    assert text(tmp_path) is None
    with pytest.raises(FileNotFoundError):
        content(tmp_path / "a")
