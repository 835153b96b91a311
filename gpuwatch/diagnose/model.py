"""Data types of a diagnosis: stages and results of checks, and what the API server reports of one node.

A check that cannot be judged because another one failed is skipped and names it: begin with the first failure.
"""

from enum import StrEnum

from gpuwatch.kube.objects import NodeObject, PodObject
from gpuwatch.model.snapshot import Record


class CheckStage(StrEnum):
    """In the order in which a node comes up: what an earlier stage judges must work first."""

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


class CheckStatus(StrEnum):
    """`skip` is neither good nor bad: not applicable, not read, or blocked by a check that failed."""

    PASS = "pass"  # noqa: S105 a verdict, no password
    WARN = "warn"
    FAIL = "fail"
    SKIP = "skip"


class CheckResult(Record, frozen=True, kw_only=True, omit_defaults=False):
    """One check of one diagnosis. `gpus`: NVML indexes of the GPUs at fault; `commands`: what to run next, in order."""

    id: str
    stage: CheckStage
    title: str
    result: CheckStatus
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
        """The result to begin with: the first failure, else the first warning, else None."""
        for wanted in (CheckStatus.FAIL, CheckStatus.WARN):
            for result in self.results:
                if result.result is wanted:
                    return result
        return None

    def of(self, id_: str) -> CheckResult:
        """The result of a check that was run.

        Raises:
            KeyError: it was not run.
        """
        for result in self.results:
            if result.id == id_:
                return result
        raise KeyError(id_)


class NodePod(PodObject, frozen=True, kw_only=True):
    """A pod that has GPUs, waits for some, or makes them usable (NVIDIA's own). Of its annotations only NVIDIA's are
    kept, of its labels `app` and `group`; `environment`: only variables that configure the device plugin.
    """

    app: str | None = None  # label app, app.kubernetes.io/name or k8s-app
    ready: bool | None = None
    waiting: str | None = (
        None  # why a container does not run: CrashLoopBackOff, ImagePullBackOff; or it is unschedulable
    )
    restarts: int = 0
    environment: dict[str, str] = {}
    configs: str | None = None  # the ConfigMap with the configurations that a device plugin may use


class ClusterFacts(Record, frozen=True, kw_only=True):
    """One read of the API server at unix time `at`; `way`: the credentials that were used.

    `unseen`: what could not be read (`pods`, `pending`, `runtimeclasses`, `clusterpolicy`, `configmaps`) -> why,
    beginning with `forbidden:`, `absent:` or `failed:`; those members are None.
    `pods`: those of this node that have GPUs or make them usable; `pending`: of the whole cluster, waiting for
    GPUs. `runtime_classes`: name -> handler. `policy_state`: the GPU operator's ClusterPolicy (`ready`, `notReady`).
    `plugin_environment`: variables of this node's device plugin (DP_*, MIG_STRATEGY, ...); None: its pod was not read,
    or there is none. `plugin_configs`: its configurations that the label nvidia.com/device-plugin.config may name.
    """

    node: NodeObject
    at: float = 0.0
    way: str = ""
    pods: tuple[NodePod, ...] | None = None
    pending: tuple[NodePod, ...] | None = None
    runtime_classes: dict[str, str] | None = None
    policy_state: str | None = None
    plugin_environment: dict[str, str] | None = None
    plugin_configs: tuple[str, ...] | None = None
    unseen: dict[str, str] = {}
