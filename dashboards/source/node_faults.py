"""What the node's GPUs reported: XIDs, memory errors and their repairs."""

from dashboards.source.node_now import HOLDER, THIS_GPU, THIS_POD
from dashboards.source.panel import Column, Link, Panel, Query, Section
from dashboards.source.states import (
    HEALTH,
    RECOVERY_ACTIONS,
    XID_CODES,
    XID_MEANINGS,
    XID_STYLES,
    YES_NO,
    health_code,
    xid_events,
)

CATALOGUE = Link("NVIDIA's catalogue", "https://docs.nvidia.com/deploy/xid-errors/analyzing-xid-catalog.html")
SEEN = """label_replace(max by (node, gpu, xid) (gpuwatch_gpu_xid_last_timestamp_seconds{@gpu}) * 1000,
    "meaning", "$1", "xid", "(.*)")"""
ERRORS = ((None, "text"), (1, "orange"))
BROKEN = ((None, "text"), (1, "red"))


def _ecc(kind: str, scope: str) -> str:
    matchers = f'gi="", location="total", type="{kind}", scope="{scope}"'
    return f"max by (node, gpu) (gpuwatch_gpu_ecc_errors_total{{@gpu, {matchers}}})"


def _worst(*families: str) -> str:
    return "max by (node, gpu) (" + " or ".join(f"{family}{{@gpu}}" for family in families) + ")"


FAULTS = Section(
    "Faults",
    (
        Panel(
            title="XIDs",
            kind="table",
            description="Each XID of each GPU since the agent started: when last, how often, and the pod that has "
            "the GPU now. Red: the GPU needs a reset or worse. Blue: the application's own fault. `gpuwatch xid "
            "explain CODE` says what to do. Empty is good.",
            queries=(
                Query(
                    f"""{SEEN} * on (node, gpu) group_left (namespace, pod) {HOLDER} ^ 0
                    or on (node, gpu, xid) {SEEN}"""
                ),
                Query("max by (node, gpu, xid) (gpuwatch_gpu_xid_errors_total{@gpu}) > 0"),
            ),
            columns=(
                Column(field="Value #A", title="Last", unit="dateTimeFromNow", width=140),
                Column(field="gpu", title="GPU", links=(THIS_GPU,), width=60),
                Column(field="xid", title="XID", states=XID_CODES, color="text", links=(CATALOGUE,), width=60),
                Column(field="meaning", title="Meaning", states=XID_MEANINGS),
                Column(field="Value #B", title="Times", decimals=0, width=70),
                Column(field="namespace", title="Namespace", width=130),
                Column(field="pod", title="Pod", links=(THIS_POD,), width=220),
            ),
            sort="-Last",
            no_value="No XIDs since the agent started",
            width=24,
            height=7,
        ),
        Panel(
            title="XIDs over time",
            kind="timeseries",
            description="XIDs in each step, by code. A single 13, 31, 43 or 45 is a crashed program; the same on one "
            "GPU with different programs is the GPU. Any of 48, 63, 64, 74, 79, 94, 95, 119: see the table.",
            queries=(
                Query(
                    xid_events("@gpu", "gpu", "$__rate_interval"),
                    "GPU {{gpu}}: XID {{xid}}",
                ),
            ),
            styles=XID_STYLES,
            bars=True,
            stacked=True,
            interval="5m",
            no_value="No XIDs in this time",
            min=0,
            decimals=0,
            width=12,
            height=7,
        ),
        Panel(
            title="Memory errors over time",
            kind="timeseries",
            description="ECC errors in each step. Corrected ones in the hundreds: the GPU wears out, watch it. Any "
            "uncorrected one: data was lost, the work that was hit must be run again, and the GPU wants a reset.",
            queries=(
                Query(
                    """sum by (gpu, type) (increase(gpuwatch_gpu_ecc_errors_total{
                        @gpu, gi="", scope="volatile", location="total"}[$__rate_interval])) > 0""",
                    "GPU {{gpu}}: {{type}}",
                ),
            ),
            bars=True,
            no_value="No memory errors in this time",
            min=0,
            decimals=0,
            width=12,
            height=7,
        ),
        Panel(
            title="Memory and recovery",
            kind="table",
            description="The state of each GPU's memory. Uncorrected, volatile: reset the GPU when its work is done. "
            "Remap or repair pending: the same. Remap failed or unrepairable: replace the GPU. No spares: banks "
            "without spare rows: the next fault there cannot be repaired. Wants: what the driver asks for. Retired "
            "pages: Volta and older; rows: Ampere and newer. Absent: the GPU does not report it.",
            queries=(
                Query(_worst("gpuwatch_gpu_recovery_action")),
                Query(_ecc("corrected", "volatile")),
                Query(_ecc("uncorrected", "volatile")),
                Query(_ecc("corrected", "aggregate")),
                Query(_ecc("uncorrected", "aggregate")),
                Query("sum by (node, gpu) (gpuwatch_gpu_row_remaps_total{@gpu})"),
                Query(
                    _worst(
                        "gpuwatch_gpu_row_remap_pending",
                        "gpuwatch_gpu_retired_pages_pending",
                        "gpuwatch_gpu_repair_pending",
                    )
                ),
                Query(
                    _worst(
                        "gpuwatch_gpu_row_remap_failure",
                        "gpuwatch_gpu_memory_unrepairable",
                        "gpuwatch_gpu_ecc_sram_threshold_exceeded",
                    )
                ),
                Query('max by (node, gpu) (gpuwatch_gpu_row_remap_banks{@gpu, availability="none"})'),
                Query("sum by (node, gpu) (gpuwatch_gpu_retired_pages{@gpu})"),
                Query(health_code("gpuwatch_gpu_health", "@gpu", "node, gpu")),
            ),
            columns=(
                Column(field="gpu", title="GPU", links=(THIS_GPU,), width=60),
                Column(field="Value #K", title="Health", states=HEALTH, color="text", width=80),
                Column(field="Value #A", title="Wants", states=RECOVERY_ACTIONS, color="text", width=138),
                Column(field="Value #B", title="Corrected", decimals=0, width=138),
                Column(field="Value #C", title="Uncorrected", decimals=0, thresholds=BROKEN, color="text", width=138),
                Column(field="Value #D", title="Corr., ever", decimals=0, width=138),
                Column(
                    field="Value #E", title="Uncorrected, ever", decimals=0, thresholds=ERRORS, color="text", width=138
                ),
                Column(field="Value #F", title="Rows remapped", decimals=0, thresholds=ERRORS, color="text", width=138),
                Column(field="Value #G", title="Repair pending", states=YES_NO, color="text", width=138),
                Column(field="Value #H", title="Beyond repair", states=YES_NO, color="text", width=138),
                Column(field="Value #I", title="No spares", decimals=0, thresholds=ERRORS, color="text", width=138),
                Column(field="Value #J", title="Retired pages", decimals=0, thresholds=ERRORS, color="text", width=138),
            ),
            sort="GPU",
            width=24,
            height=11,
        ),
    ),
    collapsed=True,
)
