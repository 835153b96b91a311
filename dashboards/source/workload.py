"""Does this pod, or this namespace, use what it holds? What it costs first, then why."""

from dashboards.source.panel import Board
from dashboards.source.variables import CLUSTER, DATASOURCE, NAMESPACE, NODE, POD, PRICE
from dashboards.source.workload_faults import FAULTS, SHARED
from dashboards.source.workload_pace import PACE
from dashboards.source.workload_rightsizing import RIGHTSIZING
from dashboards.source.workload_sums import SUMS
from dashboards.source.workload_tuning import TUNING
from dashboards.source.workload_use import USE

BOARD = Board(
    uid="gpuwatch-workload",
    title="gpuwatch / Workload",
    description="Does this pod, or this namespace, use the GPUs it holds?",
    variables=(DATASOURCE, CLUSTER, NODE, NAMESPACE, POD, PRICE),
    sections=(SUMS, RIGHTSIZING, USE, PACE, TUNING, FAULTS, SHARED),
)
