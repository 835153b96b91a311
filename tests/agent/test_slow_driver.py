"""Calls that each take long, on a made-up clock: what is shown of the GPU, and when; nothing flaps."""

from typing import NamedTuple

import pytest

from gpuwatch.agent.node_state import BETWEEN_BEATS, CALL_DEADLINE_SECONDS, NodeState
from gpuwatch.collect.reader.gpu_thread import backoff_seconds
from gpuwatch.collect.reader.messages import (
    AnyMessage,
    DriverOpened,
    GpuFound,
    GpuSample,
    ReaderHeartbeat,
    ReadUnderWay,
)
from gpuwatch.health.judge import Judge
from gpuwatch.model.finding import Health
from gpuwatch.model.snapshot import Driver, Gpu, GpuState, Identity, Snapshot

INTERVAL, BEAT, STEP = 2.0, 0.5, 0.25
CALLS = 40
QUICK = 0.005
BEGINS, ENDS, LAST = 20.0, 1020.0, 1500.0
"""Seconds between which the driver is slow, and the end of the test."""

GPU = Identity(index=0, uuid="GPU-0", pci_bus_id="00000000:01:00.0")


class Call(NamedTuple):
    began: float
    ended: float
    read_from: float
    slowest: float  # of those before


class Shown(NamedTuple):
    """What was shown over the whole time."""

    states: list[tuple[float, GpuState]]  # seconds at which the state changed
    slow: list[tuple[float, bool]]  # seconds at which `driver_slow` began and ended
    checks: set[str]
    healths: set[Health]
    withheld: float  # seconds without values
    oldest: float  # seconds, of the values shown


def reader(slow: float) -> list[tuple[float, AnyMessage]]:
    """The messages of a reader whose calls take `slow` seconds for a while: its grid, its pauses, its heartbeats."""
    sent: list[tuple[float, AnyMessage]] = [
        (0.0, DriverOpened(driver=Driver(), count=1)),
        (0.0, GpuFound(identity=GPU)),
    ]
    calls: list[Call] = []
    now = before = 0.0
    while now < LAST:
        start = now
        for _ in range(CALLS):
            last = calls[-1] if calls else Call(0.0, 0.0, 0.0, 0.0)
            ended = now + (slow if BEGINS <= now < ENDS else QUICK)
            calls.append(Call(now, ended, start, max(last.slowest, last.ended - last.began)))
            now = ended
        took = now - start
        sent.append((now, GpuSample(gpu=Gpu(identity=GPU, at=start, read_seconds=took, recovery_action=0))))
        rest = INTERVAL - now % INTERVAL
        rest = rest if rest >= INTERVAL / 2 else rest + INTERVAL
        now += max(rest, backoff_seconds(INTERVAL, 0, (before, took)))
        before = took
    number = 0
    for beat in (BEAT * count for count in range(1, int(LAST / BEAT))):
        while number < len(calls) - 1 and calls[number].ended <= beat:
            number += 1
        call = calls[number]
        read = ReadUnderWay("fields", beat - call.read_from, beat - call.began, call.slowest)
        sent.append((beat, ReaderHeartbeat(reads={GPU.uuid: read} if call.began <= beat else {})))
    return sorted(sent, key=lambda each: each[0])


def shown(slow: float) -> Shown:
    """What an agent makes of it, looked at every quarter of a second and judged every interval."""
    state, judge, pending = NodeState(INTERVAL, 0.0), Judge(uptime=1e6), reader(slow)
    states: list[tuple[float, GpuState]] = []
    found: list[tuple[float, bool]] = [(0.0, False)]
    checks: set[str] = set()
    healths: set[Health] = set()
    withheld = oldest = 0.0
    for now in (STEP * count for count in range(4, int(LAST / STEP))):
        while pending and pending[0][0] <= now:
            at, message = pending.pop(0)
            state.handle(message, at)
        (status,), gpus = state.statuses(now, now), state.gpus(now)
        if not states or states[-1][1] is not status.state:
            states.append((now, status.state))
        withheld += 0.0 if gpus else STEP
        oldest = max([oldest, *(now - gpu.at for gpu in gpus)])
        if now % INTERVAL == 0:
            judgement = judge.judge(Snapshot(at=now, interval=INTERVAL, gpus=gpus, statuses=(status,)))
            checks |= {finding.check for finding in judgement.findings}
            healths |= set(judgement.gpus.values())
            is_slow = any(finding.check == "driver_slow" for finding in judgement.findings)
            if found[-1][1] is not is_slow:
                found.append((now, is_slow))
    return Shown(states, found[1:], checks, healths, withheld, oldest)


@pytest.mark.parametrize("slow", [0.02, 0.045, 0.05, 0.055, 0.1, 0.5, 1.5])
def test_a_slow_gpu_is_never_silent_and_keeps_its_values(slow: float) -> None:
    result = shown(slow)
    assert [state for _, state in result.states] == [GpuState.FRESH]
    assert result.withheld == 0.0
    assert result.healths <= {Health.HEALTHY, Health.DEGRADED}


@pytest.mark.parametrize(("slow", "after", "oldest"), [(0.1, 12, 10), (0.5, 12, 60), (1.5, 12, 150), (5.0, 14, 430)])
def test_a_slow_driver_is_one_finding_that_begins_and_ends_once(slow: float, after: float, oldest: float) -> None:
    """The figures are those of docs/checks.md."""
    result = shown(slow)
    (begins, _), (ends, _) = result.slow
    assert (begins - BEGINS, round(result.oldest)) == (after, oldest)
    assert ends > ENDS
    assert result.checks == {"driver_slow"}
    assert result.withheld == (0.75 if slow == 5.0 else 0.0)


def test_the_first_call_of_five_seconds_is_unresponsive_and_those_after_it_are_slow() -> None:
    """Until one has returned, nothing tells it from a call that hangs."""
    (_, first), (began, second), (ended, third) = shown(5.0).states
    assert (first, second, third) == (GpuState.FRESH, GpuState.UNRESPONSIVE, GpuState.FRESH)
    assert began <= BEGINS + 2 * INTERVAL
    assert ended <= BEGINS + 5.0 + BEAT


def test_a_call_of_a_slow_gpu_that_never_returns_is_unresponsive_after_its_own_deadline() -> None:
    state = NodeState(INTERVAL, 0.0)
    for message in (DriverOpened(driver=Driver(), count=1), GpuFound(identity=GPU), GpuSample(gpu=Gpu(identity=GPU))):
        state.handle(message, 0.0)
    for seconds, slowest, expected in (
        (2.9 + BETWEEN_BEATS, 1.5, GpuState.FRESH),  # its deadline: twice the slowest that returned, and a heartbeat
        (3.1 + BETWEEN_BEATS, 1.5, GpuState.UNRESPONSIVE),
        (CALL_DEADLINE_SECONDS - 0.1, 60.0, GpuState.FRESH),
        (CALL_DEADLINE_SECONDS + 0.1, 60.0, GpuState.UNRESPONSIVE),
    ):
        read = ReadUnderWay("fields", seconds, seconds, min(slowest, 15.0))
        state.handle(ReaderHeartbeat(reads={GPU.uuid: read}), 30.0)
        (status,) = state.statuses(30.0, 30.0)
        assert (status.state, seconds) == (expected, seconds)


def test_a_gpu_that_hung_is_not_shown_with_its_old_values_before_its_next_sample() -> None:
    state = NodeState(INTERVAL, 0.0)
    for message in (DriverOpened(driver=Driver(), count=1), GpuFound(identity=GPU), GpuSample(gpu=Gpu(identity=GPU))):
        state.handle(message, 0.0)
    state.handle(ReaderHeartbeat(reads={GPU.uuid: ReadUnderWay("GPM", 600.0, 0.01, 599.0)}), 600.0)
    assert state.statuses(600.0, 600.0)[0].state is GpuState.UNRESPONSIVE
    assert state.gpus(600.0) == ()


def test_values_of_an_earlier_reader_are_not_shown_as_those_of_a_slow_gpu() -> None:
    state = NodeState(INTERVAL, 0.0)
    for message in (DriverOpened(driver=Driver(), count=1), GpuFound(identity=GPU), GpuSample(gpu=Gpu(identity=GPU))):
        state.handle(message, 0.0)
    state.handle(DriverOpened(driver=Driver(), count=1), 600.0)
    state.handle(GpuFound(identity=GPU), 600.0)
    assert state.gpus(601.0) == ()
    state.handle(ReaderHeartbeat(reads={GPU.uuid: ReadUnderWay("fields", 9.0, 0.1, 0.1)}), 610.0)
    (status,) = state.statuses(610.0, 610.0)
    assert (status.state, state.gpus(610.0)) == (GpuState.UNKNOWN, ())
