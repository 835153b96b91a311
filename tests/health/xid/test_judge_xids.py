"""XIDs and SXids: what each class finds, whom it names, and what ends it; silence never does."""

import time
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from gpuwatch.health.checks import CHECK_BY_NAME
from gpuwatch.health.history import TEXT_SECONDS
from gpuwatch.health.judge import Judge
from gpuwatch.health.xid.classify import CHECK_OF, classify
from gpuwatch.health.xid.ledger import XidLedger
from gpuwatch.model.finding import Finding, Health, Remedy, Response, Severity
from gpuwatch.model.snapshot import Driver, GpuState, Host, RowRemap
from gpuwatch.model.xid import BusLossEvent, NvLinkError, SxidEvent, XidEvent
from gpuwatch.model.xid_catalogue import all_xids
from tests.health.judging import INTERVAL, Bench, pci, pod
from tests.seeds import examples

FATAL = (46, 48, 54, 62, 64, 74, 79, 95, 109, 110, 119, 120, 136, 140, 143, 151, 155, 156, 158, 167, 169, 173, 175)
APPLICATION = (13, 31, 43, 45)
UNKNOWN_XID = 999


def sxid(bench: Bench, severity: str, **parts: Any) -> SxidEvent:
    known: dict[str, Any] = {"sxid": 20034, "switch": 1, "link": 48, "message": "LTSSM Fault Up"}
    return SxidEvent(at=bench.now + 1.0, severity=severity, **{**known, **parts})


def fail_switch(bench: Bench) -> None:
    """A fatal SXid, and a GPU behind the switch that confirms it for a moment."""
    bench.make(0, recovery_action=1)
    bench.cycle(sxid(bench, "fatal"))
    bench.make(0)
    bench.cycle()
    assert bench.checks() == {"sxid_fatal"}


def recovered(bench: Bench, gpu: int = 0, **parts: Any) -> XidEvent:
    return bench.xid(154, gpu, recovery=0, message="GPU recovery action changed", **parts)


# ---- classes


@pytest.mark.parametrize("xid", FATAL)
def test_xids_that_need_a_repair(xid: int) -> None:
    bench = Bench()
    bench.cycle(bench.xid(xid))
    finding = bench.finding("xid_fatal")
    assert (finding.gpu, finding.xid, finding.severity) == ("GPU-0", xid, Severity.CRITICAL)
    assert finding.remedy not in (Remedy.NONE, Remedy.RESTART_APP)
    assert bench.last.gpus == {"GPU-0": Health.FAILED, "GPU-1": Health.HEALTHY}


@pytest.mark.parametrize(
    ("xid", "check", "remedy", "health"),
    [
        (79, "xid_fatal", Remedy.REBOOT_NODE, Health.FAILED),
        (54, "xid_fatal", Remedy.INSPECT, Health.FAILED),
        (63, "xid_contained", Remedy.RESET_GPU, Health.DEGRADED),
        (94, "xid_contained", Remedy.RESET_GPU, Health.DEGRADED),
        (160, "xid_contained", Remedy.RESET_GPU, Health.DEGRADED),
        (32, "xid_warning", Remedy.RESTART_APP, Health.DEGRADED),
        (44, "xid_warning", Remedy.NONE, Health.HEALTHY),
        (31, "xid_application", Remedy.RESTART_APP, Health.HEALTHY),
        (45, "xid_application", Remedy.NONE, Health.HEALTHY),
        (UNKNOWN_XID, "xid_unknown", Remedy.CONTACT_SUPPORT, Health.DEGRADED),
    ],
)
def test_classes(xid: int, check: str, remedy: Remedy, health: Health) -> None:
    bench = Bench()
    bench.cycle(bench.xid(xid))
    (finding,) = bench.last.findings
    assert (finding.check, finding.remedy, finding.action != "") == (check, remedy, True)
    assert bench.last.gpus["GPU-0"] is health


def test_what_taints_by_default_is_what_the_catalogue_taints() -> None:
    fatal = {
        info.code for info in all_xids() if classify(XidEvent(at=0.0, xid=info.code, source="nvml"), {}) == "fatal"
    }
    assert fatal == {info.code for info in all_xids() if info.taint} == set(FATAL)


@pytest.mark.parametrize(
    ("xid", "parts", "check"),
    [
        (64, {"message": "Row Remapper: already pending remapping"}, None),
        (64, {"message": "Row Remapper: All reserved rows for bank are remapped"}, "xid_fatal"),
        (145, {"nvlink": NvLinkError(unit="RLW_RXPIPE", severity="nonfatal")}, "xid_warning"),
        (145, {"nvlink": NvLinkError(unit="RLW_RXPIPE", severity="fatal")}, "xid_fatal"),
        (149, {"nvlink": None}, "xid_warning"),
        *((154, {"recovery": action}, "xid_fatal") for action in (1, 2, 4, 6, 7)),
        *((154, {"recovery": action}, "xid_warning") for action in (3, 5, 42)),
        (154, {"recovery": 0}, None),
    ],
)
def test_the_line_decides(xid: int, parts: dict[str, Any], check: str | None) -> None:
    bench = Bench()
    bench.cycle(bench.xid(xid, **parts))
    assert bench.checks() == ({check} if check else set())


def test_what_the_line_decides_waits_for_it() -> None:
    bench = Bench()
    told = bench.xid(64, source="nvml", message=None)
    bench.cycle(told, seconds=0.01)
    assert bench.checks() == set()
    bench.cycle(replace(told, also="kernel", message="Row Remapper: already pending remapping"), seconds=0.01)
    bench.cycle(times=5)
    assert bench.checks() == set()


def test_but_not_for_ever() -> None:
    bench = Bench()
    bench.cycle(bench.xid(64, source="nvml", message=None))
    bench.cycle(seconds=TEXT_SECONDS)
    assert bench.checks() == {"xid_fatal"}
    assert bench.finding("xid_fatal").count == 1


@pytest.mark.parametrize(
    ("xid", "parts", "before", "after"),
    [
        (64, {"message": "Row Remapper: already pending remapping"}, "xid_fatal", None),
        (145, {"nvlink": NvLinkError(unit="RLW_RXPIPE", severity="fatal")}, "xid_warning", "xid_fatal"),
        (154, {"recovery": 2}, "xid_warning", "xid_fatal"),
    ],
)
def test_a_line_that_comes_too_late_still_decides(
    xid: int, parts: dict[str, Any], before: str, after: str | None
) -> None:
    bench = Bench()
    told = bench.xid(xid, source="nvml", message=None)
    bench.cycle(told)
    bench.cycle(seconds=TEXT_SECONDS)
    assert bench.checks() == {before}
    whole = replace(told, **{"also": "kernel", "message": "text", **parts})
    bench.cycle(whole, whole)
    bench.cycle(whole)
    assert bench.checks() == ({after} if after else set())
    assert [finding.count for finding in bench.last.findings] == [1] * len(bench.checks())


def test_a_recovery_that_nvml_reported_first_counts_when_its_line_comes() -> None:
    bench = Bench()
    bench.cycle(bench.xid(154, recovery=1))
    bare = bench.xid(154, source="nvml", message=None)
    bench.cycle(bare)
    bench.cycle(replace(bare, recovery=0, message="changed", also="kernel"))
    bench.cycle()
    assert bench.checks() == set()


@pytest.mark.parametrize(("xid", "xid_class", "check"), [(79, "ignore", None), (31, "fatal", "xid_fatal")])
def test_the_users_word_beats_all(xid: int, xid_class: Any, check: str | None) -> None:
    bench = Bench(xids={xid: xid_class})
    bench.cycle(bench.xid(xid))
    assert bench.checks() == ({check} if check else set())


def test_new_settings_hold_from_the_next_cycle_on() -> None:
    bench = Bench()
    bench.cycle()
    bench.judge.configure(replace(bench.config, xids={79: "ignore"}))
    bench.cycle(bench.xid(79))
    assert bench.checks() == set()


def test_the_drivers_verdict_beats_the_catalogues_remedy() -> None:
    bench = Bench()
    bench.make(0, recovery_action=2)
    bench.cycle()
    bench.cycle(bench.xid(119))
    assert bench.finding("xid_fatal").remedy is Remedy.REBOOT_NODE
    assert "reboot" in bench.finding("xid_fatal").action


# ---- whom it is about


def test_who_had_the_gpu_is_named() -> None:
    bench = Bench()
    bench.hold(pod("a"), pod("b"))
    bench.hold(pod("c"), gpu=1)
    bench.cycle(bench.xid(79, pid=7, name="nvidia-smi"))
    assert {workload.pod for workload in bench.finding("xid_fatal").pods} == {"a", "b"}


def test_who_had_it_a_moment_ago_too() -> None:
    bench = Bench()
    bench.hold(pod("a"))
    bench.cycle()
    bench.hold()
    bench.cycle(bench.xid(31))
    assert [workload.pod for workload in bench.finding("xid_application").pods] == ["a"]


def test_a_fault_of_an_instance_is_that_instances() -> None:
    bench = Bench()
    bench.hold(pod("a"), gi=5)
    bench.hold(pod("b"), gi=6)
    bench.cycle(bench.xid(94, gi=5))
    finding = bench.finding("xid_contained")
    assert (finding.gi, [workload.pod for workload in finding.pods]) == (5, ["a"])
    assert finding.key == "xid_contained/GPU-0/gi5/94"


def test_an_unknown_gpu_is_the_nodes_until_it_is_known() -> None:
    bench = Bench(0)
    bench.cycle(bench.xid(79, gpu=1, uuid=None))
    finding = bench.finding("xid_fatal")
    assert (finding.gpu, finding.key, finding.evidence["pci"]) == (None, f"xid_fatal/{pci(1)}/79", pci(1))
    assert bench.last.gpus == {"GPU-0": Health.HEALTHY}
    assert bench.last.node is Health.FAILED
    bench.indices = (0, 1)
    bench.energy[1], bench.parts[1], bench.states[1] = 1.0, {}, GpuState.FRESH
    bench.cycle()
    assert bench.finding("xid_fatal").gpu == "GPU-1"


def test_a_place_finds_its_gpu() -> None:
    bench = Bench()
    bench.cycle()
    bench.cycle(bench.xid(79, gpu=1, uuid=None))
    assert bench.finding("xid_fatal").gpu == "GPU-1"


# ---- once more, and not twice


def test_repeats_are_counted_and_duplicates_are_not() -> None:
    bench = Bench()
    bench.cycle()
    first = bench.xid(95)
    bench.cycle(first, first)
    bench.cycle(first)
    assert bench.finding("xid_fatal").count == 1
    bench.cycle(second := bench.xid(95))
    finding = bench.finding("xid_fatal")
    assert (finding.count, finding.since, finding.last) == (2, first.at, second.at)


def test_one_that_comes_late_is_news_all_the_same() -> None:
    bench = Bench()
    bench.cycle()
    first = bench.xid(95)
    bench.cycle(first)
    bench.cycle(replace(first, at=first.at - 500.0))
    finding = bench.finding("xid_fatal")
    assert finding.count == 2
    assert finding.last is not None
    assert finding.last > first.at


def test_each_code_is_a_finding_of_its_own() -> None:
    bench = Bench()
    bench.cycle(bench.xid(48), bench.xid(95), bench.xid(94))
    assert {finding.key for finding in bench.last.findings} == {
        "xid_fatal/GPU-0/48", "xid_fatal/GPU-0/95", "xid_contained/GPU-0/94"
    }  # fmt: skip


def test_what_was_written_before_the_start_is_no_finding() -> None:
    bench = Bench()
    bench.cycle(bench.xid(79, historical=True), sxid(bench, "fatal", historical=True))
    bench.cycle(BusLossEvent(at=bench.now, pci=pci(), uuid="GPU-0", historical=True))
    bench.cycle(times=5)
    assert bench.last.findings == ()


# ---- what ends it


def sick(xid: int = 95, gpu: int = 0, **checks: Any) -> Bench:
    bench = Bench(**checks)
    bench.cycle(times=3)
    bench.cycle(bench.xid(xid, gpu))
    assert bench.last.findings
    return bench


def unsupported(bench: Bench) -> Bench:
    """As an older driver has it: nobody says what the GPU asks for."""
    bench.make(0, recovery_action=None)
    return bench


def test_silence_ends_nothing() -> None:
    bench = unsupported(sick())
    bench.pass_time(3 * 3600)
    assert bench.checks() == {"xid_fatal"}


def test_a_reset_ends_it() -> None:
    bench = unsupported(sick())
    bench.energy[0] = 0.0
    bench.cycle()
    assert bench.checks() == set()


def test_a_reset_of_another_gpu_does_not() -> None:
    bench = unsupported(sick())
    bench.energy[1] = 0.0
    bench.cycle(times=3)
    assert bench.checks() == {"xid_fatal"}


def test_a_reset_before_the_latest_occurrence_does_not() -> None:
    bench = unsupported(sick())
    bench.energy[0] = 0.0
    bench.cycle(bench.xid(95))
    bench.cycle(times=3)
    assert bench.checks() == {"xid_fatal"}


def test_the_driver_says_that_it_has_recovered() -> None:
    bench = unsupported(sick())
    bench.cycle(recovered(bench))
    assert bench.checks() == {"xid_fatal"}  # a sample from before the line proves nothing
    bench.cycle()
    assert bench.checks() == set()


def test_the_line_of_a_recovery_that_nvml_has_reported_ends_no_fault_since() -> None:
    bench = unsupported(sick())
    event = recovered(bench, source="nvml")
    bench.cycle(event)
    bench.cycle()
    assert bench.checks() == set()
    bench.cycle(bench.xid(95))
    bench.cycle(replace(event, also="kernel"))
    bench.cycle(times=2)
    assert bench.checks() == {"xid_fatal"}


@pytest.mark.parametrize("parts", [{"gpu": 1}, {"at": 5.0}], ids=["of another GPU", "long ago"])
def test_a_recovery_that_does_not_count(parts: dict[str, Any]) -> None:
    bench = unsupported(sick())
    bench.cycle(recovered(bench, **parts))
    bench.cycle(times=3)
    assert bench.checks() == {"xid_fatal"}


@pytest.mark.parametrize(("xid", "recovery"), [(43, None), (43, 0), (154, 3)])
def test_another_xid_and_another_action_are_no_recovery(xid: int, recovery: int | None) -> None:
    bench = unsupported(sick())
    bench.cycle(bench.xid(xid, recovery=recovery))
    bench.cycle(times=3)
    assert "xid_fatal" in bench.checks()


def test_a_persons_word_ends_it_where_nothing_else_can_show_it() -> None:
    """`nvidia-smi -r` of a GPU without an energy counter, under a driver without a recovery action."""
    bench = unsupported(sick())
    bench.judge.repaired_at = {"GPU-1": bench.now, "node": bench.now}
    bench.cycle(times=3)
    assert bench.checks() == {"xid_fatal"}
    bench.judge.repaired_at = {"GPU-0": bench.now}
    bench.cycle()
    assert bench.checks() == set()
    bench.cycle(bench.xid(95))
    bench.cycle(times=3)
    assert bench.checks() == {"xid_fatal"}, "the word is about what was before it"


@pytest.mark.parametrize("parts", [{"recovery_action": 1}, {"row_remap": RowRemap(pending=True)}])
def test_what_is_seen_outweighs_a_persons_word(parts: dict[str, Any]) -> None:
    bench = sick()
    bench.make(0, **parts)
    bench.cycle()
    before = bench.checks()
    bench.judge.repaired_at = {"GPU-0": bench.now}
    bench.cycle(times=3)
    assert bench.checks() == before
    bench.states[0] = GpuState.LOST
    bench.judge.repaired_at = {"GPU-0": bench.now + 1.0}
    bench.cycle(times=3)
    assert before < bench.checks()


def test_a_gpu_that_was_taken_out_is_forgotten_at_a_persons_word() -> None:
    bench = Bench(0, 1)
    bench.cycle()
    bench.states[1] = GpuState.LOST
    bench.cycle(times=2)
    bench.indices = (0,)
    bench.restart()
    bench.cycle(times=5)
    assert bench.checks() == {"gpu_lost"}
    bench.judge.repaired_at = {"GPU-1": bench.now}
    bench.cycle()
    assert bench.checks() == set()


def test_a_driver_that_asks_for_nothing_for_long_enough_ends_it() -> None:
    bench = sick()
    bench.pass_time(590.0)
    assert bench.checks() == {"xid_fatal"}
    bench.pass_time(20.0)
    assert bench.checks() == set()


def test_every_occurrence_starts_the_wait_over() -> None:
    bench = sick()
    bench.pass_time(500.0)
    bench.cycle(bench.xid(95))
    bench.pass_time(500.0)
    assert bench.checks() == {"xid_fatal"}
    bench.pass_time(110.0)
    assert bench.checks() == set()


@pytest.mark.parametrize(
    ("parts", "state"),
    [
        ({"recovery_action": 1}, GpuState.FRESH),
        ({"errors": {"recovery_action": "Unknown Error"}, "recovery_action": None}, GpuState.FRESH),
        ({}, GpuState.UNKNOWN),
        ({}, GpuState.LOST),
    ],
    ids=["it asks", "unread", "not read", "lost"],
)
def test_a_gap_starts_the_wait_over(parts: dict[str, Any], state: GpuState) -> None:
    bench = sick()
    bench.pass_time(590.0)
    bench.make(0, **parts)
    bench.states[0] = state
    bench.cycle()
    bench.make(0)
    bench.states[0] = GpuState.FRESH
    bench.pass_time(580.0)
    assert "xid_fatal" in bench.checks()
    bench.pass_time(60.0)
    assert "xid_fatal" not in bench.checks()


@pytest.mark.parametrize("parts", [{"row_remap": RowRemap(pending=True)}, {"recovery_action": 1}])
def test_a_gpu_that_is_not_clean_has_not_been_repaired(parts: dict[str, Any]) -> None:
    bench = sick()
    bench.make(0, **parts)
    bench.energy[0] = 0.0
    bench.cycle(times=5)
    assert "xid_fatal" in bench.checks()
    bench.make(0)
    bench.cycle()
    assert "xid_fatal" not in bench.checks()


@pytest.mark.parametrize("state", [GpuState.UNKNOWN, GpuState.LOST, GpuState.UNRESPONSIVE])
def test_one_that_does_not_answer_has_not_been_repaired(state: GpuState) -> None:
    bench = sick()
    bench.restart(host=Host(boot_id="boot-2"))
    bench.states[0] = state
    bench.pass_time(2 * 3600)
    assert "xid_fatal" in bench.checks()


# ---- restarts and boots


def test_a_restart_forgets_no_xid() -> None:
    bench = unsupported(sick())
    before = bench.finding("xid_fatal")
    bench.restart()
    bench.pass_time(3 * 3600)
    assert bench.last.findings == (before,)
    bench.cycle(bench.xid(95))
    assert (bench.finding("xid_fatal").since, bench.finding("xid_fatal").count) == (before.since, 2)


@pytest.mark.parametrize(
    "node", [{"host": Host(boot_id="boot-2")}, {"driver": Driver(version="590.48.01")}], ids=["boot", "driver"]
)
def test_a_boot_or_another_driver_ends_it_once_the_gpu_is_seen_to_be_well(node: dict[str, Any]) -> None:
    bench = unsupported(sick())
    bench.restart(**node)
    bench.states[0] = GpuState.UNKNOWN
    bench.cycle(times=5)
    assert bench.checks() == {"xid_fatal"}
    bench.states[0] = GpuState.FRESH
    bench.cycle()
    assert bench.checks() == set()


def test_a_reset_between_two_samples_is_seen_by_the_energy_counter() -> None:
    bench = unsupported(sick())
    bench.restart()
    bench.energy[0] = 100.0
    bench.cycle()
    assert bench.checks() == set()


def test_after_a_restart_the_driver_must_be_calm_all_over() -> None:
    bench = sick()
    bench.pass_time(590.0)
    bench.restart()
    bench.pass_time(580.0)
    assert bench.checks() == {"xid_fatal"}
    bench.pass_time(30.0)
    assert bench.checks() == set()


def test_a_line_from_before_the_start_may_report_the_recovery() -> None:
    bench = unsupported(sick())
    bench.restart()
    bench.cycle(recovered(bench, historical=True))
    bench.cycle()
    assert bench.checks() == set()


def test_a_gpu_that_was_replaced_takes_its_findings_along() -> None:
    bench = sick(gpu=1)
    bench.restart(host=Host(boot_id="boot-2"))
    bench.indices = (0,)
    bench.cycle(times=3)
    assert bench.finding("xid_fatal").gpu == "GPU-1"  # it may merely be missing
    other = Bench(0, 1, memory=bench.last.findings)
    snapshot = other.snapshot()
    new = replace(snapshot.gpus[1].identity, uuid="GPU-new")
    swapped = replace(
        snapshot,
        gpus=(snapshot.gpus[0], replace(snapshot.gpus[1], identity=new)),
        statuses=(snapshot.statuses[0], replace(snapshot.statuses[1], identity=new)),
    )
    assert other.judge.judge(swapped).findings == ()


def test_memory_of_a_check_there_is_no_more_is_dropped() -> None:
    gone = Finding(check="an old name", severity=Severity.CRITICAL, message="m", gpu="GPU-0")
    assert Bench(memory=(gone,)).cycle().findings == ()


# ---- those that pass


@pytest.mark.parametrize("xid", [31, 45, 32, UNKNOWN_XID])
def test_xids_that_ask_for_no_repair_pass(xid: int) -> None:
    bench = sick(xid)
    bench.pass_time(3500.0)
    assert bench.last.findings
    bench.pass_time(110.0)
    assert bench.last.findings == ()


def test_they_do_not_pass_while_the_gpu_is_not_seen() -> None:
    bench = sick(32)
    bench.states[0] = GpuState.UNKNOWN
    bench.pass_time(9000.0)
    assert bench.checks() == {"xid_warning"}
    bench.states[0] = GpuState.FRESH
    bench.cycle()
    assert bench.checks() == set()


def test_a_restart_does_not_keep_them_longer() -> None:
    bench = sick(32)
    bench.pass_time(3000.0)
    bench.restart()
    bench.cycle()
    assert bench.checks() == {"xid_warning"}
    bench.pass_time(610.0)
    assert bench.checks() == set()


# ---- applications


def crash(bench: Bench, name: str, gpu: int = 0, xid: int = 31, times: int = 1) -> None:
    bench.hold(pod(name), gpu=gpu)
    for _ in range(times):
        bench.cycle(bench.xid(xid, gpu))
    bench.hold(gpu=gpu)
    bench.cycle()


def test_different_pods_that_fail_on_one_gpu() -> None:
    bench = Bench()
    for name in ("a", "b"):
        crash(bench, name)
    assert "xid_application_repeated" not in bench.checks()
    crash(bench, "c", xid=13)
    finding = bench.finding("xid_application_repeated")
    assert (finding.gpu, finding.severity) == ("GPU-0", Severity.WARNING)
    assert {workload.pod for workload in finding.pods} == {"a", "b", "c"}


def test_a_burst_of_one_pod_is_one() -> None:
    bench = Bench()
    crash(bench, "a", times=300)
    crash(bench, "b", times=300)
    assert "xid_application_repeated" not in bench.checks()
    assert bench.finding("xid_application").count == 600


@pytest.mark.parametrize("xid", [43, 45])
def test_ended_channels_follow_every_kill(xid: int) -> None:
    bench = Bench()
    for number in range(20):
        crash(bench, f"job-{number}", xid=xid)
    assert bench.checks() == {"xid_application"}


def test_an_application_that_fails_everywhere_is_at_fault_itself() -> None:
    bench = Bench()
    for number in range(6):
        crash(bench, f"replica-{number}", gpu=number % 2)
    bench.cycle()
    assert bench.checks() == {"xid_application"}


def test_a_restart_knows_the_pods_again() -> None:
    bench = Bench()
    for name in ("a", "b", "c"):
        crash(bench, name)
    bench.restart()
    bench.cycle(times=5)
    assert "xid_application_repeated" in bench.checks()
    crash(bench, "d")
    assert {workload.pod for workload in bench.finding("xid_application_repeated").pods} == {"a", "b", "c", "d"}


@pytest.mark.parametrize(
    ("xid", "hours", "found"),
    [(31, 3.0, True), (31, 25.0, False), (45, 3.0, False)],
    ids=["lately", "long ago", "kill"],
)
def test_a_restart_counts_on_from_failures_that_had_passed(xid: int, hours: float, found: bool) -> None:
    before = Bench()
    for name in ("a", "b"):
        crash(before, name, xid=xid)
    bench = Bench()
    bench.now = before.now + hours * 3600.0
    bench.judge = Judge(bench.config, failures=before.last.findings, uptime=1e6)
    crash(bench, "c")
    assert ("xid_application_repeated" in bench.checks()) is found


def test_old_failures_do_not_add_up() -> None:
    bench = Bench(repeat_window=3600.0)
    for name in ("a", "b", "c", "d"):
        crash(bench, name)
        bench.pass_time(1900.0)
    assert "xid_application_repeated" not in bench.checks()


# ---- infoROM, bus loss, SXids


@pytest.mark.parametrize("xid", [93, 125])
def test_xids_about_the_inforom(xid: int) -> None:
    bench = Bench()
    bench.cycle(bench.xid(xid))
    bench.cycle()
    assert bench.finding("inforom").evidence["xid"] == str(xid)
    bench.energy[0] = 0.0
    bench.cycle(times=4)
    assert "inforom" not in bench.checks()


def test_a_line_of_bus_loss_stands_for_a_gpu_that_hangs_until_it_answers() -> None:
    bench = Bench(ignore=("gpu_unresponsive",), unresponsive_after=INTERVAL)
    bench.cycle()
    bench.states[0] = GpuState.UNRESPONSIVE
    bench.cycle(BusLossEvent(at=bench.now, pci=pci(), message="GPU has fallen off the bus."))
    assert bench.finding("gpu_lost").message == "GPU has fallen off the bus."
    bench.cycle(times=20)
    assert bench.checks() == {"gpu_lost"}
    bench.states[0] = GpuState.FRESH
    bench.cycle(times=CHECK_BY_NAME["gpu_lost"].clear_after)
    assert bench.checks() == set()


@pytest.mark.parametrize(
    ("severity", "check"),
    [("fatal", "sxid_unconfirmed"), ("non-fatal", "sxid_warning"), ("correctable", "sxid_warning")],
)
def test_sxids_are_the_nodes(severity: str, check: str) -> None:
    bench = Bench()
    bench.cycle(sxid(bench, severity))
    finding = bench.finding(check)
    assert (finding.gpu, finding.evidence["sxid"], finding.evidence["link"]) == (None, "20034", "48")
    assert "GPU-0" not in {gpu for gpu, health in bench.last.gpus.items() if health is not Health.HEALTHY}


def test_a_fatal_sxid_lasts_until_all_gpus_were_reset() -> None:
    bench = Bench()
    bench.cycle()
    fail_switch(bench)
    bench.pass_time(2 * 3600)
    assert bench.checks() == {"sxid_fatal"}
    bench.energy[0] = 0.0
    bench.cycle(times=3)
    assert bench.checks() == {"sxid_fatal"}
    bench.energy[1] = 0.0
    bench.cycle()
    assert bench.checks() == set()


def test_a_fatal_sxid_ends_with_a_boot() -> None:
    bench = Bench()
    fail_switch(bench)
    bench.restart(host=Host(boot_id="boot-2"))
    bench.cycle()
    assert bench.checks() == set()


# ---- through the ledger


def test_both_sources_through_the_ledger_make_one_finding() -> None:
    bench, ledger = Bench(), XidLedger()
    ledger.know({"00000000:01:00.0": "GPU-0"})
    bench.cycle()
    ledger.observe(XidEvent(at=bench.now, xid=64, source="nvml", uuid="GPU-0", pci=pci()))
    bench.cycle(*ledger.news(), seconds=0.02)
    ledger.observe(bench.xid(64, uuid=None, message="Row Remapper: All reserved rows for bank are remapped"))
    bench.cycle(*ledger.news(), seconds=0.02)
    assert (bench.finding("xid_fatal").count, bench.finding("xid_fatal").xid) == (1, 64)
    assert ledger.news() == ()
    bench.cycle(times=3)
    assert bench.finding("xid_fatal").count == 1


def test_what_the_second_source_adds_is_no_second_occurrence() -> None:
    bench, ledger = Bench(), XidLedger()
    ledger.know({"00000000:01:00.0": "GPU-0"})
    bench.cycle()
    ledger.observe(XidEvent(at=bench.now, xid=79, source="nvml", uuid="GPU-0", pci=pci()))
    bench.cycle(*ledger.news(), seconds=0.02)
    first = bench.finding("xid_fatal")
    ledger.observe(bench.xid(79, uuid=None, message="GPU has fallen off the bus."))
    again = ledger.news()
    bench.cycle(*again, *again, seconds=0.02)
    bench.cycle(*again)
    finding = bench.finding("xid_fatal")
    assert "kernel" not in first.evidence
    assert finding.evidence == {**first.evidence, "kernel": "GPU has fallen off the bus."}
    assert (finding.count, finding.last) == (1, first.last)


def test_a_line_that_decides_is_reported_in_the_drivers_words_and_any_other_by_what_the_code_means() -> None:
    bench = Bench()
    bench.cycle()
    events = bench.xid(62, message="00000a9f 00000a85 00000a72"), bench.xid(64, message="Row Remapper: table is full")
    told = {finding.xid: finding.message for finding in bench.cycle(*events).findings}
    summary = "The on-die power-management controller halted"
    assert told == {62: f"XID 62: {summary}", 64: "XID 64: Row Remapper: table is full"}


# ---- nothing that is only noise


TAINTS = {name for name, check in CHECK_BY_NAME.items() if check.response.reaches(Response.TAINT)}


@pytest.mark.parametrize("hours", [6, pytest.param(24, marks=pytest.mark.slow)])
def test_hours_of_application_and_unknown_xids_call_for_no_taint(hours: int) -> None:
    bench = Bench()
    for hour in range(hours):
        for gpu in (0, 1):
            bench.hold(pod(f"job-{hour}-{gpu}"), gpu=gpu)
            for xid in (*APPLICATION, UNKNOWN_XID):
                bench.cycle(*(bench.xid(xid, gpu, pid=pid) for pid in range(20)))
            assert not bench.checks() & TAINTS
        bench.states = dict.fromkeys(bench.states, GpuState.UNKNOWN)  # a dead reader
        bench.cycle(times=3)
        bench.states = dict.fromkeys(bench.states, GpuState.FRESH)
        bench.node["driver"] = Driver(version=f"580.{hour}")  # an upgrade, which begins the counters anew
        bench.energy = dict.fromkeys(bench.energy, 0.0)
        bench.pass_time(3600.0)
        assert not bench.checks() & TAINTS


APPLICATION_XIDS = st.sampled_from((*APPLICATION, 8, 69, UNKNOWN_XID, 37, 44))
NOISE = st.lists(
    st.tuples(
        APPLICATION_XIDS,
        st.sampled_from(("nvml", "kernel")),
        st.floats(0.0, 2e9),  # when it says that it happened
        st.sampled_from((None, "GPU-0", "GPU-1", "GPU-elsewhere")),
        st.sampled_from((None, pci(0), pci(1), pci(9), "nonsense")),
        st.booleans(),
    ),
    max_size=6,
)


@settings(max_examples=examples(120))
@given(st.lists(st.tuples(NOISE, st.floats(-1e6, 1e6), st.booleans()), max_size=12))
def test_jumping_clocks_duplicates_and_disorder_call_for_nothing(story: list[Any]) -> None:
    bench = Bench()
    told: list[XidEvent] = []
    for noise, jump, repeat in story:
        told += [
            XidEvent(at=at, xid=xid, source=source, uuid=uuid, pci=place, historical=historical)
            for xid, source, at, uuid, place, historical in noise
        ]
        events = [*told[::-1], *told] if repeat else told[-len(noise) :] if noise else []
        bench.cycle(*events, seconds=jump)
        found = bench.checks()
        assert found <= {"xid_application", "xid_unknown", "xid_warning", "xid_unconfirmed"}
        assert all(health is not Health.FAILED for health in bench.last.gpus.values())


@settings(max_examples=examples(100))
@given(st.lists(st.floats(-1e7, 1e7), min_size=1, max_size=30))
def test_no_clock_ends_a_fault(jumps: list[float]) -> None:
    bench = unsupported(sick())
    for jump in jumps:
        bench.now += jump
        bench.judge.judge(bench.snapshot())
    bench.cycle()
    assert bench.checks() == {"xid_fatal"}


def test_a_clock_that_jumps_ahead_does_not_make_the_driver_calm() -> None:
    bench = sick()
    bench.cycle(times=5, seconds=10_000.0)
    assert bench.checks() == {"xid_fatal"}


@pytest.mark.parametrize("kind", sorted(CHECK_OF))
def test_no_finding_of_a_class_without_its_check(kind: Any) -> None:
    assert CHECK_OF[kind] in CHECK_BY_NAME


def test_a_judgement_of_a_big_node_is_quick() -> None:
    bench = Bench(*range(16))
    bench.cycle(times=3)
    snapshot, took = bench.snapshot(), []
    for number in range(1, 6):
        gpus = tuple(replace(gpu, at=gpu.at + number) for gpu in snapshot.gpus)
        began = time.thread_time()
        bench.judge.judge(replace(snapshot, at=snapshot.at + number, gpus=gpus))
        took.append(time.thread_time() - began)
    print(f"16 GPUs judged in {min(took) * 1e3:.2f} ms")
    assert min(took) < 0.1
