"""The agent's right-sizing: nobody waits for it, it survives what goes wrong, and it goes on where it ended."""

import logging
import threading
import time
from pathlib import Path

import msgspec
import pytest

from gpuwatch.config import Config, RightsizingConfig
from gpuwatch.consents.file import ConsentsFile
from gpuwatch.model.consent import Consents, PodConsent
from gpuwatch.model.view import View
from gpuwatch.rightsizing.model.recommendation import FindingKind, Recommendations
from gpuwatch.rightsizing.service import checkpoint as usage_checkpoint
from gpuwatch.rightsizing.service.learner import SAVE_SECONDS, UsageLearner
from gpuwatch.rightsizing.service.thread import LEARNING, OFF, Rightsizer
from gpuwatch.rightsizing.usage.decaying_histogram import HistogramState
from gpuwatch.rightsizing.usage.ledger import LedgerState, UsageLedger
from gpuwatch.sim.node.scenario import load
from gpuwatch.sim.playback import views
from tests.waiting import BOUND_SECONDS, until

STARTED = 1_790_000_040.0
ON = RightsizingConfig()
DEADLINE = BOUND_SECONDS


@pytest.fixture(scope="module")
def hour() -> tuple[View, ...]:
    """What an agent sees in an hour of a node of whose pods one never uses its GPUs."""
    return tuple(views(load("idle-allocated"), Config(), STARTED, SAVE_SECONDS + 120, 1))


class Taken:
    """Asked about CPU limits when a View is looked at that begins something: so one sees that it was."""

    def __init__(self) -> None:
        self._asked = threading.Event()

    def __call__(self, pids: object) -> dict[int, float]:
        self._asked.set()
        return {}

    def all(self, rightsizer: Rightsizer, *views: View) -> None:
        """Tell one after the other: it looks at the newest only."""
        for view in views:
            self._asked.clear()
            rightsizer.submit(view)
            assert self._asked.wait(DEADLINE)


def saved(place: Path) -> LedgerState | None:
    return usage_checkpoint.peek(place / usage_checkpoint.NAME, LedgerState).state


def kinds(advice: Recommendations | None) -> set[str]:
    assert advice is not None
    return {item.kind for item in advice.items}


def test_advice_comes_after_a_minute_and_again_each_minute(hour: tuple[View, ...], tmp_path: Path) -> None:
    watch, at = UsageLearner(ON, tmp_path), set()
    for view in hour:
        watch.take(view)
        if view.snapshot.at < STARTED + 60:
            assert watch.advice is None
        elif watch.advice is not None:
            at.add(watch.advice.at - STARTED)
    assert sorted(at) == [60.0 * minute for minute in range(1, 63)]
    assert FindingKind.NEVER_USED in kinds(watch.advice)


def test_it_is_saved_each_hour_and_at_the_end(hour: tuple[View, ...], tmp_path: Path) -> None:
    watch, times = UsageLearner(ON, tmp_path), []
    for view in hour:
        watch.take(view)
        if (state := saved(tmp_path)) is not None and state.at not in times:
            times.append(state.at)
    assert times == [STARTED + SAVE_SECONDS]
    watch.end()
    state = saved(tmp_path)
    assert state is not None
    assert state.at == hour[-1].snapshot.at


def test_a_later_one_continues_where_the_first_ended_and_reports_it_at_once(
    hour: tuple[View, ...], tmp_path: Path
) -> None:
    first = UsageLearner(ON, tmp_path)
    for view in hour[:-2]:
        first.take(view)
    first.end()
    second = UsageLearner(ON, tmp_path)
    second.take(hour[-1])
    assert second.advice is not None
    assert second.advice.since == STARTED
    assert kinds(second.advice) == kinds(first.advice)


def test_a_broken_checkpoint_is_reported_and_no_reason_to_end(
    hour: tuple[View, ...], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / usage_checkpoint.NAME).write_bytes(b"no checkpoint")
    watch = UsageLearner(ON, tmp_path)
    for view in hour[:60]:
        watch.take(view)
    assert watch.advice is not None
    assert [record.levelno for record in caplog.records] == [logging.WARNING]
    assert usage_checkpoint.NAME in caplog.text


@pytest.mark.parametrize("wrong", ["histogram", "at"])
def test_of_a_checkpoint_that_says_what_cannot_be_the_one_before_is_used(
    hour: tuple[View, ...], tmp_path: Path, caplog: pytest.LogCaptureFixture, wrong: str
) -> None:
    first = UsageLearner(ON, tmp_path)
    for view in hour[:60]:
        first.take(view)
    first.end()
    state = saved(tmp_path)
    assert state is not None
    measures = msgspec.structs.replace(
        state.workloads[0].measures, histograms={"busy": HistogramState(weight=1, moment=1)}
    )
    odd = msgspec.structs.replace(state.workloads[0], measures=measures)
    file = tmp_path / usage_checkpoint.NAME
    changes = {"histogram": {"workloads": (odd, *state.workloads[1:])}, "at": {"at": -1e300}}
    usage_checkpoint.save(file, msgspec.structs.replace(state, **changes[wrong]))
    second = UsageLearner(ON, tmp_path)
    for view in hour[60:120]:
        second.take(view)
    assert second.advice is not None
    assert second.advice.since == STARTED
    (aside,) = tmp_path.glob("rightsizing.corrupt-*.json")
    assert f"{file} cannot be used, it is now {aside}; it holds impossible values (ValueError: " in caplog.text


def test_bins_of_the_future_cost_no_time(hour: tuple[View, ...], tmp_path: Path) -> None:
    """Each was gone through, in the agent at its start and in `gpuwatch recommend`."""
    first = UsageLearner(ON, tmp_path)
    for view in hour[:60]:
        first.take(view)
    first.end()
    state = saved(tmp_path)
    assert state is not None
    odd = msgspec.structs.replace(state, bins_until=state.bins_until + 10**9)
    assert UsageLedger.restored(odd, ON).state().bins_until == state.bins_until


def test_a_disk_that_cannot_be_written_is_reported_once(
    hour: tuple[View, ...], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    place = tmp_path / "file"
    place.write_text("no folder")
    watch = UsageLearner(ON, place)
    caplog.clear()
    for view in hour[:60]:
        watch.take(view)
    watch.save()
    watch.save()
    assert watch.advice is not None
    said = [message for message in caplog.messages if str(place) in message and "lost if the agent ends" in message]
    assert len(said) == 1


def test_owners_come_from_the_consents_where_there_are_any(hour: tuple[View, ...], tmp_path: Path) -> None:
    pod = PodConsent(namespace="team-nlp", name="debug-shell", uid="u", owner=("Job", "shells"), images={"shell": "a"})
    ConsentsFile(tmp_path).write(Consents(at=STARTED, pods=(pod,)))
    watch = UsageLearner(ON, tmp_path)
    for view in hour:
        watch.take(view)
    assert watch.advice is not None
    (item,) = [item for item in watch.advice.items if item.kind is FindingKind.NEVER_USED]
    assert (item.target.kind, item.target.name, item.target.image) == ("Job", "shells", "a")


def test_cpu_throttling_is_asked_of_the_processes_on_gpus(hour: tuple[View, ...], tmp_path: Path) -> None:
    has_requests: list[set[int]] = []

    def half(pids: object) -> dict[int, float]:
        has_requests.append(set(pids))  # type: ignore[call-overload]
        return dict.fromkeys(has_requests[-1], 0.5)

    watch = UsageLearner(ON, tmp_path, half)
    for view in hour[:60]:
        watch.take(view)
    watch.end()
    pids = {owner.pid for view in hour[:60] for owner in view.owners}
    assert pids
    assert all(seen <= pids for seen in has_requests)
    state = saved(tmp_path)
    assert state is not None
    assert b"throttled" in msgspec.json.encode(state)


def test_the_thread_reports_and_saves_at_the_end(hour: tuple[View, ...], tmp_path: Path) -> None:
    taken = Taken()
    rightsizer = Rightsizer(ON, tmp_path, taken, later=0.0)
    rightsizer.start()
    assert rightsizer.recommendations() == LEARNING
    taken.all(rightsizer, hour[0], hour[-1])
    until(lambda: isinstance(rightsizer.recommendations(), Recommendations), "advice")
    rightsizer.stop()
    rightsizer.wait(time.monotonic() + DEADLINE)
    state = saved(tmp_path)
    assert state is not None
    assert state.at == hour[-1].snapshot.at


def test_a_view_that_it_cannot_use_is_reported_once_and_the_next_one_is_used(
    hour: tuple[View, ...], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    odd = msgspec.structs.replace(hour[0], attribution=None)
    rightsizer = Rightsizer(ON, tmp_path, later=0.0)
    rightsizer.start()
    for _ in range(3):
        rightsizer.submit(odd)
        until(lambda: "AttributeError" in str(rightsizer.recommendations()), "it failed")
    rightsizer.submit(hour[0])
    until(lambda: rightsizer.recommendations() == LEARNING, "it goes on")
    rightsizer.submit(hour[-1])
    until(lambda: isinstance(rightsizer.recommendations(), Recommendations), "advice")
    rightsizer.stop()
    rightsizer.wait(time.monotonic() + DEADLINE)
    assert [record.levelno for record in caplog.records] == [logging.ERROR]


def test_a_report_never_waits(hour: tuple[View, ...], tmp_path: Path) -> None:
    held = threading.Event()

    def wait(pids: object) -> dict[int, float]:
        held.wait(DEADLINE)
        return {}

    rightsizer = Rightsizer(ON, tmp_path, wait, later=0.0)
    rightsizer.start()
    began = time.monotonic()
    for view in hour:
        rightsizer.submit(view)
    rightsizer.stop()
    rightsizer.wait(time.monotonic() + 0.1)
    assert time.monotonic() - began < DEADLINE / 2
    held.set()
    rightsizer.wait(time.monotonic() + DEADLINE)


def test_switched_off_it_does_nothing_and_on_again_it_continues(hour: tuple[View, ...], tmp_path: Path) -> None:
    off = RightsizingConfig(enabled=False)
    taken = Taken()
    rightsizer = Rightsizer(off, tmp_path, taken, later=0.0)
    threads = set(threading.enumerate())
    rightsizer.start()
    rightsizer.submit(hour[0])
    assert (rightsizer.recommendations(), set(threading.enumerate()) - threads) == (OFF, set())
    rightsizer.configure(ON)
    assert rightsizer.recommendations() == LEARNING
    taken.all(rightsizer, hour[0], hour[-1])
    until(lambda: isinstance(rightsizer.recommendations(), Recommendations), "advice")
    rightsizer.configure(off)
    assert rightsizer.recommendations() == OFF
    rightsizer.wait(time.monotonic() + DEADLINE)
    state = saved(tmp_path)
    assert state is not None
    assert state.at == hour[-1].snapshot.at


def test_on_again_it_waits_for_what_the_one_before_still_saves(hour: tuple[View, ...], tmp_path: Path) -> None:
    held, calls = threading.Event(), [threading.Event() for _ in range(3)]

    def second_waits(pids: object) -> dict[int, float]:
        number = next(number for number, call in enumerate(calls) if not call.is_set() or number == 2)
        calls[number].set()
        if number == 1:
            held.wait(DEADLINE)
        return {}

    rightsizer = Rightsizer(ON, tmp_path, second_waits, later=0.0)
    rightsizer.start()
    for view, call in zip((hour[0], hour[-2]), calls, strict=False):
        rightsizer.submit(view)
        assert call.wait(DEADLINE)
    rightsizer.configure(RightsizingConfig(enabled=False))
    rightsizer.configure(ON)
    rightsizer.submit(hour[-1])
    assert not calls[2].wait(0.2), "it has begun before the other one had ended"
    held.set()
    until(lambda: isinstance(rightsizer.recommendations(), Recommendations), "advice")
    advice = rightsizer.recommendations()
    assert isinstance(advice, Recommendations)
    assert advice.since == STARTED
    rightsizer.stop()
    rightsizer.wait(time.monotonic() + DEADLINE)
