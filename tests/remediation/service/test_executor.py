"""The actuator: which failures end a plan, what is written down, where it can be killed; and slots raced for."""

import random
import threading

import pytest
from msgspec.structs import replace

from gpuwatch.config import BudgetConfig
from gpuwatch.kube.errors import (
    FIRST_SECONDS,
    LONGEST_SECONDS,
    AlreadyExists,
    ApiCall,
    Backoff,
    Conflict,
    TooMany,
    Unavailable,
)
from gpuwatch.kube.objects import CONDITION, TAINT, Condition, DeviceRule, LeaseObject, PodObject, Taint
from gpuwatch.kube.transport import Transport
from gpuwatch.model.event import Result
from gpuwatch.remediation.model import (
    ACTIONS,
    OWNER,
    CreateEvent,
    DeleteRule,
    Evict,
    FreeSlot,
    NodeStage,
    PatchNode,
    Plan,
    SetCondition,
    SetRebootSentinel,
    TakeSlot,
    WriteRule,
)
from gpuwatch.remediation.planning.slots import choose
from gpuwatch.remediation.service.executor import CRASH_POINTS, PlanExecutor
from gpuwatch.remediation.service.node_writer import NodeWriter
from gpuwatch.remediation.service.reboot_sentinel import MARK, set_sentinel
from gpuwatch.remediation.service.slots import SlotReader, SlotWriter
from gpuwatch.sim.kubeapi.faults import ApiFaults
from gpuwatch.storage.audit import Audit
from tests.remediation.model.remediating import NAMESPACE, NODE, FakeClock, Ledger, settings

CLAIM = PatchNode(step="claim", annotations={OWNER: "{}"})
SLOT = TakeSlot(slots=1, name="gpuwatch-slot-0")
TAINTED = PatchNode(step="taint", taints=(Taint(key=TAINT, value="gpu_lost"),))
SICK = SetCondition(condition=Condition(type=CONDITION, status="False", reason="GPUQuarantined", message="m"))
TOLD = CreateEvent(name="gpuwatch-1", reason="GPUQuarantined", message="m")


class Hands:
    """An actuator of one node, and everything around it."""

    def __init__(self, server, checkpoint=lambda name: None, node=NODE):
        self.clock, self.ledger = FakeClock(), Ledger()
        self.writer = NodeWriter(Transport(str(server.kubeconfig())), node)
        slots = SlotWriter(self.writer, self.clock, 900.0, NAMESPACE)
        self.actuator = PlanExecutor(
            self.writer, slots, Audit(self.ledger, self.clock), self.clock, checkpoint=checkpoint
        )

    def do(self, *steps):
        plan = Plan(node=NODE, at=0.0, stage=NodeStage.QUARANTINED, steps=steps, message="why")
        return self.actuator.execute(plan, self.writer.node())


@pytest.fixture
def hands(server):
    return Hands(server)


def results(outcome):
    return [each.result for each in outcome.steps]


def test_the_node_of_one_patch_is_the_base_of_the_next(hands):
    outcome = hands.do(CLAIM, SLOT, TAINTED, SICK, TOLD)
    assert results(outcome) == [Result.DONE] * 5
    assert outcome.stopped is None
    assert outcome.lease.holder == NODE
    assert hands.ledger.done() == ["claim", "slot", "taint", "condition", "event"]
    assert outcome.node.taint.value == "gpu_lost"


def test_in_a_crowd_only_condition_and_event_are_put_off_and_what_comes_after_is_done(hands):
    later = FreeSlot(name=SLOT.name)
    plan = Plan(node=NODE, at=0.0, stage=NodeStage.QUARANTINED, steps=(CLAIM, SLOT, TAINTED, SICK, TOLD, later))
    outcome = hands.actuator.execute(plan, hands.writer.node(), lambda: True)
    assert outcome.put_off
    assert [each.step for each in outcome.steps] == [CLAIM, SLOT, TAINTED, later]
    assert hands.ledger.done() == ["claim", "slot", "taint", "free_slot"]


def test_a_conflict_ends_the_plan_and_is_tried_again_under_the_same_number(hands, cluster):
    stale = hands.writer.node()
    plan = Plan(node=NODE, at=0.0, stage=NodeStage.QUARANTINED, steps=(TAINTED, SICK), message="why")
    cluster.put("nodes", cluster.get("nodes", "", NODE), user="another")
    outcome = hands.actuator.execute(plan, stale)
    assert isinstance(outcome.stopped, Conflict)
    assert results(outcome) == [Result.SKIPPED]
    hands.actuator.execute(plan, hands.writer.node())
    taint = [each for each in hands.ledger.actions if each.action == "taint"]
    assert [each.result for each in taint] == [Result.INTENDED, Result.DONE]
    assert taint[1].number == 1


def test_a_slot_that_another_took_ends_the_plan_before_the_taint(server, hands):
    Hands(server, node="n2").writer.create_lease(NAMESPACE, SLOT.name, 0.0, 900.0)
    outcome = hands.do(CLAIM, SLOT, TAINTED)
    assert isinstance(outcome.stopped, AlreadyExists)
    assert results(outcome) == [Result.DONE, Result.SKIPPED]
    assert hands.writer.node().taint is None


def test_a_slot_that_is_certain_is_not_asked_for_again(hands, cluster):
    again = replace(SLOT, resource_version=hands.do(SLOT).lease.resource_version)
    hands.do(again)
    assert cluster.requests["admin", "patch", "leases"] == 0
    hands.clock.go(61)
    hands.do(again)
    assert cluster.requests["admin", "patch", "leases"] == 1


def test_a_slot_that_others_have_freed_since_is_not_certain(server, hands):
    hands.do(SLOT)
    other = Hands(server)  # `node release`, say, of the same node
    freed = other.do(FreeSlot(name=SLOT.name)).lease
    hands.do(replace(SLOT, resource_version=freed.resource_version))
    assert other.writer.lease(NAMESPACE, SLOT.name).holder == NODE


@pytest.mark.parametrize(("share", "kind"), [("throttle", TooMany), ("internal_error", Unavailable)])
def test_a_server_in_trouble_is_left_alone_after_the_first_refusal(hands, cluster, share, kind):
    cluster.faults = replace(ApiFaults(verbs=["create"]), **{share: 1.0})
    outcome = hands.do(TOLD, SICK)
    assert isinstance(outcome.stopped, kind)
    assert results(outcome) == [Result.FAILED]


def test_a_pod_that_may_not_go_yet_keeps_no_other_from_going(hands, cluster):
    cluster.add_pdb("ml", "train", {"app": "train"}, min_available=4)
    cluster.add_pod("ml", "free-0", node=NODE)
    kept = next(pod for pod in hands.writer.pods() if pod.name == "train-0")
    free = next(pod for pod in hands.writer.pods() if pod.name == "free-0")
    gone = PodObject(namespace="ml", name="gone", uid="u")
    outcome = hands.do(Evict(pod=kept), Evict(pod=gone), Evict(pod=free))
    assert results(outcome) == [Result.FAILED, Result.SKIPPED, Result.DONE]
    assert outcome.stopped is None


def test_what_only_says_again_what_stands_there_leaves_no_audit_line(hands):
    hands.do(SICK)
    before = len(hands.ledger.actions)
    assert results(hands.do(SICK)) == [Result.DONE]
    assert len(hands.ledger.actions) == before


def test_a_slot_that_is_not_ours_any_more_is_not_released(server, hands):
    Hands(server, node="n2").writer.create_lease(NAMESPACE, SLOT.name, 0.0, 900.0)
    assert results(hands.do(FreeSlot(name=SLOT.name), FreeSlot(name="gpuwatch-slot-7"))) == [Result.SKIPPED] * 2
    assert hands.writer.lease(NAMESPACE, SLOT.name).holder == "n2"


def test_every_crash_point_is_passed_by_the_step_it_names(server, tmp_path):
    passed = []
    hands = Hands(server, passed.append)
    steps = (
        *(
            PatchNode(step=name, annotations={OWNER: name})
            for name in ("claim", "taint", "confine", "untaint", "forget", "label")
        ),
        PatchNode(step="refresh", unschedulable=True),
        SLOT,
        SICK,
        TOLD,
        Evict(pod=hands.writer.pods()[0]),
        SetRebootSentinel(sentinel=str(tmp_path / "file")),
        FreeSlot(name=SLOT.name),
        WriteRule(rule=DeviceRule(name="r", owner="q", pool=NODE, device="gpu-0", effect="NoSchedule")),
        DeleteRule(name="r", owner="q"),
    )
    server.cluster.serve_device_taints()
    for step in steps:
        assert hands.do(step).stopped is None
    assert sorted(passed) == sorted(CRASH_POINTS)
    assert {name.partition(".")[0] for name in CRASH_POINTS} == set(ACTIONS)


@pytest.mark.parametrize("slots", [1, 3])
def test_of_many_nodes_that_need_the_last_slots_as_many_get_one_as_there_are(server, slots):
    nodes = [f"gpu-{number}" for number in range(12)]
    for name in nodes:
        server.cluster.add_node(name)
    budget = settings().budget
    start, winners = threading.Barrier(len(nodes)), []

    def take_slot(name):
        hands, clock, chance = Hands(server, node=name), FakeClock(), random.Random(name)
        reader = SlotReader(hands.writer, clock, budget, NAMESPACE)
        start.wait()
        for _ in range(20):
            step = choose(_only(budget, slots), reader.read(), name, chance.random())
            if not isinstance(step, TakeSlot):
                return
            if hands.do(step).stopped is None:
                winners.append(name)
                return

    threads = [threading.Thread(target=take_slot, args=(name,)) for name in nodes]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert len(winners) == slots
    holders = [lease["spec"]["holderIdentity"] for lease in server.cluster.objects("leases", NAMESPACE)]
    assert sorted(holders) == sorted(winners)


def _only(budget, slots):
    return type(budget)(max_unavailable=slots, namespace=budget.namespace)


def test_back_off_doubles_to_a_bound_and_never_asks_sooner_than_the_server_allows():
    backoff = Backoff(random.Random(1))
    waits = [backoff.failed() for _ in range(20)]
    assert FIRST_SECONDS / 2 <= waits[0] <= FIRST_SECONDS
    assert all(wait <= LONGEST_SECONDS for wait in waits)
    assert waits[-1] >= LONGEST_SECONDS / 2
    assert backoff.failed(100.0) >= 100.0
    backoff.succeeded()
    assert backoff.failed() <= FIRST_SECONDS


def test_the_hand_over_file_is_made_once_and_only_ours_is_removed(tmp_path):
    path = tmp_path / "reboot-required"
    assert [set_sentinel(path, wanted=True) for _ in range(2)] == [True, False]
    assert path.read_text() == MARK
    assert [set_sentinel(path, wanted=False) for _ in range(2)] == [True, False]
    path.write_text("somebody else's")
    assert not set_sentinel(path, wanted=True)
    assert not set_sentinel(path, wanted=False)
    assert path.read_text() == "somebody else's"
    assert list(tmp_path.iterdir()) == [path]


def test_a_hand_over_that_cannot_be_made_says_why(tmp_path, hands):
    outcome = hands.do(SetRebootSentinel(sentinel=str(tmp_path / "no" / "such" / "folder")))
    assert "remediation.handover.sentinel" in str(outcome.stopped)
    assert results(outcome) == [Result.FAILED]


def test_a_node_tainted_between_two_answers_is_not_without_a_slot():
    """Of a budget in percent: it would count twice, and a slot that is free would be left."""

    class Racing:
        """Another node takes a slot and is tainted after the Leases were read."""

        name, taken = NODE, False

        def leases(self, namespace):
            return (LeaseObject(name="gpuwatch-slot-0", resource_version="1", holder="n2"),) if self.taken else ()

        def count_nodes(self, selector):
            return 20

        def nodes_with(self, selector):
            self.taken = True
            return frozenset({"n2"})

    slots = SlotReader(Racing(), FakeClock(), BudgetConfig(max_unavailable="10%"), NAMESPACE).read()
    assert (slots.without_slot, len(slots.leases)) == (frozenset(), 1)


class Answering:
    """An API server whose Nodes can be counted; `asked`: how often. `astray_fails`: the second question is refused."""

    name = NODE

    def __init__(self, nodes):
        self.nodes, self.asked, self.astray_fails = nodes, 0, False

    def leases(self, namespace):
        return ()

    def count_nodes(self, selector):
        self.asked += 1
        return self.nodes

    def nodes_with(self, selector):
        if self.astray_fails:
            raise Unavailable(ApiCall("list", "nodes"), "it is away")
        return frozenset({"n2"})


@pytest.mark.parametrize(("nodes", "believed"), [(20, 600.0), (2000, 2000.0), (20_000, 3600.0)])
def test_nodes_are_counted_at_rest_before_the_answer_is_too_old(nodes, believed):
    api, clock = Answering(nodes), FakeClock()
    slots = SlotReader(api, clock, BudgetConfig(max_unavailable="10%"), NAMESPACE)
    slots.refresh()
    clock.go(believed / 2)
    slots.refresh()
    assert api.asked == 1
    clock.go(believed / 4)
    slots.refresh()
    assert api.asked == 2
    clock.go(believed)
    slots.read()
    assert api.asked == 2
    clock.go(1.0)
    slots.read()
    assert api.asked == 3


def test_a_count_without_the_nodes_that_have_no_slot_is_not_trusted():
    api = Answering(20)
    api.astray_fails = True
    slots = SlotReader(api, FakeClock(), BudgetConfig(max_unavailable="10%"), NAMESPACE)
    assert slots.read().leases is None
    api.astray_fails = False
    assert slots.read().without_slot == {"n2"}


def test_a_budget_of_nodes_counts_none():
    api = Answering(20)
    SlotReader(api, FakeClock(), BudgetConfig(max_unavailable=2), NAMESPACE).refresh()
    assert api.asked == 0
