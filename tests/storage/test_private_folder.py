"""Folders that others have made, may write to or have linked are refused; an older state folder is tightened."""

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from gpuwatch.storage.private_folder import UnsafePath, check_way, make_private, tighten_state

NOBODY = 65534

as_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files away")


def mode(path: Path) -> int:
    return path.stat().st_mode & 0o7777


def test_it_is_made_for_its_owner_alone(tmp_path: Path) -> None:
    make_private(tmp_path / "run/gpuwatch")
    assert (mode(tmp_path / "run/gpuwatch"), mode(tmp_path / "run")) == (0o700, 0o700)


@pytest.mark.parametrize("loose", [0o777, 0o1777, 0o775, 0o755])
def test_an_empty_one_of_this_user_is_tightened(tmp_path: Path, loose: int) -> None:
    """As a kubelet makes an emptyDir, and systemd a RuntimeDirectory."""
    folder = tmp_path / "gpuwatch"
    folder.mkdir()
    folder.chmod(loose)
    make_private(folder)
    assert mode(folder) & 0o027 == 0


def of_another(folder: Path) -> None:
    folder.mkdir()
    os.chown(folder, NOBODY, NOBODY)


def linked_by_another(folder: Path) -> None:
    (folder.parent / "elsewhere").mkdir()
    folder.symlink_to("elsewhere")
    os.lchown(folder, NOBODY, NOBODY)


def below_a_folder_of_another(folder: Path) -> None:
    folder.mkdir()
    os.chown(folder.parent, NOBODY, NOBODY)


def with_something_of_another(folder: Path) -> None:
    folder.mkdir()
    (folder / "sim").symlink_to("/etc")
    os.lchown(folder / "sim", NOBODY, NOBODY)


@as_root
@pytest.mark.parametrize(
    ("plant", "why"),
    [
        (of_another, "belongs to user 65534"),
        (linked_by_another, "it is a link"),
        (below_a_folder_of_another, "belongs to user 65534"),
        (with_something_of_another, "user 65534 has put sim there"),
    ],
)
def test_what_another_user_has_planted_is_refused(tmp_path: Path, plant: Callable[[Path], None], why: str) -> None:
    (tmp_path / "parent").mkdir()
    plant(tmp_path / "parent/gpuwatch")
    with pytest.raises(UnsafePath, match=why) as refused:
        make_private(tmp_path / "parent/gpuwatch")
    assert "name another one that belongs to you" in refused.value.next_step


def test_a_way_through_a_folder_that_others_may_write_is_refused(tmp_path: Path) -> None:
    (tmp_path / "open/gpuwatch").mkdir(parents=True)
    (tmp_path / "open").chmod(0o777)
    with pytest.raises(UnsafePath, match=r"other users may write to .*open \(mode 0777\)"):
        check_way(tmp_path / "open/gpuwatch")
    (tmp_path / "open").chmod(0o1777)
    check_way(tmp_path / "open/gpuwatch")  # the sticky bit keeps others from replacing what is this user's


def test_a_link_of_this_user_leads_where_the_way_is_as_safe(tmp_path: Path) -> None:
    (tmp_path / "open").mkdir()
    (tmp_path / "open").chmod(0o777)
    (tmp_path / "safe").mkdir(mode=0o700)
    (tmp_path / "link").symlink_to("safe")
    check_way(tmp_path / "link")
    (tmp_path / "link").unlink()
    (tmp_path / "link").symlink_to("open")
    with pytest.raises(UnsafePath, match="other users may write"):
        check_way(tmp_path / "link")


def test_a_state_folder_of_an_older_version_is_tightened_and_files_of_others_stay(tmp_path: Path) -> None:
    state = tmp_path / "state"
    (state / "tuner").mkdir(parents=True)
    for name in ("gpuwatch.db", "gpuwatch.db-wal", "rightsizing.json", "tuner/tuner-state.json", "notes.txt"):
        (state / name).write_text("")
        (state / name).chmod(0o644)
    outside = tmp_path / "outside"
    outside.write_text("")
    outside.chmod(0o644)
    (state / "gpuwatch.db-shm").symlink_to(outside)
    for folder in (state, state / "tuner"):
        folder.chmod(0o755)
    tighten_state(state)
    assert [mode(state), mode(state / "tuner")] == [0o750, 0o750]
    assert {mode(state / name) for name in ("gpuwatch.db", "gpuwatch.db-wal", "tuner/tuner-state.json")} == {0o640}
    assert (mode(state / "notes.txt"), mode(outside)) == (0o644, 0o644)


def test_a_folder_that_gpuwatch_has_not_made_keeps_its_mode(tmp_path: Path) -> None:
    (tmp_path / "home").mkdir()
    (tmp_path / "home/letter").write_text("")
    (tmp_path / "home").chmod(0o755)
    tighten_state(tmp_path / "home")
    assert mode(tmp_path / "home") == 0o755
