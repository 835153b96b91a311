"""What was judged: findings about a GPU or the node, and the health states they add up to."""

from enum import StrEnum

from gpuwatch.model.snapshot import Record


class Severity(StrEnum):
    """How bad a finding is; `critical` means the GPU or node cannot do its work."""

    INFO = "info"
    WARNING = "warning"
    CRITICAL = "critical"


class Health(StrEnum):
    """`unknown` is a state of its own: not seeing a GPU is neither good nor bad news about it."""

    HEALTHY = "healthy"
    DEGRADED = "degraded"
    FAILED = "failed"
    UNKNOWN = "unknown"


class Finding(Record, frozen=True, kw_only=True):
    """One judged fact. `gpu` is a uuid, None for the node itself; `action` is what a person should do next."""

    check: str
    severity: Severity
    message: str
    gpu: str | None = None
    since: float | None = None
    action: str = ""


class Judgement(Record, frozen=True, kw_only=True):
    """All findings of one snapshot and the health they mean: of the node and of each GPU by uuid."""

    node: Health = Health.UNKNOWN
    gpus: dict[str, Health] = {}
    findings: tuple[Finding, ...] = ()
