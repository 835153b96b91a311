"""`gpuwatch diagnose`: why does this node not work, and what to do now."""

import difflib
import time
from pathlib import Path
from typing import Any

import click

from gpuwatch.cli.console.options import KUBECONFIG, NODE_NAME, option, output
from gpuwatch.cli.console.session import Session, pass_session
from gpuwatch.cli.console.words import duration
from gpuwatch.model.errors import UsageError

HELP = """Find out why this node does not work, and what to do now.

Checks the node in the order in which it comes up: host, driver, nvml, devices, health, fabric, runtime, kubelet,
sharing, exporters, cluster, power, functional, baseline. Begin with the first failure: what depends on it is blocked.
Changes nothing.

\b
Examples:
  gpuwatch diagnose --level quick --budget 5s
  gpuwatch diagnose --stage runtime --stage kubelet -o wide
  gpuwatch diagnose --root case.tgz
  gpuwatch diagnose --bundle case.tgz
"""

EPILOG = """\b
Each option is also a variable: GPUWATCH_DIAGNOSE_STAGE for --stage.
Exit codes: 0 nothing wrong, 3 warnings only, 4 a failure, 2 wrong usage,
5 neither a GPU nor a driver, 1 unknown: nothing, or no GPU, could be judged,
6 unknown, and more rights would help.
"""

LEVELS = ("quick", "full")


@click.command(help=HELP, short_help="Find out why this node does not work, and what to do.", epilog=EPILOG)
@output(schema=("Diagnosis", "diagnose.model:CheckResult", "cli.diagnose.document:DiagnosisDocument"))
@option(
    "--level",
    type=click.Choice(LEVELS),
    metavar="LEVEL",
    default="full",
    help="full, or quick without what takes long.",
)
@option("--stage", metavar="NAME", multiple=True, help="Only this stage, and what is wrong below it.")
@option("--gpu", metavar="ID,...", multiple=True, help="Only these GPUs: index, UUID or PCI address.")
@option("--active", is_flag=True, help="Put idle GPUs to work, too: CUDA, copies, memory.")
@option("--force", is_flag=True, help="With --active: also on GPUs in use.")
@option("--cuda-library", metavar="PATH", default="", help="With --active: the libcuda.so.1 to load.")
@option("--root", metavar="DIR|FILE.tgz", default="/", help="The host's files: mounted, copied, bundled.")
@option("--budget", metavar="TIME", help="Be done within this time, such as 5s or 1m.")
@option("--expect", metavar="FILE", help="Compare the node with a baseline.")
@option("--write-expect", metavar="FILE", help="Make a baseline of this node.")
@option("--bundle", metavar="FILE.tgz", help="Also write what support needs, without secrets.")
@option("--kubeconfig", metavar="FILE", default="", envvar=KUBECONFIG, help="How to reach the API server.")
@option("--node-name", metavar="NAME", default="", envvar=NODE_NAME, help="The Node of this machine.")
@pass_session
@click.pass_context
def diagnose(
    ctx: click.Context,
    session: Session,
    /,
    output: str,
    stage: tuple[str, ...],
    gpu: tuple[str, ...],
    budget: str | None,
    expect: str | None,
    write_expect: str | None,
    bundle: str | None,
    **rest: Any,
) -> None:
    """Check the options as far as possible before anything is gathered; then gather, judge, print."""
    started = time.monotonic()
    # all checks, half a second: not for help and completion
    from gpuwatch.cli.diagnose.run import DiagnoseOptions, run
    from gpuwatch.diagnose.baseline.expectation import Expectation, check_baseline, load
    from gpuwatch.diagnose.bundling.bundle import check_target
    from gpuwatch.diagnose.model import CheckStage

    if rest["force"] and not rest["active"]:
        raise UsageError("--force goes with --active", "", "nothing else ever touches a GPU")
    if bundle is not None:
        check_target(Path(bundle))
    if write_expect is not None:
        check_baseline(Path(write_expect))
    stages = [each.value for each in CheckStage]
    for name in stage:
        if name not in stages:
            near = difflib.get_close_matches(name, stages, n=1)
            hint = f"did you mean {near[0]}?" if near else "use " + ", ".join(stages)
            raise UsageError(f"no stage {name!r}", "", hint)
    seconds = duration(budget) if budget else None
    if budget and not seconds:
        raise UsageError(f"--budget {budget!r} is no time", "", "write 5s or 1m")
    options = DiagnoseOptions(
        output=output,
        started=started,
        stages=frozenset(map(CheckStage, stage)) or None,
        gpus=tuple(one for some in gpu for one in some.split(",")),
        seconds=seconds,
        expect=load(Path(expect)) if expect else Expectation(),
        write_expect=Path(write_expect) if write_expect else None,
        bundle=Path(bundle) if bundle else None,
        **rest,
    )
    ctx.exit(run(session, options))
