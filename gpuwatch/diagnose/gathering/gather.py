"""Gathers everything that a diagnosis reads about a node, all at the same time and within a time limit."""

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
from gpuwatch.diagnose.gathering.cluster import read_cluster
from gpuwatch.diagnose.gathering.collect import Collected, Collection, Progress
from gpuwatch.diagnose.gathering.probe import DriverOrder, ProbeOrder
from gpuwatch.diagnose.gathering.recorded import MOST_BYTES
from gpuwatch.diagnose.host.exporters import Exporter, exporters
from gpuwatch.diagnose.host.services import Services
from gpuwatch.diagnose.model import ClusterFacts
from gpuwatch.diagnose.places import Places
from gpuwatch.host.machine import boot_id_file, first_line, machine
from gpuwatch.host.plain_file import content
from gpuwatch.model.decoding import prepared
from gpuwatch.model.errors import GpuwatchError
from gpuwatch.model.snapshot import UNREADABLE
from gpuwatch.model.view import View

SECONDS: dict[Level, float] = {"quick": 10.0, "full": 20.0}
"""The time limit by default."""

FILES_SECONDS, CLUSTER_SECONDS, EXPORTERS_SECONDS, AGENT_SECONDS = 5.0, 5.0, 3.0, 1.0
"""The most of that time for each source."""

AGENT_ROUNDS = 2
"""How many of an agent's intervals to wait for its next View."""

NOT_HERE = (
    "the agent's GPUs are not on this machine's PCI bus: it simulates them (gpuwatch --source sim diagnose sees the "
    "whole simulated node), or runs elsewhere"
)
OTHER_MACHINE = "the agent is of another machine; run gpuwatch diagnose there"


class DiagnosisTarget(NamedTuple):
    """What is diagnosed. `backend` None: there is no driver to read; `agent`: a running one, whose View is used;
    `files_hidden`: why no file of the host is read; `node`: its name, where the user gave it; `kubeconfig`: empty for
    the usual ways.
    """

    places: Places
    config: Config
    backend: Backend | None = None
    agent: AgentClient | None = None
    files_hidden: str = ""
    node: str = ""
    kubeconfig: str = ""


def gather(target: DiagnosisTarget, *, level: Level, seconds: float, progress: Progress | None = None) -> NodeFacts:
    """Everything that can be read within `seconds`. What is late, forbidden or absent is None, with the reason.

    Raises:
        UsageError: the driver that was requested does not exist.
        GpuwatchError: the agent does not answer, and there is no driver to read.
    """
    gathering = _Gathering(target, level, time.monotonic() + seconds)
    try:
        return gathering.facts(progress or (lambda section, done, total: None))
    finally:
        gathering.sections.end()


class _Gathering:
    """One gathering: decides which section comes from which source."""

    def __init__(self, target: DiagnosisTarget, level: Level, until: float) -> None:
        self._target, self._twice, self._until = target, level == "full", until
        self._at = time.time()
        self.sections = Collection()

    def facts(self, progress: Progress) -> NodeFacts:
        """Start every reader, and wait for the results."""
        target, places, sections = self._target, self._target.places, self.sections
        view, agent_error, hidden = None, "", target.files_hidden
        try:
            view = target.agent.view() if target.agent else None
        except GpuwatchError as error:
            if target.backend is None:  # there is no other source
                raise
            agent_error = f"{error}; looked without it"
        if view is not None and view.snapshot.host and not hidden:
            theirs, ours = view.snapshot.host.boot_id, first_line(boot_id_file(places.path(places.proc)))
            hidden = OTHER_MACHINE if None not in (theirs, ours) and theirs != ours else ""
        order = self._request_view(view)
        then = {} if hidden else self._request_host()
        if not hidden or order is not None:
            sections.probe(ProbeOrder(places=places, files=not hidden, driver=order))
        got = sections.collect(then, progress)
        if agent_error:
            got.unread["agent"] = agent_error
        if view is not None and view.snapshot.gpus and got.found.get("bus") == ():
            hidden = NOT_HERE
        for section in (*HOST_SECTIONS, "exporters", "cluster") if hidden else ():
            got.found.pop(section, None)
            got.unread[section] = hidden
        return self._joined(got, view)

    def _left(self, seconds: float) -> float:
        return max(0.0, min(seconds, self._until - time.monotonic()))

    def _request_view(self, first: View | None) -> DriverOrder | None:
        """The order to read the driver's View; None: an agent or a recording has it. A full diagnosis wants two."""
        agent, backend, config = self._target.agent, self._target.backend, self._target.config
        if first is not None and agent is not None and self._twice:
            wait = self._left(AGENT_ROUNDS * first.snapshot.interval)
            self.sections.start("view", lambda: agent.view(after=first.snapshot.at, wait=wait), self._left(wait + 1.0))
        elif first is None and backend is not None:
            for section in ("earlier", "view") if self._twice else ("view",):
                self.sections.expect(section, self._left(math.inf))
            return DriverOrder(config=config, backend=backend, until=self._until, twice=self._twice)
        elif first is None:
            self.sections.start("view", self._recorded("view.json", View), self._left(FILES_SECONDS))
        return None

    def _request_host(self) -> dict[str, Callable[[Any], None]]:
        """Files, cluster and exporters. Returns section -> what to do when it arrives: exporters are queried on the
        ports that the services listen on.
        """
        target, places, sections = self._target, self._target.places, self.sections
        for section in HOST_SECTIONS:
            sections.expect(section, self._left(FILES_SECONDS))
        seconds = self._left(CLUSTER_SECONDS)
        if not places.live:
            sections.start("cluster", self._recorded("cluster.json", ClusterFacts), seconds)
            recorded = self._recorded("exporters.json", tuple[Exporter, ...])
            sections.start("exporters", recorded, self._left(FILES_SECONDS))
            return {}
        host = machine(places.path(places.proc), places.path(places.sys), places.path(places.machine_id))
        kubeconfig = target.kubeconfig
        root = Path("/") if places.root == "/" else None  # a kubeconfig of a tree may name a program to run
        ask = partial(read_cluster, target.node, seconds * 0.9, host=host, kubeconfig=kubeconfig, root=root)
        sections.start("cluster", ask, seconds)
        sections.expect("exporters", self._left(FILES_SECONDS + EXPORTERS_SECONDS))

        def ask_exporters(found: Services) -> None:
            seconds = self._left(EXPORTERS_SECONDS)
            sections.start("exporters", lambda: exporters(found.ports, seconds), seconds)

        return {"services": ask_exporters}

    def _recorded(self, name: str, type_: Any) -> Callable[[], Any]:
        path = self._target.places.recorded / name
        decoder = msgspec.json.Decoder(prepared(type_))  # here: two threads that inspect a type at once crash msgspec

        def read() -> Any:
            if not path.exists():
                why = f"no file of the host shows it, and its folder {path.parent.name} has no recording, as bundles do"
                raise GpuwatchError(why)
            try:
                return decoder.decode(content(path, MOST_BYTES))
            except UNREADABLE as error:
                raise GpuwatchError(f"{path} cannot be read", str(error)) from None

        return read

    def _joined(self, got: Collected, first: View | None) -> NodeFacts:
        target, places = self._target, self._target.places
        view = got.found.pop("view", first)
        if first is not None:
            got.unread.pop("view", None)  # the agent's first View stands in for a missing second one
        if first is not None and view.snapshot.at > first.snapshot.at:
            got.found["earlier"] = first
        is_recorded = view is not None and target.backend is None and not places.live
        node = target.node or None
        if node is None and not target.files_hidden:
            # its Node, else its name at the agent, else its host's
            hostname = None if places.live else places.at("/etc/hostname")
            if cluster := got.found.get("cluster"):
                node = cluster.node.name
            elif places.live:
                node = (view.snapshot.node if view is not None else None) or socket.gethostname()
            elif hostname is not None:
                node = first_line(hostname)
        return NodeFacts(
            at=view.snapshot.at if is_recorded else self._at,
            node=node,
            root=places.root,
            live=places.live,
            plain=places.plain,
            agent=first is not None,
            view=view,
            view_failure=None if view else "hangs" if "view" in got.late else "absent",
            unread=dict(sorted(got.unread.items())),
            denied=tuple(sorted(got.denied)),
            **got.found,
        )
