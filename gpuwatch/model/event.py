"""What is written down for later: a finding that began or ended, and an action that gpuwatch took.

With the XIDs these are the rows of the store, of `gpuwatch events` and of `/api/v1/events`.
"""

from enum import StrEnum

from gpuwatch.model.finding import Finding
from gpuwatch.model.snapshot import Record


class Change(StrEnum):
    """Which end of a finding."""

    BEGAN = "began"
    ENDED = "ended"


class FindingEvent(Record, frozen=True, kw_only=True):
    """A finding began or ended at unix time `at`, in the boot `boot_id`."""

    at: float
    change: Change
    finding: Finding
    boot_id: str | None = None


class Result(StrEnum):
    """How an action went. `intended` is written before it is tried: what has no later row was cut off."""

    INTENDED = "intended"
    DONE = "done"
    FAILED = "failed"
    SKIPPED = "skipped"  # the world had changed: no longer wanted
    OBSERVED = "observed"  # would have been done, had the mode been `enforce`


class ActionEvent(Record, frozen=True, kw_only=True):
    """One decision and what came of it: the audit line (JSON) and a row of the store. `before` and `after` are what
    was changed, as short text; `number` ties the rows of one action together.
    """

    at: float
    actor: str  # remediator | tuner | guard | operator (a person, by the command line)
    action: str  # claim, slot, taint, condition, event, evict, ..., restore
    target: str  # node/NAME, pod/NAMESPACE/NAME, lease/NAME, gpu/UUID
    result: Result
    why: str = ""
    evidence: tuple[str, ...] = ()  # keys of the findings behind it
    before: str = ""
    after: str = ""
    detail: str = ""  # the error, when it failed
    number: int | None = None
    boot_id: str | None = None
