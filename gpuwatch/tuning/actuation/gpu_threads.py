"""A thread for each GPU that is asked something: one whose driver call does not return keeps nobody else waiting.

It is not asked anything else until that call returns. Such calls cannot be ended: the threads are daemons.
"""

import threading
import time
from collections.abc import Callable, Mapping


class Lanes:
    """Runs jobs by GPU. What a job finds it writes down itself; one that is late writes it down late."""

    def __init__(self) -> None:
        self._threads: dict[str, threading.Thread] = {}

    def run(self, jobs: Mapping[str, Callable[[], None]], patience: float, *, insist: bool = False) -> None:
        """All at once; returns when they are done, after `patience` seconds at most.

        A GPU that is still at an earlier job is left out. `insist`: it is waited for as long, and then asked.
        """
        deadline = time.monotonic() + patience
        busy = {uuid: thread for uuid in jobs if (thread := self._threads.get(uuid)) is not None and thread.is_alive()}
        for uuid in jobs.keys() - busy.keys():
            self._start(uuid, jobs[uuid])
        for uuid, thread in busy.items() if insist else ():
            thread.join(max(0.0, deadline - time.monotonic()))
            if not thread.is_alive():
                self._start(uuid, jobs[uuid])
        for uuid in jobs.keys() if insist else jobs.keys() - busy.keys():
            self._threads[uuid].join(max(0.0, deadline - time.monotonic()))

    def _start(self, uuid: str, job: Callable[[], None]) -> None:
        self._threads[uuid] = threading.Thread(target=job, name=f"GPU {uuid}", daemon=True)
        self._threads[uuid].start()
