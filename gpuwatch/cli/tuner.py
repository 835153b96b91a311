"""`gpuwatch tuner`: tunes GPUs or reports which may be tuned; with `--guard` it reverts what a dead tuner has set."""

from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from gpuwatch.cli.console.effective_config import Override
from gpuwatch.cli.console.options import KUBECONFIG, NODE_NAME, option, row_options
from gpuwatch.cli.console.session import Session, pass_session
from gpuwatch.cli.tune.consents import keep_consents

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from gpuwatch.config import Config
    from gpuwatch.storage.audit import Audit

HELP = """Let GPUs do their work with less energy.

Reports for each GPU of this machine's agent whether it may be tuned. Mode observe, the default, does not load the
driver. Mode enforce caps GPUs that opted in, within the allowed slowdown, keeps the node's power budget, and reverts
everything when it ends or is in doubt; it needs the driver's library, root, CAP_SYS_ADMIN, a guard, and samples each
second.

--guard runs beside a tuner and reverts what is recorded once the tuner writes no heartbeat for 30 s; it needs the
driver's library, root and CAP_SYS_ADMIN. --consents reads pods' consents and labels (Kubernetes API) and the pages on
which they count their work; it needs a token, but no GPU or tuner. Without a node name it only serves
tuning.progress_socket.

\b
Examples:
  gpuwatch tuner --listen 127.0.0.1:9402
  gpuwatch tuner --guard
  gpuwatch tuner --consents --node-name gpu-1
"""

OVERRIDES = (
    Override(
        "tuning.mode",
        "mode",
        "MODE",
        "off, observe or enforce; a file may allow less.",
        "GPUWATCH_TUNER_MODE",
        ranks=("off", "observe", "enforce"),
    ),
    Override("agent.socket", "agent", "SOCKET", "The agent's.", "GPUWATCH_AGENT_SOCKET"),
    Override("tuning.listen", "listen", "ADDR:PORT", "Where to serve HTTP. Default: :9402.", "GPUWATCH_TUNER_LISTEN"),
    Override(
        "tuning.web_config", "web_config", "FILE", "TLS and users (exporter-toolkit).", "GPUWATCH_TUNER_WEB_CONFIG"
    ),
    Override("tuning.node_name", "node_name", "NAME", "For --consents. Default: NODE_NAME.", NODE_NAME),
    Override(
        "tuning.progress_socket",
        "progress_socket",
        "PATH",
        "For --consents: where work is counted.",
        "GPUWATCH_TUNER_PROGRESS_SOCKET",
    ),
    Override("tuning.kubeconfig", "kubeconfig", "FILE", "For --consents; else the pod's.", KUBECONFIG),
    Override("state_dir", "state_dir", "DIR", "Default: /var/lib/gpuwatch.", "GPUWATCH_STATE_DIR"),
)
"""Options of the tuner."""


@click.command(help=HELP, short_help="Tune GPUs, or say which could be; guard what was set.")
@row_options(OVERRIDES)
@option("--guard", is_flag=True, help="Restore what a tuner has set, once it is dead.")
@option("--consents", is_flag=True, help="Write the consents of pods for tuner and agent.")
@pass_session
def tuner(session: Session, /, *, guard: bool, consents: bool, **options: Any) -> None:
    """Wire the agent's View, the record and the heartbeat to the tuner, or the driver to the guard."""
    from gpuwatch.cli.look.source import config_of_source, is_simulated, running_simulation

    def reread() -> "Config":
        return config_of_source(session, session.effective(options, OVERRIDES).config)

    session.start_logging(default="INFO")
    if guard and consents:
        raise click.UsageError("--guard and --consents are two processes")
    if is_simulated(session):
        running_simulation(session)  # raises where none runs: there is nothing to tune
    if consents:
        keep_consents(session, reread)
    elif guard:
        _guard(session, reread())
    else:
        _tune(session, reread)


def _tune(session: Session, reread: "Callable[[], Config]") -> None:
    from gpuwatch.agent.client import AgentViews, agent_of_node
    from gpuwatch.cli.look.source import is_simulated
    from gpuwatch.cli.tune.driver_access import nvml_actuator
    from gpuwatch.model.clock import SystemClock
    from gpuwatch.process.signals import ConfigWatch
    from gpuwatch.tuning.service.process import ANSWER_SECONDS, TunerService
    from gpuwatch.tuning.service.state_dir import TunerFolder, state_directory
    from gpuwatch.tuning.service.tuner import Tuner, checked

    config, clock = reread(), SystemClock()
    enforcing = config.tuning.mode == "enforce"
    place = state_directory(config)
    views = AgentViews(agent_of_node(config.agent, ANSWER_SECONDS), clock)
    if enforcing and not is_simulated(session):
        _warn_without_rights(session)
    with ExitStack() as stack:
        actuator = stack.enter_context(nvml_actuator(session, config)) if enforcing else None
        tuning = Tuner(
            config.tuning,
            views,
            TunerFolder.at(place),
            clock=clock,
            classes=config.checks.xids,
            actuator=actuator,
            audit=stack.enter_context(_audit(session, config)) if enforcing else None,
        )
        watch = ConfigWatch(
            config,
            session.config_path,
            lambda: checked(reread(), enforcing=enforcing),
            live=("tuning", "checks"),
            role="tuner",
        )
        settings = config.tuning
        service = TunerService(tuning, views, settings.listen, web_config=settings.web_config, watch=watch)
        heading = f"mode          {settings.mode}"
        service.run(started=lambda: session.show_pages(service.port, settings.listen, settings.web_config, heading))


def _warn_without_rights(session: Session) -> None:
    """Warn early: only the first write shows it for certain, and then each GPU reports it."""
    from gpuwatch.host.machine import capabilities

    try:
        own = capabilities(Path("/proc/self/status").read_text())
    except OSError:
        return
    if "CAP_SYS_ADMIN" not in own:
        session.terminal.hint(
            "hint: without CAP_SYS_ADMIN the driver will refuse to set anything; run it as root with it"
        )


@contextmanager
def _audit(session: Session, config: "Config") -> "Iterator[Audit]":
    from gpuwatch.host.machine import boot_id_file, first_line
    from gpuwatch.model.clock import SystemClock
    from gpuwatch.storage.audit import Audit
    from gpuwatch.storage.store import Store

    session.start_audit()
    store, boot_id = Store.open(config.state_dir), first_line(boot_id_file(Path(config.sources.proc)))
    try:
        yield Audit(store, SystemClock(), actor="tuner", boot_id=boot_id)
    finally:
        store.close()


def _guard(session: Session, config: "Config") -> None:
    from gpuwatch.cli.tune.driver_access import restorer
    from gpuwatch.model.clock import SystemClock
    from gpuwatch.process.signals import ENDS, Signals
    from gpuwatch.tuning.actuation.guard import Guard
    from gpuwatch.tuning.actuation.heartbeat import HeartbeatFile
    from gpuwatch.tuning.actuation.record import SettingsRecord
    from gpuwatch.tuning.model.setting import Trigger
    from gpuwatch.tuning.service.state_dir import state_directory

    session.start_audit()
    signals = Signals()
    with restorer(session, config, Trigger.GUARD) as restoring:
        place = state_directory(config)
        guarding = Guard(SettingsRecord(place), HeartbeatFile(place), restoring, SystemClock())
        signals.catch(ENDS)
        guarding.run(lambda seconds: signals.next(seconds) is not None)
