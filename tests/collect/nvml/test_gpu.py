"""One GPU as a whole: links, instances, sample buffers, virtual GPUs and fans beside the fields."""

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import msgspec
import pynvml
import pytest

from gpuwatch.collect.nvml.fields import Tier
from gpuwatch.collect.nvml.links import COUNTED_AGAIN, ERRORS
from gpuwatch.model.snapshot import Driver, Gpu, Identity, License, Memory
from tests.fakes.libnvml import PROFILES, FakeDriver, FakeMig, FakeProcess, FakeVgpu
from tests.fakes.nvml_child import run
from tests.seeds import a_third

READ = """
from gpuwatch.collect.nvml.gpu import GpuReader, register
handle, identity = register(nvml, 0)
reader = GpuReader(nvml, handle, identity)
"""
VERSIONS = "from gpuwatch.collect.reader.driver import versions\ntell(versions(nvml))\n"
POWER_SAMPLES, UTILIZATION_SAMPLES = 0, 1  # nvmlSamplingType_t
UNSUPPORTED, NO_PERMISSION, UNKNOWN = 3, 4, 999
# What it takes to count the 18 links: one call each, and one that is refused, where the bindings know of more links.
COUNT = min(18 + 1, pynvml.NVML_NVLINK_MAX_LINKS)


def samples(driver: FakeDriver, *turns: Callable[[], object], force: bool = False) -> list[Gpu]:
    """A sample, a turn, a sample... one second apart."""
    reads = "pause()\n".join(f"tell(reader.read({n}, {n}, {force}))\n" for n in range(len(turns) + 1))
    return msgspec.convert(run(driver, READ + reads, *turns), list[Gpu])


def test_identity(driver: FakeDriver) -> None:
    (identity,) = msgspec.convert(run(driver, READ + "tell(identity)"), list[Identity])
    assert identity.uuid == driver.get(0, "uuid")
    assert identity.pci_bus_id == "00000000:0F:00.0"
    assert identity.name == "NVIDIA H100 80GB HBM3"
    assert (identity.architecture, identity.compute_capability) == ("Hopper", "9.0")
    assert (identity.minor, identity.serial) == (0, driver.get(0, "serial"))


def test_what_is_under_way_is_named_and_over_afterwards(driver: FakeDriver) -> None:
    assert run(driver, READ + "reader.read(0, 0); tell(reader.calling)") == [None]


@pytest.mark.parametrize("model", ["H100", "A100", "T4"])
@pytest.mark.parametrize("profile", a_third(PROFILES))
def test_every_model_under_every_driver(tmp_path: Path, model: str, profile: str) -> None:
    with FakeDriver(tmp_path / "driver", gpus=1, model=model, profile=profile) as driver:
        driver.set(0, temperature=44, power_mw=60_000)
        first, second = samples(driver, lambda: None)
        assert (first.temperature.gpu, second.temperature.gpu) == (44, 44)
        assert first.errors == second.errors == {}
        assert first.memory.total == driver.get(0, "memory_total")
        assert set(first.unsupported) == set(second.unsupported)


# ---- peaks between two looks


def test_a_short_peak_is_not_missed(driver: FakeDriver) -> None:
    driver.set(0, power_mw=100_000, util_gpu=0)

    def peak() -> None:
        driver.push_sample(0, POWER_SAMPLES, 650_000)
        driver.push_sample(0, UTILIZATION_SAMPLES, 100)

    first, second, third = samples(driver, peak, lambda: None)
    assert (first.power.max, first.utilization.gpu_max) == (None, None)
    assert second.power.max == pytest.approx(650)
    assert second.power.mean == pytest.approx(375)  # the peak, and the present value that the ring ends with
    assert (second.utilization.gpu_max, second.utilization.gpu_mean) == (1.0, 0.5)
    assert third.power.max == pytest.approx(100)


def test_a_second_sample_has_the_mean_and_the_fifth_after_it_those_of_all_five(driver: FakeDriver) -> None:
    reads = "pause()\n".join(f"tell(reader.read({n}, {n}))\n" for n in range(7))
    often = READ.replace("handle, identity)", "handle, identity, interval=1.0)")
    driver.set(0, power_mw=100_000)
    pushes = [lambda n=n: driver.push_sample(0, POWER_SAMPLES, 100_000 * n) for n in range(2, 8)]
    gpus = msgspec.convert(run(driver, often + reads, *pushes), list[Gpu])
    assert [gpu.power.max for gpu in gpus] == [None, 200, 200, 200, 200, pytest.approx(600), pytest.approx(600)]


def test_a_refused_buffer_is_asked_once(driver: FakeDriver) -> None:
    driver.error(NO_PERMISSION, "nvmlDeviceGetSamples")
    *_, last = samples(driver, lambda: None, lambda: None)
    assert last.power.max is None
    assert driver.calls("nvmlDeviceGetSamples") == 2  # power and utilization


# ---- NVLink


def test_links_with_traffic_and_errors(driver: FakeDriver) -> None:
    driver.set_link(0, 3, tx_kib=10, rx_kib=20, errors=(1, 2, 3, 4, 5))
    (gpu,) = samples(driver)
    assert len(gpu.nvlinks) == 18
    link = gpu.nvlinks[3]
    assert (link.link, link.active, link.version) == (3, True, "5.0")
    assert (link.transmit_bytes, link.receive_bytes) == (10 * 1024, 20 * 1024)
    assert (link.errors["replay"], link.errors["recovery"]) == (1, 2)
    assert link.speed_bytes_per_second == pytest.approx(26_562e6)
    assert link.remote_pci == "00000000:C3:00.0"
    assert link.errors.keys() <= ERRORS.keys()


def test_a_gpu_without_links_is_asked_rarely(tmp_path: Path) -> None:
    with FakeDriver(tmp_path / "t4", gpus=1, model="T4") as driver:
        *_, last = samples(driver, *[lambda: None] * (Tier.SLOW - 1))
        assert last.nvlinks == ()
        assert driver.calls("nvmlDeviceGetNvLinkState") == 1


def test_links_that_come_up_later_are_counted(driver: FakeDriver) -> None:
    """At boot the fabric manager brings links up long after the first look."""
    for link in range(18):
        driver.set_link(0, link, active=0, tx_kib=None, rx_kib=None, errors=None)

    def rise() -> None:
        for link in range(18):
            driver.set_link(0, link, active=1, tx_kib=7, rx_kib=7, errors=(0, 0, 0, 0, 0))

    before, after = samples(driver, rise, force=True)
    assert {link.active for link in before.nvlinks} == {False}
    assert before.nvlinks[0].transmit_bytes is None
    assert {link.active for link in after.nvlinks} == {True}
    assert after.nvlinks[0].transmit_bytes == 7 * 1024
    assert after.nvlinks[0].errors["replay"] == 0


def test_a_link_that_goes_down_still_leads_where_it_led(driver: FakeDriver) -> None:

    def fall() -> None:
        driver.set_link(0, 3, active=0, tx_kib=None, rx_kib=None)
        driver.error(UNSUPPORTED, "nvmlDeviceGetNvLinkRemotePciInfo_v2")

    up, down = samples(driver, fall, force=True)
    assert (up.nvlinks[3].active, down.nvlinks[3].active) == (True, False)
    assert down.nvlinks[3].remote_pci == up.nvlinks[3].remote_pci is not None


def test_a_link_whose_state_cannot_be_read_hides_no_other(driver: FakeDriver) -> None:

    def fail() -> None:
        driver.error(UNKNOWN, "nvmlDeviceGetNvLinkState")
        driver.error(UNKNOWN, "nvmlDeviceGetFieldValues")

    _, bad, good = samples(driver, fail, driver.clear, force=True)
    assert {link.active for link in bad.nvlinks} == {None}
    assert len(bad.nvlinks) == len(good.nvlinks) == 18
    assert {link.active for link in good.nvlinks} == {True}


@pytest.mark.parametrize(("result", "calls"), [(None, 2 * COUNT), (UNSUPPORTED, 4 * COUNT)])
def test_the_state_of_all_links_is_one_field_where_the_gpu_has_it(
    driver: FakeDriver, result: int | None, calls: int
) -> None:
    if result:
        driver.set_field(0, pynvml.NVML_FI_DEV_NVLINK_GET_STATE, error=result)
    gpus = samples(
        driver,
        lambda: None,
        lambda: driver.set_link(0, 3, active=0),
        lambda: driver.set_link(0, 3, active=1),
        force=True,
    )
    assert [[link.link for link in gpu.nvlinks if not link.active] for gpu in gpus] == [[], [], [3], []]
    assert driver.calls("nvmlDeviceGetNvLinkState") == calls


def test_links_are_counted_again_now_and_then(driver: FakeDriver) -> None:
    samples(driver, *[lambda: None] * COUNTED_AGAIN, force=True)
    assert driver.calls("nvmlDeviceGetNvLinkState") == 3 * COUNT  # at first, once more to compare, and at the twelfth


def test_a_field_with_another_state_than_the_calls_is_not_read(driver: FakeDriver) -> None:
    driver.set_field(0, pynvml.NVML_FI_DEV_NVLINK_GET_STATE, 0, kind="uint")
    gpus = samples(driver, lambda: None, lambda: None, force=True)
    assert [all(link.active for link in gpu.nvlinks) for gpu in gpus] == [True, True, True]


# ---- MIG


def test_instances(driver: FakeDriver) -> None:
    driver.set_mig(0, [FakeMig(gi=1, profile="1g.10gb", memory_used=1 << 30), FakeMig(gi=2, profile="3g.40gb")])
    driver.set_gpm(0, {2: 50.0}, gi=2)
    first, second = samples(driver, lambda: None)
    assert [(mig.index, mig.gi, mig.ci, mig.profile) for mig in first.mig] == [
        (0, 1, 0, "1g.10gb"),
        (1, 2, 0, "3g.40gb"),
    ]
    assert first.mig[0].memory.used == 1 << 30
    assert {mig.uuid[:4] for mig in first.mig} == {"MIG-"}
    assert [mig.start for mig in first.mig] == [mig.start for mig in second.mig] == [0, 4]
    assert first.mig[1].activity.sm is None
    assert [mig.activity.sm for mig in second.mig] == [0.0, 0.5]
    assert second.utilization.gpu is None


def test_compute_instances_share_the_activity_of_their_gpu_instance(driver: FakeDriver) -> None:
    driver.set_mig(0, [FakeMig(gi=1, ci=0, profile="1c.3g.40gb"), FakeMig(gi=1, ci=1, profile="1c.3g.40gb")])
    driver.set_gpm(0, {2: 30.0}, gi=1)
    _, second = samples(driver, lambda: None)
    assert [mig.activity.sm for mig in second.mig] == [0.3, 0.3]


def test_switching_mig_on_and_off_is_noticed(driver: FakeDriver) -> None:
    """What a partitioned GPU refuses it offers again as a whole one."""
    reads = samples(
        driver,
        lambda: driver.set_mig(0, [FakeMig(gi=1)]),
        lambda: None,
        lambda: driver.set_mig(0, None),
        lambda: None,
        lambda: None,
    )
    whole, cut, again = reads[0], reads[2], reads[-1]
    assert (whole.mig, [mig.gi for mig in cut.mig], again.mig) == ((), [1], ())
    assert "utilization.gpu" in cut.unsupported
    assert again.utilization.gpu == 0
    assert again.activity.sm is not None
    # of three readers in a row, with the GPU's two samples each and those of the instance, one is left
    assert driver.calls("nvmlGpmSampleAlloc") - driver.calls("nvmlGpmSampleFree") == 2


def test_an_instance_that_goes_away_gives_its_samples_back(driver: FakeDriver) -> None:
    driver.set_mig(0, [FakeMig(gi=1), FakeMig(gi=2)])
    _, second = samples(driver, lambda: driver.set_mig(0, [FakeMig(gi=2)]))
    assert [mig.gi for mig in second.mig] == [2]
    assert driver.calls("nvmlGpmSampleFree") == 2


# ---- GPM, fans, vGPU


def test_why_gpm_is_refused_is_reported_every_time(driver: FakeDriver) -> None:
    driver.error(NO_PERMISSION, "nvmlGpmSampleGet")
    reads = samples(driver, lambda: None, lambda: None)
    assert [gpu.errors for gpu in reads] == [{"activity": "Insufficient Permissions"}] * 3
    assert driver.calls("nvmlGpmSampleGet") == 1


def test_fans(driver: FakeDriver) -> None:
    driver.set(0, fans=2, fan_percent=30)
    (gpu,) = samples(driver)
    assert gpu.fans == (0.3, 0.3)


def test_virtual_gpus_of_a_host(driver: FakeDriver) -> None:
    driver.set_vgpus(0, [FakeVgpu(instance=7, vm="vm-1", uuid="v-7", memory_used=1 << 30, utilization=40)])
    (gpu,) = samples(driver)
    (vgpu,) = gpu.vgpus
    assert (vgpu.instance, vgpu.uuid, vgpu.vm, vgpu.used_memory, vgpu.utilization) == (7, "v-7", "vm-1", 1 << 30, 0.4)
    assert vgpu.licensed is True


STUDIED = """
import sys
from gpuwatch.collect.nvml import gpu as nvml_gpu
import msgspec
called = set()
sys.setprofile(lambda frame, event, arg: called.add(frame.f_code.co_filename))
msgspec.convert({"identity": {"index": 0, "uuid": "", "pci_bus_id": ""}, "nvlinks": [{"link": 0}]}, nvml_gpu.Gpu)
sys.setprofile(None)
print(sorted(path for path in called if "msgspec" in path))
"""


def test_the_threads_of_a_reader_find_the_type_of_a_sample_studied():
    """Two that study it at once crash msgspec."""
    done = subprocess.run([sys.executable, "-c", STUDIED], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"


# ---- what only some GPUs have


def test_a_gpu_of_a_rack_says_where_it_is(driver: FakeDriver) -> None:
    driver.set(0, platform_slot=13, platform_tray=5, platform_host=1, module_id=4)
    (there,) = msgspec.convert(run(driver, READ + "tell(identity)"), list[Identity])
    place = (there.chassis_serial, there.slot, there.tray, there.host, there.module)
    assert place == ("1820325190001", 13, 5, 1, 4)
    assert (there.inforom_oem, there.inforom_ecc, there.inforom_power) == ("2.1", "7.16", None)
    assert there.gsp_enabled is True
    (gpu,) = samples(driver)
    assert {(link.remote_pci, link.remote_type) for link in gpu.nvlinks} == {(None, "switch")}


def test_a_gpu_of_no_rack_has_its_module_alone(driver: FakeDriver) -> None:
    driver.set(0, module_id=3)
    (there,) = msgspec.convert(run(driver, READ + "tell(identity)"), list[Identity])
    assert (there.chassis_serial, there.slot, there.tray, there.host, there.module) == (None, None, None, None, 3)


def test_chip_to_chip_links_and_encoder_sessions(driver: FakeDriver) -> None:
    driver.set(0, c2c_links=10, c2c_mbps=44_712, encoder_sessions=2, encoder_fps=60, encoder_latency_us=1500)
    (gpu,) = samples(driver)
    assert (gpu.c2c.links, gpu.c2c.bytes_per_second) == (10, 44.712e9)
    assert (gpu.encoder.sessions, gpu.encoder.frames_per_second, gpu.encoder.latency_seconds) == (2, 60, 0.0015)
    driver.set(0, encoder_sessions=0, encoder_fps=0, encoder_latency_us=0)
    (idle,) = samples(driver)
    assert (idle.encoder.sessions, idle.encoder.latency_seconds) == (0, None)


def test_a_bit_error_rate_that_counted_nothing_is_absent(driver: FakeDriver) -> None:
    driver.set(0, nvlink_effective_ber=0x30C, nvlink_symbol_ber=0xFFF)
    (gpu,) = samples(driver)
    assert gpu.nvlinks[0].effective_ber == pytest.approx(3e-12)
    assert gpu.nvlinks[0].symbol_ber is None
    assert gpu.nvlinks[0].remote_type == "switch"


def test_pcie_throughput_is_measured_only_where_bytes_are_not_counted(tmp_path: Path, driver: FakeDriver) -> None:
    (counting,) = samples(driver)
    assert counting.pcie.transmit_bytes is not None
    assert counting.pcie.transmit_rate is None
    assert driver.calls("nvmlDeviceGetPcieThroughput") == 0
    with FakeDriver(tmp_path / "old", gpus=1, model="T4", profile="535") as old:
        old.set(0, pcie_tx_kbps=100, pcie_rx_kbps=50)
        (measuring,) = samples(old)
    assert measuring.pcie.transmit_bytes is None
    assert (measuring.pcie.transmit_rate, measuring.pcie.receive_rate) == (102_400, 51_200)


def test_a_guest_says_whether_it_has_its_licence(driver: FakeDriver) -> None:
    driver.set(0, licensed=1, license_expires=1_780_000_000)
    licensed = samples(driver)[0].license
    driver.set(0, licensed=0, license_expires=None)
    unlicensed = samples(driver)[0].license

    assert licensed == License(product="NVIDIA Virtual Compute Server", licensed=True, expires=1_780_000_000)
    assert unlicensed == License(product="NVIDIA Virtual Compute Server", licensed=False)


def test_a_gpu_that_needs_no_licence_and_protects_no_memory_says_nothing_of_them(driver: FakeDriver) -> None:
    driver.set(0, protected_total=0, protected_used=0)
    gpu = samples(driver)[0]

    assert (gpu.license, gpu.protected_memory, gpu.errors) == (License(), Memory(), {})


def test_protected_memory_and_the_state_of_confidential_computing(driver: FakeDriver) -> None:
    driver.set(0, protected_total=64 << 30, protected_used=1 << 30)
    states = []
    for state in (0, 1, 2):
        driver.control.confidential = state
        states += msgspec.convert(run(driver, VERSIONS), list[Driver])

    assert samples(driver)[0].protected_memory == Memory(total=64 << 30, used=1 << 30, free=63 << 30)
    assert [(each.confidential, each.confidential_debug) for each in states] == [
        (False, None),
        (True, False),
        (True, True),
    ]


def test_blocks_by_mended_symbols(driver: FakeDriver) -> None:
    driver.set(0, nvlink_fec_blocks=1 << 15)
    gpu = samples(driver)[0]

    assert gpu.nvlinks[17].fec_history == {str(bin_): 1 << 15 - bin_ for bin_ in range(16)}


def test_a_driver_before_forward_error_correction_was_counted_has_none(tmp_path: Path) -> None:
    with FakeDriver(tmp_path / "driver", gpus=1, profile="550") as older:
        older.set(0, nvlink_fec_blocks=1 << 15)
        assert samples(older)[0].nvlinks[0].fec_history == {}


def test_a_gpu_that_shares_the_memory_of_its_host_has_none_of_its_own(driver: FakeDriver) -> None:
    """GB10: nvmlDeviceGetMemoryInfo is not supported, processes have their memory all the same."""
    driver.set(0, memory_total=None, bar1_total=None, util_memory=0)
    driver.set_processes(0, [FakeProcess(pid=4711, memory=18 << 20)])
    gpu = samples(driver)[0]

    assert (gpu.memory, gpu.bar1) == (Memory(), Memory())
    assert {"memory.total", "memory.used", "memory.free", "bar1.total"} <= set(gpu.unsupported)
    assert [each.used_memory for each in gpu.processes or ()] == [18 << 20]
    assert gpu.errors == {}
