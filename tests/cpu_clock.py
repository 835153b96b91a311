"""A clock for promises about time, which are about an idle machine: it leaves out what other programs cost."""

import os
import subprocess
import sys
import time
from pathlib import Path


def waited(of: int | str = "thread-self") -> float:
    """Seconds for which a thread could run and did not get a CPU. `of`: a process stands for its first thread."""
    return int(Path(f"/proc/{of}/schedstat").read_text().split()[1]) / 1e9


def unhindered() -> float:
    """Seconds of a clock that stands still while this thread waits for a CPU."""
    return time.monotonic() - waited()


START, START_SECONDS = "import asyncio, decimal, email.message, http.client, multiprocessing, xml.dom.minidom", 0.12
"""A start of Python, and the CPU seconds that it took on the machine on which the promises about time were made."""


def slowness() -> float:
    """How many times as much a start of Python costs here and now, at least 1; a promise is that much longer."""
    before = os.times()
    subprocess.run([sys.executable, "-c", START], check=True)
    after = os.times()
    cost = after.children_user + after.children_system - before.children_user - before.children_system
    return max(1.0, cost / START_SECONDS)
