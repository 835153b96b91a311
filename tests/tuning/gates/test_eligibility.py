"""Gates before tuning: each closes for what it is there for, stays closed for its time, and opens for the rest."""

from collections.abc import Callable
from typing import Any

import pytest
from msgspec.structs import replace

from gpuwatch.config import TuningConfig
from gpuwatch.model.consent import AUTOTUNE, POWER_AGENTS, PROGRESS, Consents, PodConsent
from gpuwatch.model.finding import Finding, Health, Severity
from gpuwatch.model.snapshot import ClockEvents, Gpu, GpuProcess, GpuState, Power, RowRemap, SourceStatus, Vgpu
from gpuwatch.model.view import View
from gpuwatch.model.workload import Attribution, ProcessOwner, Workload
from gpuwatch.model.xid import XidCount
from gpuwatch.tuning.energy.model import Refusal
from gpuwatch.tuning.gates.conflict import SETTING, YIELD_SECONDS
from gpuwatch.tuning.gates.eligibility import COOLDOWN_SECONDS, GATES, LINGER_SECONDS, SLOWDOWNS, GateHistory, judge
from gpuwatch.tuning.model.setting import Setting
from gpuwatch.tuning.model.status import GpuTuning, ObstacleReason, TuningState
from tests.remediation.planning.remediating import START, finding, view

POD = Workload(namespace="ml", pod="train-0", container="main", pod_uid="uid-0")
OTHER = Workload(namespace="ml", pod="train-1", container="main", pod_uid="uid-1")
LIMITS = Power(limit_configured=700.0, limit_enforced=700.0, limit_default=700.0)


def working(*findings: Finding, **gpu: Any) -> View:
    """Two GPUs that are well; the first is held by a pod, and is as `gpu` says."""
    made = view(*findings, holders={"GPU-0": (POD,)})
    first, second = (
        replace(sample, power=LIMITS, processes=(), mig_enabled=False, display_active=False)
        for sample in made.snapshot.gpus
    )
    return with_gpus(made, replace(first, **gpu), second)


def with_gpus(of: View, *gpus: Gpu) -> View:
    return replace(of, snapshot=replace(of.snapshot, gpus=gpus))


def first(of: View, **more: Any) -> GpuTuning:
    return judge(of, **{"fresh": True, "now": 0.0} | more)[0][0]


def unattributed() -> View:
    """A process that /proc does not show, on a GPU that the kubelet has given to nobody."""
    made = working(processes=(GpuProcess(pid=7, type="compute"),))
    return replace(made, attribution=Attribution())


def state_of(state: GpuState) -> View:
    made = working()
    statuses = (replace(made.snapshot.statuses[0], state=state), *made.snapshot.statuses[1:])
    return replace(made, snapshot=replace(made.snapshot, gpus=made.snapshot.gpus[1:], statuses=statuses))


def sharing(*owners: ProcessOwner, types: str = "compute") -> View:
    processes = tuple(GpuProcess(pid=owner.pid, type=types) for owner in owners)
    return replace(working(processes=processes), owners=owners)


def source_down(name: str) -> View:
    made = working()
    return replace(made, snapshot=replace(made.snapshot, sources=(SourceStatus(name=name, up=False),)))


def xid(code: int, *, ago: float = 5.0, uuid: str | None = "GPU-0", pci: str | None = None) -> View:
    return replace(working(), xids=(XidCount(uuid=uuid, pci=pci, xid=code, count=1, last=START - ago),))


def unhealthy() -> View:
    made = working()
    return replace(made, judgement=replace(made.judgement, gpus={"GPU-0": Health.UNKNOWN, "GPU-1": Health.HEALTHY}))


def limit(configured: float | None, enforced: float | None = 700.0) -> View:
    return working(power=Power(limit_configured=configured, limit_enforced=enforced, limit_default=700.0))


def clocks(**reasons: bool) -> View:
    return working(clock_events=ClockEvents(active=reasons))


def consents(*pods: PodConsent, **more: Any) -> Consents:
    return Consents(at=START, pods=pods, **more)


def consent(workload: Workload, **annotations: str) -> PodConsent:
    assert workload.namespace is not None
    assert workload.pod is not None
    assert workload.pod_uid is not None
    return PodConsent(
        namespace=workload.namespace, name=workload.pod, uid=workload.pod_uid, annotations=dict(annotations)
    )


ALICE = ProcessOwner(pid=7, start_time=1, uid=1000, user="alice")

CLOSED: dict[str, tuple[ObstacleReason, Callable[[], View]]] = {
    "lost": (ObstacleReason.LOST, lambda: state_of(GpuState.LOST)),
    "unresponsive": (ObstacleReason.UNRESPONSIVE, lambda: state_of(GpuState.UNRESPONSIVE)),
    "nobody reads": (ObstacleReason.UNKNOWN, lambda: state_of(GpuState.UNKNOWN)),
    "no sample": (ObstacleReason.UNKNOWN, lambda: state_of(GpuState.FRESH)),
    "health unknown": (ObstacleReason.UNKNOWN, unhealthy),
    "a finding": (ObstacleReason.FAULT, lambda: working(finding("nvlink_errors"))),
    "a finding of the node": (ObstacleReason.FAULT, lambda: working(finding("gpu_missing", None))),
    "an xid": (ObstacleReason.XID, lambda: xid(79)),
    "an unknown xid": (ObstacleReason.XID, lambda: xid(9999)),
    "an xid of an unknown GPU": (ObstacleReason.XID, lambda: xid(79, uuid=None)),
    "an xid of its address": (ObstacleReason.XID, lambda: xid(79, uuid=None, pci="0000:01:00")),
    "row remap": (ObstacleReason.REPAIR_PENDING, lambda: working(row_remap=RowRemap(pending=True))),
    "recovery action": (ObstacleReason.REPAIR_PENDING, lambda: working(recovery_action=1)),
    "mig": (ObstacleReason.MIG, lambda: working(mig_enabled=True)),
    "mig pending": (ObstacleReason.MIG, lambda: working(mig_pending=True)),
    "vgpus": (ObstacleReason.VGPU, lambda: working(vgpus=(Vgpu(uuid="V", instance=1),))),
    "a vgpu": (ObstacleReason.VGPU, lambda: working(virtualization_mode="vgpu")),
    "display": (ObstacleReason.DISPLAY, lambda: working(display_active=True)),
    "graphics": (
        ObstacleReason.DISPLAY,
        lambda: sharing(replace(ALICE, pod_uid="uid-0", workload=POD), types="graphics"),
    ),
    "compute and graphics": (
        ObstacleReason.DISPLAY,
        lambda: sharing(replace(ALICE, pod_uid="uid-0", workload=POD), types="compute+graphics"),
    ),
    "monitor": (ObstacleReason.MONITORING, lambda: working(finding("monitoring_degraded", None))),
    "kubelet away": (ObstacleReason.OWNERS_UNKNOWN, lambda: source_down("podresources")),
    "no process list": (ObstacleReason.OWNERS_UNKNOWN, lambda: working(processes=None)),
    "processes of nobody knows whom": (ObstacleReason.OWNERS_UNKNOWN, unattributed),
    "a pod and a user": (ObstacleReason.SHARED, lambda: sharing(ALICE)),
    "a limit of somebody": (ObstacleReason.CONFLICT, lambda: limit(500.0, 500.0)),
    "a limit from outside": (ObstacleReason.CONFLICT, lambda: limit(700.0, 400.0)),
    "a raised limit": (ObstacleReason.CONFLICT, lambda: limit(750.0, 750.0)),
    "clocks set by somebody": (ObstacleReason.CONFLICT, lambda: clocks(**{SETTING: True})),
} | {
    reason: (ObstacleReason.SLOWDOWN, lambda reason=reason: working(clock_events=ClockEvents(active={reason: True})))
    for reason in SLOWDOWNS
}  # fmt: skip


@pytest.mark.parametrize("name", CLOSED)
def test_a_gate_is_closed_for_what_it_is_there_for(name: str) -> None:
    reason, made = CLOSED[name]
    found = first(made())
    assert (found.state, found.reason) == (TuningState.REFUSED, reason)
    assert found.message


def test_every_gate_has_been_seen_closed() -> None:
    assert {reason for reason, _ in CLOSED.values()} | {ObstacleReason.QUARANTINED} == {gate.reason for gate in GATES}


def test_gates_are_reported_in_the_order_of_the_reasons() -> None:
    ranks = [list(ObstacleReason).index(gate.reason) for gate in GATES]
    assert ranks == sorted(ranks)


def test_what_the_energy_tuner_refuses_for_is_a_reason() -> None:
    assert {refusal.value for refusal in Refusal} <= {reason.value for reason in ObstacleReason}
    assert not {refusal.value for refusal in Refusal} & {gate.reason.value for gate in GATES}


def test_a_tainted_node_is_left_alone_and_rests_no_longer() -> None:
    found, history = judge(working(), fresh=True, now=0.0, consents=consents(quarantined=True))
    assert [gpu.reason for gpu in found] == [ObstacleReason.QUARANTINED] * 2
    assert first(working(), now=1.0, history=history, consents=consents()).reason is None


OPT_IN = {AUTOTUNE: "enforce"}
CONFIG = TuningConfig(mode="enforce")


def test_pods_share_a_gpu_only_if_all_of_them_have_opted_in() -> None:
    shared = with_gpus(view(holders={"GPU-0": (POD, OTHER)}), *working().snapshot.gpus)
    both = consents(consent(POD, **OPT_IN), consent(OTHER, **OPT_IN))
    one = consents(consent(POD, **OPT_IN), consent(OTHER))
    sums = replace(CONFIG, shared="sum")
    assert first(shared, consents=both, config=sums).reason is None
    assert first(shared, consents=one, config=sums).reason is ObstacleReason.SHARED
    assert first(shared, consents=both).reason is ObstacleReason.SHARED
    assert first(shared, consents=replace(both, at=START - 300), config=sums).reason is ObstacleReason.SHARED
    assert first(shared, consents=one, config=replace(sums, pods="enforce")).reason is None


def test_a_bound_on_the_sum_of_several_owners_is_the_operators_word_unless_each_counts_its_work() -> None:
    shared = with_gpus(view(holders={"GPU-0": (POD, OTHER)}), *working().snapshot.gpus)
    counting = OPT_IN | {PROGRESS: "vllm"}
    found = first(shared, consents=consents(consent(POD, **OPT_IN), consent(OTHER, **counting)), config=CONFIG)
    assert found.reason is ObstacleReason.SHARED
    assert "tuning.shared: sum" in found.message
    both = consents(consent(POD, **counting), consent(OTHER, **counting))
    assert first(shared, consents=both, config=CONFIG).reason is None


def test_a_pod_and_a_person_never_share_a_tuned_gpu() -> None:
    opted = consents(consent(POD, **OPT_IN))
    assert first(sharing(ALICE), consents=opted, config=CONFIG).reason is ObstacleReason.SHARED


@pytest.mark.parametrize("name", POWER_AGENTS)
def test_s9_a_pod_whose_power_another_program_sets_is_theirs(name: str) -> None:
    other = consents(consent(POD, **{name: "400"}))
    found, _ = judge(working(), fresh=True, now=0.0, consents=other)
    assert [gpu.reason for gpu in found] == [ObstacleReason.CONFLICT, None]
    assert name in found[0].message
    history = proven(working(), consents=other)
    assert first(working(), now=YIELD_SECONDS - 1, history=history).reason is ObstacleReason.CONFLICT
    assert first(working(), now=YIELD_SECONDS, history=history).reason is None


def proven(of: View, **more: Any) -> GateHistory:
    """What is remembered, at 0 s, of what has been so for LINGER_SECONDS."""
    _, history = judge(of, fresh=True, now=-LINGER_SECONDS, **more)
    return judge(of, fresh=True, now=0.0, history=history, **more)[1]


def test_s9_after_a_conflict_the_gpu_is_left_to_them_for_an_hour() -> None:
    history = proven(limit(500.0, 500.0))
    assert first(working(), now=YIELD_SECONDS - 1, history=history).reason is ObstacleReason.CONFLICT
    assert first(working(), now=YIELD_SECONDS, history=history).reason is None


def test_what_an_earlier_tuner_had_set_when_the_sample_was_taken_is_nobody_to_yield_to() -> None:
    found, history = judge(limit(500.0, 500.0), fresh=True, now=0.0)
    assert found[0].reason is ObstacleReason.CONFLICT
    _, history = judge(limit(500.0, 500.0), fresh=False, now=1.0, history=history)
    found, history = judge(working(), fresh=True, now=2.0, history=history)
    assert (found[0].reason, history) == (None, {})
    _, history = judge(limit(500.0, 500.0), fresh=True, now=LINGER_SECONDS + 2, history=history)
    assert first(working(), now=LINGER_SECONDS + 3, history=history).reason is None


LOCK = Setting(uuid="GPU-0", knob="locked_clocks", original=None, applied=(1e9,), at=START, boot_id="b", driver="d")


def test_clocks_that_gpuwatch_has_locked_are_no_conflict_nor_shortly_afterwards() -> None:
    held = clocks(**{SETTING: True})
    found, history = judge(held, fresh=True, now=0.0, settings=(LOCK,))
    assert found[0].reason is None
    found, history = judge(held, fresh=True, now=LINGER_SECONDS - 1, history=history)
    assert found[0].reason is None
    assert first(held, now=LINGER_SECONDS + 1, history=history).reason is ObstacleReason.CONFLICT


def test_a_limit_that_gpuwatch_has_just_restored_is_no_conflict() -> None:
    own = Setting(uuid="GPU-0", knob="power_limit", original=700.0, applied=(500.0,), at=START, boot_id="b", driver="d")
    _, history = judge(limit(500.0, 500.0), fresh=True, now=0.0, settings=(own,))
    assert first(limit(500.0, 500.0), now=2.0, history=history).reason is None
    assert first(limit(500.0, 500.0), now=LINGER_SECONDS + 1, history=history).reason is ObstacleReason.CONFLICT


def test_gpus_before_volta_name_application_clocks_though_nobody_has_set_them() -> None:
    held = clocks(**{SETTING: True})
    old = replace(held.snapshot.gpus[0].identity, compute_capability="6.0")
    assert first(with_gpus(held, replace(held.snapshot.gpus[0], identity=old))).reason is None


OPEN: dict[str, Callable[[], View]] = {
    "all well": working,
    "an old xid": lambda: xid(79, ago=COOLDOWN_SECONDS + 1),
    "an application's xid": lambda: xid(31),
    "another GPU's xid": lambda: xid(79, uuid="GPU-1"),
    "another address' xid": lambda: xid(79, uuid=None, pci="0000:02:00"),
    "another GPU's finding": lambda: working(finding("nvlink_errors", "GPU-1")),
    "an application's finding": lambda: working(finding("xid_application_repeated")),
    "what is only worth knowing": lambda: working(replace(finding("xid_warning"), severity=Severity.INFO)),
    "a power cap": lambda: working(clock_events=ClockEvents(active={"sw_power_cap": True})),
    "the pod's own process": lambda: sharing(replace(ALICE, pod_uid="uid-0", workload=POD)),
    "no kubelet on this machine": lambda: source_down("gpm"),
    "limits not known": lambda: working(power=Power()),
    "a rounded limit": lambda: limit(699.9, 699.9),
}


@pytest.mark.parametrize("name", OPEN)
def test_a_gate_is_open_for_the_rest(name: str) -> None:
    found = first(OPEN[name]())
    assert (found.state, found.obstacles) == (TuningState.ELIGIBLE, ())


def test_a_gpu_that_nobody_uses_is_idle() -> None:
    assert judge(working(), fresh=True, now=0.0)[0][1].state is TuningState.IDLE


def test_two_pods_share_and_two_containers_of_one_do_not() -> None:
    shared = with_gpus(view(holders={"GPU-0": (POD, OTHER)}), *working().snapshot.gpus)
    assert first(shared).reason is ObstacleReason.SHARED
    sidecar = with_gpus(view(holders={"GPU-0": (POD, replace(POD, container="sidecar"))}), *working().snapshot.gpus)
    assert first(sidecar).state is TuningState.ELIGIBLE


@pytest.mark.parametrize("owner", [ALICE, replace(ALICE, slurm_job="42")])
def test_work_outside_of_pods_is_work(owner: ProcessOwner) -> None:
    made = with_gpus(view(), replace(working().snapshot.gpus[0], processes=(GpuProcess(pid=7, type="compute"),)))
    assert first(replace(made, owners=(owner,))).state is TuningState.ELIGIBLE


def test_owners_are_named_also_of_a_gpu_that_is_lost() -> None:
    assert [first(made).owners for made in (working(), state_of(GpuState.LOST))] == [("ml/train-0",)] * 2


def test_an_old_view_refuses_every_gpu_and_says_nothing_else() -> None:
    found, _ = judge(working(finding("nvlink_errors")), fresh=False, now=0.0)
    assert [[obstacle.reason for obstacle in gpu.obstacles] for gpu in found] == [[ObstacleReason.STALE_VIEW]] * 2


def test_after_a_fault_a_gpu_rests() -> None:
    _, history = judge(working(finding("nvlink_errors")), fresh=True, now=0.0)
    resting, history = judge(working(), fresh=True, now=COOLDOWN_SECONDS - 1, history=history)
    assert [gpu.reason for gpu in resting] == [ObstacleReason.FAULT, None]
    rested, history = judge(working(), fresh=True, now=COOLDOWN_SECONDS, history=history)
    assert [gpu.reason for gpu in rested] == [None, None]
    assert not history


def test_the_rest_is_counted_from_when_it_was_seen_last_and_reported() -> None:
    begin = 1e6
    _, history = judge(working(finding("nvlink_errors")), fresh=True, now=begin)
    _, history = judge(working(finding("nvlink_errors")), fresh=True, now=begin + 100, history=history)
    found = first(working(), now=begin + COOLDOWN_SECONDS, history=history)
    assert found.message == f"fault {COOLDOWN_SECONDS - 100:.0f} s ago, cooldown {COOLDOWN_SECONDS:.0f} s"
    assert first(working(), now=begin + COOLDOWN_SECONDS + 100, history=history).reason is None


def test_a_gate_without_rest_opens_at_once() -> None:
    _, history = judge(working(mig_enabled=True), fresh=True, now=0.0)
    assert first(working(), now=1.0, history=history).reason is None


def test_an_old_view_does_not_make_the_rest_shorter() -> None:
    _, history = judge(working(finding("nvlink_errors")), fresh=True, now=0.0)
    _, history = judge(working(), fresh=False, now=5.0, history=history)
    assert first(working(), now=10.0, history=history).reason is ObstacleReason.FAULT


def test_a_person_can_say_what_an_xid_means() -> None:
    assert first(xid(79), classes={79: "application"}).reason is None
    assert first(xid(31), classes={31: "fatal"}).reason is ObstacleReason.XID


def test_a_limit_of_gpuwatch_is_no_conflict() -> None:
    own = Setting(uuid="GPU-0", knob="power_limit", original=700.0, applied=(500.0,), at=START, boot_id="b", driver="d")
    assert first(limit(500.0, 500.0), settings=(own,)).foreign == {"power_limit": False}
    assert first(limit(450.0, 450.0), settings=(own,)).foreign == {"power_limit": True}
    assert first(limit(None, None)).foreign == {}


def test_all_obstacles_are_reported_the_most_serious_first() -> None:
    found = first(working(finding("nvlink_errors"), mig_enabled=True, display_active=True))
    assert [obstacle.reason for obstacle in found.obstacles] == [
        ObstacleReason.FAULT,
        ObstacleReason.MIG,
        ObstacleReason.DISPLAY,
    ]
