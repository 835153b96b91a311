"""Rows of METRICS about the agent, the node, identities and faults: all that is no reading of one GPU."""

from functools import partial

from gpuwatch.metrics.metric import Key, Metric, MetricContext, Parts, Sample, Samples, distinct, node, summed
from gpuwatch.model.finding import Finding, Health, Remedy, Severity
from gpuwatch.model.snapshot import GpuState, SourceStatus

Row = Metric[MetricContext]
WORST_FIRST = tuple(reversed(Severity))
_node = partial(Row, scope="node")


def _sources(get: str, *labels: str) -> Samples[MetricContext]:
    """One value of every source that is switched on."""

    def rows(context: MetricContext) -> Parts:
        on: list[SourceStatus] = [source for source in context.view.snapshot.sources if source.up is not None]
        return ((tuple(getattr(source, label) for label in ("name", *labels)), getattr(source, get)) for source in on)

    return node(rows)


def _agent(get: str) -> Samples[MetricContext]:
    return node(lambda context: [((), getattr(context.view.agent, get))])


def _gpus(context: MetricContext) -> Parts:
    snapshot, judgement = context.view.snapshot, context.view.judgement
    yield ("expected",), snapshot.expected_gpus
    yield ("bus",), None if snapshot.bus is None else len(snapshot.bus)
    yield ("nvml",), sum(status.state != GpuState.LOST for status in snapshot.statuses)
    yield ("healthy",), sum(health == Health.HEALTHY for health in judgement.gpus.values())


def _gpu_info(context: MetricContext) -> list[Sample]:
    return distinct(
        (
            subject,
            (
                gpu.name,
                gpu.pci_bus_id,
                None if gpu.minor is None else f"nvidia{gpu.minor}",
                gpu.serial,
                gpu.vbios,
                gpu.architecture,
                gpu.compute_capability,
            ),
        )
        for subject, gpu in context.identities
    )


def _gpu_place(context: MetricContext) -> list[Sample]:
    """One series for each GPU of which the driver states any part of the place."""
    places = (
        (subject, (gpu.chassis_serial, gpu.slot, gpu.tray, gpu.host, gpu.module)) for subject, gpu in context.identities
    )
    return distinct(
        (subject, tuple(None if part is None else str(part) for part in place))
        for subject, place in places
        if any(part is not None for part in place)
    )


def _in_state(state: GpuState) -> Samples[MetricContext]:
    return lambda context: [((subject, ()), status.state == state) for subject, status in context.statuses]


def _findings(context: MetricContext) -> list[Sample]:
    """One series for each check and GPU, however many XIDs are behind it; of several severities the worst."""
    worst: dict[tuple[str | None, str], Severity] = {}
    for finding in context.view.judgement.findings:
        key = finding.gpu, finding.check
        worst[key] = min(worst.get(key, finding.severity), finding.severity, key=WORST_FIRST.index)
    return distinct(
        (context.subject(gpu) if gpu else "", (check, severity.value)) for (gpu, check), severity in worst.items()
    )


def _finding_info(context: MetricContext) -> list[Sample]:
    """One series for each check and GPU, so that it can be joined: of several XIDs the one with the gravest remedy."""
    gravest: dict[tuple[str | None, str], Finding] = {}
    for finding in context.view.judgement.findings:
        known = gravest.setdefault((finding.gpu, finding.check), finding)
        if _gravity(finding) > _gravity(known):
            gravest[finding.gpu, finding.check] = finding
    return distinct(
        (
            context.subject(finding.gpu) if finding.gpu else "",
            (finding.check, finding.severity.value, finding.remedy.value, finding.action, finding.caused_by),
        )
        for finding in gravest.values()
    )


def _gravity(finding: Finding) -> tuple[int, int, bool]:
    return tuple(Severity).index(finding.severity), tuple(Remedy).index(finding.remedy), finding.caused_by is None


def _xid_last(context: MetricContext) -> list[Sample]:
    newest: dict[Key, float] = {}
    for key, row in context.xids:
        if row.last is not None:
            newest[key] = max(row.last, newest.get(key, row.last))
    return list(newest.items())


AGENT: tuple[Row, ...] = (
    _node(
        "snapshot_timestamp_seconds",
        "When the node was last sampled.",
        node(lambda context: [((), context.view.snapshot.at)]),
        owned=True,
    ),
    _node(
        "source_up",
        "Whether the source answers; absent when it is switched off.",
        _sources("up", "reason"),
        ("source", "reason"),
    ),
    _node("source_duration_seconds", "Time the source took last.", _sources("duration_seconds"), ("source",)),
    _node(
        "source_last_success_timestamp_seconds",
        "When the source last answered.",
        _sources("last_success"),
        ("source",),
        owned=True,
    ),
    _node("source_failures_total", "Failures of the source.", _sources("failures"), ("source",), owned=True),
    _node("reader_restarts_total", "New reader processes after the first.", _agent("reader_restarts"), owned=True),
    _node("kmsg_lost_records_total", "Kernel log records overwritten unread.", _agent("kmsg_lost"), owned=True),
    _node(
        "support_cases",
        "Support bundles and bug reports that are kept of critical faults.",
        node(lambda context: [((), len(context.view.support_cases))]),
    ),
    _node("unknown_xid_errors_total", "XIDs that no catalogue knows.", _agent("unknown_xids"), owned=True),
    _node(
        "config_last_reload_successful",
        "Whether the configuration in the file is the one in use.",
        node(lambda context: [((), context.view.agent.config_error is None)]),
        owned=True,
    ),
)
"""The agent and its sources."""

HEALTH: tuple[Row, ...] = (
    _node("gpus", "GPUs that should be here, are on the bus, are known to NVML, are healthy.", node(_gpus), ("state",)),
    Row(
        "gpu_health",
        "Health of the GPU: 1 for the state it is in.",
        lambda context: [
            ((context.subject(uuid), (state.value,)), health == state)
            for uuid, health in context.view.judgement.gpus.items()
            for state in Health
        ],
        ("state",),
        states=True,
    ),
    _node(
        "node_health",
        "Health of the node: 1 for the state it is in.",
        node(lambda context: (((state.value,), context.view.judgement.node == state) for state in Health)),
        ("state",),
        states=True,
    ),
    Row("finding", "A check that found something.", _findings, ("check", "severity"), scope="any"),
    Row(
        "finding_info",
        "What a finding asks for: a rung of the ladder of remedies, what to do first, the finding that explains it.",
        _finding_info,
        ("check", "severity", "remedy", "action", "caused_by"),
        scope="any",
        is_gauge=True,
    ),
    Row("gpu_unresponsive", "Whether the GPU keeps driver calls waiting.", _in_state(GpuState.UNRESPONSIVE)),
    Row("gpu_lost", "Whether the GPU was here and is gone.", _in_state(GpuState.LOST)),
)
"""Findings and health."""

XIDS: tuple[Row, ...] = (
    Row(
        "gpu_xid_errors_total",
        "XIDs since the agent started.",
        lambda context: summed((key, row.count) for key, row in context.xids),
        ("xid",),
        owned=True,
    ),
    Row("gpu_xid_last_timestamp_seconds", "When the XID was last seen.", _xid_last, ("xid",), owned=True),
    _node(
        "nvswitch_sxid_errors_total",
        "SXids since the agent started.",
        lambda context: summed(
            (("", (str(row.switch), str(row.sxid), row.severity)), row.count) for row in context.view.sxids
        ),
        ("switch", "sxid", "severity"),
        owned=True,
    ),
)
"""Faults that the driver reported."""

IDENTITY: tuple[Row, ...] = (
    _node(
        "driver_info",
        "Versions of the driver.",
        node(lambda context: [((d.version, d.cuda, d.nvml), 1)] if (d := context.view.snapshot.driver) else ()),
        ("driver", "cuda", "nvml"),
    ),
    _node(
        "boot_info",
        "The boot of the machine: it joins what agent and remediator say of it, whatever their targets are called.",
        node(lambda context: [((boot,), 1)] if (boot := context.view.snapshot.host.boot_id) else ()),
        ("boot_id",),
    ),
    _node(
        "confidential_computing_enabled",
        "Whether the node's GPUs run in confidential computing; `debug`: development tools may look inside.",
        node(
            lambda context: [
                ((str(bool(d.confidential_debug)).lower(),), d.confidential)
                for d in [context.view.snapshot.driver]
                if d and d.confidential is not None
            ]
        ),
        ("debug",),
    ),
    Row(
        "gpu_info",
        "What the GPU is.",
        _gpu_info,
        ("model", "pci_bus_id", "device", "serial", "vbios", "architecture", "compute_capability"),
        owned=True,
    ),
    Row(
        "gpu_place_info",
        "Where the GPU is: chassis, slot, tray, host in the tray, module on its baseboard.",
        _gpu_place,
        ("chassis_serial", "slot", "tray", "host", "module"),
    ),
    Row(
        "mig_info",
        "A compute instance of a GPU instance, and its MIG device.",
        lambda context: distinct(
            (context.subject(gpu.identity.uuid, mig.gi), (str(mig.ci), mig.uuid or None))
            for _, gpu in context.gpus
            for mig in gpu.mig
        ),
        ("ci", "mig_uuid"),
        scope="instance",
    ),
)
"""Names to join with."""
