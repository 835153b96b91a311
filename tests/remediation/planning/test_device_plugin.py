"""The restart of a device plugin that counts out a GPU which is well: when, how often, never where it could do harm."""

from typing import Any

import pytest
from msgspec.structs import replace

from gpuwatch.config import DrainConfig, MaintenanceWindow
from gpuwatch.kube.objects import PodObject
from gpuwatch.model.finding import Finding, Severity
from gpuwatch.model.view import Validation
from gpuwatch.remediation.model import BlockReason, CreateEvent, Evict, Plan, RemediatorMemory
from gpuwatch.remediation.planning.device_plugin import MIN_AGE
from tests.remediation.planning.remediating import HOST, START, Story, finding

DAEMON_SET = "gpu-operator/nvidia-device-plugin-daemonset"
DAY = 86400.0
OUT = replace(finding("gpu_not_allocatable"), severity=Severity.WARNING)
WARNED = replace(finding("pcie_replay_rate", "GPU-1"), severity=Severity.WARNING)
NEVER = MaintenanceWindow(days=("mon",), start="03:00", end="03:01", timezone="UTC")
EVERY_DAY = ("mon", "tue", "wed", "thu", "fri", "sat", "sun")
ALWAYS = replace(NEVER, days=EVERY_DAY, start="00:00", end="23:59")


def plugin(uid: str = "plugin", *, created: float = START - MIN_AGE - 60, **more: Any) -> PodObject:
    namespace, name = DAEMON_SET.split("/")
    owned = {"namespace": namespace, "controller": "DaemonSet", "controller_name": name}
    return PodObject(**({"name": f"{name}-{uid}", "uid": uid, "created": created} | owned | more))


def story(*pods: PodObject, **settings: Any) -> Story:
    """All has been healthy for long, but for the plugin's list."""
    made = Story(**({"restart_plugin": DAEMON_SET} | settings))
    made.cluster.pods = {pod.uid: pod for pod in pods or (plugin(),)}
    made.clean_for = DAY
    made.see(OUT, withheld=("GPU-0",))
    return made


def evicted(made: Story) -> list[str]:
    return [step.pod.uid for step in made.done if isinstance(step, Evict)]


def reasons(made: Plan) -> set[BlockReason]:
    return {each.reason for each in made.blocked}


def test_its_pod_is_asked_to_leave_and_an_event_says_why() -> None:
    made = story()
    plan = made.cycle()
    assert "GPU-0, which gpuwatch finds healthy" in plan.message
    assert evicted(made) == ["plugin"]
    assert "GPUPluginRestart" in [step.reason for step in made.done if isinstance(step, CreateEvent)]
    assert made.node.taint is None


def test_a_plugin_that_continues_counting_it_out_is_left_to_a_person() -> None:
    made = story()
    made.cycle()
    made.cluster.pods = {"next": plugin("next", created=made.now)}  # the DaemonSet's
    for _ in range(7 * 24):
        made.now += 3600.0
        made.see(OUT, withheld=("GPU-0",))
        last = made.cycle()
    assert evicted(made) == ["plugin"]
    assert BlockReason.RATE in reasons(last)


@pytest.mark.parametrize("remembers", [True, False])
def test_one_that_counts_it_out_again_is_restarted_once_in_two_days_at_most(remembers: bool) -> None:
    """Also where memory is lost, as the pod's own age tells; without it a restart a day is the most."""
    made = story()
    for hour in range(4 * 24):
        made.see(replace(OUT, since=made.now), withheld=("GPU-0",))
        made.cycle()
        if not made.cluster.pods:
            made.cluster.pods = {f"next-{hour}": plugin(f"next-{hour}", created=made.now)}
        made.now += 3600.0
        made.memory = made.memory if remembers else RemediatorMemory()
    assert len(evicted(made)) == (2 if remembers else 4)


def test_with_a_clock_that_is_days_ahead_it_is_no_loop() -> None:
    """New pods are days old then."""
    made = story()
    for number in range(20):
        made.cluster.pods = {f"{number}": plugin(f"{number}", created=made.now - 3 * DAY)}
        made.see(replace(OUT, since=made.now), withheld=("GPU-0",))
        made.cycle()
        made.now += 60.0
    assert evicted(made) == ["0"]


def test_a_refused_eviction_is_not_asked_for_again_and_again() -> None:
    """Its pod stays, and is no younger."""
    made = story()
    for _ in range(20):
        made.cycle()
        made.cluster.pods = {"plugin": plugin()}
        made.now += 60.0
        made.see(OUT, withheld=("GPU-0",))
    assert evicted(made) == ["plugin"]


@pytest.mark.parametrize(
    ("found", "view"),
    [
        ((OUT,), {"withheld": ("GPU-0", "GPU-1")}),
        ((OUT, WARNED), {"withheld": ("GPU-0",)}),
        ((OUT, finding("row_remap_failure")), {"withheld": ("GPU-0",)}),
        ((OUT, replace(finding("xid_unconfirmed"), severity=Severity.WARNING)), {"withheld": ("GPU-0",)}),
    ],
    ids=["another is kept out", "another GPU is not well", "it is not well itself", "an XID nobody has confirmed"],
)
def test_a_plugin_that_could_give_away_a_sick_gpu_is_left_alone(
    found: tuple[Finding, ...], view: dict[str, Any]
) -> None:
    made = story(checks={"row_remap_failure": "observe"})
    made.see(*found, **view)
    made.settle()
    assert evicted(made) == []
    assert BlockReason.HOLD in reasons(made.plan())


def test_all_must_have_been_well_for_the_hold() -> None:
    made = story(recovery_hold=300.0)
    made.clean_for = 299.0
    made.settle()
    assert evicted(made) == []
    assert BlockReason.HOLD in reasons(made.plan())
    made.clean_for = 300.0
    made.settle()
    assert evicted(made) == ["plugin"]


@pytest.mark.parametrize(
    ("passed", "boot", "restarts"),
    [(True, HOST.boot_id, ["plugin"]), (False, HOST.boot_id, []), (True, "before", [])],
)
def test_where_a_proof_is_asked_for_the_gpu_must_have_it(passed: bool, boot: str, restarts: list[str]) -> None:
    made = story(validate="active")
    proof = Validation(gpu="GPU-0", at=START, boot_id=boot, passed=passed, message="")
    assert made.view is not None
    made.view = replace(made.view, validations=(proof,))
    made.settle()
    assert evicted(made) == restarts
    assert (BlockReason.VALIDATION in reasons(made.plan())) == (not restarts)


@pytest.mark.parametrize("allocatable", [1, 2], ids=["scope gpu", "scope node"])
def test_a_node_in_quarantine_keeps_its_plugin(allocatable: int) -> None:
    """Behind the taint no new one would start, and of one GPU the hold would be worth nothing."""
    made = story(checks={"gpu_lost": "taint"})
    made.cluster.edit(capacity={"nvidia.com/gpu": 2}, allocatable={"nvidia.com/gpu": allocatable})
    made.see(finding("gpu_lost"), withheld=("GPU-0",))
    made.clean_for = 0.0
    made.settle()
    made.see(OUT, withheld=("GPU-0",))  # well again, and the hold runs
    made.settle()
    assert evicted(made) == []
    made.wait(made.policy.config.recovery_hold + made.policy.config.min_quarantine)
    made.settle()
    assert made.node.taint is None
    assert evicted(made) == ["plugin"]


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
    made.settle()
    assert evicted(made) == []
    assert any("no pod here" in each.message for each in made.plan().blocked)


def test_one_that_is_leaving_already_is_not_asked() -> None:
    made = story(plugin(deleting=True))
    made.settle()
    assert evicted(made) == []


@pytest.mark.parametrize(
    ("settings", "reason"),
    [
        ({"restart_plugin": ""}, None),
        ({"mode": "observe"}, BlockReason.MODE),
        ({"foreign": ("example.com/*",)}, BlockReason.FOREIGN),
        ({"maintenance": (ALWAYS,)}, BlockReason.MAINTENANCE),
        ({"drain": DrainConfig(windows=(NEVER,))}, BlockReason.MAINTENANCE),
    ],
    ids=["not wanted", "observe", "another controller", "maintenance", "outside of the windows"],
)  # fmt: skip
def test_nothing_is_done_or_read_unless_the_policy_asks_for_it(
    settings: dict[str, Any], reason: BlockReason | None
) -> None:
    made = story(**settings)
    made.cluster.edit(labels={"example.com/busy": "true"})
    plan = made.plan(pods=None)
    assert not any(isinstance(step, Evict) for step in plan.steps)
    assert plan.needs == ()
    assert reason is None or reason in reasons(plan)


def test_pods_are_read_only_for_a_finding() -> None:
    made = story()
    assert made.plan(pods=None).needs == ("pods",)
    made.see()
    assert made.plan(pods=None).needs == ()
