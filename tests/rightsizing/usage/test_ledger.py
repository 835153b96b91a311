"""The ledger: many workloads in little memory, sources that repeat themselves, and clocks that jump."""

import random
from collections.abc import Iterable

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from gpuwatch.config import RightsizingConfig, WorkClassRule
from gpuwatch.model.work import WorkloadKey
from gpuwatch.rightsizing.model.usage import UsageWindow, WorkloadSummary
from gpuwatch.rightsizing.usage.ledger import LedgerState, UsageLedger
from tests.rightsizing.usage.usage_spans import BEGIN, DAY, HOUR, KEY, MINUTE, at_rest, at_work, window
from tests.seeds import examples

CONFIG = RightsizingConfig()


def key(number: int) -> WorkloadKey:
    return WorkloadKey(namespace=f"team-{number % 3}", kind="Job", name=f"job-{number}")


def ledger_of(windows: Iterable[UsageWindow], config: RightsizingConfig = CONFIG) -> UsageLedger:
    ledger = UsageLedger(config)
    for each in windows:
        ledger.add(each)
    return ledger


def only(ledger: UsageLedger, now: float) -> WorkloadSummary:
    (summary,) = ledger.summaries(now)
    return summary


def restored(ledger: UsageLedger, config: RightsizingConfig = CONFIG) -> UsageLedger:
    return UsageLedger.restored(msgspec.json.decode(msgspec.json.encode(ledger.state()), type=LedgerState), config)


def test_an_empty_one_knows_nothing_and_can_be_saved():
    ledger = restored(UsageLedger(CONFIG))

    assert (list(ledger.summaries(BEGIN)), ledger.namespaces(BEGIN), ledger.since) == ([], (), None)


def test_since_its_first_window():
    assert restored(ledger_of(at_work(BEGIN, HOUR))).since == BEGIN


def test_the_longest_gone_make_room_and_who_is_there_stays():
    stays = [window(BEGIN + number * HOUR, HOUR, busy=1.0) for number in range(40)]
    jobs = [
        window(BEGIN + number * HOUR, HOUR, busy=1.0, key=key(number), pod=f"job-{number}", gpu="GPU-1")
        for number in range(40)
    ]

    ledger = ledger_of(
        (each for pair in zip(stays, jobs, strict=True) for each in pair), RightsizingConfig(max_workloads=4)
    )

    names = [summary.key.name for summary in ledger.summaries(BEGIN + 40 * HOUR)]
    assert sorted(names) == ["job-37", "job-38", "job-39", "llm"]
    assert ledger.rejected == 0


def test_nobody_who_is_there_makes_room():
    ledger = ledger_of(
        (
            window(BEGIN + minute * MINUTE, key=key(number), pod=f"{number}")
            for minute in range(9)
            for number in range(6)
        ),
        RightsizingConfig(max_workloads=4),
    )

    assert {each.held for each in ledger.summaries(BEGIN)} == {9 * MINUTE}
    assert (len(ledger), ledger.rejected) == (4, 2 * 9)


def test_less_room_by_configuration_forgets_at_once():
    ledger = ledger_of(window(key=key(number), pod=f"{number}") for number in range(9))

    ledger.configure(RightsizingConfig(max_workloads=2))

    assert [each.key for each in ledger.summaries(BEGIN)] == [key(7), key(8)]
    assert len(restored(ledger, RightsizingConfig(max_workloads=1))) == 1


def test_a_source_that_repeats_itself_is_counted_once():
    windows = [*at_work(BEGIN, HOUR), *at_rest(BEGIN + HOUR, HOUR)]
    once, again = ledger_of(windows), ledger_of([*windows, *windows[30:], *windows])

    assert list(again.summaries(BEGIN + 2 * HOUR)) == list(once.summaries(BEGIN + 2 * HOUR))
    assert again.namespaces(BEGIN + 2 * HOUR) == once.namespaces(BEGIN + 2 * HOUR)


@settings(max_examples=examples(60))
@given(seed=st.integers(0, 99), cut=st.integers(0, 200), overlap=st.integers(0, 50))
def test_after_a_restart_that_repeats_some_windows_it_says_the_same(seed: int, cut: int, overlap: int):
    chance = random.Random(seed)
    windows = [
        window(
            BEGIN + step * 5 * MINUTE,
            5 * MINUTE,
            key=key(number),
            pod=f"{number}",
            gpu=f"GPU-{number}",
            busy=chance.choice((0.0, 0.0, 0.5, None)),
            memory=chance.randrange(1 << 30),
        )
        for step in range(50)
        for number in range(4)
    ]
    whole = ledger_of(windows)
    resumed = restored(ledger_of(windows[:cut]))
    for each in windows[max(0, cut - overlap) :]:
        resumed.add(each)

    end = BEGIN + 250 * MINUTE
    for found, expected in zip(resumed.summaries(end), whole.summaries(end), strict=True):
        assert (found.key, found.holds, found.peaks) == (expected.key, expected.holds, expected.peaks)
        assert (found.held, found.covered) == (expected.held, expected.covered)
    assert sorted(resumed.namespaces(end), key=repr) == sorted(whole.namespaces(end), key=repr)


@pytest.mark.parametrize(
    "wrong",
    [{"span": 0.0}, {"span": -60.0}, {"span": float("nan")}, {"at": float("nan")}, {"at": 1e12}, {"covered": -1.0}],
)
def test_what_is_no_window_is_dropped(wrong: dict[str, float]):
    ledger = UsageLedger(CONFIG)

    assert not ledger.add(replace(window(), **wrong))
    assert len(ledger) == 0


def test_a_clock_that_was_ahead_makes_nothing_look_old():
    ahead = BEGIN + 365 * DAY
    ledger = ledger_of([*at_work(BEGIN, HOUR, memory=5), *at_work(ahead, 10 * MINUTE, memory=9)])

    list(ledger.summaries(BEGIN + HOUR))
    for each in at_rest(BEGIN + HOUR, HOUR, memory=7):
        assert ledger.add(each)

    found = only(ledger, BEGIN + 2 * HOUR)
    (hold,) = [hold for hold in found.holds if hold.present]
    assert (hold.last, hold.idle_since) == (BEGIN + 2 * HOUR, BEGIN + HOUR)
    assert [peak.day for peak in found.peaks] == [BEGIN // DAY]
    assert found.days == pytest.approx(2 / 24)
    (use,) = ledger.namespaces(BEGIN + 2 * HOUR)
    assert (use.held, use.active) == (1, (1.0,))


def test_a_little_disorder_is_no_clock_that_was_set_back():
    ledger = ledger_of(at_work(BEGIN, HOUR))

    assert only(ledger, BEGIN + HOUR - 5).last == BEGIN + HOUR


def test_a_pod_away_from_a_node_that_was_watched_is_another_hold_when_it_returns():
    other = at_work(BEGIN, 4 * HOUR, key=key(1), pod="other", gpu="GPU-1")
    ends = [*at_rest(BEGIN, HOUR), *at_rest(BEGIN + 3 * HOUR, HOUR)]
    watched = ledger_of(sorted([*other, *ends], key=lambda each: each.at))
    outage = ledger_of(ends)

    now = BEGIN + 4 * HOUR
    (hold,) = [each.holds[0] for each in watched.summaries(now) if each.key == KEY]
    assert (hold.since, hold.covered) == (BEGIN + 3 * HOUR, HOUR)
    found = only(outage, now)
    assert (found.holds[0].since, found.held, found.covered) == (BEGIN, 4 * HOUR, 2 * HOUR)


def test_classes_by_annotation_configuration_and_kind():
    rules = (WorkClassRule(work_class="serving", namespace="team-1"),)
    ledger = ledger_of(
        [
            window(key=key(0), pod="0"),
            window(key=key(1), pod="1"),
            window(key=key(2), pod="2", declared_class="notebook"),
            window(BEGIN + MINUTE, key=key(2), pod="2"),
        ],
        RightsizingConfig(work_classes=rules),
    )

    assert [each.work_class for each in restored(ledger, RightsizingConfig(work_classes=rules)).summaries(BEGIN)] == [
        "batch",
        "serving",
        "notebook",
    ]


def test_an_instance_is_judged_by_its_gpu_not_by_its_own_memory():
    ledger = ledger_of(at_work(BEGIN, HOUR, device="MIG-1", profile="1g.10gb", memory_total=10 << 30, sm=0.1))

    assert len(only(ledger, BEGIN + HOUR).slowdowns) > 1
