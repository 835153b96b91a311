"""Who holds which GPU, and what it does for them: PromQL pieces of the workload's and the fleet's dashboards.

A workload (a pod, a Slurm job, a container, a unit, a user) holds whole GPUs, MIG instances, or a part of a shared GPU.
A series for each workload and each of these is a *place* (`BY_PLACE`). What places are, how busy and how full, is
recorded (alerts/): a query would join all workloads of a fleet at each step. What no record has is read for those
places only that a panel draws: `twenty` chooses them, once for all steps.
"""

from gpuwatch.rightsizing.usage.allocation import IDLE_BUSY

BY_GPU = "cluster, node, gpu, uuid"
BY_PART = f"{BY_GPU}, gi"
"""A GPU, or a MIG instance of it."""
WORKLOAD = "kind, namespace, name"
BY_PLACE = f"{BY_PART}, {WORKLOAD}"
BY_WORKLOAD = f"cluster, {WORKLOAD}"
BY_HOLDER = f"{BY_GPU}, {WORKLOAD}"
IDLE_BELOW = IDLE_BUSY
"""Of activity: what `gpuwatch recommend` and the recording rules call idle, too."""

HELD = "workload:gpuwatch_workload_info:holder{@workload}"
SHARED = "device:gpuwatch_workload_info:shared{@node}"
"""GPUs and instances that several have."""
EVERYBODY = "workload:gpuwatch_workload_info:holder{@node}"
SHARE = "workload:gpuwatch_gpu_share:ratio{@workload}"
"""How much of a GPU each place is: an instance by its memory, a shared GPU in equal parts."""
ACTIVITY_5M = "workload:gpuwatch_gpu_activity:avg5m{@workload}"
"""How busy each place is: SMs, before Hopper utilization; on a shared GPU what its own processes use."""
FILLED = "workload:gpuwatch_gpu_memory_used:ratio{@workload}"
"""How much of its memory is in use."""

KILOWATT_HOURS = "sum_over_time(workload:gpuwatch_gpu_energy_joules:rate5m{@workload}[$__range]) / 12 / 1000"
"""What each workload used: a sample of the record stands for five minutes."""


def sampled(function: str, vector: str) -> str:
    """`function` over a vector that is looked at every five minutes, a twelfth of an hour."""
    return f"{function}(({vector})[$__range:5m])"


def mean(record: str) -> str:
    """Of a record over the time range, as of its end: a rank that is the same at every step."""
    return f"avg_over_time({record}[$__range] @ end())"


def means_of_containers(vector: str, by: str) -> str:
    """The same for series of containers, which are no record, added up `by`: at each sample that would take seconds.

    A container whose agent was started again may have two series: it counts once.
    """
    return f"sum by ({by}) (max by ({by}, container) (avg_over_time({vector}[$__range:5m] @ end())))"


def twenty(which: str, rank: str, by: str, operator: str = "and") -> str:
    """Leaves of a vector before it the series that are `topk` or `bottomk` by `rank`; `unless`: all others.

    A dashboard that is not narrowed to a workload shows no more than one can read. What is joined is chosen first: a
    join of all workloads of a fleet at each step takes half a minute.
    """
    return f"{operator} on ({by}) {which}(20, {rank})"


def of_twenty(which: str, series: str) -> str:
    """A series of each GPU (by `BY_GPU`), of the GPUs that the twenty workloads with most or least of it hold."""
    held = f"max by ({BY_HOLDER}) (max_over_time({HELD}[$__range] @ end()))"
    rank = f"{held} * on ({BY_GPU}) group_left () max by ({BY_GPU}) ({mean(series)})"
    holders = f"max by ({BY_HOLDER}) ({HELD} {twenty(which, rank, BY_HOLDER)})"
    return f"{holders} * on ({BY_GPU}) group_left () {series}"


def by_workload(record: str) -> tuple[str, str]:
    """The twenty workloads with most of a record over the time range, and the sum of all others."""
    rank = f"sum by ({BY_WORKLOAD}) ({mean(record)})"
    best = f"sum by ({BY_WORKLOAD}) ({record} {twenty('topk', rank, BY_WORKLOAD)})"
    return best, f"sum({record} {twenty('topk', rank, BY_WORKLOAD, 'unless')})"


def befell(events: str, label: str) -> str:
    """Events of GPUs (by `BY_GPU` and `label`), with what had the GPU; of a shared GPU one event at a time."""
    hit = f"max by ({BY_HOLDER}) (%s and on ({BY_GPU}) {events})"
    holders, everybody = hit % HELD, hit % EVERYBODY
    shared = f"(count by ({BY_GPU}) ({everybody}) > 1)"
    return f"""({events} * on ({BY_GPU}) group_left ({WORKLOAD}) ({holders} unless on ({BY_GPU}) {shared})
        or ({holders} and on ({BY_GPU}) {shared})
            * on ({BY_GPU}) group_left ({label}) topk by ({BY_GPU}) (1, {events}))"""
