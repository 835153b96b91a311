"""What is each GPU of this node doing, and why is it slow? What one looks at first comes first."""

from dashboards.source.node_faults import FAULTS
from dashboards.source.node_links import LINKS
from dashboards.source.node_now import NOW
from dashboards.source.node_rest import HARDWARE, MIG, PROCESSES
from dashboards.source.node_work import SLOW, WORK
from dashboards.source.panel import Board
from dashboards.source.variables import CLUSTER, DATASOURCE, GPU, ONE_NODE

BOARD = Board(
    uid="gpuwatch-node",
    title="gpuwatch / Node",
    description="What is each GPU of this node doing, and why is it slow?",
    variables=(DATASOURCE, CLUSTER, ONE_NODE, GPU),
    sections=(NOW, SLOW, WORK, FAULTS, LINKS, PROCESSES, MIG, HARDWARE),
)
