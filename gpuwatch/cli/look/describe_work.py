"""`gpuwatch describe pod|job NAME`: what a pod or Slurm job has, what it does with it, why it may be slow and what
happened.
"""

from collections.abc import Callable, Collection, Iterable, Sequence
from typing import Any

from gpuwatch.cli.console.table import Column, table
from gpuwatch.cli.console.text import Text
from gpuwatch.cli.console.words import Words
from gpuwatch.cli.look.columns import GPUS, PODS, PROCESSES
from gpuwatch.cli.look.event_items import HISTORY, EventItem, concerns, event_items
from gpuwatch.cli.look.gather import finding_items, gpu_items, pod_items, process_items
from gpuwatch.cli.look.items import FindingItem, GpuItem, Item, PodItem, ProcessItem
from gpuwatch.cli.look.status import finding_lines, grouped
from gpuwatch.cli.look.why import CauseItem, cause_items, why_lines
from gpuwatch.diagnose.slowness import slow_causes
from gpuwatch.model.errors import UsageError
from gpuwatch.model.recent import Recent
from gpuwatch.model.view import Events, View
from gpuwatch.tuning.model.setting import Setting

HISTORY_EVENTS = 12


class WorkDescription(Item, frozen=True, kw_only=True):
    """The whole GPUs that a pod or job uses, and what concerns them. `causes`: as in `why`; `history` has the latest
    events of its GPUs, oldest first.
    """

    gpus: tuple[GpuItem, ...]
    process_list: tuple[ProcessItem, ...]
    findings: tuple[FindingItem, ...]
    causes: tuple[CauseItem, ...]
    history: tuple[EventItem, ...]


class PodDescription(WorkDescription, frozen=True, kw_only=True):
    """A pod; `devices`: a row for each container on each device."""

    namespace: str | None
    pod: str | None
    devices: tuple[PodItem, ...]


class JobDescription(WorkDescription, frozen=True, kw_only=True):
    """A Slurm job, known by its processes; `users`: their users. `account` and `partition`: from its prolog."""

    job: str
    users: tuple[str, ...]
    account: str | None
    partition: str | None


def _concerned(
    view: View,
    gpus: Collection[str],
    processes: Iterable[ProcessItem],
    events: Events,
    recent: Callable[[], Recent],
    settings: Sequence[Setting],
) -> dict[str, Any]:
    """The members of a WorkDescription for work on these GPUs (UUIDs). `recent`: gets their last minutes."""
    return {
        "gpus": tuple(gpu for gpu in gpu_items(view) if gpu.uuid in gpus),
        "process_list": tuple(processes),
        "findings": tuple(each for each in finding_items(view) if each.uuid in gpus),
        "causes": cause_items(view, slow_causes(view, recent(), settings), gpus),
        "history": tuple(each for each in event_items(events, view) if concerns(each, gpus))[-HISTORY_EVENTS:],
    }


def pod_description(
    view: View,
    name: str,
    namespace: str | None,
    events: Events,
    recent: Callable[[], Recent],
    settings: Sequence[Setting],
) -> PodDescription:
    """Describe the pod called NAME or NAMESPACE/NAME.

    Raises:
        UsageError: this node has none of that name with a GPU, or several.
    """
    before, _, pod = name.rpartition("/")
    wanted = before or namespace
    devices = [each for each in pod_items(view) if each.pod == pod and wanted in (None, "", each.namespace)]
    spaces = sorted({each.namespace or "" for each in devices})
    if len(spaces) != 1:
        names = ", ".join(sorted({f"{each.namespace}/{each.pod}" for each in pod_items(view)})) or "none"
        what = f"no pod {name!r} has a GPU here" if not spaces else f"pod {pod!r} is there in {', '.join(spaces)}"
        raise UsageError(what, f"this node's pods with GPUs are {names}", "see gpuwatch get pods; -n NAMESPACE chooses")
    place = (devices[0].namespace, pod)
    processes = (
        each for each in process_items(view) if each.workload and (each.workload.namespace, each.workload.pod) == place
    )
    gpus = {each.uuid for each in devices}
    return PodDescription(
        namespace=devices[0].namespace,
        pod=pod,
        devices=tuple(devices),
        **_concerned(view, gpus, processes, events, recent, settings),
    )


def job_description(
    view: View, job: str, events: Events, recent: Callable[[], Recent], settings: Sequence[Setting]
) -> JobDescription:
    """Describe the Slurm job with this number. Raises UsageError: it has no process on a GPU of this node."""
    processes = [each for each in process_items(view) if each.slurm_job == job]
    if not processes:
        known = ", ".join(sorted({each.slurm_job for each in process_items(view) if each.slurm_job})) or "none"
        raise UsageError(
            f"no process of Slurm job {job!r} is on a GPU here",
            f"this node's jobs are {known}",
            "see gpuwatch get processes",
        )
    gpus = {each.uuid for each in processes}
    return JobDescription(
        job=job,
        users=tuple(sorted({each.user for each in processes if each.user})),
        account=next((owner.slurm_account for owner in view.owners if owner.slurm_job == job), None),
        partition=next((owner.slurm_partition for owner in view.owners if owner.slurm_job == job), None),
        **_concerned(view, gpus, processes, events, recent, settings),
    )


def work_lines(item: PodDescription | JobDescription, words: Words, width: int) -> list[Text]:
    """The lists as tables, each under its title; those without rows are left out."""
    if isinstance(item, PodDescription):
        title, devices = f"Pod {item.namespace}/{item.pod}", item.devices
    else:
        noted = [f"{name} {of}" for name, of in (("account", item.account), ("partition", item.partition)) if of]
        title = f"Slurm job {item.job}" + (f" of {', '.join(item.users)}" if item.users else "")
        title, devices = title + (f" ({', '.join(noted)})" if noted else ""), ()
    lines = [Text.assemble((words.text(title), "bold"))]
    tables: tuple[tuple[str, Sequence[Column[Any]], Sequence[Any]], ...] = (
        ("Devices", PODS[2:], devices),
        ("GPUs", GPUS, item.gpus),
        ("Processes", PROCESSES, item.process_list),
        ("History", HISTORY, item.history),
    )
    parts = [(title, table(columns, rows, words, width=width - 2)) for title, columns, rows in tables if rows]
    findings = [line for alike in grouped(item.findings) for line in finding_lines(alike, words, width - 2)]
    place = len(parts) - bool(item.history)  # before the history
    parts[place:place] = [
        ("Why it may be slow", why_lines(item.gpus, item.causes, words, width - 2)),
        ("Findings", findings),
    ]
    for title, body in parts:
        if body:
            lines += [Text(""), Text(title, "bold")]
            lines += [Text("  ").append(line) for line in body]
    return lines
