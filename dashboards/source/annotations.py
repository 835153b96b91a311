"""Events drawn on every graph: what the hardware reported, what gpuwatch did, what was started again."""

from typing import Any

import msgspec
from grafana_foundation_sdk.models.dashboard import DataSourceRef

from dashboards.source.selectors import OF_AGENTS, expand, of_gpuwatch
from gpuwatch.model.xid_catalogue import all_xids

APPLICATION = "|".join(str(xid.code) for xid in all_xids() if xid.category == "application")
"""XIDs that applications cause, as a regular expression."""

GPU = "cluster, node, gpu"
_STARTED = "process_start_time_seconds{@node} > time() - 600"


class Annotation(msgspec.Struct, frozen=True, kw_only=True):
    """`at_value`: the value is the event's time in milliseconds, as exact as it can be."""

    name: str
    expr: str
    title: str
    text: str
    color: str
    at_value: bool = False

    def json(self, datasource: DataSourceRef) -> dict[str, Any]:
        """As Grafana's Prometheus data source keeps it; its texts are not in the SDK's model."""
        return {
            "name": self.name,
            "datasource": datasource,
            "enable": True,
            "hide": False,
            "iconColor": self.color,
            "expr": expand(self.expr),
            "titleFormat": self.title,
            "textFormat": self.text,
            "tagKeys": "node,gpu",
            "step": "60s",
            "useValueForTime": "on" if self.at_value else False,
        }


def annotations(uid: str) -> tuple[Annotation, ...]:
    """Of a dashboard. Those about GPUs are on the workload's dashboard of the GPUs that its pods have."""
    if uid != "gpuwatch-workload":
        return ANNOTATIONS
    theirs = f"and on ({GPU}) gpuwatch_gpu_workload_info{{@workload}}"
    return tuple(
        msgspec.structs.replace(each, expr=f"{each.expr} {theirs}") if "{{gpu}}" in each.title else each
        for each in ANNOTATIONS
    )


ANNOTATIONS: tuple[Annotation, ...] = (
    Annotation(
        name="XIDs of hardware and driver",
        expr=f"""max by (cluster, node, gpu, xid) (
            gpuwatch_gpu_xid_last_timestamp_seconds{{@node, xid!~"{APPLICATION}"}}) * 1000""",
        title="XID {{xid}} on {{node}}, GPU {{gpu}}",
        text="gpuwatch xid explain {{xid}}",
        color="red",
        at_value=True,
    ),
    Annotation(
        name="Actions of gpuwatch",
        expr="max by (cluster, node, action, result) (node:gpuwatch_remediator_actions:increase2m{@node})",
        title="{{action}} of {{node}}: {{result}}",
        text="gpuwatch node status",
        color="purple",
    ),
    Annotation(
        name="Agent restarts",
        # Only while it is new: the answer for a large fleet would have the time of every agent at every step.
        expr=f"max by (cluster, node) {of_gpuwatch(_STARTED, OF_AGENTS)} * 1000",
        title="The agent of {{node}} started",
        text="Gauges have a gap here; gpuwatch's own counters began at 0 again.",
        color="blue",
        at_value=True,
    ),
    Annotation(
        name="GPU resets and driver reloads",
        expr="max by (cluster, node, gpu) (gpu:gpuwatch_gpu_energy_joules:resets2m{@node})",
        title="GPU {{gpu}} of {{node}} was reset, or its driver was loaded again",
        text="Its energy counter began at 0 again.",
        color="orange",
    ),
)
