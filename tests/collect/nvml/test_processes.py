"""Who runs on a GPU, through pynvml and its traps: missing symbols, no samples, stale slots, idle processes."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pynvml
import pytest

from gpuwatch.collect.nvml.processes import FRESH_SECONDS
from gpuwatch.model.snapshot import GpuProcess
from tests.fakes.libnvml import COMPUTE, GRAPHICS, MPS, FakeDriver, FakeMig, FakeProcess
from tests.fakes.nvml_child import run

READ = """
from gpuwatch.collect.nvml.processes import ProcessReader
reader = ProcessReader(nvml, handle)
"""
LOOK = "tell(reader.read({now})); tell(reader.errors)\n"
GIB = 1 << 30
UNKNOWN, NO_PERMISSION = 999, 4


def read_all(
    driver: FakeDriver, *turns: Callable[[], object], now: tuple[float, ...] = (0.0,)
) -> list[tuple[tuple[GpuProcess, ...] | None, dict[str, str]]]:
    """(processes, errors) of one read for each `now`, a turn between any two."""
    told: list[Any] = run(driver, READ + "pause()\n".join(LOOK.format(now=at) for at in now), *turns)
    decoded = msgspec.convert(told[::2], list[tuple[GpuProcess, ...] | None])
    return list(zip(decoded, told[1::2], strict=True))


def only(driver: FakeDriver) -> tuple[GpuProcess, ...]:
    ((processes, errors),) = read_all(driver)
    assert errors == {}
    assert processes is not None
    return processes


def test_no_process(driver: FakeDriver) -> None:
    assert only(driver) == ()


def test_kinds_memory_and_utilization(driver: FakeDriver) -> None:
    driver.set_processes(
        0,
        [
            FakeProcess(pid=30, memory=2 * GIB, kind=COMPUTE, sm=70, mem=20, enc=3, dec=4),
            FakeProcess(pid=10, memory=GIB, kind=GRAPHICS),
            FakeProcess(pid=20, memory=None, kind=MPS),
        ],
    )
    first, second, third = only(driver)
    assert (first.pid, first.type, first.used_memory) == (10, "graphics", GIB)
    assert (second.pid, second.type, second.used_memory) == (20, "mps", None)
    assert (third.pid, third.type, third.used_memory) == (30, "compute", 2 * GIB)
    shares = (third.sm_utilization, third.memory_utilization, third.encoder_utilization, third.decoder_utilization)
    assert shares == (0.7, 0.2, 0.03, 0.04)
    assert first.sm_utilization == 0  # the driver has samples, and none of it


def test_a_process_that_computes_and_draws_is_one(driver: FakeDriver) -> None:
    driver.set_processes(0, [FakeProcess(pid=5, kind=COMPUTE | GRAPHICS, memory=GIB)])
    assert [(process.pid, process.type) for process in only(driver)] == [(5, "compute+graphics")]


def test_a_list_without_processes_is_asked_again_with_the_steady_tier(driver: FakeDriver) -> None:
    """Few GPUs draw or have an MPS server, and each list is a call of its own; that of compute is always asked."""
    piece = "from gpuwatch.collect.nvml.fields import tiers_due\n" + "pause()\n".join(
        f"tell(reader.read(0.0, tiers_due({count}, interval=1.0)))\n" for count in (0, 1, 5, 6, 7)
    )

    def draw() -> None:
        driver.set_processes(0, [FakeProcess(pid=5, kind=GRAPHICS), FakeProcess(pid=6, kind=COMPUTE)])

    def end() -> None:
        driver.set_processes(0, [FakeProcess(pid=6, kind=COMPUTE)])

    told = run(driver, READ + piece, draw, lambda: None, lambda: None, end)
    pids = [[process["pid"] for process in processes] for processes in told]
    assert pids == [[], [6], [5, 6], [5, 6], [6]]
    assert driver.calls("nvmlDeviceGetGraphicsRunningProcesses_v3") == 1 + 2 + 2 + 1  # where there are some, two
    assert driver.calls("nvmlDeviceGetMPSComputeRunningProcesses_v3") == 2


def test_a_list_that_failed_is_not_taken_for_an_empty_one(driver: FakeDriver) -> None:
    driver.set_processes(0, [FakeProcess(pid=7, kind=MPS)])
    piece = "from gpuwatch.collect.nvml.fields import tiers_due\n" + "pause()\n".join(
        f"tell(reader.read(0.0, tiers_due({count}, interval=1.0)))\n" for count in (0, 1, 2)
    )
    fail = "nvmlDeviceGetMPSComputeRunningProcesses_v3"
    well, failed, again = run(driver, READ + piece, lambda: driver.error(UNKNOWN, fail), driver.clear)
    assert failed is None
    assert [process["pid"] for process in well] == [process["pid"] for process in again] == [7]


def test_a_driver_without_the_newest_list_has_an_older_one(driver: FakeDriver) -> None:
    """pynvml raises a plain Exception there for names without a suffix."""
    driver.set_processes(0, [FakeProcess(pid=5, memory=GIB)])
    for kind in ("Compute", "Graphics", "MPSCompute"):
        driver.error(pynvml.NVML_ERROR_FUNCTION_NOT_FOUND, f"nvmlDeviceGet{kind}RunningProcesses_v3")
    assert [process.pid for process in only(driver)] == [5]


def test_no_list_at_all_is_unknown_and_asked_once(driver: FakeDriver) -> None:
    for kind in ("Compute", "Graphics", "MPSCompute"):
        driver.error(pynvml.NVML_ERROR_NOT_SUPPORTED, f"nvmlDeviceGet{kind}RunningProcesses")
    assert read_all(driver, lambda: None, now=(0, 1)) == [(None, {}), (None, {})]
    assert driver.calls("nvmlDeviceGetComputeRunningProcesses_v3") == 1


@pytest.mark.parametrize("kind", ["Compute", "Graphics", "MPSCompute"])
def test_half_a_list_is_no_list(driver: FakeDriver, kind: str) -> None:
    driver.set_processes(0, [FakeProcess(pid=5), FakeProcess(pid=6, kind=GRAPHICS)])
    driver.error(UNKNOWN, f"nvmlDeviceGet{kind}RunningProcesses")
    (first, errors), (second, none) = read_all(driver, driver.clear, now=(0, 1))
    assert first is None
    assert errors == {"processes": "Unknown Error"}
    assert second is not None
    assert none == {}


def test_a_process_that_falls_idle_loses_its_utilization(driver: FakeDriver) -> None:
    """The driver then has no sample of it, which pynvml raises as an error with the value NVML_SUCCESS."""
    driver.set_processes(0, [FakeProcess(pid=5, sm=90)])
    reads = read_all(
        driver,
        lambda: driver.set_processes(0, [FakeProcess(pid=5, sm=None)]),
        lambda: None,
        now=(0, FRESH_SECONDS - 1, FRESH_SECONDS + 1),
    )
    assert [[p.sm_utilization for p in processes or ()] for processes, _ in reads] == [[0.9], [0.9], [0.0]]
    assert [errors for _, errors in reads] == [{}, {}, {}]


def test_samples_are_asked_for_from_the_newest_seen(driver: FakeDriver) -> None:
    """An old sample that the driver tells again is not taken for news."""
    driver.set_processes(0, [FakeProcess(pid=5, sm=90, seen_us=2_000_000)])
    reads = read_all(
        driver,
        lambda: driver.set_processes(0, [FakeProcess(pid=5, sm=10, seen_us=1_000_000)]),
        now=(0, 1),
    )
    assert [[p.sm_utilization for p in processes or ()] for processes, _ in reads] == [[0.9], [0.9]]


def test_insane_samples_are_left_out(driver: FakeDriver) -> None:
    driver.set_processes(
        0, [FakeProcess(pid=5, sm=3_000_000, seen_us=9_000_000), FakeProcess(pid=6, sm=40, seen_us=5_000_000)]
    )
    assert {process.pid: process.sm_utilization for process in only(driver)} == {5: 0.0, 6: 0.4}


@pytest.mark.parametrize("code", [UNKNOWN, NO_PERMISSION])
def test_a_refused_utilization_is_not_idle(driver: FakeDriver, code: int) -> None:
    driver.set_processes(0, [FakeProcess(pid=5, sm=90, memory=GIB)])
    driver.error(code, "nvmlDeviceGetProcessUtilization")
    ((processes, errors),) = read_all(driver)
    assert [(p.pid, p.used_memory, p.sm_utilization) for p in processes or ()] == [(5, GIB, None)]
    assert list(errors) == ["processes.utilization"]


def test_processes_on_instances_have_no_utilization_of_their_own(driver: FakeDriver) -> None:
    driver.set_mig(0, [FakeMig(gi=1), FakeMig(gi=2)])
    driver.set_processes(0, [FakeProcess(pid=5, gi=1, ci=0), FakeProcess(pid=6, gi=2, ci=0)])
    processes = only(driver)
    assert [(p.pid, p.gi, p.ci, p.sm_utilization) for p in processes] == [(5, 1, 0, None), (6, 2, 0, None)]


def test_old_drivers(tmp_path: Path) -> None:
    with FakeDriver(tmp_path / "old", gpus=1, profile="535") as driver:
        driver.set_processes(0, [FakeProcess(pid=5, sm=50)])
        assert [(p.pid, p.sm_utilization) for p in only(driver)] == [(5, 0.5)]


def test_a_lost_gpu_is_raised(driver: FakeDriver) -> None:
    piece = READ + (
        "from gpuwatch.collect.nvml.library import NvmlFailure\n"
        "pause()\n"
        "try:\n    reader.read(0)\nexcept NvmlFailure as error:\n    tell(error.kind)\n"
    )
    assert run(driver, piece, lambda: driver.lose(0)) == ["GPU is lost"]


def test_a_name_is_the_program_and_never_its_arguments(driver: FakeDriver) -> None:
    """What the driver calls a process name may be a whole command line, and that may hold secrets."""
    names = {
        1: "/usr/bin/python3",
        2: "/opt/app/serve --token=hunter2",
        3: "VLLM::EngineCore",
        4: "[Not Found]",
        5: "/",
    }
    driver.set_processes(0, [FakeProcess(pid=pid, name=name) for pid, name in names.items()])
    told = {process.pid: process.name for process in only(driver)}
    assert told == {1: "python3", 2: "serve", 3: "VLLM::EngineCore", 4: None, 5: None}
