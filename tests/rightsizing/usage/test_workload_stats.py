"""Books: what is kept of a workload through pods, days, GPU models and classes, and that it stays small."""

import math

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gpuwatch.model.work import WorkClass
from gpuwatch.rightsizing.model import mig_profiles
from gpuwatch.rightsizing.model.usage import UsageWindow, WorkloadSummary
from gpuwatch.rightsizing.usage.allocation import activity
from gpuwatch.rightsizing.usage.mig_slowdown import slowdowns
from gpuwatch.rightsizing.usage.workload_stats import MAX_HOLDS, MAX_PEAKS, WorkloadRecord, WorkloadStats
from tests.rightsizing.usage.usage_spans import BEGIN, DAY, H100, HOUR, MINUTE, at_rest, at_work, stretch, window
from tests.seeds import examples

PROFILES = mig_profiles.of(H100)
WEEK = 7 * DAY


def book_of(*windows: UsageWindow, work_class: WorkClass | None = None) -> WorkloadStats:
    book = WorkloadStats.begun(windows[0])
    book.set_class(work_class)
    for each in windows:
        book.add(each, PROFILES, activity(each), 0.0)
    return book


def summary_of(*windows: UsageWindow, work_class: WorkClass | None = None) -> WorkloadSummary:
    end = max(each.at + each.span for each in windows)
    return book_of(*windows, work_class=work_class).summary(end, work_class)


def test_peaks_of_days_in_utc_the_last_eight():
    found = summary_of(*(window(BEGIN + day * DAY, memory=(day + 1) << 30) for day in range(20)))

    first = int(BEGIN // DAY)
    assert [(peak.day - first, peak.bytes >> 30) for peak in found.peaks] == [(day, day + 1) for day in range(12, 20)]
    assert len(found.peaks) == MAX_PEAKS


def test_a_window_over_midnight_counts_for_both_days():
    found = summary_of(window(BEGIN + DAY - HOUR, span=2 * HOUR, memory=5))

    assert [peak.day for peak in found.peaks] == [BEGIN // DAY, BEGIN // DAY + 1]


def test_a_window_until_midnight_counts_for_one():
    assert len(summary_of(window(BEGIN + DAY - HOUR, span=HOUR, memory=5)).peaks) == 1


@pytest.mark.parametrize(
    ("work_class", "half_life"), [("batch", DAY), ("notebook", DAY), ("serving", WEEK), (None, WEEK)]
)
def test_half_of_what_was_counts_after_the_half_life_of_its_class(work_class: WorkClass | None, half_life: float):
    steps = [window(BEGIN + step * DAY / 2) for step in range(1, int(2 * half_life / DAY))]

    found = summary_of(window(BEGIN, busy=0.0), *steps, window(BEGIN + half_life, busy=0.9), work_class=work_class)

    assert found.busy is not None
    assert found.busy.mean == pytest.approx(0.9 / 1.5)


def test_a_class_that_is_known_later_forgets_faster_from_then_on():
    late = book_of(window(BEGIN, busy=0.0), work_class=None)
    late.set_class("batch")
    late.add(window(BEGIN + DAY, busy=0.9), PROFILES, True, 0.0)

    found = late.summary(BEGIN + DAY + MINUTE, "batch")

    assert found.busy is not None
    assert found.busy.mean == pytest.approx(0.9 / 1.5)


def test_no_weight_overflows_in_years():
    found = summary_of(*(window(BEGIN + day * DAY, busy=0.5) for day in range(3000)), work_class="batch")

    assert found.busy is not None
    assert found.busy.mean == pytest.approx(0.5)
    assert math.isfinite(found.held)


def test_a_month_without_it_makes_nothing_older_than_a_day_does():
    gap = summary_of(window(BEGIN, busy=0.0), window(BEGIN + 30 * DAY, busy=0.9), work_class="batch")
    day = summary_of(window(BEGIN, busy=0.0), window(BEGIN + DAY, busy=0.9), work_class="batch")

    assert gap.busy == day.busy


def test_slowdowns_are_those_of_its_windows():
    alone = window(busy=0.9, sm=0.5, dram=0.3, pipe=0.2)

    found = {
        each.profile: each
        for each in summary_of(*(stretch(BEGIN, HOUR, busy=0.9, sm=0.5, dram=0.3, pipe=0.2))).slowdowns
    }

    assert set(found) == {profile.name for profile in PROFILES}
    for profile in PROFILES:
        ((low, high),) = slowdowns(alone, (profile,))
        assert low is not None
        assert high is not None
        assert found[profile.name].low == pytest.approx(low, rel=0.11, abs=0.011)
        assert found[profile.name].high == pytest.approx(high, rel=0.11, abs=0.011)
        assert found[profile.name].low <= found[profile.name].high


def test_rest_does_not_hide_how_slow_the_work_would_be():
    busy = summary_of(*at_work(BEGIN, 3 * HOUR, sm=0.8))
    rare = summary_of(*at_work(BEGIN, 3 * HOUR, sm=0.8), *at_rest(BEGIN + 3 * HOUR, 97 * HOUR))

    assert rare.slowdowns == busy.slowdowns


def test_nothing_is_reported_of_profiles_where_nobody_saw_how_busy_it_was():
    assert summary_of(*stretch(BEGIN, HOUR, watts=300.0)).slowdowns == ()


def test_slowdowns_of_the_model_it_was_on_last():
    a100 = "NVIDIA A100-SXM4-40GB"
    book = book_of(*at_work(BEGIN, HOUR))
    book.add(window(BEGIN + HOUR, busy=0.8, model=a100), mig_profiles.of(a100), True, 0.0)

    found = book.summary(BEGIN + 2 * HOUR, None)

    assert {each.profile for each in found.slowdowns} == {profile.name for profile in mig_profiles.of(a100)}
    assert found.models == (H100, a100)


def test_gpus_of_one_pod_are_those_it_has_at_a_time():
    gang = [window(gpu=f"GPU-{number}") for number in range(8)]
    moved = [window(BEGIN + HOUR), window(BEGIN + 2 * HOUR, gpu="GPU-9", held_since=BEGIN + 2 * HOUR)]

    assert summary_of(*gang).gpus_per_pod == 8
    assert summary_of(*moved).gpus_per_pod == 1


def test_swings_and_throttling_as_shares_of_time():
    found = summary_of(
        *stretch(BEGIN, HOUR, busy=0.5, busy_low=0.0, busy_high=1.0, cpu_throttled=0.2),
        *stretch(BEGIN + HOUR, HOUR, busy=0.0, busy_low=0.0, busy_high=0.0, cpu_throttled=0.0),
    )

    assert found.sawtooth == pytest.approx(0.5, abs=0.01)
    assert found.cpu_throttled == pytest.approx(0.1, abs=0.01)


def test_holds_are_bounded_and_who_is_there_stays():
    rollouts = book_of(*(window(BEGIN + number * HOUR, pod=f"llm-{number}") for number in range(1000)))
    crowd = book_of(*(window(pod=f"llm-{number}") for number in range(1000)))

    assert [hold.pod for hold in rollouts.summary(BEGIN + 1000 * HOUR, None).holds][:2] == ["llm-999", "llm-998"]
    assert len(rollouts.summary(BEGIN, None).holds) == MAX_HOLDS
    assert {hold.pod for hold in crowd.summary(BEGIN, None).holds} == {f"llm-{number}" for number in range(MAX_HOLDS)}
    assert crowd.summary(BEGIN, None).held == 1000 * MINUTE


def test_what_was_last_reported_of_it_stays():
    found = summary_of(window(declared_class="batch", autotune="enforce", memory_total=80), window(BEGIN + MINUTE))

    assert (found.memory_total, found.autotune) == (80, "enforce")


@settings(max_examples=examples(150))
@given(busy=st.lists(st.sampled_from([None, 0.0, 0.3, 1.0]), min_size=1, max_size=50), cut=st.integers(1, 50))
def test_saved_in_between_it_says_the_same(busy: list[float | None], cut: int):
    windows = [window(BEGIN + number * HOUR, HOUR, busy=each, memory=number << 30) for number, each in enumerate(busy)]
    whole, parted = book_of(*windows), book_of(*windows[:cut])

    body = msgspec.json.encode(parted.state())
    resumed = WorkloadStats(msgspec.json.decode(body, type=WorkloadRecord))
    for each in windows[cut:]:
        resumed.add(each, PROFILES, activity(each), 0.0)

    expected, found = (book.summary(BEGIN + 50 * HOUR, None) for book in (whole, resumed))
    assert (found.holds, found.peaks, found.held) == (expected.holds, expected.peaks, expected.held)
    assert (found.busy is None) == (expected.busy is None)
    if found.busy is not None and expected.busy is not None:
        assert found.busy.mean == pytest.approx(expected.busy.mean)
        assert found.busy.max == expected.busy.max
