"""What the node's GPUs send each other and the host, and whether the links are what they should be."""

from dashboards.source.node_now import THIS_GPU
from dashboards.source.node_work import EACH
from dashboards.source.panel import Column, Panel, Query, Section, Style
from dashboards.source.states import FABRIC_STATES, HEALTH, health_code

RECEIVED = (Style(match="in$", dashed=True),)
NOT_ZERO = ((None, "text"), (1, "orange"))


def _rates(family: str) -> tuple[Query, ...]:
    return tuple(
        Query(
            f"sum by (gpu) (rate(gpuwatch_gpu_{family}_{way}_bytes_total{{@gpu}}[$__rate_interval]))", f"{EACH} {word}"
        )
        for way, word in (("transmit", "out"), ("receive", "in"))
    )


def _pcie(what: str, state: str) -> Query:
    return Query(f'max by (node, gpu) (gpuwatch_gpu_pcie_link_{what}{{@gpu, state="{state}"}})')


LINKS = Section(
    "Links",
    (
        Panel(
            title="NVLink traffic",
            kind="timeseries",
            description="Bytes each GPU sends (out) and receives (in, dashed) over all its NVLinks. Ranks of one job "
            "should have the same; one that falls behind holds all the others up.",
            unit="Bps",
            queries=_rates("nvlinks"),
            styles=RECEIVED,
            no_value="No NVLink, or the driver does not count its bytes",
            min=0,
            width=12,
        ),
        Panel(
            title="PCIe traffic",
            kind="timeseries",
            description="Bytes each GPU sends to the host (out) and gets from it (in, dashed). Constantly high: data "
            "is loaded faster than it is used, or a model is swapped in and out.",
            unit="Bps",
            queries=_rates("pcie"),
            styles=RECEIVED,
            no_value="The driver does not count PCIe bytes",
            min=0,
            width=12,
        ),
        Panel(
            title="NVLink errors and PCIe replays",
            kind="timeseries",
            description="Errors in each step, by kind. A few are corrected by sending again and cost little. Many: "
            "bad contact, a bad bridge or switch. `gpuwatch get nvlinks` says which link and where it leads.",
            queries=(
                Query(
                    "sum by (gpu, error) (increase(gpuwatch_gpu_nvlinks_errors_total{@gpu}[$__rate_interval])) > 0",
                    "GPU {{gpu}}: NVLink {{error}}",
                ),
                Query(
                    "sum by (gpu) (increase(gpuwatch_gpu_pcie_replays_total{@gpu}[$__rate_interval])) > 0",
                    "GPU {{gpu}}: PCIe replay",
                ),
            ),
            bars=True,
            no_value="No errors in this time",
            min=0,
            decimals=0,
            width=12,
            height=11,
        ),
        Panel(
            title="Links",
            kind="table",
            description="PCIe: lanes and generation now and at most; fewer lanes under load is a bad slot, riser or "
            "connector, and an idle GPU lowers its generation to save power. NVLinks down: any that leads somewhere "
            "is a fault. Fabric not completed: the GPU cannot reach the others over the NVSwitches; look at the "
            "fabric manager.",
            queries=(
                _pcie("width", "current"),
                _pcie("width", "max"),
                _pcie("generation", "current"),
                _pcie("generation", "max"),
                Query('max by (node, gpu) (gpuwatch_gpu_nvlinks{@gpu, state="up"})'),
                Query(
                    """max by (node, gpu) (gpuwatch_gpu_nvlinks{@gpu, state="down"})
                        unless on (node, gpu) gpuwatch_gpu_mig_mode_enabled{@gpu} == 1"""
                ),
                Query("max by (node, gpu) (gpuwatch_gpu_fabric_state{@gpu})"),
                Query(health_code("gpuwatch_gpu_health", "@gpu", "node, gpu")),
            ),
            columns=(
                Column(field="gpu", title="GPU", links=(THIS_GPU,), width=60),
                Column(field="Value #H", title="Health", states=HEALTH, color="text", width=80),
                Column(field="Value #A", title="Lanes", decimals=0, width=70),
                Column(field="Value #B", title="at most", decimals=0, width=80),
                Column(field="Value #C", title="PCIe gen.", decimals=0, width=80),
                Column(field="Value #D", title="gen. at most", decimals=0, width=100),
                Column(field="Value #E", title="NVLinks up", decimals=0, width=90),
                Column(field="Value #F", title="down", decimals=0, thresholds=NOT_ZERO, color="text", width=70),
                Column(field="Value #G", title="Fabric", states=FABRIC_STATES, color="text"),
            ),
            sort="GPU",
            width=12,
            height=11,
        ),
    ),
    collapsed=True,
)
