"""The first screen of the node's dashboard: the verdict, a row for each GPU, all findings."""

from dashboards.source.columns import share
from dashboards.source.links import RUNBOOK, board
from dashboards.source.panel import Column, Panel, Query, Section, State
from dashboards.source.states import (
    CLOCK_STATES,
    FINDINGS,
    HEALTH,
    RUNBOOKS,
    SEVERITIES,
    XID_CODES,
    clock_event_code,
    health_code,
    severity_code,
)

PODS = """max by (node, gpu, namespace, pod) (gpuwatch_gpu_workload_info{@gpu}
    or on (cluster, node, gpu, uuid)
    label_replace(gpuwatch_workload_info{@gpu, kind!="pod"}, "pod", "$1", "name", "(.+)"))"""
"""Where no pod has the GPU, what uses it: a Slurm job, a container, a unit, a user."""

HOLDERS = f"count by (node, gpu) ({PODS})"
HOLDER = f'({PODS} unless on (node, gpu) {HOLDERS} > 1 or label_replace({HOLDERS} > 1, "pod", "several", "", ""))'
"""One series for each GPU that is given out or in use: the pod or other workload that has it, or `several`."""

HEADROOM = """max by (node, gpu) (gpuwatch_gpu_temperature_margin_celsius{@gpu}
    or on (cluster, node, gpu, uuid) (gpuwatch_gpu_temperature_threshold_celsius{@gpu, threshold="slowdown"}
        - on (cluster, node, gpu, uuid) group_left () gpuwatch_gpu_temperature_celsius{@gpu, sensor="gpu"}))"""
"""Degrees to the slowdown: as the GPU reports it, else its own threshold less its temperature."""

MEMORY = (
    "max by (node, gpu) (gpuwatch_gpu_memory_used_bytes{@gpu, gi=''} / gpuwatch_gpu_memory_total_bytes{@gpu, gi=''})"
)

WORST_FINDING = """topk by (node, gpu) (1, max by (node, gpu, check) (
    gpuwatch_finding_info{@gpu, caused_by="", severity="critical"} * 4
    or gpuwatch_finding{@gpu, severity="critical"} * 3
    or gpuwatch_finding{@gpu, severity="warning"} * 2
    or gpuwatch_finding{@gpu, severity="info"}))"""

FOUND = """max by (node, gpu, check, action, caused_by) (label_replace(gpuwatch_finding_info{@gpu},
    "caused_by", "$1", "caused_by", "([^/]+)/.*"))"""
"""Of the cause its check: the rest is where it is, which the row says."""
LAST_XID = """topk by (node, gpu) (1, max by (node, gpu, xid) (
    gpuwatch_gpu_xid_last_timestamp_seconds{@gpu, xid!="154"}))"""
"""154 only says what an earlier one asks for."""

QUARANTINE = (State("0", "no", "green"), State("1", "quarantined", "orange"))
HEADROOM_BOUNDS = ((None, "red"), (0, "orange"), (5, "green"))
THIS_GPU = board("node", "This GPU alone", node="${node}", gpu="${__data.fields.gpu}")
THIS_POD = board("workload", "Open workload", namespace="${__data.fields.namespace}", workload="${__data.fields.pod}")

NOW = Section(
    "Now",
    (
        Panel(
            title="Node health",
            kind="stat",
            description="The worst of its GPUs and of what concerns all of them. Degraded: look at the findings "
            "below. Failed: work is lost or soon will be; `gpuwatch status` on the node says what to do. Unknown: "
            "gpuwatch could not look, which says nothing about the GPUs.",
            queries=(Query(health_code("gpuwatch_node_health", "@node", "node")),),
            states=HEALTH,
            width=4,
            height=4,
        ),
        Panel(
            title="Healthy GPUs",
            kind="stat",
            description="GPUs without a finding worse than info, and how many are on the bus. When they differ, the "
            "table below says which GPU it is.",
            queries=(
                Query('max by (node) (gpuwatch_gpus{@node, state="healthy"})', "healthy"),
                Query('max by (node) (gpuwatch_gpus{@node, state="bus"})', "on the bus"),
            ),
            width=4,
            height=4,
        ),
        Panel(
            title="Open findings",
            kind="stat",
            description="Checks that found something now. More than none of severity critical: act now, by the "
            "runbook.",
            queries=(
                Query('count(gpuwatch_finding{@gpu, severity="critical"}) or vector(0)', "critical"),
                Query('count(gpuwatch_finding{@gpu, severity="warning"}) or vector(0)', "warning"),
            ),
            thresholds=((None, "green"), (1, "orange")),
            width=4,
            height=4,
        ),
        Panel(
            title="Given out",
            kind="stat",
            description="GPUs (or MIG instances) that the kubelet gave to a container, and how many there are. Given "
            "out and idle is waste: open the workload's dashboard.",
            queries=(
                Query("sum(gpuwatch_gpu_allocated{@gpu})", "given out"),
                Query("count(gpuwatch_gpu_allocated{@gpu})", "of"),
            ),
            no_value="No kubelet",
            width=4,
            height=4,
        ),
        Panel(
            title="Power",
            kind="stat",
            description="Draw of all chosen GPUs together. Compare it with what the rack may draw.",
            unit="watt",
            queries=(Query('sum(gpuwatch_gpu_power_watts{@gpu, window="average"})', "draw"),),
            width=4,
            height=4,
        ),
        Panel(
            title="Quarantine",
            kind="stat",
            description="Whether gpuwatch keeps new work away from the node. `gpuwatch node status` says why, and "
            "what ends it. Empty where no remediator runs.",
            queries=(Query("max by (node) (gpuwatch_remediator_quarantined{@node})"),),
            states=QUARANTINE,
            no_value="No remediator",
            width=4,
            height=4,
        ),
        Panel(
            title="GPUs",
            kind="table",
            description="One row for each GPU. Read it from the left: health, why, and who has it; then how busy it "
            "is and what holds it back. SM activity far below utilization: work that does not fill the GPU. Headroom "
            "below 5 °C or clocks held by heat: look at the cooling. SM activity needs Hopper or newer. `several`: "
            "the GPU is shared; its pods are on the workload's dashboard. Where no pod has it: a Slurm job, container, "
            "systemd unit or user.",
            queries=(
                Query(health_code("gpuwatch_gpu_health", "@gpu", "node, gpu")),
                Query(WORST_FINDING),
                Query(HOLDER),
                Query("max by (node, gpu) (gpuwatch_gpu_utilization_ratio{@gpu})"),
                Query('max by (node, gpu) (gpuwatch_gpu_sm_active_ratio{@gpu, gi=""})'),
                Query(MEMORY),
                Query('max by (node, gpu) (gpuwatch_gpu_power_watts{@gpu, window="average"})'),
                Query(HEADROOM),
                Query('max by (node, gpu) (gpuwatch_gpu_clock_hertz{@gpu, domain="sm"})'),
                Query(clock_event_code("@gpu", "node, gpu")),
                Query(LAST_XID),
            ),
            columns=(
                Column(field="gpu", title="GPU", links=(THIS_GPU,), width=60),
                Column(field="Value #A", title="Health", states=HEALTH, color="cell", width=100),
                Column(field="check", title="Finding", states=RUNBOOKS, color="text", links=(RUNBOOK,), width=190),
                Column(field="namespace", title="Namespace", width=130),
                Column(field="pod", title="Pod or workload", links=(THIS_POD,)),
                share("Value #D", "Utilization"),
                share("Value #E", "SM activity"),
                share("Value #F", "Memory"),
                Column(field="Value #G", title="Power", unit="watt", decimals=0, width=80),
                Column(
                    field="Value #H",
                    title="Headroom",
                    unit="celsius",
                    decimals=0,
                    thresholds=HEADROOM_BOUNDS,
                    color="text",
                    width=100,
                ),
                Column(field="Value #I", title="SM clock", unit="hertz", decimals=2, width=100),
                Column(field="Value #J", title="Clocks", states=CLOCK_STATES, color="text", width=130),
                Column(field="xid", title="Last XID", states=XID_CODES, color="text", width=80),
            ),
            sort="GPU",
            width=24,
            height=11,
        ),
        Panel(
            title="Findings",
            kind="table",
            description="All that gpuwatch holds against the node and its GPUs, with the pod that has the GPU now. "
            "The worst comes first; Follows from names the finding that explains one. The runbook says what to do; "
            "`gpuwatch get findings` on the node has the evidence. Empty is good.",
            queries=(
                Query(
                    f"""label_replace(
                        {FOUND} * on (node, gpu) group_left (namespace, pod) {HOLDER}
                        or on (node, gpu, check) {FOUND},
                        "runbook", "$1", "check", "(.+)")"""
                ),
                Query(severity_code("@gpu", "node, gpu, check")),
            ),
            columns=(
                Column(field="Value #B", title="Severity", states=SEVERITIES, color="text", width=90),
                Column(field="check", title="Check", states=FINDINGS, color="text", width=200),
                Column(field="gpu", title="GPU", links=(THIS_GPU,), width=60),
                Column(field="namespace", title="Namespace", width=180),
                Column(field="pod", title="Pod", links=(THIS_POD,), width=260),
                Column(field="action", title="What to do"),
                Column(field="caused_by", title="Follows from", states=FINDINGS, width=200),
                Column(field="runbook", title="Runbook", states=RUNBOOKS, links=(RUNBOOK,), width=220),
            ),
            sort="-Severity",
            no_value="No findings",
            width=24,
            height=7,
        ),
    ),
)
