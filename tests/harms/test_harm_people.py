"""Harms to what people and other controllers did to a Node, and to Nodes that are not this machine; over HTTP."""

import contextlib
from typing import Any

import pytest
from click.testing import CliRunner
from msgspec.structs import replace

from gpuwatch.cli.main import cli
from gpuwatch.config import RemediationConfig
from gpuwatch.kube.objects import TAINT
from gpuwatch.kube.reader import OwnNode
from gpuwatch.model.errors import UsageError
from gpuwatch.model.finding import Response
from gpuwatch.remediation.model import LABELS, OWNER, BlockReason
from gpuwatch.sim.kubeapi.server import SimulatedApiServer
from gpuwatch.sim.kubeapi.store import CommittedWrite
from tests.harms.conftest import Start
from tests.remediation.model.remediating import FOREIGN, NODE, Bench, fatal, settings

SAME_KEY = {"key": TAINT, "value": "bad-riser", "effect": "NoSchedule"}
HOUR = 3600.0


def mark(bench: Bench, **metadata: dict[str, str]) -> None:
    """A person or a controller puts labels or annotations on the Node."""
    node = bench.node
    merged = {name: {**node["metadata"].get(name, {}), **values} for name, values in metadata.items()}
    bench.cluster.put("nodes", {**node, "metadata": {**node["metadata"], **merged}}, user="somebody")


def reasons(bench: Bench) -> set[str]:
    plan = bench.remediator.state.plan
    return {obstacle.reason for obstacle in plan.blocked} if plan else set()


def writes_to_node(bench: Bench) -> list[CommittedWrite]:
    """From now on."""
    seen: list[CommittedWrite] = []
    bench.cluster.observers.append(lambda write: seen.append(write) if write.key.resource == "nodes" else None)
    return seen


# ---- what a person put there stays


def test_a_taint_with_our_key_that_a_person_set_is_never_touched(start: Start) -> None:
    bench = start()
    bench.edit(taints=[SAME_KEY])
    for findings in ((fatal(),), ()):
        bench.finds(*findings)
        bench.run(600)
        assert bench.taints == [SAME_KEY]
    assert OWNER not in bench.annotations


def test_a_cordon_that_a_person_set_stays(start: Start) -> None:
    """Cordoned before the fault (then somebody else has the node), or while it lasts: never lifted by us."""
    bench = start(checks={"gpu_lost": Response.CORDON})
    bench.finds(fatal())
    bench.run(30)
    assert bench.node["spec"]["unschedulable"] is True
    bench.edit(unschedulable=None)  # a person takes our cordon away, and sets one of their own
    bench.run(120)
    assert not bench.node["spec"].get("unschedulable")
    bench.edit(unschedulable=True)
    bench.run(120)
    bench.finds()
    bench.run(600)
    assert (bench.ours, bench.node["spec"].get("unschedulable")) == ([], True)


def test_taints_of_others_survive_a_whole_quarantine(start: Start) -> None:
    bench = start()
    bench.edit(taints=[FOREIGN])
    bench.finds(fatal())
    bench.run(30)
    assert FOREIGN in bench.taints
    assert len(bench.ours) == 1
    bench.finds()
    bench.run(600)
    assert bench.taints == [FOREIGN]


# ---- a person's decision stands


def test_a_node_that_a_person_untainted_is_left_alone_until_it_happens_again(start: Start) -> None:
    """Through hours, a restart and even the loss of all local memory."""
    bench = start()
    bench.finds(fatal())
    bench.run(30)
    assert len(bench.ours) == 1
    bench.edit(taints=[])
    bench.run(HOUR)
    assert bench.ours == []
    bench.ledger.documents.clear()
    bench.restarted()
    bench.run(HOUR)
    assert bench.ours == []
    assert BlockReason.ACKNOWLEDGED in reasons(bench)
    bench.finds(replace(fatal(), last=bench.clock.time()))
    bench.run(30)
    assert len(bench.ours) == 1


# ---- somebody else has the node in hand

OTHERS: dict[str, dict[str, Any]] = {
    "NVSentinel": {"labels": {"dgxc.nvidia.com/nvsentinel-state": "quarantined"}},
    "Karpenter": {"taints": [{"key": "karpenter.sh/disrupted", "effect": "NoSchedule"}]},
    "autoscaler": {"taints": [{"key": "ToBeDeletedByClusterAutoscaler", "effect": "NoSchedule"}]},
    "driver upgrade": {"labels": {"nvidia.com/gpu-driver-upgrade-state": "drain-required"}},
    "medik8s": {"annotations": {"remediation.medik8s.io/manually-confirmed-healthy": "x"}},
    "kured": {"annotations": {"weave.works/kured-reboot-in-progress": "2026-01-01"}},
    "cordon": {"unschedulable": True},
    "configured": {"labels": {"example.com/in-repair": "yes"}},
    "opt-out": {"labels": {"gpuwatch.io/opt-out": "true"}},
}


@pytest.mark.parametrize("who", OTHERS)
def test_a_node_that_others_use_gets_nothing_new(start: Start, who: str) -> None:
    bench, marks = start(foreign=("example.com/in-repair",)), OTHERS[who]
    bench.edit(**{name: value for name, value in marks.items() if name in ("taints", "unschedulable")})
    mark(bench, **{name: value for name, value in marks.items() if name in ("labels", "annotations")})
    before = bench.taints
    bench.finds(fatal())
    bench.run(300)
    assert bench.taints == before
    assert OWNER not in bench.annotations
    assert reasons(bench) & {BlockReason.FOREIGN, BlockReason.OPT_OUT}


def test_a_node_that_opts_out_later_gets_back_what_is_ours(start: Start) -> None:
    bench = start()
    bench.finds(fatal())
    bench.run(30)
    mark(bench, annotations={"gpuwatch.io/opt-out": "true"})
    bench.run(120)
    assert bench.ours == []


# ---- another machine, another Node


@pytest.mark.parametrize("other", ["bootID", "machineID"])
def test_a_node_of_another_machine_is_never_written_to(start: Start, other: str) -> None:
    bench = start()
    status = bench.node["status"]
    info = {**status["nodeInfo"], other: "of-somebody-else"}
    bench.cluster.put("nodes", {**bench.node, "status": {**status, "nodeInfo": info}})
    writes = writes_to_node(bench)
    bench.finds(fatal())
    bench.run(600)
    assert writes == []
    assert reasons(bench) == {BlockReason.IDENTITY}


def test_without_any_identity_in_common_nothing_is_written(start: Start) -> None:
    bench = start()
    status = bench.node["status"]
    info = {**status["nodeInfo"], "bootID": "", "machineID": "", "systemUUID": ""}
    bench.cluster.put("nodes", {**bench.node, "status": {**status, "nodeInfo": info}})
    writes = writes_to_node(bench)
    bench.finds(fatal())
    bench.run(120)
    assert writes == []


def test_the_hosts_name_is_never_taken_for_the_nodes() -> None:
    with pytest.raises(UsageError, match="NODE_NAME"):
        OwnNode.of(settings(), {"HOSTNAME": NODE})


def made_anew(bench: Bench, **metadata: Any) -> None:
    """The Node is deleted, and created again under the same name."""
    bench.cluster.delete("nodes", "", NODE)
    bench.cluster.add_node(NODE, gpus=4)
    if metadata:
        mark(bench, **metadata)


def test_what_a_person_declared_of_a_former_node_does_not_count(start: Start) -> None:
    bench = start()
    bench.finds(fatal())
    bench.run(30)
    bench.edit(taints=[])
    bench.run(120)
    made_anew(bench)
    bench.clock.go(HOUR)
    bench.views.poll()
    bench.remediator.step()
    assert len(bench.ours) == 1


def test_an_annotation_of_a_former_node_makes_nothing_ours(start: Start) -> None:
    """Tools that create Nodes copy annotations: neither the taint beside it is taken away nor another one set."""
    bench = start()
    bench.finds(fatal())
    bench.run(30)
    copied, taints = bench.annotations, bench.taints
    made_anew(bench, annotations=copied)
    bench.edit(taints=taints)
    bench.finds()
    bench.run(600)
    assert bench.taints == taints


# ---- nothing stays behind


class Killed(Exception):
    """As by SIGKILL."""


@pytest.mark.parametrize("killed_at", [None, "slot.recorded", "taint.sent"])
def test_an_uninstall_leaves_nothing_behind(start: Start, killed_at: str | None) -> None:
    """Wherever the remediator was stopped, from the Node alone, and nothing that is not ours is touched."""

    def checkpoint(name: str) -> None:
        if name == killed_at:
            raise Killed

    bench = start(checks={"gpu_lost": Response.CORDON})
    mark(bench, labels={"team": "a"}, annotations={"team": "a"})
    bench.edit(taints=[FOREIGN])
    bench.run(30)
    assert bench.labels
    bench.restarted(checkpoint=checkpoint)
    bench.finds(fatal())
    with pytest.raises(Killed) if killed_at else contextlib.nullcontext():
        bench.run(30)
    assert OWNER in bench.annotations
    args = ("node", "release", "--forget", "--yes", "--agent", "none", "--node", NODE, "--kubeconfig", bench.kubeconfig)
    done = CliRunner().invoke(cli, args)
    assert done.exit_code == 0, done.output
    assert bench.is_clean()
    assert (bench.labels, LABELS in bench.annotations) == ({}, False)
    assert bench.condition is None
    assert bench.taints == [FOREIGN]
    assert (bench.node["metadata"]["labels"]["team"], bench.annotations["team"]) == ("a", "a")


def test_the_default_is_to_observe_and_an_observer_never_writes(start: Start, server: SimulatedApiServer) -> None:
    bench = start()
    bench.restarted(RemediationConfig())
    bench.finds(fatal())
    bench.run(600)
    assert {verb for _, verb, _ in server.cluster.requests} <= {"get", "list"}
    assert server.cluster.requests
    assert BlockReason.MODE in reasons(bench)
