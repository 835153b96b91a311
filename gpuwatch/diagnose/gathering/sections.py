"""Which file of the host fills which section: one row each."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

from gpuwatch.diagnose.facts import HostSection
from gpuwatch.diagnose.gathering.recorded import recorded
from gpuwatch.diagnose.host.cdi import cdi_specs
from gpuwatch.diagnose.host.container_runtime import container_runtime
from gpuwatch.diagnose.host.device_nodes import device_nodes
from gpuwatch.diagnose.host.driver_root import driver_roots
from gpuwatch.diagnose.host.kernel_modules import kernel
from gpuwatch.diagnose.host.kernel_text import kernel_text
from gpuwatch.diagnose.host.kubelet_files import kubelet_files
from gpuwatch.diagnose.host.operator_files import operator_files
from gpuwatch.diagnose.host.services import services
from gpuwatch.diagnose.places import HIDDEN, Places
from gpuwatch.host.machine import process_limits
from gpuwatch.host.pci import examined_gpus
from gpuwatch.model.errors import GpuwatchError
from gpuwatch.tuning.actuation.heartbeat import Beat, Heartbeat
from gpuwatch.tuning.actuation.record import SettingsRecord

KERNEL_LOG_COPIES = ("/gpuwatch/kernel.log", "/var/log/dmesg", "/var/log/kern.log", "/var/log/messages")

READERS: dict[HostSection, Callable[[Places], Any]] = {
    "bus": lambda at: _bus(Path(at.sys) / "bus/pci/devices"),
    "kernel": lambda at: kernel(None if at.hidden else Path(at.root), Path(at.proc), Path(at.sys)),
    "kernel_log": lambda at: kernel_text(Path(at.kmsg), tuple(at.at(copy) for copy in KERNEL_LOG_COPIES)),
    "nodes": lambda at: device_nodes(Path(at.dev), Path(at.proc)),
    "driver_roots": lambda at: _driver_roots(Path(at.root)),
    "limits": lambda at: process_limits(Path(at.proc), Path(at.dev)),
    "operator": lambda at: operator_files(Path(at.root)),
    "services": lambda at: services(None if at.hidden else Path(at.root), Path(at.proc), Path(at.sys)),
    "runtime": lambda at: container_runtime(Path(at.root)),
    "cdi": lambda at: cdi_specs(Path(at.root), Path(at.dev)),
    "kubelet": lambda at: kubelet_files(Path(at.root), Path(at.pod_resources), ask=at.live),
    "record": lambda at: SettingsRecord(Path(at.state)).read(),
    "tuner": lambda at: _beat(Path(at.state)),
}
"""Each may raise OSError or GpuwatchError, whose words become the reason; a wedged driver may keep one for ever."""

NEED_ROOT: frozenset[HostSection] = frozenset({"driver_roots", "operator", "runtime", "cdi"})
"""Sections that need the host's own files, beside /proc, /sys and /dev."""


def read(section: HostSection, at: Places) -> Any:
    """One section; of a bundle, what it has recorded counts before its files.

    Raises:
        OSError, GpuwatchError: it cannot be had.
    """
    if at.hidden and section in NEED_ROOT:
        raise PermissionError(1, HIDDEN)
    if not at.live:
        known = recorded(at.recorded)
        if section in known.unread:
            raise GpuwatchError(known.unread[section])
        if (found := getattr(known.host, section)) is not None:
            return found
    return READERS[section](at)


def _driver_roots(root: Path) -> Any:
    if not any((root / folder).is_dir() for folder in ("usr", "lib")):
        raise FileNotFoundError(2, "no folder usr or lib: the host's programs and libraries were not copied", str(root))
    return driver_roots(root)


def _bus(devices: Path) -> Any:
    found = examined_gpus(devices)
    if found is None:
        raise FileNotFoundError(2, "the PCI bus cannot be read", str(devices))
    return found


def _beat(state: Path) -> Beat | None:
    """None: no tuner has left a sign of life, as on most nodes."""
    seen = Heartbeat(state).look()
    return seen.beat if seen else None
