"""The remediator on hard days: storms of news, rights that are taken away, settings that change at the wrong moment,
others who undo what it does.
"""

import json
import logging
import random

import pytest

from gpuwatch.config import BudgetConfig, DrainConfig, HandoverConfig
from gpuwatch.kube import parse as kube_parse
from gpuwatch.kube.errors import ApiCall, Backoff, Garbled
from gpuwatch.kube.transport import Transport
from gpuwatch.model.finding import Response
from gpuwatch.remediation.model import ACKNOWLEDGED, FAULTS, OWNER, BlockReason, NodeStage
from gpuwatch.remediation.planning.node_events import STEADY_SECONDS
from gpuwatch.remediation.service.observation import (
    LONGER,
    LONGEST_BACKOFF,
    LONGEST_TURN,
    NEWS_AT_ONCE,
    NEWS_SECONDS,
    READS,
    TURN,
    TURN_SECONDS,
    USUAL_SECONDS,
    CycleSchedule,
)
from gpuwatch.remediation.service.reboot_sentinel import MARK
from gpuwatch.remediation.service.remediator import CROWDED_SECONDS, REPORT_SECONDS, REST_SECONDS
from gpuwatch.sim.kubeapi.access import AccessRule
from gpuwatch.sim.kubeapi.faults import ApiFaults
from tests.remediation.model.remediating import INTERVAL, NAMESPACE, NODE, Bench, FakeClock, fatal, settings

DRAIN = {"checks": {"gpu_lost": Response.DRAIN}, "drain": DrainConfig(retry=5.0, deadline=600.0)}
FOREIGN_KEY = "example.com/reboot"


class Certain:
    """A chance that always takes the longest."""

    def uniform(self, low, high):
        return high


def reasons(bench):
    plan = bench.remediator.state.plan
    return {obstacle.reason for obstacle in plan.blocked} if plan else set()


def events(bench):
    return [event["reason"] for event in bench.cluster.objects("events")]


def make(server, **changes):
    made = Bench(server.cluster, server.kubeconfig(), FakeClock(), settings(**changes))
    made.remediator.step()
    return made


def sick(bench, **more):
    bench.finds(fatal(bench.clock.time(), **more))
    bench.remediator.step()


def annotate(bench, **marks):
    """A hand, or another controller, on the Node's annotations; None takes one away."""
    node = bench.node
    annotations = {key: value for key, value in {**bench.annotations, **marks}.items() if value is not None}
    metadata = {**node["metadata"], "annotations": annotations}
    bench.cluster.put("nodes", {**node, "metadata": metadata}, user="somebody")


# ---- rights


def test_slots_that_may_not_be_freed_any_more_are_no_reason_to_ask_every_second(server):
    bench = make(server)
    sick(bench)
    server.cluster.add_user("narrow", [AccessRule(verbs=["*"], resources=["nodes", "nodes/status", "events"])])
    bench.kubeconfig = str(server.kubeconfig("narrow"))
    bench.restarted()
    bench.finds()
    bench.run(200)
    assert not bench.ours
    asked, rows = bench.cluster.requests.total(), len(bench.ledger.actions)
    bench.run(600)
    assert bench.cluster.requests.total() - asked < 120
    assert len(bench.ledger.actions) - rows < 60
    assert BlockReason.PERMISSION in reasons(bench)
    assert "leases" in bench.remediator.state.trouble


def test_a_right_that_is_missing_for_the_condition_only_is_reported(server):
    rules = [AccessRule(verbs=["*"], resources=["nodes", "pods", "leases", "events"])]
    server.cluster.add_user("narrow", rules)
    bench = Bench(server.cluster, server.kubeconfig("narrow"), FakeClock(), settings())
    sick(bench)
    assert bench.ours
    assert "grant patch on nodes/status" in bench.remediator.state.trouble


def test_an_effect_that_would_end_ourselves_keeps_nothing_from_being_restored(server):
    server.cluster.add_pod(NAMESPACE, "gpuwatch-x", node=NODE, owner_kind="DaemonSet", gpus=0)
    bench = make(server)
    sick(bench)
    assert bench.is_quarantined()
    bench.restarted(settings(effect="NoExecute"), pod=(NAMESPACE, "gpuwatch-x"))
    bench.finds()
    bench.run(100)
    assert bench.is_clean()
    sick(bench)
    assert not bench.ours


# ---- settings that change in between


@pytest.mark.parametrize("later", [HandoverConfig(), HandoverConfig(annotation="example.com/other")])
def test_what_was_handed_over_by_other_settings_is_called_back(server, tmp_path, later):
    sentinel = tmp_path / "reboot-required"
    handover = HandoverConfig(annotation=FOREIGN_KEY, sentinel=str(sentinel))
    bench = make(server, handover=handover, **DRAIN)
    server.cluster.delete("pods", "ml", "train-2", grace=0)
    sick(bench, gpu=2)
    bench.run(30)
    assert FOREIGN_KEY in bench.annotations
    assert sentinel.read_text() == MARK
    bench.remediator.reconfigure(settings(handover=later, **DRAIN))
    bench.finds()
    bench.run(100)
    assert bench.is_clean()
    assert FOREIGN_KEY not in bench.annotations
    assert not sentinel.exists()


def test_a_node_that_a_person_released_from_elsewhere_is_not_rebooted_after_all(server, tmp_path):
    sentinel = tmp_path / "reboot-required"
    bench = make(server, handover=HandoverConfig(sentinel=str(sentinel)), **DRAIN)
    server.cluster.delete("pods", "ml", "train-2", grace=0)
    sick(bench, gpu=2)
    bench.run(30)
    assert sentinel.exists()
    annotate(bench, **{OWNER: None, FAULTS: None})
    bench.edit(taints=[], unschedulable=False)
    bench.finds()
    bench.run(100)
    assert not sentinel.exists()


def test_who_stops_enforcing_is_warned_that_the_node_stays_quarantined(bench, caplog):
    sick(bench)
    bench.remediator.step()
    with caplog.at_level(logging.WARNING):
        bench.remediator.reconfigure(settings(mode="observe"))
    assert f"gpuwatch node release {NODE}" in caplog.text
    bench.finds()
    bench.run(100)
    assert bench.ours


# ---- the budget


def test_a_fault_that_comes_and_goes_where_no_slot_is_free_is_reported_once_and_ends_once(server):
    bench = make(server, budget=BudgetConfig(max_unavailable=0), recovery_hold=300.0)
    told = len(bench.ledger.done())
    for _ in range(20):
        sick(bench)
        bench.run(20)
        bench.finds()
        bench.run(20)
        assert bench.condition["status"] == "False"
    bench.run(STEADY_SECONDS + 10)
    assert bench.condition["status"] == "True"
    assert bench.ledger.done()[told:] == ["event", "condition", "event", "condition"]


def test_an_acknowledgement_goes_with_its_fault(bench):
    sick(bench)
    bench.edit(taints=[])
    bench.run(100)
    assert ACKNOWLEDGED in bench.annotations
    bench.finds()
    bench.run(bench.config.recovery_hold + 100)
    assert ACKNOWLEDGED not in bench.annotations


def test_a_taint_whose_owner_cannot_be_read_any_more_keeps_its_slot(bench):
    sick(bench)
    annotate(bench, **{OWNER: "{ broken"})
    bench.finds()
    bench.run(100)
    assert bench.ours
    assert bench.holders == [NODE]
    assert BlockReason.FOREIGN in reasons(bench)
    annotate(bench, **{OWNER: None})
    bench.edit(taints=[])
    bench.run(100)
    assert bench.holders == []


@pytest.mark.parametrize("failures", [0.0, 0.5])
def test_a_slot_that_nobody_lived_to_remember_is_freed_by_the_next_life(server, failures):
    bench = make(server)
    sick(bench)
    assert bench.holders == [NODE]
    marks = [key for key in bench.annotations if key.startswith("gpuwatch.io/")]
    annotate(bench, **dict.fromkeys(marks))
    bench.edit(taints=[])
    bench.ledger = type(bench.ledger)()  # killed after the untaint, and nothing was remembered
    bench.finds()
    bench.restarted()
    server.cluster.faults = ApiFaults(unavailable=failures, resources=("leases",))
    bench.run(600)
    assert bench.holders == []


def test_a_quarantine_undone_within_the_second_counts_all_the_same(bench):
    """Whoever overwrites the whole Node, annotations and all, is no person who overrules: in the end we stop."""
    for _ in range(200):
        bench.finds(fatal(bench.clock.time()))
        bench.remediator.step()
        node = bench.node
        metadata = {**node["metadata"], "annotations": {}, "labels": {}}
        bench.cluster.put("nodes", {**node, "metadata": metadata, "spec": {}}, user="gitops")
        bench.run(10)
    assert BlockReason.RATE in reasons(bench)
    taints = [each for each in bench.ledger.done() if each == "taint"]
    assert len(taints) == bench.config.max_quarantines_per_day


def test_a_list_that_is_none_is_no_empty_list():
    """A proxy that answers 200 with some other JSON has not said that all slots are free."""
    for parse in (kube_parse.leases, kube_parse.pods):
        with pytest.raises(Garbled):
            parse(ApiCall("list", "things"), b'{"kind": "Status", "metadata": {}}')
        assert parse(ApiCall("list", "things"), b'{"items": null}') == ()


# ---- storms


def test_a_storm_of_news_is_no_storm_of_requests(bench):
    sick(bench, check="xid_contained", xid=94)
    asked = bench.cluster.requests["admin", "get", "nodes"]
    seconds = 600
    for _ in range(int(seconds / INTERVAL)):
        bench.finds(fatal(bench.clock.time(), check="xid_contained", xid=94))
        bench.run(INTERVAL)
    assert bench.cluster.requests["admin", "get", "nodes"] - asked < NEWS_AT_ONCE + seconds / NEWS_SECONDS + 20


def test_news_do_not_break_the_peace_a_server_asked_for(bench):
    bench.cluster.faults = ApiFaults(throttle=1.0, retry_after=120)
    bench.finds(fatal(bench.clock.time()))
    bench.remediator.step()
    asked = bench.cluster.requests.total()
    for gpu in range(4):
        bench.finds(fatal(bench.clock.time(), gpu=gpu))
        bench.run(25)
    assert bench.cluster.requests.total() == asked
    bench.cluster.faults = ApiFaults()
    bench.run(120)
    assert bench.is_quarantined()


def test_who_is_undone_again_and_again_becomes_patient():
    clock = FakeClock()
    pace = CycleSchedule(clock, Certain())
    waits = [pace.succeeded(("the same",)) for _ in range(12)]
    assert waits[:3] == [0.0] * 3
    assert sorted(waits) == waits
    assert waits[-1] == LONGEST_BACKOFF
    assert pace.succeeded(("another",)) == 0.0
    assert [pace.succeeded(()) for _ in range(12)] == [0.0] * 12


# ---- others at the same node


def test_a_cordon_stays_while_another_controller_works_under_it(server):
    bench = make(server, checks={"gpu_lost": Response.CORDON})
    sick(bench)
    assert bench.node["spec"]["unschedulable"]
    node = bench.node
    labels = {**node["metadata"]["labels"], "nvidia.com/gpu-driver-upgrade-state": "pod-restart-required"}
    bench.cluster.put("nodes", {**node, "metadata": {**node["metadata"], "labels": labels}}, user="gpu-operator")
    bench.finds()
    bench.run(100)
    assert bench.node["spec"]["unschedulable"]
    assert BlockReason.FOREIGN in reasons(bench)
    node = bench.node
    labels = {**node["metadata"]["labels"], "nvidia.com/gpu-driver-upgrade-state": "upgrade-done"}
    bench.cluster.put("nodes", {**node, "metadata": {**node["metadata"], "labels": labels}}, user="gpu-operator")
    bench.run(100)
    assert bench.is_clean()


def test_a_pod_that_comes_back_under_the_taint_is_not_evicted_again_and_again(server):
    bench = make(server, **DRAIN)
    sick(bench, gpu=2)
    bench.run(10)
    for round_ in range(20):
        server.cluster.delete("pods", "ml", "train-2", grace=0)
        pod = server.cluster.add_pod("ml", "train-2", node=NODE, labels={"app": "train"})
        later = {**pod["metadata"], "creationTimestamp": f"2099-01-01T00:{round_:02}:00Z"}
        server.cluster.put("pods", {**pod, "metadata": later})
        bench.run(20)
    assert bench.cluster.requests["admin", "create", "pods/eviction"] == 1
    assert BlockReason.PROTECTED in reasons(bench)


def test_a_pod_that_began_just_before_the_fault_is_evicted_once_the_kubelet_lists_it(server):
    """The agent asks the kubelet every ten seconds, so the first plan finds nobody on the GPU."""
    bench = make(server, **DRAIN)
    bench.views.unlisted = {"train-2"}
    sick(bench, gpu=2)
    bench.run(10)
    assert bench.remediator.state.plan.stage is NodeStage.DRAINED
    bench.views.unlisted = set()
    bench.run(INTERVAL)
    assert bench.cluster.requests["admin", "create", "pods/eviction"] == 1


def test_a_plan_follows_the_device_plugin_at_once(server):
    bench = make(server, checks={"gpu_lost": Response.DRAIN})
    bench.views.withheld = ()
    sick(bench, gpu=2)
    bench.run(10)
    assert bench.is_quarantined()
    bench.withholds(2)
    bench.run(INTERVAL)
    assert bench.is_confined()


def test_pods_that_come_and_go_on_a_sick_gpu_start_no_storm(server):
    bench = make(server, **DRAIN)
    sick(bench, gpu=2)
    bench.run(10)
    before = bench.cluster.requests.total()
    for round_ in range(300):
        bench.views.unlisted = {"train-2"} if round_ % 2 else set()
        bench.run(INTERVAL)
    assert bench.cluster.requests.total() - before < 600


def test_pods_of_a_gpu_that_is_well_again_are_left_alone(server):
    bench = make(server, **DRAIN)
    server.cluster.add_pdb("ml", "train", {"app": "train"}, min_available=4)
    both = (fatal(bench.clock.time(), gpu=0), fatal(bench.clock.time(), gpu=2))
    bench.finds(*both)
    bench.run(30)
    bench.finds(both[1])
    bench.run(30)
    server.cluster.delete("poddisruptionbudgets", "ml", "train")
    bench.run(200)
    left = {pod["metadata"]["name"] for pod in server.cluster.objects("pods", "ml") if not _is_leaving(pod)}
    assert "train-0" in left
    assert "train-2" not in left


def _is_leaving(pod):
    return "deletionTimestamp" in pod["metadata"]


def test_two_remediators_of_one_node_undo_nothing_of_each_other(server):
    """An old pod that does not end, and its successor: one quarantine, one slot, one heartbeat."""
    bench = make(server, budget=BudgetConfig(max_unavailable=1))
    twin = Bench(server.cluster, server.kubeconfig(), bench.clock, bench.config)
    for gpu in range(3):
        for each in (bench, twin):
            each.finds(fatal(bench.clock.time(), gpu=gpu))
        both(bench, twin, 60)
        assert bench.is_quarantined()
        owner = json.loads(bench.annotations[OWNER])
        before = writes(bench)
        both(bench, twin, 1800)
        assert json.loads(bench.annotations[OWNER])["id"] == owner["id"]
        assert writes(bench) - before <= 1800 / 300
        for each in (bench, twin):
            each.finds()
        both(bench, twin, 120)
        assert bench.is_clean()
    told = [event["reason"] for event in server.cluster.objects("events")]
    assert (told.count("GPUQuarantined"), told.count("GPURecovered")) == (3, 3)


def both(bench, twin, seconds):
    for _ in range(int(seconds / INTERVAL)):
        for each in (bench, twin):
            each.views.poll()
            each.remediator.step()
        bench.clock.go(INTERVAL)


def writes(bench):
    verbs = ("create", "patch", "update", "delete")
    return sum(count for (_, verb, _), count in bench.cluster.requests.items() if verb in verbs)


def test_a_fleet_that_comes_back_after_an_outage_comes_spread_out():
    """A thousand that failed together do not ask again in the same second, though all have news."""
    clock, first = FakeClock(), []
    for number in range(1000):
        chance = random.Random(number)
        pace, backoff = CycleSchedule(clock, chance), Backoff(chance)
        for _ in range(10):
            wait = backoff.failed()
        pace.failed(None)
        pace.wait(wait)
        first.append(pace.left)
    busiest = max(sum(second <= each < second + 1 for each in first) for second in range(61))
    assert busiest < 60


class Crowded(Transport):
    """An API server that takes some seconds for each read of a Node, by a clock that a test moves."""

    seconds = 0.0

    def __init__(self, kubeconfig, clock):
        super().__init__(kubeconfig)
        self.clock = clock

    def request(self, call, path, **more):
        if (call.verb, call.resource) == ("get", "nodes"):
            self.clock.go(self.seconds)
        return super().request(call, path, **more)


class CrowdedBench(Bench):
    """One whose reads of the Node are quick until `transport.seconds` are set."""

    def _connect(self):
        self.transport = Crowded(self.kubeconfig, self.clock)
        return self.transport


@pytest.fixture
def crowded(server):
    """At rest."""
    made = CrowdedBench(server.cluster, server.kubeconfig(), FakeClock(), settings())
    made.remediator.step()
    return made


def test_who_is_answered_late_lets_those_before_go_first_and_news_do_not_hurry_it(crowded):
    crowded.transport.seconds = 0.15
    crowded.finds(fatal(crowded.clock.time()))
    asked, written = crowded.cluster.requests.total(), writes(crowded)
    wait = crowded.remediator.step()
    assert crowded.cluster.requests.total() == asked + 1
    assert 1.0 <= wait / (TURN * (0.15 - USUAL_SECONDS)) <= 1.11
    crowded.finds(fatal(crowded.clock.time()), fatal(crowded.clock.time(), gpu=1))
    crowded.clock.go(wait - 0.1)
    crowded.remediator.step()
    assert (crowded.cluster.requests.total(), writes(crowded)) == (asked + 1, written)
    crowded.clock.go(0.2)
    crowded.remediator.step()
    assert crowded.is_quarantined()


def test_a_quick_answer_makes_nobody_wait(crowded):
    crowded.transport.seconds = USUAL_SECONDS
    crowded.finds(fatal(crowded.clock.time()))
    crowded.remediator.step()
    assert crowded.is_quarantined()


@pytest.fixture
def far(crowded):
    """As `crowded`, and each read of the Node takes 0.4 s."""
    crowded.transport.seconds = 0.4
    for _ in range(READS):
        crowded.clock.go(1.2 * REST_SECONDS)
        crowded.views.poll()
        crowded.remediator.step()
    return crowded


def test_a_server_that_is_always_slow_makes_nobody_wait(far):
    far.finds(fatal(far.clock.time()))
    far.remediator.step()
    assert far.remediator.quarantined


@pytest.mark.parametrize("drains", [False, True], ids=["pods stay", "pods leave"])
def test_in_a_crowd_the_taint_comes_first_and_its_report_some_seconds_later(server, drains):
    """Unless pods have to leave: the next cycle asks them to, at once."""
    bench = CrowdedBench(server.cluster, server.kubeconfig(), FakeClock(), settings(**(DRAIN if drains else {})))
    bench.remediator.step()
    bench.transport.seconds = CROWDED_SECONDS + 0.01
    bench.finds(fatal(bench.clock.time()))
    bench.remediator.step()
    bench.clock.go(1.1 * LONGEST_TURN)
    bench.views.poll()
    wait = bench.remediator.step()
    assert bench.remediator.quarantined
    assert bool(events(bench)) is drains
    assert (wait >= REPORT_SECONDS) is not drains
    bench.clock.go(wait)
    bench.views.poll()
    bench.remediator.step()
    assert events(bench)[0] == "GPUQuarantined"


def test_in_a_crowd_a_single_step_does_all_of_it(server):
    """Nobody comes back for what `remediator --once` puts off."""
    bench = CrowdedBench(server.cluster, server.kubeconfig(), FakeClock(), settings(), single=True)
    bench.remediator.step()
    bench.transport.seconds = CROWDED_SECONDS + 0.5
    bench.finds(fatal(bench.clock.time()))
    bench.remediator.step()
    assert bench.remediator.quarantined
    assert events(bench) == ["GPUQuarantined"]


def test_a_queue_before_a_server_that_is_always_slow_is_waited_for(far):
    far.transport.seconds = 1.0
    far.finds(fatal(far.clock.time()))
    assert far.remediator.step() > TURN * (1.0 - LONGER * 0.4)
    assert not far.remediator.quarantined


def test_who_has_just_begun_does_not_know_what_is_usual(crowded):
    crowded.transport.seconds = 0.4
    crowded.clock.go(1.2 * REST_SECONDS)
    crowded.views.poll()
    crowded.remediator.step()
    crowded.finds(fatal(crowded.clock.time()))
    assert crowded.remediator.step() == pytest.approx(LONGEST_TURN, rel=0.11)
    assert not crowded.remediator.quarantined


def test_however_slow_the_server_is_the_wait_ends_soon_and_is_not_begun_again(crowded):
    crowded.transport.seconds = 2.0
    crowded.finds(fatal(crowded.clock.time()))
    assert crowded.remediator.step() <= 1.1 * LONGEST_TURN
    crowded.clock.go(1.1 * LONGEST_TURN)
    crowded.views.poll()
    crowded.remediator.step()
    assert crowded.remediator.quarantined


def test_what_was_begun_before_does_not_wait(crowded):
    """A claim without its taint: who was interrupted goes on at once."""
    crowded.finds(fatal(crowded.clock.time()))
    crowded.cluster.faults = ApiFaults(unavailable=1.0, resources=("leases",), verbs=("create", "patch"))
    crowded.remediator.step()
    assert OWNER in crowded.node["metadata"]["annotations"]
    assert not crowded.ours
    crowded.cluster.faults = ApiFaults()
    crowded.transport.seconds = 1.0
    crowded.clock.go(60)
    crowded.views.poll()
    crowded.remediator.step()
    assert crowded.remediator.quarantined


def test_a_turn_that_a_fault_did_not_outlast_is_no_turn_of_the_next_one():
    clock = FakeClock()
    schedule = CycleSchedule(clock, random.Random(1))
    assert schedule.turn(1.0) > 0
    assert schedule.turn(1.0) == 0
    clock.go(TURN_SECONDS)
    assert schedule.turn(1.0) > 0
