"""What the reader says, turned into who is fresh, who is not and why: pure, with made-up times."""

from typing import Any

import pytest

from gpuwatch.agent.node_state import ANSWER_SECONDS, BEAT_SECONDS, SETTLE_SECONDS, NodeState
from gpuwatch.collect.reader.messages import (
    AnyMessage,
    DriverOpened,
    GpuFound,
    GpuRefused,
    GpuSample,
    GpuTrouble,
    ReaderFailed,
    ReaderHeartbeat,
    ReadUnderWay,
)
from gpuwatch.model.snapshot import Activity, Driver, Gpu, GpuState, Identity
from gpuwatch.model.view import STALE_INTERVALS

INTERVAL = 2.0
EPOCH = 1_000_000_000.0


def identity(index: int, uuid: str | None = None) -> Identity:
    return Identity(index=index, uuid=uuid or f"GPU-{index}", pci_bus_id=f"00000000:0{index}:00.0")


class Node:
    """A NodeState and a clock that only `at` moves; a beat comes with every word, as from a reader that lives."""

    def __init__(self, gpus: int = 2, **options: Any) -> None:
        self.state = NodeState(INTERVAL, 0.0, **options)
        self.now = 0.0
        self.gpus = gpus

    def send(self, *messages: AnyMessage, at: float | None = None) -> None:
        self.now = self.now if at is None else at
        for message in messages:
            self.state.handle(message, self.now)

    def start(self, at: float = 0.0) -> None:
        found = (GpuFound(identity=identity(index)) for index in range(self.gpus))
        self.send(DriverOpened(driver=Driver(version="580"), count=self.gpus), *found, at=at)

    def sample(self, *indices: int, at: float | None = None) -> None:
        self.send(*(GpuSample(gpu=Gpu(identity=identity(index), at=EPOCH + (at or 0))) for index in indices), at=at)

    def beat(self, at: float, stuck: dict[str, tuple[str, float]] | None = None) -> None:
        """`stuck`: reads that hang in one call since they began."""
        reads = {key: ReadUnderWay(part, seconds, seconds) for key, (part, seconds) in (stuck or {}).items()}
        self.send(ReaderHeartbeat(reads=reads), at=at)

    def states(self) -> dict[str, GpuState]:
        return {s.identity.uuid: s.state for s in self.state.statuses(self.now, EPOCH + self.now)}

    def detail(self, uuid: str) -> str:
        statuses = self.state.statuses(self.now, EPOCH + self.now)
        return next(status.detail for status in statuses if status.identity.uuid == uuid)

    def shown(self) -> list[int]:
        return [gpu.identity.index for gpu in self.state.gpus(self.now)]


def test_a_healthy_round() -> None:
    node = Node()
    node.start()
    assert not node.state.settled(node.now)
    node.sample(0, 1, at=0.1)
    assert node.state.settled(node.now)
    assert node.states() == {"GPU-0": GpuState.FRESH, "GPU-1": GpuState.FRESH}
    assert node.shown() == [0, 1]
    status = node.state.nvml_status(node.now)
    assert (status.up, status.reason, status.last_success) == (True, "", EPOCH + 0.1)


def test_gpus_are_shown_in_their_order() -> None:
    node = Node(3)
    node.start()
    node.sample(2, 0, 1, at=0.1)
    assert node.shown() == [0, 1, 2]


def test_a_round_is_complete_with_the_last_gpu() -> None:
    node = Node()
    node.start()
    node.sample(0, at=0.1)
    assert not node.state.round_complete(0.0, node.now)
    node.sample(1, at=0.2)
    assert node.state.round_complete(0.0, node.now)
    assert not node.state.round_complete(0.2, node.now)


@pytest.mark.parametrize("sampled_before", [True, False])
def test_a_hung_gpu_keeps_no_round_waiting(sampled_before: bool) -> None:
    node = Node()
    node.start()
    node.sample(*((0, 1) if sampled_before else (0,)), at=0.1)
    node.beat(4.0, {"GPU-1": ("fields", 3.0)})
    node.sample(0, at=4.1)
    assert node.state.round_complete(0.2, node.now)


# ---- a GPU that does not answer


def test_a_hung_call_is_reported_within_two_intervals_with_its_part() -> None:
    node = Node()
    node.start()
    node.sample(0, 1, at=0.1)
    node.sample(0, at=2.1)
    node.beat(2 * INTERVAL, {"GPU-1": ("sample buffers", 2.0)})
    assert node.states() == {"GPU-0": GpuState.FRESH, "GPU-1": GpuState.UNRESPONSIVE}
    assert node.detail("GPU-1") == "a driver call does not return (sample buffers, 2 s)"
    assert node.shown() == [0, 1]  # not stale yet
    node.sample(0, at=6.2)
    assert node.shown() == [0]
    assert [gpu.identity.index for gpu in node.state.last_seen(node.now)] == [1]


def test_a_missing_sample_without_a_stuck_call_is_reported_too() -> None:
    node = Node()
    node.start()
    node.sample(0, 1, at=0.1)
    node.sample(0, at=4.1)
    assert node.states()["GPU-1"] is GpuState.UNRESPONSIVE
    assert node.detail("GPU-1") == "no sample for 4 s"


def test_one_late_sample_is_no_fault() -> None:
    node = Node()
    node.start()
    node.sample(0, 1, at=0.1)
    node.beat(3.0, {"GPU-1": ("fields", 1.0)})
    assert node.states()["GPU-1"] is GpuState.FRESH


def test_a_gpu_that_answers_again_is_fresh_again() -> None:
    node = Node()
    node.start()
    node.sample(0, 1, at=0.1)
    node.beat(5.0, {"GPU-1": ("fields", 4.0)})
    assert node.states()["GPU-1"] is GpuState.UNRESPONSIVE
    node.sample(1, at=5.1)
    node.beat(5.2)
    assert node.states()["GPU-1"] is GpuState.FRESH


def test_since_is_when_the_state_changed() -> None:
    node = Node()
    node.start()
    node.sample(0, 1, at=0.1)
    first = node.state.statuses(0.1, EPOCH)[1].since
    node.sample(0, at=5.0)
    changed = node.state.statuses(5.0, EPOCH + 5)[1].since
    again = node.state.statuses(6.0, EPOCH + 6)[1].since
    assert (first, changed, again) == (EPOCH, EPOCH + 5, EPOCH + 5)


def test_the_longest_wait_ends_where_a_gpu_becomes_overdue() -> None:
    node = Node()
    node.start()
    node.sample(0, 1, at=10.0)
    assert node.state.longest_wait(10.0) == INTERVAL
    overdue_in = node.state.longest_wait(12.5)
    assert 0 < overdue_in < INTERVAL
    node.sample(0, at=12.5)
    node.now = 12.5 + overdue_in + 0.01
    assert node.states() == {"GPU-0": GpuState.FRESH, "GPU-1": GpuState.UNRESPONSIVE}


# ---- lost, refused, vanished, hung while registered


def test_a_lost_gpu_stays_lost_and_is_shown_no_more() -> None:
    node = Node()
    node.start()
    node.sample(0, 1, at=0.1)
    node.send(GpuTrouble(uuid="GPU-1", lost=True, reason="GPU is lost"), at=2.0)
    assert node.states()["GPU-1"] is GpuState.LOST
    assert node.shown() == [0]
    node.send(ReaderFailed(reason="the reader process was ended by SIGKILL", kind="reader"), at=2.1)
    assert node.states()["GPU-1"] is GpuState.LOST


def test_a_failed_read_is_no_loss() -> None:
    node = Node()
    node.start()
    node.sample(0, 1, at=0.1)
    node.send(GpuTrouble(uuid="GPU-1", lost=False, reason="Unknown Error"), at=2.0)
    assert node.states()["GPU-1"] is GpuState.UNKNOWN
    assert node.detail("GPU-1") == "Unknown Error"


def test_a_gpu_that_vanished_from_nvml_is_lost_after_a_while() -> None:
    node = Node()
    node.start()
    node.sample(0, 1, at=0.1)
    node.send(DriverOpened(driver=Driver(), count=1), GpuFound(identity=identity(0)), at=1.0)
    node.sample(0, at=1.1)
    assert node.states()["GPU-1"] is GpuState.FRESH
    node.sample(0, at=1.0 + SETTLE_SECONDS + 0.1)
    assert node.states() == {"GPU-0": GpuState.FRESH, "GPU-1": GpuState.LOST}
    assert node.detail("GPU-1") == "vanished from NVML"
    assert node.state.round_complete(2.0, node.now)


def test_gpus_that_a_new_driver_is_slow_to_wake_have_not_vanished() -> None:
    node = Node()
    node.start()
    node.sample(0, 1, at=0.1)
    node.send(DriverOpened(driver=Driver(), count=2), at=1.0)
    for number in range(int((ANSWER_SECONDS - 1) / INTERVAL)):
        node.beat(1.0 + number * INTERVAL)
        assert GpuState.LOST not in node.states().values()
    node.send(GpuFound(identity=identity(0)), at=ANSWER_SECONDS)
    node.beat(1.1 + ANSWER_SECONDS)
    assert node.states()["GPU-1"] is GpuState.LOST


@pytest.mark.parametrize(("lost", "state"), [(True, GpuState.LOST), (False, GpuState.UNKNOWN)])
def test_a_known_gpu_that_is_refused_again(lost: bool, state: GpuState) -> None:
    node = Node()
    node.start()
    node.sample(0, 1, at=0.1)
    node.send(DriverOpened(driver=Driver(), count=2), GpuFound(identity=identity(0)), at=1.0)
    node.send(GpuRefused(index=1, lost=lost, reason="Insufficient Permissions"), at=1.1)
    for at in (3.0, 5.0, 7.0):
        node.sample(0, at=at)
    assert node.states()["GPU-1"] is state
    assert node.detail("GPU-1") == "Insufficient Permissions"
    status = node.state.nvml_status(node.now)
    assert (status.up, status.reason) == (True, "index 1: Insufficient Permissions")


def test_a_known_gpu_that_hangs_while_it_is_registered_again() -> None:
    node = Node()
    node.start()
    node.sample(0, 1, at=0.1)
    node.send(DriverOpened(driver=Driver(), count=2), GpuFound(identity=identity(0)), at=1.0)
    for at in (3.0, 5.0, 7.0):
        node.sample(0, at=at)
        node.beat(at, {"index 1": ("registration", at - 1)})
    assert node.states()["GPU-1"] is GpuState.UNRESPONSIVE
    assert node.state.nvml_status(node.now).reason == "index 1: registration hangs"


def test_a_gpu_that_moved_to_another_index_is_itself() -> None:
    node = Node()
    node.start()
    node.sample(0, 1, at=0.1)
    node.send(DriverOpened(driver=Driver(), count=1), GpuFound(identity=identity(0, "GPU-1")), at=1.0)
    node.send(GpuSample(gpu=Gpu(identity=identity(0, "GPU-1"))), at=1.1)
    node.beat(1.0 + SETTLE_SECONDS + 0.5)
    assert node.states() == {"GPU-0": GpuState.LOST, "GPU-1": GpuState.FRESH}


# ---- the monitor's own trouble


def test_a_reader_that_ended_faults_no_gpu() -> None:
    node = Node()
    node.start()
    node.sample(0, 1, at=0.1)
    node.send(ReaderFailed(reason="the reader process was ended by SIGSEGV", kind="reader"), at=1.0)
    assert set(node.states().values()) == {GpuState.FRESH}  # a moment ago all was well
    status = node.state.nvml_status(node.now)
    assert (status.up, status.reason, status.failures) == (False, "the reader process was ended by SIGSEGV", 1)
    node.now = 0.1 + STALE_INTERVALS * INTERVAL + 0.1
    assert set(node.states().values()) == {GpuState.UNKNOWN}
    assert node.shown() == []


def test_a_silent_reader_faults_no_gpu() -> None:
    node = Node()
    node.start()
    node.sample(0, 1, at=0.1)
    node.now = 0.1 + max(BEAT_SECONDS, STALE_INTERVALS * INTERVAL) + 0.1
    assert set(node.states().values()) == {GpuState.UNKNOWN}


def test_a_new_reader_has_time_to_take_the_first_sample() -> None:
    node = Node()
    node.start()
    node.sample(0, 1, at=0.1)
    node.send(ReaderFailed(reason="x", kind="reader"), at=10.0)
    node.start(at=20.0)
    node.beat(21.0)
    assert set(node.states().values()) == {GpuState.FRESH}


# ---- the start


def test_the_start_is_reported_while_the_driver_keeps_it_waiting() -> None:
    node = Node(settle=SETTLE_SECONDS)
    node.send(ReaderHeartbeat(starting="nvmlInit"), at=SETTLE_SECONDS - 0.1)
    assert not node.state.settled(node.now)
    node.send(ReaderHeartbeat(starting="nvmlInit"), at=SETTLE_SECONDS + 0.1)
    assert node.state.settled(node.now)
    status = node.state.nvml_status(node.now)
    assert (status.up, status.reason) == (False, "starting: nvmlInit")
    assert not node.state.answered(node.now)


def test_how_long_the_start_hangs_is_reported_of_one_reader_and_one_call() -> None:
    node = Node()

    def hanging() -> float | None:
        return node.state.nvml_status(node.now).hanging_seconds

    node.send(ReaderHeartbeat(starting="nvmlInit"), at=1.0)
    for second in range(2, 90):
        node.send(ReaderHeartbeat(starting="nvmlInit"), at=float(second))
    assert hanging() == 88.0
    node.send(ReaderHeartbeat(starting="counting the GPUs"), at=90.0)
    assert hanging() == 0.0
    node.send(ReaderFailed(reason="Driver Not Loaded", kind="driver_gone"), at=100.0)
    assert hanging() is None
    node.send(ReaderHeartbeat(starting="counting the GPUs"), at=105.0)
    assert hanging() == 0.0
    node.now = 120.0
    assert hanging() is None  # the reader itself does not live
    node.start(at=121.0)
    assert hanging() is None


def test_a_gpu_that_hangs_at_the_start_keeps_the_others_waiting_for_the_settling_time_only() -> None:
    node = Node(settle=1.0)
    node.send(DriverOpened(driver=Driver(), count=2), GpuFound(identity=identity(0)), at=0.5)
    node.sample(0, at=0.6)
    assert not node.state.settled(node.now)
    node.beat(1.6)
    assert node.state.settled(node.now)
    assert node.shown() == [0]


def test_gpus_count_as_shown_when_all_have_answered_or_had_their_time() -> None:
    node = Node()
    node.send(DriverOpened(driver=Driver(), count=3), GpuFound(identity=identity(0)), at=0.0)
    assert not node.state.answered(1.0)
    node.send(GpuRefused(index=1, reason="x"), at=1.0)
    assert not node.state.answered(1.0)
    assert node.state.answered(ANSWER_SECONDS + 0.1)
    node.send(GpuFound(identity=identity(2)), at=1.1)
    assert node.state.answered(1.1)


def test_gpus_of_an_earlier_reader_are_not_taken_for_answers() -> None:
    node = Node(2)
    node.start()
    node.sample(0, 1, at=0.1)
    node.send(DriverOpened(driver=Driver(), count=2), at=1.0)
    assert not node.state.answered(1.0)


def test_a_node_without_gpus() -> None:
    node = Node(0)
    node.start()
    assert node.state.settled(node.now)
    status = node.state.nvml_status(node.now)
    assert (status.up, status.reason) == (False, "no GPU in NVML")


def test_all_gpus_silent() -> None:
    node = Node()
    node.start()
    node.sample(0, 1, at=0.1)
    node.beat(7.0, {"GPU-0": ("fields", 6.0), "GPU-1": ("fields", 6.0)})
    status = node.state.nvml_status(node.now)
    assert (status.up, status.reason) == (False, "no GPU answers")


# ---- GPM


@pytest.mark.parametrize(
    ("gpu", "up", "reason"),
    [
        ({"activity": Activity(sm=0.5)}, True, ""),
        ({"errors": {"activity": "Insufficient Permissions"}}, False, "Insufficient Permissions"),
        ({}, None, "no GPU offers it (Hopper and newer do)"),
    ],
)
def test_gpm(gpu: dict[str, Any], up: bool | None, reason: str) -> None:
    node = Node(1)
    node.start()
    node.send(GpuSample(gpu=Gpu(identity=identity(0), **gpu)), at=0.1)
    status = node.state.gpm_status(node.now)
    assert (status.up, status.reason) == (up, reason)


def test_gpus_that_do_not_show_who_they_are_are_known_by_their_index() -> None:
    """One that is hidden from this container is said in the reason, and missing to nobody."""
    node = Node()
    node.send(DriverOpened(driver=Driver(), count=4), GpuFound(identity=identity(0)), at=0.0)
    node.sample(0, at=0.1)
    node.send(GpuRefused(index=1, lost=True, reason="GPU is lost"), at=0.2)
    node.send(GpuRefused(index=2, hidden=True, reason="Insufficient Permissions"), at=0.2)
    node.beat(3.0, {"index 3": ("registration", 2.5)})
    assert node.state.unanswered() == {1: "GPU is lost", 3: "registration hangs"}
    assert "index 2: Insufficient Permissions" in node.state.nvml_status(node.now).reason
    node.send(GpuFound(identity=identity(1)), GpuFound(identity=identity(2)), at=3.1)
    node.beat(3.2, {})
    assert node.state.unanswered() == {}
    assert "index 2" not in node.state.nvml_status(node.now).reason


def test_a_gpu_that_answers_late_has_an_interval_for_its_first_sample():
    node = Node(gpus=1)
    node.send(DriverOpened(driver=Driver(), count=1), at=1.0)
    node.send(GpuFound(identity=identity(0)), at=9.0)
    node.beat(at=10.0)
    assert node.states() == {"GPU-0": GpuState.FRESH}
    node.beat(at=9.0 + 2 * INTERVAL)
    assert node.states() == {"GPU-0": GpuState.UNRESPONSIVE}


def test_a_gpu_that_was_found_is_not_awaited_whatever_the_heartbeat_before_reported():
    node = Node(gpus=1)
    node.send(DriverOpened(driver=Driver(), count=1), at=1.0)
    node.beat(at=2.0, stuck={"index 0": ("registration", 0.4)})
    assert node.state.awaited() == {0: 0.4}
    node.send(GpuFound(identity=identity(0)), at=2.1)
    assert node.state.awaited() == {}
    node.beat(at=2.2, stuck={"index 0": ("registration", 0.5)})  # composed before the identity was sent
    assert node.state.awaited() == node.state.unanswered() == {}
