"""Keeps the file of consents fresh: `gpuwatch tuner --consents`, a process with an API token and nothing else.

It listens to no network and touches no GPU. What it cannot read stays as it was written last: the file holds its time,
and its readers use it for two minutes.
"""

import logging
import random
from collections.abc import Callable
from typing import Protocol

from gpuwatch.config import MetricsConfig
from gpuwatch.consents.file import ConsentsFile
from gpuwatch.consents.kube import exported, kept
from gpuwatch.kube.errors import Backoff, KubeError
from gpuwatch.kube.objects import TAINT, NodeObject
from gpuwatch.model.clock import Clock
from gpuwatch.model.consent import Consents, PodConsent
from gpuwatch.model.errors import GpuwatchError

log = logging.getLogger(__name__)

CYCLE_SECONDS = 15.0
SPREAD = 0.1
"""Share by which waits vary, so that the nodes of a fleet that was started at once do not always ask at once."""

NAMESPACE_CYCLES = 4
"""A namespace is read again after so many cycles: a minute."""


class Source(Protocol):
    """`consents.kube.ConsentsReader`."""

    name: str
    metrics: MetricsConfig

    def node(self) -> NodeObject:
        """Our own Node."""
        ...

    def gpu_pods(self) -> tuple[PodConsent, ...]:
        """Its pods that have GPUs."""
        ...

    def namespace(self, name: str) -> dict[str, str]:
        """Annotations of a namespace."""
        ...


class Consenting:
    """Asks `source` and writes `file`. `boot_id`: this machine's, to be sure that the Node is this machine; None: it is
    not known, and this is not checked. `step` reads once; `run` reads until it is stopped.
    """

    def __init__(
        self,
        source: Source,
        file: ConsentsFile,
        clock: Clock,
        *,
        boot_id: str | None = None,
        chance: random.Random | None = None,
    ) -> None:
        self._source, self._file, self._clock, self._boot_id = source, file, clock, boot_id
        self._chance = chance or random.Random()  # noqa: S311 no secret
        self._backoff = Backoff(self._chance)
        self._cycle = 0
        self._namespaces: dict[str, tuple[int, dict[str, str]]] = {}
        """The cycle in which each was read, and its annotations."""
        self._trouble: str | None = ""

    def run(self, ended: Callable[[float], bool]) -> None:
        """Read until `ended`, which waits so many seconds, returns True."""
        while not ended(self.step()):
            pass

    def step(self) -> float:
        """Read once; seconds until the next cycle. All is written, or nothing: half of the annotations could allow
        what the other half forbids.
        """
        try:
            at = self._clock.time()
            node = self._source.node()
            if self._boot_id and node.host.boot_id and node.host.boot_id.lower() != self._boot_id.lower():
                raise GpuwatchError(
                    f"node {node.name} is not this machine",
                    f"its boot id is {node.host.boot_id}, this machine's {self._boot_id}",
                    "check NODE_NAME",
                )
            pods = self._source.gpu_pods()
            self._cycle += 1
            names = sorted({pod.namespace for pod in pods})
            recent = {name: old for name, old in self._namespaces.items() if self._cycle - old[0] < NAMESPACE_CYCLES}
            self._namespaces = {name: recent.get(name) or (self._cycle, self._source.namespace(name)) for name in names}
            consents = Consents(
                at=at,
                node=kept(node.annotations),
                node_labels=exported("label", node.labels, self._source.metrics.node_labels),
                quarantined=any(taint.key == TAINT for taint in node.taints),
                namespaces={name: annotations for name, (_, annotations) in self._namespaces.items()},
                pods=pods,
            )
            self._file.write(consents)
        except GpuwatchError as error:
            self._log_change(str(error))
            return self._backoff.failed(error.retry_after if isinstance(error, KubeError) else None)
        self._log_change(None)
        self._backoff.succeeded()
        return CYCLE_SECONDS * self._chance.uniform(1 - SPREAD, 1 + SPREAD)

    def _log_change(self, trouble: str | None) -> None:
        """Log each change once. None: there is no trouble."""
        if trouble == self._trouble:
            return
        if trouble is None:
            log.info("what the pods of node %s consent to is in %s", self._source.name, self._file.path)
        else:
            log.warning("%s; %s stays as it is", trouble, self._file.path)
        self._trouble = trouble
