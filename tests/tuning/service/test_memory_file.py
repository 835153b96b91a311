"""The file of what the tuner has found out: what is written is read, and nonsense is nothing."""

from pathlib import Path

import pytest

from gpuwatch.model.errors import GpuwatchError
from gpuwatch.tuning.model.setting import Setting
from gpuwatch.tuning.service.state_dir import MOST, TunerMemory
from tests.tuning.service.tuning import limit


def test_what_is_written_is_read_by_owner(tmp_path: Path) -> None:
    file = TunerMemory(tmp_path)
    assert file.read() == {}
    file.write({"a": limit("GPU-0"), "b": limit("GPU-1")})
    assert set(file.read()) == {"a", "b"}
    assert b"GPU-1" in file.read()["b"]


def test_only_the_newest_are_kept(tmp_path: Path) -> None:
    file = TunerMemory(tmp_path)
    owners: dict[str, Setting] = {f"owner {number}": limit("GPU-0") for number in range(MOST + 3)}
    file.write(owners)
    assert list(file.read()) == [f"owner {number}" for number in range(3, MOST + 3)]


@pytest.mark.parametrize("text", ["", "{", "[]", '{"schema": 2, "content": {}}', '{"schema": 1}', "\xff"])
def test_what_is_not_ours_is_nothing(tmp_path: Path, text: str) -> None:
    file = TunerMemory(tmp_path)
    file.path.parent.mkdir()
    file.path.write_text(text, encoding="latin-1")
    assert file.read() == {}


def test_a_folder_that_is_not_there_is_said(tmp_path: Path) -> None:
    with pytest.raises(GpuwatchError, match=r"cannot write .*tuner-memory.json"):
        TunerMemory(tmp_path / "missing").write({})
