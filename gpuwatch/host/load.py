"""How busy the machine around the GPUs is: a GPU that waits is often a processor that cannot keep up."""

from pathlib import Path

import psutil

from gpuwatch.model.snapshot import Record


class HostUse(Record, frozen=True, kw_only=True):
    """Load of the host: `cpu` 0..1 of all processors since the previous look, memory in bytes, load of one minute."""

    cpu: float
    processors: int
    memory_used: int
    memory_total: int
    load: float


def host_use() -> HostUse:
    """Look now; the first look's `cpu` covers the time since psutil was loaded."""
    memory = psutil.virtual_memory()
    return HostUse(
        cpu=psutil.cpu_percent(interval=None) / 100,
        processors=psutil.cpu_count() or 1,
        memory_used=memory.total - memory.available,
        memory_total=memory.total,
        load=psutil.getloadavg()[0],
    )


def uptime(proc: Path) -> float | None:
    """Seconds since the machine was booted (proc(5), uptime); None where that cannot be read."""
    try:
        return float((proc / "uptime").read_text().split()[0])
    except (OSError, ValueError, IndexError):
        return None
