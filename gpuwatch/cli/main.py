"""The command `gpuwatch`: global options and the table of commands. Nothing but click is loaded for `--help`."""

import click

from gpuwatch import __version__
from gpuwatch.cli.console.failures import Root
from gpuwatch.cli.console.lazy import EPILOG, Entry
from gpuwatch.cli.console.options import option
from gpuwatch.cli.console.session import Session

COMMANDS = (
    Entry("status", "Show the node on one screen: verdict, GPUs, findings.", "look.status:status", "Look"),
    Entry("top", "Watch the GPUs live.", "look.top:top", "Look"),
    Entry("get", "List gpus, processes, pods, mig, nvlinks, findings or xids.", "look.get:get", "Look"),
    Entry("describe", "Tell everything about one GPU, units spelled out.", "look.describe:describe", "Look"),
    Entry("diagnose", "Find out why this node does not work, and what to do.", "diagnose.diagnose:diagnose", "Look"),
    Entry("xid", "Explain, list, parse and watch XIDs.", "xid.xid:xid", "Look"),
    Entry("events", "Show what happened: XIDs, SXids, lost GPUs, findings, actions.", "look.events:events", "Look"),
    Entry("node", "Show, plan, quarantine and release a Kubernetes Node.", "node.node:node", "Act"),
    Entry("tune", "Show what is tuned and what would be; stop it; give back what was set.", "tune.tune:tune", "Act"),
    Entry(
        "recommend",
        "Show who holds more GPU than they use, and what to give them.",
        "recommend.recommend:recommend",
        "Act",
    ),
    Entry("repaired", "Say that a GPU was repaired: its findings from before end.", "repaired:repaired", "Act"),
    Entry("agent", "Run the node agent.", "agent:agent", "Run"),
    Entry("remediator", "Keep new work off sick GPUs.", "remediator:remediator", "Run"),
    Entry("tuner", "Tune GPUs, or say which could be; guard what was set.", "tuner:tuner", "Run"),
    Entry("demo", "Run a simulated node through a story of faults.", "demo.command:demo", "Run"),
    Entry("metrics", "Print the metrics once, or list them.", "metrics.metrics:metrics", "Develop"),
    Entry("capture", "Record what the driver answers, for replay elsewhere.", "capture:capture", "Develop"),
    Entry("sim", "Run and disturb a simulated node.", "sim.sim:sim", "Develop"),
    Entry("policy", "Check and try out what is done about faults.", "policy.policy:policy", "Develop"),
    Entry("config", "Show and check the configuration.", "config:config", "Develop"),
    Entry("completion", "Print the completion script of a shell.", "completion:completion", "Develop"),
)

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
@option("--config", "config_file", metavar="FILE", envvar="GPUWATCH_CONFIG", help="Configuration file (YAML).")
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
    """Keep what the global options say for the command."""
    session = ctx.ensure_object(Session)
    session.config_file, session.source, session.nvml_library = config_file, source, nvml_library
    session.verbose, session.quiet, session.color = verbose, quiet, color
    session.start_logging()
    ctx.color = session.terminal.color


def main() -> None:
    """The entry point of the package."""
    cli.main(prog_name="gpuwatch")
