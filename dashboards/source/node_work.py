"""How fast the node's GPUs run and what holds them back; what they work on."""

from dashboards.source.node_now import HEADROOM, HEADROOM_BOUNDS
from dashboards.source.panel import Panel, Query, Section, Style
from dashboards.source.states import CLOCK_STATES, CLOCK_STYLES, clock_event_code

LIMIT = (Style(match="^limit|^highest", color="red", dashed=True),)
"""A dashed line that the others should be held against."""
EACH = "GPU {{gpu}}"


def _busy(family: str, of_instance: str = "") -> str:
    """A ratio of each GPU; where it is cut into MIG, that of its instances, each weighed by its part of the memory."""
    parts = """gpuwatch_gpu_memory_total_bytes{@gpu, gi!=""}
        / on (cluster, node, gpu, uuid) group_left () gpuwatch_gpu_memory_total_bytes{@gpu, gi=""}"""
    whole = "@gpu" if of_instance else '@gpu, gi=""'
    return f"""max by (cluster, node, gpu, uuid) (gpuwatch_{family}{{{whole}}})
        or sum by (cluster, node, gpu, uuid) (gpuwatch_{of_instance or family}{{@gpu, gi!=""}}
            * on (cluster, node, gpu, uuid, gi) group_left () ({parts}))"""


SLOW = Section(
    "Why is it slow?",
    (
        Panel(
            title="What holds the clocks down",
            kind="state-timeline",
            description="The worst reason in force, for each GPU. Idle and power limit are normal. Heat: see the "
            "headroom, look at fans, filters and inlet. Heat by hardware and power brake halve the clocks: act now. "
            "Hardware without a further reason is mostly the power supply.",
            queries=(Query(clock_event_code("@gpu", "gpu"), EACH),),
            states=CLOCK_STATES,
            width=12,
            height=9,
        ),
        Panel(
            title="GPUs with clocks held down, by reason",
            kind="timeseries",
            description="GPUs whose clocks were held down, by reason, as the driver counts the time: it sees what "
            "lies between two scrapes. Only power limit should be large, and only under load.",
            queries=(
                Query(
                    """sum by (reason) (rate(gpuwatch_gpu_clock_event_seconds_total{
                        @gpu, reason!~"low_utilization|thermal"}[$__rate_interval]))""",
                    "{{reason}}",
                ),
            ),
            styles=CLOCK_STYLES,
            stacked=True,
            min=0,
            decimals=1,
            width=12,
            height=9,
        ),
        Panel(
            title="SM clock",
            kind="timeseries",
            description="Clock of the multiprocessors; dashed, the highest it can have. One GPU below the others "
            "at the same work is a straggler: the timeline above says why. Low on all: power limit or idle.",
            unit="hertz",
            queries=(
                Query('max by (gpu) (gpuwatch_gpu_clock_hertz{@gpu, domain="sm"})', EACH),
                Query('max(gpuwatch_gpu_clock_max_hertz{@gpu, domain="sm"})', "highest"),
            ),
            styles=LIMIT,
            min=0,
            width=8,
        ),
        Panel(
            title="Power",
            kind="timeseries",
            description="Draw of each GPU, mean between two reads where the driver has samples, else its running "
            "average; dashed, the lowest limit in force. At the limit, work is slower than it could be: that may be "
            "what you want. `gpuwatch describe gpu` says who set the limit.",
            unit="watt",
            queries=(
                Query(
                    """max by (gpu) (gpuwatch_gpu_power_watts{@gpu, window="mean"}
                        or on (cluster, node, gpu, uuid) gpuwatch_gpu_power_watts{@gpu, window="average"})""",
                    EACH,
                ),
                Query('min(gpuwatch_gpu_power_limit_watts{@gpu, limit="enforced"})', "limit"),
            ),
            styles=LIMIT,
            min=0,
            width=8,
        ),
        Panel(
            title="Headroom to the slowdown",
            kind="timeseries",
            description="Degrees until the GPU slows itself down, as it states them, or its own threshold less its "
            "temperature. At 0 it slows down, below that the hardware halves the clocks. Below 5: look at fans, "
            "filters and inlet. One GPU alone: its heat sink.",
            unit="celsius",
            queries=(Query(HEADROOM.replace("by (node, gpu)", "by (gpu)"), EACH),),
            thresholds=HEADROOM_BOUNDS,
            width=8,
        ),
    ),
)

WORK = Section(
    "Work",
    (
        Panel(
            title="Busy, and how busy: mean of the GPUs",
            kind="timeseries",
            description="Utilization: share of time in which anything ran. SM: multiprocessors at work. Tensor: "
            "tensor cores. DRAM: memory moving data. High utilization and low SM: small kernels, waits for data or "
            "for other ranks. High DRAM and low tensor: memory-bound. SM, tensor and DRAM need Hopper or newer. "
            "A GPU that is cut into MIG counts as the sum of its instances, each by its part of the memory. "
            "Choose one GPU above to see it alone.",
            unit="percentunit",
            queries=(
                Query(f"avg({_busy('gpu_utilization_ratio', 'gpu_sm_active_ratio')})", "utilization"),
                Query(f"avg({_busy('gpu_sm_active_ratio')})", "SM"),
                Query(f"avg({_busy('gpu_tensor_active_ratio')})", "tensor"),
                Query(f"avg({_busy('gpu_dram_active_ratio')})", "DRAM"),
            ),
            min=0,
            max=1,
            width=12,
        ),
        Panel(
            title="Activity of each GPU",
            kind="timeseries",
            description="SM activity; utilization on GPUs before Hopper, which overstates: it is high with one busy "
            "multiprocessor. GPUs of one job should lie on each other; one below the others waits or is slow.",
            unit="percentunit",
            queries=(
                Query(
                    """max by (gpu) (gpuwatch_gpu_sm_active_ratio{@gpu, gi=""}
                        or on (cluster, node, gpu, uuid) gpuwatch_gpu_utilization_ratio{@gpu})""",
                    EACH,
                ),
            ),
            min=0,
            max=1,
            width=12,
        ),
        Panel(
            title="Memory used",
            kind="timeseries",
            description="Device memory allocated; dashed, what the smallest GPU has. Near the line: the next "
            "allocation fails. Memory without activity: a process holds the GPU and does not use it.",
            unit="bytes",
            queries=(
                Query('max by (gpu) (gpuwatch_gpu_memory_used_bytes{@gpu, gi=""})', EACH),
                Query('min(gpuwatch_gpu_memory_total_bytes{@gpu, gi=""})', "limit"),
            ),
            styles=LIMIT,
            min=0,
            width=8,
        ),
        Panel(
            title="Tensor cores",
            kind="timeseries",
            description="Share of cycles in which the tensor cores worked. Training and large models live here: near "
            "0 while the SMs are busy means FP32 work, or a precision the tensor cores do not do. Hopper and newer.",
            unit="percentunit",
            queries=(Query('max by (gpu) (gpuwatch_gpu_tensor_active_ratio{@gpu, gi=""})', EACH),),
            no_value="Needs Hopper or newer",
            min=0,
            max=1,
            width=8,
        ),
        Panel(
            title="Memory traffic",
            kind="timeseries",
            description="Share of cycles in which device memory moved data; on GPUs before Hopper the driver's "
            "memory utilization. Above 0.6 the work is bound by memory, and higher clocks will not help it.",
            unit="percentunit",
            queries=(
                Query(
                    """max by (gpu) (gpuwatch_gpu_dram_active_ratio{@gpu, gi=""}
                        or on (cluster, node, gpu, uuid) gpuwatch_gpu_memory_utilization_ratio{@gpu})""",
                    EACH,
                ),
            ),
            min=0,
            max=1,
            width=8,
        ),
    ),
)
