"""The reader process: samples every GPU until its stdin closes.

The main thread never calls the driver, so that it can beat whatever the driver does. At the end it waits for calls
under way, for ever if need be: a process that is ended in the middle of one can wedge the GPU.
"""

import os
import select
import signal
import sys

import msgspec

from gpuwatch.collect.reader.driver import DriverThread
from gpuwatch.collect.reader.messages import REFRESH, Beat, Settings
from gpuwatch.collect.reader.outbox import Outbox
from gpuwatch.collect.reader.streams import let_go, private_stdout

BEAT_SECONDS = 0.5


def main() -> None:
    """Run until stdin closes, which the agent does too when it was told that the driver is gone."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # a terminal sends Ctrl-C to both; the agent ends the reader
    settings = msgspec.json.decode(sys.argv[1], type=Settings)
    outbox = Outbox(private_stdout())
    driver = DriverThread(settings, outbox)
    driver.start()
    stdin = sys.stdin.fileno()
    while not outbox.closed:
        readable, _, _ = select.select([stdin], [], [], BEAT_SECONDS)
        if readable:
            command = os.read(stdin, 64)
            if not command:
                break
            if REFRESH in command:
                driver.refresh()
        outbox.send(Beat(stuck=driver.stuck(), starting=driver.starting))
    let_go()
    driver.finish()
    os._exit(0)
