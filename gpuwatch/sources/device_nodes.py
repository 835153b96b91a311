"""The device files through which programs and containers reach the driver."""

from pathlib import Path

from gpuwatch.model.snapshot import Record


class DeviceNode(Record, frozen=True, kw_only=True):
    """One file below /dev. `major` and `minor` None: it is no character device."""

    major: int | None = None
    minor: int | None = None
    mode: int = 0o666
    uid: int = 0


class DeviceNodes(Record, frozen=True, kw_only=True):
    """`files` by path below /dev (`nvidia0`, `nvidia-caps/nvidia-cap1`, `nvidia-caps-imex-channels/channel0`);
    `char_links`: `195:0` -> target, of /dev/char; `majors`: name -> number, of /proc/devices; `capabilities`: path
    below /proc/driver/nvidia/capabilities -> its minor.
    """

    files: dict[str, DeviceNode] = {}
    char_links: dict[str, str] = {}
    majors: dict[str, int] = {}
    capabilities: dict[str, int] = {}


def device_nodes(dev: Path, proc: Path) -> DeviceNodes:
    """Read what can be read.

    Raises:
        OSError: `dev` cannot be listed.
    """
    return DeviceNodes()
