"""Pods get what their own processes use, devices keep their readings, and nothing is counted twice or invented."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuwatch.model.snapshot import Activity, Gpu, GpuProcess, Identity, MigInstance
from gpuwatch.model.workload import Allocation, Attribution, Holder, PodUsage, ProcessOwner, Workload
from gpuwatch.workloads.attribution import EnergyClaim, attribute, energy_shares

GIB = 1 << 30


def gpu(index: int, *processes: GpuProcess, mig: tuple[MigInstance, ...] = ()) -> Gpu:
    identity = Identity(index=index, uuid=f"GPU-{index}", pci_bus_id=f"00000000:{index:02X}:00.0", minor=index)
    return Gpu(identity=identity, mig=mig, processes=processes)


def process(pid: int, memory: int | None = GIB, busy: float | None = None, **on: int) -> GpuProcess:
    return GpuProcess(pid=pid, type="compute", used_memory=memory, sm_utilization=busy, **on)


def pod(name: str, container: str | None = "main", uid: str | None = None) -> Workload:
    return Workload(namespace="ml", pod=name, container=container, pod_uid=uid)


def given_to(workload: Workload, *ids: str, resource: str = "nvidia.com/gpu") -> Allocation:
    return Allocation(workload=workload, resource=resource, device_ids=ids)


def owned(pid: int, workload: Workload | None = None, slurm_job: str | None = None) -> ProcessOwner:
    uid = workload.pod_uid if workload else None
    return ProcessOwner(pid=pid, start_time=1, workload=workload, pod_uid=uid, slurm_job=slurm_job)


def join(gpus: list[Gpu], allocations: list[Allocation] | None, *owners: ProcessOwner) -> Attribution:
    return attribute(gpus, allocations, {owner.pid: owner for owner in owners})


def usage_by_pod(found: Attribution) -> dict[str | None, PodUsage]:
    return {row.workload.pod: row for row in found.usage}


def test_an_unallocated_gpu_stays_visible() -> None:
    found = join([gpu(0), gpu(1)], [given_to(pod("a"), "GPU-1")])
    assert [(use.gpu, use.allocated, use.holders) for use in found.devices] == [
        ("GPU-0", False, ()),
        ("GPU-1", True, (Holder(workload=pod("a"), resource="nvidia.com/gpu"),)),
    ]


def test_pods_that_share_a_gpu_have_their_own_values() -> None:
    shared = gpu(0, process(1, 3 * GIB, 0.6), process(2, GIB, 0.1), process(3, GIB, 0.1), process(4, GIB, 0.2))
    found = join(
        [shared],
        [given_to(pod("a"), "GPU-0::0", "GPU-0::1"), given_to(pod("b"), "GPU-0::2")],
        owned(1, pod("a", uid="ua")),
        owned(2, pod("b", uid="ub")),
        owned(3, pod("b", uid="ub")),
        owned(4),
    )
    assert found.usage == (
        PodUsage(
            gpu="GPU-0",
            workload=pod("a", uid="ua"),
            processes=1,
            memory=3 * GIB,
            utilization=0.6,
            energy_share=0.6,
            energy_method="utilization",
        ),
        PodUsage(
            gpu="GPU-0",
            workload=pod("b", uid="ub"),
            processes=2,
            memory=2 * GIB,
            utilization=0.2,
            energy_share=0.2,
            energy_method="utilization",
        ),
    )
    assert [(holder.workload.pod, holder.replicas) for holder in found.devices[0].holders] == [("a", 2), ("b", 1)]


def test_the_kubelets_holder_gets_the_uid_that_proc_shows() -> None:
    found = join([gpu(0, process(1)), gpu(1)], [given_to(pod("a"), "GPU-0", "GPU-1")], owned(1, pod("a", uid="ua")))
    assert {holder.workload for use in found.devices for holder in use.holders} == {pod("a", uid="ua")}


def test_a_pod_known_by_uid_only_is_the_one_that_holds_all_its_devices() -> None:
    """Time-sliced GPU 0 belongs to a and b; only b also holds GPU 1, where the process with uid ub runs too."""
    found = join(
        [gpu(0, process(1), process(2)), gpu(1, process(1))],
        [given_to(pod("a"), "GPU-0::0"), given_to(pod("b"), "GPU-0::1", "GPU-1")],
        owned(1, Workload(pod_uid="ub")),
        owned(2, Workload(pod_uid="ua")),
    )
    named = {row.workload for row in found.usage if row.processes}
    assert pod("b", uid="ub") in named
    assert named - {pod("b", uid="ub")} == {Workload(pod_uid="ua")}, "a or b could be meant: nothing is guessed"


def test_a_container_is_named_when_one_of_the_pod_holds_the_device() -> None:
    two = [given_to(pod("a", "main"), "GPU-0"), given_to(pod("a", "side"), "GPU-1")]
    found = join([gpu(0, process(1)), gpu(1, process(2))], two, *(owned(n, pod("a", None, "ua")) for n in (1, 2)))
    assert [(row.gpu, row.workload.container) for row in found.usage] == [("GPU-0", "main"), ("GPU-1", "side")]


def test_a_pod_without_an_allocation_is_shown_and_takes_no_slot() -> None:
    rogue = pod("privileged", uid="up")
    found = join([gpu(0, process(1))], [], owned(1, rogue))
    assert [(use.allocated, use.holders) for use in found.devices] == [(False, (Holder(workload=rogue),))]


@pytest.mark.parametrize(
    ("owner", "allocated"),
    [(owned(1, pod("a", uid="ua")), True), (owned(1, slurm_job="42"), True), (owned(1), None)],
)
def test_without_a_kubelet_pods_and_jobs_allocate_by_being_there(owner: ProcessOwner, allocated: bool | None) -> None:
    found = join([gpu(0, process(1)), gpu(1)], None, owner)
    assert [use.allocated for use in found.devices] == [allocated, None]


def test_mig_instances_are_rows_of_their_own_and_the_cut_gpu_is_none() -> None:
    cut = (
        MigInstance(index=0, uuid="MIG-a", gi=1, ci=0, profile="3g.40gb", multiprocessors=60),
        MigInstance(index=1, uuid="MIG-b", gi=7, ci=0, profile="1g.10gb", multiprocessors=20),
    )
    found = join(
        [gpu(0, process(1, gi=1, ci=0), process(2, gi=7, ci=0), process(3, gi=7, ci=0), mig=cut)],
        [given_to(pod("a"), "MIG-a", resource="nvidia.com/mig-3g.40gb")],
        owned(1, pod("a", uid="ua")),
        owned(2, pod("b", uid="ub")),
        owned(3, pod("c", uid="uc")),
    )
    assert [(use.mig, use.gi, use.profile, use.allocated) for use in found.devices] == [
        ("MIG-a", 1, "3g.40gb", True),
        ("MIG-b", 7, "1g.10gb", False),
    ]
    assert {row.workload.pod: (row.gi, row.energy_share) for row in found.usage} == {
        "a": (1, 0.75),
        "b": (7, 0.125),
        "c": (7, 0.125),
    }


def test_instances_share_energy_by_their_activity_where_it_is_known() -> None:
    """`a` is alone on 60 multiprocessors at 25 %, `b` and `c` share 20 at 75 %; later one instance says nothing."""

    def shares(**other: Any) -> dict[str | None, tuple[str, float]]:
        cut = (
            MigInstance(index=0, uuid="MIG-a", gi=1, ci=0, multiprocessors=60, activity=Activity(sm=0.25)),
            MigInstance(index=1, uuid="MIG-b", gi=7, ci=0, multiprocessors=10, **other),
            MigInstance(index=2, uuid="MIG-c", gi=7, ci=1, multiprocessors=10, **other),
        )
        on = process(1, gi=1, ci=0), process(2, gi=7, ci=0), process(3, gi=7, ci=1)
        owners = [owned(pid, pod(name, uid=name)) for pid, name in ((1, "a"), (2, "b"), (3, "c"))]
        usage = join([gpu(0, *on, mig=cut)], None, *owners).usage
        return {row.workload.pod: (row.energy_method, row.energy_share) for row in usage}

    half, quarter = ("activity", pytest.approx(0.5)), ("activity", pytest.approx(0.25))
    assert shares(activity=Activity(sm=0.75)) == {"a": half, "b": quarter, "c": quarter}
    assert shares() == {"a": ("size", 0.75), "b": ("size", 0.125), "c": ("size", 0.125)}


def test_a_process_in_two_of_nvmls_lists_counts_once() -> None:
    twice = (GpuProcess(pid=1, type="compute", used_memory=GIB), GpuProcess(pid=1, type="graphics", used_memory=None))
    row = usage_by_pod(join([gpu(0, *twice)], None, owned(1, pod("a"))))["a"]
    assert (row.processes, row.memory) == (1, GIB)


def test_half_known_memory_is_unknown_and_unsampled_utilization_is_idle() -> None:
    found = join([gpu(0, process(1, None, 0.2), process(2, GIB))], None, owned(1, pod("a")), owned(2, pod("a")))
    assert (usage_by_pod(found)["a"].memory, usage_by_pod(found)["a"].utilization) == (None, 0.2)


def test_a_gpu_held_and_left_idle_is_paid_for_by_its_holder() -> None:
    found = join([gpu(0), gpu(1)], [given_to(pod("a"), "GPU-0")])
    assert [(row.gpu, row.processes, row.memory, row.energy_share) for row in found.usage] == [("GPU-0", 0, None, 1.0)]


def test_an_idle_holder_beside_a_busy_one_keeps_its_row_and_pays_nothing() -> None:
    both = [given_to(pod("a"), "GPU-0::0"), given_to(pod("b"), "GPU-0::1")]
    found = usage_by_pod(join([gpu(0, process(1))], both, owned(1, pod("a", uid="ua"))))
    assert [(name, row.processes, row.memory, row.energy_share) for name, row in sorted(found.items(), key=str)] == [
        ("a", 1, GIB, 1.0),
        ("b", 0, None, 0.0),
    ]


def test_a_holder_by_two_resources_has_one_row() -> None:
    found = join([gpu(0)], [given_to(pod("a"), "GPU-0"), given_to(pod("a"), "0", resource="gpu.nvidia.com")])
    assert (len(found.devices[0].holders), [row.energy_share for row in found.usage]) == (2, [1.0])


def test_ids_that_name_nothing_here_are_reported_once_each() -> None:
    found = join([gpu(0)], [given_to(pod("a"), "GPU-9", "GPU-0"), given_to(pod("b"), "GPU-9", "what")])
    assert found.unknown_devices == ("GPU-9", "what")


def test_unknown_processes_are_not_nobodys_energy() -> None:
    found = join([gpu(0, process(1, busy=0.3), process(2, busy=0.1))], None, owned(1, pod("a")))
    assert usage_by_pod(found)["a"].energy_share == pytest.approx(0.75)


CLAIMS = st.builds(
    EnergyClaim,
    workload=st.none(),
    gi=st.none() | st.integers(0, 6),
    utilization=st.none() | st.floats(0, 1),
)


INSTANCES = st.builds(
    MigInstance,
    index=st.just(0),
    uuid=st.just("MIG"),
    gi=st.integers(0, 6),
    ci=st.integers(0, 1),
    multiprocessors=st.none() | st.integers(1, 132),
    activity=st.builds(Activity, sm=st.none() | st.floats(0, 1)),
)


@given(st.lists(CLAIMS, min_size=1, max_size=20), st.lists(INSTANCES, max_size=7))
def test_energy_is_given_out_once_whatever_is_known(claims: list[EnergyClaim], mig: list[MigInstance]) -> None:
    _, shares = energy_shares(claims, mig)
    assert sum(shares) == pytest.approx(1)
    assert all(share >= 0 for share in shares)


PODS = [pod(name, uid=f"u{name}") for name in "abc"]
PROCESSES = st.builds(process, st.integers(1, 8), st.none() | st.integers(0, GIB), st.none() | st.floats(0, 1))
IDS = st.sampled_from(["GPU-0", "GPU-1::1", "1", "nvidia0", "GPU-7", "junk"])


@given(
    st.lists(st.lists(PROCESSES, max_size=6), min_size=1, max_size=2),
    st.none() | st.lists(st.builds(given_to, st.sampled_from([pod(name) for name in "abc"]), IDS), max_size=5),
    st.dictionaries(st.integers(1, 8), st.none() | st.sampled_from([*PODS, Workload(pod_uid="ux")])),
)
def test_sums_over_pods_never_exceed_the_gpu(
    processes: list[list[GpuProcess]], allocations: list[Allocation] | None, pods: dict[int, Workload | None]
) -> None:
    gpus = [gpu(index, *running) for index, running in enumerate(processes)]
    found = join(gpus, allocations, *(owned(pid, workload) for pid, workload in pods.items()))
    assert [use.gpu for use in found.devices] == [one.identity.uuid for one in gpus]
    for one in gpus:
        rows = [row for row in found.usage if row.gpu == one.identity.uuid]
        assert sum(row.energy_share for row in rows) <= 1 + 1e-9
        assert sum(row.processes for row in rows) <= len({running.pid for running in one.processes or ()})
        assert len({row.workload for row in rows}) == len(rows)
