"""The process that looks at host and driver for a diagnosis, every section on a thread of its own.

A wedged driver may keep whoever opens its files or calls its library, for ever and not to be killed. Hence nobody waits
for this process: what is read is told at once, and when stdin closes it ends, or lingers alone until it is let go.
"""

import logging
import os
import sys
import threading
import time
from typing import TYPE_CHECKING

import msgspec

from gpuwatch.collect.reader.messages import Outbox, framed, private_stdout, release_streams
from gpuwatch.diagnose.facts import HOST_SECTIONS, HostFacts, HostSection
from gpuwatch.diagnose.gathering.protocol import DriverOrder, Order, Told, encode, unread
from gpuwatch.diagnose.gathering.sections import read
from gpuwatch.diagnose.places import Places
from gpuwatch.model.errors import GpuwatchError, UsageError

if TYPE_CHECKING:
    from gpuwatch.agent.one_shot import OneShotCollector

log = logging.getLogger(__name__)

SAMPLES = 2
"""Some readings (GPM, rates) are differences of two samples."""

LATER_SAMPLES = 6
"""Of a View that is held against an earlier one: a second later."""

END_SECONDS = 0.3
"""Before the order's end: as much as it takes to join and tell a View."""


def main() -> None:
    """Tell everything that was ordered, then wait for the end."""
    order = msgspec.json.decode(sys.argv[1], type=Order)
    outbox = Outbox(private_stdout())
    if order.driver is not None:
        threading.Thread(target=_tell_driver, args=(order.driver, outbox), daemon=True).start()
    for section in HOST_SECTIONS if order.files else ():
        threading.Thread(target=_tell_section, args=(section, order.places, outbox), daemon=True).start()
    os.read(sys.stdin.fileno(), 1)  # nothing is ever written there
    release_streams()
    os._exit(0)


def _tell_section(section: HostSection, places: Places, outbox: Outbox) -> None:
    try:
        body = encode(Told(section=section, host=HostFacts(**{section: read(section, places)})))
    except Exception as error:  # noqa: BLE001 one odd file must not cost the other sections
        body = encode(unread(section, error))
    outbox.write(framed(body))


def _tell_driver(order: DriverOrder, outbox: Outbox) -> None:
    from gpuwatch.agent.node_state import SETTLE_SECONDS
    from gpuwatch.agent.one_shot import OneShotCollector

    samples = {"earlier": SAMPLES, "view": LATER_SAMPLES} if order.twice else {"view": SAMPLES}
    try:
        # a driver that is not kept up has to wake its GPUs
        settle = max(SETTLE_SECONDS, (order.until - time.monotonic()) / 2)
        with OneShotCollector(order.config, order.backend, settle=settle) as look:
            for section, enough in samples.items():
                _wait(look, enough, order.until - END_SECONDS - time.monotonic())
                outbox.write(framed(encode(Told(section=section, view=look.view()))))
    except Exception as error:  # noqa: BLE001 the host's files can be judged without the driver
        outbox.write(framed(encode(unread("view", error))))


def _wait(look: "OneShotCollector", samples: int, seconds: float) -> None:
    """Without a driver there is a View all the same: it says what keeps NVML from starting.

    Raises:
        UsageError: what was to be looked at is none, such as a capture file.
    """
    try:
        look.wait(samples, max(0.0, seconds))
    except UsageError:
        raise
    except GpuwatchError as error:
        log.info("%s", error)
