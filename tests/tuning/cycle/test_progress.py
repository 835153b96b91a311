"""The application's own count of its work is the signal where it is good enough, and GPU counters only veto."""

import random
from contextlib import closing
from typing import Any

import pytest
from msgspec.structs import replace

from gpuwatch.consents.file import ConsentsFile, progress_file
from gpuwatch.consents.progress import ProgressFollower
from gpuwatch.model.consent import PROGRESS, Consents, PodConsent, ProgressCounter
from gpuwatch.model.snapshot import GpuProcess
from gpuwatch.model.view import View
from gpuwatch.model.workload import Attribution, ProcessOwner
from gpuwatch.tuning.model.status import ObstacleReason, TuningState
from tests.consents.test_progress import Server, server  # noqa: F401 a fixture
from tests.consents.test_progress_socket import Bench
from tests.tuning.cycle.tuning_world import Work, World

BOUND = 0.055


def world(pod_rate: float | None, *, bound: float = 0.5, polls: bool = True) -> World:
    """A pod on GPU 2 whose DRAM traffic is no progress and whose pipes are nearly idle, as polling and spilling are."""
    made = World(max_actions_per_hour=1000)
    work = Work("b", (12,), bound)
    work.polls, work.pipe = polls, 0.03
    made.works = {"GPU-0": None, "GPU-1": None, "GPU-2": work, "GPU-3": None}
    if pod_rate is not None:
        made.rates["b"] = pod_rate
    return made


def test_where_counters_know_too_little_progress_finds_the_cap():
    refused, served = world(None), world(900.0)
    for each in (refused, served):
        each.works["GPU-2"].pipe = 0.0
    refused.until(TuningState.REFUSED, 2)
    assert refused.gpu(2).reason is ObstacleReason.WEAK_SIGNAL
    served.until(TuningState.HOLDING, 2)
    assert served.gpu(2).signal == "progress"
    assert 0.02 < 1 - served.pace("b") <= BOUND
    shown = served.gpu(2).slowdown
    assert shown is not None
    assert abs(shown - (1 - served.pace("b"))) < 0.01


@pytest.mark.parametrize(
    ("rate", "why"),
    [(2.0, "counts 11 times in a window, 20 at least"), (0.0, "counts 0 times in a window"), (1e-9, "counts 0 times")],
)
def test_a_counter_that_is_too_slow_is_refused_and_counters_rule(rate, why):
    slow = world(rate, polls=False)
    slow.until(TuningState.SEARCHING, 2)
    assert slow.gpu(2).signal == "counters"
    assert f"progress is not used: its counter {why}" in slow.gpu(2).note


def test_a_noisy_counter_is_refused_and_counters_rule():
    noisy, chance = world(900.0, polls=False), random.Random(3)
    for _ in range(90):
        noisy.rates["b"] = 900.0 * chance.choice((0.7, 1.3))
        noisy.tick()
    assert noisy.gpu(2).state is TuningState.SEARCHING
    assert noisy.gpu(2).signal == "counters"
    assert "its counter's rate varies by" in noisy.gpu(2).note


def test_the_rate_of_serving_work_follows_its_requests_and_is_no_signal():
    serving = world(900.0, polls=False)
    serving.annotations["b"]["gpuwatch.io/autotune-class"] = "serving"
    serving.works["GPU-2"].engine = 0.5
    serving.until(TuningState.SEARCHING, 2)
    assert serving.gpu(2).signal == "counters"
    assert "follows its requests" in serving.gpu(2).note


def test_a_count_that_shows_no_loss_is_overruled_where_all_gpu_counters_show_one():
    """The value is another's: whoever counts seconds instead of steps would otherwise get the lowest clock."""
    liar = world(900.0, bound=0.9, polls=False)
    liar.works["GPU-2"].pipe = 0.3
    liar.pace = lambda pod: 1.0
    liar.until(TuningState.HOLDING, 2)
    assert liar.gpu(2).signal == "progress"
    assert 1 - liar.speed("GPU-2") < 0.05 + 0.03


def test_a_page_that_is_gone_lifts_the_cap_and_leaves_it_to_the_counters():
    gone = world(900.0, polls=False)
    gone.until(TuningState.HOLDING, 2)
    trouble = ProgressCounter(
        samples=gone.counters["uid-b"].samples, trouble="no counter at port 8000, /metrics; refused"
    )
    gone.rates, gone.counters = {}, {"uid-b": trouble}
    assert gone.until(TuningState.OBSERVING, 2) < 60
    assert gone.caps[2] is None
    gone.until(TuningState.SEARCHING, 2)
    assert gone.gpu(2).signal == "counters"
    assert "port 8000, /metrics; refused" in gone.gpu(2).note


def test_a_restarted_tuner_verifies_by_the_signal_it_had():
    first = world(900.0)
    first.until(TuningState.HOLDING, 2)
    second = world(900.0)
    second.saved = dict(first.step.kept)
    second.run(30)
    assert (second.gpu(2).state, second.gpu(2).signal) == (TuningState.VERIFYING, "progress")
    second.until(TuningState.HOLDING, 2, 300)


@pytest.mark.slow  # quick: the first test above, with the counter handed in; tests/consents has the page
def test_a_simulated_vllm_page_is_the_signal(server: Server, tmp_path):  # noqa: F811
    """All of it: vLLM's page over HTTP, the process that fetches it, its file, and the tuner's cycle that reads it."""
    node = world(None)
    port = server.server_address[1]
    consents, file = ConsentsFile(tmp_path), progress_file(tmp_path)
    pod = PodConsent(namespace="ml", name="b", uid="uid-b", annotations={PROGRESS: f"vllm:{port}"}, ip="127.0.0.1")
    clock = WorldClock(node)
    follower = ProgressFollower(consents, file, clock, loopback=True)
    tokens = 0.0
    for _ in range(3600):
        tokens += 2400.0 * node.pace("b") * node.chance.gauss(1, 0.003)
        server.body = b'vllm:generation_tokens_total{engine="0",model_name="m"} %d.0\n' % tokens
        consents.write(Consents(at=clock.time(), pods=(pod,)))
        follower.step()
        found = file.read()
        assert found is not None
        node.counters = found.owners
        node.tick()
        if node.gpu(2).state is TuningState.HOLDING:
            break
    assert (node.gpu(2).state, node.gpu(2).signal) == (TuningState.HOLDING, "progress")
    assert 0.02 < 1 - node.pace("b") <= BOUND


class WorldClock:
    """That of the world, at the end of the second that is being played."""

    def __init__(self, world: World) -> None:
        self._world = world

    def time(self) -> float:
        return self._world.at + 1.0

    def monotonic(self) -> float:
        return self._world.now + 1.0


def test_of_a_shared_gpu_the_bound_is_each_owners_and_the_slowest_counter_decides():
    shared = world(900.0, polls=False)
    shared.sharing = "a"
    shared.annotations["a"] |= {PROGRESS: "vllm"}
    shared.annotations["b"] |= {PROGRESS: "vllm"}
    shared.until(TuningState.REFUSED, 2)
    assert shared.gpu(2).reason is ObstacleReason.NO_PROGRESS  # only one of them counts
    shared = world(900.0, bound=0.1, polls=False)
    shared.sharing, shared.rates["a"] = "a", 700.0
    shared.annotations["a"] |= {PROGRESS: "vllm"}
    shared.annotations["b"] |= {PROGRESS: "vllm"}
    shared.until(TuningState.HOLDING, 2)
    assert 1 - shared.speed_of_sharing() <= BOUND
    assert 1 - shared.pace("b") < 0.03


class Outside(World):
    """The same node without Kubernetes: what pods had, users have, whose processes add to a counter at the socket.
    `guests`: processes of another user on GPU 2.
    """

    guests: tuple[int, ...] = ()

    def _new_view(self) -> View:
        seen = super()._new_view()
        people = {pid: "ada" for work in self.works.values() if work is not None for pid in work.pids}
        people |= {pid: "mallory" for pid in self.guests}
        gpus = tuple(
            replace(
                gpu, processes=(*(gpu.processes or ()), *(GpuProcess(pid=pid, type="compute") for pid in self.guests))
            )
            if gpu.identity.uuid == "GPU-2"
            else gpu
            for gpu in seen.snapshot.gpus
        )
        owners = tuple(ProcessOwner(pid=pid, start_time=1, user=user) for pid, user in people.items())
        snapshot = replace(seen.snapshot, gpus=gpus)
        return replace(seen, snapshot=snapshot, attribution=Attribution(), owners=owners)


def outside(**tuning: Any) -> Outside:
    """Work of a user on GPU 2 whose counters know too little; `tuning.work_class` is the operator's word."""
    made = Outside(work_class="batch", max_actions_per_hour=1000, **tuning)
    work = Work("b", (12,), 0.5)
    work.polls, work.pipe = True, 0.03
    made.works, made.consented = {"GPU-0": None, "GPU-1": None, "GPU-2": work, "GPU-3": None}, False
    return made


def test_what_a_users_processes_add_at_the_socket_is_the_signal_without_kubernetes(tmp_path):
    """All of it: a process adds, the file has it, and the tuner's cycle goes by it, without a file of consents."""
    node, bench, done = outside(), Bench(tmp_path), 0
    with closing(bench.socket), bench.connect() as script:

        def second(count: int) -> TuningState:
            bench.clock.wall, bench.clock.steady = node.at + 1.0, node.now + 1.0
            if count:
                assert bench.say(script, b"add %d\n" % count) == "ok\n"
            bench.follower.step()
            found = bench.file.read()
            node.counters = {} if found is None else found.owners
            return node.tick().gpus[2].state

        while second(int(2400 * node.pace("b") * node.chance.gauss(1, 0.003))) is not TuningState.HOLDING:
            done += 1
            assert done < 3600
        assert (node.gpu(2).owners, node.gpu(2).signal) == (("user ada",), "progress")
        assert 0.02 < 1 - node.pace("b") <= BOUND
        for _ in range(45):
            second(0)
        assert node.caps[2] is None  # a script that adds nothing more leaves no cap behind
        assert node.counters == {}


def test_users_share_a_tuned_gpu_only_if_there_is_a_socket_and_each_adds_to_its_counter():
    refused = outside()
    refused.guests = (13,)
    refused.run(3)
    assert refused.gpu(2).reason is ObstacleReason.SHARED
    one = outside(progress_socket="/run/gpuwatch-progress/progress.sock")
    one.guests = (13,)
    fed(one, {"user ada": 900.0})
    assert (one.gpu(2).state, one.gpu(2).reason) == (TuningState.REFUSED, ObstacleReason.NO_PROGRESS)
    both = outside(progress_socket="/run/gpuwatch-progress/progress.sock")
    both.guests = (13,)
    fed(both, {"user ada": 900.0, "user mallory": 700.0})
    assert (both.gpu(2).state, both.gpu(2).signal) == (TuningState.HOLDING, "progress")
    assert 1 - both.pace("b") <= BOUND


def fed(node: Outside, rates: dict[str, float]) -> None:
    """Until it is held or refused; each counter goes with the speed of the work."""
    done = dict.fromkeys(rates, 0.0)
    for _ in range(3600):
        for owner, rate in rates.items():
            done[owner] += rate * node.pace("b") * node.chance.gauss(1, 0.003)
            samples = node.counters.get(owner, ProgressCounter()).samples
            node.counters[owner] = ProgressCounter(samples=(*samples, (node.at + 1.0, float(int(done[owner]))))[-20:])
        if node.tick().gpus[2].state in (TuningState.HOLDING, TuningState.REFUSED):
            return
