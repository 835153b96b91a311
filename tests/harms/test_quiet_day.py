"""A day full of noise that is no fault of any GPU: real log, judge and plan in mode `enforce`, and not one taint."""

from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import pytest

from gpuwatch.model.snapshot import Driver, GpuState, SourceStatus
from tests.harms.chain import INTERVAL, USER, Chain
from tests.health.judging import DRIVER, NVML, pod

APPLICATION = (13, 31, 43, 45)
UNKNOWN = (999, 1234)
HARDWARE = 79
LONG = round(240 / INTERVAL)
"""Looks: longer than any hold."""


@pytest.fixture
def chain(tmp_path: Path) -> Iterator[Chain]:
    with closing(Chain(tmp_path)) as running:
        yield running


def bursts_of_several_pods(chain: Chain, hour: int) -> None:
    """Both GPUs see the XIDs of ever new pods, in bursts, by the log and by NVML."""
    for gpu in (0, 1):
        chain.bench.hold(pod(f"job-{hour}-{gpu}"), gpu=gpu)
        chain.write(*APPLICATION * 3, gpu=gpu, pid=1000 + hour)
        chain.report(APPLICATION[hour % 4], gpu)
    chain.cycle(read=True)


def one_gpu_many_pods(chain: Chain, hour: int) -> None:
    """Pod after pod fails on the same GPU only: worth a look, no reason to taint."""
    for number in range(6):
        chain.bench.hold(pod(f"victim-{hour}-{number}"))
        chain.write(31, 43)
        chain.cycle(read=True)


def codes_nobody_knows(chain: Chain, hour: int) -> None:
    """A newer driver has more XIDs than the catalogue."""
    chain.write(*UNKNOWN)
    chain.report(UNKNOWN[hour % 2], 1)
    chain.cycle(read=True)


def forged_lines(chain: Chain, hour: int) -> None:
    """A container that has /dev/kmsg claims the worst."""
    chain.write(HARDWARE, 48, 64, 95, 119, gpu=hour % 2, priority=USER)
    chain.cycle(read=True)


def a_dead_reader(chain: Chain, hour: int) -> None:
    """Nobody reads NVML for minutes; the remediator even loses the agent."""
    chain.bench.states = dict.fromkeys(chain.bench.states, GpuState.UNKNOWN)
    chain.bench.node["sources"] = (SourceStatus(name="nvml", up=False, reason="the reader was ended by SIGSEGV"),)
    chain.cycle(LONG)
    chain.cycle(LONG, reported=False)
    chain.bench.states = dict.fromkeys(chain.bench.states, GpuState.FRESH)
    chain.bench.node["sources"] = (NVML,)


def a_kubelet_restart(chain: Chain, hour: int) -> None:
    """For minutes nobody tells who has which GPU."""
    down = SourceStatus(name="podresources", up=False, reason="connection refused")
    chain.bench.node["sources"] = (NVML, down)
    chain.bench.hold()
    chain.bench.hold(gpu=1)
    chain.cycle(LONG)
    chain.bench.node["sources"] = (NVML,)


def a_driver_upgrade(chain: Chain, hour: int) -> None:
    """The driver goes, GPUs that stay on the bus go with it, and come back one by one with counters at zero."""
    bench = chain.bench
    bench.node |= {"driver": None, "bus": ("0000:01:00.0", "0000:02:00.0")}
    bench.node["sources"] = (SourceStatus(name="nvml", up=False, reason="Driver Not Loaded"),)
    bench.states = dict.fromkeys(bench.states, GpuState.UNKNOWN)
    chain.cycle(LONG)
    bench.node |= {"driver": Driver(version=f"580.{hour}"), "sources": (NVML,), "unanswered": {1: "registration hangs"}}
    bench.energy = dict.fromkeys(bench.energy, 0.0)
    bench.states[0] = GpuState.FRESH
    chain.cycle(3)
    bench.states[1] = GpuState.FRESH
    bench.node |= {"unanswered": {}, "bus": None}
    chain.cycle(3)


def a_driver_reload(chain: Chain, hour: int) -> None:
    """The same driver, loaded anew while an application was cut off."""
    chain.bench.node["driver"] = None
    chain.cycle(2)
    chain.bench.node["driver"] = DRIVER
    chain.bench.energy = dict.fromkeys(chain.bench.energy, 0.0)
    chain.write(45, 45, 43)
    chain.cycle(read=True)


TROUBLES: tuple[Callable[[Chain, int], None], ...] = (
    bursts_of_several_pods,
    one_gpu_many_pods,
    codes_nobody_knows,
    forged_lines,
    a_dead_reader,
    a_kubelet_restart,
    a_driver_upgrade,
    a_driver_reload,
)


def day(chain: Chain) -> Iterator[str]:
    """24 hours; every trouble comes every other hour or more often. Tells what just happened."""
    end, hour = chain.bench.now + 24 * 3600.0, 0
    while chain.bench.now < end:
        began = chain.bench.now
        for trouble in TROUBLES[hour % 2 :: 2]:
            trouble(chain, hour)
            yield f"hour {hour}, {trouble.__name__}"
        while chain.bench.now - began < 3600.0:
            chain.cycle()
        hour += 1
    assert hour == 24


def test_a_day_of_noise_taints_nothing(chain: Chain) -> None:
    for moment in day(chain):
        assert chain.taints == (), f"{moment}: {chain.bench.last.findings}"
    assert chain.quarantines == 0
    assert chain.ledger.unknown >= 12
    assert not chain.story.node.unschedulable


@pytest.mark.parametrize("trouble", TROUBLES, ids=lambda trouble: trouble.__name__)
def test_no_trouble_by_itself_taints(chain: Chain, trouble: Callable[[Chain, int], None]) -> None:
    trouble(chain, 0)
    chain.cycle(3)
    assert chain.quarantines == 0


@pytest.mark.slow  # quick: a day of noise taints nothing; one hardware XID alone, tests/health/xid
def test_one_hardware_xid_in_the_same_day_is_one_taint(chain: Chain) -> None:
    """So the day can fail."""
    tainted = []
    for number, moment in enumerate(day(chain)):
        if number == 20:
            chain.fail(HARDWARE)
            chain.cycle(read=True)
        if chain.taints:
            tainted.append((number, moment))
    assert chain.quarantines == 1
    assert tainted[0][0] == 20
