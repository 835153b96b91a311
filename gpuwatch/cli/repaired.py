"""`gpuwatch repaired`: a person records what the agent cannot detect: a GPU was reset, replaced or removed."""

import time

import click

from gpuwatch.agent.repairs import mark_repaired
from gpuwatch.cli.console.options import find_gpu, state_dir
from gpuwatch.cli.console.session import Session, pass_session
from gpuwatch.cli.look.source import open_source
from gpuwatch.model.errors import PermissionMissing, UsageError
from gpuwatch.model.view import View
from gpuwatch.storage.store import Store

HELP = """Say that a GPU was repaired: its findings from before end.

Needed only for GPUs with neither an energy counter nor a recovery action, and for one that was taken out: gpuwatch
notices a reset, reboot or new driver of others. What is still wrong is found again. ID is an index, a UUID or its
beginning, a PCI address, or `node` for findings without a GPU.

\b
Examples:
  gpuwatch repaired 3
  gpuwatch repaired GPU-5fd4f087 node
"""


@click.command(help=HELP, short_help="Say that a GPU was repaired: its findings from before end.")
@click.argument("ids", metavar="ID...", nargs=-1, required=True)
@state_dir
@pass_session
def repaired(session: Session, ids: tuple[str, ...]) -> None:
    """Record it in the store that the agent reads."""
    directory = session.config().state_dir
    if not directory:
        raise UsageError("nothing would keep it", "state_dir is empty: nothing is kept", "name it with --state-dir")
    with open_source(session) as node:
        view = node.view()
    subjects = {_subject(view, text) for text in ids}
    ended = [f.key for f in view.judgement.findings if (f.gpu or "node") in subjects]
    store = Store.open(directory)
    written = mark_repaired(store, subjects, time.time(), ended)
    trouble = store.trouble
    store.close()
    if not written:
        raise PermissionMissing(f"{', '.join(ids)} was not noted", trouble or "", "run this as the agent's user")
    session.terminal.show(f"Noted; findings it is about: {len(ended)}. Those that are still true stay.")


def _subject(view: View, text: str) -> str:
    """The GPU's uuid, also of one that only findings name; or `node`."""
    if text == "node":
        return text
    remembered = {f.gpu for f in view.judgement.findings if f.gpu and len(text) > 4 and f.gpu.startswith(text)}
    return remembered.pop() if len(remembered) == 1 else find_gpu(view, text).uuid
