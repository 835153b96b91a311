"""What hit the chosen workloads; and what they do on GPUs that they share."""

from dashboards.source.held import (
    BY_GPU,
    BY_PART,
    BY_PLACE,
    HELD,
    befell,
    means_of_containers,
    of_twenty,
    sampled,
    twenty,
)
from dashboards.source.links import RUNBOOK, TO_GPU
from dashboards.source.panel import Column, Panel, Query, Section
from dashboards.source.states import HEALTH, RUNBOOKS, XID_CODES, XID_MEANINGS
from dashboards.source.workload_sums import THIS_WORKLOAD

FOUND = f"max by ({BY_GPU}, check) (gpuwatch_finding{{@node}})"
XIDS = "gpu:gpuwatch_gpu_xid_errors:increase5m{@node}"
RANK = "{{name}}: {{node}} GPU {{gpu}}"
SHARER = "{{name}}: {{node}} GPU {{gpu}} {{gi}}"
PLACE = (
    Column(field="kind", title="Kind", width=90),
    Column(field="namespace", title="Namespace", width=150),
    Column(field="name", title="Workload", links=(THIS_WORKLOAD,), width=320),
    Column(field="node", title="Node", width=150),
    Column(field="gpu", title="GPU", links=(TO_GPU,), width=60),
)

BY_POD = f"{BY_PART}, namespace, pod"


def _own(what: str) -> str:
    """What the processes of the twenty highest use: of pods, and of what runs outside of them."""
    of_pods = f"gpuwatch_pod_gpu_{what}{{@pod}}"
    pods = f"sum by ({BY_POD}) ({of_pods} {twenty('topk', means_of_containers(of_pods, BY_POD), BY_POD)})"
    named = f'label_replace(label_replace({pods}, "name", "$1", "pod", "(.+)"), "kind", "pod", "", "")'
    of_others = f"gpuwatch_workload_gpu_{what}{{@workload}}"
    others = f"sum by ({BY_PLACE}) ({of_others} {twenty('topk', means_of_containers(of_others, BY_PLACE), BY_PLACE)})"
    return f"""max by ({BY_PLACE}) ({named} and on ({BY_PLACE}) {HELD})
        or {others}"""


_OF_POD = f"{BY_GPU}, namespace, pod"
_WATTS = "rate(gpuwatch_pod_gpu_energy_joules_total{@pod}[$__rate_interval])"
POWER = f"sum by ({_OF_POD}) ({_WATTS} {twenty('topk', means_of_containers(_WATTS, _OF_POD), _OF_POD)})"

FAULTS = Section(
    "What hit it",
    (
        Panel(
            title="Findings on its GPUs",
            kind="table",
            description="Findings while the workload had the GPU, and for how long in the time range, looked at every "
            "five minutes. Of a GPU that several share, one at a time. Red: its results may be lost or wrong; run it "
            "again elsewhere. The runbook says what to do with the GPU.",
            queries=(Query(sampled("count_over_time", befell(FOUND, "check")) + " / 12"),),
            columns=(
                Column(field="check", title="Finding", states=RUNBOOKS, color="text", links=(RUNBOOK,)),
                *PLACE,
                Column(field="Value", title="For", unit="h", decimals=1, width=80),
            ),
            sort="-For",
            no_value="No findings on these GPUs",
            width=24,
        ),
        Panel(
            title="XIDs on its GPUs",
            kind="table",
            description="XIDs while the workload had the GPU. Blue: most likely its own fault; look at its log, then "
            "at `compute-sanitizer`. Red: the GPU's; run it again elsewhere. On a MIG or shared GPU it may be "
            "another's. `gpuwatch xid explain CODE` says more.",
            queries=(
                Query(
                    f"""label_replace(round({sampled("sum_over_time", befell(XIDS, "xid"))}),
                        "meaning", "$1", "xid", "(.*)") > 0"""
                ),
            ),
            columns=(
                Column(field="xid", title="XID", states=XID_CODES, color="text", width=60),
                Column(field="meaning", title="Meaning", states=XID_MEANINGS),
                *PLACE,
                Column(field="Value", title="Times", decimals=0, width=70),
            ),
            sort="-Times",
            no_value="No XIDs on these GPUs",
            width=24,
        ),
        Panel(
            title="Health of its GPUs, the 20 worst",
            kind="state-timeline",
            interval="1m",
            description="Health of each GPU they hold, while they hold it. Failed: the work on it is lost. "
            "Degraded: it works, but not as it should. Unknown: gpuwatch could not look.",
            queries=(Query(of_twenty("topk", "gpu:gpuwatch_gpu_health:code{@node}"), RANK),),
            states=HEALTH,
            no_value="No workload has a GPU",
            width=24,
            height=9,
        ),
    ),
)

SHARED = Section(
    "By their own processes",
    (
        Panel(
            title="Utilization, the 20 highest",
            kind="timeseries",
            interval="1m",
            description="Share of the whole GPU that each workload's own processes keep busy: who uses a shared "
            "GPU. Together near 1: they slow each other down.",
            unit="percentunit",
            queries=(Query(_own("utilization_ratio"), SHARER),),
            no_value="No processes of workloads are seen",
            stacked=True,
            min=0,
            width=8,
        ),
        Panel(
            title="Memory, the 20 highest",
            kind="timeseries",
            interval="1m",
            description="Device memory of each workload's own processes. Time-slicing does not limit it: one "
            "can take the memory of all, and the others' allocations fail.",
            unit="bytes",
            queries=(Query(_own("memory_bytes"), SHARER),),
            no_value="No processes of workloads are seen",
            stacked=True,
            min=0,
            width=8,
        ),
        Panel(
            title="Power put down to pods, the 20 highest",
            kind="timeseries",
            interval="1m",
            description="Energy that gpuwatch puts down to each pod's own processes, per second. A shared "
            "GPU's is split by use; an idle pod gets none of it. For pods only.",
            unit="watt",
            queries=(Query(POWER, "{{pod}}: {{node}} GPU {{gpu}}"),),
            no_value="No processes of pods are seen",
            stacked=True,
            min=0,
            width=8,
        ),
    ),
    collapsed=True,
)
