"""`gpuwatch agent`: the long-running exporter of one node."""

from typing import TYPE_CHECKING, Any

import click

from gpuwatch.cli.console.options import option, settings_options
from gpuwatch.cli.console.session import Session, pass_session

if TYPE_CHECKING:
    from gpuwatch.config import Config

HELP = """Run the node agent.

Serves /metrics and a landing page, and other commands on a unix socket. /api/v1 is on that socket; over TCP only for
users of the web configuration, or with `agent.api: open`.

\b
Examples:
  gpuwatch agent
  gpuwatch agent --listen 127.0.0.1:9400 --profile native --profile dcgm-4.8
  gpuwatch --source sim agent
"""


@click.command(help=HELP, short_help="Run the node agent.")
@settings_options
@option("--sim-dir", metavar="DIR", help="With --source sim: where the simulated node lives, for `sim inject`.")
@pass_session
def agent(session: Session, /, sim_dir: str | None, **options: Any) -> None:
    """Wire the source to the agent and run it."""
    from shlex import quote

    from msgspec.structs import replace

    from gpuwatch.agent.agent import Agent
    from gpuwatch.cli.look.source import SourceSpec, node, parse_source
    from gpuwatch.process.signals import ConfigWatch
    from gpuwatch.sim.directory import default_directory

    session.start_logging(default="INFO")
    source = parse_source(session.source) if session.source else SourceSpec("nvml")
    place = sim_dir or str(default_directory())
    with node(source, session.effective(options).config, place) as (config, backend):

        def reread() -> "Config":
            new = session.effective(options).config
            return new if source.kind == "nvml" else replace(new, sources=config.sources)

        def show_places() -> None:
            session.show_pages(running.port, config.agent.listen, config.agent.web_config)
            session.terminal.hint(f"socket        {running.socket_path}")
            named = f"--source agent:{quote(str(running.socket_path))} " if config.agent.socket else ""
            session.terminal.hint(f"try           gpuwatch {named}status")

        running = Agent(config, backend, watch=ConfigWatch(config, session.config_path, reread))
        running.run(started=show_places)
