"""The agent's log: each thing once when it begins, once when it is over."""

import logging

import pytest

from gpuwatch.agent.event_recorder import EventLogger
from gpuwatch.model.finding import Finding, Judgement, Severity
from gpuwatch.model.snapshot import GpuState, GpuStatus, Identity, Snapshot
from gpuwatch.model.view import AgentStatus, View
from gpuwatch.model.xid import XidEvent

LOST = Finding(check="gpu_lost", severity=Severity.CRITICAL, message="GPU is lost", gpu="GPU-3", action="reboot")
KUBELET = Finding(check="monitoring_degraded", severity=Severity.WARNING, message="podresources: refused", action="see")


def view(*findings: Finding, restarts: int = 0) -> View:
    identity = Identity(index=3, uuid="GPU-3", pci_bus_id="00000000:3B:00.0")
    return View(
        snapshot=Snapshot(at=1.0, interval=1.0, statuses=(GpuStatus(identity=identity, state=GpuState.FRESH),)),
        agent=AgentStatus(version="1", started=0.0, reader_restarts=restarts),
        judgement=Judgement(findings=findings),
    )


@pytest.fixture
def logged(caplog: pytest.LogCaptureFixture) -> pytest.LogCaptureFixture:
    caplog.set_level(logging.INFO, "gpuwatch.agent.event_recorder")
    return caplog


def test_a_finding_is_reported_when_it_begins_and_when_it_is_over(logged: pytest.LogCaptureFixture) -> None:
    logger = EventLogger()
    for findings in [(), (LOST,), (LOST,), (LOST, KUBELET), (KUBELET,), ()]:
        logger.log_changes(view(*findings))
    assert [(record.levelname, record.getMessage()) for record in logged.records] == [
        ("ERROR", "GPU 3: gpu_lost: GPU is lost; reboot"),
        ("WARNING", "monitoring_degraded: podresources: refused; see"),
        ("INFO", "GPU 3: gpu_lost: resolved"),
        ("INFO", "monitoring_degraded: resolved"),
    ]


def test_one_more_source_that_fails_is_news(logged: pytest.LogCaptureFixture) -> None:
    def down(*sources: str) -> Finding:
        evidence = dict.fromkeys(sources, "refused")
        return Finding(
            check="monitoring_degraded", severity=Severity.WARNING, message=" and ".join(sources), evidence=evidence
        )

    logger = EventLogger()
    for sources in (("kmsg",), ("kmsg",), ("kmsg", "procfs"), ("procfs",)):
        logger.log_changes(view(down(*sources)))
    assert [record.getMessage().split(": ")[1] for record in logged.records] == ["kmsg; ", "kmsg and procfs; "]


def test_a_new_reason_of_a_source_is_news_once_however_often_it_comes_back(logged: pytest.LogCaptureFixture) -> None:
    def down(reason: str) -> Finding:
        return Finding(
            check="monitoring_degraded", severity=Severity.WARNING, message=reason, evidence={"nvml": reason}
        )

    logger = EventLogger()
    reasons = ("starting", "Library Not Found, tried 1 times", "starting", "Library Not Found, tried 2 times")
    for reason in reasons:
        logger.log_changes(view(down(reason)))
    assert [each.getMessage().split(": ")[1] for each in logged.records] == [f"{reason}; " for reason in reasons[:2]]
    logger.log_changes(view())
    logger.log_changes(view(down("starting")))
    assert logged.records[-1].getMessage() == "monitoring_degraded: starting; "


def test_each_xid_is_a_finding_of_its_own(logged: pytest.LogCaptureFixture) -> None:
    logger = EventLogger()
    several = [
        Finding(check="xid_fatal", severity=Severity.CRITICAL, message=str(xid), gpu="GPU-3", xid=xid)
        for xid in (48, 95)
    ]
    logger.log_changes(view(*several))
    logger.log_changes(view(several[0]))
    assert [record.levelname for record in logged.records] == ["ERROR", "ERROR", "INFO"]


def test_changing_figures_are_not_news(logged: pytest.LogCaptureFixture) -> None:
    logger = EventLogger()
    for seconds in range(3):
        logger.log_changes(
            view(Finding(check="slow", severity=Severity.WARNING, message=f"for {seconds} s", gpu="GPU-3"))
        )
    assert len(logged.records) == 1


def test_a_new_reader_is_reported_once(logged: pytest.LogCaptureFixture) -> None:
    logger = EventLogger()
    for restarts in (0, 1, 1):
        logger.log_changes(view(restarts=restarts))
    assert [record.getMessage() for record in logged.records] == ["reader restarted; restarts so far: 1"]


def test_an_xid_names_its_gpu_and_blames_nobody(logged: pytest.LogCaptureFixture) -> None:
    logger = EventLogger()
    logger.log_changes(view())
    logger.log_xid(
        XidEvent(at=1.0, xid=79, source="kernel", uuid="GPU-3", pid=7, name="trainer", message="fell off the bus")
    )
    logger.log_xid(XidEvent(at=1.0, xid=31, source="nvml", pci="0000:99:00"))
    assert [r.getMessage() for r in logged.records] == ["GPU 3: XID 79: fell off the bus", "GPU 0000:99:00: XID 31"]
