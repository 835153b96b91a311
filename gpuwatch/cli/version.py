"""`gpuwatch version`: the versions of this program and of the agent, for a bug report or a rollout."""

import platform
from importlib.metadata import version as installed

import click

from gpuwatch import DISTRIBUTION, __version__
from gpuwatch.agent.client import find_agent
from gpuwatch.cli.console.session import Session, pass_session
from gpuwatch.cli.look.source import named_agent, parse_source
from gpuwatch.model.errors import GpuwatchError

HELP = """Print the versions of this program and of the agent.

\b
Examples:
  gpuwatch version
  gpuwatch --source agent:http://node7:9400 version
"""
SECONDS = 2.0
"""An agent found on this node that takes longer for its View is reported as not answering."""


@click.command(help=HELP, short_help="Print the versions of this program and of the agent.")
@pass_session
def version(session: Session) -> None:
    """Print a line for each; a missing agent is not an error."""
    session.terminal.print(
        f"gpuwatch  {__version__} ({DISTRIBUTION}; Python {platform.python_version()}; "
        f"nvidia-ml-py {installed('nvidia-ml-py')})"
    )
    source, config = parse_source(session.source) if session.source else None, session.config_or_defaults()
    search = find_agent(config.agent, SECONDS) if source is None else None
    agent = named_agent(source, config) if source and source.kind == "agent" else search.client if search else None
    if agent is None:
        session.terminal.print(f"agent     {search.message if search else 'not asked: the source is none'}")
        return
    try:
        view = agent.view()
    except GpuwatchError as error:
        session.terminal.print(f"agent     does not answer: {error}")
        return
    driver = view.snapshot.driver
    session.terminal.print(f"agent     {view.agent.version} ({agent.name}; driver {driver.version if driver else '–'})")
