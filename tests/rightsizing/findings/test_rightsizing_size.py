"""Advice on size: MIG, sharing, gangs, CPU and input, settings and energy; each found, and each reason against it."""

from typing import Any

import pytest
from msgspec.structs import replace

from gpuwatch.model.work import WorkClass
from gpuwatch.rightsizing.model.recommendation import FindingKind, Level, RecommendedAction
from gpuwatch.rightsizing.model.usage import DeviceAllocation, FleetFacts, GpuFacts, WorkloadSummary
from tests.rightsizing.findings.rightsizing_cases import (
    DAY,
    GIB,
    HOUR,
    KINDS,
    NOW,
    a_hold,
    a_small_one,
    a_workload,
    advised,
    an_idle_hold,
    found,
    peaks,
    slow,
    spread,
)

SAID_OF_SIZE = {
    FindingKind.MIG_FIT,
    FindingKind.DUTY_CYCLED,
    FindingKind.GANG_OVERSIZED,
    FindingKind.PREALLOCATED,
    FindingKind.CPU_BOUND,
    FindingKind.IO_BOUND,
}
A10 = "NVIDIA A10"
"""Without MIG."""


def classed(summary: WorkloadSummary, work_class: WorkClass | None) -> WorkloadSummary:
    """The same, of another class."""
    return replace(summary, work_class=work_class, key=replace(summary.key, kind=KINDS[work_class]))


def test_of_busy_work_nothing_is_reported() -> None:
    assert not found(a_workload())


def test_small_work_fits_an_instance() -> None:
    item = found(a_small_one())[FindingKind.MIG_FIT]

    assert item.action is RecommendedAction.RESIZE
    assert (item.change.resource, item.change.to_resource) == ("nvidia.com/gpu", "nvidia.com/mig-1g.10gb")
    assert item.predicted is not None
    assert item.predicted.slowdown_high == 0.1
    assert item.predicted.memory_needed == 5 * GIB + GIB // 2
    assert item.savings.gpu_hours_per_day == pytest.approx(24 * 6 / 7)
    assert item.confidence is Level.HIGH
    assert "5.5 GiB" in item.why


def test_what_is_advised_counts_as_what_there_is() -> None:
    three = tuple(a_hold(pod=f"chat-{n}", gpu=f"GPU-{n}") for n in range(3))
    item = found(a_small_one(holds=three))[FindingKind.MIG_FIT]

    assert (item.current, item.recommended) == ("3 x nvidia.com/gpu", "3 x nvidia.com/mig-1g.10gb")
    assert item.change.to_count == 1, "of each pod"


def test_the_hours_of_a_pod_that_is_idle_are_not_to_be_saved_twice() -> None:
    awake = tuple(a_hold(pod=f"chat-{n}", gpu=f"GPU-{n}") for n in range(2))
    asleep = an_idle_hold(pod="chat-2", gpu="GPU-2")
    three = {"held": 3 * 14 * DAY, "covered": 3 * 14 * DAY}
    whole = found(a_small_one(holds=(*awake, a_hold(pod="chat-2", gpu="GPU-2")), **three))
    both = found(a_small_one(holds=(*awake, asleep), **three))

    assert both[FindingKind.IDLE_HOLDER].savings.gpu_hours_per_day == 24
    assert both[FindingKind.MIG_FIT].current == "2 x nvidia.com/gpu"
    hours = whole[FindingKind.MIG_FIT].savings.gpu_hours_per_day
    assert both[FindingKind.MIG_FIT].savings.gpu_hours_per_day == pytest.approx(hours * 2 / 3)


def test_growth_that_rounds_to_nothing_is_not_reported() -> None:
    assert "growing" not in found(a_small_one(peaks=peaks(*(5 + n / 100 for n in range(8)))))[FindingKind.MIG_FIT].why
    assert (
        "growing by 0.1 GiB a day"
        in found(a_small_one(peaks=peaks(*(5 + n / 10 for n in range(8)))))[FindingKind.MIG_FIT].why
    )


@pytest.mark.parametrize(
    ("sizes", "profile"),
    [([5] * 8, "1g.10gb"), ([9.4] * 8, "1g.20gb"), (range(3, 11), "1g.20gb"), ([5, 5, 5, 9, 5, 5, 5, 5], "1g.20gb")],
)
def test_memory_with_margin_growth_and_spread_decides(sizes: list[float], profile: str) -> None:
    item = found(a_small_one(peaks=peaks(*sizes)))[FindingKind.MIG_FIT]

    assert item.change.to_resource == f"nvidia.com/mig-{profile}"


def test_compute_decides_where_memory_would_fit() -> None:
    item = found(a_small_one(slowdowns=slow(p1g_10gb=0.3, p1g_20gb=0.21, p2g_20gb=0.2)))[FindingKind.MIG_FIT]

    assert item.change.to_resource == "nvidia.com/mig-2g.20gb"


def test_the_same_memory_with_fewer_multiprocessors_is_preferred() -> None:
    both = slow(p3g_40gb=0.1, p4g_40gb=0.05)
    only = slow(p3g_40gb=0.3, p4g_40gb=0.05)

    assert found(a_small_one(slowdowns=both))[FindingKind.MIG_FIT].change.to_resource == "nvidia.com/mig-3g.40gb"
    assert found(a_small_one(slowdowns=only))[FindingKind.MIG_FIT].change.to_resource == "nvidia.com/mig-4g.40gb"


@pytest.mark.parametrize(
    "change",
    [
        pytest.param({"peaks": ()}, id="its memory is not known"),
        pytest.param({"slowdowns": ()}, id="nobody can tell how much slower it gets"),
        pytest.param({"slowdowns": slow(p7g_80gb=0.0)}, id="only the whole fits"),
        pytest.param({"models": ()}, id="its GPU is not known"),
        pytest.param({"models": ("NVIDIA H100 80GB HBM3", "NVIDIA A100-SXM4-40GB")}, id="it runs on several models"),
        pytest.param({"models": (A10,)}, id="its GPU has no MIG"),
        pytest.param({"memory_total": 5 * GIB}, id="it had all that there is"),
        pytest.param({"memory_total": None}, id="nobody knows what there is"),
        pytest.param({"days": 0.9}, id="it was not seen for a day"),
        pytest.param({"covered": 13 * DAY}, id="too much was not seen"),
        pytest.param({"gpus_per_pod": 2}, id="it has several GPUs"),
    ],
)
def test_no_instance_is_advised_when(change: dict[str, Any]) -> None:
    assert FindingKind.MIG_FIT not in found(a_small_one(**change))


@pytest.mark.parametrize(
    "change",
    [
        pytest.param({"holders": 2}, id="others are on the GPU"),
        pytest.param({"replicas": 2}, id="it has shares of a GPU"),
        pytest.param({"resource": "nvidia.com/gpu.shared"}, id="its GPU is offered as shared"),
        pytest.param({"resource": "nvidia.com/GRID_A100-10C"}, id="its GPU is virtual"),
        pytest.param({"resource": "amd.com/gpu"}, id="another plugin gave it"),
        pytest.param({"present": False}, id="it has ended"),
        pytest.param(
            {"memory_at_start": 60 * GIB, "memory_later": 60.0 * GIB, "memory_spread": 0.001}, id="it preallocates"
        ),
    ],
)
def test_neither_an_instance_nor_sharing_is_advised_when(change: dict[str, Any]) -> None:
    assert not {FindingKind.MIG_FIT, FindingKind.DUTY_CYCLED} & found(a_small_one(holds=(a_hold(**change),))).keys()


def test_outside_kubernetes_nothing_is_reported_of_size() -> None:
    small = a_small_one()

    assert not found(replace(small, key=replace(small.key, namespace="", kind="SlurmJob")))


@pytest.mark.parametrize("work_class", ["serving", None])
def test_what_may_serve_must_have_been_seen_for_a_week(work_class: WorkClass | None) -> None:
    small = classed(a_small_one(), work_class)

    assert not found(replace(small, days=6.9))
    assert found(replace(small, days=7.0))[FindingKind.MIG_FIT].confidence is Level.LOW
    assert found(replace(small, days=14.0))[FindingKind.MIG_FIT].confidence is Level.HIGH
    assert advised(replace(small, days=6.9)).learning == 1


def test_idle_work_gets_no_advice_on_its_size() -> None:
    assert found(a_small_one(holds=(an_idle_hold(),))).keys() == {FindingKind.IDLE_HOLDER}


def test_a_cronjob_gets_advice_between_its_jobs() -> None:
    small = a_small_one(holds=(a_hold(present=False),), held=7 * DAY, covered=7 * DAY)
    cron = replace(small, key=replace(small.key, kind="CronJob"))

    assert found(cron)[FindingKind.MIG_FIT].savings.gpu_hours_per_day == pytest.approx(12 * 6 / 7)
    assert not found(replace(cron, last=NOW - 8 * DAY))


def test_from_an_instance_to_a_smaller_one() -> None:
    hold = a_hold(device="MIG-0", profile="2g.20gb", resource="nvidia.com/mig-2g.20gb", busy=0.05)
    small = a_small_one(holds=(hold,), memory_total=int(19.6 * GIB))

    assert found(small)[FindingKind.MIG_FIT].savings.gpu_hours_per_day == pytest.approx(24 * (2 / 7 - 1 / 7))
    least = replace(hold, profile="1g.10gb", resource="nvidia.com/mig-1g.10gb")
    assert not found(replace(small, holds=(least,), memory_total=int(9.8 * GIB)))


def test_a_notebook_may_need_twice_what_it_ever_took() -> None:
    item = found(classed(a_small_one(), "notebook"))[FindingKind.MIG_FIT]

    assert item.change.to_resource == "nvidia.com/mig-1g.20gb"
    assert item.predicted is not None
    assert item.predicted.memory_needed == 10 * GIB


def seldom_busy(**changes: Any) -> WorkloadSummary:
    """On a GPU without MIG, mostly waiting."""
    holds = (a_hold(model=A10, busy=0.05),)
    values: dict[str, Any] = {"models": (A10,), "holds": holds, "slowdowns": (), "busy": spread(0.1, 0.3)}
    return a_small_one(**values | changes)


@pytest.mark.parametrize(
    ("work_class", "strategy", "replicas"),
    [("batch", "time_slicing", 3), ("serving", "mps", 2), (None, "mps", 2), ("notebook", "time_slicing", 3)],
)
def test_seldom_busy_work_may_share(work_class: WorkClass | None, strategy: str, replicas: int) -> None:
    item = found(classed(seldom_busy(), work_class))[FindingKind.DUTY_CYCLED]

    assert item.action is RecommendedAction.SHARE
    assert (item.change.strategy, item.change.replicas) == (strategy, replicas)
    assert item.change.to_resource == "nvidia.com/gpu.shared"
    assert item.savings.gpu_hours_per_day == pytest.approx(24 * (1 - 1 / replicas))


@pytest.mark.parametrize(
    "change",
    [
        pytest.param({"busy": spread(0.21, 0.3)}, id="it is busy"),
        pytest.param({"busy": spread(0.1, 0.6)}, id="it is busy at times"),
        pytest.param({"busy": None}, id="nobody can tell how busy it is"),
        pytest.param({"peaks": peaks(*[36] * 8)}, id="memory is there for one only"),
        pytest.param({"peaks": ()}, id="its memory is not known"),
        pytest.param({"memory_total": None}, id="nobody knows what there is"),
    ],
)
def test_it_may_not_share_when(change: dict[str, Any]) -> None:
    assert FindingKind.DUTY_CYCLED not in found(seldom_busy(**change))


def test_an_instance_is_preferred_to_sharing() -> None:
    assert found(a_small_one()).keys() == {FindingKind.MIG_FIT}
    assert found(a_small_one(slowdowns=())).keys() == {FindingKind.DUTY_CYCLED}


def a_gang(*busy: float, **changes: Any) -> WorkloadSummary:
    """A pod with a GPU each; those that are not busy never were."""
    holds = [
        a_hold(gpu=f"GPU-{index}", busy=share) if share else an_idle_hold(10 * DAY, gpu=f"GPU-{index}", busy=0.0)
        for index, share in enumerate(busy)
    ]
    held = len(busy) * 14 * DAY
    return a_workload(*holds, gpus_per_pod=len(busy), held=held, covered=held, **changes)


def a_pair(second: DeviceAllocation) -> WorkloadSummary:
    """A pod with two GPUs, of which the first one works."""
    return replace(a_gang(0.8, 0.0), holds=(a_hold(), second))


def test_a_gang_with_a_spare_gpu_needs_fewer() -> None:
    item = found(a_gang(0.8, 0.9, 0.0, 0.7))[FindingKind.GANG_OVERSIZED]

    assert item.action is RecommendedAction.REDUCE
    assert (item.change.count, item.change.to_count) == (4, 3)
    assert item.target.gpus == ("GPU-2",)
    assert item.savings.gpu_hours_per_day == pytest.approx(24)


def test_all_pods_must_have_one_to_spare() -> None:
    gang = a_gang(0.8, 0.0)
    other = tuple(replace(hold, pod="chat-1", gpu=f"GPU-1{hold.index}{at}") for at, hold in enumerate(gang.holds))

    assert FindingKind.GANG_OVERSIZED in found(replace(gang, holds=(*gang.holds, *other)))
    busy = (other[0], a_hold(pod="chat-1", gpu="GPU-9", busy=0.5))
    assert FindingKind.GANG_OVERSIZED not in found(replace(gang, holds=(*gang.holds, *busy)))


@pytest.mark.parametrize(
    "gang",
    [
        pytest.param(a_gang(0.8, 0.9), id="all work"),
        pytest.param(a_gang(0.8, 0.2, 0.0), id="one is in between"),
        pytest.param(replace(a_gang(0.8, 0.0), gpus_per_pod=3), id="not all of its GPUs are known"),
        pytest.param(a_pair(an_idle_hold(DAY, gpu="GPU-1", busy=0.009)), id="it is used at times"),
        pytest.param(a_pair(an_idle_hold(10 * DAY, gpu="GPU-1", busy=None)), id="nobody can tell"),
        pytest.param(
            a_pair(an_idle_hold(HOUR, gpu="GPU-1", busy=0.0, since=NOW - HOUR)),
            id="the pod is new",
        ),
    ],
)
def test_a_gang_keeps_its_gpus_when(gang: WorkloadSummary) -> None:
    assert FindingKind.GANG_OVERSIZED not in found(gang)


def waiting(**changes: Any) -> WorkloadSummary:
    """Swings between idle and busy."""
    values: dict[str, Any] = {"sawtooth": 0.8, "busy": spread(0.3, 0.5), "cpu_throttled": 0.2, "dram": spread(0.02)}
    return a_small_one(**values | changes)


def test_work_that_waits_for_its_cpu_gets_more_cpu_before_less_gpu() -> None:
    items = found(waiting())

    assert items.keys() == {FindingKind.CPU_BOUND}
    assert items[FindingKind.CPU_BOUND].action is RecommendedAction.RAISE_CPU
    assert "20 %" in items[FindingKind.CPU_BOUND].why


def test_who_is_held_back_most_of_the_time_needs_no_swings() -> None:
    assert "swings" not in found(waiting(sawtooth=None, cpu_throttled=0.3))[FindingKind.CPU_BOUND].why
    assert FindingKind.CPU_BOUND not in found(waiting(sawtooth=None, cpu_throttled=0.3, busy=spread(0.7)))


def test_work_that_waits_for_something_else_has_its_input_checked() -> None:
    assert found(waiting(cpu_throttled=0.01)).keys() == {FindingKind.IO_BOUND}
    assert "not known" in found(waiting(cpu_throttled=None))[FindingKind.IO_BOUND].why


@pytest.mark.parametrize(
    "change",
    [
        pytest.param({"sawtooth": None}, id="nobody can tell whether it swings"),
        pytest.param({"sawtooth": 0.2}, id="it does not swing"),
        pytest.param({"busy": spread(0.6)}, id="it is busy"),
        pytest.param({"busy": None}, id="nobody can tell how busy it is"),
        pytest.param({"dram": spread(0.06)}, id="its memory works"),
        pytest.param({"pcie": spread(2e9)}, id="its input comes"),
    ],
)
def test_it_does_not_wait_when(change: dict[str, Any]) -> None:
    assert not {FindingKind.CPU_BOUND, FindingKind.IO_BOUND} & found(waiting(**change)).keys()


@pytest.mark.parametrize("work_class", ["serving", "notebook", None])
def test_only_batch_is_advised_to_look_at_its_input(work_class: WorkClass | None) -> None:
    assert FindingKind.IO_BOUND not in found(classed(waiting(cpu_throttled=0.0), work_class))


def preallocating(hold: dict[str, Any] | None = None, **changes: Any) -> WorkloadSummary:
    """Takes 72 of 80 GiB at once."""
    values = {"memory_at_start": 72 * GIB, "memory_later": 72.0 * GIB, "memory_spread": 0.001, "busy": 0.05} | (
        hold or {}
    )
    return classed(a_small_one(**{"holds": (a_hold(**values),), "peaks": peaks(*[72] * 8)} | changes), "serving")


def test_of_who_takes_all_at_once_the_setting_is_named_and_no_size() -> None:
    items = found(preallocating(programs=("vllm",)))
    item = items[FindingKind.PREALLOCATED]

    assert items.keys() == {FindingKind.PREALLOCATED}
    assert item.change.setting == "--gpu-memory-utilization"
    assert item.change.to_resource is None
    assert item.savings.gpu_hours_per_day == 0
    assert item.recommended == "lower --gpu-memory-utilization"
    assert found(preallocating())[FindingKind.PREALLOCATED].change.setting is None
    switched = found(preallocating(programs=("tensorflow_model_server",)))[FindingKind.PREALLOCATED]
    assert switched.recommended == "set TF_FORCE_GPU_ALLOW_GROWTH"


@pytest.mark.parametrize(
    "summary",
    [
        pytest.param(preallocating({"memory_at_start": 50 * GIB}), id="not so much"),
        pytest.param(preallocating({"memory_spread": 0.02}), id="it gives and takes"),
        pytest.param(preallocating({"memory_later": 8.0 * GIB}), id="it has released most since"),
        pytest.param(preallocating({"memory_spread": None}), id="nobody can tell"),
        pytest.param(preallocating({"memory_at_start": None}), id="its begin was not seen"),
        pytest.param(preallocating(memory_total=None), id="nobody knows what there is"),
        pytest.param(preallocating(slowdowns=slow(p4g_40gb=0.9), busy=spread(0.8)), id="nothing could be won"),
    ],
)
def test_no_setting_is_named_when(summary: WorkloadSummary) -> None:
    assert FindingKind.PREALLOCATED not in found(summary)


def training(**changes: Any) -> WorkloadSummary:
    """Batch work on one GPU, always busy."""
    return a_workload(busy=spread(0.9), watts=spread(510.0), **changes)


def test_busy_batch_work_may_save_energy() -> None:
    item = found(training())[FindingKind.ENERGY]

    assert item.change.annotations == {"gpuwatch.io/autotune": "enforce", "gpuwatch.io/autotune-class": "batch"}
    assert item.savings.gpu_hours_per_day == 0
    assert item.savings.watts == pytest.approx(0.15 * 400)


def test_its_watts_are_not_made_up() -> None:
    unknown = a_hold(loaded_idle_watts=None)
    at_rest = FleetFacts(gpus=(GpuFacts(node="node-a", uuid="GPU-0", idle_watts=60.0),))

    assert found(training(holds=(unknown,)))[FindingKind.ENERGY].savings.watts is None
    assert found(training(holds=(unknown,)), fleet=at_rest)[FindingKind.ENERGY].savings.watts == pytest.approx(
        0.15 * 450
    )
    assert found(replace(training(), watts=None))[FindingKind.ENERGY].savings.watts is None


@pytest.mark.parametrize(
    "summary",
    [
        pytest.param(training(autotune="observe"), id="its annotation says something"),
        pytest.param(classed(training(), "serving"), id="it serves"),
        pytest.param(classed(training(), None), id="it may serve"),
        pytest.param(training(programs=("tritonserver",)), id="it runs a server"),
        pytest.param(replace(training(), busy=spread(0.4)), id="it is not busy"),
        pytest.param(replace(training(), busy=None), id="nobody can tell how busy it is"),
        pytest.param(training(holds=(a_hold(holders=2),)), id="others are on the GPU"),
        pytest.param(training(holds=(a_hold(device="MIG-0", profile="1g.10gb"),)), id="it has an instance"),
    ],
)
def test_no_energy_is_saved_when(summary: WorkloadSummary) -> None:
    assert FindingKind.ENERGY not in found(summary)


def test_the_dearest_comes_first() -> None:
    work = [
        replace(a_small_one(models=(model,)), key=replace(a_small_one().key, name=model))
        for model in ("NVIDIA A100-SXM4-80GB", "NVIDIA H100 80GB HBM3")
    ]
    prices = {"*A100*": 1.0, "*H100*": 3.0}

    assert [item.target.model for item in advised(*work, prices=prices).items] == [
        "NVIDIA H100 80GB HBM3",
        "NVIDIA A100-SXM4-80GB",
    ]


def test_an_advice_keeps_its_name() -> None:
    (first,) = advised(a_small_one()).items
    (again,) = advised(a_small_one(days=15.0, busy=spread(0.11, 0.2)), now=NOW + HOUR).items
    other = a_small_one()
    (another,) = advised(replace(other, key=replace(other.key, container="side"))).items

    assert first.id == again.id != another.id
    assert again.at == NOW + HOUR
    assert again.expires == again.at + 7 * DAY


def test_all_are_counted() -> None:
    advice = advised(a_small_one(), a_workload(days=0.5), a_workload())

    assert (advice.workloads, advice.learning) == (3, 1)


def test_every_finding_says_why_and_what_may_go_wrong() -> None:
    of_size = (a_small_one(), waiting(), preallocating(), a_gang(0.8, 0.0), seldom_busy())
    items = [item for each in (*of_size, training(), a_workload(an_idle_hold())) for item in advised(each).items]

    assert SAID_OF_SIZE - {FindingKind.IO_BOUND} <= {item.kind for item in items}
    assert all(item.why.endswith(".") and item.risk_text.endswith(".") and item.current for item in items)
