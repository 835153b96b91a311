"""One look without an agent: waits for a slow driver, for no GPU in vain, and says what stopped it."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from gpuwatch.config import Backend, Config, SourcesConfig
from gpuwatch.model.errors import GpuwatchError, NoGpuStack
from gpuwatch.model.snapshot import GpuState
from gpuwatch.roles.look import Look
from gpuwatch.sim.fakelib import FakeDriver


@pytest.fixture
def driver(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeDriver]:
    with FakeDriver(tmp_path / "driver", gpus=3) as driver:
        for name, value in driver.env.items():
            monkeypatch.setenv(name, value)
        yield driver


def look(driver: FakeDriver, folder: Path, *, samples: int = 1, deadline: float = 8.0) -> Any:
    nowhere = str(folder / "nowhere")
    sources = SourcesConfig(
        disabled=("kmsg", "podresources"), sys=nowhere, pod_logs=f"{nowhere}/pods", proc=str(folder)
    )
    with Look(Config(sources=sources), Backend(target=str(driver.library))) as looking:
        looking.wait(samples, deadline)
        return looking.view()


def test_every_gpu_is_seen(driver: FakeDriver, tmp_path: Path) -> None:
    view = look(driver, tmp_path)
    assert [gpu.identity.index for gpu in view.snapshot.gpus] == [0, 1, 2]
    assert view.snapshot.driver.version == "580.95.05"


def test_two_samples_give_what_takes_two(driver: FakeDriver, tmp_path: Path) -> None:
    view = look(driver, tmp_path, samples=2)
    assert all(gpu.activity.sm is not None for gpu in view.snapshot.gpus)


def test_a_slow_driver_is_waited_for(driver: FakeDriver, tmp_path: Path) -> None:
    driver.delay(1.0, "nvmlInit")
    driver.delay(0.6, "nvmlDeviceGetUUID", gpu=2)
    view = look(driver, tmp_path)
    assert [gpu.identity.index for gpu in view.snapshot.gpus] == [0, 1, 2]


def test_a_hung_gpu_does_not_keep_the_others(driver: FakeDriver, tmp_path: Path) -> None:
    driver.hang("nvmlDeviceGetPowerUsage", gpu=1)
    view = look(driver, tmp_path)
    assert [gpu.identity.index for gpu in view.snapshot.gpus] == [0, 2]
    assert view.snapshot.statuses[1].state is GpuState.UNRESPONSIVE


def test_no_gpu(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with FakeDriver(tmp_path / "driver", gpus=0) as driver:
        monkeypatch.setenv("GPUWATCH_FAKE_NVML", driver.env["GPUWATCH_FAKE_NVML"])
        with pytest.raises(NoGpuStack, match="no GPU in NVML"):
            look(driver, tmp_path)


def test_a_driver_that_refuses(driver: FakeDriver, tmp_path: Path) -> None:
    driver.error(9, "nvmlInit")
    with pytest.raises(NoGpuStack, match="Driver Not Loaded"):
        look(driver, tmp_path)


def test_a_driver_that_never_answers(driver: FakeDriver, tmp_path: Path) -> None:
    driver.hang("nvmlInit")
    with pytest.raises(GpuwatchError, match="starting: nvmlInit"):
        look(driver, tmp_path, deadline=1.0)
    driver.clear()
