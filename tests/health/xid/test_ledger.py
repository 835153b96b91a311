"""Each XID counts once, for the right GPU, whoever tells it and in whatever order."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import structs

from gpuwatch.collect.kernel_log.lines import parse_line
from gpuwatch.health.xid.ledger import ZERO_XIDS, XidLedger
from gpuwatch.model.xid import BusLossEvent, KernelEvent, SxidEvent, XidEvent
from gpuwatch.model.xid_catalogue import explain

PCI, UUID = "0000:3b:00", "GPU-efbdfde9-5798-a6e7-4c46-12518fa15375"
NVML_PCI = "00000000:3B:00.0"


def nvml(at: float, xid: int = 79, *, gi: int | None = None, uuid: str | None = UUID) -> XidEvent:
    return XidEvent(at=at, xid=xid, source="nvml", pci=NVML_PCI, uuid=uuid, gi=gi)


def kernel(at: float, text: str, *, sequence: int | None = None, historical: bool = False) -> KernelEvent:
    return KernelEvent(at=at, line=parse_line(text), boot_id="b", sequence=sequence, historical=historical)


def line(at: float, xid: int = 79, *, gi: int | None = None, historical: bool = False) -> KernelEvent:
    where = f"PCI:{PCI}" + (f" GPU-I:{gi:02d}" if gi is not None else "")
    return kernel(at, f"NVRM: Xid ({where}): {xid}, pid=7, name=python3, text", historical=historical)


def ledger() -> XidLedger:
    ledger = XidLedger()
    ledger.know({NVML_PCI: UUID})
    return ledger


def count(ledger: XidLedger, xid: int = 79) -> int:
    return sum(row.count for row in ledger.xids() if row.xid == xid)


def test_both_sources_make_one_occurrence_in_either_order() -> None:
    for first, second in ((nvml(10.0), line(10.2)), (line(10.0), nvml(10.2))):
        book = ledger()
        new = book.observe(first)
        assert isinstance(new, XidEvent)
        assert book.observe(second) is None
        assert count(book) == 1
        (event,) = book.events()
        assert isinstance(event, XidEvent)
        assert event.sources == (new.source, "kernel" if new.source == "nvml" else "nvml")
        assert new.sources == (new.source,)
        assert (event.at, event.pci, event.uuid, event.pid, event.name) == (10.0, PCI, UUID, 7, "python3")


def test_news_are_reported_once_and_again_when_they_are_completed() -> None:
    book = ledger()
    assert book.news() == ()
    book.observe(nvml(10.0))
    (bare,) = book.news()
    assert isinstance(bare, XidEvent)
    assert bare.message is None
    assert book.news() == ()
    book.observe(line(10.2))
    book.observe(line(11.0, 31))
    whole, other = book.news()
    assert isinstance(whole, XidEvent)
    assert (whole.at, whole.also, whole.message) == (10.0, "kernel", "text")
    assert isinstance(other, XidEvent)
    assert other.xid == 31
    assert book.news() == ()


def test_news_nobody_asks_for_are_bounded() -> None:
    book = XidLedger(recent=5)
    for second in range(50):
        book.observe(nvml(second * 10.0))
    assert len(book.news()) == 5


def test_repeated_xids_pair_one_to_one() -> None:
    book = ledger()
    for event in (nvml(1.0, 31), nvml(1.1, 31), line(1.2, 31), line(1.3, 31), line(1.4, 31)):
        book.observe(event)
    assert count(book, 31) == 3


def test_what_is_far_apart_is_two_occurrences() -> None:
    book = ledger()
    assert book.observe(nvml(10.0)) is not None
    assert book.observe(line(15.1)) is not None
    assert count(book) == 2


def test_a_clock_that_was_ahead_for_a_moment_doubles_nothing_afterwards() -> None:
    book = ledger()
    for at in (10.0, 7210.0, 20.0, 30.0):
        book.observe(nvml(at))
        assert book.observe(line(at + 0.1)) is None
    assert count(book) == 4


@pytest.mark.parametrize("jump", [-7200.0, 7200.0])
@pytest.mark.parametrize("earlier", [True, False], ids=["killed between them", "running"])
def test_a_clock_that_is_set_does_not_part_an_event_from_its_line(jump: float, earlier: bool) -> None:
    book = ledger()
    event = structs.replace(nvml(1000.0, 31), pci=PCI, boot_id="b", uptime=500.0)
    (book.expect if earlier else book.observe)(event)
    assert book.observe(structs.replace(line(1000.2 + jump, 31), uptime=500.2)) is None
    (both,) = book.events()
    assert isinstance(both, XidEvent)
    assert (both.at, both.sources) == (1000.0, ("nvml", "kernel"))
    assert book.observe(structs.replace(line(1000.3, 31), uptime=500.2 + 7200.0)) is not None, "hours later, be it said"


def test_a_line_that_is_read_late_completes_what_nvml_reported_then() -> None:
    book = ledger()
    for at in (10.0, 20.0, 30.0):
        book.observe(nvml(at))
    for at in (10.1, 20.1, 30.1):
        assert book.observe(line(at)) is None
    assert [(event.at, event.sources) for event in book.events() if isinstance(event, XidEvent)] == [
        (at, ("nvml", "kernel")) for at in (10.0, 20.0, 30.0)
    ]


def test_another_code_gpu_or_instance_is_another_occurrence() -> None:
    book = ledger()
    other_gpu = kernel(1.0, "NVRM: Xid (PCI:0000:5e:00): 94, x")
    for event in (nvml(1.0, 94, gi=5), line(1.0, 94, gi=6), line(1.0, 95, gi=5), other_gpu):
        assert book.observe(event) is not None
    assert book.observe(line(1.0, 94, gi=5)) is None


def test_an_instance_only_one_source_names_still_pairs() -> None:
    book = ledger()
    book.observe(nvml(1.0, 94))
    assert book.observe(line(1.0, 94, gi=5)) is None
    (event,) = book.events()
    assert isinstance(event, XidEvent)
    assert event.gi == 5


@given(
    st.lists(
        st.tuples(st.floats(0, 30), st.sampled_from([31, 79]), st.sampled_from(["nvml", "kernel", "both"])), max_size=20
    )
)
def test_never_lost_never_doubled(faults: list[tuple[float, int, str]]) -> None:
    told: list[XidEvent | KernelEvent] = []
    for at, xid, who in sorted(faults):
        told += [nvml(at, xid)] if who != "kernel" else []
        told += [line(at, xid)] if who != "nvml" else []
    book = ledger()
    for event in told:
        book.observe(event)
    for xid in (31, 79):
        sources = [who for _, code, who in faults if code == xid]
        by_nvml, by_kernel = (sum(who in (name, "both") for who in sources) for name in ("nvml", "kernel"))
        assert max(by_nvml, by_kernel) <= count(book, xid) <= len(sources)
    if all(who == "both" for _, _, who in faults):
        assert count(book, 31) + count(book, 79) == len(faults)


def test_history_is_listed_and_dated_but_not_counted() -> None:
    book = ledger()
    assert book.observe(line(5.0, historical=True)) is not None
    assert book.observe(nvml(5.1)) is not None  # what happens now never pairs with the past
    (row,) = [row for row in book.xids() if row.xid == 79]
    assert (row.count, row.last) == (1, 5.1)
    assert [event.historical for event in book.events() if isinstance(event, XidEvent)] == [True, False]
    assert book.observe(line(1.0, 48, historical=True)) is not None
    assert [(row.count, row.last) for row in book.xids() if row.xid == 48] == [(0, 1.0)]


def test_rows_stand_at_zero_before_the_first_event() -> None:
    rows = ledger().xids()
    assert {(row.uuid, row.pci, row.xid, row.count, row.last) for row in rows} == {
        (UUID, PCI, xid, 0, None) for xid in ZERO_XIDS
    }


def test_the_zero_rows_are_codes_that_ask_for_action() -> None:
    for xid in ZERO_XIDS:
        info = explain(xid)
        assert info is not None
        assert info.category != "application"
        assert info.taint or xid in (63, 94)


def test_a_gpu_that_vanished_keeps_its_name() -> None:
    book = ledger()
    book.know({})
    event = book.observe(line(1.0))
    assert isinstance(event, XidEvent)
    assert event.uuid == UUID == book.uuid(NVML_PCI)


def test_the_drivers_own_line_teaches_the_uuid_and_completes_what_came_before() -> None:
    book = XidLedger()
    book.observe(line(1.0))
    book.observe(line(2.0, historical=True))
    book.observe(kernel(2.0, f"NVRM: GPU at PCI:{PCI}: {UUID}"))
    book.observe(line(9.0))
    assert {(row.uuid, row.pci, row.count) for row in book.xids()} == {(UUID, PCI, 2)}
    assert {event.uuid for event in book.events() if isinstance(event, XidEvent)} == {UUID}


def test_nvml_outranks_an_old_line_about_the_same_place() -> None:
    book = ledger()
    book.observe(kernel(1.0, f"NVRM: GPU at PCI:{PCI}: GPU-00000000-0000-0000-0000-000000000000"))
    assert book.uuid(PCI) == UUID


def test_a_new_gpu_in_the_old_place_starts_afresh() -> None:
    book = ledger()
    book.observe(line(1.0))
    book.know({NVML_PCI: "GPU-new"})
    book.observe(line(20.0))
    assert {(row.uuid, row.count) for row in book.xids() if row.xid == 79} == {(UUID, 1), ("GPU-new", 1)}


def test_one_bus_loss_in_three_forms_is_one() -> None:
    book = ledger()
    texts = (
        "NVRM: GPU 0000:3b:00.0: GPU has fallen off the bus.",
        "NVRM: The NVIDIA GPU 0000:3b:00.0\nNVRM: (PCI ID: 10de:26b5) installed in this system has\n"
        "NVRM: fallen off the bus and is not responding to commands.",
    )
    first, second = (book.observe(kernel(1.0, text)) for text in texts)
    assert isinstance(first, BusLossEvent)
    assert second is None
    assert [(loss.pci, loss.uuid) for loss in book.lost()] == [(PCI, UUID)]
    assert count(book) == 0


def test_switch_errors_count_and_their_details_do_not() -> None:
    book = XidLedger()
    head = "nvidia-nvswitch1: SXid (PCI:0000:06:00.0): 20034, "
    assert isinstance(book.observe(kernel(1.0, head + "Fatal, Link 48 LTSSM Fault Up")), SxidEvent)
    assert book.observe(kernel(1.0, head + "Severity 1 Engine instance 60 Sub-engine instance 00")) is None
    assert [(row.switch, row.sxid, row.severity, row.count) for row in book.sxids()] == [(1, 20034, "fatal", 1)]


def test_a_record_read_twice_is_one() -> None:
    book = ledger()
    text = f"NVRM: Xid (PCI:{PCI}): 79, x"
    assert book.observe(kernel(1.0, text, sequence=7)) is not None
    assert book.observe(kernel(9.0, text, sequence=7, historical=True)) is None
    assert book.observe(kernel(9.0, f"NVRM: Xid (PCI:{PCI}): 79, y", sequence=7)) is not None


def test_codes_nobody_documented_are_counted_as_such() -> None:
    book = ledger()
    for event in (line(1.0, 999), nvml(1.0, 999), line(9.0, 999), line(1.0, 998, historical=True)):
        book.observe(event)
    assert book.unknown == 2
    assert count(book, 999) == 2


def test_memory_is_bounded_in_a_storm() -> None:
    book = XidLedger(recent=100)
    for second in range(1_000):
        book.observe(kernel(second / 1000, f"NVRM: Xid (PCI:{PCI}): 31, x", sequence=second))
    assert len(book.events()) == 100
    assert count(book, 31) == 1_000


def test_a_storm_of_one_code_drowns_no_other() -> None:
    """11,000 XIDs 45 follow a killed job; the one that says why must be among the news all the same."""
    book = XidLedger(recent=100)
    for sequence, xid in enumerate((79, *(45 for _ in range(11_000)), 95)):
        book.observe(kernel(sequence / 1e5, f"NVRM: Xid (PCI:{PCI}): {xid}, x", sequence=sequence))
    news = book.news()
    assert len(news) == len(book.events()) == 100
    assert {event.xid for event in news if isinstance(event, XidEvent)} == {79, 45, 95}


def test_an_event_without_any_identity_still_counts() -> None:
    book = ledger()
    book.observe(XidEvent(at=1.0, xid=79, source="nvml"))
    assert [(row.uuid, row.pci, row.count) for row in book.xids() if row.count] == [(None, None, 1)]


def test_what_an_earlier_life_counted_is_completed_and_not_counted_again() -> None:
    book = ledger()
    book.expect(structs.replace(nvml(10.0, 31), pci=PCI))
    assert book.observe(line(10.1, 31)) is None
    (event,) = book.news()
    assert isinstance(event, XidEvent)
    assert event.sources == ("nvml", "kernel")
    assert count(book, 31) == 0


def test_numbers_of_records_are_remembered_as_far_as_events_are() -> None:
    book = XidLedger(recent=2)
    for number in (1, 2, 3, 1):
        book.observe(kernel(10.0 + 10 * number, f"NVRM: Xid (PCI:{PCI}): 31, x", sequence=number))
    assert count(book, 31) == 4, "number 1 is forgotten once two more have come"
