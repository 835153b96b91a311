"""The agents: what they run, what their sources say, what they cost, and what they keep."""

from dashboards.source.expressions import BY_NODE
from dashboards.source.links import SERIES_NODE, TO_NODE
from dashboards.source.panel import Column, Panel, Query, State, Style
from dashboards.source.selectors import OF_AGENTS, of_gpuwatch

UP = (State("0", "down", "red"), State("1", "up", "green"))

AGENTS = (
    Panel(
        title="Agents",
        kind="table",
        description=(
            "One row a node: whether its agent answers, how old its newest sample is, which versions it runs, how often"
            " its reader of the driver was started again. More than one version: an update is under way, or stuck."
        ),
        queries=(
            Query(f"max by ({BY_NODE}) {of_gpuwatch('up{@node}', OF_AGENTS)}"),
            Query(f"time() - max by ({BY_NODE}) (gpuwatch_snapshot_timestamp_seconds{{@node}})"),
            Query(f"max by ({BY_NODE}, version) (gpuwatch_build_info{{@node}})"),
            Query(f"max by ({BY_NODE}, driver) (gpuwatch_driver_info{{@node}})"),
            Query(f"time() - max by ({BY_NODE}) {of_gpuwatch('process_start_time_seconds{@node}', OF_AGENTS)}"),
            Query(f"sum by ({BY_NODE}) (increase(gpuwatch_reader_restarts_total{{@node}}[$__range]))"),
        ),
        columns=(
            Column(field="node", title="Node", links=(TO_NODE,)),
            Column(field="Value #A", title="Agent", states=UP, color="text"),
            Column(
                field="Value #B",
                title="Sample",
                unit="s",
                decimals=0,
                thresholds=((None, "green"), (60, "red")),
                color="text",
            ),
            Column(field="version", title="gpuwatch"),
            Column(field="driver", title="Driver"),
            Column(field="Value #E", title="Running for", unit="s", decimals=0),
            Column(
                field="Value #F",
                title="Reader restarts",
                decimals=0,
                thresholds=((None, "text"), (3, "orange")),
                color="text",
            ),
        ),
        sort="Node",
        width=14,
        height=9,
    ),
    Panel(
        title="Sources that do not answer",
        kind="table",
        description=(
            "Sources that are switched on and down, and why. nvml: the driver. podresources: the kubelet's socket; "
            "workloads are unknown without it. kmsg: the kernel log; XIDs then come from NVML alone."
        ),
        queries=(Query(f"max by ({BY_NODE}, source, reason) (gpuwatch_source_up{{@node}}) == 0"),),
        columns=(
            Column(field="node", title="Node", links=(TO_NODE,)),
            Column(field="source", title="Source"),
            Column(field="reason", title="Reason"),
        ),
        sort="Node",
        no_value="all sources answer",
        width=10,
        height=9,
    ),
    Panel(
        title="Time sources take",
        kind="timeseries",
        description="The slowest node's time for each source. nvml that gets slower over days: a driver about to hang.",
        unit="s",
        queries=(Query("max by (source) (gpuwatch_source_duration_seconds{@node})", "{{source}}"),),
        min=0,
        width=8,
        height=8,
    ),
    Panel(
        title="Failures of sources",
        kind="timeseries",
        description="Attempts to read a source that failed. Some at a restart of driver or kubelet are normal.",
        queries=(
            Query("sum by (source) (increase(gpuwatch_source_failures_total{@node}[$__rate_interval]))", "{{source}}"),
        ),
        bars=True,
        stacked=True,
        interval="5m",
        min=0,
        width=8,
        height=8,
    ),
    Panel(
        title="Age of samples",
        kind="timeseries",
        interval="1m",
        description=(
            "Age of each node's newest snapshot. It saws between zero and the scrape interval; "
            "a straight rise is a driver that does not answer."
        ),
        unit="s",
        queries=(Query(f"time() - max by ({BY_NODE}) (gpuwatch_snapshot_timestamp_seconds{{@node}})", "{{node}}"),),
        min=0,
        links=(SERIES_NODE,),
        legend="hidden",
        width=8,
        height=8,
    ),
)

COST = (
    Panel(
        title="CPU, of one core",
        kind="timeseries",
        description="What each process of gpuwatch uses. The agent of eight GPUs should stay near 1 %.",
        unit="percentunit",
        queries=(
            Query(
                f"max by (job) {of_gpuwatch('rate(process_cpu_seconds_total{@node}[$__rate_interval])')}",
                "{{job}}: most",
            ),
            Query(
                f"avg by (job) {of_gpuwatch('rate(process_cpu_seconds_total{@node}[$__rate_interval])')}",
                "{{job}}: mean",
            ),
        ),
        decimals=2,
        width=6,
        height=8,
    ),
    Panel(
        title="Memory",
        kind="timeseries",
        description="Resident memory of each process of gpuwatch. It should be flat; the pod's limit is 256 MiB.",
        unit="bytes",
        queries=(
            Query(f"max by (job) {of_gpuwatch('process_resident_memory_bytes{@node}')}", "{{job}}: most"),
            Query(f"avg by (job) {of_gpuwatch('process_resident_memory_bytes{@node}')}", "{{job}}: mean"),
        ),
        min=0,
        width=6,
        height=8,
    ),
    Panel(
        title="Series per scrape",
        kind="timeseries",
        description=(
            "Samples of each scrape, the largest page and the sum: what your Prometheus has to keep. "
            "Too many: metrics.max_series, or metrics.processes: false."
        ),
        queries=(
            Query(f"max by (job) {of_gpuwatch('scrape_samples_scraped{@node}')}", "{{job}}: most"),
            Query(f"sum{of_gpuwatch('scrape_samples_scraped{@node}')}", "all"),
        ),
        styles=(Style(match="^all$", dashed=True, right_axis=True),),
        min=0,
        width=6,
        height=8,
    ),
    Panel(
        title="Time of a scrape",
        kind="timeseries",
        description="The slowest scrape. Pages are made beforehand: this is the network, or a node under load.",
        unit="s",
        queries=(Query(f"max by (job) {of_gpuwatch('scrape_duration_seconds{@node}')}", "{{job}}"),),
        min=0,
        width=6,
        height=8,
    ),
)

STORE = (
    Panel(
        title="Stores not writing",
        kind="stat",
        description="Agents that cannot write events: a restart loses them. The disk is full, or mounted read-only.",
        queries=(Query("count(gpuwatch_store_up{@node} == 0) or sum(0 * gpuwatch_store_up{@node})"),),
        thresholds=((None, "green"), (1, "orange")),
        no_value="no state_dir",
        width=4,
        height=8,
    ),
    Panel(
        title="Events lost, files set aside",
        kind="timeseries",
        description="Events that could not be written, and store files that could not be read and were put aside.",
        queries=(
            Query(
                "sum by (node) (increase(gpuwatch_store_lost_records_total{@node}[$__rate_interval]))", "{{node}}: lost"
            ),
            Query(
                "sum by (node) (increase(gpuwatch_store_set_aside_total{@node}[$__rate_interval]))", "{{node}}: aside"
            ),
        ),
        interval="5m",
        min=0,
        legend="hidden",
        width=6,
        height=8,
    ),
    Panel(
        title="Configuration in use",
        kind="state-timeline",
        description=(
            "Nodes whose agent refused its configuration file at some time in the range, and runs with the one before. "
            "Its log says which key is wrong."
        ),
        queries=(
            Query(
                f"""max by ({BY_NODE}) (gpuwatch_config_last_reload_successful{{@node}}) and on ({BY_NODE})
                    (min_over_time(gpuwatch_config_last_reload_successful{{@node}}[$__range] @ end()) == 0)""",
                "{{node}}",
            ),
        ),
        states=(State("0", "refused", "red"), State("1", "in use", "green")),
        no_value="every file was accepted",
        width=6,
        height=8,
    ),
    Panel(
        title="Responses of the agents",
        kind="timeseries",
        description="Requests by status. 401, 403: a client lacks the right. 503: too many requests at once.",
        unit="reqps",
        queries=(Query("sum by (code) (rate(gpuwatch_http_requests_total{@node}[$__rate_interval]))", "{{code}}"),),
        min=0,
        width=4,
        height=8,
    ),
    Panel(
        title="Refused, failed, dropped",
        kind="timeseries",
        description=(
            "Requests refused by reason, pages that failed, certificates that could not be read again, and series left "
            "out because of metrics.max_series. All should be zero."
        ),
        queries=(
            Query(
                "sum by (reason) (increase(gpuwatch_http_rejected_requests_total{@node}[$__rate_interval]))",
                "{{reason}}",
            ),
            Query("sum(increase(gpuwatch_http_handler_errors_total{@node}[$__rate_interval]))", "pages that failed"),
            Query("sum(increase(gpuwatch_web_config_reload_failures_total{@node}[$__rate_interval]))", "certificates"),
            Query("sum(gpuwatch_series_dropped{@node})", "series dropped"),
        ),
        interval="5m",
        min=0,
        width=4,
        height=8,
    ),
)
