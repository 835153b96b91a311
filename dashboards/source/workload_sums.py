"""What the chosen workloads hold, and what that costs."""

from dashboards.source.columns import share
from dashboards.source.held import ACTIVITY_5M, BY_WORKLOAD, FILLED, IDLE_BELOW, KILOWATT_HOURS, SHARE, sampled
from dashboards.source.links import board
from dashboards.source.panel import Column, Panel, Query, Section, Thresholds

USED: Thresholds = ((None, "red"), (IDLE_BELOW, "orange"), (0.3, "green"))
"""Of activity: idle, little, well used."""
WASTED: Thresholds = ((None, "green"), (0.2, "orange"), (0.5, "red"))
THIS_WORKLOAD = board(
    "workload",
    "This one alone",
    kind="${__data.fields.kind}",
    namespace="${__data.fields.namespace}",
    workload="${__data.fields.name}",
)

BUSY = ACTIVITY_5M
GPU_HOURS = f"{sampled('sum_over_time', SHARE)} / 12"
IDLE_SHARE = sampled("avg_over_time", f"{BUSY} < bool {IDLE_BELOW}")
PEAK = f"max_over_time({FILLED}[$__range])"


def _by_workload(how: str, vector: str) -> Query:
    return Query(f"{how} by ({BY_WORKLOAD}) ({vector})")


def _stat(title: str, description: str, expr: str, unit: str, decimals: int, thresholds: Thresholds = ()) -> Panel:
    return Panel(
        title=title,
        kind="stat",
        description=description,
        unit=unit,
        queries=(Query(expr),),
        decimals=decimals,
        thresholds=thresholds,
        no_value="No workload has a GPU",
        width=4,
        height=4,
    )


SUMS = Section(
    "What it holds",
    (
        _stat(
            "GPUs held",
            "GPUs that the chosen workloads hold now: pods; where no pod has a GPU, the Slurm jobs, containers, units "
            "and users that use it. A MIG instance counts by its share of the memory, a shared GPU in equal parts.",
            f"sum({SHARE})",
            "short",
            1,
        ),
        _stat(
            "GPU-hours",
            "GPUs held, times the hours they were held in the time range of the dashboard.",
            f"sum({GPU_HOURS})",
            "none",
            1,
        ),
        _stat(
            "Energy",
            "Energy of the GPUs while they were held, in the time range. A shared GPU's counts in equal parts.",
            f"sum({KILOWATT_HOURS})",
            "kwatth",
            1,
        ),
        _stat(
            "Cost",
            "GPU-hours times the price of one, which is set on top. The idle share of it was for nothing.",
            f"sum({GPU_HOURS}) * $price",
            "currencyUSD",
            0,
        ),
        _stat(
            "Mean activity",
            "How busy the GPUs were while they were held: SMs, before Hopper utilization, on shared GPUs its own "
            "use. Below 30 %: fewer or smaller GPUs, MIG instances or shared GPUs may do.",
            f"avg({sampled('avg_over_time', BUSY)})",
            "percentunit",
            0,
            USED,
        ),
        _stat(
            "Idle share",
            "Share of the time held in which a GPU was less than 1 % active over five minutes. Much of it: it "
            "waits for data or people, or has been forgotten. What could be freed: right-sizing, below.",
            f"avg({IDLE_SHARE})",
            "percentunit",
            0,
            WASTED,
        ),
        Panel(
            title="Workloads",
            kind="table",
            description="Each workload that held a GPU in the time range: how much, how well used, and the cost. High "
            "cost with low activity first: ask its owner. Memory: the highest share of a GPU's memory it had. One "
            "that ended has no GPUs now. Click one to see it alone.",
            queries=(
                _by_workload("sum", SHARE),
                _by_workload("sum", GPU_HOURS),
                _by_workload("avg", sampled("avg_over_time", BUSY)),
                _by_workload("avg", IDLE_SHARE),
                _by_workload("max", PEAK),
                _by_workload("sum", KILOWATT_HOURS),
                Query(f"sum by ({BY_WORKLOAD}) ({GPU_HOURS}) * $price"),
            ),
            columns=(
                Column(field="kind", title="Kind", width=90),
                Column(field="namespace", title="Namespace", width=160),
                Column(field="name", title="Workload", links=(THIS_WORKLOAD,)),
                Column(field="Value #A", title="GPUs now", decimals=2, width=90),
                Column(field="Value #B", title="GPU-hours", decimals=1, width=100),
                share("Value #C", "Activity", USED, width=170),
                share("Value #D", "Idle", WASTED, width=170),
                share("Value #E", "Memory", width=170),
                Column(field="Value #F", title="Energy", unit="kwatth", decimals=1, width=110),
                Column(field="Value #G", title="Cost", unit="currencyUSD", decimals=0, width=90),
            ),
            sort="-Cost",
            no_value="No workload held a GPU in this time",
            width=24,
            height=10,
        ),
    ),
)
