"""Things to do to a host in rows of `Broken`, to be combined."""

from collections.abc import Callable
from typing import Any

import msgspec

from tests.diagnose.hosts import Host, seen


def several(*changes: Callable[[Host], None]) -> Callable[[Host], None]:
    """One after the other."""

    def change(host: Host) -> None:
        for each in changes:
            each(host)

    return change


def view(*timeline: dict[str, Any], earlier: bool = False, **node: Any) -> Callable[[Host], None]:
    """What the driver tells after that."""

    def change(host: Host) -> None:
        host.view = seen(timeline, **node)
        host.earlier = host.earlier if earlier else host.view

    return change


def process(pid: int, name: str) -> Callable[[Host], None]:
    """It runs."""

    def change(host: Host) -> None:
        host.write(f"proc/{pid}/comm", name[:15] + "\n")
        host.write(f"proc/{pid}/stat", f"{pid} ({name[:15]}) S 1 {pid} {pid} 0 0\n")

    return change


def gone(path: str) -> Callable[[Host], None]:
    """No longer there."""
    return lambda host: host.remove(path)


def labels(**changes: str) -> Callable[[Host], None]:
    """Labels of the node; `mig_config` stands for nvidia.com/mig.config."""

    def change(host: Host) -> None:
        assert host.cluster is not None
        named = {f"nvidia.com/{name.replace('_', '.').replace('..', '-')}": text for name, text in changes.items()}
        node = msgspec.structs.replace(host.cluster.node, labels=host.cluster.node.labels | named)
        host.cluster = msgspec.structs.replace(host.cluster, node=node)

    return change


def every_gpu(**changes: Any) -> Callable[[Host], None]:
    """Changes the sample of each."""

    def change(host: Host) -> None:
        assert host.view is not None
        for gpu in host.view.snapshot.gpus:
            host.gpu(gpu.identity.index, **changes)

    return change
