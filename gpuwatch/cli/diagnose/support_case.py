"""Makes the support bundle of a critical fault: `python -m THIS CONFIG SOCKET FILE SECONDS`.

The agent starts it. It must not cost the agent or the node's work anything, so it steps back before it loads anything:
lowest priority, the first to be ended when memory is short, no larger file than a bundle may be, and an alarm that ends
it however its starter ended.
"""

import contextlib
import os
import resource
import signal
import sys
from pathlib import Path

MAX_FILE = 32 << 20


def main() -> None:
    """Step back, then run `gpuwatch diagnose`."""
    config, socket, target, seconds = sys.argv[1:]
    signal.alarm(int(seconds))
    with contextlib.suppress(OSError):  # a unit may forbid the call
        os.nice(19)
    with contextlib.suppress(OSError):
        Path("/proc/self/oom_score_adj").write_text("1000")
    with contextlib.suppress(OSError, ValueError):
        resource.setrlimit(resource.RLIMIT_FSIZE, (MAX_FILE, MAX_FILE))
    for name in [name for name in os.environ if name.startswith("GPUWATCH_") or name == "KUBECONFIG"]:
        del os.environ[name]  # the file has them all, and a bundle asks no API server
    from gpuwatch.cli.main import cli

    budget = f"{max(1, int(seconds) // 2)}s"
    options = ("--config", config, "--source", f"agent:{socket}", "--quiet")
    cli([*options, "diagnose", "-o", "name", "--level", "quick", "--budget", budget, "--bundle", target])


if __name__ == "__main__":
    main()
