"""The processes of a node that are scraped, and what a scrape of each brings."""

import re
from collections import Counter
from collections.abc import Iterable, Iterator
from itertools import dropwhile

from msgspec.structs import replace

from dashboards.history import telemetry
from dashboards.history.cast import scenario
from dashboards.history.fleet import BEGIN, LAG, NODES, SECONDS, Node
from dashboards.history.tuning import Imagined
from gpuwatch.agent.view_builder import EnergyMeter
from gpuwatch.config import BudgetConfig, Config, MetricsConfig, RemediationConfig
from gpuwatch.health.checks import CHECKS
from gpuwatch.kube.objects import LeaseObject
from gpuwatch.metrics.exposition import Encoder
from gpuwatch.metrics.metric import Family, Sample, label_text
from gpuwatch.metrics.native import collect
from gpuwatch.model.event import Result
from gpuwatch.model.view import View
from gpuwatch.remediation.model import RemediatorState
from gpuwatch.remediation.planning.policy import Policy
from gpuwatch.remediation.service.executor import action_of
from gpuwatch.remediation.service.pages import REMEDIATOR_METRICS
from gpuwatch.rightsizing.service.learner import UsageLearner
from gpuwatch.rightsizing.service.metrics import rightsizing_families
from gpuwatch.sim.playback import LONG_STEP, views
from gpuwatch.sim.rehearsal import Rehearsal
from gpuwatch.tuning.model.setting import Actuation
from gpuwatch.tuning.model.status import TunerState
from gpuwatch.tuning.service.metrics import TUNER_METRICS

SLOTS = 1
"""Nodes of a cluster that may be quarantined at once: a second one has to wait."""

CONFIG = Config(
    metrics=MetricsConfig(processes=True),
    remediation=RemediationConfig(mode="enforce", budget=BudgetConfig(max_unavailable=SLOTS)),
)

CLOSE = 10.0
"""Seconds between looks while something goes on: often enough to judge, and quick to play."""

POLICY = Policy.compile(CONFIG.remediation, CHECKS)

_COMMENT = re.compile(rb"^#.*\n", re.MULTILINE)


class Target:
    """A process that is scraped."""

    def __init__(self, job: str, node: Node, appetite: telemetry.Appetite) -> None:
        self._labels = label_text(**node.labels, job=job)
        self._self = telemetry.Self(f"{job}/{node.name}", appetite, BEGIN - 86_400.0 * (1 + NODES.index(node)))
        self._page, self._notes = Encoder(), Encoder()

    def _scrape(self, families: Iterable[Family], at: float, *, store: bool) -> bytes:
        page = [*self._self.families(at, store=store), *families]
        return self._stamped(self._page, page, at) + self._noted(at, sum(len(family.samples) for family in page))

    def _noted(self, at: float, samples: int = 0) -> bytes:
        return self._stamped(self._notes, self._self.scrape(at, samples), at)

    def _stamped(self, encoder: Encoder, families: Iterable[Family], at: float) -> bytes:
        """Samples as a Prometheus keeps them: with the target's labels, and when they were read."""
        page = encoder.encode(family._replace(samples=self._labelled(family.samples)) for family in families)
        return _COMMENT.sub(b"", page).replace(b"\n", f" {at}\n".encode())

    def _labelled(self, samples: Iterable[Sample]) -> list[Sample]:
        target = self._labels
        return [((f"{subject},{target}" if subject else target, own), value) for (subject, own), value in samples]


class Agent(Target):
    """The agent of a node."""

    def __init__(self, node: Node) -> None:
        super().__init__("gpuwatch", node, telemetry.AGENT)
        self._node = node
        self._usage = UsageLearner(CONFIG.rightsizing, None)

    def views(self) -> Iterator[View]:
        """What it publishes, from BEGIN on. The node runs for longer, so that not all do the same at the same time."""
        node, sources, meter = self._node, telemetry.Sources(self._node.name), EnergyMeter()
        seed, begin = 1 + NODES.index(node), BEGIN - LAG
        span = node.early + SECONDS
        played = views(
            scenario(node), CONFIG, begin - node.early, span, seed, node=node.name, short_step=CLOSE, with_gpm=True
        )
        for view in dropwhile(lambda view: view.snapshot.at < begin, played):
            energy = meter.update(view.snapshot.gpus, view.attribution)
            self._usage.take(view)
            yield replace(view, snapshot=sources.see(view.snapshot), pod_energy=energy)

    def scraped(self, view: View, at: float) -> bytes:
        """What a scrape brings when `view` is the newest."""
        gone, back = (BEGIN + seconds for seconds in self._node.away or (SECONDS + 1, SECONDS + 1))
        if gone <= at < back:
            self._self.restarted(back - 2.0)
            return self._noted(at)
        advice = rightsizing_families(self._usage.advice, CONFIG.rightsizing.top)
        return self._scrape(collect(view, CONFIG.metrics, extra=advice), at, store=True)


class Remediator(Target):
    """Its remediator: the real plan, carried out on an imaginary Node. `leases` are the cluster's."""

    def __init__(self, node: Node, nodes: int, leases: dict[str, LeaseObject]) -> None:
        super().__init__("gpuwatch-remediator", node, telemetry.REMEDIATOR)
        self._leases, self._actions = leases, Counter[tuple[str, str]]()
        self._rehearsal = Rehearsal(POLICY, 3 * LONG_STEP, nodes=nodes, leases=leases)
        self._state = RemediatorState(node=node.name, mode="enforce", slots=SLOTS, slots_used=0)

    def see(self, view: View) -> None:
        """One cycle."""
        known = len(self._rehearsal.steps)
        for _ in self._rehearsal.watch([view]):
            pass  # its state says what it says of itself
        for step in self._rehearsal.steps[known:]:
            self._actions[action_of(step), Result.DONE] += 1
        at = view.snapshot.at
        self._state = replace(
            self._state, plan=self._rehearsal.made, planned_at=at, view_at=at, actions=dict(self._actions)
        )

    def scraped(self, at: float) -> bytes:
        """What a scrape brings now."""
        used = sum(bool(lease.holder) for lease in self._leases.values())
        state = replace(self._state, slots_used=used)
        return self._scrape([row.family(state) for row in REMEDIATOR_METRICS], at, store=False)


class Tuner(Target):
    """Its tuner: the real judgement, and what a tuner would make of it."""

    def __init__(self, node: Node) -> None:
        super().__init__("gpuwatch-tuner", node, telemetry.TUNER)
        self._tuning = Imagined(node)
        self._state = TunerState(mode=node.tuning, actuation=Actuation())

    def see(self, view: View) -> None:
        """One cycle."""
        self._state = self._tuning.see(view)

    def scraped(self, at: float) -> bytes:
        """What a scrape brings now."""
        return self._scrape([row.family(self._state) for row in TUNER_METRICS], at, store=False)
