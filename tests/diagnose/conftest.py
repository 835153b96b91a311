"""Two simulated GPUs with a fake CUDA driver below them, and the active checks run on both."""

import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from gpuwatch.diagnose.active.results import Active
from gpuwatch.diagnose.active.run import run_active
from gpuwatch.model.view import View
from tests.diagnose.active.putting_to_work import devices
from tests.diagnose.hosts import seen, share_views
from tests.fakes.libcuda import FakeCuda


@pytest.fixture(scope="session", autouse=True)
def views_shared_by_all_workers(tmp_path_factory: pytest.TempPathFactory) -> None:
    """Each takes a process and a second."""
    own = tmp_path_factory.getbasetemp()
    share_views((own.parent if "PYTEST_XDIST_WORKER" in os.environ else own) / "views")


@pytest.fixture
def view() -> View:
    """Two GPUs joined by NVSwitches."""
    return seen(gpus=2)


@pytest.fixture
def cuda(tmp_path: Path, view: View, monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeCuda]:
    """A CUDA driver with the GPUs of the view."""
    with FakeCuda(tmp_path / "driver", devices(view)) as fake:
        monkeypatch.setenv("GPUWATCH_FAKE_CUDA", fake.env["GPUWATCH_FAKE_CUDA"])
        yield fake


@pytest.fixture
def run(cuda: FakeCuda, view: View) -> Callable[..., Active]:
    """All active checks."""

    def run(**options: object) -> Active:
        return run_active(view, library=str(cuda.library), **options)

    return run
