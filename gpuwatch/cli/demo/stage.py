"""The processes of the demo: a World, a cluster around it, agent, remediator, tuner, repairer, and their narrators."""

import json
import os
import shutil
import sys
from collections.abc import Callable, Collection, Iterator
from contextlib import ExitStack
from functools import partial
from math import inf
from pathlib import Path
from tempfile import mkdtemp
from typing import Self

from msgspec import structs, to_builtins

from gpuwatch.agent.agent import Agent
from gpuwatch.agent.client import AgentClient, AgentViews
from gpuwatch.cli.console.text import Text
from gpuwatch.cli.demo.narrator import ClusterNarrator, condition_of, is_incomplete, repair_sentences, xid_sentence
from gpuwatch.cli.demo.story import Chapter
from gpuwatch.cli.demo.tuner import RIGHTS as CONSENT_RIGHTS
from gpuwatch.cli.demo.tuner import DemoTuner, run_thread
from gpuwatch.cli.look.gather import by_index
from gpuwatch.config import Config, load, runtime_dir
from gpuwatch.diagnose.active.results import Active, DeviceRun
from gpuwatch.diagnose.validation import validate
from gpuwatch.kube.objects import CONDITION, TAINT
from gpuwatch.kube.reader import OwnNode
from gpuwatch.kube.transport import Transport
from gpuwatch.model.clock import SystemClock
from gpuwatch.model.errors import GpuwatchError
from gpuwatch.model.view import View
from gpuwatch.remediation.model import BlockReason
from gpuwatch.remediation.service.process import RemediatorService
from gpuwatch.remediation.service.remediator import Remediator
from gpuwatch.repair.repairer import Repairer
from gpuwatch.sim.kubeapi.access import AccessRule
from gpuwatch.sim.kubeapi.objects import GPU, gpus_of, is_over
from gpuwatch.sim.kubeapi.server import SimulatedApiServer
from gpuwatch.sim.surroundings.demo_cluster import CHAT, EVALUATIONS, NAMESPACE, NODE, SCENARIO, DemoCluster
from gpuwatch.sim.world import World
from gpuwatch.storage.store import Store
from gpuwatch.tuning.model.status import TuningState

FIRST_VIEW = 20.0
"""Seconds within which the agent's View must be complete."""

REPAIR_SECONDS = 1.0
"""Between two cycles of the repairer: 10 s would be long for a demo."""

PODS = 47
"""The column in which pods begin."""

RIGHTS = (
    AccessRule(verbs=("get", "list", "patch"), resources=("nodes",)),
    AccessRule(verbs=("patch",), resources=("nodes/status",)),
    AccessRule(verbs=("create",), resources=("events", "pods/eviction")),
    AccessRule(verbs=("get", "list", "create", "patch"), resources=("leases",), namespaces=(NAMESPACE,)),
    AccessRule(verbs=("list",), resources=("pods",)),
)
"""Of the remediator's token: what docs/remediation.md asks for."""

SCARCE_WATTS = 2800.0
"""Less than the node's GPUs draw at work, and more than half of it."""

SETTINGS = """\
agent: {socket: %(socket)s, interval: 1, api: open}
sources: %(sources)s
checks: {boot_grace: 0, xid_clear_after: 2, xid_expire: 30}
remediation:
  {mode: enforce, checks: {xid_fatal: drain, recovery_action: drain}, recovery_hold: %(hold)s, min_quarantine: 1,
  validate: active, restart_plugin: gpu-operator/nvidia-device-plugin-daemonset, budget: {namespace: gpuwatch},
  drain: {retry: 1}, node_name: gpu-node-1, listen: ""}
repair:  # sim inject, in place of nvidia-smi
  {mode: enforce, nvidia_smi: "", command: [/bin/sh, -c, 'exec "$0" -m gpuwatch sim inject --dir "$1" recover gpu="$2"',
  %(python)s, %(place)s, "{index}", "{uuid}"]}
support: {cases: 0}
tuning: {mode: enforce, listen: ""}
state_dir: %(state)s
"""
"""gpuwatch acts, drains, tunes and repairs, with short waits."""


class DemoStage:
    """A context manager; while it is open, all of it runs. `hold`: seconds, `remediation.recovery_hold`."""

    def __init__(self, listen: str, socket: str, *, hold: float) -> None:
        self._listen, self._socket, self._hold = listen, socket or str(runtime_dir() / "agent.sock"), hold
        self._narrator = ClusterNarrator()
        self._described, self._repairs = 0, 0
        self._stack = ExitStack()

    def __enter__(self) -> Self:
        with ExitStack() as stack:
            self.directory = Path(mkdtemp(prefix="gpuwatch-demo-"))
            stack.callback(shutil.rmtree, self.directory, ignore_errors=True)
            os.environ["NODE_NAME"] = NODE
            self._world = stack.enter_context(World(SCENARIO, self.directory))
            # settings are a file, which commands in another terminal read, too
            file, state = self.directory / "gpuwatch.yaml", self.directory / "gpuwatch-state"
            state.mkdir(mode=0o750)
            places = {"state": str(state), "place": str(self.directory), "python": sys.executable}
            values = {"socket": self._socket, "hold": self._hold, **places}
            values["sources"] = to_builtins(self._world.sources)
            file.write_text(SETTINGS % {name: json.dumps(value) for name, value in values.items()})
            config = load(file)
            config = structs.replace(config, agent=structs.replace(config.agent, listen=self._listen))
            self.agent = Agent(config, self._world.backend)
            self.agent.start()
            stack.callback(self.agent.stop)
            self._surround(stack, config)
            self._stack = stack.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def act(self, chapter: Chapter) -> None:
        """Carry out the actions of the chapter."""
        for action in chapter.actions:
            self._world.inject(action)
        steps: dict[str, Callable[[], None]] = {
            "": lambda: None,
            "ready": self._demo.get_ready,
            "work": self._demo.ask_for_work,
            "agree": self._demo.agree,
            "repair": lambda: run_thread(self._stack, "demo-repairer", self._repairer),
            "scarce": lambda: self._tuner.allow(SCARCE_WATTS),
            "plenty": lambda: self._tuner.allow(None),
        }
        steps[chapter.step]()

    def reached(self, goal: str) -> bool:
        """Whether the chapter's goal is reached."""
        cluster, plan, tuning = self._demo.cluster, self._remediator.state.plan, self._tuner.state
        placed = [self._where(name) for name in EVALUATIONS]
        view, condition = self.agent.view(), (condition_of(cluster.get("nodes", "", NODE) or {}) or "?")[0]
        goals: dict[str, Callable[[], bool]] = {
            "": lambda: True,
            "watched": lambda: any(gpu.state is TuningState.OBSERVING for gpu in tuning.gpus),
            "limited": lambda: (
                tuning.budget is not None
                and max(tuning.budget.limits or inf, tuning.budget.draw or inf) <= SCARCE_WATTS
            ),
            "returned": lambda: tuning.budget is None and all(gpu.power_limit is None for gpu in tuning.gpus),
            "event": lambda: any(each["reason"].startswith("GPUXid") for each in cluster.objects("events")),
            "refused": lambda: plan is not None and any(one.reason is BlockReason.PDB for one in plan.blocked),
            "moved": lambda: self._where(CHAT) is None,
            "out": lambda: view is not None and bool(view.attribution.withheld),
            "waiting": lambda: any(placed) and not all(placed),
            "placed": lambda: all(placed) and view is not None and view.judgement.node == "healthy",
            "healthy": lambda: condition == "True",
            "unhealthy": lambda: condition == "False",
        }
        return goals[goal]()

    def sentences(self) -> Iterator[tuple[str, str]]:
        """(actor, sentence) for everything since the last call."""
        renamed = by_index(self.agent.view())
        events = self.agent.events()
        for event in events.xids[self._described :]:
            if is_incomplete(event):
                break
            yield "driver", renamed(xid_sentence(event))
            self._described += 1
        plan = self._remediator.state.plan
        for actor, text in (
            *repair_sentences(events.actions[self._repairs :]),  # first: a release follows its proof
            *self._narrator.sentences(),
            *self._narrator.plan_sentences(plan),
            *self._tuner.sentences(),
        ):
            yield actor, renamed(text)
        self._repairs = len(events.actions)

    def power(self) -> str:
        """The sums of the GPUs' power limits and draws, where the node has a budget; else empty."""
        budget = self._tuner.state.budget
        if budget is None or budget.limits is None or budget.draw is None:
            return ""
        return f"of {budget.budget:.0f} W its GPUs may draw {budget.limits:.0f} W and do draw {budget.draw:.0f} W"

    def nodes(self, width: int) -> list[Text]:
        """For each Node: taint, GPUs that pods may have, condition, and its pods with how many GPUs each has."""
        from gpuwatch.cli.console.words import wrap

        lines: list[Text] = []
        for node in self._demo.cluster.nodes():
            name = node["metadata"]["name"]
            pods = [pod for pod in self._demo.cluster.pods_on(name) if gpus_of(pod) and not is_over(pod)]
            names = ", ".join(f"{pod['metadata']['name']} ({gpus_of(pod)})" for pod in pods)
            taint = next((each for each in node["spec"].get("taints", []) if each["key"] == TAINT), None)
            condition = condition_of(node)
            if taint is not None:
                state, style = f"tainted ({taint.get('value', '')})", "bold red"
            else:
                state = f"{node['status']['allocatable'][GPU]} GPUs for pods"
                state += f", {CONDITION}={condition[0]}" if condition else ""
                style = {"True": "green", "": ""}.get(condition[0] if condition else "", "yellow")
            rows = wrap(names, max(width - PODS, 20)) or [""]
            lines.append(Text.assemble(f"{name:<12}", (f"{state:<{PODS - 12}}", style), rows[0]))
            lines += [Text(f"{'':{PODS}}{row}") for row in rows[1:]]
        return lines

    def _surround(self, stack: ExitStack, config: Config) -> None:
        """Start the rest once the agent has a View: the cluster needs to know which machine this is."""
        clock = SystemClock()
        view = self._first_view(clock)
        self._demo = stack.enter_context(DemoCluster(self._world, view.snapshot.host))
        self._demo.cluster.add_user("gpuwatch", RIGHTS)
        self._demo.cluster.add_user("consents", CONSENT_RIGHTS)
        server = stack.enter_context(SimulatedApiServer(self._demo.cluster, folder=self.directory))
        self.variables = {"KUBECONFIG": server.kubeconfig(), "GPUWATCH_CONFIG": self.directory / "gpuwatch.yaml"}
        """What commands in another terminal need."""
        transport = Transport(str(server.kubeconfig("gpuwatch")))
        stack.callback(transport.close)
        views = AgentViews(AgentClient(self._socket), clock)
        place = OwnNode.of(config.remediation)
        store = Store.open(config.state_dir)
        self._repairer = partial(run_repairer, config, view.snapshot.host.boot_id, store)
        stack.callback(store.close)
        self._remediator = Remediator(
            config.remediation, place, views, lambda: transport, clock=clock, ledger=store, classes={}
        )
        service = RemediatorService(self._remediator, views, config.remediation.listen, state_dir=config.state_dir)
        self._demo.cluster.observers.append(self._narrator.observe)
        service.start()
        stack.callback(service.stop)
        asking = Transport(str(server.kubeconfig("consents")))
        stack.callback(asking.close)
        self._tuner = stack.enter_context(DemoTuner(config, self.directory, NODE, asking))

    def _first_view(self, clock: SystemClock) -> View:
        import time

        end = clock.monotonic() + FIRST_VIEW
        while clock.monotonic() < end:
            view = self.agent.view()
            devices = view.attribution.devices if view is not None else ()
            holders = [holder.workload for device in devices for holder in device.holders]
            if view is not None and holders and all(workload.pod_uid for workload in holders):
                return view
            time.sleep(0.05)
        raise GpuwatchError("the simulated node shows no GPUs", f"nothing within {FIRST_VIEW:.0f} s", "run it again")

    def _where(self, pod_name: str) -> str | None:
        """The node a pod is on, empty while it waits, None when there is no such pod."""
        found = [pod for pod in self._demo.cluster.objects("pods") if pod["metadata"]["name"] == pod_name]
        return found[0]["spec"].get("nodeName", "") if found else None


def run_repairer(config: Config, boot_id: str | None, store: Store, ended: Callable[[float], bool]) -> None:
    """Run as `gpuwatch repairer` does, until `ended`; a reset that is under way is then abandoned."""
    clock = SystemClock()

    def wait(seconds: float) -> None:
        if ended(seconds):
            sys.exit()  # ends this thread only

    views, prove = AgentViews(AgentClient(config.agent.socket), clock), partial(validate, run=simulated_checks)
    repairer = Repairer(config, views, store, clock, boot_id, wait, prove)
    repairer.start()
    while True:
        repairer.step()
        wait(REPAIR_SECONDS)


def simulated_checks(view: View, *, selected: Collection[int], **_: object) -> Active:
    """The active checks of GPUs that cannot compute: they pass unless the driver asks for a GPU's recovery."""
    gpus = [gpu for gpu in view.snapshot.gpus if gpu.identity.index in selected]
    bad = {gpu.identity.index: "the driver asks for its recovery" for gpu in gpus if gpu.recovery_action}
    found = [(gpu.identity.uuid, gpu.identity.index) for gpu in gpus]
    runs = (DeviceRun(test="vector_add", device=uuid, index=index, error=bad.get(index)) for uuid, index in found)
    return Active(runs=tuple(runs))
