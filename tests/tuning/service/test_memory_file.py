"""The file of what the tuner has found out: what is written is read, and nonsense is nothing."""

from pathlib import Path

import pytest

from gpuwatch.model.errors import GpuwatchError
from gpuwatch.tuning.model.setting import Setting
from gpuwatch.tuning.service.state_dir import MOST_CAPS, MOST_OWNERS, KnownCaps, SavedSearches, TunerFolder, TunerMemory
from tests.tuning.service.tuning import limit


def test_what_is_written_is_read_by_owner(tmp_path: Path) -> None:
    file = TunerMemory(tmp_path)
    assert file.read() == {}
    file.write({"a": limit("GPU-0"), "b": limit("GPU-1")})
    assert set(file.read()) == {"a", "b"}
    assert b"GPU-1" in file.read()["b"]


def test_only_the_newest_are_kept(tmp_path: Path) -> None:
    file = TunerMemory(tmp_path)
    owners: dict[str, Setting] = {f"owner {number}": limit("GPU-0") for number in range(MOST_OWNERS + 3)}
    file.write(owners)
    assert list(file.read()) == [f"owner {number}" for number in range(3, MOST_OWNERS + 3)]


@pytest.mark.parametrize("text", ["", "{", "[]", '{"schema": 2, "content": {}}', '{"schema": 1}', "\xff"])
def test_what_is_not_ours_is_nothing(tmp_path: Path, text: str, caplog: pytest.LogCaptureFixture) -> None:
    file = TunerMemory(tmp_path)
    file.path.parent.mkdir()
    file.path.write_text(text, encoding="latin-1")
    assert file.read() == {}
    assert f"cannot use {file.path}; " in caplog.text


def test_of_a_file_that_lists_more_only_the_newest_are_read(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """A file of 4 MiB has 200,000 owners: a line of the log for each took a starting tuner half a minute."""
    file, caps = TunerMemory(tmp_path), TunerFolder.at(tmp_path).caps
    many = {f"owner {number}": 1e9 for number in range(5000)}
    caps.write(many)
    file.path.write_bytes(caps.path.read_bytes())
    assert SavedSearches(file).saved == {}
    assert len(caplog.records) == MOST_OWNERS
    assert list(KnownCaps(caps).known) == list(many)[-MOST_CAPS:]


def test_a_folder_that_is_not_there_is_reported(tmp_path: Path) -> None:
    with pytest.raises(GpuwatchError, match=r"cannot write .*tuner-memory.json"):
        TunerMemory(tmp_path / "missing").write({})


def test_caps_are_kept_for_the_next_tuner_the_newest_last(tmp_path: Path) -> None:
    caps = KnownCaps(TunerFolder.at(tmp_path).caps)
    caps.keep({f"work {number}": 1e9 + number for number in range(MOST_CAPS)})
    caps.keep({"work 0": 2e9, "another": 3e9})
    assert len(caps.known) == MOST_CAPS
    assert list(caps.known)[-2:] == ["work 0", "another"]
    assert "work 1" not in caps.known
    assert KnownCaps(TunerFolder.at(tmp_path).caps).known == caps.known


def test_what_is_known_already_is_not_written_again(tmp_path: Path) -> None:
    file = TunerFolder.at(tmp_path).caps
    caps = KnownCaps(file)
    caps.keep({"work": 1e9})
    file.path.unlink()
    caps.keep({"work": 1e9})
    assert not file.path.exists()


@pytest.mark.parametrize("body", ["{", "[]", '{"schema": 1, "content": {"work": "fast"}}'])
def test_a_damaged_file_of_caps_is_nothing(tmp_path: Path, body: str, caplog: pytest.LogCaptureFixture) -> None:
    file = TunerFolder.at(tmp_path).caps
    file.path.parent.mkdir()
    file.path.write_text(body)
    assert KnownCaps(file).known == {}
    assert f"cannot use {file.path}; " in caplog.text


def test_a_cap_that_is_none_is_forgotten(tmp_path: Path) -> None:
    file = TunerFolder.at(tmp_path).caps
    file.write({"zero": 0.0, "negative": -1e9, "work": 1e9})
    assert KnownCaps(file).known == {"work": 1e9}


def test_caps_that_cannot_be_written_are_known_all_the_same(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caps = KnownCaps(TunerFolder.at(tmp_path / "missing").caps)
    caps.keep({"work": 1e9})
    assert caps.known == {"work": 1e9}
    assert "searches again" in caplog.text
