"""Scope of a quarantine: only the sick GPU where the device plugin keeps work from it, and the node everywhere else."""

from typing import Any

import pytest
from msgspec.structs import replace

from gpuwatch.config import HandoverConfig, RemediationConfig
from gpuwatch.health.checks import CHECKS
from gpuwatch.kube.objects import PodObject
from gpuwatch.model.errors import UsageError
from gpuwatch.model.finding import Finding, Remedy
from gpuwatch.model.workload import Workload
from gpuwatch.remediation.model import OWNER, QUARANTINED, BlockReason, Evict, NodeStage, PatchNode
from gpuwatch.remediation.planning.manual_quarantine import QuarantineRequest, quarantine
from gpuwatch.remediation.planning.ownership import read_claim
from gpuwatch.remediation.planning.policy import Policy
from tests.remediation.planning.remediating import START, Story, finding

ON_0 = {"GPU-0": (Workload(namespace="ml", pod="a", pod_uid="a"),)}
BOTH = {**ON_0, "GPU-1": (Workload(namespace="ml", pod="b", pod_uid="b"),)}
WITHHELD = {"withheld": ("GPU-0",)}


def pod(name: str, created: float = START) -> PodObject:
    return PodObject(namespace="ml", name=name, uid=name, gpus=1, created=created)


def story(allocatable: int = 1, **settings: Any) -> Story:
    """A node of two GPUs, each with a pod; the Node's figures say how many pods may be given."""
    made = Story(**({"checks": {"gpu_lost": "drain"}} | settings))
    made.cluster.edit(capacity={"nvidia.com/gpu": 2}, allocatable={"nvidia.com/gpu": allocatable})
    made.cluster.pods = {name: pod(name) for name in "ab"}
    return made


def scope(made: Story) -> str | None:
    owner = read_claim(made.node).owner
    return owner.scope if owner else None


def steps(made: Story) -> list[str]:
    return [step.step if isinstance(step, PatchNode) else type(step).__name__ for step in made.done]


def test_where_the_plugin_keeps_the_gpu_away_the_node_stays_untainted_and_only_its_pods_leave() -> None:
    made = story()
    before = made.node
    made.see(finding("gpu_lost"), holders=BOTH, **WITHHELD)
    plan = made.settle()
    assert (made.node.taints, made.node.unschedulable, made.node.labels) == ((), False, {})
    assert list(made.cluster.pods) == ["b"]
    assert (scope(made), plan.scope, plan.stage) == ("gpu", "gpu", NodeStage.DRAINED)
    assert [lease.holder for lease in made.cluster.leases.values()] == ["node-1"]
    assert made.node.condition is not None
    assert made.node.condition.reason == "GPUDegraded"
    made.recover()
    assert made.node.annotations == before.annotations
    assert [lease.holder for lease in made.cluster.leases.values()] == [None]
    assert [event.reason for event in made.cluster.events.values()] == ["GPUDegraded", "GPUEviction", "GPURecovered"]


def test_the_taint_goes_once_the_plugin_has_taken_the_gpu_out() -> None:
    made = story(allocatable=2)
    made.see(finding("gpu_lost"), holders=BOTH, withheld=())
    made.settle()
    assert made.node.taint is not None
    assert made.node.unschedulable
    made.cluster.edit(allocatable={"nvidia.com/gpu": 1})
    made.see(finding("gpu_lost"), holders={}, **WITHHELD)
    made.settle()
    assert (made.node.taints, made.node.unschedulable, scope(made)) == ((), False, "gpu")
    assert QUARANTINED not in made.node.labels
    assert steps(made).count("confine") == 1
    made.recover()
    assert OWNER not in made.node.annotations


@pytest.mark.parametrize(
    ("found", "view", "settings", "allocatable", "why"),
    [
        (finding("sxid_fatal", None), WITHHELD, {}, 1, "is a fault of the node"),
        (finding("fabric_state"), WITHHELD, {"checks": {"fabric_state": "taint"}}, 1, "scope of fabric_state"),
        (finding("gpu_lost"), WITHHELD, {"scope": {"gpu_lost": "node"}}, 1, "scope of gpu_lost is node"),
        (finding("gpu_lost"), {"withheld": None}, {}, 1, "kubelet does not report"),
        (finding("gpu_lost"), {"withheld": ("GPU-1",)}, {}, 1, "still given the GPU of gpu_lost on GPU 0"),
        (finding("gpu_lost"), WITHHELD, {}, 2, "status.allocatable has not dropped"),
        (
            finding("gpu_lost", remedy=Remedy.REBOOT_NODE),
            WITHHELD,
            {"handover": HandoverConfig(annotation="gpuwatch.io/reboot")},
            1,
            "handed over for a reboot",
        ),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_everything_else_takes_the_node(
    found: Finding, view: dict[str, Any], settings: dict[str, Any], allocatable: int, why: str
) -> None:
    made = story(allocatable, **settings)
    made.see(found, **view)
    plan = made.settle()
    assert made.node.taint is not None
    assert scope(made) == "node"
    assert why in plan.scope_reason


def test_a_second_fault_that_is_the_nodes_widens_it_and_it_stays_wide() -> None:
    made = story()
    made.see(finding("gpu_lost"), holders=ON_0, **WITHHELD)
    made.settle()
    for found in ((finding("gpu_lost"), finding("sxid_fatal", None)), (finding("gpu_lost"),)):
        made.see(*found, holders=ON_0, **WITHHELD)
        made.settle()
        assert made.node.taint is not None
        assert made.node.labels[QUARANTINED] == "true"
    assert steps(made).count("taint") == steps(made).count("confine") == 1


def test_a_plugin_that_forgets_the_sick_gpu_at_a_restart_gives_the_node_its_taint() -> None:
    made = story()
    made.see(finding("gpu_lost"), holders=ON_0, **WITHHELD)
    made.settle()
    made.cluster.edit(allocatable={"nvidia.com/gpu": 0}, capacity={"nvidia.com/gpu": 0})
    made.see(finding("gpu_lost"), holders=ON_0, withheld=None)  # the kubelet restarts: that proves nothing
    made.settle()
    assert made.node.taint is None
    made.see(finding("gpu_lost"), holders=ON_0, withheld=())
    made.settle()
    assert made.node.taint is not None
    assert made.node.unschedulable


def test_a_pod_that_is_started_on_the_sick_gpu_proves_the_list_wrong() -> None:
    made = story()
    made.see(finding("gpu_lost"), holders=ON_0, **WITHHELD)
    made.evictions = made.evictions.with_baseline(tuple(made.cluster.pods.values()))
    made.settle()
    made.now += 200.0
    made.cluster.pods["late"] = pod("late", made.now)
    made.see(
        finding("gpu_lost"), holders={"GPU-0": (Workload(namespace="ml", pod="late", pod_uid="late"),)}, **WITHHELD
    )
    plan = made.settle()
    assert made.node.taint is not None
    assert "ml/late" in made.cluster.pods["late"].path
    assert not any(isinstance(step, Evict) and step.pod.name == "late" for step in plan.steps)
    made.settle()
    assert made.node.taint is not None


def test_with_no_execute_the_taint_waits_for_the_plugin_and_not_for_ever() -> None:
    made = story(allocatable=2, effect="NoExecute")
    made.see(finding("gpu_lost"), holders=BOTH, withheld=())
    assert BlockReason.HOLD in {each.reason for each in made.settle().blocked}
    assert made.node.taint is None
    made.now += 31.0
    made.see(finding("gpu_lost"), holders=BOTH, withheld=())
    made.settle()
    assert made.node.taint is not None


def test_a_person_who_quarantines_the_node_gets_the_taint() -> None:
    made = story()
    made.see(finding("gpu_lost"), holders=ON_0, **WITHHELD)
    made.settle()
    for step in quarantine(made.node, QuarantineRequest(at=made.now, reason="look at it"), None).steps:
        made.cluster.do(step, made.now)
    assert made.node.taint is not None
    made.settle()
    assert made.node.taint is not None


@pytest.mark.parametrize("crash", range(7))
def test_a_crash_after_any_step_ends_in_the_same_scope(crash: int) -> None:
    made = story()
    made.see(finding("gpu_lost"), holders=BOTH, **WITHHELD)
    made.cycle(crash=crash)
    made.settle()
    assert (scope(made), made.node.taints, list(made.cluster.pods)) == ("gpu", (), ["b"])
    made.recover()
    assert OWNER not in made.node.annotations
    assert not any(lease.holder for lease in made.cluster.leases.values())


def test_the_scope_of_a_fault_of_the_node_cannot_be_a_gpu() -> None:
    with pytest.raises(UsageError, match=r"remediation.scope.driver_wedged asks for gpu"):
        Policy.compile(RemediationConfig(scope={"driver_wedged": "gpu"}), CHECKS)
    chosen = Policy.compile(RemediationConfig(scope={"nvlink_down": "gpu", "gpu_lost": "node"}), CHECKS)
    assert [chosen.scope(name) for name in ("nvlink_down", "gpu_lost", "xid_fatal", "unheard_of")] == [
        "gpu", "node", "gpu", "node"
    ]  # fmt: skip
    assert {rule.subject: rule.scope for rule in chosen.rules()}["sxid_fatal"] == "node"


def test_a_gpu_that_is_well_again_does_not_widen_what_is_left() -> None:
    made = story()
    made.cluster.edit(capacity={"nvidia.com/gpu": 2}, allocatable={"nvidia.com/gpu": 0})
    both = (finding("gpu_lost"), finding("gpu_lost", "GPU-1"))
    made.see(*both, withheld=("GPU-0", "GPU-1"))
    made.settle()
    made.see(both[1], withheld=("GPU-1",))
    made.settle()
    assert (scope(made), made.node.taints) == ("gpu", ())
    assert replace(made.memory, announced={}).quarantined.keys() == {each.key for each in both}
