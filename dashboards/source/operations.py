"""Is gpuwatch itself right, and what did it do?"""

from dashboards.source.operations_agent import AGENTS, COST, STORE
from dashboards.source.operations_remediator import REMEDIATION
from dashboards.source.operations_tuner import TUNING
from dashboards.source.panel import Board, Panel, Query, Section, Style
from dashboards.source.selectors import OF_AGENTS, of_gpuwatch
from dashboards.source.variables import CLUSTER, DATASOURCE, NODE

HEADLINES = (
    Panel(
        title="Agents up",
        kind="stat",
        description="Share of agents that answer. Below 100 %: a node is not watched; see the table of agents.",
        unit="percentunit",
        queries=(Query(f"avg{of_gpuwatch('up{@node}', OF_AGENTS)}"),),
        thresholds=((None, "red"), (1, "green")),
        width=4,
        height=4,
    ),
    Panel(
        title="Oldest sample",
        kind="stat",
        description="Age of the oldest snapshot of all agents that answer. Above a minute: that agent's driver hangs.",
        unit="s",
        queries=(Query("max(time() - gpuwatch_snapshot_timestamp_seconds{@node})"),),
        decimals=0,
        thresholds=((None, "green"), (60, "red")),
        width=4,
        height=4,
    ),
    Panel(
        title="Sources down",
        kind="stat",
        description="Sources that are switched on and do not answer, over all nodes. Their metrics are missing.",
        queries=(Query("count(gpuwatch_source_up{@node} == 0) or vector(0)"),),
        thresholds=((None, "green"), (1, "orange")),
        width=4,
        height=4,
    ),
    Panel(
        title="Findings",
        kind="stat",
        description="What checks find now, notes of severity info included.",
        queries=(Query("count(gpuwatch_finding{@node}) or vector(0)"),),
        width=4,
        height=4,
    ),
    Panel(
        title="Nodes blocked",
        kind="stat",
        description=(
            "Nodes where the remediator wants more than it may do. In mode observe that is every sick node. "
            "Otherwise a person is needed; see Blocked, by reason."
        ),
        queries=(
            Query(
                "count(max by (cluster, node) (gpuwatch_remediator_blocked{@node}) == 1)"
                " or sum(0 * gpuwatch_remediator_quarantined{@node})"
            ),
        ),
        thresholds=((None, "green"), (1, "orange")),
        no_value="no remediator",
        width=4,
        height=4,
    ),
    Panel(
        title="Configurations refused",
        kind="stat",
        description="Agents, remediators and tuners that refused their configuration file. Their log says why.",
        queries=(
            Query(
                "count(gpuwatch_config_last_reload_successful{@node} == 0"
                " or gpuwatch_remediator_config_last_reload_successful{@node} == 0"
                " or gpuwatch_tuner_config_last_reload_successful{@node} == 0) or vector(0)"
            ),
        ),
        thresholds=((None, "green"), (1, "orange")),
        width=4,
        height=4,
    ),
)

JUDGEMENT = (
    Panel(
        title="Findings by check",
        kind="bargauge",
        description="GPUs and nodes each check finds something on. One check everywhere at once: suspect the check.",
        queries=(Query("sort_desc(count by (check, severity) (gpuwatch_finding{@node}))", "{{check}} ({{severity}})"),),
        styles=(Style(match="critical", color="red"), Style(match="warning", color="orange")),
        min=0,
        no_value="no findings",
        width=8,
        height=9,
    ),
    Panel(
        title="Findings over time",
        kind="timeseries",
        description="The same over time. One that comes and goes has a threshold too near to normal: docs/checks.md.",
        queries=(Query("count by (check) (gpuwatch_finding{@node})", "{{check}}"),),
        stacked=True,
        min=0,
        decimals=0,
        no_value="no findings",
        width=8,
        height=9,
    ),
    Panel(
        title="Unknown XIDs and lost kernel records",
        kind="timeseries",
        description=(
            "XIDs that this version has no meaning for, and kernel log lines overwritten before they were read. "
            "Either may hide a fault: update gpuwatch; find what floods the kernel log."
        ),
        queries=(
            Query(
                "sum by (node) (increase(gpuwatch_unknown_xid_errors_total{@node}[$__rate_interval]))", "{{node}}: XID"
            ),
            Query(
                "sum by (node) (increase(gpuwatch_kmsg_lost_records_total{@node}[$__rate_interval]))", "{{node}}: lost"
            ),
        ),
        min=0,
        interval="5m",
        legend="hidden",
        width=8,
        height=9,
    ),
)

BOARD = Board(
    uid="gpuwatch-operations",
    title="gpuwatch / Operations",
    description="Is gpuwatch itself right, and what did it do?",
    variables=(DATASOURCE, CLUSTER, NODE),
    sections=(
        Section("Now", HEADLINES),
        Section("What it finds", JUDGEMENT),
        Section("What it does: remediation", REMEDIATION),
        Section("What it does: tuning", TUNING, collapsed=True),
        Section("Agents and their sources", AGENTS),
        Section("What it costs", COST),
        Section("Events, configuration, web server", STORE, collapsed=True),
    ),
)
