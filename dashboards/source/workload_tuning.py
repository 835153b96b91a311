"""What tuning saves the chosen workloads, and what it costs them."""

from dashboards.source.held import BY_GPU, HELD, KILOWATT_HOURS, by_workload, of_twenty, sampled
from dashboards.source.panel import Panel, Query, Section, Style
from dashboards.source.tuning import TUNING_CODES
from dashboards.source.workload_use import TO_NODE

_RANK = "{{name}}: {{node}} GPU {{gpu}}"
_NONE = "None of these GPUs is tuned"


_SAVED = "workload:gpuwatch_tuner_energy_saved_joules:rate5m{@workload}"
_HIGHEST, _OTHERS = by_workload(_SAVED)
_SAVED_HOURS = f"sum({sampled('sum_over_time', _SAVED)}) / 12 / 1000"
_USED_HOURS = f"sum({KILOWATT_HOURS})"


_UPPER = 'gpuwatch_tuner_estimated_slowdown_ratio{@node, bound="upper"}'
_PROMISED = f"gpuwatch_tuner_promised_slowdown_ratio{{@node}} and on ({BY_GPU}) {HELD}"

TUNING = Section(
    "What does tuning save, and cost?",
    (
        Panel(
            title="Energy saved",
            kind="stat",
            description="By caps on clocks and limits while they held their GPUs, in the time range. An "
            "estimate: what was drawn, and the share that was measured when the cap was tried.",
            unit="kwatth",
            queries=(Query(_SAVED_HOURS),),
            decimals=1,
            no_value=_NONE,
            width=4,
            height=8,
        ),
        Panel(
            title="Share of the energy",
            kind="stat",
            description="Energy saved, of what they would have used without. Little: they are refused, see what "
            "the tuner does; or their work needs the clock.",
            unit="percentunit",
            queries=(Query(f"{_SAVED_HOURS} / ({_SAVED_HOURS} + {_USED_HOURS})"),),
            decimals=1,
            no_value=_NONE,
            width=4,
            height=8,
        ),
        Panel(
            title="Power saved, the 20 highest",
            kind="timeseries",
            interval="1m",
            description="Watts less than at full speed, while caps are held. Steps down to 0: a cap was lifted, as the "
            "work changed, something was wrong, or another one came.",
            unit="watt",
            queries=(Query(_HIGHEST, "{{namespace}}/{{name}}"), Query(_OTHERS, "all others")),
            stacked=True,
            min=0,
            no_value=_NONE,
            width=16,
            height=8,
        ),
        Panel(
            title="Slowdown of the 20 slowest, against the bound",
            kind="timeseries",
            interval="1m",
            description="Upper end of the estimated slowdown (95 %) of each GPU, and the least that was promised. "
            "Above the dashed line for hours: notify the operator, or set `gpuwatch.io/autotune: off` on the pod.",
            unit="percentunit",
            queries=(
                Query(of_twenty("topk", _UPPER), _RANK),
                Query(f"min({_PROMISED})", "promised"),
            ),
            styles=(Style(match="^promised$", color="red", dashed=True),),
            links=(TO_NODE,),
            no_value=_NONE,
            width=12,
            height=9,
        ),
        Panel(
            title="What the tuner does with 20 of them",
            kind="state-timeline",
            interval="1m",
            description="Refused: something stands against it, or the pod did not opt in; `gpuwatch tune status` on "
            "the node says what. Eligible: would be tuned, but the mode is observe. Searching costs a little speed.",
            queries=(Query(of_twenty("topk", "gpu:gpuwatch_tuner_state:code{@node}"), _RANK),),
            states=TUNING_CODES,
            no_value="No tuner looks at these GPUs",
            width=12,
            height=9,
        ),
    ),
    collapsed=True,
)
