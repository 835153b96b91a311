"""A clock for promises about time, which are about an idle machine: it leaves out what other programs cost."""

import time
from pathlib import Path


def waited(of: int | str = "thread-self") -> float:
    """Seconds for which a thread could run and did not get a CPU. `of`: a process stands for its first thread."""
    return int(Path(f"/proc/{of}/schedstat").read_text().split()[1]) / 1e9


def unhindered() -> float:
    """Seconds of a clock that stands still while this thread waits for a CPU."""
    return time.monotonic() - waited()
