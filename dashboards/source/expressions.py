"""What several panels of the fleet mean by a GPU, idle, lost: series that the recording rules keep (alerts/).

Rules add up nodes and namespaces once, so that a dashboard reads a few series a node, however many GPUs there are and
however many people look. What is idle is judged there and nowhere else.
"""

from dashboards.source.selectors import OF_AGENTS, of_gpuwatch

BY_NODE = "cluster, node"

NODES = f"count by ({BY_NODE}) {of_gpuwatch('up{@node}', OF_AGENTS)}"
"""Every node whose agent should answer."""

GPUS = "node:gpuwatch_gpus:count{@node}"
"""How many GPUs a node should have: configured, else those on the bus or known to NVML."""

QUARANTINED = "(node:gpuwatch_remediator_quarantined:max{@node} == 1)"

HELD = "node_namespace:gpuwatch_gpus_held:sum{@node}"
HELD_IDLE = "node_namespace:gpuwatch_gpus_idle:sum{@node}"
FAILURES = 'ceil(changes(gpuwatch_gpu_health{@node, state="failed"}[$__range]) / 2)'
"""How often each GPU went from usable to failed."""


def used(use: str) -> str:
    """GPUs of each node in one of the four uses: active, idle, free, unavailable."""
    return f'node:gpuwatch_gpus_by_use:count{{@node, use="{use}"}}'


LOST = used("unavailable")
"""GPUs that no new work can use: failed ones, and free ones of a node in quarantine."""


def hours(vector: str) -> str:
    """What `vector` counts, times how long it did in the time range, in hours; looked at every five minutes."""
    return f"sum_over_time(({vector})[$__range:5m]) / 12"


def largest(count: int, vector: str, by: str) -> str:
    """The `count` series with the highest mean over the time range; the choice is the same at every step."""
    return f"({vector}) and on ({by}) topk({count}, avg_over_time(({vector})[$__range:5m] @ end()))"


def others(count: int, vector: str, by: str) -> str:
    """The sum of all series that `largest` leaves out."""
    return f"sum(({vector}) unless on ({by}) topk({count}, avg_over_time(({vector})[$__range:5m] @ end())))"
