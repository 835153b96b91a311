"""What a diagnosis says: one result per check, in the order in which a node comes up.

A check that cannot be judged because another one failed is skipped and names that one: begin with the first failure.
"""

from enum import StrEnum

from gpuwatch.model.snapshot import Record


class Stage(StrEnum):
    """What must work before what: the order of a node that comes up."""

    HOST = "host"
    DRIVER = "driver"
    NVML = "nvml"
    DEVICES = "devices"
    HEALTH = "health"
    FABRIC = "fabric"
    RUNTIME = "runtime"
    KUBELET = "kubelet"
    SHARING = "sharing"
    EXPORTERS = "exporters"
    CLUSTER = "cluster"
    POWER = "power"
    FUNCTIONAL = "functional"
    BASELINE = "baseline"


class Result(StrEnum):
    """`skip` is neither good nor bad news: not applicable, not seen, or blocked by a check that failed."""

    PASS = "pass"  # noqa: S105 a verdict, no password
    WARN = "warn"
    FAIL = "fail"
    SKIP = "skip"


class CheckResult(Record, frozen=True, kw_only=True, omit_defaults=False):
    """One check of one diagnosis. `gpus`: NVML indexes it blames; `commands`: what to run next, in order."""

    id: str
    stage: Stage
    title: str
    result: Result
    message: str = ""
    gpus: tuple[int, ...] = ()
    blocked_by: str | None = None
    """The check whose failure is the reason that this one cannot be judged."""
    remedy: str = ""
    commands: tuple[str, ...] = ()
    evidence: dict[str, str] = {}


class Diagnosis(Record, frozen=True, kw_only=True, omit_defaults=False):
    """All results, in the order of the table."""

    node: str | None = None
    at: float = 0.0
    root: str = "/"
    results: tuple[CheckResult, ...] = ()

    @property
    def first(self) -> CheckResult | None:
        """Where to begin: the first failure, else the first warning, else None."""
        for wanted in (Result.FAIL, Result.WARN):
            for result in self.results:
                if result.result is wanted:
                    return result
        return None

    def of(self, id_: str) -> CheckResult:
        """The result of a check that was run.

        Raises:
            KeyError: it was not.
        """
        for result in self.results:
            if result.id == id_:
                return result
        raise KeyError(id_)
