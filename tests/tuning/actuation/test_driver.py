"""The driver's knobs: values in watts and hertz, and refusals as errors that say what they mean."""

from collections.abc import Callable
from typing import Any

import pynvml
import pytest

from gpuwatch.model.errors import GpuwatchError, NoGpuStack, PermissionMissing, Unsupported
from gpuwatch.tuning.actuation.driver import NvmlControl
from gpuwatch.tuning.model.setting import GpuCapabilities
from tests.tuning.service.tuning import CLOCKS_MHZ, DRIVER, Knobs

GPU = "GPU-0"

SETTERS: list[Callable[[NvmlControl], None]] = [
    lambda control: control.set_power_limit(GPU, 500.0),
    lambda control: control.set_locked_clocks(GPU, 2.1e8, 1.2e9),
    lambda control: control.reset_locked_clocks(GPU),
]
FUNCTIONS = ["nvmlDeviceSetPowerManagementLimit", "nvmlDeviceSetGpuLockedClocks", "nvmlDeviceResetGpuLockedClocks"]


@pytest.fixture
def knobs() -> Knobs:
    return Knobs(GPU)


def test_what_may_be_set_is_reported_in_watts_and_hertz(knobs: Knobs) -> None:
    knobs.limits[GPU] = 600_000
    with NvmlControl(knobs) as control:
        capabilities = control.capabilities(GPU)
        assert control.power_limits(GPU) == (600.0, 700.0)
        assert control.driver_version() == DRIVER
    clocks = tuple(mhz * 1e6 for mhz in CLOCKS_MHZ)
    assert capabilities == GpuCapabilities(
        uuid=GPU, clocks=clocks, limit=600.0, limit_default=700.0, limit_min=200.0, limit_max=700.0
    )
    assert not knobs.calls


@pytest.mark.parametrize("code", [pynvml.NVML_ERROR_NOT_SUPPORTED, pynvml.NVML_ERROR_FUNCTION_NOT_FOUND])
def test_what_a_gpu_does_not_have_is_left_out(knobs: Knobs, code: int) -> None:
    for name in ("SupportedMemoryClocks", "PowerManagementLimit", "PowerManagementLimitConstraints"):
        knobs.errors[f"nvmlDeviceGet{name}"] = code
    with NvmlControl(knobs) as control:
        assert control.capabilities(GPU) == GpuCapabilities(uuid=GPU, limit_default=700.0)


def test_what_fails_is_not_left_out(knobs: Knobs) -> None:
    knobs.errors["nvmlDeviceGetSupportedGraphicsClocks"] = pynvml.NVML_ERROR_UNKNOWN
    with NvmlControl(knobs) as control, pytest.raises(GpuwatchError, match="SupportedGraphicsClocks failed"):
        control.capabilities(GPU)


def test_values_reach_the_driver_in_its_units(knobs: Knobs) -> None:
    with NvmlControl(knobs) as control:
        for apply in SETTERS:
            apply(control)
    assert knobs.sets == [("power_limit", GPU, 500_000), ("locked_clocks", GPU, 1200), ("locked_clocks", GPU, None)]


def test_values_that_binary_fractions_miss_by_a_hair_are_rounded_not_cut(knobs: Knobs) -> None:
    with NvmlControl(knobs) as control:
        control.set_power_limit(GPU, 512.3)
        control.set_locked_clocks(GPU, 2.1e8, 1.005e9 - 1e-6)
    assert knobs.sets == [("power_limit", GPU, 512_300), ("locked_clocks", GPU, 1005)]


@pytest.mark.parametrize(("apply", "function"), list(zip(SETTERS, FUNCTIONS, strict=True)))
@pytest.mark.parametrize(
    ("code", "kind", "exit_code"),
    [
        (pynvml.NVML_ERROR_NO_PERMISSION, PermissionMissing, 6),
        (pynvml.NVML_ERROR_NOT_SUPPORTED, Unsupported, 1),
        (pynvml.NVML_ERROR_INVALID_ARGUMENT, Unsupported, 1),
        (pynvml.NVML_ERROR_UNINITIALIZED, NoGpuStack, 5),
        (pynvml.NVML_ERROR_DRIVER_NOT_LOADED, NoGpuStack, 5),
        (pynvml.NVML_ERROR_LIB_RM_VERSION_MISMATCH, NoGpuStack, 5),
        (pynvml.NVML_ERROR_UNKNOWN, GpuwatchError, 1),
        (pynvml.NVML_ERROR_GPU_IS_LOST, GpuwatchError, 1),
    ],
)
def test_a_refusal_says_what_it_means(
    knobs: Knobs, apply: Callable[[NvmlControl], None], function: str, code: int, kind: type, exit_code: int
) -> None:
    knobs.errors[function] = code
    with NvmlControl(knobs) as control, pytest.raises(GpuwatchError, match=function) as refused:
        apply(control)
    assert (type(refused.value), refused.value.exit_code) == (kind, exit_code)


@pytest.mark.parametrize(
    ("code", "step"),
    [
        (pynvml.NVML_ERROR_DRIVER_NOT_LOADED, "is it loaded"),
        (pynvml.NVML_ERROR_LIB_RM_VERSION_MISMATCH, "restart this process"),
    ],
)
def test_without_a_driver_there_is_no_session(knobs: Knobs, code: int, step: str) -> None:
    knobs.errors["nvmlInit"] = code
    with pytest.raises(NoGpuStack, match=f"cannot reach the NVIDIA driver.*{step}"), NvmlControl(knobs):
        pytest.fail("a session")


def test_a_session_that_cannot_be_ended_is_no_error(knobs: Knobs) -> None:
    knobs.errors["nvmlShutdown"] = pynvml.NVML_ERROR_UNINITIALIZED
    ended: list[Any] = []
    with NvmlControl(knobs) as control:
        ended.append(control.driver_version())
    assert ended == [DRIVER]
