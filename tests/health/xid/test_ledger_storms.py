"""A storm of XIDs counts exactly, at any rate, with either source late by up to the window, or with reports lost."""

import random
import tracemalloc
from collections.abc import Iterable

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from gpuwatch.health.xid.ledger import XidLedger
from gpuwatch.model.xid import KernelEvent, KernelLine, XidEvent

LATE = 5.0
Report = XidEvent | KernelEvent


def pci(gpu: int) -> str:
    return f"0000:{gpu:02x}:00"


def driver(at: float, gpu: int = 0, xid: int = 45, gi: int | None = None) -> XidEvent:
    return XidEvent(at=at, xid=xid, source="nvml", pci=f"0000{pci(gpu)}.0", uuid=f"GPU-{gpu}", gi=gi)


def kernel(at: float, gpu: int = 0, xid: int = 45, gi: int | None = None, message: str = "Ch 8") -> KernelEvent:
    return KernelEvent(at=at, line=KernelLine(kind="xid", pci=pci(gpu), xid=xid, gi=gi, message=message))


def observed(reports: Iterable[Report], gpus: int = 1) -> XidLedger:
    """A ledger after these, in the order of their arrival."""
    ledger = XidLedger()
    ledger.know({pci(gpu): f"GPU-{gpu}" for gpu in range(gpus)})
    for report in sorted(reports, key=lambda report: report.at):
        ledger.observe(report)
    return ledger


def counts(ledger: XidLedger, xid: int = 45) -> dict[str | None, int]:
    return {row.uuid: row.count for row in ledger.xids() if row.xid == xid}


@pytest.mark.parametrize(("driver_late", "kernel_late"), [(0.0, 0.0), (0.3, 0.0), (LATE, 0.0), (0.0, LATE)])
def test_a_killed_jobs_xids_count_once_whichever_source_is_late(driver_late: float, kernel_late: float) -> None:
    moments = [number / 11_000 for number in range(11_000)]
    ledger = observed([*(driver(at + driver_late) for at in moments), *(kernel(at + kernel_late) for at in moments)])
    assert counts(ledger) == {"GPU-0": 11_000}
    assert all(len(event.sources) == 2 for event in ledger.events() if isinstance(event, XidEvent))


@pytest.mark.parametrize(
    "total", [2_000, pytest.param(50_000, marks=pytest.mark.slow)]
)  # the rate; 2,000 hold the case
def test_eight_gpus_in_one_second_each_report_late_by_its_own_time(total: int) -> None:
    chance = random.Random(8)
    reports: list[Report] = []
    for number in range(total):
        at, gpu = number / total, chance.randrange(8)
        reports += [driver(at + chance.uniform(0, LATE), gpu), kernel(at + chance.uniform(0, LATE), gpu)]
    expected = {
        f"GPU-{gpu}": sum(isinstance(r, XidEvent) and r.uuid == f"GPU-{gpu}" for r in reports) for gpu in range(8)
    }
    assert counts(observed(reports, 8)) == expected


@pytest.mark.parametrize("late", [0.0, LATE])
def test_reports_that_one_source_loses_are_counted_by_the_other(late: float) -> None:
    """The ring ran over, or the driver's queue did: the other source is complete."""
    moments = [number / 11_000 for number in range(11_000)]
    some = [at for at in moments if not 0.2 < at < 0.7]
    by_driver: list[Report] = [driver(at) for at in moments]
    assert counts(observed(by_driver + [kernel(at + late) for at in some])) == {"GPU-0": 11_000}
    by_kernel: list[Report] = [kernel(at) for at in moments]
    assert counts(observed(by_kernel + [driver(at + late) for at in some])) == {"GPU-0": 11_000}


def test_after_a_storm_that_lost_reports_the_next_fault_counts() -> None:
    ledger = observed([driver(number / 100) for number in range(100)])
    assert ledger.observe(kernel(0.99 + LATE + 0.1)) is not None
    assert counts(ledger) == {"GPU-0": 101}


@given(
    st.lists(
        st.tuples(
            st.floats(0, 60),
            st.sampled_from([(True, True), (True, False), (False, True)]),
            st.tuples(st.floats(0, LATE), st.floats(0, LATE)),
            st.sampled_from([None, 1, 2]),
        ),
        max_size=30,
    )
)
@example([(0.0, (True, True), (0.0, LATE), None), (LATE, (True, True), (LATE, 0.0), None)])
def test_no_storm_is_counted_twice_and_no_report_of_a_complete_source_is_lost(
    faults: list[tuple[float, tuple[bool, bool], tuple[float, float], int | None]],
) -> None:
    reports: list[Report] = []
    for at, (by_driver, by_kernel), (driver_late, kernel_late), gi in faults:
        reports += [driver(at + driver_late, gi=gi)] if by_driver else []
        reports += [kernel(at + kernel_late, gi=gi)] if by_kernel else []
    found = counts(observed(reports))["GPU-0"] if faults else 0
    by_driver_alone, by_kernel_alone = (sum(fault[1][source] for fault in faults) for source in (0, 1))
    assert max(by_driver_alone, by_kernel_alone) <= found <= len(faults)


def test_reports_complete_each_other_in_order() -> None:
    ledger = observed([driver(number / 10) for number in range(3)])
    for number in range(3):
        ledger.observe(kernel(1.0 + number / 10, message=f"Ch {number}"))
    events = [event for event in ledger.events() if isinstance(event, XidEvent)]
    assert [(event.at, event.message, event.sources) for event in events] == [
        (number / 10, f"Ch {number}", ("nvml", "kernel")) for number in range(3)
    ]


def test_of_a_storm_the_newest_are_completed_by_what_belongs_to_them() -> None:
    """Those that the ledger no longer lists take their counterparts all the same."""
    ledger = XidLedger(recent=10)
    for number in range(100):
        ledger.observe(driver(number / 100))
    for number in range(100):
        ledger.observe(kernel(2.0 + number / 100, message=f"Ch {number}"))
    events = [event for event in ledger.events() if isinstance(event, XidEvent)]
    assert [(event.at, event.message) for event in events] == [(n / 100, f"Ch {n}") for n in range(90, 100)]


def test_a_report_of_the_past_leaves_the_storm_of_now_alone() -> None:
    """Lines that were written while no agent ran are read after the driver's first event."""
    ledger = observed([driver(100.0)])
    assert ledger.observe(kernel(40.0)) is not None
    assert ledger.observe(kernel(100.1)) is None
    assert counts(ledger) == {"GPU-0": 2}


def test_memory_does_not_follow_the_rate() -> None:
    def kept(reports: int) -> int:
        ledger = XidLedger()
        tracemalloc.start()
        for number in range(reports):
            ledger.observe(driver(number / reports))
        size = tracemalloc.get_traced_memory()[0]
        tracemalloc.stop()
        return size

    kept(1)  # what is made once is made now
    assert kept(5_000) < 1.1 * kept(1_500)
