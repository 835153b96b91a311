"""Another life of the agent goes on where the last one was: nothing twice, nothing missed, whatever the log is."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from gpuwatch.collect.kernel_log.follower import KernelLog
from gpuwatch.collect.kernel_log.ring import SyslogRing
from gpuwatch.model.xid import KernelCursor, KernelEvent

UPTIME = 100.0


class FixedClock:
    """Unix time 1000 at 100 seconds after boot."""

    def time(self) -> float:
        return 1_000.0

    def monotonic(self) -> float:
        return UPTIME


@pytest.fixture
def ring(tmp_path: Path) -> Path:
    """A ring of ten XIDs, one a second, numbers 1 to 10, that ends at second 50."""
    path = tmp_path / "kmsg"
    path.write_text("".join(record(number) for number in range(1, 11)))
    (tmp_path / "boot_id").write_text("boot-1\n")
    return path


@pytest.fixture
def follow(ring: Path) -> Iterator[Callable[..., KernelLog]]:
    opened: list[KernelLog] = []

    def start(after: KernelCursor | None = None) -> KernelLog:
        boot_id = ring.with_name("boot_id")
        opened.append(KernelLog.open(ring, boot_id_path=boot_id, fall_back=False, clock=FixedClock(), after=after))
        return opened[-1]

    yield start
    for log in opened:
        log.close()


def record(number: int, text: str = "NVRM: Xid (PCI:0000:3b:00): 79, text") -> str:
    return f"4,{number},{(40 + number) * 1_000_000},-;{text}\n"


def cursor(position: int | None, **changes: str) -> KernelCursor:
    return KernelCursor(**{"boot_id": "boot-1", "mode": "kmsg", "position": position, **changes})


def news(events: list[KernelEvent]) -> list[int | None]:
    return [event.sequence for event in events if not event.historical]


def test_without_a_cursor_all_of_it_is_history(follow: Callable[..., KernelLog]) -> None:
    log = follow()
    events = log.read(0)
    assert (len(events), news(events), log.resumed) == (10, [], False)
    assert log.cursor == cursor(10)


def test_what_is_behind_the_cursor_is_news_of_its_own_time(follow: Callable[..., KernelLog]) -> None:
    log = follow(cursor(7))
    events = log.read(0)
    assert (len(events), news(events), log.resumed, log.lost) == (10, [8, 9, 10], True, 0)
    assert events[-1].at == pytest.approx(1_000 - (UPTIME - 50))
    assert [event.uptime for event in events] == [number + 40.0 for number in range(1, 11)]


def test_a_line_without_a_known_boot_has_no_time_since_boot(ring: Path, follow: Callable[..., KernelLog]) -> None:
    ring.with_name("boot_id").unlink()
    assert {event.uptime for event in follow().read(0)} == {None}


def test_the_cursor_of_one_life_leaves_nothing_for_the_next(follow: Callable[..., KernelLog]) -> None:
    first = follow()
    assert first.read(0)
    assert news(follow(first.cursor).read(0)) == []


def test_it_moves_over_lines_that_are_not_about_gpus(follow: Callable[..., KernelLog], ring: Path) -> None:
    with ring.open("a") as file:
        file.write(record(11, "usb 1-1: new device"))
    assert follow().cursor == cursor(11)


def test_behind_the_cursor_of_an_empty_log_everything_is_news(follow: Callable[..., KernelLog]) -> None:
    assert news(follow(cursor(None)).read(0)) == list(range(1, 11))


@pytest.mark.parametrize("other", [{"boot_id": "boot-0"}, {"mode": "klogctl"}, {"position": 4711}])
def test_the_cursor_of_another_log_says_nothing(follow: Callable[..., KernelLog], other: dict[str, object]) -> None:
    log = follow(cursor(**{"position": 7, **other}))
    assert (news(log.read(0)), log.resumed, log.lost) == ([], False, 0)


def test_what_was_overwritten_between_two_lives_is_counted(follow: Callable[..., KernelLog], ring: Path) -> None:
    ring.write_text("".join(record(number) for number in range(21, 24)))
    log = follow(cursor(10))
    assert (news(log.read(0)), log.lost) == ([21, 22, 23], 10)


def test_without_a_boot_id_there_is_no_cursor(follow: Callable[..., KernelLog], ring: Path) -> None:
    ring.with_name("boot_id").unlink()
    assert follow().cursor is None


def klogctl(after: KernelCursor | None, *lines: str) -> KernelLog:
    text = "".join(f"<4>{line} NVRM: Xid (PCI:0000:3b:00): 79, text\n" for line in lines).encode()
    records = SyslogRing(lambda size: text[-size:], size=len(text) + 1)
    return KernelLog(records, mode="klogctl", boot_id="boot-1", clock=FixedClock(), after=after)


def test_klogctl_continues_by_the_time_since_boot() -> None:
    first = klogctl(None, "[   41.000001]", "[   42.500000]")
    assert first.cursor == cursor(42_500_000, mode="klogctl")
    second = klogctl(first.cursor, "[   41.000001]", "[   42.500000]", "[   42.500007]")
    events = second.read(0)
    assert [event.historical for event in events] == [True, True, False]
    assert second.resumed


def test_klogctl_without_times_cannot_continue() -> None:
    assert klogctl(None, "").cursor is None
