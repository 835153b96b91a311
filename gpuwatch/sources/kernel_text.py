"""What the kernel log says about NVIDIA's driver, XIDs and all else, since the machine was booted."""

from pathlib import Path

from gpuwatch.model.snapshot import Record


class KernelLine(Record, frozen=True, kw_only=True):
    """One line of facility 0. `at`: seconds since boot, None where the copy does not tell."""

    text: str
    at: float | None = None


def kernel_text(kmsg: Path, copies: tuple[Path, ...] = ()) -> tuple[KernelLine, ...]:
    """Lines that concern GPUs, oldest first: from /dev/kmsg, or from the first of `copies` that can be read.

    Raises:
        OSError: neither can.
    """
    raise FileNotFoundError(2, "No such file or directory", str(kmsg))
