"""How the chosen pods use each of their GPUs over time."""

from dashboards.source.held import (
    ACTIVITY_5M,
    ALONE,
    BY_GPU,
    BY_PART,
    BY_PLACE,
    BY_POD,
    IDLE_BELOW,
    SHARE,
    activity,
    filled,
    twenty,
    whole,
)
from dashboards.source.links import board
from dashboards.source.panel import Panel, Query, Section, State

PLACE = "{{pod}}: {{node}} GPU {{gpu}} {{gi}}"
TO_NODE = board("node", "Open GPU", node="${__field.labels.node}", gpu="${__field.labels.gpu}")


LEVEL = f"({ACTIVITY_5M} >= bool {IDLE_BELOW}) + ({ACTIVITY_5M} >= bool 0.3)"
TENSOR = f"{ALONE} * on ({BY_PART}) group_left () {whole('gpu_tensor_active_ratio')}"


def _of_the_idlest(vector: str) -> str:
    return twenty("bottomk", vector, BY_PLACE, ACTIVITY_5M)


USE = Section(
    "Is it used?",
    (
        Panel(
            title="Idle spans of the 20 least used",
            kind="state-timeline",
            description="Each GPU or instance while it was held: idle is below 1 % active, little below 30 %, over "
            "five minutes. Long idle spans at night: end the pod, or queue the work. Idle spans that come again and "
            "again: waiting for data.",
            queries=(Query(_of_the_idlest(LEVEL), PLACE),),
            states=(State("0", "idle", "red"), State("1", "little", "yellow"), State("2", "busy", "green")),
            no_value="No pod has a GPU",
            width=24,
            height=10,
        ),
        Panel(
            title="Activity of the 20 least used",
            kind="timeseries",
            description="How busy each GPU or instance is: SMs, before Hopper utilization, which overstates; on a "
            "shared GPU what the pod's own processes use. Ranks of one job should lie on each other.",
            unit="percentunit",
            queries=(Query(_of_the_idlest(activity()), PLACE),),
            links=(TO_NODE,),
            no_value="No pod has a GPU",
            min=0,
            max=1,
            width=12,
            height=9,
        ),
        Panel(
            title="Tensor cores of the 20 least used",
            kind="timeseries",
            description="Share of cycles in which the tensor cores worked, on GPUs and instances that the pod has to "
            "itself. Near 0 while the SMs are busy: FP32 work, or a precision the tensor cores do not do. Hopper and "
            "newer.",
            unit="percentunit",
            queries=(Query(_of_the_idlest(TENSOR), PLACE),),
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
            description="Share of the memory of the GPU or instance in use; on a shared GPU by the pod's own "
            "processes. The highest value in the legend is the high-water mark: far below 1, a smaller GPU or "
            "instance will do. At 1, allocations fail.",
            unit="percentunit",
            queries=(Query(_of_the_idlest(filled()), PLACE),),
            links=(TO_NODE,),
            legend="table",
            no_value="No pod has a GPU",
            min=0,
            max=1,
            width=12,
            height=9,
        ),
        Panel(
            title="Power",
            kind="timeseries",
            description="Draw of the GPUs of each pod; of a shared GPU its part. Idle GPUs draw too.",
            unit="watt",
            queries=(
                Query(
                    f"""sum by ({BY_POD}) (({SHARE}) * on ({BY_GPU}) group_left ()
                        gpuwatch_gpu_power_watts{{@node, window="average"}})""",
                    "{{namespace}}/{{pod}}",
                ),
            ),
            stacked=True,
            no_value="No pod has a GPU",
            min=0,
            width=12,
            height=9,
        ),
    ),
)
