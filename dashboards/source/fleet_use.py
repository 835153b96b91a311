"""What the fleet is used for, who uses it, what is held and not used, and what it draws."""

from dashboards.source.expressions import ACTIVITY, ALLOCATED, BY_NODE, HELD, HELD_IDLE, IDLE, LOST, hours
from dashboards.source.links import SERIES_NODE, board
from dashboards.source.panel import Column, Panel, Query, Style

_TO_NAMESPACE = board("workload", "Open namespace", namespace="${__data.fields.namespace}")
_IDLE_HOURS = f"""sum by (cluster, namespace) ({hours(HELD_IDLE)})
    or 0 * sum by (cluster, namespace) ({hours(HELD)})"""

USE = (
    Panel(
        title="GPUs by use",
        kind="timeseries",
        description=(
            "Every GPU is one of: working, allocated and idle (below 2 % active), free, lost (failed or quarantined). "
            "Much idle beside little free: people wait for GPUs that others hold. GPUs whose agent is down are missing."
        ),
        queries=(
            Query(f"count({ALLOCATED} == 1 unless {IDLE} unless {LOST}) or vector(0)", "working"),
            Query(f"count({IDLE} unless {LOST}) or vector(0)", "allocated, idle"),
            Query(f"count({ALLOCATED} == 0 unless {LOST}) or vector(0)", "free"),
            Query(f"count({LOST}) or vector(0)", "lost"),
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
        title="Activity by node",
        kind="heatmap",
        description=(
            "Mean share of time in which the multiprocessors of a node's GPUs worked, utilization where unknown. "
            "Dark rows are idle nodes; a row that goes dark at once is a job that ended or hangs."
        ),
        unit="percentunit",
        queries=(Query(f"avg by ({BY_NODE}) ({ACTIVITY})", "{{node}}"),),
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
            "GPU-hours each namespace held in the time range, how many of them were idle (below 2 % active), "
            "and what the idle ones cost. A shared GPU counts in equal parts, a MIG instance by its memory. "
            "Much idle: click the namespace, and ask the owners of its pods."
        ),
        queries=(
            Query(f"sum by (cluster, namespace) ({hours(HELD)})"),
            Query(_IDLE_HOURS),
            Query(f"({_IDLE_HOURS}) / sum by (cluster, namespace) ({hours(HELD)})"),
            Query(f"({_IDLE_HOURS}) * $price"),
        ),
        columns=(
            Column(field="cluster", title="Cluster"),
            Column(field="namespace", title="Namespace", links=(_TO_NAMESPACE,)),
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
        description="GPUs held and below 2 % active at this moment. For those held long, see Workload.",
        queries=(Query(f"topk(10, sum by (cluster, namespace) ({HELD_IDLE}))", "{{namespace}} {{cluster}}"),),
        min=0,
        no_value="none",
        width=4,
        height=8,
    ),
)

POWER = (
    Panel(
        title="Power by node",
        kind="timeseries",
        description="Sum over the GPUs of each node. A node that drops while its job runs is slow or has lost a GPU.",
        unit="watt",
        queries=(Query(f'sum by ({BY_NODE}) (gpuwatch_gpu_power_watts{{@node, window="average"}})', "{{node}}"),),
        links=(SERIES_NODE,),
        stacked=True,
        min=0,
        width=12,
        height=8,
    ),
    Panel(
        title="Time held down",
        kind="timeseries",
        description=(
            "How many GPUs had their clocks held down, by reason. The power limit is normal at full load; heat and "
            "power brake are not: look at the cooling and power supply of the nodes."
        ),
        queries=(
            Query(
                """sum by (reason) (
                    rate(gpuwatch_gpu_clock_event_seconds_total{
                        @node, reason!~"gpu_idle|low_utilization"}[$__rate_interval]))""",
                "{{reason}}",
            ),
        ),
        min=0,
        width=12,
        height=8,
    ),
)
