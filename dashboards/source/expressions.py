"""What several panels mean by a GPU, idle, lost: PromQL pieces, each a vector with one series a GPU or a node.

A GPU instance belongs to its GPU: a GPU counts as allocated, or busy, when any of its instances is.
"""

from dashboards.source.held import BY_GPU, BY_PLACE, IDLE_BELOW, SHARE, activity
from dashboards.source.selectors import OF_AGENTS, of_gpuwatch

BY_NODE = "cluster, node"

NODES = f"count by ({BY_NODE}) {of_gpuwatch('up{@node}', OF_AGENTS)}"
"""Every node whose agent should answer."""

GPUS = f"""max by ({BY_NODE}) (
    gpuwatch_gpus{{@node, state=~"expected|bus|nvml"}}
    or count by ({BY_NODE}) (gpuwatch_gpu_health{{@node, state="healthy"}}))"""
"""How many GPUs a node should have: configured, on the bus, known to NVML or remembered, whichever is most."""

ALLOCATED = f"max by ({BY_GPU}) (gpuwatch_gpu_allocated{{@node}})"
"""1 where a container has the GPU or part of it."""

ACTIVITY = f"""(max by ({BY_GPU}) (gpuwatch_gpu_sm_active_ratio{{@node}})
    or max by ({BY_GPU}) (gpuwatch_gpu_utilization_ratio{{@node}}))"""
"""Share of time the GPU works: multiprocessors where the GPU tells (Hopper and newer), else utilization."""

IDLE = f"({ALLOCATED} == 1 and {ACTIVITY} < {IDLE_BELOW})"
"""Held by a container and not used."""

QUARANTINED = f"(max by ({BY_NODE}) (gpuwatch_remediator_quarantined{{@node}}) == 1)"

LOST = f"""group by ({BY_GPU}) (max by ({BY_GPU}) (gpuwatch_gpu_health{{@node, state="failed"}}) == 1
    or ({ALLOCATED} == 0 and on ({BY_NODE}) {QUARANTINED}))"""
"""GPUs that no new work can use: failed ones, and free ones of a node in quarantine."""

HELD = f"({SHARE.replace('@workload', '@node')})"
"""Every pod's share of every GPU it has."""
HELD_IDLE = f"({HELD} and on ({BY_PLACE}) {activity('5m').replace('@workload', '@node')} < {IDLE_BELOW})"


def hours(vector: str) -> str:
    """How long `vector` had series in the time range, in hours each, looked at every five minutes."""
    return f"sum_over_time(({vector})[$__range:5m]) / 12"
