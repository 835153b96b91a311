"""The View: everything that the agent shows to its clients, and the contract between gpuwatch's processes.

`/api/v1/view` serves it as JSON; the command line, the remediator and the tuner read nothing else. `schema` grows when
a member changes meaning, and a client refuses one it does not know; hence it is always encoded, also at its default.
"""

from typing import Literal

from gpuwatch.model.consent import Consents
from gpuwatch.model.event import ActionEvent, FindingEvent
from gpuwatch.model.finding import Judgement
from gpuwatch.model.snapshot import Record, Snapshot
from gpuwatch.model.workload import Attribution, EnergyMethod, ProcessOwner, Workload
from gpuwatch.model.xid import BusLossEvent, SxidCount, SxidEvent, XidCount, XidEvent

SCHEMA = 1

STALE_INTERVALS = 3
"""A sample, an answer or a View older than so many of its intervals is withheld or not acted on."""


class PodEnergy(Record, frozen=True, kw_only=True):
    """Joules one container's processes used on one GPU or GPU instance since the agent first found them."""

    gpu: str
    gi: int | None = None
    method: EnergyMethod = "size"
    workload: Workload
    joules: float


class AgentStatus(Record, frozen=True, kw_only=True):
    """The agent's own state."""

    version: str
    started: float
    reader_restarts: int = 0
    kmsg_lost: int = 0
    unknown_xids: int = 0
    config_error: str | None = None


class Validation(Record, frozen=True, kw_only=True):
    """The result of the active checks of one GPU (`gpu`: uuid); they began at unix time `at`, in the boot `boot_id`."""

    gpu: str
    at: float
    passed: bool
    boot_id: str | None = None
    message: str = ""
    """The check that failed, and how: `X03: 3 of 268435456 words are wrong`."""


class GpuRepair(Record, frozen=True, kw_only=True):
    """The state of the repair of one GPU (`gpu`: uuid). waiting: an obstacle blocks a reset, or the mode is observe;
    repaired: it was reset and answers again; failed: the reset is tried again; given_up: `tries` resets did not help.
    """

    gpu: str
    state: Literal["waiting", "resetting", "repaired", "failed", "given_up"]
    tries: int = 0
    message: str = ""


class RepairerStatus(Record, frozen=True, kw_only=True):
    """What `gpuwatch repairer` last reported, at unix time `at`. `closed`: the GPU that the agent's reader must not
    hold open, until unix time `closed_until`.
    """

    at: float
    mode: Literal["off", "observe", "enforce"]
    gpus: tuple[GpuRepair, ...] = ()
    closed: str | None = None
    closed_until: float = 0.0


class RoleReport(Record, frozen=True, kw_only=True):
    """What another process of gpuwatch on this node reported at unix time `at`. `summary`: its state, or ""."""

    role: Literal["remediator", "tuner"]
    mode: str
    at: float
    summary: str = ""


class SupportCase(Record, frozen=True, kw_only=True):
    """A file in the folder `support` of `state_dir` that was made when a critical fault began, at unix time `at`."""

    file: str
    at: float
    bytes: int


class View(Record, frozen=True, kw_only=True, omit_defaults=False):
    """One snapshot with its findings and the users of its GPUs."""

    snapshot: Snapshot
    agent: AgentStatus
    schema: int = SCHEMA
    attribution: Attribution = Attribution()
    owners: tuple[ProcessOwner, ...] = ()
    pod_energy: tuple[PodEnergy, ...] = ()
    xids: tuple[XidCount, ...] = ()
    sxids: tuple[SxidCount, ...] = ()
    judgement: Judgement = Judgement()
    validations: tuple[Validation, ...] = ()
    """The newest of each GPU; a later fault of the GPU removes it."""
    repairer: RepairerStatus | None = None
    """None: no repairer has reported since the agent's state began."""
    roles: tuple[RoleReport, ...] = ()
    """The remediator and the tuner, where they run on this node and share the agent's state folder."""
    support_cases: tuple[SupportCase, ...] = ()
    consents: Consents | None = None
    """Only the labels of Node and pods; None where the metrics export none or the labels are too old."""


class Events(Record, frozen=True, kw_only=True, omit_defaults=False):
    """What happened lately, newest last: the body of `/api/v1/events`."""

    schema: int = SCHEMA
    xids: tuple[XidEvent, ...] = ()
    sxids: tuple[SxidEvent, ...] = ()
    bus_losses: tuple[BusLossEvent, ...] = ()
    findings: tuple[FindingEvent, ...] = ()
    actions: tuple[ActionEvent, ...] = ()
