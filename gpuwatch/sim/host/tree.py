"""Keeps the files of all areas on the disk, in step with the node last shown."""

from collections.abc import Callable
from pathlib import Path

from gpuwatch.sim.host import Files, Symlink
from gpuwatch.sim.host.cluster import cluster
from gpuwatch.sim.host.machine import machine
from gpuwatch.sim.host.runtime import runtime
from gpuwatch.sim.host.services import services
from gpuwatch.sim.node.node import SimNode

AREAS: tuple[Callable[[SimNode], Files], ...] = (machine, services, runtime, cluster)


class SimHostTree:
    """Writes below `root`. Files that others have changed or removed stay so until the node changes theirs."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self._shown: dict[str, str | Symlink] = {}

    def show(self, node: SimNode) -> None:
        """Write what differs from what was shown before; what the node no longer has disappears."""
        wanted = {path: content for area in AREAS for path, content in area(node).items()}
        for path, content in wanted.items():
            if self._shown.get(path) != content:
                _write(self._root / path, content)
        for path in self._shown.keys() - wanted.keys():
            (self._root / path).unlink(missing_ok=True)
        self._shown = wanted


def _write(path: Path, content: str | Symlink) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.unlink(missing_ok=True)
    if isinstance(content, Symlink):
        path.symlink_to(content.target)
    else:
        path.write_text(content)
