"""When each alert has to fire and when not: the table that the unit tests of the rules are made from.

Series are (well, ill), a fault begins in minute 10; `timeline.Case` says the rest. None: the series is not there.
"""

from collections.abc import Mapping
from itertools import chain

from tests.alerts.timeline import FAULT, Case, Value, Values
from tests.alerts.tuning_cases import TUNING

FINDINGS: Mapping[str, tuple[str, ...]] = {
    "GpuwatchMonitoringDegraded": ("monitoring_degraded",),
    "GpuRecoveryActionRequired": ("recovery_action",),
    "GpuRecoveryAdvised": ("recovery_advised",),
    "GpuFellOffBus": ("gpu_lost",),
    "GpuMissing": ("gpu_missing",),
    "GpuNotAllocatable": ("gpu_not_allocatable",),
    "GpuDriverSlow": ("driver_slow",),
    "GpuUnresponsive": ("gpu_unresponsive", "driver_wedged"),
    "GpuXidCritical": ("xid_fatal",),
    "GpuNvswitchFatal": ("sxid_fatal",),
    "GpuXidContained": ("xid_contained",),
    "GpuXidUnconfirmed": ("xid_unconfirmed", "sxid_unconfirmed"),
    "GpuXidWarning": ("xid_warning", "sxid_warning"),
    "GpuXidApplication": ("xid_application",),
    "GpuXidApplicationRepeated": ("xid_application_repeated",),
    "GpuXidUnknown": ("xid_unknown",),
    "GpuEccUncorrectable": ("ecc_uncorrected",),
    "GpuMemoryUnrepairable": ("row_remap_failure", "memory_unrepairable", "ecc_sram_threshold"),
    "GpuRepairPending": ("row_remap_pending", "repair_pending", "retired_pages_pending"),
    "GpuMigChangePending": ("mig_pending",),
    "GpuRetiredPagesHigh": ("retired_pages_limit",),
    "GpuEccCorrectableRateHigh": ("ecc_correctable_rate",),
    "GpuNvlinkDown": ("nvlink_down",),
    "GpuNvlinkErrors": ("nvlink_errors",),
    "GpuFabricUnhealthy": ("fabric_state",),
    "GpuPcieLinkDegraded": ("pcie_degraded",),
    "GpuHardwareSlowdown": ("hw_thermal_slowdown", "hw_power_brake"),
    "GpuThermalHeadroomLow": ("thermal_margin",),
    "GpuClocksStuck": ("clocks_stuck",),
    "GpuInforomCorrupt": ("inforom",),
    "GpuZombieMemory": ("zombie_memory",),
}
"""The checks that each alert covers."""

GPU = {"gpu": "3", "uuid": "GPU-3"}
OF_GPU = 'job="gpuwatch",gpu="3",uuid="GPU-3"'
OF_NODE = 'job="gpuwatch"'
REMEDIATOR = 'job="gpuwatch-remediator"'
NODE_CHECKS = ("gpu_missing", "driver_wedged", "sxid_fatal", "sxid_warning", "sxid_unconfirmed", "monitoring_degraded")


def _finding(check: str) -> str:
    subject = OF_NODE if check in NODE_CHECKS else OF_GPU
    return f'gpuwatch_finding{{{subject},check="{check}",severity="warning"}}'


def _from_finding(alert: str, check: str) -> Case:
    """`GpuThermalHeadroomLow` reads degrees too, so it does not keep the name of the check."""
    gpu = {} if check in NODE_CHECKS else GPU
    name = {} if check == "thermal_margin" else {"check": check}
    return Case(alert, {_finding(check): (None, 1)}, {**gpu, **name}, why=check)


def _severity_changes(alert: str, check: str) -> Case:
    """A finding that gets worse is another series, and the same alert."""
    worse = _finding(check).replace('"warning"', '"critical"')
    half = FAULT + 2
    return Case(
        alert,
        {_finding(check): lambda m: 1 if FAULT <= m < half else None, worse: lambda m: 1 if half <= m < 28 else None},
        {**GPU, "check": check},
        lasts=18,
        why="its severity changes",
    )


FROM_FINDINGS = [_from_finding(alert, check) for alert, checks in FINDINGS.items() for check in checks]


def _source(name: str, reason: str = "") -> str:
    said = f',reason="{reason}"' if reason else ""
    return f'gpuwatch_source_up{{{OF_NODE},source="{name}"{said}}}'


def _seconds(until: int, resumes: int) -> Values:
    """A time stamp that is as new as the scrape, but stands still from `until` to `resumes`."""
    return lambda minute: 60.0 * (until - 1 if until <= minute < resumes else minute)


def grows(by: float, born: float = 0, until: int = 10**6) -> Values:
    """A counter that grows every minute from the fault on."""
    return lambda minute: born + by * max(0, min(minute, until) - FAULT + 1)


CAPACITY = 'kube_node_status_capacity{job="kube-state-metrics",resource="nvidia_com_gpu",node="n1",instance="ksm"}'
MIG_CAPACITY = CAPACITY.replace("nvidia_com_gpu", "nvidia_com_mig_1g_10gb")
UP = f"up{{{OF_NODE}}}"
AGENT_SEEN = f"gpuwatch_snapshot_timestamp_seconds{{{OF_NODE}}}"
GPUS_EXPECTED = f'gpuwatch_gpus{{{OF_NODE},state="expected"}}'
ANOTHER = {
    f'{name}{{node="n2",{OF_NODE}}}': (1.0, 1.0)
    for name in ("up", "gpuwatch_snapshot_timestamp_seconds", "gpuwatch_build_info")
}
"""An agent of the same job."""
MODE = f'gpuwatch_remediator_mode{{{REMEDIATOR},mode="observe"}}'
STARTED = f"process_start_time_seconds{{{OF_NODE}}}"
RESTARTS = f"gpuwatch_reader_restarts_total{{{OF_NODE}}}"
REMEDIATOR_UP = f"up{{{REMEDIATOR}}}"
PLANNED = f"gpuwatch_remediator_plan_timestamp_seconds{{{REMEDIATOR}}}"
LOST_RECORDS = f"gpuwatch_store_lost_records_total{{{OF_NODE}}}"
DROPPED = f"gpuwatch_series_dropped{{{OF_NODE}}}"
KMSG_LOST = f"gpuwatch_kmsg_lost_records_total{{{OF_NODE}}}"
STORE_UP = f"gpuwatch_store_up{{{OF_NODE}}}"

AGENT = [
    Case("GpuwatchDown", {UP: (1, 0), AGENT_SEEN: (1, None)}, why="a scrape fails"),
    Case("GpuwatchDown", {UP: (1, None), AGENT_SEEN: (1, None), CAPACITY: (8, 8)}, why="its pod is gone"),
    Case("GpuwatchDown", {UP: (1, None), AGENT_SEEN: (1, None), MIG_CAPACITY: (7, 7)}, why="its GPUs are cut"),
    Case(
        "GpuwatchDown",
        {UP: (None, 0), **ANOTHER},
        why="it has never answered, and others of its job have",
    ),
    Case(
        "GpuwatchDown",
        {UP: (None, 0), **ANOTHER, f'up{{{OF_NODE},node="",instance="web-1"}}': (1, 1)},
        fires=False,
        why="it has never answered, and all kinds of targets have its job",
    ),
    Case("GpuwatchDown", {UP: (1, None), AGENT_SEEN: (1, None)}, fires=False, why="the node may have gone as well"),
    Case(
        "GpuwatchDown",
        {UP: (1, None), AGENT_SEEN: (1, None), CAPACITY: (8, None)},
        fires=False,
        why="the node has gone as well",
    ),
    Case("GpuwatchDown", {UP: (None, None), CAPACITY: (8, 8)}, fires=False, why="it never was on that node"),
    Case("GpuwatchDown", {UP: (1, 0)}, fires=False, why="a target that never was gpuwatch's"),
    Case("GpuwatchDown", {REMEDIATOR_UP: (1, 0), MODE: (1, None)}, fires=False, why="the remediator's"),
    Case("GpuwatchAbsent", {AGENT_SEEN: (1, None), GPUS_EXPECTED: (8, None)}, target={}),
    Case("GpuwatchAbsent", {AGENT_SEEN: (None, None)}, fires=False, why="it never was on that cluster"),
    Case(
        "GpuwatchNvmlDown",
        {_source("nvml"): (1, None), _source("nvml", "Driver Not Loaded"): (None, 0), _source("kmsg"): (1, 1)},
    ),
    Case(
        "GpuwatchNvmlDown",
        {
            _source("nvml"): (1, None),
            _source("nvml", "a"): lambda m: 0 if FAULT <= m < 13 else None,
            _source("nvml", "b"): lambda m: 0 if 13 <= m < 20 else None,
        },
        why="the reason changes",
    ),
    Case("GpuwatchNvmlDown", {_source("kmsg"): (1, 0), _source("nvml"): (1, 1)}, fires=False, why="another source"),
    Case(
        "GpuwatchSampleStale",
        {f"gpuwatch_snapshot_timestamp_seconds{{{OF_NODE}}}": _seconds(FAULT, 21)},
        delay=1,
        lasts=11,
    ),
    Case(
        "GpuwatchSampleStale",
        {f"gpuwatch_snapshot_timestamp_seconds{{{OF_NODE}}}": lambda minute: 60.0 * minute - 45},
        fires=False,
        why="a slow interval",
    ),
    Case("GpuwatchWorkloadMappingDown", {_source("podresources"): (1, 0)}),
    Case("GpuwatchWorkloadMappingDown", {_source("podresources"): (None, None)}, fires=False, why="switched off"),
    Case("GpuwatchSourceDown", {_source("kmsg"): (1, 0)}, {"source": "kmsg"}),
    Case("GpuwatchSourceDown", {_source("pci"): (1, 0)}, {"source": "pci"}),
    Case("GpuwatchSourceDown", {_source("nvml"): (1, 0), _source("podresources"): (1, 0)}, fires=False, why="theirs"),
    Case("GpuwatchSourceDown", {_source("configuration"): (1, 0)}, fires=False, why="of GpuwatchConfigRejected"),
    Case("GpuwatchMonitoringDegraded", {DROPPED: (0, 40)}, why="its page is too long"),
    Case("GpuwatchMonitoringDegraded", {KMSG_LOST: grows(9, until=11)}, linger=59, lasts=2, why="dmesg is flooded"),
    Case("GpuwatchMonitoringDegraded", {KMSG_LOST: grows(0, born=9), DROPPED: (0, 0)}, fires=False, why="born with 9"),
    Case(
        "GpuwatchRestarting",
        {AGENT_SEEN: (1, 1), STARTED: grows(60, until=16)},
        {"job": "gpuwatch"},
        delay=3,
        linger=53,
        lasts=10,
    ),
    Case(
        "GpuwatchRestarting",
        {AGENT_SEEN: (1, 1), STARTED: grows(60, until=12)},
        fires=False,
        why="an upgrade that took three tries",
    ),
    Case("GpuwatchRestarting", {AGENT_SEEN: (1, 1), STARTED: grows(0, born=1.7e9)}, fires=False, why="born long ago"),
    Case("GpuwatchReaderRestarting", {RESTARTS: grows(1, until=16)}, delay=3, linger=53, lasts=10),
    Case("GpuwatchReaderRestarting", {RESTARTS: grows(0, born=7)}, fires=False, why="born with 7"),
    Case("GpuwatchReaderRestarting", {RESTARTS: grows(1, until=11)}, fires=False, why="two restarts"),
    Case(
        "GpuwatchReaderRestarting",
        {
            RESTARTS: grows(1, until=16),
            _source("nvml", "nvmlInit: Driver Not Loaded"): (None, 0),
            _source("nvml"): lambda m: 1 if m >= 16 else None,
        },
        lasts=6,
        fires=False,
        why="it waits for the driver",
    ),
    Case("GpuwatchStoreDown", {STORE_UP: (1, 0), LOST_RECORDS: (0, 0)}),
    Case("GpuwatchStoreDown", {STORE_UP: (1, 1), LOST_RECORDS: grows(2, until=24)}, lasts=15, linger=14),
    Case("GpuwatchStoreDown", {STORE_UP: (1, 1), LOST_RECORDS: grows(0, born=9)}, fires=False, why="born with 9"),
    Case(
        "GpuwatchConfigRejected",
        {f"gpuwatch_config_last_reload_successful{{{OF_NODE}}}": (1, 0)},
        {"job": "gpuwatch"},
    ),
    Case(
        "GpuwatchConfigRejected",
        {
            f"gpuwatch_config_last_reload_successful{{{OF_NODE}}}": (1, 1),
            f"gpuwatch_remediator_config_last_reload_successful{{{REMEDIATOR}}}": (1, 0),
        },
        {"job": "gpuwatch-remediator"},
    ),
    Case(
        "GpuwatchConfigRejected",
        {'gpuwatch_tuner_config_last_reload_successful{job="gpuwatch-tuner"}': (1, 0)},
        {"job": "gpuwatch-tuner"},
    ),
    Case(
        "GpuwatchRemediatorDown",
        {REMEDIATOR_UP: (1, 0), MODE: (1, None), PLANNED: lambda m: None if FAULT <= m < FAULT + 15 else 60.0 * m},
        lasts=15,
    ),
    Case(
        "GpuwatchConfigRejected",
        {f"gpuwatch_config_last_reload_successful{{{OF_NODE}}}": (1, 1)},
        fires=False,
        why="the file is in use",
    ),
    Case(
        "GpuwatchRemediatorDown",
        {REMEDIATOR_UP: (1, 1), MODE: (1, 1), PLANNED: _seconds(FAULT, 35)},
        delay=5,
        lasts=25,
        why="no plans",
    ),
    Case(
        "GpuwatchRemediatorDown",
        {MODE: lambda m: 1 if m >= FAULT else None, PLANNED: lambda m: 60.0 * m if m >= 25 else None},
        lasts=15,
        why="it never made a plan",
    ),
    Case("GpuwatchRemediatorDown", {REMEDIATOR_UP: (None, None), UP: (1, 1)}, fires=False, why="not installed"),
]

MARGIN = f"gpuwatch_gpu_temperature_margin_celsius{{{OF_GPU}}}"
SLOWDOWN = f'gpuwatch_gpu_temperature_threshold_celsius{{{OF_GPU},threshold="slowdown"}}'
TEMPERATURE = f'gpuwatch_gpu_temperature_celsius{{{OF_GPU},sensor="gpu"}}'
MEMORY = f'gpuwatch_gpu_temperature_celsius{{{OF_GPU},sensor="memory"}}'

HEAT = [
    Case("GpuThermalHeadroomLow", {MARGIN: (30, 3)}, GPU),
    Case("GpuThermalHeadroomLow", {SLOWDOWN: (90, 90), TEMPERATURE: (60, 87), MEMORY: (60, 60)}, GPU),
    Case(
        "GpuThermalHeadroomLow",
        {MARGIN: (30, 30), SLOWDOWN: (90, 90), TEMPERATURE: (60, 89)},
        fires=False,
        why="its own margin counts",
    ),
    Case("GpuThermalHeadroomLow", {TEMPERATURE: (60, 95)}, fires=False, why="no threshold is known"),
    Case("GpuThermalHeadroomLow", {SLOWDOWN: (90, 90), MEMORY: (60, 95)}, fires=False, why="the memory is hot"),
]

MHZ = 1e6


def _rank(
    gpu: int, series: str, values: Values, pod: str = "train-0", model: str = "H100", **more: str
) -> dict[str, Values]:
    """One reading of a GPU, what it is, and the pod that has it."""
    where = f'job="gpuwatch",gpu="{gpu}",uuid="GPU-{gpu}"'
    own = "".join(f',{label}="{value}"' for label, value in more.items())
    return {
        f"{series}{{{where}{own}}}": values,
        f'gpuwatch_gpu_workload_info{{{where},namespace="ml",pod="{pod}",container="main"}}': (1, 1),
        f'gpuwatch_gpu_info{{{where},model="{model}"}}': (1, 1),
    }


def _ranks(
    clocks: tuple[Value, Value], activity: tuple[Value, Value], peers: int = 3, pods: int = 1, model: str = "H100"
) -> dict[str, Values]:
    """GPU 3, a `model`, and its peers: H100 whose clock is 1980 MHz and whose SM activity is 0.9."""
    found: dict[str, Values] = {}
    for gpu in range(3 - peers, 4):
        slow = gpu == 3
        pod = f"train-{gpu % pods}"
        clock: Values = clocks if slow else (1980 * MHZ, 1980 * MHZ)
        active: Values = activity if slow else (0.9, 0.9)
        what = model if slow else "H100"
        found |= _rank(gpu, "gpuwatch_gpu_clock_hertz", clock, pod, what, domain="sm")
        found |= _rank(gpu, "gpuwatch_gpu_sm_active_ratio", active, pod, what)
    return found


def _moved(series: Mapping[str, Values]) -> dict[str, Values]:
    """The same until the fault, from another `instance`."""
    return {name.replace("{", '{instance="10.0.0.7:9400",'): lambda m: 1 if m < FAULT else None for name in series}


RANK = {**GPU, "namespace": "ml", "owner": "train", "model": "H100"}
ALLOCATED = f"gpuwatch_gpu_allocated{{{OF_GPU}}}"
SM_ACTIVE = f"gpuwatch_gpu_sm_active_ratio{{{OF_GPU}}}"
UTILIZATION = f"gpuwatch_gpu_utilization_ratio{{{OF_GPU}}}"
MIG = 'gi="2",profile="1g.10gb"'
MIG_ALLOCATED = f"gpuwatch_gpu_allocated{{{OF_GPU},{MIG}}}"
MIG_ACTIVE = f"gpuwatch_gpu_sm_active_ratio{{{OF_GPU},{MIG}}}"

WORKLOAD = [
    # a mean over five minutes needs four bad ones to sink by 15 %, and two good ones to rise again
    Case(
        "GpuStraggler",
        _ranks((1980 * MHZ, 1400 * MHZ), (0.9, 0.9)),
        {**RANK, "kind": "pod", "name": "train-0", "reading": "sm_clock"},
        delay=3,
        linger=2,
        why="its clock is low",
    ),
    Case(
        "GpuStraggler",
        _ranks((1980 * MHZ, 1980 * MHZ), (0.9, 0.6), pods=2),
        {**RANK, "kind": "pod", "name": "train-1", "reading": "activity"},
        delay=2,
        linger=3,
        why="it works less than those of both pods",
    ),
    Case(
        "GpuStraggler",
        {**_ranks((1980 * MHZ, 1400 * MHZ), (0.9, 0.9)), **_moved(_ranks((1980 * MHZ,) * 2, (0.9, 0.9)))},
        {**RANK, "kind": "pod", "name": "train-0", "reading": "sm_clock"},
        delay=3,
        linger=2,
        why="before the fault each had another address",
    ),
    Case("GpuStraggler", _ranks((1980 * MHZ,) * 2, (0.9, 0.9)), fires=False, why="all are alike"),
    Case("GpuStraggler", _ranks((1410 * MHZ,) * 2, (0.9, 0.9), model="A100"), fires=False, why="another model"),
    Case("GpuStraggler", _ranks((1980 * MHZ, 1800 * MHZ), (0.9, 0.8)), fires=False, why="a bit slower"),
    Case("GpuStraggler", _ranks((1980 * MHZ, 300 * MHZ), (0.9, 0.0)), fires=False, why="left idle, not slow"),
    Case("GpuStraggler", _ranks((1980 * MHZ, 1400 * MHZ), (0.9, 0.9), peers=1), fires=False, why="one peer only"),
    Case("GpuStraggler", _ranks((1980 * MHZ, 1400 * MHZ), (None, None)), fires=False, why="activity is not known"),
    Case(
        "GpuStraggler",
        {
            **_rank(0, "gpuwatch_gpu_sm_active_ratio", (0.9, 0.9)),
            **_rank(1, "gpuwatch_gpu_sm_active_ratio", (0.7, 0.7)),
            **_rank(2, "gpuwatch_gpu_sm_active_ratio", (0.5, 0.5)),
            **_rank(3, "gpuwatch_gpu_sm_active_ratio", (0.3, 0.3)),
        },
        fires=False,
        why="they are not in step",
    ),
    Case(
        "GpuStraggler",
        {
            **_ranks((1980 * MHZ, 1400 * MHZ), (0.9, 0.9)),
            f'gpuwatch_gpu_workload_info{{{OF_GPU},namespace="ml",pod="other"}}': (1, 1),
        },
        fires=False,
        why="another pod shares it",
    ),
    # nobody is idle before a whole window of ten minutes is
    Case("GpuAllocatedIdle", {ALLOCATED: (1, 1), SM_ACTIVE: (0.5, 0)}, GPU, delay=10),
    Case("GpuAllocatedIdle", {ALLOCATED: (1, 1), UTILIZATION: (0.5, 0)}, GPU, delay=10),
    Case("GpuAllocatedIdle", {ALLOCATED: (0, 1), SM_ACTIVE: (0, 0)}, GPU, why="never used"),
    Case(
        "GpuAllocatedIdle",
        {MIG_ALLOCATED: (1, 1), MIG_ACTIVE: (0.5, 0)},
        {**GPU, "gi": "2", "profile": "1g.10gb"},
        delay=10,
    ),
    Case(
        "GpuAllocatedIdle",
        {ALLOCATED: (1, 1), SM_ACTIVE: lambda m: None if m == 90 else 0.0 if FAULT <= m < 210 else 0.5},
        GPU,
        delay=10,
        lasts=200,
        why="one scrape was missed",
    ),
    Case(
        "GpuAllocatedIdle",
        {ALLOCATED: lambda m: None if m == 90 else float(FAULT <= m < 150), SM_ACTIVE: (0, 0)},
        GPU,
        lasts=140,
        why="nobody said for a minute who has it",
    ),
    Case("GpuAllocatedIdle", {ALLOCATED: (0, 0), SM_ACTIVE: (0, 0)}, lasts=200, fires=False, why="nobody has it"),
    Case("GpuAllocatedIdle", {ALLOCATED: (1, 1)}, lasts=200, fires=False, why="activity is not known"),
    Case("GpuAllocatedIdle", {ALLOCATED: (1, 1), SM_ACTIVE: (0.02, 0.02)}, lasts=200, fires=False, why="it works"),
]


def _blocked(reason: str) -> str:
    return f'gpuwatch_remediator_blocked{{{REMEDIATOR},reason="{reason}"}}'


QUARANTINED = f"gpuwatch_remediator_quarantined{{{REMEDIATOR}}}"
WAITING = ("mode", "hold", "rate", "maintenance", "opt_out", "acknowledged", "foreign", "unconfirmed", "repair")
"""Reasons of the remediator to wait that nobody has to do anything about."""
STUCK = (
    "budget", "budget_unreadable", "identity", "stale", "permission", "api", "pdb", "protected", "deadline", "held",
    "validation",
)  # fmt: skip
"""Those a person has to look at."""
DAY = 24 * 60
HOUR = 60


def _toggles(times: int) -> Values:
    """Quarantined and released, each for an hour, so many changes from the fault on."""
    return lambda minute: float(max(0, min((minute - FAULT) // HOUR + 1, times)) % 2)


SICK = [
    f'ALERTS{{alertname="GpuXidCritical",alertstate="firing",gpu="0",node="n{n}",instance="n{n}"}}' for n in range(7)
]
WIDESPREAD = {"fault": "GpuXidCritical"}


def _sick(nodes: int, of: int, why: str = "", fault: str = "GpuXidCritical") -> Case:
    """So many nodes of a fleet have the same alert."""
    up: dict[str, Values] = {
        f'gpuwatch_snapshot_timestamp_seconds{{{OF_NODE},node="n{n}",instance="n{n}"}}': (1, 1) for n in range(of)
    }
    there = {name.replace("GpuXidCritical", fault): (None, 1) for name in SICK[:nodes]}
    return Case("GpuFaultWidespread", {**up, **there}, WIDESPREAD, lasts=20, fires=not why, why=why, target={})


FLEET = [
    _sick(7, of=7),
    _sick(7, of=130),
    _sick(5, of=7, why="a few nodes"),
    _sick(7, of=150, why="a small part of them"),
    _sick(7, of=7, why="each is to be replaced", fault="GpuMemoryUnrepairable"),
]

REMEDIATION = [
    *(Case("GpuRemediationBlocked", {_blocked(reason): (0, 1)}, {"reason": reason}) for reason in STUCK),
    *(
        Case(
            "GpuRemediationBlocked",
            {_blocked(reason): (0, 1)},
            lasts=30,
            fires=False,
            why=f"{reason} is a reason to wait",
        )
        for reason in WAITING
    ),
    Case("GpuNodeQuarantined", {QUARANTINED: (0, 1)}),
    Case("GpuNodeQuarantined", {QUARANTINED: (0, 0)}, lasts=30, fires=False, why="it is not quarantined"),
    Case(
        "GpuNodeQuarantined",
        {
            f'gpuwatch_remediator_quarantined{{{REMEDIATOR},instance="n1:9401"}}': (0, 1),
            f'gpuwatch_remediator_boot_info{{{REMEDIATOR},instance="n1:9401",boot_id="b1"}}': (1, 1),
            'gpuwatch_boot_info{job="gpuwatch",instance="n1:9400",boot_id="b1"}': (1, 1),
            'gpuwatch_boot_info{job="gpuwatch",instance="n2:9400",boot_id="b2"}': (1, 1),
        },
        {"instance": "n1:9400"},
        target={},
        why="without the label node it is of the agent's target",
    ),
    Case("GpuNodeQuarantinedLong", {QUARANTINED: (0, 1)}),
    Case(
        "GpuNodeQuarantinedLong",
        {QUARANTINED: lambda m: None if 600 <= m < 620 else float(FAULT <= m < FAULT + DAY + 5)},
        why="the node was rebooted in between",
    ),
    Case("GpuNodeQuarantinedLong", {QUARANTINED: (0, 1)}, lasts=DAY - 1, fires=False, why="a minute less"),
    # the seventh change comes after six hours; the first leaves the window after a day
    Case("GpuRemediationFlapping", {QUARANTINED: _toggles(7)}, delay=6 * HOUR, lasts=DAY),
    Case("GpuRemediationFlapping", {QUARANTINED: _toggles(6)}, lasts=DAY, fires=False, why="three quarantines"),
    Case("GpuRemediationFlapping", {QUARANTINED: (1, 1)}, lasts=HOUR, fires=False, why="born quarantined"),
]


def _restarted(alert: str, check: str, minute: int, gap: int = 2) -> Case:
    """The agent is restarted in that minute, while the finding is there."""

    def there(at: int) -> Value:
        return 1 if FAULT <= at < FAULT + 90 and not minute <= at < minute + gap else None

    return Case(alert, {_finding(check): there}, {**GPU, "check": check}, lasts=90, why="the agent is restarted")


RESTARTED = [
    _restarted("GpuRepairPending", "row_remap_pending", FAULT + 75),
    _restarted("GpuPcieLinkDegraded", "pcie_degraded", FAULT + 45),
    _restarted("GpuZombieMemory", "zombie_memory", FAULT + 45),
    _restarted("GpuXidCritical", "xid_fatal", FAULT + 45),
]

CASES = [
    *FROM_FINDINGS,
    *RESTARTED,
    _severity_changes("GpuXidContained", "xid_contained"),
    *AGENT,
    *HEAT,
    *WORKLOAD,
    *FLEET,
    *REMEDIATION,
    *TUNING,
]
OTHER_FINDINGS = [
    Case(
        alert,
        {_finding(check): (None, 1) for check in chain(*FINDINGS.values()) if check not in checks},
        lasts=90,
        fires=False,
        why="findings of other checks",
    )
    for alert, checks in FINDINGS.items()
]
