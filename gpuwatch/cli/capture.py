"""`gpuwatch capture`: records a driver's answers, so that another machine can replay this one's GPUs."""

from pathlib import Path
from shlex import quote

import click

from gpuwatch.cli.console.options import Number, option
from gpuwatch.cli.console.session import Session, pass_session

HELP = """Record what the driver answers, for replay elsewhere.

FILE then stands in for a GPU: gpuwatch --source capture:FILE status. Output of `nvidia-smi -q` does, too.

\b
Examples:
  gpuwatch capture node7.capture
  gpuwatch capture node7.capture --samples 60 --interval 1 --mask
"""


@click.command(help=HELP, short_help="Record what the driver answers, for replay elsewhere.")
@click.argument("file", type=click.Path(dir_okay=False, path_type=Path))
@option("--samples", type=click.IntRange(min=1), default=10, metavar="N", help="How many to take. Default: 10.")
@option("--interval", type=Number(0.05), default=1.0, metavar="SECONDS", help="Default: 1.")
@option("--mask", is_flag=True, help="Replace serial numbers and UUIDs.")
@pass_session
def capture(session: Session, file: Path, samples: int, interval: float, mask: bool) -> None:
    """Record with the readers that the agent uses."""
    from importlib import import_module

    from gpuwatch.cli.look.source import SourceSpec, node, parse_source
    from gpuwatch.model.errors import UsageError
    from gpuwatch.sim.capture import record

    source = parse_source(session.source) if session.source else SourceSpec("nvml")
    if source.kind == "agent":
        raise UsageError(
            "an agent cannot be recorded", "it serves Views, not the driver's answers", "use --source nvml"
        )
    with node(source, session.config_or_defaults()) as (config, backend):
        module, _, function = backend.factory.partition(":")
        nvml = getattr(import_module(module), function)(backend.target or config.sources.nvml_library)
        seconds = (samples - 1) * interval
        session.terminal.hint(f"recording {samples} samples, {seconds:.0f} s")
        taken = record(nvml, samples, interval, file, masked=mask)
    session.terminal.hint(f"{file}: {taken.header.samples} samples of {len(taken.header.models)} GPUs")
    session.terminal.hint(f"replay with: gpuwatch --source capture:{quote(str(file))} status")
