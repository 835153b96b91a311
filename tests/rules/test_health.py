"""CHECKS and health: what is wrong with a GPU, what is wrong with the monitor, and never the one for the other."""

from typing import Any

import pytest

from gpuwatch.model.finding import Health, Judgement, Severity
from gpuwatch.model.snapshot import (
    ClockEvents,
    Ecc,
    Gpu,
    GpuState,
    GpuStatus,
    Identity,
    NvLink,
    RowRemap,
    Snapshot,
    SourceStatus,
)
from gpuwatch.rules.health import CHECKS, JUDGED, RECOVERY_ACTIONS, judge
from gpuwatch.sources.nvml_fields import FIELDS

NVML = SourceStatus(name="nvml", up=True)


def identity(index: int = 0) -> Identity:
    return Identity(index=index, uuid=f"GPU-{index}", pci_bus_id=f"00000000:{index + 1:02X}:00.0")


def status(state: GpuState = GpuState.FRESH, index: int = 0, detail: str = "") -> GpuStatus:
    return GpuStatus(identity=identity(index), state=state, detail=detail, since=5.0)


def snapshot(gpu: Gpu | None = None, **parts: Any) -> Snapshot:
    known: dict[str, Any] = {"gpus": () if gpu is None else (gpu,), "statuses": (status(),), "sources": (NVML,)}
    return Snapshot(**{"at": 100.0, "interval": 2.0, **known, **parts})


def checks(judgement: Judgement) -> set[str]:
    return {finding.check for finding in judgement.findings}


SICK: dict[str, dict[str, Any]] = {
    "recovery_action": {"recovery_action": 1},
    "row_remap_failure": {"row_remap": RowRemap(failure=True)},
    "row_remap_pending": {"row_remap": RowRemap(pending=True)},
    "ecc_uncorrected": {"ecc": Ecc(counts={"uncorrected/volatile/total": 3})},
    "hw_thermal_slowdown": {"clock_events": ClockEvents(active={"hw_thermal_slowdown": True})},
    "hw_power_brake": {"clock_events": ClockEvents(active={"hw_power_brake_slowdown": True})},
    "nvlink_down": {
        "nvlinks": (NvLink(link=0, active=True), NvLink(link=1, active=False, remote_pci="00000000:C0:00.0"))
    },
}
"""Check -> a GPU that has this fault and no other."""


def test_a_healthy_gpu() -> None:
    judgement = judge(snapshot(Gpu(identity=identity())))
    assert judgement == Judgement(node=Health.HEALTHY, gpus={"GPU-0": Health.HEALTHY})


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.name)
def test_every_check_finds_its_fault_and_no_other_does(check: Any) -> None:
    judgement = judge(snapshot(Gpu(identity=identity(), at=99.0, **SICK[check.name])))
    (finding,) = judgement.findings
    assert (finding.check, finding.severity, finding.gpu, finding.since) == (check.name, check.severity, "GPU-0", 99.0)
    assert finding.message
    assert finding.action
    health = Health.FAILED if check.severity is Severity.CRITICAL else Health.DEGRADED
    assert judgement.gpus == {"GPU-0": health}
    assert judgement.node is health


@pytest.mark.parametrize("action", RECOVERY_ACTIONS)
def test_recovery_actions_in_words(action: int) -> None:
    (finding,) = judge(snapshot(Gpu(identity=identity(), recovery_action=action))).findings
    assert RECOVERY_ACTIONS[action] in finding.message


def test_a_recovery_action_nobody_knows_is_still_one() -> None:
    judgement = judge(snapshot(Gpu(identity=identity(), recovery_action=42)))
    assert "42" in judgement.findings[0].message
    assert judgement.gpus["GPU-0"] is Health.FAILED


def test_what_is_not_supported_is_no_fault() -> None:
    gpu = Gpu(identity=identity(), unsupported=("recovery_action", "row_remap.pending", "ecc.enabled"))
    assert judge(snapshot(gpu)).gpus["GPU-0"] is Health.HEALTHY


@pytest.mark.parametrize("links", [(False, False), (True, False), (True, True), (None, True), ()])
def test_links_that_are_no_fault(links: tuple[bool | None, ...]) -> None:
    """Down and without a far end: a board that is bridged in part, or not at all."""
    nvlinks = tuple(NvLink(link=number, active=active) for number, active in enumerate(links))
    assert judge(snapshot(Gpu(identity=identity(), nvlinks=nvlinks))).findings == ()


def test_a_link_that_carried_data_led_somewhere() -> None:
    gpu = Gpu(identity=identity(), nvlinks=(NvLink(link=3, active=False, transmit_bytes=4096),))
    (finding,) = judge(snapshot(gpu)).findings
    assert (finding.check, finding.message) == ("nvlink_down", "NVLink 3 down")


def test_links_rest_while_mig_is_on() -> None:
    gpu = Gpu(identity=identity(), mig_enabled=True, **SICK["nvlink_down"])
    assert judge(snapshot(gpu)).findings == ()


# ---- what could not be read


@pytest.mark.parametrize("path", ["recovery_action", "row_remap.failure", "ecc.counts.uncorrected/volatile/total"])
def test_what_is_judged_and_cannot_be_read_is_unknown(path: str) -> None:
    judgement = judge(snapshot(Gpu(identity=identity(), errors={path: "Unknown Error"})))
    assert judgement.gpus["GPU-0"] is Health.UNKNOWN
    assert judgement.node is Health.UNKNOWN


def test_another_fault_weighs_more_than_what_cannot_be_read() -> None:
    gpu = Gpu(identity=identity(), errors={"row_remap.failure": "Unknown Error"}, recovery_action=1)
    assert judge(snapshot(gpu)).gpus["GPU-0"] is Health.FAILED


def test_a_reading_that_is_not_judged_may_fail() -> None:
    gpu = Gpu(identity=identity(), errors={"power.average": "Unknown Error", "activity": "Insufficient Permissions"})
    assert judge(snapshot(gpu)).gpus["GPU-0"] is Health.HEALTHY


def test_what_is_judged_is_read() -> None:
    paths = {path for field in FIELDS for path in field.paths}
    assert all(any(path.startswith(beginning) for path in paths) for beginning in JUDGED)


# ---- presence


@pytest.mark.parametrize(
    ("state", "check", "health"),
    [
        (GpuState.LOST, "gpu_lost", Health.FAILED),
        (GpuState.UNRESPONSIVE, "gpu_unresponsive", Health.FAILED),
        (GpuState.UNKNOWN, None, Health.UNKNOWN),
    ],
)
def test_presence(state: GpuState, check: str | None, health: Health) -> None:
    judgement = judge(snapshot(statuses=(status(state, detail="why"), status(index=1))))
    assert checks(judgement) == ({check} if check else set())
    assert judgement.gpus == {"GPU-0": health, "GPU-1": Health.HEALTHY}
    assert judgement.node is health
    assert all(finding.message == "why" for finding in judgement.findings)


# ---- the monitor's own trouble


def test_a_monitor_that_fails_blames_no_gpu() -> None:
    down = SourceStatus(name="nvml", up=False, reason="the reader process was ended by SIGSEGV", last_success=90.0)
    unread = (status(GpuState.UNKNOWN, 0), status(GpuState.UNKNOWN, 1))
    judgement = judge(snapshot(statuses=unread, sources=(down,), bus=("0000:01:00.0", "0000:09:00.0"), expected_gpus=8))
    assert checks(judgement) == {"monitoring_degraded"}
    assert set(judgement.gpus.values()) == {Health.UNKNOWN}
    assert judgement.node is Health.UNKNOWN
    assert all(finding.gpu is None for finding in judgement.findings)


@pytest.mark.parametrize("name", ["podresources", "procfs", "kmsg", "gpm", "pci"])
def test_a_source_that_fails_leaves_gpus_healthy(name: str) -> None:
    judgement = judge(snapshot(Gpu(identity=identity()), sources=(NVML, SourceStatus(name=name, up=False, reason="x"))))
    assert judgement.gpus == {"GPU-0": Health.HEALTHY}
    assert checks(judgement) == {"monitoring_degraded"}
    assert judgement.node is Health.DEGRADED


def test_a_source_that_is_off_is_no_trouble() -> None:
    off = SourceStatus(name="podresources", up=None, reason="no kubelet on this machine")
    assert judge(snapshot(Gpu(identity=identity()), sources=(NVML, off))).findings == ()


# ---- missing


def test_a_gpu_on_the_bus_that_nvml_has_not() -> None:
    judgement = judge(snapshot(bus=("0000:01:00.0", "0000:02:00.0")))
    (finding,) = judgement.findings
    assert finding.check == "gpu_missing"
    assert "0000:02:00.0" in finding.message
    assert judgement.node is Health.FAILED
    assert judgement.gpus == {"GPU-0": Health.HEALTHY}


def test_why_nvml_has_it_not_is_said() -> None:
    (finding,) = judge(snapshot(bus=("0000:01:00.0", "0000:02:00.0"), unanswered={1: "GPU is lost"})).findings
    assert "index 1: GPU is lost" in finding.message


def test_a_gpu_that_nvml_counts_and_cannot_show_is_missing_without_a_bus_to_look_at() -> None:
    judgement = judge(snapshot(unanswered={1: "GPU is lost"}))
    assert [f.message for f in judgement.findings] == ["a GPU that NVML counts does not answer (index 1: GPU is lost)"]
    assert judgement.node is Health.FAILED


def test_no_gpu_is_missing_for_the_words_of_a_source() -> None:
    """Reasons are for people; a GPU hidden from this container is in NVML's reason and is no fault."""
    nvml = SourceStatus(name="nvml", up=True, reason="index 1: Insufficient Permissions")
    assert judge(snapshot(sources=(nvml,))).findings == ()


def test_a_gpu_that_vanished_is_lost_and_not_missing_as_well() -> None:
    judgement = judge(snapshot(statuses=(status(GpuState.LOST),), bus=("0000:01:00.0",), expected_gpus=1))
    assert checks(judgement) == {"gpu_lost"}


def test_fewer_than_expected() -> None:
    judgement = judge(snapshot(bus=("0000:01:00.0",), expected_gpus=8))
    assert [finding.message for finding in judgement.findings] == ["1 of 8 expected GPUs are there"]
    assert judgement.node is Health.FAILED


def test_an_unreadable_bus_says_nothing() -> None:
    assert judge(snapshot(Gpu(identity=identity()), bus=None)).findings == ()


def test_a_node_without_gpus_is_unknown() -> None:
    assert judge(snapshot(statuses=())).node is Health.UNKNOWN


def test_a_finding_keeps_the_time_it_began() -> None:
    def hot(at: float) -> Snapshot:
        return snapshot(Gpu(identity=identity(), at=at, **SICK["hw_thermal_slowdown"]))

    first = judge(hot(10.0))
    second = judge(hot(12.0), first)
    cooled = judge(snapshot(Gpu(identity=identity(), at=14.0)), second)
    again = judge(hot(16.0), cooled)
    assert [j.findings[0].since for j in (first, second, again)] == [10.0, 10.0, 16.0]
