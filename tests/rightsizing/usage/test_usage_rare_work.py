"""Work that comes seldom is as slow on a slice as work that never ends: the rest between must not hide it."""

from gpuwatch.config import RightsizingConfig
from gpuwatch.model.work import WorkloadKey
from gpuwatch.rightsizing.model.usage import Slowdown, UsageWindow
from gpuwatch.rightsizing.usage.ledger import UsageLedger

KEY = WorkloadKey(namespace="team-a", name="jupyter-ada", kind="StatefulSet")
HOUR = 3600.0


def slowdowns(busy_hours: range, hours: int) -> dict[str, Slowdown]:
    """Of a notebook on an H100 that uses all multiprocessors in some hours and rests in the others."""
    ledger = UsageLedger(RightsizingConfig())
    for hour in range(hours):
        busy = 1.0 if hour in busy_hours else 0.0
        for minute in range(60):
            ledger.add(
                UsageWindow(
                    at=hour * HOUR + minute * 60,
                    span=60.0,
                    covered=60.0,
                    key=KEY,
                    pod="jupyter-ada-0",
                    gpu="GPU-0",
                    model="NVIDIA H100 80GB HBM3",
                    busy=busy,
                    sm=busy,
                    dram=0.1 * busy,
                )
            )
    (summary,) = ledger.summaries(hours * HOUR)
    return {each.profile: each for each in summary.slowdowns}


def test_rest_does_not_hide_how_slow_work_becomes() -> None:
    assert slowdowns(range(2), 60)["1g.10gb"] == slowdowns(range(2), 2)["1g.10gb"]


def test_what_never_worked_has_no_slowdown() -> None:
    assert slowdowns(range(0), 3) == {}
