"""Is the fleet healthy, used, and what changed?"""

from dashboards.source.panel import Board, Panel, Query, Section
from dashboards.source.variables import CLUSTER, DATASOURCE, NODE, PRICE

HEADLINES = (
    Panel(
        title="GPUs",
        kind="stat",
        description="GPUs that should be there, by the PCI bus and the configuration.",
        queries=(Query('sum(gpuwatch_gpus{@node, state="expected"})'),),
        width=4,
        height=4,
    ),
)

BOARD = Board(
    uid="gpuwatch-fleet",
    title="gpuwatch / Fleet",
    description="Is the fleet healthy, used, and what changed?",
    variables=(DATASOURCE, CLUSTER, NODE, PRICE),
    sections=(Section("Now", HEADLINES),),
)
