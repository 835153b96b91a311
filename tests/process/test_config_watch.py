"""Whatever a configuration file becomes, what runs keeps what it has, says why, and takes the next good one."""

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from gpuwatch.config import Config, load
from gpuwatch.process.signals import ConfigWatch


def watch_of(path: Path) -> ConfigWatch:
    return ConfigWatch(load(path), path, lambda: load(path), live=("remediation", "tuning", "checks"))


def checks(watch: ConfigWatch, count: int = 2) -> None:
    """What the main thread does between signals."""
    for _ in range(count):
        if watch.changed():
            watch.reload()


GOOD = "remediation: {recovery_hold: 60}"
BAD = {
    "remediation: {recovery_hold: 090}": "write 90",
    "checks: {xid_expire: 0900}": "write 900",
    "tuning: {mode: 2026-13-01}": "tuning.mode",
    "remediation: {recovery_hold: 1e9}": "use 1 to",
    "remediation: {recovery_hold: .nan}": "no finite number",
    "remediation: {budget: {max_unavailable: 101%}}": "max_unavailable",
    "remediation: {xids: {" + "9" * 5000 + ": taint}}": "digits",
    "[" * 5000: "nested",
    "a: &a [*a]": "within itself",
    "\0": "U+0000",
}


@pytest.mark.parametrize("text", BAD, ids=lambda text: repr(text[:30]))
def test_a_file_that_is_wrong_changes_nothing_and_is_reported(text: str, tmp_path: Path) -> None:
    path = tmp_path / "gpuwatch.yaml"
    path.write_text(GOOD)
    watch = watch_of(path)
    path.write_text(text)
    checks(watch, 1)
    assert watch.config.remediation.recovery_hold == 60
    assert BAD[text] in (watch.error or "")
    assert str(path) in (watch.error or "")
    path.write_text("remediation: {recovery_hold: 61}")
    checks(watch, 1)
    assert (watch.config.remediation.recovery_hold, watch.error) == (61, None)


def make_fifo(path: Path) -> None:
    os.mkfifo(path)


def make_loop(path: Path) -> None:
    path.symlink_to(path)


def make_nothing(path: Path) -> None:
    pass


@pytest.mark.parametrize("make", [make_fifo, make_loop, make_nothing, Path.mkdir])
def test_a_file_that_is_none_any_more_is_reported_and_its_return_too(
    make: Callable[[Path], None], tmp_path: Path
) -> None:
    path = tmp_path / "gpuwatch.yaml"
    path.write_text(GOOD)
    watch = watch_of(path)
    path.unlink()
    make(path)
    checks(watch)
    assert "cannot read" in (watch.error or "")
    assert [source.up for source in watch.status()] == [False]
    if make != make_nothing:
        path.rmdir() if path.is_dir() else path.unlink()
    path.write_text(GOOD)
    checks(watch)
    assert (watch.error, watch.status()) == (None, ())


def test_a_gap_of_one_check_is_no_change(tmp_path: Path) -> None:
    path = tmp_path / "gpuwatch.yaml"
    path.write_text(GOOD)
    watch = watch_of(path)
    kept = path.rename(tmp_path / "kept")
    checks(watch, 1)
    kept.rename(path)
    checks(watch, 1)
    assert watch.error is None


def test_a_config_map_that_the_kubelet_swaps(tmp_path: Path) -> None:
    """`..data` is a link that the kubelet replaces by a rename; the file's own link never changes."""
    for number, text in enumerate((GOOD, "remediation: {recovery_hold: 090}", "remediation: {recovery_hold: 62}")):
        (tmp_path / f"..{number}").mkdir()
        (tmp_path / f"..{number}" / "gpuwatch.yaml").write_text(text)
    path = tmp_path / "gpuwatch.yaml"
    (tmp_path / "..data").symlink_to("..0")
    path.symlink_to("..data/gpuwatch.yaml")
    watch, holds = watch_of(path), []
    for number in (1, 2):
        (tmp_path / "..data_tmp").symlink_to(f"..{number}")
        (tmp_path / "..data_tmp").rename(tmp_path / "..data")
        checks(watch, 1)
        holds.append((watch.config.remediation.recovery_hold, watch.error is None))
    assert holds == [(60, False), (62, True)]


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
def test_a_file_that_may_not_be_read_any_more(tmp_path: Path) -> None:
    path = tmp_path / "gpuwatch.yaml"
    path.write_text(GOOD)
    watch = watch_of(path)
    path.chmod(0)
    checks(watch, 1)
    assert "Permission denied" in (watch.error or "")
    path.chmod(0o600)
    checks(watch, 1)
    assert watch.error is None


def test_a_bug_in_reading_it_ends_nothing(tmp_path: Path) -> None:
    def broken() -> Config:
        raise ZeroDivisionError

    watch = ConfigWatch(Config(), None, broken)
    assert watch.reload() is None
    assert "ZeroDivisionError" in (watch.error or "")
