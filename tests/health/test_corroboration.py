"""A line of the kernel log becomes a fault when the driver confirms it: each way of each code, its bound, a restart."""

from typing import Any

import pytest
from msgspec.structs import replace

from gpuwatch.health.checks import CHECK_BY_NAME
from gpuwatch.health.corroboration import STATES, UNCONFIRMED
from gpuwatch.health.xid.classify import CHECK_OF, classify
from gpuwatch.model.finding import UNCONFIRMED_CHECKS, Health, Remedy, Response, Severity
from gpuwatch.model.snapshot import ClockEvents, Fabric, GpuState, NvLink, RetiredPages, RowRemap, SourceStatus
from gpuwatch.model.xid import BusLossEvent, NvLinkError, SxidEvent, XidEvent
from gpuwatch.model.xid_catalogue import Confirmation, all_xids, catalogue
from tests.health.judging import NVML, WELL, Bench, pci, pod
from tests.seeds import a_third

CAN_ACT = [info for info in all_xids() if info.taint or info.decided_by or info.code in (63, 94, 160)]

STATE_OF: dict[Confirmation, dict[str, Any]] = {
    "recovery_action": {"recovery_action": 1},
    "ecc": {"ecc": replace(WELL["ecc"], counts={**WELL["ecc"].counts, "uncorrected/volatile/total": 1})},
    "remap": {"row_remap": RowRemap(corrected=0, uncorrected=1, pending=True, failure=False)},
    "retired_pages": {"retired_pages": RetiredPages(single_bit=0, double_bit=1, pending=True)},
    "nvlink": {"nvlinks": (NvLink(link=0, active=False, remote_pci="00000000:C0:00.0"),)},
    "fabric": {"fabric": Fabric(state=2, status=0, health_mask=0x1AA)},
    "power": {"clock_events": ClockEvents(active={"hw_power_brake_slowdown": True})},
}
CYCLES = 20
"""So many looks is the slowest of these checks sure within the bound."""


def line(bench: Bench, xid: int = 79, gpu: int = 0, **parts: Any) -> XidEvent:
    """A line of the kernel log without anything of the driver."""
    fatal = {"nvlink": NvLinkError(unit="RLW", severity="fatal")} if 144 <= xid <= 150 else {}
    return bench.xid(xid, gpu, source="kernel", **{**fatal, **({"recovery": 1} if xid == 154 else {}), **parts})


def sxid(bench: Bench) -> SxidEvent:
    return SxidEvent(at=bench.now + 1.0, sxid=20034, switch=1, severity="fatal", link=48, message="LTSSM Fault Up")


def confirm(bench: Bench, way: Confirmation) -> None:
    """From now on the driver shows GPU 0 so."""
    if way == "lost":
        bench.states[0] = GpuState.LOST
    elif way == "silence":
        bench.states[0] = GpuState.UNRESPONSIVE
    else:
        bench.make(0, **STATE_OF[way])


@pytest.mark.parametrize("info", all_xids(), ids=lambda info: str(info.code))
def test_every_code_that_can_act_says_what_confirms_it(info: Any) -> None:
    """Also codes that `checks.xids` makes fatal: all need the event at least."""
    assert info.confirmed_by[0] == "event"
    assert set(info.confirmed_by) <= {"event", *STATES}
    assert "recovery_action" in info.confirmed_by or info not in CAN_ACT or info.code in (63, 64)


def test_every_check_of_events_that_can_act_needs_confirmation() -> None:
    for check in (*CHECK_OF.values(), "sxid_fatal", "sxid_warning"):
        assert check in UNCONFIRMED or not CHECK_BY_NAME[check].most.reaches(Response.CONDITION)
    for check in UNCONFIRMED_CHECKS:
        assert (CHECK_BY_NAME[check].most, CHECK_BY_NAME[check].ends) == (Response.OBSERVE, "time")


@pytest.mark.parametrize("info", a_third(CAN_ACT), ids=lambda info: str(info.code))
def test_a_line_alone_is_unconfirmed_and_passes(info: Any) -> None:
    bench = Bench()
    bench.cycle(line(bench, info.code))
    finding = bench.finding("xid_unconfirmed")
    assert (finding.xid, finding.remedy) == (info.code, Remedy.INSPECT)
    assert finding.severity is not Severity.CRITICAL
    assert finding.message.endswith("; reported by the kernel log only")
    assert bench.last.gpus["GPU-0"] is Health.HEALTHY
    bench.pass_time(3700.0)
    assert bench.last.findings == ()


@pytest.mark.parametrize(
    ("xid", "way"), [(info.code, way) for info in CAN_ACT for way in info.confirmed_by if way != "event"]
)
def test_a_state_of_the_driver_confirms(xid: int, way: Confirmation) -> None:
    bench = Bench()
    event = line(bench, xid)
    bench.cycle(event)
    assert "xid_unconfirmed" in bench.checks()
    confirm(bench, way)
    bench.cycle(times=CYCLES)
    check = CHECK_OF[classify(event, {}) or "unknown"]
    found = bench.finding(check)
    assert (found.xid, found.count) == (xid, 1)
    assert found.evidence["confirmed_by"].split(":")[0] in STATES[way]
    assert "kernel log only" not in found.message
    assert "xid_unconfirmed" not in bench.checks()
    if check == "xid_fatal":
        assert found.severity is Severity.CRITICAL
        assert found.remedy not in (Remedy.NONE, Remedy.RESTART_APP)


@pytest.mark.parametrize("info", CAN_ACT, ids=lambda info: str(info.code))
def test_the_event_confirms_before_and_after_the_line(info: Any) -> None:
    for first in ("nvml", "kernel"):
        bench = Bench()
        event = line(bench, info.code)
        alone = replace(event, source=first, **({"message": None} if first == "nvml" else {}))
        bench.cycle(alone, seconds=0.01)
        bench.cycle(replace(event, source=first, also="kernel" if first == "nvml" else "nvml"), seconds=0.01)
        (found,) = bench.last.findings
        assert (found.check, found.count) == (CHECK_OF[classify(event, {}) or "unknown"], 1)


def test_other_states_and_other_gpus_confirm_nothing() -> None:
    for way in ("remap", "ecc", "nvlink", "power"):
        bench = Bench()
        bench.cycle(line(bench, 79))
        confirm(bench, way)  # type: ignore[arg-type]
        bench.cycle(times=CYCLES)
        assert "xid_fatal" not in bench.checks()
    bench = Bench()
    bench.cycle(line(bench, 79, gpu=1))
    confirm(bench, "recovery_action")
    bench.cycle(times=CYCLES)
    assert "xid_fatal" not in bench.checks()


def test_the_driver_may_be_first_but_not_long_before() -> None:
    bench = Bench()
    confirm(bench, "ecc")
    bench.cycle(times=3)
    bench.cycle(line(bench, 48))
    assert "xid_fatal" in bench.checks()
    old = Bench()
    confirm(old, "ecc")
    old.pass_time(200.0)
    old.cycle(line(old, 48))
    old.cycle(times=CYCLES)
    assert "xid_fatal" not in old.checks()


def test_a_state_that_comes_too_late_confirms_nothing() -> None:
    bench = Bench(xid_confirm_within=30.0)
    bench.cycle(line(bench, 48))
    bench.pass_time(40.0)
    confirm(bench, "ecc")
    bench.cycle(times=CYCLES)
    assert bench.checks() == {"xid_unconfirmed", "ecc_uncorrected"}


@pytest.mark.parametrize("seconds", [10.0, 400.0])
def test_a_restart_keeps_the_line_and_its_bound(seconds: float) -> None:
    bench = Bench()
    bench.cycle(line(bench, 79), line(bench, 79, gpu=1))
    bench.now += seconds
    bench.restart()
    confirm(bench, "recovery_action")
    bench.cycle(times=2)
    assert ("xid_fatal" in bench.checks()) is (seconds < 120.0)
    bench.restart()
    bench.cycle()
    assert ("xid_fatal" in bench.checks()) is (seconds < 120.0)


def test_lines_of_a_storm_become_one_fault_with_their_count() -> None:
    bench = Bench()
    lines = [replace(line(bench, 94), at=bench.now + number / 100) for number in range(5)]
    bench.cycle(*lines)
    assert bench.finding("xid_unconfirmed").count == 5
    bench.cycle(*(replace(each, also="nvml") for each in lines[:3]))
    assert (bench.finding("xid_contained").count, bench.finding("xid_unconfirmed").count) == (3, 2)
    confirm(bench, "remap")
    bench.cycle()
    assert bench.finding("xid_contained").count == 5
    bench.cycle(*(replace(each, also="nvml") for each in lines[3:]))
    assert bench.finding("xid_contained").count == 5


@pytest.mark.parametrize(
    ("node", "state", "reason"),
    [
        ({"sources": ()}, GpuState.FRESH, "NVML is not read"),
        ({"sources": (SourceStatus(name="nvml", up=False, reason="the reader is starting"),)}, None, "the reader is"),
        ({"sources": (NVML,)}, GpuState.UNKNOWN, "why"),
    ],
)
def test_an_unknown_driver_confirms_nothing_and_the_finding_reports_it(
    node: dict[str, Any], state: GpuState | None, reason: str
) -> None:
    bench = Bench()
    bench.cycle()
    bench.node |= node
    bench.states[0] = state or GpuState.UNKNOWN
    bench.cycle(line(bench, 119))
    bench.cycle(times=CYCLES)
    assert f"the driver could not be asked: {reason}" in bench.finding("xid_unconfirmed").message
    assert "xid_fatal" not in bench.checks()


def test_a_driver_that_does_not_start_is_silent() -> None:
    bench = Bench()
    bench.cycle()
    bench.node["sources"] = (SourceStatus(name="nvml", up=False, reason="nvmlInit", hanging_seconds=61.0),)
    bench.states = dict.fromkeys(bench.indices, GpuState.UNKNOWN)
    bench.cycle(line(bench, 119))
    assert bench.finding("xid_fatal").evidence["confirmed_by"].startswith("driver_wedged")


def test_a_gpu_that_nvml_does_not_show_is_missing() -> None:
    bench = Bench()
    bench.node["bus"] = (pci(0), pci(1), pci(5))
    bench.cycle(XidEvent(at=bench.now, xid=79, source="kernel", pci=pci(5), message="fallen off the bus"))
    assert (bench.finding("xid_fatal").gpu, bench.finding("xid_fatal").xid) == (None, 79)


@pytest.mark.parametrize("way", catalogue().sxids_confirmed_by)
def test_a_gpu_behind_the_switch_confirms_an_sxid(way: Confirmation) -> None:
    bench = Bench()
    bench.cycle(sxid(bench))
    assert bench.checks() == {"sxid_unconfirmed"}
    confirm(bench, way)
    bench.cycle(times=CYCLES)
    assert bench.finding("sxid_fatal").remedy is not Remedy.INSPECT
    bench.make(0)
    bench.states[0] = GpuState.FRESH
    bench.pass_time(4000.0)
    assert "sxid_fatal" in bench.checks()  # a real one waits for evidence of a repair


def test_an_nvlink_xid_of_the_driver_confirms_an_sxid() -> None:
    bench = Bench()
    bench.cycle(sxid(bench), line(bench, 74))
    assert bench.checks() == {"sxid_unconfirmed", "xid_unconfirmed"}  # two lines do not confirm each other
    bench.cycle(bench.xid(74, gpu=1))
    assert {"sxid_fatal", "xid_fatal"} <= bench.checks()


def test_a_line_about_a_lost_gpu_counts_only_while_it_is_silent() -> None:
    bench = Bench()
    bench.cycle()
    bench.cycle(BusLossEvent(at=bench.now, pci=pci(), uuid="GPU-0", message="GPU has fallen off the bus."))
    assert bench.checks() == set()
    bench.cycle(times=3)
    assert bench.checks() == set()


def test_lines_alone_fault_no_gpu_for_its_pods_and_no_inforom() -> None:
    bench = Bench()
    for number in range(5):
        bench.hold(pod(f"job-{number}"))
        bench.cycle(line(bench, 31), line(bench, 125))
    assert {"xid_application_repeated", "inforom"}.isdisjoint(bench.checks())


def test_a_switched_off_check_hides_and_does_not_confirm() -> None:
    bench = Bench(ignore=("xid_unconfirmed", "ecc_uncorrected"))
    bench.cycle(line(bench, 48))
    assert bench.checks() == set()
    confirm(bench, "ecc")
    bench.cycle(times=3)
    assert bench.checks() == set()
    bench.cycle(line(bench, 95))
    confirm(bench, "recovery_action")
    bench.cycle(times=2)
    assert {"xid_fatal", "recovery_action"} == bench.checks()
