"""Is the fleet healthy, used, and what changed?"""

from dashboards.source.expressions import GPUS, HELD, NODES, used
from dashboards.source.fleet_faults import ATTENTION, FAULTS
from dashboards.source.fleet_use import POWER, USE
from dashboards.source.panel import Board, Panel, Query, Section
from dashboards.source.variables import CLUSTER, DATASOURCE, NODE, PRICE

HEADLINES = (
    Panel(
        title="Nodes",
        kind="stat",
        description="Nodes with an agent. Fewer than you have: look at Operations, or at the DaemonSet's pods.",
        queries=(Query(f"count({NODES})"),),
        width=3,
        height=4,
    ),
    Panel(
        title="GPUs",
        kind="stat",
        description="GPUs that should be there: configured, on the PCI bus, known to NVML or seen before.",
        queries=(Query(f"sum({GPUS})"),),
        width=3,
        height=4,
    ),
    Panel(
        title="Healthy GPUs",
        kind="stat",
        description="Share of all GPUs without a finding of severity warning or critical. Below 100 %: see the table.",
        unit="percentunit",
        queries=(Query(f'sum(gpuwatch_gpu_health{{@node, state="healthy"}}) / sum({GPUS})'),),
        decimals=1,
        thresholds=((None, "red"), (0.95, "orange"), (1, "green")),
        width=3,
        height=4,
    ),
    Panel(
        title="Quarantined",
        kind="stat",
        description="Nodes that gpuwatch keeps new work away from. The table says why; Operations says since when.",
        queries=(Query("sum(node:gpuwatch_remediator_quarantined:max{@node})"),),
        thresholds=((None, "green"), (1, "orange")),
        no_value="no remediator",
        width=3,
        height=4,
    ),
    Panel(
        title="Allocated GPUs",
        kind="stat",
        description="Share of all GPUs that pods hold; of a GPU cut into MIG instances, what is held of it. It says "
        "nothing about work done.",
        unit="percentunit",
        queries=(Query(f"sum({HELD}) / sum({GPUS})"),),
        decimals=0,
        width=3,
        height=4,
    ),
    Panel(
        title="Allocated, idle",
        kind="stat",
        description="GPUs a container holds and does not use now (below 1 % active). Whose they are: see Namespaces.",
        queries=(Query(f"sum({used('idle')})"),),
        thresholds=((None, "green"), (1, "yellow")),
        width=3,
        height=4,
    ),
    Panel(
        title="Power",
        kind="stat",
        description="What all GPUs draw now: the boards, without hosts and cooling.",
        unit="watt",
        queries=(Query("sum(node:gpuwatch_gpu_power_watts:sum{@node})"),),
        trend=True,
        width=3,
        height=4,
    ),
    Panel(
        title="Energy",
        kind="stat",
        description="What all GPUs used in the time range, from their energy counters (Volta and newer).",
        unit="kwatth",
        queries=(Query("sum(increase(gpuwatch_gpu_energy_joules_total{@node}[$__range])) / 3.6e6"),),
        decimals=1,
        width=3,
        height=4,
    ),
)

BOARD = Board(
    uid="gpuwatch-fleet",
    title="gpuwatch / Fleet",
    description="Is the fleet healthy, used, and what changed?",
    variables=(DATASOURCE, CLUSTER, NODE, PRICE),
    sections=(
        Section("Now", HEADLINES),
        Section("Needs attention", ATTENTION),
        Section("Use", USE),
        Section("Faults and what they cost", FAULTS),
        Section("Power", POWER),
    ),
)
