"""The command `gpuwatch`: global options. Nothing but click is loaded for `--help`."""

import os
import sys

import click

from gpuwatch import __version__
from gpuwatch.cli.console.commands import COMMANDS, EPILOG
from gpuwatch.cli.console.lazy import Root
from gpuwatch.cli.console.options import option
from gpuwatch.cli.console.session import Session

HELP = """See, judge and export the NVIDIA GPUs of this node.

\b
Examples:
  gpuwatch status
  gpuwatch get gpus -o wide
  gpuwatch --source sim top
"""


@click.group(
    "gpuwatch",
    cls=Root,
    entries=COMMANDS,
    help=HELP,
    epilog=EPILOG,
    context_settings={
        "help_option_names": ["-h", "--help"],
        "auto_envvar_prefix": "GPUWATCH",
        "max_content_width": 100,
    },
)
@option(
    "--config",
    "config_file",
    metavar="FILE",
    envvar="GPUWATCH_CONFIG",
    help="Configuration file (YAML). Default: /etc/gpuwatch/gpuwatch.yaml, if there is one; '' for none.",
)
@option(
    "--source",
    metavar="SOURCE",
    help="nvml | sim[:SCENARIO] | capture:FILE[#SECTION] | agent[:URL]. "
    "Default: the agent of this node if one answers, else nvml.",
)
@option("--nvml-library", metavar="PATH", help="libnvidia-ml.so.1 to load, for odd driver roots.")
@option(
    "--color",
    type=click.Choice(["auto", "always", "never"]),
    default="auto",
    help="Colour the output. NO_COLOR and FORCE_COLOR are honoured. Default: auto.",
)
@option("-v", "--verbose", count=True, help="Log more; -vv logs everything and shows tracebacks.")
@option("-q", "--quiet", is_flag=True, help="No hints on stderr, only errors.")
@click.version_option(__version__, "-V", "--version", prog_name="gpuwatch", message="%(prog)s %(version)s")
@click.pass_context
def cli(
    ctx: click.Context,
    config_file: str | None,
    source: str | None,
    nvml_library: str | None,
    color: str,
    verbose: int,
    quiet: bool,
) -> None:
    """Store the global options in the Session, for the command."""
    session = ctx.ensure_object(Session)
    session.config_file, session.source, session.nvml_library = config_file, source, nvml_library
    session.verbose, session.quiet, session.color = verbose, quiet, color
    session.start_logging()
    ctx.color = session.terminal.color


def main() -> None:
    """The entry point of the package. A closed stream becomes /dev/null: otherwise the next file that is opened
    would take its descriptor number and receive what is written to the stream.
    """
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, mode, encoding="utf-8"))  # noqa: SIM115 for the whole run
            os.set_inheritable(getattr(sys, name).fileno(), True)
    cli.main(prog_name="gpuwatch")
