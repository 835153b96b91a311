"""CASES: what happens to which simulated node, and which alerts must come of it. One row a case."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from tests.e2e.alert_stage import Stage

Fault = dict[str, Any] | Callable[["Stage", str], None]
"""An action of the simulator, or something done to gpuwatch's own processes on a node."""

NODES: dict[str, dict[str, Any]] = {
    "well": {"node": {"gpus": 4}, "workloads": [("train", [0, 1, 2, 3])]},
    "memory": {"node": {"gpus": 8}, "workloads": [("train", [0, 1, 2, 3, 4, 5, 6])]},
    "links": {"node": {"gpus": 8}, "workloads": [("train", [1, 2, 3, 4]), ("solo", [5]), ("hot", [7])]},
    "xids": {"node": {"gpus": 5}, "workloads": [("train", [0, 1, 2, 3]), ("solo", [4])]},
    "forged": {"node": {"gpus": 1}, "workloads": [("train", [0])], "remediator": "enforce"},
    "hung": {"node": {"gpus": 2}, "workloads": [("train", [0, 1])]},
    "switch": {"node": {"gpus": 2}, "workloads": [("train", [0, 1])]},
    "old": {"node": {"gpus": 1, "model": "t4"}, "workloads": [("train", [0])]},
    "shared": {"node": {"gpus": 2, "replicas": 3}, "workloads": [("a", ["0::0"]), ("b", ["0::1"]), ("c", ["0::2"])]},
    "blind": {"node": {"gpus": 1}, "remediator": "observe"},
    "unmapped": {"node": {"gpus": 1}, "workloads": [("train", [0])]},
    "mistaken": {"node": {"gpus": 1}},
    "short": {"node": {"gpus": 2}, "late": True, "config": {"agent": {"expected_gpus": 3}}},
    "north": {"node": {"gpus": 2}, "workloads": [("train", [0, 1])], "remediator": "enforce"},
    "south": {"node": {"gpus": 2}, "workloads": [("train", [0, 1])], "remediator": "enforce"},
}
"""Node -> its machine, the GPUs of its pods, and what runs there besides the agent. `late`: joins as its fault."""


class Case(NamedTuple):
    """One row. `gpus`: what of the node it is about, `""` being the node as a whole; alerts about anything else belong
    to other cases or are wrong. An expected alert is of the first of `gpus` unless it says which: `GpuUnresponsive@1`.
    """

    story: str
    node: str
    gpus: tuple[str, ...]
    faults: tuple[Fault, ...]
    notified: tuple[str, ...] = ()
    held_back: tuple[str, ...] = ()
    after: tuple[str, str] | None = None  # node and alert that must have been told before
    lasts: dict[str, str] = {}  # alert -> why it does not resolve within the test


def end_all(stage: "Stage", node: str) -> None:
    """Neither agent nor remediator runs any more."""
    stage.end(node)


def mistake(stage: "Stage", node: str) -> None:
    """Somebody makes a typing error in the configuration."""
    file = stage.place / node / "gpuwatch.yaml"
    file.write_text('{"metrics": {"proflies": ["native"]}}')


def join(stage: "Stage", node: str) -> None:
    """The node comes up and is scraped from now on."""
    stage.begin(node)


def link_is_down(stage: "Stage", node: str) -> None:
    """The agent has read it: until then nothing confirms the switch's line in the kernel log."""
    stage.wait_until_found(node, "nvlink_down")


def _idle_pod(gpu: int) -> dict[str, Any]:
    return {"do": "start", "workload": {"name": "team/notebook", "gpus": [gpu], "load": "idle", "memory": 0.2}}


CASES = (
    Case("nothing happens", "well", ("", "0", "1", "2", "3"), ()),
    Case(
        "falls off the bus (XID 79)",
        "xids",
        ("4",),
        ({"do": "lose", "gpu": 4},),
        notified=("GpuFellOffBus",),
        held_back=("GpuXidCritical",),
    ),
    Case(
        "uncontained memory error, the driver asks for a reset",
        "memory",
        ("3",),
        (
            {"do": "recovery_action", "gpu": 3, "action": 1},
            {"do": "ecc", "gpu": 3, "kind": "uncorrected"},
            {"do": "xid", "gpu": 3, "xid": 95},
        ),
        notified=("GpuRecoveryActionRequired",),
        held_back=("GpuXidCritical", "GpuEccUncorrectable"),
    ),
    Case(
        "contained memory error, a row remap waits",
        "memory",
        ("0",),
        (
            {"do": "ecc", "gpu": 0, "kind": "uncorrected"},
            {"do": "remap", "gpu": 0},
            {"do": "xid", "gpu": 0, "xid": 94},
        ),
        notified=("GpuXidContained",),
        held_back=("GpuEccUncorrectable", "GpuRepairPending"),
    ),
    Case(
        "no spare row is left",
        "memory",
        ("1",),
        ({"do": "remap", "gpu": 1, "failure": True, "pending": False},),
        notified=("GpuMemoryUnrepairable",),
        held_back=("GpuXidCritical",),
    ),
    Case(
        "1,200 corrected memory errors",
        "memory",
        ("2",),
        ({"do": "ecc", "gpu": 2, "kind": "corrected", "count": 1200},),
        notified=("GpuEccCorrectableRateHigh",),
    ),
    Case(
        "the driver advises to drain peer-to-peer work",
        "memory",
        ("4",),
        ({"do": "recovery_action", "gpu": 4, "action": 3},),
        notified=("GpuRecoveryAdvised",),
    ),
    Case("corrupt infoROM", "memory", ("5",), ({"do": "inforom", "gpu": 5},), notified=("GpuInforomCorrupt",)),
    Case(
        "a TPC waits for its repair",
        "memory",
        ("6",),
        ({"do": "repair", "gpu": 6, "tpc": True},),
        notified=("GpuRepairPending",),
    ),
    Case(
        "a notebook holds a GPU and does nothing",
        "memory",
        ("7",),
        (_idle_pod(7),),
        notified=("GpuAllocatedIdle",),
    ),
    Case(
        "a link goes down",
        "links",
        ("0",),
        ({"do": "nvlink", "gpu": 0, "link": 7, "active": False},),
        notified=("GpuNvlinkDown",),
    ),
    Case(
        "1,200 CRC errors of a link",
        "links",
        ("1",),
        ({"do": "nvlink", "gpu": 1, "link": 2, "errors": {"crc": 1200}},),
        notified=("GpuNvlinkErrors",),
    ),
    Case(
        "8 lanes instead of 16",
        "links",
        ("2",),
        ({"do": "pcie", "gpu": 2, "width": 8},),
        notified=("GpuPcieLinkDegraded",),
    ),
    Case(
        "cannot join its fabric",
        "links",
        ("3",),
        ({"do": "fabric", "gpu": 3, "state": 2},),
        notified=("GpuFabricUnhealthy",),
    ),
    Case(
        "clocks stuck in the middle of a job",
        "links",
        ("4",),
        ({"do": "stuck_clock", "gpu": 4, "megahertz": 345},),
        notified=("GpuClocksStuck", "GpuStraggler"),
        lasts={"GpuStraggler": "a mean of five minutes"},
    ),
    Case("power brake", "links", ("5",), ({"do": "power_brake", "gpu": 5},), notified=("GpuHardwareSlowdown",)),
    Case(
        "its cooling fails",
        "links",
        ("7",),
        # So slowly that the cause is there long before the slowdown: the power brake's alert has begun the message that
        # a second slowdown on this node joins without a wait.
        ({"do": "thermal", "gpu": 7, "ambient": 60, "cooling": 0.6},),
        notified=("GpuThermalHeadroomLow",),
        held_back=("GpuHardwareSlowdown",),
    ),
    Case("memory without an owner", "links", ("6",), ({"do": "zombie", "gpu": 6},), notified=("GpuZombieMemory",)),
    Case(
        "an application faults (XID 31)",
        "xids",
        ("0",),
        ({"do": "xid", "gpu": 0, "xid": 31},),
        notified=("GpuXidApplication",),
    ),
    Case(
        "applications of three pods fault on one GPU (XID 13)",
        "shared",
        ("0",),
        ({"do": "xid", "gpu": 0, "xid": 13},),
        notified=("GpuXidApplicationRepeated", "GpuXidApplication"),
        lasts={"GpuXidApplicationRepeated": "counts for a day"},
    ),
    Case(
        "a line that the driver does not confirm (XID 79)",
        "forged",
        ("0",),
        ({"do": "xid", "gpu": 0, "xid": 79, "event": False},),
        notified=("GpuXidUnconfirmed",),
    ),
    Case("an unknown XID (999)", "xids", ("1",), ({"do": "xid", "gpu": 1, "xid": 999},), notified=("GpuXidUnknown",)),
    Case(
        "many corrected errors (XID 92)",
        "xids",
        ("2",),
        ({"do": "xid", "gpu": 2, "xid": 92},),
        notified=("GpuXidWarning",),
    ),
    Case("GSP timeout (XID 119)", "xids", ("3",), ({"do": "xid", "gpu": 3, "xid": 119},), notified=("GpuXidCritical",)),
    Case(
        "no call of the driver returns",
        "hung",
        ("", "0", "1"),
        ({"do": "hang"},),
        notified=("GpuUnresponsive",),
        held_back=("GpuUnresponsive@0", "GpuUnresponsive@1", "GpuwatchNvmlDown", "GpuwatchMonitoringDegraded"),
    ),
    Case(
        "fatal SXid, a link goes with it",
        "switch",
        ("", "0", "1"),
        (
            {"do": "nvlink", "gpu": 0, "link": 7, "active": False},
            link_is_down,
            {"do": "sxid", "sxid": 20034, "severity": "Fatal"},
        ),
        notified=("GpuNvswitchFatal",),
        held_back=("GpuNvlinkDown@0",),
    ),
    Case(
        "60 pages are retired (T4)",
        "old",
        ("0",),
        ({"do": "retire", "gpu": 0, "pages": 60},),
        notified=("GpuRetiredPagesHigh",),
        held_back=("GpuRepairPending",),
        lasts={"GpuRetiredPagesHigh": "no reset brings pages back"},
    ),
    Case("a node joins with 2 of 3 GPUs", "short", ("", "0", "1"), (join,), notified=("GpuMissing",)),
    Case(
        "agent and remediator end",
        "blind",
        ("", "0"),
        (end_all,),
        notified=("GpuwatchDown", "GpuwatchRemediatorDown"),
    ),
    Case(
        "the kubelet's socket refuses",
        "unmapped",
        ("", "0"),
        ({"do": "kubelet", "state": "refused"},),
        notified=("GpuwatchWorkloadMappingDown",),
        held_back=("GpuwatchMonitoringDegraded",),
    ),
    Case(
        "a typing error in the configuration",
        "mistaken",
        ("", "0"),
        (mistake,),
        notified=("GpuwatchConfigRejected",),
        held_back=("GpuwatchMonitoringDegraded",),
    ),
    Case(
        "GSP timeout (XID 119), remediator enforces",
        "north",
        ("", "0"),
        ({"do": "xid", "gpu": 0, "xid": 119},),
        notified=("GpuXidCritical@0", "GpuNodeQuarantined", "GpuNodeQuarantinedLong"),
    ),
    Case(
        "power brake of another GPU there",
        "north",
        ("1",),
        ({"do": "power_brake", "gpu": 1},),
        held_back=("GpuHardwareSlowdown",),
        after=("north", "GpuNodeQuarantined"),
    ),
    Case(
        "the same, and the fleet's budget is used up",
        "south",
        ("", "0", "1"),
        ({"do": "xid", "gpu": 0, "xid": 119},),
        notified=("GpuXidCritical@0", "GpuRemediationBlocked"),
        after=("north", "GpuNodeQuarantined"),
    ),
)
