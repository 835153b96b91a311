"""What do the GPUs cost, who has them, what was saved? For whoever pays for them: by default, the month to date."""

from dashboards.source.links import TO_NAMESPACE
from dashboards.source.panel import Board, Column, Panel, Query, Section, Style
from dashboards.source.variables import CLUSTER, DATASOURCE, KWH, PRICE
from dashboards.source.workload_rightsizing import KIND_STYLES, KINDS

_OWNER = "cluster, kind, namespace, account, model"
_FREES = 'kind!~"quota_slack|steady_load|mig_layout"'
"""Without what is about room for GPUs: whoever leaves that room is in it already."""
_ADVICE = f"namespace:gpuwatch_recommendation_gpu_hours_per_day:sum{{@cluster, {_FREES}}}"
_WASTE = ((None, "green"), (0.2, "yellow"), (0.5, "orange"))


def _hours(record: str) -> str:
    """A sample stands for five minutes."""
    return f"sum_over_time({record}{{@cluster}}[$__range]) / 12"


def _kwh(record: str) -> str:
    return f"sum_over_time({record}{{@cluster}}[$__range]) / 12 / 1000"


HELD, IDLE = _hours("owner:gpuwatch_gpus_held:sum"), _hours("owner:gpuwatch_gpus_idle:sum")
ENERGY = _kwh("owner:gpuwatch_gpu_energy_joules:rate5m")
ALL_HOURS, ALL_ENERGY = _hours("model:gpuwatch_gpus:count"), _kwh("model:gpuwatch_gpu_energy_joules:rate5m")
SAVED = _kwh("cluster:gpuwatch_tuner_energy_saved_joules:rate5m")


def _stat(title: str, description: str, expr: str, unit: str, *, no_value: str = "") -> Panel:
    return Panel(
        title=title,
        kind="stat",
        description=description,
        unit=unit,
        queries=(Query(expr),),
        decimals=0,
        no_value=no_value,
        width=4,
        height=4,
    )


def _by(labels: str) -> tuple[Query, ...]:
    held, idle, energy = (f"sum by ({labels}) ({vector})" for vector in (HELD, IDLE, ENERGY))
    return (
        Query(held),
        Query(f"{held} * $price"),
        Query(f"{idle} * $price"),
        Query(f"({idle}) / ({held} > 0)"),
        Query(energy),
        Query(f"{energy} * $kwh"),
    )


_SUMS = (
    Column(field="Value #A", title="GPU-hours", unit="none", decimals=0, width=110),
    Column(field="Value #B", title="Cost", unit="currencyUSD", decimals=0, width=110),
    Column(field="Value #C", title="Of it idle", unit="currencyUSD", decimals=0, width=110),
    Column(
        field="Value #D",
        title="Idle share",
        unit="percentunit",
        decimals=0,
        thresholds=_WASTE,
        color="gauge",
        min=0,
        max=1,
        width=150,
    ),
    Column(field="Value #E", title="Energy", unit="kwatth", decimals=0, width=110),
    Column(field="Value #F", title="Cost of energy", unit="currencyUSD", decimals=0, width=120),
)

BILL = (
    _stat("GPU-hours there were", "All GPUs, used or not, times the hours.", f"sum({ALL_HOURS})", "none"),
    _stat(
        "Held",
        "GPU-hours that pods, Slurm jobs, containers, units or users had.",
        f"sum({HELD})",
        "none",
    ),
    _stat(
        "Cost of what was idle",
        "GPU-hours that were held while less than 1 % active over five minutes, times the price on top. "
        "Right-sizing below says what of it could be released.",
        f"sum({IDLE}) * $price",
        "currencyUSD",
    ),
    _stat("Energy", "Of all GPUs, without hosts and cooling.", f"sum({ALL_ENERGY})", "kwatth"),
    _stat("Cost of energy", "Energy times the price of a kWh on top.", f"sum({ALL_ENERGY}) * $kwh", "currencyUSD"),
    _stat(
        "Saved by the tuner",
        "Energy that the tuner's caps saved, an estimate from what was measured when they were tried.",
        f"sum({SAVED})",
        "kwatth",
        no_value="no tuner",
    ),
)

OWNERS = (
    Panel(
        title="By namespace, account, project and GPU",
        kind="table",
        description="Who had GPUs: namespaces, accounts of Slurm, projects of compose, else users; the dearest 50. "
        "A shared GPU counts in equal parts, a MIG instance by its memory. High idle cost: click the namespace and ask "
        "the owners of its pods.",
        queries=tuple(
            Query(f"{query.expr} and on ({_OWNER}) topk(50, sum by ({_OWNER}) ({HELD}))") for query in _by(_OWNER)
        ),
        columns=(
            Column(field="cluster", title="Cluster", width=110),
            Column(field="kind", title="Kind", width=90),
            Column(field="namespace", title="Namespace", links=(TO_NAMESPACE,)),
            Column(field="account", title="Account, project or user", width=150),
            Column(field="model", title="GPU", width=220),
            *_SUMS,
        ),
        sort="-Cost",
        no_value="nothing was held, or the recording rules are not loaded",
        width=24,
        height=10,
    ),
    Panel(
        title="By class of GPU",
        kind="table",
        description="Each model: what was held of it, and what that cost. Rarely held: buy no more of it.",
        queries=(*_by("cluster, model"), Query(f"sum by (cluster, model) ({ALL_HOURS})")),
        columns=(
            Column(field="cluster", title="Cluster", width=110),
            Column(field="model", title="GPU"),
            Column(field="Value #G", title="GPU-hours there were", unit="none", decimals=0, width=160),
            *_SUMS,
        ),
        sort="-Cost",
        no_value="no GPU was seen",
        width=24,
        height=6,
    ),
    Panel(
        title="GPUs held and idle",
        kind="timeseries",
        description="All clusters: GPUs there are, held, and held without use. The gap between held and idle is work.",
        queries=(
            Query("sum(last_over_time(model:gpuwatch_gpus:count{@cluster}[10m]))", "there are"),
            Query("sum(last_over_time(owner:gpuwatch_gpus_held:sum{@cluster}[10m]))", "held"),
            Query("sum(last_over_time(owner:gpuwatch_gpus_idle:sum{@cluster}[10m]))", "held, idle"),
        ),
        styles=(Style(match="^held, idle$", color="yellow", fill=40), Style(match="^there", dashed=True)),
        min=0,
        interval="5m",
        width=12,
        height=8,
    ),
    Panel(
        title="Power of the GPUs, by class",
        kind="timeseries",
        description="Mean draw over five minutes. Power that stays while nothing is held is what idle GPUs cost.",
        unit="watt",
        queries=(
            Query(
                "sum by (model) (last_over_time(model:gpuwatch_gpu_energy_joules:rate5m{@cluster}[10m]))", "{{model}}"
            ),
        ),
        stacked=True,
        min=0,
        interval="5m",
        width=12,
        height=8,
    ),
)

SAVINGS = (
    Panel(
        title="Right-sizing open",
        kind="stat",
        description="GPU-hours a day that following every recommendation would free, times the price on top.",
        unit="currencyUSD",
        queries=(Query(f"sum(last_over_time({_ADVICE}[10m])) * $price"),),
        decimals=0,
        no_value="nothing is recommended",
        width=4,
        height=8,
    ),
    Panel(
        title="Right-sizing taken",
        kind="stat",
        description="What was recommended at its highest in the time range and is not any more, a day: the owner "
        "followed it, or the work came back.",
        unit="currencyUSD",
        queries=(
            Query(
                f"""(sum(max_over_time({_ADVICE}[$__range])) - (sum(last_over_time({_ADVICE}[10m])) or vector(0)))
                    * $price"""
            ),
        ),
        decimals=0,
        no_value="nothing was recommended",
        width=4,
        height=8,
    ),
    Panel(
        title="Recommended GPU-hours a day, by finding",
        kind="timeseries",
        description="What could be freed. A step down: it was taken, or the work came back.",
        unit="none",
        queries=(Query(f"sum by (kind) (last_over_time({_ADVICE}[10m]))", "{{kind}}"),),
        styles=KIND_STYLES,
        stacked=True,
        min=0,
        interval="5m",
        no_value="nothing is recommended",
        width=8,
        height=8,
    ),
    Panel(
        title="Open, by namespace",
        kind="table",
        description="GPU-hours a day that could be freed, dearest 20. Click the namespace for each workload.",
        queries=(Query(f"topk(20, sum by (cluster, namespace, kind) (last_over_time({_ADVICE}[10m]))) * $price"),),
        columns=(
            Column(field="namespace", title="Namespace", links=(TO_NAMESPACE,)),
            Column(field="kind", title="Finding", states=KINDS),
            Column(field="Value", title="Cost a day", unit="currencyUSD", decimals=0, width=110),
        ),
        sort="-Cost a day",
        no_value="nothing is recommended",
        width=8,
        height=8,
    ),
)

BOARD = Board(
    uid="gpuwatch-cost",
    title="gpuwatch / Cost and energy",
    description="What do the GPUs cost, who has them, what was saved?",
    variables=(DATASOURCE, CLUSTER, PRICE, KWH),
    sections=(Section("The bill", BILL), Section("Who had them", OWNERS), Section("Saved, and to be saved", SAVINGS)),
    time="now/M",
    refresh="5m",
)
