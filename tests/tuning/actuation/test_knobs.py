"""The knobs of a simulated GPU: they answer as the C library does, every process sees them, and physics obeys them."""

import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pynvml
import pytest

from gpuwatch.model.clock import SystemClock
from gpuwatch.model.errors import NoGpuStack
from gpuwatch.sim import directory
from gpuwatch.sim.node.actions import LockClocks, ReloadDriver, SetPowerLimit
from gpuwatch.sim.node.gpu import GpuClient, SimGpu
from gpuwatch.sim.node.load import PATTERNS
from gpuwatch.sim.node.physics import CLOCK_STEP, Physics
from gpuwatch.sim.node.profiles import MODELS
from gpuwatch.sim.nvml import SimNvml, open_knobs, open_node
from gpuwatch.sim.world import World
from gpuwatch.tuning.actuation.driver import NvmlControl
from tests.fakes.libnvml import FakeDriver
from tests.fakes.test_libnvml import Client
from tests.sim.node.nodes import FakeClock, open_driver, scenario, work
from tests.waiting import until

Ask = Callable[..., Any]
"""Name of a function of GPU 0 and its arguments -> what it gives, or the name of the error."""


@pytest.fixture(params=["simulator", "C library"])
def ask(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Ask]:
    """The same H100 twice: from the simulator, and from the library that drills load."""
    if request.param == "simulator":
        driver = open_driver(tmp_path, scenario("h100", 1), SystemClock())
        yield lambda name, *args: simulated(driver, name, *args)
        return
    with FakeDriver(tmp_path, gpus=1) as fake:
        client = Client(fake)
        yield lambda name, *args: client.gpu(name, 0, *args)
        client.close()


def simulated(driver: SimNvml, name: str, *args: Any) -> Any:
    try:
        return getattr(driver, name)(driver.nvmlDeviceGetHandleByIndex(0), *args)
    except pynvml.NVMLError as error:
        return type(error).__name__


def test_a_power_limit_is_read_back_as_set(ask: Ask) -> None:
    assert ask("nvmlDeviceGetPowerManagementDefaultLimit") == 700_000
    assert ask("nvmlDeviceGetPowerManagementLimitConstraints") == [200_000, 700_000]
    assert ask("nvmlDeviceSetPowerManagementLimit", 412_500) is None
    assert ask("nvmlDeviceGetPowerManagementLimit") == ask("nvmlDeviceGetEnforcedPowerLimit") == 412_500
    assert ask("nvmlDeviceSetPowerManagementLimit_v2", pynvml.NVML_POWER_SCOPE_GPU, 300_000) == 0
    assert ask("nvmlDeviceGetPowerManagementLimit") == 300_000


@pytest.mark.parametrize("milliwatts", [0, 199_999, 700_001])
def test_a_power_limit_outside_of_the_constraints_is_refused(ask: Ask, milliwatts: int) -> None:
    assert ask("nvmlDeviceSetPowerManagementLimit", milliwatts) == "NVMLError_InvalidArgument"
    assert ask("nvmlDeviceGetPowerManagementLimit") == 700_000


def test_the_clocks_that_are_supported_can_be_locked(ask: Ask) -> None:
    memory = ask("nvmlDeviceGetSupportedMemoryClocks")
    clocks = ask("nvmlDeviceGetSupportedGraphicsClocks", memory[0])
    assert memory == sorted(memory, reverse=True)
    assert (clocks[0], clocks[-1], len(set(clocks))) == (1980, clocks[-1], len(clocks))
    assert clocks == sorted(clocks, reverse=True)
    assert ask("nvmlDeviceSetGpuLockedClocks", clocks[-1], clocks[len(clocks) // 2]) is None
    assert ask("nvmlDeviceResetGpuLockedClocks") is None
    assert ask("nvmlDeviceResetGpuLockedClocks") is None, "unlocked already"


def test_nonsense_is_not_locked(ask: Ask) -> None:
    assert ask("nvmlDeviceSetGpuLockedClocks", 1500, 1200) == "NVMLError_InvalidArgument"


def test_a_setter_returns_when_it_is_in_force_in_every_process(tmp_path: Path) -> None:
    with World(scenario("h100", 2, [work(0)]), tmp_path):
        agent = open_node(str(tmp_path))
        agent.nvmlInit()
        uuid = agent.nvmlDeviceGetUUID(agent.nvmlDeviceGetHandleByIndex(0))
        child = f"""
from gpuwatch.sim.nvml import open_knobs
from gpuwatch.tuning.actuation.driver import NvmlControl
with NvmlControl(open_knobs({str(tmp_path)!r})) as control:
    control.set_power_limit({uuid!r}, 450.0)
    assert control.power_limits({uuid!r})[0] == 450.0
"""
        subprocess.run([sys.executable, "-c", child], check=True, env=os.environ)
        assert simulated(agent, "nvmlDeviceGetPowerManagementLimit") == 450_000
        assert agent.nvmlDeviceGetPowerManagementLimit(agent.nvmlDeviceGetHandleByIndex(1)) == 700_000
        assert simulated(agent, "nvmlDeviceSetGpuLockedClocks", 345, 1200) is None
        assert simulated(agent, "nvmlDeviceGetClockInfo", pynvml.NVML_CLOCK_SM) == 1200
        assert any(took(agent, highest) < 2.0 for highest in (1500, 1200, 900)), "a busy machine is late now and then"


def took(agent: SimNvml, highest: int) -> float:
    """Seconds until a lock of the clocks is in force."""
    began = time.monotonic()
    assert simulated(agent, "nvmlDeviceSetGpuLockedClocks", 345, highest) is None
    return time.monotonic() - began


def test_a_driver_load_forgets_what_was_set(tmp_path: Path) -> None:
    with World(scenario("h100", 1, [work(0)]), tmp_path, speed=20) as world:
        agent = open_node(str(tmp_path))
        agent.nvmlInit()
        uuid = agent.nvmlDeviceGetUUID(agent.nvmlDeviceGetHandleByIndex(0))
        with NvmlControl(open_knobs(str(tmp_path))) as control:
            control.set_power_limit(uuid, 300.0)
        world.inject(ReloadDriver(seconds=1.0))
        until(lambda: limit_now(tmp_path, uuid) == 700.0, "the limit is the default again")


def limit_now(place: Path, uuid: str) -> float | None:
    """None while no driver is loaded."""
    try:
        with NvmlControl(open_knobs(str(place))) as control:
            return control.power_limits(uuid)[0]
    except NoGpuStack:
        return None


def test_a_node_that_has_ended_takes_no_orders(tmp_path: Path) -> None:
    with World(scenario("h100", 1), tmp_path):
        knobs = open_knobs(str(tmp_path))
        knobs.nvmlInit()
    assert simulated(knobs, "nvmlDeviceResetGpuLockedClocks") == "NVMLError_DriverNotLoaded"


# ---- physics ----

PLACES = (1.0, 0.9, 0.75, 0.5)
"""Shares of the highest clock."""


def lived(load: str, megahertz: int | None, seconds: float = 60.0) -> Physics:
    """An H100 that has done this work for a while, its clock locked."""
    gpu = SimGpu(MODELS["h100"], 0, 1, address=None)  # type: ignore[arg-type]
    gpu.power_limit = 2000.0  # so that the clock alone decides
    gpu.locked_clocks = None if megahertz is None else (345, megahertz)
    gpu.units[0].processes = [
        GpuClient(pid=1, workload=scenario("h100", 1, [work(0, load=load)]).workloads[0], stream=7)
    ]
    physics, steps = Physics(gpu), int(seconds * 2)
    physics.temperature = 40.0
    physics.decide()
    for step in range(1, steps + 1):
        physics.advance(step / 2)
        physics.decide()
    return physics


@pytest.mark.parametrize("share", PLACES)
@pytest.mark.parametrize("load", ["steady", "memory", "finetuning"])
def test_pace_draw_and_counters_follow_the_documented_formulas(load: str, share: float) -> None:
    model = MODELS["h100"]
    clock = int(model.clock_max * share) // CLOCK_STEP * CLOCK_STEP
    ratio = clock / model.clock_max
    full, slow = lived(load, None), lived(load, clock)
    bound = PATTERNS[load](0.0, 7).clock_bound
    pace = 1 / (1 - bound + bound / ratio)
    draw = model.power_static + (1 - model.power_static) * ratio**model.power_exponent
    base = model.power_context
    seconds = slow.time
    assert slow.clock == clock
    assert slow.work / full.work == pytest.approx(pace, rel=1e-6)
    dynamic = (slow.energy / seconds - base) / (full.energy / seconds - base)
    assert dynamic == pytest.approx(draw, rel=1e-3)
    totals, before = slow.gpu.units[0].totals, full.gpu.units[0].totals
    assert totals[3] / before[3] == pytest.approx(pace, rel=1e-3), "bytes for each unit of work stay the same"
    assert totals[4] / before[4] * ratio == pytest.approx(pace, rel=1e-3), "so do instructions"
    if before[2]:
        assert totals[2] / before[2] * ratio == pytest.approx(pace, rel=1e-3)
    assert slow.nvlink_bytes == pytest.approx(full.nvlink_bytes * pace, rel=1e-3)


def test_a_lock_above_what_the_power_limit_allows_changes_nothing(tmp_path: Path) -> None:
    clock = FakeClock()
    open_driver(tmp_path, scenario("h100", 2, [work(0, 1, load="steady")]), clock)
    keeper = directory.attach(tmp_path, clock)
    for action in (SetPowerLimit(gpu="all", watts=400.0), LockClocks(gpu=0, highest=1900)):
        keeper.act(action)
    clock.advance(10)
    locked, free = keeper.update().physics
    assert locked.clock == pytest.approx(free.clock, abs=CLOCK_STEP)
    assert locked.power < 400
    assert locked.reasons == free.reasons != 0


def test_an_unused_gpu_keeps_the_clock_it_is_locked_to(tmp_path: Path) -> None:
    clock = FakeClock()
    open_driver(tmp_path, scenario("h100", 2), clock)
    keeper = directory.attach(tmp_path, clock)
    keeper.act(LockClocks(gpu=0, lowest=1200, highest=1200))
    keeper.act(LockClocks(gpu=1, lowest=345, highest=1200))
    clock.advance(2)
    assert [physics.clock for physics in keeper.update().physics] == [1200, MODELS["h100"].clock_idle]
