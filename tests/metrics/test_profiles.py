"""The DCGM profiles: names, types, units and labels are dcgm-exporter's, and so is what its users rely on."""

from collections.abc import Iterator

import msgspec
import pytest
from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.samples import Sample

from gpuwatch.config import MetricsConfig
from gpuwatch.metrics.dcgm_profile import WINDOW_SECONDS
from gpuwatch.metrics.exposition import Encoder
from gpuwatch.metrics.page_cache import Profiles
from gpuwatch.model.snapshot import Driver, Gpu, GpuState, GpuStatus, NvLink, Pcie, Snapshot
from gpuwatch.model.view import AgentStatus, View
from tests.model.view_factory import AT, full_view, identity, uuid, xid_count

OLD, NEW = "dcgm-4.8", "dcgm-4.9"
CONTRACT = """
DCGM_FI_DEV_SM_CLOCK gauge 1980
DCGM_FI_DEV_MEM_CLOCK gauge 2619
DCGM_FI_DEV_MEMORY_TEMP gauge 70
DCGM_FI_DEV_GPU_TEMP gauge 61
DCGM_FI_DEV_POWER_USAGE gauge 433.712000
DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION counter 246913578
DCGM_FI_DEV_PCIE_REPLAY_COUNTER counter 2
DCGM_FI_DEV_GPU_UTIL gauge 57
DCGM_FI_DEV_MEM_COPY_UTIL gauge 29
DCGM_FI_DEV_ENC_UTIL gauge 0
DCGM_FI_DEV_DEC_UTIL gauge 0
DCGM_FI_DEV_XID_ERRORS gauge 13
DCGM_FI_DEV_FB_FREE gauge 38912
DCGM_FI_DEV_FB_USED gauge 41984
DCGM_FI_DEV_FB_RESERVED gauge 1023
DCGM_FI_DEV_FB_TOTAL gauge 81920
DCGM_FI_DEV_NVLINK_BANDWIDTH_TOTAL counter 5
DCGM_FI_DEV_VGPU_LICENSE_STATUS gauge 1
DCGM_FI_DEV_UNCORRECTABLE_REMAPPED_ROWS counter 1
DCGM_FI_DEV_CORRECTABLE_REMAPPED_ROWS counter 0
DCGM_FI_DEV_ROW_REMAP_FAILURE gauge 0
DCGM_FI_PROF_GR_ENGINE_ACTIVE gauge 0.912300
DCGM_FI_PROF_PIPE_TENSOR_ACTIVE gauge 0.331100
DCGM_FI_PROF_DRAM_ACTIVE gauge 0.550000
DCGM_FI_PROF_PCIE_TX_BYTES gauge 1000000000
DCGM_FI_PROF_PCIE_RX_BYTES gauge 2000000000
DCGM_FI_DEV_ECC_SBE_VOL_TOTAL counter 2
DCGM_FI_DEV_ECC_DBE_AGG_TOTAL counter 2
DCGM_FI_DEV_POWER_VIOLATION counter 25000000000
DCGM_FI_DEV_THERMAL_VIOLATION counter 25000000000
DCGM_FI_DEV_CLOCKS_EVENT_REASONS gauge 4
DCGM_FI_DEV_POWER_MGMT_LIMIT gauge 700.000000
DCGM_EXP_XID_ERRORS_COUNT gauge 2
DCGM_EXP_CLOCK_EVENTS_COUNT gauge 2
"""
RENAMED = """
DCGM_FI_DEV_SM_CLOCK_HERTZ gauge 1980000000
DCGM_FI_DEV_MEMORY_CLOCK_HERTZ gauge 2619000000
DCGM_FI_DEV_GPU_ENERGY_JOULES_TOTAL counter 246913
DCGM_FI_DEV_GPU_UTIL_RATIO gauge 0.570000
DCGM_FI_DEV_MEMORY_UTIL_RATIO gauge 0.290000
DCGM_FI_DEV_ENC_UTIL_RATIO gauge 0.000000
DCGM_FI_DEV_DEC_UTIL_RATIO gauge 0.000000
DCGM_FI_DEV_FB_FREE_BYTES gauge 40802189312
DCGM_FI_DEV_FB_USED_BYTES gauge 44023414786
DCGM_FI_DEV_FB_RESERVED_BYTES gauge 1073741822
DCGM_FI_DEV_FB_CAPACITY_BYTES gauge 85899345920
DCGM_FI_DEV_NVLINK_THROUGHPUT_BYTES_PER_SECOND gauge 6000012
DCGM_FI_DEV_GPU_TEMP_CELSIUS gauge 61
DCGM_FI_DEV_MEMORY_TEMP_CELSIUS gauge 70
DCGM_FI_DEV_BOARD_POWER_WATTS gauge 433.712000
DCGM_FI_DEV_PCIE_REPLAY_TOTAL counter 2
DCGM_FI_DEV_XID_ERROR gauge 13
DCGM_FI_DEV_ROW_REMAP_UNCORRECTABLE_TOTAL counter 1
DCGM_FI_DEV_ROW_REMAP_CORRECTABLE_TOTAL counter 0
DCGM_FI_DEV_ROW_REMAP_FAILED gauge 0
DCGM_FI_PROF_GR_ENGINE_UTIL_RATIO gauge 0.912300
DCGM_FI_PROF_TENSOR_UTIL_RATIO gauge 0.331100
DCGM_FI_PROF_DRAM_UTIL_RATIO gauge 0.550000
DCGM_FI_PROF_SM_UTIL_RATIO gauge 0.851200
DCGM_FI_PROF_SM_OCCUPANCY_RATIO gauge 0.402100
DCGM_FI_DEV_GPU_POWER_THROTTLE_SECONDS_TOTAL counter 25.000000
"""
DASHBOARD_12239 = """
DCGM_FI_DEV_GPU_TEMP DCGM_FI_DEV_POWER_USAGE DCGM_FI_DEV_SM_CLOCK DCGM_FI_DEV_GPU_UTIL DCGM_FI_DEV_FB_USED
DCGM_FI_PROF_PIPE_TENSOR_ACTIVE
"""


def page(*views: View, profile: str = OLD, every: float = 1.0) -> str:
    """The newest of `views`, seen `every` seconds after each other."""
    profiles = Profiles(MetricsConfig(), node="node-a")
    for number, view in enumerate(views):
        profiles.observe(view, number * every)
    return Encoder().encode(profiles.collect(views[-1], [profile])).decode()


def samples(text: str, name: str) -> list[Sample]:
    return [s for family in text_string_to_metric_families(text) for s in family.samples if s.name == name]


def lines(entries: str) -> Iterator[list[str]]:
    return (line.split() for line in entries.strip().splitlines())


def one_gpu(**members: object) -> View:
    gpu = Gpu(identity=identity(0), **members)  # type: ignore[arg-type]
    status = GpuStatus(identity=identity(0), state=GpuState.FRESH)
    return View(
        snapshot=Snapshot(at=AT, interval=2.0, gpus=(gpu,), statuses=(status,), driver=Driver(version="570.86.15")),
        agent=AgentStatus(version="1", started=AT),
    )


@pytest.fixture(scope="module")
def pages() -> dict[str, str]:
    """Profile -> the page of two GPUs, sampled twice within a second."""
    views = [full_view(2, links=2, seed=seed) for seed in (1, 2)]
    return {profile: page(*views, profile=profile) for profile in (OLD, NEW)}


@pytest.mark.parametrize(
    ("profile", "name", "type_", "value"),
    [(profile, *line) for profile, entries in ((OLD, CONTRACT), (NEW, RENAMED)) for line in lines(entries)],
)
def test_names_types_units_and_number_formats(
    pages: dict[str, str], profile: str, name: str, type_: str, value: str
) -> None:
    text = pages[profile]
    assert f"# TYPE {name} {type_}\n" in text
    first = next(line for line in text.splitlines() if line.startswith(name + '{gpu="0"'))
    assert first.rpartition(" ")[2] == value


def test_the_old_names_are_gone_from_the_new_profile_and_the_other_way_round(pages: dict[str, str]) -> None:
    new_only = {name for name, *_ in lines(RENAMED)}
    old_only = {"DCGM_FI_DEV_SM_CLOCK", "DCGM_FI_DEV_GPU_UTIL", "DCGM_FI_DEV_FB_USED", "DCGM_FI_DEV_XID_ERRORS"}
    names = {p: {f.name for f in text_string_to_metric_families(text)} for p, text in pages.items()}
    assert not new_only & names[OLD]
    assert not old_only & names[NEW]


@pytest.mark.parametrize(
    ("profile", "host", "driver"),
    [(OLD, "Hostname", "DCGM_FI_DRIVER_VERSION"), (NEW, "hostname", "DCGM_FI_SYSTEM_DRIVER_VERSION")],
)
def test_labels_and_their_order(pages: dict[str, str], profile: str, host: str, driver: str) -> None:
    def label_names(line: str) -> list[str]:
        return [part.partition("=")[0] for part in line.partition("{")[2].rpartition("}")[0].split('",')]

    name = {OLD: "DCGM_FI_DEV_FB_USED", NEW: "DCGM_FI_DEV_FB_USED_BYTES"}[profile]
    found = [label_names(line) for line in pages[profile].splitlines() if line.startswith(name + "{")]
    gpu = ["gpu", "UUID", "pci_bus_id", "device", "modelName"]
    assert found[0] == [*gpu, host, driver, "container", "namespace", "pod"]
    assert found[1] == [*gpu, host, driver]
    assert found[2] == found[3] == [*gpu, "GPU_I_PROFILE", "GPU_I_ID", host, driver]


def test_label_values(pages: dict[str, str]) -> None:
    first = samples(pages[OLD], "DCGM_FI_DEV_GPU_TEMP")[0]
    assert first.labels == {
        "gpu": "0",
        "UUID": uuid(0),
        "pci_bus_id": "00000000:1B:00.0",
        "device": "nvidia0",
        "modelName": "NVIDIA H100 80GB HBM3",
        "Hostname": "gpu-node-1",
        "DCGM_FI_DRIVER_VERSION": "570.86.15",
        "container": "main",
        "namespace": "ml",
        "pod": "train-0",
    }


def test_the_host_is_the_one_given_where_the_view_has_none() -> None:
    [sample] = samples(page(one_gpu(performance_state=0)), "DCGM_FI_DEV_XID_ERRORS")
    assert sample.labels["Hostname"] == "node-a"


@pytest.mark.parametrize("name", DASHBOARD_12239.split())
def test_grafana_dashboard_12239_has_its_series(pages: dict[str, str], name: str) -> None:
    assert {sample.labels["gpu"] for sample in samples(pages[OLD], name)} == {"0", "1"}


def test_mig_instances_have_memory_and_profiling_only(pages: dict[str, str]) -> None:
    with_mig = {
        sample.name
        for family in text_string_to_metric_families(pages[OLD])
        for sample in family.samples
        if "GPU_I_ID" in sample.labels
    }
    assert {"DCGM_FI_DEV_FB_USED", "DCGM_FI_PROF_GR_ENGINE_ACTIVE"} <= with_mig
    assert all(name.startswith(("DCGM_FI_DEV_FB_", "DCGM_FI_PROF_")) for name in with_mig)


def test_what_is_unknown_is_absent() -> None:
    names = {family.name for family in text_string_to_metric_families(page(one_gpu()))}
    assert names == {"DCGM_FI_DEV_XID_ERRORS", "DCGM_EXP_XID_ERRORS_COUNT"}


def test_the_xid_gauge_is_there_before_the_first_xid_and_then_the_last_one() -> None:
    quiet = one_gpu()
    [before] = samples(page(quiet), "DCGM_FI_DEV_XID_ERRORS")
    assert (before.value, before.labels["err_code"], before.labels["err_msg"]) == (0, "0", "No Error")
    struck = msgspec.structs.replace(
        quiet,
        xids=(
            xid_count(identity(0), 79, count=1, last=AT),
            xid_count(identity(0), 31, count=9, last=AT - 60),
            xid_count(identity(0), 48),
        ),
    )
    [after] = samples(page(quiet, struck), "DCGM_FI_DEV_XID_ERRORS")
    assert (after.value, after.labels["err_code"]) == (79, "79")
    assert after.labels["err_msg"] not in ("", "No Error", "Unknown Error")


def test_the_xid_gauge_survives_its_gpu() -> None:
    lost = GpuStatus(identity=identity(0), state=GpuState.LOST)
    view = View(
        snapshot=Snapshot(at=AT, interval=2.0, statuses=(lost,)),
        agent=AgentStatus(version="1", started=AT),
        xids=(xid_count(identity(0), 79, count=1, last=AT),),
    )
    assert [sample.value for sample in samples(page(view), "DCGM_FI_DEV_XID_ERRORS")] == [79]


def test_xids_leave_the_window_and_repeated_ones_are_counted() -> None:
    quiet = one_gpu()
    twice = msgspec.structs.replace(quiet, xids=(xid_count(identity(0), 94, count=2, last=AT),))

    def counts(*views: View) -> list[tuple[str | None, float]]:
        found = samples(page(*views, every=WINDOW_SECONDS), "DCGM_EXP_XID_ERRORS_COUNT")
        assert {sample.labels["window_size_in_ms"] for sample in found} == {str(WINDOW_SECONDS * 1000)}
        return [(sample.labels.get("xid"), sample.value) for sample in found]

    assert counts(quiet) == [(None, 0)]
    assert counts(quiet, twice) == [("94", 2)]
    assert counts(quiet, twice, twice) == [("94", 2)]
    assert counts(quiet, twice, twice, twice) == [(None, 0)]


def test_clock_events_are_counted_once_a_sample(pages: dict[str, str]) -> None:
    view = full_view(2, links=2)
    again = page(view, view, view)
    for text, count in ((again, 1), (pages[OLD], 2)):
        found = samples(text, "DCGM_EXP_CLOCK_EVENTS_COUNT")
        assert [(s.labels["gpu"], s.labels["clock_event"], s.value) for s in found] == [
            ("0", "power_cap", count),
            ("1", "power_cap", count),
        ]


def traffic(at: float, nvlink: int, pcie: int | None) -> View:
    links = (NvLink(link=0, transmit_bytes=nvlink, receive_bytes=0),)
    return one_gpu(at=at, nvlinks=links, pcie=Pcie(transmit_bytes=pcie))


RATE = "DCGM_FI_DEV_NVLINK_THROUGHPUT_BYTES_PER_SECOND"


def test_rates_need_two_samples_and_follow_the_sample_times() -> None:
    first, second = traffic(AT, 1000, 0), traffic(AT + 4, 9000, 400)
    assert samples(page(first, profile=NEW), RATE) == []
    text = page(first, second, profile=NEW)
    assert [s.value for s in samples(text, RATE)] == [2000]
    assert [s.value for s in samples(text, "DCGM_FI_PROF_PCIE_TX_BYTES")] == [100]
    assert [s.value for s in samples(page(first, second, second, profile=NEW), RATE)] == [2000]


def test_a_counter_that_was_reset_or_vanished_has_no_rate() -> None:
    text = page(traffic(AT, 9000, 100), traffic(AT + 1, 10, None), profile=NEW)
    assert samples(text, RATE) == []
    assert samples(text, "DCGM_FI_PROF_PCIE_TX_BYTES") == []
    back = page(traffic(AT, 9000, 0), traffic(AT + 1, 10, 0), traffic(AT + 2, 30, 0), profile=NEW)
    assert [s.value for s in samples(back, RATE)] == [20]


def test_nvlink_megabytes_are_dcgms() -> None:
    """KiB a second, divided by 1000."""
    text = page(traffic(AT, 0, 0), traffic(AT + 1, 7 * 1024 * 1000, 0))
    [line] = [line for line in text.splitlines() if line.startswith("DCGM_FI_DEV_NVLINK_BANDWIDTH_TOTAL{")]
    assert line.rpartition(" ")[2] == "7"


def test_a_gpu_that_was_away_starts_its_rate_again() -> None:
    gone = msgspec.structs.replace(one_gpu(), snapshot=Snapshot(at=AT, interval=2.0))
    text = page(traffic(AT, 0, 0), gone, traffic(AT + 9, 10**9, 0), profile=NEW)
    assert samples(text, RATE) == []
