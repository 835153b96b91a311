"""The fake's knobs: checked as NVML does, each call kept; a coupled GPU obeys them with clock, draw and counters."""

import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pynvml
import pytest

from tests.fakes.libnvml import FakeDriver, FakeSet
from tests.fakes.test_libnvml import GPU, Client

METRICS = """
def gpm(handle, *ids):
    request = n.c_nvmlGpmMetricsGet_t(version=n.NVML_GPM_METRICS_GET_VERSION, numMetrics=len(ids))
    request.sample1, request.sample2 = samples
    for place, number in enumerate(ids):
        request.metrics[place].metricId = number
    n.nvmlGpmMetricsGet(request)
    return [request.metrics[place].value for place in range(len(ids))]
"""
DRAM, TENSOR, ENGINE = 10, 5, 1


class Gpm:
    """Two samples of a GPU, and what lies between them."""

    def __init__(self, client: Client) -> None:
        self.client = client
        client.ask(f"exec({METRICS!r}, globals())")
        client.ask("globals().update(samples=[n.nvmlGpmSampleAlloc(), n.nvmlGpmSampleAlloc()])")

    def take(self, which: int) -> None:
        self.client.ask(f"n.nvmlGpmSampleGet({GPU.format(0)}, samples[{which}])")

    def between(self, *metrics: int) -> list[float]:
        return self.client.ask(f"gpm({GPU.format(0)}, *{metrics})")


@pytest.fixture
def driver(tmp_path: Path) -> Iterator[FakeDriver]:
    with FakeDriver(tmp_path, gpus=2) as fake:
        yield fake


@pytest.fixture
def client(driver: FakeDriver) -> Iterator[Client]:
    made = Client(driver)
    yield made
    made.close()


@pytest.mark.parametrize(
    ("function", "arguments", "answer"),
    [
        ("nvmlDeviceSetPowerManagementLimit", (200_000,), None),
        ("nvmlDeviceSetPowerManagementLimit", (700_000,), None),
        ("nvmlDeviceSetPowerManagementLimit", (199_999,), "NVMLError_InvalidArgument"),
        ("nvmlDeviceSetPowerManagementLimit", (700_001,), "NVMLError_InvalidArgument"),
        ("nvmlDeviceSetGpuLockedClocks", (210, 1980), None),
        ("nvmlDeviceSetGpuLockedClocks", (195, 1980), "NVMLError_InvalidArgument"),
        ("nvmlDeviceSetGpuLockedClocks", (210, 1995), "NVMLError_InvalidArgument"),
        ("nvmlDeviceSetGpuLockedClocks", (1200, 1185), "NVMLError_InvalidArgument"),
    ],
)
def test_setters_check_their_values(client: Client, function: str, arguments: Any, answer: str | None) -> None:
    assert client.gpu(function, 0, *arguments) == answer


def test_a_gpu_without_a_knob_reports_it(driver: FakeDriver, client: Client) -> None:
    driver.set(0, clock_min_mhz=None, power_limit_mw=None)
    answers = {
        client.gpu("nvmlDeviceSetGpuLockedClocks", 0, 210, 1200),
        client.gpu("nvmlDeviceResetGpuLockedClocks"),
        client.gpu("nvmlDeviceSetPowerManagementLimit", 0, 300_000),
        client.gpu("nvmlDeviceGetSupportedMemoryClocks"),
        client.gpu("nvmlDeviceGetSupportedGraphicsClocks", 0, 2619),
    }
    assert answers == {"NVMLError_NotSupported"}


def test_supported_clocks_are_listed_highest_first(client: Client) -> None:
    assert client.gpu("nvmlDeviceGetSupportedMemoryClocks") == [2619]
    clocks = client.gpu("nvmlDeviceGetSupportedGraphicsClocks", 0, 2619)
    assert (clocks[0], clocks[1], clocks[-1]) == (1980, 1965, 210)
    assert client.gpu("nvmlDeviceGetSupportedGraphicsClocks", 0, 1593) == "NVMLError_NotFound"


def test_every_call_of_a_setter_is_kept(driver: FakeDriver, client: Client) -> None:
    client.gpu("nvmlDeviceSetPowerManagementLimit", 0, 300_000)
    client.gpu("nvmlDeviceSetPowerManagementLimit", 1, 1)
    client.gpu("nvmlDeviceSetGpuLockedClocks", 1, 210, 1200)
    driver.forbid(1)
    client.gpu("nvmlDeviceResetGpuLockedClocks", 1)
    pid = client.process.pid
    assert driver.sets() == (
        FakeSet(0, "power_limit", 300_000, 0, pid),
        FakeSet(1, "power_limit", 1, pynvml.NVML_ERROR_INVALID_ARGUMENT, pid),
        FakeSet(1, "locked_clocks", 1200, 0, pid),
        FakeSet(1, "locked_clocks", None, pynvml.NVML_ERROR_NO_PERMISSION, pid),
    )
    driver.reset_calls()
    assert driver.sets() == ()


def test_a_driver_that_is_loaded_again_has_forgotten_what_was_set(driver: FakeDriver, client: Client) -> None:
    client.gpu("nvmlDeviceSetPowerManagementLimit", 0, 300_000)
    client.gpu("nvmlDeviceSetGpuLockedClocks", 0, 210, 1200)
    driver.reload()
    assert [driver.get(0, name) for name in ("power_limit_mw", "power_limit_enforced_mw")] == [700_000] * 2
    assert driver.get(0, "locked_max_mhz") is None


def test_the_same_driver_loaded_again_is_met_by_a_new_session_once_the_old_ones_have_ended(
    driver: FakeDriver, client: Client
) -> None:
    client.ask("n.nvmlInit()")
    driver.reload()
    assert client.gpu("nvmlDeviceGetName") == "NVMLError_Uninitialized"
    client.ask("n.nvmlShutdown()")
    assert client.ask("n.nvmlInit()") == "NVMLError_LibRmVersionMismatch"
    client.ask("n.nvmlShutdown()")
    assert client.ask("n.nvmlInit()") is None
    assert client.gpu("nvmlDeviceGetName") == "NVIDIA H100 80GB HBM3"


# ---- coupled ----


def state(driver: FakeDriver) -> tuple[int, int, int]:
    """SM clock, draw, clock events of GPU 0."""
    return driver.get(0, "clock_mhz")[1], driver.get(0, "power_mw"), driver.get(0, "clock_events")


def test_a_coupled_gpu_obeys_a_locked_clock_and_a_power_limit(driver: FakeDriver, client: Client) -> None:
    driver.couple(0)
    assert state(driver) == (1980, 550_000, 0)
    client.gpu("nvmlDeviceSetGpuLockedClocks", 0, 210, 1500)
    clock, capped, events = state(driver)
    assert (clock, events) == (1500, 0)
    assert 300_000 < capped < 450_000
    assert client.gpu("nvmlDeviceGetClockInfo", 0, pynvml.NVML_CLOCK_SM) == 1500
    client.gpu("nvmlDeviceSetPowerManagementLimit", 0, 300_000)
    clock, limited, events = state(driver)
    assert clock < 1500
    assert 290_000 < limited <= 300_000
    assert events == pynvml.nvmlClocksEventReasonSwPowerCap
    client.gpu("nvmlDeviceSetPowerManagementLimit", 0, 700_000)
    client.gpu("nvmlDeviceResetGpuLockedClocks")
    assert state(driver) == (1980, 550_000, 0)


def test_a_test_and_a_client_come_to_the_same(driver: FakeDriver, client: Client) -> None:
    driver.couple()
    for cap, watts in ((1980, 700), (1500, 700), (1980, 400), (1500, 250), (900, 200), (210, 200)):
        client.gpu("nvmlDeviceSetGpuLockedClocks", 0, 210, cap)
        client.gpu("nvmlDeviceSetPowerManagementLimit", 0, watts * 1000)
        by_client = state(driver)
        driver.set(0, locked_min_mhz=210, locked_max_mhz=cap, power_limit_mw=watts * 1000)
        assert state(driver) == by_client


def test_work_that_idles_draws_little_and_keeps_its_low_clock(driver: FakeDriver, client: Client) -> None:
    driver.couple(0)
    driver.couple(0, None)
    assert state(driver) == (345, 69_620, pynvml.nvmlClocksEventReasonGpuIdle)
    client.gpu("nvmlDeviceSetGpuLockedClocks", 0, 210, 300)
    assert state(driver)[0] == 300
    assert driver.get(0, "util_gpu") == 0
    client.gpu("nvmlDeviceResetGpuLockedClocks")
    driver.couple(0, 0.5)
    assert state(driver)[0] == 1980


@pytest.mark.parametrize("bound", [0.1, 0.5, 1.0])
def test_traffic_follows_the_work_and_pipes_are_busier_at_a_lower_clock(
    driver: FakeDriver, client: Client, bound: float
) -> None:
    driver.couple(0, bound, dram=0.5, pipe=0.4)
    client.gpu("nvmlDeviceSetGpuLockedClocks", 0, 210, 1485)  # three quarters
    gpm = Gpm(client)
    gpm.take(0)
    time.sleep(0.05)
    gpm.take(1)
    pace = 1 / (1 - bound + bound / 0.75)
    expected = [50 * pace, 40 * pace / 0.75, 100]
    assert gpm.between(DRAM, TENSOR, ENGINE) == pytest.approx(expected, rel=1e-3)


def timed(act: Callable[[], Any]) -> tuple[float, Any, float]:
    """A moment before, what came of it, a moment after: on a busy machine there may be much between the two."""
    before = time.monotonic()
    return before, act(), time.monotonic()


def test_counters_are_continuous_at_a_switch(driver: FakeDriver, client: Client) -> None:
    """A while at full speed, a while at a lower one: the counters have the mean, and energy never jumps."""
    driver.couple(0, 1.0, dram=0.5)
    gpm, counter = Gpm(client), lambda: client.gpu("nvmlDeviceGetTotalEnergyConsumption")
    begins, _, begun = timed(lambda: gpm.take(0))
    counts, first, counted = timed(counter)
    time.sleep(0.1)
    switches, _, switched = timed(lambda: client.gpu("nvmlDeviceSetGpuLockedClocks", 0, 210, 990))
    half_watts = driver.get(0, "power_mw") / 1000
    time.sleep(0.1)
    ends, _, ended = timed(lambda: gpm.take(1))
    closes, last, closed = timed(counter)
    (dram,) = gpm.between(DRAM)
    at_least = 25 + 25 * (switches - begun) / (ended - begun)
    at_most = 25 + 25 * (switched - begins) / (ends - begins)
    assert 0.99 * at_least <= dram <= 1.01 * at_most
    at_least = 550 * (switches - counted) + half_watts * (closes - switches)
    at_most = 550 * (switched - counts) + half_watts * (closed - switched)
    assert 0.99 * at_least <= (last - first) / 1000 <= 1.01 * at_most


def test_a_cap_saves_energy_for_the_same_work(driver: FakeDriver, client: Client) -> None:
    driver.couple(0, 0.5)
    work = driver.control.gpus[0].work
    joules = [work.power_mw[row] / work.pace[row] for row in range(work.count)]
    best = min(range(work.count), key=joules.__getitem__)
    assert 0 < best < work.count - 1
    inside = next(row for row in range(work.count) if work.pace[row] < 0.95) - 1
    assert joules[inside] < 0.95 * joules[0]
