"""`gpuwatch get`: tables and documents of what the node has. RESOURCES joins a name to its items and columns."""

import time
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import click
import msgspec

from gpuwatch.cli.console.document import Envelope, schema, to_json, to_yaml
from gpuwatch.cli.console.options import chosen_gpus, gpus, option, output
from gpuwatch.cli.console.session import Session, pass_session
from gpuwatch.cli.console.table import Column, table
from gpuwatch.cli.console.words import Words, utc
from gpuwatch.cli.look import columns, gather
from gpuwatch.cli.look.items import FindingItem, GpuItem, MigItem, NvLinkItem, PodItem, ProcessItem, XidItem
from gpuwatch.cli.look.source import open_source
from gpuwatch.model.view import View


class ListedResource(NamedTuple):
    """One row. `name` gives what `-o name` prints; `plural` is the plural in messages where it is not the key."""

    kind: str
    item: type[msgspec.Struct]
    columns: Sequence[Column[Any]]
    items: Callable[[View], Sequence[Any]]
    name: Callable[[Any], str]
    plural: str = ""


RESOURCES = {
    "gpus": ListedResource(
        "GpuList", GpuItem, columns.GPUS, gather.gpu_items, lambda g: f"gpu/{g.uuid}", plural="GPUs"
    ),
    "processes": ListedResource(
        "ProcessList", ProcessItem, columns.PROCESSES, gather.process_items, lambda p: f"process/{p.pid}"
    ),
    "pods": ListedResource("PodList", PodItem, columns.PODS, gather.pod_items, lambda p: f"pod/{p.namespace}/{p.pod}"),
    "mig": ListedResource(
        "MigList", MigItem, columns.MIG, gather.mig_items, lambda m: f"mig/{m.uuid}", plural="MIG instances"
    ),
    "nvlinks": ListedResource(
        "NvLinkList",
        NvLinkItem,
        columns.NVLINKS,
        gather.nvlink_items,
        lambda n: f"nvlink/{n.gpu}/{n.link}",
        plural="NVLinks",
    ),
    "findings": ListedResource(
        "FindingList", FindingItem, columns.FINDINGS, gather.finding_items, lambda f: f"finding/{f.check}"
    ),
    "xids": ListedResource("XidList", XidItem, columns.XIDS, gather.xid_items, lambda x: f"xid/{x.xid}", plural="XIDs"),
}

HELP = """List gpus, processes, pods, mig, nvlinks, findings or xids.

\b
Examples:
  gpuwatch get gpus
  gpuwatch get pods -o json
  gpuwatch get processes --gpu 0,3 --watch
"""


@click.command(help=HELP, short_help="List gpus, processes, pods, mig, nvlinks, findings or xids.")
@click.argument("resource", type=click.Choice(list(RESOURCES)), metavar="RESOURCE")
@output("table", "wide", "json", "yaml", "name", "schema")
@gpus
@option("-w", "--watch", is_flag=True, help="Print again at every interval; JSON becomes one document a line.")
@option("--interval", type=click.FloatRange(min=0.1), default=2.0, metavar="SECONDS", help="For --watch. Default: 2.")
@pass_session
def get(session: Session, resource: str, output: str, gpu: str | None, watch: bool, interval: float) -> None:
    """Print one View, or one at every interval."""

    row = RESOURCES[resource]
    if output == "schema":
        click.echo(schema(row.kind, row.item))
        return
    with open_source(session) as source:
        _print(session, resource, source.view(), output, gpu, lines=watch)
        while watch:
            time.sleep(interval)
            if output == "yaml":
                click.echo("---")
            _print(session, resource, source.view(), output, gpu, lines=watch)


def _print(session: Session, resource: str, view: View, output: str, gpu: str | None, *, lines: bool) -> None:

    row, wanted = RESOURCES[resource], chosen_gpus(view, gpu)
    items = tuple(item for item in row.items(view) if wanted is None or item.uuid in wanted)
    document = Envelope(kind=row.kind, node=view.snapshot.node, at=utc(view.snapshot.at), items=items)
    if output == "json":
        click.echo(to_json(document, lines=lines))
    elif output == "yaml":
        click.echo(to_yaml(document))
    elif output == "name":
        click.echo("\n".join(dict.fromkeys(row.name(item) for item in items)), nl=bool(items))
    elif items:
        terminal = session.terminal
        words = Words(terminal.glyphs, view.snapshot.at)
        terminal.show(*table(row.columns, items, words, width=terminal.width, wide=output == "wide"))
    else:
        session.terminal.hint(f"No {row.plural or resource} found.")
