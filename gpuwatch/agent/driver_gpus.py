"""/proc/driver/nvidia/gpus, read by a child process.

The kernel module answers a read of these files under its own locks. When the driver is wedged, the read never returns
and its thread cannot be killed: a process with such a thread stays in state D, and its pod in Terminating. A thread of
the agent must therefore never read them, and a timeout does not help, because the thread stays. So each read is made by
a small child. A child that does not answer is abandoned: it is killed, which takes effect once the driver returns.
Until then no second one is started. The agent itself can always end.
"""

import subprocess
import sys
from pathlib import Path

from gpuwatch.host.pci import DriverGpu, driver_gpu

SECONDS = 5.0
"""Longest time of a read: milliseconds are usual, and the start of a process on a loaded machine takes longest."""

MAX_BYTES = 1 << 16
"""Most bytes of one file; the driver writes about 400."""

# The names of the folders and the files' texts, each ended by NUL. -S and -I: nothing else is loaded, 10 ms of CPU.
_PROGRAM = f"""
import os, sys
folder = sys.argv[1]
for name in sorted(os.listdir(folder)):
    try:
        with open(os.path.join(folder, name, "information"), "rb") as file:
            text = file.read({MAX_BYTES})
    except OSError:
        text = b""
    sys.stdout.buffer.write(os.fsencode(name) + b"\\0" + text.replace(b"\\0", b"") + b"\\0")
"""


class DriverGpus:
    """Reads `folder` for one thread."""

    def __init__(self, folder: Path, seconds: float = SECONDS) -> None:
        self._folder, self._seconds = folder, seconds
        self._abandoned: subprocess.Popen[bytes] | None = None

    def read(self) -> tuple[DriverGpu, ...]:
        """GPUs that the kernel module knows, by address; empty without the module.

        Raises:
            TimeoutError: the driver does not answer, now or since an earlier read.
            OSError: the child cannot be started or has failed. That is not the same as a driver without GPUs.
        """
        if self._abandoned is not None and self._abandoned.poll() is None:
            raise TimeoutError(f"a read of {self._folder} does not return; the driver is wedged")
        self._abandoned = None
        if not self._folder.is_dir():
            return ()
        command = [sys.executable, "-I", "-S", "-c", _PROGRAM, str(self._folder)]
        child = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, start_new_session=True
        )
        try:
            output, _ = child.communicate(timeout=self._seconds)
        except subprocess.TimeoutExpired:
            self._abandoned = child
            child.kill()
            assert child.stdout is not None  # noqa: S101 PIPE was asked for
            child.stdout.close()
            raise TimeoutError(
                f"{self._folder} was not read within {self._seconds:g} s; is the driver wedged?"
            ) from None
        if child.returncode and self._folder.is_dir():
            raise OSError(f"the process that reads {self._folder} ended with {child.returncode}")
        parts = output.decode("utf-8", "replace").split("\0")
        return tuple(driver_gpu(name, text) for name, text in zip(parts[:-1:2], parts[1::2], strict=False))
