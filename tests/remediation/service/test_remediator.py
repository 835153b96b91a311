"""The remediator's cycle before an API server over HTTP: what it adds, what it gives back, and when it keeps still."""

import json

import pytest
from msgspec.structs import replace

from gpuwatch.config import BudgetConfig, DrainConfig, HandoverConfig
from gpuwatch.kube.objects import TAINT
from gpuwatch.kube.reader import OwnNode
from gpuwatch.model.errors import UsageError
from gpuwatch.model.event import Result
from gpuwatch.model.finding import Finding, Response, Severity
from gpuwatch.remediation.model import FAULTS, OPT_OUT, OWNER, BlockReason, NodeStage
from gpuwatch.remediation.service.reboot_sentinel import MARK
from gpuwatch.remediation.service.remediator import REST_SECONDS
from gpuwatch.sim.kubeapi.access import AccessRule
from gpuwatch.sim.kubeapi.faults import ApiFaults
from tests.model.hostile import HOSTILE, unsafe
from tests.remediation.model.remediating import FOREIGN, NAMESPACE, NODE, Bench, FakeClock, fatal, settings


def reasons(bench):
    plan = bench.remediator.state.plan
    return {obstacle.reason for obstacle in plan.blocked} if plan else set()


def quarantine(bench):
    bench.finds(fatal(bench.clock.time()))
    bench.remediator.step()
    assert bench.is_quarantined()


def writes(bench):
    verbs = ("create", "patch", "update", "delete")
    return sum(count for (_, verb, _), count in bench.cluster.requests.items() if verb in verbs)


def test_a_fatal_finding_becomes_a_taint_in_one_step_and_is_released_after_the_hold(bench):
    bench.edit(taints=[FOREIGN])
    quarantine(bench)
    assert bench.taints[0] == FOREIGN
    assert [taint["value"] for taint in bench.ours] == ["gpu_lost"]
    bench.finds()
    bench.run(20)
    assert bench.is_quarantined()
    bench.run(20)
    assert bench.is_clean()
    assert bench.taints == [FOREIGN]
    assert bench.condition["status"] == "True"
    assert [event["reason"] for event in bench.cluster.objects("events")].count("GPURecovered") == 1


def test_a_node_as_it_was_before_changes_nothing_and_is_read_again(bench):
    bench.remediator.step()
    bench.edit(taints=[FOREIGN])
    bench.cluster.faults = ApiFaults(stale=1.0)
    quarantine(bench)
    assert bench.taints[0] == FOREIGN


def test_an_opt_out_holds_though_the_cache_of_the_server_lacks_it(bench):
    bench.remediator.step()
    node = bench.node
    annotations = {**node["metadata"].get("annotations", {}), OPT_OUT: "true"}
    bench.cluster.put("nodes", {**node, "metadata": {**node["metadata"], "annotations": annotations}}, user="a person")
    bench.cluster.faults = ApiFaults(stale=1.0)
    bench.finds(fatal(bench.clock.time()))
    bench.remediator.step()
    assert reasons(bench) == {BlockReason.OPT_OUT}
    assert OWNER not in bench.annotations
    assert bench.ours == bench.holders == []


def test_a_claim_that_was_given_up_is_not_trusted_again(bench):
    """Else a slot would be taken first, with nothing on the Node that says so."""
    bench.cluster.faults = ApiFaults(unavailable=1.0, resources=["leases"], verbs=["create"])
    bench.finds(fatal(bench.clock.time()))
    bench.remediator.step()
    claimed = bench.node
    bench.cluster.faults = ApiFaults()
    bench.finds()
    bench.run(40)
    assert bench.is_clean()
    given_up = bench.node
    for node in (claimed, given_up):
        bench.cluster.put("nodes", node, user="a test that has the server remember the first")
    bench.cluster.faults = ApiFaults(stale=1.0, unavailable=1.0, resources=["nodes"], verbs=["patch"])
    bench.finds(fatal(bench.clock.time()))
    bench.remediator.step()
    assert bench.holders == []


def test_every_step_leaves_an_intention_and_a_result(bench):
    quarantine(bench)
    for action in bench.ledger.done():
        told = [each for each in bench.ledger.actions if each.action == action]
        assert {each.result for each in told} == {Result.INTENDED, Result.DONE}
    rows = bench.ledger.actions
    taint = next(each for each in rows if each.action == "taint" and each.result is Result.DONE)
    assert taint.evidence == ("gpu_lost/GPU-0",)
    assert TAINT in taint.after
    assert TAINT not in taint.before
    assert taint.boot_id == f"boot-of-{NODE}"


def test_at_rest_it_writes_no_more_than_once_in_five_minutes_and_asks_little(bench):
    bench.run(10)
    before, asked = writes(bench), bench.cluster.requests.total()
    bench.run(3600)
    assert writes(bench) - before <= 3600 / 300
    assert bench.cluster.requests.total() - asked <= 3600 / 60 + 12


def test_a_quarantined_node_at_rest_writes_no_more_than_once_in_five_minutes(bench):
    quarantine(bench)
    bench.run(60)
    before = writes(bench)
    bench.run(3600)
    assert bench.is_quarantined()
    assert writes(bench) - before <= 3600 / 300


def test_observe_writes_nothing_but_what_it_would_do_and_has_no_writer(server):
    bench = Bench(server.cluster, server.kubeconfig(), FakeClock(), settings(mode="observe"))
    bench.finds(fatal(bench.clock.time()))
    bench.run(30)
    assert writes(bench) == 0
    told = [each.action for each in bench.ledger.actions if each.result is Result.OBSERVED]
    assert told.count("taint") == 1
    assert BlockReason.MODE in reasons(bench)
    assert not any(hasattr(value, "patch_node") for value in vars(bench.remediator).values())


def test_observe_without_an_api_server_says_what_it_cannot_know(server, tmp_path):
    bench = Bench(server.cluster, tmp_path / "nothing", FakeClock(), settings(mode="observe"))
    bench.finds(fatal(bench.clock.time()))
    bench.run(10)
    assert BlockReason.API in reasons(bench)
    assert bench.remediator.state.plan.stage is NodeStage.SUSPECT
    assert "not known" in bench.remediator.state.plan.blocked[-1].message


def test_what_it_writes_to_kubernetes_shows_control_characters_as_escapes(bench):
    bench.finds(replace(fatal(bench.clock.time()), message=HOSTILE))
    bench.run(60)
    assert bench.is_quarantined()
    node = bench.cluster.get("nodes", "", NODE)
    condition = next(each for each in node["status"]["conditions"] if each["type"] == "GPUHealthy")
    written = [condition["message"], *node["metadata"]["annotations"].values()]
    written += [event["message"] for event in bench.cluster.objects("events")]
    assert [unsafe(text) for text in written] == [set()] * len(written)
    assert sum("HOSTILE" in text for text in written) >= 3


def test_off_asks_nobody(server):
    bench = Bench(server.cluster, server.kubeconfig(), FakeClock(), settings(mode="off"))
    bench.finds(fatal(bench.clock.time()))
    assert bench.remediator.step() == REST_SECONDS
    assert (bench.connects, bench.cluster.requests.total()) == (0, 0)


def test_without_a_view_nothing_happens_and_it_reports_it(bench):
    bench.views.view = None
    bench.restarted()
    before = writes(bench)
    bench.run(30, poll=False)
    assert writes(bench) == before
    assert BlockReason.STALE in reasons(bench)


def test_a_view_that_grows_old_neither_adds_nor_restores(bench):
    bench.clock.go(60)
    bench.remediator.step()
    bench.views.findings = (fatal(bench.clock.time()),)  # seen by an agent that does not publish any more
    bench.run(60, poll=False)
    assert not bench.ours
    bench.views.poll()
    bench.remediator.step()
    assert bench.is_quarantined()
    bench.views.findings = ()
    bench.run(300, poll=False)
    assert bench.ours
    assert BlockReason.STALE in reasons(bench)


def test_samples_that_are_far_apart_prove_no_hold(bench):
    quarantine(bench)
    bench.finds()
    bench.remediator.step()
    bench.clock.go(500)
    bench.views.poll()
    bench.remediator.step()
    assert bench.is_quarantined()


@pytest.mark.parametrize("jump", [-86400.0, 86400.0])
def test_a_clock_that_jumps_changes_no_hold(bench, jump):
    bench.clock.wall += jump
    quarantine(bench)
    bench.finds()
    bench.run(10)
    bench.clock.wall -= jump
    bench.run(10)
    assert bench.is_quarantined()
    bench.run(30)
    assert bench.is_clean()


def test_a_person_who_takes_the_taint_away_is_right_until_it_happens_again(bench):
    quarantine(bench)
    bench.edit(taints=[])
    bench.run(100)
    assert not bench.ours
    assert OWNER not in bench.annotations
    assert bench.holders == []
    bench.restarted()
    bench.run(100)
    assert not bench.ours
    bench.finds(fatal(bench.clock.time()))
    bench.remediator.step()
    assert bench.is_quarantined()


def test_a_manual_cordon_is_never_lifted(bench):
    quarantine(bench)
    bench.edit(unschedulable=True)
    bench.finds()
    bench.run(60)
    assert not bench.ours
    assert bench.node["spec"]["unschedulable"]


def test_a_node_created_again_is_another_one(bench):
    quarantine(bench)
    bench.cluster.delete("nodes", "", NODE)
    bench.cluster.add_node(NODE)
    bench.finds()
    bench.run(100)
    assert bench.is_clean()


def test_a_node_of_another_machine_is_never_written_and_that_is_an_error(bench, caplog):
    before = writes(bench)
    bench.views.boot_id = "another machine"
    bench.finds(fatal(bench.clock.time()))
    bench.run(100)
    assert writes(bench) == before
    assert BlockReason.IDENTITY in reasons(bench)
    errors = [record.message for record in caplog.records if record.levelname == "ERROR"]
    assert len(errors) == 1
    assert "another machine" in errors[0]
    assert "NODE_NAME" in errors[0]


def test_a_node_that_does_not_exist_is_reported_and_waited_for(bench):
    bench.cluster.delete("nodes", "", NODE)
    bench.run(100)
    assert "not found" in bench.remediator.state.trouble
    bench.cluster.add_node(NODE)
    bench.run(100)
    assert bench.remediator.state.trouble is None


def test_an_opt_out_restores_and_adds_nothing(bench):
    quarantine(bench)
    node = bench.node
    marked = {**node["metadata"], "annotations": {**bench.annotations, OPT_OUT: "true"}}
    bench.cluster.put("nodes", {**node, "metadata": marked}, user="a person")
    bench.run(100)
    assert not bench.ours
    bench.finds(fatal(bench.clock.time(), gpu=1))
    bench.run(100)
    assert not bench.ours
    assert BlockReason.OPT_OUT in reasons(bench)


def test_no_slot_no_taint_until_one_is_free(server):
    bench = Bench(server.cluster, server.kubeconfig(), FakeClock(), settings(budget=BudgetConfig(max_unavailable=1)))
    lease = {
        "metadata": {"name": "gpuwatch-slot-0", "namespace": NAMESPACE},
        "spec": {"holderIdentity": "n2", "leaseDurationSeconds": 900, "renewTime": "2100-01-01T00:00:00.000000Z"},
    }
    server.cluster.create("leases", lease, namespace=NAMESPACE)
    bench.finds(fatal(bench.clock.time()))
    bench.run(100)
    assert not bench.ours
    assert OWNER not in bench.annotations
    assert BlockReason.BUDGET in reasons(bench)
    state = bench.remediator.state
    assert (state.slots, state.slots_used) == (1, 1)
    server.cluster.delete("leases", NAMESPACE, "gpuwatch-slot-0")
    bench.run(100)
    assert bench.is_quarantined()


def test_a_slot_that_another_took_meanwhile_is_asked_for_once_and_leaves_no_claim(server):
    def another_is_faster(point):
        if point == "slot.intended":
            spec = {"holderIdentity": "n2", "leaseDurationSeconds": 900, "renewTime": "2100-01-01T00:00:00.000000Z"}
            lease = {"metadata": {"name": "gpuwatch-slot-0", "namespace": NAMESPACE}, "spec": spec}
            server.cluster.create("leases", lease, namespace=NAMESPACE)

    only = settings(budget=BudgetConfig(max_unavailable=1))
    bench = Bench(server.cluster, server.kubeconfig(), FakeClock(), only, checkpoint=another_is_faster)
    bench.finds(fatal(bench.clock.time()))
    bench.remediator.step()
    assert server.cluster.requests["admin", "create", "leases"] == 1
    assert BlockReason.BUDGET in reasons(bench)
    assert not {OWNER, FAULTS} & bench.annotations.keys()
    assert bench.holders == ["n2"]


def test_a_lost_slot_costs_one_request_and_a_second_one_another_reading(server):
    """Of many nodes that choose at random among free slots, a third chooses one that another has just taken."""
    lost = []

    def others_are_faster(point):
        if point == "slot.intended" and len(lost) < 2:
            lost.append(bench.ledger.actions[-1].target.split("/")[-1])
            spec = {"holderIdentity": f"n{len(lost) + 1}", "leaseDurationSeconds": 900}
            lease = {"metadata": {"name": lost[-1], "namespace": NAMESPACE}, "spec": spec}
            server.cluster.create("leases", lease, namespace=NAMESPACE)

    three = settings(budget=BudgetConfig(max_unavailable=3))
    bench = Bench(server.cluster, server.kubeconfig(), FakeClock(), three, checkpoint=others_are_faster)
    bench.finds(fatal(bench.clock.time()))
    bench.remediator.step()
    assert len(bench.ours) == 1
    assert len({*lost}) == 2
    asked = server.cluster.requests
    begins = 1
    """A remediator that starts looks whether it holds a slot."""
    assert (asked["admin", "create", "leases"], asked["admin", "list", "leases"]) == (3, begins + 2)
    assert asked["admin", "get", "nodes"] == 1


def test_a_slot_that_was_changed_and_not_taken_is_read_again(server):
    """It may be free still, or our own: only one that another node created counts as used without a second look."""
    changed = []
    free = {"metadata": {"name": "gpuwatch-slot-0", "namespace": NAMESPACE}, "spec": {"leaseDurationSeconds": 900}}
    server.cluster.create("leases", free, namespace=NAMESPACE)

    def another_writer(point):
        if point == "slot.intended" and not changed:
            changed.append(server.cluster.get("leases", NAMESPACE, "gpuwatch-slot-0"))
            metadata = {**changed[0]["metadata"], "annotations": {"example.com/a": "1"}}
            server.cluster.put("leases", {**changed[0], "metadata": metadata}, user="another")

    only = settings(budget=BudgetConfig(max_unavailable=1))
    bench = Bench(server.cluster, server.kubeconfig(), FakeClock(), only, checkpoint=another_writer)
    bench.finds(fatal(bench.clock.time()))
    bench.remediator.step()
    assert changed
    assert bench.is_quarantined()


def throttles_the_first_taint(bench):
    """A checkpoint; until the faults are taken away again."""
    passed = []

    def checkpoint(point):
        if point == "slot.recorded" and point not in passed:
            bench.cluster.faults = ApiFaults(throttle=1.0, resources=["nodes"], verbs=["patch"])
        passed.append(point)

    return checkpoint


def test_a_slot_is_kept_while_the_taint_fails_and_the_budget_cannot_be_read(bench):
    bench.restarted(checkpoint=throttles_the_first_taint(bench))
    bench.finds(fatal(bench.clock.time()))
    bench.remediator.step()
    assert bench.holders == [NODE]
    assert not bench.ours
    bench.cluster.faults = ApiFaults(throttle=1.0, resources=["leases"], verbs=["list"])
    bench.run(60)
    assert bench.holders == [NODE]
    bench.cluster.faults = ApiFaults()
    bench.run(100)
    assert bench.is_quarantined()


def test_who_has_a_slot_does_not_wait_for_the_failures_before_it(bench):
    bench.restarted(checkpoint=throttles_the_first_taint(bench))
    bench.cluster.faults = ApiFaults(throttle=1.0, resources=["leases"])
    bench.finds(fatal(bench.clock.time()))
    bench.run(60)
    bench.cluster.faults = ApiFaults()
    while not bench.holders:
        bench.run(1)
    assert not bench.ours
    bench.cluster.faults = ApiFaults()
    bench.run(5)
    assert bench.is_quarantined()


@pytest.mark.parametrize("tainted", [True, False])
def test_a_slot_that_ran_out_is_taken_over_only_when_its_node_is_not_tainted(server, tainted):
    server.cluster.add_node("n2")
    if tainted:
        other = server.cluster.get("nodes", "", "n2")
        taints = [{"key": TAINT, "value": "gpu_lost", "effect": "NoSchedule"}]
        server.cluster.put("nodes", {**other, "spec": {"taints": taints}})
    lease = {
        "metadata": {"name": "gpuwatch-slot-0", "namespace": NAMESPACE},
        "spec": {"holderIdentity": "n2", "leaseDurationSeconds": 900, "renewTime": "2020-01-01T00:00:00.000000Z"},
    }
    server.cluster.create("leases", lease, namespace=NAMESPACE)
    bench = Bench(server.cluster, server.kubeconfig(), FakeClock(), settings(budget=BudgetConfig(max_unavailable=1)))
    bench.finds(fatal(bench.clock.time()))
    bench.run(800)
    assert not bench.ours  # whatever its own time says: it may be of a clock that is wrong
    bench.run(200)
    assert bool(bench.ours) is not tainted
    assert bench.holders == (["n2"] if tainted else [NODE])


def test_a_budget_that_cannot_be_read_adds_nothing_and_blocks_no_removal(bench):
    bench.cluster.faults = ApiFaults(internal_error=1.0, resources=["leases"])
    bench.finds(fatal(bench.clock.time()))
    bench.run(100)
    assert not bench.ours
    assert BlockReason.BUDGET_UNREADABLE in reasons(bench)
    bench.cluster.faults = ApiFaults()
    bench.run(100)
    assert bench.is_quarantined()
    bench.cluster.faults = ApiFaults(internal_error=1.0, resources=["leases"])
    bench.finds()
    bench.run(150)
    assert not bench.ours
    bench.cluster.faults = ApiFaults()
    bench.run(150)
    assert bench.is_clean()


@pytest.mark.parametrize(
    "faults",
    [
        ApiFaults(gone=True),
        ApiFaults(throttle=1.0),
        ApiFaults(internal_error=1.0),
        ApiFaults(unavailable=1.0),
        ApiFaults(reset_before=1.0),
        ApiFaults(reset_after=1.0),
    ],
)
def test_a_server_that_is_away_is_left_alone_and_the_plan_kept(bench, faults):
    bench.cluster.faults = faults
    bench.finds(fatal(bench.clock.time()))
    asked = bench.cluster.requests.total()
    bench.run(600)
    assert bench.cluster.requests.total() - asked < 60
    assert BlockReason.API in reasons(bench)
    assert sum(bench.remediator.state.errors.values()) > 5
    bench.cluster.faults = ApiFaults()
    bench.run(70)
    assert bench.is_quarantined()
    bench.finds()
    bench.run(120)
    assert bench.is_clean()


@pytest.mark.parametrize("verb", ["patch", "create"])
def test_an_answer_that_is_lost_after_the_write_leads_to_the_same_end(bench, verb):
    bench.cluster.faults = ApiFaults(reset_after=0.5, verbs=[verb])
    bench.finds(fatal(bench.clock.time()))
    bench.run(300)
    assert bench.is_quarantined()
    assert len(bench.ours) == 1
    bench.finds()
    bench.run(300)
    bench.cluster.faults = ApiFaults()
    bench.run(100)
    assert bench.is_clean()
    reasons_told = [event["reason"] for event in bench.cluster.objects("events")]
    assert reasons_told.count("GPUQuarantined") == 1


def test_a_missing_right_is_named_and_it_continues_observing(server):
    server.cluster.add_user("reader", [AccessRule(verbs=["get", "list"], resources=["*"])])
    bench = Bench(server.cluster, server.kubeconfig("reader"), FakeClock(), settings())
    bench.finds(fatal(bench.clock.time()))
    bench.run(200)
    assert not bench.ours
    state = bench.remediator.state
    assert BlockReason.PERMISSION in reasons(bench)
    assert "grant patch on nodes" in state.trouble
    assert state.errors["Forbidden"] >= 2
    server.cluster.add_user("reader", token=server.cluster.access.token_of("reader"))
    bench.run(100)
    assert bench.is_quarantined()


def test_events_and_conditions_that_are_forbidden_keep_no_taint_away(server):
    rules = [AccessRule(verbs=["*"], resources=["nodes", "pods", "leases"])]
    server.cluster.add_user("narrow", rules)
    bench = Bench(server.cluster, server.kubeconfig("narrow"), FakeClock(), settings())
    bench.finds(fatal(bench.clock.time()))
    bench.run(10)
    assert bench.ours
    assert bench.condition is None
    bench.finds()
    bench.run(200)
    assert bench.is_clean()


def drained(server, **changes):
    return settings(checks={"gpu_lost": Response.DRAIN}, drain=DrainConfig(retry=5.0, deadline=600.0), **changes)


def test_only_pods_on_the_sick_gpu_are_asked_to_leave(server):
    bench = Bench(server.cluster, server.kubeconfig(), FakeClock(), drained(server))
    bench.finds(fatal(bench.clock.time(), gpu=2))
    bench.run(30)
    leaving = {pod["metadata"]["name"] for pod in server.cluster.objects("pods", "ml") if _is_leaving(pod)}
    left = {pod["metadata"]["name"] for pod in server.cluster.objects("pods", "ml") if not _is_leaving(pod)}
    assert "train-2" in leaving or "train-2" not in left
    assert {"train-0", "train-1", "train-3"} <= left


def _is_leaving(pod):
    return "deletionTimestamp" in pod["metadata"]


def test_a_disruption_budget_is_asked_again_with_a_growing_wait(server):
    server.cluster.add_pdb("ml", "train", {"app": "train"}, min_available=4)
    bench = Bench(server.cluster, server.kubeconfig(), FakeClock(), drained(server))
    bench.finds(fatal(bench.clock.time(), gpu=2))
    bench.run(300)
    asked = bench.cluster.requests["admin", "create", "pods/eviction"]
    assert 2 <= asked <= 12
    assert BlockReason.PDB in reasons(bench)
    assert bench.is_quarantined()
    server.cluster.delete("poddisruptionbudgets", "ml", "train")
    bench.run(330)
    assert all(pod["metadata"]["name"] != "train-2" or _is_leaving(pod) for pod in server.cluster.objects("pods", "ml"))


def test_a_drained_node_is_handed_over_and_called_back(server, tmp_path):
    sentinel = tmp_path / "reboot-required"
    handover = HandoverConfig(annotation="gpuwatch.io/reboot-requested", sentinel=str(sentinel))
    bench = Bench(server.cluster, server.kubeconfig(), FakeClock(), drained(server, handover=handover))
    bench.finds(fatal(bench.clock.time(), gpu=2))
    bench.run(5)
    server.cluster.delete("pods", "ml", "train-2", grace=0)
    bench.run(60)
    assert "gpuwatch.io/reboot-requested" in bench.annotations
    assert sentinel.read_text() == MARK
    bench.views.boot_id = "after the reboot"
    node = bench.node
    info = {**node["status"]["nodeInfo"], "bootID": "after the reboot"}
    bench.cluster.put("nodes", {**node, "status": {**node["status"], "nodeInfo": info}}, user="kubelet")
    bench.finds()
    bench.run(100)
    assert bench.is_clean()
    assert not sentinel.exists()


def test_a_restart_adopts_what_is_there(bench):
    quarantine(bench)
    bench.restarted()
    before = writes(bench)
    bench.run(30)
    assert bench.is_quarantined()
    assert writes(bench) == before
    bench.finds()
    bench.restarted()
    bench.run(60)
    assert bench.is_clean()


def test_a_store_that_cannot_keep_anything_stops_nothing(bench):
    bench.ledger.documents.clear()
    bench.ledger.documents["remediator"] = b"{ broken"
    bench.restarted()
    quarantine(bench)
    bench.finds()
    bench.run(60)
    assert bench.is_clean()


def test_a_policy_that_makes_no_sense_leaves_the_old_one(bench):
    with pytest.raises(UsageError, match="gpu_lots"):
        bench.remediator.reconfigure(replace(bench.config, checks={"gpu_lots": Response.TAINT}))
    quarantine(bench)


def test_a_milder_policy_releases_after_the_hold(bench):
    quarantine(bench)
    bench.remediator.reconfigure(replace(bench.config, checks={"gpu_lost": Response.OBSERVE}))
    bench.run(100)
    assert bench.is_clean()


def test_another_mode_takes_the_writer_away(bench):
    quarantine(bench)
    bench.remediator.reconfigure(replace(bench.config, mode="observe"))
    before = writes(bench)
    bench.finds()
    bench.run(100)
    assert writes(bench) == before
    assert bench.ours


@pytest.mark.parametrize(("tolerations", "acts"), [([], False), ([{"operator": "Exists"}], True)])
def test_no_execute_needs_the_own_pods_toleration(server, tolerations, acts):
    server.cluster.add_pod(NAMESPACE, "gpuwatch-x", node=NODE, owner_kind="DaemonSet", tolerations=tolerations)
    bench = Bench(server.cluster, server.kubeconfig(), FakeClock(), settings(effect="NoExecute"))
    bench.restarted(pod=(NAMESPACE, "gpuwatch-x"))
    bench.finds(fatal(bench.clock.time()))
    bench.run(5)
    assert bool(bench.ours) is acts
    if not acts:
        assert "evict this very pod" in bench.remediator.state.trouble
        with pytest.raises(UsageError, match="NoExecute"):
            bench.remediator.check()


@pytest.mark.parametrize(
    ("tolerations", "told"),
    [([], True), ([{"key": "nvidia.com/gpu", "operator": "Exists"}], True), ([{"operator": "Exists"}], False)],
)
def test_a_pod_that_could_not_come_back_to_its_tainted_node_reports_it(server, caplog, tolerations, told):
    server.cluster.add_pod(NAMESPACE, "gpuwatch-x", node=NODE, owner_kind="DaemonSet", tolerations=tolerations)
    bench = Bench(server.cluster, server.kubeconfig(), FakeClock(), settings())
    bench.restarted(pod=(NAMESPACE, "gpuwatch-x"))
    bench.run(5)
    assert bench.condition["status"] == "True"
    quarantine(bench)  # it is no reason to let a sick node have work
    assert ("does not tolerate the taint" in bench.condition["message"]) is told
    assert sum("does not tolerate the taint" in record.message for record in caplog.records) == told


def test_the_condition_says_what_the_monitor_lacks(bench):
    bench.run(5)
    assert bench.condition["message"] == "4 GPUs are healthy"
    bench.finds(
        Finding(
            check="monitoring_degraded",
            severity=Severity.WARNING,
            message="podresources: the socket is not mounted",
            since=bench.clock.time(),
            last=bench.clock.time(),
        )
    )
    bench.run(400)  # a text alone is no hurry
    assert bench.condition["status"] == "True"
    assert bench.condition["message"].endswith("monitoring_degraded: podresources: the socket is not mounted")


def test_the_node_is_named_by_configuration_or_environment_and_never_guessed():
    environment = {"NODE_NAME": "a", "POD_NAMESPACE": "ns", "POD_NAME": "p", "HOSTNAME": "h"}
    assert OwnNode.of(settings(), environment) == OwnNode(node="a", namespace="ns", pod=("ns", "p"))
    assert OwnNode.of(settings(node_name="b"), {}).node == "b"
    with pytest.raises(UsageError, match="no node name is known"):
        OwnNode.of(settings(), {"HOSTNAME": "h"})


def test_audit_lines_are_json(bench, caplog):
    caplog.set_level("INFO", logger="gpuwatch.audit")
    quarantine(bench)
    lines = [json.loads(record.message) for record in caplog.records if record.name == "gpuwatch.audit"]
    assert {"claim", "slot", "taint", "condition", "event"} <= {line["action"] for line in lines}
    assert all(line["why"] for line in lines)


def test_a_slow_server_is_waited_for(bench):
    bench.cluster.faults = ApiFaults(slow=1.0, delay=0.05)
    bench.finds(fatal(bench.clock.time()))
    bench.remediator.step()
    assert bench.is_quarantined()


def test_credentials_that_are_refused_are_read_again(server):
    bench = Bench(server.cluster, server.kubeconfig("mover"), FakeClock(), settings())
    kubeconfig = server.kubeconfig("mover")
    good = kubeconfig.read_text()
    token = server.cluster.access.token_of("mover")
    server.cluster.add_user("mover", [AccessRule(verbs=["*"], resources=["*"])], token=token)
    kubeconfig.write_text(good.replace(token, "revoked"))
    bench.finds(fatal(bench.clock.time()))
    bench.run(30)
    assert BlockReason.PERMISSION in reasons(bench) or "Unauthorized" in bench.remediator.state.trouble
    assert bench.remediator.state.errors["Unauthorized"] > 1
    kubeconfig.write_text(good)
    bench.run(70)
    assert bench.is_quarantined()


def test_a_node_at_rest_has_counted_the_others_before_its_fault(server):
    """A fleet that falls sick at once would else ask about all Nodes at once."""
    bench = Bench(
        server.cluster, server.kubeconfig(), FakeClock(), settings(budget=BudgetConfig(max_unavailable="50%"))
    )
    bench.remediator.step()
    asked = bench.cluster.requests["admin", "list", "nodes"]
    quarantine(bench)
    assert bench.cluster.requests["admin", "list", "nodes"] == asked == 2
