"""Is one of its GPUs slower than the others?"""

from dashboards.source.held import BY_HOLDER, mean, of_twenty, twenty
from dashboards.source.panel import Panel, Query, Section, Style
from dashboards.source.states import CLOCK_STATES
from dashboards.source.workload_use import TO_NODE

RANK = "{{name}}: {{node}} GPU {{gpu}}"
LINE = (Style(match="^15 %", color="red", dashed=True),)
NO_PEERS = "No job at work on two or more GPUs"


def _against_the_line(reading: str) -> tuple[Query, Query]:
    """The measure of the alert GpuStraggler. The line is drawn where there is something to hold against it."""
    ratio = f'gpu:gpuwatch_gpu_pace:peer_ratio{{@workload, reading="{reading}"}}'
    slowest = f"{ratio} {twenty('bottomk', mean(ratio), BY_HOLDER)}"
    return Query(slowest, RANK), Query(f"min({ratio}) * 0 + 0.85", "15 % below")


PACE = Section(
    "Is one GPU slower than its peers?",
    (
        Panel(
            title="SM clock beside the peers",
            kind="timeseries",
            interval="1m",
            description="Clock of each GPU against the median of its job: pods whose names differ in their number "
            "only, replicas of a container on a host, and the GPUs of one workload. 1 is usual; below the dashed line "
            "all the others wait for it. The timeline below says what holds its clocks down.",
            unit="percentunit",
            queries=_against_the_line("sm_clock"),
            styles=LINE,
            links=(TO_NODE,),
            no_value=NO_PEERS,
            width=12,
            height=9,
        ),
        Panel(
            title="Activity beside the peers",
            kind="timeseries",
            interval="1m",
            description="SM activity (utilization before Hopper) of each GPU against the median of its job. Below "
            "the dashed line with a good clock: it has less to do, or waits for data, for a link, or for the host. "
            "Above: the others wait for it.",
            unit="percentunit",
            queries=_against_the_line("activity"),
            styles=LINE,
            links=(TO_NODE,),
            no_value=NO_PEERS,
            width=12,
            height=9,
        ),
        Panel(
            title="What holds its clocks down, the 20 worst",
            kind="state-timeline",
            interval="1m",
            description="The worst reason in force on each GPU they hold. Idle and power limit are normal. Heat: "
            "the node's dashboard has the headroom. Heat by hardware, power brake: the clocks are halved; act now.",
            queries=(Query(of_twenty("topk", "gpu:gpuwatch_gpu_clock_event:code{@node}"), RANK),),
            states=CLOCK_STATES,
            no_value="No workload has a GPU",
            width=24,
            height=9,
        ),
    ),
)
