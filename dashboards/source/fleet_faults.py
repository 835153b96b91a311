"""The fleet's faults: what is wrong now and with whom, what it was over time, and what it cost."""

from dashboards.source.expressions import BY_NODE, FAILURES, GPUS, LOST, hours
from dashboards.source.held import BY_GPU
from dashboards.source.links import RUNBOOK, SERIES_NODE, TO_GPU, TO_NODE, TO_POD
from dashboards.source.panel import Column, Panel, Query, State
from dashboards.source.runbooks import alert_of_check
from dashboards.source.stages import STAGES
from dashboards.source.states import FINDINGS, HEALTH, REMEDIES, SEVERITIES, XID_STYLES, severity_code

_FINDING = 'gpuwatch_finding{@node, severity!="info"}'
_LATER = "1e10"
"""More seconds than there have been: added to the time of what is less bad, to have the worst first."""

_ROOT = f'and on ({BY_GPU}, check) gpuwatch_finding_info{{@node, caused_by=""}}'
"""Of findings that stand for themselves: the XID of a GPU that is gone asks for less than the GPU."""


def _since(which: str) -> str:
    """When each present finding that a matcher selects was first seen in the time range."""
    finding = f"gpuwatch_finding{{@node, {which}}}"
    return f"""(min by ({BY_GPU}, check) (min_over_time(timestamp({finding})[$__range:1m]))
        and on ({BY_GPU}, check) {finding})"""


_WORST = f"""(bottomk by ({BY_GPU}) (1,
    ({_since('severity="critical"')} {_ROOT})
    or {_since('severity="critical"')} + {_LATER}
    or {_since('severity="warning"')} + 2 * {_LATER}) % {_LATER})"""
_HOLDER = f"topk by ({BY_GPU}) (1, max by ({BY_GPU}, namespace, pod) (gpuwatch_gpu_workload_info{{@node}}))"
_FOUND = f"""(({_WORST} * on ({BY_GPU}) group_left (namespace, pod) {_HOLDER})
    or ({_WORST} unless on ({BY_GPU}) gpuwatch_gpu_workload_info{{@node}}))"""
_REMEDY = f"topk by ({BY_GPU}, check) (1, max by ({BY_GPU}, check, remedy) (gpuwatch_finding_info{{@node}}))"
_ADVICE = f"""label_replace({_FOUND} * on ({BY_GPU}, check) group_left (remedy) {_REMEDY},
    "runbook", "$1", "check", "(.+)") * 1000"""
_STAGE = f"""max by ({BY_NODE}, stage) (gpuwatch_remediator_stage{{@node}} == 1) and on ({BY_NODE}) {_FINDING}"""

ATTENTION = (
    Panel(
        title="Nodes and GPUs that need attention",
        kind="table",
        description=(
            "GPUs and nodes with findings, notes left out: the worst finding, who has the GPU now, what helps, what "
            "gpuwatch did. Without a workload, it can be repaired at once. Click the runbook for what to do, the node "
            "for all of its findings. Since is cut off at the start of the time range."
        ),
        queries=(
            Query(_ADVICE),
            Query(_STAGE),
            Query(f"count by ({BY_GPU}) ({_FINDING})"),
            Query(f"{severity_code('@node', BY_GPU)} > 0"),
        ),
        columns=(
            Column(field="Value #D", title="Severity", states=SEVERITIES, color="text", width=90),
            Column(field="node", title="Node", links=(TO_NODE,)),
            Column(field="gpu", title="GPU", links=(TO_GPU,), width=60),
            Column(field="check", title="Worst finding", states=FINDINGS, color="text"),
            Column(field="Value #C", title="Findings", width=80),
            Column(field="Value #A", title="Since", unit="dateTimeFromNow", width=130),
            Column(field="namespace", title="Namespace", width=130),
            Column(field="pod", title="Workload", links=(TO_POD,)),
            Column(field="remedy", title="What helps", width=110, states=REMEDIES),
            Column(field="stage", title="Remediation", states=STAGES, color="text", width=170),
            Column(
                field="runbook",
                title="Runbook",
                width=230,
                states=tuple(State(check, alert) for check, alert in sorted(alert_of_check().items())),
                links=(RUNBOOK,),
            ),
        ),
        sort="-Severity",
        no_value="nothing needs attention",
        width=24,
        height=8,
    ),
    Panel(
        title="Health of nodes",
        kind="state-timeline",
        description=(
            "Nodes that were not healthy at some time in the range, and when. Grey gaps: no data from the agent. "
            "A node that comes and goes has a fault that repairs do not reach."
        ),
        queries=(
            Query(
                f"""node:gpuwatch_node_health:code{{@node}} and on ({BY_NODE})
                    (max_over_time(node:gpuwatch_node_health:code{{@node}}[$__range] @ end()) > 0)""",
                "{{node}}",
            ),
        ),
        states=HEALTH,
        links=(SERIES_NODE,),
        no_value="all nodes were healthy all the time",
        width=24,
        height=7,
    ),
)

FAULTS = (
    Panel(
        title="GPU-hours lost",
        kind="stat",
        description=(
            "Time in which GPUs could not be used: failed, or free on a node in quarantine. "
            "Times the price, it is what faults and slow repairs cost."
        ),
        unit="none",
        queries=(Query(f"sum({hours(f'sum({LOST})')}) or vector(0)"),),
        decimals=1,
        thresholds=((None, "green"), (0.1, "orange")),
        width=4,
        height=4,
    ),
    Panel(
        title="Cost of GPU-hours lost",
        kind="stat",
        description="GPU-hours lost times the price of a GPU hour above.",
        unit="currencyUSD",
        queries=(Query(f"(sum({hours(f'sum({LOST})')}) or vector(0)) * $price"),),
        decimals=0,
        width=4,
        height=4,
    ),
    Panel(
        title="GPU-hours lost, by node",
        kind="bargauge",
        description="GPU-hours lost in the time range, worst ten nodes. The same node every week: replace, not repair.",
        unit="none",
        queries=(Query(f"topk(10, sum by ({BY_NODE}) ({hours(LOST)}) >= 0.1)", "{{node}}"),),
        decimals=1,
        thresholds=((None, "orange"),),
        min=0,
        links=(SERIES_NODE,),
        no_value="nothing was lost",
        width=8,
        height=8,
    ),
    Panel(
        title="XIDs",
        kind="timeseries",
        description=(
            "Errors that the driver reported in five minutes, by code. Red: the GPU is broken. Blue: applications "
            "caused them. `gpuwatch xid explain CODE` says what a code means and what helps."
        ),
        queries=(Query("sum by (xid) (node:gpuwatch_gpu_xid_errors:increase5m{@node})", "XID {{xid}}"),),
        bars=True,
        styles=XID_STYLES,
        stacked=True,
        interval="5m",
        no_value="no XIDs",
        width=8,
        height=8,
    ),
    Panel(
        title="GPU failures",
        kind="stat",
        description="How often a GPU went from usable to failed in the time range.",
        queries=(Query(f"sum({FAILURES})"),),
        thresholds=((None, "green"), (1, "orange")),
        width=4,
        height=4,
    ),
    Panel(
        title="GPU-hours per failure",
        kind="stat",
        description=(
            "Mean time between failures of a GPU: GPU-hours in the range, divided by failures. "
            "Choose 30 days or more for a figure to plan with."
        ),
        unit="none",
        queries=(
            Query(
                f"""sum({GPUS}) * $__range_s / 3600
                    / (sum({FAILURES}) > 0)""",
            ),
        ),
        decimals=0,
        no_value="no failure",
        width=4,
        height=4,
    ),
)
