"""RESOURCES: what `get` can list. A row joins a name to its items, their columns and their short names."""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import msgspec

from gpuwatch.cli.console.table import Column
from gpuwatch.cli.look import columns, gather
from gpuwatch.cli.look.items import FindingItem, GpuItem, MigItem, NvLinkItem, PodItem, ProcessItem, XidItem
from gpuwatch.model.view import View


class Resource(NamedTuple):
    """One row. `name` gives what `-o name` prints; `plural` is what several are called where that is not its key."""

    kind: str
    item: type[msgspec.Struct]
    columns: Sequence[Column[Any]]
    items: Callable[[View], Sequence[Any]]
    name: Callable[[Any], str]
    plural: str = ""


RESOURCES = {
    "gpus": Resource("GpuList", GpuItem, columns.GPUS, gather.gpu_items, lambda g: f"gpu/{g.uuid}", plural="GPUs"),
    "processes": Resource(
        "ProcessList", ProcessItem, columns.PROCESSES, gather.process_items, lambda p: f"process/{p.pid}"
    ),
    "pods": Resource("PodList", PodItem, columns.PODS, gather.pod_items, lambda p: f"pod/{p.namespace}/{p.pod}"),
    "mig": Resource(
        "MigList", MigItem, columns.MIG, gather.mig_items, lambda m: f"mig/{m.uuid}", plural="MIG instances"
    ),
    "nvlinks": Resource(
        "NvLinkList",
        NvLinkItem,
        columns.NVLINKS,
        gather.nvlink_items,
        lambda n: f"nvlink/{n.gpu}/{n.link}",
        plural="NVLinks",
    ),
    "findings": Resource(
        "FindingList", FindingItem, columns.FINDINGS, gather.finding_items, lambda f: f"finding/{f.check}"
    ),
    "xids": Resource("XidList", XidItem, columns.XIDS, gather.xid_items, lambda x: f"xid/{x.xid}", plural="XIDs"),
}
