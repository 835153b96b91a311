"""CHECKS: each finds its own fault, and no other does; each lets go when the fault has gone; near misses are none."""

from typing import Any, NamedTuple, get_args

import pytest
from msgspec.structs import replace

from gpuwatch.collect.nvml.fields import FIELDS
from gpuwatch.config import ChecksConfig
from gpuwatch.health.checks import CHECK_BY_NAME, CHECKS
from gpuwatch.model.finding import CHECK_NAMES, Health, Remedy, Response, Severity, XidClass
from gpuwatch.model.snapshot import (
    ClockEvents,
    Clocks,
    Fabric,
    GpuState,
    Memory,
    NvLink,
    Pcie,
    RetiredPages,
    RowRemap,
    SourceStatus,
    Temperature,
    Utilization,
    Vgpu,
)
from gpuwatch.model.workload import Attribution
from tests.health.judging import INTERVAL, NVML, WELL, Bench, identity, pod

ECC, PCIE = WELL["ecc"], WELL["pcie"]
IDLE = Utilization(gpu=0.0, memory=0.0)
FAR = "00000000:C0:00.0"


def counted(**counts: int) -> Any:
    names = {"uncorrected": "uncorrected/volatile/total", "corrected": "corrected/volatile/total"}
    return replace(ECC, counts={**ECC.counts, **{names[name]: count for name, count in counts.items()}})


def active(reason: str) -> dict[str, Any]:
    return {"clock_events": ClockEvents(active={**WELL["clock_events"].active, reason: True})}


def clocks(sm: float, **parts: Any) -> dict[str, Any]:
    quiet = ClockEvents(active={"gpu_idle": False, "sw_power_cap": False})
    return {"clocks": Clocks(sm=sm, sm_max=1.98e9), "clock_events": quiet, **parts}


def links(*states: bool | None, **parts: Any) -> dict[str, Any]:
    known = {"remote_pci": FAR, **parts}
    return {"nvlinks": tuple(NvLink(link=n, active=state, **known) for n, state in enumerate(states))}


ZOMBIE: dict[str, Any] = {"utilization": IDLE, "memory": Memory(used=3 << 30)}


class Level(NamedTuple):
    """Readings of one GPU that are a fault, and those that come near and are none."""

    sick: dict[str, Any]
    near: tuple[dict[str, Any], ...] = ()


LEVELS: dict[str, Level] = {
    "recovery_action": Level({"recovery_action": 1}, ({"recovery_action": 0}, {"recovery_action": None})),
    "recovery_advised": Level({"recovery_action": 3}, ({"recovery_action": 0},)),
    "row_remap_failure": Level({"row_remap": RowRemap(failure=True)}, ({"row_remap": RowRemap()},)),
    "row_remap_pending": Level(
        {"row_remap": RowRemap(pending=True)}, ({"row_remap": RowRemap(uncorrected=9, pending=False)},)
    ),
    "memory_unrepairable": Level({"ecc": replace(ECC, unrepairable_memory=True)}),
    "repair_pending": Level({"ecc": replace(ECC, tpc_repair_pending=True)}),
    "ecc_uncorrected": Level({"ecc": counted(uncorrected=1)}, ({"ecc": counted(corrected=10**9)},)),
    "ecc_sram_threshold": Level({"ecc": replace(ECC, sram_threshold_exceeded=True)}),
    "retired_pages_pending": Level({"retired_pages": RetiredPages(single_bit=0, double_bit=1, pending=True)}),
    "retired_pages_limit": Level(
        {"retired_pages": RetiredPages(single_bit=40, double_bit=20, pending=False)},
        ({"retired_pages": RetiredPages(single_bit=40, double_bit=19, pending=False)},),
    ),
    "hw_thermal_slowdown": Level(active("hw_thermal_slowdown"), (active("sw_thermal_slowdown"),)),
    "hw_power_brake": Level(active("hw_power_brake_slowdown"), (active("sw_power_cap"), active("hw_slowdown"))),
    "thermal_margin": Level(
        {"temperature": Temperature(gpu=88.0, margin=0.0)},
        (
            {"temperature": Temperature(gpu=87.0, margin=1.0)},
            {"temperature": Temperature(gpu=35.0, margin=0.0)},  # cannot be true
            {"temperature": Temperature(gpu=88.0)},
        ),
    ),
    "clocks_stuck": Level(
        clocks(0.3e9),
        (
            clocks(0.3e9, utilization=IDLE),
            clocks(0.7e9),
            {**clocks(0.3e9), **active("applications_clocks_setting")},
            clocks(0.3e9, performance_state=8, display_active=True),
            {"clocks": Clocks(sm=0.3e9), "clock_events": ClockEvents(active={"gpu_idle": False})},
        ),
    ),
    "inforom": Level(
        {"errors": {"ecc.enabled": "Corrupted infoROM"}}, ({"errors": {"power.average": "Unknown Error"}},)
    ),
    "mig_pending": Level({"mig_pending": True}, ({"mig_enabled": True, "mig_pending": True},)),
    "zombie_memory": Level(
        ZOMBIE,
        (
            {**ZOMBIE, "memory": Memory(used=500 << 20)},
            {**ZOMBIE, "utilization": Utilization(gpu=0.1)},
            {**ZOMBIE, "processes": None},
            {**ZOMBIE, "mig_enabled": True, "mig_pending": True},
            {**ZOMBIE, "vgpus": (Vgpu(uuid="v", instance=1),)},
        ),
    ),
    "nvlink_down": Level(
        links(True, False),
        (
            links(False, False, remote_pci=None),  # leads nowhere: a board that is bridged in part, or not at all
            links(True, None),
            links(True, True),
            {"nvlinks": ()},
            {**links(False), "mig_enabled": True, "mig_pending": True},
        ),
    ),
    "pcie_degraded": Level(
        {"pcie": replace(PCIE, width=8)},
        (
            {"pcie": replace(PCIE, generation=1), "utilization": IDLE},
            {"pcie": replace(PCIE, width=8), "utilization": Utilization(gpu=0.1)},
            {"pcie": Pcie(generation=3, generation_max=5)},
            {"pcie": replace(PCIE, generation=1), "performance_state": 8, "display_active": True},
        ),
    ),
    "fabric_state": Level(
        {"fabric": Fabric(state=2)},
        (
            {"fabric": Fabric(state=0)},
            {"fabric": Fabric(state=1)},
            {"fabric": Fabric(state=3, status=0, health_mask=0)},
            {"fabric": Fabric()},
        ),
    ),
}
"""Check -> a GPU that has this fault and no other."""

LONG_ENOUGH = 20
"""Looks: more than any check waits for."""


def test_every_name_has_a_row_and_every_row_a_test() -> None:
    assert sorted(CHECK_NAMES) == sorted(CHECK_BY_NAME)
    assert len(CHECKS) == len(CHECK_BY_NAME)
    elsewhere = {"driver_slow", "ecc_correctable_rate", "nvlink_errors", "xid_application_repeated"}
    presence = {check.name for check in CHECKS if check.name.startswith("gpu_")}
    assert {check.name for check in CHECKS if check.gpu} - elsewhere - presence == LEVELS.keys()


def test_what_checks_read_is_read() -> None:
    paths = {path for field in FIELDS for path in field.paths} | {"nvlinks", "processes"}
    totals = {"ecc.counts.uncorrected/volatile/total", "ecc.counts.corrected/volatile/total"}
    assert {path for check in CHECKS for path in check.reads} <= paths | totals


def test_settings_named_by_the_words_exist() -> None:
    settings = {name: getattr(ChecksConfig(), name) for name in ChecksConfig.__struct_fields__}
    assert all(check.finds.format(**settings) for check in CHECKS)


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.name)
def test_no_default_is_stronger_than_what_is_allowed(check: Any) -> None:
    assert check.most.reaches(check.response)
    assert check.action


def test_what_only_applications_or_the_monitor_do_can_never_taint() -> None:
    tame = {
        "monitoring_degraded",
        "gpu_not_allocatable",
        "driver_slow",
        "xid_application",
        "xid_unknown",
        "xid_application_repeated",
    } | {
        "xid_unconfirmed",
        "sxid_unconfirmed",
        "sxid_warning",
    }
    assert {check.name for check in CHECKS if not check.most.reaches(Response.TAINT)} == tame


def test_only_these_taint_by_default() -> None:
    assert {check.name for check in CHECKS if check.response.reaches(Response.TAINT)} == {
        "recovery_action", "xid_fatal", "gpu_lost", "row_remap_failure", "ecc_sram_threshold", "sxid_fatal"
    }  # fmt: skip


def test_a_gpu_that_is_well() -> None:
    judgement = Bench().cycle(times=LONG_ENOUGH)
    assert judgement.findings == ()
    assert judgement.gpus == {"GPU-0": Health.HEALTHY, "GPU-1": Health.HEALTHY}
    assert judgement.node is Health.HEALTHY


@pytest.mark.parametrize("name", LEVELS)
def test_each_finds_its_fault_and_lets_go(name: str) -> None:
    bench, check = Bench(), CHECK_BY_NAME[name]
    bench.cycle()
    bench.hold(pod("train-0")) if name != "zombie_memory" else None
    bench.make(0, **LEVELS[name].sick)
    needed, _ = check.raise_after
    bench.cycle(times=needed - 1)
    assert bench.checks() == set()
    began = bench.now + 2.0
    (finding,) = bench.cycle().findings
    assert (finding.check, finding.gpu, finding.severity) == (name, "GPU-0", check.severity)
    assert (finding.since, finding.last, finding.count) == (began, began, 1)
    assert finding.message
    assert finding.action
    assert finding.evidence.keys() > {"pci"}
    assert [workload.pod for workload in finding.pods] == ([] if name == "zombie_memory" else ["train-0"])
    bench.cycle(times=3)
    assert bench.finding(name).since == began
    bench.make(0)
    bench.cycle(times=check.clear_after - 1)
    assert bench.checks() == {name}
    bench.cycle()
    assert bench.checks() == set()


@pytest.mark.parametrize(
    ("name", "parts"),
    [pytest.param(name, parts, id=f"{name}-{n}") for name, row in LEVELS.items() for n, parts in enumerate(row.near)],
)
def test_near_misses(name: str, parts: dict[str, Any]) -> None:
    bench = Bench()
    bench.make(0, **parts)
    bench.cycle(times=LONG_ENOUGH)
    assert name not in bench.checks()


@pytest.mark.parametrize("name", [n for n in LEVELS if CHECK_BY_NAME[n].raise_after[0] > 1])
def test_a_flicker_is_no_fault(name: str) -> None:
    bench = Bench()
    for _ in range(LONG_ENOUGH):
        bench.make(0, **LEVELS[name].sick)
        bench.cycle()
        bench.make(0)
        bench.cycle(times=CHECK_BY_NAME[name].raise_after[1] - 1)
        assert bench.checks() == set()


@pytest.mark.parametrize("name", [n for n in LEVELS if CHECK_BY_NAME[n].clear_after > 1])
def test_a_fault_that_flickers_stays(name: str) -> None:
    bench = Bench()
    bench.make(0, **LEVELS[name].sick)
    bench.cycle(times=LONG_ENOUGH)
    since = bench.finding(name).since
    for _ in range(5):
        bench.make(0)
        bench.cycle(times=CHECK_BY_NAME[name].clear_after - 1)
        bench.make(0, **LEVELS[name].sick)
        bench.cycle()
        assert bench.finding(name).since == since


@pytest.mark.parametrize("name", [n for n in LEVELS if CHECK_BY_NAME[n].reads])
def test_what_cannot_be_read_neither_begins_nor_ends(name: str) -> None:
    bench, reads = Bench(), CHECK_BY_NAME[name].reads
    bench.make(0, **LEVELS[name].sick)
    bench.cycle(times=LONG_ENOUGH)
    bench.make(0, errors={reads[0]: "Unknown Error"})
    bench.cycle(times=LONG_ENOUGH)
    assert name in bench.checks()
    fresh = Bench()
    fresh.make(0, **LEVELS[name].sick, errors={reads[0]: "Unknown Error"})
    fresh.cycle(times=LONG_ENOUGH)
    assert name not in fresh.checks()


@pytest.mark.parametrize("name", LEVELS)
def test_a_gpu_that_is_not_fresh_keeps_its_faults(name: str) -> None:
    bench = Bench()
    bench.make(0, **LEVELS[name].sick)
    bench.cycle(times=LONG_ENOUGH)
    bench.states[0] = GpuState.UNKNOWN
    bench.cycle(times=LONG_ENOUGH)
    assert bench.checks() == {name}
    bench.make(0)
    bench.states[0] = GpuState.FRESH
    bench.cycle(times=LONG_ENOUGH)
    assert bench.checks() == set()


@pytest.mark.parametrize("name", LEVELS)
def test_a_restart_forgets_no_fault_and_ends_it_when_it_is_seen_to_be_gone(name: str) -> None:
    bench = Bench()
    bench.make(0, **LEVELS[name].sick)
    bench.cycle(times=LONG_ENOUGH)
    before = bench.finding(name)
    bench.restart()
    bench.states[0] = GpuState.UNKNOWN
    bench.cycle(times=3)
    assert bench.last.findings == (before,)
    bench.states[0] = GpuState.FRESH
    bench.cycle()
    assert (bench.finding(name).since, bench.finding(name).last) == (before.since, before.last)
    bench.make(0)
    bench.cycle(times=CHECK_BY_NAME[name].clear_after)
    assert bench.checks() == set()


@pytest.mark.parametrize("name", LEVELS)
def test_one_switched_off_finds_nothing(name: str) -> None:
    bench = Bench(ignore=(name,))
    bench.make(0, **LEVELS[name].sick)
    bench.cycle(times=LONG_ENOUGH)
    assert name not in bench.checks()
    assert bench.last.ignored == (name,)


@pytest.mark.parametrize("name", LEVELS)
def test_a_single_sample_does_not_wait(name: str) -> None:
    from gpuwatch.health.judge import Judge

    bench = Bench()
    bench.judge = Judge(hysteresis=False)
    bench.make(0, **LEVELS[name].sick)
    bench.cycle()
    assert bench.checks() == {name}


# ---- the driver's verdict


@pytest.mark.parametrize(
    ("action", "check", "remedy"),
    [
        (1, "recovery_action", Remedy.RESET_GPU),
        (2, "recovery_action", Remedy.REBOOT_NODE),
        (3, "recovery_advised", Remedy.RESTART_APP),
        (4, "recovery_action", Remedy.RESET_GPU),
        (5, "recovery_advised", Remedy.INSPECT),
        (6, "recovery_action", Remedy.RESET_GPU),
        (7, "recovery_action", Remedy.REBOOT_NODE),
        (42, "recovery_advised", Remedy.INSPECT),
    ],
)
def test_recovery_actions(action: int, check: str, remedy: Remedy) -> None:
    bench = Bench()
    bench.make(0, recovery_action=action)
    (finding,) = bench.cycle().findings
    assert (finding.check, finding.remedy) == (check, remedy)
    assert finding.evidence["recovery_action"] == str(action)


@pytest.mark.parametrize(("margin", "words"), [(2.0, "2 °C below"), (0.0, "at its"), (-6.0, "6 °C above")])
def test_how_hot_it_is(margin: float, words: str) -> None:
    bench = Bench(thermal_margin=2.0)
    bench.make(0, temperature=Temperature(gpu=90.0, margin=margin))
    bench.cycle(times=10)
    assert words in bench.finding("thermal_margin").message


def test_a_graver_demand_is_news() -> None:
    bench = Bench()
    bench.make(0, recovery_action=1)
    first = bench.cycle().findings[0]
    bench.make(0, recovery_action=2)
    second = bench.cycle().findings[0]
    assert second.since == first.since
    assert second.last is not None
    assert first.last is not None
    assert second.last > first.last


def test_more_errors_are_news_and_the_same_ones_are_not() -> None:
    bench = Bench()
    lasts = []
    for count in (3, 3, 4, 4):
        bench.make(0, ecc=counted(uncorrected=count))
        lasts.append(bench.cycle().findings[0].last)
    assert lasts[0] == lasts[1] < lasts[2] == lasts[3]


# ---- rates


@pytest.mark.parametrize(("amount", "found"), [(999, False), (1000, True)])
def test_corrected_errors_within_an_hour(amount: int, found: bool) -> None:
    bench = Bench()
    bench.make(0, ecc=counted(corrected=10**6))  # what was there before counts nothing
    bench.cycle()
    bench.make(0, ecc=counted(corrected=10**6 + amount))
    bench.cycle()
    assert bench.checks() == ({"ecc_correctable_rate"} if found else set())
    bench.pass_time(3700)
    assert bench.checks() == set()


def test_a_slow_trickle_of_corrected_errors_is_no_fault() -> None:
    bench = Bench()
    for count in range(1500):
        bench.make(0, ecc=counted(corrected=count))
        bench.cycle(seconds=6.0)
        assert bench.checks() == set()


@pytest.mark.parametrize(("kind", "found"), [("replay", True), ("crc", True), ("symbol", False)])
def test_link_errors_within_an_hour(kind: str, found: bool) -> None:
    bench = Bench()
    bench.make(0, **links(True, errors={kind: 10}))
    bench.cycle()
    bench.make(0, **links(True, errors={kind: 1010}))
    bench.cycle()
    assert bench.checks() == ({"nvlink_errors"} if found else set())


def test_a_counter_that_starts_over_has_not_grown() -> None:
    bench = Bench()
    for corrected in (10**6, 0, 10**3 - 1):
        bench.make(0, ecc=counted(corrected=corrected))
        bench.cycle()
    assert bench.checks() == set()


# ---- fabric


@pytest.mark.parametrize(
    ("fabric", "words"),
    [
        (Fabric(state=3, status=999), "failed"),
        (Fabric(state=3, status=0, health_mask=0x1A9), "degraded bandwidth"),
        (Fabric(state=3, status=0, health_mask=0x19A), "unhealthy route"),
        (Fabric(state=3, status=0, health_mask=0x5AA), "incorrect configuration"),
    ],
)
def test_fabrics_that_are_unwell(fabric: Fabric, words: str) -> None:
    bench = Bench()
    bench.make(0, fabric=fabric)
    bench.cycle(times=LONG_ENOUGH)
    assert words in bench.finding("fabric_state").message


def test_a_link_to_a_gpu_that_is_gone_is_that_gpus_trouble() -> None:
    bench = Bench(0, 1)
    bench.cycle()
    bench.states[1] = GpuState.LOST
    bench.make(0, **links(True, False, remote_pci=identity(1).pci_bus_id))
    bench.cycle(times=LONG_ENOUGH)
    assert bench.checks() == {"gpu_lost"}
    bench.states[1] = GpuState.FRESH
    bench.cycle(times=LONG_ENOUGH)
    assert bench.checks() == {"nvlink_down"}


# ---- who is there


@pytest.mark.parametrize(("state", "check"), [(GpuState.LOST, "gpu_lost"), (GpuState.UNRESPONSIVE, "gpu_unresponsive")])
def test_presence(state: GpuState, check: str) -> None:
    bench = Bench(0, 1)
    bench.hold(pod("train-0"))
    bench.cycle()
    bench.states[0] = state
    bench.cycle()
    if state is GpuState.UNRESPONSIVE:
        bench.pass_time(bench.config.unresponsive_after)
    assert bench.checks() == {check}
    assert bench.finding(check).message == "why"
    assert [workload.pod for workload in bench.finding(check).pods] == ["train-0"]
    assert bench.last.gpus == {"GPU-0": Health.FAILED, "GPU-1": Health.HEALTHY}
    bench.restart()
    bench.states[0] = GpuState.UNKNOWN  # no news about the GPU
    bench.cycle(times=5)
    assert bench.checks() == {check}
    bench.states[0] = GpuState.FRESH
    bench.cycle(times=CHECK_BY_NAME[check].clear_after)
    assert bench.checks() == set()


def test_a_reader_that_stops_leaves_a_gpu_unknown_not_unresponsive() -> None:
    bench = Bench()
    bench.cycle()
    for state, found in ((GpuState.UNRESPONSIVE, {"gpu_unresponsive"}), (GpuState.UNKNOWN, set())):
        bench.states[0] = state
        bench.pass_time(bench.config.unresponsive_after)
        assert bench.checks() == found
    assert bench.last.gpus["GPU-0"] is Health.UNKNOWN


def test_a_driver_that_is_busy_for_a_while_does_not_hang() -> None:
    """One RM lock serves all calls: a reset, an RPC that times out or a big job's start keeps all GPUs waiting."""
    bench = Bench(0, 1)
    for _ in range(10):
        bench.states = dict.fromkeys(bench.states, GpuState.UNRESPONSIVE)
        bench.cycle(times=int(bench.config.unresponsive_after / INTERVAL) - 1)
        assert bench.checks() == set()
        assert bench.last.gpus["GPU-0"] is Health.UNKNOWN
        bench.states = dict.fromkeys(bench.states, GpuState.FRESH)
        bench.cycle()


def test_a_gpu_nobody_reads_is_no_finding() -> None:
    bench = Bench()
    bench.states[0] = GpuState.UNKNOWN
    bench.cycle(times=5)
    assert bench.checks() == set()
    assert bench.last.gpus["GPU-0"] is Health.UNKNOWN


def test_the_driver_hangs_as_a_whole() -> None:
    bench = Bench(0, 1, 2)
    bench.cycle()
    bench.states = dict.fromkeys(bench.states, GpuState.UNRESPONSIVE)
    bench.pass_time(bench.config.unresponsive_after)
    assert bench.checks() == {"gpu_unresponsive", "driver_wedged"}
    assert bench.finding("driver_wedged").gpu is None
    bench.states[1] = GpuState.FRESH
    bench.cycle()
    assert "driver_wedged" not in bench.checks()


@pytest.mark.parametrize(
    "states",
    [
        (GpuState.UNRESPONSIVE,),  # a single GPU says so itself
        (GpuState.UNRESPONSIVE, GpuState.FRESH),
        (GpuState.UNRESPONSIVE, GpuState.UNKNOWN),
        (GpuState.UNKNOWN, GpuState.UNKNOWN),
    ],
)
def test_the_driver_does_not_hang(states: tuple[GpuState, ...]) -> None:
    bench = Bench(*range(len(states)))
    bench.states = dict(enumerate(states))
    bench.pass_time(2 * bench.config.unresponsive_after)
    assert "driver_wedged" not in bench.checks()


BUS = ("0000:01:00.0", "0000:02:00.0")


def test_missing_from_nvml() -> None:
    bench = Bench(0)
    bench.node |= {"bus": BUS, "unanswered": {1: "GPU is lost"}}
    (finding,) = bench.cycle().findings
    assert (finding.check, finding.gpu, finding.severity) == ("gpu_missing", None, Severity.CRITICAL)
    assert "0000:02:00.0" in finding.message
    assert "index 1: GPU is lost" in finding.message
    assert finding.evidence.keys() == {"0000:02:00.0", "nvml"}
    assert bench.last.gpus == {"GPU-0": Health.HEALTHY}
    bench.node |= {"bus": None, "unanswered": {}}  # a reader that begins anew has not shown all GPUs yet
    bench.cycle(times=3)
    assert bench.checks() == {"gpu_missing"}
    bench.node["bus"] = BUS[:1]
    bench.cycle()
    assert bench.checks() == set()


def test_fewer_than_expected() -> None:
    bench = Bench(0)
    bench.node |= {"bus": BUS[:1], "expected_gpus": 8}
    assert [finding.message for finding in bench.cycle().findings] == ["1 of 8 expected GPUs are there"]
    assert bench.last.node is Health.FAILED


def test_one_more_on_the_bus_than_expected_is_not_missed() -> None:
    bench = Bench(0, 1)
    bench.node |= {"bus": (*BUS, "0000:09:00.0"), "expected_gpus": 2}
    bench.cycle(times=3)
    assert bench.checks() == set()
    bench.node |= {"expected_gpus": 3}
    bench.cycle()
    assert "0000:09:00.0" in bench.finding("gpu_missing").message


def test_one_that_nvml_counts_and_cannot_show_needs_no_bus() -> None:
    bench = Bench(0)
    bench.node["unanswered"] = {1: "GPU is lost"}
    assert "does not answer (index 1: GPU is lost)" in bench.cycle().findings[0].message


@pytest.mark.parametrize(
    "node",
    [
        {"sources": (SourceStatus(name="nvml", up=True, reason="index 1: Insufficient Permissions"),)},
        {"sources": (SourceStatus(name="nvml", up=False, reason="x"),), "bus": BUS, "expected_gpus": 8},
        {"bus": None},
        {"bus": BUS[:1], "expected_gpus": 1},
    ],
    ids=["a reason", "nobody reads", "no bus", "all there"],
)
def test_none_is_missing(node: dict[str, Any]) -> None:
    bench = Bench(0)
    bench.node |= node
    bench.cycle(times=3)
    assert "gpu_missing" not in bench.checks()


def test_one_that_vanished_is_lost_and_not_missing_as_well() -> None:
    bench = Bench(0)
    bench.states[0] = GpuState.LOST
    bench.node |= {"bus": BUS[:1], "expected_gpus": 1}
    bench.cycle()
    assert bench.checks() == {"gpu_lost"}


@pytest.mark.parametrize(("seconds", "found"), [(None, False), (30.0, False), (60.0, True)])
def test_a_driver_that_lets_no_reader_in(seconds: float | None, found: bool) -> None:
    bench = Bench()
    bench.states = dict.fromkeys(bench.states, GpuState.UNKNOWN)
    starting = SourceStatus(name="nvml", up=False, reason="starting: nvmlInit", hanging_seconds=seconds)
    bench.node["sources"] = (starting,)
    bench.cycle()
    assert ("driver_wedged" in bench.checks()) is found
    bench.states[0] = GpuState.FRESH
    bench.node["sources"] = (NVML,)
    bench.cycle()
    assert bench.checks() == set()


# ---- after a boot


SLOW_STARTERS = [check.name for check in CHECKS if check.boot_grace]


def not_up_yet(uptime: float) -> Bench:
    bench = Bench(0, 1, uptime=uptime)
    bench.node |= {"bus": (*BUS, "0000:09:00.0")}
    bench.make(0, **LEVELS["nvlink_down"].sick, **LEVELS["fabric_state"].sick)
    return bench


def test_some_checks_wait_after_a_boot() -> None:
    bench = not_up_yet(uptime=20.0)
    bench.cycle(times=LONG_ENOUGH)
    assert bench.checks() == set()
    bench.pass_time(120.0)
    assert bench.checks() == set(SLOW_STARTERS) - {"driver_wedged"}


def test_they_wait_after_a_reset_too() -> None:
    """`nvidia-smi -r` of one GPU, or a reload of the same driver: links and fabric come up anew."""
    bench = Bench(0, 1)
    bench.cycle(times=3)
    bench.energy[0] = 0.0
    bench.make(0, **LEVELS["nvlink_down"].sick, **LEVELS["fabric_state"].sick)
    bench.cycle(times=LONG_ENOUGH)
    assert bench.checks() == set()
    bench.pass_time(240.0)
    assert bench.checks() == {"nvlink_down", "fabric_state"}


def test_they_wait_after_a_new_driver_too_but_end_nothing() -> None:
    bench = not_up_yet(uptime=1e6)
    bench.cycle(times=LONG_ENOUGH)
    found = bench.checks()
    assert found == set(SLOW_STARTERS) - {"driver_wedged"}
    fresh = Bench(0, 1)
    fresh.cycle()
    fresh.node |= {"driver": replace(fresh.node["driver"], version="590.1"), "bus": (*BUS, "0000:09:00.0")}
    fresh.cycle(times=5)
    assert fresh.checks() == set()
    bench.node["driver"] = replace(bench.node["driver"], version="590.1")
    bench.cycle(times=5)
    assert bench.checks() == found


def test_a_driver_that_hangs_after_a_boot_is_given_time() -> None:
    bench = Bench(0, 1, uptime=0.0)
    bench.states = dict.fromkeys(bench.states, GpuState.UNRESPONSIVE)
    bench.pass_time(bench.config.unresponsive_after)
    assert bench.checks() == {"gpu_unresponsive"}
    bench.pass_time(120.0)
    assert bench.checks() == {"gpu_unresponsive", "driver_wedged"}


# ---- the monitor's own trouble


def test_a_monitor_that_fails_faults_no_gpu() -> None:
    bench = Bench()
    down = SourceStatus(name="nvml", up=False, reason="the reader process was ended by SIGSEGV", last_success=90.0)
    bench.node |= {"sources": (down,), "bus": BUS, "expected_gpus": 8}
    bench.states = dict.fromkeys(bench.states, GpuState.UNKNOWN)
    bench.cycle(times=5)
    assert bench.checks() == {"monitoring_degraded"}
    assert set(bench.last.gpus.values()) == {Health.UNKNOWN}
    assert bench.last.node is Health.UNKNOWN
    assert bench.finding("monitoring_degraded").gpu is None


def test_a_gpu_that_is_well_and_that_the_device_plugin_counts_out_is_a_finding() -> None:
    bench = Bench()
    bench.attribution = Attribution(withheld=("GPU-1",))
    bench.cycle(times=9)
    assert bench.checks() == set()  # the plugin may just have been restarted
    bench.cycle()
    assert bench.finding("gpu_not_allocatable").gpu == "GPU-1"
    assert bench.last.gpus == {"GPU-0": Health.HEALTHY, "GPU-1": Health.DEGRADED}
    bench.attribution = Attribution()  # the kubelet does not answer
    bench.cycle(times=3)
    assert bench.checks() == {"gpu_not_allocatable"}
    bench.attribution = Attribution(withheld=())
    bench.cycle()
    assert bench.checks() == set()


def test_a_gpu_that_is_sick_is_rightly_counted_out() -> None:
    bench = Bench()
    bench.make(1, recovery_action=1)
    bench.attribution = Attribution(withheld=("GPU-1",))
    bench.cycle(times=20)
    assert bench.checks() == {"recovery_action"}
    bench.make(1)
    bench.cycle(times=20)
    assert bench.checks() == {"gpu_not_allocatable"}


def test_all_sources_that_fail_are_one_finding() -> None:
    bench = Bench()
    bench.node["sources"] = (NVML, *(SourceStatus(name=n, up=False, reason="refused") for n in ("kmsg", "procfs")))
    (finding,) = bench.cycle().findings
    assert finding.message == "kmsg: refused; procfs: refused"
    assert finding.evidence == {"kmsg": "refused", "procfs": "refused"}
    assert bench.last.gpus["GPU-0"] is Health.HEALTHY
    assert bench.last.node is Health.DEGRADED


def test_a_source_that_is_off_is_no_trouble() -> None:
    bench = Bench()
    bench.node["sources"] = (NVML, SourceStatus(name="podresources", up=None, reason="no kubelet on this machine"))
    assert bench.cycle().findings == ()


def test_a_restart_does_not_remember_the_monitors_trouble() -> None:
    bench = Bench()
    bench.node["sources"] = (NVML, SourceStatus(name="kmsg", up=False, reason="refused"))
    bench.cycle()
    bench.restart(sources=(NVML,))
    bench.judge.judge(bench.snapshot())
    assert bench.cycle().findings == ()


def test_xid_classes_are_those_of_the_configuration() -> None:
    from gpuwatch.health.xid.classify import CHECK_OF

    assert {*CHECK_OF, "ignore"} == {*get_args(XidClass), "unknown"}
