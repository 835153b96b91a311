"""The reader process: `python -m gpuwatch.reader SETTINGS` samples every GPU until its stdin closes.

The main thread never calls the driver, so that it can beat and end whatever the driver does. Ending means os._exit: a
thread inside a driver call cannot be waited for.
"""

import os
import select
import sys

import msgspec

from gpuwatch.reader.driver import DriverThread
from gpuwatch.reader.messages import REFRESH, Beat, Failed, Settings
from gpuwatch.reader.outbox import Outbox

BEAT_SECONDS = 0.5
EXIT_DRIVER = 3
"""Exit status after a Failed message."""


def main() -> None:
    """Run until stdin closes or the driver is gone."""
    settings = msgspec.json.decode(sys.argv[1], type=Settings)
    outbox = Outbox(sys.stdout.fileno())
    driver = DriverThread(settings, outbox, lambda failed: leave(outbox, failed))
    driver.start()
    stdin = sys.stdin.fileno()
    while True:
        readable, _, _ = select.select([stdin], [], [], BEAT_SECONDS)
        if readable:
            command = os.read(stdin, 64)
            if not command:
                os._exit(0)
            if REFRESH in command:
                driver.refresh()
        outbox.send(Beat(stuck=driver.stuck(), starting=driver.starting))


def leave(outbox: Outbox, failed: Failed) -> None:
    """Say why and end at once."""
    outbox.send(failed)
    os._exit(EXIT_DRIVER)


if __name__ == "__main__":
    main()
