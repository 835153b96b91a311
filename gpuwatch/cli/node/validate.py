"""`gpuwatch node validate`: the proof that `remediation.validate: active` requires before a GPU or node is released.

It runs where the GPUs are, not in the remediator, which has no access to them; the agent reads the result from
`state_dir` and shows it in its View.
"""

from pathlib import Path

import click

from gpuwatch.agent.repairs import keep_validations
from gpuwatch.cli.console.options import find_gpu, option, state_dir
from gpuwatch.cli.console.session import Session, pass_session, progress
from gpuwatch.cli.look.source import open_source
from gpuwatch.diagnose import validation
from gpuwatch.host.machine import boot_id_file, first_line
from gpuwatch.model.clock import SystemClock
from gpuwatch.model.errors import PermissionMissing, UsageError
from gpuwatch.storage.store import Store

HELP = """Put idle GPUs to work, as proof that they are healthy.

Runs the checks of `gpuwatch diagnose --active` and the command of remediation.validation on these GPUs (all without
ID), and records the result for the agent. With remediation.validate: active a quarantine ends only after that. A GPU in
use is not tried. ID is an index, a UUID or its beginning, or a PCI address.

The exit code: 0 all passed, 4 one failed, 1 none failed and one was not tried.

\b
Examples:
  gpuwatch node validate 3
  gpuwatch node validate
"""


@click.command(help=HELP, short_help="Put idle GPUs to work, as proof that they are healthy.")
@click.argument("ids", metavar="[ID]...", nargs=-1)
@option("--cuda-library", metavar="PATH", default="", help="libcuda.so.1 to load, for odd driver roots.")
@state_dir
@pass_session
@click.pass_context
def validate(ctx: click.Context, session: Session, ids: tuple[str, ...], cuda_library: str) -> None:
    """Test, print, record."""
    config = session.config()
    if not config.state_dir:
        raise UsageError("the result cannot be kept", "state_dir is empty", "name it with --state-dir")
    with open_source(session) as node:
        view = node.view()
    here = first_line(boot_id_file(Path(config.sources.proc)))
    if here is None or here != view.snapshot.host.boot_id:
        why = "the view is of another machine, of a recording, or of another boot"
        raise UsageError("these GPUs cannot be put to work", why, "run it on the node itself, beside its agent")
    chosen = [find_gpu(view, text) for text in ids] or [status.identity for status in view.snapshot.statuses]
    settings = config.remediation.validation
    with progress(session, "working") as advance:
        run = validation.validate(
            view,
            frozenset(identity.index for identity in chosen),
            SystemClock(),
            validation.ValidationCommand(settings.command, settings.deadline),
            library=cuda_library,
            progress=lambda text: advance(text, 0, 0),
        )
    names = {identity.uuid: f"GPU {identity.index}" for identity in chosen}
    for each in run.validations:
        session.terminal.print(f"{names[each.gpu]}: {'passed' if each.passed else f'failed: {each.message}'}")
    for index, reason in sorted(run.refused.items()):
        session.terminal.print(f"GPU {index}: not tried: {reason}")
    store = Store.open(config.state_dir)
    written = keep_validations(store, run.validations, "operator")
    trouble = store.trouble
    store.close()
    if not written:
        raise PermissionMissing("the result was not noted", trouble or "", "run this as the agent's user")
    failed = any(not each.passed for each in run.validations)
    ctx.exit(4 if failed else 1 if run.refused or not run.validations else 0)
