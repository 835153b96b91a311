"""One node from its kernel log to its taints: real log reader, ledger, judge and plan, on a clock that is turned.

The log is a FIFO in the form of /dev/kmsg; GPUs are those of `tests.health.judging`, the Kubernetes Node is imaginary.
"""

import os
import time
from pathlib import Path
from typing import Any

from gpuwatch.collect.kernel_log.follower import KernelLog
from gpuwatch.health.xid.ledger import XidLedger
from gpuwatch.kube.objects import Taint
from gpuwatch.model.view import AgentStatus, View
from gpuwatch.model.xid import XidEvent
from gpuwatch.remediation.model import PatchNode
from tests.health.judging import Bench, identity
from tests.remediation.planning.remediating import Story

KERNEL, USER = 4, 12
"""Priorities of a record: a warning by the kernel, and one that user space wrote."""

INTERVAL = 60.0
TOP = 0.02
"""Seconds to wait for records that do not come."""


class Clock:
    """Unix time is the story's; waiting is real."""

    def __init__(self, bench: Bench) -> None:
        self._bench = bench

    def time(self) -> float:
        return self._bench.now

    def monotonic(self) -> float:
        return time.monotonic()


def line(
    xid: int, gpu: int = 0, *, priority: int = KERNEL, number: int = 1, pid: int = 4242, text: str = "text"
) -> str:
    """A record as the driver writes it."""
    return (
        f"{priority},{number},1000000,-;NVRM: Xid (PCI:0000:{gpu + 1:02x}:00): {xid}, pid={pid}, name=python, {text}\n"
    )


class Chain:
    """`cycle` turns the clock by one interval, judges what was written since, plans, and does what was planned."""

    def __init__(self, folder: Path, written: str = "", **settings: Any) -> None:
        """`written`: what the log holds before the agent begins."""
        self.path = folder / "kmsg"
        os.mkfifo(self.path)
        self._keep = os.open(self.path, os.O_RDWR)  # else what is written before anybody reads is lost
        self._number = 0
        self.bench = Bench()
        self.bench.node["interval"] = INTERVAL
        self.story = Story(**({"fault_hold": 0.0} | settings))
        self.story.now = self.bench.now
        if written:
            self.path.write_text(written)
        self.ledger = XidLedger()
        self.ledger.know({identity(gpu).pci_bus_id: f"GPU-{gpu}" for gpu in self.bench.indices})
        self.log = KernelLog.open(self.path, fall_back=False, clock=Clock(self.bench), boot_id_path=folder / "none")

    def close(self) -> None:
        """Give the files back."""
        self.log.close()
        os.close(self._keep)

    def write(self, *xids: int, gpu: int = 0, priority: int = KERNEL, **parts: Any) -> None:
        """XIDs appear in the kernel log; who wrote them is not known."""
        for xid in xids:
            self._number += 1
            self.path.write_text(line(xid, gpu, priority=priority, number=self._number, **parts))

    def fail(self, *xids: int, gpu: int = 0, **parts: Any) -> None:
        """A real fault: the driver writes to the kernel log and sends its event."""
        for xid in xids:
            self.write(xid, gpu=gpu, **parts)
            for event in self.log.read(TOP):
                self.ledger.observe(event)
            self.report(xid, gpu)

    def report(self, xid: int, gpu: int = 0, **parts: Any) -> None:
        """NVML reports an XID."""
        self.ledger.observe(XidEvent(at=self.bench.now, xid=xid, source="nvml", uuid=f"GPU-{gpu}", **parts))

    def cycle(self, times: int = 1, *, seconds: float = INTERVAL, read: bool = False, reported: bool = True) -> None:
        """`read`: something may have been written; `reported`: the remediator gets this View."""
        for _ in range(times):
            for event in self.log.read(TOP) if read else ():
                self.ledger.observe(event)
            self.bench.cycle(*self.ledger.news(), seconds=seconds)
            self.story.wait(seconds)
            self.story.age = 0.0 if reported else self.story.age + seconds
            if reported:
                self.story.view = self.view()
            self.story.settle(limit=40)  # Events come a few at a time

    def view(self) -> View:
        """What the agent would publish."""
        return View(
            snapshot=self.bench.snapshot(),
            agent=AgentStatus(version="test", started=0.0),
            attribution=self.bench.attribution,
            judgement=self.bench.last,
        )

    @property
    def taints(self) -> tuple[Taint, ...]:
        """On the Node now."""
        return self.story.node.taints

    @property
    def quarantines(self) -> int:
        """Times it was tainted."""
        return sum(isinstance(step, PatchNode) and step.step == "taint" for step in self.story.done)
