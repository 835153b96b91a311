"""The processes of a dump."""

from typing import Any

from gpuwatch.sim.capture.data import Answer, error
from gpuwatch.sim.capture.nvidia_smi.parse import DumpNode
from gpuwatch.sim.capture.nvidia_smi.values import NoValue, count, memory, refuse_words

NO_INSTANCE = 0xFFFFFFFF
LISTS = {
    "C": "nvmlDeviceGetComputeRunningProcesses",
    "G": "nvmlDeviceGetGraphicsRunningProcesses",
    "M": "nvmlDeviceGetMPSComputeRunningProcesses",
}
"""Letter of the printed type -> list; `C+G` is in both, `M+C` only in the one of MPS clients."""

SECTIONS = ("processes", "compute_processes")
UNSEEN = "insufficient permissions"
"""Printed in place of a name, in brackets or not: the user of nvidia-smi may not inspect this process."""

MAX_PID = 1 << 32


def process_lists(gpu: DumpNode) -> dict[str, Answer]:
    """List call -> answer; without the section there is no list."""
    section = next(gpu.named(*SECTIONS), None)
    if section is None:
        return {}
    lists: dict[str, list[Answer]] = {name: [] for name in LISTS.values()}
    if not section.children:
        try:
            none_running = refuse_words(section.value or "None").lower() == "none"
        except NoValue as problem:
            return dict.fromkeys(lists, error(problem.code))
        return dict(lists) if none_running else {}
    for entry in _entries(section):
        pid = _number(entry, count, "process_id", "pid")
        if pid is None or pid >= MAX_PID:
            continue
        process = {
            "pid": pid,
            "usedGpuMemory": _number(entry, memory, "used_gpu_memory", "used_memory"),
            "gpuInstanceId": _number(entry, count, "gpu_instance_id"),
            "computeInstanceId": _number(entry, count, "compute_instance_id"),
        }
        for instance in ("gpuInstanceId", "computeInstanceId"):
            process[instance] = NO_INSTANCE if process[instance] is None else process[instance]
        letters = [letter for letter in entry.get("type", "C").upper().split("+") if letter in LISTS]
        for kind in ["M"] if "M" in letters else letters or ["C"]:
            lists[LISTS[kind]].append({"object": process})
    return dict(lists)


def names(gpu: DumpNode) -> dict[int, str]:
    """Process names by pid."""
    found = {}
    for section in gpu.named(*SECTIONS):
        for entry in _entries(section):
            pid, name = _number(entry, count, "process_id", "pid"), entry.get("name") or entry.get("process_name")
            if pid is not None and name and name.strip("[]").lower() != UNSEEN:
                found[pid] = name
    return found


def _entries(section: DumpNode) -> list[dict[str, str]]:
    """XML has an element per process; in text an instance id or a pid begins the lines of the next process."""
    entries: list[dict[str, str]] = []
    ahead: dict[str, str] = {}
    for node in section.children:
        if node.label in ("process_info", "process"):
            entries.append(_leaves(node))
        elif node.label == "process_id":
            entries.append({**ahead, "process_id": node.value or "", **_leaves(node)})
            ahead = {}
        else:
            ahead[node.label] = node.value or ""
    return entries


def _leaves(node: DumpNode) -> dict[str, str]:
    return {child.label: child.value or "" for child in node.children}


def _number(entry: dict[str, str], convert: Any, *labels: str) -> int | None:
    for label in labels:
        if label in entry:
            try:
                return int(convert(refuse_words(entry[label])))
            except NoValue:
                return None
    return None
