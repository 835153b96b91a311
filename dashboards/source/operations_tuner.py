"""What the tuner may set, has set and has given back, and what that does to the power draw."""

from dashboards.source.panel import Panel, Query, Style

_NONE = "no tuner"

TUNING = (
    Panel(
        title="GPUs by what the tuner thinks",
        kind="timeseries",
        description=(
            "Eligible: may be tuned. Idle: nothing to tune. Refused: something stands against it, see beside. "
            "All refused: the pods did not opt in, or a setting is somebody else's."
        ),
        queries=(Query("count by (state) (gpuwatch_tuner_state{@tuner})", "{{state}}"),),
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
        description="GPUs the tuner leaves alone now, by the first reason. `gpuwatch tune status` says it of each GPU.",
        queries=(Query('sort_desc(count by (reason) (gpuwatch_tuner_state{@tuner, state="refused"}))', "{{reason}}"),),
        min=0,
        no_value="none",
        width=8,
        height=8,
    ),
    Panel(
        title="Settings in force, and other people's",
        kind="timeseries",
        description=(
            "Settings gpuwatch has changed and not given back, and GPUs on which a setting is neither the board's "
            "default nor gpuwatch's. It never touches those: find who set them, or reset them."
        ),
        queries=(
            Query("sum by (knob) (gpuwatch_tuner_settings{@tuner})", "{{knob}}: gpuwatch"),
            Query("sum by (knob) (gpuwatch_tuner_conflict{@tuner})", "{{knob}}: somebody else"),
        ),
        styles=(Style(match=": somebody else$", dashed=True),),
        min=0,
        decimals=0,
        no_value=_NONE,
        width=8,
        height=8,
    ),
    Panel(
        title="Settings changed and given back",
        kind="timeseries",
        description=(
            "Changes by how they went, and settings given back. Given back by the guard: the tuner had died or hung; "
            "look at its log. Failed: a right is missing, or the driver refused."
        ),
        queries=(
            Query(
                "sum by (knob, result) (increase(gpuwatch_tuner_actions_total{@tuner}[$__rate_interval]))",
                "{{knob}}: {{result}}",
            ),
            Query(
                "sum by (trigger) (increase(gpuwatch_tuner_restores_total{@tuner}[$__rate_interval]))",
                "given back by {{trigger}}",
            ),
        ),
        bars=True,
        stacked=True,
        interval="5m",
        min=0,
        no_value=_NONE,
        width=12,
        height=8,
    ),
    Panel(
        title="Power: limit and draw",
        kind="timeseries",
        description=(
            "Sum of the factory's power limits, of those in force, and what is drawn. In force below the factory's: "
            "somebody lowered limits; without settings in force above, it was not gpuwatch."
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
)
