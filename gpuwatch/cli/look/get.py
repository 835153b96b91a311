"""`gpuwatch get`: tables and documents of what the node has. RESOURCES joins a name to its items and columns."""

import time
from collections.abc import Callable, Sequence
from operator import attrgetter
from typing import Any, NamedTuple, get_type_hints

import click
import msgspec

from gpuwatch.cli.console.document import Envelope, schema
from gpuwatch.cli.console.options import Number, ResourceName, chosen_gpus, gpus, namespace, option, output
from gpuwatch.cli.console.session import Session, pass_session
from gpuwatch.cli.console.table import Column, table
from gpuwatch.cli.console.words import Words, utc
from gpuwatch.cli.look import columns, gather
from gpuwatch.cli.look.items import FindingItem, GpuItem, MigItem, NvLinkItem, PodItem, ProcessItem, XidItem
from gpuwatch.cli.look.source import open_source
from gpuwatch.model.errors import UsageError
from gpuwatch.model.view import View


class ListedResource(NamedTuple):
    """One row. `name` gives what `-o name` prints; `plural` is the plural in messages where it is not the key.

    `also`: its other names.
    """

    kind: str
    item: type[msgspec.Struct]
    columns: Sequence[Column[Any]]
    items: Callable[[View], Sequence[Any]]
    name: Callable[[Any], str]
    plural: str = ""
    also: tuple[str, ...] = ()


RESOURCES = {
    "gpus": ListedResource(
        "GpuList", GpuItem, columns.GPUS, gather.gpu_items, lambda g: f"gpu/{g.uuid}", "GPUs", ("gpu",)
    ),
    "processes": ListedResource(
        "ProcessList",
        ProcessItem,
        columns.PROCESSES,
        gather.process_items,
        lambda p: f"process/{p.pid}",
        also=("process", "ps"),
    ),
    "pods": ListedResource(
        "PodList", PodItem, columns.PODS, gather.pod_items, lambda p: f"pod/{p.namespace}/{p.pod}", also=("pod", "po")
    ),
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
        also=("nvlink", "links"),
    ),
    "findings": ListedResource(
        "FindingList",
        FindingItem,
        columns.FINDINGS,
        gather.finding_items,
        lambda f: f"finding/{f.check}",
        also=("finding",),
    ),
    "xids": ListedResource(
        "XidList", XidItem, columns.XIDS, gather.xid_items, lambda x: f"xid/{x.xid}", "XIDs", ("xid",)
    ),
}


class Shape(NamedTuple):
    """What is printed and how. `member` reads what items are sorted by; `lines`: JSON, a document a line."""

    resource: str
    output: str
    gpu: str | None
    namespace: str | None
    member: Callable[[Any], Any] | None
    lines: bool


HELP = """List gpus, processes, pods, mig, nvlinks, findings or xids.

\b
Examples:
  gpuwatch get gpus
  gpuwatch get pods -o json
  gpuwatch get gpus --sort-by power.instant
  gpuwatch get processes --gpu 0,3 --watch
"""


@click.command(help=HELP, short_help="List gpus, processes, pods, mig, nvlinks, findings or xids.")
@click.argument("resource", type=ResourceName({name: row.also for name, row in RESOURCES.items()}), metavar="RESOURCE")
@output("table", "wide", "json", "yaml", "name", "schema")
@gpus
@namespace
@option("-A", "--all-namespaces", is_flag=True, expose_value=False, help="Those of all namespaces: the default.")
@option("--sort-by", metavar="PATH", help="A member as -o json names it; the largest number first, unknown last.")
@option("-w", "--watch", is_flag=True, help="Print again at every interval; JSON becomes one document a line.")
@option("--interval", type=Number(0.1), default=2.0, metavar="SECONDS", help="For --watch. Default: 2.")
@pass_session
def get(
    session: Session,
    resource: str,
    output: str,
    gpu: str | None,
    namespace: str | None,
    sort_by: str | None,
    watch: bool,
    interval: float,
) -> None:
    """Print one View, or one at every interval."""
    row = RESOURCES[resource]
    if namespace is not None and "namespace" not in row.item.__struct_fields__:
        raise UsageError(
            f"{row.plural or resource} have no namespace", "", "leave -n out, or ask for pods or processes"
        )
    shape = Shape(resource, output, gpu, namespace, _member(row.item, sort_by) if sort_by else None, watch)
    if output == "schema":
        session.terminal.page(schema(row.kind, row.item) + "\n")
        return
    with open_source(session) as source:
        _print(session, source.view(), shape)
        while watch:
            time.sleep(interval)
            if output == "yaml":
                session.terminal.print("---")
            _print(session, source.view(), shape)


def _member(item: type[msgspec.Struct], path: str) -> Callable[[Any], Any]:
    """Reads a member at `power.instant`. Raises UsageError: an item has none there."""
    kind: Any = item
    for part in path.split("."):
        names = kind.__struct_fields__ if isinstance(kind, type) and issubclass(kind, msgspec.Struct) else ()
        if part not in names:
            hint = f"it has {', '.join(names)}" if names else "that member has no parts"
            raise UsageError(f"cannot sort by {path!r}: there is no {part!r}", "", hint)
        kind = get_type_hints(kind)[part]
    return attrgetter(path)


def _place(value: Any) -> tuple[Any, ...]:
    """The largest number first, then names in their order, what is unknown last."""
    if value is None:
        return (2,)
    return (0, -value) if isinstance(value, int | float) else (1, str(value))


def _print(session: Session, view: View, shape: Shape) -> None:
    resource, output, gpu, namespace, member, lines = shape
    row, wanted = RESOURCES[resource], chosen_gpus(view, gpu)
    items = tuple(
        item
        for item in row.items(view)
        if (wanted is None or item.uuid in wanted) and (namespace is None or item.namespace == namespace)
    )
    if member is not None:
        items = tuple(sorted(items, key=lambda item: _place(member(item))))
    document = Envelope(kind=row.kind, node=view.snapshot.node, at=utc(view.snapshot.at), items=items)
    if output in ("json", "yaml"):
        session.terminal.document(document, "ndjson" if lines and output == "json" else output)
    elif output == "name":
        session.terminal.print(*dict.fromkeys(row.name(item) for item in items))
    elif items:
        terminal = session.terminal
        words = Words(terminal.glyphs, view.snapshot.at)
        terminal.show(*table(row.columns, items, words, width=terminal.width, wide=output == "wide"))
    else:
        session.terminal.hint(f"No {row.plural or resource} found.")
