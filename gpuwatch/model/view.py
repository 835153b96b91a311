"""The View: everything a reader of the agent may see, and the contract between gpuwatch's processes.

`/api/v1/view` serves it as JSON; the command line, the remediator and the tuner read nothing else. `schema` grows when
a member changes meaning, and a reader refuses one it does not know; hence it is always on the wire, default or not.
"""

from gpuwatch.model.event import ActionEvent, FindingEvent
from gpuwatch.model.finding import Judgement
from gpuwatch.model.snapshot import Record, Snapshot
from gpuwatch.model.workload import Attribution, ProcessOwner, Workload
from gpuwatch.model.xid import BusLossEvent, SxidCount, SxidEvent, XidCount, XidEvent

SCHEMA = 1

STALE_INTERVALS = 3
"""A sample, an answer or a View older than so many of its intervals is withheld or not acted on."""


class PodEnergy(Record, frozen=True, kw_only=True):
    """Joules one container's processes used on one GPU since the agent first saw them."""

    gpu: str
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


class Events(Record, frozen=True, kw_only=True, omit_defaults=False):
    """What happened lately, newest last: the body of `/api/v1/events`."""

    schema: int = SCHEMA
    xids: tuple[XidEvent, ...] = ()
    sxids: tuple[SxidEvent, ...] = ()
    bus_losses: tuple[BusLossEvent, ...] = ()
    findings: tuple[FindingEvent, ...] = ()
    actions: tuple[ActionEvent, ...] = ()
