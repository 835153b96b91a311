"""What a workload is called, and how its use of a GPU is summed up."""

from typing import Literal

from gpuwatch.model.snapshot import Record

WorkClass = Literal["batch", "serving", "notebook"]
"""When people wait for the work, in this order: only for its end; at any time; while its author works."""


class WorkloadKey(Record, frozen=True, kw_only=True):
    """What stays the same while pods come and go: the pods' owner, the container's name and its image.

    `kind` is the owner's (Deployment, StatefulSet, Job, CronJob, Pod, ...); None: only the name is known, from the
    pod's. Outside Kubernetes `namespace` is empty, `kind` `User`, `SlurmJob`, `Container` or `ComposeService`,
    `name` the account, the job, the container or `project/service`.
    """

    namespace: str
    name: str
    container: str = ""
    kind: str | None = None
    image: str | None = None  # without digest and registry credentials


class Distribution(Record, frozen=True, kw_only=True):
    """The distribution of values weighted by time, newer ones more."""

    mean: float
    p50: float
    p95: float
    max: float


class DayPeak(Record, frozen=True, kw_only=True):
    """The most memory a workload had on one device on one day; `day` counts from 1970-01-01 UTC."""

    day: int
    bytes: int
