"""What the fleet is used for, who uses it, what is held and not used, and what it draws."""

from dashboards.source.expressions import BY_NODE, HELD, HELD_IDLE, hours, largest, others, used
from dashboards.source.links import SERIES_NODE, TO_NAMESPACE
from dashboards.source.panel import Column, Panel, Query, Style
from dashboards.source.states import CLOCK_STYLES

_HOURS = f"sum by (cluster, namespace) ({hours(HELD)})"
_IDLE_HOURS = f"sum by (cluster, namespace) ({hours(HELD_IDLE)}) or 0 * {_HOURS}"
_SHOWN = 15


def _named(vector: str) -> str:
    """`vector` of the namespaces that hold most, and of all others in one row."""
    return f"""({vector}) and on (cluster, namespace) topk({_SHOWN}, {_HOURS})
        or label_replace(sum(({vector}) unless on (cluster, namespace) topk({_SHOWN}, {_HOURS})),
            "namespace", "all others", "", "")"""


USE = (
    Panel(
        title="GPUs by use",
        kind="timeseries",
        description=(
            "Every GPU is one of: working, allocated and idle (below 1 % active), free, lost (failed or quarantined). "
            "Much idle beside little free: people wait for GPUs that others hold. GPUs whose agent is down are missing."
        ),
        queries=(
            Query(f"sum({used('active')})", "working"),
            Query(f"sum({used('idle')})", "allocated, idle"),
            Query(f"sum({used('free')})", "free"),
            Query(f"sum({used('unavailable')})", "lost"),
        ),
        styles=(
            Style(match="^working$", color="green"),
            Style(match="^allocated", color="yellow"),
            Style(match="^free$", color="blue"),
            Style(match="^lost$", color="red"),
        ),
        stacked=True,
        min=0,
        decimals=0,
        width=12,
        height=9,
    ),
    Panel(
        title="Activity by node, the 40 least active",
        kind="heatmap",
        description=(
            "Mean share of time in which the multiprocessors of a node's GPUs worked, utilization where unknown. "
            "Dark rows are idle nodes, light ones busy; a row that goes dark at once is a job that ended or hangs."
        ),
        unit="percentunit",
        queries=(
            Query(
                f"""node:gpuwatch_gpu_activity:avg{{@node}} and on ({BY_NODE})
                    bottomk(40, avg_over_time(node:gpuwatch_gpu_activity:avg{{@node}}[$__range:5m] @ end()))""",
                "{{node}}",
            ),
        ),
        min=0,
        max=1,
        links=(SERIES_NODE,),
        width=12,
        height=9,
    ),
    Panel(
        title="Namespaces",
        kind="table",
        description=(
            "GPU-hours each namespace held in the time range, how many of them were idle (below 1 % active), "
            "and what the idle ones cost. A shared GPU counts in equal parts, a MIG instance by its memory. "
            "Much idle: click the namespace, and ask the owners of its pods."
        ),
        queries=(
            Query(_named(_HOURS)),
            Query(_named(_IDLE_HOURS)),
            Query(f"({_named(_IDLE_HOURS)}) / ({_named(_HOURS)})"),
            Query(f"({_named(_IDLE_HOURS)}) * $price"),
        ),
        columns=(
            Column(field="cluster", title="Cluster"),
            Column(field="namespace", title="Namespace", links=(TO_NAMESPACE,)),
            Column(field="Value #A", title="GPU-hours", unit="none", decimals=1),
            Column(field="Value #B", title="Idle", unit="none", decimals=1),
            Column(
                field="Value #C",
                title="Idle share",
                unit="percentunit",
                decimals=0,
                thresholds=((None, "green"), (0.2, "yellow"), (0.5, "orange")),
                color="gauge",
                min=0,
                max=1,
            ),
            Column(field="Value #D", title="Cost of idle", unit="currencyUSD", decimals=0),
        ),
        sort="-GPU-hours",
        no_value="no workloads",
        width=16,
        height=8,
    ),
    Panel(
        title="Cost of idle GPUs",
        kind="stat",
        description="GPU-hours that were held and not used, times the price of a GPU hour above.",
        unit="currencyUSD",
        queries=(Query(f"(sum({hours(HELD_IDLE)}) or vector(0)) * $price"),),
        decimals=0,
        thresholds=((None, "green"), (1, "yellow")),
        width=4,
        height=8,
    ),
    Panel(
        title="Idle now, by namespace",
        kind="bargauge",
        description="GPUs held and below 1 % active at this moment. For those held long, see Workload.",
        queries=(Query(f"topk(10, sum by (cluster, namespace) ({HELD_IDLE}) > 0)", "{{namespace}} {{cluster}}"),),
        min=0,
        no_value="none",
        width=4,
        height=8,
    ),
)

_WATTS = "node:gpuwatch_gpu_power_watts:sum{@node}"

POWER = (
    Panel(
        title="Power by node, the 15 highest",
        kind="timeseries",
        description="Sum over the GPUs of each node. A node that drops while its job runs is slow or has lost a GPU.",
        unit="watt",
        queries=(
            Query(largest(15, _WATTS, BY_NODE), "{{node}}"),
            Query(others(15, _WATTS, BY_NODE), "all other nodes"),
        ),
        links=(SERIES_NODE,),
        stacked=True,
        min=0,
        width=12,
        height=8,
    ),
    Panel(
        title="GPUs with clocks held down",
        kind="timeseries",
        description=(
            "How many GPUs had their clocks held down, by reason. The power limit is normal at full load; heat and "
            "power brake are not: look at the cooling and power supply of the nodes."
        ),
        queries=(Query("sum by (reason) (node:gpuwatch_gpu_clock_event_seconds:rate5m{@node})", "{{reason}}"),),
        styles=CLOCK_STYLES,
        min=0,
        width=12,
        height=8,
    ),
)
