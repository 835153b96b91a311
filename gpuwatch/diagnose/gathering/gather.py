"""Gathers everything a diagnosis knows about a node, all of it at the same time, and never later than asked for."""

import math
import socket
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from gpuwatch.agent.client import AgentClient
from gpuwatch.config import Backend, Config
from gpuwatch.diagnose.check import Level
from gpuwatch.diagnose.facts import HOST_SECTIONS, NodeFacts
from gpuwatch.diagnose.gathering.cluster import ClusterFacts, read_cluster
from gpuwatch.diagnose.gathering.collect import Collected, Collection, Progress
from gpuwatch.diagnose.gathering.protocol import DriverOrder, Order
from gpuwatch.diagnose.gathering.recorded import MOST_BYTES
from gpuwatch.diagnose.host.exporters import Exporter, exporters
from gpuwatch.diagnose.host.host_root import place
from gpuwatch.diagnose.host.services import Services
from gpuwatch.diagnose.places import Places
from gpuwatch.host.machine import boot_id_file, first_line, machine
from gpuwatch.host.plain_file import content
from gpuwatch.model.errors import GpuwatchError
from gpuwatch.model.view import View

SECONDS: dict[Level, float] = {"quick": 10.0, "full": 20.0}
"""How long a node is looked at, unless told otherwise."""

FILES_SECONDS, CLUSTER_SECONDS, EXPORTERS_SECONDS, AGENT_SECONDS = 5.0, 5.0, 3.0, 1.0
"""At most, of that."""

AGENT_ROUNDS = 2
"""How many of its intervals to wait for an agent's next View."""

NOT_HERE = (
    "the agent's GPUs are not on this machine's PCI bus: it simulates them (gpuwatch --source sim diagnose sees the "
    "whole simulated node), or looks elsewhere"
)
OTHER_MACHINE = "the agent is of another machine; run gpuwatch diagnose there"


class Ground(NamedTuple):
    """What is diagnosed. `backend` None: there is no driver to look at; `agent`: one who looks already; `blind`: why no
    file of the host is read; `node`: its name, where a person gave it; `kubeconfig`: empty for the usual ways.
    """

    places: Places
    config: Config
    backend: Backend | None = None
    agent: AgentClient | None = None
    blind: str = ""
    node: str = ""
    kubeconfig: str = ""


def gather(ground: Ground, *, level: Level, seconds: float, progress: Progress | None = None) -> NodeFacts:
    """Everything that can be had within `seconds`. What is late, forbidden or not there is None, with the reason.

    Raises:
        UsageError: the driver to look at is no such thing.
        GpuwatchError: the agent that was named does not answer.
    """
    until = time.monotonic() + seconds
    gathering = _Gathering(ground, level, until)
    try:
        return gathering.facts(progress or (lambda section, done, total: None))
    finally:
        gathering.end()


class _Gathering:
    """What is wanted of whom."""

    def __init__(self, ground: Ground, level: Level, until: float) -> None:
        self._ground, self._twice, self._until = ground, level == "full", until
        self._all = Collection()
        self._silent: str | None = None  # why the agent of this node said nothing
        self._at = time.time()

    def facts(self, progress: Progress) -> NodeFacts:
        """Set everybody off, and wait."""
        ground = self._ground
        view = self._agents_view()
        blind = ground.blind or (OTHER_MACHINE if view and _is_elsewhere(view, ground.places) else "")
        self._want_view(view)
        if not blind:
            self._want_cluster()
        then = {} if blind else self._want_exporters()
        for section in () if blind else HOST_SECTIONS:
            self._all.want(section, self._left(FILES_SECONDS))
        self._probe(files=not blind, driver=view is None)
        got = self._all.collect(then, progress)
        if self._silent is not None:
            got.unread["agent"] = self._silent
        if view is not None and view.snapshot.gpus and got.found.get("bus") == ():
            blind = NOT_HERE
        if blind:
            for name in (*HOST_SECTIONS, "exporters", "cluster"):
                got.found.pop(name, None)
                got.unread[name] = blind
        return self._joined(got, view)

    def end(self) -> None:
        """Let everybody go."""
        self._all.end()

    def _left(self, seconds: float) -> float:
        return max(0.0, min(seconds, self._until - time.monotonic()))

    def _agents_view(self) -> View | None:
        """None: there is no agent, or none that knows more than we can see ourselves.

        Raises:
            GpuwatchError: there is nobody else to ask, and it does not answer.
        """
        if self._ground.agent is None:
            return None
        try:
            return self._ground.agent.view()
        except GpuwatchError as error:
            if self._ground.backend is None:
                raise
            self._silent = f"{error}; looked without it"
            return None

    def _want_view(self, first: View | None) -> None:
        """Of the driver, unless an agent or a recording has one; a second one, where that is asked for."""
        ground = self._ground
        if first is not None and ground.agent is not None and self._twice:
            wait, agent = self._left(AGENT_ROUNDS * first.snapshot.interval), ground.agent
            self._all.start("view", lambda: agent.view(after=first.snapshot.at, wait=wait), self._left(wait + 1.0))
        elif first is None and ground.backend is not None:
            for section in ("earlier", "view") if self._twice else ("view",):
                self._all.want(section, self._left(math.inf))
        elif first is None:
            self._all.start("view", self._recorded("view.json", View), self._left(FILES_SECONDS))

    def _want_cluster(self) -> None:
        ground, seconds = self._ground, self._left(CLUSTER_SECONDS)
        if not ground.places.live:
            self._all.start("cluster", self._recorded("cluster.json", ClusterFacts), seconds)
            return
        host = machine(Path(ground.places.proc), Path(ground.places.sys), Path(ground.places.machine_id))
        root, kubeconfig = Path(ground.places.root), ground.kubeconfig
        ask = partial(read_cluster, ground.node, seconds * 0.9, host=host, kubeconfig=kubeconfig, root=root)
        self._all.start("cluster", ask, seconds)

    def _want_exporters(self) -> dict[str, Callable[[Any], None]]:
        """They are found by the ports that the services listen on."""
        if not self._ground.places.live:
            recorded = self._recorded("exporters.json", tuple[Exporter, ...])
            self._all.start("exporters", recorded, self._left(FILES_SECONDS))
            return {}
        self._all.want("exporters", self._left(FILES_SECONDS + EXPORTERS_SECONDS))

        def ask(found: Services) -> None:
            seconds = self._left(EXPORTERS_SECONDS)
            self._all.start("exporters", lambda: exporters(found.ports, seconds), seconds)

        return {"services": ask}

    def _probe(self, *, files: bool, driver: bool) -> None:
        backend, order = self._ground.backend, None
        if driver and backend is not None:
            order = DriverOrder(config=self._ground.config, backend=backend, until=self._until, twice=self._twice)
        if files or order is not None:
            self._all.probe(Order(places=self._ground.places, files=files, driver=order))

    def _recorded(self, name: str, type_: Any) -> Callable[[], Any]:
        path = self._ground.places.recorded / name
        decoder = msgspec.json.Decoder(type_)  # here, for two threads that study a type at once crash msgspec

        def read() -> Any:
            if not path.exists():
                raise GpuwatchError(f"no file of the host tells, and {path.parent} has no recording, as bundles do")
            try:
                return decoder.decode(content(path, MOST_BYTES))
            except msgspec.MsgspecError as error:
                raise GpuwatchError(f"{path} cannot be understood", str(error)) from None

        return read

    def _joined(self, got: Collected, first: View | None) -> NodeFacts:
        view = got.found.pop("view", first)
        if first is not None:
            got.unread.pop("view", None)  # an agent that tells no second View has told a first one
        if first is not None and view.snapshot.at > first.snapshot.at:
            got.found["earlier"] = first
        is_recorded = view is not None and self._ground.backend is None and not self._ground.places.live
        return NodeFacts(
            at=view.snapshot.at if view is not None and is_recorded else self._at,
            node=self._ground.node or (None if self._ground.blind else self._name(got.found.get("cluster"), view)),
            root=self._ground.places.root,
            live=self._ground.places.live,
            plain=self._ground.places.plain,
            agent=first is not None,
            view=view,
            view_failure=None if view else "hangs" if "view" in got.late else "absent",
            unread=dict(sorted(got.unread.items())),
            denied=tuple(sorted(got.denied)),
            **got.found,
        )

    def _name(self, cluster: ClusterFacts | None, view: View | None) -> str | None:
        """What the node is called: its Node, else what the agent calls it, else its host."""
        places = self._ground.places
        if cluster is not None:
            return cluster.node.name
        if view is not None and view.snapshot.node and places.live:
            return view.snapshot.node
        if places.live:
            return socket.gethostname()
        file = place(Path(places.root), "/etc/hostname")
        return first_line(file) if file else None


def _is_elsewhere(view: View, places: Places) -> bool:
    """Whether the agent's machine is known to be another one than that of these files."""
    theirs, ours = (
        view.snapshot.host.boot_id if view.snapshot.host else None,
        first_line(boot_id_file(Path(places.proc))),
    )
    return theirs is not None and ours is not None and theirs != ours
