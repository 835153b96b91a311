"""What findings add up to, and what counts as seen and as clean."""

from typing import Any

import pytest

from gpuwatch.collect.nvml.fields import FIELDS
from gpuwatch.health.check import HEALTH_PATHS, has_health_readings, is_clean
from gpuwatch.health.judge import gpu_healths, node_health
from gpuwatch.model.finding import Finding, Health, Severity
from gpuwatch.model.snapshot import Gpu, GpuState, GpuStatus, Identity, RowRemap, Snapshot

IDENTITY = Identity(index=0, uuid="GPU-0", pci_bus_id="00000000:01:00.0")


def finding(severity: Severity, gpu: str | None = "GPU-0") -> Finding:
    return Finding(check="a check", severity=severity, message="m", gpu=gpu)


def snapshot(state: GpuState = GpuState.FRESH, **parts: Any) -> Snapshot:
    return Snapshot(
        at=1.0,
        interval=1.0,
        gpus=(Gpu(identity=IDENTITY, **parts),),
        statuses=(GpuStatus(identity=IDENTITY, state=state),),
    )


@pytest.mark.parametrize(
    ("severities", "health"),
    [
        ((), Health.HEALTHY),
        ((Severity.INFO,), Health.HEALTHY),
        ((Severity.INFO, Severity.WARNING), Health.DEGRADED),
        ((Severity.WARNING, Severity.CRITICAL), Health.FAILED),
    ],
)
def test_the_worst_finding_decides(severities: tuple[Severity, ...], health: Health) -> None:
    findings = [finding(severity) for severity in severities]
    assert gpu_healths(snapshot(), findings) == {"GPU-0": health}
    assert node_health([health], findings) is health


@pytest.mark.parametrize("severity", [Severity.WARNING, Severity.CRITICAL])
def test_a_finding_of_the_node_is_no_gpus(severity: Severity) -> None:
    findings = [finding(severity, gpu=None)]
    assert gpu_healths(snapshot(), findings) == {"GPU-0": Health.HEALTHY}
    assert node_health([Health.HEALTHY], findings) is not Health.HEALTHY


@pytest.mark.parametrize("state", [state for state in GpuState if state is not GpuState.FRESH])
def test_a_gpu_that_is_not_seen_is_unknown(state: GpuState) -> None:
    assert gpu_healths(snapshot(state), []) == {"GPU-0": Health.UNKNOWN}
    assert node_health([Health.HEALTHY, Health.UNKNOWN], []) is Health.UNKNOWN


def test_a_node_without_gpus_is_unknown() -> None:
    assert node_health([], []) is Health.UNKNOWN


@pytest.mark.parametrize("path", ["recovery_action", "row_remap.failure", "ecc.counts.uncorrected/volatile/total"])
def test_what_is_judged_and_cannot_be_read_is_unknown(path: str) -> None:
    unread = {"errors": {path: "Unknown Error"}}
    assert gpu_healths(snapshot(**unread), []) == {"GPU-0": Health.UNKNOWN}
    assert gpu_healths(snapshot(**unread), [finding(Severity.CRITICAL)]) == {"GPU-0": Health.FAILED}
    assert not has_health_readings(Gpu(identity=IDENTITY, **unread))
    assert not is_clean(Gpu(identity=IDENTITY, **unread))


def test_a_reading_that_is_not_judged_may_fail() -> None:
    errors = {"power.average": "Unknown Error", "activity": "Insufficient Permissions"}
    assert gpu_healths(snapshot(errors=errors), []) == {"GPU-0": Health.HEALTHY}


def test_what_is_judged_is_read() -> None:
    paths = {path for field in FIELDS for path in field.paths}
    assert all(any(path.startswith(beginning) for path in paths) for beginning in HEALTH_PATHS)


@pytest.mark.parametrize(
    ("parts", "clean"),
    [
        ({}, True),
        ({"recovery_action": 0, "row_remap": RowRemap(pending=False, failure=False)}, True),
        ({"recovery_action": 3}, False),
        ({"row_remap": RowRemap(pending=True)}, False),
        ({"row_remap": RowRemap(failure=True)}, False),
    ],
)
def test_clean(parts: dict[str, Any], clean: bool) -> None:
    assert is_clean(Gpu(identity=IDENTITY, **parts)) is clean
