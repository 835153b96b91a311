"""Signals come as messages, whatever the main thread does when they come."""

import os
import signal
import subprocess
import sys
import threading

import pytest

from gpuwatch.process.signals import ENDS, Signals
from tests.waiting import BOUND_SECONDS

STORM = """
import signal, sys
from gpuwatch.process.signals import Signals
signals = Signals()
signals.catch([signal.SIGALRM])
signal.setitimer(signal.ITIMER_REAL, 5e-5, 5e-5)
came = 0
while came < int(sys.argv[1]):
    came += signals.next(1e-5) == signal.SIGALRM
signal.setitimer(signal.ITIMER_REAL, 0)
print("ends")
"""
"""A timer that interrupts the waiting at every place. A handler that sets an Event does not survive it."""


@pytest.mark.parametrize("many", [5_000, pytest.param(20_000, marks=pytest.mark.slow)])  # a quarter of them is quick
def test_no_signal_finds_the_main_thread_in_its_own_way(many):
    command = [sys.executable, "-c", STORM, str(many)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=BOUND_SECONDS)
    assert (done.stdout, done.returncode) == ("ends\n", 0), done.stderr


@pytest.fixture
def signals():
    """Signals of this process, given back afterwards."""
    before = {number: signal.getsignal(number) for number in (signal.SIGUSR1, signal.SIGUSR2)}
    found = Signals()
    found.catch(before)
    yield found
    for number, handler in before.items():
        signal.signal(number, handler)


def test_they_come_in_order_and_none_is_lost(signals):
    for number in (signal.SIGUSR1, signal.SIGUSR2, signal.SIGUSR1):
        os.kill(os.getpid(), number)
    assert [signals.next(1.0) for _ in range(3)] == [signal.SIGUSR1, signal.SIGUSR2, signal.SIGUSR1]
    assert signals.next(0.0) is None


def test_any_thread_may_wake_who_waits(signals):
    threading.Thread(target=signals.wake).start()
    assert signals.next(60.0) is None


def test_a_role_is_ended_by_the_orchestrator_and_by_a_person():
    assert set(ENDS) == {signal.SIGTERM, signal.SIGINT}
