"""What the prolog wrote of a job counts only where nobody but root could have written it."""

import os
from pathlib import Path

import pytest

from gpuwatch.workloads.procfs import SlurmJob, slurm_job


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    place = tmp_path / "jobs"
    place.mkdir(mode=0o755)
    return place


def write(file: Path, text: bytes, mode: int = 0o644) -> None:
    file.write_bytes(text)
    file.chmod(mode)


@pytest.mark.parametrize(
    ("text", "job"),
    [
        (b"account=physics\npartition=gpu\n", SlurmJob("physics", "gpu")),
        (b"partition=gpu\nreservation=x\n", SlurmJob(None, "gpu")),
        (b"account=\npartition=\n", SlurmJob()),
        (b"account=a=b\n", SlurmJob("a=b")),
        (b"\xff\0nonsense", SlurmJob()),
        (b"account=" + b"x" * 10_000, SlurmJob("x" * 128)),
    ],
)
def test_it_is_read_as_far_as_it_goes(folder: Path, text: bytes, job: SlurmJob) -> None:
    write(folder / "4711", text)
    assert slurm_job(folder, "4711") == job


def test_of_a_job_without_a_file_nothing_is_known(folder: Path) -> None:
    assert slurm_job(folder, "4711") == slurm_job(folder / "nowhere", "4711") == SlurmJob()


def test_what_others_may_write_does_not_count(folder: Path, tmp_path: Path) -> None:
    write(folder / "1", b"account=forged\n", mode=0o664)
    write(tmp_path / "elsewhere", b"account=forged\n")
    (folder / "2").symlink_to(tmp_path / "elsewhere")
    os.mkfifo(folder / "3")
    (folder / "4").mkdir()
    assert {slurm_job(folder, name) for name in "1234"} == {SlurmJob()}
    write(folder / "5", b"account=physics\n")
    folder.chmod(0o777)
    assert slurm_job(folder, "5") == SlurmJob()
    folder.chmod(0o755)
    assert slurm_job(folder, "5") == SlurmJob("physics")
