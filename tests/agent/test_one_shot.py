"""One look without an agent: waits for a slow driver, for no GPU in vain, and says what stopped it."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from gpuwatch.agent.node_state import SETTLE_SECONDS
from gpuwatch.agent.one_shot import OneShotCollector
from gpuwatch.config import Backend, Config, SourcesConfig
from gpuwatch.model.errors import GpuwatchError, NoGpuStack
from gpuwatch.model.snapshot import GpuState
from tests.fakes.libnvml import FakeDriver
from tests.waiting import BOUND_SECONDS


@pytest.fixture
def driver(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeDriver]:
    with FakeDriver(tmp_path / "driver", gpus=3) as driver:
        for name, value in driver.env.items():
            monkeypatch.setenv(name, value)
        yield driver


def collect(driver: FakeDriver, folder: Path, *, samples: int = 1, deadline: float = BOUND_SECONDS) -> Any:
    nowhere = str(folder / "nowhere")
    sources = SourcesConfig(
        disabled=("kmsg", "podresources"), sys=nowhere, pod_logs=f"{nowhere}/pods", proc=str(folder)
    )
    with OneShotCollector(Config(sources=sources), Backend(target=str(driver.library))) as looking:
        looking.wait(samples, deadline)
        return looking.view()


def test_every_gpu_is_seen(driver: FakeDriver, tmp_path: Path) -> None:
    view = collect(driver, tmp_path)
    assert [gpu.identity.index for gpu in view.snapshot.gpus] == [0, 1, 2]
    assert view.snapshot.driver.version == "580.95.05"


def test_two_samples_give_what_takes_two(driver: FakeDriver, tmp_path: Path) -> None:
    view = collect(driver, tmp_path, samples=2)
    assert all(gpu.activity.sm is not None for gpu in view.snapshot.gpus)


def test_a_slow_driver_is_waited_for(driver: FakeDriver, tmp_path: Path) -> None:
    driver.delay(1.0, "nvmlInit")
    driver.delay(0.6, "nvmlDeviceGetUUID", gpu=2)
    view = collect(driver, tmp_path)
    assert [gpu.identity.index for gpu in view.snapshot.gpus] == [0, 1, 2]


def test_a_gpu_that_takes_long_for_a_sample_is_slow_and_not_unresponsive(driver: FakeDriver, tmp_path: Path) -> None:
    driver.delay(1.5, "nvmlDeviceGetUtilizationRates", gpu=1)
    view = collect(driver, tmp_path, samples=2)
    assert [gpu.identity.index for gpu in view.snapshot.gpus] == [0, 1, 2]
    assert {status.state for status in view.snapshot.statuses} == {GpuState.FRESH}


def test_gpus_whose_names_take_long_are_waited_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with FakeDriver(tmp_path / "slow", gpus=1) as driver:
        monkeypatch.setenv("GPUWATCH_FAKE_NVML", driver.env["GPUWATCH_FAKE_NVML"])
        driver.delay(SETTLE_SECONDS + 1.0, "nvmlDeviceGetUUID")
        assert len(collect(driver, tmp_path).snapshot.gpus) == 1


def test_a_hung_gpu_does_not_keep_the_others(driver: FakeDriver, tmp_path: Path) -> None:
    driver.hang("nvmlDeviceGetUtilizationRates", gpu=1)
    view = collect(driver, tmp_path)
    assert [gpu.identity.index for gpu in view.snapshot.gpus] == [0, 2]
    assert view.snapshot.statuses[1].state is GpuState.UNRESPONSIVE


def test_no_gpu(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with FakeDriver(tmp_path / "driver", gpus=0) as driver:
        monkeypatch.setenv("GPUWATCH_FAKE_NVML", driver.env["GPUWATCH_FAKE_NVML"])
        with pytest.raises(NoGpuStack, match="no GPU in NVML"):
            collect(driver, tmp_path)


def test_a_driver_that_refuses(driver: FakeDriver, tmp_path: Path) -> None:
    driver.error(9, "nvmlInit")
    with pytest.raises(NoGpuStack, match="Driver Not Loaded"):
        collect(driver, tmp_path)


@pytest.mark.parametrize("code", [4, 9, 12, 18])
def test_what_keeps_nvml_from_starting_is_in_the_view(driver: FakeDriver, tmp_path: Path, code: int) -> None:
    driver.error(code, "nvmlInit")
    sources = SourcesConfig(disabled=("kmsg", "podresources"), sys=str(tmp_path), proc=str(tmp_path))
    with OneShotCollector(Config(sources=sources), Backend(target=str(driver.library))) as looking:
        with pytest.raises(NoGpuStack):
            looking.wait(1, BOUND_SECONDS)
        view = looking.view()
    nvml = next(source for source in view.snapshot.sources if source.name == "nvml")
    assert (nvml.up, nvml.code, view.snapshot.driver, view.snapshot.gpus) == (False, code, None, ())


def test_a_library_that_is_not_there_is_reported_as_such(tmp_path: Path) -> None:
    sources = SourcesConfig(disabled=("kmsg", "podresources"), sys=str(tmp_path), proc=str(tmp_path))
    with OneShotCollector(Config(sources=sources), Backend(target=str(tmp_path / "libnvidia-ml.so.1"))) as looking:
        with pytest.raises(NoGpuStack, match="cannot load the NVML library"):
            looking.wait(1, BOUND_SECONDS)
        nvml = next(source for source in looking.view().snapshot.sources if source.name == "nvml")
    assert (nvml.code, "cannot load" in nvml.reason) == (12, True)


def test_a_driver_that_never_answers(driver: FakeDriver, tmp_path: Path) -> None:
    driver.hang("nvmlInit")
    for deadline in (1.0, 4.0, 16.0, 64.0):  # on a busy machine the reader needs longer to come so far
        with pytest.raises(GpuwatchError) as told:
            collect(driver, tmp_path, deadline=deadline)
        if "starting: the reader" not in str(told.value):
            break
    assert "starting: nvmlInit" in str(told.value)
    driver.clear()
