"""A remediator before a simulated API server over HTTP, with Views made by hand and a clock that is turned."""

import random
from collections.abc import Collection
from pathlib import Path
from typing import Any

from gpuwatch.config import BudgetConfig, RemediationConfig
from gpuwatch.kube.objects import TAINT
from gpuwatch.kube.reader import OwnNode
from gpuwatch.kube.transport import Transport
from gpuwatch.model.event import ActionEvent, Result
from gpuwatch.model.finding import Finding, Health, Judgement, Remedy, Severity
from gpuwatch.model.snapshot import Driver, Gpu, GpuState, GpuStatus, Host, Identity, Snapshot
from gpuwatch.model.view import AgentStatus, View
from gpuwatch.model.workload import Attribution, DeviceUse, Holder, Workload
from gpuwatch.remediation.model import FAULTS, LABELS, OWNER
from gpuwatch.remediation.planning.labels import ALL
from gpuwatch.remediation.service.remediator import Remediator
from gpuwatch.sim.kubeapi.cluster import SimulatedCluster

NODE = "n1"
NAMESPACE = "gpuwatch"
START = 1_790_000_000.0
INTERVAL = 2.0
FOREIGN = {"key": "example.com/other", "value": "x", "effect": "NoSchedule"}


class FakeClock:
    """Both clocks stand still until told otherwise."""

    def __init__(self) -> None:
        self.wall, self.steady = START, 1000.0

    def time(self) -> float:
        return self.wall

    def monotonic(self) -> float:
        return self.steady

    def go(self, seconds: float) -> None:
        self.wall += seconds
        self.steady += seconds


class Ledger:
    """A store that keeps everything in a list, and outlives the remediators that write to it."""

    def __init__(self) -> None:
        self.actions: list[ActionEvent] = []
        self.documents: dict[str, bytes] = {}

    def record(self, action: ActionEvent) -> int:
        self.actions.append(action)
        return action.number if action.number is not None else len(self.actions)

    def memory(self, name: str) -> bytes | None:
        return self.documents.get(name)

    def remember(self, name: str, body: bytes) -> None:
        self.documents[name] = body

    def done(self) -> list[str]:
        return [each.action for each in self.actions if each.result is Result.DONE]


class Views:
    """A ViewSource whose View the test sets."""

    def __init__(self, clock: FakeClock, boot_id: str = f"boot-of-{NODE}") -> None:
        self._clock, self.boot_id = clock, boot_id
        self.trouble: str | None = None
        self.gone = False
        self._at = clock.monotonic()
        self.findings: tuple[Finding, ...] = ()
        self.withheld: tuple[str, ...] | None = None
        self.unlisted: set[str] = set()
        self.view: View | None = self.poll()

    @property
    def age(self) -> float:
        return self._clock.monotonic() - self._at

    def poll(self) -> View:
        """Publish a View of now with the findings there are."""
        self._at = self._clock.monotonic()
        self.view = view(
            self._clock.time(), self.findings, self.boot_id, withheld=self.withheld, unlisted=self.unlisted
        )
        return self.view


def uuid(index: int) -> str:
    return f"GPU-{index}"


def view(
    at: float,
    findings: tuple[Finding, ...] = (),
    boot_id: str = f"boot-of-{NODE}",
    gpus: int = 4,
    withheld: tuple[str, ...] | None = None,
    unlisted: Collection[str] = (),
) -> View:
    """`unlisted`: pods that the kubelet has not listed yet."""
    identities = [
        Identity(index=index, uuid=uuid(index), pci_bus_id=f"00000000:{index + 1:02X}:00.0") for index in range(gpus)
    ]
    sick = {finding.gpu for finding in findings}
    return View(
        snapshot=Snapshot(
            at=at,
            interval=INTERVAL,
            driver=Driver(version="580.95.05"),
            gpus=tuple(Gpu(identity=each, at=at) for each in identities),
            statuses=tuple(GpuStatus(identity=each, state=GpuState.FRESH) for each in identities),
            expected_gpus=gpus,
            node=NODE,
            host=Host(boot_id=boot_id, machine_id=f"machine-of-{NODE}"),
        ),
        agent=AgentStatus(version="0", started=START),
        attribution=Attribution(
            devices=tuple(
                DeviceUse(
                    gpu=each.uuid,
                    allocated=True,
                    holders=(
                        Holder(
                            workload=Workload(namespace="ml", pod=f"train-{each.index}", container="main"),
                            resource="nvidia.com/gpu",
                        ),
                    )
                    if f"train-{each.index}" not in unlisted
                    else (),
                )
                for each in identities
            ),
            withheld=withheld,
        ),
        judgement=Judgement(
            gpus={each.uuid: Health.FAILED if each.uuid in sick else Health.HEALTHY for each in identities},
            findings=findings,
        ),
    )


def fatal(at: float = START, gpu: int = 0, check: str = "gpu_lost", **more: Any) -> Finding:
    return Finding(
        check=check,
        severity=Severity.CRITICAL,
        message="GPU has fallen off the bus",
        gpu=uuid(gpu),
        since=at,
        last=at,
        remedy=Remedy.REBOOT_NODE,
        **more,
    )


def settings(**changes: Any) -> RemediationConfig:
    """Quick ones, without labels for schedulers."""
    return RemediationConfig(
        **{
            "mode": "enforce",
            "recovery_hold": 30.0,
            "min_quarantine": 0.0,
            "budget": BudgetConfig(max_unavailable=2),
            "labels": (),
            **changes,
        }
    )


class Bench:
    """One node of a cluster, and the remediator that is responsible for it."""

    def __init__(
        self,
        cluster: SimulatedCluster,
        kubeconfig: Path | str,
        clock: FakeClock,
        config: RemediationConfig,
        ledger: Any = None,
        **more: Any,
    ) -> None:
        self.cluster, self.clock, self.config = cluster, clock, config
        self.kubeconfig, self.connects = str(kubeconfig), 0
        self.ledger, self.views = ledger or Ledger(), Views(clock)
        self.remediator = self.restarted(**more)

    def restarted(self, config: RemediationConfig | None = None, **more: Any) -> Remediator:
        """A new process: nothing is left but the ledger and the API server."""
        self.config = config or self.config
        place = OwnNode(node=NODE, namespace=NAMESPACE, pod=more.pop("pod", None))
        self.remediator = Remediator(
            self.config,
            place,
            self.views,
            self._connect,
            clock=self.clock,
            ledger=self.ledger,
            chance=random.Random(7),
            **more,
        )
        return self.remediator

    def _connect(self) -> Transport:
        self.connects += 1
        return Transport(self.kubeconfig)

    def run(self, seconds: float, *, poll: bool = True) -> None:
        """Let time go on as a loop would; the agent looks every interval, unless it does not."""
        end = self.clock.monotonic() + seconds
        while self.clock.monotonic() < end:
            wait = self.remediator.step()
            self.clock.go(min(max(wait, 0.01), INTERVAL, end - self.clock.monotonic()))
            if poll:
                self.views.poll()
        self.remediator.step()

    def withholds(self, *gpus: int, allocatable: int | None = None) -> None:
        """The device plugin takes GPUs out; `allocatable`: what the Node's status says meanwhile."""
        node = self.node
        left = {
            **node["status"]["allocatable"],
            "nvidia.com/gpu": str(4 - len(gpus) if allocatable is None else allocatable),
        }
        self.cluster.put("nodes", {**node, "status": {**node["status"], "allocatable": left}}, user="the kubelet")
        self.views.withheld = tuple(map(uuid, gpus))
        self.views.poll()

    def finds(self, *findings: Finding) -> None:
        self.views.findings = findings
        self.views.poll()

    @property
    def node(self) -> dict[str, Any]:
        found = self.cluster.get("nodes", "", NODE)
        assert found is not None
        return found

    @property
    def taints(self) -> list[dict[str, str]]:
        return self.node["spec"].get("taints", [])

    @property
    def ours(self) -> list[dict[str, str]]:
        return [taint for taint in self.taints if taint["key"] == TAINT]

    @property
    def annotations(self) -> dict[str, str]:
        return self.node["metadata"].get("annotations", {})

    @property
    def labels(self) -> dict[str, str]:
        """Those for schedulers."""
        return {key: value for key, value in self.node["metadata"].get("labels", {}).items() if key in ALL}

    @property
    def condition(self) -> dict[str, str] | None:
        conditions = self.node["status"].get("conditions", [])
        return next((each for each in conditions if each["type"] == "GPUHealthy"), None)

    @property
    def holders(self) -> list[str]:
        leases = self.cluster.objects("leases", NAMESPACE)
        return [holder for lease in leases if (holder := lease["spec"].get("holderIdentity"))]

    def edit(self, **spec: Any) -> None:
        """A person's hand."""
        node = self.node
        self.cluster.put("nodes", {**node, "spec": {**node["spec"], **spec}}, user="a person")

    def is_confined(self) -> bool:
        """Whether only GPUs are taken out, and everything is there that belongs to it."""
        marks = {OWNER, FAULTS} <= self.annotations.keys() and '"scope":"gpu"' in self.annotations[OWNER]
        return marks and not (self.ours or self.node["spec"].get("unschedulable")) and self.holders == [NODE]

    def is_clean(self) -> bool:
        """Whether nothing of ours is left but the condition and labels for schedulers."""
        labels = self.node["metadata"].get("labels", {})
        kept = {LABELS, *ALL}
        marks = [k for k in (*self.annotations, *labels) if k.startswith("gpuwatch.io/") and k not in kept]
        return not (self.ours or marks or self.holders or self.node["spec"].get("unschedulable"))

    def is_quarantined(self) -> bool:
        """Whether everything is there that belongs to a quarantine."""
        return (
            len(self.ours) == 1
            and {OWNER, FAULTS} <= self.annotations.keys()
            and self.condition is not None
            and self.condition["status"] == "False"
            and self.holders == [NODE]
        )
