"""Does this workload, or this namespace, use what it holds? What it costs first, then why."""

from dashboards.source.panel import Board
from dashboards.source.variables import CLUSTER, DATASOURCE, KIND, NAMESPACE, NODE, PRICE, WORKLOAD
from dashboards.source.workload_faults import FAULTS, SHARED
from dashboards.source.workload_pace import PACE
from dashboards.source.workload_rightsizing import RIGHTSIZING
from dashboards.source.workload_sums import SUMS
from dashboards.source.workload_tuning import TUNING
from dashboards.source.workload_use import USE

BOARD = Board(
    uid="gpuwatch-workload",
    title="gpuwatch / Workload",
    description="Does this pod, job, container or namespace use the GPUs it holds?",
    variables=(DATASOURCE, CLUSTER, NODE, KIND, NAMESPACE, WORKLOAD, PRICE),
    sections=(SUMS, RIGHTSIZING, USE, PACE, TUNING, FAULTS, SHARED),
)
