"""The simulated driver under the real readers: every call answers or fails as NVML does, for every model."""

import contextlib
import threading
import time
from pathlib import Path

import pynvml
import pytest

from gpuwatch.collect.nvml.events import DriverEventReader
from gpuwatch.collect.nvml.fields import FIELDS, IDENTITY, NvmlCall
from gpuwatch.collect.nvml.gpu import GpuReader, register
from gpuwatch.collect.nvml.library import Failure, NvmlFailure, ask
from gpuwatch.collect.nvml.numbers import field_number
from gpuwatch.collect.nvml.reads import field_values
from gpuwatch.model.clock import SystemClock
from gpuwatch.model.snapshot import Memory
from gpuwatch.sim.capture import open_capture
from gpuwatch.sim.directory import attach
from gpuwatch.sim.node.profiles import MODELS
from gpuwatch.sim.node.scenario import load, names
from gpuwatch.sim.nvml import SimNvml, open_node
from gpuwatch.sim.world import World
from tests.seeds import a_third
from tests.sim.node.nodes import FakeClock, open_driver, scenario, work
from tests.waiting import BOUND_SECONDS, until

GB10 = Path(__file__).parent / "capture/nvidia_smi/data/gb10-580.txt"
SAMPLES, LIFE_SECONDS = 40, 280.0


@pytest.fixture
def clock():
    return FakeClock()


def read(driver, clock, index=0, reads=3):
    """The last of several looks, a second apart."""
    reader = GpuReader(driver, *register(driver, index))
    for _ in range(reads):
        clock.advance(1.0)
        gpu = reader.read(clock.time(), clock.monotonic(), force=True)
    return gpu


@pytest.mark.parametrize("mig", [False, True])
@pytest.mark.parametrize("model", MODELS)
def test_every_way_of_every_field_answers_or_fails_as_nvml_does(tmp_path, clock, model, mig):
    if mig and not MODELS[model].mig:
        pytest.skip("no MIG on this model")
    layout = {0: [MODELS[model].mig[0].name]} if mig else {}
    driver = open_driver(tmp_path, scenario(model, 1, [work(0)], mig=layout), clock)
    clock.advance(3)
    handle = driver.nvmlDeviceGetHandleByIndex(0)
    answers = [answer(driver, handle, way) for field in (*IDENTITY, *FIELDS) for way in field.ways]
    failures = {str(found) for found in answers if isinstance(found, NvmlFailure)}
    assert {found.kind for found in answers if isinstance(found, NvmlFailure)} <= {Failure.UNSUPPORTED}, failures
    assert len([found for found in answers if not isinstance(found, NvmlFailure)]) > 40


def answer(driver, handle, way):
    """What one way of a field gives: a value or an NvmlFailure; any other exception is the simulator's fault."""
    try:
        if isinstance(way, NvmlCall):
            args = [getattr(driver, a) if isinstance(a, str) else a for a in way.args]
            return way.get(ask(driver, way.name, handle, *args))
        version = driver.nvmlSystemGetDriverVersion()
        values = field_values(driver, handle, [(field_number(name, version), 0) for name in way.names]).values()
        return next((value for value in values if isinstance(value, NvmlFailure)), None) or way.get(*values)
    except NvmlFailure as failure:
        return failure


@pytest.mark.parametrize("model", MODELS)
def test_a_working_gpu_reads_like_a_real_one(tmp_path, clock, model):
    row = MODELS[model]
    driver = open_driver(tmp_path, scenario(model, 1, [work(0, load="steady", memory=0.5)]), clock)
    clock.advance(120)
    gpu = read(driver, clock)
    assert gpu.identity.name == row.name
    assert gpu.errors == {}
    assert gpu.utilization.gpu == 1.0
    assert gpu.power.average == pytest.approx(row.power_limit, rel=0.05)
    assert gpu.power.limit_enforced == (None if row.unified else row.power_limit)
    assert gpu.power.max >= gpu.power.mean > 0
    if row.unified:
        assert gpu.memory == Memory()
    else:
        assert gpu.memory.used + gpu.memory.free + gpu.memory.reserved == gpu.memory.total == row.memory << 20
    assert gpu.processes[0].used_memory == pytest.approx(gpu.memory.used or row.memory << 19, rel=0.02)
    assert gpu.processes[0].sm_utilization == 1.0
    assert (gpu.activity.tensor is not None) is row.gpm
    assert (gpu.temperature.margin_slowdown is None) is (not row.margins)
    assert (gpu.temperature.threshold_slowdown is None) is (row.margins or row.unified)
    assert len(gpu.nvlinks) == row.nvlinks
    assert len(gpu.fans) == row.fans
    assert (gpu.mig_enabled is None) is (not row.mig)
    assert (gpu.retired_pages.double_bit is None) is (not row.retired_pages)
    assert (gpu.row_remap.pending is None) is (row.remap_banks is None)


def test_a_gpu_with_the_memory_of_its_host_has_what_its_dump_has_and_no_more(tmp_path, clock):
    """The dump's `Not Supported` and `N/A` are unknown here, too, though its processes have their memory."""
    dump = open_capture(str(GB10))
    theirs = GpuReader(dump, *register(dump, 0)).read(0.0, 0.0)
    ours = read(open_driver(tmp_path, load("gb10"), clock), clock)
    assert (ours.memory, ours.bar1) == (theirs.memory, theirs.bar1) == (Memory(), Memory())
    assert (
        (ours.clocks.memory, ours.clocks.memory_max) == (theirs.clocks.memory, theirs.clocks.memory_max) == (None, None)
    )
    assert ours.power.limit_enforced is theirs.power.limit_enforced is None
    assert ours.temperature.margin is theirs.temperature.margin is None
    assert ours.processes[0].used_memory > 1 << 30
    assert ours.errors == {}


def test_an_old_driver_lacks_what_came_later(tmp_path, clock):
    driver = open_driver(tmp_path, scenario(driver="535.216.03"), clock)
    gpu = read(driver, clock)
    assert gpu.temperature.gpu is not None
    assert gpu.recovery_action is None
    assert {"recovery_action", "temperature.margin"} <= set(gpu.unsupported)


@pytest.mark.parametrize(("driver", "known"), [("575.57.08", True), ("580.76.05", False), ("580.105.08", True)])
def test_the_simulated_driver_numbers_its_fields_as_its_version_does(tmp_path, clock, driver, known):
    gpu = read(open_driver(tmp_path, scenario(driver=driver), clock), clock)
    assert (gpu.clock_events.seconds.get("hw_thermal_slowdown") is not None) is known
    assert ("clock_events.seconds.hw_thermal_slowdown" not in gpu.why_absent) is known


@pytest.mark.parametrize(("asked", "action"), [(0, 0), (1, 1), (4, 4)])
def test_a_long_term_driver_says_by_its_reset_status_what_newer_ones_say_by_an_action(tmp_path, clock, asked, action):
    driver = open_driver(tmp_path, scenario(driver="550.163.01"), clock)
    driver.replica.update().gpus[0].faults.recovery_action = asked
    assert read(driver, clock).recovery_action == action


def test_energy_and_power_show_the_same_story(tmp_path, clock):
    driver = open_driver(tmp_path, scenario(workloads=[work(0, load="duty")]), clock)
    reader = GpuReader(driver, *register(driver, 0))
    first = reader.read(clock.time(), clock.monotonic())
    watts = []
    for _ in range(400):
        clock.advance(0.25)
        gpu = reader.read(clock.time(), clock.monotonic())
        watts.append(gpu.power.instant)
    assert gpu.power.energy - first.power.energy == pytest.approx(sum(watts) * 0.25, rel=0.03)


def test_a_peak_between_two_reads_is_in_the_buffers(tmp_path, clock):
    driver = open_driver(tmp_path, scenario(workloads=[work(0, load="duty")]), clock)
    reader = GpuReader(driver, *register(driver, 0))
    clock.advance(1)
    reader.read(clock.time(), clock.monotonic())
    clock.advance(14)
    gpu = reader.read(clock.time(), clock.monotonic())
    assert gpu.utilization.gpu == 0
    assert gpu.utilization.gpu_max == 1.0
    assert 0.4 < gpu.utilization.gpu_mean < 0.9
    assert gpu.power.max > 2 * gpu.power.instant


def test_mig_instances_are_read_with_their_own_activity(tmp_path, clock):
    layout = {0: ["3g.40gb", "1g.10gb"]}
    of = scenario(gpus=1, mig=layout, workloads=[work("0:1", load="steady", memory=0.5)])
    driver = open_driver(tmp_path, of, clock)
    gpu = read(driver, clock)
    large, small = gpu.mig
    assert (large.profile, small.profile) == ("3g.40gb", "1g.10gb")
    assert (large.activity.sm, small.activity.sm) == (0, pytest.approx(0.97))
    assert gpu.activity.sm == pytest.approx(0.97 * 16 / 132)
    assert gpu.utilization.gpu is None
    assert [process.gi for process in gpu.processes] == [small.gi]
    assert small.memory.used == pytest.approx(small.memory.total / 2, rel=0.01)


def test_cutting_a_gpu_makes_old_mig_handles_invalid(tmp_path, clock):
    timeline = [{"at": 5, "do": "mig", "gpu": 0, "profiles": ["7g.80gb"]}]
    driver = open_driver(tmp_path, scenario(gpus=1, mig={0: ["1g.10gb"]}, timeline=timeline), clock)
    gpu = driver.nvmlDeviceGetHandleByIndex(0)
    old = driver.nvmlDeviceGetMigDeviceHandleByIndex(gpu, 0)
    clock.advance(6)
    with pytest.raises(pynvml.NVMLError) as gone:
        driver.nvmlDeviceGetUUID(old)
    assert gone.value.value == pynvml.NVML_ERROR_NOT_FOUND
    new = driver.nvmlDeviceGetMigDeviceHandleByIndex(gpu, 0)
    assert driver.nvmlDeviceGetName(new).endswith("MIG 7g.80gb")


def test_a_lost_gpu_fails_and_its_siblings_do_not(tmp_path, clock):
    driver = open_driver(tmp_path, scenario(timeline=[{"at": 5, "do": "lose", "gpu": 0}]), clock)
    handles = [driver.nvmlDeviceGetHandleByIndex(i) for i in range(2)]
    clock.advance(5)
    with pytest.raises(pynvml.NVMLError) as lost:
        driver.nvmlDeviceGetPowerUsage(handles[0])
    assert lost.value.value == pynvml.NVML_ERROR_GPU_IS_LOST
    assert driver.nvmlDeviceGetPowerUsage(handles[1]) > 0
    assert driver.nvmlDeviceGetCount() == 2


def test_a_reload_ends_old_processes_for_good_and_takes_a_lost_gpu_off_the_list(tmp_path, clock):
    timeline = [{"at": 1, "do": "lose", "gpu": 0}, {"at": 5, "do": "reload", "seconds": 10, "driver": "590.48.01"}]
    of = scenario(timeline=timeline)
    driver = open_driver(tmp_path, of, clock)
    survivor = driver.nvmlDeviceGetUUID(driver.nvmlDeviceGetHandleByIndex(1))
    for wait, code in [(6, pynvml.NVML_ERROR_DRIVER_NOT_LOADED), (10, None)]:
        clock.advance(wait)
        with pytest.raises(pynvml.NVMLError) as over:
            driver.nvmlDeviceGetCount()
        assert over.value.value == pynvml.NVML_ERROR_LIB_RM_VERSION_MISMATCH
        fresh = type(driver)(type(driver.replica)(tmp_path, driver.replica.record, clock, physical=True))
        if code is None:
            fresh.nvmlInit()
            continue
        with pytest.raises(pynvml.NVMLError) as refused:
            fresh.nvmlInit()
        assert refused.value.value == code
    assert fresh.nvmlSystemGetDriverVersion() == "590.48.01"
    assert fresh.nvmlDeviceGetCount() == 1
    assert fresh.nvmlDeviceGetUUID(fresh.nvmlDeviceGetHandleByIndex(0)) == survivor


def test_a_hanging_gpu_holds_only_its_own_callers(tmp_path, clock):
    timeline = [{"at": 5, "do": "hang", "gpu": 0}, {"at": 20, "do": "unhang", "gpu": 0}]
    driver = open_driver(tmp_path, scenario(timeline=timeline), clock)
    handles = [driver.nvmlDeviceGetHandleByIndex(i) for i in range(2)]
    clock.advance(6)
    answers = []
    caller = threading.Thread(target=lambda: answers.append(driver.nvmlDeviceGetPowerUsage(handles[0])), daemon=True)
    caller.start()
    caller.join(0.2)
    assert caller.is_alive()
    assert driver.nvmlDeviceGetPowerUsage(handles[1]) > 0
    clock.advance(20)
    caller.join(BOUND_SECONDS)
    assert answers
    assert answers[0] > 0


def test_events_come_at_once_with_the_identity_of_a_gpu_that_is_gone(tmp_path):
    clock = SystemClock()
    later = [0.5, 0.6, 0.7, 0.8]
    timeline = [
        {"at": 0.4, "do": "lose", "gpu": 1},
        {"at": 0.4, "do": "recovery_action", "gpu": 0, "action": 2},
        *({"at": at, "do": "xid", "gpu": 0, "xid": 31} for at in later),
    ]
    driver = open_driver(tmp_path, scenario(timeline=timeline), clock)
    events = DriverEventReader(driver)
    identities = []
    for index in range(2):
        handle, identity = register(driver, index)
        events.add(handle, identity)
        identities.append(identity)
    found = []
    while len(found) < 4 + len(later):
        found.append(until(lambda: events.wait(500, time.time), f"an event after {found}"))
    assert [(e.kind, e.data) for e in found] == [
        ("xid", 79),
        ("gpu_unavailable", 0),
        ("recovery_action", 2),
        ("xid", 154),
        *[("xid", 31)] * len(later),
    ]
    assert [e.uuid for e in found] == [identities[i].uuid for i in (1, 1, 0, 0, *[0] * len(later))]
    late = [event.at - driver.replica.record.started - at for event, at in zip(found[3:], [0.4, *later], strict=True)]
    assert min(late) >= -1e-3
    assert min(late) < 0.1, "on a busy machine some come late, not all of them"
    assert events.wait(1, time.time) is None


def test_memory_faults_reach_their_counters(tmp_path, clock):
    timeline = [
        {"at": 1, "do": "ecc", "gpu": 0, "kind": "uncorrected", "location": "sram", "count": 11},
        {"at": 1, "do": "ecc", "gpu": 0, "count": 3},
        {"at": 1, "do": "remap", "gpu": 0},
        {"at": 1, "do": "nvlink", "gpu": 0, "link": 7, "active": False, "errors": {"crc": 5}},
        {"at": 1, "do": "pcie", "gpu": 0, "width": 8, "replays": 4},
    ]
    gpu = read(open_driver(tmp_path, scenario(timeline=timeline), clock), clock)
    assert gpu.ecc.counts["uncorrected/volatile/sram"] == 11
    assert gpu.ecc.counts["corrected/aggregate/total"] == 3
    assert gpu.ecc.sram_threshold_exceeded
    assert (gpu.row_remap.uncorrected, gpu.row_remap.pending) == (1, True)
    assert gpu.nvlinks[7].active is False
    assert gpu.nvlinks[7].errors["crc"] == 5
    assert (gpu.pcie.width, gpu.pcie.width_max, gpu.pcie.replays) == (8, 16, 4)


def test_what_a_program_sets_is_there_until_the_driver_is_loaded_again(tmp_path, clock):
    timeline = [
        {"at": 1, "do": "ecc_mode", "gpu": 0, "on": False},
        {"at": 1, "do": "compute_mode", "gpu": 0, "mode": "exclusive_process"},
        {"at": 1, "do": "persistence_mode", "gpu": 0, "on": False},
        {"at": 10, "do": "recover", "gpu": 0},
    ]
    driver = open_driver(tmp_path, scenario(timeline=timeline), clock)
    gpu = read(driver, clock)
    assert (gpu.ecc.enabled, gpu.ecc.pending) == (True, False)
    assert (gpu.compute_mode, gpu.persistence_mode) == ("exclusive_process", False)
    clock.advance(10.0)
    gpu = read(driver, clock)
    assert (gpu.ecc.enabled, gpu.ecc.pending) == (False, False)
    assert (gpu.compute_mode, gpu.persistence_mode) == ("default", True)


def test_a_driver_that_lets_nobody_in_says_why(tmp_path, clock):
    timeline = [{"at": 5, "do": "refuse", "error": "NO_PERMISSION"}, {"at": 9, "do": "refuse"}]
    driver = open_driver(tmp_path, scenario(timeline=timeline), clock)
    clock.advance(6.0)
    assert driver.nvmlDeviceGetCount() == 2
    with pytest.raises(pynvml.NVMLError) as refused:
        type(driver)(driver.replica).nvmlInit()
    assert refused.value.value == pynvml.NVML_ERROR_NO_PERMISSION
    clock.advance(4.0)
    type(driver)(driver.replica).nvmlInit()


@pytest.mark.parametrize("name", a_third(names()))
def test_the_readers_live_through_every_scenario(tmp_path, clock, name):
    """Whatever happens, a read gives a sample or says that the GPU or the driver is gone."""
    live_through(tmp_path, clock, load(name), SAMPLES // 2)


@pytest.mark.slow  # the same with half as many looks is above
@pytest.mark.parametrize("name", names())
def test_the_readers_live_through_every_scenario_that_they_read_often(tmp_path, clock, name):
    live_through(tmp_path, clock, load(name), SAMPLES)


def live_through(tmp_path, clock, of, looks):
    driver, readers, samples, failures = open_driver(tmp_path, of, clock), {}, 0, set()
    for _ in range(looks):
        clock.advance(LIFE_SECONDS / looks)
        node = driver.replica.update()
        for index, gpu in enumerate(node.gpus):
            if gpu.faults.hung or node.driver_hung:
                continue
            try:
                if index not in readers:
                    readers[index] = GpuReader(driver, *register(driver, index))
                found = readers[index].read(clock.time(), clock.monotonic())
                assert gpu.faults.inforom_corrupt or not found.errors
                samples += 1
            except NvmlFailure as failure:
                failures.add(failure.kind)
        if Failure.DRIVER_GONE in failures:
            driver, readers, failures = SimNvml(attach(tmp_path, clock)), {}, set()
            with contextlib.suppress(pynvml.NVMLError_DriverNotLoaded):
                driver.nvmlInit()
    assert samples > looks * of.node.gpus / 2
    assert failures <= {Failure.LOST}


def test_unknown_field_ids_are_refused_one_by_one(tmp_path, clock):
    driver = open_driver(tmp_path, scenario(), clock)
    handle = driver.nvmlDeviceGetHandleByIndex(0)
    known = driver.NVML_FI_DEV_POWER_INSTANT
    answers = driver.nvmlDeviceGetFieldValues(handle, [known, (99_999, 0)])
    assert [answer.nvmlReturn for answer in answers] == [0, pynvml.NVML_ERROR_NOT_SUPPORTED]


@pytest.mark.parametrize(("driver", "cuda"), [("535.230.02", 12020), ("550.163.01", 12040), ("595.80", 13020)])
def test_a_driver_brings_its_own_cuda(tmp_path, clock, driver, cuda):
    nvml = open_driver(tmp_path, scenario("a100", 1, driver=driver), clock)
    assert nvml.nvmlSystemGetCudaDriverVersion_v2() == cuda
    assert nvml.nvmlSystemGetNVMLVersion() == f"{cuda // 1000}.{driver}"


def test_a_hang_ends_with_its_node(tmp_path):
    """A reader inside a simulated call must not outlive the simulation."""
    world = World("healthy", tmp_path).start()
    driver = open_node(str(tmp_path))
    driver.nvmlInit()
    handle = driver.nvmlDeviceGetHandleByIndex(0)
    answers, refusals = [], []

    def call():
        try:
            while True:
                answers.append(driver.nvmlDeviceGetPowerUsage(handle))
        except pynvml.NVMLError as error:
            refusals.append(error.value)

    caller = threading.Thread(target=call, daemon=True)
    world.inject({"do": "hang", "gpu": 0})
    caller.start()
    until(lambda: driver.replica.node.gpus[0].faults.hung, "it hangs")
    world.stop()
    caller.join(BOUND_SECONDS)
    assert refusals == [pynvml.NVML_ERROR_DRIVER_NOT_LOADED]
