"""The processes on GPUs as a tree: the workload, the processes that started its work, those on the GPUs."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import pairwise
from typing import NamedTuple

from gpuwatch.cli.console.table import Column
from gpuwatch.cli.console.terminal import Glyphs
from gpuwatch.cli.look.gather import process_workload
from gpuwatch.cli.look.items import ProcessItem
from gpuwatch.cli.look.status import gpu_numbers
from gpuwatch.cli.look.top_state import ProcessRow
from gpuwatch.host.load import ProcessUse


class TreeRow(NamedTuple):
    """A workload with its sums, a process (`pid`), or one of its GPUs (no `host`); a parent on no GPU has no items."""

    label: str
    items: Sequence[ProcessItem]
    pid: int | None = None
    host: Sequence[ProcessUse] | None = None
    workload: bool = False


def _total(values: Iterable[float | None]) -> float | None:
    """None: nothing is known."""
    known = [value for value in values if value is not None]
    return sum(known) if known else None


TREE: tuple[Column[TreeRow], ...] = (
    Column("GPU", lambda r, _: gpu_numbers({item.gpu for item in r.items}), right=True),
    Column("PID", lambda r, _: "" if r.pid is None else str(r.pid), right=True),
    Column("USER", lambda r, _: ",".join(dict.fromkeys(i.user for i in r.items if i.user)), drop=2),
    Column("TYPE", lambda r, _: ",".join(dict.fromkeys(i.type for i in r.items)) if r.pid else "", drop=6),
    Column("UTIL", lambda r, w: w.ratio(_total(i.utilization for i in r.items)) if r.items else "", right=True),
    Column("MEMORY", lambda r, w: w.size(_total(i.memory for i in r.items)) if r.items else "", right=True),
    Column("CPU", lambda r, w: "" if r.host is None else w.ratio(_total(u.cpu for u in r.host)), right=True, drop=3),
    Column("HOST MEM", lambda r, w: "" if r.host is None else w.size(_total(u.memory for u in r.host)), True, 4),
    Column("TIME", lambda r, w: w.seconds(r.host[0].seconds if r.host else None) if r.pid else "", right=True, drop=5),
    Column("WORKLOAD, PROCESSES", lambda r, _: r.label, shorten="end", least=32, style=lambda r: "bold" * r.workload),
)


def tree_rows(found: Sequence[ProcessRow], host: Mapping[int, ProcessUse], glyphs: Glyphs) -> Iterator[TreeRow]:
    """Workloads and processes in the order in which `found` has the first of each."""
    workloads: dict[str, dict[int, list[ProcessItem]]] = {}
    for row in found:
        named = row.item.workload or row.item.slurm_job or row.item.container
        workload = process_workload(row.item) if named else f"user {row.item.user}" if row.item.user else None
        workloads.setdefault(workload or glyphs.dash, {}).setdefault(row.item.pid, []).append(row.item)
    for workload, processes in workloads.items():
        branches = _Branches(processes, _children(processes, host), host, glyphs)
        members = [pid for pids in branches.children.values() for pid in pids]
        items = [item for each in processes.values() for item in each]
        yield TreeRow(workload, items, host=[host[pid] for pid in members if pid in host], workload=True)
        yield from branches.rows()


class _Branches(NamedTuple):
    """What is below a workload."""

    processes: Mapping[int, Sequence[ProcessItem]]
    children: Mapping[int | None, Sequence[int]]
    host: Mapping[int, ProcessUse]
    glyphs: Glyphs

    def rows(self) -> Iterator[TreeRow]:
        """Every process, each before its children. Without recursion: a chain of processes may be of any length."""
        waiting, shown = self._below(None, ""), set[int]()
        while waiting:
            pid, prefix, is_last = waiting.pop()
            if pid in shown:  # a pid can be reused between two reads: two can be each other's parents
                continue
            shown.add(pid)
            branch, trunk = (self.glyphs.last_branch, "   ") if is_last else (self.glyphs.branch, self.glyphs.trunk)
            items, use = self.processes.get(pid, ()), self.host.get(pid)
            name = use.command if use else next((item.name for item in items if item.name), self.glyphs.dash)
            yield TreeRow(f"{prefix}{branch} {name}", items, pid, [use] if use else [])
            for item in items if len(items) > 1 else ():
                instance = "" if item.gi is None else f", instance {item.gi}"
                yield TreeRow(f"{prefix}{trunk}on GPU {item.gpu}{instance}", [item])
            waiting += self._below(pid, prefix + trunk)

    def _below(self, parent: int | None, prefix: str) -> list[tuple[int, str, bool]]:
        """Children of a process, or of the workload, the last one first: pid, what its line begins with, is it last."""
        pids = self.children.get(parent, ())
        return [(pid, prefix, pid == pids[-1]) for pid in reversed(pids)]


def _children(processes: Mapping[int, object], host: Mapping[int, ProcessUse]) -> dict[int | None, list[int]]:
    """Parent to children; None is the workload. Only parents are kept that started a process on a GPU themselves, or
    that join several branches: the shells between them are of no interest.
    """
    lines = {pid: _parents(pid, host) for pid in processes}
    below: dict[int, set[int]] = {}
    for pid, parents in lines.items():
        for child, above in pairwise((pid, *parents)):
            below.setdefault(above, set()).add(child)
    shown = {parent for parent, pids in below.items() if len(pids) > 1 or not pids.isdisjoint(processes)}
    children: dict[int | None, list[int]] = {}
    for pid, parents in lines.items():
        line = (pid, *(parent for parent in parents if parent in shown or parent in processes))
        for child, parent in zip(line, (*line[1:], None), strict=True):
            if child not in (siblings := children.setdefault(parent, [])):
                siblings.append(child)
    return children


def _parents(pid: int, host: Mapping[int, ProcessUse]) -> list[int]:
    """Parents, the nearest first, below the first one of another user: a container's shim, a login, a batch daemon."""
    line, last = {pid: None}, pid  # a dict: in order, and fast to search
    while (use := host.get(last)) and (parent := host.get(use.parent)) and parent.uid == use.uid:
        if use.parent in line:  # a pid can be reused between two reads
            break
        last = use.parent
        line[last] = None
    return list(line)[1:]
