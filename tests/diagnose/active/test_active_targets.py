"""Which devices get work: free and healthy ones, by the View; force overrules use and health, but not silence."""

from typing import Any

import pytest
from msgspec.structs import replace

from gpuwatch.diagnose.active.run import GpuPair, active_devices, gpu_pairs
from gpuwatch.model.finding import Finding, Health, Judgement, Severity
from gpuwatch.model.snapshot import Gpu, GpuProcess, GpuState, NvLink, Vgpu
from gpuwatch.model.view import View
from gpuwatch.model.workload import Attribution, Holder, Workload
from tests.diagnose.hosts import replaced, seen

CUT = {"gpus": 2, "mig": {"0": ["3g.40gb", "3g.40gb"]}}
PROCESS = GpuProcess(pid=4711, type="compute")


def changed(view: View, index: int, **changes: Any) -> View:
    gpus = tuple(replaced(g, changes) if g.identity.index == index else g for g in view.snapshot.gpus)
    return replace(view, snapshot=replace(view.snapshot, gpus=gpus))


def refusals(view: View, *, force: bool = False) -> list[str | None]:
    return [target.refused for target in active_devices(view, None, force=force)]


def allocated(view: View, *, gpu: str, mig: str | None = None) -> View:
    holder = Holder(workload=Workload(namespace="ml", pod="train-0", container="main"), resource="nvidia.com/gpu")
    rows = (
        replace(row, allocated=True, holders=(holder,)) if (row.gpu, row.mig) == (gpu, mig) else row
        for row in view.attribution.devices
    )
    return replace(view, attribution=replace(view.attribution, devices=tuple(rows)))


def sick(view: View, health: Health, severity: Severity) -> View:
    uuid = view.snapshot.gpus[0].identity.uuid
    finding = Finding(check="xid", severity=severity, message="XID 48: double-bit ECC error", gpu=uuid)
    judgement = Judgement(gpus=view.judgement.gpus | {uuid: health}, findings=(finding,))
    return replace(view, judgement=judgement)


def silent(view: View, state: GpuState) -> View:
    statuses = tuple(
        replace(status, state=state) if status.identity.index == 0 else status for status in view.snapshot.statuses
    )
    return replace(view, snapshot=replace(view.snapshot, statuses=statuses))


@pytest.fixture
def view() -> View:
    return seen(gpus=2)


def test_free_gpus_are_taken_in_order(view):
    assert [(t.index, t.uuid, t.refused) for t in active_devices(view, None, force=False)] == [
        (g.identity.index, g.identity.uuid, None) for g in view.snapshot.gpus
    ]
    assert [t.index for t in active_devices(view, frozenset({1}), force=False)] == [1]


USED = {
    "processes": ({"processes": (PROCESS,)}, "in use by 1 process"),
    "several": ({"processes": (PROCESS, replace(PROCESS, pid=4712))}, "in use by 2 processes"),
    "unknown": ({"processes": None}, "whether it is in use is not known: its processes cannot be read"),
    "memory": (
        {"memory": {"used": 20 << 30}},
        "20.0 GiB of its memory are in use by processes that cannot be seen from here",
    ),
    "vgpu": ({"vgpus": (Vgpu(uuid="v", instance=1),)}, "in use by 1 vGPU(s)"),
}


@pytest.mark.parametrize("name", USED)
def test_a_gpu_in_use_is_left_alone(view, name):
    changes, reason = USED[name]
    busy = changed(view, 0, **changes)
    assert refusals(busy) == [reason, None]
    assert refusals(busy, force=True) == [None, None]


def test_an_allocated_gpu_is_left_alone_although_nothing_runs(view):
    busy = allocated(view, gpu=view.snapshot.gpus[0].identity.uuid)
    assert refusals(busy) == ["allocated to ml/train-0", None]
    assert refusals(busy, force=True) == [None, None]


def test_without_a_kubelet_nothing_is_allocated(view):
    assert refusals(replace(view, attribution=Attribution())) == [None, None]


def test_a_failed_gpu_is_left_alone_and_a_degraded_one_is_not(view):
    failed = sick(view, Health.FAILED, Severity.CRITICAL)
    assert refusals(failed) == ["it has failed: XID 48: double-bit ECC error", None]
    assert refusals(failed, force=True) == [None, None]
    assert refusals(sick(view, Health.DEGRADED, Severity.WARNING)) == [None, None]


@pytest.mark.parametrize("state", [GpuState.LOST, GpuState.UNRESPONSIVE, GpuState.UNKNOWN])
def test_a_gpu_that_does_not_answer_is_never_tried(view, state):
    assert refusals(silent(view, state), force=True) == [f"it is {state.value}", None]


def test_each_instance_of_a_cut_gpu_is_a_device():
    view = seen(**CUT)
    cut, whole = view.snapshot.gpus
    assert [(t.uuid, t.index, t.is_instance) for t in active_devices(view, None, force=False)] == [
        (cut.mig[0].uuid, 0, True),
        (cut.mig[1].uuid, 0, True),
        (whole.identity.uuid, 1, False),
    ]


def test_use_of_one_instance_leaves_its_neighbours_free():
    view = seen(**CUT)
    cut = view.snapshot.gpus[0]
    one = replace(PROCESS, gi=cut.mig[0].gi, ci=cut.mig[0].ci)
    assert refusals(changed(view, 0, processes=(one,))) == ["in use by 1 process", None, None]
    assert refusals(allocated(view, gpu=cut.identity.uuid, mig=cut.mig[1].uuid)) == [
        None,
        "allocated to ml/train-0",
        None,
    ]


def indexes(found: tuple[GpuPair, ...]) -> list[tuple[int, int]]:
    return [(pair.one.index, pair.other.index) for pair in found]


def paired(view: View) -> list[tuple[int, int]]:
    return indexes(gpu_pairs(view, active_devices(view, None, force=False)))


def linked(gpu: Gpu, *remotes: str | None, active: bool = True) -> dict[str, Any]:
    links = tuple(NvLink(link=i, active=active, remote_pci=remote) for i, remote in enumerate(remotes))
    return {"nvlinks": links}


def test_gpus_on_switches_form_a_ring():
    assert paired(seen()) == [(0, 1), (1, 2), (2, 3), (3, 4), (4, 5), (5, 6), (6, 7), (7, 0)]
    assert paired(seen(gpus=2)) == [(0, 1)]


def test_gpus_without_nvlink_have_no_pairs():
    assert paired(seen(model="l40s", gpus=2)) == []


def test_direct_neighbours_are_paired_with_each_other_only():
    view = seen(gpus=4)
    address = [gpu.identity.pci_bus_id for gpu in view.snapshot.gpus]
    for index, neighbour in ((0, 1), (1, 0), (2, 3), (3, 2)):
        view = changed(view, index, **linked(view.snapshot.gpus[index], address[neighbour].lower()))
    assert paired(view) == [(0, 1), (2, 3)]


def test_links_that_are_down_join_nothing(view):
    for index in (0, 1):
        view = changed(view, index, **linked(view.snapshot.gpus[index], "00000000:05:00.0", active=False))
    assert paired(view) == []


def test_cut_and_selected_gpus_limit_the_pairs():
    assert paired(seen(**CUT)) == []
    view = seen()
    assert indexes(gpu_pairs(view, active_devices(view, frozenset({2, 5, 6}), force=False))) == [(2, 5), (5, 6), (6, 2)]
