"""What the tuner does with GPUs, what that saves and costs, who else turns their knobs, and the node's power budget."""

from dashboards.source.links import TO_GPU
from dashboards.source.panel import Column, Panel, Query, Style
from dashboards.source.tuning import ENFORCING, TUNING_CODES, TUNING_STYLES, tuning_code

_NONE = "no tuner"
_BY_GPU = "cluster, node, gpu, uuid"
_CODE = tuning_code("@node", _BY_GPU)
_ROWS = f"topk(50, {_CODE} > 0)"
"""GPUs that the tuner has something to report about; those that are tuned come first."""

_JOULES = "increase(gpuwatch_tuner_energy_saved_joules_total{@node}[$__range])"
_USED = "increase(gpuwatch_gpu_energy_joules_total{@node}[$__range])"
_AT_WORK = f"and on (cluster, node) {ENFORCING}"


def _of_rows(family: str, labels: str = "") -> Query:
    series = f"max by ({_BY_GPU}) (gpuwatch_tuner_{family}{{@node{labels}}})"
    return Query(f"{series} and on ({_BY_GPU}) {_ROWS}")


def _stat(title: str, description: str, expr: str, unit: str = "short", alarm: str = "") -> Panel:
    return Panel(
        title=title,
        kind="stat",
        description=description,
        unit=unit,
        queries=(Query(expr),),
        decimals=1 if unit != "short" else 0,
        thresholds=((None, "green"), (1, alarm)) if alarm else (),
        no_value=_NONE,
        width=4,
        height=4,
    )


_NOW = (
    _stat(
        "GPUs tuned",
        "GPUs that are held at a cap now, or rest at their lowest clock. 0 with a tuner that enforces: see Refused.",
        'count(gpuwatch_tuner_state{@node, state=~"holding|verifying|resting"})'
        " or 0 * count(gpuwatch_tuner_mode{@node})",
    ),
    _stat(
        "Energy saved",
        "Joules saved in the time range: what was drawn under caps, and the share that was measured when they were "
        "tried. It is an estimate. Falls to 0 when a tuner is restarted.",
        f"sum({_JOULES}) / 3600000",
        "kwatth",
    ),
    _stat(
        "Share of the energy",
        "Energy saved, of what all GPUs would have drawn without. GPUs that are idle or refused count, too.",
        f"1 / (1 + sum({_USED}) / sum({_JOULES}))",  # saved / (used + saved), each read once
        "percentunit",
    ),
    _stat(
        "Nodes without a guard",
        "Nodes that enforce and whose tuner gets no heartbeat of its guard. Nothing is set there: start the guard.",
        f"count((gpuwatch_tuner_guard_up{{@node}} == 0) {_AT_WORK}) or 0 * count(gpuwatch_tuner_mode{{@node}})",
        alarm="orange",
    ),
    _stat(
        "Nodes stopped",
        "Nodes on which a person has stopped tuning. `gpuwatch tune status` says why, `tune resume` continues.",
        "sum(gpuwatch_tuner_stopped{@node})",
        alarm="blue",
    ),
    _stat(
        "GPUs in conflict",
        "GPUs with a limit or clock that another program has set. gpuwatch leaves them alone. Find that program.",
        f"count(count by ({_BY_GPU}) (gpuwatch_tuner_conflict{{@node}} == 1"
        ' or gpuwatch_tuner_state{@node, reason="conflict"}))'
        " or 0 * count(gpuwatch_tuner_mode{@node})",
        alarm="orange",
    ),
)

_STATES = (
    Panel(
        title="GPUs by what the tuner does",
        kind="timeseries",
        description=(
            "Holding: at a cap that was tried. Searching, verifying: caps take turns with full speed. Eligible: would "
            "be tuned, the mode is observe. All refused: the pods did not opt in, or something is wrong; see beside."
        ),
        queries=(Query("count by (state) (gpuwatch_tuner_state{@node})", "{{state}}"),),
        styles=TUNING_STYLES,
        stacked=True,
        min=0,
        decimals=0,
        no_value=_NONE,
        width=8,
        height=8,
    ),
    Panel(
        title="Refused, by reason",
        kind="bargauge",
        description="GPUs the tuner leaves alone now, by the first reason. docs/tuning.md has what to do about each.",
        queries=(Query('sort_desc(count by (reason) (gpuwatch_tuner_state{@node, state="refused"}))', "{{reason}}"),),
        min=0,
        no_value="none",
        width=8,
        height=8,
    ),
    Panel(
        title="Settings in force, and other people's",
        kind="timeseries",
        description=(
            "Settings gpuwatch has changed and not restored, and GPUs on which a setting is neither the board's "
            "default nor gpuwatch's. It never touches those: find who set them, or reset them."
        ),
        queries=(
            Query("sum by (knob) (gpuwatch_tuner_settings{@node})", "{{knob}}: gpuwatch"),
            Query("sum by (knob) (gpuwatch_tuner_conflict{@node})", "{{knob}}: another program"),
        ),
        styles=(Style(match=": another program$", dashed=True),),
        min=0,
        decimals=0,
        no_value=_NONE,
        width=8,
        height=8,
    ),
)

_GPUS = Panel(
    title="GPUs, tuned ones first",
    kind="table",
    description=(
        "Up to 50 GPUs that are not idle. Slowdown: upper end of the estimate; above the bound for hours is a broken "
        "promise, verifications should raise that cap. No cap while holding: a burst at full speed, for now."
    ),
    queries=(
        Query(_ROWS),
        _of_rows("clock_cap_hertz"),
        _of_rows("power_limit_watts"),
        _of_rows("estimated_slowdown_ratio", ', bound="upper"'),
        _of_rows("promised_slowdown_ratio"),
        Query(f"max by ({_BY_GPU}) ({_JOULES}) / 3600 and on ({_BY_GPU}) {_ROWS}"),
    ),
    columns=(
        Column(field="node", title="Node", width=160),
        Column(field="gpu", title="GPU", links=(TO_GPU,), width=60),
        Column(field="Value #A", title="State", states=TUNING_CODES, color="text", width=110),
        Column(field="Value #B", title="Clock cap", unit="hertz", decimals=2, width=110),
        Column(field="Value #C", title="Limit set", unit="watt", decimals=0, width=110),
        Column(field="Value #D", title="Slowdown at most", unit="percentunit", decimals=1, width=140),
        Column(field="Value #E", title="Promised", unit="percentunit", decimals=1, width=110),
        Column(field="Value #F", title="Saved", unit="watth", decimals=1, width=110),
    ),
    sort="-Saved",
    no_value=_NONE,
    width=24,
    height=9,
)

_COURSE = (
    Panel(
        title="Clock caps in force",
        kind="timeseries",
        description=(
            "The highest, mean and lowest cap on an SM clock that gpuwatch has set. Caps that come and go within "
            "seconds are a search: full and reduced speed take turns. Lowest at half of the clock: idle work, at rest."
        ),
        unit="hertz",
        queries=(
            Query("max(gpuwatch_tuner_clock_cap_hertz{@node})", "highest"),
            Query("avg(gpuwatch_tuner_clock_cap_hertz{@node})", "mean"),
            Query("min(gpuwatch_tuner_clock_cap_hertz{@node})", "lowest"),
        ),
        no_value="no cap in force",
        width=8,
        height=8,
    ),
    Panel(
        title="Slowdown against the promise",
        kind="timeseries",
        description=(
            "The mean estimate, the worst upper end of its 95 % interval, and the least that was promised to any pod. "
            "Promises may differ: whether the worst breaks its own, the table says, and GpuwatchTunerSlowdownOverBound."
        ),
        unit="percentunit",
        queries=(
            Query('avg(gpuwatch_tuner_estimated_slowdown_ratio{@node, bound="estimate"})', "mean"),
            Query('max(gpuwatch_tuner_estimated_slowdown_ratio{@node, bound="upper"})', "worst, upper end"),
            Query("min(gpuwatch_tuner_promised_slowdown_ratio{@node})", "least promised"),
        ),
        styles=(Style(match="^least promised$", color="red", dashed=True),),
        no_value="nothing measured yet",
        width=8,
        height=8,
    ),
    Panel(
        title="Settings changed and restored",
        kind="timeseries",
        description=(
            "Changes by how they went, and settings restored. Restored by the guard: the tuner had died or hung; "
            "look at its log. Failed: a right is missing, or the driver refused."
        ),
        queries=(
            Query(
                "sum by (knob, result) (increase(gpuwatch_tuner_actions_total{@node}[$__rate_interval]))",
                "{{knob}}: {{result}}",
            ),
            Query(
                "sum by (trigger) (increase(gpuwatch_tuner_restores_total{@node}[$__rate_interval]))",
                "restored by {{trigger}}",
            ),
        ),
        bars=True,
        stacked=True,
        interval="5m",
        min=0,
        no_value=_NONE,
        width=8,
        height=8,
    ),
)

_POWER = (
    Panel(
        title="Power: limit and draw",
        kind="timeseries",
        description=(
            "Sum of the factory's power limits, of those in force, and what is drawn. In force below the factory's: "
            "another program lowered limits; without settings in force above, it was not gpuwatch."
        ),
        unit="watt",
        queries=(
            Query('sum(gpuwatch_gpu_power_limit_watts{@node, limit="default"})', "factory"),
            Query('sum(gpuwatch_gpu_power_limit_watts{@node, limit="enforced"})', "in force"),
            Query('sum(gpuwatch_gpu_power_watts{@node, window="average"})', "drawn"),
        ),
        styles=(
            Style(match="^factory$", color="text", dashed=True),
            Style(match="^in force$", color="orange", dashed=True),
            Style(match="^drawn$", color="green", fill=20),
        ),
        min=0,
        width=12,
        height=8,
    ),
    Panel(
        title="Power budgets",
        kind="timeseries",
        interval="1m",
        description=(
            "Nodes with a power budget: how much of it their limits take, and their draw. Limits above 100 % in mode "
            "enforce: GpuwatchPowerBudgetExceeded. In observe nothing is kept, and this is what would have to go."
        ),
        unit="percentunit",
        queries=(
            Query("gpuwatch_tuner_budget_limits_watts{@node} / gpuwatch_tuner_budget_watts{@node}", "{{node}}: limits"),
            Query("gpuwatch_tuner_budget_draw_watts{@node} / gpuwatch_tuner_budget_watts{@node}", "{{node}}: drawn"),
        ),
        styles=(Style(match=": limits$", dashed=True),),
        min=0,
        no_value="no node has a budget",
        width=12,
        height=8,
    ),
)

TUNING = (*_NOW, *_STATES, _GPUS, *_COURSE, *_POWER)
