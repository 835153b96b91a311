"""`gpuwatch why [GPU|POD]`: why is it slow, the likeliest cause first, with figures and what to do."""

import contextlib
import time
from collections.abc import Collection, Sequence
from datetime import datetime

import click

from gpuwatch.cli.console.document import Envelope
from gpuwatch.cli.console.options import Number, find_gpu, namespace, option, output, state_dir
from gpuwatch.cli.console.session import Session, pass_session
from gpuwatch.cli.console.text import Text
from gpuwatch.cli.console.words import Words, utc, wrap
from gpuwatch.cli.look.columns import gpu_user
from gpuwatch.cli.look.gather import gpu_items, short_name
from gpuwatch.cli.look.items import GpuItem, Item, same_members
from gpuwatch.cli.look.source import OpenedSource, complete_names, open_source, recorded_settings
from gpuwatch.diagnose.slowness import SlowCause, slow_causes
from gpuwatch.model.errors import GpuwatchError, UsageError
from gpuwatch.model.recent import Recent, RecentSamples
from gpuwatch.model.view import View

HELP = """Say why a GPU or a pod is slow: causes, the likeliest first.

Without a name: every GPU that is used or faulty. Judges the agent's last two minutes, without an agent what it measures
itself in --seconds.

\b
Examples:
  gpuwatch why 3
  gpuwatch why ml-research/llama-pretrain-0
"""

SPACING = 0.5
FEW = 3
"""Samples of an agent that are enough to judge by."""

INDENT = 4
RANK_STYLES = {"stopped": "red", "held": "yellow", "waiting": "yellow"}


class CauseItem(Item, frozen=True, kw_only=True):
    """One cause of one GPU; the first of a GPU is the likeliest. `loss`: share of speed that it costs at most, null
    where that is not known. `rank`: stopped, held, waiting, pending or design.
    """

    gpu: int
    uuid: str
    cause: str
    rank: str
    loss: float | None
    message: str
    action: str
    evidence: dict[str, str]
    since: datetime | None


@click.command(help=HELP, short_help="Say why a GPU or a pod is slow: causes, the likeliest first.")
@click.argument("name", metavar="[GPU|POD]", required=False, shell_complete=complete_names)
@output("table", "json", "yaml", schema=("CauseList", "cli.look.why:CauseItem"))
@namespace
@option("--seconds", type=Number(0), default=10.0, help="Measured without an agent. Default: 10.")
@state_dir
@pass_session
def why(session: Session, name: str | None, output: str, namespace: str | None, seconds: float) -> None:
    """Judge the GPUs of one View."""
    with open_source(session) as source:
        wanted = asked_for(source.view(), name, namespace)  # a wrong name is an error before anything is measured
        recent, view = recent_of(source, seconds), source.view()
    causes = cause_items(view, slow_causes(view, recent, recorded_settings(session)), wanted)
    if output == "table":
        words = Words(session.terminal.glyphs, view.snapshot.at)
        gpus = [gpu for gpu in gpu_items(view) if gpu.uuid in wanted]
        session.terminal.show(*why_lines(gpus, causes, words, session.terminal.width))
        return
    document = Envelope(kind="CauseList", node=view.snapshot.node, at=utc(view.snapshot.at), items=causes)
    session.terminal.document(document, output)


def asked_for(view: View, name: str | None, namespace: str | None) -> Collection[str]:
    """UUIDs of a GPU, or of those that a pod, Slurm job or container uses; without a name all in use or with a finding.

    Raises:
        UsageError: nothing of that name is on this node.
    """
    gpus = gpu_items(view)
    if name is None:
        faulty = {finding.gpu for finding in view.judgement.findings}
        return {gpu.uuid for gpu in gpus if gpu.users or gpu.processes or gpu.allocated or gpu.uuid in faulty}
    names = {f"{namespace}/{name}"} if namespace else {name, f"slurm {name}", f"container {name}"}
    found = {gpu.uuid for gpu in gpus for user in gpu.users if names & {user, user if namespace else short_name(user)}}
    try:
        return found or {find_gpu(view, name).uuid}
    except UsageError as error:
        raise UsageError(
            f"no GPU, pod, Slurm job or container on this node matches {name!r}", error.why, "see gpuwatch get pods"
        ) from None


def recent_of(source: OpenedSource, seconds: float) -> Recent:
    """An agent's last minutes; without an agent, or with one of too few samples, what is measured now."""
    from gpuwatch.agent.client import AgentClient

    if isinstance(source, AgentClient):
        with contextlib.suppress(GpuwatchError):  # an older one has no such page
            recent = source.recent()
            if any(len(kept) >= FEW for kept in recent.gpus.values()):
                return recent
    samples, until = RecentSamples(SPACING), time.monotonic() + seconds
    while True:
        samples.add(source.view())
        if time.monotonic() >= until:
            return samples.recent
        time.sleep(SPACING)


def cause_items(view: View, causes: Sequence[SlowCause], wanted: Collection[str]) -> tuple[CauseItem, ...]:
    """Those of the wanted GPUs, in the same order."""
    indices = {status.identity.uuid: status.identity.index for status in view.snapshot.statuses}
    return tuple(
        same_members(
            CauseItem,
            cause,
            gpu=indices[cause.gpu],
            uuid=cause.gpu,
            cause=cause.name,
            rank=cause.rank.name.lower(),
            since=None if cause.since is None else utc(cause.since),
        )
        for cause in causes
        if cause.gpu in wanted
    )


def why_lines(gpus: Sequence[GpuItem], causes: Sequence[CauseItem], words: Words, width: int) -> list[Text]:
    """A block for GPUs of the same users with the same causes, by the first one's figures; the last line has the GPUs
    without any.
    """
    lines: list[Text] = []
    known, alike = {gpu.uuid: gpu for gpu in gpus}, dict[tuple[object, ...], list[list[CauseItem]]]()
    for uuid in dict.fromkeys(cause.uuid for cause in causes):
        own = [cause for cause in causes if cause.uuid == uuid]
        alike.setdefault((known.pop(uuid).users, *(cause.cause for cause in own)), []).append(own)
    of = {gpu.uuid: gpu for gpu in gpus}
    for group in alike.values():
        gpu, numbers = of[group[0][0].uuid], ", ".join(str(each) for each in sorted(own[0].gpu for own in group))
        head = Text.assemble((f"GPU {numbers}", "bold"), f"  {gpu.name or ''}   {gpu_user(gpu, words)}")
        lines += [head, *cause_lines(group[0], words, width), Text("")]
    if known:
        numbers = ", ".join(str(gpu.index) for gpu in known.values())
        lines.append(Text(f"GPU {numbers}: nothing found that slows it down"))
    return lines or [Text("no GPU is in use, and none has a finding")]


def cause_lines(causes: Sequence[CauseItem], words: Words, width: int) -> list[Text]:
    """Number, name and cost of each cause; below it the figures and what to do."""
    lines = []
    for number, cause in enumerate(causes, 1):
        cost = f"  costs up to {words.ratio(cause.loss)}" if cause.loss else ""
        since = f"  since {words.ago(cause.since.timestamp())}" if cause.since else ""
        style = RANK_STYLES.get(cause.rank, "")
        lines.append(Text.assemble(f"  {number} ", (cause.cause, f"bold {style}".strip()), cost, (since, "dim")))
        texts = [cause.message, f"{words.glyphs.arrow} {cause.action}"]
        if cause.evidence:
            texts.insert(1, "evidence: " + ", ".join(f"{name} = {value}" for name, value in cause.evidence.items()))
        blank = " " * INDENT
        for text in texts:
            folded = wrap(text, max(width, 40), initial_indent=blank, subsequent_indent=blank)
            lines += [Text(line) for line in folded]
    return lines
