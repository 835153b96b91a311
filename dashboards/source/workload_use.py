"""How the chosen workloads use each of their GPUs over time."""

from dashboards.source.held import (
    ACTIVITY_5M,
    BY_PART,
    BY_PLACE,
    FILLED,
    HELD,
    IDLE_BELOW,
    SHARED,
    by_workload,
    mean,
    twenty,
)
from dashboards.source.links import board
from dashboards.source.panel import Panel, Query, Section, State

PLACE = "{{name}}: {{node}} GPU {{gpu}} {{gi}}"
TO_NODE = board("node", "Open GPU", node="${__field.labels.node}", gpu="${__field.labels.gpu}")

IDLEST = twenty("bottomk", mean(ACTIVITY_5M), BY_PLACE)
ACTIVITY = f"({ACTIVITY_5M} {IDLEST})"
ALONE = f"({HELD} {IDLEST} unless on ({BY_PART}) {SHARED})"
"""Those of them that no other pod has."""
SPANS = f"floor((clamp_max({ACTIVITY}, 0.3) - {IDLE_BELOW}) / (0.3 - {IDLE_BELOW})) + 1"
"""0 idle, 1 little, 2 busy. Two comparisons would read every place twice."""
HIGHEST, OTHERS = by_workload("workload:gpuwatch_gpu_power_watts:sum{@workload}")


def _of_those_alone(family: str) -> str:
    return f"{ALONE} * on ({BY_PART}) group_left () {family}{{@node}}"


USE = Section(
    "Is it used?",
    (
        Panel(
            title="Idle spans of the 20 least used",
            kind="state-timeline",
            interval="1m",
            description="Each GPU or instance while it was held: idle is below 1 % active, little below 30 %, over "
            "five minutes. Long idle spans at night: end it, or queue the work. Idle spans that come again and "
            "again: waiting for data.",
            queries=(Query(SPANS, PLACE),),
            states=(State("0", "idle", "red"), State("1", "little", "yellow"), State("2", "busy", "green")),
            no_value="No workload has a GPU",
            width=24,
            height=10,
        ),
        Panel(
            title="Activity of the 20 least used",
            kind="timeseries",
            interval="1m",
            description="How busy each GPU or instance is: SMs, before Hopper utilization, which overstates; on a "
            "shared GPU what its own processes use, over five minutes. Ranks of one job should lie on each other.",
            unit="percentunit",
            queries=(Query(f"{_of_those_alone('device:gpuwatch_gpu_activity:ratio')} or {ACTIVITY} * 1", PLACE),),
            links=(TO_NODE,),
            no_value="No workload has a GPU",
            min=0,
            max=1,
            width=12,
            height=9,
        ),
        Panel(
            title="Tensor cores of the 20 least used",
            kind="timeseries",
            interval="1m",
            description="Share of cycles in which the tensor cores worked, on GPUs and instances that a workload has "
            "to itself. Near 0 while the SMs are busy: FP32, or a precision the tensor cores do not do. Hopper and "
            "newer.",
            unit="percentunit",
            queries=(Query(_of_those_alone("gpuwatch_gpu_tensor_active_ratio"), PLACE),),
            links=(TO_NODE,),
            no_value="Needs Hopper or newer, and a GPU of its own",
            min=0,
            max=1,
            width=12,
            height=9,
        ),
        Panel(
            title="Memory of the 20 least used",
            kind="timeseries",
            interval="1m",
            description="Share of the memory of the GPU or instance in use; on a shared GPU by its own "
            "processes. The highest value in the legend is the high-water mark: far below 1, a smaller GPU or "
            "instance will do. At 1, allocations fail.",
            unit="percentunit",
            queries=(Query(f"{FILLED} {IDLEST}", PLACE),),
            links=(TO_NODE,),
            legend="table",
            no_value="No workload has a GPU",
            min=0,
            max=1,
            width=12,
            height=9,
        ),
        Panel(
            title="Power, the 20 highest",
            kind="timeseries",
            interval="1m",
            description="Draw of the GPUs of each workload; of a shared GPU its part. Idle GPUs draw too.",
            unit="watt",
            queries=(Query(HIGHEST, "{{namespace}}/{{name}}"), Query(OTHERS, "all others")),
            stacked=True,
            no_value="No workload has a GPU",
            min=0,
            width=12,
            height=9,
        ),
    ),
)
