"""What the GPU operator's validator has noted is read; a host without it has noted nothing."""

from pathlib import Path

import pytest

from gpuwatch.diagnose.host.services import OperatorFiles, operator_files


def note(root: Path, path: str, content: str = "") -> None:
    (root / path).parent.mkdir(parents=True, exist_ok=True)
    (root / path).write_text(content)


def test_a_host_without_operator(tmp_path: Path) -> None:
    assert operator_files(tmp_path) == OperatorFiles()


def test_names_and_first_lines(tmp_path: Path) -> None:
    note(tmp_path, "run/nvidia/validations/driver-ready", "IS_HOST_DRIVER=true\nNVIDIA_DRIVER_ROOT=/\n")
    note(tmp_path, "run/nvidia/validations/.driver-ctr-ready")
    note(tmp_path, "run/nvidia/validations/toolkit-ready", "x" * 5000)
    found = operator_files(tmp_path)
    assert found.present
    assert {name: len(line) for name, line in found.validations.items()} == {
        ".driver-ctr-ready": 0, "driver-ready": len("IS_HOST_DRIVER=true"), "toolkit-ready": 200,
    }  # fmt: skip


def test_a_validator_that_has_just_begun(tmp_path: Path) -> None:
    (tmp_path / "run/nvidia/validations").mkdir(parents=True)
    assert operator_files(tmp_path) == OperatorFiles(present=True)


def test_validations_that_cannot_be_listed_are_no_absent_ones(tmp_path: Path) -> None:
    note(tmp_path, "run/nvidia/validations", "a file where a folder should be")
    with pytest.raises(OSError, match="validations"):
        operator_files(tmp_path)
