"""What right-sizing recommends for the chosen namespaces, and what that would free."""

from dashboards.source.links import TO_NAMESPACE, TO_NODE
from dashboards.source.panel import Column, Panel, Query, Section, State, Style
from dashboards.source.states import spoken
from gpuwatch.rightsizing.model.recommendation import FindingKind, RecommendedAction

_CHOSEN = '@node, namespace=~"$namespace"'
_HOURS = f"gpuwatch_recommendation_gpu_hours_per_day{{{_CHOSEN}}}"
_FREED = f'gpuwatch_recommendation_gpu_hours_per_day{{{_CHOSEN}, kind!~"quota_slack|steady_load|mig_layout"}}'
"""Without what is about room for GPUs: whoever leaves that room is in it already."""
_TARGET = "cluster, node, namespace, workload, container, kind, action, confidence"
KINDS = tuple(State(kind, spoken(kind)) for kind in FindingKind)
KIND_STYLES = tuple(Style(match=f"^{kind}$", name=spoken(kind)) for kind in FindingKind)
_ACTIONS = tuple(State(action, spoken(action)) for action in RecommendedAction)
_NONE = "Nothing is recommended; see how many workloads are still being learned"

RIGHTSIZING = Section(
    "What could be released: right-sizing",
    (
        Panel(
            title="GPUs to free",
            kind="stat",
            description="As many GPUs would be free if every recommendation were followed: GPU-hours a day, divided by "
            "24. An estimate. Each agent names the dearest only (`rightsizing.top`).",
            queries=(Query(f"sum({_FREED}) / 24"),),
            decimals=1,
            no_value="None",
            width=4,
            height=8,
        ),
        Panel(
            title="Cost of these a day",
            kind="stat",
            description="The same GPU-hours times the price of one, which is set on top. It is saved only when others "
            "use the GPUs, or the node is released.",
            unit="currencyUSD",
            queries=(Query(f"sum({_FREED}) * $price"),),
            decimals=0,
            no_value="None",
            width=4,
            height=8,
        ),
        Panel(
            title="Still being learned",
            kind="stat",
            description="Of all namespaces: workloads that were not seen for long enough, or with gaps. Of their size "
            "nothing is recommended before a day of history, a week where users may wait. For ever many: pods "
            "live too short, or agents restart without their state directory.",
            queries=(Query('sum(gpuwatch_rightsizing_workloads{@node, state="learning"})'),),
            decimals=0,
            no_value="No agent looks at sizes",
            width=4,
            height=8,
        ),
        Panel(
            title="GPU-hours a day that could be freed, by finding",
            kind="timeseries",
            description="Idle and never used GPUs can be taken back at once, after asking; the others need another "
            "size. A step down: the owner followed it, or the work came back.",
            unit="none",
            queries=(Query(f"sum by (kind) ({_FREED})", "{{kind}}"),),
            styles=KIND_STYLES,
            stacked=True,
            min=0,
            no_value=_NONE,
            width=12,
            height=8,
        ),
        Panel(
            title="Recommendations",
            kind="table",
            description="Dearest first. On the node, `gpuwatch recommend` says why, on what evidence and at what risk, "
            "and `gpuwatch recommend -o apply` prints the commands. Nothing is ever applied by itself.",
            queries=(
                Query(f"max by ({_TARGET}) ({_HOURS})"),
                Query(f"max by ({_TARGET}) ({_HOURS}) * $price"),
            ),
            columns=(
                Column(field="kind", title="Finding", states=KINDS, width=140),
                Column(field="namespace", title="Namespace", width=160),
                Column(field="workload", title="Workload", links=(TO_NAMESPACE,)),
                Column(field="container", title="Container", width=140),
                Column(field="node", title="Node", width=140, links=(TO_NODE,)),
                Column(field="action", title="What to do", states=_ACTIONS, width=150),
                Column(field="confidence", title="Confidence", width=110),
                Column(field="Value #A", title="GPU-hours a day", unit="none", decimals=1, width=140),
                Column(field="Value #B", title="Cost a day", unit="currencyUSD", decimals=0, width=110),
            ),
            sort="-GPU-hours a day",
            no_value=_NONE,
            width=24,
            height=8,
        ),
    ),
)
