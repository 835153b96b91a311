"""What is planned for one node, rule by rule: table-driven, on an imaginary cluster."""

from itertools import pairwise
from typing import Any

import pytest
from msgspec.structs import replace

from gpuwatch.config import BudgetConfig, DrainConfig, HandoverConfig, MaintenanceWindow
from gpuwatch.kube.objects import TAINT, PodGroup, PodObject, Taint
from gpuwatch.model.finding import Remedy, Severity
from gpuwatch.model.snapshot import Host
from gpuwatch.model.workload import Workload
from gpuwatch.remediation.model import (
    ACKNOWLEDGED,
    DEGRADED,
    HEALTHY_COUNT,
    OPT_OUT,
    OWNER,
    QUARANTINED,
    BlockReason,
    CreateEvent,
    Evict,
    NodeStage,
    PatchNode,
    Plan,
    RemediatorMemory,
    SetCondition,
)
from gpuwatch.remediation.planning.inputs import NEEDS
from gpuwatch.remediation.planning.ownership import encode, read_claim
from tests.remediation.planning.remediating import GPUS, HOST, START, Story, finding, view

ALWAYS = MaintenanceWindow(start="00:00", end="23:59")


def reasons(plan: Plan) -> set[BlockReason]:
    return {obstacle.reason for obstacle in plan.blocked}


def patches(plan: Plan) -> list[str]:
    return [step.step for step in plan.steps if isinstance(step, PatchNode)]


def sick(check: str = "gpu_lost", **settings: Any) -> Story:
    story = Story(**settings)
    story.see(finding(check))
    return story


def test_a_fault_taints_and_its_end_restores_everything() -> None:
    story = Story()
    story.settle()
    before = story.node
    story.see(finding("gpu_lost"))
    assert patches(story.plan()) == ["claim", "taint"]
    story.settle()
    assert story.node.taint == Taint(key=TAINT, value="gpu_lost")
    assert story.node.labels[QUARANTINED] == "true"
    assert story.node.condition is not None
    assert story.node.condition.status == "False"
    story.recover()
    after = story.node
    assert (after.taints, after.labels, after.annotations) == (before.taints, before.labels, before.annotations)
    assert [lease.holder for lease in story.cluster.leases.values()] == [None]
    assert [event.reason for event in story.cluster.events.values()] == ["GPUQuarantined", "GPURecovered"]


def test_the_condition_and_its_event_count_what_follows_from_a_fault() -> None:
    story, lost = Story(), finding("gpu_lost")
    story.see(lost, *(finding("xid_fatal", xid=xid, caused_by=lost.key) for xid in (79, 154)))
    story.settle()
    (event,) = story.cluster.events.values()
    assert story.node.condition is not None
    for text in (story.node.condition.message, event.message):
        assert text == "gpu_lost on GPU 0: gpu_lost was seen (and 2 that follow)"


@pytest.mark.parametrize("steps", range(7))
def test_a_crash_after_any_step_ends_in_the_same_quarantine_and_the_same_end(steps: int) -> None:
    story = sick()
    story.cycle(crash=steps)
    story.settle()
    assert story.node.taint is not None
    assert sum(isinstance(step, PatchNode) and step.step == "taint" for step in story.done) == 1
    story.see()
    story.clean_for = 0.0
    story.cycle()
    story.wait(1000.0)
    story.cycle(crash=steps)
    story.settle()
    assert story.node.taints == ()
    assert OWNER not in story.node.annotations
    assert not any(lease.holder for lease in story.cluster.leases.values())
    assert len(story.cluster.events) == 2


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"labels": {OPT_OUT: "true"}}, BlockReason.OPT_OUT),
        ({"annotations": {OPT_OUT: "true"}}, BlockReason.OPT_OUT),
        ({"unschedulable": True}, BlockReason.FOREIGN),
        ({"deleting": True}, BlockReason.FOREIGN),
        ({"labels": {"dgxc.nvidia.com/nvsentinel-state": "draining"}}, BlockReason.FOREIGN),
        ({"labels": {"k8saas.nvidia.com/cordon-by": "x"}}, BlockReason.FOREIGN),
        ({"labels": {"nvidia.com/gpu-driver-upgrade-state": "pod-restart-required"}}, BlockReason.FOREIGN),
        ({"labels": {"nvidia.com/mig.config.state": "rebooting"}}, BlockReason.FOREIGN),
        ({"annotations": {"weave.works/kured-reboot-in-progress": "2026"}}, BlockReason.FOREIGN),
        ({"taints": (Taint(key="karpenter.sh/disrupted"),)}, BlockReason.FOREIGN),
        ({"taints": (Taint(key="ToBeDeletedByClusterAutoscaler"),)}, BlockReason.FOREIGN),
        ({"taints": (Taint(key="node.cloudprovider.kubernetes.io/shutdown"),)}, BlockReason.FOREIGN),
        ({"taints": (Taint(key="ours.example/repair"),)}, BlockReason.FOREIGN),
        ({"taints": (Taint(key=TAINT, value="by-hand"),)}, BlockReason.FOREIGN),
        ({"annotations": {OWNER: "{not json"}}, BlockReason.FOREIGN),
        ({"annotations": {OWNER: '{"id":"1","state":"applied","since":1,"node_uid":"another"}'}}, BlockReason.FOREIGN),
        ({"annotations": {OWNER: '{"id":"1","state":"melted","since":1,"node_uid":"x"}'}}, BlockReason.FOREIGN),
        ({"host": Host(boot_id="boot-2", machine_id="machine-1")}, BlockReason.IDENTITY),
        ({"host": Host(boot_id="boot-1", machine_id="machine-2")}, BlockReason.IDENTITY),
        ({"host": Host()}, BlockReason.IDENTITY),
    ],
    ids=lambda value: str(next(iter(value.items())))[:60] if isinstance(value, dict) else str(value),
)
def test_a_node_that_is_not_ours_to_touch_is_not_tainted(change: dict[str, Any], reason: BlockReason) -> None:
    story = sick(foreign=("ours.example/repair",))
    story.cluster.edit(**change)
    before = story.node
    made = story.settle()
    assert reason in reasons(made)
    assert (story.node.taints, story.node.labels, story.node.unschedulable) == (
        before.taints, before.labels, before.unschedulable
    )  # fmt: skip
    assert story.node.annotations == before.annotations


@pytest.mark.parametrize(
    "change",
    [
        {"labels": {"nvidia.com/gpu-driver-upgrade-state": "upgrade-done"}},
        {"labels": {"dgxc.nvidia.com/nvsentinel-state": "remediation-succeeded"}},
        {"taints": (Taint(key="node.kubernetes.io/unreachable", effect="NoExecute"),)},
        {"annotations": {OPT_OUT: "false"}},
    ],
)
def test_marks_at_rest_are_no_obstacle(change: dict[str, Any]) -> None:
    story = sick()
    story.cluster.edit(**change)
    story.settle()
    assert any(taint.key == TAINT for taint in story.node.taints)
    assert set(change.get("taints", ())) <= set(story.node.taints)


@pytest.mark.parametrize(
    ("settings", "reason"),
    [
        ({"budget": BudgetConfig(max_unavailable=0)}, BlockReason.BUDGET),
        ({"maintenance": (ALWAYS,)}, BlockReason.MAINTENANCE),
        ({"fault_hold": 60.0}, BlockReason.HOLD),
        ({"max_quarantines_per_day": 0}, BlockReason.RATE),
    ],
)
def test_settings_that_stand_in_the_way(settings: dict[str, Any], reason: BlockReason) -> None:
    story = sick(**settings)
    made = story.settle()
    assert reason in reasons(made)
    assert story.node.taint is None
    assert made.stage is NodeStage.SUSPECT


def test_an_unreadable_budget_stops_taints_and_never_their_end() -> None:
    story = sick()
    story.readable = False
    assert BlockReason.BUDGET_UNREADABLE in reasons(story.settle())
    assert story.node.taint is None
    story.readable = True
    story.settle()
    assert story.node.taint is not None
    story.readable = False
    story.recover()
    assert story.node.taint is None


@pytest.mark.parametrize("check", ["xid_application", "xid_unknown", "monitoring_degraded", "hw_power_brake"])
def test_what_is_no_reason_never_taints(check: str) -> None:
    story = sick(check)
    story.settle()
    assert story.node.taint is None


def test_what_may_still_be_read_is_asked_for_and_nothing_is_planned_without_it() -> None:
    """Where it cannot be read, the condition says why the node stays in service."""
    asking = sick().plan(slots=None, unread=NEEDS)
    assert (asking.needs, asking.steps) == (("slots",), ())
    unread = sick().plan(slots=None)
    assert [type(step) for step in unread.steps] == [CreateEvent, SetCondition]


def test_observe_says_what_it_would_do() -> None:
    made = sick(mode="observe").plan()
    assert patches(made) == ["claim", "taint"]
    assert BlockReason.MODE in reasons(made)


def test_off_does_nothing() -> None:
    assert sick(mode="off").plan().steps == ()


def test_a_stale_or_missing_view_adds_nothing_and_takes_nothing_away() -> None:
    story = sick()
    story.age = 30.0
    assert patches(story.plan()) == []
    story.age = 0.0
    story.settle()
    story.see()
    story.clean_for, story.age = 1e6, 30.0
    assert patches(story.plan()) == []
    story.view = None
    assert story.plan().steps == ()


@pytest.mark.parametrize(
    "more",
    [
        {"unknown": GPUS[:1]},
        {"gpus": GPUS[1:]},
        {"gpus": GPUS[1:], "lost": GPUS[:1]},
        {"expected": 3},
        {"gpus": ()},
        {"gpus": GPUS[1:], "host": Host(boot_id="boot-2", machine_id="machine-1")},
    ],
    ids=["unknown", "forgotten", "lost", "too-few", "none", "one-less-after-a-reboot"],
)
def test_without_positive_evidence_the_taint_stays(more: dict[str, Any]) -> None:
    story = sick()
    story.settle()
    story.cluster.edit(host=more.get("host", HOST))
    story.see(**more)
    for _ in range(3):
        story.wait(5000.0)
        story.settle()
    assert story.node.taint is not None


def test_a_fault_of_the_node_ends_when_every_gpu_is_seen_well() -> None:
    story = Story(checks={"gpu_missing": "taint"})
    story.see(finding("gpu_missing", None))
    story.settle()
    story.see(unknown=GPUS[1:])
    story.wait(1000.0)
    story.settle()
    assert story.node.taint is not None
    story.recover()
    assert story.node.taint is None


def test_a_replaced_gpu_after_a_reboot_is_a_recovery() -> None:
    story = sick()
    story.settle()
    host = Host(boot_id="boot-2", machine_id="machine-1")
    story.cluster.edit(host=host)
    story.see(gpus=("GPU-new", "GPU-1"), host=host)
    story.wait(0.0)
    story.wait(1000.0)
    story.settle()
    assert story.node.taint is None


def test_a_gpu_that_is_gone_and_another_in_its_place_are_no_recovery_without_a_reboot() -> None:
    story = sick()
    story.settle()
    story.see(gpus=("GPU-new", "GPU-1"))
    story.wait(0.0)
    story.wait(1000.0)
    story.settle()
    assert story.node.taint is not None


def test_a_fault_that_the_policy_only_shows_makes_the_condition_degraded() -> None:
    story = sick("row_remap_pending", checks={"row_remap_pending": "condition"})
    story.settle()
    assert story.node.taint is None
    assert story.node.condition is not None
    assert (story.node.condition.status, story.node.condition.reason) == ("False", "GPUDegraded")


def test_another_condition_of_the_same_gpu_keeps_it_out() -> None:
    story = sick()
    story.settle()
    story.see(finding("row_remap_pending"))
    story.wait(1000.0)
    story.settle()
    assert story.node.taint is not None


def test_a_milder_policy_releases_after_the_hold() -> None:
    story = sick()
    story.settle()
    story.policy = Story(checks={"gpu_lost": "observe"}).policy
    story.see(finding("gpu_lost"))
    story.wait(1000.0)
    story.settle()
    assert story.node.taint is None


def test_a_person_wins_until_it_happens_again() -> None:
    story = sick()
    story.settle()
    story.cluster.edit(taints=())
    made = story.settle()
    assert BlockReason.ACKNOWLEDGED in reasons(made)
    assert story.node.taint is None
    assert ACKNOWLEDGED in story.node.annotations
    story.now += 60.0
    story.see(finding("gpu_lost", at=story.now))
    story.settle()
    assert story.node.taint is not None


def test_a_taint_that_a_person_changed_is_theirs() -> None:
    story = sick()
    story.settle()
    theirs = Taint(key=TAINT, value="gpu_lost", effect="NoExecute")
    story.cluster.edit(taints=(theirs,))
    story.recover()
    assert story.node.taints == (theirs,)
    assert OWNER not in story.node.annotations


def test_a_cordon_that_a_person_lifted_is_not_set_again() -> None:
    story = sick(checks={"gpu_lost": "cordon"})
    story.settle()
    assert story.node.unschedulable
    story.cluster.edit(unschedulable=False)
    story.settle()
    assert not story.node.unschedulable
    assert story.node.taint is not None


def test_a_quarantine_by_an_older_version_is_found_by_the_budget_and_leaves_no_label() -> None:
    """It marked the Node with two of the labels that are now for schedulers."""
    story = sick()
    story.settle()
    owner = read_claim(story.node).owner
    assert owner is not None
    before = replace(owner, labels=(DEGRADED, HEALTHY_COUNT))
    old = {DEGRADED: "true", HEALTHY_COUNT: "7"}
    story.cluster.edit(annotations={**story.node.annotations, OWNER: encode(before)}, labels=old)
    story.settle()
    assert story.node.labels == {QUARANTINED: "true"}
    story.recover()
    assert (story.node.taint, story.node.labels) == (None, {})


def test_a_quarantine_whose_label_was_there_before_it_takes_the_label_neither_again_nor_off() -> None:
    story = sick()
    story.cluster.edit(labels={QUARANTINED: "true"})
    story.settle()
    story.now += 1000.0
    story.see(finding("gpu_lost"))
    story.settle()
    owner = read_claim(story.node).owner
    assert owner is not None
    assert (story.node.labels, owner.labels) == ({QUARANTINED: "true"}, ())


def test_the_mark_for_the_budget_that_a_person_took_off_stays_off() -> None:
    story = sick()
    story.settle()
    story.cluster.edit(labels={})
    story.settle()
    assert (story.node.labels, story.node.taint is not None) == ({}, True)


def test_what_needs_a_person_is_held() -> None:
    story = sick("row_remap_failure")
    story.settle()
    assert BlockReason.HELD in reasons(story.recover())
    assert story.node.taint is not None


def test_a_fault_that_keeps_coming_back_is_held() -> None:
    story = Story(repeats=3)
    for _ in range(2):
        story.see(finding("gpu_lost", at=story.now))
        story.settle()
        story.recover()
        assert story.node.taint is None
        story.now += 60.0
    story.see(finding("gpu_lost", at=story.now))
    story.settle()
    assert BlockReason.HELD in reasons(story.recover())


def test_a_new_node_of_the_same_name_begins_without_memory() -> None:
    story = sick(max_quarantines_per_day=1)
    story.settle()
    story.recover()
    story.see(finding("gpu_lost", at=story.now))
    assert BlockReason.RATE in reasons(story.settle())
    story.cluster.node = replace(story.node, uid="another", annotations={}, labels={})
    story.settle()
    assert story.node.taint is not None


def test_opting_out_restores_at_once() -> None:
    story = sick()
    story.settle()
    story.cluster.edit(labels=story.node.labels | {OPT_OUT: "true"})
    story.settle()
    assert story.node.taint is None
    assert story.node.labels == {OPT_OUT: "true"}


DRAIN = {"gpu_lost": "drain"}


def draining(**settings: Any) -> Story:
    """Pod a has the sick GPU, b the other one."""
    story = Story(checks=DRAIN, **settings)
    for name, more in {"a": {}, "b": {}, "daemon": {"controller": "DaemonSet"}}.items():
        story.cluster.pods[f"uid-{name}"] = PodObject(namespace="ml", name=name, uid=f"uid-{name}", gpus=1, **more)
    work = {name: (Workload(namespace="ml", pod=name, pod_uid=f"uid-{name}"),) for name in ("a", "b")}
    story.see(finding("gpu_lost", remedy=Remedy.REBOOT_NODE), holders={"GPU-0": work["a"], "GPU-1": work["b"]})
    return story


def test_only_pods_of_the_sick_gpu_are_asked_to_leave_and_the_node_is_handed_over() -> None:
    story = draining(handover=HandoverConfig(annotation="example.com/reboot", sentinel="/run/reboot"))
    made = story.settle()
    assert set(story.cluster.pods) == {"uid-b", "uid-daemon"}
    assert made.stage is NodeStage.DRAINED
    assert story.node.annotations["example.com/reboot"] == "reboot_node"
    assert story.cluster.files == {"/run/reboot"}
    story.recover()
    assert story.node.annotations == {}
    assert story.cluster.files == set()


def test_a_remediator_that_has_forgotten_its_file_removes_the_one_that_the_node_records() -> None:
    """The reboot that the file asked for has ended the process that remembered it."""
    story = draining(handover=HandoverConfig(annotation="example.com/reboot", sentinel="/run/reboot"))
    story.settle()
    assert story.cluster.files == {"/run/reboot"}
    story.memory = RemediatorMemory()
    story.recover()
    assert story.cluster.files == set()


def gang(**settings: Any) -> Story:
    """Pod a has the sick GPU, b the other one; both are of the Job train, as is one that has ended. Others are not."""
    story = draining(**settings)
    train = PodGroup(namespace="ml", kind="Job", name="train", uid="job-1")
    others = {"c": replace(train, uid="job-2"), "d": replace(train, namespace="research"), "e": None}
    for name, group in {"a": train, "b": train, "ended": train, "idle": train, **others}.items():
        story.cluster.pods[f"uid-{name}"] = PodObject(
            namespace="ml",
            name=name,
            uid=f"uid-{name}",
            gpus=0 if name == "idle" else 1,
            group=group,
            phase="Succeeded" if name == "ended" else "Running",
        )
    return story


def test_a_job_that_loses_one_pod_here_leaves_as_one_if_the_policy_allows_it() -> None:
    story = gang(drain=DrainConfig(evict="owner-on-node"))
    assert story.settle().stage is NodeStage.DRAINED
    assert set(story.cluster.pods) == {"uid-c", "uid-d", "uid-e", "uid-ended", "uid-idle", "uid-daemon"}
    told = [step for step in story.done if isinstance(step, CreateEvent) and step.reason == "GPUEviction"]
    assert {step.pod for step in told} == {("ml", name, f"uid-{name}") for name in "ab"}
    assert all(step.message.endswith("; Job train decides what starts again") for step in told)


def test_what_has_started_again_on_a_gpu_that_is_well_stays() -> None:
    story = gang(drain=DrainConfig(evict="owner-on-node"))
    for uid, pod in story.cluster.pods.items():
        story.cluster.pods[uid] = replace(pod, created=START)
    story.evictions = story.evictions.with_baseline(tuple(story.cluster.pods.values()))
    again = replace(story.cluster.pods["uid-a"], name="again", uid="uid-again", created=START + 5)
    story.cluster.pods["uid-again"] = again
    story.settle()
    assert set(story.cluster.pods) & {"uid-a", "uid-b", "uid-again"} == {"uid-again"}


def test_a_pod_of_the_job_leaves_also_where_only_its_request_says_that_it_has_a_gpu() -> None:
    """A GPU that the kubelet has not given to it yet, or whose holders cannot be read."""
    story = gang(drain=DrainConfig(evict="owner-on-node"))
    story.view = view(
        finding("gpu_lost", remedy=Remedy.REBOOT_NODE),
        holders={"GPU-0": (Workload(namespace="ml", pod="a", pod_uid="uid-a"),)},
    )
    story.settle()
    assert not {"uid-a", "uid-b"} & set(story.cluster.pods)


def test_by_default_the_others_of_a_job_stay() -> None:
    story = gang()
    story.settle()
    assert {f"uid-{name}" for name in "bcde"} <= set(story.cluster.pods)


def test_a_protected_pod_of_the_same_job_stays() -> None:
    story = gang(drain=DrainConfig(evict="owner-on-node"))
    story.cluster.pods["uid-b"] = replace(story.cluster.pods["uid-b"], mirror=True)
    assert BlockReason.PROTECTED in reasons(story.settle())
    assert {"uid-a", "uid-b"} & set(story.cluster.pods) == {"uid-b"}


@pytest.mark.parametrize(
    ("settings", "reason"),
    [
        ({"drain": DrainConfig(protected_namespaces=("ml",))}, BlockReason.PROTECTED),
        ({"drain": DrainConfig(windows=(MaintenanceWindow(start="03:00", end="03:01"),))}, BlockReason.MAINTENANCE),
    ],
)
def test_pods_that_may_not_be_evicted_stay(settings: dict[str, Any], reason: BlockReason) -> None:
    story = draining(**settings)
    made = story.settle()
    assert reason in reasons(made)
    assert "uid-a" in story.cluster.pods
    assert story.node.taint is not None


def test_a_refused_eviction_waits_longer_each_time_and_ends_at_the_deadline() -> None:
    story = draining(drain=DrainConfig(retry=10.0, deadline=1000.0))
    asked = []
    for _ in range(300):
        made = story.plan()
        for step in made.steps:
            if isinstance(step, Evict):
                asked.append(story.now)
                story.evictions = story.evictions.with_attempt(step.pod, story.now, "a disruption budget says no")
            else:
                story.cluster.do(step, story.now)
        story.now += 5.0
        story.view = replace(story.view, snapshot=replace(story.view.snapshot, at=story.now)) if story.view else None
    gaps = [later - earlier for earlier, later in pairwise(asked)]
    assert gaps == sorted(gaps)
    assert gaps[0] >= 10.0
    assert asked[-1] - asked[0] <= 1000.0
    assert {BlockReason.PDB, BlockReason.DEADLINE} <= reasons(made)
    assert "uid-a" in story.cluster.pods
    events = [event.reason for event in story.cluster.events.values()]
    assert events.count("GPUQuarantineBlocked") == 1


def test_nobody_is_asked_to_leave_while_it_is_not_known_who_has_the_gpu() -> None:
    story = draining()
    story.view = view(finding("gpu_lost"))
    assert BlockReason.STALE in reasons(story.settle())
    assert "uid-a" in story.cluster.pods


def test_what_is_in_the_way_of_restoring_is_reported_once() -> None:
    story = Story()
    story.see(*(finding("xid_fatal", xid=xid) for xid in (95, 154)))
    story.settle()
    assert story.settle().message == "xid_fatal on GPU 0 is still there"


def test_the_drivers_advice_is_no_news_for_a_pod() -> None:
    story = Story()
    pod = Workload(namespace="ml", pod="a", container="main", pod_uid="uid-a")
    story.see(*(finding("xid_fatal", xid=xid, pods=(pod,)) for xid in (95, 154)))
    story.settle()
    told = [step for step in story.done if isinstance(step, CreateEvent) and step.pod]
    assert [event.reason for event in told] == ["GPUXid95"]


def test_an_application_xid_is_reported_to_its_pod_once_a_day() -> None:
    story = Story()
    pod = Workload(namespace="ml", pod="a", container="main", pod_uid="uid-a")
    for number in range(5):
        story.see(*(finding("xid_application", gpu, at=START + number, xid=31, pods=(pod,)) for gpu in GPUS))
        story.settle()
    told = [step for step in story.done if isinstance(step, CreateEvent)]
    assert [(event.reason, event.pod) for event in told] == [("GPUXid31", ("ml", "a", "uid-a"))]


@pytest.mark.parametrize("fault", [None, "gpu_lost", "hw_power_brake", "xid_application"])
def test_at_rest_there_is_a_write_every_five_minutes_at_most(fault: str | None) -> None:
    story = Story()
    story.see(*([finding(fault)] if fault else []))
    story.settle()
    began, hours = len(story.done), 3
    for number in range(hours * 360):
        story.now += 10.0
        found = [replace(finding(fault), message=f"seen {number} times")] if fault else []
        story.see(*found)
        story.cycle()
    assert 0 < len(story.done) - began <= hours * 12


def test_acknowledgements_go_when_the_fault_is_gone_for_long() -> None:
    story = sick()
    story.settle()
    story.cluster.edit(taints=())
    story.settle()
    story.see(finding("gpu_lost"))
    story.wait(1000.0)
    story.settle()
    assert ACKNOWLEDGED in story.node.annotations
    story.see()
    story.wait(1000.0)
    story.settle()
    assert ACKNOWLEDGED not in story.node.annotations
    assert story.memory.acknowledged == {}


def counted_out(**settings: Any) -> Plan:
    """The plan when a GPU is well after its fault, and the device plugin still counts it out."""
    story = Story(**settings)
    story.see(finding("gpu_lost"))
    story.settle()
    story.see(replace(finding("gpu_not_allocatable"), severity=Severity.WARNING))
    story.clean_for = 0.0
    story.cycle()
    story.wait(story.policy.config.recovery_hold + story.policy.config.min_quarantine)
    return story.plan()


def test_a_release_says_that_the_device_plugin_still_counts_the_gpu_out() -> None:
    made = counted_out()
    assert patches(made) == ["untaint"]
    assert "GPU 0 not allocatable until the device plugin is restarted: released" in made.message


def test_by_policy_the_release_waits_for_the_device_plugin() -> None:
    made = counted_out(checks={"gpu_not_allocatable": "condition"})
    assert "untaint" not in patches(made)
    assert made.message == "gpu_not_allocatable on GPU 0 is still there"
