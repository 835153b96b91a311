"""The Node that a command is about, and access to it: the API server, the agent's View, and a writer."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import NamedTuple

from msgspec.structs import replace

from gpuwatch.agent.client import AgentClient, find_agent
from gpuwatch.cli.console.session import Session
from gpuwatch.cli.look.source import named_agent, parse_source
from gpuwatch.config import Config, Mode
from gpuwatch.health.checks import CHECKS
from gpuwatch.kube.objects import NodeObject
from gpuwatch.kube.reader import NodeReader, OwnNode
from gpuwatch.kube.transport import Transport
from gpuwatch.model.clock import Clock, SystemClock
from gpuwatch.model.errors import GpuwatchError, UsageError
from gpuwatch.model.view import View
from gpuwatch.remediation.planning.evidence import identity_mismatch
from gpuwatch.remediation.planning.policy import Policy
from gpuwatch.remediation.service.manual_actions import ManualActions
from gpuwatch.remediation.service.status import RemediatorStatusFile
from gpuwatch.storage.store import Store

NO_AGENT = "none"


class NodeAccess(NamedTuple):
    """Everything a node command needs. `reader` cannot write."""

    config: Config
    policy: Policy
    name: str
    transport: Transport
    reader: NodeReader
    agent: AgentClient | None
    named: bool  # the agent was named, not found
    own: OwnNode
    clock: Clock
    mode: Mode | None  # of the remediator that runs on this machine for this Node; None: none does

    @property
    def namespace(self) -> str:
        """The namespace of the budget's Leases."""
        return self.config.remediation.budget.namespace or self.own.namespace

    def view_of(self, node: NodeObject) -> View | None:
        """The agent's View; None without an agent, and where the agent found here is of another machine.

        Raises:
            GpuwatchError: the agent does not answer, or is not of this Node though it was named or has the Node's name.
        """
        if self.agent is None:
            return None
        view = self.agent.view()
        wrong = identity_mismatch(node, view)
        if wrong is None:
            return view
        if not self.named and (view.snapshot.node or "").partition(".")[0] != self.name.partition(".")[0]:
            return None
        raise GpuwatchError(
            f"the agent at {self.agent.name} is not of node {self.name}", wrong.message, f"or use --agent {NO_AGENT}"
        )


@contextmanager
def node_access(session: Session, node: str | None, kubeconfig: str | None, agent: str | None) -> Iterator[NodeAccess]:
    """Read the configuration, find the API server and the agent; no request is sent yet.

    Raises:
        UsageError: no node is named, or configuration or kubeconfig cannot be used.
    """
    config = session.config()
    settings = config.remediation
    name = node or settings.node_name or os.environ.get("NODE_NAME", "")
    if not name:
        raise UsageError("no node is named", "it is never guessed from the host's name", "give --node or set NODE_NAME")
    clock = SystemClock()
    running = RemediatorStatusFile(config.state_dir).read(clock.time())
    mode = running.mode if running is not None and running.node == name else None
    if mode is not None:  # the running remediator's mode, from options and variables too, overrides the file's
        settings = replace(settings, mode=mode)
    transport = Transport(kubeconfig or settings.kubeconfig)
    client, named = _agent(session, agent)
    try:
        yield NodeAccess(
            config=config,
            policy=Policy.compile(settings, CHECKS, config.checks.xids),
            name=name,
            transport=transport,
            reader=NodeReader(transport, name),
            agent=client,
            named=named,
            own=OwnNode.of(replace(settings, node_name=name)),
            clock=clock,
            mode=mode,
        )
    finally:
        transport.close()


@contextmanager
def manual_actions(access: NodeAccess) -> Iterator[ManualActions]:
    """A writer whose audit rows go into the store of this machine, if it has one that can be written."""
    directory = access.config.state_dir
    store = Store.open(directory if directory and os.access(directory, os.W_OK) else "")
    try:
        yield ManualActions(access.config.remediation, access.own, access.transport, access.clock, store)
    finally:
        store.close()


def _agent(session: Session, agent: str | None) -> tuple[AgentClient | None, bool]:
    """The agent to ask and whether it was named: by --agent, or as the global --source."""
    source, config = parse_source(session.source) if session.source else None, session.config()
    if agent is None and source is not None and source.kind == "agent":
        return named_agent(source, config), True
    if agent == NO_AGENT:
        return None, True
    if agent:
        return AgentClient(agent, uid=config.agent.socket_uid), True
    return find_agent(config.agent).client, False
