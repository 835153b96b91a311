"""Remediation where a small difference matters: whose cordon, claim, label or limit it is, and what is remembered."""

from datetime import UTC, datetime
from typing import Any

import pytest
from msgspec.structs import replace

from gpuwatch.config import HandoverConfig, MaintenanceWindow
from gpuwatch.kube.objects import TAINT, NodeObject, PodObject, Taint
from gpuwatch.model.clock import rfc3339
from gpuwatch.model.finding import Response
from gpuwatch.model.view import SupportCase
from gpuwatch.model.workload import Workload
from gpuwatch.remediation.model import BlockReason, CreateEvent, FreeSlot
from gpuwatch.remediation.planning.labels import DEGRADED, LABELS, PublishedLabels, published_by_us
from gpuwatch.remediation.planning.manual_quarantine import QuarantineRequest, not_ours, quarantine, release
from gpuwatch.remediation.planning.node_events import MESSAGE_SECONDS, ConditionReason, condition_update, pod_events
from gpuwatch.remediation.planning.ownership import ClaimState, encode, other_controller, read_claim
from gpuwatch.remediation.planning.plan import CYCLE_SECONDS
from gpuwatch.remediation.planning.policy import open_window
from gpuwatch.tuning.model.setting import TOLERANCE_WATTS, PowerLimits, Setting, is_same, power_target
from tests.remediation.planning.remediating import START, Story, finding, policy, view

NODE = NodeObject(name="gpu-1", uid="uid-1", resource_version="7")
CORDON = {"checks": {"gpu_lost": "cordon"}}


def sick(**settings: Any) -> Story:
    story = Story(**settings)
    story.see(finding("gpu_lost"))
    return story


def test_what_a_person_has_overruled_is_remembered_with_its_fault() -> None:
    story = sick()
    story.settle()
    story.cluster.edit(taints=())
    story.cycle()
    assert story.memory.acknowledged == {"gpu_lost/GPU-0": START}


def test_a_claim_says_nothing_of_a_cordon_that_is_not_there_yet() -> None:
    story = sick(**CORDON)
    story.cycle(crash=1)
    owner = read_claim(story.node).owner
    assert owner is not None
    assert (owner.state, owner.cordoned, owner.slot) == ("claimed", False, None)


def test_a_cordon_that_one_person_lifted_and_another_set_is_the_others() -> None:
    story = sick(**CORDON)
    story.settle()
    story.cluster.edit(unschedulable=False)
    story.settle()
    story.cluster.edit(unschedulable=True)
    story.recover()
    assert story.node.taint is None
    assert story.node.unschedulable


def test_a_graver_fault_cordons_a_node_that_is_already_tainted_and_its_end_lifts_that() -> None:
    story = sick(checks={"gpu_lost": "taint", "xid_fatal": "cordon"})
    story.settle()
    assert not story.node.unschedulable
    story.see(finding("gpu_lost"), finding("xid_fatal", xid=79))
    story.settle()
    assert story.node.unschedulable
    owner = read_claim(story.node).owner
    assert owner is not None
    assert owner.cordoned
    story.recover()
    assert not story.node.unschedulable


def test_nobody_is_asked_to_leave_a_tainted_node_that_another_controller_uses() -> None:
    story = sick(checks={"gpu_lost": "drain"}, handover=HandoverConfig())
    story.cluster.pods["uid-a"] = PodObject(namespace="ml", name="a", uid="uid-a", gpus=1)
    work = (Workload(namespace="ml", pod="a", pod_uid="uid-a"),)
    story.view = view(finding("gpu_lost"), holders={"GPU-0": work})
    story.cycle(crash=3)
    assert story.node.taint is not None
    story.cluster.edit(labels={**story.node.labels, "k8saas.nvidia.com/cordon-by": "x"})
    made = story.settle()
    assert "uid-a" in story.cluster.pods
    assert BlockReason.FOREIGN in {obstacle.reason for obstacle in made.blocked}


def test_a_sick_gpu_that_the_kubelet_gave_to_nobody_leaves_no_doubt() -> None:
    story = sick(checks={"gpu_lost": "drain"})
    story.view = view(finding("gpu_lost"), holders={"GPU-0": ()})
    assert BlockReason.STALE not in {obstacle.reason for obstacle in story.settle().blocked}


def test_the_policy_names_the_strongest_answer_that_each_xid_may_have() -> None:
    rules = policy(xids={79: Response.DRAIN}).rules()
    assert [type(rule[2]) for rule in rules] == [Response] * len(rules)


@pytest.mark.parametrize(
    ("key", "is_theirs"), [("node-busy", True), ("-busy", True), ("busy", False), ("xbusy", False)]
)
def test_a_pattern_for_the_end_of_a_key_is_taken_whole(key: str, is_theirs: bool) -> None:
    node = replace(NODE, labels={key: "x"})
    assert (other_controller(node, cordoned=False, more=("*-busy",)) is not None) is is_theirs


def test_a_taint_that_is_set_beside_our_claim_is_not_ours() -> None:
    story = sick()
    story.cycle(crash=1)
    assert read_claim(story.node).claim is ClaimState.CLAIMED
    story.cluster.edit(taints=(Taint(key=TAINT, value="theirs"),))
    assert read_claim(story.node).claim is ClaimState.FOREIGN


def test_a_limit_that_was_set_to_what_it_was_is_left_alone() -> None:
    setting = Setting(
        uuid="GPU-0", knob="power_limit", original=700.0, applied=(700.0,), at=0.0, boot_id="b", driver="580"
    )
    assert power_target(setting, PowerLimits(700.0, 700.0)) is None


@pytest.mark.parametrize(("off", "same"), [(0.0, True), (TOLERANCE_WATTS, True), (1.01 * TOLERANCE_WATTS, False)])
def test_limits_are_one_within_what_the_driver_rounds(off: float, same: bool) -> None:
    assert is_same(512.0, 512.0 + off) is is_same(512.0 + off, 512.0) is same


def test_a_slot_that_cannot_be_read_is_released_by_what_is_remembered() -> None:
    story = sick()
    story.settle()
    slot = story.memory.slot
    assert slot is not None
    story.cluster.edit(taints=(), annotations={})
    story.see()
    story.readable = False
    assert FreeSlot(name=slot) in story.plan().steps


OLD = condition_update(NODE, ConditionReason.DEGRADED, "one", START, 300.0)
assert OLD is not None
DEGRADED_NODE = replace(NODE, conditions=(OLD,))


def test_a_condition_has_moved_only_when_its_status_has() -> None:
    later = START + 1000.0
    other, well = (
        condition_update(DEGRADED_NODE, why, "two", later, 300.0)
        for why in (ConditionReason.BLOCKED, ConditionReason.HEALTHY)
    )
    assert other is not None
    assert well is not None
    assert (other.status, other.last_transition) == ("False", rfc3339(START))
    assert (well.status, well.last_transition) == ("True", rfc3339(later))


@pytest.mark.parametrize(("after", "written"), [(MESSAGE_SECONDS / 2, False), (MESSAGE_SECONDS, True)])
def test_a_text_alone_is_not_written_in_every_cycle(after: float, written: bool) -> None:
    assert (condition_update(DEGRADED_NODE, ConditionReason.DEGRADED, "two", START + after, 0.0) is not None) is written


def test_a_pod_whose_name_is_not_known_is_not_reported() -> None:
    pods = (Workload(namespace="ml", pod_uid="1"), Workload(namespace="ml", pod="a", pod_uid="2"))
    seen = view(finding("xid_application", xid=31, pods=pods))
    assert [event.pod for event in pod_events(seen, policy())] == [("ml", "a", "2")]


def test_only_labels_of_ours_are_taken_off_whatever_the_annotation_says() -> None:
    claimed = PublishedLabels(at=0.0, labels={DEGRADED: "true", "zone": "b"})
    node = replace(NODE, labels={DEGRADED: "true", "zone": "b"}, annotations={LABELS: encode(claimed)})
    assert published_by_us(node) == {DEGRADED: None}


def test_a_node_that_a_person_took_out_of_service_is_not_degraded_by_that() -> None:
    story = Story(labels=("gpu-degraded",))
    for step in quarantine(story.node, QuarantineRequest(at=START, reason="a test"), None).steps:
        story.cluster.do(step, START)
    assert read_claim(story.node).claim is ClaimState.APPLIED
    for _ in range(4):
        story.now += 400.0
        story.see()
        story.settle()
    assert DEGRADED not in story.node.labels


def test_restoring_manually_warns_only_of_a_taint_that_is_not_ours() -> None:
    story = sick()
    story.settle()
    request = QuarantineRequest(at=START, reason="a test")
    assert release(story.node, request, ()).blocked == ()
    theirs = replace(NODE, taints=(Taint(key=TAINT, value="theirs"),))
    assert [obstacle.reason for obstacle in release(theirs, request, ()).blocked] == [BlockReason.FOREIGN]
    assert release(NODE, request, ()).blocked == ()
    assert not_ours(NODE).reason is BlockReason.FOREIGN  # also when the taint went meanwhile


@pytest.mark.parametrize(("clock", "is_open"), [("21:59", False), ("22:00", True), ("03:59", True), ("04:00", False)])
def test_a_window_over_midnight_is_open_from_its_first_minute(clock: str, is_open: bool) -> None:
    now = datetime.fromisoformat(f"2026-03-02 {clock}").replace(tzinfo=UTC).timestamp()
    assert (open_window((MaintenanceWindow(start="22:00", end="04:00"),), now) is not None) is is_open


def test_without_a_fresh_view_nothing_shortens_the_wait() -> None:
    story = Story()
    story.settle()
    story.age = 10_000.0
    assert story.plan().next_cycle == CYCLE_SECONDS


def test_a_support_case_is_named_once_on_the_node() -> None:
    story = Story()
    case = SupportCase(file="20260921T141320Z-xid_fatal.tgz", at=story.now - 60, bytes=81920)
    old = SupportCase(file="20260901T141320Z-xid_fatal.tgz", at=story.now - 2 * 86400, bytes=81920)
    assert story.view is not None
    story.view = replace(story.view, support_cases=(old, case))
    for _ in range(3):
        story.cycle()
        story.wait(30)
    told = [step for step in story.done if isinstance(step, CreateEvent)]
    assert [(each.reason, each.pod, each.warning) for each in told] == [("GPUSupportCase", None, False)]
    assert told[0].message == "kept on this node in state_dir: support/20260921T141320Z-xid_fatal.tgz (80 KiB)"
