"""What the remediator does, wants to do, and may not do."""

from dashboards.source.expressions import BY_NODE, QUARANTINED
from dashboards.source.links import SERIES_NODE, TO_NODE
from dashboards.source.panel import Column, Panel, Query, Style
from dashboards.source.stages import REASONS, STAGE_CODES, STAGES

_TIME_IN = f"sum_over_time({QUARANTINED}[$__range:1m]) * 60"

REMEDIATION = (
    Panel(
        title="Stages of nodes",
        kind="state-timeline",
        description=(
            "Nodes that were not healthy to the remediator at some time in the range. Suspect and never quarantined: "
            "mode observe, or blocked. Long recovering: the fault comes back within the hold."
        ),
        queries=(
            Query(
                f"""node:gpuwatch_remediator_stage:code{{@node}} and on ({BY_NODE})
                    (max_over_time(node:gpuwatch_remediator_stage:code{{@node}}[$__range] @ end()) > 0)""",
                "{{node}}",
            ),
        ),
        states=STAGE_CODES,
        links=(SERIES_NODE,),
        no_value="all nodes were healthy all the time",
        width=16,
        height=8,
    ),
    Panel(
        title="Quarantined nodes",
        kind="table",
        description=(
            "Nodes in quarantine now, and for how much of the time range. Older than a day: a person has to repair it. "
            "`gpuwatch node status` says what it waits for."
        ),
        queries=(
            Query(f"max by ({BY_NODE}) ({_TIME_IN}) and on ({BY_NODE}) {QUARANTINED}"),
            Query(
                f"""max by ({BY_NODE}, stage) (gpuwatch_remediator_stage{{@node}} == 1)
                    and on ({BY_NODE}) {QUARANTINED}"""
            ),
        ),
        columns=(
            Column(field="node", title="Node", links=(TO_NODE,)),
            Column(field="stage", title="Stage", states=STAGES, color="text"),
            Column(
                field="Value #A",
                title="In quarantine",
                unit="s",
                decimals=0,
                thresholds=((None, "text"), (86400, "orange")),
                color="text",
            ),
        ),
        sort="-In quarantine",
        no_value="none",
        width=8,
        height=8,
    ),
    Panel(
        title="Actions",
        kind="timeseries",
        description=(
            "What the remediator did: done, failed, skipped because the world had changed, or observed (it would have, "
            "in mode enforce), but for the renewals of the node's condition. Failed: see API errors and the audit log."
        ),
        queries=(
            Query(
                # the sum first: a union of 60 counters a node takes longer than all the rest
                """(sum by (action, result) (
                        increase(gpuwatch_remediator_actions_total{@node, action!="condition"}[$__rate_interval]))
                    or sum by (action, result) (
                        increase(gpuwatch_remediator_actions_total{
                            @node, action="condition", result!="done"}[$__rate_interval]))) > 0""",
                "{{action}}: {{result}}",
            ),
        ),
        styles=(Style(match=": failed$", color="red"),),
        bars=True,
        stacked=True,
        interval="5m",
        no_value="no actions",
        width=8,
        height=8,
    ),
    Panel(
        title="Blocked, by reason",
        kind="table",
        description=(
            "What keeps the remediator from what it wants now. Observe, hold, maintenance, overruled: by design. "
            "Budget: other nodes need repair first. Permission, api, identity: gpuwatch is set up wrongly."
        ),
        queries=(Query("max by (cluster, node, reason) (gpuwatch_remediator_blocked{@node}) == 1"),),
        columns=(
            Column(field="node", title="Node", links=(TO_NODE,)),
            Column(field="reason", title="Reason", states=REASONS),
        ),
        sort="Node",
        no_value="nothing is blocked",
        width=8,
        height=8,
    ),
    Panel(
        title="Budget",
        kind="timeseries",
        description=(
            "Nodes of the fleet that may be quarantined at once, and that are. At the limit, no further node is "
            "quarantined until one is repaired."
        ),
        queries=(
            Query('max by (cluster) (gpuwatch_remediator_budget_slots{@node, state="used"})', "used {{cluster}}"),
            Query('max by (cluster) (gpuwatch_remediator_budget_slots{@node, state="total"})', "limit {{cluster}}"),
        ),
        styles=(Style(match="^limit", color="red", dashed=True), Style(match="^used", color="orange", fill=30)),
        min=0,
        decimals=0,
        no_value="no budget was read",
        width=8,
        height=8,
    ),
    Panel(
        title="Remediators",
        kind="table",
        description=(
            "Each node's remediator: its mode, and the age of its plan and of the view it planned from. "
            "Above five minutes: it does nothing any more; look at its log."
        ),
        queries=(
            Query(f"time() - max by ({BY_NODE}) (gpuwatch_remediator_plan_timestamp_seconds{{@node}})"),
            Query(f"time() - max by ({BY_NODE}) (gpuwatch_remediator_view_timestamp_seconds{{@node}})"),
            Query(f"max by ({BY_NODE}, mode) (gpuwatch_remediator_mode{{@node}})"),
        ),
        columns=(
            Column(field="node", title="Node", links=(TO_NODE,)),
            Column(field="mode", title="Mode"),
            *(
                Column(
                    field=f"Value #{ref}",
                    title=title,
                    unit="s",
                    decimals=0,
                    thresholds=((None, "green"), (300, "red")),
                    color="text",
                )
                for ref, title in (("A", "Plan"), ("B", "View"))
            ),
        ),
        sort="Node",
        no_value="no remediator",
        width=12,
        height=8,
    ),
    Panel(
        title="API errors",
        kind="timeseries",
        description=(
            "Requests that the API server refused or did not answer, by kind. Forbidden: a right is missing. "
            "Some Conflicts are normal: another client changed the Node first."
        ),
        queries=(
            Query(
                "sum by (error) (increase(gpuwatch_remediator_api_errors_total{@node}[$__rate_interval]))",
                "{{error}}",
            ),
        ),
        bars=True,
        stacked=True,
        interval="5m",
        min=0,
        no_value="no remediator",
        width=12,
        height=8,
    ),
)
