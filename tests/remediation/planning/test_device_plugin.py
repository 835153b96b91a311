"""The restart of a device plugin that counts out a GPU which is well: when, once, and never where it could do harm."""

from typing import Any

import pytest

from gpuwatch.kube.objects import PodObject
from gpuwatch.remediation.model import BlockReason, Evict, Plan
from gpuwatch.remediation.planning.device_plugin import MIN_AGE
from tests.remediation.planning.remediating import START, Story, finding

DAEMON_SET = "gpu-operator/nvidia-device-plugin-daemonset"
OUT = finding("gpu_not_allocatable", "GPU-0")
WITHHELD: dict[str, Any] = {"withheld": ("GPU-0",)}


def plugin(uid: str = "plugin", *, created: float = START - MIN_AGE - 60, **more: Any) -> PodObject:
    namespace, name = DAEMON_SET.split("/")
    owned = {"namespace": namespace, "controller": "DaemonSet", "controller_name": name}
    return PodObject(**({"name": f"{name}-{uid}", "uid": uid, "created": created} | owned | more))


def story(*pods: PodObject, **settings: Any) -> Story:
    made = Story(**({"restart_plugin": DAEMON_SET} | settings))
    made.cluster.pods = {pod.uid: pod for pod in pods or (plugin(),)}
    return made


def evicted(made: Story) -> list[str]:
    return [step.pod.uid for step in made.done if isinstance(step, Evict)]


def reasons(made: Plan) -> set[BlockReason]:
    return {each.reason for each in made.blocked}


def test_its_pod_is_asked_to_leave_once_and_an_event_says_why() -> None:
    made = story()
    made.see(OUT, **WITHHELD)
    first = made.cycle()
    assert "GPU-0, which gpuwatch finds well" in first.message
    made.cluster.pods = {"next": plugin("next", created=made.now)}  # the DaemonSet's next one does not help
    for _ in range(50):
        made.wait(3600.0)
        made.see(OUT, **WITHHELD)
        last = made.cycle()
    assert evicted(made) == ["plugin"]
    assert BlockReason.RATE in reasons(last)
    assert "GPUPluginRestart" in [event.reason for event in made.cluster.events.values()]
    assert made.node.taint is None


def test_a_gpu_that_is_counted_out_again_the_same_day_waits_for_a_person() -> None:
    made = story(plugin(created=START - MIN_AGE / 2))
    made.see(OUT, **WITHHELD)
    made.settle()
    assert evicted(made) == []
    assert BlockReason.RATE in reasons(made.plan())


@pytest.mark.parametrize(
    ("found", "withheld"),
    [
        ((OUT,), ("GPU-0", "GPU-1")),  # a GPU is kept out in which gpuwatch finds nothing, and no such finding either
        ((OUT, finding("gpu_missing", None)), ("GPU-0",)),
        ((OUT, finding("row_remap_failure", "GPU-1")), ("GPU-0",)),
    ],
    ids=["another is kept out", "the node is not well", "another GPU is not well"],
)
def test_a_plugin_that_would_give_away_a_sick_gpu_is_left_alone(found: Any, withheld: tuple[str, ...]) -> None:
    made = story(checks={"row_remap_failure": "condition"})
    made.see(*found, withheld=withheld)
    made.settle()
    assert evicted(made) == []
    assert BlockReason.HOLD in reasons(made.plan())


@pytest.mark.parametrize(("allocatable", "restarts"), [(1, []), (2, ["plugin"])], ids=["scope gpu", "scope node"])
def test_in_a_quarantine_only_behind_the_taint(allocatable: int, restarts: list[str]) -> None:
    """A GPU whose hold still runs would be given to pods; where the release waits for the plugin, that is no circle."""
    made = story(checks={"gpu_lost": "taint", "gpu_not_allocatable": "condition"})
    made.cluster.edit(capacity={"nvidia.com/gpu": 2}, allocatable={"nvidia.com/gpu": allocatable})
    made.see(finding("gpu_lost"), **WITHHELD)
    made.settle()
    assert (made.node.taint is None) == (not restarts)
    made.see(finding("gpu_lost"), OUT, **WITHHELD)
    made.settle()
    assert evicted(made) == []
    made.see(OUT, **WITHHELD)
    made.settle()
    assert evicted(made) == restarts


@pytest.mark.parametrize(
    "other",
    [
        plugin(namespace="ml"),
        plugin(controller="ReplicaSet"),
        plugin(controller_name="another"),
        plugin(phase="Failed"),
    ],
    ids=["namespace", "kind", "name", "over"],
)
def test_no_other_pod_is_taken_for_it(other: PodObject) -> None:
    made = story(other)
    made.see(OUT, **WITHHELD)
    made.settle()
    assert evicted(made) == []
    assert any("has no pod on this node" in each.message for each in made.plan().blocked)


def test_one_that_is_leaving_already_is_not_asked_again() -> None:
    made = story(plugin(deleting=True))
    made.see(OUT, **WITHHELD)
    made.settle()
    assert evicted(made) == []


@pytest.mark.parametrize(
    ("settings", "reason"),
    [
        ({"restart_plugin": ""}, None),
        ({"mode": "observe"}, BlockReason.MODE),
        ({"foreign": ("example.com/*",)}, BlockReason.FOREIGN),
    ],
    ids=["not wanted", "observe", "another controller"],
)
def test_nothing_is_done_unless_the_policy_asks_for_it(settings: dict[str, Any], reason: BlockReason | None) -> None:
    made = story(**settings)
    made.cluster.edit(labels={"example.com/busy": "true"})
    made.see(OUT, **WITHHELD)
    plan = made.plan(pods=None)
    assert not any(isinstance(step, Evict) for step in plan.steps)
    assert plan.wants == ()
    assert reason is None or reason in reasons(plan)


def test_pods_are_read_only_for_a_finding() -> None:
    made = story()
    made.see()
    assert made.plan(pods=None).wants == ()
    made.see(OUT, **WITHHELD)
    assert made.plan(pods=None).wants == ("pods",)
