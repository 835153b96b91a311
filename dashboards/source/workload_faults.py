"""What hit the chosen pods; and what they do on GPUs that they share."""

from dashboards.source.held import BY_GPU, BY_HOLDER, BY_PLACE, HOLDERS, befell, sampled, twenty
from dashboards.source.links import RUNBOOK, TO_GPU
from dashboards.source.panel import Column, Panel, Query, Section
from dashboards.source.states import HEALTH, RUNBOOKS, XID_CODES, XID_MEANINGS, health_code, xid_events
from dashboards.source.workload_sums import THIS_POD

FOUND = f"max by ({BY_GPU}, check) (gpuwatch_finding{{@node}})"
HEALTH_OF = health_code("gpuwatch_gpu_health", "@node", BY_GPU)
XIDS = xid_events("@node", BY_GPU, "5m")
RANK = "{{pod}}: {{node}} GPU {{gpu}}"
SHARER = "{{pod}}: {{node}} GPU {{gpu}} {{gi}}"
PLACE = (
    Column(field="namespace", title="Namespace", width=150),
    Column(field="pod", title="Pod", links=(THIS_POD,), width=320),
    Column(field="node", title="Node", width=150),
    Column(field="gpu", title="GPU", links=(TO_GPU,), width=60),
)

UTILIZATION = f"sum by ({BY_HOLDER}) (gpuwatch_pod_gpu_utilization_ratio{{@workload}})"
MEMORY = f"sum by ({BY_PLACE}) (gpuwatch_pod_gpu_memory_bytes{{@workload}})"
POWER = f"sum by ({BY_HOLDER}) (rate(gpuwatch_pod_gpu_energy_joules_total{{@workload}}[$__rate_interval]))"

FAULTS = Section(
    "What hit it",
    (
        Panel(
            title="Findings on its GPUs",
            kind="table",
            description="Findings while the pod had the GPU, and for how long in the time range, looked at every "
            "five minutes. Of a GPU that pods share, one at a time. Red: its results may be lost or wrong; run it "
            "again elsewhere. The runbook says what to do with the GPU.",
            queries=(Query(sampled("count_over_time", befell(FOUND, "check")) + " / 12"),),
            columns=(
                Column(field="check", title="Finding", states=RUNBOOKS, color="text", links=(RUNBOOK,)),
                *PLACE,
                Column(field="Value", title="For", unit="h", decimals=1, width=80),
            ),
            sort="-For",
            no_value="No findings on the GPUs of these pods",
            width=24,
        ),
        Panel(
            title="XIDs on its GPUs",
            kind="table",
            description="XIDs while the pod had the GPU. Blue: most likely its own fault; look at its log, then at "
            "`compute-sanitizer`. Red: the GPU's; run it again elsewhere. On a MIG or shared GPU it may be another "
            "pod's. `gpuwatch xid explain CODE` says more.",
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
            no_value="No XIDs on the GPUs of these pods",
            width=24,
        ),
        Panel(
            title="Health of its GPUs, the 20 worst",
            kind="state-timeline",
            description="Health of each GPU the pods hold, while they hold it. Failed: the work on it is lost. "
            "Degraded: it works, but not as it should. Unknown: gpuwatch could not look.",
            queries=(
                Query(
                    f"{HOLDERS} * on ({BY_GPU}) group_left () {HEALTH_OF}",
                    RANK,
                ),
            ),
            states=HEALTH,
            no_value="No pod has a GPU",
            width=24,
            height=9,
        ),
    ),
)

SHARED = Section(
    "By the pods' own processes",
    (
        Panel(
            title="Utilization by pod, the 20 highest",
            kind="timeseries",
            description="Share of the whole GPU that each container's own processes keep busy: who uses a shared "
            "GPU. Together near 1: they slow each other down.",
            unit="percentunit",
            queries=(Query(twenty("topk", UTILIZATION, BY_HOLDER), RANK),),
            no_value="No processes of pods are seen",
            stacked=True,
            min=0,
            width=8,
        ),
        Panel(
            title="Memory by pod, the 20 highest",
            kind="timeseries",
            description="Device memory of each container's own processes. Time-slicing does not limit it: one pod "
            "can take the memory of all, and the others' allocations fail.",
            unit="bytes",
            queries=(Query(twenty("topk", MEMORY, BY_PLACE), SHARER),),
            no_value="No processes of pods are seen",
            stacked=True,
            min=0,
            width=8,
        ),
        Panel(
            title="Power put down to pods, the 20 highest",
            kind="timeseries",
            description="Energy that gpuwatch puts down to each container's own processes, per second. A shared "
            "GPU's is split by use; an idle pod gets none of it.",
            unit="watt",
            queries=(Query(twenty("topk", POWER, BY_HOLDER), RANK),),
            no_value="No processes of pods are seen",
            stacked=True,
            min=0,
            width=8,
        ),
    ),
    collapsed=True,
)
