"""Makes the support bundle of a critical fault: `python -m THIS CONFIG SOCKET FILE SECONDS`.

The agent starts it. It must not disturb the agent or the node's work, so it limits itself before it loads anything:
lowest priority, the first to be killed when memory is short, and an alarm that ends it even where the agent has ended.
Kubernetes kills all processes of a container that exceeds its memory limit, the agent included: so this process limits
its own memory, and ends where the limit is refused.
"""

import contextlib
import os
import resource
import signal
import sys
from pathlib import Path

MAX_FILE, MAX_MEMORY, STACK = 32 << 20, 64 << 20, 2 << 20
"""Bytes; the limits of memory and of thread stacks also hold for each process that it starts, two at a time."""


def step_back(seconds: int) -> None:
    """Limit time, files and memory, and let all other processes run first."""
    signal.alarm(seconds)
    resource.setrlimit(resource.RLIMIT_FSIZE, (MAX_FILE, MAX_FILE))
    resource.setrlimit(resource.RLIMIT_DATA, (MAX_MEMORY, MAX_MEMORY))
    resource.setrlimit(resource.RLIMIT_STACK, (STACK, STACK))
    with contextlib.suppress(OSError):  # a sandbox may forbid the call
        os.nice(19)
    with contextlib.suppress(OSError):
        Path("/proc/self/oom_score_adj").write_text("1000")


def main() -> None:
    """Limit this process, then run `gpuwatch diagnose`."""
    config, socket, target, seconds = sys.argv[1:]
    step_back(int(seconds))
    os.environ["TMPDIR"] = str(Path(target).parent)  # the agent deletes that folder; a pod has no other temporary one
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
    for name in [name for name in os.environ if name.startswith("GPUWATCH_") or name == "KUBECONFIG"]:
        del os.environ[name]  # the file has them all, and a bundle asks no API server
    from gpuwatch.cli.main import cli

    budget = f"{max(1, int(seconds) // 2)}s"
    options = ("--config", config, "--source", f"agent:{socket}", "--quiet")
    with contextlib.suppress(SystemExit):  # its status is the diagnosis
        cli([*options, "diagnose", "-o", "name", "--level", "quick", "--budget", budget, "--bundle", target])
    sys.exit(not Path(target).exists())


if __name__ == "__main__":
    main()
