"""Harms to work: pods that are evicted though they should not be, or by force; over HTTP."""

import json
from typing import Any

import pytest
from msgspec.structs import replace

from gpuwatch.config import BudgetConfig, DrainConfig, HandoverConfig
from gpuwatch.kube import parse as kube_parse
from gpuwatch.kube.errors import ApiCall
from gpuwatch.model.finding import Remedy, Response, Severity
from gpuwatch.remediation.model import BlockReason
from gpuwatch.remediation.service.slots import uses_a_slot
from gpuwatch.sim.kubeapi.messages import Object
from gpuwatch.sim.kubeapi.server import SimulatedApiServer
from tests.harms.conftest import Start
from tests.remediation.model.remediating import NAMESPACE, NODE, Bench, fatal

HOUR = 3600.0
OWN = (NAMESPACE, "gpuwatch-abcde")
TOLERATES_ALL = ({"operator": "Exists"},)
DRAIN = {"checks": {"gpu_lost": Response.DRAIN}}
DEADLINE = 1200.0


def add(bench: Bench, namespace: str, name: str, **more: Any) -> Object:
    return bench.cluster.add_pod(namespace, name, node=NODE, **more)


def left(bench: Bench) -> set[str]:
    return {
        pod["metadata"]["name"] for pod in bench.cluster.pods_on(NODE) if not pod["metadata"].get("deletionTimestamp")
    }


def asked(server: SimulatedApiServer) -> int:
    """EvictionHistory asked for so far."""
    return sum(count for (_, _, resource), count in server.cluster.requests.items() if resource == "pods/eviction")


def reasons(bench: Bench) -> set[str]:
    plan = bench.remediator.state.plan
    return {obstacle.reason for obstacle in plan.blocked} if plan else set()


# ---- ourselves, and what keeps the node running


@pytest.mark.parametrize(("tolerations", "tainted"), [((), 0), (TOLERATES_ALL, 1)])
def test_no_execute_is_not_set_where_it_would_end_ourselves(
    start: Start, tolerations: tuple[Object, ...], tainted: int
) -> None:
    bench = start(effect="NoExecute")
    add(bench, *OWN, owner_kind="DaemonSet", gpus=0, tolerations=tolerations)
    bench.restarted(pod=OWN)
    bench.finds(fatal())
    bench.run(300)
    assert len(bench.ours) == tainted


def test_the_taint_ends_no_running_pod_by_default(start: Start) -> None:
    bench = start()
    bench.finds(fatal())
    bench.run(30)
    assert [taint["effect"] for taint in bench.ours] == ["NoSchedule"]


def test_a_drain_leaves_alone_what_it_must_not_evict(start: Start, server: SimulatedApiServer) -> None:
    """Ourselves, DaemonSets, protected namespaces, and pods on the node's healthy GPUs."""
    bench = start(**DRAIN)
    add(bench, *OWN, gpus=1)
    add(bench, "ml", "device-plugin", owner_kind="DaemonSet", gpus=1)
    add(bench, "kube-system", "important", gpus=1)
    for index in range(4):
        add(bench, "ml", f"train-{index}")
    bench.restarted(pod=OWN)
    bench.finds(fatal(gpu=2))
    bench.run(120)
    assert left(bench) == {OWN[1], "device-plugin", "important", "train-0", "train-1", "train-3"}
    assert asked(server) == 1


def test_a_sick_node_is_drained_of_gpu_pods_only_as_far_as_they_may_go(start: Start) -> None:
    """A fault of the node itself concerns all pods with GPUs, but for ourselves and those that are never asked."""
    bench = start(checks={"sxid_fatal": Response.DRAIN})
    add(bench, *OWN, gpus=1)
    add(bench, "ml", "device-plugin", owner_kind="DaemonSet", gpus=1)
    add(bench, "kube-system", "important", gpus=1)
    add(bench, "ml", "web", gpus=0)
    add(bench, "ml", "train-0")
    bench.restarted(pod=OWN)
    bench.finds(replace(fatal(check="sxid_fatal"), gpu=None))
    bench.run(120)
    assert left(bench) == {OWN[1], "device-plugin", "important", "web"}


# ---- one sick GPU, not one sick node


def test_with_scope_gpu_only_the_pods_of_the_sick_gpu_are_evicted(start: Start, server: SimulatedApiServer) -> None:
    bench = start(**DRAIN)
    for index in range(4):
        add(bench, "ml", f"train-{index}")
    bench.withholds(2)
    bench.finds(fatal(gpu=2))
    bench.run(600)
    assert bench.is_confined()
    assert left(bench) == {"train-0", "train-1", "train-3"}
    assert asked(server) == 1
    bench.finds()
    bench.run(600)
    assert bench.is_clean()


def test_a_list_of_the_kubelet_that_the_node_denies_does_not_keep_the_node_in_service(start: Start) -> None:
    bench = start(**DRAIN)
    bench.withholds(0, allocatable=4)
    bench.finds(fatal())
    bench.run(120)
    assert bench.is_quarantined()


def test_a_gpu_that_is_given_to_pods_again_while_it_is_sick_takes_the_node_out(start: Start) -> None:
    bench = start(**DRAIN)
    add(bench, "ml", "train-0")
    bench.withholds(0)
    bench.finds(fatal())
    bench.run(120)
    assert bench.is_confined()
    bench.withholds()
    bench.run(120)
    assert bench.is_quarantined()
    bench.withholds(0)
    bench.run(120)
    assert bench.is_quarantined()


def test_no_reboot_is_asked_for_while_other_gpus_of_the_node_work(start: Start) -> None:
    key = "gpuwatch.io/reboot-requested"
    bench = start(**DRAIN, handover=HandoverConfig(annotation=key))
    bench.withholds(0)
    bench.finds(fatal())
    bench.run(300)
    assert key in bench.annotations
    assert bench.is_quarantined()


def test_with_scope_gpu_the_budget_holds_as_well(start: Start, server: SimulatedApiServer) -> None:
    """No slot, no eviction; and the slot of a node of which only a GPU is out is not free."""
    bench = start(**DRAIN, budget=BudgetConfig(max_unavailable=0))
    add(bench, "ml", "train-0")
    bench.withholds(0)
    bench.finds(fatal())
    bench.run(300)
    assert left(bench) == {"train-0"}
    bench.restarted(replace(bench.config, budget=BudgetConfig(max_unavailable=1)))
    bench.run(300)
    assert bench.is_confined()
    node = kube_parse.node(ApiCall("get", "nodes", NODE), json.dumps(bench.node).encode())
    assert uses_a_slot(node, bench.clock.time() + 10 * HOUR)


# ---- never by force


@pytest.mark.slow  # quick: a disruption budget is asked again with a growing wait, tests/remediation/service
def test_a_disruption_budget_is_respected_for_as_long_as_it_lasts(start: Start, server: SimulatedApiServer) -> None:
    """Asked ever more rarely, given up at the deadline and said so, and never deleted."""
    bench = start(**DRAIN, drain=DrainConfig(deadline=DEADLINE, retry=10.0))
    add(bench, "ml", "train-0", labels={"app": "train"})
    bench.cluster.add_pdb("ml", "keep", {"app": "train"}, min_available=1)
    bench.finds(fatal())
    bench.run(DEADLINE)
    assert left(bench) == {"train-0"}
    until_deadline = asked(server)
    assert 3 <= until_deadline <= 12
    bench.run(HOUR)
    assert left(bench) == {"train-0"}
    assert asked(server) == until_deadline
    assert BlockReason.DEADLINE in reasons(bench)
    assert ("admin", "delete", "pods") not in server.cluster.requests
    assert len(bench.ours) == 1


def test_a_pod_may_go_when_its_budget_lets_it(start: Start) -> None:
    """So that the one before says something."""
    bench = start(**DRAIN)
    add(bench, "ml", "train-0", labels={"app": "train"})
    bench.finds(fatal())
    bench.run(120)
    assert left(bench) == set()


# ---- nothing is reset or rebooted under running work


def test_a_reboot_is_asked_for_only_when_all_who_had_to_go_have_gone(start: Start) -> None:
    key = "gpuwatch.io/reboot-requested"
    bench = start(**DRAIN, handover=HandoverConfig(annotation=key))
    add(bench, "ml", "train-0", labels={"app": "train"})
    bench.cluster.add_pdb("ml", "keep", {"app": "train"}, min_available=1)
    bench.finds(fatal())
    bench.run(600)
    assert key not in bench.annotations
    bench.cluster.delete("poddisruptionbudgets", "ml", "keep")
    bench.run(900)
    assert left(bench) == set()
    assert bench.annotations[key] == "reboot_node"


# ---- the device plugin


def test_a_device_plugin_is_not_restarted_in_a_loop(start: Start, server: SimulatedApiServer) -> None:
    """Its next pod counts the same GPU out, the agent finds so anew, and the node's clock is days ahead."""
    bench = start(restart_plugin="gpu-operator/plugin")
    plugin = {"owner_kind": "DaemonSet", "gpus": 0}
    add(bench, "gpu-operator", "plugin-a", **plugin)
    add(bench, "gpu-operator", "plugin-b", **plugin)
    add(bench, "ml", "plugin-c", **plugin)
    bench.clock.go(48 * HOUR)
    bench.views.withheld = ("GPU-0",)
    for _ in range(4):
        found = fatal(bench.clock.time(), check="gpu_not_allocatable")
        bench.finds(replace(found, severity=Severity.WARNING, remedy=Remedy.NONE))
        bench.run(600)
        bench.finds()
        bench.run(600)
    assert len(left(bench)) == 2
    assert "plugin-c" in left(bench)
    assert asked(server) == 1
    assert not bench.ours
