"""Windows of use from Views: whose work is whose, what nobody saw, and who has come when."""

from collections.abc import Iterable

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gpuwatch.model.consent import AUTOTUNE, CLASS, Consents, PodConsent
from gpuwatch.model.snapshot import (
    Activity,
    Gpu,
    GpuProcess,
    GpuState,
    GpuStatus,
    Identity,
    Memory,
    MigInstance,
    Pcie,
    Power,
    Snapshot,
    SourceStatus,
    Utilization,
)
from gpuwatch.model.view import AgentStatus, View
from gpuwatch.model.work import WorkloadKey
from gpuwatch.model.workload import Allocation, Attribution, Container, ProcessOwner, Workload
from gpuwatch.rightsizing.model.usage import UsageWindow
from gpuwatch.rightsizing.usage.windows import LONGEST, WindowCollector
from gpuwatch.workloads.attribution import attribute
from gpuwatch.workloads.workload_key import Tenants

T0 = 1_790_000_040.0
"""A full minute."""

GIB = 2**30
UUID = "GPU-0"
IDENTITY = Identity(index=0, uuid=UUID, pci_bus_id="00000000:01:00.0", name="NVIDIA H100 80GB HBM3")
TRAIN = Workload(namespace="ml", pod="train-0", container="main")
NOTES = Workload(namespace="ml", pod="jupyter-anna", container="notebook")


def process(pid: int, sm: float | None = None, memory: int = GIB, **more: object) -> GpuProcess:
    return GpuProcess(
        pid=pid, type="compute", name=f"/usr/bin/p{pid} --key=x", used_memory=memory, sm_utilization=sm, **more
    )


def gpu(busy: float | None = 0.5, *processes: GpuProcess, used: int = 2 * GIB, bytes_: int = 0, **more: object) -> Gpu:
    return Gpu(
        identity=IDENTITY,
        utilization=Utilization(gpu=busy),
        memory=Memory(total=80 * GIB, used=used),
        power=Power(mean=300.0, limit_enforced=700.0),
        pcie=Pcie(transmit_bytes=bytes_, receive_bytes=0),
        processes=processes,
        **more,
    )


def owner(pid: int, workload: Workload | None = None, **more: object) -> ProcessOwner:
    uid = None if workload is None else f"uid-{workload.pod}"
    workload = workload and msgspec.structs.replace(workload, pod_uid=uid)
    return ProcessOwner(pid=pid, start_time=1, name=f"comm{pid}", pod_uid=uid, workload=workload, **more)


def view(
    at: float,
    *gpus: Gpu,
    held: Iterable[Workload] | None = (TRAIN,),
    owners: Iterable[ProcessOwner] = (),
    up: bool | None = True,
    lost: bool = False,
    devices: dict[Workload, str] | None = None,
) -> View:
    """`held`: by whom GPU 0 is, by the kubelet's word; None: nobody asks a kubelet. `lost`: it gives no sample."""
    known = {each.pid: each for each in owners}
    places = devices or {workload: UUID for workload in held or ()}
    given = [Allocation(workload=w, resource="nvidia.com/gpu", device_ids=(d,)) for w, d in places.items()]
    return View(
        snapshot=Snapshot(
            at=T0 + at,
            interval=2.0,
            gpus=() if lost else gpus,
            statuses=(GpuStatus(identity=IDENTITY, state=GpuState.LOST if lost else GpuState.FRESH),),
            sources=(SourceStatus(name="podresources", up=up),),
            node="n",
        ),
        agent=AgentStatus(version="0", started=T0),
        attribution=attribute(gpus, None if held is None else given, known) if gpus else Attribution(),
        owners=tuple(known.values()),
    )


def collected(*views: View, windows: WindowCollector | None = None) -> list[UsageWindow]:
    windows = windows or WindowCollector()
    found = [window for each in views for window in windows.take(each)]
    return [*found, *windows.end()]


def test_a_minute_of_one_pod_alone() -> None:
    busy = [0.0, 1.0] * 15
    views = [view(0, gpu(0.5))]
    views += [
        view(2.0 * (n + 1), gpu(b, process(7), used=(n + 1) * GIB, bytes_=n * 1000), owners=[owner(7, TRAIN)])
        for n, b in enumerate(busy)
    ]
    (window,) = collected(*views)
    assert (window.at, window.span, window.covered) == (T0, 60.0, 60.0)
    assert window.key == WorkloadKey(namespace="ml", name="train", container="main", kind="StatefulSet")
    assert (window.pod, window.node, window.index, window.model) == ("train-0", "n", 0, IDENTITY.name)
    assert window.busy == pytest.approx(0.5)
    assert (window.busy_low, window.busy_high) == (0.0, 1.0)
    assert (window.memory_low, window.memory, window.memory_total) == (GIB, 30 * GIB, 80 * GIB)
    assert (window.watts, window.power_limit) == (300.0, 700.0)
    assert window.pcie == pytest.approx(29 * 1000 / 60, rel=0.05)
    assert (window.processes, window.programs) == (1, ("comm7", "p7"))


def test_units_of_a_whole_gpu_are_reported_where_one_pod_is_alone_and_nowhere_else() -> None:
    active = gpu(0.5, process(7), activity=Activity(graphics=0.6, sm=0.4, dram=0.3, tensor=0.2, fp32=0.25))
    (alone,) = collected(view(0, active), view(60, active))
    assert (alone.busy, alone.sm, alone.dram, alone.pipe) == (0.6, 0.4, 0.3, 0.25)
    both = [view(at, active, held=(TRAIN, NOTES)) for at in (0.0, 60.0)]
    for shared in collected(*both):
        assert (shared.holders, shared.sm, shared.dram, shared.pipe, shared.pcie) == (2, None, None, None, None)


def test_neighbours_on_one_gpu_have_each_their_own_work() -> None:
    shared = gpu(0.9, process(1, 0.7, 3 * GIB), process(2, 0.2, GIB))
    owners = [owner(1, TRAIN), owner(2, NOTES)]
    found = {w.pod: w for w in collected(*(view(at, shared, held=(TRAIN, NOTES), owners=owners) for at in (0.0, 60.0)))}
    assert {pod: (w.busy, w.memory, w.processes) for pod, w in found.items()} == {
        "train-0": (0.7, 3 * GIB, 1),
        "jupyter-anna": (0.2, GIB, 1),
    }


def test_who_has_no_process_beside_others_does_nothing() -> None:
    shared = gpu(0.9, process(1, 0.9))
    views = [view(at, shared, held=(TRAIN, NOTES), owners=[owner(1, TRAIN)]) for at in (0.0, 60.0)]
    idle = next(w for w in collected(*views) if w.pod == "jupyter-anna")
    assert (idle.busy, idle.processes) == (0.0, 0)


def test_of_neighbours_whose_processes_are_unknown_nothing_is_reported() -> None:
    shared = gpu(0.9, process(1, 0.9))
    for window in collected(*(view(at, shared, held=(TRAIN, NOTES)) for at in (0.0, 60.0))):
        assert (window.busy, window.memory, window.processes) == (None, None, None)


def test_a_mig_instance_is_reported_as_a_part_of_the_gpu() -> None:
    mig = MigInstance(
        index=0, uuid="MIG-a", gi=7, ci=0, profile="1g.10gb", memory=Memory(total=10 * GIB, used=GIB),
        activity=Activity(graphics=0.8, sm=0.5, dram=0.4, tensor=0.1),
    )  # fmt: skip
    cut = gpu(None, mig=(mig,))
    (window,) = collected(*(view(at, cut, devices={TRAIN: "MIG-a"}) for at in (0.0, 60.0)))
    assert (window.device, window.profile, window.busy) == ("MIG-a", "1g.10gb", 0.8)
    assert window.sm == pytest.approx(0.5 * 16 / 132, rel=1e-2)
    assert window.dram == pytest.approx(0.4 / 8)
    assert (window.memory, window.memory_total, window.pcie) == (GIB, 10 * GIB, None)


def test_a_time_that_nobody_saw_is_a_window_without_figures() -> None:
    seen = [0.0, 30.0, 30.0 + LONGEST + 1, 60.0 + LONGEST + 1]
    before, unobserved, after = collected(*(view(at, gpu(0.0)) for at in seen))
    assert (before.span, before.covered, before.busy) == (30.0, 30.0, 0.0)
    assert (unobserved.span, unobserved.covered, unobserved.busy) == (LONGEST + 1, 0.0, None)
    assert (after.span, after.covered, after.busy) == (30.0, 30.0, 0.0)


def test_a_lost_gpu_is_held_and_says_nothing() -> None:
    lost = msgspec.structs.replace(view(60, gpu(0.0)), snapshot=view(60, lost=True).snapshot)
    (window,) = collected(view(0, gpu(0.0)), lost)
    assert (window.pod, window.span, window.covered, window.busy, window.memory) == ("train-0", 60.0, 0.0, None, None)


def test_a_kubelet_that_does_not_answer_makes_nobody_leave() -> None:
    blind = [view(at, gpu(0.0), held=None, up=False) for at in (20.0, 40.0)]
    (window,) = collected(view(0, gpu(0.0)), *blind, view(60, gpu(0.0)))
    assert (window.span, window.covered, window.held_since) == (60.0, 60.0, None)


def test_who_was_seen_to_come_began_then() -> None:
    came = view(10, gpu(0.0))
    (window,) = collected(view(0, gpu(0.0), held=()), came, view(60, gpu(0.0)))
    assert (window.at, window.held_since, window.span) == (T0 + 10, T0 + 10, 50.0)


def test_who_was_there_at_the_first_sample_began_at_an_unknown_time() -> None:
    first = collected(view(0, gpu(0.0)), view(60, gpu(0.0)))
    late = collected(view(0, gpu(0.0), held=None, up=None), view(10, gpu(0.0)), view(60, gpu(0.0)))
    assert {window.held_since for window in (*first, *late)} == {None}


def test_who_left_ends_where_he_was_seen_last() -> None:
    (window,) = collected(
        *(view(at, gpu(0.0)) for at in (0.0, 10.0, 20.0)), view(30, gpu(0.0), held=()), view(70, gpu(0.0))
    )[:1]
    assert (window.span, window.covered) == (20.0, 20.0)


def test_a_clock_that_is_set_back_starts_over() -> None:
    found = collected(view(100, gpu(0.0)), view(110, gpu(0.0)), view(0, gpu(0.5)), view(10, gpu(0.5)))
    assert [(window.at - T0, window.span, window.busy) for window in found] == [(100.0, 10.0, 0.0), (0.0, 10.0, 0.5)]


def test_users_and_slurm_jobs_are_workloads_too() -> None:
    shared = gpu(0.9, process(1, 0.7), process(2, 0.2))
    owners = [owner(1, user="anna"), owner(2, slurm_job="4711", user="ben")]
    found = collected(*(view(at, shared, held=None, owners=owners) for at in (0.0, 60.0)))
    assert {(w.key.kind, w.key.name, w.pod, w.busy) for w in found} == {
        ("User", "anna", "anna", 0.7),
        ("SlurmJob", "4711", "4711", 0.2),
    }


def test_containers_outside_kubernetes_are_workloads_by_their_service_else_their_name() -> None:
    shared = gpu(0.9, process(1, 0.5), process(2, 0.3), process(3, 0.1))
    known = Container("lab-train-1", "train:1.2", "lab", "train"), Container("chat"), None
    owners = [owner(pid, user="root", container_id=f"{pid}" * 64, container=each) for pid, each in enumerate(known, 1)]
    found = collected(*(view(at, shared, held=None, owners=owners) for at in (0.0, 60.0)))
    assert {(w.key.namespace, w.key.kind, w.key.name, w.busy) for w in found} == {
        ("", "ComposeService", "lab/train", 0.5),
        ("", "Container", "chat", 0.3),
    }


def test_the_server_of_mps_is_nobody() -> None:
    server = process(1)
    server = msgspec.structs.replace(server, name="/usr/bin/nvidia-cuda-mps-server")
    views = [view(at, gpu(0.0, server), held=(), owners=[owner(1, user="root")]) for at in (0.0, 60.0)]
    assert collected(*views) == []


def test_a_counter_of_pcie_that_started_over_is_no_traffic() -> None:
    (window,) = collected(
        view(0, gpu(0.0, bytes_=10**12)), view(30, gpu(0.0, bytes_=5)), view(60, gpu(0.0, bytes_=3005))
    )
    assert window.pcie == 100.0


def test_what_the_owner_says_and_who_it_is_comes_from_the_consents() -> None:
    annotations = {CLASS: "batch", AUTOTUNE: "off"}
    pod = PodConsent(namespace="ml", name="train-0", uid="u", owner=("Job", "train"), annotations=annotations)
    windows = WindowCollector(Tenants(Consents(at=T0, pods=(pod,))))
    (window,) = collected(view(0, gpu(0.0)), view(60, gpu(0.0)), windows=windows)
    assert (window.key.kind, window.declared_class, window.autotune) == ("Job", "batch", "off")


def test_a_container_that_waits_for_its_cpu_is_reported() -> None:
    windows, throttled = WindowCollector(), {7: 0.4}
    views = [view(at, gpu(0.0, process(7)), owners=[owner(7, TRAIN)]) for at in (0.0, 60.0)]
    (window,) = [each for one in views for each in windows.take(one, throttled)]
    assert window.cpu_throttled == 0.4


@settings(deadline=None)
@given(
    st.lists(
        st.tuples(
            st.floats(0.0, 200.0), st.sampled_from([None, 0.0, 0.3, 1.0]), st.booleans(), st.booleans(), st.booleans()
        ),
        max_size=40,
    )
)
def test_windows_follow_each_other_and_never_show_more_than_was_seen(
    looks: list[tuple[float, float | None, bool, bool, bool]],
) -> None:
    at, views = 0.0, []
    for step, busy, train, notes, up in looks:
        at += step
        held = [workload for workload, there in ((TRAIN, train), (NOTES, notes)) if there]
        views.append(view(at, gpu(busy), held=held, up=up))
    ends: dict[str, float] = {}
    for window in collected(*views):
        assert window.span > 0
        assert 0 <= window.covered <= window.span
        assert window.at >= ends.get(window.pod, 0.0) - 1e-6
        assert window.busy is None or 0 <= window.busy <= 1
        assert window.covered or window.busy is None
        ends[window.pod] = window.at + window.span
