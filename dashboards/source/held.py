"""Who holds which GPU, and what it does for them: PromQL pieces of the workload's and the fleet's dashboards.

A pod holds whole GPUs, MIG instances, or a place on a shared GPU. A series for each pod and each of these is a *place*
(`BY_PLACE`). Several pods may have one GPU: joins therefore start with the pods and take the GPU's side with
`group_left`. What a shared GPU does is nobody's: there the pods' own processes count.
"""

from gpuwatch.rightsizing.usage.allocation import IDLE_BUSY

BY_GPU = "cluster, node, gpu, uuid"
BY_PART = f"{BY_GPU}, gi"
"""A GPU, or a MIG instance of it."""
BY_PLACE = f"{BY_PART}, namespace, pod"
BY_POD = "cluster, namespace, pod"
BY_HOLDER = f"{BY_GPU}, namespace, pod"
IDLE_BELOW = IDLE_BUSY
"""Of activity: what `gpuwatch recommend` and the recording rules call idle, too."""

HELD = f"max by ({BY_PLACE}) (gpuwatch_gpu_workload_info{{@workload}})"
HOLDERS = f"max by ({BY_GPU}, namespace, pod) (gpuwatch_gpu_workload_info{{@workload}})"
"""The same, whichever part of the GPU it is."""
PODS = f"count by ({BY_PART}) (max by ({BY_PLACE}) (gpuwatch_gpu_workload_info{{@node}}))"
"""How many pods a GPU or instance has."""

SHARE = "pod:gpuwatch_gpu_share:ratio{@workload}"
"""How much of a GPU each place is: an instance by its memory, a shared GPU in equal parts. As the next, it is recorded,
since a query would join all pods of a fleet at each step.
"""
ACTIVITY_5M = "pod:gpuwatch_gpu_activity:avg5m{@workload}"
"""`activity` as a mean of five minutes."""

ALONE = f"({HELD} unless on ({BY_PART}) ({PODS} > 1))"
"""Places that nobody else has."""

WATTS = f"({SHARE}) * on ({BY_GPU}) group_left () rate(gpuwatch_gpu_energy_joules_total{{@node}}[5m])"


def whole(family: str) -> str:
    """A reading of a GPU or instance."""
    return f"gpuwatch_{family}{{@node}}"


def activity() -> str:
    """How busy each place is: SMs, before Hopper utilization; on a shared GPU what the pod's own processes use."""
    own = f"max by ({BY_PLACE}) (gpuwatch_pod_gpu_utilization_ratio{{@workload}})"
    busy = f"{whole('gpu_sm_active_ratio')} or on ({BY_PART}) {whole('gpu_utilization_ratio')}"
    return f"""({ALONE} * on ({BY_PART}) group_left () ({busy})
        or on ({BY_PLACE}) {HELD} * on ({BY_PLACE}) {own})"""


def memory(used: str = "{}") -> str:
    """Device memory in use at each place. `used`: what is done with the series first, as `max_over_time({}[5m])`."""
    whole_, own = "gpuwatch_gpu_memory_used_bytes{@node}", "gpuwatch_pod_gpu_memory_bytes{@workload}"
    return f"""({ALONE} * on ({BY_PART}) group_left () {used.format(whole_)}
        or on ({BY_PLACE}) {HELD} * on ({BY_PLACE}) max by ({BY_PLACE}) ({used.format(own)}))"""


def filled(used: str = "{}") -> str:
    """`memory` as a share of what the GPU or instance has."""
    return f"{memory(used)} / on ({BY_PART}) group_left () gpuwatch_gpu_memory_total_bytes{{@node}}"


def sampled(function: str, vector: str, span: str = "$__range") -> str:
    """`function` over a vector that is looked at every five minutes, a twelfth of an hour."""
    return f"{function}(({vector})[{span}:5m])"


def twenty(which: str, vector: str, by: str, rank: str = "") -> str:
    """The series of `vector` that are `topk` or `bottomk` by their mean over the time range, or by that of `rank`.

    A dashboard that is not narrowed to a pod shows no more than one can read. The choice is the same at every step.
    """
    return f"({vector}) and on ({by}) {which}(20, avg_over_time(({rank or vector})[$__range:5m] @ end()))"


def befell(events: str, label: str) -> str:
    """Events of GPUs (by `BY_GPU` and `label`), with the pods that had the GPU; of a shared GPU one event at a time."""
    shared = f"(count by ({BY_GPU}) (max by ({BY_GPU}, namespace, pod) (gpuwatch_gpu_workload_info{{@node}})) > 1)"
    return f"""({events} * on ({BY_GPU}) group_left (namespace, pod) ({HOLDERS} unless on ({BY_GPU}) {shared})
        or ({HOLDERS} and on ({BY_GPU}) {shared})
            * on ({BY_GPU}) group_left ({label}) topk by ({BY_GPU}) (1, {events}))"""
