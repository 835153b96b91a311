"""The process that reads host and driver for a diagnosis, every section on a thread of its own.

A wedged driver may block every reader of its files and every caller of its library, for ever and unkillably. Hence no
process waits for this one: each section is sent at once, and when stdin closes it ends, or remains alone until the
driver releases it. It takes one order and sends a message per section.
"""

import logging
import os
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec

from gpuwatch.collect.reader.messages import Outbox, framed, private_stdout, release_streams
from gpuwatch.config import Backend, Config
from gpuwatch.diagnose.facts import HOST_SECTIONS, HostFacts, HostSection
from gpuwatch.diagnose.gathering.recorded import recorded
from gpuwatch.diagnose.host.cdi import cdi_specs
from gpuwatch.diagnose.host.container_runtime import container_runtime
from gpuwatch.diagnose.host.driver_files import device_nodes, driver_roots
from gpuwatch.diagnose.host.kernel_modules import kernel
from gpuwatch.diagnose.host.kernel_text import kernel_text
from gpuwatch.diagnose.host.kubelet_files import kubelet_files
from gpuwatch.diagnose.host.services import operator_files, services
from gpuwatch.diagnose.places import HIDDEN, Places
from gpuwatch.host.machine import process_limits
from gpuwatch.host.pci import examined_gpus
from gpuwatch.host.tree import TreePath
from gpuwatch.model.decoding import prepared
from gpuwatch.model.errors import GpuwatchError, PermissionMissing, UsageError
from gpuwatch.model.snapshot import Record
from gpuwatch.model.view import View
from gpuwatch.tuning.actuation.heartbeat import Heartbeat, HeartbeatFile
from gpuwatch.tuning.actuation.record import SettingsRecord

log = logging.getLogger(__name__)

SAMPLES = 2
"""Some readings (GPM, rates) are differences of two samples."""

LATER_SAMPLES = 6
"""For a View that is compared with an earlier one: it is a second later."""

END_SECONDS = 0.3
"""Time to join and send a View, before the order's end."""


class DriverOrder(Record, frozen=True, kw_only=True):
    """Read the driver, too. `until`: time.monotonic() at which a View is sent, complete or not; `twice`: send a first
    View as `earlier`.
    """

    config: Config
    backend: Backend
    until: float
    twice: bool = False


class ProbeOrder(Record, frozen=True, kw_only=True):
    """The process's only argument, as JSON."""

    places: Places
    files: bool = True
    driver: DriverOrder | None = None


class ProbeMessage(Record, frozen=True, kw_only=True):
    """One section: its member of `host`, or `view`, or the reason why it cannot be read. `denied`: a permission is
    missing; `usage`: it is a usage error.
    """

    section: str
    host: HostFacts | None = None
    view: View | None = None
    reason: str | None = None
    denied: bool = False
    usage: bool = False


encode = msgspec.msgpack.Encoder().encode
decode = msgspec.msgpack.Decoder(prepared(ProbeMessage)).decode
"""Made here, so that msgspec inspects ProbeMessage before there are threads: two that do so at once crash it."""


def unread_message(section: str, error: Exception) -> ProbeMessage:
    """The message with the reason why a section cannot be read."""
    if isinstance(error, OSError) and error.strerror:
        reason = f"{error.filename}: {error.strerror}" if error.filename else error.strerror
    elif isinstance(error, OSError | GpuwatchError):
        reason = str(error)
    else:
        reason = f"reading it failed ({type(error).__name__}: {error}); report it"
    denied = isinstance(error, PermissionError | PermissionMissing)
    return ProbeMessage(section=section, reason=reason, denied=denied, usage=isinstance(error, UsageError))


def _driver_roots(at: Places) -> Any:
    root = at.at("/")
    if not any((root / folder).is_dir() for folder in ("usr", "lib")):
        raise FileNotFoundError(2, "no folder usr or lib: the host's programs and libraries were not copied", at.root)
    return driver_roots(root)


def _bus(at: Places) -> Any:
    devices = at.path(at.sys) / "bus/pci/devices"
    found = examined_gpus(devices)
    if found is None:
        raise FileNotFoundError(2, "the PCI bus cannot be read", str(devices))
    return found


def _beat(at: Places) -> Heartbeat | None:
    """None: no tuner has left a heartbeat, as on most nodes."""
    seen = HeartbeatFile(at.path(at.state)).latest()
    return seen.beat if seen else None


def _record(at: Places) -> Any:
    state = at.path(at.state)
    record = SettingsRecord(state)
    return record.read_unsealed() if isinstance(state, TreePath) else record.read()


def _kubelet(at: Places) -> Any:
    socket = Path(at.pod_resources) if at.live else at.path(at.pod_resources)
    return kubelet_files(at.at("/"), socket, ask=at.live)


KERNEL_LOG_COPIES = ("/gpuwatch/kernel.log", "/var/log/dmesg", "/var/log/kern.log", "/var/log/messages")

READERS: dict[HostSection, Callable[[Places], Any]] = {
    "bus": _bus,
    "kernel": lambda at: kernel(None if at.hidden else at.at("/"), at.path(at.proc), at.path(at.sys)),
    "kernel_log": lambda at: kernel_text(at.path(at.kmsg), tuple(at.at(copy) for copy in KERNEL_LOG_COPIES)),
    "nodes": lambda at: device_nodes(at.path(at.dev), at.path(at.proc)),
    "driver_roots": _driver_roots,
    "limits": lambda at: process_limits(at.path(at.proc), at.path(at.dev)),
    "operator": lambda at: operator_files(at.at("/")),
    "services": lambda at: services(None if at.hidden else at.at("/"), at.path(at.proc), at.path(at.sys)),
    "runtime": lambda at: container_runtime(at.at("/")),
    "cdi": lambda at: cdi_specs(at.at("/"), at.path(at.dev)),
    "kubelet": _kubelet,
    "record": _record,
    "tuner": _beat,
}
"""Each may raise OSError or GpuwatchError, whose text becomes the reason; a wedged driver may block one for ever."""

NEED_ROOT: frozenset[HostSection] = frozenset({"driver_roots", "operator", "runtime", "cdi"})
"""Sections that need the host's own files, beside /proc, /sys and /dev."""


def read_section(section: HostSection, at: Places) -> Any:
    """One section; of a bundle, its recorded value takes precedence over its files.

    Raises:
        OSError, GpuwatchError: it cannot be read.
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


def main() -> None:
    """Send all that was ordered, then end when stdin closes."""
    order = msgspec.json.decode(sys.argv[1], type=prepared(ProbeOrder))
    outbox = Outbox(private_stdout())

    def send(section: HostSection) -> None:
        try:
            value = read_section(section, order.places)
            body = encode(ProbeMessage(section=section, host=HostFacts(**{section: value})))
        except Exception as error:  # noqa: BLE001 one odd file must not cost the other sections
            body = encode(unread_message(section, error))
        outbox.write(framed(body))

    if order.driver is not None:
        threading.Thread(target=_send_views, args=(order.driver, outbox), daemon=True).start()
    for section in HOST_SECTIONS if order.files else ():
        threading.Thread(target=send, args=(section,), daemon=True).start()
    os.read(sys.stdin.fileno(), 1)  # nothing is ever written there
    release_streams()
    os._exit(0)


def _send_views(order: DriverOrder, outbox: Outbox) -> None:
    from gpuwatch.agent.node_state import SETTLE_SECONDS
    from gpuwatch.agent.one_shot import OneShotCollector

    samples = {"earlier": SAMPLES, "view": LATER_SAMPLES} if order.twice else {"view": SAMPLES}
    try:
        # a driver without persistence mode has to wake its GPUs
        settle = max(SETTLE_SECONDS, (order.until - time.monotonic()) / 2)
        with OneShotCollector(order.config, order.backend, settle=settle) as collector:
            for section, enough in samples.items():
                try:
                    collector.wait(enough, max(0.0, order.until - END_SECONDS - time.monotonic()))
                except UsageError:
                    raise
                except GpuwatchError as error:  # there is a View all the same: it states why NVML does not start
                    log.info("%s", error)
                outbox.write(framed(encode(ProbeMessage(section=section, view=collector.view()))))
    except Exception as error:  # noqa: BLE001 the host's files can be judged without the driver
        outbox.write(framed(encode(unread_message("view", error))))
