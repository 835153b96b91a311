"""Stragglers: how fast a GPU goes beside the others that do the same work. The same measure as the alert GpuStraggler.

Peers are GPUs of one model and one owner: of pods whose names differ in their number only (train-0, train-1-x7kbq), and
of one pod. Only whole GPUs that a pod has to itself are compared.
"""

from dashboards.source.held import BY_GPU

_OWNER = "cluster, namespace, owner, model"
_ALL = '@cluster, namespace=~"$namespace"'
"""Peers are looked for in other pods and on other nodes, whichever are chosen."""
_READINGS = {
    "clock": 'avg_over_time(gpuwatch_gpu_clock_hertz{@cluster, domain="sm"}[5m])',
    "activity": f"""(avg_over_time(gpuwatch_gpu_sm_active_ratio{{@cluster, gi=""}}[5m])
        or on ({BY_GPU}) avg_over_time(gpuwatch_gpu_utilization_ratio{{@cluster}}[5m]))""",
}


def _pace(selector: str, reading: str) -> str:
    """The reading of every GPU that one pod has to itself, with its `pod` and `owner`."""
    holders = f'max by ({BY_GPU}, namespace, pod) (gpuwatch_gpu_workload_info{{{selector}, gi=""}})'
    everybody = f'max by ({BY_GPU}, namespace, pod) (gpuwatch_gpu_workload_info{{@cluster, gi=""}})'
    alone = f"{holders} unless on ({BY_GPU}) (count by ({BY_GPU}) ({everybody}) > 1)"
    named = f'label_replace({alone}, "owner", "$1", "pod", "(.+)")'
    owned = f'label_replace({named}, "owner", "$1", "pod", "(.+)-[0-9]+(-[bcdfghjklmnpqrstvwxz2456789]{{5}})?")'
    models = f"max by ({BY_GPU}, model) (gpuwatch_gpu_info{{@cluster}})"
    return f"({owned} * on ({BY_GPU}) group_left (model) {models} * on ({BY_GPU}) group_left () {_READINGS[reading]})"


def beside_peers(reading: str) -> str:
    """Each GPU's reading as a share of its peers' median, where there are peers and they are at work."""
    peers = _pace(_ALL, reading)
    working = f"quantile by ({_OWNER}) (0.5, {_pace(_ALL, 'activity')}) > 0.05"
    return f"""{_pace("@workload", reading)}
        / on ({_OWNER}) group_left () (quantile by ({_OWNER}) (0.5, {peers})
            and on ({_OWNER}) count by ({_OWNER}) ({peers}) > 1 and on ({_OWNER}) {working})"""
