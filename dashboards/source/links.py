"""Where values lead: other dashboards with the variables kept, runbooks, logs."""

from dashboards.source.panel import Link
from gpuwatch import RUNBOOKS

_KEPT = "${__url_time_range}&${datasource:queryparam}&${cluster:queryparam}"


def board(name: str, title: str, **values: str) -> Link:
    """To the dashboard `gpuwatch-NAME`; `node="${__data.fields.node}"` sets its variable node."""
    chosen = "".join(f"&var-{variable}={value}" for variable, value in values.items())
    return Link(title, f"/d/gpuwatch-{name}?{_KEPT}{chosen}")


TO_NODE = board("node", "Open node", node="${__data.fields.node}")
"""Of a table row that has the label `node`."""
TO_GPU = board("node", "Open GPU", node="${__data.fields.node}", gpu="${__data.fields.gpu}")
TO_POD = board(
    "workload", "Open workload", kind="pod", namespace="${__data.fields.namespace}", workload="${__data.fields.pod}"
)
TO_NAMESPACE = board("workload", "Open namespace", namespace="${__data.fields.namespace}")
SERIES_NODE = board("node", "Open node", node="${__field.labels.node}")
"""Of a series on a graph that has the label `node`."""
RUNBOOK = Link("Open runbook", f"{RUNBOOKS}/${{__value.text}}.md")
"""Of a cell that holds an alert's name."""
