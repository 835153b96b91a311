"""The tuning annotations of a simulated node's pods, where no API server exists for `gpuwatch tuner --consents`.

The file is in the state directory that commands with `--source sim` use. With a simulated API server,
`--consents` itself reads the same annotations there.
"""

from pathlib import Path

from gpuwatch.consents.file import ConsentsFile
from gpuwatch.model.clock import Clock
from gpuwatch.model.consent import PREFIX, Consents, PodConsent
from gpuwatch.sim.node.node import SimNode
from gpuwatch.sim.node.pods import pod_of
from gpuwatch.sim.node.scenario import Scenario

REFRESH_SECONDS = 15.0


class ConsentsWriter:
    """Keeps the file below `state` up to date."""

    def __init__(self, state: Path, clock: Clock) -> None:
        self._state, self._clock = state, clock
        self._written: tuple[float, int] | None = None  # when, at which change of the node

    def step(self, node: SimNode) -> None:
        """Write the file when the node has changed or REFRESH_SECONDS are over. Raises GpuwatchError, OSError."""
        now = self._clock.monotonic()
        if self._written and self._written[1] == node.changes and now - self._written[0] < REFRESH_SECONDS:
            return
        self._written = now, node.changes
        self._state.mkdir(exist_ok=True)
        ConsentsFile(self._state).write(node_consents(node, self._clock.time()))


def scenario_consents(scenario: Scenario, at: float) -> Consents:
    """Consents of the pods that a scenario begins with, before anything runs."""
    pods = {workload.pod: workload.annotations for workload in scenario.workloads if workload.pod}
    found = tuple(
        PodConsent(namespace=namespace, name=name, uid="", annotations=_kept(annotations))
        for (namespace, name), annotations in pods.items()
    )
    return Consents(at=at, pods=found, namespaces={each.namespace: {} for each in found})


def node_consents(node: SimNode, at: float) -> Consents:
    """Consents as from an API server's list of the node's pods."""
    found = []
    for workload in node.workloads.values():
        pod = pod_of(node, workload)
        if pod is not None and workload.pod is not None:
            namespace, name = workload.pod
            annotations = _kept(workload.annotations)
            labels = {"label_team": namespace, "label_app_kubernetes_io_name": name.partition("-")[0]}
            found.append(
                PodConsent(
                    namespace=namespace, name=name, uid=pod.pod_uid or "", annotations=annotations, labels=labels
                )
            )
    return Consents(at=at, pods=tuple(found), namespaces={each.namespace: {} for each in found})


def _kept(annotations: dict[str, str]) -> dict[str, str]:
    return {key: value for key, value in annotations.items() if key.startswith(PREFIX)}
