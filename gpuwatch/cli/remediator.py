"""`gpuwatch remediator`: keeps new work off sick GPUs, on the Kubernetes Node of this machine."""

import contextlib
from typing import Any

import click

from gpuwatch.agent.client import AgentViews, agent_of_node
from gpuwatch.cli.console.effective_config import Override
from gpuwatch.cli.console.options import KUBECONFIG, NODE_NAME, option, row_options
from gpuwatch.cli.console.session import Session, pass_session
from gpuwatch.config import Config
from gpuwatch.kube.errors import KubeError
from gpuwatch.kube.reader import OwnNode
from gpuwatch.kube.transport import Transport
from gpuwatch.model.clock import SystemClock
from gpuwatch.model.errors import GpuwatchError
from gpuwatch.process.signals import ConfigWatch
from gpuwatch.remediation.model import BlockReason, RemediatorState
from gpuwatch.remediation.service.executor import action_of
from gpuwatch.remediation.service.manual_actions import release_everything
from gpuwatch.remediation.service.process import RemediatorService
from gpuwatch.remediation.service.remediator import Remediator, checked
from gpuwatch.storage.store import Store

HELP = """Keep new work off sick GPUs.

Decides from this machine's agent what its Node needs: taint, condition, Events, draining, and reverting them. Mode
observe, the default, only reports.

\b
Examples:
  gpuwatch remediator --node-name gpu-1
  gpuwatch remediator --mode enforce
  gpuwatch remediator --once
  gpuwatch remediator --release
"""

OVERRIDES = (
    Override(
        "remediation.mode", "mode", "MODE", "off, observe or enforce. Default: observe.", "GPUWATCH_REMEDIATOR_MODE"
    ),
    Override("remediation.node_name", "node_name", "NAME", "The Node of this machine. Default: NODE_NAME.", NODE_NAME),
    Override(
        "remediation.kubeconfig",
        "kubeconfig",
        "FILE",
        "Default: the pod's service account, KUBECONFIG or ~/.kube/config.",
        KUBECONFIG,
    ),
    Override("agent.socket", "agent", "SOCKET", "The agent's unix socket.", "GPUWATCH_AGENT_SOCKET"),
    Override(
        "remediation.listen",
        "listen",
        "ADDR:PORT",
        "Where to serve HTTP. Default: :9401.",
        "GPUWATCH_REMEDIATOR_LISTEN",
    ),
    Override(
        "remediation.web_config",
        "web_config",
        "FILE",
        "TLS and users (exporter-toolkit).",
        "GPUWATCH_REMEDIATOR_WEB_CONFIG",
    ),
    Override("state_dir", "state_dir", "DIR", "Where state is kept. Default: /var/lib/gpuwatch.", "GPUWATCH_STATE_DIR"),
)
"""Options of the remediator."""


@click.command(help=HELP, short_help="Keep new work off sick GPUs.")
@row_options(OVERRIDES)
@option("--once", is_flag=True, help="Run one cycle, print the plan, end.")
@option("--release", is_flag=True, help="Remove everything of gpuwatch on this Node, end. For an uninstall.")
@pass_session
def remediator(session: Session, /, *, once: bool, release: bool, **options: Any) -> None:
    """Wire agent, policy, API server and store to the remediator and run it.

    Raises:
        UsageError: no API server is known, or the taint would evict the remediator's own pod.
    """

    def reread() -> Config:
        return checked(session.effective(options, OVERRIDES).config)

    session.start_logging(default="WARNING" if once or release else "INFO")
    session.start_audit()
    config, clock = reread(), SystemClock()
    place = OwnNode.of(config.remediation)
    transport = Transport(config.remediation.kubeconfig)
    store = Store.open(config.state_dir)
    try:
        if release:
            done = release_everything(config.remediation, place, transport, clock, store).done
            session.terminal.print(*map(action_of, done))
            if not done:
                session.terminal.hint(f"nothing on node {place.node} is gpuwatch's")
            return
        views = AgentViews(agent_of_node(config.agent), clock)
        running = Remediator(
            config.remediation,
            place,
            views,
            lambda: transport,
            clock=clock,
            ledger=store,
            classes=config.checks.xids,
            single=once,
        )
        if config.remediation.mode == "enforce":
            # what can never work ends it now; an API server that does not answer now is tried again later
            _ = transport.server
            with contextlib.suppress(KubeError):
                running.check()
        if once:
            views.poll()
            running.step()
            _print(session, running.state, views.trouble)
            return
        watch = ConfigWatch(config, session.config_path, reread, live=("remediation", "checks"), role="remediator")
        settings = config.remediation
        service = RemediatorService(
            running, views, settings.listen, web_config=settings.web_config, watch=watch, state_dir=config.state_dir
        )
        transport.stopped = service.stopping.is_set
        heading = f"node          {place.node}, mode {settings.mode}"
        service.run(started=lambda: session.show_pages(service.port, settings.listen, settings.web_config, heading))
    finally:
        store.close()
        transport.close()


def _print(session: Session, state: RemediatorState, trouble: str | None) -> None:
    """Print the plan. Raises GpuwatchError (exit code 1): something failed, or the Node may be another machine."""
    why = trouble or state.trouble
    if state.plan is not None:
        session.terminal.print(f"{state.plan.node}: {state.plan.stage}; {state.plan.message}")
        for obstacle in state.plan.blocked:
            session.terminal.print(f"  {obstacle.reason}: {obstacle.message}")
    elif state.mode == "off":
        session.terminal.print(f"{state.node}: remediation.mode is off")
    if why is not None:
        raise GpuwatchError(f"could not do all for node {state.node}", why)
    if state.plan is not None and any(one.reason is BlockReason.IDENTITY for one in state.plan.blocked):
        raise GpuwatchError(f"nothing is done to node {state.node}", "it is not known to be this machine", "see above")
