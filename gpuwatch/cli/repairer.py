"""`gpuwatch repairer`: resets sick GPUs that nothing uses, on a node that is out of service."""

from pathlib import Path
from typing import Any

import click

from gpuwatch.agent.client import AgentViews, agent_of_node
from gpuwatch.cli.console.effective_config import Override
from gpuwatch.cli.console.options import option, row_options
from gpuwatch.cli.console.session import Session, pass_session
from gpuwatch.host.machine import boot_id_file, first_line
from gpuwatch.model.clock import SystemClock
from gpuwatch.model.errors import GpuwatchError, UsageError
from gpuwatch.model.view import GpuRepair, View
from gpuwatch.process.signals import ENDS, Signals
from gpuwatch.repair.repairer import REST_SECONDS, Repairer
from gpuwatch.repair.reset import record_file
from gpuwatch.storage.store import Store

HELP = """Reset sick GPUs that nothing uses.

Resets a GPU whose finding asks for it when the remediator has quarantined the node and no pod, process, virtual
machine, MIG instance or other client uses the GPU; one at a time, at most repair.tries times, each recorded first. With
remediation.validate: active it also runs `gpuwatch node validate` on quarantined GPUs. Mode observe only reports.

It needs root on the machine itself, or a privileged pod with hostPID.

\b
Examples:
  gpuwatch repairer --mode observe --once
  gpuwatch repairer --mode enforce
"""

OVERRIDES = (
    Override("repair.mode", "mode", "MODE", "off, observe or enforce. Default: off.", "GPUWATCH_REPAIRER_MODE"),
    Override("agent.socket", "agent", "SOCKET", "The agent's unix socket.", "GPUWATCH_AGENT_SOCKET"),
    Override("state_dir", "state_dir", "DIR", "Where state is kept. Default: /var/lib/gpuwatch.", "GPUWATCH_STATE_DIR"),
)
"""Options of the repairer."""

LOCK_SECONDS = 1.0
NEXT_STEP = "stop one of them; `gpuwatch describe gpu ID` shows what the running one reports"


@click.command(help=HELP, short_help="Reset sick GPUs that nothing uses.")
@row_options(OVERRIDES)
@option("--once", is_flag=True, help="Run one cycle, print how each GPU stands, end.")
@pass_session
def repairer(session: Session, /, *, once: bool, **options: Any) -> None:
    """Wire agent, policy, record and store to the repairer and run it."""
    session.start_logging(default="WARNING" if once else "INFO")
    session.start_audit()
    config, clock = session.effective(options, OVERRIDES).config, SystemClock()
    if config.repair.mode == "off":
        session.terminal.hint("repair.mode is off: nothing is done; set observe or enforce")
        return
    if not config.state_dir:
        raise UsageError("nothing can be recorded", "state_dir is empty", "name it with --state-dir")
    views, signals, store = AgentViews(agent_of_node(config.agent), clock), Signals(), Store.open(config.state_dir)
    try:
        record = record_file(Path(config.state_dir))
        with record.lock(LOCK_SECONDS) as is_alone:
            if not is_alone:
                why = f"it holds {record.path.with_suffix('.lock')}, or that cannot be opened"
                raise GpuwatchError("another repairer runs", why, NEXT_STEP)
            boot_id = first_line(boot_id_file(Path(config.sources.proc)))
            signals.catch(ENDS)

            ended: list[int] = []

            def wait(seconds: float) -> None:  # a reset that has begun is finished first
                if (number := signals.next(seconds)) is not None:
                    ended.append(number)

            running = Repairer(config, views, store, clock, boot_id, wait)
            running.start()
            while True:
                running.step()
                if once:
                    _print(session, running.status, views.view)
                    return
                wait(0.0 if ended else REST_SECONDS)
                if ended:
                    return
    finally:
        store.close()


def _print(session: Session, status: tuple[GpuRepair, ...], view: View | None) -> None:
    """A line for each GPU that asks for a reset."""
    names = {s.identity.uuid: f"GPU {s.identity.index}" for s in view.snapshot.statuses} if view else {}
    for each in status:
        session.terminal.print(f"{names.get(each.gpu, each.gpu)}: {each.state}: {each.message}")
    if not status:
        session.terminal.hint("no GPU asks for a reset" if view else "the agent does not answer")
